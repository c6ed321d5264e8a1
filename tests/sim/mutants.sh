#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# mutants - does the simulator find what it is there to find?
#
# Breaks the core in one way at a time, each a promise of scheduler/scheduler.h that somebody might
# break by accident, and expects the simulator to fail. A mutant that changes nothing or survives
# fails this test.
#
#   tests/sim/mutants.sh SOURCE... LIBRARY...    the core's, and static libraries beside it
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
core='' libraries=''
for argument; do
    case $argument in
    *.c) core="$core $(basename "$argument" .c)" ;;
    *) libraries="$libraries $argument" ;;
    esac
done
system="$(pkg-config --libs rdkafka avro-c yaml-0.1 libmicrohttpd libcrypto) -lm -lpthread"
seeds=${SEEDS:-4000}
flags="-std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -O1 -w"
for name in $core; do
    echo "${CC:-cc} $flags -c scheduler/$name.c -o $work/$name.o"
done >"$work/jobs"
for file in tests/sim/*.c; do
    echo "${CC:-cc} $flags -c $file -o $work/sim_$(basename "$file" .c).o"
done >>"$work/jobs"
xargs -P 2 -I{} sh -c '{}' <"$work/jobs"

survivors=0
# mutant NAME FILE SED-SCRIPT
mutant() {
    local name=$1 file=$2 script=$3
    sed -E "$script" "scheduler/$file.c" >"$work/mutant.c"
    if cmp -s "$work/mutant.c" "scheduler/$file.c"; then
        echo "$name: the script changes nothing in scheduler/$file.c"
        survivors=$((survivors + 1))
        return
    fi
    ${CC:-cc} $flags -c "$work/mutant.c" -o "$work/mutant.o"
    ${CC:-cc} "$work/mutant.o" $(ls "$work"/*.o | grep -v -e "/$file.o" -e /mutant.o) \
        -Wl,--start-group $libraries -Wl,--end-group -o "$work/sim" $system
    if timeout 60 "$work/sim" --seeds "$seeds" >"$work/out" 2>&1; then
        echo "$name: survives $seeds seeds"
        survivors=$((survivors + 1))
    else
        echo "$name: found ($(tail -1 "$work/out"))"
    fi
}
mutant "events are not read to the end" tick \
    's/^( *slot->reading_to_end = true;)/\1 events_end(scheduler, index);/'
mutant "the lease is counted short" tick \
    's/now_ms - lease_ms - lease_margin/now_ms - lease_ms \/ 3 - lease_margin/'
mutant "a new Hello ends the older lease" events \
    's/^( *current->superseded = true;)/\1 return_all(scheduler, current, true);/'
mutant "a takeover presumes nobody alive" restore \
    's/(run->seen_ms = run->worker_time_ms = )scheduler->now_ms/\10/'
mutant "no Cancel at the end of a lease" events 's/if \(crash && !run->superseded\)/if (0)/'
mutant "the stored offset passes what waits" intake 's/if \(partition->queued.head\)/if (0)/'
mutant "progress is not replayed" events 's/ && record->type != RECORD_PROGRESS\)/)/'
mutant "everything is replayed" events 's/event->position.offset < slot->stored/0/'
mutant "the next attempt is not forced" outputs \
    's/\.prefix = copy_ids\(scheduler, attempt->prefix, attempt->prefix_count\)/.prefix = {0}/'
mutant "events are replayed from too late" lifecycle \
    's/(attempt->events_offset = slot_next_offset.*);/\1 + 9;/'
mutant "a finished id is not remembered" lifecycle \
    's/^( *)done_mark_put\(scheduler, &job->id, job->payload.*//'
mutant "marks expire however low the offsets" tick \
    's/= marks_oldest_ms\(scheduler\);/= scheduler->now_ms - scheduler->config.dedupe_window_ms;/'
mutant "any report of any attempt counts" events \
    's/job->attempt->number != number \|\|/0 ||/
    s/!request_id_equal\(&job->attempt->run->hello.incarnation, incarnation\)/0/'
mutant "a result without mark is not settled" torn 's/if \(found->result_seen\)/if (0)/'
mutant "a mark without result stays" torn 's/else if \(found->mark && .*outputs_gone\)/else if (0)/'
mutant "a result without usage stays" torn 's/if \(!found->usage_seen && /if (0 \&\& /'
mutant "the outputs are named to their ends" outputs 's/outputs\[i\].certain\)/outputs[i].offset)/'
mutant "no usage row" outputs 's/^( *)output_usage\(scheduler, &usage\);//'
mutant "the epoch stays" restore 's/scheduler->epoch\+\+;//'
mutant "requests in flight are trimmed" torn 's/job->offset < partition->trim_next\)/0)/'
mutant "paused partitions are not resumed" tick 's/bool roomy = /bool roomy = 0 \&\& /'
mutant "a draining worker gets requests" runs 's/ && !run->draining//'
mutant "what the worker lost stays lost" events \
    's/now_ms - attempt->listed_ms > 2/now_ms - attempt->listed_ms > 2000/'
mutant "a restored job keeps no crash count" restore \
    's/attempt->crashes = in_flight->crashes;//'
exit $((survivors > 0))
