# shellcheck shell=bash
# Sourced by ./run: weir's library with libxdp's interface, as shared libraries; and its users from Debian 13,
# in a throw-away root.

# The first takes libxdp's place; the second has a name of its own, so that libxdp is loaded behind it.
build_libxdp() {
    local name
    libxdp_dir=$target_dir/libxdp
    fetch_crates
    say "building weir's libxdp (release)"
    cargo build --locked --release --package xsk-libxdp || die "the build failed; the compiler's words are above"
    mkdir -p "$libxdp_dir"
    for name in libxdp.so.1 libweir-xdp.so; do
        scripts/link-shared.sh "$target_dir/release/libxsk_libxdp.a" "$name" crates/xsk-libxdp/libxdp.map \
            "$libxdp_dir/$name" || die "$name could not be linked"
    done
}

run_libxdp() {
    install_needs "${build_needs[@]}"
    build_libxdp
    say "in place of libxdp: LD_LIBRARY_PATH=$libxdp_dir PROGRAM"
    say "in front of it:     LD_PRELOAD=$libxdp_dir/libweir-xdp.so PROGRAM"
    echo "$libxdp_dir"
}

run_libxdp_users() {
    local program
    need_root_later "the programs run in namespaces of their own"
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${package_test_needs[@]}" \
        "python3:python3:the peer of the programs"
    debian_13 "DPDK and Suricata" dpdk-dev,librte-net-af-xdp25,suricata
    build_libxdp
    pkg-config --exists libxdp || die "libxdp-dev is missing and could not be installed"
    for program in errors sockets; do
        # shellcheck disable=SC2046 # several words
        cc -O2 -D_GNU_SOURCE "crates/xsk-libxdp/tests/libxdp/$program.c" -o "$libxdp_dir/$program" \
            $(pkg-config --cflags --libs libxdp) || die "$program could not be built"
    done
    as_root crates/xsk-libxdp/tests/users/lab.sh "$libxdp_dir/libweir-xdp.so" "$debian_13_directory/root" \
        "$debian_13_directory/lab"
}
