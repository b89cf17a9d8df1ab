#!/usr/bin/env bash
# Runs a command on another release of Debian: in a root of that release, with a copy of this work tree in it.
# usage: scripts/on-debian.sh [--fresh] [--mirror URI] [--root NAME | --arch ARCH] RELEASE COMMAND [ARGUMENT...]
#        scripts/on-debian.sh [--root NAME | --arch ARCH] --paths RELEASE   prints where the root and this tree's copy are, a line each
#   RELEASE        12, 13 or sid (or their names)
#   COMMAND        runs as root in the top folder of the copy, with an environment that has only PATH, HOME, TERM and what
#                  the package registries need (proxies, certificates, pip's settings): env NAME=VALUE COMMAND sets more
#   --fresh        makes the root and the copy anew
#   --mirror URI   Debian's mirror, instead of the one in this machine's apt sources
#   --root NAME    in a root of this name beside the release's own, for packages that would be in the way there
#   --arch ARCH    in a root of another architecture, such as arm64, whose programs the kernel can start (binfmt_misc)
#
#   scripts/on-debian.sh 13 scripts/demo.sh
#   scripts/on-debian.sh 13 env NODES=3 scripts/demo.sh
#   scripts/on-debian.sh sid sh -c 'scripts/setup.sh build && meson setup build && ninja -C build'
#
# The copy has all files that git knows or would add, as they are now. Its build directories are its own and are kept, so
# that the next command builds only what has changed. Root, copies and their /tmp are in ${XDG_CACHE_HOME:-/var/cache}/millrace/debian,
# some 5 GB for each release once the packages of the tests are installed; they may be deleted at any time.
#
# The command shares this machine's network and kernel. Mounts, /tmp, /run and /dev/shm are its own. Needs root.
set -euo pipefail

usage() { sed -n '2,21s/^# \{0,1\}//p' "$0"; }
say() { echo "on-debian: $*" >&2; }
die() {
    say "$*"
    exit 1
}

# enter ROOT PLACE COMMAND...: in a mount namespace of its own, makes ROOT the root and runs the command there.
enter() {
    local root=$1 place=$2
    shift 2
    mount --bind "$root" "$root"
    mount --rbind /proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    mount -t tmpfs -o mode=755 tmpfs "$root/run"
    mount --bind "$place/tmp" "$root/tmp"
    mount --bind "$place/tree" "$root/millrace"
    cd "$root"
    # Not chroot alone: the kernel makes no user namespaces for a process in one.
    pivot_root . mnt
    # shellcheck disable=SC2016 # the inner shell expands its arguments
    exec /bin/sh -c 'umount -l /mnt && cd /millrace && exec "$@"' sh "$@"
}
if [ "${1:-}" = --enter ]; then
    shift
    enter "$@"
fi

fresh=0 paths=0 mirror='' variant='' arch=''
while [ $# -gt 0 ]; do
    case "$1" in
    -h | --help) usage; exit 0 ;;
    --fresh) fresh=1 ;;
    --paths) paths=1 ;;
    --root)
        [[ "${2:-}" =~ ^[a-z0-9]+$ ]] || die "--root needs a name of small letters and digits"
        variant=-$2
        shift
        ;;
    --arch)
        [[ "${2:-}" =~ ^[a-z0-9]+$ ]] || die "--arch needs one of Debian's architectures, such as arm64"
        arch=$2 variant=-of-$2
        shift
        ;;
    --mirror) [ $# -ge 2 ] || die "--mirror needs a URI"; mirror=$2; shift ;;
    -*) say "unknown option '$1'; see --help"; exit 2 ;;
    *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || { usage >&2; exit 2; }
