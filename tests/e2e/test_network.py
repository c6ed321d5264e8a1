# SPDX-License-Identifier: Apache-2.0
"""The network between the programs and their services fails: it stalls, trickles, cuts, and loses
what goes in one direction, at the moments where that hurts. Each program has a network of its own
(proxy.py); the checker (faults.py) is the one of the killed programs."""

import json
import subprocess
import time

import harness
import proxy
from faults import BATCH, check, leads, second_scheduler, submit, system  # noqa: F401, a fixture
from harness import wait_for
from test_demo import requests

# Slow enough to be hit in the middle of so many requests.
COUNT = 600
SLOW = ("--numerics", "f32", "--max-batch-size", "4", "--threads", "1")


def logged(program, event):
    return program.log.read_text(errors="replace").count(f"event={event}")


def test_commit_withheld_and_late(system):
    """The leader's commit is on its way for so long that another one leads when it arrives."""
    network = system.proxy("scheduler")
    system.start(worker_args=SLOW)
    standby = second_scheduler(system)
    submit(system, COUNT)
    system.watcher.wait(200)
    network.trap(proxy.STALL, request=proxy.END_TXN)
    network.wait_trapped()
    wait_for("the other one leads", lambda: leads(standby))
    system.watcher.wait(400)
    network.heal()
    results = check(system, COUNT)
    assert leads(standby)
    wait_for("the old one stands by", lambda: not leads(system["scheduler"]))
    assert all(r["attempt"] == 1 for r in results), "a takeover stops nobody's work"


def test_commit_without_answer(system):
    """Whether the tick is committed is unknown to the leader, who has nobody beside it."""
    network = system.proxy("scheduler")
    system.start(worker_args=SLOW)
    submit(system, COUNT)
    for at in (200, 400):
        system.watcher.wait(at)
        failed = logged(system["scheduler"], "term_failed")
        network.trap(proxy.LOSE_DOWN, request=proxy.END_TXN)
        network.wait_trapped()
        wait_for("it gives up the term",
                 lambda: logged(system["scheduler"], "term_failed") > failed)
        network.heal()
    check(system, COUNT)


def test_initialisation_withheld_and_late(system):
    """A leader that begins again initialises its transactions so late that it fences another."""
    network = system.proxy("scheduler")
    system.start(worker_args=SLOW)
    standby = second_scheduler(system)
    submit(system, COUNT)
    system.watcher.wait(200)
    network.trap(proxy.LOSE_DOWN, request=proxy.END_TXN)
    network.wait_trapped()
    network.trap(proxy.STALL, request=proxy.INIT_PRODUCER_ID)
    wait_for("it gives up the term", lambda: logged(system["scheduler"], "term_failed"))
    network.heal()
    network.wait_trapped()
    wait_for("the other one leads", lambda: leads(standby))
    network.heal()
    wait_for("it is fenced", lambda: logged(standby, "term_fenced"))
    check(system, COUNT)


def test_worker_out_of_reach(system):
    """Longer than the lease for one, longer than it keeps its work for the other."""
    networks = [system.proxy("worker-0"), system.proxy("worker-1")]
    args = (*SLOW, "-X", "compression.codec=none")  # for the trap
    system.start("scheduler", "worker-0", "ledger", worker_args=args)
    system.start("worker-1", worker_args=(*args, "--lease-keep", "5s"))
    submit(system, COUNT)
    system.watcher.wait(200)
    # Between two ticks a worker may have answered all that it has. What has said Progress is held
    # until that is acknowledged.
    for network in networks:
        network.trap(proxy.STALL, text=b"pelton.Progress")
    for network in networks:
        network.wait_trapped()
    wait_for("it drops its work", lambda: logged(system["worker-1"], "lease_lost"))
    for network in networks:
        network.heal()
    results = check(system, COUNT)
    assert any(r["attempt"] > 1 for r in results), "what they had was given away"
    assert logged(system["worker-0"], "hello slot=0") == 1
    assert logged(system["worker-1"], "hello slot=1") == 2, "it came back under a new name"


