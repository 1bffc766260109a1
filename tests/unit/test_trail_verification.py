"""Any change of a trail is found by whoever holds its key and a checkpoint, and no more is claimed than is proven."""

import io
import random
from collections.abc import Sequence

import pytest

from audit.errors import TrailUnreadable
from audit.sinks.lines import LINE_BYTES_MAX
from audit.trail_lines import ledger_of
from audit.verification import Standing, TrailReport, Verdict
from ledger.transitions import SpanRow
from ledger.tree import EMPTY_ROOT, leaf_hash
from tests.support.trails import (
    CheckpointKey,
    Signed,
    document,
    edited,
    header,
    joined,
    line_of,
    reference_root,
    report_of,
    restored,
    rows_of,
    signed_trail,
    spelled,
    told_spans,
    verdict_of,
)

KEY = CheckpointKey()
OTHER = CheckpointKey(bytes(32))
SPANS, EDITS, SEED = 2_000, 300, 9162
"""A thousand edits, and some of a hundred thousand spans, are in `tests/soak/test_audit_edits.py`."""


@pytest.fixture(scope="module")
def trail() -> Signed:
    return signed_trail(SPANS, KEY)


def rows(count: int) -> list[SpanRow]:
    return list(rows_of(told_spans(count)))[:count]


def file_of(spans: Sequence[SpanRow]) -> bytes:
    return joined([header(), *map(line_of, spans)])


def found(data: bytes | Sequence[bytes], *notes: bytes) -> TrailReport:
    report, refused = report_of(data, notes, KEY)
    assert refused == []
    return report


@pytest.mark.spec("AUD-04")
def test_any_single_edit_of_two_thousand_spans_is_found(trail: Signed) -> None:
    assert verdict_of(trail.data, [trail.note], KEY) == "verified"
    draw = random.Random(SEED)  # noqa: S311 - repeatable edits
    missed = []
    for turn in range(EDITS):
        name, made = edited(trail, turn, draw)
        if verdict_of(made.data, [made.note], KEY) == "verified":
            missed.append((turn, name))
    assert missed == []


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("size", [1, 2, 3, 1023, 1024, 1025, 1999, 2000])
def test_a_checkpoint_proves_up_to_its_size_and_the_rest_is_told(trail: Signed, size: int) -> None:
    source = rows(SPANS)
    report = found(trail.data, KEY.over(source, size))
    assert (report.verdict, report.anchored, report.size) == (Verdict.VERIFIED, size, SPANS)


@pytest.mark.spec("AUD-04")
def test_checkpoints_of_one_trail_are_consistent_and_one_of_another_is_not(trail: Signed) -> None:
    source = rows(SPANS)
    notes = [KEY.over(source, size) for size in (1500, 7, 2000)]
    report = found(trail.data, *notes)
    assert [kept.standing for kept in report.checkpoints] == [Standing.HOLDS] * 3
    assert [kept.checkpoint.size for kept in report.checkpoints] == [7, 1500, 2000]
    forked = found(trail.data, *notes, KEY.note(1200, bytes(32)))
    assert forked.verdict is Verdict.TAMPERED
    assert [kept.standing for kept in forked.checkpoints].count(Standing.DIFFERS) == 1


@pytest.mark.spec("AUD-04")
def test_a_trail_that_ends_before_a_checkpoint_was_cut(trail: Signed) -> None:
    for kept in (0, 1, 1999):
        report = found(joined(trail.lines[: kept + 1]), trail.note)
        assert (report.verdict, report.checkpoints[0].standing) == (Verdict.TAMPERED, Standing.NOT_REACHED)


@pytest.mark.spec("AUD-04")
def test_without_a_checkpoint_nothing_is_proven_however_well_it_hangs_together(trail: Signed) -> None:
    report = found(trail.data)
    assert (report.finding, report.verdict, report.anchored) == (None, Verdict.NOT_ANCHORED, 0)
    empty = found(trail.data, KEY.note(0, EMPTY_ROOT))
    assert empty.verdict is Verdict.NOT_ANCHORED


@pytest.mark.spec("AUD-04")
def test_neither_another_key_nor_another_ledger_vouches_for_a_trail(trail: Signed) -> None:
    assert verdict_of(trail.data, [trail.note], OTHER) == "not_anchored"
    foreign = CheckpointKey(name="permit-issuer/led_other")
    root = report_of(trail.data, [trail.note], KEY)[0].checkpoints[0].checkpoint.root
    assert verdict_of(trail.data, [foreign.note(SPANS, root)], foreign) == "not_anchored"
    assert verdict_of(trail.data, [trail.note, OTHER.over(rows(SPANS))], KEY) == "not_anchored"


@pytest.mark.spec("AUD-04")
def test_a_torn_last_line_is_told_and_a_torn_line_in_the_middle_is_not_read_over(trail: Signed) -> None:
    report = found(trail.data + trail.lines[5][:40], trail.note)
    assert (report.verdict, report.is_torn) == (Verdict.VERIFIED, True)
    half = joined(trail.lines[:1001]) + trail.lines[1001][:200]
    rest = joined([trail.lines[0], *trail.lines[1001:]])
    torn = found([half, rest], trail.note)
    assert torn.verdict is Verdict.TAMPERED
    assert torn.finding is not None
    assert torn.finding.where == "part0 line 1002"


