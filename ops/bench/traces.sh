#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# traces.sh [FOLDER]: the runs behind docs/RESULTS.md, one text file each (FOLDER: var/results).
#
# All policies' parameters are pelton-sim's defaults, the same on every trace; nodes and rates are
# chosen so that a trace keeps its nodes busy at its peak.
set -euo pipefail
case ${1:-} in
-h | --help) sed -n '4,/^set/s/^# \{0,1\}//p' "$0"; exit ;;
-*) echo "traces.sh: unknown option $1; --help says how" >&2; exit 64 ;;
esac
folder=$(realpath -m "${1:-$(dirname "$0")/../../var/results}")
cd "$(dirname "$0")/../.."
mkdir -p "$folder"
sim=${PELTON_SIM:-build/pelton-sim}
traces=ops/bench/traces
all=static,formula,adaptive,classic
run() {
    local name=$1
    shift
    [ ! -s "$folder/$name.txt" ] || return 0 # goes on where it was stopped
    { "$sim" "$@" --json >"$folder/$name.part"; } 2>"$folder/$name.err" ||
        { cat "$folder/$name.err"; return 1; }
    rm "$folder/$name.err"
    mv "$folder/$name.part" "$folder/$name.txt"
    echo "== $name: pelton-sim $*"
    grep -v '^{' "$folder/$name.txt"
    echo
}
azure=(--trace $traces/azure-conv-2023.csv --nodes 1)
mooncake=(--trace $traces/mooncake-conversation.jsonl --nodes 2 --cached 37%)
day=(--trace $traces/servegen-deepseek-r1-day.csv)

run azure "${azure[@]}" --scale 2 --policy $all --find-limit
run azure-rush "${azure[@]}" --scale 4 --policy $all
run azure-classes "${azure[@]}" --scale 4 --policy static,adaptive --interactive 20%
run mooncake "${mooncake[@]}" --scale 1.5 --policy $all --find-limit
run mooncake-rush "${mooncake[@]}" --scale 2.5 --policy $all
run day-morning "${day[@]}" --from 5h --length 3h --nodes 5 --policy $all --find-limit
run day-morning-measured "${day[@]}" --from 5h --length 3h --nodes 5 --kv-measured \
    --policy static,adaptive --find-limit
for base in 32; do # no sweep: what an untuned configuration gets
    run "azure-base-$base" "${azure[@]}" --scale 2 --base-batch-size $base --find-limit
    run "mooncake-base-$base" "${mooncake[@]}" --scale 1.5 --base-batch-size $base --find-limit
    run "day-morning-base-$base" "${day[@]}" --from 5h --length 3h --nodes 5 \
        --base-batch-size $base --find-limit
done
{
    echo prompt,output
    tail -n +2 $traces/azure-conv-2023.csv | tr -d '\r' | cut -d, -f2,3
} >"$folder/job.csv"
run offline --trace "$folder/job.csv" --columns prompt=prompt,output=output --nodes 1 --policy $all
run day "${day[@]}" --nodes 5 --policy $all --find-limit --plot "$folder/day"

# The planner: settings swept on the first half of the day, what was chosen on the second and the
# whole, and the second at ten times the rate, where a node is no step of 20 %.
scaled=("${day[@]}" --policy adaptive --autoscale)
run day-autoscale "${scaled[@]}" --base-batch-size 32 --nodes 10 --plot "$folder/day-autoscale"
for share in 80 85 90 95 100; do
    at=("${scaled[@]}" --base-batch-size 32 --utilisation-target $share%)
    run "first-half-$share" "${at[@]}" --nodes 10 --length 12h
    run "second-half-$share" "${at[@]}" --nodes 10 --from 12h
    run "second-half-10x-$share" "${at[@]}" --nodes 100 --nodes-min 10 --scale 10 --from 12h
done
half=("${scaled[@]}" --nodes 10 --length 12h)
run first-half-base-512 "${half[@]}" --base-batch-size 512
half+=(--base-batch-size 32)
for time in 2 5 20; do run "first-half-down-$time" "${half[@]}" --scale-down-after ${time}min; done
for time in 5 10; do run "first-half-window-$time" "${half[@]}" --planner-window ${time}min; done
for name in constant holt-winters; do run "first-half-$name" "${half[@]}" --predictor $name; done
ops/bench/agents >"$folder/agents.jsonl"
for name in conversation agents; do # prefix caches, and who gets what for them
    prompts=(--trace $traces/mooncake-conversation.jsonl --scale 2.5)
    [ $name = conversation ] || prompts=(--trace "$folder/agents.jsonl" --scale 3)
    prompts+=(--nodes 4 --policy adaptive --base-batch-size 128)
    run "$name-affinity" "${prompts[@]}" --find-limit
    run "$name-load" "${prompts[@]}" --prefix-affinity-weight 0 --find-limit
    run "$name-shared" "${prompts[@]}" --prefix-affinity-weight 0 --prefix-caches shared \
        --find-limit
    run "$name-none" "${prompts[@]}" --prefix-caches off --find-limit
done
for weight in 0 1; do # a job: all there at once
    run "agents-job-$weight" --trace "$folder/agents.jsonl" --scale 1000 --nodes 4 \
        --policy adaptive --base-batch-size 128 --prefix-affinity-weight $weight
done
run agents-job-shared --trace "$folder/agents.jsonl" --scale 1000 --nodes 4 --policy adaptive \
    --base-batch-size 128 --prefix-affinity-weight 0 --prefix-caches shared
ops/bench/published-day >"$folder/published-day.csv"
run published-day --trace "$folder/published-day.csv" --fluid --autoscale --nodes 278 \
    --nodes-min 68 --cached 56.25% --base-batch-size 800 --kv-share 95% \
    --utilisation-target 95% --plot "$folder/published-day"
