# shellcheck shell=bash
# Sourced by ./run: `./run instructions` counts the instructions that the library's moves of a
# packet take, and fails where they are more than before. Callgrind counts executed instructions,
# so neither the load of the machine nor the kind of its CPU changes a count; the compiler does.

instructions_benches=crates/moves/benches
instructions_baseline=crates/moves/instructions.toml
instructions_allowed=1 # percent more than before

run_instructions() {
    local work=$target_dir/instructions
    install_needs "${build_needs[@]}" "${instructions_needs[@]}"
    have valgrind || die "valgrind is missing, and counts the instructions" \
        "install it with the package manager of this system, then run this again"
    cargo_tool gungraun-runner "$(gungraun_version .)" ||
        die "gungraun-runner could not be installed; cargo's reason is above"
    fetch_crates
    mkdir -p "$work"
    count_instructions . "$target_dir" "$work/now"
    read_instructions >"$work/before"
    if [[ ${1-} == --update ]]; then
        show_instructions "$work/now/figures" "$work/before"
        write_instructions "$work/now/figures" >"$instructions_baseline"
        say "written: $instructions_baseline; commit it with the change that it is of"
    elif [[ $(read_compiler) == "$(compiler)" ]]; then
        compare_instructions "$work/now/figures" "$work/before" "$instructions_baseline"
    else
        compare_with_parent "$work"
    fi
}

# The runner has to be of the library's version.
gungraun_version() { sed -n '/^name = "gungraun"$/{n;s/^version = "\(.*\)"$/\1/p}' "$1/Cargo.lock"; }

# count_instructions TREE TARGET_DIR OUTPUT: OUTPUT/figures has lines of move, batch, the library's
# instructions a packet, and libxdp's or "-".
count_instructions() {
    local tree=$1 output=$3 packets
    packets=$(sed -n 's/^const PACKETS: u32 = \([0-9]*\);$/\1/p' "$tree/$instructions_benches/instructions.rs")
    say "counting instructions in $tree (a first build takes minutes)"
    rm -rf "$output"
    mkdir -p "$output"
    # Flags of the caller's would make another program of it.
    (cd "$tree" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS CARGO_TARGET_DIR="$2" \
        cargo bench --locked --package xsk-moves --bench instructions -- \
        --home="$output" --parallel=auto --allow-aslr=true --nosummary=true \
        --callgrind-args=--cache-sim=no >"$output/log") ||
        die "the instructions could not be counted; the reason is above or in $output/log"
    counted_in_program "$output"
    figures "$packets" "$output" >"$output/figures" ||
        die "there is not a count of every move" "the output of gungraun is in $output/log"
}

