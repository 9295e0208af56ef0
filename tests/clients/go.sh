# Sourced by the `run` of clients in Go, whose libraries are packages of Debian.
set -euo pipefail
export GO111MODULE=off GOPATH=/usr/share/gocode GOCACHE=$IDGEN_CLIENT_DIR/cache
unset GOFLAGS GOROOT
