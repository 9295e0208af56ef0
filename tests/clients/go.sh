# Sourced by the `run` of each Go client. The libraries are Debian packages.
set -euo pipefail
export GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$IDGEN_CLIENT_DIR/cache
unset GOFLAGS GOROOT
