# shellcheck shell=bash
# Sourced by ./run: the library's tests of XDP programs in the guest, whose kernel has BPF trampolines,
# which libxdp's dispatcher is made of. This machine's own kernel may lack them.

dispatcher_seconds=300 # how long the tests may take in the guest
dispatcher_tools=(xdp-filter xdp-loader)

# The library's test program, libxdp and xdp-tools with their BPF programs, as guest_payload. Sets
# guest_missing when it fails.
guest_dispatcher_payload() {
    local program library objects tool
    library=$(ldconfig -p | sed -nE 's/^\s*libxdp\.so\.1 .* => (.*)$/\1/p' | head -n 1)
    guest_missing="libxdp.so.1 is missing"
    [[ -n $library ]] || return
    objects=$(dirname "$library")/bpf
    guest_missing="xdp-tools is missing"
    for tool in "${dispatcher_tools[@]}"; do have "$tool" || return; done
    guest_missing=""
    program=$(cargo_program xsk test --workspace --all-features) || return
    guest_payload=$guest_dir/dispatcher
    rm -rf "$guest_payload" && mkdir "$guest_payload" || return
    for tool in "${dispatcher_tools[@]}"; do cp "$(command -v "$tool")" "$guest_payload" || return; done
    cp -rL "$program" "$objects" "$library" "$guest_sources/dispatcher" "$guest_payload" &&
        mv "$guest_payload/$(basename "$program")" "$guest_payload/xsk" &&
        # Only the libraries of executable files are copied along.
        chmod +x "$guest_payload/libxdp.so.1"
}

# ./run guest --dispatcher
dispatcher_in_guest() {
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${test_needs[@]}" "${guest_needs[@]}"
    check_scale
    guest_prepare "" || die "there is no guest: $(guest_reason)"
    begin_steps
    guest_dispatcher_payload || die "nothing to run in the guest: $(guest_reason)"
    guest_run_one guest_scripts "$guest_payload" "$dispatcher_seconds" dispatcher || exit
    cat "$log.script"
}

test_dispatcher() {
    local status=0
    if ! guest_prepare "" || ! guest_dispatcher_payload; then
        no_guest dispatcher
        return
    fi
    guest_run_one guest_scripts "$guest_payload" "$dispatcher_seconds" dispatcher || status=$?
    # 125: the tests did not run, and only the console may say why.
    ((status == 125)) || log=$log.script
    count_step dispatcher "$status"
}
