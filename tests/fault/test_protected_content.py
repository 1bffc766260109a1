"""Protected content is kept for as long as an effect may need it, and no longer (LED-03, EFF-10)."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.flow.admit import claim_hash
from issuer.flow.content import SWEPT_AGE_MS
from issuer.flow.settle import from_answer, not_sent, settle
from issuer.operations.contract import Answer as ServiceAnswer
from issuer.operations.contract import Proof
from issuer.sealing import ProtectedStore
from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.bounded import DENIES
from tests.support.cases import Clock, rebuilt, state_of
from tests.support.issuers import STANDARD_POLICY, Made, permitted, standard_issuer
from tests.support.service import Service, accept_then_close, answer

HOUR_MS = 3_600_000
HIDDEN = {
    "payload = { order": "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order",
    "payload = { name": "payload = { note = { string = 60 }, name",
}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(
        tmp_path / "f0", port=service.port, policy=STANDARD_POLICY + DENIES, changes=HIDDEN
    )


@pytest.fixture
def issuer(made: Made, clock: Clock) -> Iterator[Issuer]:
    with made.open(clock=clock) as opened:
        yield opened


def paid(
    issuer: Issuer, *, order: str = "o-1", amount: int = 100, note: str = "for ana", **options: Any
) -> Answer:
    payload = {"order": order, "amount": amount, "card": "4000-1", "note": note}
    return issuer.request("refund", payload, task="t1", actor="agent-7", **options)


def published(issuer: Issuer) -> str:
    payload = {"name": "v1", "note": "quietly"}
    return permitted(issuer.request("publish", payload, task="t1", actor="agent-7"))


def content(made: Made) -> set[str]:
    """Return the effects whose content is there."""
    return {path.name.removesuffix(".sealed") for path in (made.folder / "protected").glob("*.sealed")}


@pytest.mark.spec("LED-03", "EFF-10")
@pytest.mark.parametrize(("status", "code"), [(201, "succeeded"), (409, "failed"), (422, "no_effect")])
def test_content_goes_once_an_outcome_is_known(
    status: int, code: str, issuer: Issuer, made: Made, service: Service
) -> None:
    effect = permitted(paid(issuer))
    assert content(made) == {effect}
    service.then(answer(status))
    assert issuer.commit(effect).code == code
    assert content(made) == set()


@pytest.mark.spec("LED-03")
def test_content_of_what_may_have_been_sent_stays_until_the_truth_is_known(
    issuer: Issuer, made: Made, service: Service, clock: Clock
) -> None:
    service.then(accept_then_close())
    lost = permitted(paid(issuer))
    assert issuer.commit(lost).code == "outcome_unknown"
    sent = published(issuer)
    claim = str(issuer.admit(sent).more["claim"])
    assert content(made) == {lost, sent}
    clock.ahead_ms = 3 * HOUR_MS
    assert [state_of(issuer, one) for one in (lost, sent)] == ["unknown", "admitted"]
    assert issuer.show(sent).state == "unknown"
    assert issuer.ledger_collect(early=True).code == "collected_now"
    assert content(made) == {lost, sent}
    assert issuer.report(sent, claim, succeeded=True).code == "succeeded"
    assert content(made) == {lost}


@pytest.mark.spec("LED-03", "REC-05", "BUD-04")
def test_content_of_an_effect_that_contradictions_keep_unknown_stays(issuer: Issuer, made: Made) -> None:
    """A part of it was answered, and then somebody says that nothing happened: a person has to look."""
    sent = published(issuer)
    claim = claim_hash(str(issuer.admit(sent).more["claim"]))
    visit, effect_id = issuer._visit("report"), EffectId(sent)
    effect = issuer._house.ledger.read(lambda view: view.effect(effect_id))
    assert effect is not None
    part = ServiceAnswer(proof=Proof.PARTIAL, source="http:206")
    for outcome in (from_answer(part), not_sent("connect_failed")):
        assert settle(visit, effect, claim, outcome).refusal is None
        assert state_of(issuer, sent) == "unknown"
        assert content(made) == {sent}


@pytest.mark.spec("LED-03")
def test_content_of_what_was_never_admitted_goes_when_that_is_over(
    issuer: Issuer, made: Made, clock: Clock
) -> None:
    assert paid(issuer, order="bad-1").code == "denied"
    assert content(made) == set()
    held = paid(issuer, order="bad-2", hold=True).effect or ""
    assert content(made) == {held}
    assert issuer.request_held(held).code == "denied"
    assert content(made) == set()
    expiring, committed = permitted(paid(issuer, order="o-1")), permitted(paid(issuer, order="o-2"))
    clock.ahead_ms = 11 * 60_000
    assert issuer.commit(committed).code == "expired"
    assert content(made) == {expiring}
    assert issuer.show(expiring).state == "expired"
    assert content(made) == set()


@pytest.mark.spec("LED-03", "EFF-08", "REP-02", "REP-01")
def test_what_is_over_still_tells_a_restatement_that_differs(
    issuer: Issuer, made: Made, service: Service, clock: Clock
) -> None:
    effect = permitted(paid(issuer))
    service.then(answer(201))
    assert issuer.commit(effect).code == "succeeded"
    said = {"order": "o-1", "amount": 100, "card": "4000-1", "note": "for ana"}
    assert issuer.commit(effect, payload=said).code == "succeeded"
    for field, value in (("note", "for bob"), ("card", "4000-2"), ("amount", 101)):
        no = issuer.commit(effect, payload={**said, field: value})
        assert (no.code, no.more["field"]) == ("mismatch", field)
    for name, word in (("task", "t1.a"), ("actor", "agent-8")):
        no = issuer.commit(effect, **{name: word})  # type: ignore[arg-type]
        assert (no.code, no.more["field"]) == ("mismatch", name)
    expired = permitted(paid(issuer, order="o-2"))
    clock.ahead_ms = 11 * 60_000
    issuer.show(expired)
    assert issuer.commit(expired, payload={**said, "order": "o-3"}).code == "mismatch"
    assert issuer.commit(expired, payload={**said, "order": "o-2"}).code == "expired"
    assert issuer.commit(expired).code == "expired"


@pytest.mark.spec("LED-03", "ADM-04")
def test_a_host_is_told_where_its_effect_stands_once_its_content_is_gone(issuer: Issuer, made: Made) -> None:
    effect = published(issuer)
    claim = str(issuer.admit(effect).more["claim"])
    assert issuer.report(effect, claim, succeeded=True).code == "succeeded"
    assert content(made) == set()
    assert issuer.admit(effect).code == "already_consumed"
    assert issuer.dispatch(effect, ["true"]).code == "succeeded"
    assert issuer.report(effect, claim, succeeded=True).code == "already_consumed"


@pytest.mark.spec("LED-03", "LED-02")
def test_what_a_crash_left_behind_is_swept_and_nothing_that_lives_is(
    issuer: Issuer, made: Made, service: Service
) -> None:
    folder = made.folder / "protected"
    lives = permitted(paid(issuer, order="o-1"))
    service.then(answer(201))
    done = permitted(paid(issuer, order="o-2"))
    kept = (folder / f"{done}.sealed").read_bytes()
    assert issuer.commit(done).code == "succeeded"
    # As if the process had ended between the outcome and the erasing, and between a content and its effect.
    never = "eff_" + "7" * 32
    for name in (done, never):
        path = folder / f"{name}.sealed"
        path.write_bytes(kept)
        path.chmod(0o600)
    old = (folder.stat().st_mtime_ns // 1_000_000 - SWEPT_AGE_MS - 1) * 1_000_000
    os.utime(folder / f"{done}.sealed", ns=(old, old))
    os.utime(folder / f"{lives}.sealed", ns=(old, old))
    answered = issuer.ledger_collect().more["collected"]
    assert isinstance(answered, dict)
    assert answered["contents"] == 1
    assert content(made) == {lives, never}  # the young one may belong to a request that is under way
    os.utime(folder / f"{never}.sealed", ns=(old, old))
    issuer.ledger_collect()
    assert content(made) == {lives}
    service.then(answer(201))
    assert issuer.commit(lives).code == "succeeded"


@pytest.mark.spec("LED-03", "LED-02")
def test_a_full_store_makes_room_of_what_nobody_needs_before_it_refuses(issuer: Issuer, made: Made) -> None:
    house = issuer._house
    small = ProtectedStore(made.folder / "protected", house.ring, house.ledger.ledger_id, files_max=2)
    tight = rebuilt(issuer, protected=small)
    first = permitted(paid(tight, order="o-1"))
    never = "eff_" + "7" * 32  # of a request that was killed before its entry in the ledger
    small.put(never, {"v": 1}, b"\x07" * 12)
    orphan = made.folder / "protected" / f"{never}.sealed"
    no = paid(tight, order="o-2")
    assert (no.code, no.effect) == ("ledger_full", None)
    old = (orphan.stat().st_mtime_ns // 1_000_000 - SWEPT_AGE_MS - 1) * 1_000_000
    os.utime(orphan, ns=(old, old))
    second = permitted(paid(tight, order="o-2"))
    assert content(made) == {first, second}
    assert paid(tight, order="o-3").code == "ledger_full"
