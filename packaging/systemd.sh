#!/usr/bin/env bash
# Boots Debian's systemd in namespaces of its own, installs weir's package there, and tries the units of the
# broker, the switch and the exporter; `./run systemd` calls it as root. Each check is a line "ok NAME", or
# "not ok NAME" after its messages.
#
# usage: packaging/systemd.sh PACKAGE MIRROR DIRECTORY
set -euo pipefail

package=$(realpath "$1") mirror=$2 root=$(realpath -m "$3")

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root

failed=0 unit=weir-broker.service

check() {
    local name=$1
    shift
    if "$@" >"$root.log" 2>&1; then
        echo "ok $name"
    else
        sed 's/^/# /' "$root.log"
        inside journalctl --no-pager --quiet --lines 20 --unit "$unit" | sed 's/^/# /' || true
        echo "not ok $name"
        failed=1
    fi
}

complain() {
    echo "$*"
    return 1
}

inside() { nsenter --target "$init" --all "$@"; }

ask() { inside timeout 20 weir broker status --format json; }

# field NAME: of the answer to `ask`, a number at its top.
field() { sed -n "s/^  \"$1\": \([0-9]*\),\?$/\1/p" <<<"$answer"; }

# Supervised processes, in the answer to `ask`.
sessions() { grep -c '"session":' <<<"$answer" || true; }

# A process of nobody that makes /dev/null again and again, under the broker's supervision. Each try is
# a line of a file: ok, or failed.
start_supervised() {
    # shellcheck disable=SC2016 # the inner shell expands it
    inside setpriv --reuid 65534 --regid 65534 --groups "$(inside getent group weir | cut -d: -f3)" --no-new-privs \
        weir run -- bash -c 'cd /run/made && for ((try = 0; try < 600; try++)); do
            rm -f null
            if mknod null c 1 3 && echo x >null; then echo ok; else echo failed; fi >>log 2>&1
            sleep 0.1
        done' &>"$root.supervised" &
    sleep 1
}

property() { inside systemctl show --value --property "$1" "${2-weir-broker.service}"; }

# status FIELD [UNIT]: of its process, as its own namespace's /proc has it.
status() {
    local pid
    pid=$(property MainPID "${2-weir-broker.service}") && inside sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status"
}

boots() {
    local state="" second
    for ((second = 0; second < 60; second++)); do
        state=$(inside systemctl is-system-running 2>/dev/null) || true
        # Some of Debian's own units fail in a container.
        [[ $state != running && $state != degraded ]] || return 0
        sleep 1
    done
    complain "systemd is $state"
}

listens() {
    local socket
    inside dpkg --install /weir.deb || return
    printf '[[tenant]]\nname = "nobody"\nuid = 65534\n[tenant.calls]\nmknod = ["null"]\n' |
        inside tee /etc/weir/broker.toml && inside weir broker check || return
    inside install -d -o 65534 -g 65534 /run/made &&
        inside systemctl start weir-broker.socket weir-broker-oci.socket weir-broker-plugin.socket || return
    for socket in broker broker-oci broker-plugin; do
        [[ $(inside stat --format '%F %a %G' "/run/weir/$socket.sock") == "socket 660 weir" ]] ||
            complain "$(inside stat "/run/weir/$socket.sock")" || return
    done
    [[ $(property ActiveState) == inactive ]] || complain "the broker runs before it is asked"
}

activates() {
    answer=$(ask) || return
    echo "$answer"
    [[ $(property ActiveState) == active && $(field pid) == "$(property MainPID)" ]] ||
        complain "$(inside systemctl status --no-pager weir-broker)" || return
    [[ $(property StatusText) == "1 tenants" ]] || complain "status $(property StatusText)"
}

# In the group or not.
admits_the_group() {
    start_supervised
    answer=$(ask) && echo "$answer" && cat "$root.supervised" || return
    [[ $(sessions) == 1 ]] || complain "$(sessions) supervised processes" || return
    ! inside setpriv --reuid 65534 --regid 65534 --clear-groups weir run -- true || complain "anyone is admitted"
}

