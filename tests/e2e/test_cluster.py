# SPDX-License-Identifier: Apache-2.0
"""Three brokers, each partition on all of them, two needed to write: one may die at any time and
nobody notices; with two away nothing goes on, and nothing is lost."""

import os
import time

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

import conftest
import harness
from faults import check, submit, system  # noqa: F401, a fixture
from harness import wait_for

NODES = 3
PORTION = 150
WORKER = ("--numerics", "f32", "--threads", "1")


@pytest.fixture(scope="module")
def services():
    """Brokers of its own, small ones, beside those of the other tests."""
    before = dict(os.environ)
    os.environ["PELTON_KAFKA_HEAP"] = "256m"
    services = harness.Services(NODES)
    try:
        conftest.template(services)
        yield services
    finally:
        services.close()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture()
def admin(services):
    return AdminClient({"bootstrap.servers": services.brokers, "log_level": 0,
                        "reconnect.backoff.max.ms": 500})


def replicas(admin, prefix=""):
    """{(topic, partition): (replicas, those in sync)}"""
    topics = admin.list_topics(timeout=60).topics
    return {(name, number): (len(partition.replicas), len(partition.isrs))
            for name, topic in topics.items() if name.startswith(prefix)
            for number, partition in topic.partitions.items()}


def wait_whole(admin):
    wait_for("all replicas are in sync",
             lambda: set(replicas(admin).values()) == {(NODES, NODES)}, 180, 0.3)


class Portions:
    def __init__(self, system):
        self.system, self.end = system, 0

    def send(self, count):
        """Sends so many more, and returns the end of all once the first of them are answered."""
        submit(self.system, count, self.end)
        self.system.watcher.wait(self.end + PORTION // 5)
        self.end += count
        return self.end


def wait_still(watcher, seconds):
    """Until nothing has come for so long; what was on its way comes first."""
    def still():
        before = len(watcher.ids)
        time.sleep(seconds)
        return not watcher.reached(before + 1)

    wait_for(f"no result for {seconds} s", still)


def test_topics_are_replicated(system, admin):
    found = replicas(admin, system.prefix)
    assert set(found.values()) == {(3, 3)}
    names = {name for name, _ in found}
    assert len(names) == 11
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    for answer in admin.describe_configs(resources).values():
        assert answer.result(60)["min.insync.replicas"].value == "2"


def test_brokers_die(system, services, admin):
    system.start(worker_args=WORKER)
    portions = Portions(system)
    for node in (1, 2, 3):
        wait_whole(admin)
        end = portions.send(PORTION)
        services.run("kill", f"kafka-{node}")
        system.watcher.wait(end)
        services.run("start", f"kafka-{node}")

    wait_whole(admin)
    end = portions.send(8 * PORTION)  # not over before both are dead
    services.run("kill", "kafka-1")
    services.run("kill", "kafka-2")
    wait_still(system.watcher, 4)
    assert not system.watcher.reached(end), "one replica is not enough"
    services.run("start", "kafka-2")
    system.watcher.wait(end)
    services.run("start", "kafka-1")
    check(system, end)
    assert all(p.process.poll() is None for p in system.programs.values()), "nobody gave up"
