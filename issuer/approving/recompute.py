"""Is a statement true to itself? What an approver's own tool computes before it signs (APP-02, EFF-10).

In order:
  1. the bytes are printable ASCII, in two parts around the one separator   2. the machine part is one line of
  canonical JSON (RFC 8785; what is not ASCII stands as an escape of JSON)   3. the binding digest is that of the
  binding body, and effect and expiry are the binding's own   4. every disclosed value is what the binding commits to
  5. the human part is exactly what the machine part gives.
So whoever reads the human part has read what the digest pins, all but the secret fields, which stand as commitments.
It proves nothing about who made the statement, or that the effect exists: the issuer compares the bytes with its own
record when the signature comes. Nothing but the standard library and `ledger.canonical`.
Next: `ssh-keygen -Y sign`.
"""

import hmac
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from issuer.approving.rendering import COMMITMENT, Act, is_commitment, rendered
from ledger.canonical import canonical_bytes, digest, parse_strict
from ledger.errors import Fault, Malformed

__all__ = ["SEPARATOR", "VERSION", "StatementUntrue", "Untrue", "human_part", "machine_line", "recompute"]

VERSION: Final = 1
SEPARATOR: Final = "---------- what the tools read: leave it as it is ----------\n"
_BINDING_DOMAIN: Final = "permit-issuer/binding/v1"
_COMMITMENT_DOMAIN: Final = b"permit-issuer/commitment/v1\x00"
STATEMENT_BYTES_MAX: Final = 4 * 1024 * 1024
"""A document of the largest size, each character as the longest escape, three times over."""

_DERIVED: Final = ("actual", "destination", "preconditions", "recipients")

_KEYS: Final = frozenset(
    {
        *(
            "v",
            "act",
            "issuer",
            "ledger",
            "effect",
            "digest",
            "binding",
            "disclosed",
            "expires_ms",
            "challenge",
        ),
        *("class", "task", "answers_to", "registries", "decision", "approvers", "asked_ms", "permit_ms"),
        *("zone", "offsets"),
    }
)
_DECLINE_KEYS: Final = frozenset({"reason", "reference"})
_DECISION_KEYS: Final = frozenset({"policies", "obligations", "bundle", "earlier"})
_OFFSET_KEYS: Final = frozenset({"asked", "answer_until"})
_REGISTRY_KEYS: Final = frozenset({"row", "since"})
_SINCE_KEYS: Final = frozenset({"at_ms", "offset", "or_before", "revision"})


class Untrue(StrEnum):
    """What is wrong with a statement; the values are stable."""

    FORM = "form"
    MACHINE_PART = "machine_part"
    BINDING = "binding"
    COMMITMENT = "commitment"
    HUMAN_PART = "human_part"


class StatementUntrue(Fault):
    """A statement does not say what its binding pins, or is none; nothing may be signed."""

    blame = "caller"

    def __init__(self, word: Untrue) -> None:
        """Keep the word; nothing of the text."""
        super().__init__("The statement is not true to itself; sign nothing, and tell the owner.")
        self.args = (word,)
        self.word = word


def human_part(statement: bytes) -> str:
    """Return what a person reads of a statement that `recompute` found true."""
    return statement.decode("ascii").partition(SEPARATOR)[0]


def machine_line(machine: Mapping[str, Any]) -> str:
    r"""Return the machine part as its one line: canonical JSON in which what is not ASCII is escaped as `\u0430`."""
    body = canonical_bytes(dict(machine)).decode()
    return _ODD.sub(_unit_escapes, body) + "\n"


_OBEYED: Final = re.compile(rb"[^\n -~]")
_ODD: Final = re.compile(r"[^ -~]")