is_confined() {
    local wrong=""
    [[ $(status NoNewPrivs) == 1 ]] || wrong+=" NoNewPrivs"
    [[ $(status Seccomp) == 2 ]] || wrong+=" Seccomp"
    [[ $(status CapBnd) == "$(status CapPrm)" && $(status CapPrm) != 0000000000000000 ]] || wrong+=" capabilities"
    [[ $(inside ls "/proc/$(property MainPID)/root/etc") == $'group\npasswd\nweir' ]] || wrong+=" view"
    [[ -z $wrong ]] || complain "not in force:$wrong" "$(inside cat "/proc/$(property MainPID)/status")"
}

# kept_after COMMAND…: another process goes on with the supervised one, of which no call failed.
kept_after() {
    local first before after
    answer=$(ask) && first=$(field pid) && before=$(inside grep -c ok /run/made/log) || return
    "$@" || return
    sleep 1
    answer=$(ask) || return
    echo "$answer"
    [[ $(field pid) != "$first" ]] || complain "it is the same process" || return
    [[ $(sessions) == 1 ]] || complain "$(sessions) supervised processes" || return
    after=$(inside grep -c ok /run/made/log) || return
    ((after > before)) || complain "$before calls before, $after after: $(inside tail -3 /run/made/log)" || return
    ! inside grep -v '^ok$' /run/made/log || complain "a call failed" || return
    [[ $(property NFileDescriptorStore) == 1 ]] || complain "$(property NFileDescriptorStore) in the store"
}

# It starts again by itself.
is_killed() { inside systemctl kill --kill-whom main --signal KILL weir-broker.service && sleep 1; }

reloads() {
    local pid
    pid=$(property MainPID)
    inside sed -i 's/"nobody"/"somebody"/' /etc/weir/broker.toml &&
        inside systemctl reload weir-broker.service && sleep 0.5 && answer=$(ask) || return
    [[ $(field pid) == "$pid" && $answer == *somebody* ]] || complain "$answer"
}

stops() {
    inside systemctl stop weir-broker.service || return
    [[ -S $root/run/weir/broker.sock || -n $(inside ls /run/weir/broker.sock) ]] || return
    [[ $(property Result) == success ]] || complain "$(property Result)" || return
    answer=$(ask) && [[ -n $(field pid) ]]
}

# A bridge with two ports, and a network namespace behind each that has an address.
make_bridge() {
    local side
    inside ip link add br0 type bridge && inside ip link set br0 up || return
    for side in 1 2; do
        inside ip netns add "side$side" &&
            inside ip link add "port$side" type veth peer name eth0 netns "side$side" &&
            inside ip link set "port$side" master br0 up &&
            inside ip -n "side$side" address add "10.0.0.$side/24" dev eth0 &&
            inside ip -n "side$side" link set eth0 up || return
    done
}

# The programs that are pinned, by the namespace's number.
count_pins() { inside sh -c 'ls /sys/fs/bpf/weir/switch/*/br0' | wc -l; }

ask_switch() { inside timeout 20 weir switch status --format json; }

# Frames from all ports that the fast path has forwarded.
forwarded() { ask_switch | awk '/"received": \{/ { getline; gsub(/[^0-9]/, ""); sum += $0 } END { print sum + 0 }'; }

ping_sides() { inside ip netns exec side1 ping -q -i 0.01 -W 1 -c "$1" 10.0.0.2; }

# Of the 200 frames some are for the kernel: the first ones, and those that keep addresses young.
is_fast() {
    local before
    before=$(forwarded)
    ping_sides 100 || return
    (($(forwarded) - before >= 100)) || complain "$(ask_switch)"
}

# The first of these wait for the bridge's ports to forward and for both addresses.
both_answer() { inside ip netns exec side1 ping -q -i 0.2 -w 20 -c 1 10.0.0.2; }

switch_attaches() {
    make_bridge && both_answer || return
    inside systemctl start "$unit" && inside weir switch attach br0 || return
    is_fast || return
    inside mountpoint -q /sys/fs/bpf || complain "the host has no BPF filesystem" || return
    [[ $(count_pins) == 2 ]] || complain "$(inside ls -R /sys/fs/bpf)"
}

