# Sourced by scripts that need a Debian of their own.

# fetch_debian SUITE ROOT PACKAGES [SCRIPT]: fetches a small Debian and these packages, with commas between them.
# debootstrap mounts /proc in a namespace of its own, so that no mount outlives an interrupted run.
fetch_debian() {
    need debootstrap debootstrap
    local mirror
    mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian')
    mirror=${mirror%%$'\n'*}
    [ -n "$mirror" ] || die "apt knows no mirror of Debian to fetch $1 from: run 'apt-get update'"
    say "fetching a Debian $1 with $3: some minutes"
    as_root unshare --mount debootstrap --variant=minbase --include="$3" "$1" "$2" "$mirror" "${4:-}" \
        >"$2.log" 2>&1 || { tail "$2.log"; die "debootstrap failed: see $2.log"; }
    # The mirror may be out of date. debootstrap accepts that, and apt should too.
    as_root tee "$2/etc/apt/apt.conf.d/no-expiry" >/dev/null <<<'Acquire::Check-Valid-Until "false";'
}

ENTER='
set -e
root=$1 top=$2
shift 2
share() { mkdir -p "$root$1"; mount -o bind,ro "$1" "$root$1"; }
share "$top"
for own in target .build; do
    mkdir -p "$root/checkout/$own"
    mount --bind "$root/checkout/$own" "$root$top/$own"
done
while [ "$1" != -- ]; do
    [ ! -d "$1" ] || share "$1"
    shift
done
shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
exec chroot "$root" env -C "$top" "$@"'

# enter_debian ROOT [FOLDER]... -- COMMAND [ARG]...: runs a command inside a Debian, as root. This checkout and the
# folders have the same paths there and are read-only, except for target and .build, which the Debian keeps in its
# /checkout. Mounts and processes are invisible from outside, and disappear when the command ends.
enter_debian() {
    local root=$1
    shift
    mkdir -p "$TOP/target"
    as_root env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        unshare --mount --ipc --pid --fork --kill-child bash -c "$ENTER" - "$root" "$TOP" "$@"
}
