"""What is played: the public commands, by two processes on one file, with time, restarts and each other in between.

Left to chance few effects would come far, so most deeds take one that stands where it can go on, and some go a long way
by themselves. For Hypothesis all deeds are one rule, that draws which: by itself it leaves half of all rules out of an
example, and nothing much happens. Next: `tests.model.test_reference_machine`, how much of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.model.comparing import tally
from tests.model.drawn import (
    BOTH,
    SUBJECT,
    Words,
    amount,
    asked_of_tasks,
    charges,
    classes,
    grants,
    lowered,
    meanwhile,
    number,
    odd_words,
    operation,
    order,
    outcomes,
    root,
    unit,
    useful,
    who,
)
from tests.model.playing import LIVING, Playing
from tests.model.product import START
from tests.model.reference import Outcome
from tests.model.reference_tasks import NewTask
from tests.model.terms import HOUR, MINUTE, UNENDED_MAX
from tests.model.world import PENDING, UNRESOLVED, Effect

TASKS_MAX: Final = 9
"""Tasks of one play; every sum is added up for each of them after each step."""

F = TypeVar("F", bound=Callable[..., None])
Can = Callable[["LedgerMachine"], bool]


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One deed: what is drawn for it, and when it can be done."""

    drawn: dict[str, st.SearchStrategy[Any]]
    can: Can


DEEDS: Final[dict[str, Deed]] = {}
"""Every deed by the name of its method."""


