# SPDX-License-Identifier: Apache-2.0
"""`pelton submit --retry`: what a job has no answer for runs again, corrected or not, as a job of
its own; over both, every custom_id is answered once, and paid once for each run."""

import collections
import json
import shlex

import pytest

import records
from harness import wait_for
from test_demo import line, long_line, of_batch

USAGE, DATA, NO_INPUT, TEMPORARY = 64, 65, 66, 75
GOOD = [f"good-{n}" for n in range(6)]
COUNT = 1500  # of the job that is cancelled


@pytest.fixture(scope="module")
def running(system):
    # An unknown model is one that no worker has brought within model_wait.
    return system.start(worker_args=("--numerics", "f32"), scheduler_args=("--model-wait", "5s"))


def write(system, name, lines):
    path = system.dir / name
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def retry(system, path, batch, *args, **how):
    return system.pelton("submit", path, "--retry", batch, *args, **how)


def wrong_model(custom_id):
    return line(custom_id, model="no-such-model")


def outcomes(system, *batches):
    """custom_id -> statuses of its results in all of these jobs, sorted."""
    found = collections.defaultdict(list)
    for result in system.read("results"):
        if result["batch_id"] in batches:
            found[result["custom_id"]].append(result["status"])
    return {custom_id: sorted(statuses) for custom_id, statuses in found.items()}


def assert_answered_once(system, custom_ids, *batches):
    found = outcomes(system, *batches)
    assert set(found) == set(custom_ids)
    assert {i: s.count("COMPLETED") for i, s in found.items()} == {i: 1 for i in custom_ids}


def fence(system, name):
    """What was sent before has been looked at by the scheduler."""
    assert system.submit([line(name)], name, "--wait").returncode == 0


def listed(system):
    return [json.loads(each) for each in system.pelton("status", "--json").stdout.splitlines()]


def jobs(system):
    return [job["batch"] for job in listed(system)]


@pytest.fixture(scope="module")
def night(running):
    """A job of good lines and four bad ones, and the corrected file."""
    bad = [line("too-long", "one two three " * 2000), wrong_model("model"),
           line("url") | {"url": "/v1/embeddings"}, {"method": "POST"}]
    lines = [line(i) for i in GOOD] + bad
    path = write(running, "night.jsonl", lines)
    submitted = running.pelton("submit", path, "--batch", "night", "--wait")
    assert submitted.returncode == DATA
    path.write_text("".join(json.dumps(each) + "\n" for each in
                            [line(i) for i in GOOD + ["too-long", "model", "url", "nameless"]]))
    return path, submitted


def test_the_next_command_is_said(running, night):
    path, submitted = night
    command = f"pelton: what has no answer can run again: pelton submit {path} --retry night"
    assert submitted.stderr.splitlines()[-1] == command
    collected = running.pelton("collect", "night", "-o", running.dir / "night.out.jsonl")
    assert collected.returncode == DATA
    assert collected.stderr.splitlines()[-1] == command.replace(str(path), "night.jsonl")


def test_corrected_lines_are_answered(running, night):
    path, _ = night
    result = retry(running, path, "night", "--wait")
    assert result.returncode == 0, result.stderr
    assert result.stdout == \
        "batch night.retry: 4 requests sent, 0 lines rejected, 6 left out that are answered\n"
    assert "can run again" not in result.stderr
    assert_answered_once(running, GOOD + ["too-long", "model", "url", "nameless"],
                         "night", "night.retry")
    assert len(of_batch(running.read("results"), "night.retry")) == 4
    assert {job["batch"]: job.get("retry_of") for job in listed(running)} == \
        {"night": None, "night.retry": "night"}
    outputs, errors = running.collect("night.retry")
    assert len(outputs) == 4 and errors == []


