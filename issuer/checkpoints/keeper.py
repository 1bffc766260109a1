"""When a checkpoint is signed by itself: seldom, after an answer, and never on the way of an effect (AUD-02, AUD-04).

Rules:
1. It is asked at the end of each command of a process that writes; where nothing is due that costs no call to the
   system, but the first time. A process that only reads signs nothing.
2. Due is `full`: 1,000 spans since the last one; and, where the profile has `[audit] checkpoint`, `scheduled`: `every`
   has passed since it, or there is none. What is due is signed by a thread that ends with it, so that an answer does
   not wait; another process may have been quicker, which is seen before anything is signed.
3. Closing waits for that thread, `CLOSE_S` at most. A process that had the issuer open for `LONG_MS` and wrote signs as
   it closes (`shutdown`), within the same time; a command's own process leaves that to the schedule.
4. What fails is tried again with the first command after `AGAIN_S`; it changes no answer. People are told as the owner
   declared (`checkpoint_failed`), and `issuer doctor` tells whoever asks.
So `every` is kept while commands are given. What a process wrote before it went quiet is signed with the next command
of anybody, or as it closes.
Next: `issuer.checkpoints.signing`.
"""

import threading
import time
from contextlib import suppress
from typing import Final

from issuer.checkpoints.errors import CheckpointUnavailable
from issuer.checkpoints.folder import checkpoint_folder
from issuer.checkpoints.memory import Remembered
from issuer.checkpoints.signing import Reason, recall, sign
from issuer.house import House
from issuer.notifying import tell_checkpoint_failed
from ledger.errors import Fault
from ledger.model import InstantMs

__all__ = ["CLOSE_S", "LONG_MS", "SPANS_MAX", "Keeper"]

SPANS_MAX: Final = 1000
"""Spans since the last checkpoint at which another is due: a proof between the two is ten hashes."""

LONG_MS: Final = 60_000
"""From when on a process signs as it closes: commands take seconds, services hours."""

CLOSE_S: Final = 2.0
"""Seconds that closing waits: hundreds of times what signing takes, and within the budget of closing."""

AGAIN_S: Final = 60.0


class Keeper:
    """Looks after the checkpoints of one open issuer."""

    def __init__(self) -> None:
        """Know nothing yet; nothing is read before something was written."""
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last: tuple[int, int] | None = None
        self._first_ms: InstantMs | None = None
        self._not_before_s = 0.0
        self._house: House | None = None
        self._is_closed = False

    def after(self, house: House) -> None:
        """Sign what is due, in a thread; returns at once and raises nothing."""
        if house.late_bundle is not None or not house.ledger.reached.sequence:
            return
        try:
            with self._guard:
                self._house = house
                if self._is_closed or self._is_busy() or time.monotonic() < self._not_before_s:
                    return
                reason = self._due(house)
                if reason is not None:
                    self._start(house, reason)
        except (Fault, OSError):
            self._failed(house)

    def end(self) -> None:
        """Let a signing end, and sign once more where this process is to; returns within `CLOSE_S`."""
        until = time.monotonic() + CLOSE_S
        with self._guard:
            self._is_closed = True
            thread, house = self._thread, self._house
        if thread is not None:
            thread.join(CLOSE_S)
        if house is None or self._is_busy():
            return
        with suppress(Fault, OSError):
            if self._signs_at_the_end(house):
                self._start(house, Reason.SHUTDOWN)
        if self._thread is not None and self._thread is not thread:
            self._thread.join(max(0.0, until - time.monotonic()))

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _due(self, house: House) -> Reason | None:
        size, at_ms = self._known(house)
        if house.ledger.reached.sequence - size >= SPANS_MAX:
            return Reason.FULL
        wanted = house.profile.audit.checkpoint
        if wanted is None:
            return None
        now = house.now()
        self._first_ms = now if self._first_ms is None else self._first_ms
        return Reason.SCHEDULED if not size or now - at_ms >= wanted.every_ms else None

    def _known(self, house: House) -> tuple[int, int]:
        """Return size and instant of the last checkpoint that this process knows of."""
        if self._last is None:
            memory = recall(checkpoint_folder(house.ledger), house.ring, house.ledger.ledger_id)
            self._last = (0, 0) if memory is None else (memory.tree.size, memory.at_ms)
        return self._last

    def _signs_at_the_end(self, house: House) -> bool:
        if house.profile.audit.checkpoint is None or self._first_ms is None:
            return False
        size, _at_ms = self._known(house)
        # The span of the last checkpoint is the one after it: that alone is nothing new.
        wrote = house.ledger.reached.sequence > size + 1
        return wrote and house.now() - self._first_ms >= LONG_MS

    def _start(self, house: House, reason: Reason) -> None:
        thread = threading.Thread(
            target=self._run, args=(house, reason), name="issuer-checkpoint", daemon=True
        )
        with suppress(RuntimeError):  # no thread to be had: the next command tries again
            thread.start()
            self._thread = thread

    def _run(self, house: House, reason: Reason) -> None:
        try:
            made = sign(
                house, reason, wait_s=0.0, is_done=lambda memory: self._was_done(memory, house, reason)
            )
        except Exception as fault:  # noqa: BLE001 - nobody waits for it, and whatever broke must not break an answer
            if not isinstance(fault, CheckpointUnavailable) or fault.reason != "busy":
                self._failed(house)
            return
        if made is not None:
            self._last = made.kept.size, made.at_ms
            if made.copies.trouble:
                tell_checkpoint_failed(house)

    def _failed(self, house: House) -> None:
        self._not_before_s = time.monotonic() + AGAIN_S
        tell_checkpoint_failed(house)

    def _was_done(self, memory: Remembered, house: House, reason: Reason) -> bool:
        """Take note of what is remembered by now, and say whether what was due is done."""
        self._last = memory.tree.size, memory.at_ms
        return reason is not Reason.SHUTDOWN and self._due(house) is None
