# SPDX-License-Identifier: Apache-2.0
"""The ledger alone, on a real topic and a real database: each usage record is booked exactly once,
whatever is killed, paused, broken or refused meanwhile."""

import json
import os
import signal
import subprocess
import time
import uuid

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

import harness
import records
from harness import wait_for

PARTITIONS = 3
DEFAULTS = {
    "tenant": "acme", "model": "pelton-demo", "revision": "r", "batch_id": "b",
    "service_class": "BULK", "status": "COMPLETED", "attempt": 1, "precision": "f32", "slot": 0,
    "hardware": "cpu-2",
    "usage": {"prompt_tokens_uncached": 10, "prompt_tokens_cached": 2, "output_tokens": 5,
              "prefill_us": 100, "decode_us": 200, "queue_us": 3, "run_us": 400},
}


def usage(custom_id, **fields):
    now = int(time.time() * 1000)
    return DEFAULTS | {"request_id": str(uuid.uuid4()), "custom_id": custom_id, "admitted_ms": now,
                       "finished_ms": now + 5} | fields


def encoded(record):
    return record["request_id"], records.encode("Usage", record)


@pytest.fixture()
def system(services):
    system = harness.System(services, "ledger", topics=False)
    admin = AdminClient({"bootstrap.servers": services.brokers})
    topic = NewTopic(system.prefix + "usage", PARTITIONS, 1)
    for future in admin.create_topics([topic]).values():
        future.result(60)
    try:
        yield system
    finally:
        system.close()


def start(system, *args, name="ledger"):
    # Quick to notice, so that the tests need not wait.
    program = system.program(name, "--lag-interval", "200ms", "--partitions-interval", "1s",
                             "--batch-wait", "50ms", *args)
    wait_for("the ledger is ready", program.ready)
    return program


def produce(system, messages, **options):
    records.produce(system.services.brokers, system.prefix + "usage", messages, **options)


def booked_ids(system):
    return sorted(row[0] for row in system.sql("SELECT custom_id FROM usage"))


def lag(ledger):
    return ledger.metric("pelton_ledger_lag")


def test_books_what_is_committed(system):
    rows = [usage(f"c{n}") for n in range(500)]
    produce(system, map(encoded, rows), transactional_id=system.prefix + "t")
    produce(system, [encoded(usage(f"aborted{n}")) for n in range(100)],
            transactional_id=system.prefix + "t", abort=True)
    ledger = start(system)
    wait_for("500 rows", lambda: system.booked() == 500)
    got = system.sql("""SELECT custom_id, request_id::text, tenant, model, service_class, status,
        attempt, prompt_tokens_uncached, prompt_tokens_cached, output_tokens, prefill_us, decode_us,
        queue_us, run_us, precision, slot, hardware, extract(epoch FROM admitted_at) * 1000,
        extract(epoch FROM finished_at) * 1000 FROM usage""")
    assert sorted(got) == sorted(
        (r["custom_id"], r["request_id"], "acme", "pelton-demo", "bulk", "completed", 1, 10, 2, 5,
         100, 200, 3, 400, "f32", 0, "cpu-2", r["admitted_ms"], r["finished_ms"]) for r in rows)
    # The markers of both transactions are no lag, and the stored offsets stand behind them.
    wait_for("lag 0", lambda: lag(ledger) == 0)
    assert system.sql("SELECT sum(next_offset) FROM kafka_offset")[0][0] == \
        system.count("usage") > 600
    assert ledger.metric('pelton_ledger_rows_total{table="usage"}') == 500
    assert ledger.get("/healthz")[0] == 200


def test_worker_time(system):
    run = {"slot": 3, "incarnation": str(uuid.uuid4()), "hardware": "cpu-2"}
    spans = [(1000, 2000), (2000, 3000), (2000, 3000), (2500, 4000)]
    produce(system, [("3", records.encode("WorkerTime", run | {"from_ms": a, "to_ms": b}))
                     for a, b in spans])
    ledger = start(system)
    wait_for("lag 0", lambda: lag(ledger) == 0)
    got = system.sql("""SELECT slot, extract(epoch FROM from_at)::int,
        extract(epoch FROM to_at)::int FROM worker_time ORDER BY from_at""")
    assert got == [(3, 1, 2), (3, 2, 3)], "a repeated or overlapping interval is not paid twice"


def test_the_same_record_twice_is_billed_once(system):
    row = usage("twice")
    produce(system, [encoded(row), encoded(row), encoded(row | {"attempt": 2})])
    ledger = start(system)
    wait_for("lag 0", lambda: lag(ledger) == 0)
    assert system.sql("SELECT attempt FROM usage") == [(1,)]
    assert ledger.metric("pelton_ledger_duplicates_total") == 2


