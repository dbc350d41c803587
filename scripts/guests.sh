# shellcheck shell=bash
# Sourced by ./run: the tests of xsk on emulated network cards and several kernels, one row each. The
# guests are those of guest.sh with another kernel, Debian 13's QEMU, which emulates more cards, and
# three cards: two that are joined, and one whose peer is a process of this machine. Nobody needs root for
# them. crates/weir/tests/guest/README.md has the contract.

# Card, kernel, mode that a socket obtains, modes that are tested, the best one first.
guests_rows=(
    "veth host drv DRV SKB"
    "virtio-net 6.1 drv DRV SKB"
    "virtio-net 6.12 drv DRV SKB"
    "virtio-net newest zc ZC DRV SKB"
    "igb newest zc ZC DRV SKB"
    "vmxnet3 newest drv DRV SKB"
    "e1000e newest skb SKB"
    "veth arm64 drv DRV SKB"
    "veth arm64-16k drv DRV SKB"
    "igb arm64 zc ZC DRV SKB"
    "igb arm64-16k zc ZC DRV SKB"
)
# The kernel modules of each card, in their order.
declare -A guests_modules=(
    [virtio-net]="virtio_pci virtio_net" [igb]="i2c-algo-bit dca igb" [vmxnet3]=vmxnet3 [e1000e]=e1000e
)
# With these, virtio-net's driver has native XDP, and zero-copy where its kernel has.
guests_virtio=disable-legacy=on,iommu_platform=on,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,ctrl_guest_offloads=on

# The processors and memory; those of `--count` are guest.sh's, whose clock counts instructions.
guests_cpus=(-accel "tcg,thread=multi" -smp 2 -m 1536)
guests_profile=() # cargo's words for the profile of the tests

# The kernels that the kinds of devices are tested on; this machine's own makes the fewest.
guests_device_kernels=(host 6.1 6.12 newest)

guests_seconds=2400 # how long the tests of a row may take
guests_long_seconds=5400

# The tests of a row in `./run deep cards`: parts of their names.
guests_short=(
    "auto obtains" "from outside" "to outside" "resets" "flows" "kill -9"
    "SEND_RECEIVE_SINGLE_PKT" "BIDIRECTIONAL" "HW_SW_MIN_RING_SIZE"
)

run_guests() {
    local kernel_wanted="" card_wanted="" long="" count="" broker="" devices="" busy_poll="" format=table file="" row rows results failures
    guests_arguments "$@"
    install_needs "${build_needs[@]}" "${run_needs[@]}" "${guest_needs[@]}"
    check_scale
    fetch_crates
    begin_steps
    if [[ -n $devices ]]; then
        guests_devices
        return
    fi
    mapfile -t rows < <(guests_selected)
    ((${#rows[@]} > 0)) || usage_error "no row has the kernel '$kernel_wanted' and the card '$card_wanted'"
    if [[ -n $broker ]]; then
        guests_broker
        return
    fi
    if [[ -n $file ]]; then
        guests_run_file "${rows[0]}"
        return
    fi
    if [[ -n $count ]]; then
        guests_cpus=(-accel "tcg,thread=single" "${guest_count[@]}")
        guests_profile=(--release)
    fi
    results=$(mktemp "$log_dir/guests.XXXXXX")
    for row in "${rows[@]}"; do
        guests_row "$row" "$long" "$count" >>"$results"
    done
    "guests_$format" "$results"
    failures=$(awk -F '\t' '{ sum += $5 } END { print sum + 0 }' "$results")
    rm "$results"
    ((failures == 0))
}

# Sets the variables of run_guests.
guests_arguments() {
    while (($# > 0)); do
        case $1 in
        --long) long=1 && shift && continue ;;
        --count) count=1 && shift && continue ;;
        --broker) broker=1 && shift && continue ;;
        --devices) devices=1 && shift && continue ;;
        --busy-poll) busy_poll=1 && shift && continue ;;
        --kernel | --card | --format | --files)
            (($# > 1)) || usage_error "$1 needs a value"
            ;;&
        --kernel) kernel_wanted=$2 ;;
        --card) card_wanted=$2 ;;
        --format)
            [[ $2 == table || $2 == json ]] || usage_error "--format is table or json, not '$2'"
            format=$2
            ;;
        --files)
            [[ -d $2 ]] || usage_error "no directory '$2'"
            guest_files=$2
            ;;
        -*) usage_error "'guests' has no option $1" ;;
        *)
            [[ -z $file ]] || usage_error "'guests' takes one script or program, got: $file $1"
            file=$1 && shift && continue
            ;;
        esac
        shift 2
    done
}