switch_is_confined() {
    local wrong=""
    [[ $(status NoNewPrivs "$unit") == 1 ]] || wrong+=" NoNewPrivs"
    [[ $(status Seccomp "$unit") == 2 ]] || wrong+=" Seccomp"
    # CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_PERFMON, CAP_BPF
    [[ $(status CapEff "$unit") == 000000c000201000 ]] || wrong+=" capabilities $(status CapEff "$unit")"
    [[ -z $wrong ]] || complain "not in force:$wrong"
}

# keeps_forwarding COMMAND…: another process goes on, and no packet is lost meanwhile.
keeps_forwarding() {
    local first ping status=0
    first=$(property MainPID "$unit")
    ping_sides 300 >"$root.ping" 2>&1 &
    ping=$!
    sleep 1
    "$@" || status=$?
    wait "$ping" || status=$?
    cat "$root.ping"
    grep -q " 300 received, 0% packet loss" "$root.ping" && ((!status)) || return
    [[ $(property MainPID "$unit") != "$first" ]] || complain "it is the same process" || return
    is_fast
}

switch_is_killed() { inside systemctl kill --kill-whom main --signal KILL "$unit" && sleep 1; }

switch_reloads() {
    local pid
    pid=$(property MainPID "$unit")
    printf '[[bridge]]\nname = "br0"\n[bridge.port.port1]\nhook = "xdp"\n' |
        inside tee /etc/weir/switch.toml && inside weir switch check &&
        inside systemctl reload "$unit" && sleep 0.5 || return
    [[ $(property MainPID "$unit") == "$pid" && $(ask_switch) == *'"hook": "xdp"'* ]] || complain "$(ask_switch)" || return
    ping_sides 100
}

# The programs stay, and leave all frames to the kernel's bridge.
switch_stops() {
    inside systemctl stop "$unit" || return
    [[ $(property Result "$unit") == success ]] || complain "$(property Result "$unit")" || return
    ping_sides 700 && [[ $(count_pins) == 2 ]] || return
    inside weir switch detach --all || return
    inside systemctl start "$unit" && is_fast
}

# The page of the unit, from inside of its network namespace.
scraped() {
    # shellcheck disable=SC2016 # the inner shell expands it
    inside bash -c 'exec 3<>/dev/tcp/127.0.0.1/9347 && printf "GET /metrics HTTP/1.0\r\n\r\n" >&3 && timeout 20 cat <&3'
}

# The last HTTP process that the exporter's log names.
http_process() {
    inside journalctl --no-pager --unit "$unit" | sed -n 's/.*"http_process":\([0-9]*\).*/\1/p' | tail -n 1
}

exporter_answers() {
    local page
    inside systemctl start "$unit" || return
    page=$(scraped) || return
    grep -q '^weir_stage_losses_total{stage="udp"} ' <<<"$page" || complain "$page" || return
    # Losses are seen by reason and place only where the tracepoints could be attached.
    inside journalctl --no-pager --unit "$unit" | grep -q '"in_force":"none"' || complain "no word on the confinement" || return
    # The places of losses are functions of the kernel.
    inside nsenter --target "$(property MainPID "$unit")" --mount head --lines 1 /proc/kallsyms | grep -q . ||
        complain "the unit hides /proc/kallsyms"
}

exporter_is_confined() {
    local wrong="" http
    [[ $(status NoNewPrivs "$unit") == 1 ]] || wrong+=" NoNewPrivs"
    [[ $(status Seccomp "$unit") == 2 ]] || wrong+=" Seccomp"
    # Without CAP_SETUID, CAP_SETGID, CAP_SETPCAP and CAP_CHOWN.
    [[ $(status CapEff "$unit") == 000000c400283004 ]] || wrong+=" capabilities $(status CapEff "$unit")"
    http=$(inside cat "/proc/$(http_process)/status") || complain "no HTTP process" || return
    grep -q $'^CapEff:\t0000000000000000$' <<<"$http" && grep -q $'^Uid:\t65534' <<<"$http" || wrong+=" the HTTP process"
    [[ -z $wrong ]] || complain "not in force:$wrong" "$http"
}

