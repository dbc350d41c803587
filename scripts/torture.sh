# shellcheck shell=bash
# Sourced by ./run: `./run torture`, many sockets at once in random ways.

# run_torture WORDS…
run_torture() {
    local program
    need_root_later "the sockets are in network namespaces of their own"
    install_needs "${build_needs[@]}"
    check_scale
    fetch_crates
    say "building the test (release)"
    program=$(torture_program --release) || die "the build failed; the compiler's words are above"
    as_root env WEIR_TEST_SCALE="${WEIR_TEST_SCALE:-1}" "$program" run "$@"
}

# torture_program WORDS…: builds the program, prints its path.
torture_program() {
    cargo_program torture test --package xsk --features testing,delays --test torture "$@"
}
