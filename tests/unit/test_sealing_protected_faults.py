"""Failing disks, kills, sweeps and races leave the protected store whole."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from issuer.sealing import (
    KeyRing,
    ProtectedContentDiffers,
    ProtectedContentMissing,
    ProtectedStore,
    ProtectedStoreFull,
    ProtectedStoreUnavailable,
    create_protected_folder,
)
from issuer.sealing.protected import ORPHAN_AGE_MS_MIN
from ledger.errors import Broken
from tests.unit.test_sealing_keys import CANARY, ring_of
from tests.unit.test_sealing_protected import (
    CONTENT,
    EFFECT,
    LEDGER,
    NONCE,
    effect,
    file_of,
    nonce,
    sealed_files,
)

MINUTE = ORPHAN_AGE_MS_MIN


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    return ring_of(tmp_path / "keys", {1: ("active", CANARY)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_protected_folder(tmp_path / "protected")
    return tmp_path / "protected"


@pytest.fixture
def store(folder: Path, ring: KeyRing) -> ProtectedStore:
    return ProtectedStore(folder, ring, LEDGER)


@pytest.mark.spec("LED-03")
def test_a_full_disk_reads_as_a_full_store(
    store: ProtectedStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ProtectedStoreFull):
        store.put(EFFECT, CONTENT, NONCE)
    assert sealed_files(folder) == []


@pytest.mark.spec("LED-03")
def test_another_failure_of_the_disk_is_a_fault_of_the_world(
    store: ProtectedStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(ProtectedStoreUnavailable):
        store.put(EFFECT, CONTENT, NONCE)
    assert sealed_files(folder) == []


@pytest.mark.spec("LED-03")
def test_a_file_is_synced_before_it_is_linked_and_its_folder_after(
    store: ProtectedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_sync, real_link = os.fsync, os.link

    def sync(descriptor: int) -> None:
        steps.append("sync file" if stat.S_ISREG(os.fstat(descriptor).st_mode) else "sync folder")
        real_sync(descriptor)

    def link(source: str, target: str, **where: Any) -> None:
        steps.append("link")
        real_link(source, target, **where)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", link)
    store.put(EFFECT, CONTENT, NONCE)
    assert steps == ["sync file", "link", "sync folder"]
    steps.clear()
    # The one who linked it may have died before syncing the folder, so a repetition does it again.
    store.put(EFFECT, CONTENT, NONCE)
    assert steps == ["sync folder"]


KILLED_CHILD = """
import os, signal, sys
from pathlib import Path
from issuer.sealing import ProtectedStore, open_key_ring
step = sys.argv[3]
def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
real_link = os.link
def link_and_die(*args, **kwargs):
    real_link(*args, **kwargs)
    die()
store = ProtectedStore(Path(sys.argv[1]), open_key_ring(Path(sys.argv[2])), sys.argv[4])
if step == "before link":
    os.link = die
elif step == "after link":
    os.link = link_and_die
else:
    os.fsync = die
store.put(sys.argv[5], {"iban": "canary-iban-DE00", "salts": {"iban": "00" * 16}}, bytes(range(12)))
"""


@pytest.mark.spec("LED-03")
@pytest.mark.parametrize("step", ["before sync", "before link", "after link"])
def test_a_kill_leaves_all_or_nothing_and_a_sweep_cleans_up(
    store: ProtectedStore, folder: Path, tmp_path: Path, step: str
) -> None:
    arguments = [str(folder), str(tmp_path / "keys"), step, LEDGER, EFFECT]
    child = subprocess.run(
        [sys.executable, "-c", KILLED_CHILD, *arguments],
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert child.returncode == -9
    parts = [path for path in folder.iterdir() if path.name.endswith(".part")]
    assert len(parts) == 1
    assert b"canary" not in parts[0].read_bytes()
    if step == "after link":
        assert store.get(EFFECT) == CONTENT
    else:
        with pytest.raises(ProtectedContentMissing):
            store.get(EFFECT)
    store.put(EFFECT, CONTENT, bytes(12))
    late_ms = parts[0].stat().st_mtime_ns // 1_000_000 + MINUTE
    assert store.sweep([EFFECT], now_ms=late_ms, age_ms=MINUTE) == 1
    assert sealed_files(folder) == [f"{EFFECT}.sealed"]
    assert store.get(EFFECT) == CONTENT


def set_age(folder: Path, effect_id: str, modified_ms: int) -> None:
    os.utime(file_of(folder, effect_id), ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


@pytest.mark.spec("LED-03")
def test_a_sweep_takes_old_orphans_and_nothing_else(store: ProtectedStore, folder: Path) -> None:
    now_ms = 1_796_083_200_000
    ages = {0: MINUTE, 1: MINUTE - 1, 2: 10 * MINUTE, 3: -5 * MINUTE, 4: 10 * MINUTE}
    for number, age_ms in ages.items():
        store.put(effect(number), CONTENT, nonce(number))
        set_age(folder, effect(number), now_ms - age_ms)
    (folder / "notes.txt").write_text("foreign")
    os.utime(folder / "notes.txt", ns=(0, 0))
    assert store.sweep([effect(4)], now_ms=now_ms, age_ms=MINUTE) == 2
    assert sealed_files(folder) == sorted(
        [f"{effect(number)}.sealed" for number in (1, 3, 4)] + ["notes.txt"]
    )


@pytest.mark.spec("LED-03")
def test_content_put_again_is_young_again(store: ProtectedStore, folder: Path) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    set_age(folder, EFFECT, 0)
    store.put(EFFECT, CONTENT, NONCE)
    assert store.sweep((), now_ms=10 * MINUTE, age_ms=MINUTE) == 0
    assert store.get(EFFECT) == CONTENT


@pytest.mark.spec("LED-03")
@pytest.mark.parametrize(("known", "age_ms"), [((), MINUTE - 1), ((), 0), ((), -MINUTE), (EFFECT, MINUTE)])
def test_a_careless_sweep_is_refused(
    store: ProtectedStore, folder: Path, known: tuple[str, ...], age_ms: int
) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    set_age(folder, EFFECT, 0)
    with pytest.raises(Broken):
        store.sweep(known, now_ms=10 * MINUTE, age_ms=age_ms)
    assert store.get(EFFECT) == CONTENT


@pytest.mark.spec("LED-03")
def test_threads_share_one_quota_and_one_first_content(folder: Path, ring: KeyRing) -> None:
    barrier = threading.Barrier(12)
    results: list[str] = []

    def race(number: int) -> None:
        store = ProtectedStore(folder, ring, LEDGER, files_max=4)
        barrier.wait(timeout=30)
        # Every effect is put by two threads at once, with content of their own.
        try:
            store.put(effect(number % 6), {"thread": number}, nonce(number))
            results.append("stored")
        except (ProtectedContentDiffers, ProtectedStoreFull) as fault:
            results.append(type(fault).__name__)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(results) == 12
    assert results.count("stored") == 4
    assert len(sealed_files(folder)) == 4
