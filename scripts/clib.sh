# shellcheck shell=bash
# Sourced by ./run: `./run clib` builds the library for C and installs it.

# run_clib PREFIX
run_clib() {
    install_needs "cc:gcc:linking the shared library"
    fetch_crates
    say "building the library for C (release)"
    cargo build --locked --release --package xsk-c || die "the build failed; the compiler's words are above"
    scripts/install-clib.sh "$target_dir/release/libweir_xsk.a" "$1" ||
        die "the library could not be installed below $1; the reason is above"
    say "installed below $1: weir/xsk.h, libweir-xsk.a, libweir-xsk.so.0, weir-xsk.pc"
}
