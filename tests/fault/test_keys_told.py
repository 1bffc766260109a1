"""Lost, altered, too open, unknown and half-revoked keys stop the start, and doctor says what to do next (SEC-03)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer.places import Places
from issuer.sealing import KeysUnavailable
from issuer.selfcheck import storage
from issuer.selfcheck.finding import Finding, Known
from ledger.errors import LedgerCorrupt
from tests.support.issuers import Made, standard_issuer

NOBODY = 1


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """An issuer that rotated its keys once, closed."""
    made = standard_issuer(tmp_path / "f0", port=NOBODY)
    with made.open() as issuer:
        assert issuer.keys_rotate().code == "rotated"
    return made


def told(check: Callable[[Known], Iterator[Finding]], made: Made) -> Finding:
    known = Known(places=Places(made.profile))
    if check is storage.ledger:
        list(storage.keys(known))
    (finding,) = check(known)
    return finding


def ring(made: Made) -> Path:
    return Places(made.profile).keys / "ring"


def edited(made: Made) -> None:
    ring(made).write_bytes(ring(made).read_bytes().replace(b"open_only", b"retired"))


STOPS: dict[str, tuple[Callable[[Made], Any], str]] = {
    "lost": (lambda made: ring(made).unlink(), "estore its backup"),
    "altered": (edited, "estore the newest backup of its folder"),
    "too open": (lambda made: ring(made).chmod(0o644), "0600"),
    "folder too open": (lambda made: ring(made).parent.chmod(0o755), "0700"),
    "a copy beside it": (
        lambda made: ring(made).with_name("ring.bak").hardlink_to(ring(made)),
        "emove the copy",
    ),
}


@pytest.mark.spec("SEC-03", "LED-04")
@pytest.mark.parametrize(("harm", "remedy"), STOPS.values(), ids=STOPS.keys())
def test_keys_that_cannot_be_trusted_stop_the_start_and_doctor_names_the_next_step(
    made: Made, harm: Callable[[Made], Any], remedy: str
) -> None:
    harm(made)
    with pytest.raises(KeysUnavailable):
        made.open()
    finding = told(storage.keys, made)
    assert (finding.check, finding.ok) == ("keys", False)
    assert remedy in finding.next


@pytest.mark.spec("SEC-03", "LED-06")
def test_a_ring_that_lacks_the_key_of_the_head_is_told_from_an_edited_ledger(made: Made) -> None:
    before = ring(made).read_bytes()
    with made.open() as issuer:
        new = str(issuer.keys_rotate().more["key"])
    ring(made).write_bytes(before)
    with pytest.raises(LedgerCorrupt):
        made.open()
    assert told(storage.keys, made).ok is True
    finding = told(storage.ledger, made)
    assert (finding.ok, new in finding.says) == (False, True)
    assert "newest copy of the keys' folder" in finding.next


@pytest.mark.spec("SEC-03")
def test_a_revocation_that_was_not_ended_is_a_problem_until_it_is(made: Made) -> None:
    def cut(step: str) -> None:
        if step == "key_changed":
            raise KeyboardInterrupt

    with made.open() as issuer:
        rows: Any = issuer.keys_list().more["keys"]
    first = next(row["key"] for row in rows if row["state"] == "open_only")
    with made.open(observe=cut) as issuer, pytest.raises(KeyboardInterrupt):
        issuer.keys_revoke(first)
    finding = told(storage.keys, made)
    assert (finding.ok, finding.next) == (False, f"Run `issuer keys revoke {first}` again.")
    with made.open() as issuer:
        assert issuer.keys_revoke(first).code == "revoked_now"
    assert told(storage.keys, made).ok is True
    assert told(storage.ledger, made).ok is True
