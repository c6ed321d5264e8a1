#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# pelton-sim as a user meets it: its last line, its bytes, its pictures, its complaints.
#
#   tests/sim/pelton-sim.sh PELTON-SIM
set -euo pipefail
case ${1:-} in
-h | --help) sed -n '4,/^set/s/^# \{0,1\}//p' "$0"; exit ;;
'' | -*) echo "usage: pelton-sim.sh PELTON-SIM" >&2; exit 64 ;;
esac
sim=$(realpath "$1")
cd "$(dirname "$0")/../.."
traces=$PWD/ops/bench/traces
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $*"
    exit 1
}
# refused STATUS TEXT ARGUMENT...: exits so, with one line that says so.
refused() {
    local status=$1 text=$2 got=0
    shift 2
    "$sim" "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$status" ] || fail "$*: exit $got, not $status"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line: $(cat "$work/err")"
    grep -qF -- "$text" "$work/err" || fail "$*: says $(cat "$work/err")"
}

azure=(--trace "$traces/azure-conv-2023.csv" --nodes 1 --scale 4 --length 10min)
"$sim" "${azure[@]}" --json --plot "$work/plots" >"$work/a"
"$sim" "${azure[@]}" --json --threads 1 >"$work/b"
cmp "$work/a" "$work/b" || fail "the same seed gives other bytes"
"$sim" "${azure[@]}" --base-batch-size 64 --policy classic,static --find-limit --json >"$work/limit"
"$sim" --trace "$traces/mooncake-conversation.jsonl" --nodes 4 --length 10min --cached 37% \
    --policy adaptive --base-batch-size 32 --json >"$work/mooncake"
grep -q 'in time: answered within 10 s and 100 ms' "$work/mooncake" ||
    fail 'in time is not explained'
! grep -q 'prompt tokens cached' "$work/mooncake" || fail 'caches where none are'
conversation=(--trace "$traces/mooncake-conversation.jsonl" --nodes 4 --scale 2 --policy adaptive
    --base-batch-size 128 --json)
"$sim" "${conversation[@]}" --prefix-affinity-weight 0 >"$work/caches"
"$sim" "${conversation[@]}" >"$work/affinity"
"$sim" "${conversation[@]}" --prefix-caches shared >"$work/shared"
"$sim" "${conversation[@]}" --prefix-caches off >"$work/off"
"$sim" --trace "$traces/splitwise-perf-model.csv" --columns prompt=prompt_size,output=token_size \
    --base-batch-size 32 --json >"$work/offline"
ops/bench/published-day >"$work/day.csv"
"$sim" --trace "$work/day.csv" --fluid --autoscale --nodes 278 --nodes-min 68 --cached 56.25% \
    --base-batch-size 800 --kv-share 95% --utilisation-target 95% --json >"$work/day"
python3 - "$work" <<'PYTHON'
import json, pathlib, sys, xml.dom.minidom
work = pathlib.Path(sys.argv[1])
last = lambda name: json.loads((work / name).read_text().splitlines()[-1])
rows = lambda name: {row["policy"]: row for row in last(name)["policies"]}
a = rows("a")
assert list(a) == ["static", "formula", "adaptive"], a.keys()
for row in a.values():
    assert row["sustained"] and row["unfinished"] == 0 and row["requests"] > 2000, row
    assert 0 < row["latency_p50_s"] <= row["latency_p99_s"], row
    assert 0 < row["utilisation"] < row["busy"] <= 1, row
plots = sorted(path.name for path in (work / "plots").iterdir())
assert plots == ["cost-revenue.svg", "latency.svg", "nodes.svg"], plots
for name in plots:
    svg = xml.dom.minidom.parse(str(work / "plots" / name))
    assert svg.documentElement.tagName == "svg", name
    assert len(svg.getElementsByTagName("polyline")) >= 2, name
    for line in svg.getElementsByTagName("polyline"):
        for point in line.getAttribute("points").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= 760 and 0 <= y <= 420, (name, point)
limit = rows("limit")
assert limit["static"]["limit_scale"] > 2 * limit["classic"]["limit_scale"], limit
assert rows("mooncake")["adaptive"]["sustained"]
cached = {name: rows(name)["adaptive"] for name in ("off", "caches", "affinity", "shared")}
shares = [cached[name]["cached_share"] for name in cached]
assert shares[0] == 0 and 0.1 < shares[1] < 0.2 < shares[2] < shares[3], shares
assert abs(shares[3] - 0.3736) < 0.005, shares  # what the trace's description says
assert cached["affinity"]["latency_p50_s"] < 0.9 * cached["caches"]["latency_p50_s"]
assert rows("offline")["adaptive"]["unfinished"] == 0
golden = json.loads(pathlib.Path("tests/golden/deepseek-day.json").read_text())
day = rows("day")["adaptive"]
expected = golden["expected"]
revenue = float(expected["revenue_usd_from_rounded_tokens"])
assert abs(day["revenue_usd"] / revenue - 1) < expected["revenue_tolerance"], day["revenue_usd"]
assert abs(day["cost_usd"] / float(expected["cost_usd"]) - 1) < 0.03, day["cost_usd"]
assert day["nodes_min"] == 68 and 0.97 * 278 < day["nodes_max"] <= 278, day
assert 0.9 < day["utilisation"] < day["busy"] <= 1, day
assert abs(day["output_tokens"] / golden["tokens"]["output"] - 1) < 1e-3, day["output_tokens"]
PYTHON

