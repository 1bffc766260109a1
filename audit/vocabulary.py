"""The closed vocabulary of the audit: which attributes each kind of span may, and must, carry.

Rules: AUD-07 (an attribute outside the table is refused), SEC-01 (each text has a form and a bound, so that
free text has no place), LED-05 (a span cannot tell of a move that the table of states does not know).

The message of a refusal names the attribute and never its value. This module does not look for secrets; that
is `audit.redaction`, which comes next. `python -m audit.vocabulary` prints `docs/reference/spans.md`.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from audit.attributes import ATTRIBUTES, AUTOMATIC, VISIBLE, Kind, fits
from ledger.errors import SpanNotRecorded
from ledger.model import EFFECT_ID_PATTERN
from ledger.states import PENDING, EffectState, is_legal
from ledger.transitions import AttributeValue, Transition, TransitionName

__all__ = ["ATTRIBUTES", "AUTOMATIC", "OUTCOMES", "SPANS", "check", "fits", "page"]

OUTCOMES: Final = frozenset(
    {
        TransitionName.EFFECT_SUCCEEDED,
        TransitionName.EFFECT_FAILED,
        TransitionName.EFFECT_NO_EFFECT,
        TransitionName.EFFECT_UNKNOWN,
        TransitionName.EFFECT_REPORTED,
        TransitionName.EFFECT_INSPECTED,
    },
)
"""Spans of what already happened: refusing one would lose the outcome, not prevent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanShape:
    """What a kind of span carries beyond the automatic attributes, and the state that it ends in."""

    required: frozenset[str]
    optional: frozenset[str]
    allowed: frozenset[str]
    state_to: EffectState | None


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"permit.{name}" for name in names)


_EVERY: Final = _named("caller", "revision", "host.trace_id", "instance", "signer", "statement.digest")
_ABOUT: Final = _named(
    *("actor", "subject", "task.id", "task.name", "root.id", "operation", "operation.version", "class"),
    *("resource.type", "resource.id", "binding.digest", "invocation.id"),
)
_DECISION: Final = _named(
    *("tier", "policy.ids", "policy.errors", "bundle.digest", "engine", "obligations"),
    *("refusal", "refusal.field", "refusal.level", "reason", "cost"),
)
_EVIDENCE: Final = _named(
    *("evidence.class", "evidence.source", "reference", "late", "reason", "cost", "charged", "overrun"),
    *("refusal", "sink.name", "attempt", "seen", "contradicts"),
)
_MODE: Final = _named("mode")
_EFFECT: Final = _named("mode", "task.id", "actor", "subject", "operation")


def _shape(
    required: frozenset[str], optional: frozenset[str], state_to: EffectState | None = None
) -> SpanShape:
    optional = (optional | _EVERY) - required
    return SpanShape(required=required, optional=optional, allowed=required | optional, state_to=state_to)


