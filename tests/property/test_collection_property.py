"""Whatever an agent does in whatever order, and whenever it is collected: no total is wrong, nothing living goes."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.changes import EffectMoved, Step
from ledger.model import CounterTake, Effect, EffectId, InstantMs, Task
from ledger.port import View
from ledger.sqlite import SqliteLedger
from ledger.states import SETTLED, UNUSED, EffectState
from tests.support.collecting import WINDOW_MS, asked, collect
from tests.support.ledgers import (
    CENT,
    HOUR_MS,
    START,
    Book,
    admit,
    commit_steps,
    made_book,
    moving,
    open_task,
    permit,
    prepare,
    settle,
)
from tests.support.recount import recounted, totals

TAKES = (CounterTake(counter="task|pay|t", amount=1, ceiling=10**6, level="t"),)
ENDS = {"deny": EffectState.DENIED, "expire": EffectState.EXPIRED, "withdraw": EffectState.WITHDRAWN}
OUTCOMES = {
    "succeed": (EffectState.SUCCEEDED, 3),
    "fail": (EffectState.FAILED, 1),
    "overrun": (EffectState.SUCCEEDED, 25),
    "nothing": (EffectState.NO_EFFECT, 0),
    "lose": (EffectState.UNKNOWN, 0),
}
WANTED = {
    "collect": asked(),
    "collect_kept": asked(unused=2, keep_ms=HOUR_MS),
    "forget": asked(tombstones=1),
}
WAY = ("prepare", "permit", "admit")
"""What `whole` does in one go, before it settles."""

STEPS = (*WAY, "whole", *ENDS, *OUTCOMES, "wait", *WANTED)


@dataclass
class Life:
    """One ledger in use: what was made in it, and where each effect should stand."""

    book: Book
    ledger: SqliteLedger
    task: Task
    effects: list[Effect] = field(default_factory=list)
    states: dict[str, EffectState] = field(default_factory=dict)
    gone: dict[str, EffectState] = field(default_factory=dict)

    def oldest(self, *states: EffectState) -> Effect | None:
        """Return the first effect in one of these states that was not collected."""
        return next(
            (one for one in self.effects if self.states.get(one.effect_id) in states),
            None,
        )

    def move(self, effect: Effect, target: EffectState) -> None:
        """Note where an effect stands now."""
        self.states[effect.effect_id] = target

    def collected(self, effect_ids: tuple[str, ...]) -> None:
        """Hold what was collected against what may be."""
        for effect_id in effect_ids:
            state = self.states.pop(effect_id)
            assert state in SETTLED | UNUSED
            if state in SETTLED:
                effect = next(one for one in self.effects if one.effect_id == effect_id)
                assert effect.window_ends_ms <= self.book.clock.now
            self.gone[effect_id] = state


def prepared(life: Life, content: bytes) -> None:
    effect = prepare(
        life.ledger,
        life.task,
        {CENT: 10},
        content_key=content * 32,
        expires_ms=InstantMs(life.book.clock.now + HOUR_MS),
        window_ends_ms=InstantMs(life.book.clock.now + WINDOW_MS),
    )
    life.effects.append(effect)
    life.move(effect, EffectState.PREPARED)


def ended(life: Life, target: EffectState) -> None:
    states = (
        (EffectState.PREPARED,)
        if target is EffectState.DENIED
        else (EffectState.PREPARED, EffectState.PERMITTED)
    )
    effect = life.oldest(*states)
    if effect is None:
        return
    current = life.ledger.read(lambda view: view.effect(effect.effect_id))
    assert current is not None
    moved = EffectMoved(effect_id=effect.effect_id, origin=current.state, target=target)
    commit_steps(life.ledger, Step(transition=moving(current, target), changes=(moved,)))
    life.move(effect, target)


def settled(life: Life, target: EffectState, amount: int) -> None:
    states = (
        [EffectState.ADMITTED]
        if target is EffectState.UNKNOWN
        else [EffectState.ADMITTED, EffectState.UNKNOWN]
    )
    effect = life.oldest(*states)
    if effect is not None:
        settle(life.ledger, effect, target, {CENT: amount})
        life.move(effect, target)


def done(life: Life, step: str, content: bytes) -> None:
    match step:
        case "prepare":
            prepared(life, content)
        case "permit":
            effect = life.oldest(EffectState.PREPARED)
            if effect is not None and permit(life.ledger, effect, TAKES).refusal is None:
                life.move(effect, EffectState.PERMITTED)
        case "admit":
            effect = life.oldest(EffectState.PERMITTED)
            if effect is not None and admit(life.ledger, effect).refusal is None:
                life.move(effect, EffectState.ADMITTED)
        case "wait":
            life.book.clock.now += HOUR_MS
        case "collect" | "collect_kept" | "forget":
            before = totals(life.book.path)
            life.collected(collect(life.ledger, WANTED[step]))
            assert totals(life.book.path) == before
        case _ if step in ENDS:
            ended(life, ENDS[step])
        case _:
            settled(life, *OUTCOMES[step])


def told(life: Life) -> Mapping[str, EffectState]:
    """Return where each effect stands by the ledger's own word, collected or not; forgotten ones are left out."""

    def look(view: View) -> dict[str, EffectState]:
        found = {str(one.effect_id): one.state for one in view.effects(states=())}
        for effect_id in life.gone:
            tombstone = view.tombstone(EffectId(effect_id))
            if tombstone is not None:
                found[effect_id] = tombstone.state
        return found

    return life.ledger.read(look)


@pytest.mark.spec("LED-02", "PER-04", "BUD-04", "POL-02")
@settings(max_examples=30)
@example(steps=[("whole", b"a"), ("whole", b"b"), ("whole", b"a"), *[("wait", b"a")] * 3, ("collect", b"a")])
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from((b"a", b"b"))), min_size=8, max_size=40)
)
def test_totals_hold_and_nothing_that_lives_is_collected(steps: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory(prefix="collection-") as folder:
        book = made_book(Path(folder) / "book")
        book.clock.now = START
        ledger = book.open()
        life = Life(
            book=book, ledger=ledger, task=open_task(ledger, "org", {CENT: 10_000}, expires_ms=START + 10**12)
        )
        for step, content in steps:
            for part in (*WAY, "succeed") if step == "whole" else (step,):
                done(life, part, content)
        recounted(book.path)
        found = told(life)
        assert {name: state for name, state in found.items() if name not in life.gone} == life.states
        kept = {name for name, state in life.gone.items() if name in found}
        assert all(found[name] == life.gone[name] for name in kept)
        # Only what was over without a permit may be forgotten, and what was used is used for ever.
        for name in life.gone.keys() - kept:
            assert life.gone[name] in UNUSED
        ledger.close()
