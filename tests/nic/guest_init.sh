#!/bin/bash
# The guest's init: a minimal system on the host's files, which are read-only, and a shell on the second serial port. Each line there
# is a command in base64; the answer is a line with its output in base64 and one with its exit status.
# usage: guest_init.sh, as process 1, with the kernel's modules below $MODULES
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/shm /dev/pts /dev/hugepages /run/tmp
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
mount -t hugetlbfs hugetlbfs /dev/hugepages
ip link set lo up
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
echo up >&3
while IFS= read -r line <&3; do
    base64 -d <<<"$line" >/run/command
    bash /run/command >/run/output 2>&1 </dev/null 3>&-
    result=$?
    base64 -w 0 /run/output >&3
    printf '\n%s\n' "$result" >&3
done
