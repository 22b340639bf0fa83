#!/bin/bash
# In the place of src/valkey-server for Valkey's own tests: the state lies in the `dir` of the server's configuration.
# A server that hangs must not keep the files and sockets of the tests open.
for fd in /proc/self/fd/*; do
    fd=${fd##*/}
    if [ "$fd" -gt 2 ]; then eval "exec $fd>&-"; fi
done
case " $* " in *' --sentinel '*) MANGROVE_SUITE_DURABLE= ;; esac
if [ -n "$MANGROVE_SUITE_DURABLE" ] && [ -f "$1" ]; then
    dir=$(awk '$1 == "dir" { gsub("\"", "", $2); dir = $2 } END { print dir }' "$1")
    if [ -n "$dir" ]; then
        [ -z "$MANGROVE_SUITE_EMPTY" ] || rm -rf "$dir/mangrove"
        export MANGROVE_REDIS_STATE="$dir/mangrove"
    fi
fi
exec "$MANGROVE_SUITE_SERVER" "$@"
