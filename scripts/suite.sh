# shellcheck shell=bash
# Sourced by ./run: `./run test`. Each step runs, also after a failed one. Tests are
# counted from the test programs' own summaries, and a skip always has a reason.
# `./run test --long` says so to the tests with WEIR_TEST_LONG=1: to those that can try more.

passed=0 failed=0 skipped=0
failures=() # one line each, printed at the end
skips=()    # the same, with the reason
step_pid=
ahead_pid=
limit=0 took=0 # seconds that the last step may take, and took

# run_step NAME SECONDS COMMAND…: its output goes to a log; a failed step's is printed.
# It is a background job, so that Ctrl-C is heard at once and ends the step too; bash makes such a
# job ignore SIGINT, which the tests must not inherit.
run_step() {
    local name=$1 status=0 started=$SECONDS
    limit=$(($2 * ${WEIR_TEST_SCALE:-1}))
    shift 2
    log=$log_dir/$name.log
    say "test: $name"
    env --default-signal=INT,QUIT timeout --kill-after=10 "$limit" "$@" </dev/null >"$log" 2>&1 &
    step_pid=$!
    wait "$step_pid" || status=$?
    step_pid=
    ((status != 124)) || echo "no end within $limit s; WEIR_TEST_SCALE=2 doubles the limits" >>"$log"
    ((status == 0)) || show_log
    took=$((SECONDS - started))
    return "$status"
}

show_log() { grep -vE '^ *(Compiling|Downloading|Downloaded|Checking) |\.\.\. ok$' "$log" | sed 's/^/   | /' >&2 || true; }

# A step's measurements are printed also when it passes.
show_measured() { grep -E '^(doctor score|in the storm|.*: percent of|.*rows counted|  +(outside  )?(to burn|[0-9]+  )|(moves|receive|send|forward) +[0-9b])' "$log" | sed 's/^/   | /' >&2 || true; }

outcome() { printf '   %s (%s s of %s s)\n' "$1" "$took" "$limit" >&2; }

skip() {
    say "test: $1: skipped, $2"
    skips+=("$1: $2")
    skipped=$((skipped + 1))
}

# Whether there is time for one more of the steps that a slow machine can leave out: each is a command of
# its own.
in_time() {
    local minutes=${WEIR_TEST_MINUTES-}
    if [[ -n $minutes ]] && ((SECONDS >= minutes * 60)); then
        skip "$1" "$minutes minutes are over (WEIR_TEST_MINUTES)"
        return 1
    fi
}

fail() {
    failures+=("$1")
    failed=$((failed + 1))
}

# Counts a step without a guest, or without the program for it: skipped where a feature is missing.
no_guest() {
    if [[ -n $guest_missing ]]; then
        skip "$1" "$guest_missing"
    else
        fail "$1: the guest, or its program, could not be made"
    fi
}

# A step that either holds or does not.
check_step() {
    if run_step "$@"; then
        passed=$((passed + 1))
        outcome ok
    else
        fail "$1"
        outcome FAILED
    fi
}

# A step of test programs.
tests_step() {
    local status=0
    run_step "$@" || status=$?
    count_step "$1" "$status"
}

