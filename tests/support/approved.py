"""A real issuer whose ledger holds every kind of ruling, waits and approvals; made once and copied.

What people and owners do is committed as bare steps: what a check says of rows depends on no command.
"""

from pathlib import Path
from typing import Final

from issuer import Issuer
from issuer.clock import now_ms
from issuer.flow.issue import sealed
from ledger.authority import RulingKind, Stop
from ledger.model import Effect, EffectId, InstantMs, Tier
from ledger.port import Ledger, Verdict, View
from ledger.scope import slot_takes
from tests.support.busy import Busy
from tests.support.issuers import permitted, refund, standard_issuer
from tests.support.ledger_authority import (
    approve,
    asking,
    declining,
    one_of_each,
    permitting_approved,
    rule,
)
from tests.support.ledger_stages import current
from tests.support.ledgers import Clock, commit_steps
from tests.support.service import Service

GROUPS: Final = {"finance": 2, "stewards": 1}


def bare(issuer: Issuer) -> Ledger:
    """Return the ledger of an issuer, whichever revision is in force."""
    return issuer._house.ledger.beneath


def waiting(issuer: Issuer, order: str, **wait: object) -> Effect:
    """Return an effect that waits for people."""
    ledger = bare(issuer)
    held = EffectId(str(refund(issuer, order=order, amount=5, hold=True).effect))
    effect = ledger.read(lambda view: view.effect(held))
    if effect is None:
        raise AssertionError(order)
    commit_steps(ledger, asking(effect, **wait))
    return current(ledger, effect)


def permit_approved(issuer: Issuer, effect: Effect) -> None:
    """Permit an effect that was approved, with a seal of its own."""
    house = issuer._house

    def decide(view: View, now: InstantMs) -> Verdict[None]:
        permit = sealed(house, effect, Tier.APPROVAL, {}, now)
        takes = tuple(slot_takes(view.path(effect.task_id), effect))
        return Verdict(value=None, steps=(permitting_approved(effect, permit, takes),))

    bare(issuer).transact(decide)


def approved_issuer(folder: Path) -> Busy:
    """Make one: effects that wait, were approved by one and by three, declined, permitted and collected."""
    with Service() as service:
        made = standard_issuer(folder, port=service.port)
        clock = Clock(now_ms())
        with made.open(clock=clock) as issuer:
            ledger = bare(issuer)
            commit_steps(ledger, declining(waiting(issuer, "o-gone")))
            assert issuer.ledger_collect(early=True).more["collected"]["effects"] == 1  # type: ignore[index]
            waiting(issuer, "o-waits")
            approve(ledger, waiting(issuer, "o-one", approvers=GROUPS), "u-ana")
            ready = waiting(issuer, "o-ready", approvers=GROUPS)
            for person in ("u-ana", "u-bo", "u-cy"):
                clock.now += 1
                approve(ledger, ready, person)
            permit_approved(issuer, ready)
            alone = waiting(issuer, "o-alone")
            approve(ledger, alone)
            permit_approved(issuer, alone)
            commit_steps(ledger, declining(waiting(issuer, "o-no")))
            permitted(refund(issuer, order="o-issued", amount=6))
            one_of_each(ledger)
            rule(ledger, RulingKind.STOP, "all", Stop.FROZEN)
            rule(ledger, RulingKind.STOP, "all", Stop.OPEN)
    return Busy(folder=folder)
