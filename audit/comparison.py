"""Does the body of a span say what the columns beside it say? Asked for every span, so it is quick.

Rules: AUD-01, AUD-05, LED-06. Columns are what the ledger finds spans by; only the body is in the tree. One that was
edited is seen here. The body must be the one encoding of its document (`ledger.canonical`), which encoding it again
shows; its domain was judged when it was recorded, and the tree proves the bytes since.
"""

import json
from typing import Any, Final, NoReturn

from ledger.model import SpanRow

__all__ = ["span_holds"]

NS_PER_MS: Final = 1_000_000


def _refuse(_literal: str) -> NoReturn:
    raise ValueError("a span holds no such number")


_DECODER: Final = json.JSONDecoder(parse_float=_refuse, parse_constant=_refuse)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def span_holds(row: SpanRow, effect_id: str | None, state_to: str | None) -> bool:
    """Say whether a span's body is canonical and names its row's position, ids, name, story, effect and new state.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the body is no span at all.
    """
    text = row.body.decode()
    document: dict[str, Any] = _DECODER.decode(text)
    # Astral keys would sort otherwise in RFC 8785; no span has them, and such a body is refused with the rest.
    if _ENCODER.encode(document) != text:
        return False
    held: dict[str, Any] = document["attributes"]
    place = row.position
    said = (
        document["span"],
        document["trace"],
        document["start"],
        document["name"],
        held["permit.transition"],
        *(held[f"permit.{name}"] for name in ("ledger.id", "epoch", "lane", "sequence", "story")),
        held.get("permit.effect.id"),
        held.get("permit.state.to"),
    )
    stored = (
        row.span_id,
        row.trace_id,
        str(row.at_ms * NS_PER_MS),
        f"permit.{row.name}",
        row.name,
        *(place.ledger_id, place.epoch, place.lane, place.sequence, row.story),
        effect_id,
        state_to,
    )
    return said == stored
