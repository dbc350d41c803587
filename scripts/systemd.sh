# shellcheck shell=bash
# Sourced by ./run: the units of the package under Debian 13's systemd, in a throw-away container.

run_systemd() {
    local mirror root=()
    need_root_later "systemd is booted in namespaces of its own"
    install_needs "${build_needs[@]}" "${package_needs[@]}" "${package_test_needs[@]}"
    check_scale
    build_weir
    package_build || die "the package could not be built; the reason is above"
    begin_steps
    begin_own_mounts
    mirror=$(debian_mirror)
    am_root || root=(sudo --)
    if ! have mmdebstrap; then
        skip systemd "mmdebstrap is missing and could not be installed"
    elif [[ -z $mirror ]]; then
        skip systemd "apt is configured for no mirror of Debian"
    else
        systemd_step "$mirror"
    fi
    test_leaks
    report ""
}

systemd_step() {
    local status=0 results
    run_step systemd 300 "${root[@]}" packaging/systemd.sh "$package" "$1" "$target_dir/package/systemd" ||
        status=$?
    results=$(guest_results "$log")
    printf '%s\n' "$results" >>"$log"
    count_step systemd "$status"
}
