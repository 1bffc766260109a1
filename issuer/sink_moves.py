"""Moving a sink: what its old place held, and a new place that holds everything before it counts.

Rules: AUD-02 (a required sink acknowledges before anything is sent, so a new one first gets all that was), LED-06 (a
sink is the anchor: a ledger that was set back is not made good by a fresh file). In order:
  1. no sink of the ledger that can be read is ahead of it, or tells another story
  2. the old place says how far it came, or it is lost: then nothing can be said, and the act says that
  3. the new place is empty, or holds the first spans of this very ledger, leaf by leaf
  4. it is filled up to the end of the ledger, in calls that are each bounded.
Nothing here changes the ledger. Next: `issuer.commands.sinks`, which asks under the lock whether 4 still holds.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from audit import (
    AuditUnavailable,
    Delivery,
    LedgerSpans,
    SinkLook,
    SinkUnavailable,
    Stand,
)
from audit.sinks.reading import read_jsonl
from issuer.archives import last_archive
from issuer.errors import SetupError
from issuer.flow.refusing import RefusedError
from issuer.house import House
from issuer.sink_building import built_sink, is_carried, looked_sink, make_place
from issuer.sink_places import kept_back
from ledger.model import SinkRegistration
from ledger.port import Ledger
from ledger.refusals import RefusalCode

PAGE_ROWS: Final = 1000
"""Spans of the ledger that are read at a time."""

FILL_ROUNDS_MAX: Final = 100_000
"""Calls in which a new place is filled: each writes a batch at least, so that a trail of any size comes to its end."""

LOST: Final = frozenset(
    {
        *("missing", "not_a_file", "symlink", "no_header", "foreign_ledger", "unreadable", "os_error"),
        *("foreign_place", "unknown"),
    }
)
"""Reasons for which nobody can tell any more how far a sink came; for any other it can be repaired, or asked again."""

_ARCHIVED: Final = (
    "The ledger's spans up to {upto} were archived, so an empty place cannot be filled: copy the sink's file to the "
    "new place first, and give this command again."
)
AHEAD: Final = frozenset({"ahead", "diverged", "later_epoch"})
"""Reasons that say that the ledger was set back or exchanged."""

_AHEAD: Final = (
    "The sink {name} holds what the ledger has lost, so the ledger was set back, and another place would hide that: "
    "bring the newest ledger back with `issuer ledger restore FILE`."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldState:
    """What the old place of a sink held: up to which sequence, and that span's leaf; or that it is lost."""

    upto: int = 0
    leaf: bytes | None = None
    is_lost: bool = False


def refuse_ahead(placed: Sequence[SinkRegistration], ledger: Ledger) -> None:
    """Do 1.

    Raises:
        RefusedError: `audit_unavailable`; one is ahead.
    """
    for look in _looks(placed, ledger):
        _demand_not_ahead(look)


def old_state(registration: SinkRegistration, ledger: Ledger) -> OldState:
    """Do 2.

    Raises:
        RefusedError: `audit_unavailable`; it is ahead, or cannot be read now and is not lost either.
    """
    (look,) = _looks((registration,), ledger)
    _demand_not_ahead(look)
    upto, fault = look.reached, look.fault
    if upto is None:
        if fault is None or fault.reason in LOST:
            return OldState(is_lost=True)
        say = (
            f"What the sink {registration.name} holds cannot be read now: {fault.message} Repair that first."
        )
        raise refusal(registration.name, say)
    row = ledger.read(lambda view: view.span_at(upto))
    return OldState(upto=upto, leaf=None if row is None else row.leaf)


def reached_by_all(placed: Sequence[SinkRegistration], ledger: Ledger) -> int:
    """Return the sequence up to which every one of these sinks has the spans of the ledger.

    Raises:
        RefusedError: `audit_unavailable`; one cannot say, or is ahead.
    """
    looks = _looks(placed, ledger)
    for look in looks:
        _demand_not_ahead(look)
        if look.reached is None:
            why = "The sink does not say how far it has come." if look.fault is None else look.fault.message
            raise refusal(look.sink.name, why)
    return min(look.reached or 0 for look in looks) if looks else 0


def _looks(placed: Sequence[SinkRegistration], ledger: Ledger) -> tuple[SinkLook, ...]:
    """Look at sinks in threads of their own, within a probe's time: one that hangs is no reason to hang with it."""
    if not placed:
        return ()
    sinks = [looked_sink(registration, ledger.ledger_id) for registration in placed]
    delivery = Delivery(sinks, LedgerSpans(ledger))
    try:
        return delivery.look()
    finally:
        delivery.close()


