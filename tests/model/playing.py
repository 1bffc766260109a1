"""The deeds of the play: each command as it is given to both sides, and what it is likely given to.

Next: `tests.model.rules`, which deed when.
"""

from collections.abc import Callable, Mapping
from typing import Final

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import InstantMs
from tests.model.comparing import Comparing
from tests.model.reference import Outcome
from tests.model.reference_tasks import NewTask
from tests.model.terms import HOUR, MINUTE, UNITS
from tests.model.world import PENDING, UNRESOLVED, Effect, Request, Task

LIVING: Final = (*PENDING, *UNRESOLVED)
Between = Mapping[str, Callable[[], object]]


class Playing(Comparing):
    """Deeds without rules."""

    # ----------------------------------------------------------------------------------- the tasks

    def task(self, index: int) -> Task:
        """Return one of the tasks there are."""
        tasks = list(self.model.tasks.values())
        return tasks[index % len(tasks)]

    def able(self, index: int) -> Task:
        """Return a task that an effect may well find a place in, if there is one."""
        able = [
            task
            for task in self.model.tasks.values()
            if self.model.stopped(task, self.clock.wall) is None
            and min(self.model.remaining(task).values()) > 0
        ]
        return able[index % len(able)] if able else self.task(index)

    def in_state(self, state: str) -> list[Task]:
        """Return the tasks in a state."""
        return [task for task in self.model.tasks.values() if task.state == state]

    def overrun(self) -> list[Task]:
        """Return the tasks at which something cost more than was held."""
        tasks = self.model.tasks.values()
        return [task for task in tasks if any(self.model.money(task, each).overrun for each in UNITS)]

    def free_name(self) -> str:
        """Return a name that no task has."""
        return f"t{len(self.model.tasks)}"

    def open_task(self, ask: NewTask, at: str = "a") -> None:
        """Open a task."""
        self.say(
            at,
            lambda issuer: issuer.task_open(
                ask.name,
                budget=ask.budget,
                expires_ms=InstantMs(ask.expires),
                parent=ask.parent,
                subject=ask.subject,
                actors=ask.actors,
                classes=ask.scope.get("class"),
                operations=ask.scope.get("operation"),
                resources=ask.scope.get("resource"),
            ),
            lambda: self.model.task_open(ask),
        )

    def lower(self, at: str, name: str, budget: dict[str, int]) -> None:
        """Lower ceilings."""
        self.say(
            at,
            lambda issuer: issuer.task_lower(name, budget=budget),
            lambda: self.model.task_lower(name, budget),
        )

    def accept(self, at: str, name: str, unit: str | None) -> None:
        """Accept an overrun."""
        self.say(
            at,
            lambda issuer: issuer.task_accept_overrun(name, unit=unit),
            lambda: self.model.task_accept_overrun(name, unit),
        )

    def move(self, at: str, name: str, word: str) -> None:
        """Make a task `frozen`, `thawed` or `closed`."""
        commands: dict[str, Callable[[Issuer], Answer]] = {
            "frozen": lambda issuer: issuer.task_freeze(name),
            "thawed": lambda issuer: issuer.task_thaw(name),
            "closed": lambda issuer: issuer.task_close(name),
        }
        self.say(at, commands[word], lambda: self.model.task_move(name, word))

    # ------------------------------------------------------------------------------------- asking

    def wish(self, task: Task, operation: str, order: str, amount: int, /, **changes: str) -> Request:
        """Return a new wish under a key of its own."""
        words = {
            "operation": operation,
            "task": task.name,
            "actor": "agent-7",
            "key": f"k{len(self.model.effects)}.{self.seen}",
            **changes,
        }
        return Request(order=order, amount=amount, **words)

    def ask(self, at: str, asked: Request, *, hold: bool = False) -> Effect | None:
        """Ask for a permit; return the effect if there is a new one."""
        known = len(self.model.effects)
        self.say(
            at,
            lambda issuer: issuer.request(
                asked.operation,
                {"order": asked.order, "amount": asked.amount},
                task=asked.task,
                actor=asked.actor,
                subject=asked.subject,
                request_key=asked.key,
                hold=hold,
            ),
            lambda: self.model.request(asked, hold=hold),
        )
        return self.model.effects[-1] if len(self.model.effects) > known else None

    def ask_on(self, at: str, number: int) -> None:
        """Take a held effect further."""
        self.say(
            at,
            lambda issuer: issuer.request_held(self.effect_id(number)),
            lambda: self.model.request_held(number),
        )

    def one_in(self, index: int, *states: str, by_host: bool | None = None) -> int:
        """Return the number of an effect in one of the states, or of any where there is none."""
        found = [
            effect.number
            for effect in self.model.effects
            if effect.state in states and not effect.collected and by_host in {None, effect.of.by_host}
        ]
        return found[index % len(found)] if found else self.any_one(index)

    def any_one(self, index: int) -> int:
        """Return the number of any effect, or one that there is not yet."""
        return index % (len(self.model.effects) + 1)

    # -------------------------------------------------------------------------------------- using

    def admit(self, at: str, number: int, between: Between | None = None) -> None:
        """Admit for a host outside; each side has the claim in a form of its own."""
        claim = object()
        answer = self.tell(
            at,
            lambda issuer: issuer.admit(self.effect_id(number)),
            self.model.admit(number, claim),
            between or {},
        )
        if answer.code == "admitted":
            self.claims[number] = str(answer.more["claim"])

    def send(self, at: str, number: int, outcome: Outcome, between: Between | None = None) -> None:
        """Let the issuer send; the service answers with `outcome`."""
        before, self.adapter.outcome = self.adapter.outcome, outcome
        self.tell(
            at,
            lambda issuer: issuer.commit(self.effect_id(number)),
            self.model.commit(number, self.process(at).name, outcome),
            between or {},
        )
        self.adapter.outcome = before

    def report(self, at: str, number: int, *, succeeded: bool, cost: dict[str, int] | None = None) -> None:
        """Report with the claim, if a host ever got one, else with a guessed one."""
        is_known = number in self.claims
        claim = self.model.effects[number].claim if is_known else object()
        self.say(
            at,
            lambda issuer: issuer.report(
                self.effect_id(number), self.claims.get(number, "guessed"), succeeded=succeeded, cost=cost
            ),
            lambda: self.model.report(number, claim, succeeded=succeeded, cost=cost),
        )

    def use(self, at: str, effect: Effect) -> None:
        """Use a permit, whoever sends."""
        if effect.of.by_host:
            self.admit(at, effect.number)
        else:
            self.send(at, effect.number, Outcome(word="succeeded"))

    def go_on(self, at: str, effect: Effect, outcome: Outcome) -> None:
        """Do with an effect what comes next."""
        if effect.state == "prepared":
            self.ask_on(at, effect.number)
        elif effect.state == "permitted" and effect.of.by_host:
            self.admit(at, effect.number)
        elif effect.state == "permitted":
            self.send(at, effect.number, outcome)
        elif effect.of.by_host:
            self.report(at, effect.number, succeeded=outcome.word == "succeeded")

    def meanwhile(self, word: str, effect: Effect) -> Callable[[], object]:
        """Return what the other process does while a command about `effect` is under way."""
        top = effect.task.root.name
        acts: dict[str, Callable[[], object]] = {
            "frozen": lambda: self.move("b", effect.task.name, "frozen"),
            "above frozen": lambda: self.move("b", top, "frozen"),
            "closed": lambda: self.move("b", effect.task.name, "closed"),
            "lowered": lambda: self.lower("b", top, {"USD.cent": 0}),
            "late": lambda: self.clock.passes(6 * MINUTE),
            "seen late": lambda: self.show("b", effect.number, after=6 * MINUTE),
            "over": lambda: self.collect("b", early=True, after=30 * MINUTE),
            "same": lambda: self.use("b", effect),
            "clock set back": lambda: self.set_clock(-HOUR),
        }
        return acts[word]

    # --------------------------------------------------------------------------- time and looking

    def set_clock(self, by: int) -> None:
        """Set the wall clock to another time, while no more time than that of a moment went by."""
        self.clock.wall += by

    def believe_the_clock(self, at: str) -> None:
        """Let an operator say that the clock is right."""
        self.say(at, lambda issuer: issuer.clock_accept(), self.model.clock_accept)

    def show(self, at: str, number: int, *, after: int = 0) -> None:
        """Look at an effect, after so many milliseconds."""
        self.clock.passes(after)
        self.say(at, lambda issuer: issuer.show(self.effect_id(number)), lambda: self.model.show(number))

    def collect(self, at: str, *, early: bool, after: int = 0) -> None:
        """Make room on demand, after so many milliseconds."""
        self.clock.passes(after)
        self.say(
            at,
            lambda issuer: issuer.ledger_collect(early=early),
            lambda: self.model.ledger_collect(early=early),
        )
