#!/usr/bin/env bash
# Installs weir's package in a Debian system of its own, uses it, and removes it; `./run package --test`
# calls it as root. Each check is a line "ok NAME", or "not ok NAME" after its messages.
#
# usage: packaging/test.sh PACKAGE VERSION SUITE MIRROR DIRECTORY
set -euo pipefail

package=$(realpath "$1") version=$2 suite=$3 mirror=$4 root=$(realpath -m "$5")
cd "$(dirname "${BASH_SOURCE[0]}")"
depends=$(dpkg-deb --field "$package" Depends | sed 's/([^)]*)//g; s/ //g')

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root

inside() { chroot "$root" "$@"; }

failed=0

# check NAME COMMAND…: the command runs without `set -e`, so each step of it says whether it went well.
check() {
    local name=$1
    shift
    if "$@" >"$root.log" 2>&1; then
        echo "ok $name"
    else
        sed 's/^/# /' "$root.log"
        echo "not ok $name"
        failed=1
    fi
}

complain() {
    echo "$*"
    return 1
}

# The commands of weir as its help lists them, one a line, those below a command after it.
commands() {
    local name
    inside weir "$@" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p' |
        while read -r name; do
            [[ $name != help ]] || continue
            echo "$@" "$name"
            commands "$@" "$name"
        done
}

# The units, each with its sample configuration and the command that it starts.
daemons() { grep -vE '^ *(#|$)' daemons || true; }

# All files but those that others keep for themselves: dpkg's log and the copy of its status, pages that
# were rendered, the former lists of groups (the group weir stays), and files of systemd-analyze in /run.
files() {
    find "$root" -xdev -printf '%y %m %U:%G /%P\n' |
        grep -vE ' /(var/(log/dpkg\.log|lib/dpkg/(status|diversions|statoverride)-old|cache/man/.*)|etc/g(roup|shadow)-|run/systemd(/.*)?)$' | sort
}

installs() {
    inside dpkg --install /weir.deb && inside dpkg --status weir | grep -x "Status: install ok installed"
}

has_version() {
    local found
    found=$(inside weir --version) || return
    [[ $found == "$version" ]] || complain "$found, not $version"
}

# A root with the files of libc6, and the program.
starts_with_libc_alone() {
    local bare=$root.bare file status=0
    mkdir -p "$bare"/usr/{lib,lib64}
    ln -s usr/lib usr/lib64 "$bare"
    while read -r file; do
        [[ $file != *.so* ]] || (cd "$root" && cp --archive --parents ".$file" "$bare")
    done < <(inside dpkg --listfiles libc6)
    cp "$root/usr/bin/weir" "$bare"
    chroot "$bare" /weir --version || status=$?
    rm -rf "$bare"
    return "$status"
}

