"""A trail as long as is asked for, made in seconds: the forms are the real recorder's, the values are filled in.

One span of each kind is recorded by `audit.recorder` with marks for values; every span is that text with other values
in place of the marks. So each body is canonical and of the vocabulary, each leaf is its hash, the columns are what the
body says, and tree and head are right: the ledger opens, goes on, and its trail can be verified. Its effects have no
rows of their own, since they are told and never were; a full check misses them.
Use: `long_trail(folder, spans=1_000_000)`; the same seed makes the same trail but for the ledger's id.
"""

import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from audit.recorder import OtelRecorder, trace_id_of
from ledger.model import EffectId, InstantMs, LedgerId
from ledger.questions import FOUND_BY
from ledger.sqlite import rows
from ledger.sqlite.head import proven_head
from ledger.sqlite.triggers import HOLDINGS_RECOUNTED
from ledger.states import EffectState
from ledger.transitions import AttributeValue, Position, Transition, TransitionName
from ledger.tree import GrowingTree, leaf_hash
from tests.support.ledgers import START, Book, attacker, made_book

N, S = TransitionName, EffectState

ACTORS: Final = tuple(f"agent-{number}" for number in range(20))
SUBJECTS: Final = tuple(f"u-{number}" for number in range(50))
SIGNERS: Final = tuple(f"u-head-{number}" for number in range(8))
OPERATIONS: Final = tuple(f"operation-{number}" for number in range(12))
POLICIES: Final = tuple(f"policy-{number:02d}" for number in range(30))
TASKS: Final = tuple(f"tsk_{hashlib.sha256(str(number).encode()).hexdigest()[:32]}" for number in range(100))
SECOND_POLICY: Final = "sure"
"""A policy that decides beside another, now and then; it sorts after every other."""

IN_FLIGHT: Final = 8
"""Effects whose spans stand between each other's."""

FEW: Final = 40
"""Resources that are used often; one of four effects is on one of them."""

BATCH: Final = 20_000
STEP_MS: Final = 1_500

Values = dict[str, Any]

_MARK: Final[Mapping[str, str]] = {
    "actor": "mark-actor",
    "subject": "mark-subject",
    "signer": "mark-signer",
    "operation": "mark-operation",
    "resource": "mark/resource",
    "policy": "mark-policy",
    "task": f"tsk_{'a1' * 16}",
    "effect": f"eff_{'b2' * 16}",
    "digest": "c3" * 32,
    "key": "d4" * 32,
    "parent": "e5" * 8,
}
_SEQUENCE: Final = 987_654_321
_AT: Final = 1_777_777_777_777
_LATER_MS: Final = 600_000

_ABOUT: Final[Mapping[str, AttributeValue]] = {
    "permit.mode": "strict",
    "permit.caller": "host-1",
    "permit.revision": "1f" * 32,
    "permit.instance": "host:4711",
    "permit.actor": _MARK["actor"],
    "permit.subject": _MARK["subject"],
    "permit.task.id": _MARK["task"],
    "permit.operation": _MARK["operation"],
    "permit.class": "payment",
    "permit.resource.type": "Account",
    "permit.resource.id": _MARK["resource"],
    "permit.root.id": TASKS[0],
    "permit.binding.digest": _MARK["digest"],
}
_DECIDED: Final[Mapping[str, AttributeValue]] = {
    "permit.bundle.digest": "2e" * 32,
    "permit.engine": "cedar 4.5.0",
    "permit.cost": ("EUR.cent=14950",),
}
_ONE: Final[Mapping[str, AttributeValue]] = {"permit.policy.ids": (_MARK["policy"],)}
_TWO: Final[Mapping[str, AttributeValue]] = {"permit.policy.ids": (_MARK["policy"], SECOND_POLICY)}
_LATER: Final[Mapping[str, AttributeValue]] = {"permit.expires_ms": _AT + _LATER_MS}
_SIGNED: Final[Mapping[str, AttributeValue]] = {
    "permit.signer": _MARK["signer"],
    "permit.statement.digest": _MARK["key"],
}
_ENDED: Final[Mapping[str, AttributeValue]] = {
    "permit.evidence.class": "service",
    "permit.evidence.source": "answer 201",
}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """One kind of span as it is told here."""

    name: TransitionName
    origin: EffectState | None = None
    target: EffectState | None = None
    attributes: Mapping[str, AttributeValue]
    is_of_effect: bool = True


