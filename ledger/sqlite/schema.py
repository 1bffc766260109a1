"""The tables, CHECKs and triggers that make a wrong transaction impossible, as text for SQLite.

Rules: LED-05 (the states table held again by the database), ADM-02 (one use, one reservation), BUD-02
(`no_overspend`), AUD-01 (no state change without its own new span), LED-06 (authority rows carry a MAC).
Names of CHECKs and texts of RAISE are stable: they say which guard fired.
Next: `ledger.sqlite.migrations` writes this into a new file; `ledger.sqlite.writes` fills it.
"""

import hashlib
import re
from functools import cache
from typing import Final

from ledger.model import AMOUNT_MAX, BINDING_BYTES_MAX, TASK_DEPTH_MAX, TaskState, Tier
from ledger.pending import SUM_BYTES
from ledger.states import LEGAL_MOVES, PENDING, SLOT_RETURNING, UNRESOLVED, EffectState

APPLICATION_ID: Final = 0x504D4C47
"""`PMLG`: tells this ledger from any other SQLite file (LED-04)."""

SCHEMA_VERSION: Final = 1
"""`PRAGMA user_version` of this schema; a newer one is refused (LED-04)."""

SPAN_BYTES_MAX: Final = 16 * 1024
"""Bytes of one span body; bounded by the vocabulary of `audit`, checked again here."""

SEAL_BYTES_MAX: Final = 2048
"""Bytes of a sealed permit, as `issuer.sealing` bounds it."""

OVERRUN_MAX: Final = AMOUNT_MAX * 512
"""Sum of overruns of one line: each effect in flight may report the largest amount, and none is lost (BUD-03)."""


def _names(values: object) -> str:
    """Render a set of enum words as an SQL list."""
    return ", ".join(f"'{value}'" for value in sorted(values))  # type: ignore[call-overload]


_MOVES: Final = " OR ".join(
    f"(OLD.state = '{origin}' AND NEW.state IN ({_names(targets)}))"
    for origin, targets in LEGAL_MOVES.items()
    if targets
)
_SETTLED_STATES: Final = frozenset({EffectState.SUCCEEDED, EffectState.FAILED, EffectState.NO_EFFECT})


