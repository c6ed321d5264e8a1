# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests drive Pelton with: real services, the built programs as processes,
and clients that share no code with it (confluent-kafka, fastavro, psycopg).

Each System is a topic prefix and a database of its own on the same services, so tests do not meet.
Programs are started, killed and paused by the tests themselves: nothing restarts them meanwhile.
"""

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import psycopg

import proxy
import records

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PELTON_BUILD", ROOT / "build"))
MODEL = ROOT / "ops/demo/model"
SAMPLES = ROOT / "ops/demo/samples"
POSTGRES = "postgres"  # System.proxy()


def wait_for(what, condition, timeout_s=120, interval_s=0.1):
    """Polls until condition() is true and returns it. The time is no promise of anybody's: it is
    generous, since it costs nothing but where something is broken."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s for: {what}")
        time.sleep(interval_s)


def free_port():
    """Below the range from which the kernel takes the ports of connections (32768 to 60999): one of
    those could be a client's by the time a program listens at it."""
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port


def wait_streamed(brokers, topic, results):
    """Until the chunks of each request say what its result says. A chunk follows its Progress, so
    the last ones may come after the result."""
    wanted = {r["request_id"]: (r["ids"], r["text"]) for r in results}

    def said():
        streams = records.streams(c for c in records.read_topic(brokers, topic)
                                  if c["request_id"] in wanted)
        return all(streams.get(i) == wanted[i] for i in wanted)

    wait_for("every stream says what its result says", said, interval_s=0.5)