# With its HTTP process the exporter ends, and starts again.
exporter_restarts() {
    local first
    first=$(property MainPID "$unit")
    inside bash -c "kill -KILL $(http_process)" && sleep 3 || return
    [[ $(property MainPID "$unit") != "$first" ]] && scraped >/dev/null
}

exporter_stops() {
    inside systemctl stop "$unit" && [[ $(property Result "$unit") == success ]] || complain "$(property Result "$unit")" || return
    ! inside test -e "/proc/$(http_process)" || complain "the HTTP process is left"
}

removal_detaches() {
    inside dpkg --remove weir && ping_sides 20 || return
    [[ ! -e $(inside ls -d /sys/fs/bpf/weir /run/weir/switch /run/weir/switch.sock 2>/dev/null) ]] ||
        complain "$(inside find /sys/fs/bpf /run/weir)" || return
    ! inside ip -d link show | grep -E "xdp|tcx" || complain "a program is attached"
}

run_checks() {
    mount --make-rprivate /
    mount -t cgroup2 cgroup2 "$root.cgroup" || {
        echo "ok boots # SKIP this kernel has no cgroup2 to mount"
        exit 0
    }
    local group=$root.cgroup/weir-systemd-$$
    mkdir "$group"
    trap 'end_init; find "$root.cgroup/weir-systemd-$$" -depth -type d -exec rmdir {} +' EXIT
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec unshare --mount --pid --ipc --uts --net --cgroup --fork --kill-child bash "$root.init" "$root"
    ) &>"$root.console" &
    unshare_pid=$!
    local try
    for ((try = 0; try < 100; try++)); do
        init=$(cat "/proc/$unshare_pid/task/$unshare_pid/children" 2>/dev/null) && init=${init// /}
        [[ -z $init || $(readlink "/proc/$init/exe") != */systemd ]] || break
        sleep 0.1
    done
    check boots boots
    check listens listens
    check is-activated-by-a-socket activates
    check admits-the-group admits_the_group
    check is-confined is_confined
    check restart-keeps-descriptors kept_after inside systemctl restart weir-broker.service
    check crash-keeps-descriptors kept_after is_killed
    check reloads reloads
    check stops stops
    unit=weir-switch.service
    check switch-attaches switch_attaches
    check switch-is-confined switch_is_confined
    check switch-restarts-without-loss keeps_forwarding inside systemctl restart "$unit"
    check switch-is-killed-without-loss keeps_forwarding switch_is_killed
    check switch-reloads switch_reloads
    check switch-stops switch_stops
    unit=weir-exporter.service
    check exporter-answers exporter_answers
    check exporter-is-confined exporter_is_confined
    check exporter-restarts exporter_restarts
    check exporter-stops exporter_stops
    unit=weir-switch.service
    check removal-detaches removal_detaches
    exit "$failed"
}

# The first process of a pid namespace takes the others with it.
end_init() {
    [[ -z ${init-} ]] || kill -KILL "$init" 2>/dev/null || true
    wait
}

# The script that runs before systemd, in its namespaces.
init_script() {
    cat <<'END'
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t sysfs sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$1/run"
mount -t tmpfs -o mode=755 tmpfs "$1/dev"
for name in null zero full random urandom tty; do
    touch "$1/dev/$name"
    mount --bind "/dev/$name" "$1/dev/$name"
done
cd "$1"
pivot_root . mnt
umount -l /mnt
exec env -i container=weir PATH="$PATH" /lib/systemd/systemd --log-target=console --show-status=0 </dev/null
END
}

if [[ ${WEIR_SYSTEMD_TEST-} == inside ]]; then run_checks; fi

trap 'rm -rf "$root" "$root".{log,console,init,cgroup,supervised,ping}' EXIT
rm -rf "$root" && mkdir -p "$root" "$root.cgroup"
mmdebstrap --quiet --mode=root --variant=essential \
    --include="systemd,iproute2,iputils-ping,$(dpkg-deb --field "$package" Depends | sed 's/([^)]*)//g; s/ //g')" trixie "$root" "$mirror"
cp "$package" "$root/weir.deb"
init_script >"$root.init"
WEIR_SYSTEMD_TEST=inside unshare --mount "$0" "$package" "$mirror" "$root"
