# Sourced by the programs `run` of clients in Java.
set -euo pipefail

# jars PACKAGE...: goes on with the jars of Debian's packages, which are fetched and not installed.
jars() {
    if [ "$(cat "$IDGEN_CLIENT_DIR/fetched" 2>/dev/null)" != "$*" ]; then
        command -v apt-get >/dev/null || { echo "the jars are Debian's packages: $*"; exit 77; }
        rm -rf "$IDGEN_CLIENT_DIR/jars"
        mkdir -p "$IDGEN_CLIENT_DIR/jars"
        (
            cd "$IDGEN_CLIENT_DIR/jars"
            apt-get download -q "$@" >download.log 2>&1 ||
                { echo "these packages of Debian are not to be had: $*"; exit 77; }
            for file in *.deb; do dpkg-deb -x "$file" .; done
        )
        echo "$*" >"$IDGEN_CLIENT_DIR/fetched"
    fi
    export CLASSPATH=$IDGEN_CLIENT_DIR/classes:$IDGEN_CLIENT_DIR/jars/usr/share/java/*
}
