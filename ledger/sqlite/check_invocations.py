"""The part of a check that holds invocations and obligations against what the trail tells of them.

Rules: LED-06 (an invocation's row carries a MAC, and an earlier row of it is authentic as well, so each is held
against its own story), INV-02 (one outcome), EFF-09 (obligations are what their spans say), LED-02 (what was
collected is gone).
That open invocations are those that the head knows is seen with the registers.
Next: `ledger.sqlite.check_standing`.
"""

from ledger.sqlite.check_ground import UNREADABLE, Ground, InvocationStory, Where
from ledger.sqlite.invocation_rows import INVOCATION_COLUMNS, Row, invocation_authority, invocation_from
from ledger.standing import bucket_of


def check_invocations(ground: Ground) -> None:
    """Check every invocation and every obligation."""
    found: set[str] = set()
    sql = f"SELECT {INVOCATION_COLUMNS}, sequence, mac, bucket FROM invocations ORDER BY invocation_id"
    for row in ground.raw.execute(sql):
        found.add(row[0])
        _check_row(ground, row)
    for invocation_id in sorted(ground.trail.invocations.keys() - found - ground.trail.invocations_gone):
        says = "The trail tells of this invocation, and its row is gone."
        ground.find("invocation_missing", ("invocations", invocation_id), says)
    _check_obligations(ground)


def _check_row(ground: Ground, row: Row) -> None:
    where: Where = ("invocations", row[0])
    *_columns, sequence, mac, bucket = row
    try:
        invocation = invocation_from(row)
        is_authentic = ground.proofs.keys.is_authentic("row", invocation_authority(invocation, sequence), mac)
        is_in_bucket = bucket_of(invocation.invocation_id) == bucket
    except UNREADABLE:
        ground.find("invocation_unreadable", where, "The invocation's row cannot be read.")
        return
    if not is_authentic:
        says = "The invocation was changed by someone without the keys."
        ground.find("invocation_mac", where, says)
    if not is_in_bucket:
        says = "The invocation is not in the bucket that its id puts it in."
        ground.find("invocation_bucket", where, says)
    if invocation.invocation_id in ground.trail.invocations_gone:
        says = "The trail collected this invocation, and its row is there again."
        ground.find("invocation_collected", where, says)
    story = ground.trail.invocations.get(invocation.invocation_id)
    if story is None:
        ground.find("invocation_without_trail", where, "The trail tells nothing of this invocation.")
        return
    outcome = None if invocation.outcome is None else invocation.outcome.value
    if not _is_told(story, outcome):
        says = "The invocation's outcome is not the one that the trail tells."
        ground.find("invocation_set_back", where, says)
    elif sequence != story.sequence:
        says = "The invocation does not name the span that wrote it last."
        ground.find("invocation_place", where, says)


def _is_told(story: InvocationStory, outcome: str | None) -> bool:
    """Say whether an outcome is the one told; of a span that cannot be read only that there is one counts."""
    if story.outcome is None:
        return (outcome is None) is not story.is_ended
    return outcome == story.outcome


def _check_obligations(ground: Ground) -> None:
    """Hold what permits oblige to, and what was closed of it, against the spans, for every effect that stands."""
    rows = ground.rows(
        "SELECT 'obligations', effect_id, name, deadline_ms, sequence FROM obligations UNION ALL "
        "SELECT 'obligations_done', effect_id, name, at_ms, sequence FROM obligations_done"
    )
    told = set() if ground.proofs.span_says is None else set(ground.trail.obligations)
    if ground.proofs.span_says is None:
        return
    stand = (
        {effect_id for (effect_id,) in ground.raw.execute("SELECT effect_id FROM effects")} if told else set()
    )
    for table, effect_id, name, _at, _sequence in sorted(set(rows) - told):
        says = "The trail tells of no such obligation, or of another time."
        ground.find("obligation_without_trail", (table, effect_id, name), says)
    for table, effect_id, name, _at, _sequence in sorted(told - set(rows)):
        if effect_id in stand:
            says = "The trail tells of this obligation, and its row is gone."
            ground.find("obligation_missing", (table, effect_id, name), says)
