# shellcheck shell=bash
# Sourced by ./run: containers of this machine's runtimes under the broker. The broker's test program makes
# them, runs in them, and prints the table.

containers_needs=(
    "runc:?runc:containers of runc"
    "crun:?crun:containers of crun, and those of podman"
    "podman:?podman:containers of podman, rootless"
    "squashfuse:?squashfuse:the FUSE mount in containers"
    "mksquashfs:?squashfs-tools:the FUSE mount in containers"
)

run_containers() {
    local program
    need_root_later "containers are made, and a broker that supervises them"
    install_needs "${build_needs[@]}" "${containers_needs[@]}"
    check_scale
    fetch_crates
    say "building weir and the broker's tests"
    cargo build --locked --package weir || die "the build failed; the compiler's words are above"
    program=$(cargo_program broker test --package weir-broker --test broker) ||
        die "the broker's tests could not be built; the reason is above"
    as_root "$program" --containers "$target_dir/debug/weir"
}