# Functions of the C library are chosen by the CPU, so a count that includes one is of this CPU.
# A profile has the instructions of each function under its object (ob=); the line after calls= is
# of those called.
counted_in_program() {
    local others
    others=$(find "$1" -name 'callgrind.*.out' ! -name 'callgrind.libxdp.*' -exec awk '
        /^ob=/ { other = $0 !~ /\/instructions-[0-9a-f]+$/ }
        /^fn=/ { name = substr($0, 4) }
        /^calls=/ { getline; next }
        other && /^[0-9]+ [1-9]/ { print name }' {} + | sort -u)
    [[ -z $others ]] || die "the counted moves call ${others//$'\n'/, }, whose instructions depend on the CPU" \
        "keep the call out of the moves"
}

# The kernel's part is in the counts of both sides, and is taken off here.
figures() {
    find "$2" -name 'callgrind.*.out' -exec awk '
        /^totals: / { n = split(FILENAME, part, "/"); print part[n - 1], $2 }' {} + |
        awk -v packets="$1" '
            { count[$1] = $2 / packets }
            END {
                moves = split("receive iterate send forward receive_each send_each send_batch forward_each", move)
                for (m = 1; m <= moves; m++) {
                    batches = split(move[m] ~ /each|batch/ ? "64 256 1024" : "1 8 64 256", batch)
                    for (b = 1; b <= batches; b++) row(move[m], batch[b], "weir", move[m])
                }
                row("receive", 64, "with_metadata", "hints")
                row("send", 64, "with_metadata", "checksum")
                row("send_each", 64, "with_metadata", "timestamp")
            }
            function row(move, batch, side, shown, name, libxdp) {
                name = move "_" batch
                if (!((side "." name) in count && ("kernel." name) in count)) {
                    print "error: Callgrind gave no count of " side "." name > "/dev/stderr"
                    exit 1
                }
                libxdp = ("libxdp." name) in count ? sprintf("%.3f", own("libxdp." name, name)) : "-"
                printf "%s %d %.3f %s\n", shown, batch, own(side "." name, name), libxdp
            }
            function own(side, name) { return count[side] - count["kernel." name] }'
}

compiler() { printf '%s, %s\n' "$(rustc --version)" "$(rustc -vV | sed -n 's/^host: //p')"; }

write_instructions() {
    local rustc target
    IFS=, read -r rustc target < <(compiler)
    cat <<END
# Instructions a packet of the library's moves, by batch, without the kernel's part.
# \`./run instructions --update\` writes this.
rustc = "$rustc"
target = "${target# }"
END
    awk '$1 != move { move = $1; printf "\n[%s]\n", move } { printf "%s = %s\n", $2, $3 }' "$1"
}

# The same of the baseline.
read_compiler() {
    sed -nE 's/^(rustc|target) = "(.*)"$/\2/p' "$instructions_baseline" 2>/dev/null | paste -sd, | sed 's/,/, /'
}

# Lines of move, batch and instructions.
read_instructions() {
    awk '/^\[/ { move = substr($0, 2, length($0) - 2) }
         /^[0-9]+ = / { print move, $1, $3 }' "$instructions_baseline"
}

# show_instructions NOW BEFORE: the table; before may be the figures of a subset.
show_instructions() {
    awk 'BEGIN { format = "%-12s %5s %8s %8s %6s %8s %8s\n"
                 printf format, "moves", "batch", "weir", "libxdp", "ratio", "before", "change" }
         FILENAME == ARGV[1] { before[$1, $2] = $3; next }
         {
             ratio = $4 == "-" ? "-" : sprintf("%.2f", $3 / $4)
             known = ($1, $2) in before
             printf format, $1, $2, $3, $4, ratio, known ? before[$1, $2] : "-",
                 known ? sprintf("%+.2f%%", ($3 / before[$1, $2] - 1) * 100) : "-"
         }' "$2" "$1"
}

# compare_instructions NOW BEFORE NAME: fails where a move takes more than before.
compare_instructions() {
    local worse=()
    show_instructions "$1" "$2"
    mapfile -t worse < <(awk -v allowed="$instructions_allowed" '
        FILENAME == ARGV[1] { before[$1, $2] = $3; next }
        !(($1, $2) in before) { printf "%s, batch %d: %s instructions a packet, and no figure before\n", $1, $2, $3; next }
        {
            more = ($3 / before[$1, $2] - 1) * 100
            if (more > allowed)
                printf "%s, batch %d: %s instructions a packet, %s before (%+.2f%%)\n", $1, $2, $3, before[$1, $2], more
        }' "$2" "$1")
    if ((${#worse[@]} > 0)); then
        die "moves take over $instructions_allowed% more instructions than in $3:" "${worse[@]}" \
            "make them shorter; or, if the change is worth it, ./run instructions --update writes the" \
            "baseline anew, to be committed with the change"
    fi
    say "no move takes over $instructions_allowed% more instructions than in $3"
}

# Another compiler makes other instructions of the same source, so the source before is built with it.
compare_with_parent() {
    local work=$1 parent
    say "the baseline is of $(read_compiler); this is $(compiler)"
    if ! parent=$(base_commit); then
        not_compared "$work" "the compiler is not the baseline's, and $parent"
    elif ! git diff --quiet "$parent" -- "$instructions_baseline"; then
        not_compared "$work" "the compiler is not the baseline's, and the baseline was changed since commit ${parent:0:12}"
    elif ! unpack_commit "$parent" "$work/parent"; then
        die "git could not unpack commit $parent to $work/parent; its reason is above"
    elif [[ $(gungraun_version "$work/parent") != "$(gungraun_version .)" ]]; then
        rm -rf "$work/parent"
        not_compared "$work" "the compiler is not the baseline's, and commit ${parent:0:12} counts with another gungraun"
    else
        count_instructions "$work/parent" "$work/target" "$work/before-output"
        cut -d' ' -f1-3 "$work/before-output/figures" >"$work/before"
        rm -rf "$work/parent"
        compare_instructions "$work/now/figures" "$work/before" "commit ${parent:0:12}"
    fi
}

# As files of now: cargo takes those older than its last build, of another commit, for built.
unpack_commit() {
    rm -rf "$2" && mkdir -p "$2" && git archive "$1" | tar -x --touch -C "$2"
}

# `./run deep` counts this as skipped, by this line.
not_compared() {
    show_instructions "$1/now/figures" /dev/null
    echo "not compared: $2"
}