SPANS: Final[Mapping[TransitionName, SpanShape]] = MappingProxyType(
    {
        TransitionName.LEDGER_CREATED: _shape(_MODE, _named("sqlite", "engine")),
        TransitionName.SINK_REGISTERED: _shape(
            _MODE | _named("sink.name", "sink.kind", "sink.location_digest"), _named("reason")
        ),
        TransitionName.SINK_REPLACED: _shape(
            _MODE | _named("sink.name", "sink.kind", "sink.location_digest", "sink.upto"),
            _named("reason", "sink.leaf"),
        ),
        TransitionName.SINK_QUARANTINED: _shape(
            _MODE | _named("sink.name", "sink.from", "sink.upto", "reason"), frozenset()
        ),
        TransitionName.SINK_FAILED: _shape(
            _MODE | _named("sink.name", "reason"), _named("sink.upto", "count")
        ),
        TransitionName.SINK_RECOVERED: _shape(_MODE | _named("sink.name", "sink.upto"), _named("count")),
        TransitionName.PROBE: _shape(frozenset(), _named("mode", "sqlite", "reason")),
        TransitionName.TASK_OPENED: _shape(
            _MODE | _named("task.id", "task.name", "root.id", "subject", "ceiling"),
            _named("actor", "actors", "expires_ms", "parent.id", "scope", "reason"),
        ),
        TransitionName.TASK_FROZEN: _shape(
            _MODE | _named("task.id"), _named("task.name", "root.id", "subject", "reason")
        ),
        TransitionName.TASK_THAWED: _shape(
            _MODE | _named("task.id"), _named("task.name", "root.id", "subject", "reason")
        ),
        TransitionName.TASK_CLOSED: _shape(
            _MODE | _named("task.id"), _named("task.name", "root.id", "subject", "reason")
        ),
        TransitionName.TASK_GRANTED: _shape(
            _MODE | _named("task.id", "granted"), _named("task.name", "root.id", "subject", "reason")
        ),
        TransitionName.TASK_LOWERED: _shape(
            _MODE | _named("task.id", "lowered"), _named("task.name", "root.id", "subject", "reason")
        ),
        TransitionName.OVERRUN_ACCEPTED: _shape(
            _MODE | _named("task.id", "overrun"), _named("task.name", "root.id", "subject", "reason")
        ),
        TransitionName.LEDGER_MIGRATED: _shape(_named("schema.from", "schema.to"), _named("mode", "sqlite")),
        TransitionName.LEDGER_COLLECTED: _shape(
            _MODE | _named("count", "collected", "forgotten", "reason"), _named("invocations")
        ),
        TransitionName.LEDGER_BACKED_UP: _shape(_MODE | _named("base.epoch", "base.sequence"), frozenset()),
        TransitionName.LEDGER_RESTORED: _shape(
            _MODE | _named("base.epoch", "base.sequence", "reason", "count"), _named("sinks.left")
        ),
        TransitionName.CLOCK_ACCEPTED: _shape(_MODE | _named("clock.before_ms"), _named("reason")),
        TransitionName.EFFECT_PREPARED: _shape(
            _EFFECT
            | _named("caller", "root.id", "class", "resource.type", "resource.id", "binding.digest", "cost")
            | _named("expires_ms"),
            _ABOUT | _named("content.key", "resource.key"),
            EffectState.PREPARED,
        ),
        TransitionName.EFFECT_PERMITTED: _shape(
            _EFFECT | _named("tier", "expires_ms"),
            _ABOUT | _DECISION | _named("approvals"),
            EffectState.PERMITTED,
        ),
        TransitionName.EFFECT_AWAITING_APPROVAL: _shape(
            _EFFECT, _ABOUT | _DECISION | _named("expires_ms", "approvers"), EffectState.AWAITING_APPROVAL
        ),
        TransitionName.EFFECT_APPROVED: _shape(
            _EFFECT | _named("signer", "statement.digest", "key.fingerprint"),
            _ABOUT | _DECISION | _named("approvers", "approvals", "expires_ms"),
        ),
        TransitionName.EFFECT_DECLINED: _shape(
            _EFFECT | _named("signer", "reason"),
            _ABOUT | _named("reference", "statement.digest", "key.fingerprint"),
            EffectState.DECLINED,
        ),
        TransitionName.EFFECT_REVOKED_LATE: _shape(_EFFECT, _ABOUT | _named("reason")),
        TransitionName.EFFECT_DENIED: _shape(
            _EFFECT | _named("refusal"), _ABOUT | _DECISION, EffectState.DENIED
        ),
        TransitionName.EFFECT_EXPIRED: _shape(
            _EFFECT, _ABOUT | _named("expires_ms", "reason"), EffectState.EXPIRED
        ),
        TransitionName.EFFECT_WITHDRAWN: _shape(
            _EFFECT, _ABOUT | _named("reason", "reference"), EffectState.WITHDRAWN
        ),
        TransitionName.EFFECT_REVOKED: _shape(
            _EFFECT, _ABOUT | _named("reason", "expires_ms", "stop"), EffectState.REVOKED
        ),
        TransitionName.EFFECT_REPLAYED: _shape(
            _EFFECT
            | _named("caller", "root.id", "class", "binding.digest", "cost", "reservation", "permit.id"),
            _ABOUT | _named("tier", "reason", "reference", "expires_ms"),
            EffectState.UNKNOWN,
        ),
        TransitionName.EFFECT_ADMITTED: _shape(
            _EFFECT | _named("cost", "reservation", "deadline_ms"),
            _ABOUT | _DECISION | _named("expires_ms", "permit.id", "approvals"),
            EffectState.ADMITTED,
        ),
        TransitionName.EFFECT_SUCCEEDED: _shape(
            _EFFECT | _named("evidence.class", "charged"), _ABOUT | _EVIDENCE, EffectState.SUCCEEDED
        ),
        TransitionName.EFFECT_FAILED: _shape(
            _EFFECT | _named("evidence.class", "charged"), _ABOUT | _EVIDENCE, EffectState.FAILED
        ),
        TransitionName.EFFECT_NO_EFFECT: _shape(
            _EFFECT | _named("evidence.class"), _ABOUT | _EVIDENCE, EffectState.NO_EFFECT
        ),
        TransitionName.EFFECT_UNKNOWN: _shape(
            _EFFECT | _named("reason"), _ABOUT | _EVIDENCE, EffectState.UNKNOWN
        ),
        TransitionName.EFFECT_REPORTED: _shape(_EFFECT | _named("evidence.class"), _ABOUT | _EVIDENCE),
        TransitionName.EFFECT_INSPECTING: _shape(_EFFECT | _named("attempt", "deadline_ms"), _ABOUT),
        TransitionName.EFFECT_INSPECTED: _shape(
            _EFFECT | _named("attempt", "evidence.class", "seen", "reason"), _ABOUT | _EVIDENCE
        ),
        TransitionName.EFFECT_ACKNOWLEDGED: _shape(
            _EFFECT | _named("evidence.class", "reason"), _ABOUT | _EVIDENCE
        ),
        TransitionName.CONTENT_SHOWN: _shape(_EFFECT | _named("fields", "reason"), _ABOUT),
        TransitionName.OBSERVED: _shape(
            _MODE | _named("caller", "command", "count"),
            _ABOUT | _named("policy.ids", "bundle.digest", "engine", "filter.digest", "reason", "looked_ms"),
        ),
        TransitionName.EFFECT_OBLIGED: _shape(_EFFECT | _named("obligations"), _ABOUT),
        TransitionName.OBLIGATION_DONE: _shape(_EFFECT | _named("obligation", "late"), _ABOUT),
        TransitionName.INVOCATION_OPENED: _shape(
            _MODE | _named("invocation.id", "task.id", "actor", "deadline_ms"), _named("task.name", "root.id")
        ),
        TransitionName.INVOCATION_ENDED: _shape(
            _MODE | _named("invocation.id", "task.id", "actor", "outcome", "reason"),
            _named("task.name", "root.id", "deadline_ms", "refusal", "refusal.level"),
        ),
        TransitionName.REVISION_ACTIVATED: _shape(
            _MODE | _named("revision.activated"),
            _named("revision.before", "bundle.digest", "files", "reason", "count"),
        ),
        TransitionName.STOP_FROZEN: _shape(_MODE | _named("stop"), _named("reason")),
        TransitionName.STOP_THAWED: _shape(_MODE | _named("stop"), _named("reason")),
        TransitionName.STOP_REVOKED: _shape(_MODE | _named("stop"), _named("reason", "count")),
        TransitionName.CREDENTIAL_ISSUED: _shape(_MODE | _named("credential"), _named("reason")),
        TransitionName.CREDENTIAL_REVOKED: _shape(_MODE | _named("credential"), _named("reason")),
        TransitionName.KEY_ROTATED: _shape(_MODE | _named("key.id"), _named("reason", "count")),
        TransitionName.KEY_RETIRED: _shape(_MODE | _named("key.id"), _named("reason", "count")),
        TransitionName.KEY_REVOKED: _shape(_MODE | _named("key.id"), _named("reason", "count")),
        TransitionName.CHECKPOINT_SIGNED: _shape(
            _MODE | _named("tree.size", "tree.root", "key.id", "reason"), frozenset()
        ),
        TransitionName.AUDIT_EXPORTED: _shape(
            _MODE | _named("command", "format", "count"),
            _named("filter.digest", "file.digest", "base.sequence", "reason", "tree.size", "tree.root")
            | _named("policy.ids", "bundle.digest", "engine", "looked_ms"),
        ),
        TransitionName.AUDIT_ARCHIVED: _shape(
            _MODE | _named("base.epoch", "base.sequence", "tree.root", "file.digest", "count", "gone.digest"),
            _named("reason"),
        ),
        TransitionName.NOISE: _shape(_MODE | _named("count", "reason"), _named("command", "refusal")),
        TransitionName.REFUSED: _shape(
            _named("mode", "command", "refusal"),
            _ABOUT
            | _DECISION
            | _named("evidence.class", "expires_ms", "sink.name", "key.fingerprint", "stop"),
        ),
    },
)
"""Each kind of span. Names of effects also carry their task, actor, subject and operation, for AUD-06."""


