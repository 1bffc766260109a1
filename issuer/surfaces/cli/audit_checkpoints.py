"""`audit checkpoint` and `audit key` on the command line."""

import click

from issuer.surfaces.cli.options import Settings, common
from issuer.surfaces.cli.running import run_with_issuer


@click.command("checkpoint")
@common
def audit_checkpoint(settings: Settings) -> None:
    """Sign a checkpoint of the whole trail and print it, to be kept elsewhere; every copy that is declared is made."""
    run_with_issuer(settings, lambda issuer: issuer.audit_checkpoint())


@click.command("key")
@common
def audit_key(settings: Settings) -> None:
    """Print the public keys that checkpoints are verified with, a line each, the active one first."""
    run_with_issuer(settings, lambda issuer: issuer.audit_key(), reading=True, raw="vkeys")
