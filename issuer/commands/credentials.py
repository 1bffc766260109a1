"""`host token NAME` and `actor token NAME`: a credential for a program, shown once (SEC-02).

What is kept is its digest, as the latest word about that name; the credential before it is void from there on, in every
process, at its next command. `revoke host NAME` takes one away.
Next: `issuer.tokens` reads one, `issuer.caller.refuse_caller` compares it.
"""

from issuer import answering
from issuer.caller import CallerKind, agent_name
from issuer.commands.edge import at_the_edge
from issuer.flow import spans
from issuer.flow.refusing import RefusedError, unknown_name
from issuer.flow.signed_act import acting
from issuer.house import Visit
from issuer.tokens import TOKEN_LOGIN, new_token
from issuer.wire import Answer
from ledger.authority import Ruling, RulingKind
from ledger.changes import RulingMade, Step
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.refusals import RefusalCode
from ledger.transitions import Transition, TransitionName


def host_token(visit: Visit, name: str) -> Answer:
    """Make a host's credential, which replaces the one before."""
    return at_the_edge(visit, lambda: _token(visit, CallerKind.HOST, name))


def actor_token(visit: Visit, name: str) -> Answer:
    """Make an actor's own credential, which replaces the one before."""
    return at_the_edge(visit, lambda: _token(visit, CallerKind.ACTOR, name))


def _token(visit: Visit, kind: CallerKind, name: str) -> Answer:
    known = visit.house.profile.hosts if kind is CallerKind.HOST else visit.house.profile.actors
    if name not in known:
        raise unknown_name(visit.house, str(kind), name, known)
    if known[name].login != TOKEN_LOGIN:
        say = f'The profile does not let {kind} {name} in by token; give it login = "token".'
        raise RefusedError(RefusalCode.UNSUPPORTED, field="login", say=say)
    credential = agent_name(kind, name)
    token, digest = new_token(kind, name)

    def decide(_view: View, now: InstantMs) -> Verdict[None]:
        transition = Transition(
            name=TransitionName.CREDENTIAL_ISSUED,
            story=visit.house.ledger.ledger_id,
            attributes={**spans.common(visit), "permit.credential": credential},
        )
        ruling = Ruling(kind=RulingKind.TOKEN, name=credential, value=digest, since_ms=now)
        return Verdict(value=None, steps=(Step(transition=transition, changes=(RulingMade(ruling=ruling),)),))

    visit.house.ledger.transact(acting(visit, decide))
    return answering.about(visit.house, "credential_issued", more={"credential": credential, "token": token})
