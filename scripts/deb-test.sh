#!/usr/bin/env bash
# Installs the packages of build/deb in a fresh root of this Debian's, uses them there, removes them, and looks for what is left.
# Needs root, and Debian's mirror as apt knows it. The root is made below TMPDIR, and gone afterwards.
# usage: scripts/deb-test.sh
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
"" | --inside) ;;
-h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
*) echo "deb-test: unknown option '$1'; see --help" >&2; exit 2 ;;
esac

if [ "${1:-}" != --inside ]; then
    [ "$(id -u)" -eq 0 ] || { echo "deb-test: run this as root: sudo make deb-test" >&2; exit 1; }
    scripts/setup.sh deb
    # Mounts are made where nobody else sees them, and end with the script.
    exec unshare --mount --propagation private "$0" --inside
fi

readonly packages=(libmillrace0.4 libmillrace-dev libmillrace-tde millrace-doc millrace-server millrace-tools python3-millrace)
readonly server_address=10.77.9.1
work=$(mktemp -d)
root=$work/root
server_space=millrace-deb-server-$$ client_space=millrace-deb-client-$$
server=""
running=""

die() {
    echo "deb-test: $1" >&2
    exit 1
}

stop_server() {
    [ -n "$server" ] || return 0
    kill "$server" 2>/dev/null || true
    wait "$server" || true
    server=""
}

end() {
    local status=$?
    [ -z "$running" ] || kill -- "-$running" 2>/dev/null || true
    stop_server
    ip netns del "$server_space" 2>/dev/null || true
    ip netns del "$client_space" 2>/dev/null || true
    [ $status -eq 0 ] || { tail -n 20 "$work"/*.log >&2 || true; }
    umount "$root/sys" "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$work"
}
trap end EXIT
trap 'exit 1' INT TERM HUP

# step NAME FUNCTION: runs it to its first error; its output is shown then. (In the background, as bash ignores errors in what stands
# in a condition.)
step() {
    local log=$work/step.log
    echo "deb-test: $1"
    set -m # in a process group of its own, to be ended as a whole
    "$2" >"$log" 2>&1 </dev/null &
    set +m
    running=$!
    wait "$running" || die "$1 failed; the end of its output is below"
    running=""
    rm -f "$log"
}

inside() {
    chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        PYTHONDONTWRITEBYTECODE=1 "$@"
}

from_client() {
    ip netns exec "$client_space" chroot "$root" "$@"
}

# Debian's part of the machine's apt sources, one "URI RELEASE COMPONENT" a line.
sources() {
    # shellcheck disable=SC2016 # these are apt's variables
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' | sort -u
}

make_root() {
    local codename mirror
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    sources >"$work/sources"
    mirror=$(awk -v release="$codename" '$2 == release { print $1; exit }' "$work/sources")
    [ -n "$mirror" ] || { echo "apt knows no mirror of Debian $codename; apt-get update makes it look"; return 1; }
    debootstrap --variant=minbase "$codename" "$root" "$mirror"
    sed 's/^/deb /' "$work/sources" >"$root/etc/apt/sources.list"
    apt-config dump | grep -E '^Acquire::(Check-|http|https|Retries)' >"$root/etc/apt/apt.conf.d/99machine" || true
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    inside apt-get update
    inside apt-get install -y --no-install-recommends gcc libc6-dev man-db pkg-config
}

# What the packages depend on, but for each other: so that all that comes and goes afterwards is theirs.
install_dependencies() {
    local package depends
    mkdir "$root/tmp/debs"
    for package in "${packages[@]}"; do
        cp build/deb/"$package"_*.deb "$root/tmp/debs/"
    done
    depends=$(for package in "$root"/tmp/debs/*.deb; do
        dpkg-deb --field "$package" Depends
    done | tr ',' '\n' | sed 's/^ *//; /^$/d; /millrace/d' | sort -u | paste -s -d,)
    inside apt-get satisfy -y --no-install-recommends "$depends"
}

install_packages() {
    inside sh -c 'apt-get install -y --no-install-recommends /tmp/debs/*.deb'
}

# All files but the logs and caches of dpkg, apt and the linker.
files() {
    (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./tmp -o -path ./var/cache -o -path ./var/log \
        -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./run \) -prune -o -print) | sort
}

