# shellcheck shell=bash
# Sourced by ./run: a small virtual machine with a kernel of its own, for features that this machine's
# kernel lacks or must not be changed in. It is emulated, so it needs neither KVM nor root.
# crates/weir/tests/guest/README.md describes its contents and its protocol.
#
# The kernel and busybox are Debian's packages: apt downloads and verifies them, nothing of them is
# installed. Downloads and built files stay in target/guest. guests.sh uses it with other kernels.

guest_sources=crates/weir/tests/guest
guest_missing="" # the feature that a guest lacks; empty where something went wrong instead
guest_seconds=240 # how long a script may take, also beside noisy neighbours

# The kernels besides this machine's own distribution's: name, suite of Debian, package. The cloud
# kernels are smaller, and have no driver of a real card. One of arm64 has pages of 16 KiB.
guest_kernels=(
    "6.1 bookworm linux-image-cloud-amd64"
    "6.12 trixie linux-image-cloud-amd64"
    "newest trixie-backports linux-image-amd64"
    "arm64 trixie-backports/arm64 linux-image-arm64"
    "arm64-16k trixie-backports/arm64 linux-image-arm64-16k"
)

# What a guest's architecture decides; guest_prepare sets it.
guest_arch=amd64    # Debian's name of it
guest_flavour=amd64 # the end of its kernel's version
guest_console=ttyS0

# The kernel modules of the guest: networking, its dependencies, and of the cards those that QEMU has.
guest_modules=(net drivers/net drivers/virtio drivers/vhost drivers/dca drivers/i2c/algos lib crypto arch/{x86,arm64}/crypto)
guest_cards=(e1000 e1000e igb igbvf)
# The shell is bash, because busybox's runs its own ip instead of the one in PATH.
guest_tools=(bash ip bridge tc ethtool)

# Why there is no guest.
guest_reason() { echo "${guest_missing:-something failed; the reason is above}"; }

# guest_prepare KERNEL: makes vmlinuz and initramfs.gz in $guest_dir, if they are not there; sets guest_missing
# when it fails. The kernel is one of guest_kernels, or empty for that of this machine's suites.
guest_prepare() {
    guest_dir=$target_dir/guest${1:+/$1}
    guest_arch=amd64 guest_flavour=amd64 guest_console=ttyS0
    [[ $1 != arm64* ]] || guest_arch=arm64 guest_flavour=$1 guest_console=ttyAMA0
    mkdir -p "$guest_dir/packages"
    guest_missing=$( (flock 9 && guest_make "$@") 9>"$guest_dir/lock")
}

# The same under the lock; prints what is missing when it fails.
guest_make() {
    local tool stamp tools=(clang)
    if [[ $(uname -m) != x86_64 ]]; then
        echo "the machine that emulates it is x86_64, this one is $(uname -m)" && return 1
    fi
    is_guest_foreign || tools+=("${guest_tools[@]}")
    # The other kernels have a QEMU of their own: see guests.sh.
    [[ -n $1 ]] || tools+=(qemu-system-x86_64)
    for tool in "${tools[@]}"; do
        have "$tool" || { echo "$tool is missing" && return 1; }
    done
    guest_packages "$@" && guest_foreign_tools || return
    stamp=$(guest_stamp) || return
    [[ -e $guest_dir/initramfs.gz && $stamp == "$(cat "$guest_dir/stamp" 2>/dev/null)" ]] && return
    say "making a guest of Linux $(guest_version)"
    rm -f "$guest_dir/stamp"
    guest_build >&2 && echo "$stamp" >"$guest_dir/stamp"
}

