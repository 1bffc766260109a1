"""More edits of a ledger by somebody without keys, of what came with its second schema: each with what must be found.

They are made for the history of `tests.support.aged`, as those of `tests.support.ledger_edits` are for another.
"""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from typing import Final

from tests.support.editing import (
    CENTS,
    NOWHERE,
    T1,
    UNKNOWN,
    Edit,
    an_edit,
    line_of,
    row_of,
    span_at,
    task_of,
)


def _task(name: str) -> str:
    return f"(SELECT task_id FROM tasks WHERE name = '{name}')"


def _tombstone(which: str) -> str:
    return f"(SELECT effect_id FROM tombstones WHERE {which} ORDER BY effect_id LIMIT 1)"


def _live(which: str) -> str:
    return f"(SELECT effect_id FROM effects WHERE {which} ORDER BY effect_id LIMIT 1)"


FROZEN, THAWED, LOWERED, CAP, CAP_B = (_task(name) for name in ("t1.a", "t1.b", "cap.a", "cap", "cap.b"))
PAID = _tombstone(f"state = 'succeeded' AND task_id = {LOWERED}")
DENIED, REVOKED = _tombstone("state = 'denied'"), _tombstone("state = 'revoked'")
READY, SENT, REPLAYED = _live("state = 'permitted'"), _live("state = 'admitted'"), _live("replayed = 1")
LOWERING: Final = "(SELECT sequence FROM spans WHERE name = 'task.lowered')"
RESTORE: Final = "(SELECT sequence FROM spans WHERE name = 'ledger.restored')"
ACCEPTING: Final = f"(SELECT sequence FROM overruns_accepted WHERE task_id = {CAP})"
GONE_SLOT: Final = f"'slot|' || {LOWERED} || '|resource|Order:o-gone'"
KEPT_SLOT: Final = f"'slot|' || {CAP_B} || '|resource|Order:o-kept'"
EFFECT: Final = (
    "caller, task_id, root_id, subject, actor, operation, action_class, resource_type, resource_id, request, binding, "
    "binding_digest, content_key, resource_key, cost, protected, prepared_ms, expires_ms, window_ends_ms, replayed, "
    "bucket, last_span, sequence, mac, state"
)
TOMBSTONE: Final = (
    "state, caller, task_id, subject, actor, operation, request, content_key, resource_key, prepared_ms, ended_ms, "
    "sequence, mac"
)


def _stone(name: str, what: str, change: str, effect: str = PAID) -> Edit:
    """Change one tombstone; the finding names it."""
    return row_of(name, what, "tombstones", change, effect)


def _put_back(effect_id: str) -> str:
    """Return the statement that writes a row for an effect, after the row of one that lives."""
    return (
        f"INSERT INTO effects(effect_id, request_key, {EFFECT}) SELECT {effect_id}, 'other', {EFFECT} FROM effects "
        f"WHERE effect_id = {SENT}"
    )


def _buried(effect_id: str) -> str:
    """Return the statement that writes a tombstone for an effect, after one that stands."""
    return (
        f"INSERT INTO tombstones(effect_id, request_key, {TOMBSTONE}) SELECT {effect_id}, 'other', {TOMBSTONE} "
        f"FROM tombstones WHERE effect_id = {DENIED}"
    )


