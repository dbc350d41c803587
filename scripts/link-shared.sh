#!/usr/bin/env bash
# link-shared.sh STATICLIB SONAME VERSION_SCRIPT OUTPUT: links a shared library from a static one of
# rustc's, whose own shared libraries have neither a soname nor versions of symbols. The symbols that
# the version script names are exported, and only those; one that the library lacks is an error.
set -euo pipefail

if (($# != 4)); then
    echo "usage: link-shared.sh STATICLIB SONAME VERSION_SCRIPT OUTPUT" >&2
    exit 2
fi
staticlib=$1 soname=$2 versions=$3 output=$4

# Of an archive, the linker takes the objects that something asks for.
mapfile -t symbols < <(sed -nE '/global:/,/local:/s/^[[:space:]]*([A-Za-z_][A-Za-z0-9_]*);.*$/\1/p' "$versions")
if ((${#symbols[@]} == 0)); then
    echo "error: $versions names no symbols: list each on a line of its own between global: and local:" >&2
    exit 1
fi

# Linked beside the output and then renamed, so that a program that runs keeps its library.
unfinished=$output.$$
trap 'rm -f "$unfinished"' EXIT
"${CC:-cc}" -shared -o "$unfinished" \
    -Wl,-soname,"$soname" -Wl,--version-script,"$versions" \
    "${symbols[@]/#/-Wl,--require-defined=}" \
    -Wl,--gc-sections -Wl,--as-needed -Wl,-z,defs -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack \
    "$staticlib" -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
mv "$unfinished" "$output"
