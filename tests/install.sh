#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/install.sh BUILD: what `cmake --install` puts where, and that the units name what is there.
set -euo pipefail
build=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# install PREFIX DESTDIR
install() {
    DESTDIR=$2 cmake --install "$build" --prefix "$1" >"$dir/log" || {
        cat "$dir/log"
        fail "cmake --install --prefix $1"
    }
}

# check UNITS BIN ETC: every path of the units is one of these.
check() {
    local paths
    paths=$(sed -n 's/^ExecStart=//p; s/^EnvironmentFile=-*//p' "$1"/pelton-*.service |
        tr ' ' '\n' | grep /)
    [ "$(wc -l <<<"$paths")" = 7 ] || fail "expected 7 paths in the units: $paths"
    ! grep -vE "^($2/pelton-[a-z]*|$3/pelton/[a-z]*\.(yaml|env))$" <<<"$paths" ||
        fail "the units of $1 name other places"
}

install "$dir/one" ''
check "$dir/one/lib/systemd/system" "$dir/one/bin" "$dir/one/etc"
for program in pelton pelton-scheduler pelton-worker pelton-ledger pelton-sim; do
    "$dir/one/bin/$program" --version || fail "$program does not run"
done

# Another prefix of the same build, staged as packages are made.
install /usr "$dir/stage"
check "$dir/stage/usr/lib/systemd/system" /usr/bin /etc
