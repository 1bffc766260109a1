"""What the schemas of earlier releases have in common for whoever takes them over.

Rules: LED-06 (a row gets its new MAC only after the old one was proven, and from the key that made the old one: an
upgrade makes nothing good, and vouches for nothing that an old key signed), LED-04.
It decides nothing. Next: `ledger.sqlite.schema_one` and its neighbours, one module per earlier schema.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from ledger.errors import LedgerCorrupt
from ledger.model import InstantMs, LedgerId
from ledger.port import Authenticator
from ledger.sqlite.check_ground import UNREADABLE
from ledger.timekeeping import NO_UPTIME, Uptime
from ledger.transitions import Position
from ledger.tree import Frontier, decoded_frontier

RENAMED: Final = "before_"
"""What stands before the name of an old table while its rows are taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierHead:
    """The head of a ledger of an earlier schema, proven; what that schema did not keep is left out.

    What schema 1 summed up over effects that may still be admitted is left behind: the trail, which the full check of
    an upgrade recomputes under the head's root, tells of each effect where it stands.
    """

    position: Position
    frontier: Frontier
    clock_ms: InstantMs
    uptime: Uptime = NO_UPTIME


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """One earlier schema.

    Attributes:
        number: its `PRAGMA user_version`.
        digest: of its statements, as its release made them (`ledger.sqlite.schema.schema_digest`).
        proven_head: reads the head as that release did, or raises `LedgerCorrupt`.
        take_over: fills the tables of this schema whose rows change from the old ones, and names them.
    """

    number: int
    digest: str
    proven_head: Callable[[Any, LedgerId, Authenticator], EarlierHead]
    take_over: Callable[[Any, Authenticator], frozenset[str]]


def proven_tree(raw: Any, frontier: bytes, root: bytes, sequence: int) -> Frontier:  # noqa: ANN401 - untyped driver
    """Return the tree of the spans after it was held against the root and the length of the trail.

    Raises:
        LedgerCorrupt: `frontier` or `trail_length`.
    """
    try:
        tree = decoded_frontier(frontier)
    except ValueError:
        raise LedgerCorrupt("frontier", "The tree of the ledger's spans is damaged.") from None
    last = raw.execute("SELECT max(sequence) FROM spans").fetchone()[0] or 0
    if not tree.size == sequence == last or tree.root() != root:
        raise LedgerCorrupt("trail_length", "The ledger's trail does not end where its head says.")
    return tree


def take_over_evidence(raw: Any) -> None:  # noqa: ANN401 - untyped driver
    """Take evidence over; what it said of costs was not on record before schema 3."""
    columns = "effect_id, sequence, class, source, proves, reference, late, at_ms"
    raw.execute(f"INSERT INTO evidence({columns}, charged) SELECT {columns}, '{{}}' FROM {RENAMED}evidence")


def insert(raw: Any, table: str, columns: str, values: tuple[Any, ...]) -> None:  # noqa: ANN401 - untyped driver
    """Insert one row."""
    marks = ", ".join("?" * len(values))
    raw.execute(f"INSERT INTO {table}({columns}) VALUES ({marks})", values)


def demand(keys: Authenticator, domain: str, signed: bytes, mac: bytes, reason: str) -> None:
    """Return if `mac` is over `signed`.

    Raises:
        LedgerCorrupt: with `reason`; somebody without the keys changed it.
    """
    if not keys.is_authentic(domain, signed, mac):
        raise LedgerCorrupt(reason, "A row of the ledger was changed by someone without the keys.")


@contextmanager
def readable(reason: str) -> Iterator[None]:
    """Turn whatever a row that was never written raises into `LedgerCorrupt` with `reason`."""
    try:
        yield
    except LedgerCorrupt:
        raise
    except UNREADABLE:
        raise LedgerCorrupt(reason, "A row of the ledger cannot be read.") from None
