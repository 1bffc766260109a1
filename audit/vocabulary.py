"""The closed vocabulary of the audit: which attributes each kind of span may, and must, carry.

Rules: AUD-07 (an attribute outside the table is refused), SEC-01 (each text has a form and a bound, so that
free text has no place), LED-05 (a span cannot tell of a move that the table of states does not know).

The message of a refusal names the attribute and never its value. This module does not look for secrets; that
is `audit.redaction`, which comes next. `python -m audit.vocabulary` prints `docs/reference/spans.md`.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from ledger.errors import SpanNotRecorded
from ledger.invocations import INVOCATION_ID_PATTERN, InvocationOutcome
from ledger.model import (
    AMOUNT_MAX,
    EFFECT_ID_PATTERN,
    NAME_PATTERN,
    PERMIT_ID_PATTERN,
    TASK_ID_PATTERN,
    UNIT_PATTERN,
    AttributeValue,
    EvidenceClass,
    Tier,
    Transition,
    TransitionName,
)
from ledger.refusals import RefusalCode
from ledger.states import PENDING, EffectState, is_legal

__all__ = ["ATTRIBUTES", "AUTOMATIC", "OUTCOMES", "SPANS", "check", "fits", "page"]

ITEMS_MAX: Final = 256
"""Members of one list: a reservation has a row per unit and level, 32 levels of 8 units each (BUD-01)."""

AMOUNTS_MAX: Final = 64
"""Amounts of one list. The largest outcome must fit a record of the ledger, or it would be lost (LED-02)."""

RESOURCE_MAX: Final = 512
"""Bytes of a resource id: a long path or URL, and short enough to be an index key."""

REFERENCE_LENGTH_MAX: Final = 256
"""Characters of a provider's reference, kept as received (EFF-09)."""

REDACTED: Final = re.compile(r"\[redacted:[a-z_]{1,32}\]\Z")
"""What stands for a value that must not be kept, in a span that must not be lost (`audit.redaction`)."""

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

Kind = Literal["text", "texts", "whole", "flag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One attribute: its exact type, and the form of its text (of each member, where it is a list)."""

    kind: Kind
    says: str
    form: re.Pattern[str] | None = None
    words: str = ""
    bytes_max: int = 128
    items_max: int = ITEMS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanShape:
    """What a kind of span carries beyond the automatic attributes, and the state that it ends in."""

    required: frozenset[str]
    optional: frozenset[str]
    state_to: EffectState | None


def _bare(pattern: re.Pattern[str]) -> str:
    """Return the source of a pattern of the ledger without its end, to build a longer one from."""
    return pattern.pattern.removesuffix(r"\Z")


def _one_of(values: type[EvidenceClass | InvocationOutcome | RefusalCode | Tier]) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join(re.escape(value.value) for value in values) + r")\Z")


_UNIT: Final = _bare(UNIT_PATTERN)
_NAME: Final = NAME_PATTERN
_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
_MODES: Final = re.compile(r"(?:strict|ordinary)\Z")
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}\Z")
_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_COMMAND: Final = re.compile(r"[a-z][a-z0-9_.-]{0,31}(?: [a-z][a-z0-9_.-]{0,31})?\Z")
_VISIBLE: Final = re.compile(r"[!-~]{1,128}\Z")
_ERROR: Final = re.compile(r"[!-~]{1,192}:[a-z0-9_]{1,63}\Z")
_PRINTABLE: Final = re.compile(r"[ -~]{1,256}\Z")
_AMOUNTS: Final = re.compile(rf"{_UNIT}=[0-9]{{1,16}}\Z")
_CEILINGS: Final = re.compile(rf"{_UNIT}=(?:[0-9]{{1,16}}|inherit)\Z")
_SCOPE: Final = re.compile(
    "(?:class|operation|resource):[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]+"
    r"=(?:[0-9]{1,7}|inherit)\Z"
)
_LEFT: Final = re.compile(
    rf"{_bare(NAME_PATTERN)}=[0-9]{{1,16}}:[0-9]{{1,16}}:[0-9a-f]{{64}}:[0-9a-f]{{64}}\Z"
)
_HELD: Final = re.compile(rf"{_bare(NAME_PATTERN)}:{_UNIT}=[0-9]{{1,16}}\Z")
# No control character, surrogate, line separator or direction override: the id must read as it is (APP-02).
_RESOURCE: Final = re.compile("[^\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028-\u202e\u2066-\u2069]+\\Z")


def _text(says: str, form: re.Pattern[str], words: str, bytes_max: int = 128) -> Attribute:
    return Attribute(kind="text", says=says, form=form, words=words, bytes_max=bytes_max)


