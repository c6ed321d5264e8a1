# SPDX-License-Identifier: Apache-2.0
"""One real worker with the demo model under a scheduler made by hand: every promise of R5, R6 and
R8 that is the worker's, on a real broker."""
import json
import signal
import uuid

import pytest

import wire
from harness import BUILD, ROOT, wait_for
from leader import ALL_ZERO, Leader
from stack import Process

SAMPLES = ROOT / "ops/demo/samples"


def demo():
    """(body, what the model says) of the 24 demo requests."""
    with open(SAMPLES / "demo.jsonl") as lines, \
            open(SAMPLES / "demo.reference.jsonl") as references:
        return [(json.loads(line)["body"] | {"model": ""}, json.loads(reference))
                for line, reference in zip(lines, references)]


def long_body(tokens=900):
    return {"messages": [{"role": "user", "content": "x"}], "temperature": 0,
            "max_tokens": tokens, "ignore_eos": True}


class Bench:
    def __init__(self, stack):
        self.stack, self.leader, self.count = stack, Leader(stack), 0

    def worker(self, *options):
        self.count += 1
        process = Process(f"worker-{self.count}",
                          [BUILD / "pelton-worker", "--brokers", self.stack.brokers,
                           "--topic-prefix", self.stack.prefix, "--model", ROOT / "ops/demo/model",
                           "--model-name", "demo", "--slot", "0", "--threads", "1", *options],
                          self.stack.logs)
        self.stack.processes.append(process)
        known = len(self.leader.hellos)
        self.leader.wait(f"the Hello of {process.name}", lambda: len(self.leader.hellos) > known)
        self.leader.wait("a heartbeat", lambda: self.leader.heartbeats)
        return process


@pytest.fixture
def bench(stack):
    stack.create()
    bench = Bench(stack)
    yield bench
    bench.leader.close()


def test_answers_and_streams_are_the_models_own(bench):
    leader = bench.leader
    bench.worker()
    wanted = {leader.assign(body, stream=index % 2 == 0): (index, reference)
              for index, (body, reference) in enumerate(demo())}
    leader.wait("all are done", lambda: len(leader.of("Done")) == len(wanted))
    leader.wait("nothing runs", lambda: leader.heartbeats[-1]["running"] == [])
    for request_id, (index, reference) in wanted.items():
        [done] = leader.of("Done", request_id)
        assert done["text"] == reference["text"]
        assert done["finish_reason"] == "STOP"
        usage = done["usage"]
        assert usage["prompt_tokens_uncached"] + usage["prompt_tokens_cached"] == \
            reference["prompt_tokens"]
        assert usage["output_tokens"] == reference["completion_tokens"] == len(done["ids"])
        if index % 2 == 0:
            leader.streamed(done)
        else:
            assert leader.stream(request_id) == ([], "")
    assert leader.hellos[-1]["model"] == "demo"


def test_a_chunk_follows_its_progress_and_done_follows_the_chunks(bench):
    leader = bench.leader
    bench.worker()
    request_id = leader.assign(long_body(200), stream=True)
    leader.wait("it is done", lambda: leader.of("Done"))
    [done] = leader.of("Done")
    leader.streamed(done)
    assert len(done["ids"]) == 200 and done["finish_reason"] == "LENGTH"
    assert len(leader.chunks) > 5
    said = 0
    for progress in leader.progress:
        assert progress["first_index"] == said
        said += len(progress["ids"])
    for chunk in leader.chunks:
        end = chunk["first_index"] + len(chunk["ids"])
        assert chunk["at_ms"] <= done["at_ms"]
        covered = max(p["first_index"] + len(p["ids"]) for p in leader.progress
                      if p["at_ms"] <= chunk["at_ms"])
        assert covered >= end


