"""`audit unknowns`, `unused`, `denied-then-done` and `approvals`: the questions that reviewers always have (AUD-06).

Rules: BUD-04 (what is unknown holds its maximum), REC-06 (who it is for, and what can be tried), APP-03. Amounts are
whole units in JSON and as people write money on their lines.
Next: `issuer.commands.auditing.told`, which puts each look on record first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from audit.queries import Found, found_of
from audit.standing import (
    Cursor,
    PersonAnswer,
    ThenDone,
    Unused,
    denied_then_done,
    person_answers,
    unused,
)
from issuer.amounts import amount_text
from issuer.clock import instant_text
from issuer.commands.audit_asks import AuditAsk, cursor_text, question_of
from issuer.commands.auditing import TABLE, told
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.commands.unresolved import unresolved_row
from issuer.house import House, Visit
from issuer.sheets import Sheet, demand_form
from issuer.wire import Answer
from ledger.model import Effect
from ledger.port import View
from ledger.states import EffectState

WITHIN_MS: Final = 600_000
"""How soon after a no something counts as done all the same, where nobody says otherwise: ten minutes."""

WITHIN_MS_MAX: Final = 31 * 86_400_000

_UNKNOWN_COLUMNS: Final = (
    *("effect", "since", "operation", "resource", "task", "subject", "actor", "holds", "charged"),
    *("evidence", "possible", "attempts", "sequence"),
)
_UNUSED_COLUMNS: Final = (
    *("effect", "state", "operation", "resource", "task_id", "subject", "actor", "cost", "tier"),
    *("policies", "approvals", "permitted", "ended", "sequence"),
)
_THEN_DONE_COLUMNS: Final = (
    *("subject", "operation", "resource", "no", "no_at", "no_code", "no_by", "no_effect", "no_sequence"),
    *("done", "done_at", "after_ms", "done_by", "done_effect", "done_sequence", "policies", "approvals"),
)
_ANSWER_COLUMNS: Final = (
    *("person", "answered", "at", "effect", "operation", "resource", "subject", "actor", "code", "field"),
    *("reason", "caller", "sequence"),
)


def audit_unknowns(visit: Visit, asked: AuditAsk, form: str = TABLE) -> Answer:
    """Show every effect whose outcome is unknown: since when, what it holds, what was seen, and what can be tried."""

    def run() -> Answer:
        demand_form(form)
        swept(visit)
        question = question_of(visit, asked)
        sheet, cursor = visit.house.ledger.read(
            lambda view: _unknowns(visit.house, view, after=question.after, limit=question.limit)
        )
        return told(visit, sheet, cursor, form, asked=asked, named="unknowns")

    return at_the_edge(visit, run)


def _unknowns(house: House, view: View, *, after: int, limit: int) -> tuple[Sheet, int | None]:
    # The ledger bounds how many effects of a task may be unresolved (LED-02), so they are few beside the trail.
    effects = sorted(view.effects(states=(EffectState.UNKNOWN,)), key=lambda effect: effect.sequence)
    held: Counter[str] = Counter()
    for effect in effects:
        held.update(_held(view, effect))
    rest = [effect for effect in effects if effect.sequence > after]
    shown = rest[:limit]
    rows = [_unknown_row(house, view, effect) for effect in shown]
    total = f"  {len(effects)} unknown, holding {_money(held) or 'nothing'}"
    spans = [view.span_at(effect.sequence) for effect in shown]
    sheet = Sheet(
        rows=rows,
        lines=[*(line for row in rows for line in _unknown_lines(row)), total],
        columns=_UNKNOWN_COLUMNS,
        spans=tuple(found_of(row) for row in spans if row is not None),
        totals={"unknown": len(effects), "held": dict(sorted(held.items()))},
    )
    return sheet, shown[-1].sequence if len(rest) > limit else None


def _held(view: View, effect: Effect) -> dict[str, int]:
    """Return what an effect holds in its own task, once per unit; nothing where it was charged instead (REC-04)."""
    if view.charged(effect.effect_id):
        return {}
    reserved = view.reserved(effect.effect_id)
    return {str(unit): amount for (task, unit), amount in reserved.items() if task == effect.task_id}


def _unknown_row(house: House, view: View, effect: Effect) -> dict[str, object]:
    about = unresolved_row(house, view, effect)
    return {
        "effect": effect.effect_id,
        "since": about["since"],
        "operation": effect.operation,
        "resource": _resource(effect.resource_type, effect.resource_id),
        "task": about["task"],
        "subject": effect.subject,
        "actor": effect.actor,
        "holds": _held(view, effect),
        "levels": about["held"] or about["charged"],
        "charged": {str(unit): amount for unit, amount in view.charged(effect.effect_id).items()},
        "evidence": [
            f"{one.evidence_class}:{one.source} at {instant_text(one.at_ms)}"
            for one in view.evidence(effect.effect_id)
        ],
        "possible": about["inspection"],
        "attempts": about["attempts"],
        "last_attempt": about["last_attempt"],
        "sequence": effect.sequence,
    }


def _unknown_lines(row: Mapping[str, object]) -> list[str]:
    holds, charged = row["holds"], row["charged"]
    bound = f"charged {_money(charged)}" if charged else f"holds {_money(holds) or 'nothing'}"
    return [
        f"  {row['effect']}  unknown since {row['since']}  {row['operation']}  {row['resource']}",
        f"      {bound}, in {row['task']}, for {row['subject']}, by {row['actor']}",
        f"      seen: {_listed(row['evidence'])}",
        f"      possible: {_listed(row['possible'], ' or ')}; attempts: {row['attempts']}",
    ]


def audit_unused(visit: Visit, asked: AuditAsk, form: str = TABLE) -> Answer:
    """Show permits that were issued and never used: they wait still, expired, were withdrawn or revoked."""

    def run() -> Answer:
        demand_form(form)
        swept(visit)
        question = question_of(visit, asked)
        part = visit.house.ledger.read(lambda view: unused(view, question))
        rows = [_unused_row(one) for one in part.rows]
        sheet = Sheet(
            rows=rows,
            lines=[_unused_line(row) for row in rows],
            columns=_UNUSED_COLUMNS,
            spans=_spans_of((one.permit, one.end) for one in part.rows),
            totals=dict(Counter(str(one.told.state) for one in part.rows)),
        )
        return told(visit, sheet, _cursor(part.cursor), form, asked=asked, named="unused")

    return at_the_edge(visit, run)


def _unused_row(one: Unused) -> dict[str, object]:
    permit = one.permit
    return {
        "effect": one.told.effect_id,
        "permit": one.told.permit_id,
        "state": str(one.told.state),
        "operation": one.told.operation,
        "resource": _resource_of(permit),
        "task_id": one.told.task_id,
        "subject": one.told.subject,
        "actor": one.told.actor,
        "cost": None if one.cost is None else {str(unit): amount for unit, amount in one.cost.items()},
        "tier": permit.text("tier"),
        "policies": list(permit.texts("policy.ids")),
        "approvals": list(permit.texts("approvals")),
        "permitted": instant_text(permit.row.at_ms),
        "ended": None if one.end is None else instant_text(one.end.row.at_ms),
        "sequence": permit.sequence,
    }


def _unused_line(row: Mapping[str, object]) -> str:
    still = "waits still" if row["ended"] is None else f"{row['state']} {row['ended']}"
    by = _by(row)
    return (
        f"  {row['effect']}  permitted {row['permitted']} by {by}, {still}  {row['operation']}  "
        f"{row['resource']}  {_money(row['cost']) or '-'}  for {row['subject']}, by {row['actor']}"
    )


def audit_denied_then_done(
    visit: Visit, asked: AuditAsk, form: str = TABLE, *, within_ms: int = WITHIN_MS
) -> Answer:
    """Show what was denied or refused, and then admitted or done for the same subject on the same resource."""

    def run() -> Answer:
        demand_form(form)
        swept(visit)
        question = question_of(visit, asked)
        part = visit.house.ledger.read(
            lambda view: denied_then_done(view, question, within_ms=min(within_ms, WITHIN_MS_MAX))
        )
        rows = [_then_done_row(one) for one in part.rows]
        sheet = Sheet(
            rows=rows,
            lines=[line for row in rows for line in _then_done_lines(row)],
            columns=_THEN_DONE_COLUMNS,
            spans=_spans_of((one.no, one.done) for one in part.rows),
        )
        return told(visit, sheet, _cursor(part.cursor), form, asked=asked, named="denied_then_done")

    return at_the_edge(visit, run)


def _then_done_row(one: ThenDone) -> dict[str, object]:
    no, done, permit = one.no, one.done, one.permit
    return {
        "subject": no.text("subject"),
        "operation": no.text("operation"),
        "resource": _resource_of(no),
        "no": no.entry.name,
        "no_at": instant_text(no.row.at_ms),
        "no_code": no.text("refusal"),
        "no_by": no.text("actor"),
        "no_effect": no.text("effect.id"),
        "no_sequence": no.sequence,
        "done": done.entry.name,
        "done_at": instant_text(done.row.at_ms),
        "after_ms": done.row.at_ms - no.row.at_ms,
        "done_by": done.text("actor"),
        "done_caller": done.text("caller"),
        "done_effect": done.text("effect.id"),
        "done_sequence": done.sequence,
        "tier": None if permit is None else permit.text("tier"),
        "policies": [] if permit is None else list(permit.texts("policy.ids")),
        "approvals": [] if permit is None else list(permit.texts("approvals")),
    }


def _then_done_lines(row: Mapping[str, object]) -> list[str]:
    after_ms = row["after_ms"]
    seconds = after_ms / 1000 if isinstance(after_ms, int) else 0
    return [
        f"  {row['operation']}  {row['resource']}  for {row['subject']}",
        f"      {row['no_at']}  {row['no']} ({row['no_code']}), asked by {row['no_by']}",
        (
            f"      {row['done_at']}  {row['done']} {seconds:.1f} s later, by {row['done_by']}, "
            f"permitted by {_by(row)}  effect={row['done_effect']}"
        ),
    ]


def audit_approvals(visit: Visit, asked: AuditAsk, form: str = TABLE) -> Answer:
    """Show what people answered: yes, no, too late, and attempts to say yes to what is their own."""

    def run() -> Answer:
        demand_form(form)
        swept(visit)
        question = question_of(visit, asked)
        question = replace(question, newest=False)
        part = visit.house.ledger.read(lambda view: person_answers(view, question))
        rows = [_answer_row(one) for one in part.rows]
        people = _by_person(part.rows)
        sheet = Sheet(
            rows=rows,
            lines=[*map(_answer_line, rows), *_people_lines(people)],
            columns=_ANSWER_COLUMNS,
            spans=tuple(one.found for one in part.rows),
            totals=people,
        )
        return told(visit, sheet, _cursor(part.cursor), form, asked=asked, named="answers")

    return at_the_edge(visit, run)


def _by_person(answers: Iterable[PersonAnswer]) -> dict[str, dict[str, int]]:
    counted: dict[str, Counter[str]] = {}
    for one in answers:
        counted.setdefault(one.person or "-", Counter())[str(one.answered)] += 1
    return {person: dict(sorted(counts.items())) for person, counts in sorted(counted.items())}


def _people_lines(people: Mapping[str, Mapping[str, int]]) -> list[str]:
    return [
        f"  {'nobody proven' if person == '-' else person}: "
        + ", ".join(f"{count} {word}" for word, count in counts.items())
        for person, counts in people.items()
    ]


def _answer_row(one: PersonAnswer) -> dict[str, object]:
    found = one.found
    return {
        "person": one.person,
        "answered": str(one.answered),
        "at": instant_text(found.row.at_ms),
        "effect": found.text("effect.id"),
        "operation": found.text("operation"),
        "resource": _resource_of(found),
        "subject": found.text("subject"),
        "actor": found.text("actor"),
        "code": found.text("refusal"),
        "field": found.text("refusal.field"),
        "reason": found.text("reason"),
        "caller": found.text("caller"),
        "sequence": found.sequence,
    }


def _answer_line(row: Mapping[str, object]) -> str:
    why = row["reason"] or row["field"] or row["code"]
    return (
        f"  {row['at']}  {row['person'] or 'nobody proven'}: {row['answered']}{f' ({why})' if why else ''}  "
        f"{row['operation']}  {row['resource']}  for {row['subject']}  effect={row['effect']}"
    )


def _cursor(cursor: Cursor | None) -> int | str | None:
    return None if cursor is None else cursor_text(cursor)


def _by(row: Mapping[str, object]) -> str:
    approvals = _listed(row["approvals"])
    return f"the yes of {approvals}" if approvals else _listed(row["policies"]) or "-"


def _listed(value: object, between: str = ", ") -> str:
    return between.join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else ""


def _money(amounts: object) -> str:
    if not isinstance(amounts, Mapping):
        return ""
    return ", ".join(amount_text(str(unit), int(amount)) for unit, amount in sorted(amounts.items()))


def _resource(kind: str, name: str) -> str:
    return f'{kind}::"{name}"'


def _resource_of(found: Found) -> str | None:
    kind, name = found.text("resource.type"), found.text("resource.id")
    return None if kind is None or name is None else _resource(kind, name)


def _spans_of(groups: Iterable[Iterable[Found | None]]) -> tuple[Found, ...]:
    found = {one.sequence: one for group in groups for one in group if one is not None}
    return tuple(found[sequence] for sequence in sorted(found))


__all__ = ["WITHIN_MS", "audit_approvals", "audit_denied_then_done", "audit_unknowns", "audit_unused"]