_TABLES: Final = f"""
CREATE TABLE ledger(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  ledger_id TEXT NOT NULL CHECK (length(ledger_id) = 36),
  created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE head(
  lane INTEGER PRIMARY KEY CHECK (lane = 0),
  epoch INTEGER NOT NULL CHECK (epoch >= 1),
  sequence INTEGER NOT NULL CHECK (sequence >= 0),
  frontier BLOB NOT NULL,
  root BLOB NOT NULL CHECK (length(root) = 32),
  clock_ms INTEGER NOT NULL,
  pending BLOB NOT NULL CHECK (length(pending) = {SUM_BYTES}),
  mac BLOB NOT NULL
) STRICT;

CREATE TABLE spans(
  sequence INTEGER PRIMARY KEY CHECK (sequence >= 1),
  epoch INTEGER NOT NULL,
  lane INTEGER NOT NULL CHECK (lane = 0),
  span_id TEXT NOT NULL UNIQUE CHECK (length(span_id) = 16),
  trace_id TEXT NOT NULL CHECK (length(trace_id) = 32),
  name TEXT NOT NULL,
  story TEXT NOT NULL,
  effect_id TEXT,
  state_to TEXT,
  at_ms INTEGER NOT NULL,
  body BLOB NOT NULL CONSTRAINT span_size CHECK (length(body) BETWEEN 2 AND {SPAN_BYTES_MAX}),
  leaf BLOB NOT NULL CHECK (length(leaf) = 32)
) STRICT;
CREATE INDEX spans_story ON spans(story, sequence);

CREATE TABLE tasks(
  task_id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  parent_id TEXT REFERENCES tasks(task_id),
  root_id TEXT NOT NULL,
  depth INTEGER NOT NULL CHECK (depth BETWEEN 0 AND {TASK_DEPTH_MAX - 1}),
  subject TEXT NOT NULL,
  actors TEXT NOT NULL,
  expires_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ({_names(TaskState)})),
  opened_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  CHECK ((parent_id IS NULL) = (depth = 0)),
  CHECK (depth > 0 OR root_id = task_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_path(
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  distance INTEGER NOT NULL CHECK (distance BETWEEN 0 AND {TASK_DEPTH_MAX - 1}),
  ancestor_id TEXT NOT NULL REFERENCES tasks(task_id),
  PRIMARY KEY (task_id, distance),
  UNIQUE (task_id, ancestor_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE grants(
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  unit TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  amount INTEGER CHECK (amount BETWEEN 0 AND {AMOUNT_MAX}),
  mac BLOB NOT NULL,
  PRIMARY KEY (task_id, unit, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE budgets(
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  unit TEXT NOT NULL,
  ceiling INTEGER CHECK (ceiling BETWEEN 0 AND {AMOUNT_MAX}),
  reserved INTEGER NOT NULL DEFAULT 0 CONSTRAINT reserved_range CHECK (reserved BETWEEN 0 AND {AMOUNT_MAX}),
  settled INTEGER NOT NULL DEFAULT 0 CONSTRAINT settled_range CHECK (settled BETWEEN 0 AND {AMOUNT_MAX}),
  overrun INTEGER NOT NULL DEFAULT 0 CONSTRAINT overrun_range CHECK (overrun BETWEEN 0 AND {OVERRUN_MAX}),
  CONSTRAINT no_overspend CHECK (ceiling IS NULL OR reserved <= ceiling - settled),
  PRIMARY KEY (task_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE effects(
  effect_id TEXT PRIMARY KEY,
  state TEXT NOT NULL CHECK (state IN ({_names(EffectState)})),
  caller TEXT NOT NULL,
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  root_id TEXT NOT NULL,
  subject TEXT NOT NULL,
  actor TEXT NOT NULL,
  operation TEXT NOT NULL,
  action_class TEXT NOT NULL,
  resource_type TEXT NOT NULL,
  resource_id TEXT NOT NULL,
  request_key TEXT NOT NULL,
  request BLOB NOT NULL CHECK (length(request) <= {BINDING_BYTES_MAX}),
  binding BLOB NOT NULL CHECK (length(binding) <= {BINDING_BYTES_MAX}),
  binding_digest BLOB NOT NULL CHECK (length(binding_digest) = 32),
  content_key BLOB NOT NULL CHECK (length(content_key) = 32),
  resource_key BLOB NOT NULL CHECK (length(resource_key) = 32),
  cost TEXT NOT NULL,
  protected INTEGER NOT NULL CHECK (protected IN (0, 1)),
  prepared_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  last_span TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  UNIQUE (caller, task_id, request_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_state ON effects(state, expires_ms);

CREATE TABLE decisions(
  sequence INTEGER PRIMARY KEY REFERENCES spans(sequence),
  effect_id TEXT NOT NULL REFERENCES effects(effect_id),
  at_ms INTEGER NOT NULL,
  body BLOB NOT NULL CHECK (length(body) <= {BINDING_BYTES_MAX})
) STRICT;
CREATE INDEX decisions_effect ON decisions(effect_id, sequence);

CREATE TABLE permits(
  effect_id TEXT PRIMARY KEY REFERENCES effects(effect_id),
  permit_id TEXT NOT NULL UNIQUE,
  seal TEXT NOT NULL CHECK (length(seal) <= {SEAL_BYTES_MAX}),
  tier TEXT NOT NULL CHECK (tier IN ({_names(Tier)})),
  issued_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  caps TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE permit_uses(
  permit_id TEXT PRIMARY KEY,
  effect_id TEXT NOT NULL UNIQUE REFERENCES effects(effect_id),
  sequence INTEGER NOT NULL UNIQUE REFERENCES spans(sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE claims(
  effect_id TEXT PRIMARY KEY REFERENCES permit_uses(effect_id),
  instance TEXT NOT NULL,
  boot TEXT NOT NULL,
  claim_hash BLOB NOT NULL CHECK (length(claim_hash) = 32),
  admitted_ms INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL CHECK (deadline_ms > admitted_ms),
  mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE reservations(
  effect_id TEXT NOT NULL REFERENCES permit_uses(effect_id),
  task_id TEXT NOT NULL,
  unit TEXT NOT NULL,
  amount INTEGER NOT NULL CHECK (amount BETWEEN 0 AND {AMOUNT_MAX}),
  PRIMARY KEY (effect_id, task_id, unit),
  FOREIGN KEY (task_id, unit) REFERENCES budgets(task_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE settlements(
  effect_id TEXT NOT NULL REFERENCES permit_uses(effect_id),
  task_id TEXT NOT NULL,
  unit TEXT NOT NULL,
  charged INTEGER NOT NULL CONSTRAINT charged_range CHECK (charged BETWEEN 0 AND {AMOUNT_MAX}),
  overrun INTEGER NOT NULL CHECK (overrun BETWEEN 0 AND {AMOUNT_MAX}),
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  PRIMARY KEY (effect_id, task_id, unit),
  FOREIGN KEY (task_id, unit) REFERENCES budgets(task_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE evidence(
  effect_id TEXT NOT NULL REFERENCES effects(effect_id),
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  class TEXT NOT NULL,
  source TEXT NOT NULL,
  proves TEXT NOT NULL,
  reference TEXT NOT NULL CHECK (length(reference) <= 256),
  late INTEGER NOT NULL CHECK (late IN (0, 1)),
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (effect_id, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE counters(
  counter TEXT PRIMARY KEY,
  used INTEGER NOT NULL CHECK (used >= 0),
  ceiling INTEGER NOT NULL,
  CONSTRAINT class_bound CHECK (used <= ceiling)
) STRICT, WITHOUT ROWID;

CREATE TABLE counter_takes(
  effect_id TEXT NOT NULL REFERENCES permits(effect_id),
  counter TEXT NOT NULL REFERENCES counters(counter),
  amount INTEGER NOT NULL CHECK (amount BETWEEN 0 AND {AMOUNT_MAX}),
  PRIMARY KEY (effect_id, counter)
) STRICT, WITHOUT ROWID;

CREATE TABLE repetition(
  kind TEXT NOT NULL CHECK (kind IN ('content', 'resource')),
  key BLOB NOT NULL,
  pending INTEGER NOT NULL CHECK (pending >= 0),
  unresolved INTEGER NOT NULL CHECK (unresolved >= 0),
  succeeded INTEGER NOT NULL CHECK (succeeded >= 0),
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE sinks(
  name TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  location TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;
"""

