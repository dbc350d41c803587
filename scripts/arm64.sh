# shellcheck shell=bash
# Sourced by ./run: `./run deep arm64`, tests of xsk, hostnet and the broker in emulated guests of arm64, with pages of 4
# and of 16 KiB, on veth pairs and on igb cards.

arm64_seconds=2400 # how long the tests of a program may take

# The tests of xsk on veth pairs without --long, besides guests_short: those that know pages.
arm64_short=("${guests_short[@]}" "error:" "huge pages" "NUMA" "handover")

deep_arm64() {
    local kernel status parts=("${arm64_short[@]}")
    [[ -z ${WEIR_TEST_LONG-} ]] || parts=()
    install_needs "${guest_needs[@]}"
    for kernel in arm64 arm64-16k; do
        if ! arm64_prepare "$kernel"; then
            no_guest "$kernel"
            continue
        fi
        arm64_programs "$kernel" || fail "$kernel: the programs could not be copied"
        status=0
        guests_tests veth "$kernel" drv "DRV SKB" "" "${parts[@]}" || status=$?
        count_step "$kernel-veth" "$status"
        status=0
        guests_tests igb "$kernel" zc ZC "" "${guests_short[@]}" || status=$?
        count_step "$kernel-igb" "$status"
    done
}

# Whatever the guests of a kernel need; sets guest_missing when it fails.
arm64_prepare() {
    guest_prepare "$1" && guests_qemu && guests_target aarch64 && arm64_build && guests_build
}

# Builds the tests of all three, linked statically: those of xsk are guests_foreign_program, too.
arm64_build() {
    local cargo_words=(--package hostnet --package weir-broker --package xsk --features xsk/tokio
        --target aarch64-unknown-linux-musl)
    [[ -z ${arm64_units-} ]] || return 0
    guests_cargo build "the tests for arm64" cargo test --locked "${cargo_words[@]}" --no-run || return
    arm64_units=$(guests_cargo unit_programs) || return
    arm64_hostnet=$(guests_cargo cargo_program hostnet test --quiet "${cargo_words[@]}") || return
    arm64_broker=$(guests_cargo cargo_program broker test --quiet "${cargo_words[@]}") || return
    guests_foreign_program=$(guests_cargo cargo_program xsk test --quiet "${cargo_words[@]}")
}

# arm64_programs KERNEL: runs the unit tests of all three and the other tests of hostnet in one guest, with --long also
# those of the broker, each program as a script.
# shellcheck disable=SC2034 # guest_steps and guest_run read the variables
arm64_programs() {
    local guest_payload=$log_dir/$1 guest_files=$log_dir/$1-files guest_seconds=$arm64_seconds
    local guest_scripts=("${guests_cpus[@]}") guest_qemu=("${guests_emulator[@]}") crate programs scripts=()
    rm -rf "$guest_payload" "$guest_files" && mkdir -p "$guest_payload/programs" "$guest_files$PWD/crates/broker" || return
    # The broker's tests read the policies of the guide.
    mkdir -p "$guest_files$PWD/docs/guide/src" && cp -r docs/guide/src/broker "$guest_files$PWD/docs/guide/src/" || return
    cp "$target_dir/aarch64-unknown-linux-musl/debug/weir-broker" "$guest_payload/" || return
    for crate in hostnet xsk broker; do
        mapfile -t programs < <(sed -n "s/^$crate //p" <<<"$arm64_units")
        arm64_script "$1-$crate-units" "${programs[@]}" || return
    done
    arm64_script "$1-hostnet" "$arm64_hostnet" || return
    [[ -z ${WEIR_TEST_LONG-} ]] || arm64_script "$1-broker" "$arm64_broker" || return
    guest_steps "${scripts[@]}"
}

# arm64_script NAME PROGRAM…: adds a script to the payload, which runs the programs, and fails if one of them does.
arm64_script() {
    local name=$1 program
    shift
    cp "$@" "$guest_payload/programs/" || return
    {
        # Fewer sequences than usual: they are many times slower there.
        printf 'export PROPTEST_CASES=16 WEIR_TEST_SCALE=%q WEIR_BROKER_TEST_PROGRAM=/payload/weir-broker\n' \
            "${WEIR_TEST_SCALE:-1}"
        echo 'mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null'
        echo 'failed=0'
        for program; do printf './programs/%q </dev/null || failed=1\n' "$(basename "$program")"; done
        # shellcheck disable=SC2016 # the guest expands it
        echo 'exit "$failed"'
    } >"$guest_payload/$name"
    scripts+=("$name")
}
