"""What a person reads differs for any two effects that differ in anything bound, as printed text (APP-02)."""

import random
from typing import Any, Final

import pytest

from issuer.approving import recompute
from issuer.flow.binding import Names, Pinned, salted_parts
from issuer.operations.contract import Preparation
from issuer.operations.registry import Operation
from tests.support.bindings import EXPIRES_MS, names_of, operation_of
from tests.support.statements import ASKED_MS, fact_of, printed, statement_of

PAIRS: Final = 10_000
SEED: Final = 20_261_201
ALPHABET: Final = (
    *'abcXYZ019 ":,.=[](){}\\!-_/@',
    *("\n", "\t", "\u0301", "\u00e9", "e\u0301", "\u0435", "\u202e", "\u2066", "\u200b", "\u00ad", "\ufeff"),
    *("\uff41", "\U0001f600", "\U000e0041", "u{41}", "\\u{41}", '"\n    "', "\n  ! ", "payload.order: "),
)
"""Pieces of text: plain ones, and every kind that could end a line, forge one, or look like another."""

Parts = dict[str, Any]


def text(draw: random.Random, most: int = 6) -> str:
    return "".join(draw.choices(ALPHABET, k=draw.randint(0, most)))


def tree(draw: random.Random, depth: int = 2) -> object:
    kind = draw.randrange(7 if depth else 5)
    if kind == 5:
        return {text(draw, 2): tree(draw, depth - 1) for _ in range(draw.randint(0, 2))}
    if kind == 6:
        return [tree(draw, depth - 1) for _ in range(draw.randint(0, 2))]
    return [None, True, False, draw.randint(-3, 1000), text(draw)][kind]


def mapping(draw: random.Random) -> dict[str, object]:
    return {text(draw, 2): tree(draw) for _ in range(draw.randint(0, 3))}


def drawn(draw: random.Random) -> Parts:
    """Return everything that a binding pins, but for the effect's id."""
    return {
        "order": text(draw),
        "note": text(draw, 40),
        "card": text(draw) + "card",
        "amount": draw.randint(1, 10**6),
        "resource_id": text(draw),
        "recipients": tuple(text(draw, 3) for _ in range(draw.randint(0, 2))),
        "actual": mapping(draw),
        "destination": mapping(draw),
        "preconditions": mapping(draw),
        "task_id": draw.choice(["tsk_" + "2" * 32, "tsk_" + "3" * 32]),
        "subject": draw.choice(["u-ana", "u-bob"]),
        "actor": draw.choice(["agent-7", "agent-8"]),
        "caller": draw.choice(["ops", "uid:7"]),
        "revision": draw.choice(["3" * 64, "4" * 64]),
        "invocation_id": draw.choice(["inv_" + "4" * 32, "inv_" + "5" * 32]),
        "cents": draw.randint(1, 10**6),
        "expires_ms": EXPIRES_MS + draw.randint(0, 10**7),
        "iban": text(draw),
        "since_ms": ASKED_MS - draw.choice([0, 1, 3_600_000, draw.randint(0, 10**10)]),
        "since_revision": draw.choice(["7" * 64, "8" * 64]),
        "or_before": draw.random() < 0.5,
    }


def near(draw: random.Random, parts: Parts) -> Parts:
    """Return the same with one thing drawn anew, and often only a little of it."""
    name = draw.choice([*parts])
    fresh = drawn(draw)[name]
    value = parts[name]
    if isinstance(value, str) and name in {"order", "note", "resource_id"} and draw.random() < 0.7:
        at = draw.randint(0, len(value))
        fresh = value[:at] + draw.choice(ALPHABET) + value[at + draw.randint(0, 1) :]
    return parts | {name: fresh}


def said(operation: Operation, parts: Parts) -> bytes:
    hidden = any(field.name == "card" for field in operation.fields)
    values = {"order": parts["order"], "amount": parts["amount"]}
    pinned = Pinned(
        operation=operation,
        values={"card": parts["card"], "note": parts["note"], **values} if hidden else values,
        resource_id=parts["resource_id"],
        recipients=parts["recipients"],
        preparation=Preparation(
            actual=parts["actual"], destination=parts["destination"], preconditions=parts["preconditions"]
        ),
        # The same salts for both: what differs must differ by its value.
        salts={part: f"{number:032x}" for number, part in enumerate(salted_parts(operation), 1)},
    )
    words = ("task_id", "subject", "actor", "caller", "revision", "invocation_id")
    names: Names = names_of(**{name: parts[name] for name in words})
    since = {"revision": parts["since_revision"], "or_before": parts["or_before"]}
    fact = fact_of(iban=parts["iban"], at_ms=parts["since_ms"], **since)
    return statement_of(
        pinned, names, amount=parts["cents"], expires_ms=parts["expires_ms"], registries={"order": fact}
    )


@pytest.mark.spec("APP-02", "EFF-03", "EFF-10")
@pytest.mark.parametrize("hidden", [False, True])
def test_two_effects_that_differ_in_anything_bound_read_differently(hidden: bool) -> None:
    draw, operation = random.Random(SEED + hidden), operation_of(hidden=hidden)  # noqa: S311 - the same pairs each time
    one = drawn(draw)
    first = said(operation, one)
    pairs = 0
    while pairs < PAIRS // 2:
        other = near(draw, one)
        if not hidden:
            other |= {"card": one["card"], "note": one["note"]}
        # Equal in type as well: true is no 1 to a reader.
        if repr(one) == repr(other):
            continue
        pairs += 1
        second = said(operation, other)
        assert printed(first) != printed(second), (one, other)
        if pairs % 50 == 0:
            recompute(second)
            assert second.replace(b"\n", b"").decode("ascii").isprintable()
        one, first = other, second
