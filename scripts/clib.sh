# shellcheck shell=bash
# Sourced by ./run: `./run clib` installs the library for C.

clib_sources=crates/xsk-c
clib_soname=libweir-xsk.so.0

# clib_version: that of the workspace.
clib_version() { sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# run_clib PREFIX: below it include/weir/xsk.h, lib/libweir-xsk.a, lib/libweir-xsk.so.0 with the link that
# linkers look for, and lib/pkgconfig/weir-xsk.pc.
run_clib() {
    local prefix=$1 staticlib=$target_dir/release/libweir_xsk.a version work
    install_needs "cc:gcc:linking the shared library"
    fetch_crates
    say "building the library for C (release)"
    cargo build --locked --release --package xsk-c || die "the build failed; the compiler's words are above"
    version=$(clib_version)
    work=$target_dir/clib
    mkdir -p "$work"
    # A third of the archive.
    objcopy --strip-debug "$staticlib" "$work/libweir-xsk.a" || die "objcopy failed; its reason is above"
    scripts/link-shared.sh "$work/libweir-xsk.a" "$clib_soname" "$clib_sources/weir-xsk.map" "$work/$clib_soname" ||
        die "the shared library could not be linked; the linker's reason is above"
    clib_pkgconfig "$prefix" "$version" >"$work/weir-xsk.pc"
    clib_install "$prefix" "$work" || die "the library could not be installed below $prefix; the reason is above"
    say "installed below $prefix: weir/xsk.h, libweir-xsk.a, $clib_soname, weir-xsk.pc"
}

clib_pkgconfig() {
    cat <<END
prefix=$1
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: weir-xsk
Description: AF_XDP sockets whose misuse is an error
Version: $2
Cflags: -I\${includedir}
Libs: -L\${libdir} -lweir-xsk
Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl
END
}

clib_install() {
    local prefix=$1 work=$2
    install -D -m 644 "$clib_sources/include/weir/xsk.h" "$prefix/include/weir/xsk.h" &&
        install -D -m 644 "$work/libweir-xsk.a" "$prefix/lib/libweir-xsk.a" &&
        install -D -m 755 "$work/$clib_soname" "$prefix/lib/$clib_soname" &&
        ln -sf "$clib_soname" "$prefix/lib/libweir-xsk.so" &&
        install -D -m 644 "$work/weir-xsk.pc" "$prefix/lib/pkgconfig/weir-xsk.pc"
}
