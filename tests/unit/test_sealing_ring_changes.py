"""A key ring is rotated, retired from and revoked from in one step each, and an opened ring follows its files."""

import base64
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.sealing import (
    KeyForbids,
    KeyRing,
    KeyState,
    KeysUnavailable,
    KeyUnusable,
    Purpose,
    StorageFault,
    begin_revocation,
    bind_key_ring,
    create_key_ring,
    end_revocation,
    open_key_ring,
    retire_key,
    rotate_key,
)
from issuer.sealing.authenticator import RingAuthenticator
from ledger.errors import Broken

LEDGER_ID = "led_" + "5a" * 16
NOW = 1_800_000_000_000
STATES = {state.value: state for state in KeyState}
DRIVES = ("open", "write", "rename", "unlink", "fsync", "scandir")
CALLS_MAX = 60


def root(number: int) -> bytes:
    return bytes([number]) * 32


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    create_key_ring(tmp_path / "keys", root=root(1), key_id=1, ledger_id=LEDGER_ID, schema=3)
    return tmp_path / "keys"


def rotate(keys: Path, number: int) -> None:
    rotate_key(keys, root=root(number), key_id=number, now_ms=NOW + number)


def states(ring: KeyRing) -> dict[int, str]:
    return {key_id: ring.state(key_id).value for key_id in ring.key_ids}


def names(keys: Path) -> list[str]:
    return sorted(entry.name for entry in keys.iterdir())


@pytest.mark.spec("SEC-03", "PER-02")
def test_a_rotation_makes_a_new_active_key_and_the_one_before_still_opens(keys: Path) -> None:
    before = open_key_ring(keys)
    sealed = {purpose: before.subkey(purpose, 1) for purpose in Purpose}
    for number in (2, 3):
        rotate(keys, number)
    ring = open_key_ring(keys)
    assert states(ring) == {1: "open_only", 2: "open_only", 3: "active"}
    assert ring.active_key_id == 3
    assert (ring.ledger_id, ring.ledger_schema) == (LEDGER_ID, 3)
    assert [ring.since_ms(number) for number in (1, 2, 3)] == [NOW + 2, NOW + 3, NOW + 3]
    assert {purpose: ring.subkey(purpose, 1) for purpose in Purpose} == sealed
    assert names(keys) == ["ledger", "ring"]
    assert stat.S_IMODE((keys / "ring").stat().st_mode) == 0o600


@pytest.mark.spec("EFF-11", "POL-02")
def test_repetition_is_counted_with_the_first_key_whatever_becomes_of_it(keys: Path) -> None:
    counting = open_key_ring(keys).subkey(Purpose.REPETITION)
    rotate(keys, 2)
    assert open_key_ring(keys).subkey(Purpose.REPETITION) == counting
    retire_key(keys, 1, now_ms=NOW)
    assert open_key_ring(keys).subkey(Purpose.REPETITION) == counting
    begin_revocation(keys, 1, root=root(3), new_key_id=3, now_ms=NOW)
    end_revocation(keys, 1, now_ms=NOW)
    ring = open_key_ring(keys)
    assert (ring.state(1), ring.repetition_key_id) == (KeyState.REVOKED, 1)
    assert ring.subkey(Purpose.REPETITION) == counting


SERVES = {
    "active": set(Purpose),
    "open_only": set(Purpose),
    "retired": set(Purpose) - {Purpose.SEAL},
    "revoking": set(Purpose) - {Purpose.SEAL},
    "revoked": {Purpose.PROTECTED, Purpose.SALTS, Purpose.REPETITION, Purpose.CHECKPOINTS},
}


def brought(keys: Path, state: str) -> None:
    """Bring key 1 to a state, beside whatever keys that takes."""
    if state == "active":
        return
    rotate(keys, 2)
    if state == "retired":
        retire_key(keys, 1, now_ms=NOW)
    if state in {"revoking", "revoked"}:
        begin_revocation(keys, 1, root=root(3), new_key_id=3, now_ms=NOW)
    if state == "revoked":
        end_revocation(keys, 1, now_ms=NOW)


@pytest.mark.spec("SEC-03", "PER-02", "LED-06")
@pytest.mark.parametrize("state", SERVES)
def test_what_a_key_may_do_is_what_its_state_says(keys: Path, state: str) -> None:
    brought(keys, state)
    ring = open_key_ring(keys)
    assert ring.state(1) is STATES[state]
    for purpose in Purpose:
        if purpose in SERVES[state]:
            assert len(ring.subkey(purpose, 1)) == 32
        else:
            with pytest.raises(KeyUnusable):
                ring.subkey(purpose, 1)


