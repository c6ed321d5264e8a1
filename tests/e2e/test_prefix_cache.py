# SPDX-License-Identifier: Apache-2.0
"""The prefix cache from a worker's pages to the bill: what a second request finds of the first one
is in its result, its output line, the ledger and the price, and changes no answer."""

import pytest

import harness
from harness import wait_for
from test_demo import MODEL, of_batch

SYSTEM = " ".join(f"Rule {n}: answer with the number only, as digits." for n in range(24))
PAGE = 16


@pytest.fixture(scope="module")
def running(system):
    return system.start()


def request(custom_id, content, system=SYSTEM):
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions",
            "body": {"model": MODEL, "messages": [{"role": "system", "content": system},
                                                  {"role": "user", "content": content}],
                     "max_tokens": 8, "temperature": 0}}


def ask(running, batch, lines, tenant="acme"):
    """Output lines by custom_id."""
    result = running.submit(lines, batch, "--tenant", tenant, "--wait")
    assert result.returncode == 0, result.stderr
    outputs, errors = running.collect(batch)
    assert errors == []
    return {output["custom_id"]: output["response"]["body"] for output in outputs}


def usage(body):
    """Tokens of the prompt, and those of them that were cached."""
    return (body["usage"]["prompt_tokens"],
            body["usage"]["prompt_tokens_details"]["cached_tokens"])


def text(body):
    return body["choices"][0]["message"]["content"]


def metric(running, name):
    return running["worker-0"].metric(f"pelton_worker_{name}")


def test_the_second_request_begins_behind_the_first(running):
    first = ask(running, "one", [request("a", "Calculate:\n23 minus 7")])["a"]
    second = ask(running, "two", [request("b", "Calculate:\n40 plus 2")])["b"]
    assert usage(first)[1] == 0
    prompt, cached = usage(second)
    assert 10 * PAGE < cached < prompt and cached % PAGE == 0

    [result] = of_batch(running.read("results"), "two")
    [record] = of_batch(running.read("usage"), "two")
    for used in (result["usage"], record["usage"]):
        assert used["prompt_tokens_cached"] == cached
        assert used["prompt_tokens_uncached"] == prompt - cached
    wait_for("two rows", lambda: running.booked() == 2)
    assert running.sql("""SELECT prompt_tokens_uncached, prompt_tokens_cached FROM usage
        WHERE batch_id = 'two'""") == [(prompt - cached, cached)]


def test_cached_tokens_have_their_own_price(running):
    [(uncached, cached, output, cost)] = running.sql("""SELECT prompt_tokens_uncached,
        prompt_tokens_cached, output_tokens, list_cost FROM cost_by_batch
        WHERE batch_id = 'two'""")
    [(full, reduced, answer)] = running.sql("""SELECT input_uncached_per_million,
        input_cached_per_million, output_per_million FROM price
        WHERE kind = 'list' AND model = %s""", MODEL)
    assert reduced < full
    assert cost * 10**6 == uncached * full + cached * reduced + output * answer
    assert running.sql("""SELECT sum("ConsumedQuantity") FROM focus_1_2
        WHERE "SkuMeter" = 'input-cached'""")[0][0] == cached


def test_tenants_share_nothing(running):
    other = ask(running, "other", [request("a", "Calculate:\n23 minus 7")], tenant="zeta")["a"]
    assert usage(other)[1] == 0


def test_a_burst_computes_its_beginning_once(running):
    lines = [request(f"r{n}", f"Calculate:\n{n} plus 2", "Once more. " + SYSTEM)
             for n in range(40)]
    bodies = ask(running, "burst", lines)
    prompts, cached = map(sum, zip(*map(usage, bodies.values())))
    assert prompts - cached < prompts / 10
    assert sorted(usage(body)[1] for body in bodies.values())[1] > 10 * PAGE
    # All of this file so far: metrics and ledger agree.
    wait_for("43 rows", lambda: running.booked() == 43)
    [booked] = running.sql(
        "SELECT sum(prompt_tokens_uncached), sum(prompt_tokens_cached) FROM usage")
    wait_for("what is not cached was computed", lambda: booked == (
        metric(running, "prefill_tokens_total"), metric(running, "prefix_hit_tokens_total")))
    assert metric(running, "prefix_lookup_tokens_total") == sum(booked)
    assert metric(running, "prefix_pages") > 0
    assert metric(running, "prefix_evictions_total") == 0
    wait_for("pages of finished requests are free", lambda: metric(
        running, "kv_used_tokens") == 0)


def test_the_answers_are_the_same_without(services, running):
    with_cache = {o["custom_id"]: o["response"]["body"] for o in running.collect("burst")[0]}
    lines = [request(f"r{n}", f"Calculate:\n{n} plus 2", "Once more. " + SYSTEM)
             for n in range(40)]
    system = harness.System(services, "no-prefix-cache")
    try:
        system.start(worker_args=("--no-prefix-cache",))
        without = ask(system, "burst", lines)
        assert {c: text(b) for c, b in without.items()} == \
            {c: text(b) for c, b in with_cache.items()}
        assert all(usage(body)[1] == 0 for body in without.values())
        assert metric(system, "prefix_lookup_tokens_total") == 0
    finally:
        system.close()
