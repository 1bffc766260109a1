"""Whether people are told: the commands of `[notify]`, and the notices that could not be told."""

import os
from collections.abc import Iterator
from pathlib import Path

from issuer.clock import now_ms
from issuer.selfcheck.finding import Finding, Known


def notices(known: Known) -> Iterator[Finding]:
    """Say which command is not there, and how many notices failed; neither keeps an effect from anything."""
    from issuer.notifying import failed_notices

    tables = known.the_profile().notices
    missing = [
        name
        for name, table in tables.items()
        if table.command is not None and not _is_program(Path(table.command[0]))
    ]
    for name in missing:
        says = (
            f"The command of notify.{name} is no program that this account can run, so nobody is told by it."
        )
        yield Finding(
            check="notices", ok=True, says=says, next="Install it, or name another one by its full path."
        )
    failed = failed_notices(known.places.notices, now_ms())
    if failed:
        says = f"Not all of the latest notices were told: {failed} are kept in ledger/{known.places.notices.name}/."
        remedy = "Read why in the files failed-*, repair that, then remove them."
        yield Finding(check="notices", ok=True, says=says, next=remedy)
    if not missing and not failed:
        told = f"{len(tables)} declared" if tables else "none are declared"
        yield Finding(check="notices", ok=True, says=f"No notice is missing; places to tell people: {told}.")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
