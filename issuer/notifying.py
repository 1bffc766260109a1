"""Notices: people are told that something waits for them, in the core's words, and nothing ever waits for that.

Decides who is told what, how often, and what a notice says. Rules:

1. A notice is built here from what is on record (EFF-10, SEC-01): a reference, the operation, the resource as it may be
   shown, money as people write it, until when, and one fixed sentence. No payload value that is not public, and nothing
   that an actor said freely. It carries no authority: whoever reads it still has to look and to sign (APP-01).
2. It is no step of anything. It is made after the transaction, its failure changes no answer, and nothing that it does
   takes the caller's time but the start of one process: the courier (`issuer.notice_courier`).
3. Of one effect one kind is told once; what is wrong with the issuer itself once an hour and kind. What was told is
   kept beside the ledger (`notices/told`); where that cannot be kept, it is told once more rather than not.
4. What could not be told stays beside the ledger as a file, and `issuer doctor` says so.

Next: `issuer.notice_courier` runs the owner's command or fills the owner's spool.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from issuer.amounts import amount_text
from issuer.clock import instant_text
from issuer.house import House
from issuer.ids import random_bytes
from issuer.notice_courier import FAILED, FAILED_MAX
from issuer.operations.host_environment import PASSED, PASSED_PREFIX
from issuer.profile import Notify
from ledger.capacity import ANNOUNCED_PERCENT, fills
from ledger.errors import Fault
from ledger.model import Effect, InstantMs

__all__ = [
    "Notice",
    "NoticeKind",
    "failed_notices",
    "notify",
    "tell_awaiting",
    "tell_checkpoint_failed",
    "tell_frozen",
    "tell_nearly_full",
    "tell_sink_down",
    "tell_unknown",
]

COMMAND_S: Final = 10
"""Seconds that a command has: enough for a mail server that is slow, and nobody waits for it."""

WAITING_MAX: Final = 32
"""Notices under way at once; more of them are kept as failed, so that a storm starts no crowd of processes."""

GONE_MS: Final = 30_000
"""A courier is done after `COMMAND_S` and some; a job that is older has lost its courier."""

HOUR_MS: Final = 3_600_000
TOLD_MAX: Final = 1_000
"""Effects that are remembered as told; each tells by itself only when it moves, so the newest are enough."""

_COURIER: Final = Path(__file__).with_name("notice_courier.py")
_TOLD: Final = "told"
_NAME_BYTES: Final = 8
_TRIES_MAX: Final = 20
_TRY_S: Final = 0.001
"""Together 20 ms: what is done under the lock takes less than one."""


class NoticeKind(StrEnum):
    """What people are told of; the values are those of `on` in the profile."""

    AWAITING_APPROVAL = "awaiting_approval"
    OUTCOME_UNKNOWN = "outcome_unknown"
    FROZEN = "frozen"
    SINK_DOWN = "sink_down"
    NEARLY_FULL = "nearly_full"
    CHECKPOINT_FAILED = "checkpoint_failed"


_OF_AN_EFFECT: Final = frozenset({NoticeKind.AWAITING_APPROVAL, NoticeKind.OUTCOME_UNKNOWN})

_SAYS: Final[Mapping[NoticeKind, str]] = {
    NoticeKind.AWAITING_APPROVAL: "This waits for a person; look at it with 'issuer approvals' before you decide.",
    NoticeKind.OUTCOME_UNKNOWN: (
        "Nobody knows whether this happened. Do not send it again; look at the service, then reconcile it."
    ),
    NoticeKind.FROZEN: "Something was frozen and admits nothing until it is thawed; see 'issuer audit'.",
    NoticeKind.SINK_DOWN: "A required audit sink does not answer, so nothing is sent; see 'issuer doctor'.",
    NoticeKind.NEARLY_FULL: "The ledger is nearly full; see 'issuer doctor' for what to do while everything works.",
    NoticeKind.CHECKPOINT_FAILED: (
        "A checkpoint of the audit was refused, or could not be signed or copied; see 'issuer doctor' soon."
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing that people are told, as it may be shown to anybody who may read the audit.

    Attributes:
        reference: the effect's id, or of what is frozen; None where the issuer itself is meant.
        resource: as on record, so `hidden:…` where its name is not public.
        money: amounts as people write them.
        until_ms: instant in UTC from which on it is too late, or None.
        notify: names of the operation's tables; of no use for what is not about an effect.
    """

    kind: NoticeKind
    reference: str | None = None
    operation: str | None = None
    resource: str | None = None
    money: tuple[str, ...] = ()
    until_ms: InstantMs | None = None
    notify: tuple[str, ...] = ()

    @property
    def say(self) -> str:
        """The fixed sentence of its kind."""
        return _SAYS[self.kind]


