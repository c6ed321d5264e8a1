# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from stack import Stack


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    item.failed = getattr(item, "failed", False) or outcome.get_result().failed


@pytest.fixture(scope="session")
def brokers():
    """The broker that ops/services runs; its topics are under a prefix of each test."""
    address = os.environ.get("PELTON_BOOTSTRAP")
    if not address:
        pytest.skip("PELTON_BOOTSTRAP is not set: ops/services up, then . var/env")
    return address


@pytest.fixture
def stack(request, brokers):
    stack = Stack(brokers)
    yield stack
    stack.close(getattr(request.node, "failed", False))
