# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a real broker: takeover, fencing, kill -9; the workers are fake_worker.py."""
import os
import random
import signal
import time

import wire as wires
from harness import wait_for
from leader import ALL_ZERO

# As short as the broker's default group.min.session.timeout.ms allows.
QUICK = ("--session-timeout", "6s", "--stand-by", "1s")


def leader_of(schedulers):
    return wait_for("a leader", lambda: next(
        (s for s in schedulers if s.process.poll() is None and s.leads()), None))


def test_missing_topics_are_named(stack):
    scheduler = stack.scheduler("alone")
    assert scheduler.process.wait(60) == 69
    last = scheduler.log().splitlines()[-1]
    assert "does not exist" in last and "pelton topics create" in last and stack.prefix in last


def test_every_request_once(stack):
    stack.create()
    scheduler = stack.scheduler("scheduler")
    stack.worker(0), stack.worker(1)
    stack.submit("b1", 200)
    stack.submit("b1", 100, first=200, service_class="INTERACTIVE")
    # The same file again: known ids, nothing new.
    stack.submit("b1", 50)
    stack.submit("b1", 3, first=300, prompt="fail this one")
    # Bytes that are no request stand between others and stop none of them.
    for value in (b"garbage", b"\xc3\x01garbage!", stack.wire.encode(
            "CancelBatch", batch_id="b1", tenant="acme", sent_ms=0), None):
        stack.producer.produce(stack.prefix + "requests.bulk", value, "bad")
    stack.submit("b1", 20, first=303)
    stack.check(statuses={index: "FAILED" for index in (300, 301, 302)})

    letters = stack.messages("dead-letters", 4)
    assert len(letters) == 4
    headers = dict(letters[0].headers())
    assert letters[0].key() == b"bad"
    assert headers["__connect.errors.topic"] == (stack.prefix + "requests.bulk").encode()
    assert int(headers["__connect.errors.offset"]) >= 0
    assert headers["__connect.errors.exception.message"]

    wait_for("50 duplicates",
             lambda: scheduler.metric("pelton_duplicate_requests_total") == 50)
    wait_for("lag 0", lambda: scheduler.metric('pelton_request_lag{class="bulk"}') == 0)
    assert scheduler.stop() == 0


def test_headers_continue_the_trace(stack):
    stack.create()
    stack.scheduler("scheduler")
    stack.worker(0)
    stack.submit("b1", 1)
    stack.check()
    [message] = stack.messages("results", 1)
    headers = {name: value.decode() for name, value in message.headers()}
    rid = next(iter(stack.wanted))
    assert message.key().decode() == rid
    assert headers["traceparent"].split("-")[1] == rid.replace("-", "")
    assert headers["ce_type"] == "pelton.Result" and headers["ce_source"] == "/pelton-scheduler"


def test_lag_tools_see_admitted_offsets(stack):
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient
    stack.create()
    stack.scheduler("scheduler")
    stack.worker(0)
    stack.submit("b1", 40)
    stack.check()
    admin = AdminClient({"bootstrap.servers": stack.brokers})
    group = stack.prefix + "scheduler-lag"

    def copied():
        answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = answer[group].result(60).topic_partitions
        return sum(p.offset for p in found if p.topic == stack.prefix + "requests.bulk") == 40

    wait_for("the copy of the offsets", copied)


def test_standby_takes_over_from_killed_leader(stack):
    stack.create()
    stack.worker(0, 20), stack.worker(1, 20)
    schedulers = [stack.scheduler("a", *QUICK), stack.scheduler("b", *QUICK)]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    assert "standby" in wait_for("a standby", standby.ready)
    stack.submit("b1", 1500)
    stack.answered.wait(100)
    leader.kill()
    stack.submit("b1", 200, first=1500)
    wait_for("the standby leads", standby.leads)
    stack.check()
    # What ran went on running: the workers were adopted, not started again.
    assert standby.metric("pelton_reassigned_total") == 0


