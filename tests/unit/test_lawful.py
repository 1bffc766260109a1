"""The oracle that judges trails calls a real one lawful, and each doctored copy of it unlawful, for the right reason.

The real trail has everything that interleavings have: an automatic effect, one that two people answered, a stop and its
thaw, a host's, ends before an admission, slots, a grant, and a revocation that came too late.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from tests.support.doctored import Doctor, Trail
from tests.support.interleaved import VARIANTS, Ground, made_ground
from tests.support.interleaving_acts import World
from tests.support.issuers import permitted
from tests.support.lawful import Look, Oracle, spans_of
from tests.support.ledgers import Clock
from tests.support.revised import activated
from tests.support.service import Service, answer

pytestmark = pytest.mark.spec("ADM-01", "ADM-05", "APP-01", "APP-03", "APP-04", "BUD-02", "BUD-05", "POL-05")

Real = tuple[Trail, Ground, Mapping[str, int]]
ADMITTED, PREPARED, PERMITTED = "effect.admitted", "effect.prepared", "effect.permitted"
APPROVED, AWAITING = "effect.approved", "effect.awaiting_approval"
TWO, NOBODY, WITHOUT_DAN = 1, 3, 4
"""Places in the list of prepared revisions, which begins with the second variant."""


class Play:
    """The little history: one step after the other, under a clock that only the test moves."""

    def __init__(self, ground: Ground, service: Service) -> None:
        self.ground = ground
        self.world = World.read(ground.world)
        self.service = service
        self.clock = Clock(now_ms())
        self.effects: dict[str, str] = {}
        self.issuer = ground.made.open(clock=self.clock)

    def ask(self, name: str, amount: int, task: str = "t1", issuer: Issuer | None = None) -> str:
        asked = (issuer or self.issuer).request(
            "refund", {"order": f"o-{name}", "amount": amount}, task=task, actor="agent-7"
        )
        assert asked.effect is not None, asked
        self.effects[name] = asked.effect
        return asked.effect

    def send(self, name: str, issuer: Issuer | None = None) -> None:
        self.service.then(answer(201))
        assert (issuer or self.issuer).commit(self.effects[name]).code == "succeeded"

    def yes(self, name: str, person: str) -> str:
        statement = str(self.issuer.statement(self.effects[name]).more["statement"])
        signature = self.world.keys[person][0].sign(statement.encode())
        return self.issuer.approve(self.effects[name], signature).code

    def no(self, name: str, person: str) -> None:
        shown = self.issuer.statement(self.effects[name], decline="not_agreed")
        signature = self.world.keys[person][0].sign(str(shown.more["statement"]).encode())
        told = self.issuer.decline(self.effects[name], signature, reason="not_agreed")
        assert told.code == "declined_now", told

    def activate(self, place: int) -> None:
        assert activated(self.ground.made.profile, self.world.revisions[place], clock=self.clock)

    def run(self) -> None:
        """Play it all; the revisions are those of `VARIANTS` without the first, and then the first."""
        self.ask("auto", 40, "t1.a")
        self.send("auto")
        self.activate(1)
        self.ask("two", 70)
        assert (self.yes("two", "bob"), self.yes("two", "carol")) == ("approved", "permitted")
        self.send("two")
        self.ask("gone", 70)
        self.no("gone", "carol")
        self.ask("back", 70)
        assert self.issuer.withdraw(self.effects["back"]).code == "withdrawn_now"
        self.activate(0)
        self.ask("one", 70)
        assert self.yes("one", "dan") == "permitted"
        self.send("one")
        self.ask("thawed", 40)
        assert self.issuer.freeze("all").code == "suspended_now"
        assert self.issuer.commit(self.effects["thawed"]).code == "suspended"
        assert self.issuer.thaw("all").code == "resumed"
        self.send("thawed")
        self.ask("slot", 30, "t1.s")
        self.send("slot")
        self.ask("first", 70, "t1.c")
        assert self.yes("first", "bob") == "permitted"
        self.send("first")
        assert self.issuer.task_grant("t1.c", budget={"USD.cent": 50}).code == "granted"
        self.ask("granted", 40, "t1.c")
        self.send("granted")
        till = self.issuer.as_caller(token=self.world.token.read_text(encoding="utf-8"))
        self.ask("host", 40, issuer=till)
        self.send("host", till)
        self.ask("revoked", 40)
        assert self.issuer.revoke("effect", self.effects["revoked"]).code == "revoked_now"
        self.late()
        self.ask("expired", 70)
        self.clock.now += 60_000
        assert self.issuer.list().code == "found"

    def late(self) -> None:
        """Let an effect be revoked when a host has it already."""
        effect = permitted(self.issuer.request("publish", {"name": "r-1"}, task="t1", actor="agent-7"))
        self.effects["late"] = effect
        claim = str(self.issuer.admit(effect).more["claim"])
        assert self.issuer.revoke("effect", effect).code == "too_late"
        assert self.issuer.report(effect, claim, succeeded=True).code == "succeeded"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    with Service() as service:
        ground = made_ground(tmp_path_factory.mktemp("lawful") / "office", service.port)
        play = Play(ground, service)
        with play.issuer:
            play.run()
            trail = Trail(spans=tuple(spans_of(play.issuer)), effects=play.effects)
        sent = Counter(received.key for received in service.requests)
    return trail, ground, sent


def judged(trail: Trail, ground: Ground, *looks: Look) -> Oracle:
    return Oracle(terms=ground.terms.__getitem__, looks=looks).walk(trail.spans)


def test_a_real_trail_is_lawful_and_not_empty(real: Real) -> None:
    trail, ground, sent = real
    oracle = judged(trail, ground)
    assert oracle.wrongs == []
    assert oracle.judge_sent(sent, {trail.effects["late"]: 1}) == []
    assert oracle.admitted == 9
    ends = {name: oracle.effects[effect].state for name, effect in trail.effects.items()}
    assert {ends[name] for name in ("gone", "back", "revoked", "expired")} == {
        *("declined", "withdrawn", "revoked", "expired")
    }
    assert oracle.effects[trail.effects["late"]].revoked_late


def before(name: str, effect: str, span: str, **said: Any) -> Doctor:
    """Put a span of nobody's effect before one of an effect."""
    return lambda trail: trail.inserted(trail.place(span, effect), name, **said)


