# SPDX-License-Identifier: Apache-2.0
# What the scripts in ops/ share: where things are, how they speak, who runs what. Sourced by bash,
# never run. It starts nothing and writes nothing by itself.
# shellcheck shell=bash disable=SC2034

# One spelling for each folder, whoever calls from where: processes are known by the paths on their
# command lines, and a/../b, a link or a relative path would not be found again.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# Everything that runs keeps its files here, so that wiping is one rm. ops/test uses another folder
# than ops/quickstart: its brokers and databases never touch what a person is using.
var=$(realpath -m -- "${PELTON_VAR:-$root/var}")
build=$(realpath -m -- "${PELTON_BUILD:-$root/build}")
# What costs a download or a second of JVM, and no wipe removes: shared by all var folders.
cache=$root/var/cache

say() { printf '%s\n' "$*"; }
warn() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

# die STATUS MESSAGE: the statuses are those of sysexits.h: 64 usage, 69 service missing, 70 our
# bug, 77 not allowed, 78 wrong configuration.
die() {
    warn "${@:2}"
    exit "$1"
}

# The comment at the head of a script is its manual.
usage() {
    sed -n '/^# SPDX/d; /^#!/d; /^#/!q; s/^# \{0,1\}//p' "$0"
}

# conf_get FILE KEY, conf_set FILE KEY VALUE: one key=value a line. The rename makes a script that
# is killed half way leave the old file or the new one.
conf_get() {
    [ ! -f "$1" ] || sed -n "s/^$2=//p" "$1" | tail -1
}

conf_set() {
    local tmp=$1.$$
    { [ ! -f "$1" ] || grep -v "^$2=" "$1" || true; } >"$tmp"
    printf '%s=%s\n' "$2" "$3" >>"$tmp"
    mv "$tmp" "$1"
}

# pid_alive FILE MARK: the process named in FILE runs and its command line holds MARK. A pid alone
# says little after a crash or a reboot: the number may be someone else's by now.
pid_alive() {
    local pid
    pid=$(cat "$1" 2>/dev/null) || return 1
    [ -n "$pid" ] && [ -r "/proc/$pid/cmdline" ] &&
        { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF -- "$2"
}

# pid_stop FILE MARK SECONDS: asks with SIGTERM, waits, then kills.
pid_stop() {
    local pid i
    pid_alive "$1" "$2" || { rm -f "$1"; return 0; }
    pid=$(cat "$1")
    kill "$pid" 2>/dev/null || true
    for ((i = 0; i < $3 * 10; i++)); do
        pid_alive "$1" "$2" || { rm -f "$1"; return 0; }
        sleep 0.1
    done
    warn "pid $pid ($2) did not stop within $3 s; killed"
    kill -9 "$pid" 2>/dev/null || true
    rm -f "$1"
}

# port_taken PORT: something listens on it, on any address of this machine. /proc needs no tool and,
# unlike a connection attempt, disturbs no one.
port_taken() {
    local hex
    hex=$(printf ':%04X$' "$1")
    awk -v port="$hex" '$4 == "0A" && $2 ~ port { found = 1 } END { exit !found }' \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# port_free: a port that nobody listens on, below the range from which the kernel gives ports to
# outgoing connections (32768 and up), so that none of those can take it between two starts.
port_free() {
    local port i
    for ((i = 0; i < 200; i++)); do
        port=$((20000 + RANDOM % 12000))
        port_taken "$port" || { say "$port"; return 0; }
    done
    die 69 "no free port between 20000 and 32000"
}

# cargo_find: prints the newest cargo of at least 1.85 (the crates use edition 2024) that has its
# rustc beside it, or fails.
cargo_find() {
    local c version best='' best_version=1.84.99
    for c in "$(command -v cargo || true)" /usr/bin/cargo "$HOME/.cargo/bin/cargo"; do
        [ -x "$c" ] && [ -x "${c%/*}/rustc" ] || continue
        version=$("$c" --version 2>/dev/null | awk '{ print $2 }')
        [ -n "$version" ] && [ "$version" != "$best_version" ] || continue
        if printf '%s\n%s\n' "$best_version" "$version" | sort -V -C; then
            best=$c best_version=$version
        fi
    done
    [ -n "$best" ] && say "$best"
}

# Stage clock: stage NAME prints a heading with the time since the script began. PELTON_T0 is handed
# down so that inner scripts count from the same start.
export PELTON_T0=${PELTON_T0:-$(date +%s)}

elapsed() {
    local s=$(($(date +%s) - PELTON_T0))
    printf '%d:%02d' $((s / 60)) $((s % 60))
}

stage() {
    printf '\n[%s] %s\n' "$(elapsed)" "$*"
}
