"""The command line: what is typed becomes one command, and its answer an exit code (SUR-01, SUR-03).

Nothing is decided here. Commands import the application when they run, so that `--help` loads none of it.
Next: `issuer.commands`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from issuer.surfaces.cli.approving import approvals, approve, decline, statement, withdraw
from issuer.surfaces.cli.audit_archives import audit_archive
from issuer.surfaces.cli.audit_checkpoints import audit_checkpoint, audit_key
from issuer.surfaces.cli.audit_hash import audit_hash
from issuer.surfaces.cli.audit_proofs import audit_prove, audit_verifier, audit_verify
from issuer.surfaces.cli.audit_questions import QUESTIONS
from issuer.surfaces.cli.invocations import invocation_group, obligation_group
from issuer.surfaces.cli.keys import keys_group
from issuer.surfaces.cli.options import (
    Settings,
    common,
    payload_bytes,
    settings_of,
    signable,
    whole_pairs,
)
from issuer.surfaces.cli.reconciling import acknowledge, reconcile
from issuer.surfaces.cli.revisions import activate, revisions
from issuer.surfaces.cli.revoking import actor_group, freeze, host_group, person_group, revoke, thaw
from issuer.surfaces.cli.running import run_at_the_desk, run_with_issuer, trouble
from issuer.surfaces.cli.sinks import sink_group
from issuer.surfaces.cli.tasks import task_group
from issuer.wire.codes import Exit

if TYPE_CHECKING:
    from issuer.wire import Answer

_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_CONTEXT)
@common
def group(settings: Settings) -> None:
    """Do consequential things once, as permitted, and provably."""
    del settings


@group.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--mode", type=click.Choice(["ordinary", "strict"]), default="ordinary", show_default=True)
@click.option(
    "--with",
    "with_",
    multiple=True,
    metavar="FAMILY,...",
    help="Start from examples that work: invoices, packages, records; one or several.",
)
@common
def init(settings: Settings, folder: Path, mode: str, with_: tuple[str, ...]) -> None:
    """Make an issuer in FOLDER: profile, policies, keys, ledger. A second run changes nothing."""
    from issuer.surfaces.cli.options import families_of

    families = families_of(with_)
    from issuer.surfaces.cli.making import run_init

    sys.exit(run_init(settings, folder, mode, families))


@group.command()
@common
def demo(settings: Settings) -> None:
    """Show one real effect in a temporary folder: permitted, done once, and on record."""
    from issuer.surfaces.cli.making import run_demo

    sys.exit(run_demo(settings))


@group.command()
@click.option("--as", "as_whom", metavar="uid:N", help="Look as another account does; not supported yet.")
@common
def doctor(settings: Settings, as_whom: str | None) -> None:
    """Look at everything the issuer rests on, and say what to repair. Nothing is changed."""
    from issuer.surfaces.cli.doctor import run_doctor

    sys.exit(run_doctor(settings, as_whom))


@group.command()
@click.argument("what", metavar="OPERATION|EFFECT")
@click.option("--task", help="The task it belongs to.")
@click.option("--actor", help="Who acts.")
@click.option("--subject", help="For whom. [default: the task's subject]")
@click.option("--payload", metavar="FILE|-", help="The payload as JSON; - reads standard input.")
@click.option("--request-key", help="The same key and content find the same effect.")
@click.option("--invocation", help="The open invocation that it is part of. [default: one of its own]")
@click.option("--wait", metavar="TIME", help="Wait for people's answer, at most so long, such as 30m.")
@click.option("--hold", is_flag=True, help="Prepare and show only; request EFFECT takes it further.")
@common
def request(
    settings: Settings,
    what: str,
    task: str | None,
    actor: str | None,
    subject: str | None,
    payload: str | None,
    request_key: str | None,
    invocation: str | None,
    wait: str | None,
    hold: bool,
) -> None:
    """Ask for a permit: prepare, decide, issue. Nothing may be sent yet."""
    from issuer.surfaces.cli.asking import run_request

    run_with_issuer(
        settings,
        lambda issuer: run_request(
            issuer,
            what,
            task=task,
            actor=actor,
            subject=subject,
            payload=None if payload is None else payload_bytes(payload),
            request_key=request_key,
            invocation=invocation,
            wait=wait,
            hold=hold,
        ),
        notes=True,
    )


@group.command()
@click.argument("effect")
@click.option("--payload", metavar="FILE|-", help="Restate the payload; it must be what was prepared.")
@click.option("--task", help="Restate the task.")
@click.option("--actor", help="Restate the actor.")
@common
def commit(settings: Settings, effect: str, payload: str | None, task: str | None, actor: str | None) -> None:
    """Send the permitted EFFECT, once."""
    run_with_issuer(
        settings,
        lambda issuer: issuer.commit(
            effect,
            payload=None if payload is None else payload_bytes(payload),
            task=task,
            actor=actor,
        ),
        notes=True,
    )


@group.command()
@click.argument("effect")
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@common
def dispatch(settings: Settings, effect: str, argv: tuple[str, ...]) -> None:
    """Run COMMAND, once, for the permitted EFFECT; its output goes to standard error."""
    run_with_issuer(settings, lambda issuer: issuer.dispatch(effect, argv))


@group.command()
@click.argument("effect")
@common
def admit(settings: Settings, effect: str) -> None:
    """Admit EFFECT for a host that sends by itself; the answer carries its claim, once."""
    run_with_issuer(settings, lambda issuer: issuer.admit(effect))


@group.command()
@click.argument("effect")
@click.option("--claim", required=True, help="The claim that admit gave; - reads it from standard input.")
@click.option(
    "--outcome",
    type=click.Choice(["succeeded", "failed", "no_effect", "unknown"]),
    required=True,
    help="What became of it.",
)
@click.option("--cost", "cost", multiple=True, metavar="UNIT=AMOUNT", help="The measured cost, if known.")
@common
def report(settings: Settings, effect: str, claim: str, outcome: str, cost: tuple[str, ...]) -> None:
    """Report what became of an admitted EFFECT. A host's word releases nothing, unless its owner admitted a wrapper."""
    secret = sys.stdin.readline().strip() if claim == "-" else claim
    run_with_issuer(
        settings,
        lambda issuer: issuer.report(
            effect, secret, outcome=outcome, cost=whole_pairs(cost) if cost else None
        ),
    )


