"""A third party's sink: code that an owner admitted carries the spans, and keeps them wherever it keeps them.

Rules: AUD-02 (what it says counts only where it says it of exactly the last span), SEC-01 (nothing that it raises is
repeated). It gets whole batches, in order and without a gap, and need not remember anything: the watermark is ours
(`audit.sinks.carried`). Of its words only one is taken over: the class of its acknowledgement, which is its maker's
promise and nothing that could be checked here. It may raise, hang or lie; `audit.delivery` guards against the second.
It runs in this process, so nothing here holds it back; that is why an owner admits it by its digest (ADR-0020).
Next: `issuer.sink_building`, which loads it.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from audit.errors import SinkUnavailable
from audit.sinks.port import SinkClass
from ledger.transitions import SpanRow

__all__ = ["KIND", "PluginCarrier", "SpanStore"]

KIND: Final = "python"


class SpanStore(Protocol):
    """What a third party's factory returns; it is called by one thread at a time, with the seconds that it has."""

    @property
    def sink_class(self) -> str:
        """What its acknowledgement promises: `durable` or `accepted` (`audit.sinks.port.SinkClass`)."""
        ...

    def probe(self, deadline_s: float) -> None:
        """Return if spans would be taken now; write nothing. Whatever it raises is a no."""
        ...

    def store(self, rows: Sequence[SpanRow], deadline_s: float) -> bytes:
        """Keep all of `rows` and return the leaf of the last one. Whatever it raises is a no.

        They come in order, at least once: a row may come again, and is then the same (ledger, epoch, lane, sequence).
        """
        ...

    def close(self) -> None:
        """Let go of files and connections; a later call may take them again."""
        ...


class PluginCarrier:
    """Carries spans to a third party's code; implements `audit.sinks.carried.Carrier`."""

    def __init__(self, store: SpanStore, *, name: str, is_admitted: Callable[[], bool]) -> None:
        """Take what the factory made, the name of the sink, and whether the code on disk is still what was admitted.

        Raises:
            ValueError: it names no class of a sink that can be waited for, or lacks a method.
        """
        said = getattr(store, "sink_class", None)
        if said not in {SinkClass.DURABLE.value, SinkClass.ACCEPTED.value}:
            raise ValueError("a sink says that what it acknowledges is durable or accepted")
        if not all(callable(getattr(store, method, None)) for method in ("probe", "store", "close")):
            raise ValueError("a sink has the methods probe, store and close")
        self.sink_class: Final = SinkClass(said)
        self._store = store
        self._name = name
        self._is_admitted = is_admitted

    def probe(self, deadline_s: float) -> None:
        """See `Carrier.probe`."""
        self._demand_admitted()
        try:
            self._store.probe(deadline_s)
        except BaseException as fault:  # noqa: BLE001 - it may raise anything, and its own words are not repeated
            kind = type(fault).__name__
        else:
            return
        raise self._failed(kind)

    def carry(self, rows: Sequence[SpanRow], deadline_s: float) -> None:
        """See `Carrier.carry`: the answer is the leaf of the last row, or it is none."""
        self._demand_admitted()
        said: object = None
        kind = ""
        try:
            said = self._store.store(tuple(rows), deadline_s)
        except BaseException as fault:  # noqa: BLE001 - as above
            kind = type(fault).__name__
        if kind:
            raise self._failed(kind)
        if type(said) is not bytes or said != rows[-1].leaf:
            raise SinkUnavailable(
                self._name, "untrue", "The sink acknowledged something else than it was given."
            )

    def close(self) -> None:
        """See `Carrier.close`; whoever closes expects that it may raise."""
        self._store.close()

    def _demand_admitted(self) -> None:
        if not self._is_admitted():
            message = "The code of the sink is not what the owner admitted any more."
            raise SinkUnavailable(self._name, "not_admitted", message)

    def _failed(self, kind: str) -> SinkUnavailable:
        return SinkUnavailable(self._name, "failed", f"The sink failed: {kind}.")
