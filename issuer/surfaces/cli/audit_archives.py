"""`audit archive` on the command line: sealing the older part of the trail into a file (AUD-08)."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.surfaces.cli.audit_questions import with_bar
from issuer.surfaces.cli.options import Settings, common, signable
from issuer.surfaces.cli.running import run_with_issuer

if TYPE_CHECKING:
    from issuer.api import Issuer
    from issuer.wire import Answer


@click.command("archive")
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="The new file of spans."
)
@click.option("--before", metavar="TIME", help="Up to the newest checkpoint over nothing later than this.")
@click.option(
    "--upto", type=click.IntRange(min=1), metavar="SEQ", help="Up to the newest checkpoint up to SEQ."
)
@signable
@common
def audit_archive(settings: Settings, out: Path, before: str | None, upto: int | None) -> None:
    """Seal the trail up to a signed checkpoint into a file, and let go of the spans that nothing alive needs.

    The checkpoint stands beside the file, as FILE.checkpoint. The file is read back and verified before anything
    leaves the ledger. Keep it: nothing but the sinks holds those spans afterwards.
    """

    def run(issuer: "Issuer") -> "Answer":
        return with_bar(
            lambda progress: issuer.audit_archive(out, before=before, upto=upto, progress=progress)
        )

    run_with_issuer(settings, run)
