# SPDX-License-Identifier: Apache-2.0
# Kafka in KRaft mode, each node broker and controller at once, all on 127.0.0.1. Sourced by
# ops/services, which holds the lock; needs $root, $var, $cache and $state. What a node is told is
# in broker.properties beside this file; its data is in $var/kafka/N.
# shellcheck shell=bash disable=SC2154,SC2016

kafka_version=4.4.0
kafka_libs=$cache/kafka-$kafka_version

kafka_dir() { say "$var/kafka/$1"; }
kafka_port() { conf_get "$state" "kafka.$1.port"; }
kafka_nodes() { conf_get "$state" kafka.nodes; }
kafka_each() { seq 1 "$(conf_get "$state" kafka.nodes)" 2>/dev/null || true; }
kafka_alive() { pid_alive "$(kafka_dir "$1")/pid" "$(kafka_dir "$1")/server.properties"; }

kafka_bootstrap() {
    local n list=
    for n in $(kafka_each); do
        list+=${list:+,}127.0.0.1:$(kafka_port "$n")
    done
    say "$list"
}

# The folder gets its name only when complete, so that an interrupted download starts anew. -C: a
# jar whose checksum differs from the registry's is an error, not a warning.
kafka_fetch() {
    local part=$kafka_libs.part
    [ -d "$kafka_libs" ] && return 0
    rm -rf "$part"
    mkdir -p "$part"
    say "fetching Apache Kafka $kafka_version"
    mvn -q -B -C -f "$root/ops/kafka/pom.xml" -Dlibs="$part" dependency:copy-dependencies \
        >"$var/log/maven.log" 2>&1 || {
        tail -5 "$var/log/maven.log" >&2
        die 69 "Maven could not fetch Kafka; the whole log is $var/log/maven.log"
    }
    mv "$part" "$kafka_libs"
}

# A broker starts in 1.3 s instead of 2 s from an archive of the classes that it loads.
# The first broker writes one when it is stopped (2 s, once). The JVM's own version is part of the
# name: it would ignore an archive of another one.
kafka_archive() {
    local jvm
    jvm=$(readlink -f "$(command -v java)")
    say "$kafka_libs/classes-$(stat -c %Y "$jvm").jsa"
}

# Picks the ports, once: they are kept as long as nobody else takes them while the node is down.
kafka_ports() {
    local key port
    for key in "kafka.$1.port" "kafka.$1.controller"; do
        port=$(conf_get "$state" "$key")
        if [ -z "$port" ] || port_taken "$port"; then
            [ -z "$port" ] ||
                warn "port $port ($key) is taken by another program; choosing a new one"
            conf_set "$state" "$key" "$(port_free)"
        fi
    done
}

kafka_configure() {
    local n nodes voters=
    nodes=$(kafka_nodes)
    for n in $(kafka_each); do
        voters+=${voters:+,}$n@127.0.0.1:$(conf_get "$state" "kafka.$n.controller")
    done
    for n in $(kafka_each); do
        mkdir -p "$(kafka_dir "$n")"
        sed -e "s|@NODE@|$n|; s|@PORT@|$(kafka_port "$n")|; s|@DIR@|$(kafka_dir "$n")|" \
            -e "s|@CONTROLLER@|$(conf_get "$state" "kafka.$n.controller")|; s|@VOTERS@|$voters|" \
            -e "s|@REPLICAS@|$((nodes >= 3 ? 3 : 1))|; s|@IN_SYNC@|$((nodes >= 3 ? 2 : 1))|" \
            "$root/ops/kafka/broker.properties" >"$(kafka_dir "$n")/server.properties"
    done
}

# Formatting gives the data its cluster id. A random id for each checkout: a client or a node that
# meets another checkout's broker on a reused port sees another id.
kafka_format() {
    local dir
    dir=$(kafka_dir "$1")
    [ ! -f "$dir/data/meta.properties" ] || return 0
    java -Xshare:auto -XX:TieredStopAtLevel=1 -cp "$kafka_libs/*" -Dpelton.log="$dir/format.log" \
        -Dlog4j2.configurationFile="$root/ops/kafka/log4j2.properties" kafka.tools.StorageTool \
        format -t "$(conf_get "$state" kafka.id)" -c "$dir/server.properties" \
        >"$dir/format.out" 2>&1 || {
        cat "$dir/format.out" >&2
        die 69 "Kafka's storage could not be formatted in $dir"
    }
}

kafka_start_node() {
    local n=$1 dir archive share
    dir=$(kafka_dir "$n")
    archive=$(kafka_archive)
    if [ -f "$archive" ]; then
        share=-XX:SharedArchiveFile=$archive
    elif [ "$n" = 1 ]; then
        share=-XX:ArchiveClassesAtExit=$dir/classes.jsa
    else
        share=-Xshare:auto
    fi
    # One tier of compilation and the serial collector: on two cores the optimising compiler would
    # take the first minutes' time from the models that are to run here.
    (
        cd "$dir" || exit
        exec setsid java -Xms64m "-Xmx${PELTON_KAFKA_HEAP:-512m}" -XX:+UseSerialGC \
            -XX:TieredStopAtLevel=1 -XX:MaxDirectMemorySize=256m -Djava.awt.headless=true \
            "$share" -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off \
            -Dpelton.log="$var/log/kafka-$n.log" -Dlog4j2.disableJmx=true \
            -Dlog4j2.configurationFile="$root/ops/kafka/log4j2.properties" \
            -cp "$kafka_libs/*" kafka.Kafka "$dir/server.properties" \
            >"$var/log/kafka-$n.out" 2>&1 </dev/null 9>&-
    ) &
    say $! >"$dir/pid"
}

