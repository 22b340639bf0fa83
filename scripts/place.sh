# Sourced by the scripts that install and remove: makes `prefix` absolute, and sets `to`, the directory where its files
# lie now: below DESTDIR, if that is set. What is installed all users can read, whatever the umask of the one who does it.

umask 022

# absolute PATH. A ~ that a shell has not replaced (dash does not in `make PREFIX=~/here`) is the home directory.
absolute() {
    case $1 in
    /*) printf '%s\n' "$1" ;;
    '~' | '~/'*) printf '%s\n' "$HOME${1#'~'}" ;;
    *) printf '%s\n' "$PWD/$1" ;;
    esac
}

prefix=$(absolute "$prefix")
to=${DESTDIR:+$(absolute "$DESTDIR")}$prefix
