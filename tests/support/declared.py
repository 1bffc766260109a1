"""One declared HTTP operation that the tests of the adapter share, with every kind of placeholder."""

from collections.abc import Mapping

from issuer.operations.contract import Answer, Order, Preparation, Proof, Request
from issuer.operations.http_adapter import HttpAdapter, HttpSettings
from issuer.operations.templates import Template
from ledger.model import DurationMs, EffectId, InstantMs

EFFECT = EffectId("eff_" + "ab" * 16)
CANARY = "canary-4f1c-never-seen"
PAYLOAD: Mapping[str, str | int | bool] = {
    "vendor": "hetzner",
    "number": "R/1 19",
    "amount_cents": 90000,
    "urgent": True,
}
REQUEST = Request(values=PAYLOAD, registries={"vendor": {"iban": "DE02"}})


def settings(origin: str, **changes: object) -> HttpSettings:
    """Return the operation at this origin, with some of its settings changed."""
    declared: dict[str, object] = {
        "method": "POST",
        "body": {
            "to": Template.parse("{vendor.iban}"),
            "cents": Template.parse("{amount_cents}"),
            "currency": Template.parse("EUR"),
            "note": Template.parse("no. {number}"),
        },
        "bearer": "bank_token",
        "once": "Idempotency-Key",
        "proves": {201: Proof.SUCCEEDED, 409: Proof.FAILED, 422: Proof.NO_EFFECT},
        "timeout_s": 10,
    }
    if "url" not in changes:
        declared["url"] = Template.parse_url(origin + "/v1/payments/{vendor}/{number}?urgent={urgent}")
    return HttpSettings(**(declared | changes))  # type: ignore[arg-type]  # rows of tables name their own types


def secrets(name: str) -> str:
    """Give the canary as the one credential that is known."""
    assert name == "bank_token"
    return CANARY


def order_for(preparation: Preparation, remaining_ms: int = 10_000, request: Request = REQUEST) -> Order:
    return Order(
        effect_id=EFFECT,
        request=request,
        preparation=preparation,
        deadline_ms=InstantMs(0),
        remaining_ms=DurationMs(remaining_ms),
        still_allowed=lambda: None,
    )


def send(adapter: HttpAdapter, remaining_ms: int = 10_000) -> Answer:
    return adapter.dispatch(order_for(adapter.prepare(REQUEST), remaining_ms))
