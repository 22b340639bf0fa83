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
    # Some tests run two servers in one directory, for its ACL file.
    port=$(awk '$1 == "port" { port = $2 } END { print port }' "$1")
    if [ -n "$dir" ]; then
        # Absolute: DEBUG RESTART starts it again in another directory.
        export MANGROVE_REDIS_STATE="$(realpath -m "$dir")/mangrove-$port"
        [ -z "$MANGROVE_SUITE_EMPTY" ] || rm -rf "$MANGROVE_REDIS_STATE"
    fi
fi
exec "$MANGROVE_SUITE_SERVER" "$@"
