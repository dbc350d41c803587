# shellcheck shell=bash
# Sourced by ./run: the toolchain, the packages and root, each asked for only where it is needed.

# Progress goes to standard error; standard output is for results, e.g. `./run bench --format json >FILE`.
say() { printf '== %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$1" >&2
    shift
    (($# == 0)) || printf '       %s\n' "$@" >&2
    exit 1
}

usage_error() {
    printf 'error: %s; see ./run help\n' "$1" >&2
    exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

# Debian keeps ip, ethtool and bpftool where an ordinary user's PATH does not look.
PATH=$PATH:/usr/sbin:/sbin

# Needs, as "check:Debian package:purpose". A check is a command's name, or a
# pkg-config module written as lib=NAME; a package with a leading ? is one that weir works without.
build_needs=(
    "cc:gcc:the linker"
    "make:make:libbpf's build"
    "pkg-config:pkg-config:finding the libraries"
    "clang:clang:the BPF programs"
    "lib=libelf:libelf-dev:libbpf"
    "lib=zlib:zlib1g-dev:libbpf"
    "lib=libxdp:?libxdp-dev:the libxdp engine of weir bench"
    "lib=libbpf:?libbpf-dev:the libxdp engine of weir bench"
)
run_needs=(
    "ip:iproute2:looking at the lab"
    "ethtool:ethtool:looking at the lab"
)
lint_needs=(
    "clang-format:clang-format:the format of the C files"
    "shellcheck:shellcheck:the shell scripts"
)
instructions_needs=("valgrind:?valgrind:counting the instructions of the moves")
# The guest's kernel is for this architecture.
guest_needs=()
[[ $(uname -m) != x86_64 ]] ||
    guest_needs+=("qemu-system-x86_64:?qemu-system-x86:the tests in a kernel of their own")

is_present() {
    case $1 in
    lib=*) have pkg-config && pkg-config --exists "${1#lib=}" ;;
    # Ubuntu's bpftool is a script that fails when it has no build for the running kernel.
    bpftool) have bpftool && bpftool version >/dev/null 2>&1 ;;
    *) have "$1" ;;
    esac
}

am_root() { ((EUID == 0)); }

# sudo must not wait for a password that nobody is there to type.
sudo_works() {
    have sudo || return 1
    [[ -t 0 ]] || sudo -n true 2>/dev/null
}

as_root() {
    if am_root; then
        "$@"
    elif [[ -t 0 ]]; then
        sudo -- "$@"
    else
        sudo -n -- "$@"
    fi
}

need_root_later() {
    am_root || sudo_works || die "this needs root: $1" \
        "run it as root, or install sudo and allow it for $(id -un)" \
        "(without a terminal sudo must work without a password)"
}

apt_has() { [[ -n $(apt-cache --quiet=0 madison "$1" 2>/dev/null) ]]; }

apt_lists_empty() { ! compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null; }

apt_get() {
    # Without input, but for sudo, which may ask for a password.
    # shellcheck disable=SC2016 # the inner shell expands it
    as_root sh -c 'exec "$@" </dev/null' _ env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -y -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" >&2
}

