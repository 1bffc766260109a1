"""What the database does beside a change, and what it refuses: triggers, as text for SQLite.

Rules: LED-05 (the states table held again), AUD-01 (no state change without its own new span), BUD-02, BUD-03, BUD-06,
LED-02 (what is held is counted), LED-08 (what only a restore does). Texts of RAISE are stable.
Next: `ledger.sqlite.schema` puts tables and triggers together.
"""

from typing import Final

from ledger.sqlite.tables import names
from ledger.states import LEGAL_MOVES, PENDING, SLOT_RETURNING, UNRESOLVED, UNUSED, EffectState
from ledger.transitions import TransitionName

SPAN_ROW_BYTES: Final = 1024
LEAF_ROW_BYTES: Final = 64
EFFECT_ROW_BYTES: Final = 2048
TOMBSTONE_ROW_BYTES: Final = 768
INVOCATION_ROW_BYTES: Final = 768
ROW_BYTES: Final = 256
"""Bytes that a row is counted with beside what varies in it (LED-02): its columns, its indexes and its smaller rows."""

HOLDINGS_RECOUNTED: Final = f"""
SELECT 1, (SELECT count(*) FROM effects), (SELECT count(*) FROM tombstones),
  (SELECT coalesce(sum(length(request) + length(binding) + {EFFECT_ROW_BYTES}), 0) FROM effects)
  + (SELECT coalesce(sum(length(request) + {TOMBSTONE_ROW_BYTES}), 0) FROM tombstones)
  + (SELECT coalesce(sum(length(body) + {ROW_BYTES}), 0) FROM decisions)
  + (SELECT coalesce(sum(length(reference) + length(charged) + {ROW_BYTES}), 0) FROM evidence)
  + (SELECT count(*) * {INVOCATION_ROW_BYTES} FROM invocations)
  + (SELECT count(*) * {ROW_BYTES} FROM obligations) + (SELECT count(*) * {ROW_BYTES} FROM obligations_done)
  + (SELECT count(*) * 2 * {ROW_BYTES} FROM rulings) + (SELECT count(*) * {ROW_BYTES} FROM approval_waits)
  + (SELECT coalesce(sum(length(signature) + {ROW_BYTES}), 0) FROM approvals),
  (SELECT count(*) FROM spans), (SELECT coalesce(sum(length(body) + {SPAN_ROW_BYTES}), 0) FROM spans)
  + (SELECT count(*) * {LEAF_ROW_BYTES} FROM archived_leaves)
"""
"""The row of `holdings` as the other rows make it: what the triggers below keep."""

_MOVES: Final = " OR ".join(
    f"(OLD.state = '{origin}' AND NEW.state IN ({names(targets)}))"
    for origin, targets in LEGAL_MOVES.items()
    if targets
)
_SETTLED_STATES: Final = frozenset({EffectState.SUCCEEDED, EffectState.FAILED, EffectState.NO_EFFECT})

REPLAYING: Final = (
    "SELECT 1 FROM spans WHERE sequence = (SELECT max(sequence) FROM spans) "
    f"AND name = '{TransitionName.EFFECT_REPLAYED}'"
)
"""Asks whether the transaction is at a step of a restore."""

_HELD_BEFORE: Final = """(SELECT amount FROM reservations AS r
      WHERE r.effect_id = NEW.effect_id AND r.task_id = NEW.task_id AND r.unit = NEW.unit AND NOT EXISTS (
        SELECT 1 FROM settlements AS s WHERE s.effect_id = NEW.effect_id AND s.task_id = NEW.task_id
          AND s.unit = NEW.unit AND s.sequence <> NEW.sequence))"""
"""What an effect still holds where something is charged for it: a charge that an operator acknowledged let go of all of
it, and what an outcome charges beyond that is an overrun (REC-04, BUD-03)."""

