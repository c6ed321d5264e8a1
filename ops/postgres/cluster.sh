# SPDX-License-Identifier: Apache-2.0
# A private PostgreSQL cluster with one superuser, `pelton`, and a random password in $var/pgpass.
# Sourced by ops/services, which holds the lock; needs $root, $var and $state. TCP on 127.0.0.1
# only, always with the password: other people on this machine have no way in, and there is no
# socket whose path could become too long (107 bytes).
# shellcheck shell=bash disable=SC2154

# The newest PostgreSQL that Debian put beside the path, or the one on the path.
postgres_bin() {
    local dir
    dir=$(find /usr/lib/postgresql -mindepth 2 -maxdepth 2 -name bin 2>/dev/null |
        sort -V | tail -1)
    [ -n "$dir" ] || dir=$(dirname "$(command -v initdb)") ||
        die 69 "no PostgreSQL server: run ops/setup"
    say "$dir"
}

# PostgreSQL refuses to run as root: root's clusters belong to the user postgres.
postgres_as() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
    else
        "$@"
    fi
}

# The data's folder: $var/postgres, or, where the user postgres cannot get there (a checkout in
# /root, say), one under /var/lib. Chosen once.
postgres_dir() {
    conf_get "$state" postgres.dir
}

postgres_choose_dir() {
    local dir=$var/postgres
    [ -z "$(postgres_dir)" ] || return 0
    # -x of the folder alone is not enough: every folder above must let the user through.
    (cd / && postgres_as test -x "$var") || dir=/var/lib/pelton/$(conf_get "$state" kafka.id)
    conf_set "$state" postgres.dir "$dir"
}

postgres_ctl() {
    (cd / && postgres_as "$(postgres_bin)/pg_ctl" -D "$(postgres_dir)/data" "$@" 9>&-)
}

# Not `pg_ctl status`: that takes a killed server for a live one until its parent has reaped it,
# which in a container can be never.
postgres_alive() {
    local dir pid
    dir=$(postgres_dir)
    pid=$(head -1 "$dir/data/postmaster.pid" 2>/dev/null) || return 1
    # The shell itself reports a file that is not there, so the whole group is silenced.
    { tr '\0' ' ' <"/proc/${pid:-none}/cmdline"; } 2>/dev/null | grep -qF -- "$dir/data"
}

# After a kill -9 of the server its children end by themselves, within a second; a new server must
# not start beside them. Only then may the old server's pid file go.
postgres_clean() {
    local dir i
    dir=$(postgres_dir)
    [ -f "$dir/data/postmaster.pid" ] || return 0
    for ((i = 0; i < 100; i++)); do
        find /proc -maxdepth 2 -name cwd -lname "$dir/data" 2>/dev/null | grep -q . || break
        sleep 0.1
    done
    [ "$i" -lt 100 ] || die 69 "a PostgreSQL server without its head still runs in $dir/data"
    rm -f "$dir/data/postmaster.pid"
}

# postgres_sql DATABASE SQL, as the superuser of the cluster.
postgres_sql() {
    PGPASSFILE=$var/pgpass PGCONNECT_TIMEOUT=5 psql -h 127.0.0.1 \
        -p "$(conf_get "$state" postgres.port)" -U pelton -d "$1" -AtqX -v ON_ERROR_STOP=1 -c "$2"
}

postgres_init() {
    local dir password
    dir=$(postgres_dir)
    [ ! -f "$dir/data/PG_VERSION" ] || return 0
    # A folder without PG_VERSION is what an interrupted initdb left.
    rm -rf "$dir"
    mkdir -p "$dir"
    [ "$(id -u)" != 0 ] || chown postgres: "$dir"
    password=$(head -c 18 /dev/urandom | base64 | tr '+/' '__')
    (umask 077 && say "127.0.0.1:*:*:pelton:$password" >"$var/pgpass")
    (
        cd /
        umask 077
        say "$password" | postgres_as tee "$dir/password" >/dev/null
        postgres_as "$(postgres_bin)/initdb" -D "$dir/data" -U pelton -A scram-sha-256 \
            --pwfile="$dir/password" -E UTF8 --locale=C.UTF-8
    ) >"$var/log/initdb.log" 2>&1 || {
        cat "$var/log/initdb.log" >&2
        die 69 "initdb failed in $dir"
    }
    rm "$dir/password"
}

# Written at each start: the port may have changed, and --fast is a matter of this start alone.
postgres_configure() {
    local fast=$1 dir
    dir=$(postgres_dir)
    {
        say "port = $(conf_get "$state" postgres.port)"
        say "listen_addresses = '127.0.0.1'"
        say "unix_socket_directories = ''"
        say "shared_buffers = 64MB"
        say "timezone = 'UTC'"
        say "log_timezone = 'UTC'"
        [ "$fast" = no ] || printf '%s = off\n' fsync synchronous_commit full_page_writes
    } | postgres_as tee "$dir/pelton.conf" >/dev/null
    grep -q pelton.conf "$dir/data/postgresql.conf" ||
        say "include = '$dir/pelton.conf'" |
        postgres_as tee -a "$dir/data/postgresql.conf" >/dev/null
}

postgres_port() {
    local port
    port=$(conf_get "$state" postgres.port)
    if [ -z "$port" ] || port_taken "$port"; then
        [ -z "$port" ] ||
            warn "port $port (PostgreSQL) is taken by another program; choosing a new one"
        conf_set "$state" postgres.port "$(port_free)"
    fi
}

postgres_up() {
    local id known
    postgres_choose_dir
    postgres_init
    if ! postgres_alive; then
        postgres_clean
        postgres_port
        (cd / && postgres_configure "$1")
        # pg_ctl waits until the server takes connections, also through a recovery after a crash.
        postgres_ctl -l "$(postgres_dir)/log" -w -t 60 start >"$var/log/pg_ctl.log" 2>&1 || {
            tail -5 "$(postgres_dir)/log" >&2
            die 69 "PostgreSQL did not start; its log is $(postgres_dir)/log"
        }
    fi
    id=$(postgres_sql postgres 'SELECT system_identifier FROM pg_control_system()') ||
        die 69 "PostgreSQL does not answer on port $(conf_get "$state" postgres.port)"
    known=$(conf_get "$state" postgres.id)
    [ -z "$known" ] || [ "$known" = "$id" ] ||
        die 69 "the PostgreSQL that answers has the identifier $id; this checkout's has $known"
    conf_set "$state" postgres.id "$id"
    [ "$(postgres_sql postgres "SELECT 1 FROM pg_database WHERE datname = 'pelton'")" = 1 ] ||
        postgres_sql postgres 'CREATE DATABASE pelton'
}

postgres_status() {
    local dir
    dir=$(postgres_dir)
    [ -n "$dir" ] && postgres_alive || { say "postgres    down"; return 1; }
    say "postgres    pid $(head -1 "$dir/data/postmaster.pid")" \
        " 127.0.0.1:$(conf_get "$state" postgres.port)" \
        " $(du -sh "$dir/data" | cut -f1)  cluster $(conf_get "$state" postgres.id)"
}

# Fast shutdown: open sessions are ended, their transactions rolled back.
postgres_stop() {
    [ -n "$(postgres_dir)" ] || return 0
    ! postgres_alive || postgres_ctl -m fast -w -t 60 stop >/dev/null
}

postgres_wipe() {
    local dir
    dir=$(postgres_dir)
    [ -z "$dir" ] || rm -rf "$dir"
}