# kafka_launch NODES: starts what does not run, without waiting. NODES may be empty: as before, or
# 1.
kafka_launch() {
    local n had
    had=$(kafka_nodes)
    [ -z "$had" ] || [ -z "$1" ] || [ "$had" = "$1" ] ||
        die 78 "this data belongs to $had node(s), not $1: ops/services wipe first"
    [ -n "$had" ] || conf_set "$state" kafka.nodes "${1:-1}"
    # 16 random bytes in URL-safe base64, without padding: Kafka's own form of a cluster id. A
    # leading dash would be read as an option.
    [ -n "$(conf_get "$state" kafka.id)" ] ||
        conf_set "$state" kafka.id \
            "P$(head -c 16 /dev/urandom | base64 | tr '+/' 'Ab' | cut -c2-22)"
    for n in $(kafka_each); do
        kafka_alive "$n" || kafka_ports "$n"
    done
    kafka_configure
    for n in $(kafka_each); do
        kafka_alive "$n" && continue
        kafka_format "$n"
        kafka_start_node "$n"
    done
}

# kafka_ask NODE: asks for Metadata (version 4, no topics) and prints how many brokers the node
# knows, or fails if it does not answer or belongs to another cluster. The answer is: length,
# correlation id, throttle time, number of brokers (4 bytes each), ..., the cluster id as text.
kafka_ask() {
    local port answer length
    port=$(kafka_port "$1")
    answer=$(kafka_dir "$1")/answer
    timeout 5 bash -c '
        exec 3<>/dev/tcp/127.0.0.1/$0 || exit 1
        printf "\0\0\0\x13\0\3\0\4\0\0\0\1\0\4ping\0\0\0\0\0" >&3
        length=$(head -c 4 <&3 | od -An -tx1 | tr -d " \n")
        head -c "$((16#$length))" <&3' "$port" >"$answer" 2>/dev/null || return 1
    grep -qaF -- "$(conf_get "$state" kafka.id)" "$answer" || return 1
    length=$(od -An -tu1 -j 11 -N 1 "$answer" | tr -d ' ')
    say "${length:-0}"
}

# Waits until every node answers and knows all the others. A node that dies on the way is started
# again: after a kill -9 the controllers refuse the same node until its old session has run out
# (3 s), and a port may have been lost to another program.
kafka_wait() {
    local n nodes tries=0 deadline=$((SECONDS + 90))
    nodes=$(kafka_nodes)
    for n in $(kafka_each); do
        until [ "$(kafka_ask "$n" || true)" = "$nodes" ]; do
            [ $SECONDS -lt $deadline ] ||
                die 69 "Kafka node $n is not ready after 90 s: $var/log/kafka-$n.log"
            if ! kafka_alive "$n"; then
                [ $((tries += 1)) -le 5 ] || {
                    tail -3 "$var/log/kafka-$n.out" "$var/log/kafka-$n.log" >&2
                    die 69 "Kafka node $n ends at once; its log is $var/log/kafka-$n.log"
                }
                sleep 1
                kafka_launch ''
            fi
            sleep 0.2
        done
    done
}

kafka_status() {
    local n dir rc=0
    for n in $(kafka_each); do
        dir=$(kafka_dir "$n")
        if ! kafka_alive "$n"; then
            say "kafka-$n     down"
            rc=1
        elif ! kafka_ask "$n" >/dev/null; then
            say "kafka-$n     pid $(cat "$dir/pid")  127.0.0.1:$(kafka_port "$n")  does not answer"
            rc=1
        else
            say "kafka-$n     pid $(cat "$dir/pid")  127.0.0.1:$(kafka_port "$n")" \
                " $(du -sh "$dir/data" | cut -f1)  cluster $(conf_get "$state" kafka.id)"
        fi
    done
    return $rc
}

kafka_kill() {
    kafka_alive "$1" || die 69 "kafka-$1 does not run"
    kill -9 "$(cat "$(kafka_dir "$1")/pid")"
}

kafka_start() {
    [ -f "$(kafka_dir "$1")/server.properties" ] || die 69 "there is no kafka-$1"
    kafka_alive "$1" || kafka_start_node "$1"
}

# All at once: with the others gone, the last of three controllers has no quorum to hand over to and
# would wait for it.
kafka_stop() {
    local n
    for n in $(kafka_each); do
        kafka_alive "$n" && kill "$(cat "$(kafka_dir "$n")/pid")" || true
    done
    for n in $(kafka_each); do
        pid_stop "$(kafka_dir "$n")/pid" "$(kafka_dir "$n")/server.properties" 30
        [ ! -f "$(kafka_dir "$n")/classes.jsa" ] ||
            mv "$(kafka_dir "$n")/classes.jsa" "$(kafka_archive)"
    done
}