_BEHAVIOUR: Final = f"""
CREATE TRIGGER spans_contiguous BEFORE INSERT ON spans BEGIN
  SELECT RAISE(ABORT, 'guard:span_sequence') WHERE NEW.sequence
    IS NOT coalesce((SELECT max(sequence) FROM spans), 0) + 1;
END;

CREATE TRIGGER head_forward BEFORE UPDATE ON head BEGIN
  SELECT RAISE(ABORT, 'guard:head_behind') WHERE NEW.sequence <= OLD.sequence OR NEW.epoch < OLD.epoch
    OR NEW.clock_ms < OLD.clock_ms OR NEW.lane IS NOT OLD.lane
    OR NEW.sequence IS NOT (SELECT max(sequence) FROM spans);
END;

CREATE TRIGGER tasks_path AFTER INSERT ON tasks BEGIN
  SELECT RAISE(ABORT, 'guard:task_parent') WHERE NEW.parent_id IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM tasks AS p WHERE p.task_id = NEW.parent_id AND p.root_id = NEW.root_id
      AND p.depth = NEW.depth - 1 AND p.state = 'open');
  INSERT INTO task_path VALUES (NEW.task_id, 0, NEW.task_id);
  INSERT INTO task_path SELECT NEW.task_id, distance + 1, ancestor_id FROM task_path WHERE task_id = NEW.parent_id;
END;

CREATE TRIGGER tasks_identity BEFORE UPDATE ON tasks
  WHEN NEW.task_id IS NOT OLD.task_id OR NEW.name IS NOT OLD.name OR NEW.parent_id IS NOT OLD.parent_id
    OR NEW.root_id IS NOT OLD.root_id OR NEW.depth IS NOT OLD.depth OR NEW.subject IS NOT OLD.subject
    OR NEW.actors IS NOT OLD.actors OR NEW.expires_ms IS NOT OLD.expires_ms OR NEW.opened_ms IS NOT OLD.opened_ms
    OR OLD.state = 'closed' OR NEW.sequence <= OLD.sequence
  BEGIN SELECT RAISE(ABORT, 'guard:task_identity'); END;

CREATE TRIGGER grants_apply AFTER INSERT ON grants BEGIN
  INSERT INTO budgets(task_id, unit, ceiling) VALUES (NEW.task_id, NEW.unit, NEW.amount)
    ON CONFLICT (task_id, unit) DO UPDATE SET ceiling = ceiling + NEW.amount;
END;

CREATE TRIGGER effects_begin BEFORE INSERT ON effects BEGIN
  SELECT RAISE(ABORT, 'guard:effect_begins_prepared') WHERE NEW.state IS NOT 'prepared';
  SELECT RAISE(ABORT, 'guard:state_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id AND state_to = NEW.state
      AND span_id = NEW.last_span);
  SELECT RAISE(ABORT, 'guard:task_not_open') WHERE NOT EXISTS (SELECT 1 FROM task_path WHERE task_id = NEW.task_id)
    OR EXISTS (SELECT 1 FROM task_path AS p JOIN tasks AS t ON t.task_id = p.ancestor_id
      WHERE p.task_id = NEW.task_id AND t.state <> 'open');
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
  SELECT RAISE(ABORT, 'guard:task_not_open') WHERE NEW.state IN ('permitted', 'admitted') AND EXISTS (
    SELECT 1 FROM task_path AS p JOIN tasks AS t ON t.task_id = p.ancestor_id
      WHERE p.task_id = NEW.task_id AND t.state <> 'open');
  SELECT RAISE(ABORT, 'guard:outcome_without_settlement') WHERE NEW.state IN ({_names(_SETTLED_STATES)})
    AND EXISTS (SELECT 1 FROM reservations AS r WHERE r.effect_id = NEW.effect_id AND NOT EXISTS (
      SELECT 1 FROM settlements AS s WHERE s.effect_id = r.effect_id AND s.task_id = r.task_id AND s.unit = r.unit));
END;

CREATE TRIGGER effects_fixed BEFORE UPDATE OF effect_id, caller, task_id, root_id, subject, actor, operation,
  action_class, resource_type, resource_id, request_key, request, binding, binding_digest, content_key, resource_key,
  cost, protected, prepared_ms, expires_ms, mac ON effects
  BEGIN SELECT RAISE(ABORT, 'guard:effect_identity'); END;

CREATE TRIGGER effects_repetition_begin AFTER INSERT ON effects BEGIN
  INSERT INTO repetition VALUES ('content', NEW.content_key, 1, 0, 0)
    ON CONFLICT (kind, key) DO UPDATE SET pending = pending + 1;
  INSERT INTO repetition VALUES ('resource', NEW.resource_key, 1, 0, 0)
    ON CONFLICT (kind, key) DO UPDATE SET pending = pending + 1;
END;

CREATE TRIGGER effects_repetition_move AFTER UPDATE OF state ON effects BEGIN
  UPDATE repetition SET
    pending = pending + (NEW.state IN ({_names(PENDING)})) - (OLD.state IN ({_names(PENDING)})),
    unresolved = unresolved + (NEW.state IN ({_names(UNRESOLVED)})) - (OLD.state IN ({_names(UNRESOLVED)})),
    succeeded = succeeded + (NEW.state = 'succeeded') - (OLD.state = 'succeeded')
    WHERE kind = 'content' AND key = NEW.content_key;
  UPDATE repetition SET
    pending = pending + (NEW.state IN ({_names(PENDING)})) - (OLD.state IN ({_names(PENDING)})),
    unresolved = unresolved + (NEW.state IN ({_names(UNRESOLVED)})) - (OLD.state IN ({_names(UNRESOLVED)})),
    succeeded = succeeded + (NEW.state = 'succeeded') - (OLD.state = 'succeeded')
    WHERE kind = 'resource' AND key = NEW.resource_key;
END;

CREATE TRIGGER counter_takes_apply AFTER INSERT ON counter_takes BEGIN
  UPDATE counters SET used = used + NEW.amount WHERE counter = NEW.counter;
END;

CREATE TRIGGER counter_takes_return AFTER UPDATE OF state ON effects
  WHEN NEW.state IN ({_names(SLOT_RETURNING)}) BEGIN
  UPDATE counters SET used = used - (SELECT amount FROM counter_takes AS t
      WHERE t.effect_id = NEW.effect_id AND t.counter = counters.counter)
    WHERE counter IN (SELECT counter FROM counter_takes WHERE effect_id = NEW.effect_id);
END;

CREATE TRIGGER reservations_apply AFTER INSERT ON reservations BEGIN
  SELECT RAISE(ABORT, 'guard:reservation_off_path') WHERE NOT EXISTS (
    SELECT 1 FROM effects AS e JOIN task_path AS p ON p.task_id = e.task_id
      WHERE e.effect_id = NEW.effect_id AND p.ancestor_id = NEW.task_id);
  SELECT RAISE(ABORT, 'guard:overrun_blocks') WHERE EXISTS (
    SELECT 1 FROM budgets WHERE task_id = NEW.task_id AND unit = NEW.unit AND overrun > 0);
  UPDATE budgets SET reserved = reserved + NEW.amount WHERE task_id = NEW.task_id AND unit = NEW.unit;
END;

CREATE TRIGGER settlements_apply AFTER INSERT ON settlements BEGIN
  SELECT RAISE(ABORT, 'guard:charge_above_reservation') WHERE NEW.charged > coalesce((
    SELECT amount FROM reservations WHERE effect_id = NEW.effect_id AND task_id = NEW.task_id AND unit = NEW.unit), 0);
  UPDATE budgets SET
    reserved = reserved - coalesce((SELECT amount FROM reservations
      WHERE effect_id = NEW.effect_id AND task_id = NEW.task_id AND unit = NEW.unit), 0),
    settled = settled + NEW.charged,
    overrun = overrun + NEW.overrun
    WHERE task_id = NEW.task_id AND unit = NEW.unit;
END;
"""