# Whatever the guest is made from; the same files give the same guest.
guest_stamp() {
    local tools
    if is_guest_foreign; then
        mapfile -t tools < <(compgen -G "$(guest_foreign_root)/usr/*bin/*")
    else
        mapfile -t tools < <(command -v "${guest_tools[@]}")
    fi
    sha256sum scripts/guest.sh "$guest_sources"/{init,drop.bpf.c} "$guest_dir"/packages/*.deb "${tools[@]}"
}

guest_busybox='busybox-static'

is_guest_foreign() { [[ $guest_arch != amd64 ]]; }

# The tools of a guest of another architecture, and a busybox for this machine, which packs the guest's archive. Prints
# what is missing when it fails.
guest_foreign_tools() {
    is_guest_foreign || return 0
    debian_root "trixie/$guest_arch" "$(guest_foreign_root)" bash iproute2 ethtool &&
        debian_root trixie "$target_dir/debian/busybox" "$guest_busybox"
}

guest_foreign_root() { echo "$target_dir/debian/guest-$guest_arch"; }

guest_packer() { if is_guest_foreign; then echo "$target_dir/debian/busybox/usr/bin/busybox"; else echo "$guest_dir/busybox"; fi; }

# The newest of the downloaded files of a package, whose name may be a pattern.
guest_package() { compgen -G "$guest_dir/packages/$1_*.deb" | sort -V | tail -n 1; }

# The kernel's packages. Since 7.2 the modules are in one of their own, and the image's is empty.
guest_kernel_packages() {
    local part
    for part in image binary modules; do guest_package "linux-$part-*-$guest_flavour"; done
}

# The kernel's own version, which its packages' names have.
guest_version() { guest_package "linux-image-*-$guest_flavour" | sed -nE 's/^.*\/linux-image-([^_]*)_.*$/\1/p'; }

have_guest_packages() { [[ -n $(guest_package "linux-image-*-$guest_flavour") && -n $(guest_package "$guest_busybox") ]]; }

# guest_packages KERNEL: a download is kept, also when there is a newer version by now.
guest_packages() {
    local kernel name suite package
    have_guest_packages && return
    if ! have apt-get; then
        echo "its kernel comes from Debian's packages, and there is no apt-get"
        return 1
    fi
    if [[ -z $1 ]]; then
        guest_packages_of_host
        return
    fi
    for kernel in "${guest_kernels[@]}"; do
        read -r name suite package <<<"$kernel"
        [[ $name == "$1" ]] || continue
        debian_locked guest_packages_of_suite "$suite" "$package"
        return
    done
    return 1
}

guest_packages_of_suite() {
    local suite=$1 package=$2
    debian_lists "$suite" || return
    guest_download "$package" debian_apt "$suite" && have_guest_packages && return
    echo "$package and $guest_busybox of Debian's $suite could not be downloaded"
    return 1
}

# The kernel of the suites that this machine itself uses.
guest_packages_of_host() {
    if apt_lists_empty || ! guest_download linux-image-cloud-amd64; then
        # Lists from some days ago name files that the mirror has no more.
        if am_root || sudo_works; then apt_get update || true; fi
        guest_download linux-image-cloud-amd64
    fi
    have_guest_packages && return
    echo "linux-image-cloud-amd64 and $guest_busybox could not be downloaded (is the network reachable?)"
    return 1
}

# guest_download PACKAGE APT…: the kernel that this package is for, by apt or by a function before it.
guest_download() {
    local package=$1 kernel
    shift
    mapfile -t kernel < <("$@" apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
        --no-breaks --no-replaces --no-enhances "$package" 2>/dev/null |
        grep -xE "linux-(image|binary|modules)-[0-9].*-$guest_flavour" | sort -u)
    ((${#kernel[@]} > 0)) || return 1
    say "apt-get download ${kernel[*]} $guest_busybox"
    # In a directory of its own: a file that came only in part must not be taken for the package.
    (
        rm -rf "$guest_dir/download" && mkdir "$guest_dir/download" && cd "$guest_dir/download" &&
            "$@" timeout 300 apt-get -qq -o APT::Sandbox::User=root download "${kernel[@]}" "$guest_busybox" &&
            mv ./*.deb ../packages/
    ) >&2
}

guest_build() {
    local root=$guest_dir/build/root busybox=$guest_dir/busybox version
    rm -rf "$guest_dir/build" && mkdir -p "$root"/{bin,sbin,usr/sbin,lib} || return
    dpkg-deb -x "$(guest_package "$guest_busybox")" "$guest_dir/build/busybox" || return
    # In /bin or /usr/bin, as Debian's release has it.
    find "$guest_dir/build/busybox" -path '*/bin/busybox' -exec mv {} "$busybox" ';' || return
    guest_unpack_kernel "$guest_dir/build/kernel" || return
    version=$(basename "$guest_dir/build/kernel/modules/"*)
    cp -a "$guest_dir/build/kernel/modules" "$root/lib/" || return
    "$(guest_packer)" depmod -b "$root" "$version" || return

    cp "$busybox" "$root/bin/" && cp "$guest_sources/init" "$root/init" || return
    ln -s ../bin/busybox "$root/sbin/modprobe" && ln -s ../usr/sbin/bash "$root/bin/sh" || return
    guest_copy_tools "$root" || return
    clang -target bpf -O2 -Wall -Werror -c "$guest_sources/drop.bpf.c" -o "$root/drop.bpf.o" || return

    guest_archive "$root" | gzip -n >"$guest_dir/initramfs.new" || return
    mv "$guest_dir/build/kernel/vmlinuz" "$guest_dir/vmlinuz" || return
    mv "$guest_dir/initramfs.new" "$guest_dir/initramfs.gz" || return
    rm -rf "$guest_dir/build"
}

