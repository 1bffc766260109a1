"""Signing a statement with a person's own OpenSSH key: what is read is what is signed (APP-01, APP-02).

In order: the statement is computed again from its machine part; the part for people is shown; the person says yes; then
`ssh-keygen` signs exactly these bytes, from a file in a folder that nobody else can read. The key stays where it is: an
agent, a passphrase or a touch is between `ssh-keygen` and the person, on their terminal.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import click

NAMESPACE: Final = "permit-issuer"
SIGN_S: Final = 300
"""Seconds for a passphrase or a touch; then nothing was signed."""

YES: Final = "yes"


def sign_statement(text: bytes, key: Path) -> str:
    """Return the armored signature of `text` by the key at `key`: private, or public with its agent running.

    Raises:
        click.UsageError: it could not be signed; `ssh-keygen` has said why.
    """
    with tempfile.TemporaryDirectory(prefix="permit-issuer-") as folder:
        place = Path(folder) / "statement.txt"
        place.write_bytes(text)
        command = ["ssh-keygen", "-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key), str(place)]
        try:
            # Its questions and its reasons go to the person's terminal; nothing of them is ours.
            done = subprocess.run(command, check=False, stdout=sys.stderr, timeout=SIGN_S)  # noqa: S603 - no shell, one path
        except (OSError, subprocess.TimeoutExpired):
            raise click.UsageError("ssh-keygen could not be run; sign the statement elsewhere.") from None
        if done.returncode != 0:
            raise click.UsageError("ssh-keygen did not sign; nothing was answered.")
        return place.with_suffix(".txt.sig").read_text(encoding="ascii")


def read_and_sign(text: bytes, key: Path, *, is_sure: bool) -> str:
    """Return a person's signature of a statement that they have read; with `is_sure` a script has read it.

    Raises:
        click.UsageError: the statement is not true to itself, nobody said yes, or it was not signed.
    """
    from issuer.approving import StatementUntrue, human_part, recompute

    try:
        recompute(text)
    except StatementUntrue as untrue:
        raise click.UsageError(f"{untrue.message} ({untrue.word})") from None
    click.echo(human_part(text), err=True)
    if not is_sure:
        if not sys.stdin.isatty():
            raise click.UsageError(
                "Nobody is at a terminal to say yes; --yes is for scripts that have read it."
            )
        said = click.prompt(f"Type {YES} to sign exactly this", default="", show_default=False, err=True)
        if said != YES:
            raise click.UsageError("Nothing was signed.")
    return sign_statement(text, key)
