# SPDX-License-Identifier: Apache-2.0
"""Whole topics, streams and foreign requests as an independent client sees them; the bytes of
single records are those of wire.py."""

import hashlib
import json
import time
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

import wire

WIRE = wire.Wire()


def encode(name, record):
    return WIRE.encode(name, **record)


def decode(data):
    """The record as a dict, with its name under "type"."""
    name, record = WIRE.decode(data)
    return record | {"type": name}


def request(custom_id, body, batch_id, **fields):
    """A Request as a foreign producer would write it."""
    text = json.dumps(body)
    record = {
        "request_id": str(uuid.uuid4()),
        "tenant": "foreign",
        "batch_id": batch_id,
        "custom_id": custom_id,
        "service_class": "BULK",
        "endpoint": "CHAT_COMPLETIONS",
        "model": body.get("model", ""),
        "body": text,
        "body_hash": hashlib.sha256(text.encode()).digest(),
        "line": 0,
        "submitted_ms": 0,
        "deadline_ms": 0,
        "stream": "AUTO",
    }
    return record | fields


def _consumer(brokers, isolation):
    return Consumer({
        "bootstrap.servers": brokers, "group.id": "independent", "enable.auto.commit": False,
        "isolation.level": isolation, "enable.partition.eof": True, "auto.offset.reset": "error",
        "fetch.message.max.bytes": 20000000, "receive.message.max.bytes": 100000000,
        # Tests kill the broker: that it is away is no news.
        "log_level": 0, "reconnect.backoff.max.ms": 500,
    })


def _partitions(consumer, topic):
    """A topic that was made just now may be news to the broker that is asked."""
    deadline = time.monotonic() + 30
    while True:
        metadata = consumer.list_topics(topic, timeout=30).topics[topic]
        if metadata.error is None:
            return sorted(metadata.partitions)
        assert time.monotonic() < deadline, f"{topic}: {metadata.error}"
        time.sleep(0.1)


def read_topic(brokers, topic, isolation="read_committed", raw=False):
    """All messages of a topic up to its end: decoded records, or the messages themselves."""
    consumer = _consumer(brokers, isolation)
    try:
        waiting = set(_partitions(consumer, topic))
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in waiting])
        messages = []
        while waiting:
            message = consumer.poll(60)
            assert message is not None, f"{topic}: no answer from the broker"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                waiting.discard(message.partition())
            else:
                messages.append(message if raw else decode(message.value()))
        return messages
    finally:
        consumer.close()


def count_topic(brokers, topic):
    """Offsets of a topic, transaction markers included: a cheap measure of progress."""
    consumer = _consumer(brokers, "read_committed")
    try:
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)
                for p in _partitions(consumer, topic)]
        return sum(high - low for low, high in ends)
    finally:
        consumer.close()


def produce(brokers, topic, messages, transactional_id=None, abort=False, **settings):
    """messages: (key, value) or (key, value, partition). All delivered when it returns, and what is
    committed can be read."""
    failures = []
    config = {"bootstrap.servers": brokers, "message.max.bytes": 18874368} | settings
    if transactional_id:
        config["transactional.id"] = transactional_id
    producer = Producer(config)
    if transactional_id:
        producer.init_transactions(60)
        producer.begin_transaction()
    for key, value, *partition in messages:
        producer.produce(topic, value, key, *partition,
                         on_delivery=lambda e, _: failures.append(e) if e else None)
        producer.poll(0)
    if transactional_id and abort:
        producer.flush(60)
        producer.abort_transaction(60)
    elif transactional_id:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0
    assert abort or not failures, failures
    if transactional_id:  # markers come behind the answer; who initialises next waits for them
        Producer(config).init_transactions(60)


def streams(chunks):
    """What a streaming user sees: {request_id: (ids, text)}, read as the protocol says: the newest
    attempt counts, overlaps are cut, a gap is an error."""
    state = {}
    for chunk in chunks:
        attempt, ids, text = state.get(chunk["request_id"], (0, [], b""))
        if chunk["attempt"] < attempt:
            continue
        attempt = chunk["attempt"]
        skip = len(ids) - chunk["first_index"]
        assert skip >= 0, f"gap in the stream of {chunk['request_id']}: {chunk}"
        if skip < len(chunk["ids"]):
            assert len(chunk["text_ends"]) == len(chunk["ids"])
            cut = chunk["text_ends"][skip - 1] if skip else 0
            ids = ids + chunk["ids"][skip:]
            text = text + chunk["text"].encode()[cut:]
        state[chunk["request_id"]] = (attempt, ids, text)
    return {key: (ids, text.decode()) for key, (_, ids, text) in state.items()}


class Watcher:
    """Follows a topic from its beginning, so that a test can act at a certain record."""

    def __init__(self, brokers, topic):
        self.consumer, self.topic = _consumer(brokers, "read_committed"), topic
        self.consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING)
                              for p in _partitions(self.consumer, topic)])
        self.ids = set()

    def _poll(self, timeout_s):
        message = self.consumer.poll(timeout_s)
        if message is not None and not message.error():
            self.ids.add(message.key())
        return message

    def reached(self, count):
        """Were so many different keys seen by now?"""
        while self._poll(0.1) is not None:
            pass
        return len(self.ids) >= count

    def wait(self, count, timeout_s=300):
        """Until so many different keys were seen."""
        deadline = time.monotonic() + timeout_s
        while len(self.ids) < count:
            self._poll(0.5)
            assert time.monotonic() < deadline, \
                f"{self.topic}: {len(self.ids)} of {count} keys after {timeout_s} s"

    def close(self):
        self.consumer.close()
