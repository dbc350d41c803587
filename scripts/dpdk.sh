# shellcheck shell=bash
# Sourced by ./run: Debian 13's DPDK as a client of the broker, from a throw-away root.

run_dpdk() {
    local mirror elevate=() directory
    need_root_later "the broker and a pair of devices run in namespaces of their own"
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${package_test_needs[@]}" \
        "python3:python3:the peer of the forwarder"
    mirror=$(debian_mirror)
    have mmdebstrap || die "mmdebstrap is missing and could not be installed"
    [[ -n $mirror ]] || die "apt is configured for no mirror of Debian"
    build_weir
    am_root || elevate=(sudo --)
    directory=$(mktemp -d)
    # shellcheck disable=SC2064 # as it is now
    trap "${elevate[*]} rm -rf --one-file-system '$directory'" EXIT
    say "making a Debian 13 root with DPDK: a minute"
    as_root mmdebstrap --quiet --mode=root --variant=apt --include=dpdk-dev,librte-net-af-xdp25 \
        trixie "$directory/root" "$mirror" || die "the root could not be made"
    # The path of an ordinary user's process leads through it.
    as_root chmod 755 "$directory"
    as_root crates/broker/tests/dpdk/lab.sh "$target_dir/release/weir-broker" "$directory/root" "$directory/lab"
}
