# shellcheck shell=bash
# Sourced by ./run: what a run leaves behind, and nothing that other programs on this machine make meanwhile: a
# container engine's veths, another clone's tests, somebody's BPF programs.
#
# Each object that a run makes has one of three marks. Its processes have WEIR_TEST_RUN in their environment, or see
# the run's mounts. Its files in /run (so named network namespaces), its mounts, its pins in
# bpffs are in mounts that no one else has, and TMPDIR is a directory of its own. Its devices in the network
# namespace of the host have names that only weir gives. That is all there can be: an unnamed namespace, shared memory, a BPF
# program or link lives by a descriptor of a process, by a file, or by a device.

run_mark="$$-${EPOCHREALTIME/[^0-9]/}"
own_mounts_pid= # the process that keeps them
own_temporary=
own_leaks_missing="" # why nothing can be looked for

# Steps run in mounts of their own from here on.
begin_own_mounts() {
    inside=(env "WEIR_TEST_RUN=$run_mark")
    own_leaks_missing="the mounts of a run's own need root"
    am_root || return 0
    remove_old_temporary
    own_temporary=$(mktemp --directory "/tmp/weir-test.$$.XXXXXX")
    chmod 1777 "$own_temporary"
    local ready=$own_temporary/ready
    mkfifo "$ready"
    # /run/systemd stays away on purpose: a test that wants a manager starts one.
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare --mount --propagation slave setpriv --pdeathsig KILL sh -c '
        mount -t tmpfs -o mode=755 tmpfs /run || exit
        ! mountpoint -q /sys/fs/bpf || mount -t bpf bpf /sys/fs/bpf || exit
        echo ready >"$1"
        exec sleep infinity' _ "$ready" </dev/null >/dev/null 2>"$log_dir/mounts.log" 7>&- &
    own_mounts_pid=$!
    # Opened for both, the fifo does not wait for a writer that has failed.
    if ! read -r -t 20 <>"$ready"; then
        own_leaks_missing="a run cannot have mounts of its own here: $(tail -n 1 "$log_dir/mounts.log")"
        end_own_mounts
        return
    fi
    rm "$ready"
    own_leaks_missing=""
    inside+=("TMPDIR=$own_temporary" nsenter "--mount=/proc/$own_mounts_pid/ns/mnt")
    inventory >"$log_dir/before"
}

# Of runs that were killed.
remove_old_temporary() {
    local directory
    while read -r directory; do
        [[ $directory =~ weir-test\.([0-9]+)\. && -d /proc/${BASH_REMATCH[1]} ]] || rm -rf "$directory"
    done < <(find /tmp -maxdepth 1 -user root -type d -name 'weir-test.*')
}

end_own_mounts() {
    local processes
    mapfile -t processes < <(marked_processes | grep -oE '[0-9]+')
    ((${#processes[@]} == 0)) || kill -KILL "${processes[@]}" 2>/dev/null || true
    [[ -z $own_mounts_pid ]] || kill "$own_mounts_pid" 2>/dev/null || true
    own_mounts_pid=
    [[ -z $own_temporary ]] || rm -rf "$own_temporary"
    own_temporary=
}

# Everything of the run that there is now, one line each. Processes end while they are looked at: that is no failure.
inventory() {
    {
        own_processes
        own_mounts
        inside_own_mounts sh -c 'find /run/netns /run/weir* /sys/fs/bpf -mindepth 1 || true' | sed 's/^/file /'
        find "$own_temporary" -mindepth 1 -maxdepth 1 -printf 'file %p\n'
        ip -oneline link | sed -nE 's/^[0-9]+: ((weir|xsk)[^:@]*).*/device \1/p'
    } 2>/dev/null | sort
}

# The mounts that the host does not have: those of the host, later ones too, are in the run's mount namespace as well.
own_mounts() {
    awk '{ place = $3 " " $4 " " $5 } FNR == NR { host[place]; next } !(place in host) { print "mount", $5 }' \
        /proc/self/mountinfo "/proc/$own_mounts_pid/mountinfo"
}

inside_own_mounts() { nsenter "--mount=/proc/$own_mounts_pid/ns/mnt" "$@"; }

# /proc/PID/environ of each process with the run's mark.
marked_processes() {
    grep --files-with-matches --null-data --no-messages "^WEIR_TEST_RUN=$run_mark\$" /proc/[0-9]*/environ || true
}

# "process PID PROGRAM" of each process of the run that is not a part of ./run itself.
own_processes() {
    local directory process mounts
    mounts=$(readlink "/proc/$own_mounts_pid/ns/mnt")
    for directory in $(marked_processes) \
        $(find /proc/[0-9]*/ns/mnt -maxdepth 0 -lname "${mounts//[\[\]]/?}" 2>/dev/null); do
        process=${directory#/proc/}
        process=${process%%/*}
        [[ $process != "$own_mounts_pid" ]] || continue
        echo "process $process $(readlink "/proc/$process/exe" || true)"
    done | sort --unique | grep -v ' $' || true
}

# The kernel takes an AF_XDP socket apart after its close, so what goes within seconds was not left.
test_leaks() {
    local left try
    if [[ -n $own_leaks_missing ]]; then
        skip leaks "$own_leaks_missing"
        return
    fi
    for try in 1 2 3 4 5 6; do
        left=$(inventory | comm -13 "$log_dir/before" -)
        [[ -n $left ]] || break
        ((try == 6)) || sleep 1
    done
    say "test: leaks"
    if [[ -n $left ]]; then
        fail "leaks: left behind: ${left//$'\n'/; }"
        echo "   FAILED" >&2
    else
        passed=$((passed + 1))
        echo "   ok" >&2
    fi
}

# The look itself: something of each kind is left, and must be seen.
test_that_leaks_are_seen() {
    local seen kind missing try
    [[ -z $own_leaks_missing ]] || return 0
    # shellcheck disable=SC2016 # the inner shell expands it
    run_step leaks-are-seen 60 sh -c 'mkdir -p /run/netns "$TMPDIR/weir-left" && touch /run/netns/weir-left &&
        mount -t tmpfs tmpfs "$TMPDIR/weir-left" && { setsid sleep 60 >/dev/null 2>&1 & }' || true
    for try in 1 2 3 4 5 6; do
        seen=$(inventory | comm -13 "$log_dir/before" -)
        missing=""
        for kind in "process [0-9]+ .*/sleep" "mount $own_temporary/weir-left" "file /run/netns/weir-left" \
            "file $own_temporary/weir-left"; do
            grep -qxE "$kind" <<<"$seen" || missing=$kind
        done
        [[ -n $missing ]] || break
        ((try == 6)) || sleep 1
    done
    if [[ -n $missing ]]; then
        fail "leaks-are-seen: not seen: $missing"
        outcome FAILED
        return
    fi
    sed -nE 's/^process ([0-9]+) .*\/sleep$/\1/p' <<<"$seen" | xargs -r kill
    inside_own_mounts sh -c "umount '$own_temporary/weir-left'; rm -r '$own_temporary/weir-left' /run/netns"
    passed=$((passed + 1))
    outcome ok
}
