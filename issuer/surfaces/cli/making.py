"""`init` and `demo` on the command line."""

import os
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from issuer.demo import run_demo as play
from issuer.places import PROFILE_NAME
from issuer.setup import Made, initialise
from issuer.starter import first_steps
from issuer.surfaces.cli.options import Settings
from issuer.surfaces.cli.output import show
from issuer.surfaces.cli.running import explained, trouble
from issuer.wire import Answer


def _made_answer(made: Made) -> Answer:
    more = {"made": list(made.made), "kept": list(made.kept), "audit": list(made.sinks)}
    return Answer(issuer=made.issuer, code="created", mode="ordinary", more=more)


def _next_lines(made: Made, families: Sequence[str]) -> Sequence[str]:
    """Return what to type next: it fits what was written, and an owner's own profile is not guessed at."""
    if families:
        return first_steps(families)
    if PROFILE_NAME in made.made:
        return (
            "issuer task open first --subject me --actor writer-bot --class files=5 --budget write=5",
            """echo '{"path": "notes/hello.txt", "content": "hello"}' | \\""",
            "    issuer request create_file --task first --actor writer-bot --payload -",
            "issuer commit EFFECT",
        )
    return ("issuer task list", "issuer list")


def _made_lines(folder: Path, made: Made, families: Sequence[str]) -> str:
    lines = [f"{made.issuer} is ready in {folder} (ordinary: one account, roles are recorded, not enforced)"]
    lines += [f"  made  {what}" for what in made.made]
    lines += [f"  kept  {what}" for what in made.kept]
    lines += [f"  audit file: {place}" for place in made.sinks]
    lines += [
        "Next:",
        *(f"  {line}" for line in (f"cd {shlex.quote(str(folder))}", *_next_lines(made, families))),
    ]
    return "\n".join(lines)


def run_init(settings: Settings, folder: Path, mode: str, families: Sequence[str]) -> int:
    """Make an issuer in `folder`, with the example `families` if any, and say what was made and what to do next."""
    if mode == "strict":
        say = "Not supported yet: mode strict needs `issuer serve`. Use ordinary for now."
        return trouble("unsupported", say, as_json=settings.as_json)

    def run() -> int:
        made = initialise(folder, uid=os.getuid(), families=families)
        if settings.as_json:
            show(_made_answer(made), as_json=True)
        else:
            click.echo(_made_lines(folder, made, families))
        return 0

    return explained(run, as_json=settings.as_json)


def run_demo(settings: Settings) -> int:
    """Play the demo in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="permit-issuer-") as name:
        return explained(lambda: play(Path(name) / "demo", click.echo), as_json=settings.as_json)
