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

from faults import check, leads, second_scheduler, submit, system  # noqa: F401, a fixture
from harness import wait_for

STRIKES = 8  # a minute or two; what is left then is done in peace
ROUNDS = int(os.environ.get("PELTON_CHAOS_ROUNDS", 1))
SEED = int(os.environ.get("PELTON_CHAOS_SEED", random.randrange(10 ** 6)))


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
    assert leads(system["scheduler-standby"])
    wait_for("the old one stands by", lambda: not leads(system["scheduler"]))


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
    second_scheduler(system, "--crashes-max", "100")
    submit(system)
    chaos = Chaos(system, seed)
    try:
        while len(chaos.faults) < STRIKES and not system.watcher.reached(2000):
            chaos.strike()
        check(system)
    finally:
        print(chaos.faults)
