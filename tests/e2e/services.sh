#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/e2e/services.sh: ops/services survives what happens to services. Real broker, real database,
# in a folder of their own: killed processes, stale pids, stolen ports, two sets side by side,
# nothing reachable from outside.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
dir=$(mktemp -d /tmp/pelton-services.XXXXXX)
chmod 755 "$dir" # the user postgres must get through
export PELTON_VAR=$dir/a
services=$root/ops/services
thief=

cleanup() {
    [ -z "$thief" ] || kill "$thief" 2>/dev/null || true
    "$services" wipe
    PELTON_VAR=$dir/b "$services" wipe
    rm -rf "$dir"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

value() { sed -n "s/^$1=//p" "$PELTON_VAR/services.conf"; }
kafka_pid() { cat "$PELTON_VAR/kafka/1/pid"; }
postgres_pid() { head -1 "$(value postgres.dir)/data/postmaster.pid"; }

# Any SQL proves the address, the password and the data at once.
sql() {
    (
        # shellcheck source=/dev/null
        . "$PELTON_VAR/env"
        psql -AtqX -c "$1"
    )
}

# Listening sockets of the given processes, as hexadecimal addresses.
listening() {
    local pid inodes
    for pid in "$@"; do
        inodes=$(find "/proc/$pid/fd" -lname 'socket:*' -printf '%l\n' | tr -dc '0-9\n')
        awk -v inodes="$inodes" '
            BEGIN { n = split(inodes, list, "\n"); for (i = 1; i <= n; i++) mine[list[i]] = 1 }
            $4 == "0A" && $10 in mine { sub(/:.*/, "", $2); print $2 }
        ' /proc/net/tcp /proc/net/tcp6
    done
}

steal() { # PORT: someone else listens on it, and then says so in a file
    python3 -c 'import socket, sys, time
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("127.0.0.1", int(sys.argv[1])))
s.listen()
open(sys.argv[2], "w").close()
time.sleep(600)' "$1" "$dir/stolen" &
    thief=$!
    until [ -e "$dir/stolen" ]; do
        kill -0 "$thief" || fail "port $1 cannot be taken"
        sleep 0.1
    done
}

echo "- starts, and does nothing when started again"
"$services" up --fast
first=$(kafka_pid)
"$services" up --fast >/dev/null
[ "$(kafka_pid)" = "$first" ] || fail "a second up started a second broker"
sql 'CREATE TABLE kept AS SELECT 1'

echo "- nothing listens beyond 127.0.0.1"
addresses=$(listening "$(kafka_pid)" "$(postgres_pid)")
[ "$(wc -l <<<"$addresses")" = 3 ] || fail "expected 3 listening sockets, found: $addresses"
! grep -vE '^(0100007F|0000000000000000FFFF00000100007F)$' <<<"$addresses" ||
    fail "listens beyond 127.0.0.1"

echo "- a second set beside the first has other ports and another cluster"
id=$(value kafka.id)
port=$(value kafka.1.port)
export PELTON_VAR=$dir/b
"$services" up --fast
[ "$(value kafka.id)" != "$id" ] || fail "two sets share the cluster id"
[ "$(value kafka.1.port)" != "$port" ] || fail "two sets share a port"
# The second one is told that its broker is at the first one's port: it must not believe that.
"$services" kill kafka-1
sed -i "s/^kafka.1.port=.*/kafka.1.port=$port/" "$PELTON_VAR/services.conf"
! "$services" status || fail "status takes the other set's broker for its own"
"$services" up --fast
[ "$(value kafka.1.port)" != "$port" ] || fail "the second set uses the first one's port"
"$services" wipe
export PELTON_VAR=$dir/a
"$services" status >/dev/null || fail "wiping the second set hurt the first"

echo "- killed broker and database come back with their data"
"$services" kill kafka-1
kill -9 "$(postgres_pid)"
! "$services" status || fail "status says that killed services run"
"$services" up --fast
"$services" status || fail "not everything runs again"
[ "$(sql 'SELECT count(*) FROM kept')" = 1 ] || fail "data lost"

echo "- a stopped set whose port and pid are someone else's by now"
"$services" stop
steal "$(value postgres.port)"
old=$(value postgres.port)
echo "$thief" >"$PELTON_VAR/kafka/1/pid"
"$services" up --fast
[ "$(value postgres.port)" != "$old" ] || fail "PostgreSQL kept a port that was taken"
kill -0 "$thief" || fail "a stranger's process was killed"
[ "$(sql 'SELECT count(*) FROM kept')" = 1 ] || fail "data lost"

echo "- one folder, however it is spelled"
broker=$(kafka_pid)
(
    cd "$dir"
    PELTON_VAR=a "$services" status >/dev/null || fail "not known by a relative path"
    PELTON_VAR=$dir/b/../a "$services" status >/dev/null || fail "not known by a path with .."
    ln -s a link
    PELTON_VAR=$dir/b/../link "$services" stop
)
# A zombie, where nobody waits for it, has no command line.
! grep -q . "/proc/$broker/cmdline" 2>/dev/null ||
    fail "stop did not find what was started under another path"
PELTON_VAR=$dir/b/../a "$services" up --fast
[ "$(sed -n "s/^export PELTON_VAR='\(.*\)'/\1/p" "$PELTON_VAR/env")" = "$dir/a" ] ||
    fail "var/env keeps the .."
"$services" stop
[ ! -e "$PELTON_VAR/kafka/1/pid" ] || fail "stop did not find what was started by a path with .."
"$services" up --fast >/dev/null

echo "- the number of nodes cannot change under existing data"
! "$services" up --nodes 3 2>/dev/null || fail "one node's data was taken by three"

echo "- wipe leaves nothing"
"$services" wipe
[ ! -e "$PELTON_VAR" ] || fail "wipe left $(ls -A "$PELTON_VAR")"
