"""What reviewers ask on the command line: `audit query`, the standing questions, `export`, `report` and `snapshot`.

Each look is on record before it is shown. `--format` gives a list as a table, JSON Lines, CSV or OTLP; `--json` always
prints one object, whatever the format. Next: `issuer.commands.auditing`.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from issuer.surfaces.cli.options import Settings, common, duration_ms
from issuer.surfaces.cli.output import show
from issuer.surfaces.cli.running import explained, run_with_issuer, trouble

if TYPE_CHECKING:
    from issuer.api import Issuer
    from issuer.commands.audit_files import Progress
    from issuer.wire import Answer

_FILE: Final = click.Path(path_type=Path, dir_okay=False)

FORMS: Final = ("table", "jsonl", "csv", "otlp-json")

_SINCE: Final = click.option(
    "--since", metavar="TIME", help="From then on: 2026-12-01T00:00:00+01:00, 2h, 7d, today, yesterday, …"
)
_UNTIL: Final = click.option("--until", metavar="TIME", help="Before then, in the same words.")
_PAGE: Final = (
    click.option("--limit", type=int, default=100, show_default=True, help="Rows of a page."),
    click.option("--after", metavar="CURSOR", default="0", help="Go on where the page before ended."),
)
_FORMAT: Final = click.option(
    "--format", "form", type=click.Choice(FORMS), default="table", show_default=True, help="How it is shown."
)
_WHO: Final = (
    click.option("--subject", help="For whom."),
    click.option("--actor", help="Who acts."),
    click.option("--task", metavar="NAME|ID", help="In this task itself."),
    click.option("--resource", help='The id of what it is done to, or Type::"id".'),
    click.option("--operation", help="The operation."),
    click.option("--policy", help="The id of a policy that decided."),
)
_WHAT: Final = (
    click.option("--state", help="Moving an effect into this state."),
    click.option(
        "--decision",
        type=click.Choice(["permitted", "denied", "refused", "approved", "declined"]),
        help="How it was decided.",
    ),
    click.option("--approver", metavar="PERSON", help="Whose signed yes or no."),
    click.option("--name", metavar="TRANSITION", help="One kind of span, such as effect.admitted."),
    click.option("--effect", help="One effect."),
    click.option("--tier", type=click.Choice(["issue", "approval"]), help="By a policy alone, or by people."),
)
_NEWEST: Final = click.option("--newest", is_flag=True, help="The latest first.")

WHERE: Final = (_SINCE, _UNTIL, *_WHO, *_WHAT)
"""What every selection of spans understands."""


def asking(*options: Callable[[Any], Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command these options and those that every command has."""

    def given(function: Callable[..., None]) -> Callable[..., None]:
        made: Callable[..., None] = common(function)
        for option in reversed(options):
            made = option(made)
        return made

    return given


def _shown(settings: Settings, form: str, run: "Callable[[Issuer, str], Answer]") -> None:
    shown = "table" if settings.as_json else form
    run_with_issuer(settings, lambda issuer: run(issuer, shown), reading=True, raw="text")


