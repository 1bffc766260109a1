"""Standing questions on every store: what was issued and never used, whatever became of it (AUD-06)."""

from collections.abc import Sequence
from functools import partial

import pytest

from ledger.model import Effect, Task
from ledger.port import Ledger, SpanFilter, View
from ledger.questions import UnusedPermit
from ledger.states import EffectState
from ledger.transitions import SpanRow, TransitionName
from tests.contract.conftest import Store
from tests.contract.test_ledger_collection import denied, end
from tests.support.collecting import asked, collect
from tests.support.ledgers import (
    CENT,
    admitted_effect,
    open_task,
    permitted_effect,
    prepare,
    settle,
    without_guards,
)

S = EffectState


@pytest.fixture
def task(ledger: Ledger) -> Task:
    return open_task(ledger, "org", {CENT: 1_000})


def after_one(view: View, last: tuple[int, str], page: int) -> Sequence[UnusedPermit]:
    return view.permits_unused(after=last, limit=page)


def unused(ledger: Ledger, page: int) -> list[tuple[str, str]]:
    """Ask page by page, and return effects with the states that are told."""
    found = list(ledger.read(lambda view: view.permits_unused(limit=page)))
    more: Sequence[UnusedPermit] = found
    while more:
        last = (found[-1].sequence, found[-1].effect_id)
        more = ledger.read(partial(after_one, last=last, page=page))
        found += more
    return [(one.effect_id, str(one.state)) for one in found]


def ended(ledger: Ledger, task: Task, target: EffectState) -> Effect:
    effect = permitted_effect(ledger, task, {CENT: 1})
    end(ledger, effect, target)
    return effect


@pytest.mark.spec("AUD-06", "LED-02")
@pytest.mark.parametrize("page", [1, 2, 100])
def test_permits_that_were_issued_and_never_used_are_told_even_once_they_are_collected(
    ledger: Ledger, task: Task, page: int
) -> None:
    gone = [ended(ledger, task, target) for target in (S.EXPIRED, S.WITHDRAWN, S.REVOKED)]
    never = denied(ledger, task)
    assert len(collect(ledger, asked())) == 4
    for target in (S.SUCCEEDED, S.UNKNOWN):
        settle(ledger, admitted_effect(ledger, task, {CENT: 1}), target, {CENT: 1})
    admitted_effect(ledger, task, {CENT: 1})
    prepare(ledger, task, {CENT: 1})
    end(ledger, prepare(ledger, task, {CENT: 1}), S.EXPIRED)
    denied(ledger, task)
    over = ended(ledger, task, S.EXPIRED)
    waiting = permitted_effect(ledger, task, {CENT: 1})
    told = unused(ledger, page)
    assert sorted(told[:3]) == sorted(
        [
            (effect.effect_id, state)
            for effect, state in zip(gone, ("expired", "withdrawn", "revoked"), strict=True)
        ]
    )
    assert told[3:] == [(over.effect_id, "expired"), (waiting.effect_id, "permitted")]
    assert never.effect_id not in dict(told)
    (first, *_rest) = ledger.read(lambda view: view.permits_unused(limit=1))
    tombstone = ledger.read(lambda view: view.tombstone(first.effect_id))
    assert tombstone is not None
    assert (first.permit_id, first.actor, first.subject) == (
        *(tombstone.permit_id, tombstone.actor),
        tombstone.subject,
    )
    assert (first.task_id, first.operation) == (task.task_id, tombstone.operation)


@pytest.mark.spec("AUD-06", "LED-06")
def test_a_permit_that_was_used_is_not_told_as_unused_whatever_its_row_says(
    store: Store, ledger: Ledger, task: Task
) -> None:
    used = admitted_effect(ledger, task, {CENT: 1})
    without_guards(
        store.path,  # type: ignore[attr-defined]  # the attack is one of SQLite
        f"UPDATE effects SET state = 'permitted' WHERE effect_id = '{used.effect_id}'",  # noqa: S608 - our own id
    )
    assert unused(ledger, 10) == []


def find(ledger: Ledger, wanted: SpanFilter, *, newest_first: bool) -> list[SpanRow]:
    return list(ledger.read(lambda view: view.find_spans(wanted, limit=5, newest_first=newest_first)))


@pytest.mark.spec("AUD-06")
def test_a_question_without_an_answer_has_none(ledger: Ledger, task: Task) -> None:
    for wanted in (
        SpanFilter(story="eff_0"),
        SpanFilter(actor="nobody"),
        SpanFilter(resource="half a character: \udc80"),
        SpanFilter(policy="\ud800", actor="nobody"),
        SpanFilter(names=frozenset({TransitionName.KEY_REVOKED})),
        SpanFilter(names=frozenset({TransitionName.TASK_OPENED}), states=frozenset({S.PREPARED})),
    ):
        for falls in (False, True):
            assert find(ledger, wanted, newest_first=falls) == []
    assert len(ledger.read(lambda view: view.find_spans(SpanFilter(), limit=5))) == 1
    assert list(ledger.read(lambda view: view.find_spans(SpanFilter(), limit=0))) == []