def told(span: str, effect: str, nth: int = 0, *, at_ms: int | None = None, **said: Any) -> Doctor:
    """Change what one span of an effect tells."""
    return lambda trail: trail.edited(trail.place(span, effect, nth), at_ms=at_ms, **said)


def dropped(span: str, effect: str, nth: int = 0) -> Doctor:
    return lambda trail: trail.without(trail.place(span, effect, nth))


def ended(span: str, effect: str, ahead_of: str) -> Doctor:
    """Let an effect end before it was used."""
    return lambda trail: trail.inserted(trail.place(ahead_of, effect), span, effect)


def of_task(name: str, task: str, effect: str, span: str = ADMITTED, **said: Any) -> Doctor:
    """Let a task change before a span of an effect."""

    def doctor(trail: Trail) -> Trail:
        identity = trail.at(opened(trail, task))["task.id"]
        return trail.inserted(trail.place(span, effect), name, task__id=identity, **said)

    return doctor


def opened(trail: Trail, task: str) -> int:
    return next(
        number
        for number, span in enumerate(trail.spans)
        if span.name == "task.opened" and span["task.name"] == task
    )


def at_opening(task: str, **said: Any) -> Doctor:
    return lambda trail: trail.edited(opened(trail, task), **said)


def again(span: str, effect: str) -> Doctor:
    """Let a span stand twice."""

    def doctor(trail: Trail) -> Trail:
        place = trail.place(span, effect)
        return trail.inserted(place + 1, span, effect, **_plain(trail.at(place).said))

    return doctor


def _plain(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("permit.").replace(".", "__"): value for name, value in said.items()}


def key_of(trail: Trail, effect: str, nth: int = 0) -> str:
    return str(trail.at(trail.place(APPROVED, effect, nth))["key.fingerprint"])


def costs_more(trail: Trail) -> Trail:
    for span in (PREPARED, ADMITTED):
        trail = trail.edited(trail.place(span, "auto"), cost=["USD.cent=401"])
    return trail


def revoked_and_thawed(trail: Trail) -> Trail:
    """Make of the freeze a revocation, which no thaw takes back for what was prepared before."""
    return trail.renamed(trail.place("stop.frozen"), "stop.revoked")


def thaw_dropped(trail: Trail) -> Trail:
    return trail.without(trail.place("stop.thawed"))


