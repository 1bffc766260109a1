"""The tables of the ledger and their CHECKs, as text for SQLite.

Rules: LED-05 (states held again by the database), ADM-02 (one use, one reservation), BUD-02 (`no_overspend`), LED-06
(authority rows carry a MAC), PER-04 (a use outlives its effect). Names of CHECKs are stable.
Next: `ledger.sqlite.triggers`, what happens beside a change, and what never does.
"""

from typing import Final

from ledger.authority import CHANGES_OF_AUTHORITY
from ledger.invocations import InvocationOutcome
from ledger.model import (
    AMOUNT_MAX,
    BINDING_BYTES_MAX,
    NAME_LENGTH_MAX,
    TASK_DEPTH_MAX,
    TaskState,
    Tier,
)
from ledger.standing import BUCKETS, DIGEST_BYTES, REGISTER_BYTES, Standing
from ledger.states import LEGAL_MOVES, PENDING, PERMIT_UNUSED, SETTLED, UNUSED, EffectState

SPAN_BYTES_MAX: Final = 16 * 1024
"""Bytes of one span body; bounded by the vocabulary of `audit`, checked again here."""

SEAL_BYTES_MAX: Final = 2048
"""Bytes of a sealed permit, as `issuer.sealing` bounds it."""

TASK_TEXT_MAX: Final = 256 * 1024
"""Characters of a task's ceilings, or of its scope: 64 names of each kind at their longest fit."""

AMOUNTS_TEXT_MAX: Final = 16 * 1024
"""Characters of the amounts of one piece of evidence: far more units than an operation has."""

OVERRUN_MAX: Final = AMOUNT_MAX * 512
"""Sum of overruns of one line: each effect in flight may report the largest amount, and none is lost (BUD-03)."""


def names(values: object) -> str:
    """Render a set of enum words as an SQL list."""
    return ", ".join(f"'{value}'" for value in sorted(values))  # type: ignore[call-overload]


_ENDED_STATES: Final = frozenset(state for state, targets in LEGAL_MOVES.items() if not targets)