def check(transition: Transition, *, among: Mapping[str, AttributeValue] | None = None) -> None:
    """Refuse a transition whose span the vocabulary does not know (AUD-07).

    Args:
        transition: what happened.
        among: those of its attributes whose values were not checked before (`audit.known`); None for all. Names,
            states and what must be there are checked in any case.

    Raises:
        SpanNotRecorded: `vocabulary`; the sentence names the attribute or the part at fault, never a value.
    """
    shape = SPANS.get(transition.name)
    if shape is None:
        raise SpanNotRecorded("vocabulary", "The kind of the transition is not in the vocabulary.")
    _check_states(transition, shape)
    attributes = transition.attributes
    if not shape.allowed.issuperset(attributes):
        outside = next(name for name in attributes if name not in shape.allowed)
        # A name that is in no table may be a caller's own words, so it is not repeated.
        known = outside if outside in ATTRIBUTES or outside in AUTOMATIC else "An attribute outside the table"
        raise SpanNotRecorded("vocabulary", f"{known} has no place in a span {transition.name.value}.")
    allows_redacted = transition.name in OUTCOMES
    for name, value in (attributes if among is None else among).items():
        if not fits(name, value, allows_redacted=allows_redacted):
            raise SpanNotRecorded("vocabulary", f"{name} is not of the type or form in the vocabulary.")
    if not shape.required <= attributes.keys():
        missing = min(shape.required - attributes.keys())
        raise SpanNotRecorded("vocabulary", f"{missing} is missing in a span {transition.name.value}.")


