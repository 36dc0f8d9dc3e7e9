#!/bin/sh
# Installs sidle from this directory, without a package manager.
#
#   ./install.sh               to /usr (units, man pages, completions, program)
#   ./install.sh --uninstall   removes the files that it installed. It stops no agent, and keeps releases, state and settings
#
#   PREFIX=/usr/local   instead of /usr      DESTDIR=DIR   below DIR, for those who make packages
#
# The units name PREFIX/bin/sidle. Running supervisors execute the new program; their agents keep running.
set -eu
umask 022
here=$(cd "$(dirname "$0")" && pwd)
prefix=${PREFIX:-/usr}
dest=${DESTDIR:-}
case $prefix in /*) ;; *) echo "install.sh: PREFIX is no absolute path: $prefix" >&2; exit 2 ;; esac
list=$dest$prefix/lib/sidle/installed
# fapolicyd's own list of this program; those of releases are sidle's.
trusted=$dest/etc/fapolicyd/trust.d/sidle
reload_trust() { [ -n "$dest" ] || ! command -v fapolicyd-cli >/dev/null || fapolicyd-cli --update >/dev/null 2>&1 || :; }

uninstall() {
    if [ ! -f "$list" ]; then
        echo "install.sh: nothing to uninstall: there is no $list" >&2
        exit 1
    fi
    [ -n "$dest" ] || sh "$here/preremove" remove
    while IFS= read -r file; do
        case $file in "$prefix"/*) rm -f "$dest$file" ;; esac
    done <"$list"
    rm -f "$list"
    if [ -f "$trusted" ]; then rm -f "$trusted" && reload_trust; fi
    rmdir "$dest$prefix/lib/sidle/conf.d" "$dest$prefix/lib/sidle" "$dest$prefix/share/doc/sidle/examples" "$dest$prefix/share/doc/sidle" 2>/dev/null || :
    [ -n "$dest" ] || sh "$here/postremove"
}

case ${1:-} in
    '') ;;
    --uninstall) uninstall; exit 0 ;;
    *) echo 'usage: install.sh [--uninstall]' >&2; exit 2 ;;
esac
if [ -z "$dest" ] && [ "$(id -u)" -ne 0 ]; then
    echo "install.sh: installing to $prefix needs root; DESTDIR=DIR installs below DIR" >&2
    exit 1
fi
mkdir -p "$dest$prefix/lib/sidle/conf.d" "$dest/etc/sidle/conf.d"
: >"$list.new"
(cd "$here/usr" && find . -type f | LC_ALL=C sort) | while IFS= read -r file; do
    file=${file#./}
    mkdir -p "$dest$prefix/$(dirname "$file")"
    # Beside it, then renamed: a running program keeps its file.
    case $file in
        lib/systemd/system/*) sed "s|/usr/bin/sidle|$prefix/bin/sidle|" "$here/usr/$file" >"$dest$prefix/$file.new" ;;
        *) cp "$here/usr/$file" "$dest$prefix/$file.new" ;;
    esac
    case $file in bin/*) chmod 0755 "$dest$prefix/$file.new" ;; *) chmod 0644 "$dest$prefix/$file.new" ;; esac
    printf '%s\n' "$prefix/$file" >>"$list.new"
done
# On the disk before they get their names: a power cut must not leave an empty program.
sync
while IFS= read -r file; do
    mv -f "$dest$file.new" "$dest$file"
done <"$list.new"
mv -f "$list.new" "$list"
sync
if [ -d "${trusted%/*}" ]; then
    printf '%s %s %s\n' "$prefix/bin/sidle" "$(wc -c <"$here/usr/bin/sidle" | tr -d ' ')" "$(sha256sum "$here/usr/bin/sidle" | cut -d ' ' -f 1)" >"$trusted.new"
    mv -f "$trusted.new" "$trusted"
    reload_trust
fi
[ -n "$dest" ] || sh "$here/postinstall"
echo "sidle is installed to $dest$prefix/bin/sidle; next: \`man sidle\`, or docs/hosts.md"
