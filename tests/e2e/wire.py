# SPDX-License-Identifier: Apache-2.0
"""Pelton's messages as an independent client sees them: Avro by fastavro, Kafka by confluent-kafka.

Reads only the published .avsc files of schemas/; shares no code with the programs.
"""
import hashlib
import io
import json
import pathlib
import struct
import time
import uuid

import fastavro
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "schemas"
MARK = b"\xc3\x01"

# Name, partitions, cleanup policy; None: one partition for each worker slot.
TOPICS = [
    ("requests.interactive", 2, "delete"), ("requests.bulk", 2, "delete"),
    ("assignments", None, "delete"), ("worker-events", None, "delete"), ("tokens", 2, "delete"),
    ("results", 2, "delete"), ("usage", 2, "delete"), ("state", 1, "compact"),
    ("control", 1, "compact"), ("dead-letters", 1, "delete"), ("leader", 1, "delete"),
]


def plain(schema):
    """Without logical types: ids are text and times are numbers here, as in the messages."""
    if isinstance(schema, dict):
        return {key: plain(value) for key, value in schema.items() if key != "logicalType"}
    return [plain(part) for part in schema] if isinstance(schema, list) else schema


class Wire:
    """Encodes and decodes records in Avro's single-object encoding."""

    def __init__(self):
        self.by_name, self.by_mark = {}, {}
        for path in SCHEMAS.glob("*.avsc"):
            schema = fastavro.parse_schema(plain(json.loads(path.read_text())))
            canonical = fastavro.schema.to_parsing_canonical_form(schema)
            mark = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
            name = schema["name"].rsplit(".", 1)[-1]
            self.by_name[name] = (mark, schema)
            self.by_mark[mark] = (name, schema)

    def encode(self, name, **fields):
        mark, schema = self.by_name[name]
        out = io.BytesIO(MARK + mark)
        out.seek(10)
        fastavro.schemaless_writer(out, schema, fields)
        return out.getvalue()

    def decode(self, data):
        assert data[:2] == MARK, data[:2]
        name, schema = self.by_mark[data[2:10]]
        return name, fastavro.schemaless_reader(io.BytesIO(data[10:]), schema, None)


def create_topics(brokers, prefix, slots=2):
    admin = AdminClient({"bootstrap.servers": brokers})
    wanted = [
        NewTopic(prefix + name, slots if partitions is None else partitions, 1,
                 config={"cleanup.policy": cleanup, "max.message.bytes": str(18 << 20),
                         "retention.ms": "-1"})
        for name, partitions, cleanup in TOPICS
    ]
    for done in admin.create_topics(wanted).values():
        done.result(60)


def delete_topics(brokers, prefix):
    admin = AdminClient({"bootstrap.servers": brokers})
    names = [name for name in admin.list_topics(timeout=30).topics if name.startswith(prefix)]
    for done in admin.delete_topics(names).values() if names else []:
        try:
            done.result(60)
        except KafkaException:
            pass  # somebody else was faster


def producer(brokers, **more):
    return Producer({"bootstrap.servers": brokers, "enable.idempotence": True, "linger.ms": 2,
                     "message.max.bytes": 18 << 20, **more})


def assigned(brokers, positions):
    """A read_committed consumer of [(topic, partition, offset)]."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "test-reader",
                         "enable.auto.commit": False, "isolation.level": "read_committed",
                         "auto.offset.reset": "error", "fetch.wait.max.ms": 20})
    consumer.assign([TopicPartition(*position) for position in positions])
    return consumer


def from_beginning(brokers, topic):
    names = AdminClient({"bootstrap.servers": brokers}).list_topics(topic, timeout=30)
    return assigned(brokers, [(topic, p, -2) for p in names.topics[topic].partitions])


def request(wire, batch, index, *, tenant="acme", service_class="BULK", prompt=None, max_tokens=16,
            tag="", deadline_ms=0, **fields):
    """One Request as `pelton submit` would send it, with more fields of the body: its id and its
    bytes."""
    custom_id = f"line-{index}{tag}"
    request_id = str(uuid.uuid5(uuid.UUID("00000000-0000-0000-0000-0000000000e2"),
                                f"{tenant}/{batch}/{custom_id}"))
    body = json.dumps({"model": "fake", "max_tokens": max_tokens,
                       "messages": [{"role": "user", "content": prompt or f"say {index}"}],
                       **fields})
    now = int(time.time() * 1000)
    return request_id, wire.encode(
        "Request", request_id=request_id, tenant=tenant, batch_id=batch, custom_id=custom_id,
        service_class=service_class, endpoint="CHAT_COMPLETIONS", model="fake", body=body,
        body_hash=hashlib.sha256(body.encode()).digest(), line=index, submitted_ms=now,
        deadline_ms=deadline_ms, stream="AUTO")


def expected_ids(request_id, count):
    """What the fake model says: a function of the request alone."""
    seed = uuid.UUID(request_id).int
    return [struct.unpack("<I", struct.pack("<Q", seed >> (8 * (i % 8)) & 0xffffffff)[:4])[0]
            % 1000 + i for i in range(count)]


def expected_text(ids):
    return " ".join(str(i) for i in ids)
