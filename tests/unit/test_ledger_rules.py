"""The functional core: each rule says its one no, at exactly its instant, and nothing else."""

import dataclasses
from collections.abc import Mapping

import pytest

from ledger import rules
from ledger.changes import CostSettled, EffectMoved, EvidenceAdded
from ledger.invocations import Invocation, InvocationOutcome
from ledger.model import (
    AMOUNT_MAX,
    CounterTake,
    EvidenceClass,
    InstantMs,
    InvocationId,
    PathNode,
    Task,
    TaskId,
    TaskState,
    Unit,
)
from ledger.refusals import Refusal, RefusalCode
from ledger.states import EffectState
from tests.support.ledgers import CENT, CLAIM_HASH, START, new_claim, new_effect, new_permit, new_task

FEE = Unit("EUR.fee")
ORG = new_task("org")
LEAF = new_task("leaf", ORG)
EFFECT = new_effect(LEAF, {CENT: 100})
PERMIT = new_permit(EFFECT)
CLAIM = new_claim(EFFECT)
S = EffectState


def path(leaf: Task = LEAF, org: Task = ORG) -> tuple[PathNode, ...]:
    return (PathNode(task=leaf, budget={}), PathNode(task=org, budget={}))


def told(refusal: Refusal | None) -> tuple[str, str | None, str | None] | None:
    return None if refusal is None else (str(refusal.code), refusal.field, refusal.level)


@pytest.mark.spec("BUD-05")
@pytest.mark.parametrize(
    ("state", "code"), [(TaskState.FROZEN, "task_frozen"), (TaskState.CLOSED, "task_closed")]
)
def test_a_task_that_is_not_open_refuses_and_the_lowest_speaks_first(state: TaskState, code: str) -> None:
    leaf, org = dataclasses.replace(LEAF, state=state), dataclasses.replace(ORG, state=state)
    assert told(rules.refuse_path(path(), START)) is None
    assert told(rules.refuse_path(path(org=org), START)) == (code, None, "org")
    assert told(rules.refuse_path(path(leaf, org), START)) == (code, None, "leaf")


@pytest.mark.spec("BUD-05", "PER-03")
def test_a_task_is_over_at_exactly_its_instant_at_any_level() -> None:
    org = dataclasses.replace(ORG, expires_ms=InstantMs(START + 10))
    assert rules.refuse_path(path(org=org), InstantMs(START + 9)) is None
    assert told(rules.refuse_path(path(org=org), InstantMs(START + 10))) == ("task_expired", None, "org")
    leaf = dataclasses.replace(LEAF, expires_ms=InstantMs(START + 10))
    assert told(rules.refuse_path(path(leaf), InstantMs(START + 11))) == ("task_expired", None, "leaf")


def test_a_task_that_is_not_there_is_an_unknown_reference() -> None:
    assert told(rules.refuse_path((), START)) == ("unknown_reference", "task", None)


@pytest.mark.spec("BUD-01")
@pytest.mark.parametrize(
    ("actor", "subject", "no"),
    [
        ("agent-7", "u-ana", None),
        ("agent-8", "u-ana", ("forbidden", "actor", "leaf")),
        ("agent-7", "u-bob", ("forbidden", "subject", "leaf")),
        ("", "", ("forbidden", "actor", "leaf")),
        ("agent-7 ", "u-ana", ("forbidden", "actor", "leaf")),
    ],
)
def test_only_the_actors_and_the_subject_of_the_task_may_act(
    actor: str, subject: str, no: tuple[str, str, str] | None
) -> None:
    assert told(rules.refuse_actor(path(), actor, subject)) == no


@pytest.mark.spec("BUD-01")
def test_an_actor_of_an_ancestor_alone_may_not_act_in_a_narrower_child() -> None:
    org = dataclasses.replace(ORG, actors=("agent-7", "agent-8"))
    assert rules.refuse_actor(path(org=org), "agent-8", "u-ana") is not None


