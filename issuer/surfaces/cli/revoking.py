"""`revoke`, `freeze`, `thaw`, `person|actor suspend|resume`, `host|actor token` as they are typed (ADM-05, SEC-02).

Nothing is decided here. Next: `issuer.commands.revoking`, `issuer.commands.freezing`, `issuer.commands.credentials`.
"""

import click

from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_with_issuer

__all__ = ["actor_group", "freeze", "host_group", "person_group", "revoke", "thaw"]

_REASONS = ["compromised", "mistaken", "superseded", "left", "other"]
_reason = click.option(
    "--reason", type=click.Choice(_REASONS), default="other", show_default=True, help="Why, for the record."
)


@click.command()
@click.argument("kind", metavar="KIND")
@click.argument("name", required=False, metavar="[ID|NAME]")
@click.argument("person", required=False, metavar="[PERSON]")
@_reason
@signable
@common
def revoke(settings: Settings, kind: str, name: str | None, person: str | None, reason: str) -> None:
    """Revoke for good. KIND is permit, effect, task, key, person, actor, host, operation, class or all.

    `approval EFFECT PERSON` ends the effect that PERSON approved. What was admitted before is too late to revoke; it is
    named in the answer.
    """
    run_with_issuer(settings, lambda issuer: issuer.revoke(kind, name, person, reason=reason))


@click.command()
@click.argument("kind", default="all", metavar="[KIND]")
@click.argument("name", required=False, metavar="[NAME]")
@_reason
@common
def freeze(settings: Settings, kind: str, name: str | None, reason: str) -> None:
    """Freeze everything, or one task, person, actor, host, operation or class, until it is thawed."""
    run_with_issuer(settings, lambda issuer: issuer.freeze(kind, name, reason=reason))


@click.command()
@click.argument("kind", default="all", metavar="[KIND]")
@click.argument("name", required=False, metavar="[NAME]")
@_reason
@signable
@common
def thaw(settings: Settings, kind: str, name: str | None, reason: str) -> None:
    """Take a freeze back, or let new effects be made of what was revoked. What was revoked stays void."""
    run_with_issuer(settings, lambda issuer: issuer.thaw(kind, name, reason=reason))


@click.group("host")
@common
def host_group(settings: Settings) -> None:
    """Credentials of hosts: programs that ask for permits."""
    del settings


@host_group.command("token")
@click.argument("name")
@signable
@common
def host_token(settings: Settings, name: str) -> None:
    """Make the credential of host NAME. It is shown once; the one before is void."""
    run_with_issuer(settings, lambda issuer: issuer.host_token(name))


@click.group("person")
@common
def person_group(settings: Settings) -> None:
    """Suspend people, and take that back."""
    del settings


@click.group("actor")
@common
def actor_group(settings: Settings) -> None:
    """Suspend actors, take that back, and make credentials of actors that call by themselves."""
    del settings


@person_group.command("suspend")
@click.argument("name")
@_reason
@common
def person_suspend(settings: Settings, name: str, reason: str) -> None:
    """Suspend the person NAME: nothing for them or their actors, or approved by them, is admitted."""
    run_with_issuer(settings, lambda issuer: issuer.suspend("person", name, reason=reason))


@person_group.command("resume")
@click.argument("name")
@_reason
@signable
@common
def person_resume(settings: Settings, name: str, reason: str) -> None:
    """Take the suspension of the person NAME back."""
    run_with_issuer(settings, lambda issuer: issuer.resume("person", name, reason=reason))


@actor_group.command("token")
@click.argument("name")
@signable
@common
def actor_token(settings: Settings, name: str) -> None:
    """Make the credential of actor NAME. It is shown once; the one before is void."""
    run_with_issuer(settings, lambda issuer: issuer.actor_token(name))


@actor_group.command("suspend")
@click.argument("name")
@_reason
@common
def actor_suspend(settings: Settings, name: str, reason: str) -> None:
    """Suspend the actor NAME: nothing of it is admitted."""
    run_with_issuer(settings, lambda issuer: issuer.suspend("actor", name, reason=reason))


@actor_group.command("resume")
@click.argument("name")
@_reason
@signable
@common
def actor_resume(settings: Settings, name: str, reason: str) -> None:
    """Take the suspension of the actor NAME back."""
    run_with_issuer(settings, lambda issuer: issuer.resume("actor", name, reason=reason))
