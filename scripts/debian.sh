# shellcheck shell=bash
# Sourced by ./run: packages of any Debian suite, downloaded and verified by an apt with its own
# configuration, lists and cache in target/debian. Nothing is installed, and nobody needs root.
# A suite is `trixie`, or with another architecture than amd64 `trixie/arm64`.

debian_keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# The mirror that this machine's own packages come from; nothing if they are not Debian's.
debian_mirror() {
    # shellcheck disable=SC2016 # apt fills these in
    apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        sed -n 's/^Debian Debian //p' | head -n 1
}

# debian_apt SUITE COMMAND…: a command of apt that knows this suite's packages, none of them installed.
debian_apt() {
    local suite=$1
    shift
    APT_CONFIG=$target_dir/debian/$suite/apt.conf "$@"
}

# debian_locked COMMAND…: one run at a time; apt fails where another uses its directories.
debian_locked() {
    mkdir -p "$target_dir/debian" && (flock 8 && "$@") 8>"$target_dir/debian/lock"
}

# Fetches the lists of a suite; prints the reason when it fails. The caller holds the lock.
debian_lists() {
    local directory=$target_dir/debian/$1 release=${1%/*} architecture=amd64 mirror suite
    [[ $1 != */* ]] || architecture=${1#*/}
    have apt-get || { echo "there is no apt-get" && return 1; }
    mirror=$(debian_mirror)
    [[ -n $mirror ]] || { echo "apt is configured for no mirror of Debian" && return 1; }
    [[ -e $debian_keyring ]] || { echo "$debian_keyring is missing" && return 1; }
    mkdir -p "$directory"/{lists/partial,cache/archives/partial} && : >"$directory/status" || return
    # A suite of backports has some packages only, which go with those of its release.
    for suite in "$release" "${release%-backports}"; do
        echo "deb [arch=$architecture signed-by=$debian_keyring] $mirror $suite main"
    done | sort -u >"$directory/sources.list"
    cat >"$directory/apt.conf" <<CONFIGURATION
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
APT::Default-Release "$release";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Dir::State::lists "$directory/lists";
Dir::State::status "$directory/status";
Dir::Cache "$directory/cache";
Dir::Etc::sourcelist "$directory/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
CONFIGURATION
    say "apt-get update ($1)"
    # A list that could not be fetched is only a warning to apt.
    debian_apt "$1" timeout 300 apt-get -qq -o APT::Update::Error-Mode=any update >&2 && return
    echo "the package lists of Debian's $1 could not be fetched (is the network reachable?)"
    return 1
}

# debian_root SUITE DIRECTORY PACKAGE…: makes a directory of the packages and all that they depend
# on, unpacked only: their scripts do not run. One that is there is kept, since it may be in use. When it
# fails, it prints what is missing, or nothing: then the reason is on standard error.
debian_root() { debian_locked debian_make_root "$@"; }

debian_make_root() {
    local suite=$1 root=$2 archives package
    shift 2
    [[ ! -e $root ]] || return 0
    debian_lists "$suite" || return
    archives=$target_dir/debian/$suite/cache/archives
    rm -rf "$archives" "$root.new" && mkdir -p "$archives/partial" "$root.new" || return
    say "apt-get download $* and dependencies ($suite)"
    if ! debian_apt "$suite" timeout 900 apt-get -qq -y --download-only install "$@" >&2; then
        echo "$* of Debian's $suite could not be downloaded"
        return 1
    fi
    for package in "$archives"/*.deb; do
        # /lib is a link to /usr/lib where a package still has files in /lib.
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root.new" --keep-directory-symlink || return
    done
    mv "$root.new" "$root" && rm -rf "$archives"
}
