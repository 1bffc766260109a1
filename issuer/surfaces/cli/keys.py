"""`keys` on the command line: the issuer's own key ring."""

import click

from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_with_issuer


@click.group("keys")
@common
def keys_group(settings: Settings) -> None:
    """Look after the issuer's own keys, while it is in use."""
    del settings


@keys_group.command("list")
@common
def keys_list(settings: Settings) -> None:
    """List every key: its state, since when, and how many live permits it still opens. Never its bytes."""
    run_with_issuer(settings, lambda issuer: issuer.keys_list(), reading=True)


@keys_group.command("rotate")
@signable
@common
def keys_rotate(settings: Settings) -> None:
    """Make a new active key. Permits of the one before stay valid until they expire."""
    run_with_issuer(settings, lambda issuer: issuer.keys_rotate())


@keys_group.command("retire")
@click.argument("key")
@signable
@common
def keys_retire(settings: Settings, key: str) -> None:
    """Let KEY open no permit any more. History that it signed stays readable."""
    run_with_issuer(settings, lambda issuer: issuer.keys_retire(key))


@keys_group.command("revoke")
@click.argument("key")
@signable
@common
def keys_revoke(settings: Settings, key: str) -> None:
    """Revoke the compromised KEY: its permits are void, and what it rightly signed is signed anew."""
    run_with_issuer(settings, lambda issuer: issuer.keys_revoke(key))
