#!/usr/bin/env bash
# install-clib.sh STATICLIB PREFIX: installs the library for C, of which cargo made the static one. Below the prefix:
# include/weir/xsk.h with xsk_inline.h, lib/libweir-xsk.a, lib/libweir-xsk.so.0 with the link that linkers look for, and
# lib/pkgconfig/weir-xsk.pc.
set -euo pipefail

if (($# != 2)); then
    echo "usage: install-clib.sh STATICLIB PREFIX" >&2
    exit 2
fi
staticlib=$1 prefix=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
sources=$root/crates/xsk-c soname=libweir-xsk.so.0
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Debugging information is a third of the archive.
objcopy --strip-debug "$staticlib" "$work/libweir-xsk.a"
"$root/scripts/link-shared.sh" "$work/libweir-xsk.a" "$soname" "$sources/weir-xsk.map" "$work/$soname"
# The compiler adds the library of its unwinder: the shared one, or with -static the archive.
cat >"$work/weir-xsk.pc" <<END
prefix=$prefix
includedir=\${prefix}/include
libdir=\${prefix}/lib

Name: weir-xsk
Description: AF_XDP sockets whose misuse is an error
Version: $version
Cflags: -I\${includedir}
Libs: -L\${libdir} -lweir-xsk
Libs.private: -lutil -lrt -lpthread -lm -ldl
END

for header in xsk.h xsk_inline.h; do
    install -D -m 644 "$sources/include/weir/$header" "$prefix/include/weir/$header"
done
install -D -m 644 "$work/libweir-xsk.a" "$prefix/lib/libweir-xsk.a"
install -D -m 755 "$work/$soname" "$prefix/lib/$soname"
ln -sf "$soname" "$prefix/lib/libweir-xsk.so"
install -D -m 644 "$work/weir-xsk.pc" "$prefix/lib/pkgconfig/weir-xsk.pc"