def test_killed_again_and_again(stack):
    rng = random.Random(20261130)
    stack.create()
    stack.worker(0, 20), stack.worker(1, 20)
    # A lone scheduler: it leads once the killed one's session has ended.
    scheduler = stack.scheduler("s0", *QUICK)
    stack.submit("b1", 2000)
    for round in range(3):
        wait_for("leading", scheduler.leads)
        time.sleep(rng.uniform(0.0, 1.5))
        scheduler.kill()
        scheduler = stack.scheduler(f"s{round + 1}", *QUICK)
    stack.check()


def test_paused_leader_is_fenced(stack):
    stack.create()
    stack.worker(0, 20), stack.worker(1, 20)
    schedulers = [stack.scheduler("a", *QUICK), stack.scheduler("b", *QUICK)]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    wait_for("a standby", standby.ready)
    stack.submit("b1", 1500)
    stack.answered.wait(100)
    leader.send(signal.SIGSTOP)
    wait_for("the standby leads", standby.leads)
    leader.send(signal.SIGCONT)
    wait_for("the old leader stands by", lambda: "standby" in (leader.ready() or ""))
    stack.submit("b1", 200, first=1500)
    stack.check()
    # The pause may not have cost the successor its term.
    assert standby.leads() and standby.metric("pelton_scheduler_fenced_total") == 0


def tear(stack):
    """What a leader leaves that answered five requests in one transaction, of which `state` is
    committed, and results and usage only in part: which requests lack what."""
    usage = {"prompt_tokens_uncached": 7, "prompt_tokens_cached": 0, "output_tokens": 5,
             "prefill_us": 10, "decode_us": 20, "queue_us": 0, "run_us": 30}
    records, ends = [], {}
    lacking = ["nothing", "result and usage", "usage", "nothing", "mark and usage"]
    for message in stack.messages("requests.bulk", len(lacking)):
        request = stack.wire.decode(message.value())[1]
        rid, lacks = request["request_id"], lacking[stack.wanted[request["request_id"]]]
        ends[message.partition()] = message.offset() + 1
        common = {"request_id": rid, "attempt": 1, "admitted_ms": message.timestamp()[1]}
        where = {"partition": message.partition(), "offset": message.offset()}
        ids = wires.expected_ids(rid, 5)
        answer = common | {"tenant": "acme", "batch_id": "b1", "custom_id": request["custom_id"],
                           "service_class": "BULK", "status": "COMPLETED", "usage": usage}
        if lacks == "mark and usage":
            records.append(("state", f"request/{rid}", "InFlight", common | where | {
                "topic": "requests.bulk", "slot": 0, "incarnation": ALL_ZERO}))
        else:
            records.append(("state", f"request/{rid}", "DoneMark", common | where | {
                "body_hash": request["body_hash"][:8], "status": "COMPLETED",
                "service_class": "BULK", "tick": 9, "uncertain": 2}))
        if lacks in ("nothing", "usage", "mark and usage"):
            records.append(("results", rid, "Result", answer | {
                "endpoint": "CHAT_COMPLETIONS", "ids": ids, "text": wires.expected_text(ids),
                "finish_reason": "STOP", "failure": {}}))
        if lacks == "nothing":
            records.append(("usage", rid, "Usage", answer))
    records.append(("state", "tick", "Tick", {
        "epoch": 3, "seq": 9, "number": 9, "uncertain": 2, "outputs": [], "next_input": [
            {"topic": "requests.bulk", "partition": p, "offset": end}
            for p, end in ends.items()]}))
    for topic, key, name, fields in records:
        stack.producer.produce(stack.prefix + topic, stack.wire.encode(name, **fields), key)
    assert stack.producer.flush(60) == 0


