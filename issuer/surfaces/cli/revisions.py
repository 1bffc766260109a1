"""`activate` and `revisions` on the command line."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.surfaces.cli.options import Settings, common
from issuer.surfaces.cli.running import run_with_issuer, run_with_profile

if TYPE_CHECKING:
    from issuer.wire import Answer


@click.command()
@click.argument("revision", required=False, metavar="[REV]")
@common
def activate(settings: Settings, revision: str | None) -> None:
    """Put profile, policies, registries and keys as they lie there in force, or those of the earlier REV."""

    def run(profile: Path) -> "Answer":
        from issuer.commands import activate as put_in_force

        return put_in_force(profile, revision)

    run_with_profile(settings, run, goes_on=" Nothing was changed: what is in force goes on.")


@click.command()
@common
def revisions(settings: Settings) -> None:
    """List what was in force and since when, newest first; * marks what is."""
    run_with_issuer(settings, lambda issuer: issuer.revisions(), reading=True)
