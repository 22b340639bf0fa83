#!/bin/bash
# Removes what `make install` installed: the command, what shells and man(1) read of it, the libraries and headers.
# Directories that others use too stay, and so do all pools, and the builds of the server, since a state opens only with
# the build that made it.
# Usage: [DESTDIR=STAGE] scripts/uninstall.sh PREFIX
set -euo pipefail

prefix=${1:?"usage: [DESTDIR=STAGE] scripts/uninstall.sh PREFIX"}
. "$(dirname "$0")/place.sh"
from=$to
shopt -s nullglob

rm -f "$from"/bin/mangrove "$from"/bin/mangrove-redis
rm -f "$from"/share/bash-completion/completions/mangrove
rm -f "$from"/share/zsh/site-functions/_mangrove
rm -f "$from"/share/fish/vendor_completions.d/mangrove.fish
rm -f "$from"/share/man/man1/mangrove.1 "$from"/share/man/man1/mangrove-*.1
for name in mangrove mangrove_app mangrove_leveldb; do
    rm -f "$from/lib/lib$name.a" "$from/lib/lib$name.so" "$from/lib/lib$name.so".*
    rm -f "$from/lib/pkgconfig/$name.pc" "$from/include/$name.h"
done
rm -f "$from"/include/mangrove_heap.hpp
# These directories hold nothing of anybody else's.
rm -rf "$from"/lib/mangrove_leveldb "$from"/include/mangrove_leveldb

echo "removed mangrove from $from"
server=$from/lib/mangrove-redis
# What a killed install has left.
rm -rf "$server"/builds/.*.new "$server"/builds/.*.old
builds=("$server"/builds/*/)
if [ ${#builds[@]} -eq 0 ]; then
    rm -rf "$server"
else
    echo "the server's builds in $server stay, since each state opens only with the build that made it;" \
        "to remove them: rm -rf $(printf %q "$server")"
fi
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" -eq 0 ]; then
    PATH=$PATH:/sbin:/usr/sbin ldconfig || true
fi
