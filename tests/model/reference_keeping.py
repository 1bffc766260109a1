"""What the model does by the way: ending what is over, collecting, the clock, and where a known effect stands.

Rules: ADM-07, PER-03, PER-04, BUD-04, LED-02, REP-01.
"""

from tests.model.reference_tasks import TaskCommands
from tests.model.terms import KEEP_MS, PRESSED_AT, URGENT_AT
from tests.model.world import BACKWARD_MS, PENDING, SETTLED, UNUSED, ClockUntrusted, Effect, Said, about


class Keeping(TaskCommands):
    """Sweeping, collecting and telling."""

    def ends(self, process: str) -> None:
        """End a process; a claim that it leaves open is an orphan's from here on (ADM-07)."""
        self.gone.add(process)
        left = [effect for effect in self.effects if effect.state == "admitted" and effect.sender == process]
        self.left_open = self.left_open or bool(left)

    def begins(self) -> None:
        """Begin a process: after an end that left something open a span is committed before anything is read."""
        if self.left_open and self.trusts_the_clock:
            self.record(self.time(), "ledger.probe")
        self.left_open = False

    def is_gone(self, effect: Effect) -> bool:
        return effect.sender in self.gone

    def is_orphan(self, effect: Effect, now: int) -> bool:
        """Say whether anybody may call an admission unknown (ADM-07)."""
        return effect.deadline is not None and (now >= effect.deadline or self.is_gone(effect))

    def call_unknown(self, effect: Effect, now: int) -> None:
        source = "sender_gone" if self.is_gone(effect) else "deadline_passed"
        effect.evidence.append(("none", source, "unknown", False))
        self.move(effect, "unknown", now)

    def sweep(self) -> None:
        """End what is over, and call orphans unknown; where nothing is due nothing is asked."""
        wall = self.clock.wall
        due = [effect for effect in self.effects if effect.state in PENDING and effect.expires <= wall]
        lost = [e for e in self.effects if e.state == "admitted" and self.is_orphan(e, wall)]
        if not due and not lost:
            return
        now = self.time()
        for effect in self.effects:
            if effect.state in PENDING and effect.expires <= now:
                self.move(effect, "expired", now)
            elif effect.state == "admitted" and self.is_orphan(effect, now):
                self.call_unknown(effect, now)

    def collect(self, *, asked: bool = False, early: bool = False) -> int:
        """Make tombstones of what is over, its window too; by itself only where space is needed now."""
        if not (asked or early) and len(self.retained()) < URGENT_AT:
            return 0
        pressed = early or len(self.retained()) >= PRESSED_AT
        keep = 0 if pressed else KEEP_MS

        def due(now: int) -> list[Effect]:
            unused = [e for e in self.retained() if e.state in UNUSED and (pressed or asked)]
            settled = [
                e for e in self.retained() if e.state in SETTLED and max(e.window_ends, e.ended) <= now - keep
            ]
            return unused + settled

        looked = due(self.clock.wall)
        if not looked:
            return 0
        newest = max(effect.sequence for effect in looked)
        now = self.time()
        gone = [effect for effect in due(now) if effect.sequence <= newest]
        for effect in gone:
            effect.collected = True
        if gone:
            self.record(now, "ledger.collected")
        return len(gone)

    def ledger_collect(self, *, early: bool) -> Said:
        """Collect on demand, until nothing is due."""
        try:
            self.sweep()
            number = 0
            while gone := self.collect(asked=True, early=early):
                number += gone
        except ClockUntrusted:
            return Said(code="clock_untrusted")
        return Said(code="collected_now", more={"effects": number})

    def clock_accept(self) -> Said:
        """Believe the wall; what was prepared in the time that never was ends."""
        now = self.clock.wall
        self.record(now, "ledger.clock_accepted")
        for effect in self.effects:
            if effect.state in PENDING and effect.prepared > now + BACKWARD_MS:
                self.move(effect, "expired", now)
        return Said(code="accepted")

    def named(self, number: int) -> Effect | Said:
        """Find an effect by its reference; a missing one and a collected one are told apart (PER-04)."""
        if not 0 <= number < len(self.effects):
            return self.refused("not_found")
        effect = self.effects[number]
        return self.refused("collected", effect=effect) if effect.collected else effect

    def standing(self, effect: Effect) -> Said:
        """Tell where an effect stands; nothing is written (REP-01)."""
        code = {"admitted": "already_consumed", "unknown": "outcome_unknown"}.get(effect.state, effect.state)
        if effect.state == "no_effect" and effect.evidence[-1][0] == "not_sent":
            code = "not_dispatched"
        return about(code, effect)
