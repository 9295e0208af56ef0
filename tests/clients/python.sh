# Sourced by the `run` of each Python client.
set -euo pipefail

# venv [PYTHON]: puts the packages of requirements.txt into the PATH, and downloads them if the list has changed.
venv() {
    local python=${1:-python3} made_from
    made_from=$("$python" -c 'import sys; print(sys.executable, sys.version)' && cat requirements.txt)
    if [ "$(cat "$IDGEN_CLIENT_DIR/made-from" 2>/dev/null)" != "$made_from" ]; then
        rm -rf "$IDGEN_CLIENT_DIR/venv"
        "$python" -m venv "$IDGEN_CLIENT_DIR/venv"
        "$IDGEN_CLIENT_DIR/venv/bin/pip" install -q --disable-pip-version-check -r requirements.txt
        echo "$made_from" >"$IDGEN_CLIENT_DIR/made-from"
    fi
    PATH=$IDGEN_CLIENT_DIR/venv/bin:$PATH
}
