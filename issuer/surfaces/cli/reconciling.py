"""`reconcile` and `acknowledge` on the command line."""

import click

from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_with_issuer


@click.command()
@click.argument("effect")
@click.option(
    "--resend", is_flag=True, help="Send it again under its key, where its contract proves that safe."
)
@signable
@common
def reconcile(settings: Settings, effect: str, resend: bool) -> None:
    """Look once at what became of EFFECT, as its contract says. Only what is proven is recorded."""
    run_with_issuer(settings, lambda issuer: issuer.reconcile(effect, resend=resend))


@click.command()
@click.argument("effect")
@click.option(
    "--reason", required=True, metavar="WORD", help="Why, in one word of small letters and underscores."
)
@click.option("--charge", is_flag=True, help="Charge what it holds, in full. Nothing comes back.")
@signable
@common
def acknowledge(settings: Settings, effect: str, reason: str, charge: bool) -> None:
    """Accept the risk of the unknown EFFECT. It stays unknown, and nothing is freed."""
    run_with_issuer(settings, lambda issuer: issuer.acknowledge(effect, reason=reason, charge=charge))
