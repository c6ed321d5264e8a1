# SPDX-License-Identifier: Apache-2.0
"""Every kind of bad line in one file, good lines between them: a clear error for each bad one, and
the good ones answered as if they were alone."""

import json

import pytest

from harness import wait_for
from test_demo import MODEL, answer, line

GOOD_TEXT = "16"


def body(**fields):
    return line("x")["body"] | fields


def without(key, custom_id):
    broken = line(custom_id)
    del broken[key]
    return broken


# What is wrong -> (the line, text that its error must contain)
REJECTED_AT_ONCE = {
    "bad JSON": ('{"custom_id": "bad-json", "method": ', "JSON"),
    "null": ("null", "object"),
    "array": ("[1]", "object"),
    "string": ('"x"', "object"),
    "number": ("17", "object"),
    "no custom_id": (without("custom_id", ""), "custom_id"),
    "custom_id is a number": (line("x") | {"custom_id": 7}, "custom_id"),
    "duplicate custom_id": (line("good-0"), "custom_id"),
    "no url": (without("url", "no-url"), "url"),
    "unknown url": (line("unknown-url") | {"url": "/v1/embeddings"}, "/v1/embeddings"),
    "method": (line("method") | {"method": "GET"}, "method"),
    "no body": (without("body", "no-body"), "body"),
    "body is a string": (line("body-string") | {"body": "x"}, "body"),
    "stream": (line("stream", stream=True), "stream"),
    "oversized": (line("oversized", "x" * (17 << 20)), "16"),
    "not UTF-8": ('{"custom_id": "utf8", "method": "\udcff"}', "UTF-8"),
    "deep nesting": ('{"custom_id": "deep", "x": ' + "[" * 100000 + "]" * 100000 + "}", ""),
}
REJECTED_BY_THE_WORKER = {
    "max-tokens-0": (line("max-tokens-0", max_tokens=0), "max_tokens"),
    "max-tokens-negative": (line("max-tokens-negative", max_tokens=-1), "max_tokens"),
    "max-tokens-fraction": (line("max-tokens-fraction", max_tokens=1.5), "max_tokens"),
    "n-0": (line("n-0", n=0), "n"),
    "temperature": (line("temperature", temperature=-1), "temperature"),
    "top-p": (line("top-p", top_p=2), "top_p"),
    "prompt-too-long": (line("prompt-too-long", "one two three " * 2000), "context"),
    "unknown-model": (line("unknown-model", model="no-such-model"), "no-such-model"),
    "no-messages": (line("no-messages", messages=[]), "messages"),
    "unknown-role": (line("unknown-role", messages=[{"role": "nobody", "content": "x"}]), "role"),
    "empty-prompt": ({"custom_id": "empty-prompt", "method": "POST", "url": "/v1/completions",
                      "body": {"model": MODEL, "prompt": "", "max_tokens": 4}}, "prompt"),
}


@pytest.fixture(scope="module")
def outcome(system):
    """The batch's submit process, output lines and error lines."""
    # An unknown model is one that no worker has brought within model_wait.
    system.start(worker_args=("--numerics", "f32"), scheduler_args=("--model-wait", "5s"))
    lines = [line("good-0")]
    for n, (text, _) in enumerate([*REJECTED_AT_ONCE.values(), *REJECTED_BY_THE_WORKER.values()]):
        lines += [text, line(f"good-{n + 1}")]
    path = system.dir / "bad.jsonl"
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as out:
        for text in lines:
            out.write((text if isinstance(text, str) else json.dumps(text)) + "\n")
    submitted = system.pelton("submit", path, "--batch", "bad", "-e", system.dir / "lines.jsonl",
                              "--wait")
    outputs, errors = system.collect("bad")
    rejected = [json.loads(text) for text in (system.dir / "lines.jsonl").read_text().splitlines()]
    return submitted, lines, outputs, rejected, errors


def test_good_lines_are_answered(outcome):
    _, lines, outputs, _, _ = outcome
    expected = sorted(f"good-{n}" for n in range(len(lines) // 2 + 1))
    assert sorted(o["custom_id"] for o in outputs) == expected
    assert {answer(o)[0] for o in outputs} == {GOOD_TEXT}


def test_the_job_says_that_lines_were_rejected(outcome):
    submitted, *_ = outcome
    assert submitted.returncode == 65, submitted.stderr


@pytest.mark.parametrize("what", REJECTED_AT_ONCE)
def test_line_error(outcome, what):
    _, lines, _, rejected, _ = outcome
    text, expected = REJECTED_AT_ONCE[what]
    number = lines.index(text, 1) + 1
    found = [e for e in rejected if f"line {number}:" in e["error"]["message"]
             or e["error"].get("line") == number]
    assert len(found) == 1, rejected
    assert expected in found[0]["error"]["message"]
    if what == "duplicate custom_id":
        assert "line 1" in found[0]["error"]["message"], "both lines are named"


@pytest.mark.parametrize("custom_id", REJECTED_BY_THE_WORKER)
def test_request_error(outcome, custom_id):
    _, _, _, rejected, errors = outcome
    _, expected = REJECTED_BY_THE_WORKER[custom_id]
    found = [e for e in rejected + errors if e["custom_id"] == custom_id]
    assert len({json.dumps(e["error"]) for e in found}) == 1, found
    assert expected in found[0]["error"]["message"]


def test_nothing_else_failed(outcome):
    _, _, _, rejected, errors = outcome
    ids = {e["custom_id"] for e in errors if e["custom_id"]}
    assert set(REJECTED_BY_THE_WORKER) <= ids | {e["custom_id"] for e in rejected}
    assert not any(i.startswith("good-") for i in ids - {"good-0"})


def test_nobody_pays_for_rejected_requests(system, outcome):
    failed = "SELECT count(*) FROM usage WHERE status = 'failed'"
    wait_for("failures are booked", lambda: system.sql(failed)[0][0] > 0)
    assert system.sql(failed + " AND output_tokens > 0") == [(0,)]
