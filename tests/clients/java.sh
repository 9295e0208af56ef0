# Sourced by the `run` of each Java client.
set -euo pipefail

# jars PACKAGE...: adds the jars of Debian's packages to the CLASSPATH. The packages are downloaded, not installed.
jars() {
    if [ "$(cat "$IDGEN_CLIENT_DIR/fetched" 2>/dev/null)" != "$*" ]; then
        command -v apt-get >/dev/null || { echo "the jars come from packages of Debian: $*"; exit 77; }
        rm -rf "$IDGEN_CLIENT_DIR/jars"
        mkdir -p "$IDGEN_CLIENT_DIR/jars"
        (
            cd "$IDGEN_CLIENT_DIR/jars"
            apt-get download -q "$@" >download.log 2>&1 ||
                { echo "these packages of Debian cannot be downloaded: $*"; exit 77; }
            for file in *.deb; do dpkg-deb -x "$file" .; done
        )
        echo "$*" >"$IDGEN_CLIENT_DIR/fetched"
    fi
    export CLASSPATH=$IDGEN_CLIENT_DIR/classes:$IDGEN_CLIENT_DIR/jars/usr/share/java/*
}
