r"""A report of a period as a signed note: how many records there are is signed, and anybody with the key can check it.

Rules: AUD-09, AUD-04 (C2SP signed-note; the key is that of checkpoints, and the first line keeps the two apart). A note
of two lines, of which the second is the whole report as canonical JSON in ASCII:

    permit-issuer/led_…/report
    {"effects":{…},"first":17,"last":2031,"spans":2015,…}

    — permit-issuer/led_… Az3grlgtzPICa5OS8npVmf1My…

The report names the tree that it was made of, so that a trail that proves that tree proves the numbers: whoever holds
both counts again (`recount`). Signing stands behind `issuer.sealing`, and comes in as a function. Pure.
Next: `issuer.commands.audit_report`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from audit.errors import NoteRefused
from audit.line_forms import READ_FAULTS
from audit.notes import SIGNATURE_BYTES, VerifierKey, VerifySignature, read_note
from audit.sinks.lines import read_span_line, span_body

__all__ = ["opened_report", "recount", "report_text"]

SUFFIX: Final = "/report"


def report_text(origin: str, report: Mapping[str, object]) -> str:
    """Return the text that is signed; `origin` is that of the ledger's checkpoints."""
    line = json.dumps(report, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return f"{origin}{SUFFIX}\n{line}\n"


def opened_report(data: bytes, key: VerifierKey, verify: VerifySignature) -> dict[str, Any]:
    """Return the report of a note that `key` signed.

    Raises:
        NoteRefused: it is no such note, or not signed by this key.
    """
    note = read_note(data)
    own = [line for line in note.signatures if (line.name, line.key_hash) == (key.name, key.hash)]
    message = note.unverified_text.encode()
    for line in own:
        signature = line.unverified_signature
        if len(signature) != SIGNATURE_BYTES or not verify(key.public_key, signature, message):
            raise NoteRefused("the signature of the report does not verify")
    lines = note.unverified_text.split("\n")
    if not own or len(lines) != 3 or lines[0] != f"{key.name}{SUFFIX}":  # noqa: PLR2004 - two lines and their end
        raise NoteRefused("that is no report that this key signed")
    try:
        report = json.loads(lines[1])
    except (ValueError, RecursionError):
        report = None
    if not isinstance(report, dict) or report_text(key.name, report) != note.unverified_text:
        raise NoteRefused("that is not the one text of a report")
    return report


def recount(report: Mapping[str, Any], lines: Iterable[bytes]) -> tuple[int, dict[str, int]]:
    """Count the spans of a report's period in the lines of an export, all together and by kind.

    Lines of other sequences, and the header, are passed over. What was counted holds as far as the export is proven.

    Raises:
        NoteRefused: a line is no span, or was changed, or a sequence stands twice or is missing.
    """
    first, last = report.get("first"), report.get("last")
    if not isinstance(first, int) or not isinstance(last, int):
        raise NoteRefused("the report names no period")
    counted: Counter[str] = Counter()
    expected = first
    for line in lines:
        if line.startswith(b'{"kind":'):
            continue
        try:
            tail = read_span_line(line)
            name = json.loads(span_body(line))["attributes"]["permit.transition"]
        except READ_FAULTS:
            raise NoteRefused("a line of the export is no span, or was changed") from None
        if not first <= tail.sequence <= last:
            continue
        if tail.sequence != expected:
            raise NoteRefused("the export has a span of the period twice, or leaves one out")
        expected += 1
        counted[str(name)] += 1
    return counted.total(), dict(sorted(counted.items()))
