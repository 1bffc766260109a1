"""An answer to a reviewer in the form that was asked for: lines for people, JSON Lines, CSV, or OTLP as JSON (AUD-07).

Rules: SUR-03, AUD-07 (spans have one shape everywhere), SEC-01. A cell that a spreadsheet would take for a formula is
given an apostrophe (OWASP, "CSV Injection"), also where one would begin behind a semicolon; the rest is RFC 4180. No
text holds what a terminal acts on: it is escaped in cells, and JSON is ASCII but for the lines of spans, which are
those of the sink, byte for byte.
An answer of spans gives those; one of rows gives rows as JSON Lines, and the spans that they rest on as OTLP.
Next: `issuer.commands.auditing`.
"""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from audit import readable_line
from audit.queries import DECISIONS, Found
from audit.sinks.lines import span_line
from issuer.clock import instant_text
from ledger.errors import LedgerCorrupt, Malformed

FORMS: Final = ("table", "jsonl", "csv", "otlp-json")

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a cell begins that a spreadsheet calculates (OWASP), the wide forms of the same signs among them."""

_AFTER_SEPARATOR: Final = re.compile(r"([;|][\s\"']*)(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet that takes semicolons for separators, as in much of Europe, begins a cell that it calculates."""

SPAN_COLUMNS: Final = (
    *("sequence", "epoch", "at", "name", "decision", "effect", "from", "to", "actor", "subject", "caller"),
    *("task", "task_id", "operation", "resource_type", "resource", "tier", "policies", "refusal", "field"),
    *("reason", "signer", "approvals", "cost", "charged", "command", "count"),
)
_DECISION_OF: Final[Mapping[str, str]] = {str(name): word for word, name in DECISIONS.items()}
_SAID: Final = {
    "effect": "effect.id",
    "task": "task.name",
    "task_id": "task.id",
    "resource_type": "resource.type",
    "resource": "resource.id",
    "policies": "policy.ids",
    "field": "refusal.field",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """An answer before it has a form.

    Attributes:
        rows: what JSON shows, one object a row.
        lines: what people read.
        columns: the names of the cells of a row in CSV, in order.
        spans: the spans that the rows tell of, or rest on.
        of_spans: whether each row is one span.
    """

    rows: Sequence[Mapping[str, object]]
    lines: Sequence[str]
    columns: tuple[str, ...]
    spans: tuple[Found, ...]
    of_spans: bool = False
    totals: Mapping[str, object] = field(default_factory=dict)


def demand_form(form: str) -> str:
    """Return a form that there is.

    Raises:
        Malformed: `not_one_of`.
    """
    if form not in FORMS:
        raise Malformed("not_one_of", "format", f"a format is one of {', '.join(FORMS)}")
    return form


def text_in(form: str, sheet: Sheet) -> str:
    """Return an answer as `jsonl`, `csv` or `otlp-json`.

    Raises:
        LedgerCorrupt: a span is not what was recorded.
    """
    if form == "csv":
        rows = map(flat_span, sheet.spans) if sheet.of_spans else sheet.rows
        return csv_text(sheet.columns, rows)
    if form == "otlp-json":
        return otlp_text(sheet.spans)
    if sheet.of_spans:
        return "".join(span_text(found) for found in sheet.spans)
    return "".join(json.dumps(row) + "\n" for row in sheet.rows)


def span_text(found: Found) -> str:
    """Return a span as the line that the JSONL sink has of it; an altered one has its place alone.

    Raises:
        LedgerCorrupt: it is not what was recorded.
    """
    if found.is_altered:
        return json.dumps({"altered": True, "sequence": found.sequence}) + "\n"
    try:
        return span_line(found.row).decode("utf-8")
    except ValueError:
        say = f"The span at {found.sequence} has no place in a line."
        raise LedgerCorrupt("span_differs", say) from None


def otlp_text(spans: Iterable[Found]) -> str:
    """Return spans as one OTLP export request in JSON, with a newline.

    Raises:
        LedgerCorrupt: as `span_text`.
    """
    # It loads protobuf, which only who asks for this form should pay for.
    from audit.otlp import request_json  # noqa: PLC0415

    try:
        return request_json(found.row.body for found in spans) + "\n"
    except ValueError:
        raise LedgerCorrupt("span_unreadable", "A span has no form in OTLP.") from None


def csv_text(columns: tuple[str, ...], rows: Iterable[Mapping[str, object]], *, headed: bool = True) -> str:
    """Return rows as CSV (RFC 4180) that no spreadsheet calculates with."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    if headed:
        writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(row.get(column)) for column in columns])
    return written.getvalue()


def cell(value: object) -> str:
    """Return a value as a cell: a list by commas, amounts as `EUR.cent=900`, nothing as nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return cell([f"{name}={amount}" for name, amount in value.items()])
    if isinstance(value, list | tuple):
        return _harmless(",".join(str(item) for item in value))
    return _harmless(str(value))


def _harmless(text: str) -> str:
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    shown = _AFTER_SEPARATOR.sub(r"\1'", shown)
    return f"'{shown}" if text.startswith(_FORMULA) or shown.startswith(_FORMULA) else shown


def flat_span(found: Found) -> dict[str, object]:
    """Return a span as one flat row, its columns those of `SPAN_COLUMNS`."""
    row: dict[str, object] = {name: found.said(_SAID.get(name, name)) for name in SPAN_COLUMNS}
    entry = found.entry
    row.update(
        sequence=found.sequence,
        epoch=entry.epoch,
        at=instant_text(entry.at_ms),
        name=entry.name,
        decision=_DECISION_OF.get(entry.name),
    )
    row["from"], row["to"] = entry.state_from, entry.state_to
    return row


def span_row(found: Found) -> dict[str, object]:
    """Return a span as one JSON object, with everything that it says."""
    entry = found.entry
    return {
        "sequence": found.sequence,
        "epoch": entry.epoch,
        "at": instant_text(entry.at_ms),
        "name": entry.name,
        "effect": found.text("effect.id"),
        "from": entry.state_from,
        "to": entry.state_to,
        "attributes": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in entry.attributes.items()
        },
    }


