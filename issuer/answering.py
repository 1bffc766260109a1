"""From what happened to the one answer, and from faults to their codes: the same on every surface (SUR-01, SUR-02).

Faults before anything was sent say so. A fault after an admission was committed is `outcome_unknown`, whatever it
was; the commands see to that before they come here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from audit import AuditUnavailable
from audit.errors import TrailUnreadable
from issuer.checkpoints.errors import CheckpointRefused, CheckpointUnavailable
from issuer.clock import instant_text
from issuer.credentials import CredentialForeign
from issuer.house import House
from issuer.sealing import (
    KeysUnavailable,
    KeyUnusable,
    ProtectedContentTooLarge,
    ProtectedStoreFull,
    ProtectedStoreUnavailable,
)
from issuer.wire import Answer
from issuer.wire.codes import CODES
from ledger.errors import (
    CommitUncertain,
    Fault,
    LedgerCorrupt,
    LedgerUnavailable,
    Malformed,
    SpanNotRecorded,
)
from ledger.model import Effect, Tombstone
from ledger.refusals import Refusal, RefusalCode

_FAULT_CODES: Final[Mapping[type[Fault], str]] = {
    Malformed: str(RefusalCode.MALFORMED),
    LedgerUnavailable: str(RefusalCode.LEDGER_UNAVAILABLE),
    LedgerCorrupt: str(RefusalCode.LEDGER_UNAVAILABLE),
    SpanNotRecorded: str(RefusalCode.AUDIT_UNAVAILABLE),
    AuditUnavailable: str(RefusalCode.AUDIT_UNAVAILABLE),
    TrailUnreadable: str(RefusalCode.MALFORMED),
    CheckpointRefused: str(RefusalCode.CHECKPOINT_REFUSED),
    CheckpointUnavailable: str(RefusalCode.AUDIT_UNAVAILABLE),
    CommitUncertain: str(RefusalCode.OUTCOME_UNKNOWN),
    KeysUnavailable: str(RefusalCode.KEYS_UNAVAILABLE),
    KeyUnusable: str(RefusalCode.KEYS_UNAVAILABLE),
    CredentialForeign: str(RefusalCode.KEYS_UNAVAILABLE),
    ProtectedStoreFull: str(RefusalCode.LEDGER_FULL),
    ProtectedContentTooLarge: str(RefusalCode.MALFORMED),
    ProtectedStoreUnavailable: str(RefusalCode.LEDGER_UNAVAILABLE),
}


def damaged_say(damage: LedgerCorrupt) -> str:
    """Return the sentence beside what is shown out of a damaged ledger (LED-04)."""
    return (
        f"The ledger is damaged ({damage.reason}), so new effects are stopped, "
        "and what is shown may not be what was written; run `issuer ledger check`."
    )


def code_of_fault(fault: Fault) -> str:
    """Return the code that tells a caller about a fault; one that no table names is ours."""
    if isinstance(fault, LedgerUnavailable) and fault.reason in {"clock_behind", "clock_ahead"}:
        return str(RefusalCode.CLOCK_UNTRUSTED)
    if isinstance(fault, LedgerUnavailable) and fault.reason == "trail_full":
        return str(RefusalCode.LEDGER_FULL)
    return next((_FAULT_CODES[kind] for kind in type(fault).__mro__ if kind in _FAULT_CODES), "fault")


def about(
    house: House,
    code: str,
    effect: Effect | None = None,
    *,
    say: str = "",
    more: Mapping[str, object] | None = None,
) -> Answer:
    """Return the answer with `code` about `effect`; out of a damaged ledger it says that nothing of it is proven."""
    say = say or CODES[code].say
    damage = house.ledger.damage
    if damage is not None:
        say, more = f"{say} {damaged_say(damage)}", {**(more or {}), "damaged": damage.reason}
    if effect is None:
        return Answer(issuer=house.issuer, code=code, mode=house.mode, say=say, more=more or {})
    return Answer(
        issuer=house.issuer,
        code=code,
        mode=house.mode,
        effect=effect.effect_id,
        state=str(effect.state),
        operation=effect.operation,
        resource=f'{effect.resource_type}::"{effect.resource_id}"',
        cost={str(unit): amount for unit, amount in effect.cost.items()},
        expires=instant_text(effect.expires_ms),
        say=say,
        more=more or {},
    )


def collected(
    house: House, code: str, tombstone: Tombstone, more: Mapping[str, object] | None = None
) -> Answer:
    """Return the answer with `code` about what stays of a collected effect."""
    answer = about(house, code, say=say_of(str(RefusalCode.COLLECTED)), more=more)
    return replace(
        answer,
        effect=tombstone.effect_id,
        state=str(tombstone.state),
        operation=tombstone.operation,
    )


_NAMED: Final = {
    "task": "There is no task of that name; open it first.",
    "parent": "There is no task of that name to open another one below.",
    "operation": "The owner has declared no operation of that name.",
    "actor": "The owner has declared no actor of that name.",
    "invocation": "There is no such invocation of this caller here; open one first.",
    "obligation": "This effect obliges to nothing of that name.",
    "subject": "The owner has declared no person of that name.",
}

_SIGNED: Final = {
    "malformed": "That is no signature as ssh-keygen writes it.",
    "namespace": "It was signed for something else: sign with 'ssh-keygen -Y sign -n permit-issuer'.",
    "hash": "It was signed with another hash than SHA-256 or SHA-512.",
    "algorithm": "Keys of that kind are not taken: use Ed25519, ECDSA, RSA, or a touch key.",
    "unknown_key": "The key that signed is not registered to anybody who could sign this.",
    "presence": "The touch key was not touched: sign again, and touch it.",
    "bad_signature": "It was signed over another text: print the statement anew, and sign it as it is.",
    "arguments": "Another act was signed: print the statement of this very command, and sign it.",
    "command": "Another act was signed: print the statement of this very command, and sign it.",
    "expired": "What was signed is good for ten minutes only: print the statement anew, and sign it.",
    "replayed": "That signature was used before: print the statement anew, and sign it.",
}
"""What was wrong with a signature, by the field of its refusal, and what to do."""


def say_of(code: str) -> str:
    """Return the fixed sentence of a code."""
    return CODES[code].say


def refusal_say(refusal: Refusal, say: str = "") -> str:
    """Return the sentence of a no: the owner's or step's own, else the code's with the field or level named."""
    if say:
        return say
    sentence = CODES[str(refusal.code)].say
    if refusal.code is RefusalCode.UNKNOWN_REFERENCE and refusal.field in _NAMED:
        return _NAMED[refusal.field]
    if refusal.code is RefusalCode.SIGNATURE_REFUSED and refusal.field in _SIGNED:
        return f"{_SIGNED[refusal.field]} Nothing was done."
    named = [f"{what}: {name}" for what, name in (("field", refusal.field), ("level", refusal.level)) if name]
    return f"{sentence} ({', '.join(named)})" if named else sentence


