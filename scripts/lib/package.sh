# Sourced by the scripts that build packages for users.

# Reports the programs that are missing for a build, and installs nothing.
check_build() {
    own_build
    check_rust "'make setup' installs it"
    local missing
    missing=$(missing_packages build)
    [ -z "$missing" ] || die "to build, these packages are needed:" $missing "('make setup' installs them)"
}

# own_flags TRIPLE: removes flags that the user has set for other work.
own_flags() {
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CFLAGS HOST_CFLAGS TARGET_CFLAGS "CFLAGS_${1//-/_}"
}

# hide_paths TRIPLE [FLAG]...: keeps paths of this machine out of a library built for TRIPLE, so that two builds of
# the same source give the same bytes, wherever they are made. Cargo adds these flags of rustc to those of
# .cargo/config.toml; RUSTFLAGS would replace them. Fetched crates are in a folder named after the registry.
hide_paths() {
    local flags=("${@:2}") dir
    cargo fetch -q --locked --target "$1"
    if [[ "$TOP${CARGO_HOME:-$HOME}" != *[[:blank:]]* ]]; then    # cargo and cc split their flags at blanks
        flags+=(--remap-path-prefix="$TOP=.")
        for dir in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/; do
            flags+=(--remap-path-prefix="${dir%/}=crates")
        done
        export CFLAGS="${CFLAGS:-} -ffile-prefix-map=$TOP=."    # pgrx has a few lines of C
    fi
    declare -gx "$(for_target "$1" RUSTFLAGS)=${flags[*]}"
}

# build_release [OPTION]...: builds the library or, with --bins, idgenctl too. A single call compiles each crate that both
# share once: two calls would compile many of them twice, with other features or another kind of code for the linker.
build_release() {
    cargo build "${CARGO_FLAGS[@]}" --release --package idgen --package idgenctl --lib "${FEATURES[@]}" "$@"
}

# installer ARCH: prints the program that installs idgen into this version of PostgreSQL.
installer() { sed "s/PGVERSION/$PG_MAJOR/g; s/PGARCH/$1/g" packaging/tarball/install; }

# lay_out_extension BUILT LIBRARIES EXTENSIONS: puts the files of the extension into two folders. BUILT is where cargo
# has built the library.
lay_out_extension() {
    mkdir -p "$2" "$3"
    cp "$1/libidgen.so" "$2/idgen.so"
    sed "s/@CARGO_VERSION@/$VERSION/" idgen.control >"$3/idgen.control"
    cat "${INSTALL_SCRIPT[@]}" >"$3/idgen--$VERSION.sql"
    cp sql/idgen--*.control "$3"
    find sql -maxdepth 1 -name 'idgen--*--*.sql' -exec cp -t "$3" {} +
    [ -e "sql/install/idgen--$VERSION.sql" ] || scripts/update-script "$3"    # until a release freezes it
}

# lay_out BUILT FOLDER ARCH: puts these files, idgenctl, and the program that installs them all into a folder.
lay_out() {
    rm -rf "$2"
    lay_out_extension "$1" "$2/lib" "$2/share/extension"
    mkdir "$2/bin"
    cp "$1/idgenctl" "$2/bin"
    installer "$3" >"$2/install"
    chmod 755 "$2/install"
}

# lay_out_pages FOLDER [TRIPLE]: puts documentation and examples into a folder, and the licenses of the crates linked
# into the library and idgenctl. For a crate with a choice of licenses, the text of Apache's is not needed.
lay_out_pages() {
    cp -R README.md CHANGELOG.md LICENSE docs "$1"
    cp --parents portable/{README.md,idgen.sql,take.sql} "$1"
    {
        echo "idgen.so and idgenctl contain the standard library of $(rustc --version), with the crates addr2line,"
        echo "gimli, hashbrown, memchr, miniz_oxide and rustc-demangle that this is made of (all MIT OR Apache-2.0):"
        mit "The Rust Project contributors, and the authors of those crates"
        printf '\nAnd one of them, or both, these crates:\n'
        crates normal,no-proc-macro '{p}|{l}' --target "$2" |
            sed -nE 's/ \(\*\)$//; s/^(\S+) v([^ |]+)\|/\1 \2 /p' | sort -u |
            while read -r name version license; do
                printf '\n%s\n%s %s: %s\n' "$(printf '=%.0s' {1..78})" "$name" "$version" "$license"
                crate=$(echo "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$name-$version")
                texts=$(find "$crate" -maxdepth 2 -type f \
                    \( -ipath '*/LICEN[CS]E*' -o -ipath '*/COPYING*' \) | sort)
                [ "$license" = Apache-2.0 ] || texts=$(grep -vi '/[^/]*apache[^/]*$' <<<"$texts" || true)
                if [ -n "$texts" ]; then
                    xargs -d '\n' cat <<<"$texts"
                elif [[ $license = *MIT* ]]; then    # and the crate has no text of it
                    mit "$(sed -nE 's/^authors = \["(.*)"\]$/\1/p' "$crate/Cargo.toml")"
                else
                    die "$name has no text of its licence, $license"
                fi
            done
    } >"$1/crates.txt"
}
# crates EDGES FORMAT [OPTION]...: prints the crates of the library and of idgenctl, as `cargo tree` does.
crates() {
    cargo tree --locked --package idgen --package idgenctl "${FEATURES[@]}" --edges "$1" --prefix none --format "${@:2}"
}
# mit WHO: prints the text of the MIT license.
mit() { echo && sed "s/COPYRIGHT HOLDERS/${1//[\/&]/\\&}/" packaging/licenses/MIT; }

# write_sums FOLDER: writes the checksums of the folder's files.
write_sums() {
    (cd "$1" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum -- >SHA256SUMS)
}

# The time of this source: its last commit or, in an archive of the source, the day of the last release.
source_time() {
    if [ -e .git ]; then git -c safe.directory="$TOP" log -1 --format=%cI; return; fi
    sed -nE 's/^## \[.*\] - ([0-9-]+)$/\1/p' CHANGELOG.md | head -n1
}
