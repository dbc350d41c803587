# shellcheck shell=bash
# Sourced by ./run: `./run switch fuzz`, which compares an accelerated bridge with a plain one.

switch_fuzz_seconds=1800 # how long it may take in a guest

# switch_fuzz [--guest] [--kernel K] WORDS…: compares an accelerated bridge with a plain one, on this machine's
# kernel or, with VLAN filtering, on a guest's.
switch_fuzz() {
    local program
    case ${1-} in
    --guest)
        shift
        switch_fuzz_in_guest "" "$@"
        return
        ;;
    --kernel)
        (($# > 1)) || usage_error "--kernel needs a value"
        shift
        switch_fuzz_in_guest "$@"
        return
        ;;
    esac
    need_root_later "the bridges are in network namespaces of their own"
    install_needs "${build_needs[@]}" "${run_needs[@]}"
    fetch_crates
    say "building the test (release)"
    program=$(cargo_program weir test --release --package weir --test weir) ||
        die "the build failed; the compiler's words are above"
    as_root "$program" switch_fuzz run "$@"
}

# switch_fuzz_prepare KERNEL WORDS…: the guest, and the test with its words as guest_payload. Sets guest_missing
# when it fails.
switch_fuzz_prepare() {
    local program kernel=$1
    shift
    guest_prepare "$kernel" || return
    [[ -z $kernel ]] || guests_qemu || return
    program=$(cargo_program weir test --workspace --all-features) || return
    guest_payload=$guest_dir/switch-fuzz
    rm -rf "$guest_payload" && mkdir "$guest_payload" &&
        cp "$program" "$guest_payload/tests" && cp "$guest_sources/switch-fuzz" "$guest_payload" &&
        printf '%s\n' "$@" >"$guest_payload/words"
}

# switch_fuzz_run KERNEL: the other kernels have a QEMU of their own.
switch_fuzz_run() {
    local guest_name=switch-fuzz${1:+-$1}
    if [[ -z $1 ]]; then
        guest_run_one guest_scripts "$guest_payload" "$switch_fuzz_seconds" switch-fuzz
        return
    fi
    local guest_qemu=("${guests_emulator[@]}")
    guest_run_one guests_cpus "$guest_payload" "$switch_fuzz_seconds" switch-fuzz
}

switch_fuzz_in_guest() {
    local kernel=$1
    shift
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${guest_needs[@]}"
    check_scale
    fetch_crates
    begin_steps
    switch_fuzz_prepare "$kernel" switch_fuzz run "$@" || die "there is no guest: $(guest_reason)"
    switch_fuzz_run "$kernel" || exit
    cat "$log.script"
}

# The tests of VLANs.
test_switch_fuzz() {
    local status=0
    if ! switch_fuzz_prepare newest switch_fuzz::vlans; then
        no_guest switch-fuzz
        return
    fi
    switch_fuzz_run newest || status=$?
    # 125: the tests did not run, and only the console may say why.
    ((status == 125)) || log=$log.script
    count_step switch-fuzz "$status"
}
