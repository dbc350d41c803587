# shellcheck shell=bash
# Sourced by ./run: `./run deep arm64`, tests of xsk, hostnet and the broker, and the programs, in emulated guests of arm64,
# with pages of 4 and of 16 KiB, on veth pairs and on igb cards. What has no C is built for musl, and linked statically;
# weir has libbpf, and is built for Debian's libraries.

arm64_seconds=2400 # how long the tests of a program may take

# The tests of xsk on veth pairs without --long, besides guests_short: those that know pages.
arm64_short=("${guests_short[@]}" "error:" "huge pages" "NUMA" "handover")
# Those of the broker: supervised calls, which have numbers of their own on each architecture. The storms take too long.
arm64_broker_short=("session::" "run::")
# Scripts of the guest.
arm64_guest_scripts=(program machine.sh doctor_host.sh)

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
        arm64_weir "$kernel" || fail "$kernel: weir could not be copied"
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
    guest_prepare "$1" && guests_qemu && guests_target aarch64 && arm64_libraries && arm64_build && guests_build
}

# Sets arm64_root to the headers and libraries that weir is built with, those of the oldest Debian that its package is
# for, and arm64_compiler to clang for them. The linker is the one that rustc brings.
arm64_libraries() {
    local lld
    arm64_root=$target_dir/debian/build-arm64 arm64_compiler=$target_dir/debian/build-arm64-clang
    targets_add aarch64-unknown-linux-gnu ||
        { guest_missing="rustup could not add the target aarch64-unknown-linux-gnu" && return 1; }
    guest_missing=$(debian_root "${package_suites[0]}/arm64" "$arm64_root" \
        libc6-dev libelf-dev zlib1g-dev libgcc-12-dev) || return
    lld=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld
    printf '#!/bin/sh\nexec clang --target=aarch64-linux-gnu --sysroot=%q -fuse-ld=lld -B%q -Wno-unused-command-line-argument "$@"\n' \
        "$arm64_root" "$lld" >"$arm64_compiler" && chmod +x "$arm64_compiler"
}

# arm64_cargo COMMAND…: a build with these libraries.
arm64_cargo() {
    CC_aarch64_unknown_linux_gnu=$arm64_compiler AR_aarch64_unknown_linux_gnu=ar \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$arm64_compiler CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=symbols \
        PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR=$arm64_root \
        PKG_CONFIG_LIBDIR=$arm64_root/usr/lib/aarch64-linux-gnu/pkgconfig "$@"
}

# Builds the tests, and the programs: those of xsk are guests_foreign_program, too.
arm64_build() {
    local cargo_words=(--package hostnet --package weir-broker --package xsk --features xsk/tokio
        --target aarch64-unknown-linux-musl)
    [[ -z ${arm64_units-} ]] || return 0
    guests_cargo build "the tests for arm64" cargo test --locked "${cargo_words[@]}" --no-run || return
    arm64_units=$(guests_cargo unit_programs) || return
    arm64_hostnet=$(guests_cargo cargo_program hostnet test --quiet "${cargo_words[@]}") || return
    arm64_broker=$(guests_cargo cargo_program broker test --quiet "${cargo_words[@]}") || return
    guests_foreign_program=$(guests_cargo cargo_program xsk test --quiet "${cargo_words[@]}") || return

    arm64_cargo build "weir for arm64" cargo build --locked --package weir --package weir-broker --package xsk --package xsk-c \
        --package xsk-libxdp --target aarch64-unknown-linux-gnu --lib --bins --example l2fwd
}

# arm64_programs KERNEL: runs the unit tests of all three and the other tests of hostnet in one guest, and those of the broker
# in arm64_broker_short, with --long all, each program as a script.
# shellcheck disable=SC2034 # guest_steps and guest_run read the variables
arm64_programs() {
    local guest_payload=$log_dir/$1 guest_files=$log_dir/$1-files guest_seconds=$arm64_seconds
    local guest_scripts=("${guests_cpus[@]}") guest_qemu=("${guests_emulator[@]}") crate programs scripts=() parts=()
    rm -rf "$guest_payload" "$guest_files" && mkdir -p "$guest_payload/programs" "$guest_files$PWD/crates/broker" || return
    # The broker's tests read the policies of the guide.
    mkdir -p "$guest_files$PWD/docs/guide/src" && cp -r docs/guide/src/broker "$guest_files$PWD/docs/guide/src/" || return
    cp "$target_dir/aarch64-unknown-linux-musl/debug/weir-broker" "$guest_payload/" || return
    for crate in hostnet xsk broker; do
        mapfile -t programs < <(sed -n "s/^$crate //p" <<<"$arm64_units")
        arm64_script "$1-$crate-units" "${programs[@]}" || return
    done
    arm64_script "$1-hostnet" "$arm64_hostnet" || return
    [[ -n ${WEIR_TEST_LONG-} ]] || parts=(-- "${arm64_broker_short[@]}")
    arm64_script "$1-broker" "$arm64_broker" "${parts[@]}" || return
    guest_steps "${scripts[@]}"
}

# arm64_weir KERNEL: runs the scripts, with the programs that they start, in one guest.
# shellcheck disable=SC2034 # as above
arm64_weir() {
    local guest_payload=$log_dir/$1-weir guest_seconds=$arm64_seconds script scripts=()
    local guest_scripts=("${guests_cpus[@]}") guest_qemu=("${guests_emulator[@]}")
    rm -rf "$guest_payload" && mkdir -p "$guest_payload" &&
        cp "$target_dir/aarch64-unknown-linux-gnu/debug"/{weir,weir-broker,examples/l2fwd} "$guest_payload" || return
    for script in "${arm64_guest_scripts[@]}"; do
        cp "$guest_sources/$script" "$guest_payload/$1-$script" || return
        scripts+=("$1-$script")
    done
    guest_steps "${scripts[@]}"
}

# arm64_script NAME PROGRAM… [-- PART…]: adds a script to the payload, which runs the tests of the programs whose names have
# one of the parts, and fails if one of the runs does.
arm64_script() {
    local name=$1 program part programs=() parts=("")
    shift
    while (($# > 0)) && [[ $1 != -- ]]; do programs+=("$1") && shift; done
    (($# < 2)) || parts=("${@:2}")
    cp "${programs[@]}" "$guest_payload/programs/" || return
    {
        # Fewer sequences than usual: they are many times slower there.
        printf 'export PROPTEST_CASES=16 WEIR_TEST_SCALE=%q WEIR_BROKER_TEST_PROGRAM=/payload/weir-broker\n' \
            "${WEIR_TEST_SCALE:-1}"
        echo 'mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null'
        echo 'failed=0'
        for program in "${programs[@]}"; do
            for part in "${parts[@]}"; do
                printf './programs/%q %q </dev/null || failed=1\n' "$(basename "$program")" "$part"
            done
        done
        # shellcheck disable=SC2016 # the guest expands it
        echo 'exit "$failed"'
    } >"$guest_payload/$name"
    scripts+=("$name")
}
