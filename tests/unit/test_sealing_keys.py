"""The key ring is private, unambiguous and silent, or it is refused as a whole."""

import base64
import copy
import hashlib
import hmac
import os
import pickle
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV

from issuer.sealing import (
    KeyRing,
    KeyState,
    KeysUnavailable,
    KeyUnusable,
    Purpose,
    StorageFault,
    create_key_ring,
    open_key_ring,
)
from issuer.sealing.errors import _KEYS_SENTENCES
from ledger.errors import Broken

CANARY = b"canary-root-key-0123456789abcdef"
OTHER = bytes(range(32))
NAME = "00000001.key"


def write_keys(folder: Path, keys: Mapping[int, tuple[str, bytes]]) -> Path:
    """Write a ring by hand, as an operator's editor could, and return its folder."""
    folder.mkdir(mode=0o700)
    for key_id, (state, root) in keys.items():
        line = f"v1 {key_id:08x} {state} {base64.b64encode(root).decode()}\n".encode()
        descriptor = os.open(folder / f"{key_id:08x}.key", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, line)
        os.close(descriptor)
    return folder


def ring_of(folder: Path, keys: Mapping[int, tuple[str, bytes]]) -> KeyRing:
    return open_key_ring(write_keys(folder, keys))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_key_ring(tmp_path / "keys", root=CANARY, key_id=1)
    return tmp_path / "keys"


