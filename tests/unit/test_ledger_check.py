import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audit.comparison import LEARNED_AFTER, Forms, span_holds, span_says
from audit.recorder import OtelRecorder
from issuer.clock import monotonic_ms
from issuer.instance import Instance, dead_instances, forget_instance
from issuer.sealing import create_key_ring, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from ledger.canonical import canonical_bytes
from ledger.errors import Malformed
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanColumns
from ledger.questions import FOUND_BY
from ledger.sqlite.check import _part, check_ledger
from ledger.sqlite.check_ground import FINDINGS_MAX, KEY_SHOWN_MAX, Ground, Proofs, amounts_said
from ledger.sqlite.connection import DatabaseError
from ledger.sqlite.stats import read_stats
from ledger.states import EffectState
from ledger.transitions import Position, Transition, TransitionName
from ledger.tree import Frontier, GrowingTree, leaf_hash
from tests.support.ledger_stages import COST, stages
from tests.support.ledgers import CENT, START, Book, made_book

LEDGER = LedgerId("led_" + "0" * 32)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


def real_span() -> SpanColumns:
    """Return a span as the real recorder makes it, about no effect."""
    recorder = OtelRecorder(LEDGER, random_bytes=os.urandom, service_version="0")
    position = Position(ledger_id=LEDGER, epoch=1, lane=0, sequence=7)
    transition = Transition(
        name=TransitionName.LEDGER_CREATED,
        story=LEDGER,
        attributes={"permit.mode": "ordinary", "permit.caller": "u-ana", "permit.sqlite": "3.53.4"},
    )
    made = recorder.record(transition, position=position, parent_span_id=None, at_ms=InstantMs(1_000))
    return SpanColumns(
        epoch=1,
        lane=0,
        sequence=7,
        span_id=made.span_id,
        trace_id=made.trace_id,
        name=str(transition.name),
        story=LEDGER,
        at_ms=1_000,
        body=made.body,
        leaf=leaf_hash(made.body),
        effect_id=None,
        state_to=None,
    )


SPAN = real_span()


def replace(row: SpanColumns, **changes: Any) -> SpanColumns:
    return row._replace(**changes)


def learned(*rows: SpanColumns) -> Forms:
    """Return forms that know those of real spans, so that the next one is held against a pattern."""
    forms = Forms()
    for row in rows or (SPAN,):
        for _ in range(LEARNED_AFTER):
            assert span_holds(LEDGER, row, forms)
    return forms


@pytest.mark.spec("AUD-05", "LED-06")
def test_a_span_holds_as_it_was_recorded() -> None:
    assert span_holds(LEDGER, SPAN, Forms())


EDITS: dict[str, Callable[[SpanColumns], SpanColumns]] = {
    "epoch": lambda row: replace(row, epoch=2),
    "lane": lambda row: replace(row, lane=1),
    "sequence": lambda row: replace(row, sequence=8),
    "effect": lambda row: replace(row, effect_id="eff_" + "0" * 32),
    "state": lambda row: replace(row, state_to="succeeded"),
    "span id": lambda row: replace(row, span_id="0" * 15 + "1"),
    "trace id": lambda row: replace(row, trace_id="0" * 31 + "1"),
    "name": lambda row: replace(row, name="refused"),
    "story": lambda row: replace(row, story="eff_" + "0" * 32),
    "instant": lambda row: replace(row, at_ms=InstantMs(1_001)),
    "white space": lambda row: replace(row, body=row.body + b"\n"),
    "order of keys": lambda row: replace(row, body=b'{"v":1,' + row.body[1:].replace(b',"v":1}', b"}")),
    "a key twice": lambda row: replace(row, body=row.body.replace(b'"v":1}', b'"v":1,"v":1}')),
    "escaped text": lambda row: replace(row, body=row.body.replace(b"ordinary", b"\\u006frdinary")),
}


