"""`init` and `demo` on the command line."""

import os
import tempfile
from pathlib import Path

import click

from issuer.api import Issuer
from issuer.clock import now_ms
from issuer.setup import Made, initialise
from issuer.surfaces.cli.options import Settings
from issuer.surfaces.cli.output import render, show
from issuer.surfaces.cli.running import explained, trouble
from issuer.wire import Answer
from ledger.model import InstantMs

_HOUR_MS = 3_600_000


def _made_answer(made: Made) -> Answer:
    more = {"made": list(made.made), "kept": list(made.kept), "audit": list(made.sinks)}
    return Answer(issuer=made.issuer, code="created", mode="ordinary", more=more)


def _made_lines(folder: Path, made: Made) -> str:
    lines = [f"{made.issuer} is ready in {folder} (ordinary: one account, roles are recorded, not enforced)"]
    lines += [f"  made  {what}" for what in made.made]
    lines += [f"  kept  {what}" for what in made.kept]
    lines += [f"  audit file: {place}" for place in made.sinks]
    lines += [
        "Next:",
        f"  cd {folder}",
        "  issuer task open first --subject me --actor writer-bot --budget write=5",
        """  echo '{"path": "notes/hello.txt", "content": "hello"}' | \\""",
        "      issuer request create_file --task first --actor writer-bot --payload -",
        "  issuer commit EFFECT",
    ]
    return "\n".join(lines)


def run_init(settings: Settings, folder: Path, mode: str) -> int:
    """Make an issuer in `folder` and say what was made and what to do next."""
    if mode == "strict":
        say = "Not supported yet: mode strict needs `issuer serve`. Use ordinary for now."
        return trouble("unsupported", say, as_json=settings.as_json)

    def run() -> int:
        made = initialise(folder, uid=os.getuid())
        if settings.as_json:
            show(_made_answer(made), as_json=True)
        else:
            click.echo(_made_lines(folder, made))
        return 0

    return explained(run, as_json=settings.as_json)


def run_demo(settings: Settings) -> int:
    """Show one real effect in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="permit-issuer-") as name:
        return explained(lambda: _demo(Path(name) / "demo"), as_json=settings.as_json)


def _demo(folder: Path) -> int:
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder.parent / "state")
    try:
        made = initialise(folder, uid=os.getuid())
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before
    click.echo(f"1. An issuer of your own, in a temporary folder: {made.issuer}")
    with Issuer.open(folder / "profile.toml") as issuer:
        issuer.task_open(
            "first",
            subject="me",
            actors=["writer-bot"],
            budget={"write": 5},
            expires_ms=InstantMs(now_ms() + _HOUR_MS),
        )
        payload = {"path": "notes/hello.txt", "content": "written once, as permitted\n"}
        asked = issuer.request("create_file", payload, task="first", actor="writer-bot", subject="me")
        click.echo(
            "\n2. An agent asks to create a file; the owner's policy permits it, and nothing is written yet:"
        )
        click.echo(render(asked))
        done = issuer.commit(asked.effect or "")
        click.echo(
            "\n3. It is committed: the permit is spent, the file is written, the outcome is on record:"
        )
        click.echo(render(done))
        click.echo("\n4. Its whole story, one audit span for every transition:")
        click.echo(render(issuer.timeline(asked.effect or "")))
    written = (folder / "outbox" / "notes" / "hello.txt").read_text(encoding="utf-8")
    click.echo(f"\nThe file says: {written.strip()}")
    return int(done.exit)
