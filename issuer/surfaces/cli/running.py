"""Opening an issuer for one command, and turning everything that can go wrong into one sentence and an exit code."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.surfaces.cli.options import Settings
from issuer.surfaces.cli.output import show, show_text, show_trouble
from issuer.wire.codes import Exit

if TYPE_CHECKING:
    from issuer.api import Issuer
    from issuer.desk import Desk
    from issuer.wire import Answer


def trouble(code: str, message: str, *, as_json: bool) -> int:
    """Tell what kept a command from running, and return its exit code."""
    return int(show_trouble(code, message, as_json=as_json))


def explained(run: Callable[[], int], *, as_json: bool, goes_on: str = "") -> int:
    """Run, and tell every fault of setting up in one sentence; with a foreign room on the path nothing runs.

    `goes_on` is said after what cannot be used: what serves in spite of it.
    """
    from issuer.rooms import FOREIGN_NEXT, foreign_rooms, foreign_sentence

    foreign = foreign_rooms()
    if foreign:
        return trouble("fault", f"{foreign_sentence(foreign)} {FOREIGN_NEXT}", as_json=as_json)
    from issuer.answering import code_of_fault
    from issuer.errors import SetupError
    from issuer.profile import ProfileRefused
    from ledger.errors import Fault
    from policies import BundleRefused, EngineUnfit

    try:
        return run()
    except ProfileRefused as fault:
        return trouble("malformed", f"The profile cannot be used.{goes_on}\n{fault}", as_json=as_json)
    except BundleRefused as fault:
        return trouble("malformed", f"The policies cannot be used.{goes_on}\n{fault}", as_json=as_json)
    except SetupError as fault:
        code = "unsupported" if fault.reason == "strict" else "malformed"
        return trouble(code, fault.message, as_json=as_json)
    except EngineUnfit as fault:
        return trouble("fault", str(fault), as_json=as_json)
    except Fault as fault:
        return trouble(code_of_fault(fault), fault.message, as_json=as_json)
    except click.ClickException:
        raise
    except Exception as fault:  # noqa: BLE001 - the last edge: one sentence and an exit code, whatever broke
        # The class alone: an exception's text may quote anything.
        say = f"Something is wrong inside the issuer ({type(fault).__name__}); nothing more was done."
        return trouble("fault", say, as_json=as_json)


def run_with_profile(settings: Settings, run: "Callable[[Path], Answer]") -> None:
    """Run one command on the profile in force that opens no issuer, show its answer and exit with its code."""

    def ran() -> int:
        no = _not_here(settings)
        if no is not None:
            return no
        answer = run(settings.profile_path)
        show(answer, as_json=settings.as_json)
        return int(answer.exit)

    sys.exit(explained(ran, as_json=settings.as_json) or int(Exit.DONE))


def run_at_the_desk(settings: Settings, run: "Callable[[Desk], Answer]", *, goes_on: str = "") -> None:
    """Run one act that opens no issuer and that a person may sign, show its answer and exit with its code."""

    def ran() -> int:
        from issuer.desk import Desk
        from issuer.flow.refusing import RefusedError
        from issuer.surfaces.cli.acting import as_signed, statement_of

        no = _not_here(settings)
        if no is not None:
            return no
        desk = Desk(settings.profile_path)
        try:
            if settings.act.statement:
                return _show_statement(statement_of(desk, run, settings.act), as_json=settings.as_json)
            signed = as_signed(desk, run, settings.act)
        except RefusedError as refused:
            say = "Nobody of that name is in force, or there is no such revision."
            return trouble(str(refused.refusal.code), say, as_json=settings.as_json)
        answer = run(signed)
        show(answer, as_json=settings.as_json)
        return int(answer.exit)

    sys.exit(explained(ran, as_json=settings.as_json, goes_on=goes_on) or int(Exit.DONE))


def _not_here(settings: Settings) -> int | None:
    """Return the exit code where there is no issuer (keys without a profile are one), or where a token calls."""
    if not settings.profile_path.exists() and not settings.profile_path.with_name("keys").is_dir():
        return _no_profile(settings)
    if settings.token_source is not None:
        say = "A host or an actor may not do that."
        return trouble("forbidden", say, as_json=settings.as_json)
    return None


def _no_profile(settings: Settings) -> int:
    say = f"There is no {settings.profile_path}; run `issuer init FOLDER`, or name one with --profile."
    return trouble("malformed", say, as_json=settings.as_json)


def _show_statement(statement: str, *, as_json: bool) -> int:
    """Print what has to be signed, byte for byte, and nothing else."""
    text = json.dumps({"statement": statement}) + "\n" if as_json else statement
    click.echo(text, nl=False)
    return int(Exit.DONE)


def run_with_issuer(
    settings: Settings,
    run: "Callable[[Issuer], Answer]",
    *,
    reading: bool = False,
    raw: str = "",
    notes: bool = False,
) -> None:
    """Open the issuer of the profile in force, run one command, show its answer and exit with its code.

    Where the answer has a further fact of the name `raw`, that text is printed alone, byte for byte, but with `--json`.
    With `notes`, people are told on standard error where files on disk are not what was decided by.
    """

    def opened() -> int:
        from issuer.api import Issuer
        from issuer.surfaces.cli.acting import as_signed, statement_of
        from issuer.tokens import token_of

        if not settings.profile_path.exists():
            return _no_profile(settings)
        token = token_of(settings.token_source)
        with Issuer.open(settings.profile_path, reading=reading, token=token) as issuer:
            if settings.act.statement:
                return _show_statement(statement_of(issuer, run, settings.act), as_json=settings.as_json)
            answer = run(as_signed(issuer, run, settings.act))
            # Shown before anything is let go of: trouble in closing must not lose the answer of a send.
            if raw in answer.more and not settings.as_json:
                show_text(answer, str(answer.more[raw]))
            else:
                show(answer, as_json=settings.as_json)
            if notes and not settings.as_json:
                _note_draft(issuer)
        return int(answer.exit)

    sys.exit(explained(opened, as_json=settings.as_json) or int(Exit.DONE))


def _note_draft(issuer: "Issuer") -> None:
    """Say in one line which files are a draft that is not in force (POL-07)."""
    from issuer.surfaces.cli.output import plain_text

    differing = issuer.draft()
    if differing:
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        what = "differs" if len(differing) == 1 else "differ"
        note = f"note: {differing[0]}{more} {what} from what is in force; `issuer activate` puts it there"
        click.echo(plain_text(note), err=True)