def stop_moved(trail: Trail) -> Trail:
    """Let the freeze stand before the admission of another effect; its thaw stays where it is."""
    return trail.moved(trail.place("stop.frozen"), trail.place(ADMITTED, "one"))


def late_yes(trail: Trail) -> Trail:
    place = trail.place(APPROVED, "two", 1)
    over = trail.at(trail.place(AWAITING, "two"))["expires_ms"]
    return trail.edited(place, at_ms=over)


def permit_over(trail: Trail) -> Trail:
    over = trail.at(trail.place(PERMITTED, "auto"))["expires_ms"]
    return trail.edited(trail.place(ADMITTED, "auto"), at_ms=over)


def same_person_twice(trail: Trail) -> Trail:
    return trail.edited(trail.place(APPROVED, "two", 1), signer="bob", key__fingerprint=key_of(trail, "two"))


def signs_with_anothers_key(trail: Trail) -> Trail:
    return trail.edited(trail.place(APPROVED, "two"), key__fingerprint=key_of(trail, "two", 1))


def key_revoked(trail: Trail) -> Trail:
    key = f"key:{key_of(trail, 'one')}"
    return trail.inserted(trail.place(ADMITTED, "one"), "stop.revoked", stop=key)


def task_over(trail: Trail) -> Trail:
    at_ms = trail.at(trail.place(ADMITTED, "auto")).at_ms
    return trail.edited(opened(trail, "t1"), expires_ms=at_ms)


def gap(trail: Trail) -> Trail:
    return replace(trail, spans=(*trail.spans[:20], *trail.spans[21:]))


def two_effects_of_one_id(trail: Trail) -> Trail:
    place = trail.place(PREPARED, "auto")
    return trail.inserted(place + 1, PREPARED, "auto", **_plain(trail.at(place).said))


def under(revision: int, effect: str, span: str = ADMITTED) -> Doctor:
    """Let another revision of the world be in force from a span of an effect on; filled in by the test."""
    return lambda trail: trail.activated(trail.place(span, effect), f"variant {revision}")


