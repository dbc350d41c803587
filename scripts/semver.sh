# shellcheck shell=bash
# Sourced by ./run: compares the public API of the library crates with that of the last release.

# The tag of the last release before HEAD.
semver_baseline() { git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD 2>/dev/null; }

# check_semver [REVISION]: fails where the changes since a revision, by default the last release,
# need a larger step than the version in Cargo.toml. Building the tool takes minutes, so this is
# part of a release and not of `./run lint`.
check_semver() {
    local baseline=${1-}
    if [[ -z $baseline ]] && ! baseline=$(semver_baseline); then
        say "semver: skipped, no release tag (v*) to compare with"
        return
    fi
    if ! cargo_tool cargo-semver-checks; then
        say "semver: skipped, cargo-semver-checks could not be installed (is the network reachable?)"
        return
    fi
    say "semver: xsk and hostnet against $baseline"
    cargo semver-checks --package xsk --package hostnet --default-features --baseline-rev "$baseline"
}
