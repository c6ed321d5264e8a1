# SPDX-License-Identifier: Apache-2.0
"""ops/keda without a cluster: the manifest against the published rules of its kinds, against what
the programs say of their options, and its query against what schedulers really export."""

import math
import re
import shlex
import subprocess

import pytest
import yaml

from harness import BUILD, ROOT, wait_for

MANIFEST = ROOT / "ops/keda/worker-scaledobject.yaml"

# Of KEDA's ScaledObject (keda.sh/v1alpha1): field, type, whether it must be there.
SPEC = {
    "scaleTargetRef": (dict, True),
    "triggers": (list, True),
    "pollingInterval": (int, False),
    "cooldownPeriod": (int, False),
    "initialCooldownPeriod": (int, False),
    "idleReplicaCount": (int, False),
    "minReplicaCount": (int, False),
    "maxReplicaCount": (int, False),
    "fallback": (dict, False),
    "advanced": (dict, False),
}
TARGET = {"name": (str, True), "kind": (str, False), "apiVersion": (str, False),
          "envSourceContainerName": (str, False)}
TRIGGER = {"type": (str, True), "metadata": (dict, True), "name": (str, False),
           "metricType": (str, False), "useCachedMetrics": (bool, False),
           "authenticationRef": (dict, False)}
BEHAVIOUR = {"stabilizationWindowSeconds": (int, False), "selectPolicy": (str, False),
             "tolerance": (str, False), "policies": (list, False)}
# Of its Prometheus scaler; all values are strings.
PROMETHEUS = {"serverAddress", "query", "threshold"}
PROMETHEUS_MAY = PROMETHEUS | {"activationThreshold", "namespace", "customHeaders", "authModes",
                               "ignoreNullValues", "queryParameters", "unsafeSsl", "timeout"}


def follows(fields, value):
    """Every field known and of its type, the needed ones there."""
    assert set(value) <= set(fields), f"unknown: {set(value) - set(fields)}"
    for name, (kind, needed) in fields.items():
        assert name in value or not needed, f"{name} is missing"
        assert name not in value or type(value[name]) is kind, f"{name} is no {kind.__name__}"


@pytest.fixture(scope="module")
def documents():
    found = {d["kind"]: d for d in yaml.safe_load_all(MANIFEST.read_text())}
    assert set(found) == {"ScaledObject", "StatefulSet"}
    return found


@pytest.fixture(scope="module")
def spec(documents):
    return documents["ScaledObject"]["spec"]


@pytest.fixture(scope="module")
def trigger(spec):
    assert len(spec["triggers"]) == 1
    return spec["triggers"][0]


def option(program, name):
    """An option of a program's --help: its text with the default; None: there is none."""
    text = subprocess.run([BUILD / program, "--help"], capture_output=True, text=True,
                          check=True).stdout
    found = re.search(rf"^ +(?:-\w, )?--{name}\b.*\n((?: {{8,}}.*\n)+)", text, re.M)
    return found and found.group(1)


def seconds(text):
    value, unit = re.search(r"Default: (\d+)(ms|s|min|h)\.", text).groups()
    return int(value) * {"ms": 0.001, "s": 1, "min": 60, "h": 3600}[unit]


def test_scaled_object(documents, spec, trigger):
    assert documents["ScaledObject"]["apiVersion"] == "keda.sh/v1alpha1"
    follows(SPEC, spec)
    follows(TARGET, spec["scaleTargetRef"])
    follows(TRIGGER, trigger)
    assert set(spec["advanced"]) <= {"restoreToOriginalReplicaCount", "scalingModifiers",
                                     "horizontalPodAutoscalerConfig"}
    for rules in spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"].values():
        follows(BEHAVIOUR, rules)
    assert 0 <= spec["minReplicaCount"] <= spec["maxReplicaCount"]
    assert trigger["type"] == "prometheus"
    assert trigger["metricType"] in ("AverageValue", "Value")
    assert PROMETHEUS <= set(trigger["metadata"]) <= PROMETHEUS_MAY
    assert all(type(v) is str for v in trigger["metadata"].values())


def test_stateful_set(documents, spec):
    workers = documents["StatefulSet"]
    assert workers["apiVersion"] == "apps/v1"
    assert spec["scaleTargetRef"]["kind"] == workers["kind"]
    assert spec["scaleTargetRef"]["name"] == workers["metadata"]["name"]
    labels = workers["spec"]["template"]["metadata"]["labels"]
    assert workers["spec"]["selector"]["matchLabels"] == labels
    assert "replicas" not in workers["spec"], "an update would set KEDA's number back"
    pod = workers["spec"]["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    assert pod["terminationGracePeriodSeconds"] > seconds(option("pelton-worker", "drain-timeout"))


def test_the_command_is_the_workers(documents):
    container = documents["StatefulSet"]["spec"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["/bin/sh", "-c"]
    words = shlex.split(container["args"][0])
    assert words[:2] == ["exec", "pelton-worker"], "exec: SIGTERM must reach the worker"
    names = [word[2:] for word in words if word.startswith("--")]
    assert {"brokers", "slot", "model"} <= set(names)
    for name in names:
        assert option("pelton-worker", name), f"pelton-worker has no --{name}"
    slot = words[words.index("--slot") + 1]
    said = subprocess.run(["sh", "-c", f'HOSTNAME=pelton-worker-11; echo "{slot}"'],
                          capture_output=True, text=True, check=True).stdout
    assert said == "11\n"


def test_limits_are_the_planners(spec, trigger):
    """One pod for each wanted worker, the planner's own least number, looked at as often as it
    decides, and no second waiting time before pods go."""
    assert trigger["metricType"] == "AverageValue" and float(trigger["metadata"]["threshold"]) == 1
    least = re.search(r"Default: (\d+)\.", option("pelton-scheduler", "workers-min")).group(1)
    assert spec["minReplicaCount"] == int(least)
    assert spec["pollingInterval"] == seconds(option("pelton-scheduler", "interval"))
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 0
    assert trigger["metadata"]["ignoreNullValues"] == "false", "no leader is no wish for 0"


def test_the_query_on_what_is_exported(system, trigger):
    """A leader and a stand-by: every series of the query is there, and it gives the leader's."""
    system.start("scheduler-1", "scheduler-2")
    query = re.fullmatch(r'max\((\w+)\{(\w+="\w+")\} >= (\d+)\)', trigger["metadata"]["query"])
    assert query, "this test knows max(NAME{LABEL} >= NUMBER) alone"
    name, label, least = query.groups()

    def values():
        series = [program.metrics() for program in system.programs.values()]
        return [metrics[f"{name}{{{label}}}"] for metrics in series]

    wait_for("the leader's first decision", lambda: any(not math.isnan(v) for v in values()))
    # NaN >= 0 is false: the stand-by has no vote.
    answers = [value for value in values() if value >= float(least)]
    assert answers == [1]
    for program in system.programs.values():
        program.signal(15)
        program.process.wait(60)