DOCTORED: Final[dict[str, tuple[Doctor, str]]] = {
    "a yes is missing": (dropped(APPROVED, "two"), "is no quorum"),
    "every yes is missing": (dropped(APPROVED, "one"), "is no quorum"),
    "the permit is missing": (dropped(PERMITTED, "auto"), "admitted from prepared"),
    "the request is missing": (dropped(PREPARED, "auto"), "never prepared"),
    "the waiting is missing": (dropped(AWAITING, "one"), "permitted as approval from prepared"),
    "the thaw is missing": (thaw_dropped, "the stop of all"),
    "the freeze stands before another admission": (stop_moved, "the stop of all"),
    "it was no freeze": (revoked_and_thawed, "the stop of all"),
    "the actor is frozen": (
        before("stop.frozen", "auto", ADMITTED, stop="actor:agent-7"),
        "the stop of actor:agent-7",
    ),
    "the subject is frozen": (
        before("stop.frozen", "auto", ADMITTED, stop="person:u-ana"),
        "the stop of person:u-ana",
    ),
    "whom it answers to is frozen": (
        before("stop.frozen", "auto", ADMITTED, stop="person:boss"),
        "the stop of person:boss",
    ),
    "who said yes is frozen": (
        before("stop.frozen", "one", ADMITTED, stop="person:dan"),
        "the stop of person:dan",
    ),
    "who said yes is frozen before": (
        before("stop.frozen", "one", APPROVED, stop="person:dan"),
        "does not count",
    ),
    "the operation is frozen": (
        before("stop.frozen", "auto", PERMITTED, stop="operation:refund"),
        "effect.permitted",
    ),
    "the class is revoked": (
        before("stop.revoked", "auto", ADMITTED, stop="class:refund"),
        "the stop of class:refund",
    ),
    "the host is frozen": (
        before("stop.frozen", "host", ADMITTED, stop="host:till"),
        "the stop of host:till",
    ),
    "a key is revoked": (key_revoked, "key is revoked"),
    "somebody else signed": (told(APPROVED, "two", 1, signer="mallory"), "does not count"),
    "the subject signed": (told(APPROVED, "two", 1, signer="u-ana"), "does not count"),
    "whom the actor answers to signed": (told(APPROVED, "two", 1, signer="boss"), "does not count"),
    "one person signed twice": (same_person_twice, "the same person twice"),
    "somebody signed with another's key": (signs_with_anothers_key, "does not count"),
    "another statement was signed": (told(APPROVED, "one", statement__digest="0" * 64), "another statement"),
    "a yes came late": (late_yes, "a late yes"),
    "fewer were asked": (told(AWAITING, "two", approvers=["finance=1"]), "asked are"),
    "it counts somebody who said nothing": (told(ADMITTED, "one", approvals=["bob", "dan"]), "it counts"),
    "it counts nobody": (told(PERMITTED, "one", approvals=[]), "it counts"),
    "another tier is used": (told(ADMITTED, "one", tier="issue"), "of the tier issue"),
    "a permit without anybody's yes": (
        told(PERMITTED, "one", tier="issue"),
        "permitted as issue from awaiting",
    ),
    "a second admission": (again(ADMITTED, "auto"), "for the 2. time"),
    "a second outcome": (again("effect.succeeded", "auto"), "an outcome of what is succeeded"),
    "an outcome without an admission": (dropped(ADMITTED, "auto"), "an outcome of what is permitted"),
    "it costs more than its task has": (costs_more, "above 400 in t1.a"),
    "another cost is admitted": (told(ADMITTED, "auto", cost=["USD.cent=1"]), "for another cost"),
    "the grant is missing": (lambda trail: trail.without(trail.place("task.granted")), "above 100 in t1.c"),
    "its ceiling was lowered": (
        of_task("task.lowered", "t1", "one", lowered=["USD.cent=9"]),
        "above 9 in t1",
    ),
    "more was charged than was held": (
        told("effect.succeeded", "auto", charged=["USD.cent=41"]),
        "the task t1 has an overrun",
    ),
    "its slots are used up": (at_opening("t1.s", scope=["class:refund=0"]), "1 of 0 slots"),
    "its task names another class": (
        at_opening("t1.s", scope=["class:other=1"]),
        "does not name class:refund",
    ),
    "its task names another actor": (at_opening("t1.a", actors=["agent-8"]), "does not name the actor"),
    "its task is frozen": (of_task("task.frozen", "t1.a", "auto"), "the task t1.a, which is frozen"),
    "a task above is closed": (of_task("task.closed", "org", "auto"), "the task org, which is closed"),
    "a closed task is thawed": (
        lambda trail: of_task("task.thawed", "org", "auto")(of_task("task.closed", "org", "auto")(trail)),
        "closed for good",
    ),
    "its task is over": (task_over, "the task t1, which is over"),
    "the permit is over": (permit_over, "when it was over"),
    "a permit lives longer than its request": (told(PERMITTED, "one", expires_ms=1 << 52), "lives longer"),
    "a no stands before the permit": (ended("effect.declined", "one", PERMITTED), "from declined"),
    "it was taken back before": (ended("effect.withdrawn", "auto", ADMITTED), "admitted from withdrawn"),
    "it was revoked before": (ended("effect.revoked", "auto", ADMITTED), "admitted from revoked"),
    "it ended after it was admitted": (ended("effect.revoked", "auto", "effect.succeeded"), "from admitted"),
    "it expired too early": (ended("effect.expired", "auto", ADMITTED), "expired too early"),
    "revoked late, and over": (
        ended("effect.revoked_late", "auto", PERMITTED),
        "revoked late, and it is prepared",
    ),
    "prepared twice": (two_effects_of_one_id, "prepared twice"),
    "the policies ask for nobody by then": (under(NOBODY, "one"), "do not give it"),
    "two are asked by then": (under(TWO, "one"), "is no quorum"),
    "dan left the group": (under(WITHOUT_DAN, "one"), "is no quorum"),
    "another revision is told": (told(ADMITTED, "auto", revision="0" * 64), "than the one in force"),
    "another revision is replaced": (
        lambda trail: trail.edited(trail.place("revision.activated", nth=2), revision__before="0" * 64),
        "what was not in force",
    ),
    "another task is told": (told(ADMITTED, "auto", task__id="tsk_0"), "another effect"),
    "something that cannot be judged": (before("ledger.restored", "auto", ADMITTED), "cannot be judged"),
    "an effect that cannot be judged": (ended("effect.replayed", "auto", ADMITTED), "cannot be judged"),
    "the time goes back": (told(ADMITTED, "auto", at_ms=1), "the time went back"),
    "a span is gone": (gap, "has a gap"),
}