def test_the_same_retry_again_adds_nothing(running, night):
    path, _ = night
    result = retry(running, path, "night", "--wait", "--json")
    assert result.returncode == 0, result.stderr
    event = next(e for e in map(json.loads, result.stdout.splitlines())
                 if e["event"] == "submitted")
    assert event == {"event": "submitted", "batch": "night.retry", "retry_of": "night", "total": 4,
                     "rejected": 0, "left_out": 6, "not_found": 0}
    fence(running, "night-fence")
    assert_answered_once(running, GOOD + ["too-long", "model", "url", "nameless"],
                         "night", "night.retry")
    # 8 requests of the first job, 4 of the second; failed ones are booked, and cost nothing.
    query = """SELECT batch_id, status::text, count(*), count(DISTINCT request_id),
        sum(output_tokens) > 0 FROM usage WHERE batch_id IN ('night', 'night.retry')
        GROUP BY 1, 2 ORDER BY 1, 2"""
    booked = [("night", "completed", 6, 6, True), ("night", "failed", 2, 2, False),
              ("night.retry", "completed", 4, 4, True)]
    wait_for("all is booked", lambda: sum(r[2] for r in running.sql(query)) >= 12)
    assert running.sql(query) == booked


def test_nothing_to_retry(running, night):
    path, _ = night
    result = retry(running, path, "night.retry", "--wait")
    assert result.returncode == 0 and "nothing to retry, all 10 requests" in result.stdout
    assert "night.retry2" not in jobs(running)
    result = retry(running, path, "night.retry", "--json")
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "event": "nothing_to_retry", "batch": "night.retry", "total": 0, "rejected": 0,
        "left_out": 10, "not_found": 0}
    result = retry(running, "/dev/null", "night", "--batch", "none")
    assert result.returncode == 0 and "nothing to retry, all 0 requests" in result.stdout
    # A line that is no request is still said to be none.
    broken = write(running, "broken.jsonl", [line(GOOD[0]), {"custom_id": "x"}])
    result = retry(running, broken, "night")
    assert result.returncode == DATA and "broken.jsonl:2: " in result.stderr
    assert "nothing to retry" in result.stdout
    # Two without an answer in night alone are not in this file; nobody is to miss that.
    assert "2 requests without an answer have no line in the file" in result.stderr


def test_the_name_is_taken(running, night):
    path, _ = night
    other = write(running, "other.jsonl", [line("too-long"), line("more")])
    result = retry(running, other, "night")
    assert result.returncode == USAGE
    assert "night.retry was begun from another file (night.jsonl): --retry that" in result.stderr
    # The same file, but another purpose.
    result = running.pelton("submit", path, "--batch", "night.retry")
    assert result.returncode == USAGE and "night.retry is a retry of night" in result.stderr
    running.submit([line("same")], "same", "--wait")
    result = retry(running, running.dir / "same.jsonl", "night", "--batch", "same")
    assert result.returncode == USAGE and "batch same is not a retry" in result.stderr
    assert len(of_batch(running.read("results"), "night.retry")) == 4


def test_retry_of_a_retry(running):
    """What the first job answered stays answered, though the retry never had it."""
    ids = ["a", "b", "c"]
    path = write(running, "deep.jsonl", [line("a"), wrong_model("b"), wrong_model("c")])
    result = running.pelton("submit", path, "--batch", "deep", "--tenant", "acme",
                            "--class", "interactive", "--completion-window", "1d",
                            "--no-stream", "--wait")
    assert result.returncode == DATA
    assert result.stderr.endswith(" --retry deep --tenant acme --class interactive "
                                  "--completion-window 24h --no-stream\n")
    collected = running.pelton("collect", "deep", "-o", running.dir / "deep.out.jsonl")
    assert collected.stderr.endswith("--class interactive --completion-window 24h\n")
    path = write(running, "deep.jsonl", [line("a"), line("b"), wrong_model("c")])
    result = retry(running, path, "deep", "--tenant", "acme", "--wait")
    assert result.returncode == DATA
    # What is said is what can be typed.
    said = result.stderr.splitlines()[-1].partition("again: pelton submit ")[2]
    assert said == f"{path} --retry deep.retry --tenant acme"
    write(running, "deep.jsonl", map(line, ids))
    result = running.pelton("submit", *shlex.split(said), "--wait")
    assert result.returncode == 0, result.stderr
    assert "batch deep.retry2: 1 requests sent" in result.stdout
    assert_answered_once(running, ids, "deep", "deep.retry", "deep.retry2")
    assert {i: len(s) for i, s in
            outcomes(running, "deep", "deep.retry", "deep.retry2").items()} == \
        {"a": 1, "b": 2, "c": 3}
    result = retry(running, path, "deep.retry2", "--tenant", "acme")
    assert result.returncode == 0 and "nothing to retry" in result.stdout