def notify(house: House, notice: Notice) -> None:
    """Tell people, as far as the owner declared somebody to tell and it was not told already.

    Returns at once, raises nothing, and whatever goes wrong in it changes nothing else.
    """
    tables = _tables(house, notice)
    if not tables:
        return
    # Whatever the machine has against it (no room, no process): nobody's effect waits for a notice.
    with suppress(OSError, ValueError, subprocess.SubprocessError):
        _tell(house, notice, tables)


def tell_awaiting(house: House, effect: Effect) -> None:
    """Tell that an effect has begun to wait for a person's approval."""
    notify(house, _of_effect(house, NoticeKind.AWAITING_APPROVAL, effect))


def tell_unknown(house: House, effect: Effect) -> None:
    """Tell that the outcome of an effect has become unknown."""
    notify(house, _of_effect(house, NoticeKind.OUTCOME_UNKNOWN, effect))


def tell_frozen(house: House, reference: str | None) -> None:
    """Tell that something was frozen: a task by its id, else what is stopped, such as `actor:NAME` or `all`."""
    notify(house, Notice(kind=NoticeKind.FROZEN, reference=reference))


def tell_sink_down(house: House) -> None:
    """Tell that a required sink did not answer a probe."""
    notify(house, Notice(kind=NoticeKind.SINK_DOWN))


def tell_checkpoint_failed(house: House) -> None:
    """Tell that a checkpoint was refused, or that it or its copy could not be made (AUD-04)."""
    notify(house, Notice(kind=NoticeKind.CHECKPOINT_FAILED))


def tell_nearly_full(house: House) -> None:
    """Look how full the ledger is, where the owner wants to be told, and tell it from 80 % on (LED-02)."""
    notice = Notice(kind=NoticeKind.NEARLY_FULL)
    if not _tables(house, notice):
        return
    with suppress(Fault):
        found = fills(house.ledger.read(lambda view: view.holdings()), house.profile.ledger.capacity)
        if any(fill.percent >= ANNOUNCED_PERCENT for fill in found):
            notify(house, notice)


def failed_notices(folder: Path, now: InstantMs) -> int:
    """Return how many notices could not be told, of those that are kept: up to 100; 0 where there are none."""
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are enough here
    except OSError:
        return 0
    return sum(name.startswith(FAILED) or _is_gone(name, now) for name in names)


def _of_effect(house: House, kind: NoticeKind, effect: Effect) -> Notice:
    declared = house.profile.operations.get(effect.operation)
    return Notice(
        kind=kind,
        reference=effect.effect_id,
        operation=effect.operation,
        resource=f'{effect.resource_type}::"{effect.resource_id}"',
        money=tuple(amount_text(unit, amount) for unit, amount in effect.cost.items()),
        until_ms=effect.expires_ms if kind is NoticeKind.AWAITING_APPROVAL else None,
        notify=() if declared is None else declared.notify,
    )


def _tables(house: House, notice: Notice) -> dict[str, Notify]:
    """Return where it is told: for an effect at its operation's tables, for the issuer at all that want the kind."""
    return {
        name: table
        for name, table in house.profile.notices.items()
        if notice.kind.value in table.on and (notice.kind not in _OF_AN_EFFECT or name in notice.notify)
    }


def _tell(house: House, notice: Notice, tables: Mapping[str, Notify]) -> None:
    folder, now = house.places.notices, house.now()
    folder.mkdir(mode=0o700, exist_ok=True)
    with _alone(folder):
        if not _is_news(folder, notice, now):
            return
        waiting = _waiting(folder, now)
    name = f"{now:015d}-{notice.kind}-{random_bytes(_NAME_BYTES).hex()}.json"
    job = {
        "document": _document(house, notice, now),
        "deliveries": [_delivery(house, name, table) for name, table in tables.items()],
        "seconds": COMMAND_S,
    }
    if waiting >= WAITING_MAX:
        _keep(folder / f"{FAILED}{name}", {"document": job["document"], "why": {"courier": "too_many"}})
        return
    _keep(folder / name, job)
    try:
        _send(folder / name)
    except (OSError, ValueError, subprocess.SubprocessError):
        (folder / name).rename(folder / f"{FAILED}{name}")


