"""The part of a statement that a person reads: a pure function of its machine part, a line for every value (APP-02).

Rules:
1. Every value of the machine part stands here or is proven by the binding digest: what is not shown cannot be signed.
2. A line is `name: value`. What goes on begins with four spaces and a quote, a mark with two spaces and `!`; values are
   escaped (`issuer.approving.escaping`) and no line is broken by a terminal, so that no value makes a line. Nothing is
   cut.
3. Text is quoted and numbers are not; money is also written as people write it, by whole-number arithmetic; instants
   are RFC 3339 in UTC, and beside it as the owner's clock shows them.
4. A row of the owner's registry says since when it is so, and has a mark where that is not long: an account that was
   changed an hour ago is what a person must notice.
5. The order is fixed: what is done to what, for how much, who asks for whom, what decided, who answers until when.
Nothing but the standard library, so that an approver's own tool can render it too.
Next: `issuer.approving.recompute` compares it with what was handed over.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from issuer.approving.escaping import escaped, marks, quoted_lines

__all__ = ["COMMITMENT", "Act", "amount_words", "rendered"]

COMMITMENT: Final = "commitment"
"""The one member of a binding's part that is not in clear."""

COLUMNS: Final = 79
"""Characters of a line with somebody else's words in it: no terminal of 80 columns breaks it."""

_CENT: Final = ".cent"
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_COMMITTED: Final = re.compile(r"[0-9a-f]{64}\Z")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999 - 24 * 3_600_000
"""A day before the end of the year 9999, so that every clock can show it."""

FRESH_MS: Final = 7 * 86_400_000
"""Age, when people were asked, up to which a changed row is marked: somebody back from a week away still sees it."""

_HOUR_MS: Final = 3_600_000
_HOURS_SHOWN: Final = 48
"""Up to how many hours an age is told in hours; beyond, in days."""

Machine = Mapping[str, Any]


class Act(StrEnum):
    """What a statement says that a person does."""

    APPROVE = "approve"
    DECLINE = "decline"


_SAYS: Final = {
    Act.APPROVE: "I approve exactly this effect, once, with this binding, until it expires.",
    Act.DECLINE: "I decline exactly this effect. It is over with that.",
}


def amount_words(unit: str, amount: int) -> str:
    """Return an amount as people write it: `900.00 EUR` for 90000 of `EUR.cent`, else `3 publish`."""
    if unit.endswith(_CENT):
        sign, whole = ("-" if amount < 0 else ""), abs(amount)
        return f"{sign}{whole // 100}.{whole % 100:02d} {unit.removesuffix(_CENT)}"
    return f"{amount} {unit}"


def rendered(machine: Machine) -> str:
    """Return the human part of a statement, with its last line end; printable ASCII only.

    Raises:
        KeyError, TypeError, ValueError: the machine part has another shape.
    """
    act = Act(machine["act"])
    lines = [f"permit-issuer statement v{machine['v']}: {act}", _SAYS[act], ""]
    for title, section in (
        ("what", _what(machine)),
        ("who asks", _who(machine)),
        ("what decided", _decided(machine)),
        ("who answers", _answers(machine)),
        ("which one", _which(machine)),
    ):
        lines += [f"[{title}]", *section, ""]
    return "\n".join(lines)


def _what(machine: Machine) -> Iterator[str]:
    bound = machine["binding"]
    operation, resource = bound["operation"], bound["resource"]
    yield from _line("operation", operation["id"])
    yield from _line("operation.version", operation["version"])
    yield from _line("class", machine["class"])
    yield from _line("resource.type", resource["type"])
    yield from _opened("resource.id", resource["id"], machine, "resource_id")
    for name, value in sorted(bound["payload"].items()):
        yield from _opened(f"payload.{_key(name)}", value, machine, f"payload.{name}")
    for field, row in sorted(machine["registries"].items()):
        for column, value in sorted(row["row"].items()):
            yield from _line(f"registry.{_key(field)}.{_key(column)}", value)
        yield from _since(f"registry.{_key(field)}.since", row["since"], machine)
    for part in ("recipients", "destination", "actual", "preconditions"):
        yield from _opened(part, bound[part], machine, part)
    for unit, amount in sorted(bound["cost"].items()):
        yield f"cost_at_most: {escaped(amount_words(unit, _whole(amount)))} ({amount} {escaped(unit)})"


def _since(name: str, since: Mapping[str, Any], machine: Machine) -> Iterator[str]:
    """Yield since when a row is exactly as it is, a mark where that is not long, and with which revision it began."""
    if type(since["or_before"]) is not bool:
        raise TypeError
    told = f"{name}: {_instant(since['at_ms'], since['offset'])} {_text(machine['zone'])}"
    yield f"{told}, or before" if since["or_before"] else told
    age = max(0, _whole(machine["asked_ms"]) - _whole(since["at_ms"]))
    if age <= FRESH_MS:
        words = "known here for" if since["or_before"] else "changed"
        yield f"  ! {words} {_age(age)}" + ("" if since["or_before"] else " ago")
    yield from _line(f"{name}_revision", since["revision"])


