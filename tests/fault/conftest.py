"""The process that makes processes to be killed, one for all tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.support.kills import Nursery


@pytest.fixture(scope="session")
def nursery(_session_state: None) -> Iterator[Nursery]:
    with Nursery() as made:
        yield made
