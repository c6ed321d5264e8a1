# SPDX-License-Identifier: Apache-2.0
"""A worker that keeps the protocol and computes nothing: tests/e2e/fake_worker.py BROKERS PREFIX
SLOT [STEP_MS].

A process of its own, so that kill -9 and SIGSTOP hit what they hit in a real worker. Each step adds
one token to every running request. It obeys the newest epoch, publishes only while its lease runs
and resumes from a forced prefix.
"""
import os
import signal
import sys
import time
import uuid

from confluent_kafka import TopicPartition

import wire as wires

LEASE = 3.0
HEARTBEAT = 0.5
MODEL = "fake"


class Worker:
    def __init__(self, brokers, prefix, slot, step):
        self.brokers, self.prefix, self.slot, self.step = brokers, prefix, slot, step
        self.wire = wires.Wire()
        self.incarnation = str(uuid.uuid4())
        self.producer = wires.producer(brokers)
        self.topic = prefix + "worker-events"
        self.epoch, self.batch_size = 0, 8
        self.sent, self.lease_until = {}, 0.0
        self.held, self.seq = {}, 0
        self.up_since = int(time.time() * 1000)

    def send(self, name, **fields):
        value = self.wire.encode(name, slot=self.slot, incarnation=self.incarnation, **fields)
        self.producer.produce(self.topic, value, f"slot/{self.slot}", self.slot)
        self.producer.poll(0)

    def hello(self):
        probe = wires.assigned(self.brokers, [])
        assignments = TopicPartition(self.prefix + "assignments", self.slot)
        _, end = probe.get_watermark_offsets(assignments, timeout=60)
        probe.close()
        self.consumer = wires.assigned(self.brokers, [(assignments.topic, self.slot, end)])
        self.send("Hello", model=MODEL, revision="r0", numerics_id="f32/fake", hardware="fake-1",
                  precision="f32", role="BOTH", max_seqs=64, max_context=4096, kv_tokens=1 << 20,
                  assignments_offset=end, sent_ms=int(time.time() * 1000))

    def heartbeat(self):
        self.seq += 1
        self.sent[self.seq] = time.monotonic()
        self.send("Heartbeat", seq=self.seq, sent_ms=int(time.time() * 1000),
                  up_since_ms=self.up_since,
                  running=[{"request_id": rid, "attempt": held["attempt"]}
                           for rid, held in self.held.items()],
                  kv_tokens_used=0, load=0.1, layer_load=[0.1], step_us=1000, prefill_tokens=0,
                  decode_tokens=0, steps=0, busy_us=0)

    def command(self, name, fields):
        if fields["incarnation"] != self.incarnation or fields["epoch"] < self.epoch:
            return
        self.epoch = fields["epoch"]
        if name == "LeaseRenewal":
            sent = self.sent.get(fields["heartbeat_seq"])
            if sent is not None:
                self.lease_until = max(self.lease_until, sent + LEASE)
            self.batch_size = fields["batch_size"]
        elif name == "Assignment":
            request = fields["request"]
            known = self.held.get(request["request_id"])
            if known is None or known["attempt"] < fields["attempt"]:
                self.held[request["request_id"]] = {
                    "attempt": fields["attempt"], "ids": list(fields["prefix"]),
                    "told": len(fields["prefix"]), "prompt": request["body"],
                    "since": time.monotonic()}
        elif name == "Cancel":
            held = self.held.get(fields["request_id"])
            if held and held["attempt"] == fields["attempt"]:
                del self.held[fields["request_id"]]

    def advance(self):
        for rid in list(self.held)[:self.batch_size]:
            held = self.held[rid]
            if "kill the worker" in held["prompt"]:
                self.producer.flush(5)
                os.kill(os.getpid(), signal.SIGKILL)
            if "fail" in held["prompt"]:
                self.send("Failed", request_id=rid, attempt=held["attempt"], kind="REJECT",
                          failure={"code": "invalid_value", "message": "as asked",
                                   "param": "messages"}, usage=self.usage(held))
                del self.held[rid]
                continue
            length = 4 + uuid.UUID(rid).int % 13
            held["ids"] = wires.expected_ids(rid, min(len(held["ids"]) + 1, length))
            if len(held["ids"]) - held["told"] >= 4:
                self.send("Progress", request_id=rid, attempt=held["attempt"],
                          first_index=held["told"], ids=held["ids"][held["told"]:])
                held["told"] = len(held["ids"])
            if len(held["ids"]) == length:
                huge = "huge answer" in held["prompt"]
                self.send("Done", request_id=rid, attempt=held["attempt"], ids=held["ids"],
                          text="x" * (17 << 20) if huge else wires.expected_text(held["ids"]),
                          finish_reason="STOP", usage=self.usage(held))
                del self.held[rid]

    def usage(self, held):
        return {"prompt_tokens_uncached": 7, "prompt_tokens_cached": 0,
                "output_tokens": len(held["ids"]), "prefill_us": 10, "decode_us": 20,
                "queue_us": 0, "run_us": int((time.monotonic() - held["since"]) * 1e6)}

    def run(self):
        self.hello()
        next_heartbeat, stopping = 0.0, []
        signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
        while not stopping:
            if time.monotonic() >= next_heartbeat:
                next_heartbeat = time.monotonic() + HEARTBEAT
                self.heartbeat()
            for message in self.consumer.consume(500, self.step):
                if not message.error():
                    self.command(*self.wire.decode(message.value()))
            if time.monotonic() < self.lease_until:
                self.advance()
        for rid, held in self.held.items():
            self.send("Yield", request_id=rid, attempt=held["attempt"], reason="drain")
        self.send("Goodbye", sent_ms=int(time.time() * 1000))
        self.producer.flush(10)


if __name__ == "__main__":
    step_ms = float(sys.argv[4]) if len(sys.argv) > 4 else 5.0
    Worker(sys.argv[1], sys.argv[2], int(sys.argv[3]), step_ms / 1000).run()