benches() {
    inside weir bench rxdrop --lab --rounds 1 --seconds 1 || return
    [[ $(ls "$root/sys/class/net") == lo ]] || complain "left devices:" "$root"/sys/class/net/*
}

doctor_reports() {
    local status=0
    # 1 is for findings, which the host may well have.
    inside weir doctor --json >"$root.json" || status=$?
    ((status <= 1)) && [[ -s $root.json ]]
}

has_manual() {
    local page text
    while read -r page; do
        text=$(inside env MANWIDTH=80 man "$page") || return
        [[ $text == "$page(1)"*SYNOPSIS* ]] || complain "man $page does not render" || return
    done <<<"weir"$'\n'"$(sed 's/^/weir-/; s/ /-/g' <<<"$known_commands")"
}

# Bash is asked as its user asks it, after the words of the command and a space; the scripts of
# the others must at least name it.
has_completions() {
    local words offered
    inside bash -c '. /usr/share/bash-completion/bash_completion
        _comp_load weir 2>/dev/null || _completion_loader weir
        complete -p weir' || return
    while read -ra words; do
        # shellcheck disable=SC2016 # the inner bash expands it
        offered=$(inside bash -c '. /usr/share/bash-completion/completions/weir
            COMP_WORDS=(weir "${@:1:$#-1}" "") COMP_CWORD=$#
            _weir weir "" "${COMP_WORDS[$# - 1]}"
            echo " ${COMPREPLY[*]} "' _ "${words[@]}")
        [[ $offered == *" ${words[-1]} "* ]] || complain "bash is not offered: weir ${words[*]}" || return
        grep -qw -- "${words[-1]}" "$root/usr/share/zsh/vendor-completions/_weir" ||
            complain "zsh is not offered: weir ${words[*]}" || return
        grep -qw -- "${words[-1]}" "$root/usr/share/fish/vendor_completions.d/weir.fish" ||
            complain "fish is not offered: weir ${words[*]}" || return
    done <<<"$known_commands"
}

has_documents() {
    local file
    for file in copyright changelog.gz changelog.Debian.gz README.md third-party.gz examples/weir.{rules.yml,json}; do
        [[ -s $root/usr/share/doc/weir/$file ]] || complain "no $file" || return
    done
}

has_daemons() {
    local command unit configuration socket
    while read -r unit configuration command; do
        if [[ $command == "weir "* ]]; then
            grep -qx "${command#weir }" <<<"$known_commands" || complain "weir has no command ${command#weir }" || return
        else
            inside "$command" --version || return
            [[ $(inside env MANWIDTH=80 man 8 "$command") == "${command^^}(8)"*SYNOPSIS* ]] ||
                complain "man 8 $command does not render" || return
        fi
        grep -qE "^ExecStart=/usr/bin/$command( |\$)" "$root/usr/lib/systemd/system/$unit" ||
            complain "$unit is missing or does not start $command" || return
        for socket in "${unit%.service}"*.socket; do
            [[ ! -e $socket || -s $root/usr/lib/systemd/system/$socket ]] || complain "no $socket" || return
        done
        [[ -s $root/etc/weir/$configuration ]] || complain "no /etc/weir/$configuration" || return
        inside dpkg --status weir | grep "^ /etc/weir/$configuration " ||
            complain "/etc/weir/$configuration is no conffile" || return
    done < <(daemons)
    inside getent group weir
}

# The units without a fault, and not much exposed: 10.0 is a unit without any hardening.
units_verify() {
    local unit
    while read -r unit _; do
        inside systemd-analyze verify --man=no "/usr/lib/systemd/system/$unit" 2>&1 | tee "$root.json"
        [[ ! -s $root.json ]] || complain "$unit: see above" || return
        inside systemd-analyze security --offline=yes --threshold=60 --no-pager \
            "/usr/lib/systemd/system/$unit" || return
    done < <(daemons)
}

# What only use makes, as the doctor's journal, goes with the purge.
leaves_nothing() {
    mkdir -p "$root/var/lib/weir/doctor" && touch "$root/var/lib/weir/doctor/journal.json" &&
        inside dpkg --remove weir && [[ ! -e $root/usr/bin/weir && -e $root/var/lib/weir/doctor/journal.json ]] &&
        inside dpkg --purge weir && diff <(echo "$before") <(files)
}

run_checks() {
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    before=$(files)
    check installs installs
    check version has_version
    if [[ $depends == libc6 ]]; then
        check starts-with-libc-alone starts_with_libc_alone
    else
        echo "ok starts-with-libc-alone # SKIP built where libelf has no archive that links: depends on $depends"
    fi
    known_commands=$(commands) || true
    check commands [ -n "$known_commands" ]
    check manual has_manual
    check completions has_completions
    check documents has_documents
    check daemons has_daemons
    check units units_verify
    check doctor doctor_reports
    check bench benches
    check leaves-nothing leaves_nothing
    exit "$failed"
}

# In namespaces of its own, which take mounts, processes and devices with them.
if [[ ${WEIR_PACKAGE_TEST-} == inside ]]; then run_checks; fi

trap 'rm -rf "$root" "$root".{log,json,bare}' EXIT
rm -rf "$root" && mkdir -p "$root"
mmdebstrap --quiet --mode=root --variant=essential --include="man-db,bash-completion,systemd,$depends" \
    "$suite" "$root" "$mirror"
cp "$package" "$root/weir.deb"
WEIR_PACKAGE_TEST=inside unshare --mount --pid --net --fork --kill-child ./test.sh \
    "$package" "$version" "$suite" "$mirror" "$root"
