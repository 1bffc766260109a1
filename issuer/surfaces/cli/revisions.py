"""`activate` and `revisions` on the command line."""

import click

from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_at_the_desk, run_with_issuer


@click.command()
@click.argument("revision", required=False, metavar="[REV]")
@signable
@common
def activate(settings: Settings, revision: str | None) -> None:
    """Put profile, policies, registries and keys as they lie there in force, or those of the earlier REV."""
    run_at_the_desk(
        settings,
        lambda desk: desk.activate(revision),
        goes_on=" Nothing was changed: what is in force goes on.",
    )


@click.command()
@common
def revisions(settings: Settings) -> None:
    """List what was in force and since when, newest first; * marks what is."""
    run_with_issuer(settings, lambda issuer: issuer.revisions(), reading=True)
