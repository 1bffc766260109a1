"""The sinks that the contract suite runs over, each with a place that a test can look into, break and repair.

Started as `python -m tests.support.sink_kits KIT FOLDER AT ACT` it is a second process of the same ledger: `ship` ships
each of the first `COUNT` spans by a call of its own, `fork` asks a sink in a forked child.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from audit import JsonlSink, Sink, SinkClass, SinkExpectation, create
from audit.errors import SinkUnavailable
from audit.sinks.carried import CarriedSink
from audit.sinks.otlp import OtlpCarrier
from audit.sinks.plugin import PluginCarrier
from ledger.model import LedgerId
from ledger.transitions import SpanRow
from tests.support.collector import Collector
from tests.support.spans import LEDGER, SpansInMemory, sequences_in

COUNT: Final = 40
NAME: Final = "local"
PATIENCE_S: Final = 30.0


class Kit(Protocol):
    """One kind of sink at one place."""

    sink_class: SinkClass

    @property
    def at(self) -> str:
        """What a second process needs to know of the place beside its folder."""
        ...

    def sink(self, *, ledger_id: LedgerId = LEDGER, required: bool = True) -> Sink:
        """Return a sink with nothing open and nothing remembered, as a new process has."""
        ...

    def stored(self) -> Sequence[int]:
        """Return the sequences that the place holds, in order of arrival."""
        ...

    def gone(self) -> None:
        """Let the place be gone."""
        ...

    def back(self) -> None:
        """Let it be back, with what it held."""
        ...


class FileKit:
    """The JSONL file."""

    sink_class = SinkClass.DURABLE

    def __init__(self, folder: Path, at: str = "") -> None:
        self.at = at
        self.path = folder / "audit.jsonl"
        if not self.path.exists():
            create(self.path, LEDGER, name=NAME)

    def sink(self, *, ledger_id: LedgerId = LEDGER, required: bool = True) -> Sink:
        return JsonlSink(self.path, ledger_id, name=NAME, required=required, free_bytes_min=0)

    def stored(self) -> Sequence[int]:
        return sequences_in(self.path)

    def gone(self) -> None:
        self.path.rename(self.path.with_suffix(".away"))

    def back(self) -> None:
        self.path.with_suffix(".away").rename(self.path)


class CollectorKit:
    """A collector on a socket, with its watermark in the folder; another process is told its port."""

    sink_class = SinkClass.ACCEPTED

    def __init__(self, folder: Path, at: str) -> None:
        self.at = at
        self.folder = folder / "mark"
        self.collector: Collector | None = None

    def sink(self, *, ledger_id: LedgerId = LEDGER, required: bool = True) -> CarriedSink:
        url = f"http://127.0.0.1:{self.at}/v1/traces"
        return CarriedSink(
            OtlpCarrier(url, name=NAME),
            ledger_id,
            name=NAME,
            kind="otlp",
            required=required,
            folder=self.folder,
            place=url,
        )

    def stored(self) -> Sequence[int]:
        assert self.collector is not None
        return self.collector.sequences

    def gone(self) -> None:
        assert self.collector is not None
        self.collector.stop()

    def back(self) -> None:
        assert self.collector is not None
        kept = self.collector.spans
        self.collector = Collector(port=int(self.at)).__enter__()
        self.collector.spans = kept


class FileStore:
    """A third party's store: one line a span, and a setting that lets it fail."""

    sink_class = "durable"

    def __init__(self, path: Path) -> None:
        self.path = path

    def probe(self, deadline_s: float) -> None:
        del deadline_s
        if not self.path.parent.is_dir():
            raise RuntimeError("canary-4711")

    def store(self, rows: Sequence[SpanRow], deadline_s: float) -> bytes:
        del deadline_s
        with self.path.open("a", encoding="ascii") as file:
            file.writelines(json.dumps([row.position.sequence, row.leaf.hex()]) + "\n" for row in rows)
            file.flush()
            os.fsync(file.fileno())
        return rows[-1].leaf

    def close(self) -> None:
        pass


class PluginKit:
    """A third party's store behind the port."""

    sink_class = SinkClass.DURABLE

    def __init__(self, folder: Path, at: str = "") -> None:
        self.at = at
        self.folder = folder / "mark"
        self.store = FileStore(folder / "store" / "spans")
        self.store.path.parent.mkdir(exist_ok=True)

    def sink(self, *, ledger_id: LedgerId = LEDGER, required: bool = True) -> CarriedSink:
        return CarriedSink(
            PluginCarrier(self.store, name=NAME, is_admitted=lambda: True),
            ledger_id,
            name=NAME,
            kind="python",
            required=required,
            folder=self.folder,
            place="python:store",
        )

    def stored(self) -> Sequence[int]:
        if not self.store.path.exists():
            return []
        return [json.loads(line)[0] for line in self.store.path.read_text(encoding="ascii").splitlines()]

    def gone(self) -> None:
        self.store.path.parent.rename(self.folder.with_name("away"))

    def back(self) -> None:
        self.folder.with_name("away").rename(self.store.path.parent)


KITS: Final[Mapping[str, Callable[[Path, str], Kit]]] = {
    "jsonl": FileKit,
    "otlp": CollectorKit,
    "plugin": PluginKit,
}


@contextmanager
def kit_at(name: str, folder: Path) -> Iterator[Kit]:
    """Make a kit, with a collector where it needs one."""
    if name != "otlp":
        yield KITS[name](folder, "")
        return
    with Collector() as collector:
        kit = CollectorKit(folder, str(collector.port))
        kit.collector = collector
        yield kit
        if kit.collector is not collector:
            kit.collector.stop()


def _ship(sink: Sink) -> None:
    source = SpansInMemory(COUNT)
    sys.stdin.readline()
    for row in source.spans_after(0, limit=COUNT):
        if sink.ship(source, row.position, PATIENCE_S).sequence < row.position.sequence:
            raise SystemExit(3)


def _fork(sink: Sink) -> None:
    source = SpansInMemory(3)
    upto = source.head()
    sink.ship(source, upto, PATIENCE_S)
    child = os.fork()
    if child:
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    reasons = set()
    for act in (
        lambda: sink.probe(SinkExpectation(source=source), PATIENCE_S),
        lambda: sink.ship(source, upto, PATIENCE_S),
    ):
        try:
            act()
        except SinkUnavailable as fault:
            reasons.add(fault.reason)
    os._exit(0 if reasons == {"forked"} else 4)


if __name__ == "__main__":
    kit_name, at_folder, at_place, wanted = sys.argv[1:]
    {"ship": _ship, "fork": _fork}[wanted](KITS[kit_name](Path(at_folder), at_place).sink())