def _texts(says: str, form: re.Pattern[str], words: str, bytes_max: int = 256) -> Attribute:
    return Attribute(kind="texts", says=says, form=form, words=words, bytes_max=bytes_max)


def _amounts(says: str, form: re.Pattern[str] = _AMOUNTS, words: str = "unit=amount") -> Attribute:
    return Attribute(kind="texts", says=says, form=form, words=words, bytes_max=160, items_max=AMOUNTS_MAX)


def _whole(says: str) -> Attribute:
    return Attribute(kind="whole", says=says)


ATTRIBUTES: Final[Mapping[str, Attribute]] = MappingProxyType(
    {
        "permit.mode": _text("whether roles were enforced (OPR-03)", _MODES, "strict or ordinary"),
        "permit.caller": _text("who is authenticated", _NAME, "name"),
        "permit.actor": _text("who acts", _NAME, "name"),
        "permit.subject": _text("for whom", _NAME, "name"),
        "permit.task.id": _text("the task", TASK_ID_PATTERN, "task id"),
        "permit.task.name": _text("the task's name", _NAME, "name"),
        "permit.root.id": _text("the root of the task's tree", TASK_ID_PATTERN, "task id"),
        "permit.operation": _text("the operation", _NAME, "name"),
        "permit.operation.version": _whole("the version of its contract"),
        "permit.class": _text("the action class", _NAME, "name"),
        "permit.resource.type": _text("the type of the actual resource", _VISIBLE, "visible ASCII"),
        "permit.resource.id": _text("the actual resource", _RESOURCE, "no control character", RESOURCE_MAX),
        "permit.binding.digest": _text("the digest of the binding (EFF-03)", _DIGEST, "64 hex digits"),
        "permit.cost": _amounts("the maximum cost"),
        "permit.charged": _amounts("what was charged"),
        "permit.overrun": _amounts("what was charged above the reservation (BUD-03)"),
        "permit.reservation": _texts("what is held at each level", _HELD, "task name:unit=amount", 300),
        "permit.ceiling": _amounts("the ceilings of a new task", _CEILINGS, "unit=amount or unit=inherit"),
        "permit.granted": _amounts("what an owner added"),
        "permit.lowered": _amounts("the ceilings that an owner lowered, as they are now (BUD-03)"),
        "permit.scope": _texts("what a new task names, and how often (BUD-06)", _SCOPE, "kind:name=count", 700),
        "permit.parent.id": _text("the task above it", TASK_ID_PATTERN, "task id"),
        "permit.actors": _texts("who may act in it", _NAME, "name"),
        "permit.expires_ms": _whole("when the permit or task ends, ms since the epoch"),
        "permit.deadline_ms": _whole("until when the winner reports first-hand, ms since the epoch (ADM-07)"),
        "permit.tier": _text("where the authority comes from (POL-01)", _one_of(Tier), "issue or approval"),
        "permit.policy.ids": _texts("the policies that decided", _VISIBLE, "policy id"),
        "permit.policy.errors": _texts("the policies that failed", _ERROR, "policy id:reason"),
        "permit.bundle.digest": _text("the policy bundle (POL-06)", _DIGEST, "64 hex digits"),
        "permit.revision": _text("the owner revision", _DIGEST, "64 hex digits"),
        "permit.engine": _text("the policy engine and its version", _PRINTABLE, "printable ASCII", 64),
        "permit.obligations": _texts("what the decision obliges to", _PRINTABLE, "printable ASCII"),
        "permit.obligation": _text("the obligation that was closed (EFF-09)", _NAME, "name"),
        "permit.invocation.id": _text("the invocation (INV-01)", INVOCATION_ID_PATTERN, "invocation id"),
        "permit.invocations": _texts("invocations that went (LED-02)", INVOCATION_ID_PATTERN, "invocation id", 36),
        "permit.outcome": _text("how it ended, once (INV-02)", _one_of(InvocationOutcome), "outcome"),
        "permit.refusal": _text("the refusal code (SUR-02)", _one_of(RefusalCode), "refusal code"),
        "permit.refusal.field": _text("the field, name or unit at fault", _VISIBLE, "visible ASCII"),
        "permit.refusal.level": _text("whose bound stopped it", _PRINTABLE, "printable ASCII"),
        "permit.evidence.class": _text("what the outcome rests on", _one_of(EvidenceClass), "evidence class"),
        "permit.evidence.source": _text("where the evidence comes from", _PRINTABLE, "printable ASCII"),
        "permit.reference": _text("the provider's word", _PRINTABLE, "printable ASCII", REFERENCE_LENGTH_MAX),
        "permit.late": Attribute(kind="flag", says="whether the evidence came after the outcome was unknown"),
        "permit.contradicts": _text("what this evidence contradicts, and does not change", _WORD, "snake_case word"),
        "permit.attempt": _text("inspect, or resend under the same key (REC-03)", _WORD, "snake_case word"),
        "permit.seen": _text("what an inspection saw (REC-02)", _WORD, "snake_case word"),
        "permit.fields": _texts("the names of the payload fields that were shown (EFF-10)", _NAME, "field name"),
        "permit.reason": _text("why", _WORD, "snake_case word"),
        "permit.command": _text("the command that was refused", _COMMAND, "command name"),
        "permit.instance": _text("the process that acts (ADM-07)", _VISIBLE, "visible ASCII", 64),
        "permit.host.trace_id": _text("the host's own trace, never trusted", _TRACE_ID, "32 hex digits"),
        "permit.sink.name": _text("the sink", _NAME, "name"),
        "permit.sink.kind": _text("what kind of sink", _WORD, "snake_case word"),
        "permit.sink.location_digest": _text("SHA-256 of its place", _DIGEST, "64 hex digits"),
        "permit.count": _whole("how many"),
        "permit.collected": _texts("the effects that are tombstones from here on", EFFECT_ID_PATTERN, "effect id", 36),
        "permit.forgotten": _whole("tombstones of effects without a permit that went (LED-02)"),
        "permit.clock.before_ms": _whole("the last entry before a clock was accepted, ms since the epoch (PER-03)"),
        "permit.base.epoch": _whole("the epoch of the last span in the backup (LED-08)"),
        "permit.base.sequence": _whole("the sequence of that span"),
        "permit.sinks.left": _texts(
            "where each sink stood that had seen more than the backup (LED-08)", _LEFT,
            "name=epoch:sequence:leaf:tree root", 320,
        ),
        "permit.permit.id": _text("the permit that was spent (LED-08)", PERMIT_ID_PATTERN, "permit id"),
        "permit.content.key": _text("the keyed hash that tells repetition (EFF-03)", _DIGEST, "64 hex digits"),
        "permit.resource.key": _text("the keyed hash of the resource", _DIGEST, "64 hex digits"),
        "permit.schema.from": _whole("the schema before an upgrade"),
        "permit.schema.to": _whole("the schema after it"),
        "permit.sqlite": _text("the version of SQLite", _VISIBLE, "visible ASCII", 64),
    },
)  # fmt: skip
"""Every attribute that a caller of the recorder may set."""

