"""`issuer task ...`: what is typed about tasks becomes one command of `issuer.commands` (SUR-01, BUD-01 to BUD-06).

Nothing is decided here. Next: `issuer.commands.tasks`, `task_changes` and `task_views`.
"""

import click

from issuer.surfaces.cli.options import Settings, budget_pairs, common, count_pairs, signable, whole_pairs
from issuer.surfaces.cli.running import run_with_issuer

__all__ = ["task_group"]


@click.group("task")
@common
def task_group(settings: Settings) -> None:
    """Open, show and list tasks, and change what they may do."""
    del settings


@task_group.command("open")
@click.argument("name")
@click.option("--parent", help="The task above it; without one it is a root.")
@click.option("--subject", help="For whom; a child has its parent's.")
@click.option(
    "--actor", "actors", multiple=True, help="Who may act in it; a child has its parent's or fewer."
)
@click.option("--budget", "budget", multiple=True, metavar="UNIT=AMOUNT|inherit", help="A ceiling per unit.")
@click.option(
    "--class",
    "classes",
    multiple=True,
    metavar="NAME=COUNT|inherit",
    help="A class it may use, and how often.",
)
@click.option(
    "--operation",
    "operations",
    multiple=True,
    metavar="NAME=COUNT|inherit",
    help="Only these operations of its classes.",
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="TYPE:ID=COUNT|inherit",
    help="Only these resources.",
)
@click.option(
    "--expires", help="When it ends: a time with an offset, or a duration such as 8h. [default: 24h]"
)
@signable
@common
def task_open(
    settings: Settings,
    name: str,
    parent: str | None,
    subject: str | None,
    actors: tuple[str, ...],
    budget: tuple[str, ...],
    classes: tuple[str, ...],
    operations: tuple[str, ...],
    resources: tuple[str, ...],
    expires: str | None,
) -> None:
    """Open the task NAME."""
    from issuer.surfaces.cli.options import expiry_ms

    until = expiry_ms(expires)  # once, so that what is signed is what is then done
    run_with_issuer(
        settings,
        lambda issuer: issuer.task_open(
            name,
            parent=parent,
            subject=subject,
            actors=actors,
            budget=budget_pairs(budget),
            classes=count_pairs(classes, "--class"),
            operations=count_pairs(operations, "--operation"),
            resources=count_pairs(resources, "--resource"),
            expires_ms=until,
        ),
    )


@task_group.command("show")
@click.argument("name")
@common
def task_show(settings: Settings, name: str) -> None:
    """Show the task NAME with its budget, what it may be used for, and what stops it."""
    run_with_issuer(settings, lambda issuer: issuer.task_show(name), reading=True)


@task_group.command("list")
@common
def task_list(settings: Settings) -> None:
    """List every task."""
    run_with_issuer(settings, lambda issuer: issuer.task_list(), reading=True)


@task_group.command("close")
@click.argument("name")
@signable
@common
def task_close(settings: Settings, name: str) -> None:
    """Close the task NAME for good: it admits nothing more."""
    run_with_issuer(settings, lambda issuer: issuer.task_close(name))


@task_group.command("grant")
@click.argument("name")
@click.option("--budget", "budget", multiple=True, required=True, metavar="UNIT=AMOUNT", help="What to add.")
@signable
@common
def task_grant(settings: Settings, name: str, budget: tuple[str, ...]) -> None:
    """Add to the ceilings of the task NAME; no task above it may have less."""
    run_with_issuer(settings, lambda issuer: issuer.task_grant(name, budget=whole_pairs(budget)))


@task_group.command("lower")
@click.argument("name")
@click.option(
    "--budget", "budget", multiple=True, required=True, metavar="UNIT=AMOUNT", help="The ceiling from now on."
)
@signable
@common
def task_lower(settings: Settings, name: str, budget: tuple[str, ...]) -> None:
    """Lower the ceilings of the task NAME; below what is used, it blocks until usage is under it."""
    run_with_issuer(settings, lambda issuer: issuer.task_lower(name, budget=whole_pairs(budget)))


@task_group.command("freeze")
@click.argument("name")
@common
def task_freeze(settings: Settings, name: str) -> None:
    """Freeze the task NAME: it and all below it admit nothing until it is thawed."""
    run_with_issuer(settings, lambda issuer: issuer.task_freeze(name))


@task_group.command("thaw")
@click.argument("name")
@signable
@common
def task_thaw(settings: Settings, name: str) -> None:
    """Open the frozen task NAME again; a permit that is still in time can be used."""
    run_with_issuer(settings, lambda issuer: issuer.task_thaw(name))


@task_group.command("accept-overrun")
@click.argument("name")
@click.option("--unit", metavar="UNIT", help="Only in this unit. [default: in each]")
@signable
@common
def task_accept_overrun(settings: Settings, name: str, unit: str | None) -> None:
    """Count the overrun of the task NAME as spent, so that it blocks there no more."""
    run_with_issuer(settings, lambda issuer: issuer.task_accept_overrun(name, unit=unit))
