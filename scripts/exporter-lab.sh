#!/usr/bin/env bash
# Has a real Prometheus scrape `weir exporter` for a minute, plain and by TLS with a password, runs the
# dashboard's queries, and wants one alert for one injected fault. `./run exporter` calls it as root. Each check
# is a line "ok NAME", or "not ok NAME" after its messages.
#
# usage: exporter-lab.sh WEIR ROOT DIRECTORY
#
# ROOT has Debian's prometheus, unpacked; DIRECTORY is made, for the lab's files.
# shellcheck disable=SC2317 # most functions are called by `check`
set -euo pipefail

weir=$(realpath "$1") root=$(realpath "$2") lab=$(realpath -m "$3")
contrib=$(realpath "$(dirname "$0")/../contrib")
prometheus=$root/usr/bin/prometheus promtool=$root/usr/bin/promtool
api=http://127.0.0.1:9090/api/v1
failed=0 fault="" exporters=()

if [[ -z ${EXPORTER_LAB-} ]]; then
    # Mounts, processes and a network of its own, gone with it.
    EXPORTER_LAB=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private "$0" "$@"
fi

trap 'rm -rf "$lab"' EXIT
rm -rf "$lab" && mkdir -p "$lab"
mount -t tmpfs tmpfs /run
mount -t sysfs sysfs /sys
ip link set lo up
ip netns add shop
ip -n shop link set lo up

check() {
    local name=$1
    shift
    if "$@" >"$lab/log" 2>&1; then
        echo "ok $name"
    else
        sed 's/^/# /' "$lab/log"
        echo "not ok $name"
        failed=1
    fi
}

complain() {
    echo "$*"
    return 1
}

# query EXPRESSION: the values, one a line, each behind its labels.
query() {
    curl --silent --show-error --get --data-urlencode "query=$1" "$api/query" |
        python3 -c 'import json, sys
answer = json.load(sys.stdin)
if answer["status"] != "success":
    sys.exit(answer["error"])
for row in answer["data"]["result"]:
    print(json.dumps(row["metric"], sort_keys=True), row["value"][1])'
}

# number EXPRESSION: the value of its first row, a whole number.
number() { query "$1" | head -n 1 | awk '{ printf "%.0f\n", $NF }'; }

alerts() { query 'ALERTS{alertstate="firing"}' | sed -n 's/.*"alertname": "\([^"]*\)".*/\1/p' | sort -u; }

# wait_until SECONDS COMMAND…
wait_until() {
    local second limit=$(($1 * ${WEIR_TEST_SCALE-1}))
    shift
    for ((second = 0; second < limit; second++)); do
        "$@" && return
        sleep 1
    done
    complain "not within $limit s: $*"
}

start_exporters() {
    local own
    own=$(readlink /proc/self/ns/net)
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=weir \
        -addext subjectAltName=IP:127.0.0.1 -keyout "$lab/key.pem" -out "$lab/cert.pem"
    echo secret >"$lab/password"
    # The hash of "secret", at a low cost.
    cat >"$lab/web.yml" <<'CONFIG'
tls_server_config:
  cert_file: cert.pem
  key_file: key.pem
basic_auth_users:
  prometheus: $2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW
CONFIG
    "$weir" exporter --strict --netns shop "$own" 2>"$lab/plain.log" &
    exporters+=($!)
    "$weir" exporter --strict --netns shop "$own" --listen 127.0.0.1:9348 --web-config "$lab/web.yml" 2>"$lab/tls.log" &
    exporters+=($!)
    wait_until 20 curl --silent --fail --output "$lab/page" http://127.0.0.1:9347/metrics
}