def test_broken_records_are_reported_and_the_rest_is_billed(system):
    negative = DEFAULTS["usage"] | {"decode_us": -1}
    broken = [
        ("k", b"garbage"), ("k", b""), ("k", None), ("k", b"\xc3\x01unknown!"),
        ("k", encoded(usage("cut"))[1][:-9]),
        encoded(usage("nul\0nul")), encoded(usage("negative", usage=negative)),
        encoded(usage("no time", admitted_ms=0)),
    ]
    good = [encoded(usage(f"c{n}")) for n in range(99)]
    produce(system, good[:50] + broken + good[50:])
    ledger = start(system)
    wait_for("lag 0", lambda: lag(ledger) == 0)
    assert booked_ids(system) == sorted(f"c{n}" for n in range(99))
    errors = system.sql("SELECT partition, record_offset, reason, record FROM ledger_error")
    assert len(errors) == len(broken)
    messages = {(m.partition(), m.offset()): m.value() or b""
                for m in system.read("usage", raw=True)}
    for partition, offset, reason, record in errors:
        assert messages[partition, offset] == bytes(record) and reason
    assert {"decode_us is negative", "custom_id contains a NUL"} <= {e[2] for e in errors}
    assert ledger.log.read_text().count("event=broken_record") == len(broken)


def test_a_row_that_the_database_refuses(system):
    with system.connection() as connection:
        connection.execute("ALTER TABLE usage ADD CHECK (custom_id <> 'refused')")
    produce(system, [encoded(usage(c)) for c in ("a", "refused", "b")])
    ledger = start(system)
    wait_for("lag 0", lambda: lag(ledger) == 0)
    assert booked_ids(system) == ["a", "b"]
    (reason,), = system.sql("SELECT reason FROM ledger_error")
    assert "usage_custom_id_check" in reason


TRIGGER = """CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.custom_id = '{name}' THEN RAISE 'not {name}' USING ERRCODE = '{state}'; END IF;
    RETURN NEW; END $$;
    CREATE TRIGGER {name} BEFORE INSERT ON usage FOR EACH ROW EXECUTE FUNCTION {name}()"""


def test_one_record_never_stops_the_others(system):
    """A name that no index takes, a limit of the server, an answer of no known kind."""
    with system.connection() as connection:
        for name, state in (("large", "54000"), ("odd", "ZZ001")):
            connection.execute(TRIGGER.format(name=name, state=state))
    produce(system, [encoded(usage(c)) for c in ("a", "large", "b", "odd", "c")]
            + [encoded(usage("long", batch_id=os.urandom(4500).hex())), encoded(usage("d"))])
    ledger = start(system)
    wait_for("lag 0", lambda: lag(ledger) == 0)
    wait_for("ready", lambda: ledger.get("/readyz")[0] == 200)
    assert booked_ids(system) == ["a", "b", "c", "d"]
    reasons = sorted(row[0] for row in system.sql("SELECT reason FROM ledger_error"))
    assert [reason.split(" ")[0] for reason in reasons] == ["batch_id", "the", "writing"]
    assert "9000 bytes" in reasons[0] and "not large" in reasons[2]


def test_a_database_that_takes_nothing_blames_no_record(system):
    ledger = start(system)
    with system.connection() as connection:
        connection.execute(TRIGGER.format(name="refused", state="53100"))
        produce(system, [encoded(usage(c)) for c in ("refused", "a")])
        wait_for("a reason", lambda: "not refused" in ledger.get("/readyz")[1])
        retries = ledger.metric("pelton_ledger_retries_total")

        def four_more():
            assert ledger.get("/readyz")[0] == 503, "connecting alone is not ready"
            return ledger.metric("pelton_ledger_retries_total") >= retries + 4

        wait_for("four more tries", four_more, interval_s=0.02)
        connection.execute("DROP TRIGGER refused ON usage")
    wait_for("both rows", lambda: system.booked() == 2)
    wait_for("ready again", lambda: ledger.get("/readyz")[0] == 200)
    assert system.sql("SELECT count(*) FROM ledger_error") == [(0,)]


def test_killed_again_and_again(system):
    count = 20000
    produce(system, [encoded(usage(f"c{n}")) for n in range(count)],
            transactional_id=system.prefix + "t")
    program = system.program("ledger", "--batch-rows", "100")
    booked = 0
    while booked < count * 0.8:
        wait_for("progress", lambda: system.booked() >= min(booked + 3000, count))
        program.kill()
        booked = system.booked()
        program.start()
    wait_for("all rows", lambda: system.booked() == count)
    wait_for("lag 0", lambda: program.ready() and lag(program) == 0)
    assert system.sql("SELECT count(DISTINCT custom_id) FROM usage") == [(count,)]
    # Rows and offsets moved together each time: nothing was ever read twice.
    assert program.metric("pelton_ledger_duplicates_total") == 0


