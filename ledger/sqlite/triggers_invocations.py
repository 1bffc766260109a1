"""What the database holds of invocations and obligations by itself: triggers, as text for SQLite.

Rules: INV-01 (an effect names one that is open, of its caller, at its task or above), INV-02 (one outcome, with its own
span; `succeeded` only where nothing stands against it), LED-02 (what is held is counted; only what ended and is named
by no effect goes). Texts of RAISE are stable.
Next: `ledger.sqlite.schema` puts tables and triggers together.
"""

from typing import Final

from ledger.invocations import InvocationOutcome
from ledger.sqlite.tables import names
from ledger.sqlite.triggers import INVOCATION_ROW_BYTES, REPLAYING, ROW_BYTES
from ledger.states import SETTLED, UNUSED, EffectState
from ledger.transitions import TransitionName

_HARMLESS: Final = frozenset({EffectState.SUCCEEDED, *UNUSED})
"""States of effects that do not stand against success: done, or over without anything sent."""

_LAST: Final = "(SELECT max(sequence) FROM spans)"

INVOCATION_TRIGGERS: Final = f"""
CREATE TRIGGER invocations_begin BEFORE INSERT ON invocations BEGIN
  SELECT RAISE(ABORT, 'guard:invocation_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND sequence = {_LAST} AND story = NEW.invocation_id
      AND name = iif(NEW.outcome IS NULL, '{TransitionName.INVOCATION_OPENED}', '{TransitionName.INVOCATION_ENDED}'));
  SELECT RAISE(ABORT, 'guard:outcome_before_start') WHERE NEW.outcome <> '{InvocationOutcome.REJECTED}';
  SELECT RAISE(ABORT, 'guard:task_not_open') WHERE NEW.outcome IS NULL AND (
    NOT EXISTS (SELECT 1 FROM task_path WHERE task_id = NEW.task_id)
    OR EXISTS (SELECT 1 FROM task_path AS p JOIN tasks AS t ON t.task_id = p.ancestor_id
      WHERE p.task_id = NEW.task_id AND t.state <> 'open'));
END;

CREATE TRIGGER invocations_once BEFORE UPDATE ON invocations BEGIN
  SELECT RAISE(ABORT, 'guard:outcome_once') WHERE OLD.outcome IS NOT NULL OR NEW.outcome IS NULL
    OR NEW.outcome = '{InvocationOutcome.REJECTED}';
  SELECT RAISE(ABORT, 'guard:invocation_identity') WHERE NEW.invocation_id IS NOT OLD.invocation_id
    OR NEW.caller IS NOT OLD.caller OR NEW.task_id IS NOT OLD.task_id OR NEW.actor IS NOT OLD.actor
    OR NEW.opened_ms IS NOT OLD.opened_ms OR NEW.deadline_ms IS NOT OLD.deadline_ms OR NEW.bucket IS NOT OLD.bucket;
  SELECT RAISE(ABORT, 'guard:invocation_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND sequence = {_LAST} AND story = NEW.invocation_id
      AND name = '{TransitionName.INVOCATION_ENDED}');
  SELECT RAISE(ABORT, 'guard:succeeded_unsettled') WHERE NEW.outcome = '{InvocationOutcome.SUCCEEDED}' AND (
    EXISTS (SELECT 1 FROM effects WHERE invocation_id = NEW.invocation_id AND state NOT IN ({names(_HARMLESS)}))
    OR EXISTS (SELECT 1 FROM effects AS e JOIN obligations AS o ON o.effect_id = e.effect_id
      LEFT JOIN obligations_done AS d ON d.effect_id = o.effect_id AND d.name = o.name
      WHERE e.invocation_id = NEW.invocation_id AND e.state NOT IN ({names(UNUSED)})
        AND (d.at_ms IS NULL OR d.at_ms >= o.deadline_ms)));
END;

CREATE TRIGGER invocations_held AFTER INSERT ON invocations BEGIN
  UPDATE holdings SET record_bytes = record_bytes + {INVOCATION_ROW_BYTES};
END;

CREATE TRIGGER invocations_ended_only BEFORE DELETE ON invocations
  WHEN OLD.outcome IS NULL OR EXISTS (SELECT 1 FROM effects WHERE invocation_id = OLD.invocation_id)
    OR NOT EXISTS (SELECT 1 FROM spans WHERE sequence = {_LAST} AND name = '{TransitionName.LEDGER_COLLECTED}') BEGIN
  SELECT RAISE(ABORT, 'guard:append_only_invocations');
END;

CREATE TRIGGER invocations_gone AFTER DELETE ON invocations BEGIN
  UPDATE holdings SET record_bytes = record_bytes - {INVOCATION_ROW_BYTES};
END;

CREATE TRIGGER effects_invocation_begin BEFORE INSERT ON effects
  WHEN NEW.invocation_id IS NOT NULL AND NOT EXISTS ({REPLAYING}) BEGIN
  SELECT RAISE(ABORT, 'guard:invocation_over') WHERE NOT EXISTS (
    SELECT 1 FROM invocations AS i JOIN task_path AS p ON p.ancestor_id = i.task_id
      WHERE i.invocation_id = NEW.invocation_id AND p.task_id = NEW.task_id AND i.caller = NEW.caller
        AND i.outcome IS NULL);
END;

CREATE TRIGGER effects_invocation_move BEFORE UPDATE OF state ON effects
  WHEN NEW.invocation_id IS NOT NULL AND NEW.state IN ('permitted', 'admitted') BEGIN
  SELECT RAISE(ABORT, 'guard:invocation_over') WHERE NOT EXISTS (
    SELECT 1 FROM invocations WHERE invocation_id = NEW.invocation_id AND outcome IS NULL);
END;

CREATE TRIGGER tombstones_invocation_open BEFORE INSERT ON tombstones BEGIN
  SELECT RAISE(ABORT, 'guard:collected_too_early') WHERE NEW.state IN ({names(SETTLED)}) AND EXISTS (
    SELECT 1 FROM effects AS e JOIN invocations AS i ON i.invocation_id = e.invocation_id
      WHERE e.effect_id = NEW.effect_id AND i.outcome IS NULL);
END;

CREATE TRIGGER obligations_begin BEFORE INSERT ON obligations BEGIN
  SELECT RAISE(ABORT, 'guard:obligation_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id
      AND name = '{TransitionName.EFFECT_OBLIGED}');
END;

CREATE TRIGGER obligations_held AFTER INSERT ON obligations BEGIN
  UPDATE holdings SET record_bytes = record_bytes + {ROW_BYTES};
END;

CREATE TRIGGER obligations_gone AFTER DELETE ON obligations BEGIN
  UPDATE holdings SET record_bytes = record_bytes - {ROW_BYTES};
END;

CREATE TRIGGER obligations_done_begin BEFORE INSERT ON obligations_done BEGIN
  SELECT RAISE(ABORT, 'guard:obligation_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id AND at_ms = NEW.at_ms
      AND name = '{TransitionName.OBLIGATION_DONE}');
END;

CREATE TRIGGER obligations_done_held AFTER INSERT ON obligations_done BEGIN
  UPDATE holdings SET record_bytes = record_bytes + {ROW_BYTES};
END;

CREATE TRIGGER obligations_done_gone AFTER DELETE ON obligations_done BEGIN
  UPDATE holdings SET record_bytes = record_bytes - {ROW_BYTES};
END;
"""
