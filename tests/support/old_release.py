"""Issuers as an earlier release left them: keys, a ledger of an old schema with a busy history, and its audit file.

`tests/fixtures/schema_1` to `schema_3` were dumped from ledgers that the landed code of that schema made, with a clock
of its own and the two keys below. Between the first and the second of them lies a rotation; that of schema 2 was
collected from and restored before. That of schema 3 is the one of schema 2, which its release upgraded and went on
with: invocations, obligations, evidence with what was charged. The place of the audit file is signed, so it is signed
again for the folder of a test.
"""

import base64
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from audit import JsonlSink, create
from issuer.places import Places
from issuer.sealing import KeyRing, Purpose, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from ledger.model import InstantMs, LedgerId
from ledger.sqlite import rows
from ledger.transitions import SpanRow
from tests.support.issuers import Made
from tests.support.ledgers import attacker

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
NUMBERS: Final = (1, 2, 3)
"""The earlier schemas that a release made."""

KEYS: Final = {7: ("open_only", b"\x01" * 32), 9: ("active", b"\x02" * 32)}
LAST_ENTRIES: Final = {
    1: InstantMs(1_796_083_921_000),
    2: InstantMs(1_796_086_564_000),
    3: InstantMs(1_796_086_574_600),
}
"""When each old release made its last entry."""

SOON_MS: Final = 5_000
"""Permits of the old release are still in time then."""

STATES: Final = frozenset(
    {
        *("prepared", "awaiting_approval", "permitted", "denied", "expired", "admitted"),
        *("succeeded", "failed", "no_effect", "unknown"),
    }
)
"""Every state that the old release reached."""

_GUARDS: Final = "CREATE TRIGGER "


@dataclass(frozen=True, kw_only=True)
class OldIssuer(Made):
    """An issuer of an earlier release, closed; `number` is its schema."""

    number: int

    @property
    def last_entry(self) -> InstantMs:
        """When the old release made its last entry."""
        return LAST_ENTRIES[self.number]

    @property
    def now(self) -> InstantMs:
        """Soon after that."""
        return InstantMs(self.last_entry + SOON_MS)

    @property
    def places(self) -> Places:
        """Where it keeps what."""
        return Places(self.profile)

    @property
    def ring(self) -> KeyRing:
        """Its keys, as they are now."""
        return open_key_ring(self.places.keys)

    @property
    def kept(self) -> Path:
        """Where an upgrade keeps a copy."""
        return self.ledger.with_name(f"ledger.sqlite.schema{self.number}")

    @property
    def fixture(self) -> Path:
        """Where its ledger and its profile come from."""
        return FIXTURES / f"schema_{self.number}"


def old_issuer(folder: Path, *edits: str, number: int = 1) -> OldIssuer:
    """Make the issuer of an earlier schema in `folder`; each of `edits` is an attack that changed it, guards away."""
    made = OldIssuer(folder=folder, sink=folder / "state" / "spans.jsonl", number=number)
    for part in ("", "policies", "keys", "ledger", "protected", "credentials"):
        (folder / part).mkdir(mode=0o700)
    profile = (made.fixture / "profile.toml").read_text(encoding="utf-8")
    made.profile.write_text(profile.replace("@UID@", str(os.getuid())), encoding="utf-8")
    policies = (made.fixture / "policies.cedar").read_text(encoding="utf-8")
    (folder / "policies" / "policies.cedar").write_text(policies, encoding="utf-8")
    for key_id, (state, root) in KEYS.items():
        key = folder / "keys" / f"{key_id:08x}.key"
        key.touch(mode=0o600)
        key.write_text(f"v1 {key_id:08x} {state} {base64.b64encode(root).decode()}\n", encoding="ascii")
    _make_ledger(made, edits)
    if number > 1:
        _bind_keys(made)
    return made


def _bind_keys(made: OldIssuer) -> None:
    """Let the keys belong to the ledger as the releases of schema 2 and 3 wrote it."""
    raw = attacker(made.ledger)
    row = raw.execute("SELECT ledger_id FROM ledger").fetchone()
    raw.close()
    ledger_id = "led_" + "0" * 32 if row is None else row[0]
    schema = [] if made.number == 2 else [str(made.number)]
    said = "\x00".join(("keys", ledger_id, *schema)).encode()
    mac = hmac.digest(made.ring.subkey(Purpose.MARKS, 7), said, "sha256")
    version = " ".join((f"v{len(schema) + 1}", *schema))
    binding = made.places.keys / "ledger"
    binding.touch(mode=0o600)
    binding.write_text(f"{version} {ledger_id} {7:08x} {mac.hex()}\n", encoding="ascii")


def _make_ledger(made: OldIssuer, edits: Sequence[str]) -> None:
    made.ledger.touch(mode=0o600)
    tables, guards, triggers = (made.fixture / "ledger.sql").read_text(encoding="utf-8").partition(_GUARDS)
    raw = attacker(made.ledger)
    try:
        raw.execute("PRAGMA journal_mode = wal")
        raw.execute("PRAGMA foreign_keys = OFF")
        raw.executescript(f"BEGIN; {tables} COMMIT;")
        _place_sink(made, raw)
        raw.execute("PRAGMA ignore_check_constraints = ON")
        for edit in edits:
            if raw.execute(edit).rowcount == 0:
                raise AssertionError(f"the attack changed nothing: {edit}")
        raw.executescript(guards + triggers)
    finally:
        raw.close()


def _place_sink(made: OldIssuer, raw: Any) -> None:
    """Sign another place for the audit file, and write it there as far as the old release had."""
    keys = RingAuthenticator(made.ring)
    name, kind, mac = raw.execute("SELECT name, kind, mac FROM sinks").fetchone()
    signed = keys.tag("row", rows.sink_authority(name, kind, str(made.sink)), like=mac)
    raw.execute("UPDATE sinks SET location = ?, mac = ?", (str(made.sink), signed))
    spans = OldSpans(raw)
    create(made.sink, spans.ledger_id, name=name)
    sink = JsonlSink(made.sink, spans.ledger_id, name=name, required=True)
    sink.ship(spans, spans.spans_after(0, limit=1000)[-1].position, 60.0)
    sink.close()


class OldSpans:
    """The spans of an old ledger, as a sink reads them."""

    def __init__(self, raw: Any) -> None:
        (found,) = raw.execute("SELECT ledger_id FROM ledger").fetchone()
        self.ledger_id: Final = LedgerId(found)
        sql = f"SELECT {rows.SPAN_COLUMNS} FROM spans ORDER BY sequence"  # noqa: S608 - our own columns
        self._rows = [rows.span_from(self.ledger_id, row) for row in raw.execute(sql)]

    def spans_after(self, sequence: int, *, limit: int) -> Sequence[SpanRow]:
        """See `SpanSource`."""
        return self._rows[sequence : sequence + limit]

    def span_at(self, sequence: int) -> SpanRow | None:
        """See `SpanSource`."""
        return self._rows[sequence - 1] if 0 < sequence <= len(self._rows) else None

    def epoch_after(self, epoch: int) -> SpanRow | None:
        """See `SpanSource`."""
        later = (row for row in self._rows if row.position.epoch > epoch)
        return next(later, None)


def content(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of every table, and the schema's own texts, as another program finds them."""
    raw = attacker(path)
    try:
        found = {"sqlite_schema": raw.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()}
        for kind, name, _sql in found["sqlite_schema"]:
            if kind == "table":
                found[name] = raw.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608 - its own tables
        found["version"] = raw.execute("PRAGMA user_version").fetchall()
        return {name: sorted(rows, key=repr) for name, rows in found.items()}
    finally:
        raw.close()