_APPEND_ONLY: Final = (
    "ledger",
    "spans",
    "task_path",
    "grants",
    "decisions",
    "permits",
    "permit_uses",
    "claims",
    "reservations",
    "settlements",
    "evidence",
    "counter_takes",
    "sinks",
)
_NEVER_DELETED: Final = (*_APPEND_ONLY, "head", "tasks", "budgets", "effects", "counters", "repetition")


def schema_statements() -> str:
    """Return every statement that builds an empty ledger of `SCHEMA_VERSION`, in order."""
    guards = [
        f"CREATE TRIGGER {table}_never_updated BEFORE UPDATE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'guard:append_only_{table}'); END;"
        for table in _APPEND_ONLY
    ]
    guards += [
        f"CREATE TRIGGER {table}_never_deleted BEFORE DELETE ON {table} "
        f"BEGIN SELECT RAISE(ABORT, 'guard:append_only_{table}'); END;"
        for table in _NEVER_DELETED
    ]
    return _TABLES + _BEHAVIOUR + "\n".join(guards)


def schema_digest(rows: list[tuple[str, str, str | None]]) -> str:
    """Return the digest of a live schema: (type, name, sql) of every object, in name order (LED-04).

    SQLite's own tables and the bookkeeping of migrations are left out by the caller.
    """
    text = "\x00".join(f"{kind}\x01{name}\x01{sql or ''}" for kind, name, sql in sorted(rows))
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def expected_digest() -> str:
    """Return the digest of the schema that this release makes: an opened ledger has exactly it (LED-04)."""
    rows: list[tuple[str, str, str | None]] = []
    for statement in re.split(r"^(?=CREATE )", schema_statements(), flags=re.MULTILINE)[1:]:
        _create, kind, rest = statement.split(maxsplit=2)
        name = re.match(r"\w+", rest)
        rows.append((kind.lower(), "" if name is None else name[0], statement.rstrip().removesuffix(";")))
    return schema_digest(rows)
