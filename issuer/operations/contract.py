"""The vocabulary of an operation: what an owner registered, and what an adapter must be able to do with it.

Rules: OPR-01 (what a contract declares), EFF-02 (what preparation pins), EFF-06 (preparation causes no effect),
REP-04..06 (what an answer proves; an undeclared answer proves nothing).
An adapter is trusted code. It is given values that are already checked, and it is asked to send once for one effect;
the one exception is a resend under the same key, which the owner's contract proves harmless (REC-03).
Next: `issuer.operations.registry` builds operations from a profile; `http_adapter`, `file_adapter`, `host_adapter` and
`python_adapter` implement `Adapter`, and what each shows later is an `Inspector`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from ledger.model import DurationMs, EffectId, InstantMs

PREPARE_BYTES_MAX: Final = 24 * 1024
"""Bytes, as JSON, of what an adapter may pin: the longest URL twice, addresses and names; well inside a binding."""


class NotDispatchedError(Exception):
    """The adapter proves that nothing was sent: raised before the first byte leaves, never after (REP-04).

    `reason` is a stable snake_case word; no message of a third party is kept.
    """

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


class AuthorityEndedError(Exception):
    """What an adapter is about to do next is not allowed any more (ADM-05): raised by `Order.still_allowed` alone.

    Where nothing had left by then, the adapter may say so with `NotDispatchedError`; otherwise it lets this pass, or
    answers what it proves (`partial`), and the outcome is unknown. `reason` is a stable snake_case word.
    """

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


def demand_allowed(reason: str | None) -> None:
    """Return where there is no reason to stop.

    Raises:
        AuthorityEndedError: there is one.
    """
    if reason is not None:
        raise AuthorityEndedError(reason)


class PreparationRefusedError(Exception):
    """The target cannot be prepared (for example the file to replace does not exist). Nothing happened.

    `code` is stable; `field` names the payload field or None; the message is one sentence without values.
    """

    def __init__(self, code: str, field_name: str | None, message: str) -> None:
        """Keep code, field and sentence."""
        super().__init__(message)
        self.args = (code, field_name, message)
        self.code = code
        self.field = field_name
        self.message = message


class TargetUnreadableError(Exception):
    """What the operation looks at before a decision or a commit could not be read; nothing was sent (EFF-06, EFF-07).

    `reason` is a stable snake_case word; no message of a third party is kept.
    """

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(reason)
        self.reason = reason


class Proof(StrEnum):
    """What an answer proves under the contract (OPR-01).

    `accepted` and `partial` leave the effect unknown: a submission that was taken is no job that was completed, and of
    a part that happened the rest is not proven (REP-06).
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_EFFECT = "no_effect"
    ACCEPTED = "accepted"
    PARTIAL = "partial"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an adapter prepares from: checked values and the owner's registries, nothing else.

    Attributes:
        values: payload by field, exact types.
        registries: for each registry field the owner's row for the named entry, by column (EFF-12).
    """

    values: Mapping[str, str | int | bool]
    registries: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """What preparation pins in the binding (EFF-02). All of it is JSON-able: text, whole numbers, lists, objects.

    More than `PREPARE_BYTES_MAX` of it is refused before anything is stored (EFF-06).

    Attributes:
        actual: canonical identity of the object that will change, not an alias or link (e.g. device and inode).
        destination: endpoint identity, resolved addresses, account and credential scope; never a credential.
        preconditions: what must still hold at commit (e.g. the digest of the file to replace).
    """

    actual: Mapping[str, object]
    destination: Mapping[str, object]
    preconditions: Mapping[str, object] = field(default_factory=dict)

    @property
    def facts(self) -> Mapping[str, str | int | bool]:
        """What was read before the decision, by name: known to the issuer, bound among the preconditions (POL-02)."""
        facts = self.preconditions.get("facts", {})
        return facts if isinstance(facts, Mapping) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an adapter may send, once: the prepared effect exactly as it was bound.

    Attributes:
        effect_id: given to the service as idempotency key where the contract has one.
        request: the same values that were prepared.
        preparation: what preparation pinned; dispatch resolves nothing again (EFF-02).
        deadline_ms: instant after which nothing more may be sent.
        remaining_ms: milliseconds left until then when dispatch began; every wait is bounded by it.
        still_allowed: to be called before each protected step after the first. It returns, or raises
            `AuthorityEndedError`: revoked or frozen since, task or invocation over, a deadline passed, or the ledger
            cannot be read (ADM-05). It reads the ledger, waits for no lock, and may be called from any thread.
    """

    effect_id: EffectId
    request: Request
    preparation: Preparation
    deadline_ms: InstantMs
    remaining_ms: DurationMs
    still_allowed: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, and what it proves under the contract.

    Attributes:
        proof: NOTHING where the answer is not declared (REP-05).
        reference: the provider's own reference as received, at most 256 printable ASCII characters, or empty.
        source: who said so, e.g. `http:201` or `file`; a stable word, never content.
        charged: measured cost per unit where the service proves one, else None (then the maximum is charged). Beside
            `partial` it is what the service proves of the cost so far; the whole maximum stays held.
    """

    proof: Proof
    source: str
    reference: str = ""
    charged: Mapping[str, int] | None = None


class Adapter(Protocol):
    """Trusted code that prepares and sends one kind of operation."""

    @property
    def kind(self) -> str:
        """The stable word for this adapter: `file`, `http`, `host`, `python`."""
        ...

    @property
    def implementation(self) -> str:
        """Digest (hex) of the adapter's own code and settings: a change voids outstanding permits (OPR-02)."""
        ...

    def prepare(self, request: Request) -> Preparation:
        """Resolve the actual target and what must still hold at commit; change nothing (EFF-06).

        Raises:
            PreparationRefusedError: the target cannot be prepared.
            TargetUnreadableError: what is declared to be read first cannot be read now.
        """
        ...

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return None where every precondition still holds, else the word for the first that does not (EFF-07).

        Raises:
            TargetUnreadableError: it cannot be looked at now.
        """
        ...

    def dispatch(self, order: Order) -> Answer:
        """Send once. Any exception other than `NotDispatchedError` means the outcome is unknown (REP-05).

        Raises:
            NotDispatchedError: nothing was sent, provably.
        """
        ...


class Seen(StrEnum):
    """What one inspection saw (REC-02). Only `found` and, under its terms, `absent` can resolve anything."""

    FOUND = "found"
    DIFFERS = "differs"
    ABSENT = "absent"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What an inspection looks for: the effect exactly as it was bound. It sends nothing that changes anything.

    Attributes:
        remaining_ms: milliseconds that the whole attempt has, from its one fixed deadline (REC-01).
    """

    effect_id: EffectId
    request: Request
    preparation: Preparation
    remaining_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What one inspection saw, and where.

    Attributes:
        seen: `found` only where what was found is this effect's own; another value in its place `differs`. A timeout,
            an error, 401, 429, a redirect or an answer that cannot be read are `unclear`.
        source: who said so, e.g. `http:404` or `file`; a stable word, never content.
        reference: the provider's own reference as received, at most 256 printable ASCII characters, or empty.
        charged: measured cost per unit where the service proves one, else None.
    """

    seen: Seen
    source: str
    reference: str = ""
    charged: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """When "not found" proves that nothing happened (REC-02): the owner's terms.

    Attributes:
        after_ms: delay from the later of the sender's certain end and its deadline.
        because: what makes a late acceptance impossible, in the owner's words.
    """

    after_ms: DurationMs
    because: str


class Inspector(Protocol):
    """Trusted code that finds out what became of an effect, whoever sent it."""

    def inspect(self, look: Look) -> Inspection:
        """Look once, within the time given; whatever goes wrong is `unclear`, never an exception of the service's."""
        ...