@group.command()
@click.argument("effect")
@click.option(
    "--content", is_flag=True, help="Show its sensitive payload fields instead; that goes on record."
)
@common
def show(settings: Settings, effect: str, content: bool) -> None:
    """Show EFFECT with everything on record about it."""
    run_with_issuer(settings, lambda issuer: issuer.show(effect, content=content), reading=True)


@group.command("list")
@click.option("--state", "states", multiple=True, help="Only effects in this state; may be repeated.")
@common
def list_effects(settings: Settings, states: tuple[str, ...]) -> None:
    """List effects, oldest first."""
    run_with_issuer(settings, lambda issuer: issuer.list(states), reading=True)


@group.group()
@common
def audit(settings: Settings) -> None:
    """Ask the audit trail."""
    del settings


for _question in QUESTIONS:
    audit.add_command(_question)


@group.group()
@common
def ledger(settings: Settings) -> None:
    """Check the ledger, and count what it holds."""
    del settings


@ledger.command("check")
@common
def ledger_check(settings: Settings) -> None:
    """Recompute everything in the ledger. A problem stops new effects; a clean check lets them go on."""
    from issuer.surfaces.cli.running import run_with_profile

    def run(profile: Path) -> "Answer":
        from issuer.commands import ledger_check as check

        return check(profile)

    run_with_profile(settings, run)


@ledger.command("stats")
@common
def ledger_stats(settings: Settings) -> None:
    """Tell how many effects, spans, tasks and bytes the ledger holds, and what unknown effects keep bound."""
    from issuer.surfaces.cli.running import run_with_profile

    def run(profile: Path) -> "Answer":
        from issuer.commands import ledger_stats as stats

        return stats(profile)

    run_with_profile(settings, run)


@ledger.command("backup")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@signable
@common
def ledger_backup(settings: Settings, file: Path) -> None:
    """Copy the ledger, while it is in use, to the new FILE. Keys are not in it."""
    run_at_the_desk(settings, lambda desk: desk.ledger_backup(file))


@ledger.command("restore")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@signable
@common
def ledger_restore(settings: Settings, file: Path) -> None:
    """Bring the ledger back from the backup FILE, in a new epoch. Earlier permits are void."""
    run_at_the_desk(settings, lambda desk: desk.ledger_restore(file))


@ledger.command("collect")
@click.option("--early", is_flag=True, help="Also what would be kept longer, only to be looked at.")
@signable
@common
def ledger_collect(settings: Settings, early: bool) -> None:
    """Turn what is over into tombstones. What is unresolved or live is never touched; permits stay spent."""
    run_with_issuer(settings, lambda issuer: issuer.ledger_collect(early=early))


@ledger.group("clock")
@common
def ledger_clock(settings: Settings) -> None:
    """Decide about a clock that the ledger does not believe."""
    del settings


@ledger_clock.command("accept")
@signable
@common
def clock_accept(settings: Settings) -> None:
    """Believe the clock as it reads now; what was prepared in a time that never was ends."""
    run_with_issuer(settings, lambda issuer: issuer.clock_accept())


audit.add_command(audit_archive)
audit.add_command(audit_checkpoint)
audit.add_command(audit_key)
audit.add_command(audit_verify)
audit.add_command(audit_verifier)
audit.add_command(audit_prove)
audit.add_command(audit_hash)
group.add_command(activate)
group.add_command(revisions)
group.add_command(approvals)
group.add_command(statement)
group.add_command(approve)
group.add_command(decline)
group.add_command(withdraw)
group.add_command(reconcile)
group.add_command(acknowledge)
group.add_command(revoke)
group.add_command(freeze)
group.add_command(thaw)
group.add_command(person_group)
group.add_command(task_group)
group.add_command(host_group)
group.add_command(actor_group)
group.add_command(invocation_group)
group.add_command(obligation_group)
group.add_command(keys_group)
group.add_command(sink_group)


def main(argv: list[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    arguments = sys.argv[1:] if argv is None else argv
    sys.exit(_run(arguments, lambda: group.main(args=arguments, prog_name="issuer", standalone_mode=False)))


def _run(arguments: list[str], run: Callable[[], object]) -> int:
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    as_json = "--json" in ours  # behind the dashes it is a word of the child's
    try:
        run()
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as fault:
        click.echo(fault.format_message(), err=True)
        return int(Exit.USAGE)
    except click.UsageError as fault:
        return trouble("malformed", fault.format_message(), as_json=as_json)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    return 0


__all__ = ["group", "main", "settings_of"]