def test_worker_heard_one_way(system):
    """First its events are lost on the way, then all acknowledgements of them."""
    network = system.proxy("worker-0")
    system.start("scheduler", "worker-0", "worker-1", "ledger", worker_args=SLOW)
    submit(system, COUNT)

    def leases(name):
        return system[name].metric("pelton_worker_lease")

    for at, mode in ((100, proxy.LOSE_UP), (400, proxy.LOSE_DOWN)):
        system.watcher.wait(at)
        wait_for("it has a lease", lambda: leases("worker-0") == 1)
        network.fault(mode, only=proxy.PRODUCE)
        wait_for("its lease runs out", lambda: leases("worker-0") == 0)
        wait_for("it is given up", lambda: system["scheduler"].metric(
            'pelton_worker_alive{slot="0"}') == 0)
        network.heal()
    results = check(system, COUNT)
    assert any(r["attempt"] > 1 for r in results)


def test_ledger_commit_without_answer(system):
    """PostgreSQL commits, and the ledger does not learn of it."""
    database, broker = system.proxy(harness.POSTGRES), system.proxy("ledger")
    system.start(worker_args=SLOW)
    submit(system, COUNT)
    for at in (100, 300):
        system.watcher.wait(at)
        booked = system.booked()
        database.trap(proxy.LOSE_DOWN, text=b"\0usage\0")
        database.wait_trapped()
        wait_for("the rows are there", lambda: system.booked() > booked)
        database.heal()
    wait_for("it begins again", lambda: logged(system["ledger"], "reconnecting") >= 2)
    database.fault(proxy.STALL)
    time.sleep(1)
    assert system["ledger"].terminate() == 0, "a silent database does not keep it from stopping"
    database.heal()
    system["ledger"].start()
    wait_for("it books again", lambda: system["ledger"].ready())
    broker.cut()
    broker.fault(proxy.STALL)
    time.sleep(5)
    broker.heal()
    check(system, COUNT)
    assert system["ledger"].metric("pelton_ledger_duplicates_total") == 0, \
        "it read on where the commit had left it"


def test_submit_cut_and_repeated(system):
    """Acknowledgements of requests are lost, the command is killed, and repeated on a bad line."""
    network = system.proxy("submit")
    system.start(worker_args=("--numerics", "f32"))
    lines = requests("bulk-2000")[:COUNT]
    network.trap(proxy.LOSE_DOWN, request=proxy.PRODUCE, skip=1)
    path = system.dir / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    argv = [harness.BUILD / "pelton", "submit", path, "--batch", BATCH, "--stream", "--brokers",
            network.address, "--topic-prefix", system.prefix, "-X", "batch.size=20000"]
    command = subprocess.Popen(argv)
    network.wait_trapped()
    command.kill()
    command.wait()
    network.heal()
    network.trap(proxy.CUT, request=proxy.PRODUCE, skip=2)
    assert subprocess.run(argv, timeout=180).returncode == 0
    network.wait_trapped(0)
    check(system, COUNT)


def test_everybody_cut_off(system):
    """No program hears of Kafka for longer than a session and a transaction last; then a byte now
    and then; then all connections are reset."""
    names = ("scheduler", "worker-0", "ledger")
    networks = [system.proxy(name) for name in names]
    system.start(*names, worker_args=SLOW,
                 scheduler_args=("-X", "transaction.timeout.ms=10000"))
    submit(system, COUNT)
    for at, mode, seconds in ((100, proxy.STALL, 12), (250, proxy.TRICKLE, 6)):
        system.watcher.wait(at)
        for network in networks:
            network.fault(mode)
        time.sleep(seconds)
        for network in networks:
            network.heal()
    system.watcher.wait(400)
    for network in networks:
        network.cut()
    check(system, COUNT)
    assert all(p.process.poll() is None for p in system.programs.values()), "nobody gave up"
