"""An adapter that does what it is asked, in memory, and says what it cost; a test chooses the word and the charge.

It implements the real port. Its charges are whatever the test wants, since an adapter of somebody else may have
been written by anybody; everything else about it is honest.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from issuer import Issuer
from issuer.operations.contract import Answer, Order, Preparation, Proof, Request
from tests.support.cases import rebuilt


class ChargingAdapter:
    """Does nothing but count; implements `contract.Adapter`."""

    kind: Final = "memory"
    implementation: Final = "ab" * 32

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.proof: Proof = Proof.SUCCEEDED
        self.charged: Any = None

    def prepare(self, request: Request) -> Preparation:
        """See `Adapter.prepare`."""
        return Preparation(actual={"order": str(request.values["order"])}, destination={"kind": self.kind})

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        """See `Adapter.still_holds`."""
        return None if self.prepare(request) == preparation else "destination_changed"

    def dispatch(self, order: Order) -> Answer:
        """See `Adapter.dispatch`."""
        self.orders.append(order)
        return Answer(proof=self.proof, source="memory", reference="ref-1", charged=self.charged)


def with_adapter(issuer: Issuer, adapter: ChargingAdapter) -> Issuer:
    """Return the same open issuer, whose operation `refund` is sent by `adapter`."""
    operations: Mapping[str, Any] = issuer._house.operations
    return rebuilt(
        issuer, operations={**operations, "refund": replace(operations["refund"], adapter=adapter)}
    )
