"""HTTP document: what is taken from the body of an answer, and nothing else of it.

Decides how a JSON answer is read (EFF-05), what a pointer of the owner's finds in it (RFC 6901), which amounts count
as a charge (EFF-04), and what may be kept as a provider's own reference (EFF-09). No content of a body goes anywhere
but through these functions. Pure. Next: `issuer.operations.http_adapter`, `http_before` and `http_inspect`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ledger.canonical import WHOLE_MAX, parse_strict
from ledger.errors import Malformed

__all__ = ["ANSWER_BYTES_MAX", "MISSING", "AnswerParts", "Missing", "find", "read_document"]

ANSWER_BYTES_MAX: Final = 64 * 1024
"""Bytes of an answer that are read as JSON: the largest payload string; an answer to one request is smaller."""

_REFERENCE: Final = re.compile(r"[ -~]{1,256}")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


class Missing(Enum):
    """Stands for no value at all, which is something other than null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def read_document(body: bytes | None) -> object:
    """Return the document of a body, or `MISSING` where it was not kept or cannot be read strictly."""
    if body is None:
        return MISSING
    try:
        return parse_strict(body, bytes_max=ANSWER_BYTES_MAX)
    except Malformed:
        return MISSING


def find(document: object, pointer: str) -> object:
    """Return what a JSON pointer finds (RFC 6901, section 4), or `MISSING`; `-` and other array words find nothing."""
    here = document
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if type(here) is dict:
            here = here.get(name, MISSING)
        elif type(here) is list and _INDEX.fullmatch(name) and int(name) < len(here):
            here = here[int(name)]
        else:
            return MISSING
    return here


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerParts:
    """What an owner declared to be taken from an answer.

    Attributes:
        charged: unit to pointer of a whole amount.
        reference: pointer of the provider's own reference, or None.
    """

    charged: Mapping[str, str] = field(default_factory=dict)
    reference: str | None = None

    @property
    def are_wanted(self) -> bool:
        """Whether a body has to be read at all."""
        return bool(self.charged) or self.reference is not None

    def digest_body(self) -> dict[str, object]:
        """Return the pointers as JSON values, for an implementation digest (OPR-02)."""
        return {"charged": dict(self.charged), "reference": self.reference}

    def charge_in(self, document: object) -> Mapping[str, int] | None:
        """Return the charge for every declared unit, or None where one is no whole number from 0 to 2^53 - 1."""
        charged: dict[str, int] = {}
        for unit, pointer in self.charged.items():
            amount = find(document, pointer)
            if type(amount) is not int or not 0 <= amount <= WHOLE_MAX:
                return None
            charged[unit] = amount
        return charged

    def reference_in(self, document: object) -> str:
        """Return the provider's reference; empty where it is not 1 to 256 printable ASCII characters."""
        given = MISSING if self.reference is None else find(document, self.reference)
        return given if type(given) is str and _REFERENCE.fullmatch(given) else ""
