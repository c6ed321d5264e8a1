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


def finished(stack, count):
    """Results in the order in which they were written."""
    found = [r for _, _, r in stack.timed("results", count, 120)]
    assert sorted(r["request_id"] for r in found) == sorted(stack.wanted)
    assert all(r["status"] == "COMPLETED" for r in found)
    return found


def behind(found, one, other):
    """How many of the other kind came before the last of this one, and after it."""
    last = max(i for i, r in enumerate(found) if one(r))
    return [sum(other(r) for r in part) for part in (found[:last], found[last:])]


def test_interactive_overtakes_bulk_within_one_tick(stack):
    """One worker, full of bulk, with more bulk behind: an interactive request goes to it with the
    next tick, and is answered while the bulk goes on."""
    stack.create()
    stack.scheduler("scheduler", "--base-batch-size", "4", "--max-batch-size", "4")
    start(stack, 0, 0)
    # An idle machine answers 60 a second, and has done so for two when the first are read here.
    stack.submit("bulk", 600, max_tokens=100, ignore_eos=True)
    assert len(stack.messages("results", 4, 30)) >= 4
    stack.submit("now", 5, first=1000, max_tokens=4, service_class="INTERACTIVE")
    found = finished(stack, 605)
    after = behind(found, lambda r: r["service_class"] == "INTERACTIVE",
                   lambda r: r["service_class"] == "BULK")[1]
    assert after > 100, f"{after} of 600 bulk results after the last interactive one"

    asked = {r["request_id"]: at for at, _, r in stack.timed("requests.interactive", 5, 10)}
    given = {r["request"]["request_id"]: at for at, name, r in stack.timed("assignments", 605, 10)
             if name == "Assignment"}
    waits = [given[request_id] - at for request_id, at in asked.items()]
    assert len(waits) == 5
    # A tick of 250 ms at most and its commit, on a busy machine; the bulk takes many times as long.
    assert max(waits) < 2000, f"{waits} ms from request to assignment"


def test_tenants_take_turns(stack):
    """A tenant that comes behind another one's flood gets its share at once."""
    stack.create()
    stack.scheduler("scheduler", "--base-batch-size", "4", "--max-batch-size", "4")
    stack.submit("flood", 200, tenant="greedy", max_tokens=20, ignore_eos=True)
    stack.submit("few", 20, first=1000, tenant="modest", max_tokens=20, ignore_eos=True)
    start(stack, 0, 0)
    before = behind(finished(stack, 220), lambda r: r["tenant"] == "modest",
                    lambda r: r["tenant"] == "greedy")[0]
    assert before <= 40, f"{before} of the other tenant's came before the last of its 20"


def test_long_requests_leave_short_ones_their_places(stack):
    """Long ones alone have the whole batch. Short ones that come then get what becomes free before
    the long ones that wait, which keep to their share until the short ones are answered."""
    stack.create()
    stack.scheduler("scheduler", "--base-batch-size", "4", "--max-batch-size", "4",
                    "--long-request-tokens", "200", "--long-share", "25%")
    stack.submit("long", 200, max_tokens=300, ignore_eos=True)
    start(stack, 0, 0)
    assert len(stack.messages("results", 4, 30)) >= 4
    stack.submit("short", 60, first=1000, max_tokens=10, ignore_eos=True)
    found = [(at, stack.wanted[r["request_id"]] >= 1000)
             for at, _, r in stack.timed("results", 260, 120)]
    given = [(at, stack.wanted[a["request"]["request_id"]] >= 1000)
             for at, name, a in stack.timed("assignments", 260, 10) if name == "Assignment"]
    asked = min(at for at, _, r in stack.timed("requests.bulk", 260, 10)
                if stack.wanted[r["request_id"]] >= 1000)
    assert len(found) == len(given) == 260

    held, most = 0, 0
    for at, change in sorted([(at, -1) for at, _ in found] + [(at, 1) for at, _ in given]):
        held += change
        most = max(most, held) if at < asked else most
    assert most == 4, f"{most} of 4 places with long requests alone"
    last = max(at for at, short in found if short)
    between = sum(asked <= at <= last for at, short in found if not short)
    # In turns it would be as many as there are short ones, in order of arrival all that wait.
    assert between <= 30, f"{between} long ones came before the last of 60 short ones"


def test_deadlines_are_kept(stack):
    """What is not begun at its deadline is told so, once; what runs is ended; neighbours go on."""
    stack.create()
    stack.scheduler("scheduler", "--base-batch-size", "4", "--max-batch-size", "4")
    start(stack, 0, 0)
    stack.submit("open", 60, max_tokens=100, ignore_eos=True)
    soon = int(time.time() * 1000) + 1500
    stack.submit("soon", 60, first=1000, max_tokens=100, ignore_eos=True, deadline_ms=soon)
    found = stack.timed("results", 120, 120)
    assert sorted(r["request_id"] for _, _, r in found) == sorted(stack.wanted)
    statuses = {True: [], False: []}
    for at, _, result in found:
        timed = stack.wanted[result["request_id"]] >= 1000
        statuses[timed].append(result["status"])
        if result["status"] == "EXPIRED":
            assert at >= soon
            assert at < soon + 2000, f"expired {at - soon} ms after its deadline"
    assert set(statuses[False]) == {"COMPLETED"}
    assert "EXPIRED" in statuses[True] and set(statuses[True]) <= {"COMPLETED", "EXPIRED"}
