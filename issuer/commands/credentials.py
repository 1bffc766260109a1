"""`host token NAME` and `actor token NAME`: a credential for a program, shown once (SEC-02).

What is kept is its digest, as the latest word about that name; the credential before it is void from there on, in every
process, at its next command. With `revoke` nothing takes its place.
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
from ledger.model import InstantMs, Transition, TransitionName
from ledger.port import Verdict, View
from ledger.refusals import Refusal, RefusalCode

REVOKED = "revoked"


def host_token(visit: Visit, name: str, *, revoke: bool = False) -> Answer:
    """Make a host's credential, which replaces the one before; or, with `revoke`, take it away."""
    return at_the_edge(visit, lambda: _token(visit, CallerKind.HOST, name, revoke=revoke))


def actor_token(visit: Visit, name: str, *, revoke: bool = False) -> Answer:
    """Make an actor's own credential, which replaces the one before; or, with `revoke`, take it away."""
    return at_the_edge(visit, lambda: _token(visit, CallerKind.ACTOR, name, revoke=revoke))


def _token(visit: Visit, kind: CallerKind, name: str, *, revoke: bool) -> Answer:
    known = visit.house.profile.hosts if kind is CallerKind.HOST else visit.house.profile.actors
    if name not in known:
        raise unknown_name(visit.house, str(kind), name, known)
    if known[name].login != TOKEN_LOGIN and not revoke:
        say = f'The profile does not let {kind} {name} in by token; give it login = "token".'
        raise RefusedError(RefusalCode.UNSUPPORTED, field="login", say=say)
    credential = agent_name(kind, name)
    token, digest = ("", REVOKED) if revoke else new_token(kind, name)

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        before = view.ruling(RulingKind.TOKEN, credential)
        if revoke and (before is None or before.value == REVOKED):
            no = Refusal(code=RefusalCode.NOTHING_TO_CHANGE, field=str(kind))
            return Verdict(value=None, refusal=no, steps=(Step(transition=spans.refused(visit, no)),))
        transition = Transition(
            name=TransitionName.CREDENTIAL_REVOKED if revoke else TransitionName.CREDENTIAL_ISSUED,
            story=visit.house.ledger.ledger_id,
            attributes={**spans.common(visit), "permit.credential": credential},
        )
        ruling = Ruling(kind=RulingKind.TOKEN, name=credential, value=digest, since_ms=now)
        return Verdict(value=None, steps=(Step(transition=transition, changes=(RulingMade(ruling=ruling),)),))

    committed = visit.house.ledger.transact(acting(visit, decide))
    if committed.refusal is not None:
        return answering.refused(visit.house, committed.refusal)
    if revoke:
        return answering.about(visit.house, "revoked_now", more={"credential": credential})
    return answering.about(visit.house, "credential_issued", more={"credential": credential, "token": token})