_NOT_SHOWN: Final = frozenset(
    {
        *("permit.binding.digest", "permit.bundle.digest", "permit.revision", "permit.instance"),
        *("permit.engine", "permit.root.id", "permit.mode", "permit.content.key", "permit.resource.key"),
        *("permit.ledger.id", "permit.epoch", "permit.lane", "permit.sequence", "permit.transition"),
        *("permit.story", "permit.state.from", "permit.state.to", "permit.task.id", "permit.class"),
        *("permit.expires_ms", "permit.deadline_ms", "permit.permit.id", "permit.reservation"),
        *("permit.filter.digest", "permit.resource.type", "permit.statement.digest", "permit.late"),
        *("permit.key.fingerprint", "permit.operation.version"),
    }
)
"""What a person does not read on a line; JSON has all of it."""


def span_sheet(spans: Sequence[Found]) -> Sheet:
    """Return an answer that is spans."""
    return Sheet(
        rows=[span_row(found) for found in spans],
        lines=[_line(found) for found in spans],
        columns=SPAN_COLUMNS,
        spans=tuple(spans),
        of_spans=True,
    )


def _line(found: Found) -> str:
    kept = {name: value for name, value in found.entry.attributes.items() if name not in _NOT_SHOWN}
    effect = found.text("effect.id")
    # An effect's id is left out of a line by `readable_line`, which tells one story; here there are many.
    line = readable_line(replace(found.entry, attributes=kept))
    return line if effect is None else f"{line}  effect={effect}"


__all__ = [
    "FORMS",
    "SPAN_COLUMNS",
    "Sheet",
    "cell",
    "csv_text",
    "demand_form",
    "flat_span",
    "otlp_text",
    "span_row",
    "span_sheet",
    "span_text",
    "text_in",
]
