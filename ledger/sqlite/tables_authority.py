"""The tables of rulings, waits and approvals, and what the database holds of them by itself, as text for SQLite.

Rules: APP-01 (an approval is append-only and stands beside a wait), POL-07 and ADM-05 (a ruling changes with its own
span only), LED-02 (what is held is counted; only used challenges go), LED-06. Texts of RAISE are stable.
Next: `ledger.sqlite.schema` puts tables and triggers together.
"""

from typing import Final

from ledger.authority import (
    RULING_TEXT_MAX,
    RULING_VALUE_MAX,
    SIGNATURE_BYTES_MAX,
    STATEMENT_DIGEST_BYTES,
    RulingKind,
)
from ledger.model import NAME_LENGTH_MAX
from ledger.sqlite.tables import names
from ledger.sqlite.triggers import ROW_BYTES
from ledger.standing import BUCKETS
from ledger.transitions import TransitionName

_LAST: Final = "(SELECT max(sequence) FROM spans)"
_RULES: Final = frozenset(
    {
        TransitionName.REVISION_ACTIVATED,
        *(TransitionName.STOP_FROZEN, TransitionName.STOP_THAWED, TransitionName.STOP_REVOKED),
        *(TransitionName.CREDENTIAL_ISSUED, TransitionName.CREDENTIAL_REVOKED),
        *(TransitionName.SINK_REGISTERED, TransitionName.SINK_REPLACED, TransitionName.SINK_QUARANTINED),
    }
)
"""Spans that a ruling other than a challenge may come with; a challenge comes with whatever it was used for."""

_BY_APPROVAL: Final = "SELECT 1 FROM permits WHERE effect_id = NEW.effect_id AND tier = 'approval'"

AUTHORITY_TABLES: Final = f"""
CREATE TABLE rulings(
  ruling_id TEXT PRIMARY KEY CHECK (length(ruling_id) = 36),
  bucket INTEGER NOT NULL CHECK (bucket BETWEEN 0 AND {BUCKETS - 1}),
  kind TEXT NOT NULL CHECK (kind IN ({names(RulingKind)})),
  name TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND {RULING_TEXT_MAX}),
  value TEXT NOT NULL CHECK (length(value) BETWEEN 1 AND {RULING_VALUE_MAX}),
  voids_until_ms INTEGER NOT NULL CHECK (voids_until_ms >= 0),
  since_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  UNIQUE (kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX rulings_bucket ON rulings(bucket, ruling_id, mac);

CREATE TABLE approval_waits(
  effect_id TEXT PRIMARY KEY REFERENCES effects(effect_id),
  approvers TEXT NOT NULL CHECK (length(approvers) <= 2048),
  statement_digest BLOB NOT NULL CHECK (length(statement_digest) = {STATEMENT_DIGEST_BYTES}),
  asked_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals(
  effect_id TEXT NOT NULL REFERENCES approval_waits(effect_id),
  person TEXT NOT NULL CHECK (length(person) BETWEEN 1 AND {NAME_LENGTH_MAX}),
  key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND {NAME_LENGTH_MAX}),
  signature TEXT NOT NULL CHECK (length(signature) BETWEEN 1 AND {SIGNATURE_BYTES_MAX}),
  at_ms INTEGER NOT NULL,
  sequence INTEGER NOT NULL REFERENCES spans(sequence),
  mac BLOB NOT NULL,
  PRIMARY KEY (effect_id, person)
) STRICT, WITHOUT ROWID;
"""

AUTHORITY_TRIGGERS: Final = f"""
CREATE TRIGGER rulings_begin BEFORE INSERT ON rulings BEGIN
  SELECT RAISE(ABORT, 'guard:ruling_without_span') WHERE NEW.sequence IS NOT {_LAST} OR NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence
      AND (NEW.kind = '{RulingKind.CHALLENGE}' OR name IN ({names(_RULES)})));
END;

CREATE TRIGGER rulings_move BEFORE UPDATE ON rulings BEGIN
  SELECT RAISE(ABORT, 'guard:ruling_identity') WHERE NEW.ruling_id IS NOT OLD.ruling_id OR NEW.kind IS NOT OLD.kind
    OR NEW.name IS NOT OLD.name OR NEW.bucket IS NOT OLD.bucket OR OLD.kind = '{RulingKind.CHALLENGE}';
  SELECT RAISE(ABORT, 'guard:ruling_without_span') WHERE NEW.sequence IS NOT {_LAST} OR NEW.sequence <= OLD.sequence
    OR NOT EXISTS (SELECT 1 FROM spans WHERE sequence = NEW.sequence AND name IN ({names(_RULES)}));
END;

CREATE TRIGGER rulings_challenges_only BEFORE DELETE ON rulings
  WHEN OLD.kind <> '{RulingKind.CHALLENGE}' OR CAST(OLD.value AS INTEGER) > (
    SELECT at_ms FROM spans WHERE sequence = {_LAST}) BEGIN
  SELECT RAISE(ABORT, 'guard:append_only_rulings');
END;

CREATE TRIGGER rulings_held AFTER INSERT ON rulings BEGIN
  UPDATE holdings SET record_bytes = record_bytes + 2 * {ROW_BYTES};
END;

CREATE TRIGGER rulings_gone AFTER DELETE ON rulings BEGIN
  UPDATE holdings SET record_bytes = record_bytes - 2 * {ROW_BYTES};
END;

CREATE TRIGGER approval_waits_begin BEFORE INSERT ON approval_waits BEGIN
  SELECT RAISE(ABORT, 'guard:wait_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id
      AND name = '{TransitionName.EFFECT_AWAITING_APPROVAL}');
END;

CREATE TRIGGER approval_waits_held AFTER INSERT ON approval_waits BEGIN
  UPDATE holdings SET record_bytes = record_bytes + {ROW_BYTES};
END;

CREATE TRIGGER approval_waits_gone AFTER DELETE ON approval_waits BEGIN
  UPDATE holdings SET record_bytes = record_bytes - {ROW_BYTES};
END;

CREATE TRIGGER approvals_begin BEFORE INSERT ON approvals BEGIN
  SELECT RAISE(ABORT, 'guard:approval_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND effect_id = NEW.effect_id AND at_ms = NEW.at_ms
      AND name = '{TransitionName.EFFECT_APPROVED}');
  SELECT RAISE(ABORT, 'guard:approval_of_nothing') WHERE NOT EXISTS (
    SELECT 1 FROM effects WHERE effect_id = NEW.effect_id AND state = 'awaiting_approval');
END;

CREATE TRIGGER approvals_held AFTER INSERT ON approvals BEGIN
  UPDATE holdings SET record_bytes = record_bytes + length(NEW.signature) + {ROW_BYTES};
END;

CREATE TRIGGER approvals_gone AFTER DELETE ON approvals BEGIN
  UPDATE holdings SET record_bytes = record_bytes - length(OLD.signature) - {ROW_BYTES};
END;

CREATE TRIGGER effects_approved BEFORE UPDATE OF state ON effects WHEN NEW.state = 'permitted' BEGIN
  SELECT RAISE(ABORT, 'guard:permitted_without_approval')
    WHERE (OLD.state = 'awaiting_approval' OR EXISTS ({_BY_APPROVAL}))
    AND (NOT EXISTS (SELECT 1 FROM approvals WHERE effect_id = NEW.effect_id) OR NOT EXISTS ({_BY_APPROVAL}));
END;
"""
