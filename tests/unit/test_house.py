"""The house keeps its shape: what may stand where, how long a thing may be, and who may import what.

The checks read the repository as git sees it (tracked files, and new ones that are not ignored), so they
speak before a commit and not after it. Where there is no git checkout, as in an unpacked source distribution,
the checks about the top level and about the contents of files are skipped.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOUSE = Path(__file__).resolve().parents[2]
ROOMS = ("issuer", "policies", "audit", "ledger")

FOLDERS_ALLOWED = frozenset({*ROOMS, "tests", "docs", ".ci"})
FILES_ALLOWED = frozenset(
    {"pyproject.toml", "requirements.lock", "README.md", "CHANGELOG.md", "LICENSE", "Makefile"}
    | {".gitignore", ".gitattributes", ".editorconfig"}
)
FILE_LINES_MAX = 500  # style: 300 are usual, 500 the end
FUNCTION_LINES_MAX = 60  # style: a function fits a screen
COUNTED_SUFFIXES = frozenset({".py", ".sql", ".cedar", ".md"})

# Written in pieces, so that this file does not contain what it looks for.
FOREIGN_TEXT = {
    "a folder of one machine": re.compile(r"(?<![\w.])/(?:work|root|Users|home/\w+|opt)/\w"),
    "a package registry": re.compile(
        "|".join(
            re.escape(head + "." + tail)
            for head, tail in (
                ("pypi", "org"),
                ("pythonhosted", "org"),
                ("npmjs", "org"),
                ("npmjs", "com"),
                ("debian", "org"),
                ("crates", "io"),
            )
        )
    ),
    "an index option": re.compile(r"--(?:extra-)?index-" + "url|--find-" + "links|--trusted-" + "host"),
}
CLOCK_READERS = frozenset({"now", "utcnow", "today"})
CLOCK_DOOR = "issuer.clock"
LEDGER_STORAGE = frozenset({"ledger.sqlite", "ledger.check"})


def listed_files() -> list[Path]:
    """Return the files git knows or would add; skip the calling test where that cannot be asked."""
    git = shutil.which("git")
    if git is None or not (HOUSE / ".git").exists():
        pytest.skip("no git checkout to ask")
    command = [git, "-C", str(HOUSE), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, capture_output=True, check=False)
    if answer.returncode != 0:
        pytest.skip("git does not answer here: " + answer.stderr.decode("utf-8", "replace").strip())
    paths = [HOUSE / name for name in answer.stdout.decode("utf-8").split("\0") if name]
    return [path for path in paths if path.is_file()]


def python_files(*folders: str) -> Iterator[tuple[str, str, ast.Module]]:
    """Yield path from the top, dotted module name and syntax tree of each Python file below `folders`."""
    for folder in folders:
        for path in sorted((HOUSE / folder).rglob("*.py")):
            relative = path.relative_to(HOUSE)
            module = ".".join(relative.with_suffix("").parts).removesuffix(".__init__")
            yield (
                relative.as_posix(),
                module,
                ast.parse(path.read_text(encoding="utf-8"), relative.as_posix()),
            )


def house_rules() -> dict[str, Any]:
    """Return pyproject.toml as parsed."""
    return tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))


def doors() -> dict[str, tuple[str, ...]]:
    """Return, for each third-party package, the modules that may import it, as import-linter is told."""
    found: dict[str, tuple[str, ...]] = {}
    for contract in house_rules()["tool"]["importlinter"]["contracts"]:
        if contract["name"].startswith("door: "):
            (package,) = contract["forbidden_modules"]
            importers = [line.split(" -> ")[0].removesuffix(".**") for line in contract["ignore_imports"]]
            found[package] = tuple(dict.fromkeys(importers))
    return found


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of each import in `tree`, also where it is asked for by a literal name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "."
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in {"import_module", "__import__", "find_spec"} and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


def is_within(name: str, package: str) -> bool:
    """Say whether the dotted `name` is `package` or lies below it."""
    return name == package or name.startswith(package + ".")


def distribution_of(requirement: str) -> str:
    """Return the name in front of the version and markers of a requirement line."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    if match is None:
        pytest.fail(f"not a requirement: {requirement}")
    return match.group()


def test_the_top_level_contains_only_what_the_house_allows() -> None:
    strangers = set()
    for path in listed_files():
        first, *rest = path.relative_to(HOUSE).parts
        if first not in (FOLDERS_ALLOWED if rest else FILES_ALLOWED):
            strangers.add(first)
    assert strangers == set()


def test_no_file_names_a_machine_or_a_registry() -> None:
    findings = []
    for path in listed_files():
        text = path.read_bytes().decode("utf-8", "replace")
        for number, line in enumerate(text.splitlines(), start=1):
            findings += [
                f"{path.relative_to(HOUSE)}:{number}: {kind}: {line.strip()[:80]}"
                for kind, pattern in FOREIGN_TEXT.items()
                if pattern.search(line)
            ]
    assert findings == []


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("a folder of one machine", "see /" + "work/main/ledger"),
        ("a folder of one machine", "cd '/" + "root/x'"),
        ("a folder of one machine", "/" + "home/alice/permits"),
        ("a package registry", "https://" + "pypi" + ".org/simple"),
        ("a package registry", "https://files." + "pythonhosted" + ".org/packages"),
        ("an index option", "pip install --extra-" + "index" + "-url x"),
    ],
)
def test_the_search_for_foreign_text_finds_what_it_is_for(kind: str, line: str) -> None:
    assert FOREIGN_TEXT[kind].search(line)