# The tools with their libraries: this machine's own, or those of guest_foreign_root.
guest_copy_tools() {
    local root=$1 tool from
    if is_guest_foreign; then
        from=$(guest_foreign_root)/usr
        mkdir -p "$root/usr/lib" && ln -s ../usr/lib/ld-linux-aarch64.so.1 "$root/lib/" &&
            cp -a "$from"/lib/{ld-linux-aarch64.so.1,aarch64-linux-gnu} "$root/usr/lib/" || return
        rm -r "$root/usr/lib/aarch64-linux-gnu/gconv" # the largest part, for nothing here
        for tool in "${guest_tools[@]}"; do
            cp -L "$(compgen -G "$from/*bin/$tool" | head -n 1)" "$root/usr/sbin/" || return
        done
        return
    fi
    for tool in "${guest_tools[@]}"; do
        tool=$(command -v "$tool")
        cp -L "$tool" "$root/usr/sbin/" && guest_copy_libraries "$root" "$tool" || return
    done
}

# The kernel as DIR/vmlinuz and its modules as DIR/modules/VERSION. They are in /lib or /usr/lib,
# the kernel in /boot or beside them, and compressed or not, as Debian's release has it.
guest_unpack_kernel() {
    local dir=$1 all=$1/all archive=$1/package.tar package kernel modules wanted
    wanted="/vmlinuz|/modules/[^/]+/(modules\.|kernel/($(IFS='|' && echo "${guest_modules[*]}"))/)"
    mkdir -p "$all" "$dir/modules" || return
    while read -r package; do
        dpkg-deb --fsys-tarfile "$package" >"$archive" && tar -tf "$archive" >"$archive.names" || return
        # tar fails for a pattern that nothing matches, and a package of the kernel has some of these at most.
        { grep -E "$wanted" "$archive.names" || true; } >"$archive.wanted"
        tar -xf "$archive" -C "$all" --no-recursion -T "$archive.wanted" || return
    done < <(guest_kernel_packages)
    if ! modules=$(compgen -G "$all/lib/modules/*" || compgen -G "$all/usr/lib/modules/*") ||
        ! kernel=$(compgen -G "$all/boot/vmlinuz-*" || compgen -G "$modules/vmlinuz"); then
        say "no kernel or no modules in: $(guest_kernel_packages)"
        return 1
    fi
    mv "$kernel" "$dir/vmlinuz" || return
    guest_drop_cards "$modules" || return
    mv "$modules" "$dir/modules/" || return
    find "$dir/modules" -name '*.ko.xz' -exec xz -d {} +
}

# Without the drivers of cards that no guest has: most of a kernel that is not the cloud's.
guest_drop_cards() {
    local net=$1/kernel/drivers/net card keep=()
    [[ -d $net/ethernet ]] || return 0
    for card in "${guest_cards[@]}"; do keep+=(! -path "*/intel/$card/*"); done
    rm -rf "$net"/{wireless,wwan,can,dsa,usb,fddi,hamradio,arcnet} &&
        find "$net/ethernet" -type f "${keep[@]}" -delete
}

# Puts the shared libraries of a program, and its loader, where it looks for them. A program that
# is linked statically, or is a script, has none.
guest_copy_libraries() {
    local root=$1 libraries
    mapfile -t libraries < <(ldd "$2" 2>/dev/null | grep -oE '/[^ ]+')
    ((${#libraries[@]} == 0)) || cp -L --parents "${libraries[@]}" "$root"
}

# A directory as the kernel unpacks it; everything in it belongs to root. The same files give the same
# bytes, whenever and wherever they were made: a guest that counts its instructions counts unpacking.
guest_archive() {
    (
        cd "$1" && find . -exec touch -h -d @0 {} + && find . -mindepth 1 | LC_ALL=C sort |
            "$(guest_packer)" cpio -o -H newc -R 0:0 --ignore-devno --renumber-inodes 2>/dev/null
    )
}

# The command line of every guest; the console is standard output.
guest_qemu=(
    qemu-system-x86_64 -accel "tcg,thread=single" -cpu Nehalem -nodefaults -no-user-config
    -display none -serial stdio -no-reboot
)
guest_append="loglevel=1 panic=-1 nokaslr"

# The machine of the scripts. Its network card, for which `modprobe vmxnet3` is needed, leads nowhere:
# it has settings that no virtual device has.
# shellcheck disable=SC2034 # guest_run gets its name
guest_scripts=(-smp 2 -m 1024 -netdev "hubport,id=n0,hubid=0" -device "vmxnet3,netdev=n0,romfile=")

# A machine that does the same in every run. Its one CPU's clock counts the instructions that it has
# executed, each a nanosecond; to sleep takes no time, the date and the random numbers are given, and
# it has no device that anything could come from.
# shellcheck disable=SC2034 # as above
guest_count=(
    -smp 1 -m 1024 -icount "shift=0,sleep=off" -rtc "base=2020-01-01,clock=vm" -seed 1
)

# The scripts' directory in the guest: weir, the scripts, and what they use. Sets guest_payload.
guest_payload() {
    guest_payload=$guest_dir/scripts
    build "weir for the guest" cargo build --locked --workspace --all-features --bins &&
        build "the example frames" cargo build --locked --package hostnet --example frames || return
    rm -rf "$guest_payload" && mkdir "$guest_payload" &&
        cp "$target_dir"/debug/{weir,examples/frames} "$guest_sources"/{switch-lab,*.sh} "$guest_payload"
}

# guest_count_payload PROFILE WORDS…: the same for `weir bench-count WORDS…` from a cargo profile.
guest_count_payload() {
    local profile=$target_dir/$1 loop
    shift
    guest_payload=$guest_dir/count
    rm -rf "$guest_payload" && mkdir "$guest_payload" || return
    printf '%s\n' "$@" >"$guest_payload/words"
    # weir carries this program inside it, where nobody would see its libraries.
    loop=$(compgen -G "$profile/build/weir-*/out/libxdp-loop" | head -n 1)
    cp "$profile/weir" "$guest_sources/count" ${loop:+"$loop"} "$guest_payload"
}