def _age(age_ms: int) -> str:
    """Return an age in whole hours, or days where it is more than two; rounded down."""
    hours = age_ms // _HOUR_MS
    if hours == 0:
        return "less than an hour"
    count, unit = (hours, "hour") if hours <= _HOURS_SHOWN else (hours // 24, "day")
    return f"{count} {unit}{'' if count == 1 else 's'}"


def _who(machine: Machine) -> Iterator[str]:
    bound = machine["binding"]
    for name, value in (
        *(("actor", bound["actor"]), ("answers_to", machine["answers_to"]), ("subject", bound["subject"])),
        *(("caller", bound["caller"]), ("task", machine["task"]), ("invocation", bound["invocation"])),
    ):
        yield from _line(name, value)


def _decided(machine: Machine) -> Iterator[str]:
    decision = machine["decision"]
    for name in ("policies", "obligations"):
        yield from _lines(name, decision[name])
    yield from _line("bundle", decision["bundle"])
    yield from _line("owner_revision", machine["binding"]["revision"])
    for name, count in sorted(decision["earlier"].items()):
        yield from _line(f"earlier.{_key(name)}", _whole(count))


def _answers(machine: Machine) -> Iterator[str]:
    for group, count in sorted(machine["approvers"].items()):
        yield f"approvers.{_key(group)}: {_whole(count)}"
    if machine["act"] == Act.DECLINE:
        yield from _line("reason", machine["reason"])
        yield from _line("reference", machine["reference"])
    for name, instant in (("asked", machine["asked_ms"]), ("answer_until", machine["expires_ms"])):
        yield f"{name}: {_instant(instant, machine['offsets'][name])} {_text(machine['zone'])}"
    lasts = _duration(_whole(machine["permit_ms"]))
    yield f"permit_then_lasts_at_most: {lasts}, and never beyond answer_until"


def _which(machine: Machine) -> Iterator[str]:
    bound = machine["binding"]
    for name, value in (
        *(("issuer", machine["issuer"]), ("ledger", machine["ledger"]), ("effect", machine["effect"])),
        *(("binding_digest", machine["digest"]), ("binding_version", bound["v"]), ("task_id", bound["task"])),
        *(("contract", bound["operation"]["contract"]), ("adapter", bound["operation"]["adapter"])),
        *(("implementation", bound["operation"]["implementation"]), ("challenge", machine["challenge"])),
    ):
        yield from _line(name, value)


def _opened(name: str, bound: object, machine: Machine, part: str) -> Iterator[str]:
    """Yield a part of the binding in clear where it is disclosed, or as what stands for it."""
    if not is_commitment(bound):
        yield from _lines(name, bound)
    elif part in machine["disclosed"]:
        yield from _lines(name, machine["disclosed"][part]["value"])
    else:
        yield f"{name}: secret, commitment {_text(_committed(bound))}"


def _committed(bound: object) -> object:
    return bound[COMMITMENT] if isinstance(bound, dict) else None


def is_commitment(value: object) -> bool:
    """Say whether a part of a binding is a commitment, and not a value in clear."""
    if type(value) is not dict or value.keys() != {COMMITMENT}:
        return False
    said = value[COMMITMENT]
    return type(said) is str and _COMMITTED.match(said) is not None


def _lines(name: str, value: object) -> Iterator[str]:
    """Yield a value with everything in it: a line for each leaf, and for what is empty."""
    if type(value) is dict and value:
        for key, member in sorted(value.items()):
            yield from _lines(f"{name}.{_key(key)}", member)
    elif type(value) is list and value:
        for index, member in enumerate(value):
            yield from _lines(f"{name}[{index}]", member)
    else:
        yield from _line(name, value)


def _line(name: str, value: object) -> Iterator[str]:
    if type(value) is not str:
        yield f"{name}: {_scalar(value)}"
        return
    pieces = quoted_lines(value)
    if len(name) + len(": ") + len(pieces[0]) <= COLUMNS or _COMMITTED.match(value):
        yield f"{name}: {pieces.pop(0)}"
    else:
        # A terminal would break it, and what stands after the break would look like a line of its own.
        yield f"{name}:"
    yield from (f"    {line}" for line in pieces)
    yield from (f"  ! {mark}" for mark in marks(value))


def _scalar(value: object) -> str:
    match value:
        case None:
            return "none"
        case True | False:
            return "yes" if value else "no"
        case dict() | list():
            return "nothing"
        case _:
            return str(_whole(value))


def _whole(value: object) -> int:
    if type(value) is not int:
        raise TypeError
    return value


def _text(value: object) -> str:
    if type(value) is not str:
        raise TypeError
    return escaped(value)


def _key(name: object) -> str:
    """Return the name of a member: as it is where it is plain, else quoted, so that it makes no other path."""
    if type(name) is not str:
        raise TypeError
    return name if _PLAIN_KEY.match(name) else f'"{escaped(name)}"'


def _instant(at_ms: object, offset_min: object) -> str:
    """Return an instant as `2026-12-01T09:00:00.000Z (2026-12-01 10:00:00 +01:00)`."""
    instant, offset = _whole(at_ms), _whole(offset_min)
    if not 0 <= instant <= _LAST_MS or abs(offset) >= 24 * 60:
        raise ValueError
    moment = _EPOCH + timedelta(milliseconds=instant)
    local = moment + timedelta(minutes=offset)
    sign, minutes = ("-" if offset < 0 else "+"), abs(offset)
    utc = f"{moment:%Y-%m-%dT%H:%M:%S}.{instant % 1000:03d}Z"
    return f"{utc} ({local:%Y-%m-%d %H:%M:%S} {sign}{minutes // 60:02d}:{minutes % 60:02d})"


def _duration(length_ms: int) -> str:
    """Return a length of time exactly: days, hours, minutes, seconds, and milliseconds where there are some."""
    parts: Sequence[tuple[str, int]] = (
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    )
    words = []
    for unit, size in parts:
        count, length_ms = divmod(length_ms, size)
        if count:
            words.append(f"{count}{unit}")
    return " ".join(words) or "0s"
