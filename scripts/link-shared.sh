#!/usr/bin/env bash
# Links a shared library from a static one of Rust's, with versions of its symbols:
#
#   link-shared.sh STATICLIB SONAME VERSION_SCRIPT OUTPUT
#
# Only the symbols of the version script are exported; one that the static library lacks is an error.
set -euo pipefail
(($# == 4)) || {
    echo "usage: link-shared.sh STATICLIB SONAME VERSION_SCRIPT OUTPUT" >&2
    exit 2
}
static=$1 soname=$2 script=$3 output=$4
exec "${CC:-cc}" -shared -o "$output" "-Wl,-soname,$soname" "-Wl,--version-script,$script" \
    -Wl,--no-undefined-version -Wl,--gc-sections -Wl,-z,defs -Wl,-z,relro -Wl,-z,now \
    -Wl,--whole-archive "$static" -Wl,--no-whole-archive -lgcc_s -lm -lpthread -ldl