TABLES: Final = f"""
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
  pending BLOB NOT NULL CHECK (length(pending) = {DIGEST_BYTES}),
  standing BLOB NOT NULL CHECK (length(standing) = {DIGEST_BYTES}),
  boot TEXT NOT NULL CHECK (length(boot) <= 64),
  boot_ms INTEGER NOT NULL CHECK (boot_ms >= 0),
  mac BLOB NOT NULL
) STRICT;

CREATE TABLE standing(
  kind TEXT PRIMARY KEY CHECK (kind IN ({names(Standing)})),
  register BLOB NOT NULL CHECK (length(register) = {REGISTER_BYTES})
) STRICT, WITHOUT ROWID;

CREATE TABLE holdings(
  one INTEGER PRIMARY KEY CHECK (one = 1),
  effects INTEGER NOT NULL CHECK (effects >= 0),
  tombstones INTEGER NOT NULL CHECK (tombstones >= 0),
  record_bytes INTEGER NOT NULL CHECK (record_bytes >= 0),
  spans INTEGER NOT NULL CHECK (spans >= 0),
  span_bytes INTEGER NOT NULL CHECK (span_bytes >= 0)
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
  leaf BLOB NOT NULL CHECK (length(leaf) = 32),
  actor TEXT,
  subject TEXT,
  task_id TEXT,
  operation TEXT,
  resource TEXT,
  signer TEXT
) STRICT;
CREATE INDEX spans_story ON spans(story, sequence);
CREATE INDEX spans_changes ON spans(sequence) WHERE name IN ({names(CHANGES_OF_AUTHORITY)});
CREATE INDEX spans_name ON spans(name, sequence);
CREATE INDEX spans_actor ON spans(actor, sequence) WHERE actor IS NOT NULL;
CREATE INDEX spans_subject ON spans(subject, sequence) WHERE subject IS NOT NULL;
CREATE INDEX spans_task_id ON spans(task_id, sequence) WHERE task_id IS NOT NULL;
CREATE INDEX spans_operation ON spans(operation, sequence) WHERE operation IS NOT NULL;
CREATE INDEX spans_resource ON spans(resource, sequence) WHERE resource IS NOT NULL;
CREATE INDEX spans_signer ON spans(signer, sequence) WHERE signer IS NOT NULL;

CREATE TABLE span_policies(
  policy TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  PRIMARY KEY (policy, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE archived_leaves(
  sequence INTEGER PRIMARY KEY CHECK (sequence >= 1),
  epoch INTEGER NOT NULL,
  leaf BLOB NOT NULL CHECK (length(leaf) = 32)
) STRICT;

CREATE TABLE tasks(
  task_id TEXT PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  parent_id TEXT REFERENCES tasks(task_id),
  root_id TEXT NOT NULL,
  depth INTEGER NOT NULL CHECK (depth BETWEEN 0 AND {TASK_DEPTH_MAX - 1}),
  subject TEXT NOT NULL,
  actors TEXT NOT NULL,
  expires_ms INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ({names(TaskState)})),
  opened_ms INTEGER NOT NULL,
  ceilings TEXT NOT NULL CHECK (length(ceilings) <= {TASK_TEXT_MAX}),
  scope TEXT NOT NULL CHECK (length(scope) <= {TASK_TEXT_MAX}),
  bucket INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND {BUCKETS - 1}),
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  CHECK ((parent_id IS NULL) = (depth = 0)),
  CHECK (depth > 0 OR root_id = task_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX tasks_bucket ON tasks(bucket, task_id, mac);

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
  kind TEXT NOT NULL CHECK (kind IN ('set', 'add')),
  amount INTEGER CHECK (amount BETWEEN 0 AND {AMOUNT_MAX}),
  mac BLOB NOT NULL,
  CHECK (kind = 'set' OR amount >= 1),
  PRIMARY KEY (task_id, unit, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE budgets(
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  unit TEXT NOT NULL,
  ceiling INTEGER CHECK (ceiling BETWEEN 0 AND {AMOUNT_MAX}),
  reserved INTEGER NOT NULL DEFAULT 0 CONSTRAINT reserved_range CHECK (reserved BETWEEN 0 AND {AMOUNT_MAX}),
  settled INTEGER NOT NULL DEFAULT 0 CONSTRAINT settled_range CHECK (settled BETWEEN 0 AND {AMOUNT_MAX}),
  overrun INTEGER NOT NULL DEFAULT 0 CONSTRAINT overrun_range CHECK (overrun BETWEEN 0 AND {OVERRUN_MAX}),
  above INTEGER NOT NULL DEFAULT 0 CONSTRAINT above_range CHECK (above BETWEEN 0 AND {2 * AMOUNT_MAX}),
  CONSTRAINT no_overspend CHECK (ceiling IS NULL OR reserved <= ceiling - settled + above),
  CONSTRAINT above_exact CHECK (above = 0 OR above = reserved + settled - ceiling),
  PRIMARY KEY (task_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE overruns_accepted(
  task_id TEXT NOT NULL,
  unit TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  amount INTEGER NOT NULL CHECK (amount BETWEEN 1 AND {AMOUNT_MAX}),
  PRIMARY KEY (task_id, unit, sequence),
  FOREIGN KEY (task_id, unit) REFERENCES budgets(task_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE invocations(
  invocation_id TEXT PRIMARY KEY,
  caller TEXT NOT NULL,
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  actor TEXT NOT NULL,
  opened_ms INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL CHECK (deadline_ms > opened_ms),
  outcome TEXT CHECK (outcome IN ({names(InvocationOutcome)})),
  ended_ms INTEGER,
  bucket INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND {BUCKETS - 1}),
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  CHECK ((outcome IS NULL) = (ended_ms IS NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX invocations_bucket ON invocations(bucket, invocation_id, mac) WHERE outcome IS NULL;
CREATE INDEX invocations_deadline ON invocations(deadline_ms) WHERE outcome IS NULL;
CREATE INDEX invocations_task ON invocations(task_id) WHERE outcome IS NULL;
CREATE INDEX invocations_ended ON invocations(ended_ms) WHERE outcome IS NOT NULL;

CREATE TABLE effects(
  effect_id TEXT PRIMARY KEY,
  state TEXT NOT NULL CHECK (state IN ({names(EffectState)})),
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
  window_ends_ms INTEGER NOT NULL,
  replayed INTEGER NOT NULL CHECK (replayed IN (0, 1)),
  invocation_id TEXT REFERENCES invocations(invocation_id),
  bucket INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND {BUCKETS - 1}),
  last_span TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  UNIQUE (caller, task_id, request_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX effects_state ON effects(state, expires_ms);
CREATE INDEX effects_task ON effects(task_id, state);
CREATE INDEX effects_window ON effects(window_ends_ms) WHERE state IN ({names(SETTLED)});
CREATE INDEX effects_pending ON effects(bucket, effect_id, mac) WHERE state IN ({names(PENDING)});

CREATE INDEX effects_unused ON effects(sequence) WHERE state IN ({names(PERMIT_UNUSED)});
CREATE INDEX effects_invocation ON effects(invocation_id, state) WHERE invocation_id IS NOT NULL;

CREATE TABLE tombstones(
  effect_id TEXT PRIMARY KEY,
  state TEXT NOT NULL CHECK (state IN ({names(_ENDED_STATES)})),
  caller TEXT NOT NULL,
  task_id TEXT NOT NULL REFERENCES tasks(task_id),
  subject TEXT NOT NULL,
  actor TEXT NOT NULL,
  operation TEXT NOT NULL,
  request_key TEXT NOT NULL,
  request BLOB NOT NULL CHECK (length(request) <= {BINDING_BYTES_MAX}),
  content_key BLOB NOT NULL CHECK (length(content_key) = 32),
  resource_key BLOB NOT NULL CHECK (length(resource_key) = 32),
  permit_id TEXT UNIQUE,
  prepared_ms INTEGER NOT NULL,
  ended_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  UNIQUE (caller, task_id, request_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX tombstones_unpermitted ON tombstones(sequence) WHERE permit_id IS NULL AND state IN ({names(UNUSED)});
CREATE INDEX tombstones_unused ON tombstones(sequence) WHERE permit_id IS NOT NULL AND state IN ({names(UNUSED)});

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
  tier TEXT NOT NULL CHECK (tier IN ({names(Tier)})),
  issued_ms INTEGER NOT NULL,
  expires_ms INTEGER NOT NULL,
  caps TEXT NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE permit_uses(
  permit_id TEXT PRIMARY KEY,
  effect_id TEXT NOT NULL UNIQUE,
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
  PRIMARY KEY (effect_id, task_id, unit, sequence),
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
  charged TEXT NOT NULL CHECK (length(charged) <= {AMOUNTS_TEXT_MAX}),
  PRIMARY KEY (effect_id, sequence)
) STRICT, WITHOUT ROWID;

CREATE TABLE obligations(
  effect_id TEXT NOT NULL REFERENCES effects(effect_id),
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND {NAME_LENGTH_MAX}),
  deadline_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  PRIMARY KEY (effect_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE obligations_done(
  effect_id TEXT NOT NULL,
  name TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  PRIMARY KEY (effect_id, name),
  FOREIGN KEY (effect_id, name) REFERENCES obligations(effect_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE counters(
  counter TEXT PRIMARY KEY,
  used INTEGER NOT NULL CHECK (used >= 0),
  ceiling INTEGER NOT NULL,
  CONSTRAINT class_bound CHECK (used <= ceiling)
) STRICT, WITHOUT ROWID;

CREATE TABLE counter_takes(
  effect_id TEXT NOT NULL REFERENCES effects(effect_id),
  counter TEXT NOT NULL REFERENCES counters(counter),
  amount INTEGER NOT NULL CHECK (amount BETWEEN 0 AND {AMOUNT_MAX}),
  PRIMARY KEY (effect_id, counter)
) STRICT, WITHOUT ROWID;

CREATE TABLE collected_spend(
  task_id TEXT NOT NULL,
  unit TEXT NOT NULL,
  charged INTEGER NOT NULL CHECK (charged >= 0),
  overrun INTEGER NOT NULL CHECK (overrun >= 0),
  PRIMARY KEY (task_id, unit),
  FOREIGN KEY (task_id, unit) REFERENCES budgets(task_id, unit)
) STRICT, WITHOUT ROWID;

CREATE TABLE collected_takes(
  counter TEXT PRIMARY KEY REFERENCES counters(counter),
  amount INTEGER NOT NULL CHECK (amount >= 0)
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