def _check_states(transition: Transition, shape: SpanShape) -> None:
    """Refuse a story, effect id or move that contradicts the kind of the span."""
    story = transition.story
    if type(story) is not str or not VISIBLE.match(story):
        raise SpanNotRecorded("vocabulary", "The story is no effect id, task id or ledger id.")
    effect_id = transition.effect_id
    if effect_id is not None and (type(effect_id) is not str or not EFFECT_ID_PATTERN.match(effect_id)):
        raise SpanNotRecorded("vocabulary", "permit.effect.id is not an effect id.")
    origin, target = transition.state_from, transition.state_to
    if target is not shape.state_to:
        raise SpanNotRecorded(
            "vocabulary", f"permit.state.to is not where a span {transition.name.value} ends."
        )
    if target is None:
        if origin is not None:
            raise SpanNotRecorded("vocabulary", "permit.state.from is given where no state moves.")
        return
    if effect_id is None or story != effect_id:
        raise SpanNotRecorded(
            "vocabulary", "permit.story is not the effect whose state moves, so its trace would miss it."
        )
    is_first = target is EffectState.PREPARED
    is_replayed = transition.name is TransitionName.EFFECT_REPLAYED
    if is_replayed and origin is None:
        return  # the restored ledger never heard of this effect before
    if target is EffectState.UNKNOWN and origin in PENDING and not is_replayed:
        raise SpanNotRecorded("vocabulary", "Only a restore moves what was not admitted to unknown.")
    if (origin is None) is not is_first or (origin is not None and not is_legal(origin, target)):
        raise SpanNotRecorded("vocabulary", "permit.state.from and permit.state.to are no legal move.")


_KINDS: Final[Mapping[Kind, str]] = MappingProxyType(
    {"text": "text", "texts": "list of text", "whole": "whole number", "flag": "true or false"},
)


def page() -> str:
    """Return the reference page of the spans, in Markdown."""
    lines = [
        "# Spans",
        "",
        "Printed by `python -m audit.vocabulary`, and compared with the code by a test. An attribute",
        "outside these tables is refused, and with it the transition (AUD-07). No place is for free text.",
        "",
        "## Set by the recorder",
        "",
        "| attribute | says |",
        "|---|---|",
        *(f"| `{name}` | {says} |" for name, says in AUTOMATIC.items()),
        "",
        "## Set by the transition",
        "",
        "The bounds are bytes, of each member where it is a list, and members.",
        "",
        "| attribute | type | form | bytes | members | says |",
        "|---|---|---|---|---|---|",
    ]
    for name, attribute in ATTRIBUTES.items():
        bound = str(attribute.bytes_max) if attribute.form else ""
        members = str(attribute.items_max) if attribute.kind == "texts" else ""
        kind = _KINDS[attribute.kind]
        lines.append(f"| `{name}` | {kind} | {attribute.words} | {bound} | {members} | {attribute.says} |")
    always = ", ".join(f"`{name}`" for name in sorted(_EVERY))
    lines += ["", "## Kinds of span", "", f"Each kind may also carry {always}.", ""]
    for kind, shape in SPANS.items():
        state = f"ends in `{shape.state_to.value}`" if shape.state_to else "moves no state"
        required = ", ".join(f"`{name}`" for name in sorted(shape.required)) or "nothing"
        optional = ", ".join(f"`{name}`" for name in sorted(shape.optional - _EVERY)) or "nothing"
        lines += [f"### permit.{kind.value}", "", f"- {state}"]
        lines += [f"- must carry: {required}", f"- may carry: {optional}", ""]
    return "\n".join(lines[:-1]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
