# shellcheck shell=bash
# Sourced by ./run: the checklist of a release. It neither tags nor pushes.

release_open=0 # steps that failed, or are left to do

run_release_check() {
    local version commit release_dir
    am_root || die "the tests of a release need root" "run it as root: sudo ./run release --check"
    version=$(cargo_version)
    commit=$(git rev-parse --verify HEAD)
    release_dir=$target_dir/release-check/$commit
    mkdir -p "$release_dir"
    release_step "clean tree" release_tree_is_clean
    release_step "changelog" release_changelog_has "$version"
    release_step "version not tagged" release_is_new "$version"
    release_long_step "ci" env WEIR_CI_ALL=1 .ci/run
    release_long_step "long tests" ./run deep --long
    # As their users have them: RUSTFLAGS takes the place of the workspace's own flags.
    release_step "crates" env RUSTFLAGS= cargo package --locked --package pf-filter --package hostnet --package xsk
    release_step "semver" check_semver
    release_long_step "package" release_package_test
    release_verdict "$version"
}

# release_step NAME COMMAND…
release_step() {
    local name=$1 log=$release_dir/${1// /-}
    shift
    say "release: $name: $*"
    if "$@" </dev/null >"$log.log" 2>&1; then
        touch "$log.ok"
        release_line ok "$name"
    else
        rm -f "$log.ok"
        release_line FAILED "$name: $log.log"
        tail -n 5 "$log.log" | sed 's/^/   | /' >&2
    fi
}

# The same for a long step: if it passed on this commit, with nothing changed, it is not run again.
release_long_step() {
    local passed=$release_dir/${1// /-}.ok
    if [[ -e $passed ]] && release_tree_is_clean >/dev/null; then
        release_line ok "$1: passed on this commit, $(date --reference "$passed" '+%F %R')"
    else
        release_step "$@"
    fi
}

release_line() {
    [[ $1 == ok ]] || release_open=$((release_open + 1))
    printf '%-7s %s\n' "$1" "$2"
}

release_verdict() {
    if ((release_open > 0)); then
        echo "weir $1: $release_open of the steps are open"
        return 1
    fi
    echo "weir $1 can be released:"
    echo "    git tag --annotate --message 'weir $1' v$1 && git push origin v$1"
}

release_tree_is_clean() {
    local changed
    changed=$(git status --porcelain) || return
    [[ -z $changed ]] || printf '%s\n' "$changed"
    [[ -z $changed ]]
}

release_changelog_has() {
    grep -E "^## \[${1//./\\.}\] - [0-9]{4}-[0-9]{2}-[0-9]{2}\$" CHANGELOG.md || {
        echo "CHANGELOG.md has no heading '## [$1] - DATE'"
        return 1
    }
}

release_is_new() {
    ! git rev-parse --verify --quiet "v$1^{commit}" || {
        echo "v$1 is tagged: raise the version in Cargo.toml"
        return 1
    }
}

# A release is tested in every Debian that its package is for.
release_package_test() { ./run package --test && grep -q ', 0 skipped$' "$release_dir/package.log"; }
