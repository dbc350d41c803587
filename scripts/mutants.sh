# shellcheck shell=bash
# Sourced by ./run: changes the library's state handling, and the reading and the meaning of pf's rules, in one place
# at a time (cargo-mutants, with .cargo/mutants*.toml), and fails where no test notices.

# Changes that survived once: the wake-up of FILL left out, a missed wake-up of TX never repeated,
# chunks freed that the kernel may touch, and packets left in TX while a socket waits.
mutants_sample=(
    'RxEnd::wake with \(\)'
    'replace >= with < in TxEnd::is_kick_due'
    'replace == with != in Bound::access_after_close'
    'Bound::leave_sending with \(\)'
    'replace > with < in Waiting.*::look_after'
)

# Of pf's rules. Their reader: a combination of two families or interfaces is kept, a rule has no family. Their
# interpreter: the faults of other filters that docs/MUTANTS.md lists.
filter_mutants_sample=(
    'replace != with == in agreed_family'
    'replace scopes_disagree -> bool with false'
    'replace decide_family with \(\)'
    'replace Descriptor::source_index -> usize with 0'
    'replace Descriptor::lacks_permission -> bool with false'
    'replace fragment_fails -> bool with false'
    'replace flags_fail -> bool with false'
    'replace icmp_reply_fails -> bool with false'
    'replace == with != in Engine.*::matched'
    'replace != with == in Engine.*::call'
    'replace Walk::take_tag with \(\)'
)
filter_mutants_files='crates/filter/src/{eval/descriptor,eval/facts,eval/match_rule,eval/walk,expand/combination,expand/mod}.rs'

# A survivor is no failure where docs/MUTANTS.md gives the reason that it changes nothing.
run_mutants() {
    install_needs "${build_needs[@]}"
    cargo_tool cargo-mutants || die "cargo-mutants could not be installed"
    fetch_crates
    mutants_of xsk .cargo/mutants.toml "${1-}" "" "${mutants_sample[@]}"
    mutants_of pf-filter .cargo/mutants-filter.toml "${1-}" "$filter_mutants_files" "${filter_mutants_sample[@]}"
    say "mutants: every change was noticed, or has its reason in docs/MUTANTS.md"
}

# mutants_of PACKAGE CONFIGURATION WHAT FILES SAMPLE…: changes the sample, in these files if any are given, or all where
# WHAT is --all.
mutants_of() {
    local status=0 missed output=$target_dir/mutants only=() package=$1 configuration=$2
    mkdir -p "$output"
    if [[ $3 != --all ]]; then
        # Fields are left out in all files of the configuration, whatever is chosen by name.
        if [[ -n $4 ]]; then
            sed "/^examine_globs/,/^]/c examine_globs = [\"$4\"]" "$2" >"$output/sample.toml"
            configuration=$output/sample.toml
        fi
        mutants_check_sample "$package" "$configuration" "${@:5}"
        only=(--re "$(IFS='|' && echo "${*:5}")")
    fi
    # Fewer sequences than usual, since they are played for each change. What it copies is built in a
    # directory that stays, so that the dependencies are built once.
    PROPTEST_CASES=48 CARGO_TARGET_DIR=$output/target nice cargo mutants --package "$package" --jobs 1 \
        --config "$configuration" --timeout $((60 * ${WEIR_TEST_SCALE:-1})) --output "$output" \
        --colors never "${only[@]}" || status=$?
    # 2: some survived; 3: some were noticed by an endless loop.
    ((status == 0 || status == 2 || status == 3)) || die "cargo-mutants failed; its reason is above"
    missed=$(mutants_without_reason <"$output/mutants.out/missed.txt")
    [[ -z $missed ]] || die "no test notices these changes, and docs/MUTANTS.md says nothing of them:" "$missed"
}

# A change of the sample whose function has another name by now would never be tried. cargo-mutants does not
# notice: it tries each change that leaves out a field with every selection.
# mutants_check_sample PACKAGE CONFIGURATION SAMPLE…
mutants_check_sample() {
    local list change
    list=$(cargo mutants --package "$1" --config "$2" --list --colors never) || die "cargo-mutants failed; its reason is above"
    for change in "${@:3}"; do
        grep -qE -- "$change" <<<"$list" || die "the library has no such change (mutants_sample): $change"
    done
}

# "FILE:LINE:COLUMN: CHANGE" on each line; in the document a change has its file, and no line.
mutants_without_reason() {
    local line file change
    while IFS= read -r line; do
        file=${line%%:*} change=${line#*:*:*: }
        grep -qF -- "| \`${file#crates/*/src/}\` | \`$change\` |" docs/MUTANTS.md ||
            printf '%s\n' "$line"
    done
}
