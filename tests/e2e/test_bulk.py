# SPDX-License-Identifier: Apache-2.0
"""2,000 requests: in f32 each answer is the reference implementation's, in SQL each token; in bf16
the answers are right as often as in f32, within half a point."""

import json

import pytest

import harness
from harness import SAMPLES, wait_for
from test_demo import answer, of_batch, reference, requests


def right(outputs):
    """Percent of answers that solve their task."""
    answers = {r["custom_id"]: r["answer"] for r in map(
        json.loads, (SAMPLES / "bulk-2000.answers.jsonl").read_text().splitlines())}
    hits = sum(answer(o)[0] == answers[o["custom_id"]] for o in outputs)
    return 100 * hits / len(answers)


@pytest.fixture(scope="module")
def f32(system):
    system.start(worker_args=("--numerics", "f32"))
    result = system.submit(requests("bulk-2000"), "bulk", "--wait")
    assert result.returncode == 0, result.stderr
    outputs, errors = system.collect("bulk")
    assert errors == []
    return outputs


def test_every_custom_id_once_and_as_the_reference(f32):
    assert len(f32) == 2000
    assert {o["custom_id"]: answer(o) for o in f32} == reference("bulk-2000")


def test_usage_in_sql_is_the_outputs_usage(system, f32):
    wait_for("2000 rows", lambda: system.booked() == 2000)
    rows = system.sql("SELECT custom_id, prompt_tokens_uncached + prompt_tokens_cached, "
                      "output_tokens FROM usage")
    assert sorted(rows) == sorted((o["custom_id"], *answer(o)[1:]) for o in f32)
    sums = system.sql("""SELECT sum(prompt_tokens_uncached + prompt_tokens_cached),
                         sum(output_tokens) FROM cost_by_batch""")
    assert sums == [(sum(answer(o)[1] for o in f32), sum(answer(o)[2] for o in f32))]
    wait_for("lag 0", lambda: system["ledger"].metric("pelton_ledger_lag") == 0)


def test_one_result_and_one_usage_record_each(system, f32):
    for topic in ("results", "usage"):
        ids = [r["request_id"] for r in of_batch(system.read(topic), "bulk")]
        assert len(ids) == len(set(ids)) == 2000


def test_bf16_is_right_as_often(services, f32):
    system = harness.System(services, "bf16")
    try:
        system.start(worker_args=("--numerics", "bf16"))
        result = system.submit(requests("bulk-2000"), "bulk", "--wait")
        assert result.returncode == 0, result.stderr
        outputs, errors = system.collect("bulk")
        assert errors == [] and len(outputs) == 2000
        print(f"right answers: f32 {right(f32):.2f} %, bf16 {right(outputs):.2f} %")
        assert abs(right(f32) - right(outputs)) <= 0.5
    finally:
        system.close()