def _moving(
    name: TransitionName, origin: EffectState | None, target: EffectState, *more: Mapping[str, AttributeValue]
) -> _Kind:
    attributes = dict(_ABOUT)
    for part in more:
        attributes |= part
    return _Kind(name=name, origin=origin, target=target, attributes=attributes)


_HELD: Final[Mapping[str, AttributeValue]] = {
    "permit.cost": ("EUR.cent=14950",),
    "permit.reservation": ("org:EUR.cent=14950", "team:EUR.cent=14950"),
    "permit.deadline_ms": _AT + _LATER_MS,
}
_KEYS: Final[Mapping[str, AttributeValue]] = {
    "permit.content.key": _MARK["key"],
    "permit.resource.key": _MARK["digest"],
    "permit.cost": ("EUR.cent=14950",),
}
KINDS: Final[Mapping[str, _Kind]] = {
    "prepared": _moving(N.EFFECT_PREPARED, None, S.PREPARED, _KEYS, _LATER),
    "permitted": _moving(
        N.EFFECT_PERMITTED, S.PREPARED, S.PERMITTED, _DECIDED, _ONE, _LATER, {"permit.tier": "issue"}
    ),
    "permitted_two": _moving(
        N.EFFECT_PERMITTED, S.PREPARED, S.PERMITTED, _DECIDED, _TWO, _LATER, {"permit.tier": "issue"}
    ),
    "denied": _moving(N.EFFECT_DENIED, S.PREPARED, S.DENIED, _DECIDED, _ONE, {"permit.refusal": "denied"}),
    "waiting": _moving(N.EFFECT_AWAITING_APPROVAL, S.PREPARED, S.AWAITING_APPROVAL, _DECIDED, _ONE, _LATER),
    "approved": _Kind(
        name=N.EFFECT_APPROVED,
        attributes={
            **_ABOUT,
            **_DECIDED,
            **_ONE,
            **_SIGNED,
            "permit.key.fingerprint": f"SHA256:{'A' * 43}",
        },
    ),
    "permitted_then": _moving(
        N.EFFECT_PERMITTED,
        S.AWAITING_APPROVAL,
        S.PERMITTED,
        _DECIDED,
        _ONE,
        _LATER,
        {"permit.tier": "approval"},
    ),
    "expired": _moving(N.EFFECT_EXPIRED, S.PERMITTED, S.EXPIRED, _LATER),
    "admitted": _moving(N.EFFECT_ADMITTED, S.PERMITTED, S.ADMITTED, _DECIDED, _ONE, _LATER, _HELD),
    "succeeded": _moving(
        N.EFFECT_SUCCEEDED, S.ADMITTED, S.SUCCEEDED, _ENDED, {"permit.charged": ("EUR.cent=14950",)}
    ),
    "failed": _moving(N.EFFECT_FAILED, S.ADMITTED, S.FAILED, _ENDED, {"permit.charged": ("EUR.cent=0",)}),
    "unknown": _moving(N.EFFECT_UNKNOWN, S.ADMITTED, S.UNKNOWN, {"permit.reason": "no_answer"}),
    "refused": _Kind(
        name=N.REFUSED,
        attributes={**_ABOUT, "permit.command": "request", "permit.refusal": "denied"},
        is_of_effect=False,
    ),
    "observed": _Kind(
        name=N.OBSERVED,
        attributes={
            "permit.mode": "strict",
            "permit.caller": "u-head-1",
            "permit.command": "audit query",
            "permit.count": 20,
        },
        is_of_effect=False,
    ),
}