AUTOMATIC: Final[Mapping[str, str]] = MappingProxyType(
    {
        "permit.ledger.id": "the ledger",
        "permit.epoch": "the epoch of the position (AUD-05)",
        "permit.lane": "the lane of the position",
        "permit.sequence": "the sequence of the position",
        "permit.transition": "what happened; the span's name is this word after `permit.`",
        "permit.story": "the effect, task or ledger whose trace the span joins",
        "permit.effect.id": "the effect, where there is one",
        "permit.state.from": "the state before, where one moves",
        "permit.state.to": "the state after, where one moves",
    },
)
"""What the recorder sets by itself; a caller cannot."""


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"permit.{name}" for name in names)


_EVERY: Final = _named("caller", "revision", "host.trace_id", "instance")
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
    return SpanShape(required=required, optional=(optional | _EVERY) - required, state_to=state_to)


SPANS: Final[Mapping[TransitionName, SpanShape]] = MappingProxyType(
    {
        TransitionName.LEDGER_CREATED: _shape(_MODE, _named("sqlite", "engine")),
        TransitionName.SINK_REGISTERED: _shape(
            _MODE | _named("sink.name", "sink.kind", "sink.location_digest"), _named("reason")
        ),
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
            _EFFECT | _named("tier", "expires_ms"), _ABOUT | _DECISION, EffectState.PERMITTED
        ),
        TransitionName.EFFECT_AWAITING_APPROVAL: _shape(
            _EFFECT, _ABOUT | _DECISION | _named("expires_ms"), EffectState.AWAITING_APPROVAL
        ),
        TransitionName.EFFECT_DENIED: _shape(
            _EFFECT | _named("refusal"), _ABOUT | _DECISION, EffectState.DENIED
        ),
        TransitionName.EFFECT_EXPIRED: _shape(
            _EFFECT, _ABOUT | _named("expires_ms", "reason"), EffectState.EXPIRED
        ),
        TransitionName.EFFECT_WITHDRAWN: _shape(_EFFECT, _ABOUT | _named("reason"), EffectState.WITHDRAWN),
        TransitionName.EFFECT_REVOKED: _shape(
            _EFFECT, _ABOUT | _named("reason", "expires_ms"), EffectState.REVOKED
        ),
        TransitionName.EFFECT_REPLAYED: _shape(
            _EFFECT
            | _named("caller", "root.id", "class", "binding.digest", "cost", "reservation", "permit.id"),
            _ABOUT | _named("tier", "reason", "reference", "expires_ms"),
            EffectState.UNKNOWN,
        ),
        TransitionName.EFFECT_ADMITTED: _shape(
            _EFFECT | _named("cost", "reservation", "deadline_ms"),
            _ABOUT | _DECISION | _named("expires_ms", "permit.id"),
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
        TransitionName.EFFECT_OBLIGED: _shape(_EFFECT | _named("obligations"), _ABOUT),
        TransitionName.OBLIGATION_DONE: _shape(_EFFECT | _named("obligation", "late"), _ABOUT),
        TransitionName.INVOCATION_OPENED: _shape(
            _MODE | _named("invocation.id", "task.id", "actor", "deadline_ms"), _named("task.name", "root.id")
        ),
        TransitionName.INVOCATION_ENDED: _shape(
            _MODE | _named("invocation.id", "task.id", "actor", "outcome", "reason"),
            _named("task.name", "root.id", "deadline_ms", "refusal", "refusal.level"),
        ),
        TransitionName.REFUSED: _shape(
            _named("mode", "command", "refusal"),
            _ABOUT | _DECISION | _named("evidence.class", "expires_ms", "sink.name"),
        ),
    },
)
"""Each kind of span. Names of effects also carry their task, actor, subject and operation, for AUD-06."""


