#!/bin/bash
# Copies builds of the durable server. A build's name is a hash of its content, so one that is there already stays as
# it is: a server that runs from it has its files mapped, and ends when they are written to.
# Usage: scripts/install-builds.sh FROM TO; both are directories with `builds` and `current`, like data/valkey.
set -euo pipefail

from=${1:?"usage: scripts/install-builds.sh FROM TO"}
to=${2:?"usage: scripts/install-builds.sh FROM TO"}

install -d "$to/builds"
# What a killed install has left.
rm -rf "$to"/builds/.*.new "$to"/builds/.*.old
for build in "$from"/builds/*/; do
    id=$(basename "$build")
    there=$to/builds/$id new=$to/builds/.$id.new
    # Installs of earlier versions, if they were killed, have left parts of builds.
    if diff -rq "$build" "$there" >/dev/null 2>&1; then
        continue
    fi
    # Not the owner, who built it, nor what his umask took from the others.
    cp -R --preserve=mode,timestamps,links "$build" "$new"
    chmod -R u+rwX,go+rX,go-w "$new"
    # Durable-order: the files before the name of the build. Otherwise a power cut could leave the name with less.
    find "$new" -exec sync {} +
    if [ -e "$there" ]; then
        mv -T "$there" "$to/builds/.$id.old"
    fi
    mv -T "$new" "$there"
    rm -rf "$to/builds/.$id.old"
done
sync "$to/builds"
ln -sfn "$(readlink "$from/current")" "$to/.current.new"
mv -T "$to/.current.new" "$to/current"
sync "$to"
