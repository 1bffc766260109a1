"""Registers over the rows that give authority as they stand now, kept in the head: none can be set back or put back.

Rules: LED-06 (who can write the file but lacks the keys gains nothing), ADM-02, BUD-05. An earlier version of a row is
authentic for ever: a task from before it was closed, an effect from before it was admitted. And rows can be deleted, so
that something was never used must not rest on absence. So the head, under its MAC, says which rows stand: the tasks as
they are now with the open invocations and the rulings, and the effects that may still be admitted. Rows fall into
buckets by their id; a register holds a digest of each bucket, and the head one of each register, so that proving one
row reads its bucket only (LED-07; ADR-0010).
Pure; `ledger.sqlite.register` reads and renews them.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Final


class Standing(StrEnum):
    """Which rows a register is about."""

    TASKS = "tasks"
    EFFECTS = "effects"


BUCKETS: Final = 64
"""So that a register fits a page of the file, and 10,000 rows make buckets of some 160."""

DIGEST_BYTES: Final = 32
REGISTER_BYTES: Final = BUCKETS * DIGEST_BYTES
EMPTY_REGISTER: Final = bytes(REGISTER_BYTES)
_ID_DIGITS: Final = slice(4, 6)


def bucket_of(row_id: str) -> int:
    """Return the bucket of a row by its random id (`tsk_`, `inv_`, `rul_` or `eff_` and 32 hex digits)."""
    return int(row_id[_ID_DIGITS], 16) % BUCKETS


def bucket_digest(rows: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the digest over the (id, MAC) pairs of one bucket, in the order of the ids; zeros for an empty one."""
    digest, is_empty = hashlib.sha256(), True
    for row_id, mac in rows:
        is_empty = False
        name = row_id.encode()
        digest.update(len(name).to_bytes(2, "big") + name + len(mac).to_bytes(2, "big") + mac)
    return bytes(DIGEST_BYTES) if is_empty else digest.digest()


def bucket_in(register: bytes, bucket: int) -> bytes:
    """Return the digest that the register holds for a bucket."""
    return register[bucket * DIGEST_BYTES : (bucket + 1) * DIGEST_BYTES]


def with_bucket(register: bytes, bucket: int, digest: bytes) -> bytes:
    """Return the register after one bucket changed."""
    start = bucket * DIGEST_BYTES
    return register[:start] + digest + register[start + DIGEST_BYTES :]


def register_digest(register: bytes) -> bytes:
    """Return what the head holds of a register."""
    return hashlib.sha256(register).digest()
