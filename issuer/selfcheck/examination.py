"""All checks in their order, and the one code that sums them up."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer.places import Places
from issuer.rooms import foreign_rooms
from issuer.selfcheck import checkpoints, engines, machine, owner, revision, sinks, storage, telling
from issuer.selfcheck.finding import Finding, Known, NotJudgedError

Check = Callable[[Known], Iterable[Finding]]

_BEFORE_ROOMS: Final[tuple[tuple[str, Check], ...]] = (
    ("python", machine.python_version),
    ("packages", machine.packages),
    ("command", machine.command),
    ("account", machine.account),
)
"""What is asked before anything of the rooms is loaded."""

_WITH_ROOMS: Final[tuple[tuple[str, Check], ...]] = (
    ("engine", engines.engine),
    ("spans", engines.spans),
    ("sqlite", engines.sqlite),
    ("profile", owner.profile),
    ("unserved", owner.unserved),
    ("policies", owner.policies),
    ("operations", owner.operations),
    ("time_zones", machine.time_zones),
    ("credentials", owner.credentials),
    ("keys", storage.keys),
    ("ledger", storage.ledger),
    ("revision", revision.revision),
    ("ledger_folder", storage.ledger_folder),
    ("file_system", storage.file_system),
    ("space", storage.space),
    ("capacity", storage.capacity),
    ("protected", storage.protected),
    ("clock", storage.clock),
    ("sinks", sinks.sinks),
    ("anchor", sinks.anchor),
    ("checkpoints", checkpoints.checkpoints),
    ("checkpoint_copies", checkpoints.copies),
    ("admissions", storage.admissions),
    ("stops", storage.stops),
    ("notices", telling.notices),
)

_CODES: Final = MappingProxyType(
    {
        "profile": "malformed",
        "policies": "malformed",
        "operations": "malformed",
        "credentials": "keys_unavailable",
        "keys": "keys_unavailable",
        "sqlite": "ledger_unavailable",
        "ledger": "ledger_unavailable",
        "revision": "ledger_unavailable",
        "ledger_folder": "ledger_unavailable",
        "protected": "ledger_unavailable",
        "space": "ledger_unavailable",
        "capacity": "ledger_full",
        "spans": "audit_unavailable",
        "sinks": "audit_unavailable",
        "checkpoints": "checkpoint_refused",
        "clock": "clock_untrusted",
        "unserved": "unsupported",
    }
)
"""The code (`issuer.wire.codes`) of a problem; what is not named here is the installation's, `fault`."""

_PRECEDENCE: Final = (
    "fault",
    "malformed",
    "keys_unavailable",
    "ledger_unavailable",
    "audit_unavailable",
    "checkpoint_refused",
    "clock_untrusted",
    "ledger_full",
    "unsupported",
)
"""Which problem's code sums up several: what has to be repaired first comes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything that was found; `issuer` and `mode` as far as they could be read."""

    issuer: str
    mode: str
    findings: tuple[Finding, ...]

    @property
    def problems(self) -> int:
        """How many findings keep the issuer from working safely."""
        return sum(finding.ok is False for finding in self.findings)

    @property
    def code(self) -> str:
        """The one code: `found` where no finding is a problem."""
        codes = {_CODES.get(found.check, "fault") for found in self.findings if found.ok is False}
        return next((code for code in _PRECEDENCE if code in codes), "found")


def examine(profile: Path) -> Report:
    """Run every check on the issuer whose profile is at `profile`. Nothing is changed and nothing is raised."""
    known = Known(places=Places(profile.absolute()))
    findings = [found for name, check in _BEFORE_ROOMS for found in _asked(name, check, known)]
    try:
        if foreign_rooms():
            # Loading one of them would run code of nobody knows whom.
            findings += [_not_judged(name, "packages") for name, _check in _WITH_ROOMS]
        else:
            findings += [found for name, check in _WITH_ROOMS for found in _asked(name, check, known)]
        return Report(issuer=_name(known), mode=_mode(known), findings=tuple(findings))
    finally:
        if known.ledger is not None:
            known.ledger.close()


def _asked(name: str, check: Check, known: Known) -> Iterator[Finding]:
    """Yield what one check finds; what it raises is a finding too, and ends nothing but this check."""
    try:
        yield from check(known)
    except NotJudgedError as missing:
        yield _not_judged(name, missing.check)
    except ImportError as fault:
        says = f"A package that it needs does not load: {fault.name or 'unknown'}."
        yield Finding(check=name, ok=False, says=says, next=engines.REINSTALL)
    except Exception as fault:  # noqa: BLE001 - a check that breaks must not hide the others
        # The class alone: an exception's text may quote anything.
        says = f"This could not be judged: {type(fault).__name__}."
        yield Finding(check=name, ok=None, says=says, next="Repair what else is told, then look again.")


def _not_judged(name: str, needed: str) -> Finding:
    return Finding(check=name, ok=None, says=f"Not judged, for it needs `{needed}` to be well.")


def _name(known: Known) -> str:
    """Return the issuer's name as its answers carry it, with as much of it as could be read."""
    if known.profile is None:
        return ""
    if known.ledger is None:
        return known.profile.name
    return f"{known.profile.name}/{known.ledger.ledger_id[4:12]}"


def _mode(known: Known) -> str:
    return "ordinary" if known.profile is None else known.profile.mode
