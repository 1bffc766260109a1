"""`sink` on the command line: where every span goes, and what an operator does about it."""

import click

from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_with_issuer


@click.group("sink")
@common
def sink_group(settings: Settings) -> None:
    """Look after the sinks: the places outside the ledger that get every span."""
    del settings


@sink_group.command("list")
@common
def sink_list(settings: Settings) -> None:
    """List every sink: its kind, class and place, how far it is, and in what state."""
    run_with_issuer(settings, lambda issuer: issuer.sink_list(), reading=True)


@sink_group.command("replace")
@click.argument("name")
@click.option(
    "--path", metavar="DIR", help="Folder of the new file; otherwise the place that the profile says."
)
@signable
@common
def sink_replace(settings: Settings, name: str, path: str | None) -> None:
    """Let the sink NAME stand where the profile in force says; add one that it gained, leave one that it lost.

    The new place gets every span of the ledger before it counts.
    """
    run_with_issuer(settings, lambda issuer: issuer.sink_replace(name, path=path))


@sink_group.command("quarantine")
@click.argument("name")
@click.option(
    "--reason",
    type=click.Choice(["rejected", "too_large", "other"]),
    required=True,
    help="Why the sink never takes it.",
)
@click.option("--upto", type=click.IntRange(min=1), metavar="SEQ", help="The last span that is kept from it.")
@signable
@common
def sink_quarantine(settings: Settings, name: str, reason: str, upto: int | None) -> None:
    """Keep the next span that the sink NAME lacks from it, for good and on record. Files have no gaps."""
    run_with_issuer(settings, lambda issuer: issuer.sink_quarantine(name, reason=reason, upto=upto))