guests_selected() {
    local row name of
    for row in "${guests_rows[@]}"; do
        read -r name of _ <<<"$row"
        [[ ${card_wanted:-$name} == "$name" && ${kernel_wanted:-$of} == "$of" ]] || continue
        # A file is for a guest.
        [[ -z $file$count$broker || $of != host ]] || continue
        echo "$row"
    done
}

# guests_row ROW LONG COUNT: runs a row, with COUNT its rates alone, and prints for each of its modes a line: card, kernel, mode, and how many
# tests passed, failed and were skipped, the packets received and sent a second, and notes. The first
# mode counts what has none.
guests_row() {
    local card kernel obtains modes version status=0
    read -r card kernel obtains modes <<<"$1"
    [[ -n ${2-}${3-} ]] || modes=${modes%% *}
    if ! guests_prepare "$card" "$kernel"; then
        say "guests: $card on $kernel: nothing was tested, $(guest_reason)"
        if [[ -n $guest_missing ]]; then
            printf '%s\t%s\t-\t0\t0\t1\t-\t-\tskipped: %s\n' "$card" "$kernel" "$guest_missing"
        else
            guests_results "$card" "$kernel" "$modes" 1 </dev/null
        fi
        return
    fi
    version=$(guests_version "$kernel")
    guests_tests "$card" "$kernel" "$obtains" "$modes" "${2-}" ${3:+rates} || status=$?
    guests_results "$card" "$version" "$modes" "$status" <"$log"
}

guests_version() {
    if [[ $1 == host ]]; then uname -r; else guest_version; fi
}

# Whatever a row needs; sets guest_missing when it fails.
guests_prepare() {
    if [[ $2 == host ]]; then
        guest_arch=amd64
        guest_missing="it makes network namespaces, which needs root"
        am_root || return
    else
        guest_prepare "$2" && guests_qemu || return
    fi
    guests_build
}

# Sets guests_emulator to Debian 13's QEMU for guest_arch.
guests_qemu() {
    local root=$target_dir/debian/qemu package=qemu-system-x86 program=qemu-system-x86_64 libraries emulated=(-machine q35 -cpu Nehalem)
    if is_guest_foreign; then
        # Signed pointers as the architecture has them are slow to emulate.
        root+=-arm package=qemu-system-arm program=qemu-system-aarch64 emulated=(-machine virt -cpu "max,pauth-impdef=on")
    fi
    guest_missing=$(debian_root trixie "$root" "$package") || return
    libraries=$root/usr/lib/x86_64-linux-gnu
    guests_emulator=(
        setpriv --pdeathsig KILL env "QEMU_MODULE_DIR=$libraries/qemu"
        "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries" "$root/usr/bin/$program"
        -L "$root/usr/share/qemu" -L "$root/usr/share/seabios"
        "${emulated[@]}" -nodefaults -no-user-config
        -display none -serial stdio -no-reboot
    )
}

# Builds the tests, linked statically: as guests_program for the guest, and as guests_peer for this machine.
guests_build() {
    guests_target "$(uname -m)" || return
    guests_peer=${guests_peer:-$(guests_tests_program "$(uname -m)")} || return
    guests_program=$guests_peer
    is_guest_foreign || return 0
    guests_target aarch64 || return
    guests_foreign_program=${guests_foreign_program:-$(guests_tests_program aarch64)} || return
    guests_program=$guests_foreign_program
}

# guests_target ARCHITECTURE: adds it to the compiler; sets guest_missing when it fails.
guests_target() {
    guest_missing="rustup could not add the target $1-unknown-linux-musl"
    have rustup && rustup_as_owner target add "$1-unknown-linux-musl" >/dev/null 2>&1 && guest_missing=""
}

# guests_tests_program ARCHITECTURE: builds the tests of xsk, and prints their path.
guests_tests_program() {
    say "building the tests of xsk ($1)"
    guests_cargo cargo_program xsk test "${guests_profile[@]}" --package xsk --test xsk --features tokio \
        --target "$1-unknown-linux-musl"
}

