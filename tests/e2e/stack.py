# SPDX-License-Identifier: Apache-2.0
"""Real schedulers and fake workers on a real broker, under a prefix of their own."""
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

import records
import wire as wires
from harness import BUILD, wait_for

HERE = pathlib.Path(__file__).resolve().parent


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

    def stop(self, seconds=60):
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
        port = wait_for(f"{self.name} serves", self.port)
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
        """None while it has no such metric."""
        text = wait_for(f"{self.name} answers", lambda: self.get("/metrics")[1])
        for line in text.splitlines():
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
        self.processes, self.wanted, self.answered = [], {}, None
        self.asked_ms = {}  # request id: when; the scheduler trims the topics it came by
        self.producer = wires.producer(brokers)

    def create(self):
        wires.create_topics(self.brokers, self.prefix, self.slots)
        self.answered = records.Watcher(self.brokers, self.prefix + "results")

    def close(self, failed):
        if self.answered:
            self.answered.close()
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
            self.asked_ms.setdefault(rid, int(time.time() * 1000))
            self.producer.produce(self.prefix + topic, value, rid)
            self.producer.poll(0)
            self.wanted[rid] = index
        assert self.producer.flush(60) == 0

    def messages(self, topic, count, kind=None):
        """Messages of a topic, from the beginning, and of one kind where it has several. `count` of
        them have to come; more are waited for only briefly, to see what came twice."""
        consumer = wires.from_beginning(self.brokers, self.prefix + topic)
        mark = kind and self.wire.by_name[kind][0]
        messages, deadline, late = [], time.monotonic() + 180, None
        while time.monotonic() < (late or deadline):
            for message in consumer.consume(1000, 0.1):
                assert not message.error(), message.error()
                if mark is None or message.value()[2:10] == mark:
                    messages.append(message)
            if len(messages) >= count and late is None:
                late = time.monotonic() + 1.0
        consumer.close()
        assert len(messages) >= count, f"{topic}: {len(messages)} of {count} within 180 s"
        return messages

    def read(self, topic, count, kind=None):
        """Their records."""
        return [self.wire.decode(m.value())[1] for m in self.messages(topic, count, kind)]

    def timed(self, topic, count, kind=None):
        """(milliseconds, record) of them, in the order in which they were written, whatever their
        partition."""
        return sorted(((m.timestamp()[1], self.wire.decode(m.value())[1])
                       for m in self.messages(topic, count, kind)), key=lambda m: m[0])

    def check(self, statuses=None):
        """Every request has one result, the right one, and one usage row that agrees with it."""
        results = self.read("results", len(self.wanted))
        usage = self.read("usage", len(self.wanted), "Usage")
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