def looked(**said: str) -> SpanColumns:
    """Return a span that tells of a look, about whom and what is said."""
    recorder = OtelRecorder(LEDGER, random_bytes=os.urandom, service_version="0")
    looking = Transition(
        name=TransitionName.OBSERVED,
        story=LEDGER,
        attributes={
            "permit.mode": "strict",
            "permit.caller": "u-ana",
            "permit.command": "audit query",
            "permit.count": 3,
            **{FOUND_BY[column]: value for column, value in said.items()},
        },
    )
    position = Position(ledger_id=LEDGER, epoch=1, lane=0, sequence=7)
    made = recorder.record(looking, position=position, parent_span_id=None, at_ms=InstantMs(1_000))
    return replace(
        SPAN, name="observed", body=made.body, span_id=made.span_id, trace_id=made.trace_id, **said
    )


@pytest.mark.spec("AUD-06", "LED-06")
def test_what_one_column_says_is_not_taken_for_what_another_says() -> None:
    """The two stand beside each other in a body, so a pattern gives their texts in the same place."""
    for_whom = looked(subject="u-ben")
    forms = learned(for_whom)
    assert span_holds(LEDGER, for_whom, forms)
    assert not span_holds(LEDGER, for_whom._replace(subject=None, task_id="u-ben"), forms)
    assert not span_holds(LEDGER, for_whom._replace(subject=None), forms)
    assert not span_holds(LEDGER, for_whom._replace(policies=("p1",)), forms)