TRIGGERS: Final = f"""
CREATE TRIGGER spans_contiguous BEFORE INSERT ON spans BEGIN
  SELECT RAISE(ABORT, 'guard:span_sequence') WHERE NEW.sequence
    IS NOT coalesce((SELECT max(sequence) FROM spans), 0) + 1;
END;

CREATE TRIGGER head_forward BEFORE UPDATE ON head BEGIN
  SELECT RAISE(ABORT, 'guard:head_behind') WHERE NEW.sequence <= OLD.sequence OR NEW.epoch < OLD.epoch
    OR NEW.lane IS NOT OLD.lane OR NEW.sequence IS NOT (SELECT max(sequence) FROM spans)
    OR (NEW.clock_ms < OLD.clock_ms AND NOT EXISTS (
      SELECT 1 FROM spans WHERE sequence > OLD.sequence AND name = '{TransitionName.CLOCK_ACCEPTED}'))
    OR (NEW.epoch > OLD.epoch AND NOT EXISTS (
      SELECT 1 FROM spans WHERE epoch = NEW.epoch AND sequence = OLD.sequence + 1
        AND name = '{TransitionName.LEDGER_RESTORED}'));
END;

CREATE TRIGGER spans_held AFTER INSERT ON spans BEGIN
  UPDATE holdings SET spans = spans + 1, span_bytes = span_bytes + length(NEW.body) + {SPAN_ROW_BYTES};
END;

CREATE TRIGGER tasks_path AFTER INSERT ON tasks BEGIN
  SELECT RAISE(ABORT, 'guard:task_parent') WHERE NEW.parent_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM tasks AS p WHERE p.task_id = NEW.parent_id AND p.root_id = NEW.root_id
      AND p.depth = NEW.depth - 1 AND (p.state = 'open' OR NEW.state = 'frozen'));
  INSERT INTO task_path VALUES (NEW.task_id, 0, NEW.task_id);
  INSERT INTO task_path SELECT NEW.task_id, distance + 1, ancestor_id FROM task_path WHERE task_id = NEW.parent_id;
END;

CREATE TRIGGER tasks_identity BEFORE UPDATE ON tasks
  WHEN NEW.task_id IS NOT OLD.task_id OR NEW.name IS NOT OLD.name OR NEW.parent_id IS NOT OLD.parent_id
    OR NEW.root_id IS NOT OLD.root_id OR NEW.depth IS NOT OLD.depth OR NEW.subject IS NOT OLD.subject
    OR NEW.actors IS NOT OLD.actors OR NEW.expires_ms IS NOT OLD.expires_ms OR NEW.opened_ms IS NOT OLD.opened_ms
    OR NEW.scope IS NOT OLD.scope OR NEW.bucket IS NOT OLD.bucket
    OR OLD.state = 'closed' OR NEW.sequence IS NOT (SELECT max(sequence) FROM spans)
  BEGIN SELECT RAISE(ABORT, 'guard:task_identity'); END;

CREATE TRIGGER grants_apply AFTER INSERT ON grants BEGIN
  INSERT INTO budgets(task_id, unit, ceiling) VALUES (NEW.task_id, NEW.unit, NEW.amount)
    ON CONFLICT (task_id, unit) DO UPDATE SET
      ceiling = iif(NEW.kind = 'set', NEW.amount, ceiling + NEW.amount),
      above = coalesce(max(0, reserved + settled - iif(NEW.kind = 'set', NEW.amount, ceiling + NEW.amount)), 0);
END;

CREATE TRIGGER overruns_accepted_apply AFTER INSERT ON overruns_accepted BEGIN
  UPDATE budgets SET overrun = overrun - NEW.amount, settled = settled + NEW.amount,
    above = coalesce(max(0, reserved + settled + NEW.amount - ceiling), 0)
    WHERE task_id = NEW.task_id AND unit = NEW.unit;
END;

CREATE TRIGGER effects_begin BEFORE INSERT ON effects BEGIN
  SELECT RAISE(ABORT, 'guard:effect_begins_prepared') WHERE NEW.state IS NOT 'prepared'
    AND NOT (NEW.replayed = 1 AND NEW.state = 'unknown' AND EXISTS ({REPLAYING}));
  SELECT RAISE(ABORT, 'guard:state_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id AND state_to = NEW.state
      AND span_id = NEW.last_span);
  SELECT RAISE(ABORT, 'guard:task_not_open') WHERE NOT EXISTS (SELECT 1 FROM task_path WHERE task_id = NEW.task_id)
    OR EXISTS (SELECT 1 FROM task_path AS p JOIN tasks AS t ON t.task_id = p.ancestor_id
      WHERE p.task_id = NEW.task_id AND t.state <> 'open')
    AND NOT EXISTS ({REPLAYING});
  SELECT RAISE(ABORT, 'guard:collected') WHERE EXISTS (
    SELECT 1 FROM tombstones WHERE effect_id = NEW.effect_id
      OR (caller = NEW.caller AND task_id = NEW.task_id AND request_key = NEW.request_key));
  SELECT RAISE(ABORT, 'guard:replayed_without_restore') WHERE NEW.replayed = 1 AND NOT EXISTS ({REPLAYING});
END;

CREATE TRIGGER effects_held AFTER INSERT ON effects BEGIN
  UPDATE holdings SET effects = effects + 1,
    record_bytes = record_bytes + length(NEW.request) + length(NEW.binding) + {EFFECT_ROW_BYTES};
END;

CREATE TRIGGER effects_gone AFTER DELETE ON effects BEGIN
  UPDATE holdings SET effects = effects - 1,
    record_bytes = record_bytes - length(OLD.request) - length(OLD.binding) - {EFFECT_ROW_BYTES};
  DELETE FROM repetition WHERE kind = 'content' AND key = OLD.content_key
    AND pending = 0 AND unresolved = 0 AND succeeded = 0;
  DELETE FROM repetition WHERE kind = 'resource' AND key = OLD.resource_key
    AND pending = 0 AND unresolved = 0 AND succeeded = 0;
END;

CREATE TRIGGER decisions_held AFTER INSERT ON decisions BEGIN
  UPDATE holdings SET record_bytes = record_bytes + length(NEW.body) + {ROW_BYTES};
END;

CREATE TRIGGER decisions_gone AFTER DELETE ON decisions BEGIN
  UPDATE holdings SET record_bytes = record_bytes - length(OLD.body) - {ROW_BYTES};
END;

CREATE TRIGGER evidence_held AFTER INSERT ON evidence BEGIN
  UPDATE holdings SET record_bytes = record_bytes + length(NEW.reference) + length(NEW.charged) + {ROW_BYTES};
END;

CREATE TRIGGER evidence_gone AFTER DELETE ON evidence BEGIN
  UPDATE holdings SET record_bytes = record_bytes - length(OLD.reference) - length(OLD.charged) - {ROW_BYTES};
END;

CREATE TRIGGER tombstones_held AFTER INSERT ON tombstones BEGIN
  UPDATE holdings SET tombstones = tombstones + 1,
    record_bytes = record_bytes + length(NEW.request) + {TOMBSTONE_ROW_BYTES};
END;

CREATE TRIGGER tombstones_begin BEFORE INSERT ON tombstones BEGIN
  SELECT RAISE(ABORT, 'guard:collected_too_early') WHERE NOT EXISTS (
    SELECT 1 FROM effects AS e LEFT JOIN permits AS p ON p.effect_id = e.effect_id
      WHERE e.effect_id = NEW.effect_id AND e.state = NEW.state AND e.caller = NEW.caller
      AND e.task_id = NEW.task_id AND e.request_key = NEW.request_key AND e.request = NEW.request
      AND e.content_key = NEW.content_key AND e.resource_key = NEW.resource_key AND p.permit_id IS NEW.permit_id
      AND (e.state IN ({names(UNUSED)}) OR max(e.expires_ms, e.window_ends_ms) <= (
        SELECT at_ms FROM spans WHERE sequence = NEW.sequence)));
END;

CREATE TRIGGER tombstones_gone AFTER DELETE ON tombstones BEGIN
  UPDATE holdings SET tombstones = tombstones - 1,
    record_bytes = record_bytes - length(OLD.request) - {TOMBSTONE_ROW_BYTES};
END;

CREATE TRIGGER tombstones_unpermitted_only BEFORE DELETE ON tombstones
  WHEN OLD.permit_id IS NOT NULL OR OLD.state NOT IN ({names(UNUSED)}) BEGIN
  SELECT RAISE(ABORT, 'guard:append_only_tombstones');
END;

CREATE TRIGGER repetition_empty_only BEFORE DELETE ON repetition
  WHEN OLD.pending > 0 OR OLD.unresolved > 0 OR OLD.succeeded > 0 BEGIN
  SELECT RAISE(ABORT, 'guard:append_only_repetition');
END;

CREATE TRIGGER permit_uses_begin BEFORE INSERT ON permit_uses BEGIN
  SELECT RAISE(ABORT, 'guard:use_without_effect') WHERE NOT EXISTS (
    SELECT 1 FROM effects WHERE effect_id = NEW.effect_id);
END;

CREATE TRIGGER effects_move BEFORE UPDATE OF state, last_span, sequence ON effects BEGIN
  SELECT RAISE(ABORT, 'guard:illegal_move') WHERE NOT ({_MOVES});
  SELECT RAISE(ABORT, 'guard:state_without_span') WHERE NEW.sequence <= OLD.sequence OR NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id AND state_to = NEW.state
      AND span_id = NEW.last_span);
  SELECT RAISE(ABORT, 'guard:permitted_without_permit') WHERE NEW.state = 'permitted'
    AND NOT EXISTS (SELECT 1 FROM permits WHERE effect_id = NEW.effect_id);
  SELECT RAISE(ABORT, 'guard:admitted_without_use') WHERE NEW.state = 'admitted' AND NOT EXISTS (
    SELECT 1 FROM permit_uses AS u JOIN claims AS c ON c.effect_id = u.effect_id
      WHERE u.effect_id = NEW.effect_id AND u.sequence = NEW.sequence);
  SELECT RAISE(ABORT, 'guard:admitted_without_reservation') WHERE NEW.state = 'admitted'
    AND NOT EXISTS (SELECT 1 FROM reservations WHERE effect_id = NEW.effect_id);
  SELECT RAISE(ABORT, 'guard:unknown_before_admission') WHERE NEW.state = 'unknown' AND OLD.state <> 'admitted'
    AND (NOT EXISTS ({REPLAYING})
      OR NOT EXISTS (SELECT 1 FROM permit_uses WHERE effect_id = NEW.effect_id AND sequence = NEW.sequence)
      OR NOT EXISTS (SELECT 1 FROM reservations WHERE effect_id = NEW.effect_id));
  SELECT RAISE(ABORT, 'guard:task_not_open') WHERE NEW.state IN ('permitted', 'admitted') AND EXISTS (
    SELECT 1 FROM task_path AS p JOIN tasks AS t ON t.task_id = p.ancestor_id
      WHERE p.task_id = NEW.task_id AND t.state <> 'open');
  SELECT RAISE(ABORT, 'guard:outcome_without_settlement') WHERE NEW.state IN ({names(_SETTLED_STATES)})
    AND EXISTS (SELECT 1 FROM reservations AS r WHERE r.effect_id = NEW.effect_id AND NOT EXISTS (
      SELECT 1 FROM settlements AS s WHERE s.effect_id = r.effect_id AND s.task_id = r.task_id AND s.unit = r.unit));
END;

CREATE TRIGGER effects_fixed BEFORE UPDATE OF effect_id, caller, task_id, root_id, subject, actor, operation,
  action_class, resource_type, resource_id, request_key, request, binding, binding_digest, content_key, resource_key,
  cost, protected, prepared_ms, expires_ms, window_ends_ms, replayed, invocation_id, bucket, mac ON effects
  BEGIN SELECT RAISE(ABORT, 'guard:effect_identity'); END;

CREATE TRIGGER effects_repetition_begin AFTER INSERT ON effects BEGIN
  INSERT INTO repetition VALUES ('content', NEW.content_key, NEW.replayed = 0, NEW.replayed, 0)
    ON CONFLICT (kind, key) DO UPDATE SET
      pending = pending + excluded.pending, unresolved = unresolved + excluded.unresolved;
  INSERT INTO repetition VALUES ('resource', NEW.resource_key, NEW.replayed = 0, NEW.replayed, 0)
    ON CONFLICT (kind, key) DO UPDATE SET
      pending = pending + excluded.pending, unresolved = unresolved + excluded.unresolved;
END;

CREATE TRIGGER effects_repetition_move AFTER UPDATE OF state ON effects BEGIN
  UPDATE repetition SET
    pending = pending + (NEW.state IN ({names(PENDING)})) - (OLD.state IN ({names(PENDING)})),
    unresolved = unresolved + (NEW.state IN ({names(UNRESOLVED)})) - (OLD.state IN ({names(UNRESOLVED)})),
    succeeded = succeeded + (NEW.state = 'succeeded') - (OLD.state = 'succeeded')
    WHERE kind = 'content' AND key = NEW.content_key;
  UPDATE repetition SET
    pending = pending + (NEW.state IN ({names(PENDING)})) - (OLD.state IN ({names(PENDING)})),
    unresolved = unresolved + (NEW.state IN ({names(UNRESOLVED)})) - (OLD.state IN ({names(UNRESOLVED)})),
    succeeded = succeeded + (NEW.state = 'succeeded') - (OLD.state = 'succeeded')
    WHERE kind = 'resource' AND key = NEW.resource_key;
END;

CREATE TRIGGER counter_takes_apply AFTER INSERT ON counter_takes BEGIN
  UPDATE counters SET used = used + NEW.amount WHERE counter = NEW.counter;
END;

CREATE TRIGGER counter_takes_return AFTER UPDATE OF state ON effects
  WHEN NEW.state IN ({names(SLOT_RETURNING)}) BEGIN
  UPDATE counters SET used = used - (SELECT amount FROM counter_takes AS t
      WHERE t.effect_id = NEW.effect_id AND t.counter = counters.counter)
    WHERE counter IN (SELECT counter FROM counter_takes WHERE effect_id = NEW.effect_id);
END;

CREATE TRIGGER reservations_apply AFTER INSERT ON reservations BEGIN
  SELECT RAISE(ABORT, 'guard:reservation_off_path') WHERE NOT EXISTS (
    SELECT 1 FROM effects AS e JOIN task_path AS p ON p.task_id = e.task_id
      WHERE e.effect_id = NEW.effect_id AND p.ancestor_id = NEW.task_id);
  SELECT RAISE(ABORT, 'guard:overrun_blocks') WHERE NOT EXISTS ({REPLAYING}) AND EXISTS (
    SELECT 1 FROM budgets WHERE task_id = NEW.task_id AND unit = NEW.unit AND overrun > 0);
  UPDATE budgets SET reserved = reserved + NEW.amount,
    above = coalesce(max(0, reserved + NEW.amount + settled - ceiling), 0)
    WHERE task_id = NEW.task_id AND unit = NEW.unit;
  SELECT RAISE(ABORT, 'guard:no_overspend') WHERE NOT EXISTS ({REPLAYING}) AND EXISTS (
    SELECT 1 FROM budgets WHERE task_id = NEW.task_id AND unit = NEW.unit AND above > 0);
END;

CREATE TRIGGER settlements_apply AFTER INSERT ON settlements BEGIN
  SELECT RAISE(ABORT, 'guard:charge_above_reservation') WHERE NEW.charged > coalesce({_HELD_BEFORE}, 0);
  UPDATE budgets SET
    reserved = reserved - coalesce({_HELD_BEFORE}, 0),
    settled = settled + NEW.charged,
    overrun = overrun + NEW.overrun,
    above = coalesce(max(0, reserved - coalesce({_HELD_BEFORE}, 0) + settled + NEW.charged - ceiling), 0)
    WHERE task_id = NEW.task_id AND unit = NEW.unit;
END;

CREATE TRIGGER settlements_gone AFTER DELETE ON settlements BEGIN
  INSERT INTO collected_spend VALUES (OLD.task_id, OLD.unit, OLD.charged, OLD.overrun)
    ON CONFLICT (task_id, unit) DO UPDATE SET charged = charged + OLD.charged, overrun = overrun + OLD.overrun;
END;

CREATE TRIGGER counter_takes_gone AFTER DELETE ON counter_takes
  WHEN EXISTS (SELECT 1 FROM tombstones
    WHERE effect_id = OLD.effect_id AND state NOT IN ({names(SLOT_RETURNING)})) BEGIN
  INSERT INTO collected_takes VALUES (OLD.counter, OLD.amount)
    ON CONFLICT (counter) DO UPDATE SET amount = amount + OLD.amount;
END;
"""