def test_a_database_that_goes_away(system):
    ledger = start(system)
    with harness.psycopg.connect(dbname="postgres", autocommit=True) as other:
        other.execute(f"ALTER DATABASE {system.database} ALLOW_CONNECTIONS false")
        other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                      (system.database,))
        produce(system, [encoded(usage(f"c{n}")) for n in range(300)])
        wait_for("a reason", lambda: "connecting to PostgreSQL" in ledger.get("/readyz")[1])
        assert ledger.get("/readyz")[0] == 503
        other.execute(f"ALTER DATABASE {system.database} ALLOW_CONNECTIONS true")
    wait_for("300 rows", lambda: system.booked() == 300)
    wait_for("ready again", lambda: ledger.get("/readyz")[0] == 200)


def test_a_second_ledger_stands_by(system):
    first = start(system)
    second = system.program("ledger-2", "--client-id", "second")
    wait_for("standby", lambda: "event=standby" in second.log.read_text())
    assert wait_for("it answers", lambda: second.get("/readyz"))[0] == 503
    once = system.program("ledger-3", "--once")
    assert once.process.wait(60) == os.EX_TEMPFAIL and "another ledger books" in once.tail()
    produce(system, [encoded(usage("before"))])
    wait_for("one row", lambda: system.booked() == 1)
    first.kill()
    produce(system, [encoded(usage("after"))])
    wait_for("two rows", lambda: system.booked() == 2)
    wait_for("it is ready", second.ready)
    assert second.log.read_text().count("event=standby") == 1


def test_a_paused_ledger_that_lost_its_session_stands_by(system):
    old = start(system)
    produce(system, [encoded(usage("before"))])
    wait_for("one row", lambda: system.booked() == 1)
    old.signal(signal.SIGSTOP)
    produce(system, [encoded(usage("meanwhile"))])
    system.sql("""SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'pelton-ledger' AND datname = current_database()""")
    new = start(system, "--client-id", "successor", name="ledger-2")
    wait_for("two rows", lambda: system.booked() == 2)
    old.signal(signal.SIGCONT)
    produce(system, [encoded(usage("after"))])
    wait_for("standby", lambda: "event=standby" in old.log.read_text())
    wait_for("three rows", lambda: system.booked() == 3)
    new.kill()
    produce(system, [encoded(usage("back"))])
    wait_for("four rows", lambda: system.booked() == 4)
    assert old.process.poll() is None


def test_what_stays_wrong_ends_it(system):
    with harness.psycopg.connect(dbname="postgres", autocommit=True) as other:
        other.execute(f"CREATE DATABASE {system.database}_empty")
    try:
        for database, role, text in ((f"{system.database} portt=1", "pelton_ledger", "portt"),
                                     (system.database, "nobody_here", "nobody_here"),
                                     (f"{system.database}_empty", "", "sqitch deploy"),
                                     ("no_such_database", "", "no_such_database")):
            result = subprocess.run(
                [harness.BUILD / "pelton-ledger", "--metrics-port", "-1", "--brokers",
                 system.services.brokers, "--topic-prefix", system.prefix, "--database",
                 f"dbname={database}", "--database-role", role],
                env=system.env, capture_output=True, text=True, timeout=120)
            assert result.returncode == os.EX_CONFIG and text in result.stderr, result.stderr
    finally:
        with harness.psycopg.connect(dbname="postgres", autocommit=True) as other:
            other.execute(f"DROP DATABASE {system.database}_empty")


def test_a_login_that_is_refused(system):
    """Ends a ledger that has never worked; one that has waits for whoever is at work there."""
    login = f"{system.database}_login"
    refused = f'password authentication failed for user "{login}"'
    system.env = system.env | {"PGUSER": login, "PGPASSWORD": "right"}
    with harness.psycopg.connect(dbname=system.database, autocommit=True) as admin:
        first = system.program("ledger", "--lag-interval", "200ms")
        assert first.process.wait(60) == os.EX_CONFIG and refused in first.tail()  # no such role
        admin.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'wrong' IN ROLE pelton_ledger")
        try:
            first.start()
            assert first.process.wait(60) == os.EX_CONFIG and refused in first.tail()
            admin.execute(f"ALTER ROLE {login} PASSWORD 'right'")
            first.start()
            wait_for("the ledger is ready", first.ready)
            admin.execute(f"ALTER ROLE {login} PASSWORD 'changed'")
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                          "WHERE usename = %s", (login,))
            produce(system, [encoded(usage("meanwhile"))])
            wait_for("a reason", lambda: refused in first.get("/readyz")[1])
            admin.execute(f"ALTER ROLE {login} PASSWORD 'right'")
            wait_for("one row", lambda: system.booked() == 1)
            first.kill()
        finally:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                          "WHERE usename = %s", (login,))
            admin.execute(f"DROP ROLE {login}")


