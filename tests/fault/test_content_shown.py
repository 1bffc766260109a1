"""Looking at protected content: only what is sensitive, only by whose effect it is, only once that is on record."""

import hmac
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from issuer.wiring import span_recorder
from ledger.errors import SpanNotRecorded
from ledger.model import EffectId, InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.transitions import Position, RecordedSpan, Transition, TransitionName
from tests.support.bounded import DENIES
from tests.support.canaries import CARD, NOTE, found_in
from tests.support.cases import command, state_of, trail
from tests.support.issuers import STANDARD_POLICY, Made, permitted, standard_issuer
from tests.support.revised import activated
from tests.support.service import Service, answer
from tests.support.witness import witness

HIDDEN = {
    "payload = { order": "payload = { card = { string = 60, secret = true }, note = { string = 60 }, order",
}
PAYLOAD = {"order": "o-1", "amount": 100, "card": CARD, "note": NOTE}


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(
        tmp_path / "f0", port=service.port, policy=STANDARD_POLICY + DENIES, changes=HIDDEN
    )


@pytest.fixture
def issuer(made: Made) -> Iterator[Issuer]:
    with made.open() as opened:
        yield opened


def asked(issuer: Issuer) -> str:
    return permitted(issuer.request("refund", PAYLOAD, task="t1", actor="agent-7"))


def shown(told: Answer) -> dict[str, object]:
    assert told.code == "found"
    content = told.more["content"]
    assert isinstance(content, dict)
    return content


def looks(issuer: Issuer) -> list[tuple[object, object]]:
    return [
        (entry.attributes["permit.fields"], entry.attributes["permit.reason"])
        for entry in trail(issuer)
        if entry.name == "effect.content_shown"
    ]


@pytest.mark.spec("EFF-10", "LED-03")
def test_a_reader_recomputes_the_commitment_with_what_is_shown(issuer: Issuer) -> None:
    """With nothing but the standard library: HMAC, a domain, the length of the salt, and canonical JSON."""
    effect = asked(issuer)
    content = shown(issuer.show(effect, content=True))
    assert (content["status"], content["withheld"]) == ("shown", ["card"])
    fields = content["fields"]
    assert isinstance(fields, dict)
    assert fields.keys() == {"note"}
    note = fields["note"]
    salt = bytes.fromhex(note["salt"])
    body = json.dumps(["payload.note", NOTE], separators=(",", ":"), ensure_ascii=False).encode()
    domain = b"permit-issuer/commitment/v1\x00" + len(salt).to_bytes(2, "big")
    binding = issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert binding is not None
    bound = json.loads(binding.binding)["payload"]["note"]["commitment"]
    assert hmac.digest(salt, domain + body, "sha256").hex() == note["commitment"] == bound
    assert (note["value"], note["part"]) == (NOTE, "payload.note")


@pytest.mark.spec("EFF-10", "SEC-01", "LED-03")
def test_a_secret_is_shown_nowhere_and_a_look_leaves_no_value_behind(made: Made, service: Service) -> None:
    with made.open() as issuer:
        effect = asked(issuer)
        told = [issuer.show(effect, content=True)]
        told += [issuer.show(effect), issuer.timeline(effect), issuer.list()]
        assert looks(issuer) == [(("note",), "shown")]
    ran = command(made, "show", effect, "--content")
    assert found_in(json.dumps([one.as_json() for one in told]).encode()) == {NOTE}
    assert found_in(json.dumps(ran.answer).encode()) == {NOTE}
    assert ran.answer["content"] == told[0].more["content"]
    seen = witness(made)
    assert found_in(repr((seen.rows, seen.spans)).encode()) | found_in(seen.sink) == set()
    assert {name for name, data in seen.files.items() if found_in(data)} == set()


