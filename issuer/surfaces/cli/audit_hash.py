"""`audit hash` on the command line: the name is read from standard input or a file, and never typed as an argument."""

import sys
from pathlib import Path

import click

from issuer.surfaces.cli.options import Settings, common
from issuer.surfaces.cli.running import run_with_issuer


@click.command("hash")
@click.argument("resource_type", metavar="TYPE")
@click.argument("typed", metavar="", nargs=-1)
@click.option("--file", "file", default="-", metavar="FILE|-", help="Where the name stands. [default: -]")
@common
def audit_hash(settings: Settings, resource_type: str, typed: tuple[str, ...], file: str) -> None:
    """Tell the keyed hash of an object of TYPE whose name is read from standard input; that goes on record.

    An argument would stand in the list of processes and in the shell's history.
    """
    from issuer.commands.hashing import HASHED_BYTES_MAX

    if typed:
        raise click.UsageError("The name is read from standard input or --file, and is no argument.")
    try:
        if file == "-":
            name = sys.stdin.buffer.read(HASHED_BYTES_MAX)
        else:
            with Path(file).open("rb") as opened:
                name = opened.read(HASHED_BYTES_MAX)
    except OSError as fault:
        raise click.UsageError(f"The name cannot be read: {fault.strerror}.") from None
    run_with_issuer(settings, lambda issuer: issuer.audit_hash(resource_type, name))