@pytest.mark.spec("SEC-03")
def test_the_keys_that_serve_a_purpose_are_told_the_active_one_first(keys: Path) -> None:
    brought(keys, "revoked")
    rotate(keys, 4)
    ring = open_key_ring(keys)
    assert ring.key_ids_for(Purpose.STATEMENTS) == (4, 2, 3)
    assert ring.key_ids_for(Purpose.PROTECTED) == (4, 1, 2, 3)
    retire_key(keys, 3, now_ms=NOW)
    ring.notice()
    assert ring.key_ids_for(Purpose.SEAL) == (4, 2)


@pytest.mark.spec("SEC-03")
@pytest.mark.parametrize(
    ("state", "change", "reason"),
    [
        ("active", "retire", "active"),
        ("revoking", "retire", "revoked"),
        ("revoked", "retire", "revoked"),
        ("active", "end", "active"),
        ("retired", "end", "active"),
    ],
)
def test_a_state_that_forbids_a_change_keeps_the_ring_as_it_is(
    keys: Path, state: str, change: str, reason: str
) -> None:
    brought(keys, state)
    before = {name: (keys / name).read_bytes() for name in names(keys)}
    made = {"retire": retire_key, "end": end_revocation}[change]
    for key_id, why in ((1, reason), (9, "unknown")):
        with pytest.raises(KeyForbids) as refused:
            made(keys, key_id, now_ms=NOW)
        assert refused.value.reason == why
    assert {name: (keys / name).read_bytes() for name in names(keys)} == before


@pytest.mark.spec("SEC-03")
def test_what_was_done_is_done_once(keys: Path) -> None:
    rotate(keys, 2)
    assert [retire_key(keys, 1, now_ms=NOW) for _ in range(2)] == [True, False]
    for number, new in ((3, True), (4, False)):
        assert begin_revocation(keys, 1, root=root(number), new_key_id=number, now_ms=NOW) is new
    assert [end_revocation(keys, 1, now_ms=NOW) for _ in range(2)] == [True, False]
    assert not begin_revocation(keys, 1, root=root(5), new_key_id=5, now_ms=NOW)
    assert states(open_key_ring(keys)) == {1: "revoked", 2: "open_only", 3: "active"}


@pytest.mark.spec("SEC-03", "ADM-06")
def test_the_word_on_the_ledger_outlives_the_key_that_gave_it(keys: Path) -> None:
    before = (keys / "ledger").read_text().split(" ")
    begin_revocation(keys, 1, root=root(2), new_key_id=2, now_ms=NOW)
    end_revocation(keys, 1, now_ms=NOW)
    after = (keys / "ledger").read_text().split(" ")
    assert (before[:3], before[3], after[3]) == (after[:3], "00000001", "00000002")
    assert open_key_ring(keys).ledger_id == LEDGER_ID


@pytest.mark.spec("SEC-03", "LED-06")
def test_a_word_of_a_revoked_key_refuses_the_ring(keys: Path) -> None:
    old = (keys / "ledger").read_bytes()
    begin_revocation(keys, 1, root=root(2), new_key_id=2, now_ms=NOW)
    end_revocation(keys, 1, now_ms=NOW)
    (keys / "ledger").write_bytes(old)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(keys)
    assert refused.value.reason is StorageFault.UNBOUND


@pytest.mark.spec("SEC-03", "LED-06")
def test_tags_of_a_revoked_key_are_refused_also_where_they_were_believed_before(keys: Path) -> None:
    ring = open_key_ring(keys)
    tags = RingAuthenticator(ring)
    row = tags.tag("row", b"row")
    assert tags.is_authentic("row", b"row", row)
    begin_revocation(keys, 1, root=root(2), new_key_id=2, now_ms=NOW)
    head = RingAuthenticator(open_key_ring(keys)).tag("head", b"head")
    assert tags.is_authentic("head", b"head", head)
    assert tags.is_authentic("row", b"row", row)
    end_revocation(keys, 1, now_ms=NOW)
    assert tags.is_authentic("head", b"head", head)
    assert not tags.is_authentic("row", b"row", row)
    assert tags.tag("row", b"row")[:4] == (2).to_bytes(4, "big")


@pytest.mark.spec("SEC-03", "LED-06")
def test_a_ring_that_was_open_before_a_rotation_knows_the_new_key_when_it_meets_it(keys: Path) -> None:
    ring = open_key_ring(keys)
    assert ring.active_key_id == 1
    rotate(keys, 2)
    assert ring.active_key_id == 1
    tag = RingAuthenticator(open_key_ring(keys)).tag("row", b"row")
    assert RingAuthenticator(ring).is_authentic("row", b"row", tag)
    assert ring.active_key_id == 2