# The versions that the figures of a count depend on, besides weir and the guest's kernel.
guest_count_machine() {
    printf 'QEMU %s, rustc %s, libxdp %s\n' \
        "$(qemu-system-x86_64 --version | sed -nE '1s/^.*version ([0-9.]*[0-9]).*$/\1/p')" \
        "$(rustc --version | cut -d' ' -f2)" "$(pkg-config --modversion libxdp 2>/dev/null || echo none)"
}

# guest_run MACHINE PAYLOAD_DIR SECONDS SCRIPT…: runs the scripts of PAYLOAD_DIR as /payload/SCRIPT of
# a new guest, one after the other, each for so long at most. MACHINE is the name of an array of
# QEMU's words, and of the step unless guest_name is set; the other files lie beside the scripts, and programs bring their
# shared libraries. The output of the guest is in $log; guest_log and guest_status
# take a script's part from it.
guest_run() {
    local -n machine=$1
    local name=${guest_name:-${1//_/-}} payload=$2 seconds=$3 scripts
    local image=$guest_dir/$name.initramfs
    shift 3
    seconds=$((seconds * $(slowdown) / 100))
    scripts=$*
    log=/dev/null # until there is an output
    guest_image "$payload" >"$image.new" && mv "$image.new" "$image" || return
    # The guest ends itself at its limit; run_step's is for one that is not even able to.
    run_step "$name" $((seconds * $# + 30)) "${guest_qemu[@]}" "${machine[@]}" \
        -kernel "$guest_dir/vmlinuz" -initrd "$image" \
        -append "console=$guest_console $guest_append norandmaps weir.run=${scripts// /,} weir.seconds=$((seconds * ${WEIR_TEST_SCALE:-1}))"
}

# guest_run_one MACHINE PAYLOAD_DIR SECONDS SCRIPT: the same with one script, whose exit status is this
# function's, 125 if the guest did not get there.
guest_run_one() {
    local status
    guest_run "$@" || return 125
    guest_log "$4" <"$log" >"$log.script"
    read -r status _ < <(guest_status "$log.script")
    ((status == 0)) || show_log
    return "$status"
}

# guest_log SCRIPT <CONSOLE: its output; nothing if it had no turn.
guest_log() {
    tr -d '\r' | awk -v begin="weir-guest: begin $1" -v end="weir-guest: end $1 " '
        $0 == begin { inside = 1 }
        inside { print }
        index($0, end) == 1 { inside = 0 }'
}

# The exit status of the script with this log, 125 if the guest did not get there; and the seconds
# that it took.
guest_status() { sed -nE 's/^weir-guest: end [^ ]+ ([0-9]+) ([0-9]+)$/\1 \2/p' "$1" | grep . || echo 125 0; }

# The initramfs of a run: the guest's, and after it a second archive with the payload, which the
# kernel unpacks over it, and the files of the directory guest_files, if that is set, at the paths
# that they have in it. crates/weir/tests/weir/truth makes its guest with this too.
guest_image() {
    local root=$guest_dir/payload file
    rm -rf "$root" && mkdir -p "$root" && cp -rL "$1" "$root/payload" || return
    [[ -z ${guest_files-} ]] || cp -a "$guest_files/." "$root" || return
    while IFS= read -r -d '' file; do
        guest_copy_libraries "$root" "$file" || return
        strip "$file" 2>/dev/null || true # not a program; the debug information is the largest part
    done < <(find "$root/payload" -type f -perm -u+x -print0)
    cat "$guest_dir/initramfs.gz" && guest_archive "$root" | gzip -n -1 && rm -rf "$root"
}

# guest_receiver NETDEV SECONDS: the command of a guest that drops whatever comes from NETDEV, as the
# array guest_receiver. NETDEV is QEMU's, with the id n0; for a tap, which must be there already:
# tap,id=n0,ifname=TAP,script=no,downscript=no,vhost=off
guest_receiver() {
    guest_receiver=(
        "${guest_qemu[@]}" -smp 1 -m 256
        -kernel "$guest_dir/vmlinuz" -initrd "$guest_dir/initramfs.gz"
        -append "console=$guest_console $guest_append weir.receive=1 weir.seconds=$2"
        -netdev "$1" -device "virtio-net-pci,netdev=n0,romfile=,$guest_offloads"
    )
}

# With these the driver refuses native XDP.
guest_offloads=csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off

# The parts of the output of a count: its progress as it comes, its table, its JSON.
guest_count_progress() { sed -nuE 's/^weir: ([0-9]+ of [0-9]+: .*)$/   \1/p'; }
guest_count_table() { sed -nE '/^table /s///p' "$1"; }
guest_count_json() { sed -nE '/^json /s///p' "$1"; }

# The results of a guest's script, `ok ID`, `not ok ID` and `ok ID # SKIP REASON`, in the words of
# Rust's test programs.
guest_results() {
    tr -d '\r' <"$1" | awk '
        /^ok / && / # SKIP/ { id = $2; sub(/.* # SKIP */, ""); print "test", id, "... ignored,", $0; ignored++; next }
        /^ok / { print "test", $2, "... ok"; ok++ }
        /^not ok / { print "test", $3, "... FAILED"; bad++ }
        END { printf "test result: %d passed; %d failed; %d ignored;\n", ok, bad, ignored }'
}
