"""Where the sinks stood when an epoch began: said by its first span, and believed because the ledger's head holds it.

Rules: AUD-05 (epochs), LED-08 (a restored ledger goes on in a new epoch), LED-06 (a sink is the anchor). A restore goes
back to a backup, and the sinks have seen more than that. So the first span of the new epoch names the last span of each
such sink. Nobody without the keys can make a ledger that says so, and a file that ends elsewhere does not follow it.
Pure. Next: `audit.sinks.jsonl`, which goes on from there; `audit.sinks.reading`, which follows the same joints.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from audit.sinks.lines import Tail
from ledger.transitions import TransitionName

__all__ = ["EPOCH_BEGINS", "LEFT", "Left", "left_anywhere", "left_at", "left_roots", "left_text"]

LEFT: Final = "permit.sinks.left"
"""The attribute that names them."""

EPOCH_BEGINS: Final = TransitionName.LEDGER_RESTORED
_TEXT: Final = re.compile(
    r"(?P<name>[^=]+)=(?P<epoch>[0-9]{1,16}):(?P<sequence>[0-9]{1,16}):(?P<leaf>[0-9a-f]{64}):(?P<root>[0-9a-f]{64})\Z"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """One sink as a restore found it.

    Attributes:
        name: the sink.
        tail: its last span.
        root: the tree over the backup's spans and then each later one of the sink, in order (RFC 9162 section 2.1.1).
    """

    name: str
    tail: Tail
    root: bytes


def left_text(left: Left) -> str:
    """Return a sink's place as the attribute holds it; a lane is always 0."""
    tail = left.tail
    return f"{left.name}={tail.epoch}:{tail.sequence}:{tail.leaf.hex()}:{left.root.hex()}"


def left_at(body: bytes, name: str) -> Tail | None:
    """Return where the first span of an epoch says that the sink `name` stood; None where it says nothing of it."""
    found = [tail for sink, tail in left_anywhere(body) if sink == name]
    return found[0] if len(found) == 1 else None


def left_anywhere(body: bytes) -> Sequence[tuple[str, Tail]]:
    """Return each sink that the first span of an epoch names, and where it stood; nothing where it is no such span."""
    try:
        attributes = json.loads(body)["attributes"]
        texts: Sequence[str] = attributes.get(LEFT, ())
        found = [match for text in texts if (match := _TEXT.match(text))]
    except (ValueError, TypeError, KeyError, AttributeError):
        return ()
    if attributes.get("permit.transition") != EPOCH_BEGINS:
        return ()
    return [(said["name"], _tail(said)) for said in found]


def left_roots(body: bytes, tail: Tail) -> Sequence[bytes]:
    """Return the roots that the first span of an epoch gives for the sinks that stood at `tail`."""
    if not any(stood == tail for _name, stood in left_anywhere(body)):
        return ()
    texts: Sequence[str] = json.loads(body)["attributes"][LEFT]
    found = [match for text in texts if (match := _TEXT.match(text))]
    return [bytes.fromhex(said["root"]) for said in found if _tail(said) == tail]


def _tail(said: re.Match[str]) -> Tail:
    return Tail(
        epoch=int(said["epoch"]), lane=0, sequence=int(said["sequence"]), leaf=bytes.fromhex(said["leaf"])
    )
