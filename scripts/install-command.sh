#!/bin/bash
# Installs the command, what shells and man(1) read of it, and the durable server, where `make redis` has built it.
# Usage: [DESTDIR=STAGE] scripts/install-command.sh PREFIX DIRECTORY-OF-BUILT-PROGRAMS
set -euo pipefail

prefix=${1:?"usage: [DESTDIR=STAGE] scripts/install-command.sh PREFIX DIRECTORY-OF-BUILT-PROGRAMS"}
built=${2:?"usage: [DESTDIR=STAGE] scripts/install-command.sh PREFIX DIRECTORY-OF-BUILT-PROGRAMS"}
. "$(dirname "$0")/place.sh"
cd "$(dirname "$0")/.."

install -d "$to/bin"
install -s -m 755 "$built/mangrove" "$to/bin/mangrove"
share=$to/share
install -d "$share"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d,man/man1}
"$built/mangrove" completions bash >"$share/bash-completion/completions/mangrove"
"$built/mangrove" completions zsh >"$share/zsh/site-functions/_mangrove"
"$built/mangrove" completions fish >"$share/fish/vendor_completions.d/mangrove.fish"
"$built/mangrove" man "$share/man/man1"
if [ -x data/valkey/current/valkey-server ] && [ -x "$built/mangrove-redis" ]; then
    install -m 755 "$built/mangrove-redis" "$to/bin/mangrove-redis"
    scripts/install-builds.sh data/valkey "$to/lib/mangrove-redis"
fi
echo "installed mangrove in $to"
