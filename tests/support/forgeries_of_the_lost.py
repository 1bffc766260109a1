"""What carried an effect is lost: after people said yes and before its use, or before their signature is handed in."""

from collections.abc import Callable
from typing import Any

from issuer.clock import parse_instant
from issuer.wire import Answer
from tests.support.approving import POLICY
from tests.support.forging import NOBODY, TWO, Attack, Scene
from tests.support.revised import activated, rewritten

# --------------------------------------------------------------------------------- what no longer carries


def _after(act: Callable[[Scene], object], *people: str) -> Attack:
    """Approve, let `act` happen, and then commit."""

    def attack(scene: Scene) -> Answer:
        scene.approved(*people)
        act(scene)
        return scene.commit()

    return attack


def _before(act: Callable[[Scene], object], person: str = "bob") -> Attack:
    """Sign, let `act` happen, and then hand the signature in."""

    def attack(scene: Scene) -> Answer:
        signature = scene.signed_by(person)
        act(scene)
        return scene.approve(signature)

    return attack


def _to_the_end(scene: Scene) -> None:
    shown: Any = scene.issuer.show(scene.effect).expires
    scene.clock.ahead_ms += parse_instant(shown, "expires") - scene.clock()


def _policy(new: str) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        rewritten(scene.made.folder / "policies" / "policies.cedar", new)
        activated(scene.made.profile, clock=scene.clock)

    return act


BOB = 'bob = { roles = ["approver"], groups = ["finance"], key = "people/bob.pub" }'
LOST: dict[str, tuple[Attack, str]] = {
    "the approver's key revoked": (_after(lambda s: s.issuer.revoke("key", "bob")), "revoked"),
    "the approval revoked": (_after(lambda s: s.issuer.revoke("approval", s.effect, "bob")), "revoked"),
    "the approver suspended": (_after(lambda s: s.issuer.suspend("person", "bob")), "suspended"),
    "the approver's role taken away": (
        _after(lambda s: s.activate(BOB, BOB.replace('"approver"', '"reviewer"'))),
        "revoked",
    ),
    "the approver moved to another group": (
        _after(lambda s: s.activate(BOB, BOB.replace('"finance"', '"stewards"'))),
        "revoked",
    ),
    "the approver's key exchanged": (
        _after(lambda s: s.activate(BOB, BOB.replace("people/bob.pub", "people/new.pub"))),
        "revoked",
    ),
    "the approver made whom the actor answers to": (
        _after(lambda s: s.activate('answers_to = "boss"', 'answers_to = "bob"')),
        "prepare_again",
    ),
    "the policies of now want two": (_after(_policy(TWO)), "revoked"),
    "the policies of now say no": (_after(_policy(NOBODY)), "denied"),
    "the policy about approvers gone": (
        _after(
            _policy(
                POLICY.replace(
                    "principal in resource.approvers",
                    "principal in resource.approvers && principal == resource.subject",
                )
            )
        ),
        "denied",
    ),
    "everything frozen": (_after(lambda s: s.issuer.freeze()), "suspended"),
    "the operation revoked": (_after(lambda s: s.issuer.revoke("operation", "refund")), "revoked"),
    "the subject revoked and thawed": (
        _after(lambda s: (s.issuer.revoke("person", "u-ana"), s.issuer.thaw("person", "u-ana"))),
        "revoked",
    ),
    "the actor revoked": (_after(lambda s: s.issuer.revoke("actor", "agent-7")), "revoked"),
    "the task closed": (_after(lambda s: s.issuer.task_close("t1")), "task_closed"),
    "the root frozen": (_after(lambda s: s.issuer.task_freeze("org")), "task_frozen"),
    "the permit over, at its instant": (_after(_to_the_end), "expired"),
    "withdrawn by its caller": (_after(lambda s: s.issuer.withdraw(s.effect)), "withdrawn"),
    "a yes at the instant of the end": (_before(_to_the_end), "expired"),
    "a yes after a no": (_before(lambda s: s.office.decline(s.effect, "carol")), "declined"),
    "a yes of a suspended person": (_before(lambda s: s.issuer.suspend("person", "bob")), "forbidden"),
    "a yes with a revoked key": (_before(lambda s: s.issuer.revoke("key", "bob")), "forbidden"),
    "a yes under policies that say no": (_before(_policy(NOBODY)), "denied"),
    "a yes in a closed task": (_before(lambda s: s.issuer.task_close("t1")), "task_closed"),
    "a yes while the class is frozen": (_before(lambda s: s.issuer.freeze("class", "refund")), "suspended"),
}
