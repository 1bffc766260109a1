"""HTTP inspection: one read, later, that finds out what became of an effect, whoever sent it.

Decides what was seen, and nothing about what follows from it. Rules: REC-01 (bounded, starts nothing again), REC-02
(an error, an empty answer, 401, 429, a timeout or a redirect never release anything), REC-05, ADR-0022.

| the service | seen |
|---|---|
| 2xx, strict JSON, the pointer finds what was asked for | `found` |
| 2xx, strict JSON, the pointer finds something else | `differs` |
| 404, 410, or 2xx strict JSON that has the place to look at, and the pointer finds nothing in it | `absent` |
| anything else, and whatever cannot be read | `unclear` |

The place is the list (for a number) or object that the pointer's first part leads to. An answer without it, such as
`{}` or an error that was sent as a success, is about something else and shows no absence; neither does an entry in the
place that is there and lacks what the rest of the pointer looks for. Without `equals`, null, false, 0 and what is
empty stand for nothing and are `unclear`: services write them both for "no such thing" and for "there, without one".
Where a declared charge cannot be read, what was found is `unclear` as well. The host is resolved at inspection, and
only the owner's literal origin is asked. Next: reconciliation.
"""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from issuer.operations.contract import Inspection, Look, PreparationRefusedError, Seen, TargetUnreadableError
from issuer.operations.http_answer import ReceivedAnswer
from issuer.operations.http_document import MISSING, AnswerParts, find, read_document
from issuer.operations.http_read import HttpReader
from issuer.operations.http_target import fill_effect_id
from issuer.operations.templates import Template

__all__ = ["HttpInspector", "InspectSettings"]

_GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_SUCCESSES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectSettings:
    """What an owner declared to be looked for.

    Attributes:
        found: JSON pointer of where the answer shows the effect (RFC 6901).
        equals: what has to stand there, or None for anything that is not empty; a lone placeholder keeps its type.
        parts: what else is taken from an answer that shows it.
    """

    found: str
    equals: Template | None = None
    parts: AnswerParts = field(default_factory=AnswerParts)


class HttpInspector:
    """Implements `contract.Inspector`."""

    def __init__(self, settings: InspectSettings, reader: HttpReader) -> None:
        """Take what is looked for, and the reader for the owner's address."""
        self._settings = settings
        self._reader = reader

    def inspect(self, look: Look) -> Inspection:
        """Look once, within `remaining_ms` of the look; whatever the service does is an answer."""
        seconds = look.remaining_ms / 1000
        if seconds <= 0:
            return Inspection(seen=Seen.UNCLEAR, source="http:timeout")
        try:
            target = fill_effect_id(self._reader.target(look.request), look.effect_id)
            received = self._reader.get(target, None, seconds=seconds)
        except TargetUnreadableError as fault:
            return Inspection(seen=Seen.UNCLEAR, source=f"http:{fault.reason}")
        except PreparationRefusedError as fault:
            # The values of this effect make no address, so nobody was asked.
            return Inspection(seen=Seen.UNCLEAR, source=f"http:{fault.code}")
        return self._read(look, received)

    def _read(self, look: Look, received: ReceivedAnswer) -> Inspection:
        """Return what one whole answer shows."""
        source = f"http:{received.status}"
        if received.status in _GONE:
            return Inspection(seen=Seen.ABSENT, source=source)
        document: object = MISSING
        if received.status // 100 == _SUCCESSES and received.status != HTTPStatus.PARTIAL_CONTENT:
            document = read_document(received.body)
        if document is MISSING:
            return Inspection(seen=Seen.UNCLEAR, source=source)
        seen = self._seen(look, document)
        if seen is not Seen.FOUND:
            return Inspection(seen=seen, source=source)
        parts = self._settings.parts
        charged = parts.charge_in(document) if parts.charged else None
        if parts.charged and charged is None:
            return Inspection(seen=Seen.UNCLEAR, source=f"{source}:no_charge")
        reference = parts.reference_in(document)
        if self._reader.is_repeating_credential(reference):
            reference = ""
        return Inspection(seen=seen, source=source, reference=reference, charged=charged)

    def _seen(self, look: Look, document: object) -> Seen:
        """Judge what the pointer finds."""
        pointer = self._settings.found
        value = find(document, pointer)
        if value is MISSING:
            return Seen.ABSENT if _has_place(document, pointer) else Seen.UNCLEAR
        if self._settings.equals is None:
            return Seen.UNCLEAR if _is_nothing(value) else Seen.FOUND
        request = look.request
        wanted = self._settings.equals.render_value(request.values, request.registries, look.effect_id)
        # Of the same type: a service that writes 1 for true, or "1" for 1, has said something else.
        return Seen.FOUND if type(value) is type(wanted) and value == wanted else Seen.DIFFERS


def _has_place(document: object, pointer: str) -> bool:
    """Whether an answer has the list or object in which the pointer looks, and nothing there where it looks.

    An entry that is there, without what is looked for inside it, is of another form than the owner knew.
    """
    first, *further = pointer.split("/")[1:]
    if type(document) is list:
        return first.isdecimal() and find(document, f"/{first}") is MISSING
    place, entry = find(document, f"/{first}"), "/".join(("", first, *further[:1]))
    kind = list if further and further[0].isdecimal() else dict
    return bool(further) and type(place) is kind and find(document, entry) is MISSING


def _is_nothing(value: object) -> bool:
    """Whether services write this for "none" as well."""
    return value is None or value in (False, 0, "", [], {})
