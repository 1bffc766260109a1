"""Is the clock to be believed? It is compared with the ledger's last entry and with the time since the machine began.

Rules: PER-03 (a clock that runs backwards past a small tolerance, or jumps forward implausibly, stops admission until
an operator decides). Within one boot the time since it is a second clock that no date setting moves, so a jump shows.
Across boots only a very long silence is told from a wrong date. Pure; the readings come in as arguments.
Next: `ledger.sqlite.store` asks in every transaction; an operator's `ledger clock accept` sets the last entry anew.
"""

from dataclasses import dataclass
from typing import Final

from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs

CLOCK_BACKWARD_TOLERANCE_MS: Final = 2_000
"""How far the clock may step back before admission stops (PER-03): an NTP correction, not a changed date."""

CLOCK_FORWARD_TOLERANCE_MS: Final = 5 * 60 * 1000
"""How far it may step forward within one boot: what time services correct at once after a long sleep."""

SILENCE_MAX_MS: Final = 400 * 24 * 3600 * 1000
"""How long a ledger may rest across boots: a yearly task still works, a date of another decade does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uptime:
    """Milliseconds since this boot, suspended time included; `boot` is empty where the machine does not tell."""

    boot: str
    since_ms: int


NO_UPTIME: Final = Uptime(boot="", since_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastEntry:
    """The two clocks as they were read for the last entry of the ledger."""

    clock_ms: InstantMs
    uptime: Uptime


def believed(now: InstantMs, uptime: Uptime, last: LastEntry) -> InstantMs:
    """Return the instant to work with: never before the last entry.

    Raises:
        LedgerUnavailable: `clock_behind` or `clock_ahead`; nothing is admitted until an operator decides.
    """
    if now < last.clock_ms - CLOCK_BACKWARD_TOLERANCE_MS:
        message = (
            "The clock runs behind the ledger's last entry; set the clock right, "
            "or run `issuer ledger clock accept` if the last entry is the wrong one."
        )
        raise LedgerUnavailable("clock_behind", message)
    passed = now - last.clock_ms
    if uptime.boot and uptime.boot == last.uptime.boot:
        lived = uptime.since_ms - last.uptime.since_ms
        is_ahead = passed > lived + CLOCK_FORWARD_TOLERANCE_MS
    else:
        is_ahead = passed > SILENCE_MAX_MS
    if is_ahead:
        message = (
            "The clock is implausibly far ahead of the ledger's last entry; set the clock right, "
            "or run `issuer ledger clock accept` if it is right now."
        )
        raise LedgerUnavailable("clock_ahead", message)
    return InstantMs(max(now, last.clock_ms))
