# SPDX-License-Identifier: Apache-2.0
"""How programs end: the same fault has the same exit code and the same sentence in all of them, and
a signal is obeyed within a second also where Kafka does not answer."""

import contextlib
import shutil
import socket
import subprocess
import time

import pytest

import harness
import proxy
from harness import wait_for

# A second is promised, and a busy machine may need some to run what ends.
PROMPT_S = 3
USAGE, DATA, NO_INPUT, UNAVAILABLE, TEMPORARY, CONFIG = 64, 65, 66, 69, 75, 78
ONE_LINE = ('{"custom_id":"a","method":"POST","url":"/v1/completions",'
            '"body":{"model":"m","prompt":"hi"}}\n')
# What runs until it is told to stop, and what asks one question.
SERVICES = {"scheduler": ["pelton-scheduler"],
            "worker": ["pelton-worker", "--slot", "0", "--model", harness.MODEL],
            "ledger": ["pelton-ledger", "--database", "host=127.0.0.1 port=1"]}
COMMANDS = {name: ["pelton", name] for name in ("status", "tail")} | {
    "submit": ["pelton", "submit", "FILE"], "collect": ["pelton", "collect", "x"],
    "cancel": ["pelton", "cancel", "x"], "topics": ["pelton", "topics", "list"]}
ALL = SERVICES | COMMANDS


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "one.jsonl"
    path.write_text(ONE_LINE)
    return path


def start(program, *args, file=None, output=subprocess.PIPE):
    argv = [str(file if a == "FILE" else a) for a in [*program, *args]]
    return subprocess.Popen([str(harness.BUILD / argv[0]), *argv[1:]], stdin=subprocess.DEVNULL,
                            stdout=output, stderr=subprocess.STDOUT, text=True)


def end(process, timeout_s=120):
    """Exit code, last line and all of it."""
    try:
        text, _ = process.communicate(timeout=timeout_s)
    finally:
        process.kill()
    return process.returncode, text.strip().splitlines()[-1], text


def ends(name, *args, file=None):
    return end(start(ALL[name], *args, file=file))[:2]


def stop(process):
    """SIGTERM, which is obeyed at once."""
    begin = time.monotonic()
    process.terminate()
    process.wait(60)
    assert time.monotonic() - begin < PROMPT_S, process.args


@contextlib.contextmanager
def port(listens):
    """A port that nobody listens at, or one whose listener never says a word."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        if listens:
            s.listen(50)
        yield f"127.0.0.1:{s.getsockname()[1]}"


def said(name, sentence):
    return f"{ALL[name][0]}: {sentence}"


@pytest.mark.parametrize("name", [*ALL, "sim"])
def test_command_line(name):
    program = ALL.get(name, ["pelton-sim"])
    code, line, _ = end(start(program, "--brokerz", "x"))
    assert code == USAGE and line.startswith(f"{program[0]}: ") and "brokerz" in line, line


@pytest.mark.parametrize("name", ALL)
def test_names(name, tmp_path, file):
    """What no broker could be asked for."""
    for option, value in (("brokers", "host:xx"), ("topic-prefix", "bad prefix/")):
        code, line = ends(name, f"--{option}", value, file=file)
        key = option.replace("-", "_")
        assert code == USAGE and line.startswith(
            said(name, f'command line: {key} is "{value}": expected ')), line
    broken = tmp_path / "broken.yaml"
    broken.write_text("brokers: host:0\n")
    code, line = ends(name, "--config", broken, file=file)
    assert code == CONFIG and line.startswith(said(name, f"{broken}:1: brokers is ")), line


@pytest.mark.parametrize("name", ALL)
def test_config_file(name, tmp_path):
    missing = tmp_path / "none.yaml"
    code, line = ends(name, "--config", missing)
    assert code == CONFIG and line == said(name, f"configuration file {missing}: "
                                               "No such file or directory"), line
    broken = tmp_path / "broken.yaml"
    broken.write_text("brokerz: x\n")
    code, line = ends(name, "--config", broken)
    assert code == CONFIG and line.startswith(said(name, f"{broken}:1")), line


@pytest.mark.parametrize("name", ALL)
def test_kafka_setting(name, file):
    code, line = ends(name, "-X", "no.such=1", file=file)
    assert code == CONFIG, line
    assert line.startswith(said(name, "Kafka setting no.such=1: ")), line
    code, line = ends(name, "--brokers", " ,", file=file)
    assert code in (CONFIG, USAGE) and line.endswith(" no broker") or line.endswith(
        "no broker is named"), line


@pytest.mark.parametrize("name, setting, must", [
    ("scheduler", "enable.idempotence=false", "true"),  # of the client that a takeover opens
    ("scheduler", "partition.assignment.strategy=range", "cooperative-sticky"),
    ("worker", "acks=1", "all"),
    ("ledger", "isolation.level=read_uncommitted", "read_committed")])
def test_kafka_setting_forbidden(name, setting, must):
    """At the start, whichever client it is for, and before any broker has answered."""
    with port(False) as brokers:
        code, line = ends(name, "--brokers", brokers, "-X", setting)
    assert code == CONFIG, line
    assert line.startswith(said(name, f"Kafka setting {setting}: it must be {must} here (")), line


def test_session_timeout(system):
    """Of the scheduler's group: the broker has a least one."""
    code, line = ends("scheduler", "--session-timeout", "1s")
    assert code == USAGE and "session_timeout" in line, line
    # Another broker's least may be longer than ours; what is said then, a shorter one says, too.
    code, line = ends("scheduler", "--brokers", system.services.brokers, "--topic-prefix",
                      system.prefix, "-X", "session.timeout.ms=1000", "-X",
                      "heartbeat.interval.ms=200")
    assert code == CONFIG, line
    assert line.startswith(said("scheduler", "the group of ")) and "session_timeout" in line, line