WAYS: Final[tuple[tuple[int, tuple[str, ...]], ...]] = (
    (60, ("prepared", "permitted", "admitted", "succeeded")),
    (8, ("prepared", "permitted_two", "admitted", "succeeded")),
    (3, ("prepared", "permitted", "admitted", "failed")),
    (2, ("prepared", "permitted", "admitted", "unknown")),
    (10, ("prepared", "denied")),
    (6, ("prepared", "waiting", "approved", "permitted_then", "admitted", "succeeded")),
    (3, ("prepared", "permitted", "expired")),
    (6, ("refused",)),
    (2, ("observed",)),
)
"""How often of a hundred an effect goes which way."""


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The text of one kind with the places of its values, and what stands beside it in its row."""

    text: bytes
    name: str
    state_to: str | None
    columns: tuple[str, ...]
    policies: tuple[str, ...]
    is_of_effect: bool


def _form(kind: _Kind, ledger_id: LedgerId, *, is_first: bool) -> _Form:
    """Record one span of a kind, and put the places of values where its marks are."""
    recorder = real_recorder(ledger_id)
    effect = EffectId(_MARK["effect"]) if kind.is_of_effect else None
    made = recorder.record(
        Transition(
            name=kind.name,
            story=ledger_id if effect is None else effect,
            effect_id=effect,
            state_from=kind.origin,
            state_to=kind.target,
            attributes=kind.attributes,
        ),
        position=Position(ledger_id=ledger_id, epoch=1, lane=0, sequence=_SEQUENCE),
        parent_span_id=None if is_first else _MARK["parent"],
        at_ms=InstantMs(_AT),
    )
    text = made.body.replace(b"%", b"%%")
    places = {value: f"%({name})s" for name, value in _MARK.items()} | {
        made.span_id: "%(span)s",
        made.trace_id: "%(trace)s",
        str(_SEQUENCE): "%(sequence)d",
        str(_AT + _LATER_MS): "%(later)d",
        str(_AT): "%(at)d",
    }
    plain = text.decode()
    for value, place in places.items():
        plain = plain.replace(value, place)
    of = {value: name for name, value in _MARK.items()}
    columns = tuple(of.get(str(kind.attributes.get(attribute)), "") for attribute in FOUND_BY.values())
    named = kind.attributes.get("permit.policy.ids", ())
    return _Form(
        text=plain.encode(),
        name=str(kind.name),
        state_to=None if kind.target is None else str(kind.target),
        columns=columns,
        policies=tuple(of.get(policy, policy) for policy in named) if isinstance(named, tuple) else (),
        is_of_effect=kind.is_of_effect,
    )


class _Story:
    """One effect, or one span of none, on its way."""

    def __init__(
        self, rng: random.Random, way: tuple[str, ...], ledger_id: str, again: Values | None
    ) -> None:
        self.left = list(reversed(way))
        self.begun = False
        number = rng.randrange(2**48)
        frequent = rng.randrange(FEW) if rng.random() < 1 / 4 else number
        self.values: Values = {
            "actor": rng.choice(ACTORS),
            "subject": rng.choice(SUBJECTS),
            "signer": rng.choice(SIGNERS),
            "operation": rng.choice(OPERATIONS),
            "policy": rng.choice(POLICIES),
            "task": rng.choice(TASKS),
            "resource": f"account/{frequent:x}",
            "effect": f"eff_{rng.getrandbits(128):032x}",
            "digest": f"{rng.getrandbits(256):064x}",
            "key": f"{rng.getrandbits(256):064x}",
            "parent": "",
        }
        if again is not None:
            self.values |= {
                name: again[name] for name in ("actor", "subject", "operation", "resource", "task")
            }
        self.story = self.values["effect"] if way[0] not in {"refused", "observed"} else ledger_id
        self.values["trace"] = trace_id_of(ledger_id, self.story)


def _told(
    ledger_id: LedgerId, first: int, last: int, seed: int
) -> Iterator[tuple[tuple[Any, ...], tuple[str, ...]]]:
    """Give row after row of `spans`, each with its policies."""
    rng = random.Random(seed)  # noqa: S311 - the same trail for the same seed
    forms = {
        (kind, is_first): _form(KINDS[kind], ledger_id, is_first=is_first)
        for kind in KINDS
        for is_first in (True, False)
    }
    ways, weights = [way for _weight, way in WAYS], [weight for weight, _way in WAYS]
    at, sequence, span = int(START), first, ""
    going: list[_Story] = []
    again: Values | None = None
    last_of_ledger = ""
    while sequence <= last:
        while len(going) < IN_FLIGHT:
            going.append(_Story(rng, rng.choices(ways, weights)[0], ledger_id, again))
            again = None
        one = going[rng.randrange(IN_FLIGHT)]
        kind = one.left.pop()
        values, is_own = one.values, one.story == ledger_id
        parent = last_of_ledger if is_own else values["parent"]
        form = forms[kind, not parent]
        at = InstantMs(at + rng.randrange(STEP_MS))
        span = f"{rng.getrandbits(64) or 1:016x}"
        values |= {"parent": parent, "span": span, "sequence": sequence, "at": at, "later": at + _LATER_MS}
        body = (form.text.decode() % values).encode()
        yield (
            (
                *(1, 0, sequence, span, values["trace"], form.name, one.story, at, body, leaf_hash(body)),
                *(values["effect"] if form.is_of_effect else None, form.state_to),
                *(values[name] if name else None for name in form.columns),
            ),
            tuple(values.get(policy, policy) for policy in form.policies),
        )
        values["parent"] = span
        last_of_ledger = span if is_own else last_of_ledger
        sequence += 1
        if kind in {"denied", "refused"} and rng.random() < 1 / 4:
            again = values
        if not one.left:
            going.remove(one)


def long_trail(folder: Path, *, spans: int, seed: int = 1, grown: bool = False) -> Book:
    """Make a ledger in `folder` with a trail of so many spans; a million take some minutes, and 2.3 GB.

    Indexes are made at the end, which packs their pages full; with `grown` they grow with each span, as they do in use.
    """
    book = made_book(folder)
    raw = attacker(book.path)
    try:
        raw.execute("PRAGMA journal_mode = OFF")
        raw.execute("PRAGMA synchronous = OFF")
        raw.execute("PRAGMA cache_size = -400000")
        raw.execute("BEGIN")
        (found,) = raw.execute("SELECT ledger_id FROM ledger").fetchone()
        away = raw.execute(
            "SELECT type, name, sql FROM sqlite_schema WHERE type = 'trigger' "
            "OR (type = 'index' AND tbl_name = 'spans' AND sql IS NOT NULL)"
        ).fetchall()
        away = [row for row in away if row[0] == "trigger" or not grown]
        for kind, name, _sql in away:
            raw.execute(f"DROP {kind} {name}")
        _fill(raw, book, LedgerId(found), spans, seed)
        for _kind, _name, sql in away:
            raw.execute(sql)
        raw.execute("COMMIT")
        raw.execute("PRAGMA journal_mode = WAL")
    finally:
        raw.close()
    return book


def _fill(raw: Any, book: Book, ledger_id: LedgerId, spans: int, seed: int) -> None:
    columns = f"{rows.SPAN_COLUMNS}, effect_id, state_to, {', '.join(FOUND_BY)}"
    insert = f"INSERT INTO spans({columns}) VALUES ({', '.join('?' * len(columns.split(',')))})"  # noqa: S608
    head, _frontier = proven_head(raw, ledger_id, book.keys)
    tree, at = GrowingTree(), int(START)
    batch: list[tuple[Any, ...]] = []
    named: list[tuple[str, int]] = []

    def flush() -> None:
        raw.executemany(insert, batch)
        batch.clear()

    for row, policies in _told(ledger_id, head.position.sequence + 1, spans, seed):
        batch.append(row)
        named += [(policy, row[2]) for policy in policies]
        tree.add(row[9])
        at = row[7]
        if len(batch) == BATCH:
            flush()
    flush()
    raw.executemany("INSERT INTO span_policies(policy, sequence) VALUES (?, ?)", named)
    made = replace(
        head,
        position=replace(head.position, sequence=spans),
        frontier=tree.frontier().encoded(),
        root=tree.frontier().root(),
        clock_ms=InstantMs(at),
    )
    values = (*rows.head_row(made), book.keys.tag("head", rows.head_authority(made)))
    marks = ", ".join("?" * len(values))
    raw.execute(f"UPDATE head SET ({rows.HEAD_COLUMNS}, mac) = ({marks}) WHERE lane = 0", values)  # noqa: S608
    raw.execute("DELETE FROM holdings")
    raw.execute(
        f"INSERT INTO holdings(one, effects, tombstones, record_bytes, spans, span_bytes) {HOLDINGS_RECOUNTED}"
    )
    book.clock.now = at + 1


def real_recorder(ledger_id: LedgerId) -> OtelRecorder:
    """Make the recorder of a release for whatever ledger."""
    return OtelRecorder(ledger_id, random_bytes=os.urandom, service_version="0")


def transition_of(number: int) -> Transition:
    """Return that an effect was permitted, with values of the trail's own in everything that a span is found by."""
    kind, rng = KINDS["permitted"], random.Random(number)  # noqa: S311 - the same for the same number
    effect = EffectId(f"eff_{rng.getrandbits(128):032x}")
    return Transition(
        name=kind.name,
        story=effect,
        effect_id=effect,
        state_from=kind.origin,
        state_to=kind.target,
        attributes={
            **kind.attributes,
            "permit.actor": rng.choice(ACTORS),
            "permit.subject": rng.choice(SUBJECTS),
            "permit.task.id": rng.choice(TASKS),
            "permit.operation": rng.choice(OPERATIONS),
            "permit.resource.id": f"account/{rng.randrange(2**48):x}",
            "permit.policy.ids": (rng.choice(POLICIES),),
        },
    )