@pytest.mark.spec("SEC-03")
@pytest.mark.parametrize("missing", [True, False])
def test_an_opened_ring_takes_nothing_from_files_that_are_not_its_own(keys: Path, missing: bool) -> None:
    ring = open_key_ring(keys)
    keys.rename(keys.with_name("away"))
    if not missing:
        create_key_ring(keys, root=root(8), key_id=8, ledger_id=LEDGER_ID, schema=3)
    ring.notice()
    assert (ring.key_ids, ring.turn) == ((1,), 0)
    with pytest.raises(KeyUnusable):
        ring.subkey(Purpose.ROW_MAC, 8)


def edited(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda keys: (keys / "ring").write_bytes(change((keys / "ring").read_bytes()))


def stray(name: str, number: int) -> Callable[[Path], object]:
    def put(keys: Path) -> None:
        line = f"v1 {name[:8]} active {base64.b64encode(root(number)).decode()}\n"
        descriptor = os.open(keys / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    return put


ATTACKS: dict[str, tuple[Callable[[Path], object], StorageFault]] = {
    "a retired key made active": (
        edited(lambda data: data.replace(b" open_only ", b" active ").replace(b"2 active", b"2 open_only")),
        StorageFault.ALTERED,
    ),
    "a state changed": (edited(lambda data: data.replace(b"open_only", b"retired")), StorageFault.ALTERED),
    "another key counts": (
        edited(lambda data: data.replace(b"1 00000001\n", b"1 00000002\n", 1)),
        StorageFault.ALTERED,
    ),
    "a key left out": (
        edited(
            lambda data: b"".join(line for line in data.splitlines(keepends=True) if b"open_only" not in line)
        ),
        StorageFault.ALTERED,
    ),
    "cut": (edited(lambda data: data[:-1]), StorageFault.MALFORMED),
    "longer": (edited(lambda data: data + b"\n"), StorageFault.MALFORMED),
    "empty": (edited(lambda _data: b""), StorageFault.MALFORMED),
    "another version": (edited(lambda data: b"v3" + data[2:]), StorageFault.MALFORMED),
    "two active": (edited(lambda data: data.replace(b"open_only", b"active")), StorageFault.TWO_ACTIVE_KEYS),
    "none active": (edited(lambda data: data.replace(b" active ", b" retired ")), StorageFault.NO_ACTIVE_KEY),
    "open to others": (lambda keys: (keys / "ring").chmod(0o640), StorageFault.OPEN_TO_OTHERS),
    "a second name": (
        lambda keys: keys.with_name("copy").hardlink_to(keys / "ring"),
        StorageFault.HARD_LINKED,
    ),
    "lost": (lambda keys: (keys / "ring").unlink(), StorageFault.MISSING),
    "a stranger beside it": (stray("00000009.key", 9), StorageFault.UNEXPECTED_ENTRY),
    "a root that is not the ring's": (stray("00000001.key", 9), StorageFault.UNEXPECTED_ENTRY),
    "a file of no name": (stray("00000001.bak", 1), StorageFault.UNEXPECTED_ENTRY),
}


@pytest.mark.spec("SEC-03", "SEC-01")
@pytest.mark.parametrize(("attack", "reason"), ATTACKS.values(), ids=ATTACKS.keys())
def test_a_changed_ring_that_was_touched_is_refused_as_a_whole(
    keys: Path, attack: Callable[[Path], object], reason: StorageFault
) -> None:
    rotate(keys, 2)
    attack(keys)
    with pytest.raises(KeysUnavailable) as refused:
        open_key_ring(keys)
    assert refused.value.reason is reason
    text = f"{refused.value!s} {refused.value!r} {refused.value.__context__!r}"
    assert not any(base64.b64encode(root(number)).decode() in text for number in (1, 2))
    with pytest.raises(KeysUnavailable):
        rotate(keys, 3)


@pytest.mark.spec("SEC-03")
def test_of_two_who_change_a_ring_at_once_one_is_told_so(keys: Path) -> None:
    holder = os.open(keys, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(KeysUnavailable) as refused:
            rotate(keys, 2)
    finally:
        os.close(holder)
    assert refused.value.reason is StorageFault.BUSY
    assert open_key_ring(keys).key_ids == (1,)
    rotate(keys, 2)
    assert open_key_ring(keys).active_key_id == 2


@pytest.mark.spec("SEC-03")
def test_a_full_ring_takes_no_further_key_and_goes_on(keys: Path) -> None:
    for number in range(2, 65):
        rotate(keys, number)
    assert (keys / "ring").stat().st_size <= 8 * 1024
    with pytest.raises(KeysUnavailable) as refused:
        rotate(keys, 65)
    assert refused.value.reason is StorageFault.TOO_MANY
    assert open_key_ring(keys).active_key_id == 64


@pytest.mark.parametrize(("number", "key_id"), [(1, 2), (2, 1), (2, 0), (2, 2**32)])
def test_a_new_key_is_new_and_in_range(keys: Path, number: int, key_id: int) -> None:
    with pytest.raises(Broken):
        rotate_key(keys, root=root(number), key_id=key_id, now_ms=NOW)
    assert names(keys) == ["00000001.key", "ledger"]


@pytest.mark.spec("SEC-03", "LED-01")
def test_a_disk_that_fails_leaves_the_old_ring(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_asked: object, **_named: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    for name in ("rename", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            with pytest.raises(KeysUnavailable) as refused:
                rotate(keys, 2)
        assert refused.value.reason is StorageFault.UNWRITABLE
        assert states(open_key_ring(keys)) == {1: "active"}
    rotate(keys, 2)
    assert states(open_key_ring(keys)) == {1: "open_only", 2: "active"}


CHANGES: dict[str, tuple[str, Callable[[Path], object], dict[int, str]]] = {
    "the first rotation": ("active", lambda keys: rotate(keys, 5), {1: "open_only", 5: "active"}),
    "a rotation": ("open_only", lambda keys: rotate(keys, 5), {1: "open_only", 2: "open_only", 5: "active"}),
    "retiring": (
        "open_only",
        lambda keys: retire_key(keys, 1, now_ms=NOW),
        {1: "retired", 2: "active"},
    ),
    "beginning a revocation": (
        "active",
        lambda keys: begin_revocation(keys, 1, root=root(5), new_key_id=5, now_ms=NOW),
        {1: "revoking", 5: "active"},
    ),
    "ending one": (
        "revoking",
        lambda keys: end_revocation(keys, 1, now_ms=NOW),
        {1: "revoked", 2: "open_only", 3: "active"},
    ),
}


def killed_at(number: int, change: Callable[[], object]) -> bool:
    """Make a change in a child that ends at its call of this number, before it is made; return whether it did."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    made = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*asked: object, **named: object) -> object:
            nonlocal made
            made += 1
            if made == number:
                os._exit(9)
            return real(*asked, **named)

        return call

    for name in (*DRIVES, "fdopen", "close", "fstat"):
        setattr(os, name, counted(getattr(os, name)))
    try:
        change()
    finally:
        os._exit(0)


@pytest.mark.spec("SEC-03", "LED-01")
@pytest.mark.parametrize(("begun", "change", "after"), CHANGES.values(), ids=CHANGES.keys())
def test_a_kill_at_any_call_leaves_one_ring_or_the_other(
    tmp_path: Path, begun: str, change: Callable[[Path], object], after: dict[int, str]
) -> None:
    left = []
    for number in range(1, CALLS_MAX):
        keys = tmp_path / f"f{number}" / "keys"
        keys.parent.mkdir()
        create_key_ring(keys, root=root(1), key_id=1, ledger_id=LEDGER_ID, schema=3)
        brought(keys, begun)
        before = states(open_key_ring(keys))
        fell = killed_at(number, lambda keys=keys: change(keys))  # type: ignore[misc]  # bound at once
        ring = open_key_ring(keys)
        assert states(ring) in (before, after), number
        assert ring.ledger_id == LEDGER_ID
        left.append(states(ring) == after)
        if not fell:
            break
        if states(ring) == before:
            change(keys)
        else:
            rotate(keys, 7)
        assert names(keys) == ["ledger", "ring"], number
    else:
        pytest.fail("the change never ended")
    assert len(left) > 15
    assert left == sorted(left), "once it is there, it stays"
    assert not left[0]
    assert left[-1]


@pytest.mark.spec("SEC-03")
def test_a_ring_that_says_nothing_of_its_ledger_is_rotated_all_the_same(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    create_key_ring(keys, root=root(1), key_id=1)
    rotate(keys, 2)
    assert (open_key_ring(keys).ledger_id, open_key_ring(keys).repetition_key_id) == (None, 1)
    bind_key_ring(keys, LEDGER_ID, schema=3)
    assert (open_key_ring(keys).ledger_id, open_key_ring(keys).repetition_key_id) == (LEDGER_ID, 1)
