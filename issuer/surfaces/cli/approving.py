"""`approvals`, `statement`, `approve`, `decline` and `withdraw` on the command line."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from issuer.surfaces.cli.options import Settings, common
from issuer.surfaces.cli.running import run_with_issuer

if TYPE_CHECKING:
    from issuer.api import Issuer
    from issuer.wire import Answer

SIGNATURE_BYTES_MAX: Final = 64 * 1024
"""Bytes read of a signature file: beyond the bound that the reader itself names."""

_KEY = click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Your OpenSSH key; ssh-keygen signs with it, after you have read the statement.",
)
_SIGNATURE = click.option(
    "--signature", metavar="FILE|-", help="A signature made elsewhere, by ssh-keygen -Y sign."
)
_YES = click.option("--yes", is_flag=True, help="Do not ask; for a script that has read the statement.")


@click.command()
@common
def approvals(settings: Settings) -> None:
    """List what waits for people: who is asked, who has said yes, and until when."""
    run_with_issuer(settings, lambda issuer: issuer.approvals(), reading=True)


@click.command()
@click.argument("effect")
@click.option("--decline", metavar="REASON", help="The statement of a no, for this reason.")
@click.option("--reference", metavar="NAME", help="With --decline: where more is said, such as a ticket.")
@common
def statement(settings: Settings, effect: str, decline: str | None, reference: str | None) -> None:
    """Print what is to be read and signed about EFFECT, byte for byte. That goes on record."""
    run_with_issuer(
        settings,
        lambda issuer: issuer.statement(effect, decline=decline, reference=reference),
        raw="statement",
    )


@click.command()
@click.argument("effects", metavar="EFFECT...", nargs=-1, required=True)
@_KEY
@_SIGNATURE
@_YES
@common
def approve(
    settings: Settings, effects: tuple[str, ...], key: Path | None, signature: str | None, yes: bool
) -> None:
    """Say yes to each EFFECT, by a signature of your own key over its statement."""
    if signature is not None and len(effects) > 1:
        raise click.UsageError("A signature is for one effect; give one, or sign with --key.")
    source = _source(key, signature, yes=yes)

    def one(issuer: "Issuer", effect: str) -> "Answer":
        return _signed(source, lambda: issuer.statement(effect), lambda by: issuer.approve(effect, by))

    run_with_issuer(settings, lambda issuer: _all([one(issuer, effect) for effect in effects]))


@click.command()
@click.argument("effect")
@click.option(
    "--reason", required=True, metavar="WORD", help="Why: not_agreed, not_needed, wrong_amount, ..."
)
@click.option("--reference", metavar="NAME", help="Where more is said, such as a ticket.")
@_KEY
@_SIGNATURE
@_YES
@common
def decline(
    settings: Settings,
    effect: str,
    reason: str,
    reference: str | None,
    key: Path | None,
    signature: str | None,
    yes: bool,
) -> None:
    """Say no to EFFECT, by a signature of your own key; it is over with that."""
    source = _source(key, signature, yes=yes)
    run_with_issuer(
        settings,
        lambda issuer: _signed(
            source,
            lambda: issuer.statement(effect, decline=reason, reference=reference),
            lambda by: issuer.decline(effect, by, reason=reason, reference=reference),
        ),
    )


@click.command()
@click.argument("effect")
@click.option("--reason", default="not_needed", show_default=True, metavar="WORD", help="Why.")
@common
def withdraw(settings: Settings, effect: str, reason: str) -> None:
    """Take your own EFFECT back, before it is admitted."""
    run_with_issuer(settings, lambda issuer: issuer.withdraw(effect, reason=reason))


Source = Callable[[bytes], str] | str
"""What signs a statement, or a signature that was made elsewhere."""


def _source(key: Path | None, signature: str | None, *, yes: bool) -> Source:
    if (key is None) == (signature is None):
        raise click.UsageError("Give --key FILE to sign here, or --signature FILE made elsewhere.")
    if key is None:
        return _read(signature or "")
    from issuer.surfaces.cli.signing import read_and_sign

    return lambda text: read_and_sign(text, key, is_sure=yes)


def _read(source: str) -> str:
    try:
        if source == "-":
            data = sys.stdin.buffer.read(SIGNATURE_BYTES_MAX)
        else:
            with Path(source).open("rb") as file:
                data = file.read(SIGNATURE_BYTES_MAX)
    except OSError as fault:
        raise click.UsageError(f"The signature cannot be read: {fault.strerror}.") from None
    return data.decode("ascii", "replace")


def _signed(source: Source, shown: "Callable[[], Answer]", answer: "Callable[[str], Answer]") -> "Answer":
    """Answer with a signature: the one at hand, or one made of the statement that is shown first."""
    if isinstance(source, str):
        return answer(source)
    told = shown()
    text = told.more.get("statement")
    return answer(source(text.encode("ascii"))) if isinstance(text, str) else told


def _all(answers: "list[Answer]") -> "Answer":
    """Return one answer for several: the first no, else the last; all of them stand beside it."""
    if len(answers) == 1:
        return answers[0]
    told = next((one for one in answers if one.exit), answers[-1])
    rows = [{"effect": one.effect, "code": one.code, "state": one.state} for one in answers]
    return replace(told, more={**told.more, "answers": rows})