STATES: Mapping[EffectState, tuple[str | None, str | None]] = {
    S.PREPARED: ("not_permitted_yet", "not_permitted_yet"),
    S.AWAITING_APPROVAL: ("not_permitted_yet", "not_permitted_yet"),
    S.PERMITTED: (None, "not_permitted_yet"),
    S.DENIED: ("denied", "denied"),
    S.DECLINED: ("declined", "declined"),
    S.WITHDRAWN: ("withdrawn", "withdrawn"),
    S.EXPIRED: ("expired", "expired"),
    S.REVOKED: ("revoked", "revoked"),
    S.ADMITTED: ("already_consumed", None),
    S.UNKNOWN: ("outcome_unknown", None),
    S.SUCCEEDED: ("already_consumed", "already_consumed"),
    S.FAILED: ("already_consumed", "already_consumed"),
    S.NO_EFFECT: ("already_consumed", "already_consumed"),
}
"""What admission and what settling answer in each state; None is no objection."""


@pytest.mark.spec("LED-05", "ADM-04", "REP-01")
@pytest.mark.parametrize("state", EffectState)
def test_each_state_has_its_answer_to_admission_and_to_settling(state: EffectState) -> None:
    effect = dataclasses.replace(EFFECT, state=state)
    admission, settling = rules.refuse_state(effect), rules.refuse_settling(effect)
    found = (
        None if admission is None else str(admission.code),
        None if settling is None else str(settling.code),
    )
    assert found == STATES[state]


PERMITS = [
    ("no permit", None, False, False, START, "not_permitted_yet"),
    ("in time", PERMIT, False, False, START, None),
    ("the last millisecond", PERMIT, False, False, PERMIT.expires_ms - 1, None),
    ("exactly over", PERMIT, False, False, PERMIT.expires_ms, "expired"),
    ("used", PERMIT, True, False, START, "already_consumed"),
    ("in the trail only", PERMIT, False, True, START, "already_consumed"),
    ("used and over", PERMIT, True, True, PERMIT.expires_ms, "already_consumed"),
]


@pytest.mark.spec("PER-03", "ADM-02", "LED-06")
@pytest.mark.parametrize(
    ("what", "permit", "used", "in_trail", "now", "code"), PERMITS, ids=[row[0] for row in PERMITS]
)
def test_a_permit_is_refused_missing_spent_or_over(  # noqa: PLR0917 - one row of the table
    what: str, permit: object, used: bool, in_trail: bool, now: int, code: str | None
) -> None:
    found = rules.refuse_permit(permit, used=used, in_trail=in_trail, now=InstantMs(now))  # type: ignore[arg-type]
    assert (None if found is None else str(found.code)) == code


@pytest.mark.spec("PER-03")
def test_a_binding_is_over_at_exactly_its_instant() -> None:
    assert rules.refuse_expiry(EFFECT, InstantMs(EFFECT.expires_ms - 1)) is None
    assert told(rules.refuse_expiry(EFFECT, EFFECT.expires_ms)) == ("expired", None, None)


@pytest.mark.spec("POL-03")
@pytest.mark.parametrize(
    ("amount", "ceiling", "used", "is_refused"),
    [
        (1, 1, 0, False),
        (1, 1, 1, True),
        (0, 1, 1, False),
        (0, 1, 2, True),
        (3, 5, 2, False),
        (4, 5, 2, True),
        (AMOUNT_MAX, AMOUNT_MAX, 0, False),
    ],
)
def test_a_class_bound_is_refused_when_it_is_used_up(
    amount: int, ceiling: int, used: int, is_refused: bool
) -> None:
    full = CounterTake(counter="a", amount=amount, ceiling=ceiling, level="org")
    free = CounterTake(counter="b", amount=1, ceiling=9, level="the day")
    for takes in ((full, free), (free, full)):
        found = rules.refuse_takes(takes, {"a": used, "b": 0})
        assert told(found) == (("class_exhausted", None, "org") if is_refused else None)


@pytest.mark.spec("ADM-04", "ADM-07")
def test_only_the_claim_of_the_winner_reports() -> None:
    assert rules.refuse_claim(CLAIM, CLAIM_HASH) is None
    for other in (b"", CLAIM_HASH[:-1], CLAIM_HASH[:-1] + b"\x00", CLAIM_HASH + b"\x00"):
        assert told(rules.refuse_claim(CLAIM, other)) == ("forbidden", "claim", None)
    assert told(rules.refuse_claim(None, CLAIM_HASH)) == ("forbidden", "claim", None)


