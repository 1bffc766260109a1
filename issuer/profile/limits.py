"""Every size, count and duration that a profile is held to, with the reason of its number.

These are limits of the *reader*: they keep one bad file from costing memory or time (OPR-01, POL-03).
Limits of tasks and budgets are not here; they belong to the ledger. `issuer/profile/fields.py` comes next.
"""

from typing import Final

from ledger.canonical import WHOLE_MAX

__all__ = [
    "CELL_BYTES_MAX",
    "DEPTH_MAX",
    "DURATION_MS_MAX",
    "DURATION_MS_MIN",
    "EFFECTS_RANGE",
    "ENTRIES_MAX",
    "FIELD_NAME_CHARACTERS_MAX",
    "FINDINGS_MAX",
    "FORMAT",
    "NAME_CHARACTERS_MAX",
    "NOTICE_ARGUMENTS_MAX",
    "NOTICE_TABLES_MAX",
    "PAYLOAD_FIELDS_MAX",
    "PROFILE_BYTES_MAX",
    "RECORD_BYTES_RANGE",
    "REGISTRY_BYTES_MAX",
    "REGISTRY_ROWS_MAX",
    "RETENTION_MS_MAX",
    "SEGMENT_BYTES_RANGE",
    "SPAN_BYTES_RANGE",
    "STRING_BYTES_MAX",
    "TEXT_CHARACTERS_MAX",
    "UID_MAX",
    "UNENDED_RANGE",
    "WAIT",
    "WHOLE_MAX",
]

FORMAT: Final = 1
"""The only profile format this release reads; a newer file must not be half understood."""

PROFILE_BYTES_MAX: Final = 256 * 1024
"""Bytes of a profile: some thousand entries, and still parsed in well under a second."""

REGISTRY_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of one registry file: 10,000 rows of 400 bytes."""

REGISTRY_ROWS_MAX: Final = 10_000
"""Rows of one registry: as many as the ledger retains effects in its default profile (LED-02)."""

CELL_BYTES_MAX: Final = 1024
"""Bytes of one registry cell in use; it travels into resource ids and bindings, which are bounded."""

DEPTH_MAX: Final = 12
"""Parts of one dotted path; the deepest real one (`operation.NAME.inspect.absent.after`) has five."""

ENTRIES_MAX: Final = 1_000
"""Entries of one table or list: people, operations, groups. Keeps the spelling hints affordable."""

FINDINGS_MAX: Final = 100
"""Findings shown at once; nobody repairs more before looking again."""

NAME_CHARACTERS_MAX: Final = 64
"""Characters of a name: fits a DNS label plus one, and the names of MCP tools."""

NOTICE_TABLES_MAX: Final = 16
"""Places where people are told; the commands of all of them run beside each other."""

NOTICE_ARGUMENTS_MAX: Final = 32
"""Program and arguments of one command; whoever needs more writes a script."""

FIELD_NAME_CHARACTERS_MAX: Final = 40
"""Characters of a payload field's name; it is an attribute in the generated Cedar schema."""

PAYLOAD_FIELDS_MAX: Final = 64
"""Fields of one payload: an approver has to read all of them (APP-02)."""

STRING_BYTES_MAX: Final = 65_536
"""Bytes of one payload string: the largest encoded ledger record (LED-02)."""

TEXT_CHARACTERS_MAX: Final = 4_096
"""Characters of a path, URL or template; PATH_MAX of Linux. A file's content template is not held to it."""

DURATION_MS_MIN: Final = 1_000
"""One second: below that, clock reading and syncs dominate a lifetime."""

DURATION_MS_MAX: Final = 7 * 24 * 3_600 * 1_000
"""Seven days: the longest a permit may wait for its use; PER-04 keeps tombstones at least that long."""

WAIT: Final = "24h"
"""A day: who was asked in the evening can answer in the morning. An owner may say less, or up to seven days."""

RETENTION_MS_MAX: Final = 366 * 24 * 3_600 * 1_000
"""One leap year, for what a *service* keeps (idempotency keys, late acceptance): not ours to shorten."""

EFFECTS_RANGE: Final = (10, 100_000)
"""Effects that an owner may let the ledger retain: up to ten times what its default was measured with (LED-02)."""

RECORD_BYTES_RANGE: Final = (4 * 1024 * 1024, 640 * 1024 * 1024)
"""Bytes of records. A tenth of the least is room for how forty effects of the largest record end."""

SPAN_BYTES_RANGE: Final = (4 * 1024 * 1024, 10 * 1024 * 1024 * 1024)
"""Bytes of spans; a full check reads all of them, some seconds a GiB."""

SEGMENT_BYTES_RANGE: Final = (1024 * 1024, 64 * 1024 * 1024 * 1024)
"""Bytes at which an audit file is full: fewer would make more files than a folder is good for."""

UNENDED_RANGE: Final = (1, 10_000)
"""Effects of one task that are not over: all of them may be looked at in one transaction."""

UID_MAX: Final = 2**32 - 2
"""Largest user id of Linux; 2^32 - 1 means "no change" in setuid(2)."""
