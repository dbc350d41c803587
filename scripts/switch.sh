# shellcheck shell=bash
# Sourced by ./run: `weir switch` in emulated guests whose kernels have VLANs and bonds, between virtual
# machines, and counted in instructions beside the kernel's bridge and Open vSwitch.
# crates/weir/tests/guest/README.md describes the scripts that run in the guests.

switch_seconds=600 # how long a script may take in a guest, with all its modes
# Kernel and card of each guest.
switch_rows=("6.1 virtio-net" "6.12 virtio-net" "newest igb")

run_switch() {
    local what=${1-}
    (($# == 0)) || shift
    case $what in
    guests | vms | count) ;;
    fuzz) switch_fuzz "$@" && return ;;
    *) usage_error "'switch' takes guests, vms, count or fuzz, got: '$what'" ;;
    esac
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${guest_needs[@]}"
    check_scale
    fetch_crates
    begin_steps
    "switch_$what" "$@"
}

# Sets the variables of the options of all: plain, format, kernel_wanted, scripts.
switch_arguments() {
    while (($# > 0)); do
        case $1 in
        --plain) plain=1 && shift && continue ;;
        --kernel | --format)
            (($# > 1)) || usage_error "$1 needs a value"
            ;;&
        --kernel) kernel_wanted=$2 ;;
        --format)
            [[ $2 == table || $2 == json ]] || usage_error "--format is table or json, not '$2'"
            format=$2
            ;;
        -*) usage_error "'switch' has no option $1" ;;
        *) scripts+=("$1") && shift && continue ;;
        esac
        shift 2
    done
}