def test_bad_requests_fail_by_name_and_neighbours_go_on(bench):
    leader = bench.leader
    bench.worker()
    body, reference = demo()[0]
    cases = {
        leader.assign(body | {"max_tokens": 0}): ("invalid_value", "max_tokens"),
        leader.assign(body | {"n": 2}): ("unsupported_value", "n"),
        leader.assign(body | {"messages": []}): ("invalid_value", "messages"),
        leader.assign("[1"): ("invalid_json", ""),
        leader.assign({"prompt": ""}, endpoint="COMPLETIONS"): ("invalid_value", "prompt"),
        leader.assign({"prompt": [7] * 1024}, endpoint="COMPLETIONS"):
            ("context_length_exceeded", "prompt"),
        leader.assign(body, model="other"): ("model_not_found", "model"),
    }
    good = leader.assign(body)
    leader.wait("the bad ones fail and the good one is done",
                lambda: len(leader.of("Failed")) == len(cases) and leader.of("Done"))
    for request_id, (code, param) in cases.items():
        [failed] = leader.of("Failed", request_id)
        assert failed["kind"] == "REJECT"
        assert (failed["failure"]["code"], failed["failure"]["param"]) == (code, param)
        assert failed["usage"]["output_tokens"] == 0
    [done] = leader.of("Done", good)
    assert done["text"] == reference["text"]


def test_commands_of_others_are_ignored(bench):
    leader = bench.leader
    bench.worker()
    body, _ = demo()[0]
    leader.assign(body, incarnation=ALL_ZERO)
    leader.epoch = 5
    newest = leader.assign(body)
    leader.assign(body, epoch=4)
    leader.command("Cancel", epoch=4, request_id=newest, attempt=1)
    leader.wait("the newest is done", lambda: leader.of("Done"))
    leader.pump(1)
    assert [done["request_id"] for done in leader.of("Done")] == [newest]


def test_an_assignment_said_twice_runs_once_and_a_new_attempt_replaces(bench):
    leader = bench.leader
    leader.renewing = False
    bench.worker()
    body, reference = demo()[0]
    request_id = str(uuid.uuid4())
    leader.assign(body, request_id)
    leader.assign(body, request_id)
    leader.assign(body, request_id, attempt=2)
    leader.wait("it has attempt 2", lambda: leader.heartbeats[-1]["running"] == [
        {"request_id": request_id, "attempt": 2}])
    leader.renewing = True
    leader.wait("it is done", lambda: leader.of("Done"))
    leader.pump(1)
    assert [(d["attempt"], d["text"]) for d in leader.of("Done")] == [(2, reference["text"])]


def test_a_cancelled_request_is_silent(bench):
    leader = bench.leader
    bench.worker()
    # Beside so many, steps are slow: it cannot be done before it is cancelled.
    beside = [leader.assign(long_body()) for _ in range(24)]
    request_id = leader.assign(long_body())
    other = leader.assign(demo()[0][0])
    leader.command("Cancel", request_id=request_id, attempt=1)
    leader.command("Cancel", request_id=other, attempt=7)  # another attempt's
    for each in beside:
        leader.command("Cancel", request_id=each, attempt=1)
    leader.wait("the other one is done", lambda: leader.of("Done", other))
    leader.wait("nothing runs", lambda: leader.heartbeats[-1]["running"] == [])
    leader.pump(1)
    assert not leader.of("Done", request_id) and not leader.of("Yield")


def test_a_forced_prefix_is_said_again_and_only_the_rest_is_progress(bench):
    leader = bench.leader
    bench.worker()
    first = leader.assign(long_body(40), stream=True)
    leader.wait("the first is done", lambda: leader.of("Done"))
    ids = leader.of("Done")[0]["ids"]
    for forced in (1, 17, 39, 40):
        leader.progress.clear()
        request_id = leader.assign(long_body(40), attempt=2, stream=True, prefix=ids[:forced])
        leader.wait("it is done", lambda: leader.of("Done", request_id))
        [done] = leader.of("Done", request_id)
        assert done["ids"] == ids and done["text"] == leader.of("Done", first)[0]["text"]
        leader.streamed(done)
        assert all(p["first_index"] >= forced for p in leader.progress)


