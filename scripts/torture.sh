# shellcheck shell=bash
# Sourced by ./run: `./run torture`, many sockets at once in random ways, and the defects that it and the library's
# models must find.

torture_defects=(missing_fence recycled_early completion_counted_twice forgotten_unmap lost_wakeup)
torture_set_up=300 torture_search=60 # seconds at most, of one defect

# The names of the libtest's failed tests, as the check that found a defect.
torture_failed() { named_outcomes <"$1" | sed -nE 's/^(.*[^ ]) +FAILED.*$/\1/p' | paste -sd ' '; }

# run_torture [--broken NAME] WORDS…
run_torture() {
    local program broken="" words=()
    while (($# > 0)); do
        case $1 in
        --broken)
            (($# > 1)) || usage_error "--broken needs a defect's name, or all: ${torture_defects[*]}"
            broken=$2 && shift
            ;;
        *) words+=("$1") ;;
        esac
        shift
    done
    need_root_later "the sockets are in network namespaces of their own"
    install_needs "${build_needs[@]}"
    check_scale
    fetch_crates
    begin_steps
    if [[ -n $broken ]]; then
        torture_broken "$broken" "${words[@]}"
        return
    fi
    say "building the test (release)"
    program=$(torture_program --release) || die "the build failed; the compiler's words are above"
    as_root env WEIR_TEST_SCALE="${WEIR_TEST_SCALE:-1}" "$program" torture run "${words[@]}"
}

# torture_program WORDS…: builds the program, prints its path. Delays are code in builds with debug assertions alone.
torture_program() {
    CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true cargo_program xsk test --package xsk --features tokio --test xsk "$@"
}

# torture_broken NAME WORDS…: each defect must be found in time.
torture_broken() {
    local wanted=$1 name tried=0 missed=()
    shift
    for name in "${torture_defects[@]}"; do
        [[ $wanted == all || $wanted == "$name" ]] || continue
        tried=1
        torture_defect "$name" "$@" || missed+=("$name")
    done
    ((tried)) || usage_error "no defect '$wanted': choose all, or one of ${torture_defects[*]}"
    ((${#missed[@]} == 0)) || die "not found: ${missed[*]}"
}

# torture_defect NAME WORDS…: builds the library with a defect, and looks for it where it can be seen.
torture_defect() {
    local name=$1 wrapper=$target_dir/broken/$1
    shift
    mkdir -p "$target_dir/broken"
    torture_wrapper "$name" >"$wrapper" && chmod +x "$wrapper"
    local -x RUSTC_WORKSPACE_WRAPPER=$wrapper
    case $name in
    missing_fence) torture_tests "$name" loom env RUSTFLAGS="--cfg loom" cargo test --locked --package xsk --lib \
        --release --target-dir "$target_dir/loom" ring::loom_tests ;;
    lost_wakeup) torture_tests "$name" "fake driver" cargo test --locked --package xsk --lib testing::driver ;;
    *) torture_search "$name" "$@" ;;
    esac
}

# A compiler that adds the defect to the workspace's crates only. Each has a path of its own, by which cargo tells the
# builds apart; the dependencies are built once.
torture_wrapper() {
    printf '#!/bin/sh\nexec "$@" --cfg %s\n' "'xsk_broken=\"$1\"'"
}

# torture_tests NAME WHERE COMMAND…: the tests must fail, and not for want of a build.
torture_tests() {
    local name=$1 where=$2 status=0 found
    shift 2
    if ! build "the library with the defect $name" "$@" --no-run; then
        say "$name: the build failed"
        return 1
    fi
    # Its output is shown when the defect is not found.
    run_step "broken-$name" "$torture_search" "$@" >/dev/null 2>&1 || status=$?
    found=$(torture_failed "$log")
    if ((status == 0)) || [[ -z $found ]]; then
        show_log
        echo "$name: NOT found by $where in $took s"
        return 1
    fi
    echo "$name: found by $where in $took s: $found"
}

# torture_search NAME WORDS…: torture must break an invariant.
torture_search() {
    local name=$1 program report status=0 scale=${WEIR_TEST_SCALE:-1} root=()
    shift
    say "building with the defect $name"
    program=$(torture_program) || return
    am_root || root=(sudo -n --)
    run_step "broken-$name" "$((torture_set_up + torture_search))" "${root[@]}" env WEIR_TEST_SCALE="$scale" \
        "$program" torture run --minutes "$((torture_search * scale / 60))" "$@" >/dev/null 2>&1 || status=$?
    report=$(<"$log")
    # 1 and a line that repeats the round: an invariant was broken. Other ends say nothing of this defect.
    if ((status != 1)) || [[ $report != *"again: ./run torture"* ]]; then
        printf '%s\n%s: NOT found by torture, status %s\n' "$report" "$name" "$status"
        return 1
    fi
    printf '%s: found by torture: %s --broken %s\n' "$name" "$(sed '1d;s/^broken: //' <<<"$report" | cut -c -160 | paste -sd ';')" "$name"
}