@click.command("query")
@asking(*WHERE, _NEWEST, *_PAGE, _FORMAT)
def query(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401 - options, handed on by name
    """Show what is on record, by who, what, where, when and how it was decided."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_query(form=shown, **asked))


@click.command("issued")
@asking(_SINCE, _UNTIL, *_WHO, _NEWEST, *_PAGE, _FORMAT)
def issued(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show what policies permitted by themselves; with --policy, what that one did."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_issued(form=shown, **asked))


@click.command("timeline")
@click.argument("effect", required=False)
@click.option("--invocation", metavar="ID", help="Of an invocation and its effects instead.")
@asking(
    click.option("--task", metavar="NAME|ID", help="Of a task and all that was done in it instead."),
    *(_SINCE, _UNTIL, _NEWEST, *_PAGE, _FORMAT),
)
def timeline(
    settings: Settings,
    effect: str | None,
    invocation: str | None,
    task: str | None,
    form: str,
    **asked: Any,  # noqa: ANN401
) -> None:
    """Show the whole story of EFFECT, span by span, or that of a task or an invocation."""
    if sum(one is not None for one in (effect, invocation, task)) != 1:
        raise click.UsageError("Name one EFFECT, or one --task, or one --invocation.")
    if effect is not None and form != "table":
        # One's own effects are shown to whoever made them; a form is for reviewers, and the look is theirs.
        _shown(settings, form, lambda issuer, shown: issuer.audit_query(effect=effect, form=shown, **asked))
        return
    _shown(
        settings,
        form,
        lambda issuer, shown: issuer.timeline(effect, task=task, invocation=invocation, form=shown, **asked),
    )


@click.command("unknowns")
@asking(*_PAGE, _FORMAT)
def unknowns(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show every effect whose outcome is unknown, since when, and the money that they hold."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_unknowns(form=shown, **asked))


@click.command("unused")
@asking(_SINCE, _UNTIL, *_WHO, *_PAGE, _FORMAT)
def unused(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show permits that were issued and never used: waiting still, expired, withdrawn or revoked."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_unused(form=shown, **asked))


@click.command("denied-then-done")
@click.option(
    "--within", metavar="TIME", default="10m", show_default=True, help="How soon after the no counts."
)
@asking(_SINCE, _UNTIL, *_WHO, *_PAGE, _FORMAT)
def denied_then_done(settings: Settings, within: str, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show what was denied or refused, and then done for the same subject on the same resource."""
    within_ms = duration_ms(within, "--within")
    _shown(
        settings,
        form,
        lambda issuer, shown: issuer.audit_denied_then_done(within_ms=within_ms, form=shown, **asked),
    )


@click.command("approvals")
@asking(
    click.option("--approver", metavar="PERSON", help="Whose answers."),
    *(_SINCE, _UNTIL, *_WHO, *_PAGE, _FORMAT),
)
def approvals(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show what people answered: yes, no, too late, and attempts to say yes to what is their own."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_approvals(form=shown, **asked))


@click.command("access")
@asking(_SINCE, _UNTIL, _NEWEST, *_PAGE, _FORMAT)
def access(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show who looked at what, saw protected content, or took a copy away."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_access(form=shown, **asked))


@click.command("changes")
@asking(_SINCE, _UNTIL, *_PAGE, _FORMAT)
def changes(settings: Settings, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Show every change of authority: revisions, tasks, stops, credentials, keys, sinks, mode, restores."""
    _shown(settings, form, lambda issuer, shown: issuer.audit_changes(form=shown, **asked))


@click.command("report")
@click.option("--out", type=_FILE, help="Write it, signed, to this new file.")
@click.option("--verify", "note", type=_FILE, help="Verify this report instead; no profile is needed.")
@click.option("--key", "keys", multiple=True, metavar="VKEY|FILE", help="The key that signs checkpoints.")
@click.option("--export", "counted", type=_FILE, help="Count it again from this export of the whole trail.")
@asking(_SINCE, _UNTIL, _FORMAT)
def report(
    settings: Settings,
    out: Path | None,
    note: Path | None,
    keys: tuple[str, ...],
    counted: Path | None,
    form: str,
    **asked: Any,  # noqa: ANN401
) -> None:
    """Report the population of a period: how many of what, by whose word, for how much, and who looked."""
    if note is not None:
        if not keys:
            raise click.UsageError(
                "--verify takes the --key that signs checkpoints, from elsewhere than the report."
            )
        _verify_report(settings, note, keys, counted)
    _shown(
        settings,
        form,
        lambda issuer, shown: with_bar(
            lambda progress: issuer.audit_report(out=out, form=shown, progress=progress, **asked)
        ),
    )


def _verify_report(settings: Settings, note: Path, keys: tuple[str, ...], export: Path | None) -> NoReturn:
    def run() -> int:
        from audit.errors import TrailUnreadable
        from issuer.verifying import Given
        from issuer.verifying_reports import verify_report

        try:
            answer = verify_report(note, export, Given.of(keys, ()))
        except TrailUnreadable as fault:
            return trouble("malformed", fault.message, as_json=settings.as_json)
        show(answer, as_json=settings.as_json)
        return int(answer.exit)

    sys.exit(explained(run, as_json=settings.as_json))


@click.command("export")
@click.option("--out", type=_FILE, required=True, help="The new file; nothing is ever overwritten.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS[1:]),
    default="jsonl",
    show_default=True,
    help="jsonl without a selection is the whole trail, which proves itself.",
)
@asking(*WHERE)
def export(settings: Settings, out: Path, form: str, **asked: Any) -> None:  # noqa: ANN401
    """Write the whole trail, or what is selected, to a file; that is on record before the file is there."""
    run_with_issuer(
        settings,
        lambda issuer: with_bar(
            lambda progress: issuer.audit_export(out, form=form, progress=progress, **asked)
        ),
        reading=True,
    )


@click.command("snapshot")
@click.option("--out", type=_FILE, required=True, help="The new SQLite file; nothing is ever overwritten.")
@common
def snapshot(settings: Settings, out: Path) -> None:
    """Write a database of all spans for SQL of your own; nothing that is authority or secret is in it."""
    run_with_issuer(
        settings,
        lambda issuer: with_bar(lambda progress: issuer.audit_snapshot(out, progress=progress)),
        reading=True,
    )


def with_bar(run: "Callable[[Progress], Answer]") -> "Answer":
    """Run something long, with a bar on standard error that tells how far it is, on a terminal only (SUR-03)."""
    if not sys.stderr.isatty():
        return run(lambda _done, _of: None)
    with click.progressbar(length=1, file=sys.stderr, label="reading the trail") as bar:

        def progress(done: int, of: int) -> None:
            bar.length = max(of, 1)
            bar.update(done - bar.pos)

        return run(progress)


QUESTIONS: Final = (
    query,
    timeline,
    issued,
    unknowns,
    unused,
    denied_then_done,
    approvals,
    access,
    changes,
    report,
    export,
    snapshot,
)
"""Every command here, for the group `audit`."""

__all__ = ["QUESTIONS", "WHERE", "asking"]
