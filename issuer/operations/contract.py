"""The vocabulary of an operation: what an owner registered, and what an adapter must be able to do with it.

Rules: OPR-01 (what a contract declares), EFF-02 (what preparation pins), EFF-06 (preparation causes no effect),
REP-04..06 (what an answer proves; an undeclared answer proves nothing).
An adapter is trusted code. It is given values that are already checked, and it is never asked twice for one effect.
Next: `issuer.operations.registry` builds operations from a profile; `http_adapter`, `file_adapter` and
`host_adapter` implement `Adapter`.
"""

from collections.abc import Mapping
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


class Proof(StrEnum):
    """What an answer proves under the contract (OPR-01)."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NO_EFFECT = "no_effect"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What an adapter may send, once: the prepared effect exactly as it was bound.

    Attributes:
        effect_id: given to the service as idempotency key where the contract has one.
        request: the same values that were prepared.
        preparation: what preparation pinned; dispatch resolves nothing again (EFF-02).
        deadline_ms: instant after which nothing more may be sent.
        remaining_ms: milliseconds left until then when dispatch began; every wait is bounded by it.
    """

    effect_id: EffectId
    request: Request
    preparation: Preparation
    deadline_ms: InstantMs
    remaining_ms: DurationMs


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, and what it proves under the contract.

    Attributes:
        proof: NOTHING where the answer is not declared (REP-05).
        reference: the provider's own reference as received, at most 256 printable ASCII characters, or empty.
        source: who said so, e.g. `http:201` or `file`; a stable word, never content.
        charged: measured cost per unit where the service proves one, else None (then the maximum is charged).
    """

    proof: Proof
    source: str
    reference: str = ""
    charged: Mapping[str, int] | None = None


class Adapter(Protocol):
    """Trusted code that prepares and sends one kind of operation."""

    @property
    def kind(self) -> str:
        """The stable word for this adapter: `file`, `http`, `host`."""
        ...

    @property
    def implementation(self) -> str:
        """Digest (hex) of the adapter's own code and settings: a change voids outstanding permits (OPR-02)."""
        ...

    def prepare(self, request: Request) -> Preparation:
        """Resolve the actual target and what must still hold at commit; change nothing (EFF-06).

        Raises:
            PreparationRefusedError: the target cannot be prepared.
        """
        ...

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """Return None where every precondition still holds, else the word for the first that does not (EFF-07)."""
        ...

    def dispatch(self, order: Order) -> Answer:
        """Send once. Any exception other than `NotDispatchedError` means the outcome is unknown (REP-05).

        Raises:
            NotDispatchedError: nothing was sent, provably.
        """
        ...
