#!/usr/bin/env bash
# Builds what is installed, in build/install and without tests, and installs it below PREFIX (default /usr/local); or removes
# what that has installed.
# usage: [PREFIX=DIR] [DESTDIR=DIR] scripts/install.sh [--uninstall]
set -euo pipefail
cd "$(dirname "$0")/.."

build=build/install
log=$build/meson-logs/install-log.txt
prefix_file=$build/installed-prefix
prefix=${PREFIX:-/usr/local}

die() {
    echo "install: $1" >&2
    exit "${2:-1}"
}

# The linker's cache is the machine's: not for another root, and not without the right to write it.
update_linker_cache() {
    [ -z "${DESTDIR:-}" ] || return 0
    case "$prefix" in
    /usr | /usr/local)
        if [ "$(id -u)" -eq 0 ]; then
            ldconfig
        else
            echo "install: run ldconfig as root, so that programs find libmillrace"
        fi
        ;;
    esac
}

# Other prefixes than the system's are not looked into: says what to set.
tell_paths() {
    case "$prefix" in /usr | /usr/local) return 0 ;; esac
    local library python
    library=$(dirname "$(grep -m 1 '/libmillrace\.so$' "$log")")
    echo "install: programs of yours need LD_LIBRARY_PATH=${library#"${DESTDIR:-}"}, pkg-config" \
        "PKG_CONFIG_PATH=${library#"${DESTDIR:-}"}/pkgconfig"
    python=$(grep -m 1 '/millrace/__init__\.py$' "$log") || return 0
    python=$(dirname "$(dirname "$python")")
    echo "install: Python needs PYTHONPATH=${python#"${DESTDIR:-}"} as well"
}

install_all() {
    case "$prefix" in /*) ;; *) die "PREFIX must begin with a slash, not '$prefix'" 2 ;; esac
    scripts/setup.sh build
    local options=(--buildtype=release --prefix="$prefix" -Dtests=disabled)
    scripts/configure.sh --update "$build" "${options[@]}"
    ninja -C "$build"
    meson install -C "$build" --no-rebuild --quiet
    echo "${DESTDIR:-}$prefix" >"$prefix_file"
    update_linker_cache
    echo "install: $(grep -vc '^#' "$log") files and folders below ${DESTDIR:-}$prefix; scripts/install.sh --uninstall removes them"
    tell_paths
}

# The last make install has written which prefix it was for; another one's files are not known here.
check_prefix() {
    local installed
    installed=$(cat "$prefix_file" 2>/dev/null) || return 0
    [ "$installed" = "${DESTDIR:-}$prefix" ] ||
        die "the last make install went to $installed, not to ${DESTDIR:-}$prefix: nothing was removed. Give the same PREFIX and DESTDIR, or install there again first" 2
}

uninstall() {
    [ -f "$log" ] || die "nothing is known of an installation: $log is missing. make install with the same PREFIX writes it"
    check_prefix
    local path folders=()
    mapfile -t installed < <(grep -v '^#' "$log")
    for path in "${installed[@]}"; do
        # Python keeps what it compiled beside its sources.
        case "$path" in */millrace/__init__.py) rm -rf "$(dirname "$path")/__pycache__" ;; esac
        if [ -d "$path" ] && [ ! -L "$path" ]; then
            folders+=("$path")
        else
            rm -f "$path"
        fi
        case "$(dirname "$path")" in */millrace | */millrace/*) folders+=("$(dirname "$path")") ;; esac
    done
    printf '%s\n' "${folders[@]}" | sort -ru | while read -r path; do
        rmdir --ignore-fail-on-non-empty "$path" 2>/dev/null || true
    done
    rm -f "$log" "$prefix_file"
    update_linker_cache
    echo "install: removed what was below ${DESTDIR:-}$prefix"
}

case "${1:-}" in
"") install_all ;;
--uninstall) uninstall ;;
-h | --help) sed -n '2,4s/^# //p' "$0" ;;
*) die "unknown option '$1'; see --help" 2 ;;
esac
