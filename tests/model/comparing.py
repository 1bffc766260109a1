"""The machine: random commands to the product and to the model, and every answer, span and total compared.

A command is given to the product first. Where it stops at a point that another process could act in, the model is taken
to the same point, and the other process acts, on both. Next: `tests.model.rules`, what is played.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from hypothesis.stateful import RuleBasedStateMachine, invariant

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import BudgetLine, EffectId, Repetition, TaskId
from ledger.port import View
from tests.model.product import START, Book, Process, ScriptedAdapter
from tests.model.reference import Reference, Story
from tests.model.terms import CLASSES, Counts
from tests.model.world import KINDS, Clock, Effect, Money, Said, counted

POINTS: Final = ("sinks_probed", "admission_acknowledged", "answered")
NOBODY: Final = f"eff_{'0' * 32}"

tally: Counter[str] = Counter()
"""What was played: steps, deeds, answers by code."""


def ms(text: str) -> int:
    """Return an instant that an answer shows."""
    moment = datetime.fromisoformat(text)
    return round(moment.timestamp() * 1000)


def same(found: object, said: object) -> None:
    """Fail where the product differs from the model, showing both."""
    if found != said:
        raise AssertionError(f"the product: {found}\nthe model:   {said}")


class Comparing(RuleBasedStateMachine):
    """Both sides, and how they are compared; it has no rules."""

    def __init__(self, book: Book) -> None:
        super().__init__()
        self.book = book
        self.clock = Clock(wall=START)
        self.adapter = ScriptedAdapter()
        self.opened = 0
        self.processes: dict[str, Process] = {}
        self.ids: list[EffectId] = []
        self.task_ids: dict[str, TaskId] = {}
        self.claims: dict[int, str] = {}
        self.keys: dict[tuple[str, ...], bytes] = {}
        self.model = Reference(self.clock, 0)
        self.seen = 0

    def start(self) -> None:
        """Begin at the beginning."""
        self.book.restore()
        self.model.sequence = self.seen = self.look(lambda view: view.head().sequence)

    def teardown(self) -> None:
        """Close, and let the product's own check look at what was left."""
        for process in self.processes.values():
            process.issuer.close()
        # Where a difference is on its way already, what it left would only hide it.
        if self.processes and sys.exc_info()[0] is None:
            checked = Issuer.ledger_check(self.book.made.profile)
            same(checked.more["findings"], [])

    # ---------------------------------------------------------------------------------- both sides

    def process(self, who: str) -> Process:
        """Return the process of that name; it is opened when it is first needed."""
        if who not in self.processes:
            self.opened += 1
            name = f"{who}{self.opened}"
            self.processes[who] = Process(name, self.book.made, self.clock, self.adapter)
            self.model.begins()
        return self.processes[who]

    def close(self, who: str) -> None:
        """End a process; what it has in flight can be seen to be an orphan's."""
        process = self.processes.pop(who, None)
        if process is not None:
            process.issuer.close()
            self.model.ends(process.name)

    def look(self, at: Callable[[View], Any]) -> Any:
        """Read one snapshot of the product's ledger."""
        return self.process("a").issuer._house.ledger.read(at)

    def effect_id(self, number: int) -> str:
        """Return the reference of an effect; one that nobody made for a number that there is not."""
        return self.ids[number] if 0 <= number < len(self.ids) else NOBODY

    def say(self, who: str, ask: Callable[[Issuer], Answer], expect: Callable[[], Said]) -> Answer:
        """Give one command to the product and to the model."""
        answer = ask(self.process(who).issuer)
        self.agree(answer, expect())
        return answer

    def tell(
        self,
        who: str,
        ask: Callable[[Issuer], Answer],
        story: Story,
        between: Mapping[str, Callable[[], object]],
    ) -> Answer:
        """Give a command that stops at points; at those of `between` somebody else acts."""
        process = self.process(who)
        problems: list[BaseException] = []

        def stop_at(step: str) -> None:
            if step not in POINTS or problems:
                return
            process.stop_at = None
            try:
                same(step, next(story, "nothing more"))
                between.get(step, lambda: None)()
            except BaseException as problem:  # noqa: BLE001 - the product would take it for an answer that was lost
                problems.append(problem)
            finally:
                process.stop_at = stop_at

        process.stop_at = stop_at
        try:
            answer = ask(process.issuer)
        finally:
            process.stop_at = None
        if problems:
            raise problems[0]
        try:
            step = next(story)
        except StopIteration as end:
            self.agree(answer, end.value)
        else:
            raise AssertionError(f"the model expects {step}, and the product answered {answer.code}")
        return answer

    # ------------------------------------------------------------------------------ what is compared

    def agree(self, answer: Answer, said: Said) -> None:
        """Compare an answer with what the model says."""
        tally[f"answer {said.code}"] += 1
        number = None if answer.effect is None else self._number(EffectId(answer.effect))
        found = (answer.code, answer.more.get("field"), answer.more.get("level"), number, answer.state)
        same(found, (said.code, said.field, said.level, said.effect, said.state))
        if said.code in {"prepared", "permitted", "awaiting_approval"} and said.effect is not None:
            effect = self.model.effects[said.effect]
            expires = effect.expires if effect.permit_expires is None else effect.permit_expires
            assert answer.expires is not None
            same(ms(answer.expires), expires)
        self._agree_more(answer.more, said.more)

    def _number(self, effect_id: EffectId) -> int:
        if effect_id not in self.ids:
            self.ids.append(effect_id)
        return self.ids.index(effect_id)

    def _agree_more(self, found: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        if "task" in said and isinstance(said["task"], dict):
            shown = dict(found["task"])
            self.task_ids.setdefault(shown["name"], shown.pop("id"))
            shown.pop("id", None)
            same(shown | {"expires": ms(shown["expires"])}, said["task"])
        if "blocked" in said:
            rows = {(row["task"], row["unit"], row["overrun"], row["above"]) for row in found["blocked"]}
            same(rows, said["blocked"])
        if "effects" in said:
            same(found["collected"]["effects"], said["effects"])
        if "deadline" in said and "record" not in found:
            same(ms(found["deadline"]), said["deadline"])
        if "evidence" in said:
            self._agree_record(found["record"], said)

    def _agree_record(self, found: Mapping[str, Any], said: Mapping[str, Any]) -> None:
        permit, claim = found["permit"], found["claim"]
        same(found["task"], said["task"])
        same(None if permit is None else ms(permit["expires"]), said["permit"])
        same(None if claim is None else ms(claim["deadline"]), said["deadline"])
        same({(row["task"], row["unit"], row["amount"]) for row in found["reserved"]}, said["reserved"])
        rows = [(row["class"], row["source"], row["proves"], row["late"]) for row in found["evidence"]]
        same(rows, said["evidence"])
        same("not_swept" not in found, said["swept"])

    @invariant()
    def both_sides_agree(self) -> None:
        """Compare everything that is stored."""
        tally["steps"] += 1
        self.every_transition_has_its_span_and_there_is_no_other()
        self.every_budget_line_is_what_the_effects_add_up_to()
        self.every_effect_stands_where_it_should()
        self.every_bound_and_slot_counts_what_is_taken()
        self.repetition_and_the_facts_of_decisions_are_those_of_the_effects()

    def every_transition_has_its_span_and_there_is_no_other(self) -> None:
        """AUD-01."""
        found = self.look(lambda view: [row.name for row in view.spans_after(self.seen, limit=1000)])
        same(sorted(found), sorted(self.model.trail))
        self.seen += len(found)
        same(self.seen, self.model.sequence)
        self.model.trail.clear()

    def every_budget_line_is_what_the_effects_add_up_to(self) -> None:
        """BUD-02, BUD-03; and no ceiling is passed but where it was lowered or an overrun accepted."""
        found = self.look(lambda view: {name: view.budget(at) for name, at in self.task_ids.items()})
        same(set(found), set(self.model.tasks))
        for name, task in self.model.tasks.items():
            lines = {unit: self.model.money(task, unit) for unit in self.model.lines(task)}
            same(
                {unit: amounts(line) for unit, line in found[name].items()},
                {unit: amounts(line) for unit, line in lines.items()},
            )
            for line in found[name].values():
                assert line.ceiling is None or line.settled + line.reserved <= line.ceiling + line.above

    def every_effect_stands_where_it_should(self) -> None:
        """LED-05, PER-04."""
        states, stones, uses, open_claims, evidence = self.look(self._stands)
        kept = self.model.retained()
        gone = [effect for effect in self.model.effects if effect.collected]
        same(states, {self.ids[effect.number]: effect.state for effect in kept})
        same(stones, {self.ids[effect.number]: effect.state for effect in gone})
        same(uses, {self.ids[e.number] for e in self.model.effects if e.deadline is not None})
        same(open_claims, {self.ids[e.number] for e in kept if e.state == "admitted"})
        same(evidence, {self.ids[e.number]: e.evidence for e in kept if e.evidence})

    def _stands(self, view: View) -> tuple[Any, ...]:
        """Return states, tombstones, uses, open claims and evidence, by effect."""
        states = {effect.effect_id: str(effect.state) for effect in view.effects(states=())}
        stones, uses, evidence = {}, set(), {}
        for effect_id in self.ids:
            stone, permit = view.tombstone(effect_id), view.permit(effect_id)
            permit_id = permit.permit_id if permit else stone.permit_id if stone else None
            if stone is not None:
                stones[effect_id] = str(stone.state)
            if permit_id is not None and view.is_used(permit_id):
                uses.add(effect_id)
                rows = view.evidence(effect_id)
                if rows:
                    evidence[effect_id] = [(str(e.evidence_class), e.source, e.proves, e.late) for e in rows]
        holdings = view.holdings()
        same((holdings.effects, holdings.tombstones), (len(states), len(stones)))
        return states, stones, uses, {claim.effect_id for claim in view.claims_open()}, evidence

    def every_bound_and_slot_counts_what_is_taken(self) -> None:
        """POL-03, BUD-06."""
        expected: dict[str, int] = {}
        for task in self.model.tasks.values():
            at = self.task_ids[task.name]
            for name in CLASSES:
                own = [e for e in self.model.effects if e.counts and e.task is task and e.of.of_class == name]
                expected[f"task|{name}|{at}"] = len(own)
                below = [
                    e
                    for e in self.model.below(task)
                    if e.counts and e.of.of_class == name and not task.parent
                ]
                expected[f"root|{name}|{at}"] = len(below)
            for kind in KINDS:
                for name, count in (task.scope[kind] or {}).items():
                    used = self.model.slots_used(task, kind, name)
                    expected[f"slot|{at}|{kind}|{name}"] = 0 if count is None else used
                    assert count is None or used <= count
        for effect in self.model.effects:
            if effect.permit_expires is not None:
                name, day = effect.of.of_class, self.model.day(effect.issued)
                for one in effect.bounds.per_day:
                    taken = expected.setdefault(f"day|{name}|{day}|{one}", 0)
                    amount = 1 if one == "permits" else effect.cost.get(one, 0)
                    expected[f"day|{name}|{day}|{one}"] = taken + amount * effect.counts
        found = self.look(lambda view: {counter: view.counter(counter) for counter in expected})
        same(found, expected)

    def repetition_and_the_facts_of_decisions_are_those_of_the_effects(self) -> None:
        """POL-02; one key for one content, whoever asks."""
        for effect in self.model.effects:
            if not effect.collected and (effect.decisions or effect.content not in self.keys):
                self._agree_facts(effect)
        found = self.look(
            lambda view: {content: view.repetition_of_content(key) for content, key in self.keys.items()}
        )
        for content, counts in found.items():
            said = counted(effect for effect in self.model.effects if effect.content == content)
            same(per_state(counts), per_state(said))

    def _agree_facts(self, effect: Effect) -> None:
        effect_id = self.ids[effect.number]
        row, decisions = self.look(lambda view: (view.effect(effect_id), view.decisions(effect_id)))
        same(row.content_key, self.keys.setdefault(effect.content, row.content_key))
        same(list(self.keys.values()).count(row.content_key), 1)
        if not effect.decisions:
            return
        facts, said = json.loads(decisions[-1].body)["facts"], effect.decisions.pop()
        effect.decisions.clear()
        flat = facts["earlier"] | facts["usage"] | {"now_ms": facts["clock"]["now_ms"]}
        same(flat | {"remaining": facts["remaining"]}, said)


def amounts(line: BudgetLine | Money) -> tuple[int | None, ...]:
    """Return what is compared of a budget line."""
    return line.ceiling, line.reserved, line.settled, line.overrun, line.above


def per_state(counts: Repetition | Counts) -> tuple[int, int, int]:
    """Return what is compared of a count."""
    return counts.pending, counts.unresolved, counts.succeeded
