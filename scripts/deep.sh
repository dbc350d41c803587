# shellcheck shell=bash
# Sourced by ./run: `./run deep`, the tests that take longer than a commit waits, or another kernel, compiler or
# machine. Each part is a command of its own; its last result stands in docs/TESTING.md, where this writes it.

# Name, the paths whose change it is run for (a pattern of grep -E), and its line in ./run help.
deep_parts=(
    "loom|crates/xsk/|models of the rings, in the orders that the memory model allows"
    "miri|crates/xsk/|the library's unit tests without undefined behaviour; needs nightly"
    "instructions|crates/(xsk|moves)/|instructions a packet, at most 1% more than before"
    "torture|crates/xsk/|many sockets in random ways for a minute, then with each defect"
    "mutants|crates/(xsk|filter)/|changes that unit tests must notice, in a sample of places"
    "fuzz|crates/(xsk|broker|filter)/|fuzz/|each fuzz target for some seconds; needs nightly"
    "filter|crates/filter/|pf's rules by the million, optimized"
    "targets|crates/|other architectures, musl, WebAssembly, the oldest Rust: every crate"
    "guests|crates/(weir|hostnet)/|weir in a kernel of its own, and instructions that repeat"
    "cards|crates/xsk/|scripts/guests\.sh|zero-copy on emulated network cards, and each kind of device"
    "arm64|crates/(xsk|hostnet|broker|weir|testkit)/|scripts/guests?\.sh|libraries, program and broker on emulated arm64, with pages of 4 and 16 KiB"
    "dispatcher|crates/xsk/|XDP programs beside others, in libxdp's dispatcher"
    "switch|crates/weir/(src/switch|bpf|tests/guest)|the switch on VLANs and bonds, in a kernel of its own"
    "switch-fuzz|crates/(testbpf/|weir/(src/switch|bpf|tests/weir/switch_fuzz))|an accelerated bridge against a plain one, and with each defect"
    "truth|crates/(testbpf/|weir/(src/(accounting|cost|bpf)|bpf|tests/weir/truth))|weir cost against a known load, and in an emulated guest"
    "ledger|crates/(testbpf/|weir/(src/(ledger|bpf)|bpf|tests/weir/ledger_faults))|mixtures of losses, and losses under a load"
    "measure|crates/weir/src/(bench|engine|traffic|cost|lab)|whole benches, curves and floods on this kernel"
)

# What --changed and the result's row need of a part's line; a pattern may have bars of its own.
deep_name() { echo "${1%%|*}"; }
deep_paths() { sed -E 's/^[^|]*\|(.*)\|[^|]*$/\1/' <<<"$1"; }
deep_purpose() { echo "${1##*|}"; }

deep_usage() {
    local part
    for part in "${deep_parts[@]}"; do printf '  deep %-20s%s\n' "$(deep_name "$part")" "$(deep_purpose "$part")"; done
}

