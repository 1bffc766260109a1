"""A sink that implements the real port and can be told to fail, lie or hang, separately for probe and ship.

While it is well it is honest: it reads what it lacks from the ledger, keeps it in order and says up to where.
A test flips `on_probe` and `on_ship` at any moment, from a hook of the issuer as well.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from audit import Acknowledged, SinkExpectation, SinkUnavailable, SpanSource
from audit.errors import SinkAhead
from ledger.model import LedgerId
from ledger.transitions import Position, SpanRow

BATCH_ROWS: Final = 256

Fault = Callable[["FaultySink", Acknowledged | None], Any]
"""What happens instead of an honest end; gets the honest acknowledgement where there is one."""


class FaultySink:
    """A required sink in memory; implements `audit.sinks.port.Sink`."""

    kind: Final = "memory"
    required: Final = True

    def __init__(self, name: str = "faulty") -> None:
        self.name: Final = name
        self.on_probe: Fault | None = None
        self.on_ship: Fault | None = None
        self.rows: list[SpanRow] = []
        self.probes = 0
        self.ships = 0
        self.awake = threading.Event()

    def fail(self, fault: Fault | None, *, probe: bool = True, ship: bool = True) -> None:
        """Do this from now on; None is to be well again."""
        self.on_probe = fault if probe else None
        self.on_ship = fault if ship else None

    def recover(self) -> None:
        """Be well again, and let go of every call that hangs."""
        self.fail(None)
        self.awake.set()

    @property
    def sequences(self) -> list[int]:
        """The sequences that are kept, in order of arrival."""
        return [row.position.sequence for row in self.rows]

    def probe(self, expect: SinkExpectation, deadline_s: float) -> None:
        """See `Sink.probe`."""
        del expect, deadline_s
        self.probes += 1
        if self.on_probe is not None:
            self.on_probe(self, None)

    def ship(self, source: SpanSource, upto: Position, deadline_s: float) -> Acknowledged:
        """See `Sink.ship`; a fault comes before anything is kept."""
        del deadline_s
        self.ships += 1
        fault = self.on_ship
        if fault is not None:
            row = source.span_at(upto.sequence)
            assert row is not None
            return fault(self, _said(source.ledger_id, row))  # type: ignore[no-any-return]  # a lie, of any type
        while not self.rows or self.rows[-1].position.sequence < upto.sequence:
            self.rows += source.spans_after(len(self.rows), limit=BATCH_ROWS)
        return _said(source.ledger_id, self.rows[-1])

    def close(self) -> None:
        """See `Sink.close`; what is kept is kept for the test."""


def _said(ledger_id: LedgerId, row: SpanRow) -> Acknowledged:
    place = row.position
    return Acknowledged(
        ledger_id=ledger_id, epoch=place.epoch, lane=place.lane, sequence=place.sequence, leaf=row.leaf
    )


def raises(fault: BaseException) -> Fault:
    """Raise this."""

    def act(_sink: FaultySink, _honest: Acknowledged | None) -> None:
        raise fault

    return act


def hangs(sink: FaultySink, _honest: Acknowledged | None) -> None:
    """Do not come back until the test lets go."""
    sink.awake.wait()


def lies(**changes: object) -> Fault:
    """Acknowledge something else than was asked for."""

    def act(_sink: FaultySink, honest: Acknowledged | None) -> Acknowledged | None:
        return None if honest is None else replace(honest, **changes)  # type: ignore[arg-type]

    return act


def says_one_less(_sink: FaultySink, honest: Acknowledged | None) -> Acknowledged | None:
    """Acknowledge the span before."""
    return None if honest is None else replace(honest, sequence=honest.sequence - 1)


def says_nothing(_sink: FaultySink, _honest: Acknowledged | None) -> None:
    """Return without an acknowledgement."""


RAISING: Final[Mapping[str, Fault]] = {
    "unavailable": raises(SinkUnavailable("faulty", "no_space", "No room.")),
    "ahead": raises(SinkAhead("faulty", "ahead", "Another story.")),
    "os error": raises(OSError(28, "no space left")),
    "a bug": raises(ZeroDivisionError()),
    "interrupted": raises(KeyboardInterrupt()),
    "exit": raises(SystemExit(0)),
}
LYING: Final[Mapping[str, Fault]] = {
    "nothing": says_nothing,
    "one less": says_one_less,
    "far ahead": lies(sequence=10**9),
    "another leaf": lies(leaf=b"\x00" * 32),
    "another ledger": lies(ledger_id=LedgerId("ldg_other")),
    "another epoch": lies(epoch=7),
    "true": lambda _sink, _honest: True,
}
