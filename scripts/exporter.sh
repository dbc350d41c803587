# shellcheck shell=bash
# Sourced by ./run: `weir exporter` scraped by Debian's Prometheus, which is unpacked and not installed.

exporter_needs=(
    "curl:curl:scraping by hand"
    "openssl:openssl:a certificate"
    "python3:python3:the traffic, and the dashboard's queries"
)

run_exporter() {
    local root missing
    need_root_later "the exporter, Prometheus and the traffic run in namespaces of their own"
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${exporter_needs[@]}"
    check_scale
    build_weir
    root=$target_dir/debian/prometheus
    # The oldest release that weir runs on: its Prometheus runs with every later libc.
    missing=$(debian_root bookworm "$root" prometheus) || die "there is no Prometheus: ${missing:-see above}"
    as_root scripts/exporter-lab.sh "$target_dir/release/weir" "$root" "$target_dir/exporter-lab"
}
