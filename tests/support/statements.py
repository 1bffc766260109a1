"""Statements made without a ledger: an effect over a binding of `tests.support.bindings`, and who is asked."""

from typing import Any, Final

from issuer.approving.recompute import SEPARATOR
from issuer.approving.statement import Asking, Declining, RegistryFact, Since, statement_bytes
from issuer.flow.binding import Names, Pinned, binding_digest
from issuer.operations.registry import Operation
from ledger.model import DurationMs, Effect, InstantMs, LedgerId, TaskId, Unit
from ledger.states import EffectState
from tests.support.bindings import EXPIRES_MS, body_of, names_of, operation_of, pinned_of

DAY_MS: Final = 86_400_000
ASKED_MS: Final = InstantMs(EXPIRES_MS - 3_600_000)

DECISION: dict[str, Any] = {
    "policies": ["larger-refunds"],
    "obligations": [],
    "bundle": "b" * 64,
    "facts": {"earlier": {"same_payload_pending": 0, "same_resource_succeeded": 2}},
}


def effect_of(
    pinned: Pinned, names: Names | None = None, *, amount: int = 300, expires_ms: int = EXPIRES_MS
) -> Effect:
    """Return an effect over a binding; what no statement says is the same in all of them."""
    who = names or names_of()
    body = body_of(pinned, who, amount=amount, expires_ms=expires_ms)
    return Effect(
        effect_id=who.effect_id,
        state=EffectState.AWAITING_APPROVAL,
        caller=who.caller,
        task_id=TaskId(who.task_id),
        root_id=TaskId(who.task_id),
        subject=who.subject,
        actor=who.actor,
        operation=pinned.operation.name,
        action_class=pinned.operation.action_class,
        resource_type=pinned.operation.resource_type,
        resource_id=pinned.resource_id,
        request_key="k-1",
        request=b"{}",
        binding=body,
        binding_digest=binding_digest(body),
        content_key=b"c" * 32,
        resource_key=b"r" * 32,
        cost={Unit("USD.cent"): amount},
        protected=pinned.has_protected,
        prepared_ms=InstantMs(1),
        expires_ms=InstantMs(expires_ms),
        window_ends_ms=InstantMs(expires_ms),
        invocation_id=who.invocation_id,
    )


def asking_of(**changed: Any) -> Asking:
    """Return what was on record when people were asked, with some of it changed."""
    parts: dict[str, Any] = {
        "issuer": "f0",
        "ledger_id": LedgerId("led_" + "0" * 32),
        "zone": "Europe/Berlin",
        "task": "t1",
        "answers_to": "boss",
        "registries": {},
        "permit_ms": DurationMs(600_000),
        "approvers": {"finance": 2},
        "asked_ms": ASKED_MS,
        "decision": DECISION,
        "key": b"k" * 32,
    }
    return Asking(**(parts | changed))


def fact_of(*, iban: str = "DE01", **since: Any) -> RegistryFact:
    """Return a row of a registry that has been as it is for 30 days, with some of that changed."""
    parts: dict[str, Any] = {"at_ms": ASKED_MS - 30 * DAY_MS, "revision": "5" * 64, "or_before": False}
    return RegistryFact(row={"id": "acme", "iban": iban}, since=Since(**(parts | since)))


def statement_of(
    pinned: Pinned | None = None,
    names: Names | None = None,
    *,
    declining: Declining | None = None,
    operation: Operation | None = None,
    amount: int = 300,
    expires_ms: int = EXPIRES_MS,
    **asking: Any,
) -> bytes:
    """Return the statement of an effect with this binding."""
    bound = pinned or pinned_of(operation or operation_of())
    effect = effect_of(bound, names, amount=amount, expires_ms=expires_ms)
    return statement_bytes(effect, bound, asking_of(**asking), declining)


def printed(statement: bytes) -> str:
    """Return what a person reads, without the lines that are of this one effect whatever it does."""
    human = statement.decode("ascii").partition(SEPARATOR)[0]
    aside = ("effect: ", "binding_digest: ", "challenge: ")
    return "\n".join(line for line in human.split("\n") if not line.startswith(aside))