# count_step NAME STATUS: counts the tests in a step's log. The step fails too when it does
# not build, dies half-way, or ran no test.
count_step() {
    local status=$2 ok bad ignored names
    read -r ok bad ignored < <(count_results <"$log")
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + ignored))
    mapfile -t names < <(failed_tests <"$log" | sed "s/^/$1: /")
    failures+=("${names[@]}")
    ((${#names[@]} >= bad)) || failures+=("$1: $((bad - ${#names[@]})) more, named in $log")
    mapfile -t names < <(ignored_tests <"$log" | sed "s/^/$1: /")
    skips+=("${names[@]}")
    ((${#names[@]} >= ignored)) || skips+=("$1: $((ignored - ${#names[@]})) more, named in $log")
    if ((status != 0 && bad == 0)); then
        fail "$1: did not build or did not end well"
    elif ((status == 0 && ok + ignored == 0)); then
        fail "$1: ran no test"
    fi
    outcome "$ok passed, $bad failed, $ignored skipped"
}

# The sums of "test result: ok. 3 passed; 0 failed; 1 ignored; …" (libtest and libtest-mimic).
count_results() {
    awk '/^test result: / {
             for (i = 2; i <= NF; i++) {
                 if ($i == "passed;") ok += $(i - 1)
                 if ($i == "failed;") bad += $(i - 1)
                 if ($i == "ignored;") ignored += $(i - 1)
             }
         }
         END { print ok + 0, bad + 0, ignored + 0 }'
}

# "test NAME ... ignored, REASON" is libtest's, "test NAME ... ignored (REASON)" libtest-mimic's. A test
# that prints something itself has its end on a line of its own.
ignored_tests() {
    named_outcomes | sed -nE -e 's/^(.*[^ ]) +ignored, (.*)$/\1: \2/p' \
        -e 's/^(.*[^ ]) +ignored \((.*)\)$/\1: \2/p' \
        -e 's/^(.*[^ ]) +ignored$/\1: the test gives no reason/p'
}

failed_tests() { named_outcomes | sed -nE 's/^(.*[^ ]) +FAILED.*$/\1/p'; }

# "NAME OUTCOME" of each test.
named_outcomes() {
    awk '/^test .* \.\.\. / {
             at = index($0, " ... ")
             name = substr($0, 6, at - 6)
             sub(/ +$/, "", name)
             rest = substr($0, at + 5)
             if (rest ~ /^(ignored|FAILED)/) print name, rest
         }
         /^(ignored|FAILED)/ { print name, $0 }'
}

has_tests() { compgen -G 'crates/*/tests/*.rs' >/dev/null || compgen -G 'crates/*/tests/*/main.rs' >/dev/null; }

has_nightly() { have rustup && rustup toolchain list 2>/dev/null | grep -q '^nightly'; }

# Where there is nothing to compare the counts with, that is a skip.
test_instructions() {
    local status=0 reason
    if ! have valgrind; then
        skip instructions "valgrind is missing and could not be installed"
        return
    elif ! cargo_tool gungraun-runner "$(gungraun_version .)"; then
        skip instructions "gungraun-runner could not be installed"
        return
    fi
    run_step instructions 1200 ./run instructions || status=$?
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

test_loom() {
    if ! grep -rqs 'loom' crates/xsk/src; then
        skip loom "xsk has no loom model"
        return
    fi
    tests_step loom 900 "${loom[@]}" loom
}

add_miri() { rustup_as_owner component add --toolchain nightly miri rust-src >/dev/null 2>&1; }

test_miri() {
    local seconds=900
    [[ -z ${WEIR_TEST_LONG-} ]] || seconds=3600
    if ! has_nightly; then
        skip miri "no nightly toolchain (rustup toolchain install nightly)"
    elif ! add_miri; then
        skip miri "rustup could not add miri and rust-src to nightly"
    else
        tests_step miri "$seconds" "${miri[@]}"
    fi
}

test_mutants() {
    if ! cargo_tool cargo-mutants; then
        skip mutants "cargo-mutants could not be installed"
    else
        check_step mutants 1500 ./run mutants
    fi
}

test_fuzz() {
    local target targets
    if [[ ! -d fuzz ]]; then
        skip fuzz "there is no fuzz target"
    elif ! has_nightly; then
        skip fuzz "no nightly toolchain (rustup toolchain install nightly)"
    elif ! have c++; then
        skip fuzz "no C++ compiler for libFuzzer"
    elif ! cargo_tool cargo-fuzz; then
        skip fuzz "cargo-fuzz could not be installed"
    elif ! targets=$(cargo +nightly fuzz list); then
        fail "fuzz: the targets could not be listed"
    elif ! run_step fuzz-build 1800 "${fuzz_build[@]}"; then
        fail "fuzz: the targets could not be built"
        outcome FAILED
    else
        outcome built
        for target in $targets; do
            if in_time "fuzz-$target"; then fuzz_step "$target"; fi
        done
    fi
}

# Its findings lie where `cargo fuzz run` would put them. A target may have words (fuzz/dictionaries) and
# inputs to begin with (fuzz/seeds).
fuzz_step() {
    local program seconds=5 artifacts=fuzz/artifacts/$1/ corpus=$target_dir/fuzz-corpus/$1 given=()
    [[ -z ${WEIR_TEST_LONG-} ]] || seconds=120
    program=$(compgen -G "$target_dir/fuzz/*/release/$1" | head -n 1)
    mkdir -p "$artifacts" "$corpus"
    [[ ! -d fuzz/seeds/$1 ]] || given+=("fuzz/seeds/$1")
    [[ ! -f fuzz/dictionaries/$1.dict ]] || given+=("-dict=fuzz/dictionaries/$1.dict")
    check_step "fuzz-$1" $((seconds + 60)) "$program" "$corpus" "${given[@]}" -timeout=20 \
        -rss_limit_mb=1024 -max_total_time=$seconds -artifact_prefix="$artifacts"
}

test_musl() {
    local triple
    triple=$(uname -m)-unknown-linux-musl
    if ! have rustup || ! rustup_as_owner target add "$triple" >/dev/null 2>&1; then
        skip musl "rustup could not add the target $triple"
        return
    fi
    check_step musl 300 cargo build --locked --package xsk --package hostnet --package pf-filter \
        --package weir-broker --target "$triple"
}

# The rules' library reads nothing of the machine it runs on, and so builds for a browser.
test_wasm() {
    local triple=wasm32-unknown-unknown
    if ! have rustup || ! rustup_as_owner target add "$triple" >/dev/null 2>&1; then
        skip wasm "rustup could not add the target $triple"
        return
    fi
    check_step wasm 300 cargo check --locked --package pf-filter --lib --target "$triple"
}

# All scripts in one guest, and the guest as a receiver.
test_guest() {
    local scripts
    if ! guest_prepare ""; then
        no_guest guest
    elif ! guest_payload; then
        fail "guest: weir could not be built or copied"
    else
        # Of the switch's scripts, those that show most, without the control; `./run switch guests` has all.
        mapfile -t scripts < <(cd "$guest_sources" && find . -name '*.sh' ! -name 'switch-*' -printf '%f\n' | sort)
        scripts+=(switch-vlan.sh switch-bond.sh)
        echo 'MODES="xdp tcx"' >"$guest_payload/settings"
        guest_steps "${scripts[@]}"
        guest_receiver_step
        guest_count_step
    fi
    test_guests
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

# Everything that a run could leave behind on this machine, one line each. Programs and links are those of the
# kinds that weir makes, and any that carries its name.
inventory() {
    ip netns list | sed 's/^/namespace /'
    ip -o link | sed -E 's/^[0-9]+: ([^:@]+).*/device \1/'
    bpftool prog show | awk '/^[0-9]+: / && (/: (xdp|sched_cls|tracing|raw_tracepoint|perf_event) / || / name (weir|xsk)/) {print "program", $1, $2, $4}'
    bpftool link show | awk '/^[0-9]+: (xdp|tcx|netkit|tracing|raw_tracepoint|perf_event) / {print "bpf_link", $1, $2, $3, $4}'
    awk '{print "mount", $2}' /proc/self/mounts
    processes_and_memfds
}

# Programs of this tree that still run, and shared memory that somebody still holds. A program may
# itself lie in a memfd: the libxdp engine does.
processes_and_memfds() {
    local ours=(-lname '/memfd:*xsk*' -o -lname '/memfd:*weir*')
    find /proc/[0-9]*/exe -maxdepth 0 \( -lname "$target_dir/*" -o "${ours[@]}" \) -printf 'process %p: %l\n'
    find /proc/[0-9]*/fd -maxdepth 1 \( "${ours[@]}" \) -printf 'memory %p: %l\n'
}

# Processes end while they are looked at, and some may not be looked at: that is no failure.
take_inventory() { { inventory || true; } 2>/dev/null | sort >"$log_dir/$1"; }

# The kernel takes an AF_XDP socket apart after its close, so an object that goes within seconds is no leak.
test_leaks() {
    local left try
    for try in 1 2 3 4 5 6; do
        take_inventory after
        left=$(comm -13 "$log_dir/before" "$log_dir/after")
        [[ -n $left ]] || break
        ((try == 6)) || sleep 1
    done
    say "test: leaks"
    if [[ -n $left ]]; then
        fail "leaks: left behind: ${left//$'\n'/; }"
        echo "   FAILED" >&2
    else
        passed=$((passed + 1))
        echo "   ok" >&2
    fi
}

check_scale() {
    [[ ${WEIR_TEST_SCALE:-1} =~ ^[1-9][0-9]*$ ]] ||
        usage_error "WEIR_TEST_SCALE must be a whole number from 1, not '$WEIR_TEST_SCALE'"
    [[ ${WEIR_TEST_MINUTES:-1} =~ ^[1-9][0-9]*$ ]] ||
        usage_error "WEIR_TEST_MINUTES must be a whole number from 1, not '$WEIR_TEST_MINUTES'"
}

# A full disk fails the steps that write, each in its own words: so it is named before them.
check_space() {
    local free
    free=$(df --output=avail --block-size=1G "$target_dir" | tail -n 1)
    ((free >= 12)) || say "test: only $free GiB are free for $target_dir; from a clean clone the tests take up to 12"
}

# What the steps after the guests build.
name_builds() {
    local miri_dir=$target_dir/miri
    # `cargo miri` keeps the environment that it built in, so each kind of run has its own directory.
    [[ -z ${WEIR_TEST_LONG-} ]] || miri_dir=$target_dir/long/miri
    loom=(env RUSTFLAGS="--cfg loom" cargo test --locked --package xsk --lib --release --target-dir "$target_dir/loom")
    miri=(cargo +nightly miri test --locked --package xsk --lib --target-dir "$miri_dir")
    fuzz_build=(cargo +nightly fuzz build --target-dir "$target_dir/fuzz")
    integration=(cargo test --locked --workspace --all-features --test '*' --no-fail-fast)
}

# The steps in guests leave most of two CPUs idle: meanwhile the later ones are built, with the time that nobody else
# wants. A failure here is one there, too, and shown there.
build_ahead() {
    {
        chrt --idle --pid 0 "$BASHPID"
        if has_nightly && cargo_tool cargo-fuzz; then "${fuzz_build[@]}"; fi
        "${loom[@]}" --no-run
        if has_nightly && add_miri; then "${miri[@]}" --no-run; fi
        cargo_tool cargo-mutants
        # Last, since the steps meanwhile wait for the directory that it locks.
        "${integration[@]}" --no-run
    } </dev/null >"$log_dir/ahead.log" 2>&1 || true
}

# With a process group of its own, which has the compilers.
start_ahead() {
    set -m
    build_ahead &
    ahead_pid=$!
    set +m
}

# Waits for it, as the tests that measure want the machine for themselves.
end_ahead() {
    run_step builds 900 tail --pid="$ahead_pid" --follow /dev/null || kill -- -"$ahead_pid" || true
    wait "$ahead_pid" || true
    ahead_pid=
}

begin_steps() {
    log_dir=$target_dir/test-logs
    mkdir -p "$log_dir"
    trap '[[ -z $step_pid ]] || kill "$step_pid"; [[ -z $ahead_pid ]] || kill -- -"$ahead_pid"; exit 130' INT TERM
}

run_test() {
    local check_leaks="" hint="" step
    check_scale
    if [[ ${1-} == --long ]]; then export WEIR_TEST_LONG=1; else unset WEIR_TEST_LONG; fi
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${test_needs[@]}" "${guest_needs[@]}" \
        "${instructions_needs[@]}"
    fetch_crates
    begin_steps
    check_space

    if ! am_root; then
        check_leaks="looking at BPF programs needs root"
        hint="as root more is tested: sudo ./run test"
    elif ! bpftool prog show >/dev/null 2>&1 || ! bpftool link show >/dev/null 2>&1; then
        check_leaks="bpftool is missing or does not work with this kernel"
    else
        take_inventory before
    fi

    tests_step unit 900 cargo test --locked --workspace --all-features --lib --bins --no-fail-fast
    tests_step doc 600 cargo test --locked --workspace --all-features --doc --no-fail-fast
    name_builds
    start_ahead
    # Before the integration tests, one of which lets this guest receive.
    test_guest
    test_dispatcher
    test_switch_fuzz
    end_ahead
    # The integration tests run some of them.
    check_step examples 300 cargo build --locked --workspace --all-features --examples
    if has_tests; then
        tests_step integration 2700 "${integration[@]}"
        show_measured
    fi
    test_loom
    test_musl
    test_wasm
    for step in instructions miri mutants fuzz; do
        if in_time "$step"; then "test_$step"; fi
    done
    if [[ -n $check_leaks ]]; then skip leaks "$check_leaks"; else test_leaks; fi

    report "$hint"
}

report() {
    echo
    ((${#skips[@]} == 0)) || printf 'skipped: %s\n' "${skips[@]}"
    ((${#failures[@]} == 0)) || printf 'FAILED: %s\n' "${failures[@]}"
    [[ -z $1 ]] || printf '%s\n' "$1"
    say "test: $((SECONDS / 60)) min $((SECONDS % 60)) s"
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}