def test_without_a_lease_nothing_runs_and_nothing_is_said(bench):
    leader = bench.leader
    leader.renewing = False
    bench.worker("--lease", "1s")
    good = leader.assign(demo()[0][0])
    bad = leader.assign("[")
    leader.pump(2)
    leader.wait("it has both", lambda: {entry["request_id"] for entry in
                                        leader.heartbeats[-1]["running"]} == {good, bad})
    assert not leader.events and leader.heartbeats[-1]["steps"] == 0
    leader.renew(seq=1)  # too old to help: its lease is over
    leader.pump(1)
    assert not leader.events
    leader.renewing = True
    leader.wait("one is done, one fails",
                lambda: leader.of("Done", good) and leader.of("Failed", bad))


def test_an_expired_lease_stops_the_work_and_a_renewal_goes_on_with_it(bench):
    leader = bench.leader
    bench.worker("--lease", "1s", "--progress-interval", "20ms", "--progress-tokens", "4")
    wanted = [leader.assign(long_body(), stream=index == 0) for index in range(36)]
    leader.wait("progress", lambda: leader.progress)
    leader.renewing = False
    silent_from = leader.heartbeats[-1]["sent_ms"] + 1000

    def beats(at_ms):
        leader.wait("a later heartbeat", lambda: leader.heartbeats[-1]["sent_ms"] > at_ms)
        return leader.heartbeats[-1]

    silent = beats(silent_from + 1000)
    last = max(record["at_ms"] for record in
               leader.progress + leader.chunks + leader.of("Done"))
    # Between the look at the lease and the sending a busy machine may let others run.
    assert last <= silent_from + 300
    assert len(leader.of("Done")) < len(wanted)
    assert beats(silent["sent_ms"] + 1000)["steps"] == silent["steps"] > 0
    leader.renewing = True
    leader.wait("all are done", lambda: len(leader.of("Done")) == len(wanted))
    assert len(leader.hellos) == 1
    leader.streamed(leader.of("Done", wanted[0])[0])


def test_a_lease_that_does_not_come_back_ends_the_incarnation(bench):
    leader = bench.leader
    leader.renewing = False
    # The next incarnation is not to end, too, before it gets its lease here.
    bench.worker("--lease", "500ms", "--lease-keep", "3s")
    leader.assign(demo()[0][0])
    first = leader.incarnation
    leader.wait("a new incarnation", lambda: len(leader.hellos) == 2)
    assert leader.incarnation != first
    assert [g["incarnation"] for g in leader.of("Goodbye")] == [first]
    assert not leader.of("Done")
    leader.renewing = True
    again = leader.assign(demo()[0][0])
    leader.wait("it is done", lambda: leader.of("Done", again))
    assert leader.of("Done")[0]["incarnation"] == leader.incarnation


def test_an_idle_worker_says_that_it_has_no_lease(bench):
    leader = bench.leader
    leader.renewing = False
    worker = bench.worker()
    leader.wait("a warning", lambda: "event=lease_missing" in worker.log())
    leader.renewing = True
    leader.wait("the end of it", lambda: "event=lease_back" in worker.log())
    assert worker.log().count("event=lease_missing") == 1
    assert len(leader.hellos) == 1  # with nothing to drop it keeps its name


def test_the_newest_worker_of_a_slot_wins(bench):
    leader = bench.leader
    older = bench.worker()
    first = leader.incarnation
    newer = bench.worker()
    assert older.process.wait(60) == 78
    assert "slot 0 was taken by another worker" in older.log()
    assert leader.incarnation != first and newer.process.poll() is None
    request_id = leader.assign(demo()[0][0])
    leader.wait("it is done", lambda: leader.of("Done", request_id))


