# shellcheck shell=bash
# Sourced by ./run: the tests of pf's rules with many more random cases.

deep_filter_seconds=1800 # at most

# The usual build of the tests has no optimization, and fewer cases for that. This one is in a directory of its own.
deep_filter() {
    local command=(env "CARGO_TARGET_DIR=$target_dir/filter" cargo test --locked --package pf-filter --test pf_filter
        --config profile.dev.package.pf-filter.opt-level=2)
    build "pf-filter's tests, optimized" "${command[@]}" --no-run || { fail "filter: the tests could not be built" && return; }
    tests_step filter "$deep_filter_seconds" env WEIR_TEST_LONG=1 "${command[@]}"
}
