#!/bin/bash
# The guest's init: a minimal system on files that are read-only, and a shell on the terminal that the kernel's command line names. Each
# line there is a command in base64; the answer is a line with its output in base64 and one with its exit status.
# usage: guest_init.sh, as process 1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/shm /dev/pts /dev/hugepages /run/tmp
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t hugetlbfs hugetlbfs /dev/hugepages
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose tree /millrace 2>/dev/null
[ ! -b /dev/vda ] || { mount /dev/vda /tmp && export TMPDIR=/tmp; } # a disk, which takes O_DIRECT
ip link set lo up
shell=/dev/$(sed -n 's/.*guest_shell=\([^ ]*\).*/\1/p' /proc/cmdline)
exec 3<>"$shell"
stty -F "$shell" raw -echo
echo up >&3
while IFS= read -r line <&3; do
    base64 -d <<<"$line" >/run/command
    bash /run/command >/run/output 2>&1 </dev/null 3>&-
    result=$?
    base64 -w 0 /run/output >&3
    printf '\n%s\n' "$result" >&3
done
