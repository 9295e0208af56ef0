#!/usr/bin/env bash
# The life of the RPM package on a server in the folders of PGDG's packages, /usr/pgsql-NN. "scripts/test-package rpm"
# runs this as root, in a Debian made for it, whose PostgreSQL becomes a package with PGDG's name and folders.
#   rpm.sh MAJOR VERSION TARBALL FIRST.rpm SECOND.rpm [OTHER.rpm]...
# The packages are made from TARBALL. OTHER are packages for other architectures, of which only the metadata is checked.
. tests/package/common.sh
nn=$1 version=$2 tarball=$3 first=$4 second=$5
shift 5
prefix=/usr/pgsql-$nn
data=/var/lib/pgsql/$nn/data
log=$data/server.log
PATH=$prefix/bin:$PATH

trap '[ $? = 0 ] || tail -n 20 "$log" 2>/dev/null || true' EXIT
dnf() { command dnf -qy --releasever=8 "$@"; }
rpm() { command rpm --force-debian "$@"; }    # without this, Debian's rpm refuses, to protect dpkg's database
server() { runuser -u postgres -- pg_ctl -D "$data" -s -w -l "$log" "$@" >/dev/null; }
postmaster() { head -n1 "$data/postmaster.pid"; }
mapped() { awk '/idgen.so/ { print $6 $7 }' "/proc/$(postmaster)/maps" | sort -u; }
sql() { runuser -u postgres -- psql -X -q -A -t -v ON_ERROR_STOP=1 -c "$@"; }

# repository NAME PACKAGE VERSION: creates a repository with this package. Standard input has the rest of its spec. The
# package has no dependencies, because rpm does not know the libraries of this Debian.
repository() {
    local at=/srv/$1
    { printf '%s\n' "Name: $2" "Version: $3" 'Release: 1' 'Summary: A stand-in' 'License: None' 'AutoReqProv: no' &&
        cat; } >"/tmp/$2.spec"
    rpmbuild -bb --quiet --define '_topdir /tmp/rpmbuild' --define '_buildhost localhost' --define "_rpmdir $at" \
        "/tmp/$2.spec"
    createrepo_c -q "$at"
    printf '%s\n' "[$1]" "name=$1" "baseurl=file://$at" gpgcheck=0 >"/etc/yum.repos.d/$1.repo"
}

# What the C library and the compiler's library of RHEL 8 and of later and related systems provide: up to glibc 2.28 and
# GCC 8; and libpq, which RHEL and PGDG have.
provided() {
    local library
    for library in libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 \
        ld-linux-x86-64.so.2 ld-linux-aarch64.so.1; do
        printf "Provides: $library(%s)(64bit)\n" '' GLIBC_2.2.5 GLIBC_2.3.{2,3,4} GLIBC_2.{3..28}
    done
    printf 'Provides: libgcc_s.so.1(%s)(64bit)\n' '' \
        GCC_3.{0,3,3.1,4,4.2,4.4} GCC_4.{0,2,3,7,8}.0 GCC_7.0.0
    # RHEL has libpq of its own, for idgenctl.
    printf '%s\n' 'Provides: libpq.so.5()(64bit)' 'Provides: rtld(GNU_HASH)' '%description' '%files'
}

mkdir -p /etc/rpm /etc/yum.repos.d
echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros    # as on every system except Debian
provided | repository rhel glibc 2.28

promise "without PGDG's server, and only for that reason, the package is refused"
fails "nothing provides postgresql$nn-server needed by idgen_$nn" dnf install "$first"
same "lacking" 1 "$(dnf install "$first" 2>&1 | grep -c 'nothing provides')"

promise "dnf installs the package and the server that it needs"
built=/usr/lib/postgresql/$nn shared=/usr/share/postgresql/$nn
repository pgdg "postgresql$nn-server" "$("$built/bin/pg_config" --version | cut -d' ' -f2)" <<END
%global debug_package %{nil}
%global __os_install_post %{nil}
%description
%install
mkdir -p %{buildroot}$prefix %{buildroot}$(dirname "$shared")
cp -a $built/. %{buildroot}$prefix
cp -a $shared %{buildroot}$prefix/share
ln -s $prefix/share %{buildroot}$shared
%files
$prefix
$shared
END
DEBIAN_FRONTEND=noninteractive apt-get -qqy purge "postgresql*-$nn" >/dev/null
rm -rf "$built" "$shared"
dnf install "$first"

