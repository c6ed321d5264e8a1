# SPDX-License-Identifier: Apache-2.0
"""Fixtures: services once; a System (topics, database, the four programs) for each test file, or a
Stack (topics, scheduler and worker) for each test."""

import subprocess

import psycopg
import pytest

import harness
from stack import Stack


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    item.failed = getattr(item, "failed", False) or outcome.get_result().failed


@pytest.fixture(scope="session")
def services():
    services = harness.Services()
    try:
        template(services)
        yield services
    finally:
        services.close()


def template(services):
    """A migrated database, copied for every System: a tenth of the time of a migration each."""
    with psycopg.connect(dbname="postgres", autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS pelton_e2e")
        connection.execute("CREATE DATABASE pelton_e2e")
    subprocess.run(["sqitch", "deploy", "--verify", "db:pg:pelton_e2e"],
                   cwd=harness.ROOT / "migrations", check=True, capture_output=True,
                   env=services.env | {"SQITCH_FULLNAME": "e2e", "SQITCH_EMAIL": "e2e@localhost"})


@pytest.fixture(scope="session")
def brokers(services):
    """The broker that ops/services runs; its topics are under a prefix of each test."""
    return services.brokers


@pytest.fixture
def stack(request, brokers):
    stack = Stack(brokers)
    yield stack
    stack.close(getattr(request.node, "failed", False))


@pytest.fixture(scope="module")
def system(services, request):
    """A System named after the test file. A failure shows how its programs' logs end."""
    system = harness.System(services, request.module.__name__.removeprefix("test_"))
    failed_before = request.session.testsfailed
    try:
        yield system
    finally:
        if request.session.testsfailed > failed_before:
            system.show_logs()
        system.close()