def _demand_not_ahead(look: SinkLook) -> None:
    if look.fault is not None and look.fault.reason in AHEAD:
        raise refusal(look.sink.name, _AHEAD.format(name=look.sink.name))


def prepare_place(registration: SinkRegistration, ledger: Ledger) -> None:
    """Do 3: make the file of a new place, or prove that the one that is there is this ledger's.

    Raises:
        RefusedError: `audit_unavailable`; it cannot be made, or holds anything else.
    """
    name = registration.name
    try:
        make_place(registration, ledger.ledger_id)
    except SinkUnavailable as fault:
        if fault.reason != "exists":
            raise refusal(name, f"The new place cannot be made: {fault.message}") from None
    else:
        return
    try:
        _demand_prefix(registration, ledger)
    except SinkUnavailable as fault:
        say = f"There is something at the new place that is not this ledger's: {fault.message} Name another."
        raise refusal(name, say) from None


def refuse_archived(registration: SinkRegistration, house: House) -> None:
    """Refuse a new place that lacks what was archived: the ledger cannot fill it from the first span on any more.

    Raises:
        RefusedError: `audit_unavailable`.
    """
    archive = house.ledger.read(last_archive)
    if archive is None:
        return
    (look,) = _looks((registration,), house.ledger)
    if (look.reached or 0) < archive.upto:
        raise refusal(registration.name, _ARCHIVED.format(upto=archive.upto))


def _demand_prefix(registration: SinkRegistration, ledger: Ledger) -> None:
    """Compare every span of a file with the ledger's at the same place in order, leaf by leaf."""
    rows: Iterator[tuple[int, int, bytes]] = iter(())
    after = 0
    for span in read_jsonl(Path(registration.location), ledger.ledger_id, name=registration.name):
        found = next(rows, None)
        if found is None:
            page = ledger.read(lambda view, after=after: view.leaves_after(after, limit=PAGE_ROWS))  # type: ignore[misc]
            rows = iter([(row.epoch, row.sequence, row.leaf) for row in page])
            found = next(rows, None)
        if found != (span.tail.epoch, span.tail.sequence, span.tail.leaf):
            say = "It tells another story than this ledger."
            raise SinkUnavailable(registration.name, "diverged", say)
        after = span.tail.sequence


class NewPlace:
    """A place that is being filled; use it as a context, and `fill` it as often as the ledger went on."""

    def __init__(self, registration: SinkRegistration, house: House) -> None:
        """Take the place, which was prepared.

        Raises:
            RefusedError: `audit_unavailable`; a third party's code that would fill it may not be loaded.
        """
        self._name = registration.name
        self._ledger = house.ledger
        declared = house.profile.audit.sinks[self._name].model_copy(update={"required": True})
        means = house.sink_means
        try:
            sink = built_sink(registration, house.ledger.ledger_id, declared, credentials=means.credentials)
        except SetupError as fault:
            raise refusal(self._name, fault.message) from None
        stand = Stand(kept=house.ledger.read(kept_back))
        self._delivery = Delivery((sink,), LedgerSpans(house.ledger), stand=stand)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_fault: object) -> None:
        """Let the file go."""
        self._delivery.close()

    def fill(self) -> int:
        """Do 4; return the last sequence that it acknowledged, proven against the ledger.

        Raises:
            RefusedError: `audit_unavailable`; it does not take the spans.
        """
        upto = self._ledger.read(lambda view: view.head()).sequence
        for _round in range(FILL_ROUNDS_MAX):
            try:
                self._delivery.acknowledge(upto)
            except AuditUnavailable as fault:
                if fault.reason == "backlog":
                    continue
                raise refusal(self._name, f"The new place does not take the spans: {fault.message}") from None
            return upto
        raise refusal(self._name, "The new place does not come to the end of the spans.")


def tell_old(registration: SinkRegistration, ledger: Ledger, sequence: int) -> None:
    """Let an old file end with the span that says that it was left, as far as it still takes one.

    A ledger that is set back to before that span is then behind its old file, which is where it looks.
    """
    if is_carried(registration):
        return
    sink = looked_sink(registration, ledger.ledger_id)
    delivery = Delivery((sink,), LedgerSpans(ledger))
    try:
        with suppress(AuditUnavailable):
            delivery.acknowledge(sequence)
    finally:
        delivery.close()


def refusal(name: str, say: str) -> RefusedError:
    """Return the no of a sink act: the audit is not available in the way that the act wants it."""
    return RefusedError(RefusalCode.AUDIT_UNAVAILABLE, field=name, say=say)


__all__ = [
    "AHEAD",
    "NewPlace",
    "OldState",
    "old_state",
    "prepare_place",
    "reached_by_all",
    "refusal",
    "refuse_ahead",
    "refuse_archived",
    "tell_old",
]