use_programs() {
    inside millraced --version
    inside millraced --check-config /etc/millrace/millraced.conf --set port.device=mr0
    inside millrace --help
    inside millrace-hub --version
    inside python3 -c 'import ctypes, glob; ctypes.CDLL(glob.glob("/usr/lib/*/millrace/libmillrace_tde.so")[0]).IO_Initialize'
    inside sh -c 'test -s /usr/lib/*/wireshark/plugins/millrace.lua'
    inside man -w millrace millrace-ctl millrace-ckpt millrace-top millrace-dev millrace-doctor millrace-bench millrace-hub millraced millraced.conf libmillrace
    [ "$(inside python3 -c 'import millrace; print(millrace.__version__)')" = "$(dpkg-parsechangelog -S Version)" ]
    [ ! -e "$root/etc/systemd/system/multi-user.target.wants/millraced.service" ]
}

build_program() {
    cat >"$root/tmp/cores.c" <<'END'
#include <millrace.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    struct mr_client_options options = {.server = argv[argc - 1]};
    struct mr_client *client;
    if (mr_client_create(&options, &client, NULL, 0) != MR_OK) return 1;
    printf("%u\n", mr_client_core_count(client));
    mr_client_destroy(client);
}
END
    # shellcheck disable=SC2016 # the shell in the root runs pkg-config
    inside sh -c 'gcc -Wall -Werror /tmp/cores.c -o /tmp/cores $(pkg-config --cflags --libs millrace)'
    # shellcheck disable=SC2016
    inside sh -c 'gcc -static -Wall -Werror /tmp/cores.c -o /tmp/cores-static $(pkg-config --cflags --libs --static millrace)'
}

start_server() {
    ip netns add "$server_space"
    ip netns add "$client_space"
    ip link add mr-deb0 netns "$server_space" type veth peer name mr-deb1 netns "$client_space"
    ip -n "$server_space" link set mr-deb0 up
    ip -n "$client_space" address add 10.77.9.2/24 dev mr-deb1
    ip -n "$client_space" link set mr-deb1 up
    ip netns exec "$server_space" chroot "$root" millraced --config /etc/millrace/millraced.conf \
        --set port.device=mr-deb0 --set port.ipv4=$server_address/24 --set cores.poll_mode=adaptive \
        --set memory.hugepages=never --set memory.packets_mib=128 --set memory.limit_mib=256 --set batches.memory_mib=64 \
        --set memory.messages_mib=64 --set transport.message_mib_max=16 \
        --set rpc.world_size=1 --set rpc.name=node --set rpc.module=layers.so >"$work/server.out" 2>"$work/server.log" &
    server=$!
    for _ in $(seq 300); do
        grep -q '^millraced: ready' "$work/server.out" && return 0
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

use_server() {
    from_client millrace ctl create table user --dim 16 --server $server_address
    from_client millrace ctl list --server $server_address | grep -w user
    from_client millrace ctl rpc --server $server_address | grep -w layers
    [ "$(from_client /tmp/cores $server_address)" = 1 ]
    [ "$(from_client /tmp/cores-static $server_address)" = 1 ]
}

remove_packages() {
    inside apt-get purge -y "${packages[@]}"
    # shellcheck disable=SC2016 # dpkg's variables
    if inside dpkg-query -W -f '${db:Status-Status} ${Package}\n' | grep millrace; then
        echo "these packages are left"
        return 1
    fi
}

for package in "${packages[@]}"; do
    compgen -G "build/deb/${package}_*.deb" >/dev/null || die "build/deb has no package $package; make deb makes it"
done
step "making a root" make_root
step "installing dependencies" install_dependencies
files >"$work/before"
step "installing" install_packages
files >"$work/installed"
[ "$(comm -13 "$work/before" "$work/installed" | grep -c millrace)" -gt 30 ] || die "the packages installed next to nothing"
step "using programs, man pages and Python" use_programs
step "building programs with pkg-config" build_program
start_server || die "the installed server did not start; its log is below"
step "using the server" use_server
stop_server
step "removing" remove_packages
files >"$work/after"
if ! comm -13 "$work/before" "$work/after" | tee "$work/left" | (! grep .); then
    die "the packages left the files above"
fi
echo "deb-test: ok, ${#packages[@]} packages installed, used and removed without a trace"
