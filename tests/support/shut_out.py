"""Transitions where an account may not write, or not read, what they need.

Run as `python -m tests.support.shut_out KIND FOLDER PLACE…`.
Permission bits do not stop root, so a test starts this as a process without root's privileges (`started`). It makes
its own issuer, takes the rights to one place after the other away, before the issuer is opened and while it is open,
and judges what that left. It prints one JSON object: how often each answer and end was seen.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest

from issuer.places import Places
from tests.support.cases import HOUSE
from tests.support.committing import FAILED
from tests.support.issuers import Made
from tests.support.kills import Nursery
from tests.support.strikes import answer_of
from tests.support.transitions import KINDS, UNTOUCHED, Stage, assert_told_as_it_is

PLACES: Final[dict[str, Callable[[Made], Path]]] = {
    "ledger folder": lambda made: made.ledger.parent,
    "ledger": lambda made: made.ledger,
    "lock": lambda made: made.ledger.with_name(made.ledger.name + ".lock"),
    "instances": lambda made: Places(made.profile).instances,
    "protected": lambda made: Places(made.profile).protected,
    "keys": lambda made: Places(made.profile).keys,
    "sink": lambda made: made.sink,
    "sink folder": lambda made: made.sink.parent,
    "outbox": lambda made: made.folder / "outbox",
    "policies": lambda made: Places(made.profile).policies,
    "profile": lambda made: made.profile,
}
READ_ONLY, SHUT = ~0o222, 0


def started(folder: Path, kind: str, places: Sequence[str] = tuple(PLACES)) -> Counter[str]:
    """Run it for one kind of transition and return what was seen; skip where no process can be had without root."""
    own = [sys.executable, "-m", "tests.support.shut_out", kind, str(folder), *places]
    if os.geteuid() == 0:
        program = shutil.which("setpriv")
        if program is None:
            pytest.skip("root may write anything, and setpriv is not here to do without that")
        own = [program, "--bounding-set=-all", "--inh-caps=-all", *own]
    ran = subprocess.run(own, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return Counter(json.loads(ran.stdout))


def struck(stage: Stage, kind: str, nursery: Nursery, name: str, mask: int, *, is_open: bool) -> str:
    """Take the rights to a place away, let one process run, and give them back."""
    scene = stage.scene()
    place = PLACES[name](scene.made)
    before = stat.S_IMODE(place.stat().st_mode)
    if not is_open:
        place.chmod(before & mask)
    with nursery.start(stage.kind.job(scene, traced=is_open)) as child:
        if is_open:
            child.stopped()
            place.chmod(before & mask)
            child.resume()
        ended = child.ended()
        answer = answer_of(child)
    give_back(place, before)
    left = stage.judged(scene, answer)
    assert ended in {0, FAILED}
    if answer is None:
        assert left == UNTOUCHED[kind], (kind, name, child.lines)
        return f"not opened:{left}"
    assert_told_as_it_is(kind, str(answer["code"]), left)
    return f"{answer['code']}:{left}"


def give_back(place: Path, rights: int) -> None:
    """Give the rights back; SQLite makes its own two files with those that the ledger has at the time."""
    for path in (place, place.with_name(place.name + "-wal"), place.with_name(place.name + "-shm")):
        if path.exists():
            path.chmod(rights)


def run(kind: str, folder: Path, places: Sequence[str]) -> Counter[str]:
    """Strike one kind of transition at each place, in each way, at both times."""
    seen: Counter[str] = Counter()
    with Nursery() as nursery:
        stage = Stage(kind=KINDS[kind], folder=folder / kind)
        for name in places:
            for mask in (READ_ONLY, SHUT):
                for is_open in (False, True):
                    seen[struck(stage, kind, nursery, name, mask, is_open=is_open)] += 1
    return seen


def main(arguments: Sequence[str]) -> None:
    """Run it and print what was seen."""
    kind, folder, *places = arguments
    shut = Path(folder) / "shut"
    shut.mkdir(mode=0o500)
    try:
        (shut / "file").touch()
    except PermissionError:
        sys.stdout.write(json.dumps(run(kind, Path(folder), places)))
    else:
        sys.exit("permission bits do not stop this process")


if __name__ == "__main__":
    main(sys.argv[1:])
