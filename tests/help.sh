#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that can be run says how: --help ends with 0 and prints to standard output alone, an
# option that does not exist ends with 64 and something on standard error. Without services, and
# with no more of Python than itself.
#
#   tests/help.sh BUILD
set -euo pipefail
case ${1:-} in
-h | --help) sed -n '4,/^set/s/^# \{0,1\}//p' "$0"; exit ;;
'' | -*) echo "usage: help.sh BUILD" >&2; exit 64 ;;
esac
build=$(realpath "$1")
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PELTON_VAR=$work/var PELTON_BUILD=$build PYTHONDONTWRITEBYTECODE=1
failed=0
wrong() {
    echo "FAILED: $*"
    failed=1
}
# run STATUS COMMAND...: within half a minute, from standard input that is empty.
run() {
    local status=$1 got=0
    shift
    timeout 30 "$@" </dev/null >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$status" ] || wrong "$*: exit $got, not $status: $(head -1 "$work/err")"
}
mapfile -t programs < <(
    find ops tests/help.sh tests/sim/pelton-sim.sh -type f -perm -u+x | sort
    find "$build" -maxdepth 1 -type f -perm -u+x \( -name 'pelton*' -o -name 'bench_*' \) | sort
)
[ ${#programs[@]} -gt 25 ] || wrong "only ${#programs[@]} programs: ${programs[*]}"
for program in "${programs[@]}"; do
    run 0 "$program" --help
    [ -s "$work/out" ] || wrong "$program --help prints nothing"
    [ ! -s "$work/err" ] || wrong "$program --help complains: $(head -1 "$work/err")"
    run 64 "$program" --no-such-option
    [ -s "$work/err" ] || wrong "$program --no-such-option says nothing"
    ! grep -q Traceback "$work/err" || wrong "$program --no-such-option: a traceback"
done
[ $failed = 0 ] && echo "help: ${#programs[@]} programs"
