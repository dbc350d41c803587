# shellcheck shell=bash
# Sourced by ./run: checks every crate with the oldest compiler and for other machines than this one.

# For all of these every crate is checked, with warnings as errors.
targets_checked=(
    aarch64-unknown-linux-gnu
    aarch64-unknown-linux-musl
    x86_64-unknown-linux-musl
    riscv64gc-unknown-linux-gnu
)

# Counts its parts as steps of a test, and prints a line for each.
deep_targets() {
    local triple before=("$passed" "$failed" "$skipped")
    local -x CARGO_TARGET_DIR=$target_dir/targets CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0
    install_needs "${build_needs[@]}"
    targets_compiler
    targets_oldest
    for triple in "${targets_checked[@]}"; do targets_check "$triple" --workspace --all-targets --all-features; done
    # The libraries that others depend on: here bytes have the other order, and some C types another width.
    targets_check s390x-unknown-linux-gnu --package xsk --package xsk-c --package xsk-libxdp --package hostnet \
        --package pf-filter --all-features
    # The rules' library reads nothing of the machine that it runs on, so it also builds for a browser.
    targets_check wasm32-unknown-unknown --package pf-filter --lib
    targets_musl
    say "targets: $((passed - before[0])) ok, $((failed - before[1])) failed, $((skipped - before[2])) skipped"
}

# The minimum of Cargo.toml. Its warnings do not count: some are mistaken, and corrected in later compilers.
targets_oldest() {
    local oldest
    oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! targets_toolchain "$oldest"; then
        skip "targets: Rust $oldest" "rustup could not add this toolchain"
    else
        targets_step "Rust $oldest" rustup run "$oldest" cargo check --locked --workspace --all-targets --all-features
    fi
}

targets_toolchain() {
    have rustup || return
    rustup run "$1" rustc --version >/dev/null 2>&1 ||
        rustup_as_owner toolchain install --profile minimal "$1" >/dev/null 2>&1
}

# targets_check TRIPLE OPTION…: `cargo check` with these options.
targets_check() {
    local triple=$1 name=${1//-/_}
    shift
    if ! targets_add "$triple"; then
        skip "targets: $triple" "rustup could not add this target"
        return
    fi
    targets_step "$triple" env CARGO_BUILD_RUSTFLAGS="-D warnings" "CC_$name=$CARGO_TARGET_DIR/cc" "AR_$name=ar" \
        cargo check --locked "$@" --target "$triple"
}

targets_add() { have rustup && rustup_as_owner target add "$1" >/dev/null 2>&1; }

# The crates that have no C must also link, here with the library as its users have it: RUSTFLAGS takes the place of the
# workspace's own flags.
targets_musl() {
    local triple=x86_64-unknown-linux-musl
    if ! targets_add "$triple"; then
        skip "targets: $triple, linked" "rustup could not add this target"
        return
    fi
    targets_step "$triple, linked" env RUSTFLAGS="-D warnings" cargo build --locked --package xsk --package hostnet \
        --package pf-filter --package weir-broker --target "$triple"
}

# targets_step NAME COMMAND…: a compiler needs no limit.
targets_step() {
    local name=$1 began=$SECONDS result=ok
    shift
    if build "targets: $name" "$@"; then
        passed=$((passed + 1))
    else
        result=FAILED
        fail "targets: $name"
    fi
    say "targets: $name: $result ($((SECONDS - began)) s)"
}

# `cargo check` links nothing: if a dependency has C (libbpf, ring), a compiler that writes empty objects serves for
# every machine, without that machine's headers. Dependencies first ask it for its family.
targets_compiler() {
    mkdir -p "$CARGO_TARGET_DIR"
    cat >"$CARGO_TARGET_DIR/cc" <<'END'
#!/bin/sh
case $1 in
-E) echo '"gcc"' ;;
'-?') exit 1 ;;
esac
for word; do
    [ "$last" != -o ] || : >"$word"
    last=$word
done
END
    chmod +x "$CARGO_TARGET_DIR/cc"
}
