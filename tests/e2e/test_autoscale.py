# SPDX-License-Identifier: Apache-2.0
"""ops/autoscale with a real scheduler and real workers: a backlog brings a second worker, its end
drains it, and nothing is lost on the way, not even by a worker that is killed."""

import importlib.machinery
import importlib.util
import os
import re
import signal
import subprocess
import time

import pytest

from harness import BUILD, MODEL, ROOT, wait_for
from test_demo import answer, reference, requests

AUTOSCALE = ROOT / "ops/autoscale"


def load():
    loader = importlib.machinery.SourceFileLoader("autoscale", str(AUTOSCALE))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("autoscale", loader))
    loader.exec_module(module)
    return module


class Autoscale:
    """The supervisor as a process, and what its log says."""

    def __init__(self, system, *args):
        self.log = system.dir / "autoscale.log"
        worker = [BUILD / "pelton-worker", "--brokers", system.services.brokers, "--topic-prefix",
                  system.prefix, "--model", MODEL, "--model-name", "pelton-demo", "--numerics",
                  "f32", "--threads", "1"]
        url = f"http://127.0.0.1:{system['scheduler'].port}/metrics"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(a) for a in (AUTOSCALE, "--metrics", url, "--interval", "0.5", "--log-dir",
                                  system.dir, *args, "--", *worker)],
                env=system.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def events(self, event, slot):
        """Lines of an event and slot, as dictionaries."""
        lines = [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line))
                 for line in self.log.read_text().splitlines()]
        return [line for line in lines if line.get("event") == event and
                line.get("slot") == str(slot)]

    def stop(self, timeout_s=60):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


@pytest.fixture(scope="module")
def autoscale(system):
    system.start("scheduler", "ledger", scheduler_args=(
        "--base-batch-size", "4", "--max-batch-size", "8", "--planner.workers-max", "2",
        "--planner.interval", "500ms", "--planner.drain", "1s", "--planner.scale-down", "3s"))
    supervisor = Autoscale(system, "--slots", "3")
    yield supervisor
    if supervisor.process.poll() is None:
        supervisor.stop()
    print(supervisor.log.read_text())


def serving(system):
    return system["scheduler"].metric("pelton_worker_alive")


def test_scale(system, autoscale):
    wait_for("the first worker", lambda: autoscale.events("start", 0))
    wait_for("it serves", lambda: serving(system) == 1)
    assert not autoscale.events("start", 1), "nothing to do: one is enough"

    assert system.submit(requests("bulk-2000"), "bulk").returncode == 0
    wait_for("a second worker", lambda: autoscale.events("start", 1))
    wait_for("it serves", lambda: serving(system) == 2)
    wait_for("both have work", lambda: all(
        system["scheduler"].metric(f'pelton_worker_in_flight{{slot="{slot}"}}') > 0
        for slot in (0, 1)))
    victim = int(autoscale.events("start", 0)[-1]["pid"])
    os.kill(victim, signal.SIGKILL)
    wait_for("it is replaced", lambda: len(autoscale.events("start", 0)) == 2)

    outputs, errors = system.collect("bulk")
    assert errors == []
    assert len(outputs) == 2000
    assert {o["custom_id"]: answer(o) for o in outputs} == reference("bulk-2000")

    wait_for("the second one is drained", lambda: autoscale.events("drained", 1))
    assert autoscale.events("drained", 1)[-1]["status"] == "0"
    assert not autoscale.events("start", 2), "no more than workers_max"
    wait_for("one serves", lambda: serving(system) == 1)
    decisions = re.findall(r"event=planner .*wanted=(\d+)", system["scheduler"].log.read_text())
    assert "2" in decisions and decisions[-1] == "1"
    wait_for("every request is booked", lambda: system.booked() == 2000)
    ids = [r["request_id"] for r in system.read("results")]
    assert len(ids) == len(set(ids)) == 2000


