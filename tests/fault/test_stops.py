"""Stops as attacks: what is frozen or revoked is not admitted, whoever holds the permit, and no thaw revives the void."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.commands.stop_words import Reason
from issuer.wire import Answer
from ledger.authority import RulingKind
from ledger.model import EffectId, InstantMs
from tests.support.cases import NOTHING, Clock, all_at, books, refusals, state_of, trail
from tests.support.issuers import Made, open_task, permitted, refund, standard_issuer
from tests.support.service import Service, answer

HOST = '[host]\nagents = { actors = ["agent-7"], subjects = ["u-ana"] }\n[class.refund]'
NAMED = [
    ("all", None),
    ("person", "u-ana"),
    ("actor", "agent-7"),
    ("operation", "refund"),
    ("class", "refund"),
]

pytestmark = pytest.mark.spec("ADM-05", "ADM-01", "POL-05")


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.fixture
def issuer(made: Made) -> Iterator[Issuer]:
    with made.open() as opened:
        yield opened


@pytest.fixture
def operator(made: Made) -> Iterator[Issuer]:
    """Another process's view: what the host's one holds in memory is not shared with it."""
    with made.open() as opened:
        yield opened


def voided(told: Answer) -> tuple[str, object, object]:
    return told.code, told.more.get("voided"), told.more.get("effects")


# ------------------------------------------------------------------------------------ freezing


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_while_frozen_nothing_is_issued_or_admitted_and_after_the_thaw_the_permit_is_used(
    issuer: Issuer, operator: Issuer, service: Service, kind: str, name: str | None
) -> None:
    service.then(answer(201))
    effect = permitted(refund(issuer))
    held = issuer.request("refund", {"order": "o-h", "amount": 1}, task="t1", actor="agent-7", hold=True)
    assert held.effect is not None
    frozen = operator.freeze(kind, name, reason="compromised")
    stop = kind if name is None else f"{kind}:{name}"
    assert (frozen.code, frozen.more["stop"]) == ("suspended_now", stop)
    for no in (issuer.commit(effect), refund(issuer, order="o-2"), issuer.request_held(held.effect)):
        assert (no.code, no.retryable, no.more["field"], no.more["level"]) == ("suspended", True, kind, stop)
    assert (state_of(issuer, effect), state_of(issuer, held.effect)) == ("permitted", "prepared")
    assert books(issuer) == dict.fromkeys(("t1", "org"), NOTHING)
    assert service.connections == 0
    assert operator.freeze(kind, name).code == "nothing_to_change"
    assert operator.thaw(kind, name).code == "resumed"
    assert operator.thaw(kind, name).code == "nothing_to_change"
    assert issuer.commit(effect).code == "succeeded"
    assert len(service.effects) == 1


@pytest.mark.spec("EFF-06")
def test_another_actor_operation_or_person_is_not_stopped(issuer: Issuer, service: Service) -> None:
    service.then(answer(201))
    for kind, name in (("actor", "agent-8"), ("operation", "publish")):
        assert issuer.freeze(kind, name).code == "suspended_now"
    assert issuer.commit(permitted(refund(issuer))).code == "succeeded"


def test_a_thawed_name_stays_stopped_by_a_wider_freeze_and_the_answer_says_so(issuer: Issuer) -> None:
    issuer.freeze()
    issuer.freeze("actor", "agent-7")
    told = issuer.thaw("actor", "agent-7")
    assert (told.code, told.more["stopped"]) == ("resumed", ["all"])
    assert "all" in told.say
    assert refund(issuer).code == "suspended"


def test_suspending_is_freezing_of_a_person_or_an_actor_and_of_nothing_else(issuer: Issuer) -> None:
    assert issuer.suspend("actor", "agent-7").code == "suspended_now"
    assert refund(issuer).more["level"] == "actor:agent-7"
    assert issuer.resume("actor", "agent-7").code == "resumed"
    assert issuer.suspend("person", "u-ana").code == "suspended_now"
    assert refund(issuer).more["level"] == "person:u-ana"
    assert issuer.resume("person", "u-ana").code == "resumed"
    assert issuer.suspend("class", "refund").code == "malformed"
    permitted(refund(issuer))


def test_a_freeze_of_a_task_is_the_task_s_own(issuer: Issuer) -> None:
    assert issuer.freeze("task", "t1").code == "frozen"
    assert refund(issuer).code == "task_frozen"
    assert issuer.thaw("task", "t1").code == "thawed"
    permitted(refund(issuer))


# ------------------------------------------------------------------------------------ revoking


@pytest.mark.spec("BUD-06")
@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_a_revocation_voids_for_good_what_was_prepared_and_a_thaw_lets_new_ones_be_made(
    issuer: Issuer, operator: Issuer, service: Service, kind: str, name: str | None
) -> None:
    service.then(answer(201))
    effect = permitted(refund(issuer))
    waiting = refund(issuer, order="o-w", amount=900)
    assert waiting.code == "awaiting_approval"
    told = operator.revoke(kind, name, reason="left")
    assert voided(told) == ("revoked_now", 2, [effect, waiting.effect])
    for each in (effect, str(waiting.effect)):
        assert (issuer.commit(each).code, state_of(issuer, each)) == ("revoked", "revoked")
    assert refund(issuer, order="o-2").code == "suspended"
    assert operator.revoke(kind, name).code == "nothing_to_change"
    assert operator.thaw(kind, name).code == "resumed"
    assert issuer.commit(effect).code == "revoked"
    assert service.connections == 0
    assert issuer.commit(permitted(refund(issuer, order="o-3"))).code == "succeeded"
    stop = kind if name is None else f"{kind}:{name}"
    ended = [one.attributes for one in trail(issuer) if one.name == "permit.effect.revoked"]
    assert [(one["permit.stop"], one["permit.reason"]) for one in ended] == [(stop, "left")] * 2


def test_what_was_voided_stays_void_through_a_later_freeze_and_thaw(issuer: Issuer, made: Made) -> None:
    effect = permitted(refund(issuer))
    _revoke_without_the_batches(issuer, "agent-7")
    issuer.thaw("actor", "agent-7")
    issuer.freeze("actor", "agent-7")
    issuer.thaw("actor", "agent-7")
    assert issuer.commit(effect).code == "revoked"
    with made.open() as again:
        assert (again.show(effect).state, again.commit(effect).code) == ("revoked", "revoked")


def _revoke_without_the_batches(issuer: Issuer, actor: str) -> None:
    """Leave what a command leaves that was killed right after its own transaction."""
    from issuer.commands import revoking

    kept = revoking.end_revoked
    revoking.end_revoked = lambda *_args, **_more: []
    try:
        assert issuer.revoke("actor", actor).code == "revoked_now"
    finally:
        revoking.end_revoked = kept
