"""`issuer host token` and `issuer actor token`: a credential for a program, shown once (SEC-02).

Nothing is decided here. Next: `issuer.commands.credentials`.
"""

import click

from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_with_issuer

__all__ = ["actor_group", "host_group"]


@click.group("host")
@common
def host_group(settings: Settings) -> None:
    """Credentials of hosts: programs that ask for permits."""
    del settings


@click.group("actor")
@common
def actor_group(settings: Settings) -> None:
    """Credentials of actors that call by themselves."""
    del settings


@host_group.command("token")
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Take it away; none takes its place.")
@signable
@common
def host_token(settings: Settings, name: str, revoke: bool) -> None:
    """Make the credential of host NAME. It is shown once; the one before is void."""
    run_with_issuer(settings, lambda issuer: issuer.host_token(name, revoke=revoke))


@actor_group.command("token")
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Take it away; none takes its place.")
@signable
@common
def actor_token(settings: Settings, name: str, revoke: bool) -> None:
    """Make the credential of actor NAME. It is shown once; the one before is void."""
    run_with_issuer(settings, lambda issuer: issuer.actor_token(name, revoke=revoke))