promise "it has the tarball's files, unchanged, and pages; root owns them all, and no other package has any of them"
mkdir /tmp/tarball
tar -C /tmp/tarball --strip-components=1 -xzf "$tarball"
(cd /tmp/tarball && find bin lib share -type f) | sort >/tmp/expected
rpm -ql "idgen_$nn" | sed -n "s#^$prefix/##p" | sort | diff /tmp/expected -
(cd /tmp/tarball && xargs sha256sum </tmp/expected) | (cd "$prefix" && sha256sum --check --quiet)
rm -r /tmp/tarball
same "elsewhere" "/usr/share/doc/idgen_$nn /usr/share/licenses/idgen_$nn" \
    "$(rpm -ql "idgen_$nn" | grep -v "^$prefix/" | cut -d/ -f1-5 | sort -u | xargs)"
same "owners" "root root" "$(rpm -q --qf '[%{FILEUSERNAME} %{FILEGROUPNAME}\n]' "idgen_$nn" | sort -u)"
same "modes" "-rwxr-xr-x -rwxr-xr-x" "$(stat -c %A "$prefix/lib/idgen.so" "$prefix/bin/idgenctl" | xargs)"
same_program "$version" "$prefix/bin/idgenctl"
rpm -V "idgen_$nn"
same "scripts" "" "$(rpm -q --scripts --triggers "idgen_$nn")"

promise "on every architecture, it provides only its own name, and requires the server and nothing that RHEL 8 lacks"
for package in "$first" "$@"; do
    same "provides" "idgen_$nn" "$(rpm -qp --provides "$package" | sed 's/[ (].*//' | sort -u)"
    same "requires" "postgresql$nn-server" "$(rpm -qp --requires "$package" | grep -vE '^rpmlib\(|\.so\.|^rtld\(')"
    same "asks of rpm" "CompressedFileNames FileDigests PayloadFilesHavePrefix PayloadIsXz" \
        "$(rpm -qp --requires "$package" | sed -n 's/^rpmlib(\(.*\)) .*/\1/p' | sort | xargs)"
    rpm -U --test --force --ignorearch "$package"
done

promise "with the preload, it mints ids for the requested shard, by the library in $prefix"
install -d -o postgres -g postgres /var/lib/pgsql "/var/lib/pgsql/$nn" /run/postgresql
runuser -u postgres -- initdb -D "$data" -A trust >/dev/null
printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '/run/postgresql'" >>"$data/postgresql.conf"
server start
runuser -u postgres -- "$prefix/bin/idgenctl" enable --yes postgres
server restart
same "library" "$prefix/lib/idgen.so" "$(mapped)"
begin_minting

promise "its SQL tests pass"
sql_tests "$prefix/bin/pg_config"

promise "an upgrade does not restart the server, which keeps its old library"
before=$(postmaster)
dnf install "$second"
same "release" 2 "$(rpm -q --qf '%{RELEASE}' "idgen_$nn")"
same "process of the server" "$before" "$(postmaster)"
same "library" "$prefix/lib/idgen.so(deleted)" "$(mapped)"
mint

promise "after a restart the server has the new library and repeats no id"
server restart
same "library" "$prefix/lib/idgen.so" "$(mapped)"
mint

promise "removed too early: minting fails, and the server does not start until its settings no longer name idgen"
dnf remove --noautoremove "idgen_$nn"
refused 'could not access file "idgen"' "INSERT INTO minted (n) VALUES (1)"
server stop
fails '' server start
grep -q 'FATAL:  could not access file "idgen"' "$log" || die "the log does not say why"
sed -i '/^shared_preload_libraries/d' "$data/postgresql.auto.conf"
server start
same "rows" "$minted" "$(sql "SELECT count(*) FROM minted")"

promise "after its removal no file is left, and the server stays"
same "files" "" "$(left_files)"
rpm -q "postgresql$nn-server"

promise "rpm without dnf also installs, upgrades and erases it; ids continue after the mark"
rpm -i "$first"
rpm -U "$second"
rpm -V "idgen_$nn"
echo "shared_preload_libraries = 'idgen'" >>"$data/postgresql.conf"
server restart
mint
server stop
rpm -e "idgen_$nn"
same "files" "" "$(left_files)"

promise "dnf removes a server that came with the package along with it, unless told otherwise"
dnf remove "postgresql$nn-server"
dnf install "$first"
fails "postgresql$nn-server" command dnf --assumeno remove "idgen_$nn"
dnf mark install "postgresql$nn-server"
dnf remove "idgen_$nn"
rpm -q "postgresql$nn-server"
