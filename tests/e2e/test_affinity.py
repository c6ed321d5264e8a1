# SPDX-License-Identifier: Apache-2.0
"""A job of eight long system prompts, shuffled, on two workers whose KV memory does not hold all
eight: with prefix affinity each worker keeps its part of them; by load alone they push each other
out."""

import random

import pytest

import harness
from test_demo import MODEL

PROMPTS, REQUESTS = 8, 240
KV_SIZE = "1600KiB"
WORKER = ("--threads", "1", "--max-batch-size", "4", "--kv-size", KV_SIZE)


def system_prompt(number):
    """About 270 tokens; numbers first, so that not even a page is shared."""
    rules = " ".join(f"Rule {number}-{n}: answer with the number only." for n in range(20))
    return f"{number}{number} {rules}"


def lines():
    numbers = [n % PROMPTS for n in range(REQUESTS)]
    random.Random(1).shuffle(numbers)
    return [{"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions",
             "body": {"model": MODEL, "max_tokens": 8, "temperature": 0,
                      "messages": [{"role": "system", "content": system_prompt(number)},
                                   {"role": "user", "content": f"Calculate:\n{n} plus 2"}]}}
            for n, number in enumerate(numbers)]


@pytest.fixture(scope="module", params=[1, 0], ids=["affinity", "load"])
def job(services, request):
    """Output lines, and the metrics of scheduler and workers after them."""
    system = harness.System(services, f"affinity-{request.param}")
    try:
        system.start("scheduler", "worker-0", "worker-1", "ledger", worker_args=WORKER,
                     scheduler_args=("--prefix-affinity-weight", str(request.param)))
        result = system.submit(lines(), "job", "--wait")
        assert result.returncode == 0, result.stderr
        outputs, errors = system.collect("job")
        assert errors == [] and len(outputs) == REQUESTS
        harness.wait_for("all answers are counted", lambda: system["scheduler"].metric(
            'pelton_results_total{status="completed"}') == REQUESTS)
        yield {"weight": request.param, "outputs": outputs,
               "scheduler": system["scheduler"].metrics(),
               "workers": [system[f"worker-{slot}"].metrics() for slot in (0, 1)]}
    finally:
        system.close()


def test_cached_share(job):
    usage = [output["response"]["body"]["usage"] for output in job["outputs"]]
    prompt = sum(u["prompt_tokens"] for u in usage)
    cached = sum(u["prompt_tokens_details"]["cached_tokens"] for u in usage)
    metrics = job["scheduler"]
    expected = metrics["pelton_prompt_cached_expected_tokens_total"]
    computed = [w["pelton_worker_prefill_tokens_total"] for w in job["workers"]]
    print(f"weight {job['weight']}: {cached / prompt:.1%} of {prompt} prompt tokens cached, "
          f"{expected:.0f} expected, computed {computed}, affinity "
          f"{metrics['pelton_affinity_assignments_total']:.0f}, evictions "
          f"{[w['pelton_worker_prefix_evictions_total'] for w in job['workers']]}")
    assert metrics["pelton_prompt_tokens_total"] == prompt
    assert metrics["pelton_prompt_cached_tokens_total"] == cached
    # Both workers have worked. By load alone 32 to 42 % were cached, with affinity 82 to 90 %.
    assert min(computed) > 0.2 * sum(computed)
    if job["weight"] == 0:
        assert metrics["pelton_affinity_assignments_total"] == 0 and expected == 0
        assert cached < 0.6 * prompt
        return
    assert cached > 0.7 * prompt
    assert 0.4 * cached < expected < 1.6 * cached
