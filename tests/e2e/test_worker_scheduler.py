# SPDX-License-Identifier: Apache-2.0
"""Real scheduler, real workers, demo model: answers, sampling that repeats itself, and streams that
equal results although workers are killed."""
import random
import signal
import time

import pytest

import records
from harness import BUILD, ROOT, wait_for, wait_streamed
from stack import Process


def start(stack, slot, number, *options):
    worker = Process(f"worker-{slot}-{number}",
                     [BUILD / "pelton-worker", "--brokers", stack.brokers, "--topic-prefix",
                      stack.prefix, "--model", ROOT / "ops/demo/model", "--model-name", "fake",
                      "--slot", str(slot), "--threads", "1", "--max-batch-size", "8",
                      "--stream-tokens", "2", *options], stack.logs)
    stack.processes.append(worker)
    return worker


def results(stack):
    found = stack.read("results", len(stack.wanted))
    assert sorted(r["request_id"] for r in found) == sorted(stack.wanted)
    usage = stack.read("usage", len(stack.wanted), "Usage")
    charged = {u["request_id"]: u["usage"] for u in usage}
    assert len(usage) == len(charged) == len(found)
    for result in found:
        assert charged[result["request_id"]] == result["usage"]
    return found


@pytest.mark.parametrize("kills", [0, 4])
def test_streams_equal_results(stack, kills):
    stack.create()
    # A request may be running at every one of the deaths: it must not be given up for that.
    stack.scheduler("scheduler", "--crashes-max", "100")
    workers = [start(stack, slot, 0) for slot in (0, 1)]
    # No temperature: they are sampled, with seeds made from their ids.
    stack.submit("b1", 300, max_tokens=120, service_class="INTERACTIVE",
                 prompt="Translate to SQL: show price and year from cars ordered by model limit 9")
    pauses = random.Random(1)
    for number in range(kills):
        time.sleep(1.0 + pauses.random())
        slot = number % 2
        workers[slot].kill()
        workers[slot] = start(stack, slot, number + 1)
    found = results(stack)
    assert all(r["status"] == "COMPLETED" for r in found)
    wait_streamed(stack.brokers, stack.prefix + "tokens", found)
    for result in found:
        assert len(result["ids"]) == result["usage"]["output_tokens"] > 0
    assert len({result["text"] for result in found}) > 1  # seeds differ
    for worker in workers:
        assert worker.stop() == 0


def test_a_worker_that_wakes_up_too_late_does_no_harm(stack):
    stack.create()
    stack.scheduler("scheduler")
    workers = [start(stack, slot, 0) for slot in (0, 1)]
    stack.submit("b1", 300, max_tokens=120, service_class="INTERACTIVE")
    stack.answered.wait(1)
    workers[0].send(signal.SIGSTOP)
    time.sleep(9)  # its lease and the scheduler's patience are over; the other has its requests
    workers[0].send(signal.SIGCONT)
    found = results(stack)
    wait_streamed(stack.brokers, stack.prefix + "tokens", found)
    assert [worker.stop() for worker in workers] == [0, 0]


def test_a_drained_worker_hands_over(stack):
    stack.create()
    stack.scheduler("scheduler")
    first = start(stack, 0, 0, "--drain-timeout", "0")
    stack.submit("b1", 300, max_tokens=120, ignore_eos=True)
    stack.answered.wait(1)
    assert first.stop() == 0
    assert len(records.read_topic(stack.brokers, stack.prefix + "results")) < 300
    start(stack, 1, 0)
    assert all(r["status"] == "COMPLETED" for r in results(stack))


def finished(stack, count):
    """Results in the order in which they were written."""
    found = [r for _, r in stack.timed("results", count)]
    assert sorted(r["request_id"] for r in found) == sorted(stack.wanted)
    assert all(r["status"] == "COMPLETED" for r in found)
    return found


def wait_until_waiting(scheduler, count):
    """All are there before the first is given to a worker: the order is the scheduler's alone."""
    wait_for(f"{count} requests wait", lambda: scheduler.metric(
        'pelton_waiting_requests{class="bulk"}') == count)


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
    stack.submit("bulk", 600, max_tokens=100, ignore_eos=True)
    stack.answered.wait(4)
    stack.submit("now", 5, first=1000, max_tokens=4, service_class="INTERACTIVE")
    found = finished(stack, 605)
    after = behind(found, lambda r: r["service_class"] == "INTERACTIVE",
                   lambda r: r["service_class"] == "BULK")[1]
    assert after > 100, f"{after} of 600 bulk results after the last interactive one"

    given = {r["request"]["request_id"]: at
             for at, r in stack.timed("assignments", 605, "Assignment")}
    waits = [given[request_id] - stack.asked_ms[request_id]
             for request_id, index in stack.wanted.items() if index >= 1000]
    assert len(waits) == 5
    # A tick of 250 ms at most and its commit. Where the machine is so busy that they take longer,
    # so does the bulk, whose end they would otherwise wait for.
    answered = [at for at, _ in stack.timed("results", 605)]
    limit = max(2000, (answered[-1] - answered[0]) / 4)
    assert max(waits) < limit, f"{waits} ms from request to assignment, the limit is {limit:.0f}"


def test_tenants_take_turns(stack):
    """A tenant that comes behind another one's flood gets its share at once."""
    stack.create()
    scheduler = stack.scheduler("scheduler", "--base-batch-size", "4", "--max-batch-size", "4")
    stack.submit("flood", 200, tenant="greedy", max_tokens=20, ignore_eos=True)
    stack.submit("few", 20, first=1000, tenant="modest", max_tokens=20, ignore_eos=True)
    wait_until_waiting(scheduler, 220)
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
    stack.answered.wait(4)
    stack.submit("short", 60, first=1000, max_tokens=10, ignore_eos=True)
    found = [(at, stack.wanted[r["request_id"]] >= 1000)
             for at, r in stack.timed("results", 260)]
    given = [(at, stack.wanted[a["request"]["request_id"]] >= 1000)
             for at, a in stack.timed("assignments", 260, "Assignment")]
    asked = min(at for request_id, at in stack.asked_ms.items()
                if stack.wanted[request_id] >= 1000)
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
    scheduler = stack.scheduler("scheduler", "--base-batch-size", "4", "--max-batch-size", "4")
    start(stack, 0, 0)
    wait_for("the worker is known",
             lambda: scheduler.metric('pelton_worker_alive{slot="0"}') == 1)
    # More than can be answered by then.
    stack.submit("open", 60, max_tokens=100, ignore_eos=True)
    soon = int(time.time() * 1000) + 1500
    stack.submit("soon", 800, first=1000, max_tokens=100, ignore_eos=True, deadline_ms=soon)
    found = stack.timed("results", 860)
    assert sorted(r["request_id"] for _, r in found) == sorted(stack.wanted)
    statuses = {True: [], False: []}
    for at, result in found:
        timed = stack.wanted[result["request_id"]] >= 1000
        statuses[timed].append(result["status"])
        if result["status"] == "EXPIRED":
            assert at >= soon
            assert at < soon + 5000, f"expired {at - soon} ms after its deadline"
    assert set(statuses[False]) == {"COMPLETED"}
    assert "EXPIRED" in statuses[True] and set(statuses[True]) <= {"COMPLETED", "EXPIRED"}
