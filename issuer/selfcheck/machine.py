"""The machine around the issuer: interpreter, import path, account, time zones. Standard library alone."""

import importlib.metadata
import os
import shutil
import sys
import sysconfig
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from issuer.rooms import FOREIGN_NEXT, HOME, foreign_rooms, foreign_sentence
from issuer.selfcheck.finding import Finding, Known

PYTHON_MIN: Final = (3, 11)
"""As `requires-python` in pyproject.toml; a test compares the two."""

DISTRIBUTION: Final = "permit-issuer"
COMMANDS: Final = ("issuer", DISTRIBUTION)
_OTHERS_MAY_WRITE: Final = 0o022


def python_version(_known: Known) -> Iterator[Finding]:
    """Say whether the interpreter is one that this release runs on."""
    found = sys.version_info[:3]
    text = ".".join(map(str, found))
    wanted = ".".join(map(str, PYTHON_MIN))
    if found < PYTHON_MIN:
        yield Finding(
            check="python",
            ok=False,
            says=f"Python {text} is too old.",
            next=f"Install Python {wanted} or newer and set up the environment again.",
        )
    else:
        yield Finding(check="python", ok=True, says=f"Python {text}.")


def packages(_known: Known) -> Iterator[Finding]:
    """Say whether the four rooms are ours, and whether another copy is installed beside this one (ADR 0001)."""
    foreign = foreign_rooms()
    if foreign:
        yield Finding(check="packages", ok=False, says=foreign_sentence(foreign), next=FOREIGN_NEXT)
        return
    try:
        installed = importlib.metadata.distribution(DISTRIBUTION).locate_file("issuer")
    except importlib.metadata.PackageNotFoundError:
        installed = HOME / "issuer"
    if Path(str(installed)).is_dir() and Path(str(installed)).resolve() != HOME / "issuer":
        yield Finding(
            check="packages",
            ok=True,
            says=f"The rooms of {HOME} are in use, and another copy is installed at {installed}.",
            next="Remove one of the two copies, unless this is on purpose.",
        )
        return
    yield Finding(check="packages", ok=True, says="All four rooms are this copy's own.")


def command(_known: Known) -> Iterator[Finding]:
    """Say whether `issuer` on the PATH is the one of this environment."""
    scripts = Path(sysconfig.get_path("scripts"))
    first = shutil.which(COMMANDS[0])
    if first is None:
        yield Finding(
            check="command",
            ok=True,
            says="`issuer` is not on the PATH.",
            next=f"Type it with its folder, {scripts}, or put that on the PATH.",
        )
    elif Path(first).resolve().parent == scripts.resolve():
        yield Finding(check="command", ok=True, says=f"`issuer` on the PATH is {first}, of this environment.")
    else:
        yield Finding(
            check="command",
            ok=None,
            says=f"`issuer` on the PATH is {first}, which is not the one of this environment ({scripts}).",
            next="Make sure that both are the same release, or take one of them off the PATH.",
        )


def account(_known: Known) -> Iterator[Finding]:
    """Say as whom the issuer runs, and what its new files are open to."""
    if os.geteuid() == 0:
        yield Finding(
            check="account",
            ok=True,
            says="The issuer runs as root, which can read and write everything whatever the modes say.",
            next="Give the issuer an account of its own, outside of containers at least.",
        )
    else:
        yield Finding(check="account", ok=True, says=f"The issuer runs as uid {os.geteuid()}.")
    # The system tells a mask only while setting it, so the tightest one is set for that instant.
    mask = os.umask(0o777)
    os.umask(mask)
    if mask & _OTHERS_MAY_WRITE == _OTHERS_MAY_WRITE:
        yield Finding(check="umask", ok=True, says=f"The umask is {mask:04o}.")
    else:
        yield Finding(
            check="umask",
            ok=True,
            says=f"The umask is {mask:04o}: others may write to files made without a mode of their own.",
            next="Set `umask 077` for this account.",
        )


def time_zones(known: Known) -> Iterator[Finding]:
    """Say whether time zone data is there: per-day bounds and the clock of policies need it (POL-02, POL-03)."""
    wanted = "Europe/Vienna" if known.profile is None else known.profile.timezone
    try:
        zoneinfo.ZoneInfo(wanted)
    except zoneinfo.ZoneInfoNotFoundError:
        yield Finding(
            check="time_zones",
            ok=False,
            says=f"There is no time zone data for {wanted}.",
            next="Install the package tzdata into this environment, or the system's own.",
        )
    else:
        yield Finding(check="time_zones", ok=True, says=f"Time zone data is there ({wanted}).")
