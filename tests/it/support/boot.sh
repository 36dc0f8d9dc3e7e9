# Becomes the first process of a booted root file system: the inside of new namespaces, as a container manager makes it.
# $1: the root, a mount point. $2: the identity of this boot.
set -eu
mount --make-rprivate /
cd "$1"
mount -t proc -o nosuid,nodev,noexec proc proc
mount -t sysfs -o nosuid,nodev,noexec,ro sysfs sys
mount -t tmpfs -o mode=755 tmpfs dev
for node in 'null 1 3' 'zero 1 5' 'full 1 7' 'random 1 8' 'urandom 1 9' 'tty 5 0'; do
    # shellcheck disable=SC2086 # name, major, minor
    set -- "$1" "$2" $node
    mknod -m 666 "dev/$3" c "$4" "$5"
done
mkdir dev/pts dev/shm
: >dev/console
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
# With cgroup v2 alone, whatever this host has: it is what all four suites know.
mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
# The kernel is not started anew with the root: what names its boot is.
echo "$2" >run/boot-id
mount --bind run/boot-id proc/sys/kernel/random/boot_id
mkdir -p run/before
pivot_root . run/before
umount -l /run/before
exec env -i container=sidle-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system </dev/null
