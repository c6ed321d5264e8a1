# SPDX-License-Identifier: Apache-2.0
"""A job of 100,000 lines: submitted, followed and collected, in bounded memory."""

import json
import resource
import time

import pytest

from harness import wait_for
from test_demo import MODEL

COUNT = 100000


@pytest.fixture(scope="module")
def running(system):
    return system.start()


def test_a_hundred_thousand_lines(running):
    path = running.dir / "large.jsonl"
    with open(path, "w") as out:
        for n in range(COUNT):
            out.write(json.dumps({
                "custom_id": f"line-{n}", "method": "POST", "url": "/v1/completions",
                "body": {"model": MODEL, "prompt": f"{n % 10}", "max_tokens": 1,
                         "temperature": 0}}) + "\n")
    started = time.monotonic()
    result = running.pelton("submit", path, "--batch", "large", "--class", "interactive")
    assert result.returncode == 0, result.stderr
    submitted = time.monotonic()

    def completed():
        status = json.loads(running.pelton("status", "large", "--json").stdout)
        assert status["total"] == COUNT
        return status["completed"] + status["failed"]

    counts = [completed()]
    while counts[-1] < COUNT:
        assert time.monotonic() - submitted < 1500, counts
        time.sleep(5)
        counts.append(completed())
    assert counts == sorted(counts)
    finished = time.monotonic()

    out, errors = running.dir / "large.out.jsonl", running.dir / "large.err.jsonl"
    result = running.pelton("collect", "large", "-o", out, "-e", errors)
    assert result.returncode == 0, result.stderr
    ids = [json.loads(line)["custom_id"] for line in open(out)]
    assert len(ids) == COUNT and set(ids) == {f"line-{n}" for n in range(COUNT)}
    wait_for("all booked", lambda: running.booked() == COUNT, 120, 1)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"submitted in {submitted - started:.1f} s, answered in {finished - started:.1f} s "
          f"({COUNT / (finished - started):.0f}/s), collected in "
          f"{time.monotonic() - finished:.1f} s, largest child {peak:.0f} MB")
    assert peak < 400
