"""What reviewers ask of a trail: the same as if every body were read, and at the cost of what is found (AUD-06).

Work is counted in steps of SQLite's own machine, which are the same on every computer.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.recorder import OtelRecorder
from audit.vocabulary import SPANS as SPANS_OF_THE_VOCABULARY
from ledger.changes import Step
from ledger.model import EffectId, InstantMs
from ledger.port import SpanFilter, Verdict, View
from ledger.questions import FOUND_BY, MOVES_TO, POLICY_IDS
from ledger.sqlite import SqliteLedger
from ledger.sqlite.connection import open_database
from ledger.sqlite.damaged import DamagedView
from ledger.sqlite.span_view import DONE_MAX
from ledger.states import EffectState
from ledger.transitions import SpanRow, Transition, TransitionName
from tests.support import long_trail as told
from tests.support.ledgers import START, Book, attacker, commit_steps, made_book, probe
from tests.support.long_trail import long_trail
from tests.support.old_release import NUMBERS, old_issuer
from tests.support.upgrading import opened as upgraded

SPANS = 1_500
ALL = 100_000
NO = {"effect.denied", "refused"}
DONE = {"effect.admitted", "effect.succeeded"}
Said = Mapping[str, Any]
Trail = list[tuple[SpanRow, Said]]


def found(ledger: SqliteLedger, wanted: SpanFilter, **how: Any) -> list[int]:
    return sequences(ledger.read(lambda view: view.find_spans(wanted, **how)))


def at_instant(ledger: SqliteLedger, at_ms: int) -> int:
    return ledger.read(lambda view: view.sequence_at(InstantMs(at_ms)))


def counted(view: View, first: int, last: int) -> dict[str, int]:
    return dict(view.count_spans(first, last))


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Book:
    return long_trail(Path(tmp_path_factory.mktemp("told")) / "book", spans=SPANS)


@pytest.fixture(scope="module")
def ledger(book: Book) -> Iterator[SqliteLedger]:
    opened = book.open()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def damaged(book: Book, ledger: SqliteLedger) -> Iterator[DamagedView]:
    raw = open_database(book.path, journal_mode="wal", read_only=True)
    yield DamagedView(raw, ledger_id=ledger.ledger_id)
    raw.close()


@pytest.fixture(scope="module")
def trail(ledger: SqliteLedger) -> Trail:
    return bodies(ledger.read(lambda view: view.spans_after(0, limit=ALL)))


def bodies(spans: Iterator[SpanRow] | Any) -> Trail:
    return [(span, json.loads(span.body)["attributes"]) for span in spans]


PARTS = {"story": "permit.story", "policy": POLICY_IDS, "task": FOUND_BY["task_id"]} | {
    name: FOUND_BY[name] for name in ("actor", "subject", "operation", "resource", "signer")
}


def is_wanted(span: SpanRow, said: Said, wanted: SpanFilter) -> bool:
    """Say whether a span is wanted, by its body alone."""
    for part, attribute in PARTS.items():
        value, found = getattr(wanted, part), said.get(attribute)
        if value is not None and value != found and not (isinstance(found, list) and value in found):
            return False
    return (
        (not wanted.names or said["permit.transition"] in wanted.names)
        and (not wanted.states or said.get("permit.state.to") in wanted.states)
        and (wanted.since_ms is None or span.at_ms >= wanted.since_ms)
        and (wanted.until_ms is None or span.at_ms < wanted.until_ms)
    )


def sequences(spans: Any) -> list[int]:
    return [span.position.sequence for span in spans]


@st.composite
def filters(draw: st.DrawFn) -> SpanFilter:
    """Ask for some of what the trail has, and now and then for what it has not."""
    values = {
        "actor": (*told.ACTORS, "nobody"),
        "subject": told.SUBJECTS,
        "task": told.TASKS,
        "operation": told.OPERATIONS,
        "resource": tuple(f"account/{number:x}" for number in range(told.FEW)),
        "signer": told.SIGNERS,
        "policy": (*told.POLICIES, told.SECOND_POLICY),
    }
    parts = draw(st.sets(st.sampled_from(sorted(values)), max_size=3))
    instants = st.none() | st.integers(START, START + SPANS * told.STEP_MS // 2).map(InstantMs)
    given_parts: dict[str, Any] = {part: draw(st.sampled_from(values[part])) for part in sorted(parts)}
    return SpanFilter(
        **given_parts,
        names=draw(st.frozensets(st.sampled_from(list(TransitionName)), max_size=9) | st.just(frozenset())),
        states=draw(st.frozensets(st.sampled_from(list(EffectState)), max_size=2)),
        since_ms=draw(instants),
        until_ms=draw(instants),
    )


@pytest.mark.spec("AUD-06")
@settings(max_examples=150, deadline=None)
@given(
    wanted=filters(),
    page=st.tuples(
        st.integers(0, SPANS),
        st.none() | st.integers(0, SPANS + 5),
        st.integers(1, 60),
        st.booleans(),
    ),
)
def test_what_is_found_is_what_the_bodies_say(
    ledger: SqliteLedger,
    damaged: DamagedView,
    trail: Trail,
    wanted: SpanFilter,
    page: tuple[int, int | None, int, bool],
) -> None:
    after, before, limit, falls = page
    end = ALL if before is None else before
    fitting = [span for span, said in trail if is_wanted(span, said, wanted)]
    expected = [at for at in sequences(fitting) if after < at < end]

    def look(view: View) -> list[int]:
        spans = view.find_spans(wanted, after=after, before=before, limit=limit, newest_first=falls)
        return sequences(spans)

    assert ledger.read(look) == look(damaged) == (expected[::-1] if falls else expected)[:limit]


@pytest.mark.spec("AUD-06")
def test_what_no_span_can_say_is_found_nowhere_in_a_damaged_ledger_either(damaged: DamagedView) -> None:
    for wanted in (SpanFilter(actor="\ud800"), SpanFilter(policy="\ud800")):
        assert list(damaged.find_spans(wanted, limit=5)) == []


@pytest.mark.spec("AUD-06")
def test_pages_follow_each_other_without_a_gap_and_without_an_end_that_repeats(
    ledger: SqliteLedger, trail: Trail
) -> None:
    wanted = SpanFilter(actor=told.ACTORS[0], names=frozenset({TransitionName.EFFECT_PREPARED}))
    pages: list[int] = []
    while page := found(ledger, wanted, after=max(pages, default=0), limit=7):
        pages += page
    assert pages == [span.position.sequence for span, said in trail if is_wanted(span, said, wanted)]
    assert len(pages) > 7


@pytest.mark.spec("AUD-06", "LED-05")
def test_each_state_is_found_by_the_names_that_move_into_it() -> None:
    moving = {name: shape.state_to for name, shape in SPANS_OF_THE_VOCABULARY.items()}
    for state in EffectState:
        assert MOVES_TO[state] == {name for name, to in moving.items() if to is state}, state


@pytest.mark.spec("AUD-06")
def test_spans_are_counted_by_name(ledger: SqliteLedger, damaged: DamagedView, trail: Trail) -> None:
    for first, last in ((1, SPANS), (100, 400), (SPANS, SPANS), (SPANS + 1, ALL), (5, 4)):
        expected = Counter(span.name for span, _said in trail[first - 1 : last])
        assert ledger.read(partial(counted, first=first, last=last)) == expected
        assert counted(damaged, first, last) == expected


@pytest.mark.spec("AUD-06")
def test_an_instant_is_the_sequence_of_the_first_span_from_there_on(
    ledger: SqliteLedger, trail: Trail
) -> None:
    for at in {
        0,
        START,
        ALL * START,
        *(span.at_ms + more for span, _said in trail[::50] for more in (-1, 0, 1)),
    }:
        expected = next((span.position.sequence for span, _said in trail if span.at_ms >= at), SPANS + 1)
        assert at_instant(ledger, at) == expected


@pytest.mark.spec("AUD-06", "PER-03")
def test_a_clock_that_was_set_back_hides_nothing_of_a_period(tmp_path: Path) -> None:
    """Time falls where an operator accepted the clock, twice here, and each period lies in more than one place."""
    made = made_book(tmp_path / "book")
    opened = made.open()
    accepting = Step(transition=Transition(name=TransitionName.CLOCK_ACCEPTED, story=opened.ledger_id))
    assert at_instant(opened, 5) == 1
    for begin in (START + 500, START + 100, START + 300):
        made.clock.now = begin
        opened.transact(lambda _view, _now: Verdict(value=None, steps=(accepting,)), accept_clock=True)
        for _ in range(30):
            made.clock.now += 20
            probe(opened)
    spans = opened.read(lambda view: view.spans_after(0, limit=ALL))
    for since, until in ((100, 300), (300, 700), (690, 900), (0, 2_000), (1_101, 2_000), (400, 400)):
        wanted = SpanFilter(since_ms=InstantMs(START + since), until_ms=InstantMs(START + until))
        expected = [s.position.sequence for s in spans if since <= s.at_ms - START < until]
        for named in (wanted, replace(wanted, names=frozenset({TransitionName.PROBE}))):
            kept = [at for at in expected if not named.names or spans[at - 1].name == "ledger.probe"]
            for falls in (False, True):
                assert found(opened, named, limit=ALL, newest_first=falls) == (kept[::-1] if falls else kept)
        first = next((s.position.sequence for s in spans if s.at_ms >= START + since), len(spans) + 1)
        assert at_instant(opened, START + since) == first
    opened.close()


@pytest.mark.spec("AUD-06")
@pytest.mark.parametrize("window_ms", [0, 10_000, 60_000, 10**9])
def test_denied_and_then_done_is_found_on_the_same_resource_within_the_window(
    ledger: SqliteLedger, damaged: DamagedView, trail: Trail, window_ms: int
) -> None:
    expected: dict[int, list[int]] = {}
    for denied, said in trail:
        if said["permit.transition"] in NO and "permit.resource.id" in said:
            done = [
                other.position.sequence
                for other, told_of in trail[denied.position.sequence :]
                if told_of["permit.transition"] in DONE
                and all(
                    name not in said or told_of.get(name) == said[name]
                    for name in ("permit.resource.id", "permit.subject", "permit.operation")
                )
                and other.at_ms <= denied.at_ms + window_ms
            ]
            if done:
                expected[denied.position.sequence] = done[:DONE_MAX]

    def look(view: View) -> dict[int, list[int]]:
        pairs = view.denied_then_done(SpanFilter(), window_ms=window_ms, limit=ALL)
        return {one.denied.position.sequence: sequences(one.done) for one in pairs}

    assert ledger.read(look) == look(damaged) == expected
    assert expected or not window_ms
    page = ledger.read(
        lambda view: view.denied_then_done(SpanFilter(), window_ms=window_ms, after=300, limit=2)
    )
    assert [one.denied.position.sequence for one in page] == [at for at in expected if at > 300][:2]


@pytest.mark.spec("AUD-06")
def test_what_others_do_to_the_same_resource_hides_nothing_that_was_done_after_a_no(tmp_path: Path) -> None:
    opened = made_book(tmp_path / "book").open()

    def recorded(kind: str, number: int, subject: str, operation: str) -> int:
        shape, effect = told.KINDS[kind], EffectId(f"eff_{number:032x}")
        about = {
            "permit.actor": "agent-7",
            "permit.subject": subject,
            "permit.operation": operation,
            "permit.resource.id": "account/everybody",
        }
        step = Step(
            transition=Transition(
                name=shape.name,
                story=effect,
                effect_id=effect,
                state_from=shape.origin,
                state_to=shape.target,
                attributes={**shape.attributes, **about},
            )
        )
        commit_steps(opened, step)
        return opened.read(lambda view: view.head().sequence)

    no = recorded("denied", 1, "bob", "pay")
    for number in range(DONE_MAX):
        recorded("admitted", 2 + number, *(("ana", "pay") if number % 2 else ("bob", "look")))
    done = recorded("admitted", 2 + DONE_MAX, "bob", "pay")
    (pair,) = opened.read(lambda view: view.denied_then_done(SpanFilter(), window_ms=10**9, limit=ALL))
    assert (pair.denied.position.sequence, sequences(pair.done)) == (no, [done])
    opened.close()


def stored(book: Book, sequence: int) -> dict[str, Any]:
    raw = attacker(book.path)
    names = ", ".join(FOUND_BY)
    (row,) = raw.execute(f"SELECT {names} FROM spans WHERE sequence = ?", (sequence,)).fetchall()  # noqa: S608
    raw.close()
    return dict(zip(FOUND_BY, row, strict=True))


@pytest.mark.spec("AUD-06", "SEC-01")
def test_a_column_repeats_what_the_body_keeps_and_not_what_was_redacted(tmp_path: Path) -> None:
    secret = "sk-Canary0123456789"
    made = made_book(tmp_path / "book")
    opened = made.open(recorder=lambda name: OtelRecorder(name, random_bytes=os.urandom, service_version="0"))
    kind = told.KINDS["succeeded"]
    effect = EffectId(f"eff_{'0' * 32}")
    outcome = Transition(
        name=kind.name,
        story=effect,
        effect_id=effect,
        state_from=kind.origin,
        state_to=kind.target,
        attributes={**kind.attributes, "permit.resource.id": secret, "permit.actor": "agent-7"},
    )
    commit_steps(opened, Step(transition=outcome))
    (span,) = opened.read(lambda view: view.find_spans(SpanFilter(actor="agent-7"), limit=5))
    assert secret.encode() not in span.body
    columns = stored(made, span.position.sequence)
    assert columns["resource"] == json.loads(span.body)["attributes"]["permit.resource.id"]
    assert columns["resource"] == "[redacted:api_key]"
    assert found(opened, SpanFilter(resource=secret), limit=5) == []
    opened.close()
    assert all(secret.encode() not in path.read_bytes() for path in made.folder.glob("ledger*"))


@pytest.mark.spec("AUD-06", "LED-04")
@pytest.mark.parametrize("number", NUMBERS)
def test_a_ledger_of_an_earlier_release_is_asked_as_one_of_this(tmp_path: Path, number: int) -> None:
    made = old_issuer(tmp_path / "old", number=number)
    with upgraded(made) as issuer:
        old = issuer._house.ledger
        spans = bodies(old.read(lambda view: view.spans_after(0, limit=ALL)))
        said = {
            name: {held[a] for _span, held in spans if a in held}
            for name, a in PARTS.items()
            if name != "policy"
        }
        assert {name for name, values in said.items() if values} >= {"actor", "subject", "task", "operation"}
        for name, values in said.items():
            for value in values:
                wanted = SpanFilter(**{name: value})
                expected = [span.position.sequence for span, held in spans if is_wanted(span, held, wanted)]
                assert sequences(old.read(partial(all_of, wanted=wanted))) == expected
        policies = {policy for _span, held in spans for policy in held.get(POLICY_IDS, [])}
        assert policies
        for policy in policies:
            wanted = SpanFilter(policy=policy)
            expected = [span.position.sequence for span, held in spans if is_wanted(span, held, wanted)]
            assert sequences(old.read(partial(all_of, wanted=wanted))) == expected


def all_of(view: View, wanted: SpanFilter) -> Any:
    return view.find_spans(wanted, limit=ALL)
