"""A third party's sink as it is really installed: a package with its metadata in a folder on the path.

It keeps spans in a file of the folder that its settings name, and misbehaves as the file `manner` beside it says at the
moment of the call, so that a test can change that under an open issuer.
"""

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SINK = '''
"""Keeps spans in a file."""
import json
import pathlib
import time


class Place:
    sink_class = "durable"

    def __init__(self, settings):
        self.folder = pathlib.Path(settings["folder"])
        if self.manner() == "cannot be made":
            raise RuntimeError("canary-4711 free text")
        if self.manner() == "no class":
            self.sink_class = "wonderful"
        if self.manner() == "best effort":
            self.sink_class = "best_effort"
        if self.manner() == "no store":
            self.store = None

    def manner(self):
        return (self.folder / "manner").read_text().strip()

    def misbehave(self):
        if self.manner() == "raises":
            raise RuntimeError("canary-4711 free text")
        if self.manner() == "exits":
            raise SystemExit("canary-4711 free text")
        if self.manner() == "is interrupted":
            raise KeyboardInterrupt
        while self.manner() == "hangs":
            time.sleep(0.01)

    def probe(self, deadline_s):
        self.misbehave()

    def store(self, rows, deadline_s):
        self.misbehave()
        manner = self.manner()
        if manner == "another leaf":
            return b"0" * 32
        if manner == "the leaf as text":
            return rows[-1].leaf.hex()
        if manner == "says true":
            return True
        if manner == "says nothing":
            return None
        if manner == "the first leaf of more":
            return rows[0].leaf if len(rows) > 1 else b""
        with (self.folder / "spans").open("a") as file:
            for row in rows:
                file.write(json.dumps([row.position.epoch, row.position.sequence, row.body.decode()]) + "\\n")
        return rows[-1].leaf

    def close(self):
        if self.manner() == "close raises":
            raise RuntimeError("canary-4711 free text")


def make(settings):
    if (pathlib.Path(settings["folder"]) / "manner").read_text().strip() == "is nothing":
        return None
    return Place(settings)
'''

NO_DIGEST = "0" * 64
_numbers = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class InstalledSink:
    """A sink that stands on the path: its name, the file of its code and the folder that it keeps spans in."""

    name: str
    site: Path
    file: Path
    folder: Path

    def behave(self, manner: str = "well") -> None:
        """Let it behave like this from now on."""
        part = self.folder / "manner.part"
        part.write_text(manner, encoding="utf-8")
        part.rename(self.folder / "manner")

    def sequences(self) -> list[int]:
        """Return the sequences that it keeps, in order of arrival."""
        path = self.folder / "spans"
        if not path.exists():
            return []
        return [json.loads(line)[1] for line in path.read_text(encoding="utf-8").splitlines()]

    def line(self, *, digest: str = NO_DIGEST, required: bool = True) -> str:
        """Return the line of a profile that names it."""
        settings = f'settings = {{ folder = "{self.folder}" }}'
        return (
            f'sink.third = {{ type = "python", plugin = "{self.name}", digest = "{digest}", {settings}, '
            f"required = {str(required).lower()} }}"
        )


@contextmanager
def installed_sink(folder: Path, *, group: str = "permit_issuer.sinks") -> Iterator[InstalledSink]:
    """Install the sink in `folder` and put that on the path for as long as the block runs."""
    name = f"third_sink_{next(_numbers)}"
    site = folder / "site"
    package = site / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "keeping.py").write_text(SINK, encoding="utf-8")
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {name}.keeping:make\n", encoding="utf-8")
    kept = folder / "kept"
    kept.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        sink = InstalledSink(name=name, site=site, file=package / "keeping.py", folder=kept)
        sink.behave()
        try:
            yield sink
        finally:
            sink.behave("gone")
            for module in [module for module in sys.modules if module.split(".")[0] == name]:
                del sys.modules[module]
