# SPDX-License-Identifier: Apache-2.0
"""Real scheduler, real workers, demo model: answers, sampling that repeats itself, and streams that
equal results although workers are killed."""
import random
import signal
import time

import pytest

from stack import BUILD, ROOT, Process


def start(stack, slot, number, *options):
    worker = Process(f"worker-{slot}-{number}",
                     [BUILD / "pelton-worker", "--brokers", stack.brokers, "--topic-prefix",
                      stack.prefix, "--model", ROOT / "ops/demo/model", "--model-name", "fake",
                      "--slot", str(slot), "--threads", "1", "--max-batch-size", "8",
                      "--stream-tokens", "2", *options], stack.logs)
    stack.processes.append(worker)
    return worker


def join(chunks):
    """One request's stream as a reader joins it: newer attempts replace, overlaps are cut."""
    attempt, ids, text = 0, [], b""
    for chunk in chunks:
        if chunk["attempt"] < attempt or chunk["first_index"] > len(ids):
            continue
        attempt = chunk["attempt"]
        known = len(ids) - chunk["first_index"]
        if known >= len(chunk["ids"]):
            continue
        ends = [0] + chunk["text_ends"]
        ids += chunk["ids"][known:]
        text += chunk["text"].encode()[ends[known]:]
    return ids, text.decode()


def streams(stack):
    found = {}
    for _, chunk in stack.read("tokens", 10 ** 9, 3):
        found.setdefault(chunk["request_id"], []).append(chunk)
    return {request_id: join(chunks) for request_id, chunks in found.items()}


def results(stack, seconds):
    found = [r for _, r in stack.read("results", len(stack.wanted), seconds)]
    assert sorted(r["request_id"] for r in found) == sorted(stack.wanted)
    usage = [u for name, u in stack.read("usage", len(stack.wanted), 20) if name == "Usage"]
    charged = {u["request_id"]: u["usage"] for u in usage}
    assert len(usage) == len(charged) == len(found)
    for result in found:
        assert charged[result["request_id"]] == result["usage"]
    return found


@pytest.mark.parametrize("kills", [0, 4])
def test_streams_equal_results(stack, kills):
    stack.create()
    stack.scheduler("scheduler")
    workers = [start(stack, slot, 0) for slot in (0, 1)]
    # No temperature: they are sampled, with seeds made from their ids.
    stack.submit("b1", 300, max_tokens=120, service_class="INTERACTIVE",
                 prompt="Translate to SQL: show price and year from cars ordered by model limit 9")
    random.seed(1)
    for number in range(kills):
        time.sleep(1.0 + random.random())
        slot = number % 2
        workers[slot].kill()
        workers[slot] = start(stack, slot, number + 1)
    found = results(stack, 120)
    assert all(r["status"] == "COMPLETED" for r in found)
    joined = streams(stack)
    for result in found:
        assert joined[result["request_id"]] == (result["ids"], result["text"])
        assert len(result["ids"]) == result["usage"]["output_tokens"] > 0
    assert len({result["text"] for result in found}) > 1  # seeds differ
    for worker in workers:
        assert worker.stop(30) == 0


def test_a_worker_that_wakes_up_too_late_does_no_harm(stack):
    stack.create()
    stack.scheduler("scheduler")
    workers = [start(stack, slot, 0) for slot in (0, 1)]
    stack.submit("b1", 300, max_tokens=120, service_class="INTERACTIVE")
    assert len(stack.read("results", 1, 30)) > 0
    workers[0].send(signal.SIGSTOP)
    time.sleep(9)  # its lease and the scheduler's patience are over; the other has its requests
    workers[0].send(signal.SIGCONT)
    found = results(stack, 120)
    joined = streams(stack)
    for result in found:
        assert joined[result["request_id"]] == (result["ids"], result["text"])
    assert [worker.stop(30) for worker in workers] == [0, 0]


def test_a_drained_worker_hands_over(stack):
    stack.create()
    stack.scheduler("scheduler")
    first = start(stack, 0, 0, "--drain-timeout", "0")
    stack.submit("b1", 300, max_tokens=120)
    assert len(stack.read("results", 1, 30)) > 0
    assert first.stop(20) == 0
    done = len(stack.read("results", 300, 3))
    assert done < 300
    start(stack, 1, 0)
    assert all(r["status"] == "COMPLETED" for r in results(stack, 60))
