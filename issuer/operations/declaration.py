"""The operation contract as one value, and the one way in: what cannot hold is not registered.

Decides what may be declared together (OPR-01, OPR-04, EFF-04, REC-02, REC-03), and that an adapter is able to do what
is declared of it (OPR-01, OPR-05). In order:
  1. a `Contract` cannot exist without finite costs and times, with a resend that no service's key makes harmless, or
     with an absence that proves something for no reason   2. the adapter has the shape of one, and its digest is one
  and stays one   3. the contract is about this adapter   4. the adapter implements what the contract declares.
An adapter's `Abilities` narrow what an owner may declare and grant nothing: an adapter without any has none.
It does not send, and it does not look at the world. Next: `issuer.operations.registry` keeps what was registered.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from issuer.errors import SetupError
from issuer.operations.contract import Absence, Adapter, Inspector, Proof
from issuer.operations.payload import Field
from issuer.operations.templates import Template
from ledger.model import AMOUNT_MAX, DurationMs

__all__ = [
    "ANSWERS_MAX",
    "CLEANUP_MAX",
    "DEADLINE_MS_MAX",
    "NO_ABILITIES",
    "SENTENCES",
    "Abilities",
    "AuditNeed",
    "ConditionalWrite",
    "Contract",
    "Idempotency",
    "InspectionTerms",
    "Registered",
    "RegistrationCode",
    "RegistrationRefusedError",
    "Resend",
    "register",
]

DEADLINE_MS_MAX: Final = 7 * 24 * 60 * 60 * 1000
"""Milliseconds: the longest duration that a profile knows (`issuer.profile.limits.DURATION_MS_MAX`)."""

ANSWERS_MAX: Final = 512
"""Answer classes of one contract: every status of HTTP that can prove something, with room."""

CLEANUP_MAX: Final = 16
"""Obligations of one contract: each is looked after by a person."""

_WORD: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_ANSWER: Final = re.compile(r"[a-z][a-z0-9_:-]{0,63}")
_UNIT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z][A-Za-z0-9_]*)*")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


class RegistrationCode(StrEnum):
    """Why an operation was not registered; stable words."""

    CONTRACT_MALFORMED = "contract_malformed"
    NO_FINITE_COST = "no_finite_cost"
    NO_FINITE_TIME = "no_finite_time"
    RESEND_WITHOUT_KEY = "resend_without_key"
    RESEND_WITHOUT_RETENTION = "resend_without_retention"
    ABSENCE_WITHOUT_REASON = "absence_without_reason"
    ADAPTER_MALFORMED = "adapter_malformed"
    IMPLEMENTATION_UNSTEADY = "implementation_unsteady"
    ADAPTER_OTHER = "adapter_other"
    CHECK_THEN_WRITE = "check_then_write"
    CONDITION_NOT_IMPLEMENTED = "condition_not_implemented"
    KEY_NOT_IMPLEMENTED = "key_not_implemented"
    PROOF_NOT_IMPLEMENTED = "proof_not_implemented"
    CHARGE_NOT_IMPLEMENTED = "charge_not_implemented"
    INSPECTION_NOT_IMPLEMENTED = "inspection_not_implemented"
    SETTINGS_NOT_HONOURED = "settings_not_honoured"
    ADAPTER_NOT_FOUND = "adapter_not_found"
    ADAPTER_UNREADABLE = "adapter_unreadable"
    ADAPTER_NOT_ADMITTED = "adapter_not_admitted"
    ADAPTER_CHANGED = "adapter_changed"
    ADAPTER_FAILED = "adapter_failed"


SENTENCES: Final[Mapping[RegistrationCode, str]] = MappingProxyType(
    {
        RegistrationCode.CONTRACT_MALFORMED: "its contract has a value that no contract can have.",
        RegistrationCode.NO_FINITE_COST: "it needs at least one unit, each from 0 to a greatest whole amount.",
        RegistrationCode.NO_FINITE_TIME: "its times are whole milliseconds, more than nothing and at most 7 days.",
        RegistrationCode.RESEND_WITHOUT_KEY: "sending again needs a key that the service itself enforces.",
        RegistrationCode.RESEND_WITHOUT_RETENTION: (
            "sending again needs the time for which the service keeps the key, and is not longer than that."
        ),
        RegistrationCode.ABSENCE_WITHOUT_REASON: (
            "absence proves something only after a stated delay and for a stated reason."
        ),
        RegistrationCode.ADAPTER_MALFORMED: "its adapter lacks a method, a kind, or a digest of 64 hex digits.",
        RegistrationCode.IMPLEMENTATION_UNSTEADY: "its adapter's digest or kind changed between two readings.",
        RegistrationCode.ADAPTER_OTHER: "its contract speaks of another adapter or implementation.",
        RegistrationCode.CHECK_THEN_WRITE: (
            "its adapter checks and then writes, so it has no conditional write to declare."
        ),
        RegistrationCode.CONDITION_NOT_IMPLEMENTED: "its adapter carries no condition of the declared kind.",
        RegistrationCode.KEY_NOT_IMPLEMENTED: "its adapter hands the service no idempotency key.",
        RegistrationCode.PROOF_NOT_IMPLEMENTED: "its adapter never gives an answer that proves what is declared.",
        RegistrationCode.CHARGE_NOT_IMPLEMENTED: "its adapter cannot read a charge from an answer.",
        RegistrationCode.INSPECTION_NOT_IMPLEMENTED: "its adapter cannot inspect, and nothing else does it.",
        RegistrationCode.SETTINGS_NOT_HONOURED: "its adapter cannot honour what is declared.",
        RegistrationCode.ADAPTER_NOT_FOUND: "no adapter of that name is installed or handed over.",
        RegistrationCode.ADAPTER_UNREADABLE: "the source files of its adapter cannot be read whole.",
        RegistrationCode.ADAPTER_NOT_ADMITTED: "its adapter is another one than the owner admitted.",
        RegistrationCode.ADAPTER_CHANGED: (
            "its adapter's files changed since this process loaded it; start the process anew."
        ),
        RegistrationCode.ADAPTER_FAILED: "its adapter could not be loaded or made.",
    }
)
"""One sentence each, after `The operation NAME cannot be registered: `."""


class RegistrationRefusedError(SetupError):
    """An operation was not registered; the owner or the author of the adapter is at fault. Nothing was changed.

    `reason` is a `RegistrationCode`, `operation` the operation's name.
    """

    def __init__(self, code: RegistrationCode, operation: str, more: str = "") -> None:
        """Make the one sentence; `more` is ours and follows it."""
        say = f"The operation {operation} cannot be registered: {SENTENCES[code]}"
        super().__init__(str(code), f"{say} {more}" if more else say)
        self.code = code
        self.operation = operation


class ConditionalWrite(StrEnum):
    """Who refuses the write where the target is no longer what was prepared; `none` is said, not left out (OPR-04)."""

    NONE = "none"
    SERVICE = "service"
    FILE_SYSTEM = "file_system"


class AuditNeed(StrEnum):
    """What has to be on record before anything is sent; this release knows no lesser need (ADM-03)."""

    EVERY_REQUIRED_SINK = "every_required_sink"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """What the service does with a key that it has seen before.

    Attributes:
        scope: within what one key names one effect, in the owner's words, e.g. the endpoint and account.
        kept_ms: how long the service remembers a key, or None where it does not say.
    """

    scope: str
    kept_ms: DurationMs | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """That the same key may be sent again as reconciliation, `within_ms` of the first attempt (REC-03)."""

    within_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionTerms:
    """How the truth can be learned later (REC-01).

    Attributes:
        by: the stable word for what looks: `http`, `file`, `python`.
        absence: when "not found" proves that nothing happened; None is never (REC-02).
    """

    by: str
    absence: Absence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What an adapter's code is able to do; a declaration that asks for more is refused (OPR-01).

    Attributes:
        proofs: what its answers can ever prove.
        conditional: which conditional write it carries.
        checks_then_writes: whether the target can be replaced between its check and its write (OPR-04).
        key: whether it hands the service the effect's identity as idempotency key.
        charges: whether it reads what the service charged.
    """

    proofs: frozenset[Proof] = frozenset()
    conditional: ConditionalWrite = ConditionalWrite.NONE
    checks_then_writes: bool = False
    key: bool = False
    charges: bool = False


