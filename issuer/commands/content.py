"""`show EFFECT --content`: the one way to look at what the protected store keeps, and on record every time (LED-03).

Decides what of it is shown: the sensitive payload fields, each with its salt, so that a reader can recompute the
commitment that the binding carries (EFF-10). Secret fields reach no view, and neither does what adapters derived,
which may repeat one. In order (ADR-0019):
  1. the content is read, and every field proven against its commitment   2. the span that names the fields is
  committed   3. only then is anything shown.
What was erased reads `erased`, and asking for it is on record as well. Nothing here changes what is kept.
Next: whoever reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from issuer import answering
from issuer.commands.edge import at_the_edge
from issuer.commands.roles import OBSERVE, find_to
from issuer.flow import spans
from issuer.flow.binding import payload_part, stored_member
from issuer.flow.content import LIVING
from issuer.flow.reference import find_tombstone
from issuer.flow.refusing import RefusedError
from issuer.house import House, Visit
from issuer.sealing import CommitmentBroken, ProtectedContentMissing, SealBroken, verify
from issuer.wire import Answer
from ledger.changes import Step
from ledger.errors import Malformed
from ledger.model import Effect, InstantMs, Tombstone
from ledger.port import Verdict, View
from ledger.refusals import RefusalCode

SHOWN, ERASED, NOTHING_HIDDEN = "shown", "erased", "nothing_hidden"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What may be shown.

    Attributes:
        status: `shown`, `erased`, or `nothing_hidden` where every field is public.
        fields: value, salt and commitment of each sensitive field.
        withheld: names of the secret fields.
    """

    status: str
    fields: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()


def show_content(visit: Visit, reference: str) -> Answer:
    """Show what an effect keeps under protection, after a span says so.

    An effect of somebody else reads like a missing one, unless a policy lets this person observe it (EFF-08). The
    answer's `content` has `status`, `fields` (for each `value`, `salt` in hex, `commitment` and `part`, the name
    inside the commitment) and `withheld`.
    """
    found: list[Effect] = []

    def run() -> Answer:
        effect = find_to(visit, reference, OBSERVE)
        if effect is None:
            tombstone = find_tombstone(visit, reference)
            if tombstone is None:
                raise RefusedError(RefusalCode.NOT_FOUND)
            looked = _Looked(status=ERASED)
            _record(visit, tombstone, looked)
            return answering.collected(visit.house, "found", tombstone, _told(looked))
        found.append(effect)
        looked = _look(visit.house, effect)
        _record(visit, effect, looked)
        return answering.about(visit.house, "found", effect, more=_told(looked))

    return at_the_edge(visit, run, found)


def _look(house: House, effect: Effect) -> _Looked:
    """Do 1.

    Raises:
        RefusedError: `permit_broken`, where what is kept is not what was bound, or is gone too early.
    """
    if not effect.protected:
        return _Looked(status=NOTHING_HIDDEN)
    broken = RefusedError(RefusalCode.PERMIT_BROKEN, field="content")
    try:
        content = house.protected.get(effect.effect_id)
    except ProtectedContentMissing:
        if effect.state in LIVING:
            raise broken from None
        return _Looked(status=ERASED)
    except SealBroken:
        raise broken from None
    try:
        return _disclosed(effect, content)
    except (CommitmentBroken, KeyError, TypeError, ValueError, Malformed):
        raise broken from None


def _disclosed(effect: Effect, content: Mapping[str, object]) -> _Looked:
    """Return the sensitive fields, each proven to be what was bound; raises what a content of another form causes."""
    payload, salts = content["payload"], content["salts"]
    if not isinstance(payload, dict) or not isinstance(salts, dict):
        raise TypeError
    # A content that does not say which fields are secret was written before it did; then all of them may be.
    said = content.get("secret")
    secret = frozenset(said if isinstance(said, list) else payload)
    fields: dict[str, Mapping[str, object]] = {}
    for name in sorted(payload.keys() - secret):
        part, value = payload_part(name), payload[name]
        commitment = str(stored_member(effect.binding, "payload", name, "commitment"))
        verify(bytes.fromhex(salts[part]), part, value, commitment)
        fields[name] = {"value": value, "salt": salts[part], "commitment": commitment, "part": part}
    return _Looked(status=SHOWN, fields=fields, withheld=tuple(sorted(payload.keys() & secret)))


def _record(visit: Visit, about: Effect | Tombstone, looked: _Looked) -> None:
    """Do 2.

    Raises:
        Fault: as `ledger.port.Ledger.transact`; then nothing may be shown.
    """
    step = Step(transition=spans.content_shown(visit, about, tuple(looked.fields), reason=looked.status))

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        return Verdict(value=None, steps=(step,))

    visit.house.ledger.transact(decide)


def _told(looked: _Looked) -> dict[str, object]:
    return {
        "content": {
            "status": looked.status,
            "fields": {name: dict(shown) for name, shown in looked.fields.items()},
            "withheld": list(looked.withheld),
        },
    }