# guests_cargo COMMAND…: a build with a linker for each architecture, without what debuggers need: it would fill a guest's memory.
guests_cargo() {
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld CARGO_PROFILE_DEV_DEBUG=0 "$@"
}

# guests_tests CARD KERNEL OBTAINS MODES [LONG [PART…]]: runs the tests whose names have one of the parts.
guests_tests() {
    local card=$1 kernel=$2 obtains=$3 modes=$4 long=${5-} seconds=$guests_seconds name payload
    local scale=${WEIR_TEST_SCALE:-1}
    shift $(($# < 5 ? $# : 5))
    (($# > 0)) || set -- ""
    # A card that needs two seconds for each reset.
    [[ -z $long ]] || seconds=$guests_long_seconds scale=$((scale * 5))
    name=guests-$card-$kernel
    payload=$log_dir/$name
    log=/dev/null # an older step's is not of this row
    rm -rf "$payload" && mkdir "$payload" && cp "$guest_sources"/{cards,card-lab} "$payload" || return
    cp "$guests_program" "$payload/xsk" || return
    [[ $card != veth ]] || is_guest_foreign || ! have wg || cp "$(command -v wg)" "$payload" || return
    {
        guests_settings "$card"
        printf 'export XSK_TEST_CARD=%q XSK_TEST_OBTAINS=%q XSK_TEST_MODES=%q XSK_TEST_RATES=1 WEIR_TEST_SCALE=%q\n' \
            "$card" "$obtains" "$modes" "$scale"
        [[ -z $long ]] || echo "export WEIR_TEST_LONG=1"
        [[ -z ${busy_poll-} ]] || echo "export XSK_TEST_BUSY_POLL=1"
        printf 'parts="%s"\n' "$(printf '%s\n' "$@")"
    } >"$payload/settings"
    if [[ $kernel == host ]]; then
        run_step "$name" "$seconds" env --chdir="$payload" sh ./cards
    else
        guests_run "$card" "$name" "$payload" "$seconds" cards
    fi
}

guests_settings() { printf 'modules=%q\n' "${guests_modules[$1]-}"; }

# guests_run CARD NAME PAYLOAD SECONDS SCRIPT: guest_run_one in a guest with this card; a veth needs none.
guests_run() {
    local card=$1 guest_name=$2 guests_machine=("${guests_cpus[@]}") guest_qemu=("${guests_emulator[@]}")
    shift 2
    [[ $card == veth ]] || guests_add_cards
    guest_run_one guests_machine "$@"
}

# Adds three of guests_run's card to its machine.
guests_add_cards() {
    local device=$card,romfile= number
    [[ $card != virtio-net ]] || device=virtio-net-pci,romfile=,$guests_virtio
    guests_machine+=(
        -netdev "hubport,id=n0,hubid=0" -netdev "hubport,id=n1,hubid=0"
        -netdev "dgram,id=n2,local.type=fd,local.str=@SOCKET@"
    )
    # Each below a port of its own: igb's virtual functions take the slots behind it. The address is that
    # of the tests' packets, as a card that is reset may forget to be promiscuous, or another address.
    for number in 0 1 2; do
        guests_machine+=(-device "pcie-root-port,id=p$number,chassis=$number")
        guests_machine+=(-device "$device,bus=p$number,netdev=n$number,mac=02:00:00:00:00:00")
    done
    # The peer of the third card is the parent of QEMU.
    guest_qemu=(env XSK_TEST_OUTSIDE_OF=guest "$guests_peer" "${guest_qemu[@]}")
}

# Runs the file of the command line in the guest of a row, and prints its output.
guests_run_file() {
    local card kernel payload=$log_dir/guests-file name
    read -r card kernel _ <<<"$1"
    guests_prepare "$card" "$kernel" || die "there is no guest: $(guest_reason)"
    say "guests: $file with $card on Linux $(guest_version)"
    if [[ -f $guest_sources/$file ]]; then
        guest_payload || die "the build failed; the compiler's words are above"
        payload=$guest_payload name=$file
    else
        [[ -f $file ]] || die "no file '$file', here or in $guest_sources"
        rm -rf "$payload" && mkdir "$payload" && cp "$file" "$payload" || return
        name=$(basename "$file")
    fi
    cp "$guest_sources/card-lab" "$payload" && guests_settings "$card" >"$payload/settings" || return
    if [[ $(head -c 4 "$payload/$name") == $'\177ELF' ]]; then
        printf '. ./card-lab\nexec ./%q\n' "$name" >"$payload/program"
        name=program
    fi
    guests_run "$card" guests-file "$payload" "$guest_seconds" "$name" || exit
    cat "$log.script"
}

# Kinds of devices on each kernel: a table of what a socket gets in each mode, and the kinds that a kernel lacks.
guests_devices() {
    local kernel status failed=0
    install_needs "wg:?wireguard-tools:WireGuard devices"
    for kernel in "${guests_device_kernels[@]}"; do
        [[ ${kernel_wanted:-$kernel} == "$kernel" ]] || continue
        status=0
        guests_devices_of "$kernel" || status=$?
        if ((status == 125)); then
            say "guests: devices on $kernel: nothing was tested, $(guest_reason)"
            [[ -n $guest_missing ]] || failed=1
            continue
        fi
        ((status == 0)) || failed=1
        guests_devices_table "$(guests_version "$kernel")" <"$log"
    done
    return "$failed"
}

# guests_devices_of KERNEL
guests_devices_of() {
    guests_prepare veth "$1" || return 125
    guests_tests veth "$1" drv "DRV SKB" "" "delivered or refused"
}

guests_devices_table() {
    tr -d '\r' | awk -v version="$1" '
        BEGIN {
            print "\nLinux " version ":\n"
            print "| Device | Auto | Skb | Driver | ZeroCopy | Auto with a filter |\n|---|---|---|---|---|---|"
        }
        match($0, /\| .* \|$/) { print substr($0, RSTART) }
        / FAILED$/ { failed = failed "\n" $0 }
        /^test device .* ignored/ {
            sub(/^test device /, "") && sub(/: delivered or refused.*/, "")
            lacks = lacks (lacks ? ", " : "") $0
        }
        END { if (lacks) print "\nNot there: " lacks; if (failed) print failed }'
}

# The broker and its tests on the cards of the rows, and their output.
guests_broker() {
    local row card kernel obtains status failed=0
    for row in "${rows[@]}"; do
        read -r card kernel obtains _ <<<"$row"
        if ! guests_prepare "$card" "$kernel" || ! guests_build_broker; then
            say "guests: the broker with $card on $kernel: nothing was tested, $(guest_reason)"
            [[ -n $guest_missing ]] || failed=1
            continue
        fi
        say "guests: the broker with $card on Linux $(guest_version)"
        status=0
        guests_run_broker "$card" "$kernel" "$obtains" || status=$?
        ((status == 0)) || failed=1
        [[ ! -e $log.script ]] || guests_broker_words <"$log.script"
    done
    return "$failed"
}

# guests_run_broker CARD KERNEL OBTAINS: tenants' sockets copy where the card does not, as the policy's default
# has it.
guests_run_broker() {
    local card=$1 mode=${3/zc/drv} payload
    payload=$log_dir/guests-broker-$1-$2
    log=/dev/null # an older step's is not of this row
    rm -rf "$payload" && mkdir "$payload" && cp "$guest_sources"/{broker,card-lab} "$payload" || return
    cp "$guests_broker_tests" "$payload/tests" && cp "$guests_broker_program" "$payload/weir-broker" || return
    {
        guests_settings "$card"
        printf 'export WEIR_BROKER_TEST_MODE=%q WEIR_TEST_SCALE=%q\n' "$mode" "${WEIR_TEST_SCALE:-1}"
        [[ $card == igb ]] || echo "export WEIR_BROKER_TEST_NO_RSS=1"
    } >"$payload/settings"
    guests_run "$card" "guests-broker-$card-$2" "$payload" "$guests_seconds" broker
}

# Builds the broker and its tests, linked statically, as guests_broker_program and guests_broker_tests.
guests_build_broker() {
    local triple
    triple=$(uname -m)-unknown-linux-musl
    is_guest_foreign && guest_missing="the broker's tests with cards are for this machine's architecture" && return 1
    [[ -z ${guests_broker_tests-} ]] || return 0
    guest_missing=""
    say "building the broker and its tests ($triple)"
    cargo build --locked --package weir-broker --bin weir-broker --target "$triple" || return
    guests_broker_program=$target_dir/$triple/debug/weir-broker
    guests_broker_tests=$(cargo_program broker test --package weir-broker --test broker --target "$triple")
}

# The outcomes of the tests, and their measurements.
guests_broker_words() {
    grep -E '^(test |RSS table|as the device|  tenant|tenant|links:|kill -9|[0-9]+ ends|\{.*"confinement")' || true
}

# guests_results CARD VERSION MODES STATUS: the lines of a row, from the output of the tests and their exit
# status. Tests that ended badly, or were none, have failed whatever they printed.
guests_results() {
    tr -d '\r' | awk -v card="$1" -v version="$2" -v modes="$3" -v status="$4" '
        BEGIN { OFS = "\t"; count = split(modes, mode, " ") }
        function outcome(word) {
            prefix = name
            sub(/ .*/, "", prefix)
            if (index(" " modes " ", " " prefix " ") == 0) prefix = mode[1]
            if (word ~ /^ok/) ok[prefix]++
            else if (word ~ /^ignored/) ignored[prefix]++
            else failure(prefix, "failed: " name)
            name = ""
            tests++
        }
        function failure(of, note) { bad[of]++; failures++; notes[of] = notes[of] note "; " }
        /^test .* \.\.\. / || /^test .* \.\.\.$/ {
            at = index($0, " ...")
            name = substr($0, 6, at - 6)
            sub(/ +$/, "", name)
            rest = substr($0, at + 5)
            if (rest ~ /^(ok|FAILED|ignored)/) outcome(rest)
            next
        }
        name != "" && /^rates: / { prefix = name; sub(/ .*/, "", prefix); received[prefix] = $2; sent[prefix] = $6 }
        name != "" && /^queues: / { prefix = name; sub(/ .*/, "", prefix); notes[prefix] = notes[prefix] $2 " of " $4 " flows on queue 1; " }
        name != "" && /^(ok|FAILED|ignored)/ { outcome($0) }
        /^test result: / { ended = 1 }
        END {
            if (name != "") failure(mode[1], "no end: " name)
            else if (!tests) failure(mode[1], "ran no test")
            else if (!ended) failure(mode[1], "the tests did not end")
            else if (status != 0 && !failures) failure(mode[1], "ended with status " status)
            for (i = 1; i <= count; i++) {
                m = mode[i]
                sub(/; $/, "", notes[m])
                print card, version, tolower(m), ok[m] + 0, bad[m] + 0, ignored[m] + 0,
                    m in received ? received[m] : "-", m in sent ? sent[m] : "-", notes[m]
            }
        }'
}

# A second of the clock that counts is 10^9 instructions.
guests_table() {
    awk -F '\t' -v count="$count" '
        BEGIN { rates = count ? "Instructions to receive | to send" : "Received/s | Sent/s"
                print "| Card | Kernel | Mode | Passed | Failed | Skipped | " rates " | Notes |"
                print "|---|---|---|---:|---:|---:|---:|---:|---|" }
        count { for (i = 7; i <= 8; i++) if ($i > 0) $i = sprintf("%.0f", 1e9 / $i) }
        { printf "|"; for (i = 1; i <= 9; i++) printf " %s |", $i; print "" }' "$1"
}

guests_json() {
    awk -F '\t' '
        function number(text) { return text == "-" ? "null" : text }
        BEGIN { print "[" }
        { gsub(/["\\]/, "\\\\&", $9)
          printf "%s  {\"card\": \"%s\", \"kernel\": \"%s\", \"mode\": \"%s\", \"passed\": %d, \"failed\": %d, \"skipped\": %d, \"received_pps\": %s, \"sent_pps\": %s, \"notes\": \"%s\"}", (NR > 1 ? ",\n" : ""), $1, $2, $3, $4, $5, $6, number($7), number($8), $9 }
        END { print "\n]" }' "$1"
}

# The rows of `./run deep cards`: zero-copy with the tests of guests_short, and the kinds of devices on the newest
# kernel. The others are for ./run guests.
test_guests() {
    local card status
    for card in virtio-net igb; do
        if guests_prepare "$card" newest; then
            status=0
            guests_tests "$card" newest zc ZC "" "${guests_short[@]}" || status=$?
            count_step "guests-$card" "$status"
        else
            no_guest "guests-$card"
        fi
    done
    status=0
    guests_devices_of newest || status=$?
    # 125: the tests did not run.
    if ((status == 125)); then no_guest guests-devices; else count_step guests-devices "$status"; fi
}
