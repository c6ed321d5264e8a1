# SPDX-License-Identifier: Apache-2.0
"""Real schedulers and fake workers on a real broker, under a prefix of their own."""
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import pytest

import wire as wires

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("PELTON_BUILD", ROOT / "build"))
HERE = pathlib.Path(__file__).resolve().parent


def wait_until(what, seconds, condition):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {seconds} s")


class Process:
    def __init__(self, name, command, logs):
        self.name, self.path = name, pathlib.Path(logs) / f"{name}.log"
        with open(self.path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def log(self):
        return self.path.read_text(errors="replace")

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.send(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=15):
        self.send(signal.SIGTERM)
        return self.process.wait(seconds)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Scheduler(Process):
    def port(self):
        found = re.findall(r"event=serving .*port=(\d+)", self.log())
        return int(found[-1]) if found else None

    def get(self, path):
        """Status and body of its HTTP server."""
        port = wait_until(f"{self.name} serves", 10, self.port)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self):
        status, body = self.get("/readyz")
        return body.strip() if status == 200 else None

    def metric(self, name):
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return None

    def leads(self):
        return (self.ready() or "").find("leading") >= 0


class Stack:
    def __init__(self, brokers, slots=2):
        self.brokers, self.prefix, self.slots = brokers, f"t{secrets.token_hex(4)}.", slots
        self.wire = wires.Wire()
        self.logs = tempfile.mkdtemp(prefix="pelton-scheduler-")
        self.processes, self.wanted = [], {}
        self.producer = wires.producer(brokers)

    def create(self):
        wires.create_topics(self.brokers, self.prefix, self.slots)

    def close(self, failed):
        for process in self.processes:
            process.end()
        wires.delete_topics(self.brokers, self.prefix)
        if not failed:
            shutil.rmtree(self.logs)
            return
        print(f"logs: {self.logs}")
        for process in self.processes:
            print(f"--- {process.name}\n{process.log()[-6000:]}")

    def scheduler(self, name, *options):
        process = Scheduler(name, [BUILD / "pelton-scheduler", "--brokers", self.brokers,
                                   "--topic-prefix", self.prefix, *options], self.logs)
        self.processes.append(process)
        return process

    def worker(self, slot, step_ms=5):
        process = Process(f"worker-{slot}", [sys.executable, str(HERE / "fake_worker.py"),
                                             self.brokers, self.prefix, str(slot), str(step_ms)],
                          self.logs)
        self.processes.append(process)
        return process

    def submit(self, batch, count, first=0, **how):
        """Sends requests and remembers what is to come of each."""
        for index in range(first, first + count):
            rid, value = wires.request(self.wire, batch, index, **how)
            topic = "requests." + how.get("service_class", "BULK").lower()
            self.producer.produce(self.prefix + topic, value, rid)
            self.producer.poll(0)
            self.wanted[rid] = index
        assert self.producer.flush(30) == 0

    def messages(self, topic, count, seconds):
        """All messages of a topic, from the beginning; after count more are waited for only
        briefly, to see what came twice."""
        consumer = wires.from_beginning(self.brokers, self.prefix + topic)
        messages, deadline, late = [], time.monotonic() + seconds, None
        while time.monotonic() < (late or deadline):
            for message in consumer.consume(1000, 0.1):
                assert not message.error(), message.error()
                messages.append(message)
            if len(messages) >= count and late is None:
                late = time.monotonic() + 1.0
        consumer.close()
        return messages

    def read(self, topic, count, seconds):
        """The same, decoded."""
        found = self.messages(topic, count, seconds)
        return found if topic == "dead-letters" else [self.wire.decode(m.value()) for m in found]

    def timed(self, topic, count, seconds):
        """(milliseconds, name, record) of a topic's messages, in the order in which they were
        written, whatever their partition."""
        return sorted(((m.timestamp()[1], *self.wire.decode(m.value()))
                       for m in self.messages(topic, count, seconds)), key=lambda m: m[0])

    def check(self, seconds=60, statuses=None):
        """Every request has one result, the right one, and one usage row that agrees with it."""
        results = [r for _, r in self.read("results", len(self.wanted), seconds)]
        usage = [u for n, u in self.read("usage", len(self.wanted), 20) if n == "Usage"]
        ids = [r["request_id"] for r in results]
        assert len(ids) == len(set(ids)), "a request has two results"
        missing = set(self.wanted) - set(ids)
        assert not missing, f"{len(missing)} of {len(self.wanted)} requests have no result"
        assert set(ids) == set(self.wanted)
        assert sorted(u["request_id"] for u in usage) == sorted(ids)
        charged = {u["request_id"]: u for u in usage}
        for result in results:
            rid = result["request_id"]
            assert result["status"] == (statuses or {}).get(self.wanted[rid], "COMPLETED"), result
            assert charged[rid]["usage"] == result["usage"]
            assert charged[rid]["admitted_ms"] == result["admitted_ms"]
            if result["status"] == "COMPLETED":
                assert result["ids"] == wires.expected_ids(rid, len(result["ids"]))
                assert result["text"] == wires.expected_text(result["ids"])
                assert len(result["ids"]) == result["usage"]["output_tokens"] > 0
        return results