def test_sigterm_finishes_what_runs(bench):
    leader = bench.leader
    worker = bench.worker()
    leader.renewing = False  # so that nothing is finished before the signal
    leader.wait("8 heartbeats", lambda: len(leader.heartbeats) > 7)
    wanted = [leader.assign(long_body(300)) for _ in range(3)]
    leader.wait("it has all", lambda: len(leader.heartbeats[-1]["running"]) == 3)
    worker.send(signal.SIGTERM)
    leader.renewing = True
    leader.wait("its Goodbye", lambda: leader.of("Goodbye"))
    assert worker.process.wait(60) == 0
    assert sorted(done["request_id"] for done in leader.of("Done")) == sorted(wanted)
    assert not leader.of("Yield")


def test_sigterm_gives_back_what_takes_too_long(bench):
    leader = bench.leader
    worker = bench.worker("--drain-timeout", "100ms")
    wanted = [leader.assign(long_body(), stream=index == 0) for index in range(64)]
    leader.wait("it has all", lambda: leader.listed(len(wanted)))
    leader.wait("progress", lambda: leader.progress)
    worker.send(signal.SIGTERM)
    leader.wait("its Goodbye", lambda: leader.of("Goodbye"))
    assert worker.process.wait(60) == 0
    outcomes = [r["request_id"] for r in leader.of("Done") + leader.of("Yield")]
    assert sorted(outcomes) == sorted(wanted) and leader.of("Yield")
    # Progress holds all that was said, without a gap, so that nothing is computed twice.
    for request_id in wanted:
        said = 0
        for progress in leader.progress:
            if progress["request_id"] == request_id:
                assert progress["first_index"] == said
                said += len(progress["ids"])
        if leader.of("Yield", request_id):
            assert said > 0 or not leader.stream(request_id)[0]


def test_metrics_and_readiness(bench):
    import re
    import urllib.error
    import urllib.request
    leader = bench.leader
    leader.renewing = False
    worker = bench.worker()
    port = re.search(r"event=metrics .*port=(\d+)", worker.log()).group(1)

    def get(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
    assert get("/healthz")[0] == 200
    assert get("/readyz")[0] == 503
    leader.renewing = True
    leader.assign(demo()[0][0])
    leader.wait("it is done", lambda: leader.of("Done"))
    leader.wait("it is ready", lambda: get("/readyz")[0] == 200)
    leader.wait("the answer is counted", lambda: "pelton_worker_done_total 1" in get("/metrics")[1])
    assert 'pelton_worker_layer_load{layer="0"}' in get("/metrics")[1]
    leader.renewing = False
    leader.wait("the lease is over", lambda: get("/readyz")[0] == 503)


def test_an_unknown_slot_is_a_clear_error(stack):
    stack.create()
    worker = Process("worker", [BUILD / "pelton-worker", "--brokers", stack.brokers,
                                "--topic-prefix", stack.prefix, "--model", ROOT / "ops/demo/model",
                                "--slot", "7"], stack.logs)
    stack.processes.append(worker)
    assert worker.process.wait(60) == 78
    assert "slot 7: topic" in worker.log() and "2 partitions" in worker.log()


def test_topics_that_are_deleted_end_it_by_name(stack):
    """librdkafka does not close its reader then."""
    stack.create()
    worker = Process("worker", [BUILD / "pelton-worker", "--brokers", stack.brokers,
                                "--topic-prefix", stack.prefix, "--model", ROOT / "ops/demo/model",
                                "--slot", "0"], stack.logs)
    stack.processes.append(worker)
    wait_for("its Hello", lambda: "event=hello" in worker.log())
    wire.delete_topics(stack.brokers, stack.prefix)
    assert worker.process.wait(60) in (69, 70)
    last = worker.log().splitlines()[-1]
    assert last.startswith("pelton-worker: ") and f"{stack.prefix}worker-events" in last, last
