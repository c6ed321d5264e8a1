# SPDX-License-Identifier: Apache-2.0
"""ops/stack: it starts what does not run yet, says what runs, brings back with the same options
what was killed, and stops everything."""

import re
import subprocess
from pathlib import Path

import pytest

from harness import BUILD, ROOT, SAMPLES, wait_for

NAMES = ["worker-0", "worker-1", "scheduler", "ledger"]


@pytest.fixture
def run(services):
    """Runs a script of ops/ on the services; its exit code and what it says."""
    env = services.env | {"PELTON_BUILD": str(BUILD)}

    def run(script, *args):
        # Not by a pipe: what it starts would keep one open.
        said = Path(env["PELTON_VAR"]) / "e2e-stack.log"
        with open(said, "wb") as output:
            done = subprocess.run([ROOT / "ops" / script, *args], env=env, stdout=output,
                                  stderr=output, stdin=subprocess.DEVNULL, timeout=300)
        return done.returncode, said.read_text()

    yield run
    run("stack", "down")


def status(run):
    """Exit code, and of each program its pid where it is ready, or what it is instead."""
    code, text = run("stack", "status")
    found = dict(re.findall(r"^(\S+) +(.*)$", text, re.M))
    ready = {name: re.fullmatch(r"pid (\d+)  http://127\.0\.0\.1:\d+/metrics  ready", said)
             for name, said in found.items()}
    return code, {name: int(ready[name][1]) if ready[name] else found[name] for name in found}


def command_line(pid):
    """Its words without those of the metrics port."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    port = words.index("--metrics-port")
    return words[:port] + words[port + 2:]


def ended(pid):
    """Gone, or a zombie that nobody waits for."""
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def test_a_stack(run):
    up = ("stack", "up", "--workers", "2", "--scheduler", "--policy=static", "--numerics=f32",
          "--threads=1")
    code, text = run(*up)
    assert code == 0 and text == "running: scheduler ledger worker-0 worker-1\n", text
    code, first = status(run)
    assert code == 0 and list(first) == NAMES, first
    assert all(type(pid) is int for pid in first.values()), first
    assert "--policy=static" in command_line(first["scheduler"])
    for slot in (0, 1):
        assert {f"--slot={slot}", "--numerics=f32", "--threads=1",
                f"--model={ROOT}/ops/demo/model"} <= set(command_line(first[f"worker-{slot}"]))

    assert run(*up)[0] == 0
    assert status(run) == (0, first), "what runs is left alone"

    code, text = run("pelton", "submit", SAMPLES / "demo.jsonl", "--batch", "stack", "--wait")
    assert code == 0, text

    words = command_line(first["worker-1"])
    assert run("stack", "kill", "worker-1") == (0, "")
    wait_for("worker-1 is gone", lambda: ended(first["worker-1"]))
    assert status(run) == (1, first | {"worker-1": "down"})
    code, text = run("stack", "kill", "worker-1")
    assert code == 69 and "worker-1 does not run" in text
    code, text = run("stack", "start", "worker-1")
    assert code == 0, text
    code, second = status(run)
    assert code == 0 and second["worker-1"] != first["worker-1"]
    assert command_line(second["worker-1"]) == words

    assert run("stack", "down") == (0, "")
    assert all(ended(pid) for pid in second.values())
    assert status(run) == (1, dict.fromkeys(NAMES, "down"))


def test_wrong_usage(run):
    for args, code, said in (((), 64, "ops/stack up"), (("up", "--workers", "9"), 64, "1 to 8"),
                             (("start", "worker-7"), 64, "never started here"),
                             (("kill", "nobody"), 64, "no program is called nobody")):
        got, text = run("stack", *args)
        assert got == code and said in text, text
