"""`show`, `list` and `audit timeline`: reading, which turns overdue admissions into `unknown` on the way (ADM-07).

Reading never waits for a sink and never sends. A read that cannot sweep (a ledger that cannot be written) still
shows what is on record.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from audit import TimelineEntry, readable_line, timeline
from issuer import answering
from issuer.archives import archives
from issuer.clock import instant_text
from issuer.commands.approval_rows import approval_record
from issuer.commands.edge import at_the_edge
from issuer.commands.observing import find_observed, observed
from issuer.commands.standing import standing_code
from issuer.commands.unresolved import unresolved_row
from issuer.flow.binding import stored_member
from issuer.flow.overdue import sweep
from issuer.flow.reference import find_tombstone
from issuer.flow.refusing import RefusedError
from issuer.flow.stops import stops_on
from issuer.house import Visit
from issuer.wire import Answer, code_of
from ledger.canonical import parse_strict
from ledger.errors import Fault, LedgerCorrupt, Malformed
from ledger.model import Effect, Evidence, InstantMs, Permit, Tombstone, plain
from ledger.port import View
from ledger.refusals import RefusalCode
from ledger.rules import contradicted
from ledger.states import SETTLED, EffectState
from ledger.transitions import TransitionName


def swept(visit: Visit) -> str | None:
    """Sweep, or return why that could not be done; reading goes on either way (LED-04)."""
    try:
        sweep(visit)
    except Fault as fault:
        return answering.code_of_fault(fault)
    return None


def show(visit: Visit, reference: str) -> Answer:
    """Show one effect with everything on record about it (EFF-09)."""

    def run() -> Answer:
        problem = swept(visit)
        effect = find_observed(visit, reference)
        if effect is None:
            tombstone = _tombstone(visit, reference)
            more = {"record": visit.house.ledger.read(lambda view: _collected_record(view, tombstone))}
            return answering.collected(visit.house, "found", tombstone, more)
        record = visit.house.ledger.read(lambda view: _record(view, effect, visit.house.now()))
        record["stops"] = visit.house.ledger.read(lambda view: stops_on(view, visit.house, effect))
        if effect.state is EffectState.UNKNOWN:
            record["unknown"] = visit.house.ledger.read(
                lambda view: unresolved_row(visit.house, view, effect)
            )
        if problem is not None:
            record["not_swept"] = problem
        code = standing_code(visit.house, effect)
        return answering.about(
            visit.house, "found", effect, say=answering.say_of(code), more={"record": record}
        )

    return at_the_edge(visit, run)


def _tombstone(visit: Visit, reference: str) -> Tombstone:
    tombstone = find_tombstone(visit, reference)
    if tombstone is None:
        raise RefusedError(RefusalCode.NOT_FOUND)
    return tombstone


def _collected_record(view: View, tombstone: Tombstone) -> dict[str, object]:
    task = view.task(tombstone.task_id)
    return {
        "actor": tombstone.actor,
        "subject": tombstone.subject,
        "task": None if task is None else task.name,
        "caller": tombstone.caller,
        "request_key": tombstone.request_key,
        "permit": None if tombstone.permit_id is None else {"id": tombstone.permit_id},
        "prepared": instant_text(tombstone.prepared_ms),
        "ended": instant_text(tombstone.ended_ms),
        "collected": True,
    }


def _record(view: View, effect: Effect, now: InstantMs) -> dict[str, object]:
    permit, claim = view.permit(effect.effect_id), view.claim(effect.effect_id)
    names = {node.task.task_id: node.task.name for node in view.path(effect.task_id)}
    places = {task_id: place for place, task_id in enumerate(names)}
    reserved, evidence = view.reserved(effect.effect_id), view.evidence(effect.effect_id)
    return {
        "actor": effect.actor,
        "subject": effect.subject,
        "task": names.get(effect.task_id),
        "class": effect.action_class,
        "caller": effect.caller,
        "authority": _authority(view, effect),
        "binding_digest": effect.binding_digest.hex(),
        "prepared": instant_text(effect.prepared_ms),
        "permit": None if permit is None else _permit_record(permit),
        "claim": None
        if claim is None
        else {
            "instance": claim.instance,
            "admitted": instant_text(claim.admitted_ms),
            "deadline": instant_text(claim.deadline_ms),
        },
        "reserved": [
            {"task": names.get(task_id, task_id), "unit": unit, "amount": amount}
            for (task_id, unit), amount in sorted(
                reserved.items(), key=lambda row: (places[row[0][0]], row[0][1])
            )
        ],
        "evidence": [
            {
                "class": str(item.evidence_class),
                "source": item.source,
                "proves": item.proves,
                "reference": item.reference,
                "late": item.late,
                "charged": plain(item.charged),
                "contradicts": _contradicts(effect, evidence, item),
                "at": instant_text(item.at_ms),
            }
            for item in evidence
        ],
        "approvals": approval_record(view, effect),
        "invocation": effect.invocation_id,
        "obligations": [
            {
                "name": one.name,
                "deadline": instant_text(one.deadline_ms),
                "done": None if one.done_ms is None else instant_text(one.done_ms),
                "overdue": one.is_overdue(now),
            }
            for one in view.obligations(effect.effect_id)
        ],
        "sequence": effect.sequence,
    }


def _contradicts(effect: Effect, known: Sequence[Evidence], item: Evidence) -> str | None:
    """Return what one piece of evidence speaks against, as a word, or None (REC-05)."""
    target = next((state for state in SETTLED if state == item.proves), None)
    return None if target is None else contradicted(effect, known, target)


def _permit_record(permit: Permit) -> dict[str, object]:
    return {
        "id": permit.permit_id,
        "tier": str(permit.tier),
        "issued": instant_text(permit.issued_ms),
        "expires": instant_text(permit.expires_ms),
        "caps": {name: instant_text(cap) for name, cap in permit.caps.items()},
    }


def _authority(view: View, effect: Effect) -> dict[str, object]:
    """Return by whose word an effect was decided: the policies of the last decision, and the revisions (EFF-09)."""
    decisions = view.decisions(effect.effect_id)
    said: dict[str, object] = {"policies": [], "bundle": None, "revision": None}
    # Of a damaged ledger what can be read is shown; the rest stays empty (LED-04).
    with suppress(Malformed, LedgerCorrupt):
        decided = parse_strict(decisions[-1].body) if decisions else None
        if type(decided) is dict:
            said.update(policies=decided.get("policies", []), bundle=decided.get("bundle"))
        if not effect.replayed:
            said["revision"] = stored_member(effect.binding, "revision")
    return said


def _states(words: Sequence[str]) -> tuple[EffectState, ...]:
    try:
        return tuple(EffectState(word) for word in words)
    except ValueError:
        known = ", ".join(EffectState)
        raise Malformed("not_one_of", "state", f"a state is one of {known}") from None


def list_effects(visit: Visit, states: Sequence[str] = ()) -> Answer:
    """List this caller's effects and those that it may observe, in `states` where some are named, oldest first."""

    def run() -> Answer:
        wanted = _states(states)
        problem = swept(visit)
        effects = observed(visit, visit.house.ledger.read(lambda view: view.effects(states=wanted)))
        rows = visit.house.ledger.read(lambda view: _rows(visit, view, effects))
        more: dict[str, object] = {"effects": rows}
        if problem is not None:
            more["not_swept"] = problem
        return answering.about(visit.house, "found", more=more)

    return at_the_edge(visit, run)


