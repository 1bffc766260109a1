"""`audit report`: the population of a period, with a signed count (AUD-09).

In order: 1. the period becomes a range of sequences   2. it is counted page by page   3. a checkpoint of the trail is
signed, or the newest one stands where nothing happened since   4. the report names its tree, and is signed with the
same key (`audit.reports`)   5. the look is on record, then it is shown or gets its file. Where the ledger cannot be
written there is no checkpoint, and the report says that it is not signed.
Next: `audit.population`, which counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from audit.notes import ledger_origin, signed
from audit.population import READ, Counting
from audit.queries import Found, found_of, spans_of
from audit.reports import report_text
from issuer.amounts import amount_text
from issuer.archives import last_archive
from issuer.checkpoints.errors import CheckpointRefused
from issuer.checkpoints.signing import Reason, sign
from issuer.clock import instant_text
from issuer.commands.audit_asks import AuditAsk, instant_of
from issuer.commands.audit_files import PAGE, Progress, no_progress, publish_report
from issuer.commands.auditing import TABLE, told
from issuer.commands.checkpoints import WAIT_S
from issuer.commands.edge import at_the_edge
from issuer.commands.looking import swept
from issuer.flow import spans
from issuer.flow.refusing import RefusedError
from issuer.house import House, Visit
from issuer.new_file import new_file
from issuer.sealing import checkpoint_public_key, sign_checkpoint
from issuer.sheets import Sheet, demand_form
from issuer.wire import Answer
from ledger.errors import CommitUncertain, LedgerCorrupt, LedgerUnavailable, Malformed
from ledger.model import InstantMs
from ledger.port import View
from ledger.questions import SpanFilter
from ledger.refusals import RefusalCode
from ledger.transitions import TransitionName

REPORT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Period:
    """What is reported: the sequences `first` to `last`, none where `last` is before `first`.

    `outside` of these carry another time, since the clock was accepted in between; they are counted too.
    """

    since_ms: InstantMs
    until_ms: InstantMs
    first: int
    last: int
    outside: int


def audit_report(
    visit: Visit,
    asked: AuditAsk,
    form: str = TABLE,
    *,
    out: Path | None = None,
    progress: Progress = no_progress,
) -> Answer:
    """Report a period, from the begin of the trail and until now where nothing else is said."""

    def run() -> Answer:
        if demand_form(form) == "otlp-json":
            raise Malformed("not_one_of", "format", "a report is numbers, and has no form in OTLP")
        swept(visit)
        house = visit.house
        period = _period(visit, asked)
        counted = _counted(house, period, progress)
        tree, key_is_free = _tree(visit)
        report = {**_about(house, period), **counted, "tree": tree}
        note = _note(house, report) if key_is_free else None
        more: dict[str, object] = {"population": report, "signed": note is not None}
        if note is not None:
            more["note"] = note.decode("utf-8")
        if out is None:
            return told(visit, _sheet(report), None, form, asked=asked, named="numbers", extra=more)
        with new_file(out) as made:
            made.write(note or report_text(_origin(house), report).encode())
            return publish_report(visit, made, asked, report, more=more, lines=_lines(report))

    return at_the_edge(visit, run)


def _period(visit: Visit, asked: AuditAsk) -> _Period:
    now = visit.house.now()
    since = instant_of(visit, asked.since, "since") or InstantMs(0)
    until = instant_of(visit, asked.until, "until")
    until = now if until is None else until
    if until <= since:
        raise Malformed("out_of_range", "until", "a period ends after it begins")

    def look(view: View) -> _Period:
        # The trail goes on while this is counted; what comes later belongs to no report of now.
        head = view.head().sequence
        newest = view.span_at(head)
        end = until if until < now or newest is None else max(until, InstantMs(newest.at_ms + 1))
        wanted = SpanFilter(since_ms=since, until_ms=end)
        first, last, outside = _range(view, wanted, _archived(view, asked, since), head)
        begin = view.span_at(first) if asked.since is None else None
        since_ms = since if begin is None else begin.at_ms
        return _Period(since_ms=since_ms, until_ms=until, first=first, last=last, outside=outside)

    return visit.house.ledger.read(look)


def _archived(view: View, asked: AuditAsk, since: InstantMs) -> int:
    """Return the last archived span, behind which a report without a begin of its own begins; 0 for none (AUD-08).

    Raises:
        Malformed: `archived`; the period begins in what was archived, of which not all is here to be counted.
    """
    archive = last_archive(view)
    if archive is None:
        return 0
    sealed = view.span_at(archive.upto)
    if asked.since is not None and (sealed is None or since <= sealed.at_ms):
        say = f"the trail is archived up to span {archive.upto}, and a report counts only what is here"
        raise Malformed("archived", "since", say)
    return archive.upto


def _range(view: View, wanted: SpanFilter, behind: int, head: int) -> tuple[int, int, int]:
    """Return first and last sequence of a period, and how many spans between them carry a time outside of it.

    Only spans behind `behind` are looked at.

    There are such only where an operator accepted a clock in between (PER-03): between two such spans no time falls.
    """

    def end_of(after: int, before: int, *, newest_first: bool) -> int | None:
        found = view.find_spans(wanted, after=after, before=before, limit=1, newest_first=newest_first)
        return found[0].position.sequence if found else None

    first = end_of(behind, head + 1, newest_first=False)
    last = end_of(behind, head + 1, newest_first=True)
    if first is None or last is None:
        first = max(view.sequence_at(wanted.since_ms or InstantMs(0)), behind + 1)
        return first, first - 1, 0
    accepted = SpanFilter(names=frozenset({TransitionName.CLOCK_ACCEPTED}))
    cuts = [one.sequence for one in spans_of(view, accepted, after=first) if one.sequence <= last]
    within = 0
    for begin, end in pairwise([first, *cuts, last + 1]):
        low = end_of(begin - 1, end, newest_first=False)
        high = end_of(begin - 1, end, newest_first=True)
        within += 0 if low is None or high is None else high - low + 1
    return first, last, last - first + 1 - within


def _counted(house: House, period: _Period, progress: Progress) -> dict[str, object]:
    """Count everything, in pages, each in a snapshot of its own: what is on record does not change."""
    counting, after = Counting(), period.first - 1
    while after < period.last:
        last = house.ledger.read(lambda view, after=after: _count_page(view, counting, after, period.last))  # type: ignore[misc]
        after = period.last if last is None else last
        progress(after, period.last)
    transitions = house.ledger.read(lambda view: view.count_spans(period.first, period.last))
    return counting.as_json(transitions if period.last >= period.first else {})


def _count_page(view: View, counting: Counting, after: int, last: int) -> int | None:
    rows = view.find_spans(SpanFilter(names=READ), after=after, before=last + 1, limit=PAGE)
    found: list[Found] = [found_of(row) for row in rows]
    for one in found:
        counting.add(view, one)
    return found[-1].sequence if len(found) == PAGE else None


def _tree(visit: Visit) -> tuple[dict[str, object], bool]:
    """Return the tree that the report rests on, and whether a checkpoint of it is signed."""
    try:
        made = sign(visit.house, Reason.DEMANDED, wait_s=WAIT_S, said=spans.common(visit))
    except CheckpointRefused as no:
        raise RefusedError(RefusalCode.CHECKPOINT_REFUSED, field=no.reason, say=no.message) from None
    except (LedgerUnavailable, LedgerCorrupt, CommitUncertain):
        made = None
    if made is None:
        tree = visit.house.ledger.read(lambda view: view.frontier())
        return {"size": tree.size, "root": tree.root().hex()}, False
    return {"size": made.kept.size, "root": made.root.hex()}, True


def _origin(house: House) -> str:
    return ledger_origin(house.ledger.ledger_id)


def _note(house: House, report: Mapping[str, object]) -> bytes:
    name = _origin(house)
    text = report_text(name, report)
    key_id, signature = sign_checkpoint(house.ring, text.encode())
    return signed(text, name, checkpoint_public_key(house.ring, key_id), signature)


def _about(house: House, period: _Period) -> dict[str, object]:
    return {
        "v": REPORT_VERSION,
        "kind": "permit-audit-report",
        "issuer": house.issuer,
        "ledger": str(house.ledger.ledger_id),
        "mode": house.mode,
        "timezone": house.profile.timezone,
        "since": instant_text(period.since_ms),
        "until": instant_text(period.until_ms),
        "made": instant_text(house.now()),
        "first": period.first,
        "last": period.last,
        "spans": max(0, period.last - period.first + 1),
        **({"outside": period.outside} if period.outside else {}),
    }


def _sheet(report: Mapping[str, object]) -> Sheet:
    rows = [
        {"part": part, "name": name, "of": of, "count": count} for part, name, of, count in _numbers(report)
    ]
    return Sheet(rows=rows, lines=_lines(report), columns=("part", "name", "of", "count"), spans=())


def _numbers(report: Mapping[str, object]) -> list[tuple[str, str, str, int]]:
    found: list[tuple[str, str, str, int]] = [("period", "spans", "", _whole(report["spans"]))]
    for part in ("effects", "transitions", "changes", "looks"):
        found += [(part, name, "", count) for name, count in _mapping(report[part]).items()]
    for part in ("money", "people"):
        found += [
            (part, name, of, count)
            for name, inside in _mapping(report[part]).items()
            for of, count in _mapping(inside).items()
        ]
    return found


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _lines(report: Mapping[str, object]) -> list[str]:
    effects, money, tree = (_mapping(report[part]) for part in ("effects", "money", "tree"))
    rows = [
        f"  {report['since']} to {report['until']}",
        f"  {report['spans']} spans, {report['first']} to {report['last']}",
        *(
            [f"  {report['outside']} of them carry a time outside of it: the clock was set in between"]
            if "outside" in report
            else []
        ),
        f"  tree of {tree['size']} spans, root {tree['root']}",
        *(f"  {word.replace('_', ' '):<22}{count:>8}" for word, count in effects.items() if count),
    ]
    for what, of in money.items():
        amounts = ", ".join(amount_text(unit, amount) for unit, amount in _mapping(of).items())
        rows.append(f"  {what:<22}{amounts or 'nothing':>8}")
    for part in ("people", "changes", "looks"):
        for name, count in _mapping(report[part]).items():
            shown = (
                count
                if isinstance(count, int)
                else ", ".join(f"{n} {word}" for word, n in _mapping(count).items())
            )
            rows.append(f"  {part}: {name}: {shown}")
    return rows


__all__ = ["audit_report"]
