"""An office with a registry of vendors: refunds go to a vendor's account, and people are asked about them.

What is put in force is put at an instant of the test's own clock, so that a test says how long ago it was.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from issuer import Issuer
from issuer.approving import human_part
from issuer.clock import now_ms
from tests.support.approving import Office, made_office, waiting
from tests.support.ledgers import Clock
from tests.support.revised import activated, rewritten
from tests.support.service import Service

HOUR_MS = 3_600_000
FILE = "vendors.csv"
ROWS: Mapping[str, str] = {"acme": "DE01", "bolt": "DE02"}
_REGISTRY = f"""[registry]
vendors = {{ file = "{FILE}", key = "id", fields = ["iban"] }}
[class.refund]"""
_PAYLOAD = "payload = { order = { string = 40, public = true },"
_WITH_VENDOR = f'{_PAYLOAD} vendor = {{ registry = "vendors", public = true }},'


@dataclass(frozen=True, kw_only=True)
class Vendors:
    """One open office, and the clock by which its owner activates."""

    office: Office
    clock: Clock

    @property
    def issuer(self) -> Issuer:
        """The open issuer."""
        return self.office.issuer

    def after(self, hours: float) -> "Vendors":
        """Let time pass."""
        self.clock.now += int(hours * HOUR_MS)
        return self

    def put(self, rows: Mapping[str, str], *, hours: float = 1) -> int:
        """Put these accounts in force some hours later; return that instant."""
        self.after(hours)
        rewritten(self.office.made.folder / FILE, table(rows))
        if not activated(self.office.made.profile, clock=self.clock):
            raise AssertionError("these rows are in force already")
        return self.clock.now

    def touch(self, *, hours: float = 1) -> int:
        """Put a change in force some hours later that is about no account; return that instant."""
        self.after(hours)
        policies = self.office.policies
        rewritten(policies, policies.read_text(encoding="utf-8") + f"// {self.clock.now}\n")
        if not activated(self.office.made.profile, clock=self.clock):
            raise AssertionError("nothing was changed")
        return self.clock.now

    def ask(self, order: str = "o-1", vendor: str = "acme", **options: object) -> str:
        """Return an effect that waits for people."""
        payload = {"order": order, "vendor": vendor, "amount": 900}
        return waiting(
            self.issuer.request("refund", payload, task="t1", actor="agent-7", **options)  # type: ignore[arg-type]
        )

    def hold(self) -> str:
        """Return an effect that was prepared and not asked about yet."""
        payload = {"order": "o-1", "vendor": "acme", "amount": 900}
        held = self.issuer.request("refund", payload, task="t1", actor="agent-7", hold=True)
        if held.effect is None:
            raise AssertionError(held)
        return held.effect

    def since(self, effect: str) -> list[str]:
        """Return the lines of its statement about since when the row is as it is, without name and revision."""
        lines = human_part(self.office.statement(effect)).split("\n")
        start = next(at for at, line in enumerate(lines) if line.startswith("registry.vendor.since: "))
        end = next(at for at, line in enumerate(lines) if line.startswith("registry.vendor.since_revision: "))
        return [lines[start].removeprefix("registry.vendor.since: "), *lines[start + 1 : end]]


def table(rows: Mapping[str, str]) -> str:
    """Return the owner's file with these accounts."""
    return "id,iban\n" + "".join(f"{name},{iban}\n" for name, iban in rows.items())


@contextmanager
def opened_vendors(folder: Path, **options: object) -> Iterator[Vendors]:
    """Make it in `folder`, with its first revision in force for an hour; `options` are those of `Issuer.open`."""
    folder.mkdir(parents=True)
    (folder / FILE).write_text(table(ROWS), encoding="utf-8")
    changes = {"[class.refund]": _REGISTRY, _PAYLOAD: _WITH_VENDOR}
    with Service() as service:
        made, keys = made_office(folder, port=service.port, changes=changes)
        clock = Clock(now_ms() + HOUR_MS)
        with made.open(clock=clock, **options) as issuer:
            yield Vendors(office=Office(issuer=issuer, service=service, made=made, keys=keys), clock=clock)
