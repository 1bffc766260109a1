"""What an issuer holds at one moment, taken while nobody has it open; and what a refused command may change of it.

A no writes its own span and nothing else: no other row, no byte of the sink but that span's line, no file of the
protected store, nothing at the service. Opened with the ledger's own driver, and only between commands, because a
second reader in a process that holds the ledger would drop its locks.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from ledger.sqlite.connection import DRIVER
from ledger.sqlite.triggers import SPAN_ROW_BYTES
from tests.support.issuers import Made

OF_EVERY_SPAN = frozenset({"head", "spans"})
"""The tables that every committed span moves on. Of `holdings` it moves two columns, which are the spans over again."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One moment of an issuer."""

    rows: dict[str, list[tuple[object, ...]]]
    spans: list[tuple[str, dict[str, object]]]
    sink: bytes
    files: dict[str, bytes]


def witness(made: Made) -> Seen:
    """Return what `made` holds now."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    spans: list[tuple[str, dict[str, object]]] = []
    if made.ledger.exists():
        connection = DRIVER.connect(str(made.ledger))
        try:
            told = connection.execute("SELECT name, body FROM spans ORDER BY sequence").fetchall()
            spans = [(name, json.loads(body)) for name, body in told]
            names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            tables = [name for (name,) in names.fetchall() if not name.startswith("sqlite_")]
            for table in tables:
                if table not in OF_EVERY_SPAN:
                    rows[table] = connection.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2').fetchall()  # noqa: S608 - names of our own schema
            held = sum(len(body) + SPAN_ROW_BYTES for _name, body in told)
            rows["holdings"] = [_without_spans(row, len(told), held) for row in rows["holdings"]]
        finally:
            connection.close()
    return Seen(rows=rows, spans=spans, sink=made.sink.read_bytes(), files=_files(made.folder))


def _without_spans(row: tuple[object, ...], spans: int, span_bytes: int) -> tuple[object, ...]:
    """Leave out of `holdings` what counts spans, after seeing that it counts those that are there (LED-02)."""
    if row[-2:] != (spans, span_bytes):
        raise AssertionError(f"{row} does not count the {spans} spans of {span_bytes} bytes")
    return row[:-2]


def _files(folder: Path) -> dict[str, bytes]:
    """Return every file of the issuer but those of its ledger."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.relative_to(folder).parts[0] != "ledger"
    }


def assert_nothing_but_a_refusal(before: Seen, after: Seen, *, code: str, spans: int = 1) -> None:
    """Fail unless all that came is exactly `spans` spans, each a refusal with `code` (AUD-01).

    It is 0 for what never reached an issuer, or names no caller and operation.
    """
    assert after.rows == before.rows
    assert after.files == before.files
    assert after.spans[: len(before.spans)] == before.spans
    fresh = after.spans[len(before.spans) :]
    assert len(fresh) == spans, [name for name, _body in fresh]
    for name, body in fresh:
        assert name == "refused", name
        assert body["attributes"]["permit.refusal"] == code  # type: ignore[index]
    assert after.sink.startswith(before.sink)
    for line in after.sink[len(before.sink) :].splitlines():
        assert b"permit.refused" in line
