"""`audit export` and `audit snapshot`: the trail, or what was asked for of it, in a file that is taken away.

Rules: AUD-06, AUD-07. In order: 1. the file is written under a name of its own   2. it is durable   3. `audit.exported`
says how many spans, the digest of the file and of what was asked for   4. the file gets its name. Whoever is stopped
between 3 and 4 left a record and no file, never the other way round. Where the ledger cannot be written the record is
kept as any other look (`issuer.looks`).
Without a selection an export is the whole trail as the JSONL sink has it, and proves itself the same way. A selection
begins with a header of its own, so that nobody takes a part for the whole.
Next: `issuer.new_file`, `ledger.sqlite.snapshot`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from audit.population import amounts_in
from audit.queries import Found, Page, Question, ask
from audit.sinks.lines import header_line
from issuer import answering
from issuer.archives import Archive, frontier_at, last_archive
from issuer.clock import instant_text
from issuer.commands.audit_asks import AuditAsk, question_of
from issuer.commands.auditing import decided_by
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.house import House, Visit
from issuer.looks import LATER_SAY, exported, on_record
from issuer.new_file import NewFile, new_file
from issuer.sheets import SPAN_COLUMNS, csv_text, flat_span, otlp_text, span_text
from issuer.wire import Answer
from ledger.canonical import canonical_bytes
from ledger.errors import LedgerCorrupt, Malformed
from ledger.model import LedgerId
from ledger.port import View
from ledger.sqlite.snapshot import SnapshotWriter
from ledger.transitions import AttributeValue
from ledger.tree import Frontier, GrowingTree

EXPORT_FORMS: Final = ("jsonl", "csv", "otlp-json")
PAGE: Final = 500
"""Spans that are read, written and forgotten at a time."""

SNAPSHOT_MODE: Final = 0o400
_BEGINS: Final = (
    "It begins behind span {upto}; what is before stands in archives, the last with SHA-256 {digest}."
)
PART: Final = "permit-audit-part"
"""The kind in the header of an export that is a selection."""

Progress = Callable[[int, int], None]


def no_progress(_done: int, _of: int) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class _Written:
    """What was written so far; `tree` grows where the whole trail is written, from behind what was archived on."""

    archive: Archive | None = None
    count: int = 0
    first: int = 0
    last: int = 0
    tree: GrowingTree = field(default_factory=GrowingTree)

    @property
    def is_to_the_end(self) -> bool:
        """Whether it begins where the trail does, or where the last archive ends."""
        return self.first == 1 + (0 if self.archive is None else self.archive.upto)


def _begun(house: House) -> _Written:
    """Return where a whole trail begins: at its first span, or at the first behind the last archive (AUD-08)."""

    def look(view: View) -> _Written:
        archive = last_archive(view)
        if archive is None:
            return _Written()
        tree = GrowingTree(frontier_at(view, archive.upto))
        return _Written(archive=archive, last=archive.upto, tree=tree)

    return house.ledger.read(look)


def audit_export(
    visit: Visit,
    out: Path,
    asked: AuditAsk,
    form: str = "jsonl",
    *,
    progress: Progress = no_progress,
) -> Answer:
    """Write the trail, or the spans that are asked for, to the new file `out`, mode 0600."""

    def run() -> Answer:
        if form not in EXPORT_FORMS:
            raise Malformed("not_one_of", "format", f"an export is one of {', '.join(EXPORT_FORMS)}")
        swept(visit)
        whole = is_whole(asked)
        with new_file(out) as made:
            written = _export(visit, made, question_of(visit, asked), form, whole=whole, progress=progress)
            said = _said(visit, asked, written, whole=whole)
            return _published(visit, made, form, written, said)

    return at_the_edge(visit, run)


def is_whole(asked: AuditAsk) -> bool:
    """Say whether nothing is selected."""
    return replace(asked, limit=1, after=0, newest=False) == AuditAsk(limit=1)


def _export(
    visit: Visit, made: NewFile, question: Question, form: str, *, whole: bool, progress: Progress
) -> _Written:
    written = _begun(visit.house) if whole else _Written()
    if form == "jsonl":
        made.write(header_line(visit.house.ledger.ledger_id) if whole else part_header(visit.house))
    elif form == "csv":
        made.write(csv_text(SPAN_COLUMNS, ()).encode())
    tree = visit.house.ledger.read(lambda view: view.frontier())
    for found in pages(visit.house, question, tree.size, after=written.last):
        if form == "otlp-json":
            text = otlp_text(found)
        elif form == "csv":
            text = csv_text(SPAN_COLUMNS, map(flat_span, found), headed=False)
        else:
            text = "".join(map(span_text, found))
        made.write(text.encode("utf-8"))
        _count(written, found, whole=whole)
        progress(found[-1].sequence, tree.size)
    _demand_tree(written, tree, whole=whole)
    return written


def _count(written: _Written, found: Sequence[Found], *, whole: bool) -> None:
    for one in found:
        if one.is_altered:
            say = f"The span at {one.sequence} is not what was recorded; run `issuer ledger check`."
            raise LedgerCorrupt("span_differs", say)
        if whole and written.last and one.sequence != written.last + 1:
            raise LedgerCorrupt("gap", f"The trail has no span behind {written.last}.")
        written.first, written.last = written.first or one.sequence, one.sequence
        written.count += 1
        if whole:
            written.tree.add(one.row.leaf)


def _demand_tree(written: _Written, tree: Frontier, *, whole: bool) -> None:
    """Refuse to give out a whole trail that is not the tree that the ledger's head holds.

    Raises:
        LedgerCorrupt: `tree_differs`.
    """
    if whole and written.is_to_the_end and written.tree.frontier() != tree:
        say = "The spans are not those of the ledger's tree; run `issuer ledger check`."
        raise LedgerCorrupt("tree_differs", say)


def part_header(house: House) -> bytes:
    """Return the first line of an export that is a selection, newline included."""
    return canonical_bytes({"v": 1, "ledger": str(house.ledger.ledger_id), "kind": PART}) + b"\n"


def pages(house: House, question: Question, head: int, *, after: int = 0) -> Iterator[tuple[Found, ...]]:
    """Yield what is asked for page by page, behind the sequence `after` and up to `head`."""
    asked: Question | None = replace(question, limit=PAGE, newest=False, after=after)
    while asked is not None:
        wanted = asked

        def look(view: object, wanted: Question = wanted) -> Page:
            return ask(view, wanted)  # type: ignore[arg-type]  # what `read` hands over

        page = house.ledger.read(look)
        found = tuple(one for one in page.found if one.sequence <= head)
        if found:
            yield found
        is_last = page.cursor is None or len(found) < len(page.found)
        asked = None if is_last else replace(wanted, after=page.cursor or 0)


def _said(visit: Visit, asked: AuditAsk, written: _Written, *, whole: bool) -> dict[str, AttributeValue]:
    said: dict[str, AttributeValue] = {"filter_digest": asked.digest(visit)}
    if written.count:
        said["base_sequence"] = written.last
    if whole and written.is_to_the_end:
        said["tree_size"] = written.tree.size
        said["tree_root"] = written.tree.frontier().root().hex()
    return said


def _published(
    visit: Visit,
    made: NewFile,
    form: str,
    written: _Written,
    said: dict[str, AttributeValue],
    *,
    digest: str = "",
    mode: int = 0o600,
) -> Answer:
    digest = digest or made.digest
    look = exported(
        visit,
        form=form.replace("-", "_"),
        count=written.count,
        file_digest=digest,
        **said,
        **decided_by(visit),
    )
    is_recorded = made.publish(lambda: on_record(visit, look), mode=mode)
    more: dict[str, object] = {"spans": written.count, "sha256": digest}
    if written.count:
        more.update(first=written.first, last=written.last)
    if "tree_root" in said:
        more["tree"] = {"size": said["tree_size"], "root": said["tree_root"]}
    say = "Written, and on record."
    if not is_recorded:
        say, more["recorded"] = f"Written. {LATER_SAY}", False
    if written.archive is not None:
        more["archived"] = written.archive.shown()
        say = f"{say} {_BEGINS.format(upto=written.archive.upto, digest=written.archive.digest)}"
    return answering.about(visit.house, "found", say=say, more=more)


def publish_report(
    visit: Visit,
    made: NewFile,
    asked: AuditAsk,
    report: Mapping[str, Any],
    *,
    more: Mapping[str, object],
    lines: Sequence[str],
) -> Answer:
    """Put a report on record and give it its name."""
    written = _Written(count=report["spans"], first=report["first"], last=report["last"])
    said: dict[str, AttributeValue] = {
        "filter_digest": asked.digest(visit),
        "base_sequence": max(0, report["last"]),
        "tree_size": report["tree"]["size"],
        "tree_root": report["tree"]["root"],
    }
    answer = _published(visit, made, "report", written, said)
    # The lines say the rest of it in words.
    kept = {
        name: answer.more[name] for name in ("spans", "sha256", "recorded", "damaged") if name in answer.more
    }
    return replace(answer, more={**more, **kept, "lines": list(lines)})


def audit_snapshot(visit: Visit, out: Path, *, progress: Progress = no_progress) -> Answer:
    """Write a database of all spans, for SQL of one's own, to the new file `out`, mode 0400."""

    def run() -> Answer:
        swept(visit)
        asked = AuditAsk()
        # SQLite writes to a name: whoever kills this leaves a part of a database there, and no record (ADR-0035).
        with new_file(out, is_named=True) as made:
            written = _snapshot(visit, made, question_of(visit, asked), progress)
            said = _said(visit, asked, written, whole=True)
            digest = made.read_digest()
            return _published(visit, made, "sqlite", written, said, digest=digest, mode=SNAPSHOT_MODE)

    return at_the_edge(visit, run)


