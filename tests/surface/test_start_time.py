"""Help is quick: nothing heavy is imported before a command needs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shell import PROCESS_S, environment

HEAVY = (
    "audit",
    "cedarpy",
    "cryptography",
    "opentelemetry",
    "policies",
    "pydantic",
    "pysqlite3",
    "sqlite_utils",
)
_LOOK = """
import json, sys
from issuer.surfaces.cli import main
try:
    main({arguments!r})
except SystemExit as ended:
    code = ended.code
roots = sorted({{name.partition(".")[0] for name in sys.modules}})
print(json.dumps({{"code": code, "roots": roots}}), file=sys.stderr)
"""


def loaded_by(arguments: list[str], at: Path) -> tuple[int, set[str]]:
    """Return the exit code of a command in a fresh process, and the top-level modules it had loaded at its end."""
    script = _LOOK.format(arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=at,
        env=environment({}),
        capture_output=True,
        timeout=PROCESS_S,
        check=True,
    )
    told = json.loads(done.stderr.decode().splitlines()[-1])
    return told["code"], set(told["roots"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["request", "--help"], 0),
        (["task", "open", "-h"], 0),
        (["nonsense"], 2),
        (["request", "--json"], 2),
    ],
)
def test_no_heavy_module_is_loaded_for_help_and_wrong_usage(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    ended, roots = loaded_by(arguments, tmp_path)
    assert ended == code
    assert "click" in roots
    assert roots & set(HEAVY) == set()


def test_the_look_sees_what_a_command_that_works_does_load(tmp_path: Path) -> None:
    ended, roots = loaded_by(["init", "house"], tmp_path)
    assert ended == 0
    assert set(HEAVY) - roots <= {"pysqlite3"}  # where no wheel of it exists the standard library's is used
