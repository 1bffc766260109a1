"""The story of one effect: in order, readable, and never built from rows that were changed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from audit.timeline import readable_line, timeline
from ledger.errors import LedgerCorrupt
from ledger.model import EffectId, InstantMs, LedgerId
from ledger.port import View
from ledger.transitions import SpanRow, TransitionName
from ledger.tree import leaf_hash
from tests.support.spans import EFFECT, START_MS, SpansInMemory, sample, settled_story

OTHER = EffectId("eff_" + "9" * 32)


def told(source: SpansInMemory, story: str) -> tuple[object, ...]:
    # The list answers `story` as a view does, which is all that a timeline asks of one.
    return timeline(cast("View", source), story)


@pytest.mark.spec("AUD-05")
def test_an_effect_tells_its_story_in_order_among_others() -> None:
    source = SpansInMemory(1)
    settled_story(source)
    settled_story(source, OTHER)
    entries = timeline(cast("View", source), EFFECT)
    assert [(entry.sequence, entry.name, entry.state_from, entry.state_to) for entry in entries] == [
        (2, "effect.prepared", None, "prepared"),
        (3, "effect.permitted", "prepared", "permitted"),
        (4, "effect.admitted", "permitted", "admitted"),
        (5, "effect.succeeded", "admitted", "succeeded"),
    ]
    assert entries[2].attributes["permit.reservation"] == (
        "ap-2026-12-01:EUR.cent=14950",
        "accounts-payable:EUR.cent=14950",
    )


@pytest.mark.spec("AUD-05")
def test_a_story_is_one_trace_with_an_unbroken_chain_of_parents() -> None:
    source = SpansInMemory()
    settled_story(source)
    settled_story(source, OTHER)
    rows = source.story(EFFECT)
    assert len({row.trace_id for row in rows}) == 1
    assert {row.trace_id for row in rows}.isdisjoint(row.trace_id for row in source.story(OTHER))
    parents = [entry_parent(row) for row in rows]
    assert parents == [None, *(row.span_id for row in rows[:-1])]


def entry_parent(row: SpanRow) -> str | None:
    text = row.body.decode().split('"parent":')[1].split(",")[0].strip('"')
    return None if text == "null" else text


@pytest.mark.spec("AUD-05")
def test_an_unknown_story_is_empty() -> None:
    assert told(SpansInMemory(3), EFFECT) == ()


@pytest.mark.spec("AUD-05")
def test_an_entry_reads_as_one_line_in_utc() -> None:
    source = SpansInMemory()
    source.add(sample(TransitionName.EFFECT_PREPARED, actor="ap-bot"))
    line = readable_line(timeline(cast("View", source), EFFECT)[0])
    assert line.startswith("     1  2026-12-01T00:00:00.001Z  effect.prepared  - -> prepared  actor=ap-bot  ")
    assert "cost=EUR.cent=14950" in line
    assert "permit." not in line
    assert source.story(EFFECT)[0].at_ms == START_MS + 1


@pytest.mark.spec("SEC-01")
def test_a_line_shows_what_a_terminal_would_act_on_as_an_escape() -> None:
    source = SpansInMemory()
    source.add(sample(TransitionName.EFFECT_PREPARED))
    entry = timeline(cast("View", source), EFFECT)[0]
    line = readable_line(replace(entry, attributes={"permit.actor": "a\x1b[2J\nb", "permit.late": True}))
    assert line.isprintable()
    assert "late=yes" in line


def other_body(row: SpanRow) -> SpanRow:
    body = row.body.replace(b"ap-bot", b"eve-bt")
    return replace(row, body=body, leaf=leaf_hash(body), trace_id="0" * 32)


CHANGES: list[tuple[str, Callable[[SpanRow], SpanRow]]] = [
    ("body without its hash", lambda row: replace(row, body=row.body.replace(b"ap-bot", b"eve-bt"))),
    ("hash without its body", lambda row: replace(row, leaf=bytes(32))),
    ("not JSON", lambda row: replace(row, body=b"{", leaf=leaf_hash(b"{"))),
    ("not a span", lambda row: replace(row, body=b"[]", leaf=leaf_hash(b"[]"))),
    ("no attributes", lambda row: replace(row, body=b'{"v":1}', leaf=leaf_hash(b'{"v":1}'))),
    ("name", lambda row: replace(row, name="effect.failed")),
    ("instant", lambda row: replace(row, at_ms=InstantMs(row.at_ms + 1))),
    ("span id", lambda row: replace(row, span_id="0" * 16)),
    ("trace id", lambda row: replace(row, trace_id="0" * 32)),
    ("sequence", lambda row: replace(row, position=replace(row.position, sequence=77))),
    ("epoch", lambda row: replace(row, position=replace(row.position, epoch=1))),
    ("lane", lambda row: replace(row, position=replace(row.position, lane=1))),
    ("ledger", lambda row: replace(row, position=replace(row.position, ledger_id=LedgerId("ldg_other")))),
    ("body of another span", other_body),
]


@pytest.mark.spec("AUD-05", "AUD-04")
@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[name for name, _ in CHANGES])
def test_a_row_that_was_changed_is_no_part_of_any_story(change: Callable[[SpanRow], SpanRow]) -> None:
    source = SpansInMemory()
    row = source.add(sample(TransitionName.EFFECT_PREPARED))
    source._rows[0] = change(row)
    with pytest.raises(LedgerCorrupt):
        told(source, EFFECT)


class Misfiled(SpansInMemory):
    """A view that answers with the rows of another story."""

    def story(self, story: str) -> Sequence[SpanRow]:
        return super().story(OTHER if story == EFFECT else EFFECT)


@pytest.mark.spec("AUD-05")
def test_rows_of_another_story_are_no_part_of_this_one() -> None:
    source = Misfiled()
    settled_story(source, OTHER)
    with pytest.raises(LedgerCorrupt):
        told(source, EFFECT)


@pytest.mark.spec("AUD-05")
def test_a_span_filed_under_another_story_is_noticed() -> None:
    source = SpansInMemory()
    row = source.add(sample(TransitionName.EFFECT_PREPARED))
    source._rows[0] = replace(row, story=OTHER)
    with pytest.raises(LedgerCorrupt):
        told(source, OTHER)
