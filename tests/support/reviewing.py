"""A history of real commands for the questions of a reviewer, and an oracle that answers them by reading every span.

The oracle shares nothing with the product but the names of attributes: it reads the whole trail each time, asks no
index, and knows no page. One history is made for a whole module: a success, an unknown outcome, permits that were never
used in every way, noes that were followed by what they had forbidden, in time and too late, and every kind of answer of
people.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from issuer import Issuer
from tests.support.approving import POLICY, Office, made_office
from tests.support.cases import Clock
from tests.support.issuers import open_task, permitted, refund
from tests.support.service import Service, accept_then_close, answer

MINUTE_MS = 60_000
TOO_MUCH = 3_000
"""More than any policy of this issuer lets people decide, and less than the task bears."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One span as the oracle reads it."""

    sequence: int
    at_ms: int
    name: str
    said: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.said.get(f"permit.{name}")


@dataclass(frozen=True, kw_only=True)
class History:
    """One open issuer with things that happened; `effects` names the interesting ones."""

    office: Office
    clock: Clock
    effects: Mapping[str, str] = field(default_factory=dict)

    @property
    def issuer(self) -> Issuer:
        """The open issuer."""
        return self.office.issuer


def whole_trail(issuer: Issuer) -> list[Seen]:
    """Read every span."""
    rows = issuer._house.ledger.read(lambda view: view.spans_after(0, limit=1_000_000))
    found = []
    for row in rows:
        said = json.loads(row.body)["attributes"]
        name = said["permit.transition"]
        found.append(Seen(sequence=row.position.sequence, at_ms=row.at_ms, name=name, said=said))
    return found


@contextmanager
def history(folder: Path) -> Iterator[History]:
    """Make one."""
    clock = Clock()
    script = [answer(201), accept_then_close(), *[answer(201) for _ in range(8)]]
    with Service(*script) as service:
        made, keys = made_office(folder, port=service.port, policy=POLICY.replace("<= 100000", "<= 2000"))
        with made.open(clock=clock) as issuer:
            office = Office(issuer=issuer, service=service, made=made, keys=keys)
            effects = dict(_lived(office, clock))
            yield History(office=office, clock=clock, effects=effects)


def _lived(office: Office, clock: Clock) -> Iterator[tuple[str, str]]:
    issuer = office.issuer
    issuer.task_grant("t1", budget={"USD.cent": 5_000})
    yield "done", _sent(issuer, _asked(issuer, "o-1", 300), "succeeded")
    yield "unknown", _sent(issuer, _asked(issuer, "o-2", 200), "outcome_unknown")
    taken_back = _asked(issuer, "o-4", 40)
    issuer.withdraw(taken_back)
    yield "withdrawn", taken_back
    revoked = _asked(issuer, "o-5", 50)
    issuer.revoke("permit", revoked)
    yield "revoked", revoked
    over = _asked(issuer, "o-6", 60)
    yield "expired", over
    # A no in time before what it forbade: another actor asks for less; the task is frozen, and thawed again.
    refund(issuer, order="o-7", amount=TOO_MUCH)
    yield "after_denial", _sent(issuer, _asked(issuer, "o-7", 70, actor="agent-8"), "succeeded")
    stopped = _asked(issuer, "o-8", 80)
    issuer.task_freeze("t1")
    if issuer.commit(stopped).code != "task_frozen":
        raise AssertionError(stopped)
    issuer.task_thaw("t1")
    yield "after_refusal", _sent(issuer, stopped, "succeeded")
    # A repeat of what was done is refused, and nothing was done after it.
    issuer.commit(stopped)
    # A repeat while it is under way is refused, and then it comes home. Another operation was denied on its like.
    refund(issuer, order="r-1", amount=TOO_MUCH)
    under_way = permitted(issuer.request("publish", {"name": "r-1"}, task="t1", actor="agent-7"))
    claim = str(issuer.admit(under_way).more["claim"])
    issuer.admit(under_way)
    if issuer.report(under_way, claim, outcome="succeeded").code != "succeeded":
        raise AssertionError(under_way)
    yield "came_home", under_way
    refund(issuer, order="o-9", amount=TOO_MUCH)
    clock.ahead_ms += 11 * MINUTE_MS
    issuer.list()
    yield "long_after_denial", _sent(issuer, _asked(issuer, "o-9", 90), "succeeded")
    refund(issuer, order="o-10", amount=TOO_MUCH)
    yield from _answered(office, clock)
    # By now every task of the standard issuer is over.
    open_task(issuer, "later", budget={"USD.cent": 1_000}, subject="u-ana", actors=["agent-7"], hours=100)
    yield "waiting", _asked(issuer, "o-3", 30, task="later")