def test_cancelled_and_expired(running):
    # So many that no machine is near their end when the first results were seen here.
    slow = write(running, "slow.jsonl", [long_line(f"c{n}") for n in range(COUNT)])
    assert running.pelton("submit", slow, "--batch", "slow").returncode == 0
    late = running.submit([line(f"e{n}") for n in range(20)], "late", "--completion-window", "1s")
    assert late.returncode == 0
    wait_for("it began", lambda: of_batch(running.read("results"), "slow"))
    result = retry(running, slow, "slow")
    assert result.returncode == TEMPORARY
    assert f"of {COUNT} requests have no outcome yet; wait for them" in result.stderr
    assert "slow.retry" not in jobs(running)
    running.collect("late")
    assert running.pelton("cancel", "slow").returncode == 0
    _, errors = running.collect("slow")
    assert len(errors) > 100
    # Short ones this time: lines are known by custom_id, whatever their body.
    quick = write(running, "quick.jsonl", [line(f"c{n}") for n in range(COUNT)])
    result = retry(running, quick, "slow", "--batch", "quick", "--wait")
    assert result.returncode == 0, result.stderr
    assert f"batch quick: {len(errors)} requests sent" in result.stdout
    assert_answered_once(running, [f"c{n}" for n in range(COUNT)], "slow", "quick")
    result = retry(running, running.dir / "late.jsonl", "late", "--wait")
    assert result.returncode == 0, result.stderr
    found = outcomes(running, "late", "late.retry")
    assert "EXPIRED" in sum(found.values(), [])
    assert_answered_once(running, [f"e{n}" for n in range(20)], "late", "late.retry")


def test_standard_input(running):
    """No name is needed; lines that the job never had are sent, those it misses are counted."""
    running.submit([line("p1"), wrong_model("p2"), wrong_model("p3")], "piped", "--wait")
    text = "\n".join(json.dumps(line(i)) for i in ("p1", "p2", "new"))
    result = running.pelton("submit", "-", "--retry", "piped", "--wait", stdin=text)
    assert result.returncode == 0, result.stderr
    assert "batch piped.retry: 2 requests sent, 0 lines rejected, 1 left out" in result.stdout
    assert "1 requests without an answer have no line in the file" in result.stderr
    found = outcomes(running, "piped", "piped.retry")
    assert found == {"p1": ["COMPLETED"], "p2": ["COMPLETED", "FAILED"], "p3": ["FAILED"],
                     "new": ["COMPLETED"]}


def test_refusals(running):
    path = write(running, "one.jsonl", [line("one")])
    assert running.pelton("submit", path, "--batch", "one", "--wait").returncode == 0
    for args, code, sentence in (
            (("--retry", "nobody"), NO_INPUT, 'no batch "nobody" of tenant default in '),
            (("--retry", "one", "--tenant", "acme"), NO_INPUT, "of tenant acme in "),
            (("--retry", "on"), NO_INPUT, 'no batch "on"'),
            (("--retry", "one", "--batch", "one"), USAGE, "a retry is a job of its own"),
            (("--retry", ""), USAGE, "--retry is empty"),
            (("--retry", "x" * 255), USAGE, "give --batch ID")):
        result = running.pelton("submit", path, *args)
        assert result.returncode == code and sentence in result.stderr, (args, result)
        assert result.stderr.startswith("pelton: ") and result.stdout == ""
    # A job whose submission was interrupted.
    open_batch = records.encode("Batch", {"batch_id": "open", "tenant": "default",
                                          "file_hash": bytes(32), "total": 5})
    records.produce(running.services.brokers, running.prefix + "control",
                    [("batch/open", open_batch)])
    result = retry(running, path, "open")
    assert result.returncode == TEMPORARY and "not wholly submitted" in result.stderr
    assert result.stderr.endswith("submit its file again, then retry it; or, if that file is gone, "
                                  "submit the new one under another --batch\n")
    assert jobs(running).count("one") == 1 and "open.retry" not in jobs(running)
