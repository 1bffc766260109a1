"""A key ring says which ledger it belongs to and which schema that has at least, and the word is its own."""

import hmac
from pathlib import Path

import pytest

from issuer.sealing import (
    KeysUnavailable,
    Purpose,
    StorageFault,
    bind_key_ring,
    create_key_ring,
    open_key_ring,
)

ROOT = b"canary-root-key-0123456789abcdef"
LEDGER_ID = "led_" + "5a" * 16


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    create_key_ring(tmp_path / "keys", root=ROOT, key_id=1)
    return tmp_path / "keys"


@pytest.mark.spec("ADM-06", "LED-04")
def test_a_ring_is_bound_to_one_ledger_and_learns_of_later_schemas_only(keys: Path) -> None:
    assert (open_key_ring(keys).ledger_id, open_key_ring(keys).ledger_schema) == (None, 0)
    for ledger_id, schema, known in (
        (LEDGER_ID, 2, 2),
        (LEDGER_ID, 3, 3),
        (LEDGER_ID, 2, 3),
        ("led_" + "00" * 16, 9, 3),
    ):
        bind_key_ring(keys, ledger_id, schema=schema)
        ring = open_key_ring(keys)
        assert (ring.ledger_id, ring.ledger_schema) == (LEDGER_ID, known)
    assert (keys / "ledger").stat().st_mode & 0o777 == 0o600


@pytest.mark.spec("LED-04")
def test_what_the_release_of_schema_2_wrote_is_read_as_that(keys: Path) -> None:
    mac = hmac.digest(
        open_key_ring(keys).subkey(Purpose.MARKS, 1), b"keys\x00" + LEDGER_ID.encode(), "sha256"
    )
    word = keys / "ledger"
    word.touch(mode=0o600)
    word.write_text(f"v1 {LEDGER_ID} 00000001 {mac.hex()}\n")
    ring = open_key_ring(keys)
    assert (ring.ledger_id, ring.ledger_schema) == (LEDGER_ID, 2)


@pytest.mark.spec("ADM-06", "LED-06")
@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("v2 2 {id} {rest}", StorageFault.UNBOUND),
        ("v2 4 {id} {rest}", StorageFault.UNBOUND),
        ("v1 {id} {rest}", StorageFault.UNBOUND),
        ("v2 03 {id} {rest}", StorageFault.MALFORMED),
        ("v2 0 {id} {rest}", StorageFault.MALFORMED),
        ("v2 {id} {rest}", StorageFault.MALFORMED),
        ("v3 3 {id} {rest}", StorageFault.MALFORMED),
    ],
)
def test_a_schema_that_was_edited_refuses_the_ring(keys: Path, changed: str, reason: StorageFault) -> None:
    bind_key_ring(keys, LEDGER_ID, schema=3)
    word = keys / "ledger"
    _version, _schema, ledger_id, rest = word.read_text().split(" ", 3)
    word.write_text(changed.format(id=ledger_id, rest=rest))
    with pytest.raises(KeysUnavailable) as caught:
        open_key_ring(keys)
    assert caught.value.reason is reason
