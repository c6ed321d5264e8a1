#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# traces.sh [FOLDER]: the runs behind docs/RESULTS.md, one text file each (FOLDER: var/results).
#
# The policies' parameters are the same on every trace: those that pelton-scheduler ships, and the
# step target that belongs to the limit on latency. Two kinds of runs differ, and say so in their
# names: untuned-* (nothing but what is shipped) and published-day*. Nodes and rates are chosen so
# that a trace keeps its nodes busy at its peak.
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
promise=(--step-target 100ms) # what pelton-sim's limit gives every output token
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
azure_alone=(--trace $traces/azure-conv-2023.csv --nodes 1)
mooncake_alone=(--trace $traces/mooncake-conversation.jsonl --nodes 2 --cached 37%)
day_alone=(--trace $traces/servegen-deepseek-r1-day.csv)
azure=("${azure_alone[@]}" "${promise[@]}")
mooncake=("${mooncake_alone[@]}" "${promise[@]}")
day=("${day_alone[@]}" "${promise[@]}")

run azure "${azure[@]}" --scale 2 --policy $all --find-limit
run azure-rush "${azure[@]}" --scale 4 --policy $all
run azure-classes "${azure[@]}" --scale 4 --policy static,adaptive --interactive 20%
run mooncake "${mooncake[@]}" --scale 1.5 --policy $all --find-limit
run mooncake-rush "${mooncake[@]}" --scale 2.5 --policy $all
run day-morning "${day[@]}" --from 5h --length 3h --nodes 5 --policy $all --find-limit
run day-morning-measured "${day[@]}" --from 5h --length 3h --nodes 5 --kv-measured \
    --policy static,adaptive --find-limit
# What an untuned configuration gets: no sweep, no step target; and with the published maximum.
untuned=(--base-batch-size 32 --find-limit)
for max in auto 128; do
    run "untuned-azure-$max" "${azure_alone[@]}" --scale 2 "${untuned[@]}" --max-batch-size $max
    run "untuned-mooncake-$max" "${mooncake_alone[@]}" --scale 1.5 "${untuned[@]}" \
        --max-batch-size $max
    run "untuned-day-morning-$max" "${day_alone[@]}" --from 5h --length 3h --nodes 5 \
        "${untuned[@]}" --max-batch-size $max
done
# Short requests beside long ones.
for tokens in 0 2048 4096 8192; do
    long=(--policy adaptive --by-length 4096 --long-request-tokens $tokens)
    run "long-$tokens-azure" "${azure_alone[@]}" --scale 2 "${untuned[@]}" "${long[@]}"
    run "long-$tokens-mooncake" "${mooncake_alone[@]}" --scale 1.5 "${untuned[@]}" "${long[@]}"
    run "long-$tokens-day-morning" "${day_alone[@]}" --from 5h --length 3h --nodes 5 \
        "${untuned[@]}" "${long[@]}"
    long+=(--base-batch-size 32)
    run "long-$tokens-azure-rush" "${azure_alone[@]}" --scale 4 "${long[@]}"
    run "long-$tokens-mooncake-rush" "${mooncake_alone[@]}" --scale 2.5 "${long[@]}"
    run "long-$tokens-day-rush" "${day_alone[@]}" --from 6h --length 1h --nodes 5 --scale 1.5 \
        "${long[@]}"
done
{
    echo prompt,output
    tail -n +2 $traces/azure-conv-2023.csv | tr -d '\r' | cut -d, -f2,3
} >"$folder/job.csv"
run offline --trace "$folder/job.csv" --columns prompt=prompt,output=output --nodes 1 \
    "${promise[@]}" --policy $all
run day "${day[@]}" --nodes 5 --policy $all --find-limit --plot "$folder/day"

# The planner: settings swept on the first half of the day, what was chosen on the second and the
# whole, and the second at ten times the rate, where a node is no step of 20 %.
scaled=("${day[@]}" --policy adaptive --autoscale)
run day-autoscale "${scaled[@]}" --base-batch-size 32 --nodes 10 --plot "$folder/day-autoscale"
for share in 80 90 95 100; do
    at=("${scaled[@]}" --base-batch-size 32 --utilisation-target $share%)
    run "first-half-$share" "${at[@]}" --nodes 10 --length 12h
    [ $share = 100 ] || run "second-half-$share" "${at[@]}" --nodes 10 --from 12h
    [ $share -gt 90 ] || run "second-half-10x-$share" "${at[@]}" --nodes 100 --nodes-min 10 \
        --scale 10 --from 12h
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
    prompts+=("${promise[@]}" --nodes 4 --policy adaptive --base-batch-size 32)
    run "$name-affinity" "${prompts[@]}" --find-limit
    run "$name-load" "${prompts[@]}" --prefix-affinity-weight 0 --find-limit
    run "$name-shared" "${prompts[@]}" --prefix-affinity-weight 0 --prefix-caches shared \
        --find-limit
    run "$name-none" "${prompts[@]}" --prefix-caches off --find-limit
    run "$name-long" "${prompts[@]}" --long-request-tokens 4096 --by-length 4096 --find-limit
done
for weight in 0 1; do # a job: all there at once
    run "agents-job-$weight" --trace "$folder/agents.jsonl" --scale 1000 --nodes 4 \
        "${promise[@]}" --policy adaptive --base-batch-size 32 --prefix-affinity-weight $weight
done
run agents-job-shared --trace "$folder/agents.jsonl" --scale 1000 --nodes 4 --policy adaptive \
    "${promise[@]}" --base-batch-size 32 --prefix-affinity-weight 0 --prefix-caches shared
ops/bench/published-day >"$folder/published-day.csv"
published=(--trace "$folder/published-day.csv" --fluid --autoscale --cached 56.25%)
own=(--base-batch-size 800 --kv-share 95% --utilisation-target 95% "${promise[@]}")
run published-day "${published[@]}" "${own[@]}" --nodes 278 --nodes-min 68 \
    --plot "$folder/published-day"
run published-day-unbounded "${published[@]}" "${own[@]}" --nodes 1000
run published-day-untuned "${published[@]}" --base-batch-size 32 --nodes 1000
run predict --predict --trace $traces/servegen-deepseek-r1-day.csv \
    --prediction-model-path ops/models/traffic-lstm.safetensors
