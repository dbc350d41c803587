# shellcheck shell=bash
# Sourced by ./run: weir's Debian package, from the files in packaging/, and its test in throw-away
# Debian systems.

package_needs=(
    "dpkg-deb:dpkg:building the package"
    "dpkg-shlibdeps:dpkg-dev:the libraries that the package depends on"
    "git:git:the version and the date of the package"
)
package_test_needs=(
    "mmdebstrap:?mmdebstrap:the Debian systems that the package is tested in"
    "bpftool:?bpftool:the check that nothing is left behind"
)
# The releases of Debian that the package is for, the oldest first: built on one, it runs there and
# on those after it.
package_suites=(bookworm trixie)

# The lines of packaging/daemons: a unit, its sample configuration, its command.
daemons() { grep -vE '^ *(#|$)' packaging/daemons || true; }

run_package() {
    [[ ${1-} != --test ]] || need_root_later "the package is installed in a Debian system of its own"
    install_needs "${build_needs[@]}" "${package_needs[@]}"
    git rev-parse --verify --quiet HEAD >/dev/null || die "the package takes its version from git, and this is no clone"
    build_weir
    package_build || die "the package could not be built; the reason is above"
    if [[ ${1-} == --test ]]; then package_test; else echo "$package"; fi
}

# Sets $package; $version, $architecture and $maintainer are for the functions below. The same sources in
# the same directory give the same file with the same tools.
package_build() {
    local root=$target_dir/package/root version architecture maintainer
    local SOURCE_DATE_EPOCH
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
    version=$(package_version)
    architecture=$(dpkg --print-architecture)
    maintainer=$(git log -1 --format='%cn <%ce>')
    package=$target_dir/package/weir_${version}_$architecture.deb
    say "packaging weir $version"
    rm -rf "$target_dir/package"
    umask 022
    package_program "$root" && package_generated "$root/usr/share" && package_documents "$root/usr/share" &&
        package_daemons "$root" && package_control "$root" || return
    find "$root" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} + &&
        dpkg-deb --root-owner-group -Zxz --build "$root" "$package" >&2
}

cargo_version() { sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml; }

# A commit after the last release sorts between it and the next.
package_version() {
    local version commit
    version=$(cargo_version)
    if [[ $(git describe --tags --exact-match 2>/dev/null) != "v$version" ]]; then
        commit=$(TZ=UTC git log -1 --abbrev=10 --date=format-local:%Y%m%d%H%M%S --format='git%cd.%h')
        if git rev-parse --verify --quiet "v$version^{commit}" >/dev/null; then
            version+=+$commit
        else
            version+=~$commit
        fi
    fi
    [[ -z $(git status --porcelain) ]] || version+=+changed
    echo "$version-1"
}

package_program() {
    local program
    for program in weir weir-broker; do
        install -D --mode 755 "$target_dir/release/$program" "$1/usr/bin/$program" &&
            strip --strip-unneeded --remove-section=.comment "$1/usr/bin/$program" || return
    done
}

# What the program itself prints: manual and completions.
package_generated() {
    local share=$1 weir=$target_dir/release/weir
    mkdir -p "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d} &&
        "$weir" man --dir "$share/man/man1" && gzip -n -9 "$share"/man/man1/* &&
        "$weir" completions bash >"$share/bash-completion/completions/weir" &&
        "$weir" completions zsh >"$share/zsh/vendor-completions/_weir" &&
        "$weir" completions fish >"$share/fish/vendor_completions.d/weir.fish"
}

# README.md names files of docs/ by their path.
package_documents() {
    local documents=$1/doc/weir
    mkdir -p "$documents/docs" && install --mode 644 README.md packaging/copyright "$documents" &&
        install --mode 644 docs/{BENCHMARKS,MEASURING}.md "$documents/docs" &&
        install -D --mode 644 --target-directory "$documents/examples" contrib/prometheus/* contrib/grafana/* &&
        install --mode 644 CHANGELOG.md "$documents/changelog" &&
        debian_changelog >"$documents/changelog.Debian" && third_party >"$documents/third-party" &&
        gzip -n -9 "$documents"/{changelog,changelog.Debian,third-party} &&
        install -D --mode 644 packaging/lintian-overrides "$1/lintian/overrides/weir"
}

debian_changelog() {
    printf 'weir (%s) unstable; urgency=medium\n\n  * Built from commit %s.\n\n -- %s  %s\n' \
        "$version" "$(git rev-parse HEAD)" "$maintainer" "$(date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")"
}

# The notices of all that is linked into the program: of the crates, each text once, and of the
# distribution's archives.
third_party() {
    local crates name version file library sum
    local -A texts=()
    crates=$(cargo tree --locked --package weir --package weir-broker --edges normal --prefix none --no-dedupe \
        --format '{p} {l}' | grep -vE '\((proc-macro|/)' | sort -u) || return
    printf 'Rust crates\n\n%s\n' "$crates"
    while read -r name version _; do
        for file in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$name-${version#v}"/{,libbpf/}{LICEN[CS]E,COPY,NOTICE}*; do
            [[ -f $file ]] || continue
            sum=$(sha256sum <"$file")
            [[ -z ${texts[$sum]-} ]] || continue
            texts[$sum]=$file
            printf '\n==== %s %s: %s\n\n' "$name" "$version" "${file##*/}"
            cat "$file"
        done
    done <<<"$crates"
    for library in elf z zstd gcc_eh; do
        file=$(realpath -e "$(cc -print-file-name="lib$library.a")" 2>/dev/null) || continue
        name=$(dpkg --search "$file" 2>/dev/null | cut -d: -f1) || continue
        printf '\n==== %s\n\n' "$name"
        cat "/usr/share/doc/$name/copyright"
    done
}

