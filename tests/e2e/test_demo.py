# SPDX-License-Identifier: Apache-2.0
"""The whole path, in f32: the demo requests by `pelton submit` and by a foreign producer, streams,
cancellation, expiry, resubmission, metrics."""

import json
import re
import signal
import subprocess

import pytest

import harness
import records
from harness import SAMPLES, wait_for, wait_streamed

MODEL = "pelton-demo"


@pytest.fixture(scope="module")
def running(system):
    return system.start(worker_args=("--numerics", "f32"))


def reference(name):
    lines = (SAMPLES / f"{name}.reference.jsonl").read_text().splitlines()
    return {r["custom_id"]: (r["text"], r["prompt_tokens"], r["completion_tokens"])
            for r in map(json.loads, lines)}


def requests(name="demo"):
    return [json.loads(line) for line in (SAMPLES / f"{name}.jsonl").read_text().splitlines()]


def line(custom_id, content="Calculate:\n23 minus 7", **body):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": [{"role": "user", "content": content}],
                     "max_tokens": 8, "temperature": 0} | body}


# A request that takes a while: as many tokens as the context holds, past every end mark.
def long_line(custom_id):
    return line(custom_id, max_tokens=200, ignore_eos=True)


def answer(output):
    body = output["response"]["body"]
    choice = body["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return text, body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]


def of_batch(messages, batch):
    return [m for m in messages if m.get("batch_id") == batch]


def test_demo_answers(running):
    result = running.submit(requests(), "demo", "--tenant", "acme", "--wait")
    assert result.returncode == 0, result.stderr
    outputs, errors = running.collect("demo")
    assert errors == []
    assert len(outputs) == 24
    assert {o["custom_id"]: answer(o) for o in outputs} == reference("demo")
    for output in outputs:
        assert output["error"] is None and output["response"]["status_code"] == 200
        assert output["response"]["body"]["model"] == MODEL


def test_demo_on_the_topics_and_in_sql(running):
    results = of_batch(running.read("results"), "demo")
    assert {r["custom_id"]: (r["text"], r["usage"]["prompt_tokens_uncached"]
            + r["usage"]["prompt_tokens_cached"], r["usage"]["output_tokens"])
            for r in results} == reference("demo")
    assert len(results) == 24
    usages = of_batch(running.read("usage"), "demo")
    assert sorted(u["request_id"] for u in usages) == sorted(r["request_id"] for r in results)
    wait_for("24 rows", lambda: running.booked() == 24)
    rows = running.sql("""SELECT custom_id, tenant, service_class, status,
        prompt_tokens_uncached + prompt_tokens_cached, output_tokens FROM usage""")
    assert sorted(rows) == sorted((c, "acme", "bulk", "completed", p, o)
                                  for c, (_, p, o) in reference("demo").items())
    costs = running.sql("SELECT requests, billed_cost, list_cost FROM cost_by_batch")
    assert costs[0][0] == 24 and 0 < costs[0][1] < costs[0][2]


def test_messages_carry_trace_and_event_headers(running):
    # A scheduler that runs would have the request deleted once it is answered.
    running["scheduler"].signal(signal.SIGSTOP)
    try:
        assert running.submit([line("traced")], "traced").returncode == 0
        messages = [running.read("requests.bulk", raw=True)[-1]]
    finally:
        running["scheduler"].signal(signal.SIGCONT)
    assert len(running.collect("traced")[0]) == 1
    messages.append(running.read("results", raw=True)[0])
    for message in messages:
        headers = dict(message.headers())
        assert re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-01", headers["traceparent"])
        assert headers["ce_specversion"] == b"1.0" and headers["ce_type"].startswith(b"pelton.")


def test_a_foreign_producer_gets_the_same_answers(running):
    messages = [records.request(r["custom_id"], r["body"], "foreign") for r in requests()]
    records.produce(running.services.brokers, running.prefix + "requests.interactive",
                    [(m["request_id"], records.encode("Request", m)) for m in messages])
    results = wait_for("24 results", lambda: (
        lambda found: found if len(found) >= 24 else None)(of_batch(running.read("results"),
                                                                    "foreign")))
    assert {r["custom_id"]: r["text"] for r in results} == \
        {c: text for c, (text, _, _) in reference("demo").items()}
    assert sorted(r["request_id"] for r in results) == sorted(m["request_id"] for m in messages)


def test_bytes_that_are_no_request(running):
    good = records.request("neighbour", line("x")["body"], "garbage")
    topic = running.prefix + "requests.bulk"
    def letters():
        return running.read("dead-letters", raw=True)

    before = {(m.partition(), m.offset()) for m in letters()}
    records.produce(running.services.brokers, topic, [
        ("1", b"not avro"), ("2", b""), ("3", b"\xc3\x01" + bytes(8) + b"unknown writer"),
        ("4", records.encode("Request", good)[:-20]),
        (good["request_id"], records.encode("Request", good)),
    ])
    wait_for("the neighbour", lambda: of_batch(running.read("results"), "garbage"))
    wait_for("dead letters", lambda: len(letters()) >= len(before) + 4)
    new = [m for m in letters() if (m.partition(), m.offset()) not in before]
    assert len(new) == 4
    assert sorted(m.value() or b"" for m in new)[:2] == [b"", b"not avro"]
    for letter in new:
        headers = dict(letter.headers())
        assert headers["__connect.errors.topic"].decode() == topic
        assert headers["__connect.errors.exception.message"]


def test_resubmission_is_harmless(running):
    before = len(of_batch(running.read("results"), "demo"))
    result = running.submit(requests(), "demo", "--tenant", "acme", "--wait")
    assert result.returncode == 0, result.stderr
    fence = running.submit([line("fence")], "fence", "--wait")
    assert fence.returncode == 0, fence.stderr
    assert len(of_batch(running.read("results"), "demo")) == before == 24
    outputs, _ = running.collect("demo")
    assert len(outputs) == 24


def test_the_same_batch_from_another_file(running):
    """`pelton submit` refuses it; from a foreign producer the request is a dead letter, and the
    answer that was given stands."""
    assert running.submit([line("a")], "conflict", "--wait").returncode == 0
    again = running.submit([line("a", "Calculate:\n1 plus 1"), line("b")], "conflict")
    assert again.returncode == 64 and "another file" in again.stderr
    result, = of_batch(running.read("results"), "conflict")
    other = records.request("a", line("a", "Calculate:\n1 plus 1")["body"], "conflict",
                            request_id=result["request_id"], tenant=result["tenant"])
    neighbour = records.request("n", line("n")["body"], "neighbour")
    records.produce(running.services.brokers, running.prefix + "requests.bulk",
                    [(m["request_id"], records.encode("Request", m), 0)
                     for m in (other, neighbour)])
    wait_for("the neighbour", lambda: of_batch(running.read("results"), "neighbour"))
    reasons = wait_for("a dead letter", lambda: [
        reason for m in running.read("dead-letters", raw=True)
        if b"id_conflict" in (reason := dict(m.headers())["__connect.errors.exception.message"])])
    assert len(reasons) == 1
    (output,), errors = running.collect("conflict")
    assert errors == [] and answer(output)[0] == "16"


def test_streams(running):
    running.submit([line(f"i{n}") for n in range(8)], "live", "--class", "interactive", "--wait")
    running.submit([line(f"b{n}") for n in range(8)], "quiet", "--wait")
    running.submit([line(f"s{n}") for n in range(8)], "loud", "--stream", "--wait")
    results = [r for r in running.read("results") if r["batch_id"] in ("live", "loud")]
    assert len(results) == 16
    wait_streamed(running.services.brokers, running.prefix + "tokens", results)
    assert not of_batch(running.read("tokens"), "quiet"), "class bulk does not stream by itself"


def test_tail(running):
    running.submit([line("t1"), line("t2")], "tail", "--stream", "--wait")
    result = running.pelton("tail", "tail", timeout_s=180)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("16") == 2 and "t1" in result.stdout and "t2" in result.stdout


def test_cancel(running):
    # So many that no machine is near their end when the first results were seen here.
    lines = [long_line(f"c{n}") for n in range(2000)]
    assert running.submit(lines, "cancel").returncode == 0
    wait_for("it began", lambda: of_batch(running.read("results"), "cancel"))
    assert running.pelton("cancel", "cancel").returncode == 0
    fence = running.submit([line("after")], "after", "--wait")
    assert fence.returncode == 0
    outputs, errors = running.collect("cancel")
    assert len(outputs) + len(errors) == 2000
    assert len({o["custom_id"] for o in outputs + errors}) == 2000
    assert len(errors) > 200 and all("cancel" in json.dumps(e["error"]) for e in errors)
    assert len(of_batch(running.read("results"), "cancel")) == 2000
    wait_for("all booked", lambda: running.sql(
        "SELECT count(*) FROM usage WHERE batch_id = 'cancel'") == [(2000,)])
    # Nobody pays for what was never begun.
    assert running.sql("""SELECT count(*) FROM usage WHERE batch_id = 'cancel'
        AND status = 'cancelled' AND attempt = 0 AND prompt_tokens_uncached + output_tokens > 0
        """) == [(0,)]


def test_completion_window(running):
    blocker = [long_line(f"w{n}") for n in range(2000)]
    running.submit(blocker, "blocker")
    running.submit([line(f"e{n}") for n in range(20)], "expire", "--completion-window", "1s")
    outputs, errors = running.collect("expire")
    assert len(outputs) + len(errors) == 20
    assert errors and all("expire" in json.dumps(e["error"]) for e in errors)
    running.pelton("cancel", "blocker")
    running.collect("blocker")


def test_status(running):
    result = running.pelton("status", "demo", "--json")
    assert result.returncode == 0, result.stderr
    status = json.loads(result.stdout)
    assert (status["total"], status["completed"], status["failed"]) == (24, 24, 0)
    # The list says the same of every job, counted in one walk over the results.
    results = running.read("results")
    listed = [json.loads(each) for each in running.pelton("status", "--json").stdout.splitlines()]
    assert {"demo", "cancel", "expire"} <= {job["batch"] for job in listed}
    for job in listed:
        mine = [r for r in of_batch(results, job["batch"]) if r["tenant"] == job["tenant"]]
        completed = [r for r in mine if r["status"] == "COMPLETED"]
        assert (job["finished"], job["completed"]) == (len(mine), len(completed)), job
        assert job["state"] == ("cancelled" if job["batch"] in ("cancel", "blocker")
                                else "completed"), job
    unknown = running.pelton("status", "no-such-batch")
    assert unknown.returncode != 0 and "no-such-batch" in unknown.stderr


def test_standard_input(running):
    text = "\n".join(json.dumps(line(f"p{n}")) for n in range(3))
    assert running.pelton("submit", "-", stdin=text).returncode == 64, "it needs a name"
    result = running.pelton("submit", "-", "--batch", "piped", "--wait", stdin=text)
    assert result.returncode == 0, result.stderr
    assert len(running.collect("piped")[0]) == 3


def test_completions_endpoint(running):
    body = {"model": MODEL, "prompt": "Calculate:\n23 minus 7", "max_tokens": 4, "temperature": 0}
    running.submit([{"custom_id": "text", "method": "POST", "url": "/v1/completions",
                     "body": body}], "text", "--wait")
    (output,), errors = running.collect("text")
    assert errors == [] and output["response"]["body"]["object"] == "text_completion"
    assert output["response"]["body"]["usage"]["completion_tokens"] <= 4


def test_metrics(running):
    for name in ("scheduler", "worker-0", "ledger"):
        assert running[name].get("/healthz")[0] == 200
        metrics = running[name].metrics()
        assert metrics and all(key.startswith("pelton_") for key in metrics), metrics
        assert running[name].get("/nowhere")[0] == 404
    wait_for("lag 0", lambda: running["ledger"].metric("pelton_ledger_lag") == 0)


@pytest.mark.parametrize("program", ["pelton", "pelton-scheduler", "pelton-worker",
                                     "pelton-ledger"])
def test_help_and_version(program):
    for option, text in (("--help", program), ("--version", "0.1.0")):
        result = subprocess.run([harness.BUILD / program, option], capture_output=True, text=True)
        assert result.returncode == 0 and text in result.stdout, result
