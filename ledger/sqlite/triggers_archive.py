"""What the database lets an archive take away: triggers, as text for SQLite.

Rules: AUD-08, LED-05, AUD-09. A span goes only once its place and leaf stand in `archived_leaves`, only in the step of
an archive, and only if it is of a kind that may go; a leaf is put there only from the span itself. Texts of RAISE are
stable. Next: `ledger.sqlite.schema` puts tables and triggers together.
"""

from typing import Final

from ledger.archive import MAY_LEAVE
from ledger.sqlite.tables import names
from ledger.sqlite.triggers import LEAF_ROW_BYTES, SPAN_ROW_BYTES
from ledger.transitions import TransitionName

_ARCHIVING: Final = (
    "SELECT 1 FROM spans WHERE sequence = (SELECT max(sequence) FROM spans) "
    f"AND name = '{TransitionName.AUDIT_ARCHIVED}'"
)
"""Asks whether the transaction is at the step of an archive."""

ARCHIVE_TRIGGERS: Final = f"""
CREATE TRIGGER archived_leaves_begin BEFORE INSERT ON archived_leaves BEGIN
  SELECT RAISE(ABORT, 'guard:archived_without_archive') WHERE NOT EXISTS ({_ARCHIVING});
  SELECT RAISE(ABORT, 'guard:archived_without_span') WHERE NOT EXISTS (
    SELECT 1 FROM spans WHERE sequence = NEW.sequence AND epoch = NEW.epoch AND leaf = NEW.leaf);
END;

CREATE TRIGGER archived_leaves_held AFTER INSERT ON archived_leaves BEGIN
  UPDATE holdings SET span_bytes = span_bytes + {LEAF_ROW_BYTES};
END;

CREATE TRIGGER spans_archived_only BEFORE DELETE ON spans
  WHEN OLD.name NOT IN ({names(MAY_LEAVE)}) OR NOT EXISTS ({_ARCHIVING}) OR NOT EXISTS (
    SELECT 1 FROM archived_leaves WHERE sequence = OLD.sequence AND epoch = OLD.epoch AND leaf = OLD.leaf) BEGIN
  SELECT RAISE(ABORT, 'guard:append_only_spans');
END;

CREATE TRIGGER spans_gone AFTER DELETE ON spans BEGIN
  UPDATE holdings SET spans = spans - 1, span_bytes = span_bytes - length(OLD.body) - {SPAN_ROW_BYTES};
END;

CREATE TRIGGER span_policies_archived_only BEFORE DELETE ON span_policies
  WHEN NOT EXISTS ({_ARCHIVING}) OR NOT EXISTS (
    SELECT 1 FROM archived_leaves WHERE sequence = OLD.sequence) BEGIN
  SELECT RAISE(ABORT, 'guard:append_only_span_policies');
END;
"""