def test_it_drains_what_it_has_started(system, autoscale):
    """The end of the supervisor, in the middle of work: workers give back what they hold."""
    assert system.submit(requests("bulk-2000"), "again").returncode == 0
    wait_for("work", lambda: system["scheduler"].metric("pelton_in_flight_requests") > 0)
    assert autoscale.stop() == 0
    wait_for("no worker", lambda: serving(system) == 0)
    for slot in (0, 1):
        starts, ends = autoscale.events("start", slot), autoscale.events("drained", slot)
        assert not starts or ends[-1]["status"] == "0"
    system.start("worker-3", worker_args=("--numerics", "f32"))
    outputs, errors = system.collect("again")
    assert errors == [] and len(outputs) == 2000


PLAN = """pelton_planner_wanted_workers{role="both"} 3
pelton_planner_wanted_workers{role="decode"} 7
pelton_worker_alive{slot="0"} 1
pelton_worker_alive{slot="2"} 0
pelton_worker_alive{slot="11"} 1
"""


def test_plan():
    module = load()
    plan = module.Plan(PLAN)
    assert plan.wanted == 3 and plan.alive == {0, 11}
    assert module.Plan('pelton_planner_wanted_workers{role="both"} NaN\n').wanted is None
    assert module.Plan("").wanted is None


@pytest.fixture
def supervisor():
    """A supervisor of three slots whose workers are `sleep`s."""
    module = load()
    options = module.parse(["--metrics", "http://127.0.0.1:1/", "--slots", "3", "--drain-timeout",
                            "5", "--", "sh", "-c", "exec sleep 60"])
    supervisor = module.Supervisor(options)
    supervisor.plan = module.Plan
    yield supervisor
    for worker in supervisor.workers.values():
        worker.process.kill()
        worker.process.wait()


def plan(supervisor, wanted, *alive):
    plan = supervisor.plan(f'pelton_planner_wanted_workers{{role="both"}} {wanted}\n' + "".join(
        f'pelton_worker_alive{{slot="{slot}"}} 1\n' for slot in alive))
    supervisor.follow(plan)
    return supervisor.serving()


def reaped(supervisor, slot):
    wait_for("it is gone", lambda: (supervisor.reap(), slot not in supervisor.workers)[1])


def test_lowest_first_highest_first_and_no_more_than_slots(supervisor):
    assert plan(supervisor, 1) == [0]
    assert plan(supervisor, 9, 0) == [0, 1, 2]
    assert plan(supervisor, 2, 0, 1, 2) == [0, 1]
    assert plan(supervisor, 3, 0, 1, 2) == [0, 1], "the third slot is not free before it is drained"
    reaped(supervisor, 2)
    assert plan(supervisor, 3, 0, 1, 2) == [0, 1, 2]


def test_others_count_and_keep_their_slots(supervisor):
    assert plan(supervisor, 2, 0) == [1]
    assert plan(supervisor, 1, 0, 1) == []


def test_a_drained_worker_that_still_shows_is_no_other(supervisor):
    assert plan(supervisor, 2) == [0, 1]
    assert plan(supervisor, 1, 0, 1) == [0]
    reaped(supervisor, 1)
    assert plan(supervisor, 1, 0, 1) == [0]


def test_a_worker_that_ends_is_replaced_after_a_pause(supervisor):
    assert plan(supervisor, 1) == [0]
    supervisor.workers[0].process.kill()
    before = time.monotonic()
    reaped(supervisor, 0)
    assert supervisor.not_before >= before + 1 and supervisor.pause_s == 2
    supervisor.not_before += 60  # however slow this is
    assert plan(supervisor, 1) == []
    supervisor.not_before = 0
    assert plan(supervisor, 1) == [0]


def test_wrong_usage():
    for args, word in ((["--metrics", "localhost", "--", "x"], "no http://"),
                       (["--metrics", "http://h", "--slots", "0", "--", "x"], "from 1 on"),
                       (["--metrics", "http://h", "--interval", "nan", "--", "x"], "from 0.1"),
                       (["--metrics", "http://h", "--interval", "inf", "--", "x"], "from 0.1"),
                       (["--metrics", "http://h", "--drain-timeout", "nan", "--", "x"], "from 0"),
                       (["--metrics", "http://h"], "COMMAND")):
        result = subprocess.run([AUTOSCALE, *args], capture_output=True, text=True)
        assert result.returncode == 64 and word in result.stderr
