# shellcheck shell=bash
# Sourced by ./run: the fault suite of `weir ledger`, on this machine's kernel and in guests with others.

ledger_seconds=1500 # how long the suite may take in a guest
ledger_kernels=(6.1 6.12 newest)
# What the test asks for second readings, and for rules of netfilter, besides the guest's own tools.
ledger_tools=(ss nstat nft)

# Programs that watch a host, and Debian's packages of them. They are unpacked and not installed.
ledger_monitors=(dropwatch prometheus-node-exporter)

# ./run ledger faults [--kernel K | --guests] [PART] · tools [PART] · load [--seconds N] · mix [--seed N]
run_ledger() {
    local what=${1-} kernel="" kernels=() status=0
    (($# == 0)) || shift
    case $what in
    faults) ;;
    tools)
        ledger_beside_tools "$@"
        return
        ;;
    load | mix)
        ledger_here "$what" "$@"
        return
        ;;
    *) usage_error "'ledger' takes faults, tools, load or mix, got: '$what'" ;;
    esac
    case ${1-} in
    --guests) shift && kernels=("${ledger_kernels[@]}") ;;
    --kernel)
        (($# > 1)) || usage_error "--kernel needs a value"
        kernels=("$2") && shift 2
        ;;
    -*) usage_error "'ledger faults' takes --kernel or --guests, got: $1" ;;
    esac
    if ((${#kernels[@]} == 0)); then
        ledger_here table "$@"
        return
    fi
    ledger_begin_guests
    for kernel in "${kernels[@]}"; do
        ledger_prepare "$kernel" table "$@" || die "there is no guest: $(guest_reason)"
        ledger_run "$kernel" || status=$?
        ledger_print
    done
    return "$status"
}

# In a guest of the newest kernel: not every kernel has the interface of dropwatch.
ledger_beside_tools() {
    local root=$target_dir/debian/monitors machine=x86_64-linux-gnu missing tool status=0
    ledger_begin_guests
    # The oldest release that weir runs on: its programs run with every later libc.
    missing=$(debian_root bookworm "$root" "${ledger_monitors[@]}") || die "there are no monitors: ${missing:-see above}"
    ledger_prepare newest tools "$@" || die "there is no guest: $(guest_reason)"
    mkdir "$guest_payload/lib"
    for tool in "${ledger_monitors[@]}"; do
        cp "$root/usr/bin/$tool" "$guest_payload"
        # Only its own, if it has any: the guest has the libc of this machine.
        LD_LIBRARY_PATH=$root/lib/$machine:$root/usr/lib/$machine ldd "$root/usr/bin/$tool" |
            grep -oE "$root/[^ ]+" | grep -vE '/(libc|libm|ld-[^/]*)\.so' |
            xargs -r cp -L -t "$guest_payload/lib" || true
    done
    ledger_run newest || status=$?
    ledger_print
    return "$status"
}

ledger_begin_guests() {
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${guest_needs[@]}"
    check_scale
    fetch_crates
    begin_steps
}

# Prints the output of the last guest.
ledger_print() { [[ ! -e $log.script ]] || grep -v '^weir-guest: ' "$log.script" || true; }

# On this machine's kernel, from a release build: the load is to be as high as it can be.
ledger_here() {
    local program
    need_root_later "the faults are in network namespaces of their own"
    install_needs "${build_needs[@]}" "${run_needs[@]}"
    fetch_crates
    say "building the test (release)"
    program=$(cargo_program weir test --release --package weir --test weir) ||
        die "the build failed; the compiler's words are above"
    as_root "$program" ledger_faults "$@"
}

# ledger_prepare KERNEL WORDS…: the guest, and the test with its words as guest_payload. Sets guest_missing when it
# fails.
ledger_prepare() {
    local program kernel=$1 tool
    shift
    guest_prepare "$kernel" && guests_qemu || return
    program=$(cargo_program weir test --package weir --test weir) || return
    guest_payload=$guest_dir/ledger-faults
    rm -rf "$guest_payload" && mkdir "$guest_payload" && cp "$program" "$guest_payload/tests" &&
        cp "$guest_sources/ledger-faults" "$guest_payload" || return
    for tool in "${ledger_tools[@]}"; do
        tool=$(command -v "$tool") || continue
        cp -L "$tool" "$guest_payload" || return
    done
    printf '%s\n' ledger_faults "$@" >"$guest_payload/words"
    printf 'export WEIR_TEST_SCALE=%q\n' "${WEIR_TEST_SCALE:-1}" >"$guest_payload/settings"
}

ledger_run() {
    local guest_name=ledger-faults-$1 guest_qemu=("${guests_emulator[@]}")
    guest_run_one guests_cpus "$guest_payload" "$ledger_seconds" ledger-faults
}