def _document(house: House, notice: Notice, now: InstantMs) -> dict[str, object]:
    """Return the notice as a reader gets it: one JSON object, the same keys always."""
    return {
        "notice": str(notice.kind),
        "issuer": house.issuer,
        "at": instant_text(now),
        "reference": notice.reference,
        "operation": notice.operation,
        "resource": notice.resource,
        "money": list(notice.money),
        "until": None if notice.until_ms is None else instant_text(notice.until_ms),
        "say": notice.say,
    }


def _delivery(house: House, name: str, table: Notify) -> dict[str, object]:
    if table.command is not None:
        return {"name": name, "command": list(table.command)}
    # An absolute spool replaces the folder that it would be relative to.
    return {"name": name, "spool": str(house.places.folder / str(table.spool))}


def _send(job: Path) -> None:
    """Start the courier of one job, detached, with a clean environment; a thread collects it where we live on."""
    kept = {
        name: value for name, value in os.environ.items() if name in PASSED or name.startswith(PASSED_PREFIX)
    }
    courier = subprocess.Popen(  # noqa: S603 - our own interpreter and our own file
        [sys.executable, "-I", "-S", str(_COURIER), str(job)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=kept,
        cwd="/",
        start_new_session=True,
    )
    with suppress(
        RuntimeError
    ):  # no further thread: the courier is at work, and the system collects it after us
        threading.Thread(target=courier.wait, name="notice", daemon=True).start()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of the notices, or go on without it soon: rather told once more than an answer that waits."""
    held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_TRIES_MAX):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_TRY_S)
            else:
                break
        yield
    finally:
        os.close(held)


def _is_news(folder: Path, notice: Notice, now: InstantMs) -> bool:
    """Say whether it was not told yet (rule 3), and remember it as told."""
    told = _told(folder)
    if notice.kind in _OF_AN_EFFECT:
        key = f"{notice.kind}:{notice.reference}"
        if key in told:
            return False
    else:
        key = str(notice.kind)
        if abs(now - told.get(key, -HOUR_MS)) < HOUR_MS:
            return False
    told.pop(key, None)
    told[key] = now
    _keep(folder / _TOLD, dict(list(told.items())[-TOLD_MAX:]))
    return True


def _told(folder: Path) -> dict[str, int]:
    try:
        read = json.loads((folder / _TOLD).read_bytes())
    except (OSError, ValueError):
        return {}
    whole = isinstance(read, dict) and all(type(at) is int for at in read.values())
    return read if whole else {}


def _waiting(folder: Path, now: InstantMs) -> int:
    """Return how many notices are under way; what has lost its courier is called failed, and few of those are kept."""
    waiting, names = 0, sorted(os.listdir(folder))  # noqa: PTH208 - names are enough here
    for old in [name for name in names if name.startswith(FAILED)][:-FAILED_MAX]:
        (folder / old).unlink(missing_ok=True)
    for name in names:
        if _is_gone(name, now):
            with suppress(OSError):
                (folder / name).rename(folder / f"{FAILED}{name}")
        elif name[:1].isdigit():
            waiting += 1
    return waiting


def _is_gone(name: str, now: InstantMs) -> bool:
    began = name.partition("-")[0]
    # One that begins later than now was begun by a clock that was set back since: nobody waits until then.
    return name[:1].isdigit() and began.isdigit() and abs(now - int(began)) > GONE_MS


def _keep(place: Path, content: Mapping[str, object]) -> None:
    """Write a file of this account's alone, whole or not at all; a lost one costs a notice, so it is not synced."""
    draft = place.with_name(f".{place.name}-{random_bytes(_NAME_BYTES).hex()}")
    text = json.dumps(content, ensure_ascii=True).encode("ascii")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(text)
        draft.replace(place)
    except BaseException:  # a full disk leaves no part behind, for each notice one
        draft.unlink(missing_ok=True)
        raise