def _unit_escapes(match: re.Match[str]) -> str:
    """Return one character as JSON escapes it: its UTF-16 units (RFC 8259, section 7)."""
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def recompute(statement: bytes) -> Mapping[str, Any]:
    """Return the machine part of a statement in which everything fits together.

    Raises:
        StatementUntrue: something does not; its `word` is the first of the steps above that failed.
    """
    human, machine = _parts(statement)  # 1
    said = _read(machine)  # 2
    try:
        _demand_binding(said)  # 3
        _demand_disclosed(said)  # 4
        again = rendered(said)  # 5
    except (KeyError, TypeError, ValueError, AttributeError, Malformed):
        raise StatementUntrue(Untrue.MACHINE_PART) from None
    if again != human:
        raise StatementUntrue(Untrue.HUMAN_PART)
    return said


def _parts(statement: bytes) -> tuple[str, str]:
    if type(statement) is not bytes or len(statement) > STATEMENT_BYTES_MAX:
        raise StatementUntrue(Untrue.FORM)
    # A character that a terminal obeys would let the page show something else than what is signed.
    if _OBEYED.search(statement):
        raise StatementUntrue(Untrue.FORM)
    human, separator, machine = statement.decode("ascii").partition(SEPARATOR)
    if not separator or not human.endswith("\n"):
        raise StatementUntrue(Untrue.FORM)
    return human, machine


def _read(machine: str) -> dict[str, Any]:
    try:
        said = parse_strict(machine.encode(), bytes_max=STATEMENT_BYTES_MAX)
        if type(said) is dict and machine_line(said) == machine and said["v"] == VERSION:
            return said
    except (KeyError, Malformed):
        pass
    raise StatementUntrue(Untrue.MACHINE_PART)


def _demand_binding(said: Mapping[str, Any]) -> None:
    _demand_shape(said)
    bound = said["binding"]
    expected = digest(_BINDING_DOMAIN, canonical_bytes(bound)).hex()
    own = (bound["effect"], bound["expires_ms"])
    if said["digest"] != expected or (said["effect"], said["expires_ms"]) != own:
        raise StatementUntrue(Untrue.BINDING)


def _demand_shape(said: Mapping[str, Any]) -> None:
    """Refuse a member that nobody would read: every one is shown, or proven by the digest."""
    keys = _KEYS | (_DECLINE_KEYS if Act(said["act"]) is Act.DECLINE else frozenset())
    shapes = [(said, keys), (said["decision"], _DECISION_KEYS), (said["offsets"], _OFFSET_KEYS)]
    for fact in said["registries"].values():
        shapes += [(fact, _REGISTRY_KEYS), (fact["since"], _SINCE_KEYS)]
    if any(value.keys() != keys for value, keys in shapes):
        raise StatementUntrue(Untrue.MACHINE_PART)


def _demand_disclosed(said: Mapping[str, Any]) -> None:
    """Hold every disclosed value to its commitment; a commitment without a value may stand for a secret only."""
    bound, disclosed = said["binding"], said["disclosed"]
    places = {f"payload.{name}": value for name, value in bound["payload"].items()}
    places |= {part: bound[part] for part in _DERIVED} | {"resource_id": bound["resource"]["id"]}
    committed = {part: value for part, value in places.items() if is_commitment(value)}
    if not disclosed.keys() <= committed.keys():
        raise StatementUntrue(Untrue.COMMITMENT)
    for part, shown in disclosed.items():
        if shown.keys() != {"salt", "value"}:
            raise StatementUntrue(Untrue.COMMITMENT)
        salt = bytes.fromhex(shown["salt"])
        if (
            salt.hex() != shown["salt"]
            or _commitment(salt, part, shown["value"]) != committed[part][COMMITMENT]
        ):
            raise StatementUntrue(Untrue.COMMITMENT)


def _commitment(salt: bytes, part: str, value: object) -> str:
    """Return the commitment to one part (EFF-10): the same bytes as `issuer.sealing.commit`."""
    body = _COMMITMENT_DOMAIN + len(salt).to_bytes(2, "big") + canonical_bytes([part, value])
    return hmac.digest(salt, body, "sha256").hex()