# The rules, the scrape configuration and the dashboard as they are in contrib, every second.
start_prometheus() {
    cp "$contrib"/prometheus/*.yml "$lab"
    sed -i -e 's/15s/1s/; s/host.example:9347/127.0.0.1:9348/' \
        -e "s|/etc/prometheus/weir-ca.pem|$lab/cert.pem|; s|/etc/prometheus/weir-password|$lab/password|" "$lab/prometheus.yml"
    printf 'global:\n  evaluation_interval: 1s\n' >>"$lab/prometheus.yml"
    "$promtool" check config "$lab/prometheus.yml" || return
    "$prometheus" --config.file "$lab/prometheus.yml" --storage.tsdb.path "$lab/data" \
        --web.listen-address 127.0.0.1:9090 &>"$lab/prometheus.log" &
    wait_until 60 curl --silent --fail --output /dev/null http://127.0.0.1:9090/-/ready || {
        cat "$lab/prometheus.log"
        return 1
    }
}

# Datagrams that are read, in the namespace.
start_traffic() {
    ip netns exec shop python3 -c 'import socket, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 5353))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
while True:
    for _ in range(10):
        sender.sendto(b"x" * 100, ("127.0.0.1", 5353))
        receiver.recv(200)
    time.sleep(0.1)' &
}

# Datagrams to a socket that nobody reads; prints how many it lost.
inject() {
    ip netns exec shop python3 -c 'import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
receiver.bind(("127.0.0.1", 5354))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(5000):
    sender.sendto(b"x" * 100, ("127.0.0.1", 5354))
receiver.setblocking(False)
kept = 0
try:
    while True:
        receiver.recv(200)
        kept += 1
except BlockingIOError:
    print(5000 - kept)'
}

rules_are_right() {
    "$promtool" check rules "$contrib/prometheus/weir.rules.yml" &&
        (cd "$contrib/prometheus" && "$promtool" test rules weir.rules.test.yml)
}

# Each runbook names a command of weir and a check of the doctor that exist.
runbooks_are_right() {
    local alerts runbooks checks known wrong=0 id
    alerts=$(grep -c '^ *- alert:' "$contrib/prometheus/weir.rules.yml")
    runbooks=$(grep '^ *runbook:' "$contrib/prometheus/weir.rules.yml")
    [[ $(grep -c 'weir ledger' <<<"$runbooks") == "$alerts" ]] || complain "a runbook without weir ledger" || return
    checks=$(grep -o 'weir doctor --explain [a-z-]*' <<<"$runbooks" | sed 's/.* //')
    [[ $(wc -l <<<"$checks") == "$alerts" ]] || complain "a runbook without a check" || return
    known=$("$weir" doctor --list) || return
    while read -r id; do
        grep -qw -- "$id" <<<"$known" || {
            echo "weir doctor has no check $id"
            wrong=1
        }
    done <<<"$checks"
    return "$wrong"
}

page_is_right() {
    curl --silent http://127.0.0.1:9347/metrics >"$lab/page" && "$promtool" check metrics <"$lab/page"
}

is_scraped() {
    local job
    for job in weir weir-tls; do
        [[ $(number "up{job=\"$job\"}") == 1 ]] || complain "$job: $(query "up{job=\"$job\"}")" || return
    done
}

is_scraped_for_a_minute() {
    query 'min_over_time(up[1m])' && query 'max_over_time(scrape_duration_seconds[1m])' && query 'scrape_samples_scraped' || return
    [[ $(query 'min_over_time(up[1m]) == 1' | wc -l) == 2 ]] || complain "a scrape failed" || return
    [[ $(query 'count_over_time(up[1m]) > 40' | wc -l) == 2 ]] || complain "scrapes are missing: $(query 'count_over_time(up[1m])')" || return
    [[ $(query 'weir_exporter_series <= weir_exporter_series_limit' | wc -l) == 2 ]] || complain "too many series"
}

is_quiet() { [[ -z $(alerts) ]] || complain "alerts: $(alerts)"; }

fires() { [[ $(alerts) == WeirSocketBufferFull ]]; }

# Both exporters count as many losses as the traffic's sender.
counts_the_fault() {
    local counted
    counted=$(query 'sum by (job) (weir_losses_total{namespace="shop",reason="SOCKET_RCVBUFF"})')
    echo "$fault lost; $counted"
    [[ $(awk -v fault="$fault" '$NF == fault' <<<"$counted" | wc -l) == 2 ]] || return
    counted=$(query 'sum by (job) (weir_stage_losses_total) - sum by (job) (weir_losses_total)')
    [[ $(awk '$NF == 0' <<<"$counted" | wc -l) == 2 ]] || complain "stages and reasons differ: $counted"
}

# Every query of the dashboard is understood, and most have an answer.
# shellcheck disable=SC2016 # Grafana's variables
dashboard_is_right() {
    local expression wrong=0 answer answered=0 count=0
    while read -r expression; do
        count=$((count + 1))
        if ! answer=$(query "$expression"); then
            echo "$expression"
            wrong=1
        fi
        [[ -z $answer ]] || answered=$((answered + 1))
    done < <(python3 -c 'import json, sys
for panel in json.load(open(sys.argv[1]))["panels"]:
    for target in panel["targets"]:
        print(target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m"))' "$contrib/grafana/weir.json")
    echo "$answered of $count queries have an answer"
    # The others are about AF_XDP sockets, errors of devices, edges and folded series, which this lab may lack.
    ((answered * 3 >= count * 2)) || wrong=1
    return "$wrong"
}

names_are_there() {
    local name wrong=0
    # Each metric that rules and dashboard name is one of the exporter's.
    while read -r name; do
        grep -q "\"${name%_total}\"" "$contrib/../crates/weir/src/exporter/families.rs" || {
            echo "no family $name"
            wrong=1
        }
    done < <(cat "$contrib"/prometheus/weir.rules.yml "$contrib"/grafana/weir.json | grep -oE '\bweir_[a-z_]+' | sort -u)
    return "$wrong"
}

ends() {
    local pid
    kill "${exporters[@]}" || return
    for pid in "${exporters[@]}"; do
        wait "$pid" || complain "an exporter ended with $?: $(cat "$lab"/{plain,tls}.log)" || return
    done
    ! pgrep --full exporter-http || complain "a process is left"
}

run_checks() {
    check rules rules_are_right
    check runbooks runbooks_are_right
    check names names_are_there
    check exporters-start start_exporters
    check prometheus-starts start_prometheus
    start_traffic
    check is-scraped wait_until 30 is_scraped
    check page page_is_right
    sleep 25
    check quiet-without-a-fault is_quiet
    fault=$(inject)
    check alert-fires wait_until 60 fires
    # The rest of the minute: no other alert comes.
    sleep 35
    check no-other-alert fires
    check counts-the-fault counts_the_fault
    check scraped-for-a-minute is_scraped_for_a_minute
    cat "$lab/log"
    check dashboard dashboard_is_right
    cat "$lab/log"
    check ends ends
    exit "$failed"
}

run_checks