package_daemons() {
    local units=$1/usr/lib/systemd/system manuals=$1/usr/share/man/man8 command unit configuration socket
    mkdir -p "$1/DEBIAN" "$manuals"
    while read -r unit configuration command; do
        say "  daemon: $command"
        install -D --mode 644 "packaging/$unit" "$units/$unit" &&
            install -D --mode 644 "packaging/$configuration" "$1/etc/weir/$configuration" || return
        echo "/etc/weir/$configuration" >>"$1/DEBIAN/conffiles"
        for socket in "packaging/${unit%.service}"*.socket; do
            [[ ! -e $socket ]] || install --mode 644 "$socket" "$units" || return
        done
        [[ $command == "weir "* ]] || gzip -n -9 <"packaging/$command.8" >"$manuals/$command.8.gz" || return
    done < <(daemons)
    for unit in packaging/*.{service,socket}; do
        [[ ! -e $unit || -e $units/${unit#packaging/} ]] || die "$unit has no line in packaging/daemons"
    done
    install -D --mode 644 packaging/weir.sysusers "$1/usr/lib/sysusers.d/weir.conf"
}

package_control() {
    local root=$1 size depends
    depends=$(package_depends "$root") && size=$(du --summarize --apparent-size --block-size 1K --exclude DEBIAN "$root" | cut -f1) || return
    install --mode 755 packaging/{postinst,prerm,postrm} "$root/DEBIAN" &&
        sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/" \
            -e "s/@DEPENDS@/$depends/; s/@MAINTAINER@/$maintainer/" packaging/control >"$root/DEBIAN/control"
}

# dpkg-shlibdeps wants to run in a source package.
package_depends() {
    local source=$target_dir/package/shlibdeps
    mkdir -p "$source/debian"
    printf 'Source: weir\n\nPackage: weir\nArchitecture: any\n' >"$source/debian/control"
    (cd "$source" && dpkg-shlibdeps -O "$1"/usr/bin/*) | sed 's/^shlibs:Depends=//'
}

package_test() {
    local suite mirror codename too_old="" root=()
    check_scale
    install_needs "${package_test_needs[@]}"
    begin_steps
    mirror=$(debian_mirror)
    am_root || root=(sudo --)
    if ! have mmdebstrap; then
        skip package "mmdebstrap is missing and could not be installed"
    elif [[ -z $mirror ]]; then
        skip package "apt is configured for no mirror of Debian"
    else
        begin_own_mounts
        codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
        [[ " ${package_suites[*]} " != *" $codename "* ]] || too_old=1
        for suite in "${package_suites[@]}"; do
            [[ $suite != "$codename" ]] || too_old=""
            if [[ -n $too_old ]]; then
                skip "package-$suite" "built on $codename, which has a newer libc"
            else
                package_test_in "$suite"
            fi
        done
        test_leaks
    fi
    report ""
}

package_test_in() {
    local status=0 release=${mirror%/}/dists/$1/InRelease directory=$target_dir/package/test results version
    mkdir -p "$directory"
    if ! /usr/lib/apt/apt-helper download-file "$release" "$directory/InRelease" >/dev/null 2>&1; then
        skip "package-$1" "$release cannot be fetched"
        return
    fi
    version="weir $(cargo_version) ($(git log -1 --abbrev=10 --format='%h, %cs'))"
    run_step "package-$1" 300 "${root[@]}" packaging/test.sh "$package" "$version" "$1" "$mirror" "$directory/$1" ||
        status=$?
    results=$(guest_results "$log")
    printf '%s\n' "$results" >>"$log"
    count_step "package-$1" "$status"
}