class Services:
    """Kafka and PostgreSQL of ops/services: those that ops/test has started, or its own, which they
    always are with several brokers."""

    def __init__(self, nodes=1):
        self.nodes = nodes
        self.own = nodes > 1 or "PELTON_BOOTSTRAP" not in os.environ
        self.env = dict(os.environ)
        if self.own:
            self.env["PELTON_VAR"] = str(ROOT / "var" / ("e2e" if nodes == 1 else f"e2e-{nodes}"))
            self.up()

    def run(self, *args):
        # Not captured: the broker inherits the descriptors and would keep a pipe open.
        log_path = Path(self.env["PELTON_VAR"]) / "e2e-services.log"
        log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(log_path, "ab") as log:
            subprocess.run([ROOT / "ops/services", *args], env=self.env, check=True,
                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def up(self):
        self.run("up", "--fast", "--nodes", str(self.nodes))
        text = subprocess.run(["bash", "-c", '. "$PELTON_VAR/env" && env -0'], env=self.env,
                              check=True, capture_output=True, text=True).stdout
        self.env = dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
        os.environ.update({k: v for k, v in self.env.items() if k.startswith("PG")})

    def close(self):
        if self.own and "PELTON_E2E_KEEP" not in os.environ:
            self.run("wipe")

    @property
    def brokers(self):
        return self.env["PELTON_BOOTSTRAP"]

    @property
    def logs(self):
        return Path(self.env["PELTON_VAR"]) / "e2e-logs"


class Program:
    """One process of a System, with its log; start() again after it has ended."""

    def __init__(self, name, argv, env, log):
        self.name, self.argv, self.env, self.log = name, argv, env, log
        self.port = free_port()
        self.process = None

    def start(self):
        assert self.process is None or self.process.poll() is not None
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.argv, "--metrics-port", str(self.port)], env=self.env, stdout=log,
                stderr=log, stdin=subprocess.DEVNULL)
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, and gone."""
        self.signal(signal.SIGKILL)
        self.process.wait(60)

    def terminate(self, timeout_s=60):
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def get(self, path):
        """Status and text of an HTTP GET at its metrics port; None while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, http.client.HTTPException):
            return None

    def ready(self):
        assert self.process.poll() is None, f"{self.name} ended: {self.tail()}"
        answer = self.get("/readyz")
        return answer is not None and answer[0] == 200

    def metrics(self):
        """{'name{labels}': value} of its /metrics, as soon as it answers."""
        def text():
            assert self.process.poll() is None, f"{self.name} ended: {self.tail()}"
            return self.get("/metrics")

        values = {}
        for line in wait_for(f"{self.name} answers", text)[1].splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        return values

    def metric(self, prefix):
        """Sum of all metrics whose name (labels included) starts so."""
        return sum(v for k, v in self.metrics().items() if k.startswith(prefix))

    def tail(self, lines=15):
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class System:
    """Topics, database and programs under one prefix."""

    def __init__(self, services, name, topics=True):
        self.services = services
        self.prefix = f"{name}-{uuid.uuid4().hex[:6]}."
        self.database = self.prefix[:-1].replace("-", "_")
        self.env = services.env
        self.dir = services.logs / self.prefix[:-1]
        self.dir.mkdir(parents=True)
        self.programs, self.proxies = {}, {}
        with psycopg.connect(dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {self.database} TEMPLATE pelton_e2e")
        if topics:
            result = self.pelton("topics", "create", "--slots", "4")
            assert result.returncode == 0, result.stderr

    # ---- programs ----

    def program(self, name, *args):
        """Starts scheduler, ledger, worker-0, ...; the same name again with the same arguments."""
        if name not in self.programs:
            kind, _, slot = name.partition("-")
            brokers = self.proxies[name].address if name in self.proxies else self.services.brokers
            argv = [BUILD / f"pelton-{kind}", "--config", ROOT / f"ops/config/{kind}.yaml",
                    "--brokers", brokers, "--topic-prefix", self.prefix]
            if kind == "worker":
                argv += ["--slot", slot, "--model", MODEL, "--model-name", "pelton-demo"]
            if kind == "ledger":
                port = f" port={self.proxies[POSTGRES].port}" if POSTGRES in self.proxies else ""
                argv += ["--database", f"dbname={self.database}{port}"]
            self.programs[name] = Program(name, [*argv, *args], self.env,
                                          self.dir / f"{name}.log")
        return self.programs[name].start()

    def proxy(self, name):
        """Between a program that is started later and the broker; POSTGRES: between the ledger and
        its database."""
        port = self.env["PGPORT"] if name == POSTGRES else self.services.brokers.split(":")[1]
        self.proxies[name] = proxy.Proxy(int(port), kafka=name != POSTGRES)
        return self.proxies[name]

    def start(self, *names, worker_args=(), scheduler_args=()):
        for name in names or ("scheduler", "worker-0", "ledger"):
            args = worker_args if name.startswith("worker") else \
                scheduler_args if name.startswith("scheduler") else ()
            self.program(name, *args)
        self.wait_ready()
        return self

    def wait_ready(self):
        for program in self.programs.values():
            if program.process.poll() is None:
                wait_for(f"{program.name} is ready", program.ready)

    def show_logs(self, lines=15):
        for program in self.programs.values():
            print(f"---- {program.log}\n{program.tail(lines)}")

    def __getitem__(self, name):
        return self.programs[name]

    def close(self):
        for each in self.proxies.values():
            each.heal()
        for program in self.programs.values():
            if program.process.poll() is None:
                program.signal(signal.SIGCONT)
                program.signal(signal.SIGTERM)
        for program in self.programs.values():
            try:
                program.process.wait(40)
            except subprocess.TimeoutExpired:
                program.kill()
        for each in self.proxies.values():
            each.close()
        with psycopg.connect(dbname="postgres", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {self.database} WITH (FORCE)")

    # ---- the command line ----

    def pelton(self, command, *args, stdin=None, timeout_s=600):
        # The options stand behind the subcommand, and behind its own subcommand.
        own = [a for a in args[:1] if command == "topics"]
        argv = [BUILD / "pelton", command, *own, "--brokers", self.services.brokers,
                "--topic-prefix", self.prefix, *args[len(own):]]
        return subprocess.run([str(a) for a in argv], env=self.env, input=stdin, text=True,
                              capture_output=True, timeout=timeout_s)

    def submit(self, lines, batch, *args):
        """Submits request lines (dicts, or text as it is); returns the finished process."""
        path = self.dir / f"{batch}.jsonl"
        with open(path, "w", encoding="utf-8") as out:
            for line in lines:
                out.write(line if isinstance(line, str) else json.dumps(line))
                out.write("\n")
        return self.pelton("submit", path, "--batch", batch, *args)

    def collect(self, batch, timeout_s=600):
        """Output and error lines of a finished batch, as lists of dicts."""
        out, errors = self.dir / f"{batch}.out.jsonl", self.dir / f"{batch}.err.jsonl"
        result = self.pelton("collect", batch, "-o", out, "-e", errors, "--wait",
                             timeout_s=timeout_s)
        assert result.returncode in (0, 65), result.stderr
        return [[json.loads(line) for line in path.read_text().splitlines()] if path.exists()
                else [] for path in (out, errors)]

    # ---- topics and tables ----

    def read(self, topic, **options):
        return records.read_topic(self.services.brokers, self.prefix + topic, **options)

    def count(self, topic):
        return records.count_topic(self.services.brokers, self.prefix + topic)

    @contextlib.contextmanager
    def connection(self):
        with psycopg.connect(dbname=self.database, autocommit=True,
                             options="-c search_path=pelton") as connection:
            yield connection

    def sql(self, query, *parameters):
        with self.connection() as connection:
            return connection.execute(query, parameters).fetchall()

    def booked(self):
        return self.sql("SELECT count(*) FROM usage")[0][0]