def test_new_partitions_are_found(system):
    ledger = start(system)
    admin = AdminClient({"bootstrap.servers": system.services.brokers})
    for future in admin.create_partitions([NewPartitions(system.prefix + "usage", 5)]).values():
        future.result(60)
    topic = system.prefix + "usage"
    wait_for("5 partitions", lambda: len(
        admin.list_topics(topic, timeout=30).topics[topic].partitions) == 5)
    produce(system, [(None, encoded(usage(f"c{n}"))[1], n) for n in range(5)])
    wait_for("five rows", lambda: system.booked() == 5)
    wait_for("its offset shows", lambda: ledger.metrics().get(
        'pelton_ledger_next_offset{partition="4"}') == 1)


def test_offsets_out_of_range_stop_it_by_name(system):
    produce(system, [(None, encoded(usage(f"c{n}"))[1], 0) for n in range(10)])
    ledger = start(system)
    wait_for("ten rows", lambda: system.booked() == 10)
    assert ledger.terminate() == 0
    produce(system, [(None, encoded(usage(f"lost{n}"))[1], 0) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": system.services.brokers})
    for future in admin.delete_records(
            [TopicPartition(system.prefix + "usage", 0, 15)]).values():
        future.result(60)
    assert ledger.start().process.wait(60) == os.EX_UNAVAILABLE
    assert f"offset 10 of {system.prefix}usage[0] is out of range 15 to 20" in ledger.tail()
    assert system.booked() == 10


def test_offsets_of_another_cluster_stop_it(system):
    ledger = start(system)
    assert ledger.terminate() == 0
    with system.connection() as connection:
        connection.execute("UPDATE kafka_offset SET cluster_id = 'elsewhere'")
    assert ledger.start().process.wait(60) == os.EX_UNAVAILABLE
    assert "belongs to Kafka cluster elsewhere" in ledger.tail()


def test_once(system):
    produce(system, [encoded(usage(f"c{n}")) for n in range(3000)],
            transactional_id=system.prefix + "t")
    ledger = system.program("ledger", "--once")
    assert ledger.process.wait(60) == 0
    assert system.booked() == 3000
    assert ledger.start().process.wait(60) == 0, "nothing to do is a success too"


def test_partition_of_a_month_that_nobody_made(system):
    old = usage("old", admitted_ms=int(time.time() * 1000) - 400 * 86400000)
    produce(system, [encoded(old)])
    ledger = start(system, "--premake-interval", "1s")
    wait_for("the row", lambda: system.booked() == 1)
    wait_for("its month", lambda: system.sql("SELECT default_rows FROM partition_health") == [(0,)])
    wait_for("months ahead", lambda: ledger.metric("pelton_ledger_months_ahead") >= 3)


def test_cost_report(system):
    produce(system, [encoded(usage(f"c{n}")) for n in range(1000)])
    ledger = system.program("ledger", "--once")
    assert ledger.process.wait(60) == 0
    report = subprocess.run(
        [harness.ROOT / "ops/cost-report", "--batch", "b", "--expect", "1000", "--json"],
        env=system.env | {"PGDATABASE": system.database}, capture_output=True, text=True,
        check=True)
    batch, = json.loads(report.stdout)["batches"]
    # 1000 x (10 x 0.275 + 2 x 0.07 + 5 x 1.095) per million, the example price of class bulk
    assert batch["requests"] == 1000 and batch["billed"] == 0.008365
    table = subprocess.run([harness.ROOT / "ops/cost-report"], capture_output=True, text=True,
                           env=system.env | {"PGDATABASE": system.database}, check=True)
    assert "Cost by day" in table.stdout and "0.008365" in table.stdout
    assert "Problems" not in table.stdout


def test_configuration_errors_are_one_line(system):
    for args, text in ((("--batch-rows", "0"), "batch_rows"), (("--batch-rowz", "1"), "batch_rows"),
                       (("-X", "enable.auto.commit=true", "--once"), "enable.auto.commit")):
        result = subprocess.run([harness.BUILD / "pelton-ledger", "--metrics-port", "-1", *args],
                                capture_output=True, text=True, timeout=120)
        assert result.returncode not in (0, -6, -11) and text in result.stderr, result.stderr
