#!/bin/bash
# Installs the C libraries, their headers and their pkg-config files: mangrove (the map, and the heap for C and C++),
# mangrove_app (durable applications) and mangrove_leveldb (LevelDB's C API, and its C++ classes where there is a C++
# compiler).
# Usage: [DESTDIR=STAGE] scripts/install.sh PREFIX [DIRECTORY-OF-BUILT-LIBRARIES]
# Without the directory it builds them first, optimised; with it, it installs those that are there.
set -euo pipefail

prefix=${1:?"usage: [DESTDIR=STAGE] scripts/install.sh PREFIX [DIRECTORY-OF-BUILT-LIBRARIES]"}
built=${2:-}
. "$(dirname "$0")/place.sh"
cd "$(dirname "$0")/.."

if [ -z "$built" ]; then
    ${CARGO:-cargo} build --release --package mangrove-capi --package mangrove-app --package mangrove-leveldb
    built=${CARGO_TARGET_DIR:-target}/release
fi
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
major=${version%%.*}
# As pkg-config reads it, in the replacement text of sed.
prefix_read=$(printf '%s\n' "${prefix// /\\ }" | sed 's/[\\&|]/\\&/g')

install -d "$to/lib/pkgconfig" "$to/include"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# install_one BUILT-NAME NAME CRATE EXPORTED...: one library. EXPORTED are patterns of the names that others see.
install_one() {
    local from=$built/lib$1 name=$2 crate=$3 entry_points
    shift 3

    # The shared library, and the two names that the dynamic and the static linker look for.
    cp "$from.so" "$scratch/so"
    strip --strip-unneeded "$scratch/so"
    install -m 755 "$scratch/so" "$to/lib/lib$name.so.$version"
    ln -sf "lib$name.so.$version" "$to/lib/lib$name.so.$major"
    ln -sf "lib$name.so.$major" "$to/lib/lib$name.so"

    # The static library: one object that holds what the entry points reach, and in which only they can
    # be seen from outside. As cargo makes it, it also holds all of Rust's standard library, with names
    # that clash with those of any other Rust library in the same program.
    entry_points=$(nm -D --defined-only "$from.so" | awk '{print $3}')
    # shellcheck disable=SC2086 # one argument an entry point
    ld -r --gc-sections $(printf -- '-u %s ' $entry_points) -o "$scratch/one.o" "$from.a"
    # .llvmbc: bitcode of the standard library, which trips `ar` where an LLVM plugin reads along.
    objcopy --strip-debug -R .llvmbc -R .llvmcmd --wildcard \
        $(printf -- '--keep-global-symbol=%s ' "$@") "$scratch/one.o"
    rm -f "$scratch/a"
    ar rcsD "$scratch/a" "$scratch/one.o"
    install -m 644 "$scratch/a" "$to/lib/lib$name.a"

    if [ -e "crates/$crate/include/$name.h" ]; then
        install -m 644 "crates/$crate/include/$name.h" "$to/include/$name.h"
    fi
    # The C++ wrapper of the heap belongs to mangrove.h.
    if [ "$name" = mangrove ]; then
        install -m 644 "crates/$crate/include/mangrove_heap.hpp" "$to/include/mangrove_heap.hpp"
    fi
    sed -e "s|@PREFIX@|$prefix_read|" -e "s|@VERSION@|$version|" "crates/$crate/$name.pc.in" >"$scratch/pc"
    install -m 644 "$scratch/pc" "$to/lib/pkgconfig/$name.pc"
}

# The names that programs built with LevelDB ask the dynamic linker for, in directories of their own: with the one first
# in LD_LIBRARY_PATH they run with Mangrove, and LevelDB's own library and headers stay visible to all others.
install_leveldbs_names() {
    local names=$to/lib/mangrove_leveldb headers=$to/include/mangrove_leveldb/leveldb cpp=crates/leveldb/cpp
    install -d "$names" "$headers/helpers"
    install -m 644 $cpp/include/leveldb/*.h "$headers"
    install -m 644 $cpp/include/leveldb/helpers/*.h "$headers/helpers"
    rm -f "$names"/libleveldb.so*
    if command -v "${CXX:-c++}" >/dev/null && command -v make >/dev/null; then
        # Under a name without spaces, which would be two names to make.
        ln -s "$(readlink -f "$built/libmangrove_leveldb.a")" "$scratch/libmangrove_leveldb.a"
        make -s -C $cpp -j2 LIBRARY="$scratch/libmangrove_leveldb.a" OUT="$scratch/classes"
        strip --strip-unneeded "$scratch/classes/libleveldb.so.1d"
        install -m 755 "$scratch/classes/libleveldb.so.1d" "$names/libleveldb.so.1d"
    else
        echo "there is no C++ compiler (or no make): LevelDB's C++ classes are left out, its C API is installed"
        ln -sf "../libmangrove_leveldb.so.$major" "$names/libleveldb.so.1d"
    fi
    for name in libleveldb.so.1 libleveldb.so; do ln -sf libleveldb.so.1d "$names/$name"; done
}

set -f # the patterns are the linker's, not the shell's
if [ -e "$built/libmangrove_c.so" ]; then
    install_one mangrove_c mangrove capi 'mangrove_*'
fi
if [ -e "$built/libmangrove_app.so" ]; then
    install_one mangrove_app mangrove_app app 'mangrove_app_*' \
        malloc calloc realloc reallocarray free free_sized free_aligned_sized memalign aligned_alloc posix_memalign valloc pvalloc malloc_usable_size malloc_trim dlclose fork pthread_key_create pthread_key_delete \
        mangrove_tracker_thread mangrove_tracker_store
fi
if [ -e "$built/libmangrove_leveldb.so" ]; then
    install_one mangrove_leveldb mangrove_leveldb leveldb 'leveldb_*'
fi
set +f
if [ -e "$built/libmangrove_leveldb.so" ]; then
    install_leveldbs_names
fi

echo "installed libmangrove $version in $to"
if [ -z "${DESTDIR:-}" ]; then
    # Where the dynamic linker looks by itself it wants to be told once.
    export PATH=$PATH:/sbin:/usr/sbin
    searched=$(ldconfig -v 2>/dev/null || true)
    if [ "$(id -u)" -eq 0 ] && [[ $searched == *"$prefix/lib:"* ]]; then
        ldconfig
    elif [ "$prefix" != /usr ] && [ "$prefix" != /usr/local ]; then
        printf 'to use it: export PKG_CONFIG_PATH=%q LD_LIBRARY_PATH=%q\n' "$prefix/lib/pkgconfig" "$prefix/lib"
    fi
fi
