"""The head of the schemas that keep registers (from schema 2 on), proven as their releases did.

Rules: LED-06 (the registers of a head are proven before anything is signed anew, so that no row that was set back or
put back is made the latest). What is read here is written out, and shared with nothing that may change with a later
schema. Next: `ledger.sqlite.schema_two` and `ledger.sqlite.schema_three` say which rows their registers were over.
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ledger.canonical import canonical_bytes
from ledger.errors import LedgerCorrupt
from ledger.model import InstantMs, LedgerId
from ledger.port import Authenticator
from ledger.sqlite.earlier import EarlierHead, demand, proven_tree, readable
from ledger.timekeeping import Uptime
from ledger.transitions import Position

_BUCKETS: Final = 64
_DIGEST_BYTES: Final = 32
_REASONS: Final = {"effects": "pending_set", "tasks": "standing"}
_HEAD_COLUMNS: Final = (
    "epoch, lane, sequence, frontier, root, clock_ms, pending, standing, boot, boot_ms, mac"
)


def registered_head(
    raw: Any,  # noqa: ANN401 - untyped driver
    ledger_id: LedgerId,
    keys: Authenticator,
    registers: Mapping[str, str],
) -> EarlierHead:
    """Read the head, and check its MAC, its frontier, the length of the trail and its registers.

    `registers` gives for `effects` and `tasks` the query of the (id, MAC) rows of one bucket.

    Raises:
        LedgerCorrupt: `no_head`, `head_mac`, `frontier`, `trail_length`, `pending_set` or `standing`.
    """
    row = raw.execute(f"SELECT {_HEAD_COLUMNS} FROM head WHERE lane = 0").fetchone()
    if row is None:
        raise LedgerCorrupt("no_head", "The ledger has no head row.")
    epoch, lane, sequence, frontier, root, clock_ms, pending, standing, boot, boot_ms, mac = row
    with readable("head_unreadable"):
        signed = [
            *("head", ledger_id, epoch, lane, sequence, frontier.hex(), root.hex(), clock_ms),
            *(pending.hex(), standing.hex(), boot, boot_ms),
        ]
        demand(keys, "head", canonical_bytes(signed), mac, "head_mac")
    tree = proven_tree(raw, frontier, root, sequence)
    for kind, digest in (("effects", pending), ("tasks", standing)):
        with readable(_REASONS[kind]):
            _demand_register(raw, registers[kind], digest, _REASONS[kind])
    position = Position(ledger_id=ledger_id, epoch=epoch, lane=lane, sequence=sequence)
    uptime = Uptime(boot=boot, since_ms=boot_ms)
    return EarlierHead(position=position, frontier=tree, clock_ms=InstantMs(clock_ms), uptime=uptime)


def _demand_register(raw: Any, sql: str, digest: bytes, reason: str) -> None:  # noqa: ANN401 - untyped driver
    register = b"".join(_bucket_digest(raw.execute(sql, (bucket,))) for bucket in range(_BUCKETS))
    if not hmac.compare_digest(hashlib.sha256(register).digest(), digest):
        raise LedgerCorrupt(reason, "A row of the ledger is not the latest of it, or was removed.")


def _bucket_digest(found: Iterable[tuple[str, bytes]]) -> bytes:
    digest, is_empty = hashlib.sha256(), True
    for row_id, mac in found:
        is_empty = False
        name = row_id.encode()
        digest.update(len(name).to_bytes(2, "big") + name + len(mac).to_bytes(2, "big") + mac)
    return bytes(_DIGEST_BYTES) if is_empty else digest.digest()