@pytest.mark.spec("AUD-04", "AUD-07")
def test_parts_that_follow_each_other_are_one_trail(trail: Signed) -> None:
    one = joined(trail.lines[:700])
    two = joined([trail.lines[0], *trail.lines[700:]])
    assert found([one, two], trail.note).verdict is Verdict.VERIFIED
    assert found([two, one], trail.note).verdict is Verdict.TAMPERED
    assert found([one, one], trail.note).verdict is Verdict.TAMPERED


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("line", lambda line: line.replace(b'"lane":0', b'"lane":1', 1)),
        ("line", lambda line: line[:-1]),
        ("line", lambda _line: b"x" * (LINE_BYTES_MAX + 10)),
        ("line", lambda line: line[:-1] + b" " * LINE_BYTES_MAX + b"}"),
        ("leaf", lambda line: line.replace(b'"permit.mode":"strict"', b'"permit.mode":"loose!"')),
        ("gap", lambda line: spelled({**document(line), "sequence": 77}, place=True)),
        (
            "body",
            lambda line: spelled({**document(line), "span": {**document(line)["span"], "name": "permit.x"}}),
        ),
        ("body", lambda line: spelled({**document(line), "span": {"a": 1}})),
    ],
)
def test_what_is_wrong_with_a_line_is_named_with_its_place(trail: Signed, what: str, change: object) -> None:
    line = change(trail.lines[50])  # type: ignore[operator]  # a row of the table
    data = joined([*trail.lines[:50], line, *trail.lines[51:]])
    report = found(data, trail.note)
    assert report.finding is not None
    assert (report.finding.what, report.finding.where) == (what, "part0 line 51")
    assert report.size == 49


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("spoil", ["spaces", "escape", "doubled", "elsewhere", "other_ledger"])
def test_what_was_signed_in_another_form_or_for_another_place_is_not_read_over(spoil: str) -> None:
    source = rows(9)
    body = source[4].body
    made = {
        "spaces": body.replace(b'","', b'", "', 1),
        "escape": body.replace(b"permit.probe", b"\\u0070ermit.probe").replace(b"strict", b"\\u0073trict", 1),
        "doubled": body.replace(b'"v":1}', b'"v":1,"v":1}'),
        "elsewhere": body.replace(b'"permit.sequence":5', b'"permit.sequence":6'),
        "other_ledger": body.replace(b"ldg_7c1f09aa", b"ldg_7c1f09ab", 1),
    }[spoil]
    assert made != body
    leaf = leaf_hash(made)
    leaves = [row.leaf for row in source]
    leaves[4] = leaf
    line = b'{"epoch":0,"lane":0,"leaf":"%s","sequence":5,"span":%s}' % (leaf.hex().encode(), made)
    data = joined([header(), *map(line_of, source[:4]), line, *map(line_of, source[5:])])
    report = found(data, KEY.note(9, reference_root(leaves)))
    assert report.finding is not None
    assert (report.finding.what, report.finding.where) == ("body", "part0 line 6")


@pytest.mark.spec("AUD-04", "LED-08")
def test_a_restore_that_left_spans_behind_is_followed_and_believed_once_it_is_signed() -> None:
    source = told_spans(100)
    before = list(rows_of(source))
    old = KEY.over(before, 95)
    restored(source, 80, before[-1])
    for _ in range(30):
        source.add()
    after = list(rows_of(source))
    data = joined([header(), *map(line_of, before), *map(line_of, after[80:])])
    unproven = found(data, old)
    assert (unproven.verdict, unproven.anchored, unproven.believed_from) == (Verdict.NOT_ANCHORED, 80, 81)
    assert unproven.checkpoints[0].standing is Standing.LEFT_BEHIND
    proven = found(data, old, KEY.over(after, 105))
    assert (proven.verdict, proven.anchored, proven.size) == (Verdict.VERIFIED, 105, 111)
    assert [kept.standing for kept in proven.checkpoints] == [Standing.LEFT_BEHIND, Standing.HOLDS]
    assert proven.epochs == ((0, 1), (1, 81))
    assert proven.spans == 100 + 31 + len(before) - 100
    # The ledger's own export knows nothing of what was left behind, and the old checkpoint is not of that trail.
    assert found(file_of(after), KEY.over(after)).verdict is Verdict.VERIFIED
    assert found(file_of(after), old).verdict is Verdict.TAMPERED


@pytest.mark.spec("AUD-04", "LED-08")
@pytest.mark.parametrize("wrong", ["left_elsewhere", "no_restore", "ahead", "same_epoch"])
def test_an_epoch_begins_where_its_first_span_says_and_nowhere_else(wrong: str) -> None:
    source = told_spans(100)
    before = list(rows_of(source))
    left = before[-2] if wrong == "left_elsewhere" else before[-1]
    first = restored(source, 80, left)
    read = document(line_of(first))
    if wrong == "no_restore":
        read["span"]["attributes"]["permit.transition"] = "probe"
        read["span"]["name"] = "permit.probe"
    if wrong == "ahead":
        read["sequence"] = len(before) + 2
    if wrong == "same_epoch":
        read["epoch"] = 0
    data = joined([header(), *map(line_of, before), spelled(read, place=True)])
    report = found(data)
    assert report.finding is not None
    assert (report.finding.what, report.verdict) == (
        "gap",
        Verdict.TAMPERED,
    )


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b'{"kind":"permit-audit","ledger":"l","v":2}\n',
        b'{"kind":"permit-audit", "ledger":"l","v":1}\n',
        b'{"kind":"permit-audit","ledger":1,"v":1}\n',
        b'{"kind":"permit-audit","ledger":"l","v":1}',
        b"\xff\n",
    ],
)
def test_what_does_not_begin_as_a_file_of_spans_is_none(data: bytes) -> None:
    with pytest.raises(TrailUnreadable):
        ledger_of(io.BytesIO(data), "x")