def refused(
    house: House, refusal: Refusal, effect: Effect | None = None, *, say: str = "", hint: str = ""
) -> Answer:
    """Return the answer of a no; `field` and `level` stand beside it if any, `hint` after its sentence."""
    named = {name: value for name, value in (("field", refusal.field), ("level", refusal.level)) if value}
    sentence = refusal_say(refusal, say)
    return about(house, str(refusal.code), effect, say=f"{sentence} {hint}" if hint else sentence, more=named)


def faulted(house: House, fault: Fault, effect: Effect | None = None) -> Answer:
    """Return the answer of a fault: its code, and its own sentence where that is the caller's or the world's."""
    code = code_of_fault(fault)
    more: dict[str, object] = {}
    if isinstance(fault, Malformed):
        more = {"field": fault.field, "reason": fault.code} if fault.field else {"reason": fault.code}
    else:
        reason = getattr(fault, "reason", None)
        if reason is not None:
            more = {"reason": str(reason)}
    say = "" if code == "fault" else f"{fault.message.rstrip('.')}."
    if code in {str(RefusalCode.LEDGER_UNAVAILABLE), str(RefusalCode.AUDIT_UNAVAILABLE)}:
        say = f"{say} Nothing was sent."
    return about(house, code, effect, say=say, more=more)
