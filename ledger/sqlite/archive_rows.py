"""Which spans an archive takes away, and taking them away: the rows behind `ledger.archive`.

Rules: AUD-08, LED-06. A span goes if it is of a kind that may go, if what it tells of is over (no effect or invocation
of its story has a row, and no span of that story comes later than the archive's end), and if no row names it. What
any row names stays, whatever it is: that is asked of every table, and not known by heart here.
The leaf is put beside before the span goes, and the database refuses any other order.
Next: `ledger.sqlite.check_archived`.
"""

from collections.abc import Sequence
from typing import Any, Final

from ledger.archive import EFFECTS_LEAVE, INVOCATIONS_LEAVE, LOOKS_LEAVE, LeafRow, Leaving, gone_digest
from ledger.errors import Broken
from ledger.sqlite.tables import names
from ledger.transitions import TransitionName

_NAMED: Final = " UNION ALL ".join(
    f"SELECT sequence FROM {table}"
    for table in (
        *("tasks", "grants", "overruns_accepted", "invocations", "effects", "tombstones", "decisions"),
        *("permits", "permit_uses", "settlements", "evidence", "obligations", "obligations_done", "sinks"),
        *("rulings", "approval_waits", "approvals"),
    )
)
"""Every row that names a span, but for `span_policies`, which goes with it."""

_IS_OVER: Final = (
    "NOT EXISTS (SELECT 1 FROM spans AS t WHERE t.story = s.story AND t.sequence >= :upto AND {later})"
)
_LEAVING: Final = f"""
FROM spans AS s WHERE s.sequence < :upto AND s.sequence NOT IN ({_NAMED})
AND NOT EXISTS (SELECT 1 FROM effects AS e WHERE e.effect_id = s.story)
AND (
  s.name IN ({names(LOOKS_LEAVE)}) AND s.sequence IS NOT (
    SELECT max(sequence) FROM spans WHERE name = '{TransitionName.CHECKPOINT_SIGNED}')
  OR s.name IN ({names(EFFECTS_LEAVE)}) AND {_IS_OVER.format(later="t.state_to IS NOT NULL")}
  OR s.name IN ({names(INVOCATIONS_LEAVE)}) AND {_IS_OVER.format(later="1")}
    AND NOT EXISTS (SELECT 1 FROM invocations AS i WHERE i.invocation_id = s.story)
)
"""
_LEAVES_AFTER: Final = """
SELECT epoch, sequence, leaf FROM (
  SELECT * FROM (SELECT epoch, sequence, leaf FROM spans WHERE sequence > ?1 ORDER BY sequence LIMIT ?2)
  UNION ALL
  SELECT * FROM (SELECT epoch, sequence, leaf FROM archived_leaves WHERE sequence > ?1 ORDER BY sequence LIMIT ?2)
) ORDER BY sequence LIMIT ?2
"""


def leaving(raw: Any, upto: int) -> Leaving:  # noqa: ANN401 - untyped driver
    """Return what an archive up to the span `upto` takes away; that span itself stays, as the archive's end."""
    sql = f"SELECT s.sequence {_LEAVING} UNION ALL SELECT sequence FROM archived_leaves ORDER BY 1"
    gone = [row[0] for row in raw.execute(sql, {"upto": upto})]
    before = raw.execute("SELECT count(*) FROM archived_leaves").fetchone()[0]
    return Leaving(count=len(gone) - before, digest=gone_digest(gone))


def take_away(raw: Any, upto: int, wanted: Leaving) -> None:  # noqa: ANN401 - untyped driver
    """Put the leaves of what leaves beside, and delete it.

    Raises:
        Broken: it is not what was said to leave.
    """
    bound = {"upto": upto}
    put = raw.execute(
        f"INSERT INTO archived_leaves(sequence, epoch, leaf) SELECT s.sequence, s.epoch, s.leaf {_LEAVING}",
        bound,
    ).rowcount
    raw.execute("DELETE FROM span_policies WHERE sequence IN (SELECT sequence FROM archived_leaves)")
    gone = raw.execute("DELETE FROM spans WHERE sequence IN (SELECT sequence FROM archived_leaves)").rowcount
    all_gone = (row[0] for row in raw.execute("SELECT sequence FROM archived_leaves ORDER BY sequence"))
    if put != gone or Leaving(count=gone, digest=gone_digest(all_gone)) != wanted:
        raise Broken("an archive takes away exactly what its span says")


def leaves_after(raw: Any, sequence: int, limit: int) -> Sequence[LeafRow]:  # noqa: ANN401 - untyped driver
    """Return at most `limit` leaves with a larger sequence, in order, of spans that are there or archived."""
    found = raw.execute(_LEAVES_AFTER, (sequence, limit)).fetchall()
    return [LeafRow(epoch=row[0], sequence=row[1], leaf=row[2]) for row in found]