def _answered(office: Office, clock: Clock) -> Iterator[tuple[str, str]]:
    issuer = office.issuer
    agreed = office.ask(order="a-1")
    office.approve(agreed, "u-ana")
    office.approve(agreed, "boss")
    office.approve(agreed, "bob")
    yield "approved", _sent(issuer, agreed, "succeeded")
    declined = office.ask(order="a-2")
    office.decline(declined, "carol", "suspicious")
    yield "declined", declined
    late = office.ask(order="a-3")
    text = office.statement(late)
    clock.ahead_ms += 25 * 60 * MINUTE_MS
    issuer.approve(late, office.signature("dan", text))
    yield "late", late


def _asked(issuer: Issuer, order: str, amount: int, *, actor: str = "agent-7", task: str = "t1") -> str:
    payload = {"order": order, "amount": amount}
    return permitted(issuer.request("refund", payload, task=task, actor=actor))


def _sent(issuer: Issuer, effect: str, code: str) -> str:
    told = issuer.commit(effect)
    if told.code != code:
        raise AssertionError(told)
    return effect


# ------------------------------------------------------------------------------------------------ the oracle


def those(spans: Sequence[Seen], wanted: Callable[[Seen], bool]) -> list[int]:
    """Return the sequences of the spans that are wanted."""
    return [span.sequence for span in spans if wanted(span)]


def unused_of(spans: Sequence[Seen]) -> dict[str, str]:
    """Return every permit that was never used, by effect, and how it stands."""
    found: dict[str, str] = {}
    for span in spans:
        effect = span["effect.id"]
        if span.name == "effect.permitted":
            found[effect] = "permitted"
        elif effect in found and span["state.to"] is not None:
            found[effect] = span["state.to"]
    return {
        effect: state
        for effect, state in found.items()
        if state in {"permitted", "expired", "withdrawn", "revoked"}
    }


def denied_then_done_of(spans: Sequence[Seen], within_ms: int) -> list[tuple[int, int]]:
    """Return each no with the first thing done after it, in time, for the same subject, operation and resource."""
    found = []
    for no in spans:
        if no.name not in {"effect.denied", "refused"} or no["resource.id"] is None:
            continue
        if no["command"] in {"approve", "decline", "statement"}:
            continue
        for done in spans:
            is_same = all(
                no[name] == done[name] for name in ("subject", "operation", "resource.type", "resource.id")
            )
            in_time = no.sequence < done.sequence and done.at_ms - no.at_ms <= within_ms
            if not (is_same and in_time and done.name in {"effect.admitted", "effect.succeeded"}):
                continue
            begun = [
                one.sequence
                for one in spans
                if one.name == "effect.admitted" and one["effect.id"] == done["effect.id"]
            ]
            came_home = done["effect.id"] == no["effect.id"] and min(begun) < no.sequence
            if not came_home:
                found.append((no.sequence, done.sequence))
                break
    return found


def amounts_of(spans: Sequence[Seen], name: str, of: str) -> dict[str, int]:
    """Add up an attribute of one kind of span."""
    total: Counter[str] = Counter()
    for span in spans:
        if span.name == name:
            for text in span[of] or ():
                unit, _, amount = text.rpartition("=")
                total[unit] += int(amount)
    return dict(total)