printf 'decode,prefill,kv_tokens,imbalance,us\n' >"$work/steps.csv"
for rows in 1 2 3 4 5 6 7 8 9 10; do
    echo "$rows,$((rows % 3 * 16)),$((rows * 100)),1,$((500 + 20 * rows + rows % 3 * 16 * 3))"
done >>"$work/steps.csv"
"$sim" --fit "$work/steps.csv" -o "$work/model.txt" | grep -q "^10 steps: 500.0 us" ||
    fail "the fit does not find 500 us"
"$sim" "${azure[@]}" --model "$work/model.txt" --policy static --base-batch-size 8 \
    >/dev/null

refused 64 'unknown key "fidn-limit"' --fidn-limit
refused 64 '--trace FILE is needed' --policy static
refused 64 '"best" is none of static' "${azure[@]}" --policy static,best
refused 64 'static is named twice' "${azure[@]}" --policy static,static
refused 66 'step model h900-node: No such file' "${azure[@]}" --model h900-node
refused 64 'neither prompt=NAME' "${azure[@]}" --columns input=x
refused 65 'days of the trace; at most 31' --trace "$traces/azure-conv-2023.csv" --scale 1e-6
refused 64 'above --nodes' "${azure[@]}" --nodes-min 2
refused 64 'lstm needs' "${azure[@]}" --predictor lstm
refused 65 'needs a trace by windows' "${azure[@]}" --fluid --base-batch-size 8
refused 65 'no arrival rate' --trace "$traces/splitwise-perf-model.csv" \
    --columns prompt=prompt_size,output=token_size --base-batch-size 8 --find-limit
refused 64 'base-batch-size 100 is above --max-batch-size 50' "${azure[@]}" \
    --base-batch-size 100 --max-batch-size 50
refused 73 'plot folder /dev/null: it is no folder' "${azure[@]}" --plot /dev/null
[ ! -s "$work/out" ] || fail "it ran before it looked at the plot folder"
refused 65 'the header has TIMESTAMP, ContextTokens, GeneratedTokens' "${azure[@]}" \
    --columns prompt=input,output=GeneratedTokens
refused 64 '--predict takes a day' --predict "${azure[@]}" --columns prompt=a,output=b
refused 64 'nodes' --nodes 100000
refused 65 'trace /dev/null: the file is empty' --trace /dev/null
refused 66 'routing /nonexistent: No such file' "${azure[@]}" --routing /nonexistent
printf 'window_start_s,rate_rps,clients,prompt,output\n0,1e9,1,100,100\n' >"$work/huge.csv"
refused 65 'about 6e+11 requests' --trace "$work/huge.csv"
"$sim" --trace "$traces/azure-conv-2023.csv" --columns prompt=ContextTokens,output=GeneratedTokens \
    --policy adaptive --base-batch-size 32 >"$work/out"
echo "decode,prefill,kv_tokens,imbalance,us" >"$work/bad.csv"
echo "1,2,3,0.5,4" >>"$work/bad.csv"
refused 65 'bad.csv, line 2: expected decode' --fit "$work/bad.csv"
refused 66 'trace /nonexistent: No such file' --trace /nonexistent
refused 66 '--fit /nonexistent: No such file' --fit /nonexistent
refused 66 'predictor /nonexistent: No such file' "${azure[@]}" --prediction-model-path /nonexistent
refused 64 '--fluid needs --base-batch-size' "${azure[@]}" --fluid
refused 73 'plot folder /proc/x: No such file' "${azure[@]}" --plot /proc/x
refused 73 'step model /nonexistent/x: No such file' --fit "$work/steps.csv" -o /nonexistent/x
refused 64 'unknown key "-X"' "${azure[@]}" -X linger.ms=5
printf 'kafka: {linger.ms: 5}\n' >"$work/kafka.yaml"
refused 78 'kafka.yaml:1' --config "$work/kafka.yaml"
"$sim" --help >"$work/help"
grep -q '^Exit codes: 0 done, 64 ' "$work/help" || fail "--help has no exit codes"
! grep -q -- -X "$work/help" || fail "--help offers a setting for librdkafka"
echo "pelton-sim: as promised"
