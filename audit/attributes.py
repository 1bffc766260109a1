"""The attributes that a span of the audit may carry: each with its exact type, form and bound.

Rules: AUD-07 (closed), SEC-01 (each text has a form and a bound, so that free text has no place).
Next: `audit.vocabulary` says which kind of span carries which.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from ledger.invocations import INVOCATION_ID_PATTERN, InvocationOutcome
from ledger.model import (
    AMOUNT_MAX,
    EFFECT_ID_PATTERN,
    NAME_PATTERN,
    PERMIT_ID_PATTERN,
    TASK_ID_PATTERN,
    UNIT_PATTERN,
    EvidenceClass,
    Tier,
)
from ledger.refusals import RefusalCode
from ledger.transitions import AttributeValue

__all__ = ["ATTRIBUTES", "AUTOMATIC", "VISIBLE", "Attribute", "Kind", "fits"]

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
VISIBLE: Final = re.compile(r"[!-~]{1,128}\Z")
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


_FINGERPRINT: Final = re.compile(r"SHA256:[A-Za-z0-9+/]{43}\Z")
_QUORUM: Final = re.compile(rf"{_bare(NAME_PATTERN)}=[1-9]\Z")
_STOP: Final = re.compile(
    rf"(?:all|(?:person|actor|host|operation|class|key|task|permit):{_bare(NAME_PATTERN)})\Z"
)
_CREDENTIAL: Final = re.compile(rf"(?:person|actor|host):{_bare(NAME_PATTERN)}\Z")
_KEY_ID: Final = re.compile(r"[0-9a-f]{8}\Z")


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
        "permit.resource.type": _text("the type of the actual resource", VISIBLE, "visible ASCII"),
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
        "permit.policy.ids": _texts("the policies that decided", VISIBLE, "policy id"),
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
        "permit.refusal.field": _text("the field, name or unit at fault", VISIBLE, "visible ASCII"),
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
        "permit.instance": _text("the process that acts (ADM-07)", VISIBLE, "visible ASCII", 64),
        "permit.host.trace_id": _text("the host's own trace, never trusted", _TRACE_ID, "32 hex digits"),
        "permit.sink.name": _text("the sink", _NAME, "name"),
        "permit.sink.kind": _text("what kind of sink", _WORD, "snake_case word"),
        "permit.sink.location_digest": _text("SHA-256 of its place", _DIGEST, "64 hex digits"),
        "permit.sink.leaf": _text("the leaf of the last span that the old place held", _DIGEST, "64 hex digits"),
        "permit.sink.from": _whole("the first sequence that the sink is not given"),
        "permit.sink.upto": _whole("the last sequence that this is about"),
        "permit.tree.size": _whole("how many spans the tree holds (RFC 9162 section 2.1)"),
        "permit.tree.root": _text("the root of that tree", _DIGEST, "64 hex digits"),
        "permit.format": _text("the form in which spans were given out", _WORD, "snake_case word"),
        "permit.filter.digest": _text("keyed hash of what was asked for", _DIGEST, "64 hex digits"),
        "permit.gone.digest": _text(
            "SHA-256 over the sequences of all archived spans", _DIGEST, "64 hex digits"
        ),
        "permit.file.digest": _text("SHA-256 of the file", _DIGEST, "64 hex digits"),
        "permit.count": _whole("how many"),
        "permit.looked_ms": _whole("when a look was that is recorded later, ms since the epoch (AUD-06)"),
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
        "permit.signer": _text("the person whose key signed the statement (APP-01)", _NAME, "name"),
        "permit.statement.digest": _text("SHA-256 of the statement that was signed", _DIGEST, "64 hex digits"),
        "permit.key.fingerprint": _text("the key that signed", _FINGERPRINT, "SHA256:base64"),
        "permit.approvers": _texts("how many people of each group have to say yes", _QUORUM, "group=count", 80),
        "permit.approvals": _texts("whose yes counts (APP-03)", _NAME, "name"),
        "permit.revision.activated": _text("the owner revision from here on (POL-07)", _DIGEST, "64 hex digits"),
        "permit.revision.before": _text("the owner revision until here", _DIGEST, "64 hex digits"),
        "permit.files": _texts("the files of the owner that changed", VISIBLE, "visible ASCII"),
        "permit.stop": _text("what is stopped, or no longer", _STOP, "kind, or kind:name", 140),
        "permit.credential": _text("whose credential", _CREDENTIAL, "kind:name", 140),
        "permit.key.id": _text("a key of the issuer's own ring", _KEY_ID, "8 hex digits"),
        "permit.sqlite": _text("the version of SQLite", VISIBLE, "visible ASCII", 64),
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