def deed(can: Can = lambda _machine: True, **drawn: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Register a method as a deed."""

    def registered(method: F) -> F:
        DEEDS[method.__name__] = Deed(drawn=drawn, can=can)
        return method

    return registered


def has_effects(machine: "LedgerMachine") -> bool:
    """Say whether there is any effect."""
    return bool(machine.model.effects)


def may_open(machine: "LedgerMachine") -> bool:
    """Say whether another task can be opened."""
    return len(machine.model.tasks) < TASKS_MAX


class LedgerMachine(Playing):
    """The deeds, and the one rule that chooses."""

    @rule(data=st.data())
    def play(self, data: st.DataObject) -> None:
        """Do one deed."""
        can = [name for name, one in DEEDS.items() if name not in self.left_out and one.can(self)]
        name = data.draw(st.sampled_from(can), label="deed")
        words = data.draw(st.fixed_dictionaries(DEEDS[name].drawn), label=name)
        tally[f"deed {name}"] += 1
        getattr(self, name)(**words)

    # ----------------------------------------------------------------------------------- the tasks

    @initialize(
        money=st.sampled_from([15, 40, 90, 400]),
        slots=st.sampled_from([4, 12, 40]),
        left_out=st.sets(st.deferred(lambda: st.sampled_from(sorted(DEEDS))), max_size=9),
        begins=st.booleans(),
    )
    def first_tasks(self, money: int, slots: int, left_out: set[str], begins: bool) -> None:
        """Begin with a small tree; what is left out of a play makes room for more of the rest."""
        assume(begins)  # the simplest play, which Hypothesis tries first, would be nothing over and over
        self.start()
        self.left_out = left_out
        self.open_task(root("t0", money, slots, START + 400 * HOUR))
        below: Words = {"USD.cent": "inherit", "publish": 12, "token": "inherit"}
        self.open_task(NewTask(name="t1", parent="t0", budget=below, expires=START + 300 * HOUR))

    @deed(
        at=who, index=number, what=operation, which=order, cost=amount, outcome=outcomes, hold=st.booleans()
    )
    def whole_story(  # noqa: PLR0917
        self, at: str, index: int, what: str, which: str, cost: int, outcome: Outcome, hold: bool
    ) -> None:
        """Take an effect as far as it goes; the first deed is the one that is drawn most."""
        effect = self.ask(at, self.wish(self.able(index), what, which, cost), hold=hold)
        for _step in range(3):
            if effect is not None and effect.state in LIVING:
                self.go_on(at, effect, outcome)

    @deed(
        may_open,
        at=who,
        above=number,
        budget=useful,
        hours=st.sampled_from([1, 9, 90]),
        named=st.none() | classes,
    )
    def useful_task(self, at: str, above: int, budget: Words, hours: int, named: Words | None) -> None:
        name, parent, expires = self.free_name(), self.task(above).name, self.clock.wall + hours * HOUR
        scope = {"class": named}
        self.open_task(NewTask(name=name, parent=parent, budget=budget, expires=expires, scope=scope), at)

    @deed(may_open, at=who, money=st.sampled_from([0, 30, 200]))
    def another_root(self, at: str, money: int) -> None:
        self.open_task(root(self.free_name(), money, 3, self.clock.wall + 60 * HOUR), at)

    @deed(may_open, at=who, above=st.one_of(number, number, st.none()), asked=asked_of_tasks)
    def any_task(self, at: str, above: int | None, asked: dict[str, Any]) -> None:
        words = dict(asked)
        expires = self.clock.wall + words.pop("hours") * HOUR
        parent = None if above is None else self.task(above).name
        self.open_task(NewTask(name=self.free_name(), parent=parent, expires=expires, **words), at)

    @deed(at=who, index=number, budget=grants, top=st.booleans())
    def grant(self, at: str, index: int, budget: dict[str, int], top: bool) -> None:
        task = self.task(index)
        name = (task.root if top else task).name
        self.say(
            at,
            lambda issuer: issuer.task_grant(name, budget=budget),
            lambda: self.model.task_grant(name, budget),
        )

    @deed(at=who, index=number, budget=lowered)
    def lower_a_ceiling(self, at: str, index: int, budget: dict[str, int]) -> None:
        self.lower(at, self.task(index).name, budget)

    @deed(
        lambda machine: machine.seen % 9 == 0 or bool(machine.overrun()),
        at=who,
        index=number,
        one=st.none() | unit,
    )
    def accept_an_overrun(self, at: str, index: int, one: str | None) -> None:
        over = self.overrun()
        self.accept(at, (over[index % len(over)] if over else self.task(index)).name, one)

    @deed(at=who, index=number, twice=st.sampled_from([False, False, True]))
    def freeze_or_thaw(self, at: str, index: int, twice: bool) -> None:
        """Freeze a task where none is, else thaw one."""
        frozen = self.in_state("frozen")
        task, word = (frozen[index % len(frozen)], "thawed") if frozen else (self.task(index), "frozen")
        self.move(at, task.name, word)
        if twice:
            self.move(at, task.name, word)

    @deed(
        lambda machine: len(machine.model.tasks) - len(machine.in_state("closed")) > 3, at=who, index=number
    )
    def close_a_task(self, at: str, index: int) -> None:
        self.move(at, self.task(index).name, "closed")

    @deed(at=who, index=number)
    def show_a_task(self, at: str, index: int) -> None:
        name = self.task(index).name if index else "nobody"
        self.say(at, lambda issuer: issuer.task_show(name), lambda: self.model.task_show(name))

    # ------------------------------------------------------------------------------------- asking

    @deed(at=who, index=number, what=operation, which=order, cost=amount, hold=st.booleans())
    def request(self, at: str, index: int, what: str, which: str, cost: int, hold: bool) -> None:  # noqa: PLR0917
        self.ask(at, self.wish(self.task(index), what, which, cost), hold=hold)

    @deed(
        at=who, index=number, what=operation, cost=amount | st.just(21), hold=st.booleans(), changes=odd_words
    )
    def request_oddly(  # noqa: PLR0917
        self, at: str, index: int, what: str, cost: int, hold: bool, changes: dict[str, str]
    ) -> None:
        self.ask(at, self.wish(self.task(index), what, "o-1", cost, **changes), hold=hold)

    @deed(
        has_effects,
        at=who,
        index=number,
        field=st.sampled_from(["", "", "order", "amount", "operation", "actor"]),
    )
    def request_again(self, at: str, index: int, field: str) -> None:
        """Ask under a key that stands for something, for the same or for something else."""
        asked = self.model.effects[index % len(self.model.effects)].asked
        others: dict[str, dict[str, Any]] = {
            "": {},
            "order": {"order": "o-4"},
            "amount": {"amount": 20},
            "operation": {"operation": "announce"},
            "actor": {"actor": "agent-8"},
        }
        self.ask(at, replace(asked, **others[field]))

    @deed(lambda machine: machine.seen % 3 == 0, at=who, index=number, which=order)
    def fill_a_task(self, at: str, index: int, which: str) -> None:
        task = self.able(index)
        for _one in range(UNENDED_MAX + 1):
            self.ask(at, self.wish(task, "announce", which, 0), hold=True)

    @deed(has_effects, at=who, index=number, anyhow=st.sampled_from([False, False, False, True]))
    def take_further(self, at: str, index: int, anyhow: bool) -> None:
        self.ask_on(at, self.any_one(index) if anyhow else self.one_in(index, "prepared"))

    # -------------------------------------------------------------------------------------- using

    @deed(
        lambda machine: any(effect.state in LIVING for effect in machine.model.effects),
        at=who,
        index=number,
        outcome=outcomes,
    )
    def go_on_with_one(self, at: str, index: int, outcome: Outcome) -> None:
        living = [effect for effect in self.model.effects if effect.state in LIVING]
        self.go_on(at, living[index % len(living)], outcome)

    @deed(has_effects, at=who, index=number, anyhow=st.sampled_from([False, True]))
    def admit_one(self, at: str, index: int, anyhow: bool) -> None:
        self.admit(at, self.any_one(index) if anyhow else self.one_in(index, "permitted", by_host=True))

    @deed(at=who, index=number, which=order, cost=amount, twice=st.booleans())
    def request_and_admit(self, at: str, index: int, which: str, cost: int, twice: bool) -> None:
        effect = self.ask(at, self.wish(self.able(index), "publish", which, cost))
        if effect is not None:
            self.admit("b" if twice else at, effect.number)
            if twice:
                self.admit(at, effect.number)

    @deed(at=who, index=number, which=order, cost=amount, outcome=outcomes)
    def request_and_send(self, at: str, index: int, which: str, cost: int, outcome: Outcome) -> None:
        effect = self.ask(at, self.wish(self.able(index), "refund", which, cost))
        if effect is not None:
            self.send(at, effect.number, outcome)

    @deed(has_effects, at=who, index=number, outcome=outcomes, anyhow=st.sampled_from([False, True]))
    def send_one(self, at: str, index: int, outcome: Outcome, anyhow: bool) -> None:
        one = self.any_one(index) if anyhow else self.one_in(index, "permitted", by_host=False)
        self.send(at, one, outcome)

    @deed(
        has_effects,
        at=who,
        index=number,
        succeeded=st.sampled_from([True, True, False]),
        cost=st.none() | charges,
    )
    def report_one(self, at: str, index: int, succeeded: bool, cost: dict[str, int] | None) -> None:
        self.report(at, self.one_in(index, *UNRESOLVED, by_host=True), succeeded=succeeded, cost=cost)

    @deed(
        lambda machine: not machine.overrun(),
        at=who,
        index=number,
        most=st.sampled_from([2, 8]),
        one=unit,
        lost=st.booleans(),
        accepted=st.booleans(),
    )
    def cost_more_than_was_held(  # noqa: PLR0917
        self, at: str, index: int, most: int, one: str, lost: bool, accepted: bool
    ) -> None:
        effect = self.ask(at, self.wish(self.able(index), "publish", "o-3", 1))
        if effect is None or effect.state != "permitted":
            return
        self.admit(at, effect.number)
        if lost:
            self.report(at, effect.number, succeeded=False)
        self.report("b", effect.number, succeeded=True, cost={one: most})
        if accepted:
            self.accept(at, effect.task.name, None)
        self.ask(at, replace(effect.asked, key=f"{effect.asked.key}.again"))

    @deed(
        at=who,
        index=number,
        odd=st.sampled_from(
            ["name", "parent", "class", "unit", "actor", "subject", "claim", "cost", "charge", ""]
        ),
    )
    def say_something_odd(self, at: str, index: int, odd: str) -> None:
        costs = {"claim": None, "cost": {"EUR.cent": 1}, "charge": {"USD.cent": -1}}
        if odd in costs:
            self.report(at, self.any_one(index), succeeded=True, cost=costs[odd])
        elif not odd:
            self.show(at, -1)
        else:
            ask = NewTask(
                name="t0" if odd == "name" else self.free_name(),
                parent="nobody" if odd == "parent" else None,
                budget={"EUR.cent" if odd == "unit" else "USD.cent": 5},
                expires=self.clock.wall + HOUR,
                scope={"class": {"payment" if odd == "class" else "release": 1}},
                actors=("agent-9",) if odd == "actor" else BOTH,
                subject="u-eve" if odd == "subject" else SUBJECT,
            )
            self.open_task(ask, at)

    # -------------------------------------------------------------------- others in between, faults

    @deed(
        index=number,
        what=st.sampled_from(["publish", "refund", "refund"]),
        cost=amount,
        stop=meanwhile,
        outcome=outcomes,
        believe=st.booleans(),
    )
    def somebody_else_meanwhile(  # noqa: PLR0917
        self, index: int, what: str, cost: int, stop: tuple[str, str], outcome: Outcome, believe: bool
    ) -> None:
        """Let the other process act in the middle of a command; a host's own way has only the first point."""
        effect = self.ask("a", self.wish(self.able(index), what, "o-2", cost))
        if effect is None or effect.state != "permitted":
            return
        point, word = stop
        if what == "publish":
            self.admit("a", effect.number, {"sinks_probed": self.meanwhile(word, effect)})
        else:
            self.send("a", effect.number, outcome, {point: self.meanwhile(word, effect)})
        for task in self.in_state("frozen"):
            self.move("a", task.name, "thawed")
        if not self.model.trusts_the_clock:
            self.set_clock(0 if believe else HOUR)
            self.believe_the_clock("a")

    @deed(at=who, index=number, cost=amount)
    def outcome_that_nobody_could_record(self, at: str, index: int, cost: int) -> None:
        effect = self.ask(at, self.wish(self.able(index), "refund", "o-1", cost))
        if effect is not None and effect.state == "permitted":
            self.send_and_lose(at, effect)

    def send_and_lose(self, at: str, effect: Effect) -> None:
        process, self.adapter.outcome = self.process(at), Outcome(word="succeeded")
        process.locks_until_failure = 1
        self.tell(
            at,
            lambda issuer: issuer.commit(self.effect_id(effect.number)),
            self.model.commit(effect.number, process.name, self.adapter.outcome, unrecorded=True),
            {},
        )
        process.locks_until_failure = -1

    @deed(at=who, boots=st.sampled_from([0, 0, 1]))
    def restart(self, at: str, boots: int) -> None:
        self.close(at)
        self.clock.boot += boots
        tally["restarts"] += 1

    # ---------------------------------------------------------------------------- time and looking

    @deed(minutes=st.sampled_from([1, 3, 5, 10, 20, 30, 45, 90, 900]))
    def wait(self, minutes: int) -> None:
        self.clock.passes(minutes * MINUTE)

    @deed(
        at=who,
        index=number,
        off=st.sampled_from([-1, 0, 0, 0, 1]),
        then=st.sampled_from(["use", "use", "show", "request", "nothing"]),
    )
    def wait_for_an_end(self, at: str, index: int, off: int, then: str) -> None:
        """Wait exactly until something is over, or a moment beside, and use what it was (PER-03, ADM-07, BUD-05)."""
        pending = [effect for effect in self.model.effects if effect.state in PENDING]
        ends = [(end, effect) for effect in pending for end in (effect.expires, effect.task.expires)]
        ends += [
            (effect.deadline or 0, effect) for effect in self.model.effects if effect.state == "admitted"
        ]
        now = self.clock.wall
        ahead = [(end, effect) for end, effect in ends if now < end + off < now + 9 * HOUR]
        if not ahead:
            return
        end, effect = ahead[index % len(ahead)]
        self.clock.passes(end + off - now)
        if then == "use" and effect.state in LIVING:
            self.go_on(at, effect, Outcome(word="succeeded"))
        elif then == "show":
            self.show(at, effect.number)
        elif then == "request":
            self.ask(at, self.wish(self.task(index), "announce", "o-1", 0))

    @deed(
        at=who,
        index=number,
        what=st.sampled_from(["publish", "refund", "announce"]),
        off=st.sampled_from([-1, 0, 0, 0]),
        then=st.sampled_from(["use", "again", "show"]),
        before=st.sampled_from(["request", "hold", "admit", "admit"]),
    )
    def at_the_very_end(  # noqa: PLR0917
        self, at: str, index: int, what: str, off: int, then: str, before: str
    ) -> None:
        """Take an effect some way, wait exactly until that is over, and use or see it then (PER-03, ADM-07)."""
        effect = self.ask(at, self.wish(self.able(index), what, "o-2", 1), hold=before == "hold")
        if effect is None or effect.state not in LIVING:
            return
        if before == "admit" and effect.of.by_host:
            self.admit(at, effect.number)
        end = effect.deadline if effect.state == "admitted" and effect.deadline else effect.expires
        self.clock.passes(end + off - self.clock.wall)
        if then == "use":
            self.go_on(at, effect, Outcome(word="succeeded"))
        elif then == "again":
            self.admit(at, effect.number)
        else:
            self.show(at, effect.number)

    @deed(by=st.sampled_from([-1_000, -1_999, 999, 4 * MINUTE]))
    def correct_the_clock(self, by: int) -> None:
        """Do what a time service does by itself."""
        self.set_clock(by)

    @deed(
        at=who,
        index=number,
        by=st.sampled_from([-2_000, -2_001, -HOUR, 5 * MINUTE, 5 * MINUTE + 1, 30 * HOUR]),
        believe=st.booleans(),
        deeds=st.lists(st.sampled_from(["ask", "admit", "report", "show", "freeze", "collect"]), max_size=3),
    )
    def the_clock_is_wrong(self, at: str, index: int, by: int, believe: bool, deeds: list[str]) -> None:
        """Try what can be tried under a clock that jumped; an operator believes it, or it is set right."""
        self.set_clock(by)
        for deed in deeds:
            if deed == "ask":
                self.ask(at, self.wish(self.task(index), "publish", "o-1", 1))
            elif deed == "admit":
                self.admit(at, self.one_in(index, "permitted", by_host=True))
            elif deed == "report":
                self.report(at, self.one_in(index, *UNRESOLVED), succeeded=True)
            elif deed == "show":
                self.show(at, self.any_one(index))
            elif deed == "freeze":
                self.move(at, self.task(index).name, "frozen")
            else:
                self.collect(at, early=True)
        self.set_clock(0 if believe else -by)
        self.believe_the_clock("a")

    @deed(has_effects, at=who, index=number)
    def show_one(self, at: str, index: int) -> None:
        self.show(at, self.any_one(index))

    @deed(at=who, early=st.booleans(), after=st.sampled_from([0, 0, 30, 100]))
    def collect_some(self, at: str, early: bool, after: int) -> None:
        self.collect(at, early=early, after=after * MINUTE)