def test_torn_transaction_is_completed(stack):
    stack.create()
    stack.submit("b1", 5)
    tear(stack)
    scheduler = stack.scheduler("scheduler")
    stack.worker(0)
    stack.check()
    wait_for("the repairs are counted", lambda: {
        what: scheduler.metric(f'pelton_torn_repairs_total{{what="{what}"}}')
        for what in ("request", "mark", "usage")} == {"request": 1, "mark": 1, "usage": 2})
    assert "event=transaction_torn requests_again=1 marks_added=1 usages_added=2" in scheduler.log()

    # Whoever comes next finds nothing to do.
    scheduler.kill()
    scheduler = stack.scheduler("successor", *QUICK)
    wait_for("the successor leads", scheduler.leads)
    assert "transaction_torn" not in scheduler.log()
    stack.check()


def test_orderly_handover_is_quick(stack):
    stack.create()
    stack.worker(0, 20)
    # No session has to end first: it would last twice as long as is waited for here. What the
    # group has to say is heard at the next heartbeat, a fifth of a session later.
    schedulers = [stack.scheduler(name, "--session-timeout", "60s", "-X",
                                  "heartbeat.interval.ms=1000") for name in ("a", "b")]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    wait_for("a standby", standby.ready)
    stack.submit("b1", 300)
    assert leader.stop() == 0
    wait_for("the standby leads", standby.leads, 30)
    stack.check()


def test_killed_worker_loses_nothing(stack):
    stack.create()
    scheduler = stack.scheduler("scheduler")
    # Slow enough that it has work in hand when it dies, however late that is seen here.
    victim = stack.worker(0, 2000)
    stack.worker(1, 20)
    stack.submit("b1", 600)
    stack.answered.wait(50)
    victim.kill()
    stack.check()
    assert scheduler.metric("pelton_reassigned_total") > 0


def test_poison_request_becomes_a_dead_letter(stack):
    stack.create()
    stack.scheduler("scheduler", "--crashes-max", "2")
    stack.submit("b1", 20)
    stack.submit("b1", 1, first=20, prompt="kill the worker")
    stack.submit("b1", 20, first=21)
    workers = [stack.worker(0, 10), stack.worker(1, 10)]

    def answered():
        # The supervisor's part: dead workers come back in their slots.
        for slot, worker in enumerate(workers):
            if worker.process.poll() is not None:
                workers[slot] = stack.worker(slot, 10)
        return stack.answered.reached(41)

    wait_for("41 results", answered)
    stack.check(statuses={20: "FAILED"})
    assert len(stack.messages("dead-letters", 1)) == 1


def test_oversized_and_large_messages(stack):
    stack.create()
    stack.scheduler("scheduler")
    stack.worker(0)
    stack.submit("b1", 5)
    stack.submit("b1", 1, first=5, prompt="x" * (15 << 20))
    # Above 16 MB, below the topic's limit: a dead letter, and its neighbours are answered.
    rid, value = wires.request(stack.wire, "b1", 6, prompt="x" * (17 << 20))
    stack.producer.produce(stack.prefix + "requests.bulk", value, rid)
    stack.submit("b1", 5, first=7)
    stack.submit("b1", 1, first=12, prompt="a huge answer")
    results = stack.check(statuses={12: "FAILED"})
    too_large = next(r for r in results if r["status"] == "FAILED")
    assert too_large["failure"]["code"] == "result_too_large" and not too_large["text"]
    letters = stack.messages("dead-letters", 1)
    assert len(letters) == 1 and letters[0].value() == value


def test_cancelled_batch(stack):
    stack.create()
    stack.scheduler("scheduler")
    stack.submit("b1", 30)
    stack.producer.produce(stack.prefix + "control", stack.wire.encode(
        "CancelBatch", batch_id="b1", tenant="acme", sent_ms=int(time.time() * 1000)), "cancel/b1")
    # Nobody has to be there to run them, and those that come later are cancelled, too.
    stack.submit("b1", 10, first=30)
    results = stack.check(statuses={index: "CANCELLED" for index in range(40)})
    assert all(r["usage"]["output_tokens"] == 0 for r in results)
    stack.worker(0)
    stack.submit("b2", 5, first=1000)
    stack.check(statuses={index: "CANCELLED" for index in range(40)})


