"""One upgrade in a process of its own, struck somewhere, and what must be true of it then, whatever was struck."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from issuer import Issuer
from issuer.sealing.authenticator import RingAuthenticator
from issuer.upgrading import upgraded_keys
from issuer.wiring import span_recorder
from ledger.sqlite import SqliteLedger
from ledger.sqlite.schema import SCHEMA_VERSION
from ledger.timekeeping import NO_UPTIME
from tests.support.committing import Job
from tests.support.old_release import OldIssuer, content, old_issuer
from tests.support.recorders import plain_recorder

Content = dict[str, list[tuple[object, ...]]]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """An issuer of the old release, and all that its ledger held."""

    made: OldIssuer
    before: Content
    clock: Path

    def job(self, *, traced: bool = True, at: int | None = None) -> Job:
        """Return the job of a process that opens it, and by that upgrades it."""
        return Job(
            profile=str(self.made.profile),
            command="list",
            clock=str(self.clock),
            traced=traced,
            at=at,
            early=True,
        )

    def judged(self) -> str:
        """Return which schema stands, after seeing that it is whole, and that the next start makes the best of it."""
        ((version,),) = content(self.made.ledger)["version"]
        if version == SCHEMA_VERSION:
            found = "new"
        else:
            assert content(self.made.ledger) == self.before
            found = "old"
        assert not self.made.kept.exists() or content(self.made.kept) == self.before
        self.assert_upgraded_once()
        return found

    def assert_upgraded_once(self) -> None:
        """Open it once more: the ledger is whole, in the new schema, and its trail says so once."""
        with opened(self.made) as issuer:
            ledger = issuer._house.ledger
            spans = ledger.read(lambda view: view.spans_after(0, limit=10_000))
        fresh = [span.name for span in spans[len(self.before["spans"]) :]]
        # A start after a kill commits a span of its own before it reads anything, and the first start of all puts the
        # owner's files in force.
        told = [name for name in fresh if name != "ledger.probe"]
        assert told == ["ledger.migrated", "revision.activated"]
        answer = Issuer.ledger_check(self.made.profile)
        assert (answer.code, answer.more["findings"]) == ("found", [])
        assert content(self.made.kept) == self.before
        assert not [path.name for path in self.made.ledger.parent.iterdir() if ".new" in path.name]


def opened(made: OldIssuer, **options: Any) -> Issuer:
    """Open the issuer soon after the old release did its last."""
    return made.open(**{"clock": lambda: made.now, **options})


def upgraded(made: OldIssuer, **changed: Any) -> None:
    """Upgrade an issuer as opening does, and open nothing."""
    means: dict[str, Any] = {
        "recorder": span_recorder,
        "clock": lambda: made.now,
        "uptime": lambda: NO_UPTIME,
        "observe": lambda _step: None,
    }
    upgraded_keys(made.places, **{**means, **changed})


def upgraded_ledger(made: OldIssuer) -> SqliteLedger:
    """Upgrade an issuer, and open its ledger alone."""
    upgraded(made)
    keys = RingAuthenticator(made.ring)
    return SqliteLedger(made.ledger, recorder=plain_recorder, keys=keys, clock=lambda: made.now)


def files(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder but the writers' lock, which is empty and says nothing."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
    return {str(path): path.read_bytes() for path in found}


def scene(folder: Path, *, number: int = 1) -> Scene:
    """Make one in `folder`, of the schema `number`."""
    made = old_issuer(folder, number=number)
    clock = folder / "clock"
    clock.write_text(str(made.now))
    return Scene(made=made, before=content(made.ledger), clock=clock)