case "$1" in
12 | bookworm) codename=bookworm ;;
13 | trixie) codename=trixie ;;
sid | unstable) codename=sid ;;
*) say "unknown release '$1': 12, 13 or sid"; exit 2 ;;
esac
shift
[ $# -gt 0 ] || [ "$paths" -eq 1 ] || { say "which command is to run on $codename? See --help"; exit 2; }
[ "$(id -u)" -eq 0 ] || die "needs root for mounts: run it as root, or through sudo"

script=$(realpath "$0")
tree=$(dirname "$(dirname "$script")")
cd "$tree"
readonly script tree codename
cache=${XDG_CACHE_HOME:-/var/cache}/millrace/debian/$codename$variant
# Work trees have copies of their own, which share the root.
place=$cache/copies/$(basename "$tree")-$(cksum <<<"$tree" | cut -d ' ' -f 1)
readonly cache place root=$cache/root
if [ "$paths" -eq 1 ]; then
    printf '%s\n' "$root" "$place/tree"
    exit 0
fi

# git may refuse a tree of another user, as with sudo.
git() { command git -c safe.directory='*' "$@"; }
command -v git >/dev/null || die "needs git to copy the tree: apt-get install git"
git rev-parse --git-dir >/dev/null 2>&1 || die "$tree is not a git work tree: its files cannot be told from what was built"

# Debian's part of this machine's apt sources, one "URI RELEASE" a line.
sources() {
    # shellcheck disable=SC2016 # these are apt's variables
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Origin: Debian' | sort -u
}

# The mirrors of Debian and of its security updates, as apt has them for this machine's release.
find_mirrors() {
    local known
    known=$(sources)
    if [ -z "$known" ]; then
        apt-get update >/dev/null 2>&1 || true
        known=$(sources)
    fi
    [ -n "$mirror" ] || mirror=$(awk '$2 !~ /-/ { print $1; exit }' <<<"$known")
    [ -n "$mirror" ] || die "apt knows no mirror of Debian here: name one with --mirror"
    security=$(awk '$2 ~ /-security$/ { print $1; exit }' <<<"$known")
}

# A sum of the root's own certificates, of which there may be none.
sum_certificates() { cat "$root"/usr/local/share/ca-certificates/*.crt 2>/dev/null | sha256sum || true; }

# How apt, pip and programs with certificates reach their registries: as on this machine, now.
take_settings() {
    local file known
    known=$(sum_certificates)
    apt-config dump | grep -E '^Acquire::(Check-|ftp|http|https|Retries)' >"$root/etc/apt/apt.conf.d/90machine" || true
    for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/apt/auth.conf.d/*.conf /usr/local/share/ca-certificates/*.crt \
        "${HOME:-/root}"/.config/pip/pip.conf "${HOME:-/root}"/.m2/settings.xml; do
        [ -f "$file" ] || continue
        case "$file" in
        "${HOME:-/root}"/*) install -D -m 600 "$file" "$root/root/${file#"${HOME:-/root}"/}" ;;
        *) install -D -m 644 "$file" "$root$file" ;;
        esac
    done
    if [ "$known" != "$(sum_certificates)" ] || [ ! -f "$root.complete" ]; then
        chroot "$root" update-ca-certificates >>"$cache/root.log" 2>&1 || die "update-ca-certificates failed; see $cache/root.log"
    fi
}

make_root() {
    local log=$cache/root.log
    [ ! -f "$root.complete" ] || { take_settings; return 0; }
    command -v debootstrap >/dev/null || "$tree/scripts/setup.sh" roots
    [ -e "/usr/share/debootstrap/scripts/$codename" ] || die "this debootstrap does not know $codename: a newer one is needed"
    find_mirrors
    say "making a root of Debian $codename, once"
    rm -rf --one-file-system "$root"
    if ! debootstrap ${arch:+--arch="$arch"} --variant=minbase --include=ca-certificates "$codename" "$root" "$mirror" >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        die "debootstrap failed: is $mirror reached from here, and does it have $codename? All of its output is in $log"
    fi
    echo "deb $mirror $codename main" >"$root/etc/apt/sources.list"
    if [ "$codename" != sid ]; then
        echo "deb $mirror $codename-updates main"
        [ -z "$security" ] || echo "deb $security $codename-security main"
    fi >>"$root/etc/apt/sources.list"
    # Commands of two work trees may install at the same time. What crashes here is made anew, so dpkg need not sync.
    printf '%s\n' 'DPkg::Lock::Timeout "900";' 'APT::Keep-Downloaded-Packages "false";' >"$root/etc/apt/apt.conf.d/91root"
    echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/root"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    mkdir -p "$root/millrace"
    take_settings
    touch "$root.complete"
}

# Brings the copy to what the work tree is now. git writes the files that differ and no other, so that ninja builds no more than that.
copy_tree() {
    local index commit
    mkdir -p "$place/tree" "$place/tmp"
    chmod 1777 "$place/tmp"
    find "$place/tmp" -mindepth 1 -maxdepth 1 -exec rm -rf --one-file-system {} +
    [ -e "$place/tree/.git" ] || git init -q "$place/tree"
    index=$(mktemp)
    cp "$(git rev-parse --git-path index)" "$index"
    GIT_INDEX_FILE=$index git add -A
    commit=$(GIT_INDEX_FILE=$index git write-tree)
    rm -f "$index"
    commit=$(GIT_AUTHOR_NAME=millrace GIT_AUTHOR_EMAIL=millrace GIT_COMMITTER_NAME=millrace GIT_COMMITTER_EMAIL=millrace \
        git commit-tree -m "the work tree" "$commit")
    git push -q --force "$place/tree" "$commit:refs/heads/copied"
    git -C "$place/tree" checkout -q --force --detach "$commit"
    git -C "$place/tree" clean -fdq
}

mkdir -p "$cache/copies"
exec 8>"$cache/root.lock" 9>"$place.lock"
flock --nonblock 9 || { say "waits for another command on the copy of this tree"; flock 9; }
if [ "$fresh" -eq 1 ]; then
    flock 8
    rm -f "$root.complete"
    rm -rf --one-file-system "$root" "$place"
fi
flock 8
make_root
flock --unlock 8
copy_tree

environment=(PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "TERM=${TERM:-dumb}")
while IFS= read -r name; do
    case "$name" in
    *_proxy | *_PROXY | PIP_* | SSL_CERT_FILE | SSL_CERT_DIR | REQUESTS_CA_BUNDLE | CURL_CA_BUNDLE | NODE_EXTRA_CA_CERTS | MAVEN_OPTS)
        environment+=("$name=${!name}")
        ;;
    esac
done < <(compgen -e)
# Mounts are made where nobody else sees them, and end with the command.
unshare --mount --propagation private -- "$script" --enter "$root" "$place" env -i "${environment[@]}" "$@" 8>&- 9>&-
