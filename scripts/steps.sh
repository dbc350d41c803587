# shellcheck shell=bash
# Sourced by ./run: the steps of a test run. Each step runs, also after a failed one. Tests are counted from
# the test programs' own summaries, and a skip always has a reason.
#
# What a step needs is built before it, by `build`: without a limit, with cargo's own progress. So a limit
# ends a hang, and never a compiler.

passed=0 failed=0 skipped=0
failures=() # one line each, printed at the end
skips=()    # the same, with the reason
step_pid=
watcher_pid=
limit=0 took=0 # seconds that the last step may take, and took
inside=()      # what puts a step into the run's own mounts: see leaks.sh

# build WHAT COMMAND…: without a limit; the caller says what a failure means. Like a step it is a background job.
build() {
    local status=0
    say "build: $1"
    shift
    background "$@" </dev/null >&2 7>&- &
    step_pid=$!
    wait "$step_pid" || status=$?
    step_pid=
    return "$status"
}

# background COMMAND…: for a background job, which ends with this shell. bash has such a job ignore SIGINT, which programs
# must not inherit; Ctrl-C itself reaches this shell alone, whose trap ends the job. `timeout 0` has no limit of its own: it
# is there for its process group.
background() { exec env --default-signal=INT,QUIT setpriv --pdeathsig TERM timeout --kill-after=10 0 "$@"; }

# run_step NAME SECONDS COMMAND…: its output goes to a log; a failed step's is printed.
# It is a background job, so that a signal is heard at once and ends the step too; watch_step ends its process group.
run_step() {
    local name=$1 status=0 started=$SECONDS
    limit=$(($2 * ${WEIR_TEST_SCALE:-1}))
    shift 2
    log=$log_dir/$name.log
    rm -f "$log.late"
    say "test: $name"
    background "${inside[@]}" env --chdir="$PWD" "$@" </dev/null >"$log" 2>&1 7>&- &
    step_pid=$!
    setpriv --pdeathsig KILL bash -c 'watch_step "$@"' _ "$step_pid" "$limit" "$log" </dev/null >/dev/null 2>&1 7>&- &
    watcher_pid=$!
    wait "$step_pid" || status=$?
    step_pid=
    end_watcher
    # A program may end well on SIGTERM.
    [[ ! -e $log.late ]] || ((status != 0)) || status=124
    ((status == 0)) || show_log
    took=$((SECONDS - started))
    return "$status"
}

end_watcher() {
    kill "$watcher_pid" 2>/dev/null || true
    wait "$watcher_pid" 2>/dev/null || true
    watcher_pid=
}

# watch_step PID SECONDS LOG: ends a step whose limit is over. A machine that is slower at that moment, because
# it is busy or of another kind, has a limit that is longer in proportion.
watch_step() {
    local began=$SECONDS allowed=$2 factor never
    # Nothing can be read from it: a sleep that is no process of its own.
    exec {never}<> <(:)
    while :; do
        read -r -t $((began + allowed - SECONDS)) -u "$never" || true
        factor=$(slowdown)
        (((SECONDS - began) * 100 < $2 * factor)) || break
        allowed=$((($2 * factor + 99) / 100))
    done
    echo "no end within $allowed s; WEIR_TEST_SCALE=2 doubles the limits" >>"$3"
    : >"$3.late"
    kill "$1"
}

# How much slower this machine is now than the one that the limits were chosen on, in percent, 100 at least and
# 3000 at most: by the slowest of as many fixed loops as there are CPUs.
slowdown() {
    local cpu loops=() began=${EPOCHREALTIME/[^0-9]/} elapsed # the point is the locale's
    for ((cpu = $(nproc); cpu > 0; cpu--)); do
        (for ((i = 0; i < 200000; i++)); do :; done) &
        loops+=($!)
    done
    wait "${loops[@]}"
    elapsed=$((${EPOCHREALTIME/[^0-9]/} - began))
    # Microseconds of the loop on an idle CPU of an AMD EPYC.
    elapsed=$((elapsed * 100 / 180000))
    echo $((elapsed < 100 ? 100 : elapsed > 3000 ? 3000 : elapsed))
}

export -f watch_step slowdown

show_log() { grep -vE '^ *(Compiling|Downloading|Downloaded|Checking) |\.\.\. ok$' "$log" | sed 's/^/   | /' >&2 || true; }

# A step's measurements are printed also when it passes.
show_measured() { grep -E '^(doctor score|in the storm|.*: percent of|.*rows counted|  +(outside  )?(to burn|[0-9]+  )|(moves|receive|send|forward) +[0-9b])' "$log" | sed 's/^/   | /' >&2 || true; }

outcome() { printf '   %s (%s s of %s s)\n' "$1" "$took" "$limit" >&2; }

skip() {
    say "test: $1: skipped, $2"
    skips+=("$1: $2")
    skipped=$((skipped + 1))
}

fail() {
    failures+=("$1")
    failed=$((failed + 1))
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

# count_step NAME STATUS: counts the tests in a step's log. The step fails too when it
# dies half-way, or ran no test, unless may_be_empty is set.
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
        fail "$1: did not end well"
    elif ((status == 0 && ok + ignored == 0)) && [[ -z ${may_be_empty-} ]]; then
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

has_nightly() { have rustup && rustup toolchain list 2>/dev/null | grep -q '^nightly'; }

check_scale() {
    [[ ${WEIR_TEST_SCALE:-1} =~ ^[1-9][0-9]*$ ]] ||
        usage_error "WEIR_TEST_SCALE must be a whole number from 1, not '$WEIR_TEST_SCALE'"
}

# check_space GIB: a full disk fails whatever writes, each in its own words: so it is named before.
check_space() {
    local free used
    mkdir -p "$target_dir" || die "the directory $target_dir cannot be made"
    free=$(df --output=avail --block-size=1M "$target_dir" | tail -n 1 | tr -d ' ')
    # It fails for a directory of root's or one that goes away, and prints the sum all the same.
    used=$(du --summarize --block-size=1M "$target_dir" 2>/dev/null | cut -f1) || true
    ((free >= 512 && free + used >= $1 * 1024)) ||
        die "$target_dir needs $1 GiB, and only $free MiB are free: make room, or set CARGO_TARGET_DIR to another disk"
}

# The logs belong to one run at a time.
begin_steps() {
    log_dir=$target_dir/test-logs
    mkdir -p "$log_dir"
    exec 7>>"$target_dir/run.lock"
    flock --nonblock 7 || die "another run is testing in $target_dir: wait for it, or set CARGO_TARGET_DIR"
    trap 'interrupt 130' INT
    trap 'interrupt 143' TERM
    trap end_run EXIT
}

# interrupt STATUS: bash has words of its own for each job that a signal ends.
interrupt() {
    echo "interrupted" >&2
    exec 2>/dev/null
    exit "$1"
}

# Ends what a run has started, whichever way it ends itself.
end_run() {
    [[ -z $watcher_pid ]] || end_watcher
    [[ -z $step_pid ]] || kill "$step_pid" 2>/dev/null || true
    step_pid=
    end_own_mounts
}

# report HINT: the end of a run.
report() {
    echo
    ((${#skips[@]} == 0)) || printf 'skipped: %s\n' "${skips[@]}"
    ((${#failures[@]} == 0)) || printf 'FAILED: %s\n' "${failures[@]}"
    [[ -z $1 ]] || printf '%s\n' "$1"
    say "test: $((SECONDS / 60)) min $((SECONDS % 60)) s"
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    ((failed == 0))
}
