"""`issuer invocation ...` and `issuer obligation done`: what is typed becomes one command (SUR-01, INV-01, EFF-09).

Nothing is decided here. Next: `issuer.commands.invocations`.
"""

import click

from issuer.surfaces.cli.options import Settings, common
from issuer.surfaces.cli.running import run_with_issuer

__all__ = ["invocation_group", "obligation_group"]


@click.group("invocation")
@common
def invocation_group(settings: Settings) -> None:
    """Open a run of work that effects name, and say once how it ended."""
    del settings


@invocation_group.command("open")
@click.argument("task")
@click.option("--actor", required=True, help="Who acts in it.")
@click.option(
    "--deadline", help="When it ends: a time with an offset, or a duration such as 1h. [default: 24h]"
)
@common
def invocation_open(settings: Settings, task: str, actor: str, deadline: str | None) -> None:
    """Open an invocation in TASK."""
    from issuer.surfaces.cli.options import expiry_ms

    run_with_issuer(
        settings, lambda issuer: issuer.invocation_open(task, actor, expiry_ms(deadline, "--deadline"))
    )


@invocation_group.command("end")
@click.argument("invocation")
@click.option(
    "--outcome",
    required=True,
    type=click.Choice(["succeeded", "failed_application", "failed_execution"]),
    help="How it ended.",
)
@common
def invocation_end(settings: Settings, invocation: str, outcome: str) -> None:
    """End INVOCATION once; success is refused while an effect, an obligation or a sink stands against it."""
    run_with_issuer(settings, lambda issuer: issuer.invocation_end(invocation, outcome))


@invocation_group.command("cancel")
@click.argument("invocation")
@common
def invocation_cancel(settings: Settings, invocation: str) -> None:
    """Cancel INVOCATION, whatever its effects did; it admits nothing more."""
    run_with_issuer(settings, lambda issuer: issuer.invocation_cancel(invocation))


@invocation_group.command("show")
@click.argument("invocation")
@common
def invocation_show(settings: Settings, invocation: str) -> None:
    """Show INVOCATION with its effects."""
    run_with_issuer(settings, lambda issuer: issuer.invocation_show(invocation), reading=True)


@invocation_group.command("list")
@common
def invocation_list(settings: Settings) -> None:
    """List your invocations: the open ones first."""
    run_with_issuer(settings, lambda issuer: issuer.invocation_list(), reading=True)


@click.group("obligation")
@common
def obligation_group(settings: Settings) -> None:
    """What permits oblige to after their effects."""
    del settings


@obligation_group.command("done")
@click.argument("effect")
@click.argument("name")
@common
def obligation_done(settings: Settings, effect: str, name: str) -> None:
    """Say that the obligation NAME of EFFECT was done."""
    run_with_issuer(settings, lambda issuer: issuer.obligation_done(effect, name))
