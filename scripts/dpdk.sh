# shellcheck shell=bash
# Sourced by ./run: Debian 13's DPDK as a client of the broker, from a throw-away root.

# debian_13 CONTENT PACKAGES: makes a Debian 13 root in $debian_13_directory, which goes with this process.
debian_13() {
    local mirror elevate=()
    mirror=$(debian_mirror)
    have mmdebstrap || die "mmdebstrap is missing and could not be installed"
    [[ -n $mirror ]] || die "apt is configured for no mirror of Debian"
    am_root || elevate=(sudo --)
    debian_13_directory=$(mktemp -d)
    # shellcheck disable=SC2064 # as it is now
    trap "${elevate[*]} rm -rf --one-file-system '$debian_13_directory'" EXIT
    say "making a Debian 13 root with $1: a minute"
    as_root mmdebstrap --quiet --mode=root --variant=apt "--include=$2" \
        trixie "$debian_13_directory/root" "$mirror" || die "the root could not be made"
    # The path of an ordinary user's process leads through it.
    as_root chmod 755 "$debian_13_directory"
}

run_dpdk() {
    need_root_later "the broker and a pair of devices run in namespaces of their own"
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${package_test_needs[@]}" \
        "python3:python3:the peer of the forwarder"
    build_weir
    debian_13 DPDK dpdk-dev,librte-net-af-xdp25
    as_root crates/broker/tests/dpdk/lab.sh "$target_dir/release/weir-broker" "$debian_13_directory/root" \
        "$debian_13_directory/lab"
}