# ./run switch guests [--plain] [--kernel K] [--format json] [SCRIPT…]
switch_guests() {
    local plain="" format=table kernel_wanted="" scripts=() row kernel card results
    switch_arguments "$@"
    ((${#scripts[@]} > 0)) || mapfile -t scripts < <(cd "$guest_sources" && ls -- switch-*.sh)
    results=$(mktemp "$log_dir/switch.XXXXXX")
    for row in "${switch_rows[@]}"; do
        read -r kernel card <<<"$row"
        [[ ${kernel_wanted:-$kernel} == "$kernel" ]] || continue
        switch_guest "$kernel" "$card" "$plain" "${scripts[@]}" >>"$results"
    done
    [[ -s $results ]] || usage_error "no guest has the kernel '$kernel_wanted'"
    "switch_guests_$format" "$results"
    awk -F '\t' '{ failed += $4 } END { exit failed > 0 }' "$results"
}

# switch_guest KERNEL CARD PLAIN SCRIPT…: prints for each script a line: kernel, script, how many checks
# passed, failed and were skipped, and the failed ones.
switch_guest() {
    local kernel=$1 card=$2 plain=$3 script console part status took version switch_machine guest_files=""
    shift 3
    if ! guest_prepare "$kernel" || ! guests_qemu || ! guest_payload; then
        say "switch: Linux $kernel: nothing was tested, $(guest_reason)"
        printf '%s\t-\t0\t%d\t%d\t%s\n' "$kernel" $((${#guest_missing} == 0)) $((${#guest_missing} > 0)) "$(guest_reason)"
        return
    fi
    version=$(guest_version)
    cp "$guest_sources/card-lab" "$guest_payload" && guests_settings "$card" >"$guest_payload/settings" || return
    printf 'MODES=%q\nACCELERATE=%q\n' "${MODES:-bridge xdp tcx auto}" "${plain:+no}" >>"$guest_payload/settings"
    if [[ " $* " == *" switch-vhost.sh "* ]]; then
        guest_files=$guest_dir/dpdk
        # Without it the script is skipped.
        switch_dpdk "$guest_files" || guest_files=""
    fi
    switch_cards "$card"
    local guest_qemu=("${guests_emulator[@]}") guest_name=switch-guest-$kernel
    say "switch: $* on Linux $version"
    guest_run switch_machine "$guest_payload" "$switch_seconds" "$@" || true
    console=$log
    for script in "$@"; do
        part=$log_dir/$guest_name-${script%.sh}.log
        guest_log "$script" <"$console" >"$part"
        read -r status took < <(guest_status "$part")
        switch_checks "$version" "$script" "$status" "$took" <"$part"
    done
}

# Sets switch_machine: three cards, of which the first two are joined.
switch_cards() {
    local device=$1,romfile= number
    [[ $1 != virtio-net ]] || device=virtio-net-pci,romfile=,$guests_virtio
    switch_machine=("${guests_cpus[@]}")
    for number in 0 1 2; do
        switch_machine+=(
            -netdev "hubport,id=n$number,hubid=$((number / 2))"
            -device "pcie-root-port,id=p$number,chassis=$number"
            -device "$device,bus=p$number,netdev=n$number,mac=02:00:00:00:01:0$number"
        )
    done
}

# switch_checks VERSION SCRIPT STATUS SECONDS: the line of a script, from its output.
switch_checks() {
    tr -d '\r' | awk -v version="$1" -v script="$2" -v status="$3" -v seconds="$4" '
        /^ok / && / # SKIP/ { skipped++; next }
        /^ok / { passed++ }
        /^not ok / { failed++; notes = notes $3 " " }
        END {
            if (status != 0 && !failed) { failed++; notes = "ended with status " status }
            if (!passed && !failed && !skipped) { failed++; notes = "ran nothing" }
            sub(/ $/, "", notes)
            printf "%s\t%s\t%d\t%d\t%d\t%s\t%d\n", version, script, passed, failed, skipped, notes, seconds
        }'
}

switch_guests_table() {
    awk -F '\t' '
        BEGIN { print "| Kernel | Script | Passed | Failed | Skipped | Failures | Seconds |"; print "|---|---|---:|---:|---:|---|---:|" }
        { printf "|"; for (i = 1; i <= 7; i++) printf " %s |", $i; print "" }' "$1"
}

switch_guests_json() {
    awk -F '\t' '
        BEGIN { print "[" }
        { printf "%s  {\"kernel\": \"%s\", \"script\": \"%s\", \"passed\": %d, \"failed\": %d, \"skipped\": %d, \"failures\": \"%s\", \"seconds\": %d}", (NR > 1 ? ",\n" : ""), $1, $2, $3, $4, $5, $6, $7 }
        END { print "\n]" }' "$1"
}

# ./run switch vms [--plain] [--format json]
switch_vms() {
    local plain="" format=table kernel_wanted="" scripts=() modes="bridge weir" results image status=0
    switch_arguments "$@"
    am_root || die "the virtual machines' taps and namespaces need root"
    install_needs "iperf3:iperf3:the streams between virtual machines"
    guest_prepare "" || die "there is no guest: $(guest_reason)"
    guest_payload || die "the build failed; the compiler's words are above"
    if [[ -n $plain ]]; then
        modes=bridge
    elif ! "$target_dir/debug/weir" switch --help >/dev/null 2>&1; then
        say "switch: this weir has no command switch: the kernel's bridge alone"
        modes=bridge
    fi
    results=$(mktemp "$log_dir/switch-vms.XXXXXX")
    image=$guest_dir/switch-vms.initramfs
    rm -rf "$guest_dir/vms" && mkdir "$guest_dir/vms" || return
    cp "$guest_sources/switch-vm" "$(command -v iperf3)" "$guest_dir/vms" || return
    guest_image "$guest_dir/vms" >"$image" || die "the machines' image could not be made"
    run_step switch-vms 1800 unshare --net --mount --pid --fork --kill-child \
        bash scripts/switch-vms.sh "$guest_dir" "$image" "$target_dir/debug/weir" "$modes" "${OFFLOADS:-on off}" \
        "$results" -- "${guest_qemu[@]}" || status=$?
    "switch_vms_$format" "$results"
    rm "$results"
    return "$status"
}

# Of each event, the packets of all streams that were lost, beside those sent.
switch_vms_table() {
    awk -F '\t' '
        BEGIN { print "| Offloads | Event | Forwarded by | ping | UDP | UDP back | TCP retransmitted | TCP Mbit/s | back |"
                print "|---|---|---|---:|---:|---:|---:|---:|---:|" }
        { key = $1 "\t" $3 "\t" $2; if (!(key in seen)) { seen[key] = 1; order[++count] = key }
          value[key, $4] = $6 == "" ? $5 : ($5 - $6) " of " $5 }
        function cell(key, stream) { return (key, stream) in value ? value[key, stream] : "-" }
        END {
            for (i = 1; i <= count; i++) {
                split(order[i], part, "\t")
                k = order[i]
                print "| " part[1] " | " part[2] " | " part[3] " | " cell(k, "ping") " | " cell(k, "udp") " | " cell(k, "udp-back") " | " \
                    cell(k, "tcp-retransmitted") " | " cell(k, "tcp") " | " cell(k, "tcp-back") " |"
            }
        }' "$1"
}

switch_vms_json() {
    awk -F '\t' '
        BEGIN { print "[" }
        { printf "%s  {\"offloads\": \"%s\", \"forwarded_by\": \"%s\", \"event\": \"%s\", \"stream\": \"%s\", ", (NR > 1 ? ",\n" : ""), $1, $2, $3, $4
          if ($6 == "") printf "\"value\": %s}", $5
          else printf "\"sent\": %d, \"received\": %d, \"lost\": %d}", $5, $6, $5 - $6 }
        END { print "\n]" }' "$1"
}

# ./run switch count [--plain] [--kernel K] [--format json]: PATHS has the paths, RECEIVERS the numbers of destinations.
switch_count() {
    local plain="" format=table kernel_wanted=newest scripts=() paths version switch_machine
    switch_arguments "$@"
    if ! guest_prepare "$kernel_wanted" || ! guests_qemu; then
        die "there is no guest: $(guest_reason)"
    fi
    guest_payload || die "the build failed; the compiler's words are above"
    guest_files=$guest_dir/openvswitch
    switch_openvswitch "$guest_files" || die "Open vSwitch could not be copied: $(guest_reason)"
    paths="bridge bridge_vlan ovs"
    if [[ -z $plain ]] && "$target_dir/debug/weir" switch --help >/dev/null 2>&1; then
        paths+=" weir_xdp weir_xdp_vlan weir_tcx weir_tcx_vlan"
    fi
    version=$(guest_version)
    cp "$guest_sources/switch-count" "$guest_payload" || return
    printf 'turns=8\nframes=4096\npaths=%q\nreceivers_list=%q\n' "${PATHS:-$paths}" "${RECEIVERS:-1 64}" >"$guest_payload/settings"
    # shellcheck disable=SC2034 # guest_run gets its name
    switch_machine=(-accel "tcg,thread=single" "${guest_count[@]}")
    local guest_qemu=("${guests_emulator[@]}") guest_name=switch-count
    say "switch: counting on Linux $version"
    guest_run_one switch_machine "$guest_payload" 900 switch-count || die "nothing was counted"
    "switch_count_$format" "$version" <"$log.script"
}

# Debian 13's Open vSwitch with all its libraries, as files of a guest below DIRECTORY.
switch_openvswitch() {
    local tree=$target_dir/debian/openvswitch
    guest_missing=$(debian_root trixie "$tree" openvswitch-switch) || return
    rm -rf "$1" && mkdir -p "$1/opt/openvswitch" || return
    switch_programs "$tree" "$1/opt/openvswitch" usr/lib/openvswitch-switch/ovs-vswitchd usr/sbin/ovsdb-server \
        usr/bin/{ovs-vsctl,ovs-appctl,ovsdb-tool} || return
    cp "$tree/usr/share/openvswitch/vswitch.ovsschema" "$1/opt/openvswitch/"
}

# The same for Debian 13's testpmd, with the drivers of the end of a vhost.
switch_dpdk() {
    local tree=$target_dir/debian/dpdk driver drivers=usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0
    guest_missing=$(debian_root trixie "$tree" dpdk-dev librte-net-virtio25 librte-mempool-ring25) || return
    rm -rf "$1" && mkdir -p "$1/opt/dpdk" || return
    switch_programs "$tree" "$1/opt/dpdk" usr/bin/dpdk-testpmd "$drivers"/librte_{mempool_ring,net_virtio}.so || return
    for driver in mempool_ring net_virtio; do
        mv "$1/opt/dpdk/bin/librte_$driver.so" "$1/opt/dpdk/lib/" || return
    done
}

# switch_programs TREE DIRECTORY FILE…: programs of the tree into DIRECTORY/bin, and the libraries of them and of
# plugins into DIRECTORY/lib, the loader among them.
switch_programs() {
    local tree=$1 directory=$2 libraries=$1/usr/lib/x86_64-linux-gnu file
    shift 2
    mkdir -p "$directory"/{bin,lib} || return
    for file in "$@"; do
        cp -L "$tree/$file" "$directory/bin/" || return
        "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" --list "$tree/$file" |
            sed -nE 's/^.* => (\/[^ ]+).*$/\1/p' | xargs cp -Lt "$directory/lib" || return
    done
}

switch_count_table() {
    awk -v version="$1" '
        BEGIN { print "| Path | Destinations | Instructions a packet | without the load | Frames that arrived |"; print "|---|---:|---:|---:|---:|" }
        $1 == "count" { printf "| %s | %d | %d | %d | %d of %d |\n", $2, $3, $4, $5, $6, $7 }
        END { print "\nLinux " version }'
}

switch_count_json() {
    awk -v version="$1" '
        BEGIN { print "[" }
        $1 == "count" { printf "%s  {\"kernel\": \"%s\", \"path\": \"%s\", \"destinations\": %d, \"instructions\": %d, \"without_load\": %d, \"arrived\": %d, \"sent\": %d}", (n++ ? ",\n" : ""), version, $2, $3, $4, $5, $6, $7 }
        END { print "\n]" }'
}
