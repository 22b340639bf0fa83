# Sourced by what runs cargo: puts the cargo that scripts/setup installs first in PATH.

# Services and some containers have no HOME. Cargo and rustup then take the home directory of the list of users.
if [ -z "${HOME:-}" ]; then
    HOME=$(getent passwd "$(id -u)" | cut -d: -f6) || true
    export HOME
fi
cargo_bin=${CARGO_HOME:-$HOME/.cargo}/bin
export PATH=$cargo_bin:$PATH
