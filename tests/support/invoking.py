"""What tests of invocations ask of a real issuer, with a clock that stands; and one issuer with a history of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from issuer import Issuer
from issuer.clock import now_ms
from issuer.wire import Answer
from ledger.model import InstantMs
from tests.support.busy import Busy
from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DUTY = "tell-customer"
OBLIGES = STANDARD_POLICY.replace('@id("small-refunds")', f'@id("small-refunds") @obligation("{DUTY}")')
WITHIN = {"[person]": f'[obligation.{DUTY}]\nwithin = "30m"\n[person]'}


class StandingClock:
    """A clock that stands a minute from now, and where a test puts it: instants are met exactly."""

    def __init__(self) -> None:
        self.start_ms = now_ms() + MINUTE_MS
        self.ahead_ms = 0

    def __call__(self) -> InstantMs:
        """Return the instant."""
        return InstantMs(self.start_ms + self.ahead_ms)


def told(said: Answer) -> Mapping[str, Any]:
    """Return what an answer says of an invocation."""
    found = said.more["invocation"]
    assert isinstance(found, dict)
    return found


def begun(issuer: Issuer, clock: StandingClock, *, task: str = "t1", within_ms: int = HOUR_MS) -> str:
    """Return an open invocation."""
    said = issuer.invocation_open(task, "agent-7", InstantMs(clock() + within_ms))
    assert said.code == "opened", said
    return str(told(said)["id"])


def outcome(issuer: Issuer, invocation: str) -> str | None:
    """Return how an invocation ended; None where it is open."""
    found: str | None = told(issuer.invocation_show(invocation))["outcome"]
    return found


def done_in(issuer: Issuer, service: Service, invocation: str, *, order: str = "o-1") -> str:
    """Return an effect of an invocation that was sent and succeeded."""
    effect = permitted(refund(issuer, order=order, amount=100, invocation=invocation))
    service.then(answer(201))
    assert issuer.commit(effect).code == "succeeded"
    return effect


def spans_of(issuer: Issuer, story: str) -> list[str]:
    """Return the names of the spans of one story."""
    return [span.name for span in issuer._house.ledger.read(lambda view: view.story(story))]


def obliging_issuer(folder: Path, *, port: int) -> Made:
    """Make the standard issuer, where small refunds oblige to tell the customer within half an hour."""
    return standard_issuer(folder, port=port, policy=OBLIGES, changes=WITHIN)


def invoked_issuer(folder: Path) -> Busy:
    """Make one with an invocation in every stage: open, ended, rejected, collected; with duties kept and open."""
    with Service() as service:
        made = obliging_issuer(folder, port=service.port)
        clock = StandingClock()
        with made.open(clock=clock) as issuer:
            issuer.invocation_cancel(begun(issuer, clock))
            assert issuer.ledger_collect(early=True).more["collected"] == {
                "effects": 0,
                "tombstones": 0,
                "contents": 0,
                "invocations": 1,
            }
            kept = begun(issuer, clock)
            effect = done_in(issuer, service, kept)
            issuer.obligation_done(effect, DUTY)
            assert issuer.invocation_end(kept, "succeeded").code == "ended"
            issuer.invocation_cancel(begun(issuer, clock))
            issuer.invocation_end(begun(issuer, clock), "failed_application")
            opened = begun(issuer, clock)
            done_in(issuer, service, opened, order="o-2")
            permitted(refund(issuer, order="o-3", amount=5, invocation=opened))
            issuer.task_close("t1.b")
            issuer.invocation_open("t1.b", "agent-7", InstantMs(clock() + HOUR_MS))
    return Busy(folder=folder)
