"""`init` and `demo` on the command line."""

import os
import tempfile
from pathlib import Path

import click

from issuer.demo import run_demo as play
from issuer.setup import Made, initialise
from issuer.surfaces.cli.options import Settings
from issuer.surfaces.cli.output import show
from issuer.surfaces.cli.running import explained, trouble
from issuer.wire import Answer


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
    """Play the demo in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="permit-issuer-") as name:
        return explained(lambda: play(Path(name) / "demo", click.echo), as_json=settings.as_json)