# Installs those of the given needs that are missing; says nothing when none is.
install_needs() {
    local need check package purpose without missing=() optional=() lines=()
    for need in "$@"; do
        IFS=: read -r check package purpose <<<"$need"
        is_present "$check" && continue
        case $package in
        \?*) optional+=("${package#\?}") without=", optional" ;;
        *) missing+=("$package") without="" ;;
        esac
        lines+=("${check#lib=} (Debian's package ${package#\?}; for $purpose$without)")
    done
    ((${#lines[@]} > 0)) || return 0
    if ! have apt-get; then
        report_missing "${#missing[@]}" "${lines[@]}"
        return
    fi
    apt_install "${missing[*]}" "${optional[*]}"
}

# There is no apt-get: stop if weir cannot do without.
report_missing() {
    local required=$1
    shift
    if ((required > 0)); then
        die "these are missing, and there is no apt-get to install them with:" "$@" \
            "install them with the package manager of this system, then run this again"
    fi
    say "not found, weir does without:"
    printf '   %s\n' "$@" >&2
}

apt_install() {
    local missing optional package
    read -ra missing <<<"$1"
    read -ra optional <<<"$2"
    if ! am_root && ! sudo_works; then
        ((${#missing[@]} == 0)) || die "packages are missing, and installing them needs root: ${missing[*]}" \
            "as root: apt-get install ${missing[*]} ${optional[*]}"
        say "not installed (that needs root), weir does without: ${optional[*]}"
        return
    fi
    if ((${#missing[@]} > 0)) || apt_lists_empty; then
        say "apt-get update"
        apt_get update || say "apt-get update failed; trying with the package lists at hand"
    fi
    if ((${#missing[@]} > 0)); then
        say "apt-get install ${missing[*]}"
        apt_get install --no-install-recommends "${missing[@]}" ||
            die "apt-get could not install: ${missing[*]}" \
                "a first install needs the network; apt's reason is above"
    fi
    mapfile -t optional < <(for package in "${optional[@]}"; do apt_name "$package"; done)
    ((${#optional[@]} > 0)) || return 0
    say "apt-get install ${optional[*]}"
    apt_get install --no-install-recommends "${optional[@]}" && return
    # One of them keeps the others out.
    for package in "${optional[@]}"; do
        apt_get install --no-install-recommends "$package" || say "$package was not installed; weir does without"
    done
}

# The name that this distribution has for a package; nothing if it has none.
apt_name() {
    local package=$1
    # Ubuntu has bpftool in the tools of its kernels.
    if [[ $package == bpftool ]] && ! apt_has bpftool; then package=linux-tools-common; fi
    if apt_has "$package"; then
        echo "$package"
    else
        say "this distribution has no $package; weir does without"
    fi
}

# Under sudo the toolchain is the calling user's, but root writes elsewhere: files of
# root in ~/.cargo or target/ would stop that user's next build.
adopt_sudo_user() {
    local home
    am_root && [[ -n ${SUDO_USER-} && $SUDO_USER != root ]] || return 0
    home=$(getent passwd "$SUDO_USER" | cut -d: -f6)
    PATH=$PATH:$home/.cargo/bin
    [[ ! -d $home/.rustup ]] || export RUSTUP_HOME=${RUSTUP_HOME:-$home/.rustup}
    export CARGO_HOME=${WEIR_ROOT_CARGO_HOME:-/root/.cargo}
    [[ -d target ]] || install -d -o "$SUDO_USER" target
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target/root}
}

# rustup writes into the home of the user whose toolchain it is.
rustup_as_owner() {
    if am_root && [[ -n ${SUDO_USER-} && $SUDO_USER != root ]]; then
        sudo -u "$SUDO_USER" -- env PATH="$PATH" rustup "$@" </dev/null
    else
        rustup "$@" </dev/null
    fi
}

setup_rust() {
    local wanted found
    adopt_sudo_user
    PATH=$PATH:${CARGO_HOME:-${HOME-}/.cargo}/bin
    target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! have cargo || ! have rustc; then
        die "no Rust toolchain: cargo or rustc is not in PATH" \
            "install Rust $wanted or newer with rustup (https://rustup.rs)"
    fi
    found=$(rustc --version | cut -d' ' -f2) || die "rustc does not run; its reason is above"
    [[ $(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1) == "$wanted" ]] ||
        die "Rust $found is too old: weir needs $wanted or newer" "with rustup: rustup update stable"
}

# A component of the toolchain in use, named by rustup and by the cargo command that it brings.
need_component() {
    cargo "$2" --version >/dev/null 2>&1 && return
    have rustup || die "cargo $2 is missing" "install the $1 of your Rust toolchain"
    say "rustup component add $1"
    rustup_as_owner component add "$1" || die "rustup could not add $1; its reason is above"
}

# cargo_tool CRATE [VERSION [OPTION…]]: a program from its crate, of any version if none is named,
# built with options of `cargo install`; fails when it is not there and cannot be built. It is built
# in a fifth of the time without optimization, and works for a second or two at most.
cargo_tool() {
    local crate=$1 version=${2-} started=$SECONDS
    if [[ -z $version ]]; then
        have "$crate" && return
    else
        [[ $("$crate" --version 2>/dev/null) == "$crate $version" ]] && return
    fi
    say "cargo install $crate${version:+ $version} (a minute or two, once)"
    CARGO_PROFILE_DEV_DEBUG=0 cargo install --locked --quiet --debug "$crate" \
        ${version:+--version "=$version"} "${@:3}" </dev/null || return
    say "installed $crate ($((SECONDS - started)) s)"
}

# cargo_program NAME COMMAND…: builds what `cargo test …` or `cargo bench …` would run, and prints the path of the test or
# bench NAME.
cargo_program() {
    local name=$1
    shift
    cargo "$@" --locked --no-run --message-format json-render-diagnostics 7>&- |
        sed -nE 's/^.*"kind":\["(test|bench)"\],[^}]*"name":"'"$name"'",.*"executable":"([^"]*)".*$/\2/p' | grep .
}

# Separate from the build, so that a missing network is named as such.
fetch_crates() {
    local host
    host=$(rustc -vV | sed -n 's/^host: //p')
    cargo fetch --locked --quiet --target "$host" ||
        die "the crates could not be fetched; cargo's reason is above" \
            "a first build needs the network (or a vendored registry)"
}