def _rows(visit: Visit, view: View, effects: Sequence[Effect]) -> list[dict[str, object]]:
    """Return a row for each effect, with what is still to be done about it."""
    house, open_ones, now = visit.house, view.obligations_open(), visit.house.now()
    rows = []
    for effect in effects:
        row: dict[str, object] = {
            "effect": effect.effect_id,
            "state": str(effect.state),
            "code": code_of(effect.state),
            "operation": effect.operation,
            "resource": f'{effect.resource_type}::"{effect.resource_id}"',
            "cost": {str(unit): amount for unit, amount in effect.cost.items()},
            "prepared": instant_text(effect.prepared_ms),
            "obligations": {
                one.name: "overdue" if one.is_overdue(now) else "open"
                for one in open_ones.get(effect.effect_id, ())
            },
        }
        stops = stops_on(view, house, effect)
        if stops:
            row["stops"] = stops
        if effect.state is EffectState.UNKNOWN:
            row.update(unresolved_row(house, view, effect))
        rows.append(row)
    return rows


def timeline_of(visit: Visit, reference: str) -> Answer:
    """Show the whole story of one effect, span by span (AUD-05)."""

    def run() -> Answer:
        swept(visit)
        effect = find_observed(visit, reference)
        about = _tombstone(visit, reference) if effect is None else effect
        entries = visit.house.ledger.read(lambda view: timeline(view, about.effect_id))
        more: dict[str, object] = {
            "timeline": [_entry(entry) for entry in entries],
            "lines": _lines(entries),
        }
        if isinstance(about, Tombstone):
            if not entries or entries[0].name != TransitionName.EFFECT_PREPARED:
                found = visit.house.ledger.read(archives)
                more["archived"] = [archive.shown() for archive in found]
                more["lines"] = [*(archive.line() for archive in found), *_lines(entries)]
            return answering.collected(visit.house, "found", about, more)
        return answering.about(visit.house, "found", effect, more=more)

    return at_the_edge(visit, run)


_ALWAYS: Final = frozenset(
    {"permit.command", "permit.refusal", "permit.refusal.field", "permit.refusal.level"}
)
_MACHINE: Final = frozenset(
    {
        "permit.binding.digest",
        "permit.bundle.digest",
        "permit.revision",
        "permit.instance",
        "permit.engine",
        "permit.task.id",
        "permit.root.id",
        "permit.mode",
    }
)
"""What a person does not read on a line; `--json` has all of it."""


def _lines(entries: Sequence[TimelineEntry]) -> list[str]:
    """Return one line an entry for people: what an earlier line has said in the same words is left out."""
    said: dict[str, object] = {}
    lines: list[str] = []
    for entry in entries:
        news = {
            name: value
            for name, value in entry.attributes.items()
            if name in _ALWAYS or (said.get(name) != value and name not in _MACHINE)
        }
        said.update(news)
        lines.append(readable_line(replace(entry, attributes=news)))
    return lines


def _entry(entry: TimelineEntry) -> dict[str, object]:
    return {
        "sequence": entry.sequence,
        "at": instant_text(entry.at_ms),
        "name": entry.name,
        "from": entry.state_from,
        "to": entry.state_to,
        "attributes": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in entry.attributes.items()
        },
    }