TASKS: Final = (
    task_of("a frozen task set open", "task_set_back", "tasks", "state = 'open'", FROZEN),
    task_of("a thawed task set frozen", "task_set_back", "tasks", "state = 'frozen'", THAWED),
    task_of("a lowered task's span", "task_sequence", "tasks", "sequence = 9", LOWERED),
    task_of("a granted task's span", "task_sequence", "tasks", "sequence = 4", T1),
    task_of("another bucket for a task", "task_bucket", "tasks", "bucket = (bucket + 1) % 64", T1),
    an_edit(
        "a thawing untold",
        "task_set_back",
        "tasks",
        THAWED,
        "UPDATE spans SET name = 'refused' WHERE name = 'task.thawed'",
    ),
    an_edit(
        "an opening's grant removed",
        "task_ceilings",
        "tasks",
        THAWED,
        f"DELETE FROM grants WHERE task_id = {THAWED}",
        f"DELETE FROM budgets WHERE task_id = {THAWED}",
    ),
    an_edit(
        "a lowering taken back",
        "grant_missing",
        "grants",
        f"{LOWERED} || ' ' || {LOWERING}",
        f"DELETE FROM grants WHERE sequence = {LOWERING}",
        f"UPDATE budgets SET ceiling = 300, above = 0 WHERE task_id = {LOWERED}",
    ),
    an_edit(
        "a lowering that adds",
        "grant_without_trail",
        "grants",
        f"{LOWERED} || ' USD.cent ' || {LOWERING}",
        f"UPDATE grants SET kind = 'add' WHERE sequence = {LOWERING}",
    ),
    an_edit(
        "a grant that sets",
        "grant_mac",
        "grants",
        f"{T1} || ' USD.cent'",
        f"UPDATE grants SET kind = 'set' WHERE task_id = {T1} AND kind = 'add'",
    ),
)
MONEY: Final = (
    line_of("what stands above a lowered ceiling", "budget_above", "above = 0", LOWERED),
    line_of("something above where nothing is", "budget_above", "above = 1", CAP),
    an_edit(
        "an accepted overrun removed",
        "accepted_differs",
        "overruns_accepted",
        f"{CAP} || ' ' || {ACCEPTING}",
        f"UPDATE budgets SET settled = settled - 8 WHERE task_id = {CAP}",
        f"DELETE FROM overruns_accepted WHERE task_id = {CAP}",
    ),
    an_edit(
        "less of an overrun accepted",
        "accepted_differs",
        "overruns_accepted",
        f"{CAP} || ' ' || {ACCEPTING}",
        f"UPDATE overruns_accepted SET amount = 1 WHERE task_id = {CAP}",
        f"UPDATE budgets SET settled = settled - 7, overrun = 7 WHERE task_id = {CAP}",
    ),
    an_edit(
        "an overrun accepted by nobody",
        "accepted_without_trail",
        "overruns_accepted",
        "(SELECT task_id FROM tasks WHERE name = 'over') || ' USD.cent 1'",
        "INSERT INTO overruns_accepted SELECT task_id, 'USD.cent', 1, 8 FROM tasks WHERE name = 'over'",
        "UPDATE budgets SET settled = settled + 8, overrun = 0 WHERE overrun = 8",
    ),
    an_edit(
        "a collected charge forgotten",
        "collected_spend",
        "collected_spend",
        CAP + CENTS,
        f"UPDATE collected_spend SET charged = charged - 70 WHERE task_id = {CAP}",
        f"UPDATE budgets SET settled = settled - 70 WHERE task_id = {CAP}",
    ),
    an_edit(
        "a collected overrun forgotten",
        "collected_spend",
        "collected_spend",
        "(SELECT task_id FROM tasks WHERE name = 'over') || ' USD.cent'",
        "UPDATE collected_spend SET overrun = 0 WHERE task_id = (SELECT task_id FROM tasks WHERE name = 'over')",
        "UPDATE budgets SET overrun = 0 WHERE overrun = 8",
    ),
    an_edit(
        "collected charges removed",
        "collected_spend",
        "collected_spend",
        CAP + CENTS,
        f"DELETE FROM collected_spend WHERE task_id = {CAP}",
        f"UPDATE budgets SET settled = settled - 71, overrun = overrun - 8 WHERE task_id = {CAP}",
    ),
    an_edit(
        "a total without what was collected",
        "budget_settled",
        "budgets",
        CAP + CENTS,
        f"UPDATE budgets SET settled = settled - 71 WHERE task_id = {CAP}",
    ),
)
COUNTED: Final = (
    an_edit(
        "a slot of a collected effect given back",
        "collected_takes",
        "collected_takes",
        GONE_SLOT,
        f"UPDATE collected_takes SET amount = amount - 1 WHERE counter = {GONE_SLOT}",
        f"UPDATE counters SET used = used - 1 WHERE counter = {GONE_SLOT}",
    ),
    an_edit(
        "the slots of collected effects given back",
        "collected_takes",
        "collected_takes",
        GONE_SLOT,
        f"DELETE FROM collected_takes WHERE counter = {GONE_SLOT}",
        f"UPDATE counters SET used = 0 WHERE counter = {GONE_SLOT}",
    ),
    an_edit(
        "a counter without what was collected",
        "counter",
        "counters",
        f"'task|refund|' || {LOWERED}",
        f"UPDATE counters SET used = 0 WHERE counter = 'task|refund|' || {LOWERED}",
    ),
    an_edit(
        "a slot and its counter given back",
        "slots",
        "counter_takes",
        READY,
        f"DELETE FROM counter_takes WHERE effect_id = {READY} AND counter = {KEPT_SLOT}",
        f"UPDATE counters SET used = used - 1 WHERE counter = {KEPT_SLOT}",
    ),
    an_edit(
        "a slot that its task does not give",
        "slots",
        "counter_takes",
        SENT,
        f"INSERT INTO counter_takes VALUES ({SENT}, {KEPT_SLOT}, 1)",
        f"UPDATE counters SET used = used + 1 WHERE counter = {KEPT_SLOT}",
    ),
    an_edit(
        "more slots than the task has",
        "slot_ceiling",
        "counters",
        GONE_SLOT,
        f"UPDATE counters SET ceiling = 2 WHERE counter = {GONE_SLOT}",
    ),
    an_edit(
        "slots of a name that its task does not count",
        "slot_of_nothing",
        "counters",
        f"'slot|' || {LOWERED} || '|operation|publish'",
        f"INSERT INTO counters VALUES ('slot|' || {LOWERED} || '|operation|publish', 0, 9)",
    ),
    an_edit(
        "slots of a task that is nowhere",
        "slot_of_nothing",
        "counters",
        "'slot|tsk_0|class|refund'",
        "INSERT INTO counters VALUES ('slot|tsk_0|class|refund', 0, 9)",
    ),
    an_edit(
        "repetition of collected effects forgotten",
        "repetition",
        "repetition resource",
        "",
        "UPDATE repetition SET succeeded = 0 WHERE kind = 'resource' AND unresolved = 0",
    ),
    an_edit(
        "repetition of collected effects removed",
        "repetition_missing",
        "repetition content",
        "",
        "DELETE FROM repetition WHERE kind = 'content' AND succeeded = 1",
    ),
    an_edit("room that is not there", "holdings", "holdings", "", "UPDATE holdings SET record_bytes = 0"),
    an_edit(
        "fewer tombstones", "holdings", "holdings", "", "UPDATE holdings SET tombstones = tombstones - 1"
    ),
    an_edit("fewer spans", "holdings", "holdings", "", "UPDATE holdings SET span_bytes = 1"),
    an_edit("no holdings", "holdings", "holdings", "", "DELETE FROM holdings"),
)
COLLECTED: Final = (
    _stone("a tombstone's end", "tombstone_mac", "state = 'failed'"),
    _stone("a tombstone of another end", "tombstone_differs", "state = 'failed'"),
    _stone("a tombstone's time", "tombstone_differs", "ended_ms = ended_ms + 1"),
    _stone("a tombstone's request", "tombstone_mac", "request = CAST('{}' AS BLOB)"),
    _stone("a tombstone's caller", "tombstone_mac", "caller = 'agent-9'"),
    _stone("a tombstone's content", "tombstone_mac", "content_key = zeroblob(32)"),
    _stone("a tombstone's MAC", "tombstone_mac", "mac = zeroblob(4)"),
    _stone("a tombstone without its permit", "tombstone_differs", "permit_id = NULL"),
    _stone("a tombstone with a permit", "tombstone_differs", "permit_id = 'pmt_0'", DENIED),
    _stone("a tombstone's span", "tombstone_without_trail", "sequence = 1"),
    an_edit(
        "a collection untold",
        "tombstone_without_trail",
        "tombstones",
        PAID,
        "UPDATE spans SET name = 'refused' WHERE name = 'ledger.collected'",
    ),
    an_edit("a tombstone of nothing", "tombstone_without_trail", "tombstones", NOWHERE, _buried(NOWHERE)),
    an_edit(
        "a tombstone removed",
        "tombstone_missing",
        "tombstones",
        PAID,
        f"DELETE FROM tombstones WHERE effect_id = {PAID}",
    ),
    an_edit(
        "a revoked permit's tombstone removed",
        "tombstone_missing",
        "tombstones",
        REVOKED,
        f"DELETE FROM tombstones WHERE effect_id = {REVOKED}",
    ),
    an_edit(
        "a tombstone forgotten without a word",
        "tombstones_gone",
        "tombstones",
        "",
        f"DELETE FROM tombstones WHERE effect_id = {DENIED}",
    ),
    an_edit(
        "a story of no state that exists, and its tombstone",
        "tombstone_without_trail",
        "tombstones",
        PAID,
        f"UPDATE spans SET state_to = 'paid' WHERE effect_id = {PAID}",
    ),
    an_edit(
        "a story of no state that exists, and no row",
        "effect_missing",
        "effects",
        READY,
        f"UPDATE spans SET state_to = 'paid' WHERE effect_id = {READY}",
        f"DELETE FROM effects WHERE effect_id = {READY}",
    ),
    an_edit("a collected effect back", "effect_collected", "effects", PAID, _put_back(PAID)),
    an_edit(
        "a collected effect back and its tombstone gone",
        "effect_collected",
        "effects",
        PAID,
        _put_back(PAID),
        f"DELETE FROM tombstones WHERE effect_id = {PAID}",
    ),
    an_edit("a tombstone of what lives", "effect_collected", "effects", READY, _buried(READY)),
    an_edit(
        "a collected permit unspent",
        "use_missing",
        "permit_uses",
        PAID,
        f"DELETE FROM permit_uses WHERE effect_id = {PAID}",
    ),
    row_of("a collected use of another permit", "use_place", "permit_uses", "permit_id = 'pmt_0'", PAID),
    row_of("a collected use at another span", "use_place", "permit_uses", "sequence = 1", PAID),
    an_edit(
        "a use of a revoked permit",
        "use_without_trail",
        "permit_uses",
        REVOKED,
        f"INSERT INTO permit_uses VALUES ('pmt_0', {REVOKED}, 1)",
    ),
    an_edit(
        "a use of nobody's permit",
        "use_without_effect",
        "permit_uses",
        NOWHERE,
        f"INSERT INTO permit_uses VALUES ('pmt_0', {NOWHERE}, 1)",
    ),
    an_edit(
        "a claim on a collected effect",
        "left_over",
        "claims",
        PAID,
        f"UPDATE claims SET effect_id = {PAID} WHERE effect_id = {SENT}",
    ),
    an_edit(
        "a reservation of a collected effect",
        "left_over",
        "reservations",
        PAID,
        f"UPDATE reservations SET effect_id = {PAID} WHERE effect_id = {SENT}",
    ),
    an_edit(
        "a settlement of a collected effect",
        "left_over",
        "settlements",
        PAID,
        f"INSERT INTO settlements VALUES ({PAID}, {CAP}, 'USD.cent', 0, 0, 1)",
    ),
)
RESTORED: Final = (
    row_of(
        "a replayed effect passed off as prepared", "effect_replayed", "effects", "replayed = 0", REPLAYED
    ),
    row_of("a prepared effect passed off as replayed", "effect_replayed", "effects", "replayed = 1", SENT),
    row_of(
        "a replayed effect's binding digest",
        "effect_mac",
        "effects",
        "binding_digest = zeroblob(32)",
        REPLAYED,
    ),
    row_of("another bucket for an effect", "effect_bucket", "effects", "bucket = (bucket + 1) % 64", UNKNOWN),
    row_of("a replayed use at another span", "use_place", "permit_uses", "sequence = 1", REPLAYED),
    span_at("a restore in the epoch before", "span_place", "epoch = 1", RESTORE),
    span_at("an epoch that begins with a freeze", "span_place", "name = 'task.frozen'", RESTORE),
)
EDITS_TWO: Final = (*TASKS, *MONEY, *COUNTED, *COLLECTED, *RESTORED)
