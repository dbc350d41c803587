# shellcheck shell=bash
# Sourced by ./run: `./run test`, for every change. What takes longer, or needs more than this machine's own
# kernel and compiler, is in deep.sh.

# Besides the needs of a build and of a lab: what tests compare with, or hand work to.
test_needs=(
    "bpftool:?bpftool:tests that look at BPF programs as an operator does"
    "iperf3:?iperf3:bulk TCP in weir switch bench"
    "nft:?nftables:the test of the doctor on firewall rules"
    "tshark:?tshark:the test that another reader understands captured drops"
    "xdp-filter:?xdp-tools:the test of the library beside another XDP program"
    "runc:?runc:the tests of containers under the broker"
    "crun:?crun:the tests of containers under the broker"
    "squashfuse:?squashfuse:the test of a mount that a FUSE program serves"
    "mksquashfs:?squashfs-tools:the test of a mount that a FUSE program serves"
)
test_space=7 # GiB that the build takes

# run_test [--changed | CRATE…]
run_test() {
    local crates=() packages=(--workspace) hint="" changed crate
    check_scale
    if [[ ${1-} == --changed ]]; then
        changed=$(changed_crates) || exit
        mapfile -t crates < <(sed '/^$/d' <<<"$changed")
        if ((${#crates[@]} == 0)); then
            say "test: no crate has changed"
            echo "0 passed, 0 failed, 0 skipped"
            return
        fi
        say "test: changed since $(git rev-parse --short "$(base_commit)"): ${crates[*]}"
        # Built like all the crates: packages alone have other features, for which everything is built a second time.
    elif (($# > 0)); then
        mapfile -t crates < <(for crate in "$@"; do crate_directory "$crate"; done)
        ((${#crates[@]} == $#)) || exit 2
        packages=(--package testkit)
        for crate in "${crates[@]}"; do packages+=(--package "$(crate_name "$crate")"); done
    else
        mapfile -t crates < <(all_crates)
    fi

    check_space "$test_space"
    begin_steps
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${test_needs[@]}"
    fetch_crates
    am_root || hint="as root more is tested: sudo ./run test"
    cargo_words=("${packages[@]}" --all-features)
    build "the tests and the examples" cargo test --locked "${cargo_words[@]}" --no-run || die "the build failed; the compiler's words are above"

    begin_own_mounts
    test_that_leaks_are_seen
    test_units "${crates[@]}"
    may_be_empty=1 tests_step doc 300 cargo test --locked "${cargo_words[@]}" --doc --no-fail-fast -- "${crates[@]/%/\/src/}"
    for crate in "${crates[@]}"; do test_integration "$crate"; done
    [[ " ${crates[*]} " == *" testkit "* ]] || test_layers
    test_leaks
    report "$hint"
}

# crate_directory NAME: of a crate by its directory's or its package's name.
crate_directory() {
    local directory
    for directory in crates/*; do
        if [[ $1 == "${directory#crates/}" || $1 == "$(crate_name "${directory#crates/}")" ]]; then
            echo "${directory#crates/}"
            return
        fi
    done
    printf "error: no crate '%s'; the crates are: %s\n" "$1" "$(all_crates | paste -sd ' ')" >&2
}

crate_name() { sed -n 's/^name = "\(.*\)"$/\1/p' "crates/$1/Cargo.toml" | head -n 1; }

# test_units CRATE…: the unit tests of these crates, by the programs that the build has made.
test_units() {
    local programs crate
    programs=$(unit_programs)
    programs=$(for crate in "$@"; do grep "^$crate " <<<"$programs" || true; done)
    if [[ -z $programs ]]; then
        say "test: unit: these crates have none"
        return
    fi
    # shellcheck disable=SC2016 # the inner bash expands it
    tests_step unit 300 bash -c 'run_programs "$1"' _ "$programs"
}

# The programs of unit tests that cargo_words build, a line `CRATE PATH` each.
unit_programs() {
    cargo test --quiet --locked "${cargo_words[@]}" --no-run --message-format json-render-diagnostics 7>&- |
        sed -nE 's|^.*/crates/([^/]*)/Cargo.toml","target":\{"kind":\["[a-z]*(lib\|bin)".*"profile":\{[^}]*"test":true\}.*"executable":"([^"]*)".*$|\1 \3|p'
}

# run_programs PROGRAMS: a line `CRATE PATH` each, as cargo would run them; all of them, also after a failed one.
run_programs() {
    local crate program status=0
    while read -r crate program; do
        env --chdir="crates/$crate" CARGO_MANIFEST_DIR="$PWD/crates/$crate" "$program" || status=1
    done <<<"$1"
    return "$status"
}
export -f run_programs

# A crate's program of integration tests, if it has one: tests/NAME/main.rs.
test_integration() {
    local main
    for main in $(compgen -G "crates/$1/tests/*/main.rs"); do
        integration_step "$1" 900 "$1" "$(basename "$(dirname "$main")")"
        show_measured
    done
}

# integration_step STEP SECONDS CRATE NAME WORDS…: runs the program of tests itself, as cargo would: `cargo test --test NAME`
# chooses other features for what all crates share than the build has, and builds it again.
integration_step() {
    local program
    program=$(cargo_program "$4" test --quiet "${cargo_words[@]}") || die "cargo has built no tests of the name $4"
    tests_step "$1" "$2" env --chdir="crates/$3" CARGO_MANIFEST_DIR="$PWD/crates/$3" "$program" "${@:5}"
}

# The layers of all crates, by a program that has a test for each.
test_layers() {
    integration_step layers 120 testkit testkit layers::
}
