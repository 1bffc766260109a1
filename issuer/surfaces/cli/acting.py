"""Signing an act on the command line: at once with a key here, or in two steps with a key elsewhere (APP-01).

`--as PERSON --key FILE` has `ssh-keygen` sign what the core states, which may ask for a passphrase or a touch. Or
`--as PERSON --statement` prints what has to be signed, and the same command with `--signature` and `--statement-file`
gives it back. No key of a person is ever read here. Next: `issuer.flow.signed_act` judges.
"""

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self, TypeVar

import click

from issuer.surfaces.cli.options import ActOptions

if TYPE_CHECKING:
    from issuer.wire import Answer


class Signable(Protocol):
    """An open issuer, or a desk: whatever states an act, and takes it signed."""

    def stated(self, person: str, call: Callable[[Self], object]) -> str:
        """Return what `person` signs."""

    def signed(self, signature: str, statement: str) -> Self:
        """Return the handle of one signed act."""


T = TypeVar("T", bound=Signable)

_SIGN_S: Final = 120
"""How long a person has for passphrase or touch."""

_CHARS_MAX: Final = 128 * 1024


def statement_of(issuer: T, run: "Callable[[T], Answer]", act: ActOptions) -> str:
    """Return what the person of `--as` has to sign for the command that `run` gives."""
    if act.person is None:
        raise click.UsageError("Say whose act it is: --as PERSON.")
    return issuer.stated(act.person, run)


def as_signed(issuer: T, run: "Callable[[T], Answer]", act: ActOptions) -> T:
    """Return the handle of a signed act, or `issuer` itself where nothing of a signature was said."""
    if act.key is not None:
        statement = statement_of(issuer, run, act)
        return issuer.signed(_signed(statement, act.key), statement)
    if act.signature is None and act.statement_file is None:
        if act.person is not None:
            raise click.UsageError("--as needs --key, to sign at once, or --statement, to see what to sign.")
        return issuer
    if act.signature is None or act.statement_file is None:
        raise click.UsageError("--signature and --statement-file belong together.")
    return issuer.signed(_read(act.signature), _read(act.statement_file))


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read(_CHARS_MAX)
    except (OSError, UnicodeDecodeError):
        raise click.UsageError("The signature or the statement cannot be read.") from None


def _signed(statement: str, key: Path) -> str:
    """Return the armored signature that `ssh-keygen` makes of a statement."""
    from issuer.sealing.ssh_signature import NAMESPACE

    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "statement"
        text.write_text(statement, encoding="utf-8", newline="")
        argv = ["ssh-keygen", "-Y", "sign", "-q", "-f", str(key), "-n", NAMESPACE, str(text)]
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, and a list without a shell
                argv, check=False, stdout=subprocess.DEVNULL, timeout=_SIGN_S
            )
        except (OSError, subprocess.TimeoutExpired):
            raise click.UsageError("ssh-keygen could not be run; nothing was done.") from None
        signature = text.with_suffix(".sig")
        if done.returncode != 0 or not signature.exists():
            raise click.UsageError("ssh-keygen did not sign; nothing was done.")
        return signature.read_text(encoding="ascii", errors="replace")
