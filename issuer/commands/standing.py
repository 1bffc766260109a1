"""Where an effect stands, as an answer (REP-01).

A settled effect is reported as such only once every required sink has its outcome (AUD-02); asking again is what
lets a sink catch up, and sends nothing.
"""

from issuer import answering
from issuer.flow.dispatch import confirmed
from issuer.house import House
from issuer.wire import Answer, code_of
from ledger.model import Amounts, Effect, EvidenceClass
from ledger.refusals import RefusalCode
from ledger.states import EffectState


def standing_code(house: House, effect: Effect) -> str:
    """Return the code for where an effect stands; `no_effect` without a service's word is `not_dispatched`."""
    if effect.state is EffectState.NO_EFFECT:
        evidence = house.ledger.read(lambda view: view.evidence(effect.effect_id))
        # The word that ended it, whatever was said against it since (REC-05).
        ended_by = next((one for one in evidence if one.proves == str(effect.state)), None)
        if ended_by is not None and ended_by.evidence_class is EvidenceClass.NOT_SENT:
            return "not_dispatched"
    return code_of(effect.state)


def settled_answer(house: House, effect: Effect) -> Answer:
    """Answer a settled effect, or `audit_pending` while a required sink lacks its outcome."""
    if not confirmed(house, effect.sequence):
        return answering.about(house, str(RefusalCode.AUDIT_PENDING), effect)
    say = ""
    if effect.state is EffectState.NO_EFFECT and any(_charged(house, effect).values()):
        say = "The service says nothing happened; what was acknowledged as a charge stays charged."
    return answering.about(house, standing_code(house, effect), effect, say=say)


def _charged(house: House, effect: Effect) -> Amounts:
    return house.ledger.read(lambda view: view.charged(effect.effect_id))
