# SPDX-License-Identifier: Apache-2.0
"""Programs and broker are killed, paused and replaced in the middle of 2,000 streaming requests.
Afterwards a checker that knows only the topics and the tables looks for one result, one usage row
and one stream for each request, all of them the reference's.

The last test draws its faults by lot; the seed is printed. PELTON_CHAOS_SEED=N repeats its faults
(not their timing), PELTON_CHAOS_ROUNDS=N tries so many seeds."""

import os
import random
import signal
import time

import pytest

import harness
import records
import wire
from harness import wait_for
from test_demo import of_batch, reference, requests

BATCH = "bulk"
STRIKES = 8  # a minute or two; what is left then is done in peace
ROUNDS = int(os.environ.get("PELTON_CHAOS_ROUNDS", 1))
SEED = int(os.environ.get("PELTON_CHAOS_SEED", random.randrange(10 ** 6)))


@pytest.fixture()
def system(services, request):
    name = request.function.__name__.removeprefix("test_").replace("_", "-")
    system = harness.System(services, name, topics=False)
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


def submit(system, count=2000):
    """The first requests of bulk-2000, streaming, by a foreign producer."""
    messages = [records.request(r["custom_id"], r["body"], BATCH, stream="ON")
                for r in requests("bulk-2000")[:count]]
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

    # A chunk follows its Progress, so the last ones may come after the result.
    wanted = {r["request_id"]: (r["ids"], r["text"]) for r in results}

    def missing():
        got = records.streams(of_batch(system.read("tokens"), BATCH))
        return [i for i in wanted if got.get(i) != wanted[i]]

    wait_for("every stream equals its result", lambda: not missing(), 30, 1)
    wait_for("ledger lag 0", lambda: system["ledger"].metric("pelton_ledger_lag") == 0)
    return results


def test_kill_worker_scheduler_ledger(system):
    system.start(worker_args=("--numerics", "f32"))
    submit(system)
    for at, name in ((300, "worker-0"), (900, "scheduler"), (1500, "ledger")):
        system.watcher.wait(at)
        system[name].kill()
        system[name].start()
    results = check(system)
    assert any(r["attempt"] > 1 for r in results), "the worker's death was noticed"


def test_scheduler_failover(system):
    """The leader dies; the one that stands by takes over, and the work goes on."""
    system.start("scheduler", "worker-0", "ledger", worker_args=("--numerics", "f32"))
    standby = second_scheduler(system)
    submit(system)
    system.watcher.wait(600)
    system["scheduler"].kill()
    results = check(system)
    assert leads(standby)
    assert all(r["attempt"] == 1 for r in results), "a takeover stops nobody's work"


def second_scheduler(system):
    first = system["scheduler"]
    standby = harness.Program("scheduler-standby", first.argv, first.env,
                              system.dir / "scheduler-standby.log")
    system.programs["scheduler-standby"] = standby
    standby.start()
    wait_for("it stands by", standby.ready)
    return standby


def leads(scheduler):
    return scheduler.metric("pelton_scheduler_leader") == 1


def test_zombie_scheduler(system):
    """The leader is paused for longer than its session; awake again, it must do no harm."""
    system.start(worker_args=("--numerics", "f32"))
    second_scheduler(system)
    submit(system)
    system.watcher.wait(400)
    system["scheduler"].signal(signal.SIGSTOP)
    system.watcher.wait(900)
    system["scheduler"].signal(signal.SIGCONT)
    check(system)
    assert leads(system["scheduler-standby"]) and not leads(system["scheduler"])


def test_zombie_worker(system):
    """A worker is paused for longer than its lease while another one works."""
    system.start("scheduler", "worker-0", "worker-1", "ledger",
                 worker_args=("--numerics", "f32"))
    submit(system)
    system.watcher.wait(400)
    system["worker-0"].signal(signal.SIGSTOP)
    time.sleep(10)
    system["worker-0"].signal(signal.SIGCONT)
    results = check(system)
    assert any(r["attempt"] > 1 for r in results), "its requests were given to the other one"


def test_worker_drain(system):
    """SIGTERM: the worker hands back what it has not finished, and its neighbour goes on."""
    system.start("scheduler", "worker-0", "worker-1", "ledger",
                 worker_args=("--numerics", "f32"))
    submit(system)
    system.watcher.wait(400)
    assert system["worker-0"].terminate() == os.EX_OK
    results = check(system)
    assert {r["slot"] for r in results} == {0, 1}
    assert not system.read("dead-letters", raw=True)


def test_broker_kill(system):
    """kill -9 of the only broker, 10 s without one, then the same data again."""
    system.start(worker_args=("--numerics", "f32"))
    submit(system)
    system.watcher.wait(500)
    system.services.run("kill", "kafka-1")
    time.sleep(10)
    system.services.run("up", "--fast")
    check(system)
    assert all(p.process.poll() is None for p in system.programs.values()), "nobody gave up"


def test_everything_at_once(system):
    """All programs die together, twice."""
    system.start(worker_args=("--numerics", "f32"))
    submit(system, 1000)
    for at in (200, 600):
        system.watcher.wait(at)
        for program in system.programs.values():
            program.kill()
        for program in system.programs.values():
            program.start()
    check(system, 1000)


class Chaos:
    """One fault at a time; whatever ends, for whatever reason, is started again."""

    def __init__(self, system, seed):
        self.system, self.random, self.faults = system, random.Random(seed), []
        print(f"PELTON_CHAOS_SEED={seed}")

    def strike(self):
        name = self.random.choice([*self.system.programs, "broker"])
        what = self.random.choice(["kill", "pause"]) if name != "broker" else "kill"
        seconds = self.random.choice([0, 1, 5, 9])
        self.faults.append((name, what, seconds))
        if name == "broker":
            self.system.services.run("kill", "kafka-1")
            time.sleep(seconds)
            self.system.services.run("up", "--fast")
        elif what == "pause":
            self.system[name].signal(signal.SIGSTOP)
            time.sleep(seconds)
            self.system[name].signal(signal.SIGCONT)
        else:
            self.system[name].kill()
            time.sleep(seconds)
        self.revive()
        time.sleep(self.random.uniform(0, 4))

    def revive(self):
        """As a supervisor would."""
        for program in self.system.programs.values():
            if program.process.poll() is not None:
                program.start()


@pytest.mark.parametrize("seed", range(SEED, SEED + ROUNDS))
def test_faults_by_lot(system, seed):
    # Slow workers, so that there is time for faults. A request may be running at every one of the
    # deaths: it must not be given up for that.
    system.start("scheduler", "worker-0", "worker-1", "ledger",
                 worker_args=("--numerics", "f32", "--max-batch-size", "2", "--threads", "1"),
                 scheduler_args=("--crashes-max", "100"))
    second_scheduler(system)
    submit(system)
    chaos = Chaos(system, seed)
    try:
        while len(chaos.faults) < STRIKES and not system.watcher.reached(2000):
            chaos.strike()
        check(system)
    finally:
        print(chaos.faults)
