"""What decides, records and stores: the policy engine, the span recorder and the SQLite library.

Each check loads its room by itself, so that one that does not load hides no other.
"""

import importlib.metadata
import os
from collections.abc import Iterator
from typing import Final

from issuer.selfcheck.finding import Finding, Known

SDK: Final = "opentelemetry-sdk"
SDK_SERIES: Final = ("1", "45")
"""The one minor series whose behaviour was read (docs/adr/0002-dependencies.md); a test compares pyproject.toml."""

REINSTALL: Final = "Install the requirements of this release again, exactly as its lock file names them."


def engine(known: Known) -> Iterator[Finding]:
    """Say whether the policy engine is the pinned one and answers its canaries as measured (POL-04)."""
    from policies import EngineUnfit, engine_version, run_canaries

    try:
        run_canaries()
    except EngineUnfit as unfit:
        says = f"The policy engine, {engine_version()}, is not fit to decide: {unfit.canary}."
        yield Finding(check="engine", ok=False, says=says, next=REINSTALL)
        return
    known.engine_is_fit = True
    yield Finding(check="engine", ok=True, says=f"{engine_version()}, as pinned; its canaries sing.")


def spans(_known: Known) -> Iterator[Finding]:
    """Say whether the SDK keeps spans whole in this very environment (AUD-03)."""
    from ledger.errors import SpanNotRecorded
    from ledger.model import LedgerId

    version = importlib.metadata.version(SDK)
    if tuple(version.split(".")[:2]) != SDK_SERIES:
        says = f"{SDK} {version} is installed, and only {'.'.join(SDK_SERIES)} was read and relied upon."
        yield Finding(check="spans", ok=False, says=says, next=REINSTALL)
        return
    try:
        from issuer.wiring import span_recorder

        span_recorder(LedgerId("led_" + "0" * 32))
    except SpanNotRecorded as fault:
        remedy = "Unset it, and start again." if fault.reason == "otel_environment" else REINSTALL
        yield Finding(check="spans", ok=False, says=fault.message, next=remedy)
        return
    # Names alone: such a variable may hold a token.
    present = sorted(name for name in os.environ if name.startswith("OTEL_"))
    beside = f" whatever {', '.join(present)} says" if present else ""
    yield Finding(check="spans", ok=True, says=f"{SDK} {version} keeps spans whole{beside}.")


def sqlite(_known: Known) -> Iterator[Finding]:
    """Say which SQLite library is in use, and whether it is safe for WAL (LED-04)."""
    from ledger.sqlite import journal_mode, library_version

    if journal_mode() == "wal":
        yield Finding(check="sqlite", ok=True, says=f"SQLite {library_version()} is safe for WAL.")
        return
    yield Finding(
        check="sqlite",
        ok=True,
        says=f"SQLite {library_version()} could lose commits in WAL; journal mode truncate is used, which is slower.",
        next="Where there is a wheel of pysqlite3 for this platform, install it; else update SQLite.",
    )