class LookUnrecorded:
    """The real recorder, but for looks at content."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self._real: SpanRecorder = span_recorder(ledger_id)

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        """See `SpanRecorder`."""
        if transition.name is TransitionName.CONTENT_SHOWN:
            raise SpanNotRecorded("vocabulary", "The span of a look cannot be recorded.")
        return self._real.record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)


@pytest.mark.spec("LED-03", "AUD-01")
def test_nothing_is_shown_where_the_look_cannot_be_recorded(made: Made) -> None:
    with made.open() as issuer:
        effect = asked(issuer)
    with made.open(recorder=LookUnrecorded) as issuer:
        told = issuer.show(effect, content=True)
    assert told.code == "audit_unavailable"
    assert found_in(json.dumps(told.as_json()).encode()) == set()


@pytest.mark.spec("LED-03", "LED-02")
@pytest.mark.parametrize("collected", [True, False])
def test_erased_content_reads_erased_and_ledger_and_audit_stay_valid(
    made: Made, service: Service, collected: bool
) -> None:
    service.then(answer(201))
    with made.open() as issuer:
        effect = asked(issuer)
        assert issuer.commit(effect).code == "succeeded"
        if collected:
            issuer.ledger_collect(early=True)
        assert shown(issuer.show(effect, content=True)) == {"status": "erased", "fields": {}, "withheld": []}
        assert looks(issuer) == [((), "erased")]
        assert issuer.timeline(effect).code == "found"
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("LED-03", "LED-04")
def test_content_that_is_gone_too_early_is_no_erased_one_and_breaks_that_effect_alone(
    issuer: Issuer, made: Made, service: Service
) -> None:
    effect, other = (
        asked(issuer),
        permitted(issuer.request("refund", {**PAYLOAD, "order": "o-2"}, task="t1", actor="agent-7")),
    )
    (made.folder / "protected" / f"{effect}.sealed").unlink()
    assert issuer.show(effect, content=True).code == "permit_broken"
    assert issuer.commit(effect).code == "permit_broken"
    assert service.connections == 0
    assert state_of(issuer, effect) == "permitted"
    service.then(answer(201))
    assert issuer.commit(other).code == "succeeded"
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("LED-03", "EFF-10")
@pytest.mark.parametrize("change", ["value", "salt", "moved"])
def test_content_that_is_not_what_was_bound_is_not_shown(issuer: Issuer, made: Made, change: str) -> None:
    effect = asked(issuer)
    house = issuer._house
    kept = json.loads(json.dumps(house.protected.get(effect)))
    sealed = made.folder / "protected" / f"{effect}.sealed"
    if change == "moved":
        other = permitted(issuer.request("refund", {**PAYLOAD, "order": "o-2"}, task="t1", actor="agent-7"))
        sealed.write_bytes((made.folder / "protected" / f"{other}.sealed").read_bytes())
    else:
        sealed.unlink()
        if change == "value":
            kept["payload"]["note"] = "CANARY-NOTE for bob"
        else:
            kept["salts"]["payload.note"] = "00" * 16
        house.protected.put(effect, kept, b"\x01" * 12)
    told = issuer.show(effect, content=True)
    assert (told.code, told.more["field"]) == ("permit_broken", "content")
    assert looks(issuer) == []


@pytest.mark.spec("EFF-10", "LED-03")
def test_what_was_written_without_a_word_about_secrets_is_withheld_whole(issuer: Issuer, made: Made) -> None:
    effect = asked(issuer)
    kept = dict(issuer._house.protected.get(effect))
    del kept["secret"]
    (made.folder / "protected" / f"{effect}.sealed").unlink()
    issuer._house.protected.put(effect, kept, b"\x01" * 12)
    content = shown(issuer.show(effect, content=True))
    assert (content["fields"], content["withheld"]) == ({}, ["card", "note"])


@pytest.mark.spec("EFF-10", "OPR-02")
def test_a_field_that_was_secret_stays_secret_whatever_the_profile_says_later(made: Made) -> None:
    with made.open() as issuer:
        effect = asked(issuer)
    text = made.profile.read_text()
    made.profile.write_text(text.replace("card = { string = 60, secret = true }", "card = { string = 60 }"))
    activated(made.profile)
    with made.open() as issuer:
        content = shown(issuer.show(effect, content=True))
    assert content["withheld"] == ["card"]


@pytest.mark.spec("EFF-08", "LED-03")
def test_the_effect_of_somebody_else_reads_like_a_missing_one(issuer: Issuer) -> None:
    effect = asked(issuer)
    stranger = Issuer(
        issuer._house, replace(issuer._caller, name="uid:4711", roles=()), lambda: issuer._house
    )
    other, none = stranger.show(effect, content=True), stranger.show("eff_" + "0" * 32, content=True)
    assert (other.code, other.say, other.more) == (none.code, none.say, none.more)
    assert other.code == "not_found"
    assert looks(issuer) == []


@pytest.mark.spec("LED-03", "EFF-10")
def test_an_effect_that_hides_nothing_says_so(issuer: Issuer) -> None:
    effect = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    content = shown(issuer.show(effect, content=True))
    assert content == {"status": "nothing_hidden", "fields": {}, "withheld": []}
    assert looks(issuer) == [((), "nothing_hidden")]