# run_deep [--long] [--changed] [PART…]
run_deep() {
    local changed="" files name wanted=()
    check_scale
    unset WEIR_TEST_LONG
    while (($# > 0)); do
        case $1 in
        --long) export WEIR_TEST_LONG=1 ;;
        --changed) changed=1 ;;
        -*) usage_error "'deep' takes --long, --changed and parts, got: $1" ;;
        *) wanted+=("$1") ;;
        esac
        shift
    done
    for name in "${wanted[@]}"; do
        grep -qxF -- "$name" < <(deep_names) || usage_error "'deep' has no part '$name'; the parts are: $(deep_names | paste -sd ' ')"
    done
    ((${#wanted[@]} > 0)) || mapfile -t wanted < <(deep_names)
    if [[ -n $changed ]]; then
        if ! files=$(deep_changed_files); then
            [[ ! ${WEIR_BASE-} =~ [^0] ]] || die "cannot say what has changed: $files"
            skip deep "cannot say what has changed: $files"
            report ""
            return
        fi
        mapfile -t wanted < <(deep_parts_of "$files" | grep -xF "$(printf '%s\n' "${wanted[@]}")")
    fi
    if ((${#wanted[@]} == 0)); then
        say "deep: nothing that a part is for has changed"
        echo "0 passed, 0 failed, 0 skipped"
        return
    fi
    ((${#wanted[@]} == 1)) || say "deep: ${wanted[*]}"
    check_space 12
    begin_steps
    install_needs "${build_needs[@]}" "${run_needs[@]}"
    fetch_crates
    begin_own_mounts
    for name in "${wanted[@]}"; do deep_part "$name"; done
    test_leaks
    report ""
}

deep_names() {
    local part
    for part in "${deep_parts[@]}"; do deep_name "$part"; done
}

# deep_parts_of FILES: the parts that these files concern: all, if they are what runs them.
deep_parts_of() {
    local part
    if grep -qE '^(run|Cargo\.(toml|lock)|scripts/(deep|steps|leaks|setup|guest|debian)\.sh)$' <<<"$1"; then
        deep_names
        return
    fi
    for part in "${deep_parts[@]}"; do
        ! grep -qE "^($(deep_paths "$part")|scripts/$(deep_name "$part")\.sh)" <<<"$1" || deep_name "$part"
    done
}

deep_changed_files() {
    local base
    base=$(base_commit) || { echo "$base" && return 1; }
    changed_files "$base"
}

# deep_part NAME: runs it, and keeps its result.
deep_part() {
    local before=("$passed" "$failed" "$skipped") began=$SECONDS
    say "deep: $1"
    "deep_${1//-/_}"
    if ((passed + failed == before[0] + before[1])); then
        say "deep: $1: nothing was tested; docs/TESTING.md keeps the last result"
        return
    fi
    deep_keep "$1" "$((passed - before[0])) passed, $((failed - before[1])) failed, $((skipped - before[2])) skipped" \
        "$((SECONDS - began))"
    say "deep: $1: the result is in docs/TESTING.md"
}

# deep_keep NAME RESULT SECONDS: the part's row in docs/TESTING.md, written into the file that is there, whose owner stays.
deep_keep() {
    local row file=docs/TESTING.md text
    row="| \`${WEIR_TEST_LONG:+--long }$1\` | $2 | $(($3 / 60)) min $(($3 % 60)) s | $(date +%F) | $(deep_commit) | $(deep_machine) |"
    text=$(awk -v name="| \`${WEIR_TEST_LONG:+--long }$1\` |" -v row="$row" '
        /^<!-- written by \.\/run deep -->$/ { inside = 1 }
        inside && index($0, name) == 1 { print row; inside = 0; next }
        inside && table && !/^\|/ { print row; inside = 0 }
        inside { table = /^\|/ }
        { print }' "$file") || return
    printf '%s\n' "$text" >"$file"
}

deep_commit() {
    local commit
    commit=$(git rev-parse --short=10 HEAD 2>/dev/null) || { echo "no repository" && return; }
    git diff --quiet HEAD -- . ':!docs/TESTING.md' || commit+=" and changes"
    echo "$commit"
}

deep_machine() {
    echo "$(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r | cut -d- -f1)"
}

# deep_tests NAME SECONDS WORDS…: the tests of weir's second tier that the words choose.
deep_tests() {
    # What `./run test` has built, too.
    cargo_words=(--workspace --all-features)
    build "the tests of weir" cargo test --locked "${cargo_words[@]}" --no-run || { fail "$1: the build failed" && return; }
    WEIR_TEST_DEEP=1 integration_step "$1" "$2" weir weir "${@:3}"
    show_measured
}

deep_truth() {
    install_needs "${guest_needs[@]}"
    # Without a guest one of the tests is skipped, with the reason.
    guest_prepare "" || true
    deep_tests truth 600 truth::
}
deep_ledger() {
    install_needs "nft:?nftables:losses by rules of netfilter"
    deep_tests ledger 900 ledger_faults::
}
deep_measure() {
    install_needs "ovs-vswitchd:?openvswitch-switch:the path ovs of weir cost curve" "iperf3:?iperf3:bulk TCP"
    deep_tests measure 900 --skip truth:: --skip ledger_faults:: --skip switch_fuzz::
}

deep_loom() {
    local loom=(env RUSTFLAGS="--cfg loom" cargo test --locked --package xsk --lib --release --target-dir "$target_dir/loom")
    build "the models" "${loom[@]}" --no-run || { fail "loom: the build failed" && return; }
    tests_step loom 600 "${loom[@]}" loom
}

deep_miri() {
    local seconds=600 directory=$target_dir/miri miri
    # `cargo miri` keeps the environment that it built in, so each kind of run has its own directory.
    [[ -z ${WEIR_TEST_LONG-} ]] || seconds=3600 directory=$target_dir/long/miri
    if ! has_nightly; then
        skip miri "no nightly toolchain (rustup toolchain install nightly)"
        return
    elif ! rustup_as_owner component add --toolchain nightly miri rust-src >/dev/null 2>&1; then
        skip miri "rustup could not add miri and rust-src to nightly"
        return
    fi
    miri=(cargo +nightly miri test --locked --package xsk --lib --target-dir "$directory")
    build "the library for Miri" "${miri[@]}" --no-run || { fail "miri: the build failed" && return; }
    tests_step miri "$seconds" "${miri[@]}"
}

# Where there is nothing to compare the counts with, that is a skip.
deep_instructions() {
    local status=0 reason
    install_needs "${instructions_needs[@]}"
    if ! have valgrind; then
        skip instructions "valgrind is missing and could not be installed"
        return
    elif ! cargo_tool gungraun-runner "$(gungraun_version .)"; then
        skip instructions "gungraun-runner could not be installed"
        return
    fi
    build "the moves" cargo bench --locked --package xsk-moves --bench instructions --no-run ||
        { fail "instructions: the build failed" && return; }
    run_step instructions 900 ./run instructions || status=$?
    reason=$(sed -n 's/^not compared: //p' "$log")
    if ((status != 0)); then
        fail instructions
        outcome FAILED
    elif [[ -n $reason ]]; then
        skip instructions "$reason"
    else
        passed=$((passed + 1))
        outcome ok
        show_measured
    fi
}

deep_torture() {
    local program minutes=1 name
    [[ -z ${WEIR_TEST_LONG-} ]] || minutes=10
    if ! am_root; then
        skip torture "its sockets are in network namespaces, which need root"
        return
    fi
    program=$(torture_program --release) || { fail "torture: the build failed" && return; }
    check_step torture $((minutes * 60 + 120)) "$program" torture run --minutes "$minutes"
    for name in "${torture_defects[@]}"; do
        say "test: torture-$name"
        if torture_defect "$name" >&2; then passed=$((passed + 1)); else fail "torture: the defect $name was not found"; fi
    done
}

# A changed copy of the crate is built for each of them, which is most of the time: the limit is for that.
deep_mutants() {
    if ! cargo_tool cargo-mutants; then
        skip mutants "cargo-mutants could not be installed"
    else
        check_step mutants 1800 ./run mutants
    fi
}

deep_fuzz() {
    local target targets
    install_needs "c++:?g++:the fuzz targets"
    if ! has_nightly; then
        skip fuzz "no nightly toolchain (rustup toolchain install nightly)"
    elif ! have c++; then
        skip fuzz "no C++ compiler for libFuzzer"
    elif ! cargo_tool cargo-fuzz; then
        skip fuzz "cargo-fuzz could not be installed"
    elif ! targets=$(cargo +nightly fuzz list); then
        fail "fuzz: the targets could not be listed"
    elif ! build "the fuzz targets" env RUSTFLAGS="--cfg xsk_internals" cargo +nightly fuzz build --target-dir "$target_dir/fuzz"; then
        fail "fuzz: the targets could not be built"
    else
        for target in $targets; do fuzz_step "$target"; done
    fi
}

# Its findings lie where `cargo fuzz run` would put them. A target may have words (fuzz/dictionaries) and
# inputs to begin with (fuzz/seeds).
fuzz_step() {
    local program seconds=5 artifacts=fuzz/artifacts/$1/ corpus=$target_dir/fuzz-corpus/$1 given=()
    [[ -z ${WEIR_TEST_LONG-} ]] || seconds=120
    program=$(compgen -G "$target_dir/fuzz/*/release/$1" | head -n 1) || { fail "fuzz-$1: there is no program" && return; }
    mkdir -p "$artifacts" "$corpus"
    [[ ! -d fuzz/seeds/$1 ]] || given+=("fuzz/seeds/$1")
    [[ ! -f fuzz/dictionaries/$1.dict ]] || given+=("-dict=fuzz/dictionaries/$1.dict")
    check_step "fuzz-$1" $((seconds + 60)) "$program" "$corpus" "${given[@]}" -timeout=20 \
        -rss_limit_mb=1024 -max_total_time="$seconds" -artifact_prefix="$artifacts"
}

# Counts a step without a guest, or without the program for it: skipped where a feature is missing.
no_guest() {
    if [[ -n $guest_missing ]]; then
        skip "$1" "$guest_missing"
    else
        fail "$1: the guest, or its program, could not be made"
    fi
}

# deep_guest NAME: this machine's guest, and weir for it.
deep_guest() {
    install_needs "${guest_needs[@]}"
    if guest_prepare "" && guest_payload; then return; fi
    no_guest "$1"
    return 1
}

# All scripts in one guest but the switch's, and the guest as a receiver.
deep_guests() {
    local scripts
    deep_guest guests || return 0
    mapfile -t scripts < <(cd "$guest_sources" && find . -name '*.sh' ! -name 'switch-*' -printf '%f\n' | sort)
    guest_steps "${scripts[@]}"
    guest_receiver_step
    guest_count_step
}

# Of the switch's scripts, those that show most, without the control; `./run switch guests` has all.
deep_switch() {
    deep_guest switch || return 0
    echo 'MODES="xdp tcx"' >"$guest_payload/settings"
    guest_steps switch-vlan.sh switch-bond.sh
}

deep_switch_fuzz() {
    deep_tests switch-fuzz 600 switch_fuzz::
    install_needs "${guest_needs[@]}"
    test_switch_fuzz
}

deep_cards() {
    install_needs "${guest_needs[@]}"
    test_guests
}

deep_dispatcher() {
    install_needs "${guest_needs[@]}" "xdp-filter:?xdp-tools:the test of the library beside another XDP program"
    test_dispatcher
}

# A guest that crashes keeps the scripts after it from their turn: they have it in another one.
guest_steps() {
    local waiting script console part
    while (($# > 0)); do
        waiting=()
        guest_run guest_scripts "$guest_payload" "$guest_seconds" "$@" || true
        console=$log
        for script in "$@"; do
            part=$(guest_log "$script" <"$console")
            if [[ -n $part ]]; then guest_step "$script" "$part"; else waiting+=("$script"); fi
        done
        if ((${#waiting[@]} == $#)); then
            log=$console
            show_log
            fail "guest: it ran no script"
            return
        fi
        set -- "${waiting[@]}"
    done
}

# guest_step SCRIPT LOG
guest_step() {
    local name=guest-${1%.sh} status results
    say "test: $name"
    log=$log_dir/$name.log limit=$((guest_seconds * ${WEIR_TEST_SCALE:-1}))
    printf '%s\n' "$2" >"$log"
    read -r status took < <(guest_status "$log")
    results=$(guest_results "$log")
    printf '%s\n' "$results" >>"$log"
    ((status == 0)) || show_log
    count_step "$name" "$status"
}

# Counts twice, and holds both to be the same to the third digit.
guest_count_step() {
    local first
    if guest_count_payload debug --turns 1 --batch 64 &&
        guest_run_one guest_count "$guest_payload" 300 count && first=$(guest_count_digits "$log") &&
        guest_run_one guest_count "$guest_payload" 300 count; then
        check_step guest-count-repeats 10 diff <(echo "$first") <(guest_count_digits "$log")
    else
        fail "guest-count: nothing was counted"
    fi
}

# The figures of a count, rounded to three digits; fails if there are none.
guest_count_digits() {
    guest_count_table "$1" | awk '
        /^(load|rxdrop|txpush|l2fwd) / {
            for (i = 2; i <= NF; i++) if ($i ~ /^[0-9]+$/) $i = sprintf("%.3g", $i)
            print
            rows++
        }
        END { exit rows < 2 }'
}

# Starts the receiver, and ends it when it is ready. QEMU's user network stands in for a tap, which
# needs root.
guest_receiver_step() {
    local guest_receiver=()
    guest_receiver user,id=n0,restrict=on 60
    # shellcheck disable=SC2016 # the inner bash expands it
    check_step guest-receiver 80 bash -c 'coproc "$@"
        said=$(sed "/^weir-guest: ready/q" <&"${COPROC[0]}")
        echo "$said"
        kill "$COPROC_PID"
        [[ $said == *"weir-guest: ready"* ]]' _ "${guest_receiver[@]}"
}
