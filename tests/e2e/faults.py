# SPDX-License-Identifier: Apache-2.0
"""What all tests with faults share: requests whose answers are known, a checker that looks at
nothing but topics and tables, and a System for each test."""

import pytest

import harness
import records
import wire
from harness import wait_for, wait_streamed
from test_demo import of_batch, reference, requests

BATCH = "bulk"


@pytest.fixture()
def system(services, request):
    name = request.function.__name__.removeprefix("test_").replace("_", "-")
    system = harness.System(services, name, topics=services.nodes > 1)
    if services.nodes == 1:  # fewer partitions than `pelton topics create` makes: half the time
        wire.create_topics(services.brokers, system.prefix, slots=4)
    failed_before = request.session.testsfailed
    system.watcher = records.Watcher(services.brokers, system.prefix + "results")
    try:
        yield system
    finally:
        if request.session.testsfailed > failed_before:
            system.show_logs(40)
        system.watcher.close()
        system.close()


def submit(system, count=2000, first=0):
    """So many requests of bulk-2000, streaming, by a foreign producer."""
    messages = [records.request(r["custom_id"], r["body"], BATCH, stream="ON")
                for r in requests("bulk-2000")[first:first + count]]
    records.produce(system.services.brokers, system.prefix + "requests.bulk",
                    [(m["request_id"], records.encode("Request", m)) for m in messages])


def check(system, count=2000):
    """What must hold after any fault."""
    expected = dict(list(reference("bulk-2000").items())[:count])
    system.watcher.wait(count)
    results = of_batch(system.read("results"), BATCH)
    assert len(results) == count, "one committed result for each request"
    assert len({r["request_id"] for r in results}) == count
    assert {r["custom_id"]: r["status"] for r in results} == dict.fromkeys(expected, "COMPLETED")
    assert {r["custom_id"]: r["text"] for r in results} == \
        {c: text for c, (text, _, _) in expected.items()}

    wait_for("every row is booked", lambda: system.booked() >= count)
    rows = system.sql("SELECT request_id::text, custom_id, "
                      "prompt_tokens_uncached + prompt_tokens_cached, output_tokens FROM usage")
    assert sorted(rows) == sorted((r["request_id"], r["custom_id"], *expected[r["custom_id"]][1:])
                                  for r in results)

    wait_streamed(system.services.brokers, system.prefix + "tokens", results)
    wait_for("ledger lag 0", lambda: system["ledger"].metric("pelton_ledger_lag") == 0)
    return results


def second_scheduler(system, *args):
    standby = system.program("scheduler-standby", *args)
    wait_for("it stands by", standby.ready)
    return standby


def leads(scheduler):
    return scheduler.metric("pelton_scheduler_leader") == 1
