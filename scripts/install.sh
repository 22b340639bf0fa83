#!/bin/bash
# Installs the C library, its header and its pkg-config file.
# Usage: [DESTDIR=STAGE] scripts/install.sh PREFIX [FOLDER-OF-BUILT-LIBRARIES]
# Without the folder it builds them first, optimised.
set -euo pipefail

prefix=${1:?"usage: [DESTDIR=STAGE] scripts/install.sh PREFIX [FOLDER-OF-BUILT-LIBRARIES]"}
built=${2:-}
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
to=${DESTDIR:-}$prefix
cd "$(dirname "$0")/.."

if [ -z "$built" ]; then
    ${CARGO:-cargo} build --release --package mangrove-capi
    built=${CARGO_TARGET_DIR:-target}/release
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
major=${version%%.*}

install -d "$to/lib/pkgconfig" "$to/include"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The shared library, and the two names that the dynamic and the static linker look for.
cp "$built/libmangrove_c.so" "$scratch/so"
strip --strip-unneeded "$scratch/so"
install -m 755 "$scratch/so" "$to/lib/libmangrove.so.$version"
ln -sf "libmangrove.so.$version" "$to/lib/libmangrove.so.$major"
ln -sf "libmangrove.so.$major" "$to/lib/libmangrove.so"

# The static library: one object that holds what the entry points reach, and in which only they can
# be seen from outside. As cargo makes it, it also holds all of Rust's standard library, with names
# that clash with those of any other Rust library in the same program.
entry_points=$(nm -D --defined-only "$built/libmangrove_c.so" | awk '{print $3}')
# shellcheck disable=SC2086 # one argument an entry point
ld -r --gc-sections $(printf -- '-u %s ' $entry_points) -o "$scratch/mangrove.o" "$built/libmangrove_c.a"
# .llvmbc: bitcode of the standard library, which trips `ar` where an LLVM plugin reads along.
objcopy --strip-debug -R .llvmbc -R .llvmcmd --wildcard --keep-global-symbol='mangrove_*' "$scratch/mangrove.o"
ar rcsD "$scratch/a" "$scratch/mangrove.o"
install -m 644 "$scratch/a" "$to/lib/libmangrove.a"

install -m 644 crates/capi/include/mangrove.h "$to/include/mangrove.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" crates/capi/mangrove.pc.in >"$scratch/pc"
install -m 644 "$scratch/pc" "$to/lib/pkgconfig/mangrove.pc"

echo "installed libmangrove $version in $to"
if [ -z "${DESTDIR:-}" ]; then
    # Where the dynamic linker looks by itself it wants to be told once.
    export PATH=$PATH:/sbin:/usr/sbin
    searched=$(ldconfig -v 2>/dev/null || true)
    if [ "$(id -u)" -eq 0 ] && [[ $searched == *"$prefix/lib:"* ]]; then
        ldconfig
    elif [ "$prefix" != /usr ] && [ "$prefix" != /usr/local ]; then
        echo "to use it: export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib"
    fi
fi
