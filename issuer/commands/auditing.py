"""`audit query`, `issued`, `access`, `changes` and the story of a task or an invocation: the trail as it was asked for.

Rules: AUD-06, AUD-09, EFF-08 (a look across scopes is an action of its own, decided by `observe` and on record before
anything is shown), LED-07 (page by page). Reading goes on where nothing can be written (`issuer.looks`).
Next: `issuer.commands.standing_questions`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from audit.queries import LOOKS, Page, Question, ask, merged_stories
from issuer import answering
from issuer.archives import last_archive
from issuer.clock import instant_text
from issuer.commands.audit_asks import AuditAsk, question_of, task_asked
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.commands.roles import OBSERVE, act_attributes, decided, is_asked
from issuer.flow.refusing import RefusedError
from issuer.house import Visit
from issuer.look_spool import Look
from issuer.looks import LATER_SAY, observed, on_record, waiting
from issuer.sheets import Sheet, demand_form, span_sheet, text_in
from issuer.trail import changes_sheet
from issuer.wire import Answer
from issuer.wire.codes import CODES
from ledger.invocations import INVOCATION_ID_PATTERN
from ledger.model import InvocationId
from ledger.port import View
from ledger.refusals import RefusalCode
from ledger.transitions import AttributeValue

TABLE: Final = "table"


def audit_query(visit: Visit, asked: AuditAsk, form: str = TABLE) -> Answer:
    """Show the spans that are asked for, in the order of the trail, or the latest first."""
    return at_the_edge(visit, lambda: _shown_spans(visit, asked, form, ask))


def audit_issued(visit: Visit, asked: AuditAsk, form: str = TABLE) -> Answer:
    """Show what policies permitted by themselves; with a policy, what that one did (POL-01)."""
    return audit_query(visit, replace(asked, decision="permitted", tier="issue"), form)


def audit_story(
    visit: Visit,
    asked: AuditAsk,
    form: str = TABLE,
    *,
    task: str | None = None,
    invocation: str | None = None,
) -> Answer:
    """Show everything about one task, with all that was done in it, or about one invocation and its effects."""

    def look(view: View, question: Question) -> Page:
        if invocation is None:
            return ask(view, question)
        named = InvocationId(invocation)
        stories = (invocation, *(effect.effect_id for effect in view.effects_of(named)))
        if not view.story(invocation):
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="invocation")
        return merged_stories(view, stories, question)

    def run() -> Answer:
        if invocation is not None and not INVOCATION_ID_PATTERN.match(invocation):
            raise RefusedError(RefusalCode.UNKNOWN_REFERENCE, field="invocation")
        inside = asked if task is None else replace(asked, task=task_asked(visit, task))
        return _shown_spans(visit, inside, form, look)

    return at_the_edge(visit, run)


def audit_access(visit: Visit, asked: AuditAsk, form: str = TABLE) -> Answer:
    """Show who looked at what: across scopes, at protected content, or by taking a copy away."""

    def run() -> Answer:
        demand_form(form)
        swept(visit)
        question = question_of(visit, asked)
        names = question.wanted.names & LOOKS if question.wanted.names else LOOKS
        question = replace(question, wanted=replace(question.wanted, names=names))
        page = visit.house.ledger.read(lambda view: ask(view, question))
        sheet = span_sheet(page.found)
        # What is not in the ledger yet has no place in its order: it stands under the last page.
        later = [] if page.cursor is not None else [_waiting_row(one) for one in waiting(visit.house)]
        lines = [
            *sheet.lines,
            *(f"       {row['at']}  {row['name']}  not recorded yet  {_plain(row)}" for row in later),
        ]
        sheet = replace(sheet, lines=lines)
        extra = {"not_recorded_yet": later} if later else {}
        return told(visit, sheet, page.cursor, form, asked=asked, extra=extra)

    return at_the_edge(visit, run)


def audit_changes(visit: Visit, asked: AuditAsk | None = None, form: str = TABLE) -> Answer:
    """Show every change of authority, oldest first (AUD-09): `issuer.trail` says which those are."""
    wanted = AuditAsk() if asked is None else asked

    def run() -> Answer:
        demand_form(form)
        swept(visit)
        question = question_of(visit, wanted)
        sheet, cursor = visit.house.ledger.read(lambda view: changes_sheet(view, question))
        return told(visit, sheet, cursor, form, asked=wanted, named="changes")

    return at_the_edge(visit, run)


def _shown_spans(visit: Visit, asked: AuditAsk, form: str, look: Callable[[View, Question], Page]) -> Answer:
    demand_form(form)
    swept(visit)
    question = question_of(visit, asked)
    page = visit.house.ledger.read(lambda view: look(view, question))
    return told(visit, span_sheet(page.found), page.cursor, form, asked=asked)


_ARCHIVED: Final = (
    "Of what is up to span {upto}, refusals, looks and what is over may be in archives and not here; "
    "the last archive has SHA-256 {digest}."
)


def told(
    visit: Visit,
    sheet: Sheet,
    cursor: int | str | None,
    form: str,
    *,
    asked: AuditAsk,
    named: str = "rows",
    extra: Mapping[str, object] | None = None,
) -> Answer:
    """Put the look on record, then answer: `more` has the rows under `named`, or with another form `text` alone.

    `cursor` is where the next page begins, or None where this is the last one.

    Raises:
        Fault: it could not be put on record anywhere; nothing of the answer may be shown.
    """
    text = None if form == TABLE else text_in(form, sheet)
    archive = None if named == "changes" else visit.house.ledger.read(last_archive)
    look = observed(
        visit,
        count=len(sheet.rows),
        filter_digest=asked.digest(visit),
        **decided_by(visit),
    )
    is_recorded = on_record(visit, look)
    altered = sum(found.is_altered for found in sheet.spans)
    say = CODES["found"].say
    if altered:
        say = f"{say} {altered} of the spans are not what was recorded; run `issuer ledger check`."
    more: dict[str, object] = {"cursor": cursor, "more": cursor is not None, **(extra or {})}
    if sheet.totals:
        more["totals"] = dict(sheet.totals)
    if text is None:
        going_on = [] if cursor is None else [f"  more: go on with --after {cursor}"]
        more[named], more["lines"] = list(sheet.rows), [*(sheet.lines or ["  none"]), *going_on]
    else:
        more["text"] = text
    if archive is not None:
        more["archived"] = archive.shown()
        say = f"{say} {_ARCHIVED.format(upto=archive.upto, digest=archive.digest)}"
    if not is_recorded:
        say, more["recorded"] = f"{say} {LATER_SAY}", False
    return answering.about(visit.house, "found", say=say, more=more)


def decided_by(visit: Visit) -> Mapping[str, AttributeValue]:
    """Return what a span says of the policies that let this caller look; nothing where none was asked (POL-06)."""
    return act_attributes(decided(visit, OBSERVE, None)) if is_asked(visit, OBSERVE) else {}


def _waiting_row(look: Look) -> dict[str, object]:
    return {
        "at": instant_text(look.at_ms),
        "name": look.name,
        "effect": look.effect_id,
        **{name: look.said.get(f"permit.{name}") for name in ("caller", "command", "count", "format")},
    }


def _plain(row: Mapping[str, object]) -> str:
    return "  ".join(f"{name}={row[name]}" for name in ("caller", "command", "count"))


__all__ = [
    "AuditAsk",
    "audit_access",
    "audit_changes",
    "audit_issued",
    "audit_query",
    "audit_story",
    "decided_by",
    "told",
]