def _snapshot(visit: Visit, made: NewFile, question: Question, progress: Progress) -> _Written:
    written, writer = _begun(visit.house), SnapshotWriter(made.part)
    try:
        tree = visit.house.ledger.read(lambda view: view.frontier())
        for found in pages(visit.house, question, tree.size, after=written.last):
            _count(written, found, whole=True)
            writer.add(
                [_columns(one) for one in found],
                [(policy, one.sequence) for one in found for policy in one.texts("policy.ids")],
                [
                    (one.sequence, what, unit, amount)
                    for one in found
                    for what in ("cost", "charged", "overrun")
                    for unit, amount in amounts_in(one, what).items()
                ],
            )
            progress(found[-1].sequence, tree.size)
        _demand_tree(written, tree, whole=True)
        writer.finish(_about(visit.house.ledger.ledger_id, visit, written))
    except BaseException:
        writer.close()
        raise
    return written


def _columns(found: Found) -> dict[str, object]:
    row = flat_span(found)
    attributes = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in found.entry.attributes.items()
    }
    return {
        **row,
        "at_ms": found.row.at_ms,
        "state_from": row["from"],
        "state_to": row["to"],
        "class": found.text("class"),
        "attributes": json.dumps(attributes, sort_keys=True),
    }


def _about(ledger_id: LedgerId, visit: Visit, written: _Written) -> dict[str, str]:
    return {
        "kind": "permit-audit-snapshot",
        "ledger": str(ledger_id),
        "issuer": visit.house.issuer,
        "made": instant_text(visit.house.now()),
        "spans": str(written.count),
        "tree_size": str(written.tree.size),
        "tree_root": written.tree.frontier().root().hex(),
    }


__all__ = [
    "EXPORT_FORMS",
    "PAGE",
    "Progress",
    "audit_export",
    "audit_snapshot",
    "is_whole",
    "no_progress",
    "pages",
]
