"""A restore gives back nothing that was taken: stops, keys, credentials and revisions of after the backup (LED-08)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.commands.stop_words import ruling_step
from issuer.house import Visit
from ledger.authority import Ruling, RulingKind
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.transitions import TransitionName
from tests.support.cases import trail
from tests.support.issuers import Made, standard_issuer
from tests.support.reconciling import Inquiry, opened_inquiry
from tests.support.restoring import published, restored, saved

KEY = "SHA256:" + "k" * 42 + "A"
DIGESTS = ["1" * 64, "2" * 64]

pytestmark = pytest.mark.spec("LED-08", "ADM-05")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


def rulings(issuer: Issuer, kind: RulingKind) -> dict[str, str]:
    return {one.name: one.value for one in issuer._house.ledger.read(lambda view: view.rulings(kind))}


def ruled(issuer: Issuer, name: TransitionName, ruling: tuple[RulingKind, str, str], **said: str) -> None:
    """Make a ruling as another command of the house makes it."""
    kind, about, value = ruling
    visit = Visit(house=issuer._house, caller=issuer._caller, command="test")
    dotted: Mapping[str, Any] = {key.replace("_", "."): each for key, each in said.items()}

    def decide(_view: View, now: InstantMs) -> Verdict[None]:
        made_now = Ruling(kind=kind, name=about, value=value, since_ms=now)
        return Verdict(value=None, steps=(ruling_step(visit, name, made_now, dotted),))

    issuer._house.delivery.acknowledge(issuer._house.ledger.transact(decide).sequence)


def token(issuer: Issuer, name: str, digest: str) -> None:
    ruled(issuer, TransitionName.CREDENTIAL_ISSUED, (RulingKind.TOKEN, name, digest), credential=name)


def test_what_was_stopped_since_is_stopped_again_and_what_was_thawed_is_not_thawed(made: Made) -> None:
    with made.open() as issuer:
        issuer.freeze("person", "u-ana")
        file = saved(made)
        issuer.thaw("person", "u-ana")
        issuer.freeze("actor", "agent-8")
        issuer.revoke("actor", "agent-7", reason="compromised")
        issuer.thaw("actor", "agent-7")
        issuer.freeze("class", "refund")
        issuer.thaw("class", "refund")
        issuer.revoke("key", KEY)
    answer = restored(made, file)
    assert answer.more["stopped"] == ["actor:agent-7", "actor:agent-8", "class:refund", f"key:{KEY}"]
    assert all(name in answer.say for name in ("actor:agent-7", "class:refund"))
    with made.open() as issuer:
        assert rulings(issuer, RulingKind.STOP) == {
            "actor:agent-7": "revoked",
            "actor:agent-8": "frozen",
            "class:refund": "frozen",
            "person:u-ana": "frozen",
        }
        assert rulings(issuer, RulingKind.KEY) == {KEY: "revoked"}
        assert ask(issuer).code == "suspended"
        for kind, name in (("class", "refund"), ("person", "u-ana"), ("actor", "agent-7")):
            assert issuer.thaw(kind, name).code == "resumed"
        assert issuer.admit(published(issuer, "after")).code == "admitted"


def ask(issuer: Issuer) -> Any:
    return issuer.request("publish", {"name": "v"}, task="t1", actor="agent-7")


def test_where_the_backup_knows_a_revocation_a_later_freeze_does_not_weaken_it(made: Made) -> None:
    with made.open() as issuer:
        issuer.revoke("actor", "agent-7")
        file = saved(made)
        issuer.thaw("actor", "agent-7")
        issuer.freeze("actor", "agent-7")
    restored(made, file)
    with made.open() as issuer:
        assert rulings(issuer, RulingKind.STOP) == {"actor:agent-7": "revoked"}
        (ruling,) = issuer._house.ledger.read(lambda view: view.rulings(RulingKind.STOP))
        assert ruling.voids_until_ms > 0


@pytest.mark.spec("SEC-02")
def test_a_credential_that_changed_since_is_void_and_another_is_not(made: Made) -> None:
    with made.open() as issuer:
        token(issuer, "host:agents", DIGESTS[0])
        token(issuer, "host:builder", DIGESTS[0])
        file = saved(made)
        token(issuer, "host:agents", DIGESTS[1])
        token(issuer, "actor:agent-7", DIGESTS[1])
    answer = restored(made, file)
    assert answer.more["credentials"] == ["host:agents"]
    with made.open() as issuer:
        assert rulings(issuer, RulingKind.TOKEN) == {"host:agents": "revoked", "host:builder": DIGESTS[0]}


def test_without_a_sink_that_proves_it_everything_is_frozen_and_every_credential_is_void(made: Made) -> None:
    with made.open() as issuer:
        token(issuer, "host:agents", DIGESTS[0])
        file = saved(made)
        issuer.revoke("actor", "agent-7")
    made.sink.unlink()
    answer = restored(made, file)
    assert (answer.more["stopped"], answer.more["credentials"]) == (["all"], ["host:agents"])
    with made.open() as issuer:
        for task in ("org", "t1"):
            assert issuer.thaw("task", task).code == "thawed"
        assert ask(issuer).code == "suspended"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "f0", resend=True) as inquiry:
        yield inquiry


@pytest.mark.spec("REC-03")
def test_an_effect_that_was_revoked_too_late_is_not_sent_again_by_a_restored_ledger(shop: Inquiry) -> None:
    effect = shop.unknown()
    file = saved(shop.made)
    assert shop.issuer.revoke("effect", effect).code == "too_late"
    shop.issuer.close()
    restored(shop.made, file)
    with shop.made.open(clock=shop.clock) as issuer:
        said = issuer.reconcile(effect, resend=True)
        assert (said.code, said.more["field"]) == ("outcome_unknown", "revoked")
        assert [one.name for one in trail(issuer)].count("effect.revoked_late") == 1
    assert len(shop.service.requests) == 1
