"""What holds for every test: it starts from a bare environment and can touch nothing outside its own folder.

State, configuration and home of the account that runs the tests are replaced before the first import of a
test module and again, with fresh folders, for each test. Settings of the issuer and of OpenTelemetry that a
developer may have exported are removed: a test that needs one sets it itself.

Most tests of faults and of the shell make an issuer of their own, some megabytes that are forced out to the disk. Their
folders are in memory where there is plenty of it: nobody but a power cut can tell the two apart, and power cuts are
played by `make soak`. What is about files stays on the disk, and so do the long runs, the ledger's own tests and
whatever a module makes once for all its tests.
"""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A shared two-core machine makes single examples slow without any fault; `make test` has its own limit.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

STATE_FOLDERS = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
FOREIGN_PREFIXES = ("ISSUER_", "OTEL_")

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
MEMORY_BYTES_MIN = 4 * 1024**3
"""Free bytes above which folders of tests are put there; a container often has a few megabytes only."""

IN_MEMORY = ("fault", "property", "surface")
ON_DISK = (
    "test_audit_sink", "test_case_d12_files", "test_cli_init", "test_cli_ledger", "test_demo", "test_doctor",
    "test_file_", "test_full_disk", "test_guide", "test_ledger_backup", "test_ledger_files", "test_ledger_processes",
    "test_ledger_restore.py", "test_sync_counts",
)  # fmt: skip
"""How the names of modules begin that are about files or about the disk, or are whole days of a user."""


@pytest.fixture(autouse=True, scope="module")
def _let_go() -> Iterator[None]:
    """Close what a module's tests left open in cycles: thousands of them share the descriptors of one process."""
    yield
    gc.collect()


def roomy_memory() -> Path | None:
    """Return where folders of tests may be made in memory; None where there is no such place or little room."""
    if not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < MEMORY_BYTES_MIN:
        return None
    return MEMORY


@pytest.fixture(scope="session")
def scratch_root() -> Iterator[Path]:
    """The folder of all state of one run; short, because socket paths end at 108 bytes."""
    with tempfile.TemporaryDirectory(prefix="permits-", dir=roomy_memory()) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(tmp_path: Path, request: pytest.FixtureRequest, scratch_root: Path) -> Iterator[Path]:
    """Give a test its folder: on the disk, or in memory where it is about neither files nor the disk."""
    module = request.path
    if module.parent.name not in IN_MEMORY or module.name.startswith(ON_DISK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="test-", dir=scratch_root))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def point_state_at(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Make `home` and folders below it the only state, configuration and home that a test can find."""
    for name in list(os.environ):
        if name.startswith(FOREIGN_PREFIXES):
            patch.delenv(name)
    patch.setenv("HOME", str(home))
    for name in STATE_FOLDERS:
        folder = home / name.lower()
        folder.mkdir(mode=0o700)
        patch.setenv(name, str(folder))


@pytest.fixture(scope="session", autouse=True)
def _session_state(scratch_root: Path) -> Iterator[None]:
    """Cover fixtures of a wider scope than one test."""
    home = scratch_root / "session"
    home.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        point_state_at(patch, home)
        yield


@pytest.fixture(autouse=True)
def _own_state(scratch_root: Path, _session_state: None) -> Iterator[None]:
    """Give each test folders that no other test has seen."""
    home = Path(tempfile.mkdtemp(dir=scratch_root))
    with pytest.MonkeyPatch.context() as patch:
        point_state_at(patch, home)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a `spec` mark that the report could not read: it takes rule ids as plain positional strings."""
    for item in items:
        for mark in item.iter_markers("spec"):
            if not mark.args or mark.kwargs or not all(isinstance(value, str) for value in mark.args):
                message = f"{item.nodeid}: spec takes one or more rule ids as strings"
                raise pytest.UsageError(message)
