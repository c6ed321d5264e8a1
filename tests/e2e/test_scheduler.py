# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a real broker: takeover, fencing, kill -9; the workers are fake_worker.py."""
import os
import random
import signal
import time

import wire as wires
from leader import ALL_ZERO
from stack import wait_until

# As short as the broker's default group.min.session.timeout.ms allows.
QUICK = ("--session-timeout", "6s", "--stand-by", "1s")


def leader_of(schedulers):
    return wait_until("a leader", 30, lambda: next(
        (s for s in schedulers if s.process.poll() is None and s.leads()), None))


def results_so_far(stack, enough):
    # Five seconds: a new consumer may need more than one before its first message.
    return len(stack.read("results", enough, 5))


def test_missing_topics_are_named(stack):
    scheduler = stack.scheduler("alone")
    assert scheduler.process.wait(20) == 69
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

    letters = stack.read("dead-letters", 4, 10)
    assert len(letters) == 4
    headers = dict(letters[0].headers())
    assert letters[0].key() == b"bad"
    assert headers["__connect.errors.topic"] == (stack.prefix + "requests.bulk").encode()
    assert int(headers["__connect.errors.offset"]) >= 0
    assert headers["__connect.errors.exception.message"]

    assert scheduler.metric("pelton_duplicate_requests_total") == 50
    wait_until("lag 0", 10, lambda: scheduler.metric('pelton_request_lag{class="bulk"}') == 0)
    assert scheduler.stop() == 0


def test_headers_continue_the_trace(stack):
    stack.create()
    stack.scheduler("scheduler")
    stack.worker(0)
    stack.submit("b1", 1)
    stack.check()
    consumer = wires.from_beginning(stack.brokers, stack.prefix + "results")
    message = consumer.consume(1, 10)[0]
    headers = {name: value.decode() for name, value in message.headers()}
    rid = next(iter(stack.wanted))
    assert message.key().decode() == rid
    assert headers["traceparent"].split("-")[1] == rid.replace("-", "")
    assert headers["ce_type"] == "pelton.Result" and headers["ce_source"] == "/pelton-scheduler"
    consumer.close()


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
        found = answer[group].result(10).topic_partitions
        return sum(p.offset for p in found if p.topic == stack.prefix + "requests.bulk") == 40

    wait_until("the copy of the offsets", 10, copied)


def test_standby_takes_over_from_killed_leader(stack):
    stack.create()
    stack.worker(0, 20), stack.worker(1, 20)
    schedulers = [stack.scheduler("a", *QUICK), stack.scheduler("b", *QUICK)]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    assert "standby" in wait_until("a standby", 20, standby.ready)
    stack.submit("b1", 1500)
    wait_until("some results", 30, lambda: results_so_far(stack, 101) > 100)
    leader.kill()
    stack.submit("b1", 200, first=1500)
    wait_until("the standby leads", 30, standby.leads)
    stack.check(120)
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
        wait_until("leading", 30, scheduler.leads)
        time.sleep(rng.uniform(0.0, 1.5))
        scheduler.kill()
        scheduler = stack.scheduler(f"s{round + 1}", *QUICK)
    stack.check(120)


def test_paused_leader_is_fenced(stack):
    stack.create()
    stack.worker(0, 20), stack.worker(1, 20)
    schedulers = [stack.scheduler("a", *QUICK), stack.scheduler("b", *QUICK)]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    wait_until("a standby", 20, standby.ready)
    stack.submit("b1", 1500)
    wait_until("some results", 30, lambda: results_so_far(stack, 101) > 100)
    leader.send(signal.SIGSTOP)
    wait_until("the standby leads", 30, standby.leads)
    leader.send(signal.SIGCONT)
    wait_until("the old leader stands by", 30, lambda: "standby" in (leader.ready() or ""))
    stack.submit("b1", 200, first=1500)
    stack.check(120)
    # The pause may not have cost the successor its term.
    assert standby.leads() and standby.metric("pelton_scheduler_fenced_total") == 0


def tear(stack):
    """What a leader leaves that answered five requests in one transaction, of which `state` is
    committed, and results and usage only in part: which requests lack what."""
    usage = {"prompt_tokens_uncached": 7, "prompt_tokens_cached": 0, "output_tokens": 5,
             "prefill_us": 10, "decode_us": 20, "queue_us": 0, "run_us": 30}
    records, ends = [], {}
    lacking = ["nothing", "result and usage", "usage", "nothing", "mark and usage"]
    for message in stack.messages("requests.bulk", len(lacking), 10):
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
    assert stack.producer.flush(10) == 0