def check(transition: Transition) -> None:
    """Refuse a transition whose span the vocabulary does not know (AUD-07).

    Raises:
        SpanNotRecorded: `vocabulary`; the sentence names the attribute or the part at fault, never a value.
    """
    shape = SPANS.get(transition.name)
    if shape is None:
        raise SpanNotRecorded("vocabulary", "The kind of the transition is not in the vocabulary.")
    _check_states(transition, shape)
    allows_redacted = transition.name in OUTCOMES
    for name, value in transition.attributes.items():
        if name not in shape.required and name not in shape.optional:
            # A name that is in no table may be a caller's own words, so it is not repeated.
            known = name if name in ATTRIBUTES or name in AUTOMATIC else "An attribute outside the table"
            raise SpanNotRecorded("vocabulary", f"{known} has no place in a span {transition.name.value}.")
        if not fits(name, value, allows_redacted=allows_redacted):
            raise SpanNotRecorded("vocabulary", f"{name} is not of the type or form in the vocabulary.")
    for name in sorted(shape.required):
        if name not in transition.attributes:
            raise SpanNotRecorded("vocabulary", f"{name} is missing in a span {transition.name.value}.")


def _check_states(transition: Transition, shape: SpanShape) -> None:
    """Refuse a story, effect id or move that contradicts the kind of the span."""
    story = transition.story
    if type(story) is not str or not _VISIBLE.match(story):
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


def fits(name: str, value: AttributeValue, *, allows_redacted: bool = False) -> bool:
    """Say whether a value has the exact type, form and bounds of the attribute `name` of `ATTRIBUTES`.

    An enum value is not plain text, as it has no canonical form. Where `allows_redacted`, a redaction mark
    stands for any text.
    """
    attribute = ATTRIBUTES[name]
    match attribute.kind:
        case "flag":
            return type(value) is bool
        case "whole":
            return type(value) is int and 0 <= value <= AMOUNT_MAX
        case "text":
            return type(value) is str and _text_fits(attribute, value, allows_redacted=allows_redacted)
        case "texts":
            return (
                type(value) is tuple
                and len(value) <= attribute.items_max
                and all(
                    type(item) is str and _text_fits(attribute, item, allows_redacted=allows_redacted)
                    for item in value
                )
            )


def _text_fits(attribute: Attribute, text: str, *, allows_redacted: bool) -> bool:
    # Characters are never more than bytes, so an overlong text is turned away before the pattern reads it.
    if len(text) > attribute.bytes_max or attribute.form is None:
        return False
    if not attribute.form.match(text):
        return allows_redacted and REDACTED.match(text) is not None
    return text.isascii() or len(text.encode()) <= attribute.bytes_max


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