@pytest.mark.spec("SEC-03")
def test_a_new_ring_is_one_private_file_in_a_private_folder(folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [entry.name for entry in folder.iterdir()] == [NAME]
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    assert (folder / NAME).read_bytes() == b"v1 00000001 active " + base64.b64encode(CANARY) + b"\n"


def chmod_file(mode: int) -> Callable[[Path], None]:
    return lambda folder: (folder / NAME).chmod(mode)


def replace_line(old: bytes, new: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        line = (folder / NAME).read_bytes()
        assert old in line
        (folder / NAME).write_bytes(line.replace(old, new))

    return change


def symlink_key(folder: Path) -> None:
    (folder / NAME).rename(folder.parent / "elsewhere")
    (folder / NAME).symlink_to(folder.parent / "elsewhere")


def symlink_folder(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere", target_is_directory=True)


def plant_fifo(folder: Path) -> None:
    os.mkfifo(folder / "00000002.key", 0o600)


def plant_folder(folder: Path) -> None:
    (folder / "00000002.key").mkdir(mode=0o700)


def plant_second_active(folder: Path) -> None:
    line = b"v1 00000002 active " + base64.b64encode(OTHER) + b"\n"
    (folder / "00000002.key").write_bytes(line)
    (folder / "00000002.key").chmod(0o600)


def plant_repeated_root(folder: Path) -> None:
    (folder / "00000002.key").write_bytes(b"v1 00000002 open_only " + base64.b64encode(CANARY) + b"\n")
    (folder / "00000002.key").chmod(0o600)


def plant_too_many(folder: Path) -> None:
    for key_id in range(2, 66):
        (folder / f"{key_id:08x}.key").touch(mode=0o600)


ATTACKS: dict[str, tuple[Callable[[Path], object], StorageFault]] = {
    "file readable by group": (chmod_file(0o640), StorageFault.OPEN_TO_OTHERS),
    "file readable by others": (chmod_file(0o604), StorageFault.OPEN_TO_OTHERS),
    "file writable by group": (chmod_file(0o620), StorageFault.OPEN_TO_OTHERS),
    "file executable by others": (chmod_file(0o601), StorageFault.OPEN_TO_OTHERS),
    "folder readable by all": (lambda folder: folder.chmod(0o755), StorageFault.OPEN_TO_OTHERS),
    "folder searchable by others": (lambda folder: folder.chmod(0o701), StorageFault.OPEN_TO_OTHERS),
    "key is a symlink": (symlink_key, StorageFault.SYMLINK),
    "folder is a symlink": (symlink_folder, StorageFault.SYMLINK),
    "dangling symlink": (lambda f: (f / "00000002.key").symlink_to("nowhere"), StorageFault.SYMLINK),
    "second hard link": (lambda f: (f.parent / "copy").hardlink_to(f / NAME), StorageFault.HARD_LINKED),
    "fifo": (plant_fifo, StorageFault.NOT_REGULAR),
    "folder as key": (plant_folder, StorageFault.NOT_REGULAR),
    "copy of a key": (
        lambda f: (f / "00000001.key.bak").write_bytes((f / NAME).read_bytes()),
        StorageFault.UNEXPECTED_ENTRY,
    ),
    "name in capitals": (lambda f: (f / NAME).rename(f / "0000000A.key"), StorageFault.UNEXPECTED_ENTRY),
    "no key": (lambda f: (f / NAME).unlink(), StorageFault.MISSING),
    "no folder": (lambda f: f.rename(f.parent / "gone"), StorageFault.MISSING),
    "too many": (plant_too_many, StorageFault.TOO_MANY),
    "two active": (plant_second_active, StorageFault.TWO_ACTIVE_KEYS),
    "none active": (replace_line(b"active", b"open_only"), StorageFault.NO_ACTIVE_KEY),
    "only retired": (replace_line(b"active", b"retired"), StorageFault.NO_ACTIVE_KEY),
    "repeated root": (plant_repeated_root, StorageFault.REPEATED_ROOT),
    "other version": (replace_line(b"v1", b"v2"), StorageFault.MALFORMED),
    "other state": (replace_line(b"active", b"Active"), StorageFault.MALFORMED),
    "other id than its name": (replace_line(b"00000001", b"00000002"), StorageFault.MALFORMED),
    "renamed": (lambda f: (f / NAME).rename(f / "00000002.key"), StorageFault.MALFORMED),
    "no line end": (replace_line(b"\n", b""), StorageFault.MALFORMED),
    "two line ends": (replace_line(b"\n", b"\n\n"), StorageFault.MALFORMED),
    "carriage return": (replace_line(b"\n", b"\r\n"), StorageFault.MALFORMED),
    "two spaces": (replace_line(b" active ", b"  active "), StorageFault.MALFORMED),
    "empty": (lambda f: (f / NAME).write_bytes(b""), StorageFault.MALFORMED),
    "endless": (lambda f: (f / NAME).write_bytes(b"v" * 10_000), StorageFault.MALFORMED),
    "31 bytes": (
        replace_line(base64.b64encode(CANARY), base64.b64encode(CANARY[:31])),
        StorageFault.MALFORMED,
    ),
    "33 bytes": (
        replace_line(base64.b64encode(CANARY), base64.b64encode(CANARY + b"x")),
        StorageFault.MALFORMED,
    ),
    # The last character before the padding carries two unused bits: "Y" and "Z" decode alike.
    "second spelling of the same bytes": (replace_line(b"Y=\n", b"Z=\n"), StorageFault.MALFORMED),
    "url alphabet": (
        lambda f: (f / NAME).write_bytes(b"v1 00000001 active " + b"_" * 43 + b"=\n"),
        StorageFault.MALFORMED,
    ),
}


@pytest.mark.spec("SEC-03")
@pytest.mark.parametrize(("attack", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
def test_a_ring_that_is_not_exactly_right_is_refused(
    folder: Path, attack: Callable[[Path], object], reason: StorageFault
) -> None:
    open_key_ring(folder)
    attack(folder)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(folder)
    assert refused.value.reason is reason
    assert refused.value.path.is_relative_to(folder)


@pytest.mark.spec("SEC-03")
def test_a_ring_of_another_account_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(folder)
    assert refused.value.reason is StorageFault.FOREIGN_OWNER


@pytest.mark.spec("SEC-03")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_file_of_another_account_is_refused(folder: Path) -> None:
    os.chown(folder / NAME, 12_345, -1)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(folder)
    assert (refused.value.reason, refused.value.path.name) == (StorageFault.FOREIGN_OWNER, NAME)


def test_key_id_zero_names_no_key(tmp_path: Path) -> None:
    with pytest.raises(KeysUnavailable) as refused:
        ring_of(tmp_path / "keys", {0: ("active", CANARY)})
    assert refused.value.reason is StorageFault.MALFORMED


def test_a_build_without_the_cipher_is_refused_at_the_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_key: bytes) -> AESGCMSIV:
        raise UnsupportedAlgorithm("no AES-GCM-SIV")

    monkeypatch.setattr("issuer.sealing.keys.AESGCMSIV", missing)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(folder)
    assert refused.value.reason is StorageFault.CIPHER_MISSING


def test_every_reason_has_one_sentence_of_its_own_that_names_a_next_step() -> None:
    sentences = [_KEYS_SENTENCES[reason] for reason in StorageFault]
    assert len(set(sentences)) == len(sentences)
    for sentence in sentences:
        assert sentence.endswith(".")
        assert sentence.count(". ") == 0
        assert ": " in sentence


@pytest.mark.parametrize("root", [b"", CANARY[:31], CANARY + b"x", bytearray(CANARY), "x" * 32])
def test_a_root_that_is_not_32_bytes_creates_nothing(tmp_path: Path, root: bytes) -> None:
    with pytest.raises(Broken):
        create_key_ring(tmp_path / "keys", root=root, key_id=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key_id", [0, -1, 2**32, True])
def test_a_key_id_out_of_range_creates_nothing(tmp_path: Path, key_id: int) -> None:
    with pytest.raises(Broken):
        create_key_ring(tmp_path / "keys", root=CANARY, key_id=key_id)
    assert list(tmp_path.iterdir()) == []


def test_a_ring_is_never_created_over_another_one(folder: Path) -> None:
    before = (folder / NAME).read_bytes()
    for key_id in (1, 2):
        with pytest.raises(KeysUnavailable) as refused:
            create_key_ring(folder, root=OTHER, key_id=key_id)
        assert refused.value.reason is StorageFault.EXISTS
    assert (folder / NAME).read_bytes() == before
    assert len(list(folder.iterdir())) == 1


def test_a_ring_is_not_created_in_a_folder_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o755)
    with pytest.raises(KeysUnavailable) as refused:
        create_key_ring(tmp_path / "keys", root=CANARY, key_id=1)
    assert refused.value.reason is StorageFault.OPEN_TO_OTHERS
    assert list((tmp_path / "keys").iterdir()) == []


def test_a_ring_is_not_created_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "keys").symlink_to(tmp_path / "real", target_is_directory=True)
    with pytest.raises(KeysUnavailable) as refused:
        create_key_ring(tmp_path / "keys", root=CANARY, key_id=1)
    assert refused.value.reason is StorageFault.SYMLINK
    assert list((tmp_path / "real").iterdir()) == []


def test_a_failed_sync_leaves_no_key_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def failing(descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(5, "input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(KeysUnavailable) as refused:
        create_key_ring(tmp_path / "keys", root=CANARY, key_id=1)
    assert refused.value.reason is StorageFault.UNWRITABLE
    assert list((tmp_path / "keys").iterdir()) == []


def test_file_folder_and_parent_are_synced_in_this_order_of_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def watching(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to name what was synced")
    monkeypatch.setattr(os, "fsync", watching)
    create_key_ring(tmp_path / "keys", root=CANARY, key_id=1)
    assert synced == [tmp_path.name, NAME, "keys"]


def expected_subkey(root: bytes, purpose: str, key_id: int) -> bytes:
    """HKDF-SHA256 written out from RFC 5869, sections 2.2 and 2.3, independent of the library."""
    pseudo_random_key = hmac.digest(bytes(32), root, hashlib.sha256)
    info = b"permit-issuer/subkey/v1\x00" + purpose.encode() + b"\x00" + key_id.to_bytes(4, "big")
    return hmac.digest(pseudo_random_key, info + b"\x01", hashlib.sha256)


@pytest.mark.spec("PER-02")
def test_subkeys_are_as_the_format_says_and_all_differ(tmp_path: Path) -> None:
    ring = ring_of(tmp_path / "keys", {7: ("active", CANARY), 9: ("open_only", OTHER)})
    found = {
        (key_id, purpose): ring.subkey(purpose, key_id) for key_id in ring.key_ids for purpose in Purpose
    }
    assert len(set(found.values())) == 2 * len(Purpose)
    for (key_id, purpose), subkey in found.items():
        root = CANARY if key_id == 7 else OTHER
        assert subkey == expected_subkey(root, purpose.value, key_id)
        assert ring.subkey(purpose, key_id) == subkey
    assert ring.active_key_id == 7
    assert ring.subkey(Purpose.SEAL) == found[7, Purpose.SEAL]


@pytest.mark.spec("SEC-03")
def test_a_retired_key_keeps_its_macs_and_loses_its_permits(tmp_path: Path) -> None:
    ring = ring_of(tmp_path / "keys", {1: ("retired", CANARY), 2: ("active", OTHER)})
    assert ring.state(1) is KeyState.RETIRED
    for purpose in Purpose:
        if purpose is Purpose.SEAL:
            with pytest.raises(KeyUnusable):
                ring.subkey(purpose, 1)
        else:
            assert ring.subkey(purpose, 1) == expected_subkey(CANARY, purpose.value, 1)


def test_an_unknown_key_reads_like_a_retired_one(tmp_path: Path) -> None:
    ring = ring_of(tmp_path / "keys", {1: ("retired", CANARY), 2: ("active", OTHER)})
    texts = set()
    for key_id in (1, 3, 0, 2**32):
        with pytest.raises(KeyUnusable) as refused:
            ring.subkey(Purpose.SEAL, key_id)
        texts.add(str(refused.value) + repr(refused.value))
    assert len(texts) == 1
    with pytest.raises(KeyUnusable):
        ring.state(3)


def shapes_of(secret: bytes) -> list[str]:
    return [secret.decode(), secret.hex(), base64.b64encode(secret).decode()[:40], repr(secret)]


@pytest.mark.spec("SEC-01", "SEC-03")
def test_no_text_form_of_a_ring_shows_a_key(folder: Path) -> None:
    ring = open_key_ring(folder)
    ring.subkey(Purpose.SEAL)
    texts = [repr(ring), str(ring), f"{ring}", repr([ring]), repr(ring._keys)]
    for text in texts:
        assert not any(shape in text for shape in shapes_of(CANARY)), text
        assert ring.subkey(Purpose.SEAL).hex() not in text


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize("attack", [attack for attack, _ in ATTACKS.values()], ids=ATTACKS.keys())
def test_no_refusal_shows_a_key(folder: Path, attack: Callable[[Path], object]) -> None:
    attack(folder)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(folder)
    fault = refused.value
    text = " ".join((str(fault), repr(fault), repr(fault.__cause__), repr(fault.__context__)))
    assert not any(shape in text for shape in shapes_of(CANARY))


def test_a_ring_leaves_the_process_by_no_door_of_python(folder: Path) -> None:
    ring = open_key_ring(folder)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps(ring, protocol)
    for leave in (copy.copy, copy.deepcopy, hash, vars):
        with pytest.raises(TypeError):
            leave(ring)
    with pytest.raises(TypeError):
        ring.__getstate__()


def test_a_fault_survives_the_way_between_processes(folder: Path) -> None:
    (folder / NAME).chmod(0o640)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(folder)
    again = pickle.loads(pickle.dumps(refused.value))  # noqa: S301  bytes made one line above
    assert (again.reason, again.path, str(again)) == (
        refused.value.reason,
        refused.value.path,
        str(refused.value),
    )


def test_rings_are_equal_where_ids_states_and_roots_are(tmp_path: Path) -> None:
    base = {1: ("active", CANARY), 2: ("open_only", OTHER)}
    ring = ring_of(tmp_path / "a", base)
    assert ring == ring_of(tmp_path / "b", base)
    assert ring != ring_of(tmp_path / "c", {1: ("active", CANARY)})
    assert ring != ring_of(tmp_path / "d", {1: ("active", CANARY), 2: ("retired", OTHER)})
    assert ring != ring_of(tmp_path / "e", {1: ("active", CANARY), 3: ("open_only", OTHER)})
    assert ring != ring_of(tmp_path / "f", {1: ("active", CANARY), 2: ("open_only", CANARY[::-1])})
    assert ring != object()


LEDGER_ID = "led_" + "5a" * 16


@pytest.mark.spec("ADM-06", "SEC-03")
def test_a_ring_says_which_ledger_it_belongs_to_and_says_nothing_where_it_was_not_told(
    tmp_path: Path,
) -> None:
    create_key_ring(tmp_path / "bound", root=CANARY, key_id=1, ledger_id=LEDGER_ID)
    create_key_ring(tmp_path / "free", root=CANARY, key_id=1)
    assert open_key_ring(tmp_path / "bound").ledger_id == LEDGER_ID
    assert open_key_ring(tmp_path / "free").ledger_id is None
    word = tmp_path / "bound" / "ledger"
    assert word.stat().st_mode & 0o777 == 0o600
    assert CANARY.hex() not in word.read_text()


@pytest.mark.spec("ADM-06")
def test_a_ring_whose_making_was_interrupted_before_its_first_key_is_begun_anew(tmp_path: Path) -> None:
    create_key_ring(tmp_path / "keys", root=OTHER, key_id=2, ledger_id=LEDGER_ID)
    (tmp_path / "keys" / "00000002.key").unlink()
    create_key_ring(tmp_path / "keys", root=CANARY, key_id=1, ledger_id="led_" + "00" * 16)
    assert open_key_ring(tmp_path / "keys").ledger_id == "led_" + "00" * 16


@pytest.mark.spec("ADM-06", "SEC-03")
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (b"", StorageFault.MALFORMED),
        (b"v1 led_0 00000001 00\n", StorageFault.MALFORMED),
        (f"v1 {LEDGER_ID} 00000001 {'0' * 64}\n".encode(), StorageFault.UNBOUND),
        (f"v1 {LEDGER_ID} 00000009 {'0' * 64}\n".encode(), StorageFault.UNBOUND),
        (f"v1 {LEDGER_ID} 00000001 {'0' * 64}\nmore\n".encode(), StorageFault.MALFORMED),
    ],
)
def test_a_word_that_is_not_the_rings_own_refuses_the_ring(
    tmp_path: Path, word: bytes, reason: StorageFault
) -> None:
    create_key_ring(tmp_path / "keys", root=CANARY, key_id=1, ledger_id=LEDGER_ID)
    (tmp_path / "keys" / "ledger").write_bytes(word)
    with pytest.raises(KeysUnavailable) as caught:
        open_key_ring(tmp_path / "keys")
    assert caught.value.reason is reason


def test_a_ledger_id_of_another_form_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(Broken):
        create_key_ring(tmp_path / "keys", root=CANARY, key_id=1, ledger_id="led_x")
    assert list(tmp_path.iterdir()) == []