@pytest.mark.parametrize(
    "line", ["${HOME}/.config/issuer", "/run/issuer/issuer.sock", "docs/workshop/x", "/var/lib"]
)
def test_the_search_for_foreign_text_lets_ordinary_paths_pass(line: str) -> None:
    assert not any(pattern.search(line) for pattern in FOREIGN_TEXT.values())


def test_no_file_is_longer_than_the_limit() -> None:
    long = []
    for path in listed_files():
        lines = len(path.read_bytes().splitlines())
        # What an earlier release wrote is data, and as long as it is.
        if "fixtures" in path.parts or path.name == "CHANGELOG.md":
            continue
        if path.suffix in COUNTED_SUFFIXES and lines > FILE_LINES_MAX:
            long.append(f"{path.relative_to(HOUSE)}: {lines}")
    assert long == []


def test_no_function_is_longer_than_a_screen() -> None:
    long = []
    for place, _module, tree in python_files(*ROOMS, "tests"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{place}:{node.lineno}: {node.name}: {lines}")
    assert long == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_lists_its_public_names_and_says_that_it_is_typed(room: str) -> None:
    tree = ast.parse((HOUSE / room / "__init__.py").read_text(encoding="utf-8"))
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    assert "__all__" in assigned
    assert (HOUSE / room / "py.typed").is_file()


def test_each_third_party_package_is_imported_through_its_door_only() -> None:
    allowed = doors()
    passed = []
    for place, module, tree in python_files(*ROOMS):
        for line, name in imported_names(tree):
            for package, importers in allowed.items():
                if is_within(name, package) and not any(is_within(module, door) for door in importers):
                    passed.append(f"{place}:{line}: {name}, whose door is {' or '.join(importers)}")
    assert passed == []


def test_nothing_is_imported_that_has_no_door() -> None:
    known = {*sys.stdlib_module_names, *ROOMS, *doors()}
    strangers = [
        f"{place}:{line}: {name}"
        for place, _module, tree in python_files(*ROOMS)
        for line, name in imported_names(tree)
        if name.split(".")[0] not in known
    ]
    assert strangers == []


def test_each_module_of_the_ledger_outside_its_storage_is_held_to_the_pure_core() -> None:
    (pure,) = (
        contract["source_modules"]
        for contract in house_rules()["tool"]["importlinter"]["contracts"]
        if contract["name"].startswith("ledger: the core")
    )
    modules = {".".join(module.split(".")[:2]) for _place, module, _tree in python_files("ledger")}
    assert modules - {"ledger", *LEDGER_STORAGE} == set(pure)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import cedarpy", "cedarpy"),
        ("from opentelemetry.sdk import trace", "opentelemetry.sdk"),
        ("def late():\n    import click", "click"),
        ("import importlib\nimportlib.import_module('pysqlite3.dbapi2')", "pysqlite3.dbapi2"),
        ("__import__('pydantic')", "pydantic"),
    ],
)
def test_an_import_is_seen_in_whatever_form_it_comes(source: str, expected: str) -> None:
    assert expected in [name for _line, name in imported_names(ast.parse(source))]


@pytest.mark.parametrize("spelling", sorted(CLOCK_READERS))
def test_only_the_clock_asks_for_the_time_of_day(spelling: str) -> None:
    readers = [
        f"{place}:{node.lineno}"
        for place, module, tree in python_files(*ROOMS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == spelling and module != CLOCK_DOOR
        if isinstance(node.value, ast.Name | ast.Attribute)
        and (node.value.id if isinstance(node.value, ast.Name) else node.value.attr) in {"datetime", "date"}
    ]
    assert readers == []


def test_each_runtime_dependency_has_a_reason_and_a_door_in_the_decision_record() -> None:
    record = (HOUSE / "docs" / "adr" / "0002-dependencies.md").read_text(encoding="utf-8")
    rows = {row.split("`")[1]: row for row in record.splitlines() if row.startswith("| `")}
    rules = house_rules()
    runtime = {distribution_of(line) for line in rules["project"]["dependencies"]}
    development = {distribution_of(line) for line in rules["dependency-groups"]["dev"]}
    assert rows.keys() == runtime | development
    unnamed = [
        f"{package}: {importer}"
        for package, importers in doors().items()
        for importer in importers
        if package != "sqlite3" and not any(f"`{importer}`" in rows[name] for name in runtime)
    ]
    assert unnamed == []


def test_the_lock_pins_every_package_by_version_and_digest() -> None:
    text = (HOUSE / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"(?m)^\s*#.*\n", "", text))
    loose = [entry.splitlines()[0] for entry in entries if not re.match(r"[A-Za-z0-9._-]+==\S+", entry)]
    assert loose == []
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
    locked = {distribution_of(entry) for entry in entries}
    rules = house_rules()
    wanted = [*rules["project"]["dependencies"], *rules["dependency-groups"]["dev"]]
    assert {distribution_of(line) for line in wanted} <= locked


def test_a_wheel_carries_the_four_rooms_with_their_data_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    for room in ROOMS:
        shutil.copytree(HOUSE / room, source / room, ignore=ignored)
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        if (HOUSE / name).exists():
            shutil.copy(HOUSE / name, source / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        path.relative_to(source).as_posix()
        for room in ROOMS
        for path in (source / room).rglob("*")
        if path.is_file()
    }
    assert packed == expected
    assert {f"{room}/py.typed" for room in ROOMS} <= packed


@pytest.mark.parametrize("name", ["HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"])
def test_a_test_finds_only_folders_of_its_own(name: str, scratch_root: Path) -> None:
    folder = Path(os.environ[name])
    assert folder.is_relative_to(scratch_root)
    assert folder.stat().st_mode & 0o077 == 0
    assert Path.home().is_relative_to(scratch_root)
    assert not [name for name in os.environ if name.startswith(("ISSUER_", "OTEL_"))]
