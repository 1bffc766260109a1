"""The process that makes processes to be struck, one for all tests of this folder; and a place for measured figures."""

import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.kills import Nursery


@pytest.fixture(scope="session")
def nursery(_session_state: None) -> Iterator[Nursery]:
    with Nursery() as made:
        yield made


@pytest.fixture
def figure(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Say a measured figure on the terminal, with the seconds since the test began."""
    began = time.monotonic()

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n  {text} ({time.monotonic() - began:.0f} s)")  # noqa: T201 - what a long run is for

    return say
