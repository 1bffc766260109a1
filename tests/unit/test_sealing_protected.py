"""Protected content is durable before it is referred to, write-once, bounded, and opens in one place only."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from issuer.sealing import (
    KeyRing,
    ProtectedContentDiffers,
    ProtectedContentMissing,
    ProtectedContentTooLarge,
    ProtectedStore,
    ProtectedStoreFull,
    ProtectedStoreUnavailable,
    SealBroken,
    StorageFault,
    create_protected_folder,
)
from issuer.sealing.protected import CONTENT_BYTES_MAX, ORPHAN_AGE_MS_MIN
from ledger.errors import Broken, Malformed
from tests.unit.test_sealing_keys import CANARY, OTHER, ring_of

LEDGER = "ldg_0123456789abcdef0123456789abcdef"
EFFECT = "eff_0123456789abcdef0123456789abcdef"
OTHER_EFFECT = "eff_fedcba9876543210fedcba9876543210"
CONTENT = {"iban": "canary-iban-DE00", "salts": {"iban": "00" * 16}}
NONCE = bytes(range(12))
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


def file_of(folder: Path, effect_id: str = EFFECT) -> Path:
    return folder / f"{effect_id}.sealed"


def sealed_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".tally")


@pytest.mark.spec("LED-03")
def test_what_was_put_is_got(store: ProtectedStore, folder: Path) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    assert store.get(EFFECT) == CONTENT
    assert sealed_files(folder) == [f"{EFFECT}.sealed"]
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_nlink == 1


@pytest.mark.spec("LED-03", "SEC-01")
def test_nothing_readable_is_on_disk(store: ProtectedStore, folder: Path) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    for path in folder.iterdir():
        assert b"canary" not in path.read_bytes()
        assert b"iban" not in path.read_bytes()


@pytest.mark.spec("LED-03")
def test_the_store_is_write_once(store: ProtectedStore, folder: Path) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    before = file_of(folder).read_bytes()
    store.put(EFFECT, dict(reversed(CONTENT.items())), bytes(12))
    with pytest.raises(ProtectedContentDiffers):
        store.put(EFFECT, {**CONTENT, "iban": "other"}, bytes(12))
    assert file_of(folder).read_bytes() == before
    assert sealed_files(folder) == [f"{EFFECT}.sealed"]


@pytest.mark.spec("LED-03")
def test_missing_content_is_missing_and_erasing_it_twice_is_fine(store: ProtectedStore, folder: Path) -> None:
    with pytest.raises(ProtectedContentMissing):
        store.get(EFFECT)
    store.put(EFFECT, CONTENT, NONCE)
    store.erase(EFFECT)
    store.erase(EFFECT)
    with pytest.raises(ProtectedContentMissing):
        store.get(EFFECT)
    assert sealed_files(folder) == []


@pytest.mark.spec("LED-03")
@pytest.mark.parametrize(
    "effect_id",
    [
        "",
        "short",
        "x" * 65,
        "../../etc/passwd",
        "eff_0123/../01",
        "eff_0123\x00abc",
        "eff_0123456\n",
        "EFF_01234567",
        ".eff_0123456",
        "eff_0123456é",
        "eff_0123456\u0660",
        None,
        b"eff_01234567",
    ],
)
def test_only_a_plain_effect_id_becomes_a_file_name(
    store: ProtectedStore, folder: Path, effect_id: str
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.put(effect_id, CONTENT, NONCE),
        lambda: store.get(effect_id),
        lambda: store.erase(effect_id),
    ]
    for call in calls:
        with pytest.raises(Broken):
            call()
    assert list(folder.iterdir()) == []


def flip_every_bit(folder: Path) -> list[bytes]:
    good = file_of(folder).read_bytes()
    return [
        good[: position // 8] + bytes([good[position // 8] ^ 1 << position % 8]) + good[position // 8 + 1 :]
        for position in range(len(good) * 8)
    ]


@pytest.mark.spec("LED-03", "LED-06")
def test_a_forged_file_does_not_open(store: ProtectedStore, folder: Path) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    good = file_of(folder).read_bytes()
    forgeries = [*flip_every_bit(folder), b"", good[:-1], good + b"\x00", good * 2, b"{}", bytes(len(good))]
    forgeries.append(b"x" * (CONTENT_BYTES_MAX + 1000))
    for forgery in forgeries:
        file_of(folder).write_bytes(forgery)
        with pytest.raises(SealBroken):
            store.get(EFFECT)
    with pytest.raises(SealBroken):
        store.put(EFFECT, CONTENT, bytes(12))
    file_of(folder).write_bytes(good)
    assert store.get(EFFECT) == CONTENT


@pytest.mark.spec("LED-03", "LED-06")
def test_a_moved_file_does_not_open(store: ProtectedStore, folder: Path, ring: KeyRing) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    with pytest.raises(SealBroken):
        ProtectedStore(folder, ring, LEDGER[:-1] + "e").get(EFFECT)
    file_of(folder).rename(file_of(folder, OTHER_EFFECT))
    with pytest.raises(SealBroken):
        store.get(OTHER_EFFECT)
    with pytest.raises(ProtectedContentMissing):
        store.get(EFFECT)


@pytest.mark.spec("LED-03")
@pytest.mark.parametrize("plant", ["symlink", "dangling", "fifo", "folder", "open mode"])
def test_what_the_store_never_wrote_does_not_open(store: ProtectedStore, folder: Path, plant: str) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    path = file_of(folder)
    if plant == "open mode":
        path.chmod(0o644)
    else:
        path.rename(folder.parent / "elsewhere")
    if plant == "symlink":
        path.symlink_to(folder.parent / "elsewhere")
    elif plant == "dangling":
        path.symlink_to(folder.parent / "nowhere")
    elif plant == "fifo":
        os.mkfifo(path, 0o600)
    elif plant == "folder":
        path.mkdir(mode=0o700)
    with pytest.raises(SealBroken):
        store.get(EFFECT)
    with pytest.raises(SealBroken):
        store.put(EFFECT, CONTENT, bytes(12))


@pytest.mark.spec("SEC-03")
def test_content_stays_readable_after_rotation_and_retirement(
    tmp_path: Path, folder: Path, ring: KeyRing
) -> None:
    ProtectedStore(folder, ring, LEDGER).put(EFFECT, CONTENT, NONCE)
    for number, state in enumerate(("open_only", "retired")):
        later = ring_of(tmp_path / f"later{number}", {1: (state, CANARY), 2: ("active", OTHER)})
        assert ProtectedStore(folder, later, LEDGER).get(EFFECT) == CONTENT
    foreign = ring_of(tmp_path / "foreign", {1: ("active", OTHER)})
    with pytest.raises(SealBroken):
        ProtectedStore(folder, foreign, LEDGER).get(EFFECT)


@pytest.mark.spec("LED-03")
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701, 0o720])
def test_a_folder_that_others_can_enter_is_refused(
    store: ProtectedStore, folder: Path, ring: KeyRing, mode: int
) -> None:
    folder.chmod(mode)
    calls: list[Callable[[], object]] = [
        lambda: ProtectedStore(folder, ring, LEDGER),
        lambda: create_protected_folder(folder),
        lambda: store.put(EFFECT, CONTENT, NONCE),
        lambda: store.get(EFFECT),
        lambda: store.erase(EFFECT),
        lambda: store.sweep((), now_ms=0, age_ms=MINUTE),
    ]
    for call in calls:
        with pytest.raises(ProtectedStoreUnavailable) as refused:
            call()
        assert refused.value.reason is StorageFault.OPEN_TO_OTHERS


def test_a_store_is_not_created_by_accident(tmp_path: Path, ring: KeyRing) -> None:
    with pytest.raises(ProtectedStoreUnavailable) as refused:
        ProtectedStore(tmp_path / "nowhere", ring, LEDGER)
    assert refused.value.reason is StorageFault.MISSING
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("bad", [{"ledger_id": ""}, {"ledger_id": None}, {"files_max": 0}, {"bytes_max": 0}])
def test_a_store_has_a_ledger_and_finite_quotas(folder: Path, ring: KeyRing, bad: dict[str, Any]) -> None:
    with pytest.raises(Broken):
        ProtectedStore(**{"folder": folder, "ring": ring, "ledger_id": LEDGER, **bad})


@pytest.mark.spec("LED-03", "EFF-05")
def test_content_is_bounded_and_canonical(store: ProtectedStore, folder: Path) -> None:
    fits = {"x": "y" * (CONTENT_BYTES_MAX - len('{"x":""}'))}
    store.put(EFFECT, fits, NONCE)
    assert store.get(EFFECT) == fits
    for content in ({"x": fits["x"] + "y"}, {"x": "é" * (CONTENT_BYTES_MAX // 2)}):
        with pytest.raises(ProtectedContentTooLarge):
            store.put(OTHER_EFFECT, content, NONCE)
    for value in (1.5, float("nan"), 2**53, b"x", "\ud800"):
        with pytest.raises(Malformed):
            store.put(OTHER_EFFECT, {"x": value}, NONCE)
    with pytest.raises(Broken):
        store.put(OTHER_EFFECT, {"x": 1}, bytes(11))
    assert sealed_files(folder) == [f"{EFFECT}.sealed"]


def nonce(number: int) -> bytes:
    return number.to_bytes(12, "big")


def effect(number: int) -> str:
    return f"eff_{number:032x}"


@pytest.mark.spec("LED-03")
def test_the_quota_of_files_is_exact_and_erasing_makes_room(folder: Path, ring: KeyRing) -> None:
    store = ProtectedStore(folder, ring, LEDGER, files_max=3)
    for number in range(3):
        store.put(effect(number), CONTENT, nonce(number))
    with pytest.raises(ProtectedStoreFull):
        store.put(effect(3), CONTENT, nonce(3))
    store.put(effect(0), CONTENT, nonce(9))
    assert len(sealed_files(folder)) == 3
    store.erase(effect(1))
    store.put(effect(3), CONTENT, nonce(3))
    with pytest.raises(ProtectedStoreFull):
        store.put(effect(4), CONTENT, nonce(4))


@pytest.mark.spec("LED-03")
def test_the_quota_of_bytes_is_exact(folder: Path, ring: KeyRing) -> None:
    plain = len(json.dumps(CONTENT, separators=(",", ":")))
    size = plain + 36
    exact = ProtectedStore(folder, ring, LEDGER, bytes_max=2 * size)
    exact.put(effect(0), CONTENT, nonce(0))
    exact.put(effect(1), CONTENT, nonce(1))
    assert file_of(folder, effect(1)).stat().st_size == size
    with pytest.raises(ProtectedStoreFull):
        exact.put(effect(2), {}, nonce(2))
    exact.erase(effect(0))
    one_short = ProtectedStore(folder, ring, LEDGER, bytes_max=2 * size - 1)
    with pytest.raises(ProtectedStoreFull):
        one_short.put(effect(2), CONTENT, nonce(2))


@pytest.mark.spec("LED-03")
@pytest.mark.parametrize(
    "tally", [None, b"", b"junk", b"0" * 42, f"{10**19:020d} {10**19:020d}\n".encode(), b"9" * 100]
)
def test_a_wrong_tally_neither_locks_the_store_nor_lifts_its_quota(
    folder: Path, ring: KeyRing, tally: bytes | None
) -> None:
    store = ProtectedStore(folder, ring, LEDGER, files_max=2)
    store.put(effect(0), CONTENT, nonce(0))
    (folder / ".tally").unlink()
    if tally is not None:
        (folder / ".tally").write_bytes(tally)
    store.put(effect(1), CONTENT, nonce(1))
    with pytest.raises(ProtectedStoreFull):
        store.put(effect(2), CONTENT, nonce(2))


@pytest.mark.spec("LED-03")
def test_erasing_without_a_tally_counts_what_is_left(folder: Path, ring: KeyRing) -> None:
    store = ProtectedStore(folder, ring, LEDGER, files_max=3)
    for number in range(3):
        store.put(effect(number), CONTENT, nonce(number))
    (folder / ".tally").unlink()
    store.erase(effect(0))
    store.put(effect(3), CONTENT, nonce(3))
    with pytest.raises(ProtectedStoreFull):
        store.put(effect(4), CONTENT, nonce(4))


@pytest.mark.spec("LED-07")
def test_a_put_into_a_large_store_looks_at_no_other_file(
    store: ProtectedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(effect(0), CONTENT, nonce(0))

    def never(*_args: object) -> object:
        raise AssertionError

    monkeypatch.setattr(os, "scandir", never)
    monkeypatch.setattr(os, "listdir", never)
    store.put(effect(1), CONTENT, nonce(1))
    store.erase(effect(1))


@pytest.mark.spec("SEC-01")
def test_no_text_of_the_store_shows_content_or_keys(store: ProtectedStore, folder: Path) -> None:
    store.put(EFFECT, CONTENT, NONCE)
    texts = [repr(store), str(store)]
    with pytest.raises(ProtectedContentDiffers) as differs:
        store.put(EFFECT, {"iban": "canary-other"}, NONCE)
    with pytest.raises(ProtectedContentTooLarge) as too_large:
        store.put(EFFECT, {"iban": "canary" * CONTENT_BYTES_MAX}, NONCE)
    file_of(folder).write_bytes(b"canary")
    with pytest.raises(SealBroken) as broken:
        store.get(EFFECT)
    for fault in (differs.value, too_large.value, broken.value):
        assert fault.__cause__ is None
        assert fault.__context__ is None
        texts += [str(fault), repr(fault), repr(vars(fault))]
    assert not any("canary" in text for text in texts)