@pytest.mark.parametrize("name", SERVICES)
def test_metrics_port(name):
    with port(True) as taken:
        code, line = ends(name, "--metrics-port", taken.split(":")[1])
    assert code == UNAVAILABLE, line
    assert line == said(name, f"metrics server on {taken}: Address already in use")
    code, line = ends(name, "--metrics-address", "nowhere")
    assert code == CONFIG, line
    assert line == said(name, "metrics address nowhere: expected a numeric IPv4 address")


@pytest.mark.parametrize("name", [n for n in ALL if n != "topics"])
def test_topic_missing(name, file, brokers):
    code, line = ends(name, "--brokers", brokers, "--topic-prefix", "nobody-made-", file=file)
    assert code == UNAVAILABLE, line
    assert line.startswith(said(name, "topic nobody-made-")), line
    assert line.endswith(" does not exist: create it with `pelton topics create`"), line


def test_model(tmp_path):
    def worker(model):
        return end(start(["pelton-worker", "--slot", "0", "--model", model]))[:2]

    code, line = worker(tmp_path / "none")
    assert code == NO_INPUT, line
    assert line == (f"pelton-worker: no model in {tmp_path}/none: config.json: "
                    "No such file or directory")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        model = tmp_path / name
        shutil.copytree(harness.MODEL, model)
        (model / name).write_bytes((model / name).read_bytes()[:100])
        code, line = worker(model)
        assert code == DATA and f"{model}/{name}" in line, line
        (model / name).unlink()
        code, line = worker(model)
        assert code == (NO_INPUT if name == "config.json" else DATA) and name in line, line


@pytest.mark.parametrize("listens", (False, True), ids=("closed", "silent"))
def test_broker_away(listens, file, tmp_path):
    """Services all at once, since each has to wait first; then the commands, that give up."""
    with port(listens) as brokers:
        logs = {name: tmp_path / name for name in SERVICES}
        services = {}
        for name, program in SERVICES.items():
            with open(logs[name], "wb") as output:
                services[name] = start(program, "--brokers", brokers, output=output)
        patient = start(COMMANDS["status"], "--brokers", brokers)
        for name, process in services.items():
            wait_for(f"{name} says that it waits", lambda: f"no answer from Kafka at {brokers} "
                     "within 10 s" in logs[name].read_text())
            assert process.poll() is None
        for name, process in services.items():
            stop(process)
            assert process.returncode == 0, logs[name].read_text()

        commands = {n: start(p, "--brokers", brokers, file=file) for n, p in COMMANDS.items()}
        time.sleep(3)  # they wait by now, and for 15 s
        for name, process in commands.items():
            assert process.poll() is None, name
            stop(process)
            code, line, _ = end(process)
            assert code == TEMPORARY, line
            assert line == said(name, "stopped before Kafka answered")
        code, line, _ = end(patient)
        assert code == UNAVAILABLE
        assert line == said("status", f"no answer from Kafka at {brokers} within 15 s")


def test_broker_gone(system):
    """A broker that was there and does not answer any more: nobody waits for it long."""
    names = ("scheduler", "worker-0", "ledger")
    for name in names:
        system.proxy(name)
    system.start()
    for each in system.proxies.values():
        each.fault(proxy.STALL)
    time.sleep(4)  # longer than a lease
    for name in names:
        begin = time.monotonic()
        assert system[name].terminate() == 0, system[name].tail()
        # A commit that is under way has 2 s; without a limit it would be 20.
        assert time.monotonic() - begin < 10, name
