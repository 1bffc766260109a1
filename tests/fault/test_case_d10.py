"""Development case D10: a document that two readers could read in two ways is refused, alike on every surface."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.canonical import DEPTH_MAX
from tests.support.cases import (
    Ran,
    all_at,
    books,
    command,
    effect_ids,
    length,
    small_tree,
    state_of,
    trail,
)
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer
from tests.support.shell import issuer_here

DUPLICATES: dict[str, bytes] = {
    "last would win": b'{"order":"o-1","amount":10,"amount":900}',
    "first would win": b'{"order":"o-1","amount":900,"amount":10}',
    "the same twice": b'{"order":"o-1","amount":10,"amount":10}',
    "as published": b'{"amount":10,"amount":900}',
    "escaped": b'{"order":"o-1","amount":10,"\\u0061mount":900}',
    "escaped twice": b'{"order":"o-1","\\u0061\\u006dount":10,"a\\u006dount":900}',
    "far apart": b'{"amount":10,"order":"o-1","amount":900}',
    "another key": b'{"order":"o-1","order":"o-2","amount":10}',
    "an undeclared key": b'{"order":"o-1","amount":10,"x":1,"x":2}',
    "further inside": b'{"order":"o-1","amount":{"a":1,"a":2}}',
    "in a list": b'{"order":"o-1","amount":[{"a":1,"a":2}]}',
    "of three": b'{"order":"o-1","amount":1,"amount":2,"amount":3}',
    "the empty key": b'{"":1,"":2,"order":"o-1","amount":10}',
}
OTHERS: dict[str, bytes] = {
    "a float": b'{"order":"o-1","amount":10.0}',
    "an exponent": b'{"order":"o-1","amount":1e1}',
    "not a number": b'{"order":"o-1","amount":NaN}',
    "infinity": b'{"order":"o-1","amount":Infinity}',
    "too large to survive": b'{"order":"o-1","amount":9007199254740993}',
    "a lone surrogate": b'{"order":"\\ud800","amount":10}',
    "a byte that is no UTF-8": b'{"order":"\xff","amount":10}',
    "a byte order mark": b'\xef\xbb\xbf{"order":"o-1","amount":10}',
    "UTF-16": '{"order":"o-1","amount":10}'.encode("utf-16"),
    "two documents": b'{"order":"o-1","amount":10}{"order":"o-1","amount":900}',
    "a comment": b'{"order":"o-1","amount":10/*900*/}',
    "a comma more": b'{"order":"o-1","amount":10,}',
    "single quotes": b"{'order':'o-1','amount':10}",
    "an undeclared field": b'{"order":"o-1","amount":10,"Amount":900}',
    "too deep": b'{"order":"o-1","amount":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "too long": b'{"order":"' + b"o" * 200_000 + b'","amount":10}',
    "a zero byte": b'{"order":"o-1\x00","amount":10}',
    "a list": b'[{"order":"o-1","amount":10}]',
    "nothing": b"",
}
"""Further documents of the kind: what readers disagree about, or what no payload is."""
ASKING = ("request", "refund", "--actor", "agent-7", "--request-key", "k-1")


@dataclass(frozen=True, kw_only=True)
class Shop:
    """One service that nothing may reach, and one open issuer."""

    made: Made
    service: Service
    issuer: Issuer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service:
        made = standard_issuer(tmp_path_factory.mktemp("d10") / "f0", port=service.port)
        with made.open() as issuer:
            yield Shop(made=made, service=service, issuer=issuer)


def told(said: Answer | Ran) -> tuple[object, ...]:
    """Return what a caller is told, from either surface."""
    if isinstance(said, Ran):
        names = ("code", "effect", "state", "retryable", "next", "reason", "field", "say")
        return (said.exit, *(said.answer.get(name) for name in names))
    fields = (said.code, said.effect, said.state, said.retryable, said.next)
    return (int(said.exit), *fields, said.more.get("reason"), said.more.get("field"), said.say)


def assert_only_the_refusal(shop: Shop, start: int, effects: list[str]) -> None:
    """One span more than before, of a refusal without an effect; nothing stored, nothing held, nothing sent."""
    (entry,) = trail(shop.issuer, start)
    assert length(shop.issuer) == start + 1
    assert (entry.name, entry.state_to) == ("refused", None)
    assert entry.attributes["permit.refusal"] == "malformed"
    assert "permit.effect.id" not in entry.attributes
    assert effect_ids(shop.issuer) == effects
    assert books(shop.issuer) == all_at()
    assert shop.service.connections == 0


@pytest.mark.spec("EFF-05", "AUD-01", "SUR-02")
@pytest.mark.parametrize("row", [*DUPLICATES, *OTHERS])
def test_a_document_that_is_not_one_is_refused_and_leaves_one_span(row: str, shop: Shop) -> None:
    document = (DUPLICATES | OTHERS)[row]
    start, effects = length(shop.issuer), effect_ids(shop.issuer)
    no = shop.issuer.request("refund", document, task="t1", actor="agent-7", request_key="k-1")
    assert (no.code, int(no.exit), no.effect, no.retryable) == ("malformed", 2, None, False)
    assert no.more["reason"]
    if row in DUPLICATES:
        assert no.more["reason"] == "duplicate_key"
    assert_only_the_refusal(shop, start, effects)


@pytest.mark.spec("EFF-05", "SUR-01", "SUR-02")
@pytest.mark.parametrize("row", ["last would win", "escaped"])
def test_it_is_refused_alike_from_standard_input_from_a_file_and_from_bytes(
    row: str, shop: Shop, tmp_path: Path
) -> None:
    document = (DUPLICATES | OTHERS)[row]
    file = tmp_path / "payload.json"
    file.write_bytes(document)
    asking = (*ASKING, "--task", "t1", "--payload")
    effects = effect_ids(shop.issuer)
    said: list[tuple[object, ...]] = []
    for way in ("bytes", "standard input", "a file"):
        start = length(shop.issuer)
        if way == "bytes":
            no = shop.issuer.request("refund", document, task="t1", actor="agent-7", request_key="k-1")
            said.append(told(no))
        elif way == "standard input":
            said.append(told(command(shop.made, *asking, "-", stdin=document)))
        else:
            said.append(told(command(shop.made, *asking, str(file))))
        assert_only_the_refusal(shop, start, effects)
    assert said[0] == said[1] == said[2]
    assert said[0][:2] == (2, "malformed")


@pytest.mark.spec("EFF-05", "EFF-11")
def test_a_refused_document_does_not_use_up_its_request_key(shop: Shop) -> None:
    task, _root = small_tree(shop.issuer, "key")
    for document in (DUPLICATES["last would win"], OTHERS["two documents"]):
        no = shop.issuer.request("refund", document, task=task, actor="agent-7", request_key="k-1")
        assert no.code == "malformed"
    plain = b'{"order":"o-1","amount":10}'
    effect = permitted(shop.issuer.request("refund", plain, task=task, actor="agent-7", request_key="k-1"))
    parsed = json.loads(plain)
    assert (
        shop.issuer.request("refund", parsed, task=task, actor="agent-7", request_key="k-1").effect == effect
    )
    no = shop.issuer.request(
        "refund", DUPLICATES["the same twice"], task=task, actor="agent-7", request_key="k-1"
    )
    assert no.code == "malformed"


@pytest.mark.spec("EFF-05", "EFF-08", "REP-02", "SUR-01")
def test_a_restated_document_is_read_as_strictly_and_the_permit_stays(tmp_path: Path) -> None:
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer, amount=10))
            for document in (*DUPLICATES.values(), *OTHERS.values()):
                no = issuer.commit(effect, payload=document)
                assert (no.code, int(no.exit), no.effect) == ("malformed", 2, effect)
            document = DUPLICATES["first would win"]
            ran = command(made, "commit", effect, "--payload", "-", stdin=document)
            assert told(ran) == told(issuer.commit(effect, payload=document))
            assert (state_of(issuer, effect), service.connections) == ("permitted", 0)
            assert books(issuer) == all_at()
            assert issuer.commit(effect, payload=b'{"amount":10,"order":"o-1"}').code == "succeeded"
        assert service.connections == 1


# ------------------------------------------------------------------------------------ every surface, every depth

DEPTHS = {
    f"{kind}, {depth} deep": opening * depth + b'{"a":1,"a":2}' + closing * depth
    for kind, opening, closing in (("in objects", b'{"x":', b"}"), ("in lists", b"[", b"]"))
    for depth in (0, 1, 2, 15, DEPTH_MAX - 2)
}
"""A key twice, at each depth that a document may have."""


@pytest.mark.spec("EFF-05", "SUR-02")
@pytest.mark.parametrize("row", DEPTHS)
def test_a_key_twice_is_refused_at_every_depth_and_before_anything_else(row: str, shop: Shop) -> None:
    document = b'{"order":"o-1","amount":' + DEPTHS[row] + b"}"
    start, effects = length(shop.issuer), effect_ids(shop.issuer)
    no = shop.issuer.request("refund", document, task="t1", actor="agent-7", request_key="k-1")
    assert (no.code, no.more["reason"]) == ("malformed", "duplicate_key")
    assert_only_the_refusal(shop, start, effects)


@pytest.mark.spec("EFF-05", "EFF-08", "SUR-01", "SUR-02")
def test_every_such_document_has_one_reason_in_a_request_in_a_restatement_and_on_the_command_line(
    tmp_path: Path,
) -> None:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer, amount=10))
            reasons = {}
            for row, document in (DUPLICATES | OTHERS | DEPTHS).items():
                asked = issuer.request("refund", document, task="t1", actor="agent-7")
                restated = issuer.commit(effect, payload=document)
                reasons[row] = (asked.code, asked.more["reason"], asked.more.get("field"))
                assert (restated.code, restated.more["reason"], restated.more.get("field")) == reasons[row], (
                    row
                )
        file = tmp_path / "payload.json"
        profile = ("--json", "--profile", str(made.profile))
        asking = (*profile, *ASKING[:4], "--task", "t1", "--payload")
        for row in (
            "as published",
            "escaped",
            "further inside",
            "in lists, 15 deep",
            "a float",
            "two documents",
        ):
            document = (DUPLICATES | OTHERS | DEPTHS)[row]
            file.write_bytes(document)
            for ran in (
                issuer_here(*asking, "-", at=tmp_path, stdin=document),
                issuer_here(*asking, str(file), at=tmp_path),
                issuer_here(*profile, "commit", effect, "--payload", "-", at=tmp_path, stdin=document),
                issuer_here(*profile, "commit", effect, "--payload", str(file), at=tmp_path),
            ):
                said = (ran.code, ran.answer["reason"], ran.answer.get("field"))
                assert (ran.exit, said) == (2, reasons[row]), row
        with made.open() as issuer:
            assert state_of(issuer, effect) == "permitted"
        assert service.connections == 0