@pytest.mark.parametrize("name", DOCTORED)
def test_each_doctored_copy_is_unlawful(real: Real, name: str) -> None:
    trail, ground, _sent = real
    doctor, why = DOCTORED[name]
    revisions = World.read(ground.world).revisions
    known = {**ground.terms} | {f"variant {place}": ground.terms[one] for place, one in enumerate(revisions)}
    fresh = doctor(trail)
    assert fresh.spans != trail.spans
    oracle = Oracle(terms=known.__getitem__).walk(fresh.spans)
    assert any(why in wrong for wrong in oracle.wrongs), oracle.wrongs


def test_the_table_has_distinct_doctors() -> None:
    assert len(DOCTORED) >= 60
    assert len(VARIANTS) == 6


LOOKS: Final[dict[str, tuple[Doctor, str]]] = {
    "frozen since": (
        before("stop.frozen", "auto", "effect.succeeded", stop="operation:refund"),
        "operation:refund",
    ),
    "revoked since": (ended("effect.revoked_late", "auto", "effect.succeeded"), "revoked late"),
    "its task was closed since": (of_task("task.closed", "t1", "auto", "effect.succeeded"), "the task t1"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_what_a_winner_could_see_must_not_be_sent(real: Real, name: str) -> None:
    trail, ground, sent = real
    doctor, why = LOOKS[name]
    fresh = doctor(trail)
    effect = trail.effects["auto"]
    place = fresh.place("effect.succeeded", "auto")
    for sequence, is_wrong in ((place, True), (place - 1, False)):  # what it could see, and one span earlier
        look = Look(effect=effect, sequence=sequence, at_ms=fresh.at(place).at_ms)
        oracle = judged(fresh, ground, look)
        by_trail = [wrong for wrong in oracle.wrongs if "the winner could see" in wrong and why in wrong]
        by_world = [
            wrong for wrong in oracle.judge_sent(sent, {}) if "was sent under" in wrong and why in wrong
        ]
        assert (len(by_trail), len(by_world)) == (is_wrong, is_wrong)


@pytest.mark.parametrize("instant", ["permit", "deadline"])
def test_a_winner_that_looks_when_it_is_over_must_not_send(real: Real, instant: str) -> None:
    trail, ground, sent = real
    place = trail.place(ADMITTED, "auto")
    permit, deadline = trail.at(trail.place(PERMITTED, "auto"))["expires_ms"], trail.at(place)["deadline_ms"]
    over = permit if instant == "permit" else max(permit, deadline)
    for at_ms in (over, over - 1) if instant == "permit" else (over,):
        look = Look(effect=trail.effects["auto"], sequence=place + 1, at_ms=at_ms)
        wrongs = [
            one for one in judged(trail, ground, look).judge_sent(sent, {trail.effects["late"]: 1}) if one
        ]
        assert bool(wrongs) is (at_ms == over)
        assert all(f"its {instant} was over" in one for one in wrongs)


def test_what_the_world_saw_is_held_against_the_trail(real: Real) -> None:
    trail, ground, sent = real
    given = {trail.effects["late"]: 1}
    not_sent: dict[str, Any] = {"evidence__class": "not_sent", "reason": "revoked", "charged": None}
    place = trail.place("effect.succeeded", "auto")
    back = judged(trail.edited(place, **not_sent).renamed(place, "effect.no_effect"), ground)
    assert back.wrongs == []
    cases: dict[str, tuple[Oracle, Mapping[str, int], Mapping[str, int]]] = {
        "was sent 2 times": (judged(trail, ground), {**sent, trail.effects["auto"]: 2}, given),
        "and never admitted": (judged(trail, ground), {**sent, trail.effects["gone"]: 1}, given),
        "was sent, and its winner says": (back, sent, given),
        "and nothing was sent": (judged(trail, ground), sent, {}),
    }
    for why, (oracle, saw, hosts) in cases.items():
        (wrong,) = oracle.judge_sent(saw, hosts)
        assert why in wrong


def test_a_winner_that_sent_nothing_says_why(real: Real) -> None:
    trail, ground, _sent = real
    place = trail.place("effect.succeeded", "auto")
    fresh = trail.edited(place, evidence__class="not_sent", reason="", charged=None)
    wrongs = judged(fresh.renamed(place, "effect.no_effect"), ground).wrongs
    assert any("does not say why" in wrong for wrong in wrongs)