@pytest.mark.spec("AUD-05", "LED-06")
@pytest.mark.parametrize("forms", [Forms(), learned()], ids=["unknown form", "known form"])
@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
def test_a_span_with_an_edited_column_or_body_does_not_hold(
    edit: Callable[[SpanColumns], SpanColumns], forms: Forms
) -> None:
    edited = edit(SPAN)
    assert edited != SPAN
    assert not span_holds(LEDGER, edited, forms)
    assert not span_holds(LedgerId("led_" + "1" * 32), SPAN, forms)
    assert span_holds(LEDGER, SPAN, forms)


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"1.5",
        b"NaN",
        b"\xff",
        b'{"attributes":[]}',
        SPAN.body.replace(b'"v":1}', b'"v":1.0}'),
    ],
)
def test_a_body_that_is_no_span_raises_what_a_check_expects(body: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        span_holds(LEDGER, replace(SPAN, body=body), Forms())


@pytest.mark.spec("LED-06")
def test_a_span_says_the_attributes_of_its_body_and_what_is_no_span_says_nothing() -> None:
    assert span_says(SPAN.body)["permit.caller"] == "u-ana"
    under_check = ground()
    assert under_check.said(SPAN.body) == {}
    under_check.proofs = dataclasses.replace(under_check.proofs, span_says=span_says)
    assert under_check.said(SPAN.body)["permit.mode"] == "ordinary"
    for body in (b"", b"[]", b"{}", b"1.5", b"\xff", b"[" * 100_000):
        assert under_check.said(body) == {}


@pytest.mark.spec("BUD-03", "SEC-01")
@pytest.mark.parametrize(
    ("texts", "amounts"),
    [
        (["EUR.cent=12", "publish=0"], {"EUR.cent": 12, "publish": 0}),
        ([], {}),
        (None, None),
        (["[redacted:token]"], None),
        (["EUR.cent=12", 7], None),
        ("EUR.cent=12", None),
    ],
)
def test_amounts_that_a_span_does_not_say_in_full_are_not_said(
    texts: object, amounts: dict[str, int] | None
) -> None:
    said = {} if texts is None else {"permit.charged": texts}
    assert amounts_said(said, "permit.charged") == amounts


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("size", [0, 1, 2, 3, 7, 8, 9, 100])
def test_the_streamed_tree_is_the_frontier_of_the_ledger(size: int) -> None:
    tree, frontier = GrowingTree(), Frontier()
    for number in range(size):
        leaf = leaf_hash(str(number).encode())
        tree.add(leaf)
        frontier = frontier.with_leaf(leaf)
    assert tree.frontier() == frontier
    assert tree.frontier().root() == frontier.root()


def ground() -> Ground:
    class Nobody:
        def tag(self, _domain: str, _data: bytes, *, like: bytes | None = None) -> bytes:  # noqa: ARG002 - a port
            return b""

        def is_authentic(self, _domain: str, _data: bytes, _tag: bytes) -> bool:
            return False

    proofs = Proofs(keys=Nobody(), binding_digest=None, open_seal=None, span_holds=None)
    return Ground(raw=None, ledger_id=LEDGER, proofs=proofs)


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(
    ("where", "shown"),
    [
        (("head",), "head"),
        (("spans", 7), "spans 7"),
        (("tasks", "x\n\x1b[2J"), "tasks x\\n\\x1b[2J"),
        (("tasks", "\u202egpj"), "tasks \\u202egpj"),
        (("sinks", "n" * 500), "sinks " + "n" * KEY_SHOWN_MAX),
    ],
)
def test_a_place_is_bounded_and_on_one_line(where: tuple[object, ...], shown: str) -> None:
    under_check = ground()
    under_check.find("word", where, "Something.")
    assert under_check.findings[0].where == shown


def test_findings_are_bounded_and_the_rest_is_said_to_be_more() -> None:
    under_check = ground()
    for number in range(FINDINGS_MAX):
        under_check.find("word", ("spans", number), "Something.")
    assert not under_check.cut
    under_check.find("word", ("spans",), "Something.")
    assert (len(under_check.findings), under_check.cut) == (FINDINGS_MAX, True)


@pytest.mark.spec("REP-07")
@pytest.mark.parametrize(
    ("fault", "word"),
    [(ValueError(), "unreadable"), (Malformed("x", None, "x"), "unreadable"), (DatabaseError(), "malformed")],
)
def test_a_part_that_the_damage_stops_is_a_finding_itself(fault: Exception, word: str) -> None:
    def stops(_ground: Ground) -> int:
        raise fault

    under_check = ground()
    assert _part(under_check, "tasks", stops, 0) == 0
    assert [(row.what, row.where) for row in under_check.findings] == [(word, "tasks")]


@pytest.mark.spec("REP-07")
def test_a_mistake_of_our_own_in_a_check_is_no_finding() -> None:
    with pytest.raises(ZeroDivisionError):
        _part(ground(), "tasks", lambda _ground: 1 // 0, 0)


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(("root", "key_id"), [(b"\x02" * 32, 7), (b"\x01" * 32, 8)])
def test_with_other_keys_nothing_is_authentic(book: Book, tmp_path: Path, root: bytes, key_id: int) -> None:
    ledger = book.open()
    stages(ledger)
    ledger.close()
    create_key_ring(tmp_path / "other", root=root, key_id=key_id)
    other = RingAuthenticator(open_key_ring(tmp_path / "other"))
    found = check_ledger(book.path, keys=other, stopwatch_ms=monotonic_ms).findings
    words = {row.what for row in found}
    assert {"head_mac", "task_mac", "grant_mac", "effect_mac"} <= words
    assert sum(row.what == "effect_mac" for row in found) == len(EffectState)


@pytest.mark.spec("LED-06")
def test_what_other_rooms_prove_is_asked_for_every_row_that_has_it(book: Book) -> None:
    ledger = book.open()
    made = stages(ledger)
    ledger.close()
    asked: list[tuple[object, ...]] = []

    def binding_digest(body: bytes) -> bytes:
        asked.append(("binding", body))
        return hashlib.sha256(body).digest()

    def open_seal(ledger_id: LedgerId, effect: object, permit: object) -> bool:
        asked.append(("seal", ledger_id, effect, permit))
        return False

    def holds(_ledger_id: LedgerId, row: SpanColumns) -> bool:
        asked.append(("span", row.sequence))
        if row.sequence == 1:
            raise Malformed("not_json", None, "no")
        return row.effect_id is None and row.state_to is None

    report = check_ledger(
        book.path,
        keys=book.keys,
        stopwatch_ms=monotonic_ms,
        binding_digest=binding_digest,
        open_seal=open_seal,
        span_holds=holds,
    )
    number = {what: sum(row.what == what for row in report.findings) for what in ("binding_digest", "seal")}
    permitted = 6  # permitted, admitted and the four that were admitted once
    assert number == {"binding_digest": len(made.effects), "seal": permitted}
    assert sum(row[0] == "span" for row in asked) == report.spans
    assert {row.where for row in report.findings if row.what == "span_differs"} >= {"spans 1"}


def test_the_time_it_takes_is_that_of_the_stopwatch(book: Book) -> None:
    readings = iter((1_000, 3_500))
    assert check_ledger(book.path, keys=book.keys, stopwatch_ms=lambda: next(readings)).seconds == 2.5


@pytest.mark.spec("LED-02", "BUD-04")
def test_stats_name_every_state_and_what_unknown_effects_hold(book: Book) -> None:
    ledger = book.open()
    stages(ledger)
    stats = read_stats(book.path, now_ms=START)
    ledger.close()
    assert dict(stats.effects) == dict.fromkeys(map(str, EffectState), 1)
    assert dict(stats.held_unknown) == {CENT: COST[CENT]}
    assert (stats.tasks, stats.ledger_id) == (3, ledger.ledger_id)
    assert stats.wal_bytes > 0
    assert read_stats(book.path, now_ms=START).wal_bytes == 0


@pytest.mark.spec("LED-02")
def test_stats_of_an_empty_ledger_are_zero(book: Book) -> None:
    stats = read_stats(book.path, now_ms=START)
    assert set(stats.effects.values()) == {0}
    assert (stats.spans, stats.tasks, dict(stats.held_unknown)) == (0, 0, {})


@pytest.mark.spec("LED-05")
def test_an_empty_ledger_has_no_finding(book: Book) -> None:
    report = check_ledger(book.path, keys=book.keys, stopwatch_ms=monotonic_ms)
    assert (report.findings, report.is_clean, report.spans) == ((), True, 0)


@pytest.mark.spec("ADM-07")
def test_only_a_lock_file_that_is_there_and_free_is_of_a_dead_instance(tmp_path: Path) -> None:
    assert dead_instances(tmp_path / "nowhere") == frozenset()
    alive, ended = Instance(tmp_path, "ins_alive"), Instance(tmp_path, "ins_ended")
    Instance(tmp_path, "ins_tidy").close(keep_file=False)
    ended.close(keep_file=True)
    (tmp_path / "ins_folder.lock").mkdir()
    (tmp_path / "ins_link.lock").symlink_to(tmp_path / "ins_ended.lock")
    (tmp_path / "ins_draft.new").touch()
    assert dead_instances(tmp_path) == {"ins_ended"}
    forget_instance(tmp_path, "ins_ended")
    forget_instance(tmp_path, "ins_ended")
    assert dead_instances(tmp_path) == frozenset()
    assert not alive.is_gone("ins_alive", alive.boot)
    alive.close(keep_file=False)


@pytest.mark.spec("ADM-07")
def test_a_lock_file_is_locked_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks for dead instances at the worst moment must not find one that is just beginning."""
    seen: list[frozenset[str]] = []
    link = os.link

    def looked_at(source: Path, target: Path) -> None:
        seen.append(dead_instances(tmp_path))
        link(source, target)
        seen.append(dead_instances(tmp_path))

    monkeypatch.setattr(os, "link", looked_at)
    one = Instance(tmp_path, "ins_one")
    assert seen == [frozenset(), frozenset()]
    assert [path.name for path in tmp_path.iterdir()] == ["ins_one.lock"]
    one.close(keep_file=False)


def test_the_encoding_that_a_comparison_uses_is_the_one_encoding() -> None:
    document = {"b": ["é", "\u2028", "\x1f", '"\\/'], "a": {"z": None, "k": True, "n": -5}, "C": ""}
    body = canonical_bytes(document)
    with pytest.raises(KeyError):  # it came past the encoding, and then there is no span in it
        span_holds(LEDGER, replace(SPAN, body=body), Forms())
