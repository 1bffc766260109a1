"""`audit verify`, `audit verifier`, `audit prove`: proving the trail to somebody else, and checking what one is given.

The first two need neither a profile nor an issuer. A bar on standard error tells how far a long verification is, on a
terminal only. Next: `issuer.verifying`, `issuer.commands.proving`.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from issuer.surfaces.cli.options import Settings, common
from issuer.surfaces.cli.output import show
from issuer.surfaces.cli.running import explained, run_with_issuer, run_with_profile

if TYPE_CHECKING:
    from issuer.verifying import Progress
    from issuer.wire import Answer

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("verify")
@click.argument("exports", nargs=-1, type=click.Path(path_type=Path), metavar="[EXPORT]...")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A checkpoint that was kept elsewhere, or a folder of *.note; may be repeated.",
)
@click.option("--key", "keys", multiple=True, metavar="VKEY|FILE", help="The key that signs checkpoints.")
@click.option("--proof", type=_FILE, help="Verify the proof of one effect instead.")
@common
def audit_verify(
    settings: Settings,
    exports: tuple[Path, ...],
    checkpoints: tuple[Path, ...],
    keys: tuple[str, ...],
    proof: Path | None,
) -> None:
    """Hold EXPORT (files of spans in order, or their folder) against checkpoints. Without one, the profile's ledger.

    No profile is needed for a file. Exits 0 where everything is proven, and 8 where something is not.
    """
    if proof is not None and (exports or checkpoints):
        raise click.UsageError("A proof holds its own spans and checkpoint; give --key and nothing else.")

    def verified(ledger: Path | None) -> "Answer":
        from issuer.verifying import Given, verify_exports, verify_ledger, verify_permit

        given = Given.of(keys, checkpoints)
        with _bar(settings) as progress:
            if proof is not None:
                return verify_permit(proof, given)
            if ledger is not None:
                return verify_ledger(ledger, given, progress)
            return verify_exports(exports, given, progress)

    if not exports and proof is None:
        from issuer.places import Places

        run_with_profile(settings, lambda profile: verified(Places(profile.absolute()).ledger))

    def run() -> int:
        answer = verified(None)
        show(answer, as_json=settings.as_json)
        return int(answer.exit)

    sys.exit(explained(run, as_json=settings.as_json))


@contextmanager
def _bar(settings: Settings) -> "Iterator[Progress]":
    """Give what makes a bar on standard error; where that is no terminal, or with --json, nothing is shown."""
    if settings.as_json or not sys.stderr.isatty():
        yield lambda _total, _what: lambda _step: None
        return
    ends: list[Callable[[], None]] = []

    def begin(total: int, what: str) -> Callable[[int], None]:
        bar = click.progressbar(
            length=total, label=f"verifying {what}", file=sys.stderr, update_min_steps=max(1, total // 200)
        )
        bar.render_progress()
        ends.append(bar.render_finish)
        return bar.update

    try:
        yield begin
    finally:
        for end in ends:
            end()


@click.command("verifier")
@common
def audit_verifier(settings: Settings) -> None:
    """Print a verifier in one file: Python and its standard library, without this package, for whoever checks."""
    del settings
    from audit.verifier import verifier_text

    click.echo(verifier_text(), nl=False)


@click.command("prove")
@click.argument("effect")
@click.option("--out", type=_FILE, required=True, help="The new file to write the proof to.")
@click.option(
    "--archive", "archives", multiple=True, type=_FILE, help="A file of `audit archive`; may be repeated."
)
@common
def audit_prove(settings: Settings, effect: str, out: Path, archives: tuple[Path, ...]) -> None:
    """Write a proof that the story of EFFECT is in the trail, for somebody who has the key of the checkpoints.

    What was archived of it is read from the files named with --archive.
    """
    run_with_issuer(settings, lambda issuer: issuer.audit_prove(effect, out, archives=archives))