NO_ABILITIES: Final = Abilities()
"""Of an adapter that says nothing about itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Everything that is declared of one operation; what is not supported is None, `none` or empty, and always said.

    Attributes:
        id: the operation's name; `version` counts up from 1 when its meaning changes.
        adapter: the adapter's kind; at preparation it derives the destination and the actual object (EFF-02).
        implementation: digest (64 hex digits) of the adapter's code and settings.
        payload: the typed fields; resource and recipients are derived from them by templates.
        action_class: the owner's class.
        cost: per unit the least and the greatest amount, whole numbers from 0 to 2^53-1 (EFF-04).
        lifetime_ms: longest life of a permit, or None where the class's alone holds.
        deadline_ms: from admission to the last moment at which something may be sent or reported.
        conditional_write: who enforces it (OPR-04).
        idempotency: the service's own, or None.
        resend: None where nothing is ever sent again.
        answers: each answer class, a stable word, and what it proves; any other proves nothing (REP-05).
        charged: whether an answer proves what was charged; else the maximum is (REP-06).
        inspection: None where nothing can be found out later.
        cleanup: names of what has to be put in order afterwards.
        audit: what has to be on record first.

    Raises:
        RegistrationRefusedError: it would be one of the combinations that cannot hold.
    """

    id: str
    version: int
    adapter: str
    implementation: str
    payload: tuple[Field, ...]
    resource_type: str
    resource_id: Template
    recipients: tuple[Template, ...]
    action_class: str
    cost: Mapping[str, tuple[int, int]]
    lifetime_ms: DurationMs | None
    deadline_ms: DurationMs
    conditional_write: ConditionalWrite
    idempotency: Idempotency | None
    resend: Resend | None
    answers: Mapping[str, Proof]
    charged: bool
    inspection: InspectionTerms | None
    cleanup: tuple[str, ...]
    audit: AuditNeed

    def __post_init__(self) -> None:
        """Refuse, with a `RegistrationRefusedError`, what cannot hold together (1)."""
        code = _flaw(self)
        if code is not None:
            raise RegistrationRefusedError(code, _shown(self.id))
        object.__setattr__(self, "cost", MappingProxyType(dict(self.cost)))
        object.__setattr__(self, "answers", MappingProxyType(dict(self.answers)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A contract and the code that carries it out, seen to fit each other; only `register` makes one."""

    contract: Contract
    adapter: Adapter
    inspector: Inspector | None


def register(contract: Contract, adapter: Adapter, inspector: Inspector | None = None) -> Registered:
    """Return contract and adapter as registered, or refuse them.

    Args:
        contract: what is declared.
        adapter: what sends; it may be anybody's object, so nothing about its shape is taken for granted.
        inspector: what finds out later, where it is not the adapter itself.

    Raises:
        RegistrationRefusedError: one sentence and a stable code.
    """
    if not all(callable(getattr(adapter, name, None)) for name in ("prepare", "still_holds", "dispatch")):
        raise RegistrationRefusedError(RegistrationCode.ADAPTER_MALFORMED, contract.id)  # 2
    first, again = _identity(adapter), _identity(adapter)
    if not (_matches(_WORD, first[0]) and _matches(_DIGEST, first[1])):
        raise RegistrationRefusedError(RegistrationCode.ADAPTER_MALFORMED, contract.id)
    if first != again:
        raise RegistrationRefusedError(RegistrationCode.IMPLEMENTATION_UNSTEADY, contract.id)
    if (contract.adapter, contract.implementation) != first:  # 3
        raise RegistrationRefusedError(RegistrationCode.ADAPTER_OTHER, contract.id)
    inspects = callable(getattr(adapter if inspector is None else inspector, "inspect", None))
    said = getattr(adapter, "abilities", NO_ABILITIES)
    code = _beyond(contract, said if type(said) is Abilities else NO_ABILITIES, inspects=inspects)
    if code is not None:  # 4
        raise RegistrationRefusedError(code, contract.id)
    return Registered(contract=contract, adapter=adapter, inspector=inspector)


def _identity(adapter: Adapter) -> tuple[object, object]:
    return getattr(adapter, "kind", None), getattr(adapter, "implementation", None)


def _beyond(contract: Contract, able: Abilities, *, inspects: bool) -> RegistrationCode | None:
    """Return the first thing that is declared and not implemented, or None."""
    conditional = contract.conditional_write is not ConditionalWrite.NONE
    if conditional and able.checks_then_writes:
        return RegistrationCode.CHECK_THEN_WRITE
    if conditional and able.conditional is not contract.conditional_write:
        return RegistrationCode.CONDITION_NOT_IMPLEMENTED
    if contract.idempotency is not None and not able.key:
        return RegistrationCode.KEY_NOT_IMPLEMENTED
    if not set(contract.answers.values()) <= able.proofs | {Proof.NOTHING}:
        return RegistrationCode.PROOF_NOT_IMPLEMENTED
    if contract.charged and not able.charges:
        return RegistrationCode.CHARGE_NOT_IMPLEMENTED
    if contract.inspection is not None and not inspects:
        return RegistrationCode.INSPECTION_NOT_IMPLEMENTED
    return None


def _flaw(contract: Contract) -> RegistrationCode | None:
    """Return the first rule that a contract breaks, or None; an author's class may hold anything at all."""
    for code, holds in _RULES:
        try:
            if holds(contract):
                continue
        except (TypeError, AttributeError, ValueError):
            return code
        return code
    return None


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return type(value) is str and pattern.fullmatch(value) is not None


def _shown(name: object) -> str:
    """Return a name for a sentence; an author's free text is not repeated."""
    return str(name) if _matches(_WORD, name) else "without a name"


def _is_a(value: object, kind: type) -> bool:
    return type(value) is kind


def _is_whole(value: object, least: int, greatest: int) -> bool:
    return type(value) is int and least <= value <= greatest


def _is_well_formed(contract: Contract) -> bool:
    """Say whether names, digest, answers and obligations are such; an author's class may hold anything."""
    names = (contract.id, contract.adapter, contract.action_class, *contract.cleanup)
    return (
        all(_matches(_WORD, name) for name in names)
        and _is_whole(contract.version, 1, AMOUNT_MAX)
        and _matches(_DIGEST, contract.implementation)
        and len({field.name for field in contract.payload}) == len(contract.payload)
        and len(contract.answers) <= ANSWERS_MAX
        and all(_matches(_ANSWER, word) for word in contract.answers)
        and all(_is_a(proof, Proof) for proof in contract.answers.values())
        and _is_a(contract.conditional_write, ConditionalWrite)
        and _is_a(contract.charged, bool)
        and len(contract.cleanup) <= CLEANUP_MAX
        and _is_a(contract.audit, AuditNeed)
    )


def _is_finite(contract: Contract) -> bool:
    """Say whether every unit has a least and a greatest whole amount, and there is a unit (EFF-04)."""
    return bool(contract.cost) and all(
        _matches(_UNIT, unit)
        and type(bounds) is tuple
        and len(bounds) == len(("least", "greatest"))
        and _is_whole(bounds[0], 0, AMOUNT_MAX)
        and _is_whole(bounds[1], bounds[0], AMOUNT_MAX)
        for unit, bounds in contract.cost.items()
    )


def _has_finite_times(contract: Contract) -> bool:
    times = [contract.deadline_ms, *([] if contract.lifetime_ms is None else [contract.lifetime_ms])]
    return all(_is_whole(time, 1, DEADLINE_MS_MAX) for time in times)


def _has_key(contract: Contract) -> bool:
    return contract.resend is None or contract.idempotency is not None


def _is_kept(contract: Contract) -> bool:
    """Say whether the service keeps the key for as long as the contract lets it be sent again (REC-03)."""
    resend = contract.resend
    kept = None if contract.idempotency is None else contract.idempotency.kept_ms
    if kept is not None and not _is_whole(kept, 1, AMOUNT_MAX):
        return False
    return resend is None or (kept is not None and _is_whole(resend.within_ms, 1, kept))


def _has_reason(contract: Contract) -> bool:
    """Say whether a conclusive absence has its delay and its reason (REC-02)."""
    absence = None if contract.inspection is None else contract.inspection.absence
    if absence is None:
        return True
    because = absence.because
    return _is_whole(absence.after_ms, 0, AMOUNT_MAX) and type(because) is str and bool(because.strip())


_RULES: Final[tuple[tuple[RegistrationCode, Callable[[Contract], bool]], ...]] = (
    (RegistrationCode.CONTRACT_MALFORMED, _is_well_formed),
    (RegistrationCode.NO_FINITE_COST, _is_finite),
    (RegistrationCode.NO_FINITE_TIME, _has_finite_times),
    (RegistrationCode.RESEND_WITHOUT_KEY, _has_key),
    (RegistrationCode.RESEND_WITHOUT_RETENTION, _is_kept),
    (RegistrationCode.ABSENCE_WITHOUT_REASON, _has_reason),
)
"""What a contract is held to by itself, in the order in which a refusal is given."""
