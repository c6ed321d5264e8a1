# SPDX-License-Identifier: Apache-2.0
"""A scheduler made by hand, to see what one real worker does with each command."""
import json
import time
import uuid

import wire as wires

ALL_ZERO = str(uuid.UUID(int=0))


class Leader:
    """Writes assignments of slot 0, reads worker-events of slot 0 and tokens, renews leases."""

    def __init__(self, stack, epoch=1):
        self.stack, self.epoch, self.renewing = stack, epoch, True
        self.prefix, self.wire, self.producer = stack.prefix, stack.wire, stack.producer
        self.reader = wires.assigned(stack.brokers, [
            (self.prefix + "worker-events", 0, 0), (self.prefix + "tokens", 0, 0),
            (self.prefix + "tokens", 1, 0)])
        self.hellos, self.heartbeats, self.events, self.chunks = [], [], [], []
        self.progress = []

    def close(self):
        self.reader.close()

    @property
    def incarnation(self):
        return self.hellos[-1]["incarnation"] if self.hellos else None

    def command(self, name, **fields):
        fields = {"epoch": self.epoch, "incarnation": self.incarnation} | fields
        self.producer.produce(self.prefix + "assignments",
                              self.wire.encode(name, **fields), partition=0)
        assert self.producer.flush(60) == 0

    def renew(self, seq=None, batch_size=32):
        self.command("LeaseRenewal", heartbeat_seq=seq or self.heartbeats[-1]["seq"],
                     batch_size=batch_size)

    def request(self, body, request_id=None, endpoint="CHAT_COMPLETIONS", model=""):
        text = body if isinstance(body, str) else json.dumps(body)
        return {"request_id": request_id or str(uuid.uuid4()), "tenant": "acme", "batch_id": "b",
                "custom_id": "c", "service_class": "BULK", "endpoint": endpoint, "model": model,
                "body": text, "body_hash": bytes(32), "line": 1,
                "submitted_ms": int(time.time() * 1000), "deadline_ms": 0, "stream": "AUTO"}

    def assign(self, body, request_id=None, attempt=1, stream=False, prefix=(), **how):
        request = self.request(body, request_id, **{key: how.pop(key) for key in
                                                    ("endpoint", "model") if key in how})
        self.command("Assignment", attempt=attempt, stream=stream, prefix=list(prefix),
                     admitted_ms=int(time.time() * 1000), request=request, **how)
        return request["request_id"]

    def pump(self, seconds, until=lambda: False):
        """Reads, and renews on every Heartbeat; True as soon as until() is."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for message in self.reader.consume(100, 0.05):
                assert not message.error(), message.error()
                self.take(message)
            if until():
                return True
        return False

    def wait(self, what, until, seconds=120):
        """The same, but it has to come. The time is generous, as that of wait_for()."""
        assert self.pump(seconds, until), f"waited {seconds} s for: {what}"

    def listed(self, count):
        """The newest heartbeat and the outcomes before it name so many requests."""
        return len(self.heartbeats[-1]["running"]) + len(self.of("Done")) == count

    def take(self, message):
        name, record = self.wire.decode(message.value())
        record["at_ms"] = message.timestamp()[1]
        if name == "Hello":
            self.hellos.append(record)
            self.heartbeats = []
        elif name == "Heartbeat":
            self.heartbeats.append(record)
            if self.renewing and record["incarnation"] == self.incarnation:
                self.renew(record["seq"])
        elif name == "TokenChunk":
            self.chunks.append(record)
        elif name == "Progress":
            self.progress.append(record)
        else:
            self.events.append((name, record))

    def of(self, name, request_id=None):
        return [record for kind, record in self.events if kind == name and
                request_id in (None, record.get("request_id"))]

    def stream(self, request_id, attempt=1):
        """Ids and text of the chunks as a reader joins them, which must have no gap."""
        ids, text = [], ""
        for chunk in self.chunks:
            if chunk["request_id"] == request_id and chunk["attempt"] == attempt:
                assert chunk["first_index"] == len(ids)
                assert len(chunk["text_ends"]) == len(chunk["ids"])
                assert chunk["text_ends"][-1] == len(chunk["text"].encode())
                ids += chunk["ids"]
                text += chunk["text"]
        return ids, text

    def streamed(self, done):
        """Until the chunks say what `done` says. They lie in another topic, so they may be read
        after it."""
        wanted = (done["ids"], done["text"])

        def said():
            return self.stream(done["request_id"], done["attempt"])

        self.pump(60, lambda: said() == wanted)
        assert said() == wanted
