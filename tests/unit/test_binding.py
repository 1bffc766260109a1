"""A binding pins everything, equal bodies have equal digests, and what is not public enters as a commitment only."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from issuer.flow.binding import (
    DERIVED,
    binding_body,
    binding_digest,
    reopened,
    salted_parts,
    stored_member,
)
from issuer.operations.registry import Operation
from issuer.sealing import commit
from ledger.canonical import parse_strict
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import AMOUNT_MAX, Effect, EffectId, InstantMs
from ledger.port import View
from tests.support.bindings import EXPIRES_MS, body_of, names_of, operation_of, pinned_of, preparation_of
from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.shell import PROCESS_S, environment


@pytest.fixture(scope="module")
def plain() -> Operation:
    return operation_of()


@pytest.fixture(scope="module")
def hidden() -> Operation:
    return operation_of(hidden=True)


class _Other:
    """The same adapter with another implementation, or of another kind."""

    def __init__(self, operation: Operation, *, kind: str = "http", implementation: str = "0" * 64) -> None:
        self._adapter = operation.adapter
        self.kind = kind
        self.implementation = implementation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapter, name)


CHANGES: dict[str, Callable[[Operation], bytes]] = {
    "effect": lambda o: body_of(pinned_of(o), names_of(effect_id="eff_" + "4" * 32)),
    "task": lambda o: body_of(pinned_of(o), names_of(task_id="tsk_" + "4" * 32)),
    "subject": lambda o: body_of(pinned_of(o), names_of(subject="u-bob")),
    "actor": lambda o: body_of(pinned_of(o), names_of(actor="agent-8")),
    "caller": lambda o: body_of(pinned_of(o), names_of(caller="uid:1")),
    "revision": lambda o: body_of(pinned_of(o), names_of(revision="4" * 64)),
    "invocation": lambda o: body_of(pinned_of(o), names_of(invocation_id="inv_" + "5" * 32)),
    "cost": lambda o: body_of(pinned_of(o), amount=301),
    "unit": lambda o: binding_body(pinned_of(o), names_of(), cost={"EUR.cent": 300}, expires_ms=EXPIRES_MS),
    "expiry": lambda o: body_of(pinned_of(o), expires_ms=1_893_456_000_001),
    "amount": lambda o: body_of(pinned_of(o, values={"amount": 301})),
    "amount as text": lambda o: body_of(pinned_of(o, values={"amount": "300"})),
    "amount as true": lambda o: body_of(pinned_of(o, values={"amount": True})),
    "order": lambda o: body_of(pinned_of(o, values={"order": "o-2"})),
    "order that looks alike": lambda o: body_of(pinned_of(o, values={"order": "о-1"})),  # noqa: RUF001 - Cyrillic
    "order with a blank": lambda o: body_of(pinned_of(o, values={"order": "o-1 "})),
    "resource": lambda o: body_of(pinned_of(o, resource_id="o-2")),
    "resource type": lambda o: body_of(pinned_of(replace(o, resource_type="Invoice"))),
    "recipients": lambda o: body_of(pinned_of(o, recipients=("bob",))),
    "one recipient more": lambda o: body_of(pinned_of(o, recipients=("ana", "bob"))),
    "actual object": lambda o: body_of(pinned_of(o, preparation=preparation_of(actual={"url": "x"}))),
    "address": lambda o: body_of(pinned_of(o, preparation=preparation_of(destination={"host": "127.0.0.2"}))),
    "precondition": lambda o: body_of(
        pinned_of(o, preparation=preparation_of(preconditions={"revision": "8"}))
    ),
    "no precondition": lambda o: body_of(pinned_of(o, preparation=preparation_of(preconditions={}))),
    "operation": lambda o: body_of(pinned_of(replace(o, name="other"))),
    "version": lambda o: body_of(pinned_of(replace(o, version=2))),
    "contract": lambda o: body_of(pinned_of(replace(o, contract="0" * 64))),
    "implementation": lambda o: body_of(pinned_of(replace(o, adapter=_Other(o)))),
    "adapter": lambda o: body_of(
        pinned_of(replace(o, adapter=_Other(o, kind="host", implementation=o.adapter.implementation)))
    ),
}


@pytest.mark.parametrize("what", list(CHANGES))
@pytest.mark.spec("EFF-02", "EFF-03", "OPR-02")
def test_any_change_of_a_bound_field_changes_the_digest(plain: Operation, what: str) -> None:
    assert binding_digest(CHANGES[what](plain)) != binding_digest(body_of(pinned_of(plain)))


@pytest.mark.spec("EFF-02", "EFF-03")
def test_no_two_changes_have_one_digest_and_no_field_can_stand_for_another(plain: Operation) -> None:
    digests = {binding_digest(change(plain)) for change in CHANGES.values()}
    assert len(digests) == len(CHANGES)
    swapped = body_of(pinned_of(plain), names_of(subject="agent-7", actor="u-ana"))
    assert binding_digest(swapped) != binding_digest(body_of(pinned_of(plain)))


@pytest.mark.spec("EFF-03")
def test_equal_bodies_have_equal_digests_whatever_the_order_they_were_filled_in(plain: Operation) -> None:
    turned = pinned_of(plain, values={}, preparation=preparation_of())
    turned = replace(turned, values=dict(reversed(list(turned.values.items()))))
    assert body_of(turned) == body_of(pinned_of(plain))
    assert binding_digest(body_of(turned)) == binding_digest(body_of(pinned_of(plain)))
    assert len(binding_digest(body_of(turned))) == 32


@pytest.mark.spec("EFF-03")
def test_another_process_locale_and_time_zone_gives_the_same_digest(
    plain: Operation, hidden: Operation, tmp_path: Path
) -> None:
    env = {
        "TZ": "Asia/Kolkata",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "4711",
        "PYTHONUTF8": "0",
        "PYTHONOPTIMIZE": "2",
    }
    command = [sys.executable, "-m", "tests.support.bindings"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=PROCESS_S,
        check=True,
    )
    assert done.stdout.split() == [
        binding_digest(body_of(pinned_of(operation))).hex() for operation in (plain, hidden)
    ]


@pytest.mark.spec("EFF-02", "EFF-03")
def test_a_body_is_versioned_and_holds_nothing_that_is_not_to_be_bound(plain: Operation) -> None:
    body = parse_strict(body_of(pinned_of(plain)))
    assert isinstance(body, dict)
    assert body["v"] == 1
    assert body.keys() == {
        "v", "effect", "operation", "payload", "resource", *DERIVED, "task", "subject", "actor", "caller",
        "invocation", "revision", "cost", "expires_ms",
    }  # fmt: skip
    assert binding_digest(body_of(pinned_of(plain))).hex() not in json.dumps(body)


@pytest.mark.parametrize("cost", [{"USD.cent": 300.0}, {"USD.cent": 2**53}, {"USD.cent": "x" * 300_000}])
@pytest.mark.spec("EFF-04")
def test_a_cost_that_is_no_whole_number_cannot_be_bound(plain: Operation, cost: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        binding_body(pinned_of(plain), names_of(), cost=cost, expires_ms=InstantMs(1))
    assert binding_body(pinned_of(plain), names_of(), cost={"USD.cent": AMOUNT_MAX}, expires_ms=InstantMs(1))


@pytest.mark.spec("EFF-10", "SEC-01")
def test_what_is_not_public_enters_as_a_salted_commitment_and_so_does_all_that_repeats_it(
    hidden: Operation,
) -> None:
    preparation = preparation_of(actual={"path": "4000-1"}, destination={"host": "for ana"})
    pinned = pinned_of(hidden, preparation=preparation, recipients=("4000-1",))
    body = body_of(pinned)
    assert b"4000-1" not in body
    assert b"for ana" not in body
    assert not any(salt.encode() in body for salt in pinned.salts.values())
    document = parse_strict(body)
    assert isinstance(document, dict)
    assert (document["payload"]["order"], document["payload"]["amount"]) == ("o-1", 300)
    for part in (
        document["payload"]["card"],
        document["payload"]["note"],
        *(document[name] for name in DERIVED),
    ):
        assert part.keys() == {"commitment"}
    salt = bytes.fromhex(pinned.salts["payload.card"])
    assert document["payload"]["card"]["commitment"] == commit(salt, "payload.card", "4000-1")
    assert set(pinned.salts) == set(salted_parts(hidden))
    assert len(set(pinned.salts.values())) == len(pinned.salts)


@pytest.mark.parametrize("part", ["payload.card", "payload.note", *DERIVED])
@pytest.mark.spec("EFF-10", "EFF-03")
def test_another_salt_changes_the_digest_so_that_a_value_cannot_be_guessed_from_it(
    hidden: Operation, part: str
) -> None:
    pinned = pinned_of(hidden)
    other = replace(pinned, salts={**pinned.salts, part: "f" * 32})
    assert binding_digest(body_of(other)) != binding_digest(body_of(pinned))


@pytest.mark.parametrize(
    ("values", "derived"),
    [
        ({"card": "4000-2"}, {}),
        ({"note": "for bob"}, {}),
        ({}, {"actual": {"url": "x"}}),
        ({}, {"destination": {}}),
    ],
)
@pytest.mark.spec("EFF-03", "EFF-10")
def test_a_change_of_what_is_committed_changes_the_digest(
    hidden: Operation, values: dict[str, str], derived: dict[str, dict[str, object]]
) -> None:
    changed = pinned_of(hidden, values=values, preparation=preparation_of(**derived))
    assert binding_digest(body_of(changed)) != binding_digest(body_of(pinned_of(hidden)))


@pytest.mark.spec("EFF-02", "EFF-10")
def test_a_stored_binding_opens_to_what_was_pinned_and_only_with_its_protected_part(
    plain: Operation, hidden: Operation
) -> None:
    for operation in (plain, hidden):
        pinned = pinned_of(operation)
        body = body_of(pinned)
        protected = pinned.protected_content() if pinned.has_protected else None
        again = reopened(operation, body, protected)
        assert dict(again.values) == dict(pinned.values)
        assert body_of(again) == body
    assert stored_member(body_of(pinned_of(plain)), "operation", "version") == 1


@pytest.mark.spec("EFF-03", "EFF-10")
def test_protected_content_that_was_changed_does_not_give_the_stored_body_again(hidden: Operation) -> None:
    pinned = pinned_of(hidden)
    body = body_of(pinned)
    assert pinned.protected_content()["payload"] == {"card": "4000-1", "note": "for ana"}
    for change in (
        {"payload": {"card": "4000-2", "note": "for ana"}},
        {"salts": {**pinned.salts, "payload.card": "e" * 32}},
    ):
        again = reopened(hidden, body, {**pinned.protected_content(), **change})
        assert body_of(again) != body


@pytest.mark.parametrize("body", [b"[]", b'{"v":2}', b'{"v":"1"}', b"{}"])
def test_a_body_of_another_version_is_not_half_understood(plain: Operation, body: bytes) -> None:
    with pytest.raises(LedgerCorrupt):
        reopened(plain, body, None)


def _effect(effect: EffectId, view: View) -> Effect:
    found = view.effect(effect)
    assert found is not None
    return found


@pytest.mark.spec("EFF-01", "EFF-03", "EFF-11")
def test_the_same_request_twice_is_two_effects_with_two_digests_and_one_content_key(tmp_path: Path) -> None:
    with standard_issuer(tmp_path / "f0", port=9).open() as issuer:
        answers = [
            refund(issuer, request_key="k-1"),
            refund(issuer, request_key="k-2", task="org"),
            refund(issuer, amount=301),
            refund(issuer, order="o-2"),
        ]
        view_of = issuer._house.ledger.read
        effects = [view_of(partial(_effect, EffectId(permitted(one)))) for one in answers]
        bindings = [effect.binding for effect in effects]
        assert len(bindings) == len({effect.binding_digest for effect in effects}) == 4
        assert not any(b"k-1" in binding or b"k-2" in binding for binding in bindings)
        keys = [effect.content_key for effect in effects]
        assert keys[0] == keys[1]
        assert len(set(keys)) == 3
        for effect in effects:
            assert binding_digest(effect.binding) == effect.binding_digest