class Chaos:
    """Two schedulers and three workers; one after another is killed, paused or stopped."""

    def __init__(self, stack, seed):
        self.stack, self.rng, self.count, self.paused = stack, random.Random(seed), 0, []
        self.schedulers = [self.scheduler(), self.scheduler()]
        self.workers = [stack.worker(slot, 10) for slot in range(3)]

    def scheduler(self):
        self.count += 1
        return self.stack.scheduler(f"s{self.count}", *QUICK)

    def resume(self, now=None):
        for process, until in list(self.paused):
            if now is None or now >= until:
                process.send(signal.SIGCONT)
                self.paused.remove((process, until))

    def strike(self, now):
        group = self.rng.choice([self.schedulers, self.workers])
        index = self.rng.randrange(len(group))
        victim = group[index]
        how = self.rng.choice(["kill", "stop", "pause"])
        if any(process is victim for process, _ in self.paused):
            return
        if how == "pause":
            victim.send(signal.SIGSTOP)
            # Shorter and longer than a lease, and than a session of the group.
            self.paused.append((victim, now + self.rng.choice([1, 5, 9])))
            return
        victim.kill() if how == "kill" else victim.stop(30)
        group[index] = self.scheduler() if group is self.schedulers else \
            self.stack.worker(index, 10)


def test_chaos(stack):
    seed = int(os.environ.get("PELTON_SEED", time.time_ns() % 10 ** 9))
    print(f"PELTON_SEED={seed}")
    stack.slots = 3
    stack.create()
    chaos = Chaos(stack, seed)
    start, first = time.monotonic(), 0
    while time.monotonic() < start + 25:
        stack.submit("b1", chaos.rng.randint(10, 80), first=first,
                     service_class=chaos.rng.choice(["BULK", "INTERACTIVE"]))
        first += 1000
        time.sleep(chaos.rng.uniform(0.2, 2))
        chaos.resume(time.monotonic())
        chaos.strike(time.monotonic())
    chaos.resume()
    stack.check()


def test_waiting_bytes_pause_the_topics(stack):
    stack.create()
    scheduler = stack.scheduler("scheduler", "--waiting-bytes", "32MB")
    stack.submit("b1", 120, prompt="x" * (1 << 20))
    wait_for("it waits for workers",
             lambda: (scheduler.metric("pelton_waiting_bytes") or 0) > 20 << 20)
    time.sleep(1)
    # librdkafka has at most 32 MB more under way when a partition pauses.
    assert scheduler.metric("pelton_waiting_bytes") < 80 << 20
    # The ends of paused partitions are heard of with some delay.
    wait_for("all of it is lag",
             lambda: scheduler.metric('pelton_request_lag{class="bulk"}') == 120)
    stack.worker(0)
    stack.check()


def test_standby_and_leader_metrics(stack):
    stack.create()
    schedulers = [stack.scheduler("a"), stack.scheduler("b")]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    wait_for("a standby", standby.ready)
    wait_for("the leader's metric", lambda: leader.metric("pelton_scheduler_leader") == 1)
    assert standby.metric("pelton_scheduler_leader") == 0
    assert leader.get("/healthz")[0] == 200
    stack.submit("b1", 100)
    wait_for("the waiting requests show", lambda: leader.metric(
        'pelton_waiting_requests{class="bulk"}') == 100)
    stack.worker(0)
    stack.check()
    wait_for("the worker shows", lambda: leader.metric('pelton_worker_alive{slot="0"}') == 1)
    wait_for("nothing waits", lambda: leader.metric(
        'pelton_waiting_requests{class="bulk"}') == 0)
