# shellcheck shell=bash
# Sourced by ./run: what has changed since the commit that this work began at.

# The commit that the working tree is compared with: WEIR_BASE if that is set; HEAD while something is not
# committed and nothing else is known; else where HEAD left origin's branch; else its parent. Fails with the reason printed.
base_commit() {
    local head base
    have git || { echo "there is no git to get the commit before with" && return 1; }
    head=$(git rev-parse --verify --quiet HEAD 2>/dev/null) ||
        { echo "this is no git repository that $(id -un) may read" && return 1; }
    # A forge names the commit before a new branch by zeros.
    if [[ ${WEIR_BASE-} =~ [^0] ]]; then
        git rev-parse --verify --quiet "$WEIR_BASE^{commit}" ||
            { echo "this clone has no commit '$WEIR_BASE' (WEIR_BASE)" && return 1; }
        return
    fi
    base=$(git merge-base HEAD origin/HEAD 2>/dev/null) || base=$head
    if [[ $base == "$head" ]] && git diff --quiet HEAD; then
        base=$(git rev-parse --verify --quiet 'HEAD~1^{commit}') ||
            { echo "this clone has no commit before HEAD (git fetch --unshallow gets them)" && return 1; }
    fi
    echo "$base"
}

# The files that differ from a commit, new ones included.
changed_files() {
    git -c core.quotePath=off diff --name-only "$1" && git -c core.quotePath=off ls-files --others --exclude-standard
}

# The crates with changed files, and those above them, by their directories. What belongs to no crate is every crate's,
# but for the documents, which weir's tests read, and for what no test runs.
changed_crates() {
    local base files
    base=$(base_commit) || die "cannot say what has changed: $base"
    files=$(changed_files "$base") || die "git cannot list what has changed"
    if grep -qE '^(Cargo\.(toml|lock)|run|scripts/)' <<<"$files"; then
        all_crates
        return
    fi
    {
        sed -nE 's|^crates/([^/]+)/.*|\1|p' <<<"$files"
        ! grep -qE '^(docs/|contrib/|packaging/|[A-Z]+\.md)' <<<"$files" || echo weir
    } | sort -u | with_dependents
}

# ./run changed: what CI makes a job of, a line each.
run_changed() {
    local crates=() parts=() names files package=true
    if [[ -n ${WEIR_CI_ALL-} ]]; then
        mapfile -t crates < <(all_crates | with_programs)
        mapfile -t parts < <(deep_names)
    else
        files=$(deep_changed_files) || die "cannot say what has changed: $files"
        names=$(changed_crates) || exit
        mapfile -t crates < <(sed '/^$/d' <<<"$names" | with_programs)
        mapfile -t parts < <(deep_parts_of "$files")
        grep -qE '^(packaging/|contrib/|scripts/(package|debian)\.sh|crates/weir/src/cli/)' <<<"$files" || package=false
    fi
    printf 'crates=%s\nparts=%s\npackage=%s\n' "$(json_list "${crates[@]}")" "$(json_list "${parts[@]}")" "$package"
}

# Of the crates, those whose integration tests are a job's work.
with_programs() { while read -r crate; do ! compgen -G "crates/$crate/tests/*/main.rs" >/dev/null || echo "$crate"; done; }

json_list() {
    local item text=""
    for item in "$@"; do text+=",\"$item\""; done
    echo "[${text#,}]"
}

all_crates() { (cd crates && printf '%s\n' *); }

# Reads crates' directories, prints them and those that depend on one of them, for their tests too.
with_dependents() {
    local crate manifest known=" " waiting
    mapfile -t waiting
    while ((${#waiting[@]} > 0)); do
        crate=${waiting[0]}
        waiting=("${waiting[@]:1}")
        [[ $known != *" $crate "* && -d crates/$crate ]] || continue
        known+="$crate "
        for manifest in crates/*/Cargo.toml; do
            ! grep -q "path = \"../$crate\"" "$manifest" || waiting+=("$(basename "$(dirname "$manifest")")")
        done
    done
    tr ' ' '\n' <<<"$known" | sed '/^$/d'
}
