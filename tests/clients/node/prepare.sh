# Sourced by the `run` of each JavaScript client, from its folder. Changes to a copy of that folder, in which packages
# are installed and programs may write. To make a lock file that names no registry:
#     npm install --package-lock-only --omit-lockfile-registry-resolved
set -euo pipefail
node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
         process.exit(major > 20 || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null && command -v npm >/dev/null ||
    { echo "Node.js 20.19 or later, and npm, are needed"; exit 77; }

find "$IDGEN_CLIENT_DIR" -mindepth 1 -maxdepth 1 ! -name node_modules ! -name installed.json -exec rm -rf {} +
cp -R . ../node/*.mjs "$IDGEN_CLIENT_DIR"
cd "$IDGEN_CLIENT_DIR"
cmp -s package-lock.json installed.json || {
    npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
    cp package-lock.json installed.json
}
export NO_COLOR=1 NODE_OPTIONS=--test-reporter=spec