@pytest.mark.spec("ADM-07")
@pytest.mark.parametrize(
    ("after", "gone", "orphaned"),
    [(-1, False, False), (0, False, True), (1, False, True), (-1, True, True), (0, True, True)],
)
def test_an_admission_is_orphaned_at_its_deadline_or_without_its_sender(
    after: int, gone: bool, orphaned: bool
) -> None:
    now = InstantMs(CLAIM.deadline_ms + after)
    assert rules.is_orphaned(CLAIM, now=now, sender_is_gone=gone) is orphaned


@pytest.mark.spec("BUD-04", "BUD-03", "REP-05")
@pytest.mark.parametrize("origin", [S.ADMITTED, S.UNKNOWN])
@pytest.mark.parametrize("target", [S.SUCCEEDED, S.FAILED, S.NO_EFFECT, S.UNKNOWN])
def test_an_outcome_settles_once_and_unknown_settles_nothing(
    origin: EffectState, target: EffectState
) -> None:
    effect = dataclasses.replace(EFFECT, state=origin)
    evidence = rules.evidence_of(
        effect,
        evidence_class=EvidenceClass.SERVICE,
        source="answer 201",
        proves=str(target),
        reference="r",
        late=False,
        now=START,
    )
    made = rules.outcome_changes(effect, target=target, charged={CENT: 7}, evidence=evidence)
    kinds = [type(change) for change in made]
    assert made[0] == EvidenceAdded(evidence=evidence)
    if target is S.UNKNOWN:
        assert kinds == ([EvidenceAdded] if origin is S.UNKNOWN else [EvidenceAdded, EffectMoved])
    else:
        # The settlement stands before the move: the database asks for it.
        assert kinds == [EvidenceAdded, CostSettled, EffectMoved]
        assert made[1] == CostSettled(effect_id=effect.effect_id, task_id=effect.task_id, charged={CENT: 7})
        assert made[2] == EffectMoved(effect_id=effect.effect_id, origin=origin, target=target)


@pytest.mark.spec("BUD-03", "REC-07")
@pytest.mark.parametrize(
    ("reported", "charge"),
    [
        (None, {CENT: 100}),
        ({}, {CENT: 100}),
        ({CENT: 0}, {CENT: 100}),
        ({CENT: 99}, {CENT: 100}),
        ({CENT: 101}, {CENT: 101}),
        ({FEE: 3}, {CENT: 100, FEE: 3}),
        ({CENT: AMOUNT_MAX}, {CENT: AMOUNT_MAX}),
    ],
)
def test_the_word_of_a_host_never_charges_less_than_the_maximum(
    reported: Mapping[Unit, int] | None, charge: Mapping[Unit, int]
) -> None:
    assert rules.host_claim_charge(EFFECT, reported) == charge


def test_the_rules_know_every_state() -> None:
    assert set(STATES) == set(EffectState)
    assert RefusalCode.OUTCOME_UNKNOWN in {
        refusal.code
        for state in EffectState
        if (refusal := rules.refuse_state(dataclasses.replace(EFFECT, state=state))) is not None
    }


INVOCATION = Invocation(
    invocation_id=InvocationId("inv_" + "1" * 32),
    caller="host-1",
    task_id=LEAF.task_id,
    actor="agent-7",
    opened_ms=START,
    deadline_ms=InstantMs(START + 10),
)
ENDED = dataclasses.replace(INVOCATION, outcome=InvocationOutcome.SUCCEEDED, ended_ms=START)


@pytest.mark.spec("INV-01", "INV-02", "EFF-08")
@pytest.mark.parametrize(
    ("invocation", "caller", "now", "code"),
    [
        (None, "host-1", START, "unknown_reference"),
        (INVOCATION, "host-2", START, "unknown_reference"),
        (dataclasses.replace(INVOCATION, task_id=TaskId("tsk_other")), "host-1", START, "unknown_reference"),
        (ENDED, "host-2", START, "unknown_reference"),
        (ENDED, "host-1", START, "invocation_over"),
        (INVOCATION, "host-1", START + 10, "invocation_over"),
        (INVOCATION, "host-1", START + 9, None),
    ],
)
def test_an_invocation_is_named_by_its_caller_in_its_tasks_and_in_time(
    invocation: Invocation | None, caller: str, now: int, code: str | None
) -> None:
    path = (PathNode(task=LEAF, budget={}),)
    found = rules.refuse_invocation(invocation, path, caller, InstantMs(now))
    assert (None if found is None else str(found.code)) == code
