"""`audit hash`: under which name the trail keeps an object whose own name is not public (AUD-06, EFF-10, SEC-01).

Spans, columns and answers name such an object `hidden:` and a keyed hash, so that nobody can guess it without the key;
a reviewer who knows the name asks here for the hash, and with that for the spans. In order (ADR-0036):
  1. the edge lets whoever may observe ask, and no agent   2. the ask is on record, with the hash and without the name
  3. only then is the hash told: without a record of each ask it could be asked for guess after guess.
Next: whoever asks the trail.
"""

from typing import Final

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.flow import spans
from issuer.flow.prepare import HIDDEN, RESOURCE_BYTES_MAX, named_resource, resource_key
from issuer.flow.refusing import unknown_name
from issuer.house import Visit
from issuer.wire import Answer
from ledger.changes import Step
from ledger.errors import Malformed
from ledger.model import InstantMs
from ledger.port import Verdict, View

_ONE: Final = 1
HASHED_BYTES_MAX: Final = RESOURCE_BYTES_MAX + 2
"""Bytes that are read of a name: the longest one, a line end, and one more that makes it too long."""


def audit_hash(visit: Visit, resource_type: str, name: bytes) -> Answer:
    """Tell the keyed hash of the object `name` of a declared `resource_type`; one line end after the name is left off.

    The answer's `hash` is 64 hex digits, as `permit.resource.key` has it in each span of a preparation, and `id` the
    name under which a hidden object stands in every other place. What another operation calls by the same type and name
    has the same hash.
    """

    def run() -> Answer:
        house = visit.house
        declared = {operation.resource_type for operation in house.operations.values()}
        if resource_type not in declared:
            raise unknown_name(
                house, "resource", resource_type, declared, say="No operation declares that type."
            )
        try:
            text = name.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("not_utf8", "resource", "the resource's name is not UTF-8") from None  # 1
        key = resource_key(house, resource_type, named_resource(text)).hex()
        said = {"resource_type": resource_type, "resource_id": HIDDEN + key}
        step = Step(transition=spans.observed(visit, None, count=_ONE, **said))

        def decide(_view: View, _now: InstantMs) -> Verdict[None]:
            return Verdict(value=None, steps=(step,))

        house.ledger.transact(decide)  # 2
        more: dict[str, object] = {"resource_type": resource_type, "hash": key, "id": HIDDEN + key}
        return answering.about(house, "found", more=more)  # 3

    return at_the_edge(visit, run)