def test_torn_transaction_is_completed(stack):
    stack.create()
    stack.submit("b1", 5)
    tear(stack)
    scheduler = stack.scheduler("scheduler")
    stack.worker(0)
    stack.check()
    repairs = {what: scheduler.metric(f'pelton_torn_repairs_total{{what="{what}"}}')
               for what in ("request", "mark", "usage")}
    assert repairs == {"request": 1, "mark": 1, "usage": 2}
    assert "event=transaction_torn requests_again=1 marks_added=1 usages_added=2" in scheduler.log()

    # Whoever comes next finds nothing to do.
    scheduler.kill()
    scheduler = stack.scheduler("successor", *QUICK)
    wait_until("the successor leads", 30, scheduler.leads)
    assert "transaction_torn" not in scheduler.log()
    stack.check()


def test_orderly_handover_is_quick(stack):
    stack.create()
    stack.worker(0, 20)
    schedulers = [stack.scheduler("a"), stack.scheduler("b")]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    wait_until("a standby", 20, standby.ready)
    stack.submit("b1", 300)
    assert leader.stop() == 0
    # No session has to end first.
    wait_until("the standby leads", 5, standby.leads)
    stack.check()


def test_killed_worker_loses_nothing(stack):
    stack.create()
    scheduler = stack.scheduler("scheduler")
    # Slow enough that it has work in hand when it dies, however late that is seen here.
    victim = stack.worker(0, 2000)
    stack.worker(1, 20)
    stack.submit("b1", 600)
    wait_until("some results", 30, lambda: results_so_far(stack, 51) > 50)
    victim.kill()
    stack.check(60)
    assert scheduler.metric("pelton_reassigned_total") > 0


def test_poison_request_becomes_a_dead_letter(stack):
    stack.create()
    stack.scheduler("scheduler", "--crashes-max", "2", "--lease", "1s")
    stack.submit("b1", 20)
    stack.submit("b1", 1, first=20, prompt="kill the worker")
    stack.submit("b1", 20, first=21)
    workers = [stack.worker(0, 10), stack.worker(1, 10)]
    deadline = time.monotonic() + 60
    # The supervisor's part: dead workers come back in their slots.
    while time.monotonic() < deadline and results_so_far(stack, 41) < 41:
        for slot, worker in enumerate(workers):
            if worker.process.poll() is not None:
                workers[slot] = stack.worker(slot, 10)
    stack.check(5, statuses={20: "FAILED"})
    assert len(stack.read("dead-letters", 1, 10)) == 1


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
    letters = stack.read("dead-letters", 1, 20)
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
    stack.wanted.clear()
    stack.worker(0)
    stack.submit("b2", 5)
    wait_until("the other batch is answered", 30, lambda: results_so_far(stack, 45) == 45)


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
    stack.check(120)


def test_waiting_bytes_pause_the_topics(stack):
    stack.create()
    scheduler = stack.scheduler("scheduler", "--waiting-bytes", "32MB")
    stack.submit("b1", 120, prompt="x" * (1 << 20))
    wait_until("it waits for workers", 20,
               lambda: (scheduler.metric("pelton_waiting_bytes") or 0) > 20 << 20)
    time.sleep(1)
    # librdkafka has at most 32 MB more under way when a partition pauses.
    assert scheduler.metric("pelton_waiting_bytes") < 80 << 20
    # The ends of paused partitions are heard of with some delay.
    wait_until("all of it is lag", 20,
               lambda: scheduler.metric('pelton_request_lag{class="bulk"}') == 120)
    stack.worker(0)
    stack.check()


def test_standby_and_leader_metrics(stack):
    stack.create()
    schedulers = [stack.scheduler("a"), stack.scheduler("b")]
    leader = leader_of(schedulers)
    standby = next(s for s in schedulers if s is not leader)
    wait_until("a standby", 20, standby.ready)
    assert leader.metric("pelton_scheduler_leader") == 1
    assert standby.metric("pelton_scheduler_leader") == 0
    assert leader.get("/healthz")[0] == 200
    stack.submit("b1", 100)
    wait_until("the waiting requests show", 10, lambda: leader.metric(
        'pelton_waiting_requests{class="bulk"}') == 100)
    stack.worker(0)
    stack.check()
    wait_until("the worker shows", 10, lambda: leader.metric('pelton_worker_alive{slot="0"}') == 1)
    wait_until("nothing waits", 10, lambda: leader.metric(
        'pelton_waiting_requests{class="bulk"}') == 0)
