"""One registry of the owner: a CSV file whose entries an actor may name, and nothing more (EFF-12).

Decides whether the file is one table with one meaning: UTF-8 (RFC 4180 quoting), a header without repeats,
the declared columns present, every row as wide as the header, keys unique, and no empty, padded or control
character in a cell that is used. Rows are kept with their key and declared columns only; the digest covers
exactly these, in any order of rows, so a comment column may change and an account may not.

Cells are never repeated in a finding: a line number is enough, and an account is nobody's business
(SEC-01).
"""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from issuer.profile.findings import Finding, FindingCode
from issuer.profile.limits import CELL_BYTES_MAX, FINDINGS_MAX, REGISTRY_BYTES_MAX, REGISTRY_ROWS_MAX
from issuer.profile.models import RegistrySource
from ledger.canonical import canonical_bytes

__all__ = ["Registry", "read_registry"]

_DIGEST_DOMAIN: Final = b"permit-issuer/registry/v1\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """The entries of one registry.

    `rows` maps a key to its columns: the declared `fields` and the `key` column itself. `digest` is SHA-256
    over key, fields and rows, in lower-case hex.
    """

    key: str
    fields: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]
    digest: str


@dataclass(slots=True, kw_only=True)
class _Complaints:
    """The findings of one file, bounded: one wrong export must not fill memory with sentences."""

    where: str
    key: str
    found: list[Finding] = field(default_factory=list)

    def add(self, line: int, code: FindingCode, message: str) -> None:
        self.found.append(
            Finding(where=self.where, line=line, column=1, key=self.key, code=code, message=message)
        )

    @property
    def is_full(self) -> bool:
        return len(self.found) > FINDINGS_MAX


def read_registry(name: str, source: RegistrySource, text: str) -> Registry | list[Finding]:
    """Read the text of one registry file.

    Args:
        name: the registry's name, for the findings' key.
        source: what the profile declares about it.
        text: the whole file, decoded.

    Returns:
        The registry, or every finding (at least one), with lines of the CSV file.
    """
    complaints = _Complaints(where=source.file, key=f"registry.{name}")
    if len(text.encode("utf-8", "replace")) > REGISTRY_BYTES_MAX:
        complaints.add(1, FindingCode.TOO_LARGE, f"A registry has at most {REGISTRY_BYTES_MAX} bytes.")
        return complaints.found
    rows = _rows(text, source, complaints)
    if complaints.found:
        return complaints.found
    return Registry(
        key=source.key, fields=source.fields, rows=MappingProxyType(rows), digest=_digest(source, rows)
    )


def _rows(text: str, source: RegistrySource, complaints: _Complaints) -> dict[str, Mapping[str, str]]:
    """Read header and rows; whatever is wrong goes to `complaints`."""
    records = _records(text, complaints)
    header_line, header = next(records, (1, []))
    columns = _columns(header_line, header, source, complaints)
    rows: dict[str, Mapping[str, str]] = {}
    lines: dict[str, int] = {}
    if complaints.found:
        return rows
    for line, record in records:
        if len(lines) >= REGISTRY_ROWS_MAX:
            complaints.add(line, FindingCode.TOO_LARGE, f"A registry has at most {REGISTRY_ROWS_MAX} rows.")
            return rows
        if len(record) != len(header):
            message = f"The row has {len(record)} cells and the header {len(header)}."
            complaints.add(line, FindingCode.BAD_REGISTRY, message)
        else:
            cells = {name: record[index] for name, index in columns.items()}
            _check_cells(line, cells, complaints)
            key = cells[source.key]
            if key in lines:
                message = f"The key of this row is already used on line {lines[key]}."
                complaints.add(line, FindingCode.DUPLICATE_VALUE, message)
            lines.setdefault(key, line)
            rows[key] = MappingProxyType(cells)
        if complaints.is_full:
            return rows
    return rows


def _records(text: str, complaints: _Complaints) -> Iterator[tuple[int, list[str]]]:
    """Yield each record that is not blank with the line where it begins."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as fault:
            complaints.add(line, FindingCode.BAD_REGISTRY, f"This is not CSV: {fault}.")
            return
        if record is None:
            return
        if record:
            yield line, record


def _columns(line: int, header: list[str], source: RegistrySource, complaints: _Complaints) -> dict[str, int]:
    """Return where each declared column stands."""
    if header and header[0].startswith("\ufeff"):
        complaints.add(
            line, FindingCode.BAD_REGISTRY, "The file begins with a byte order mark; save it without."
        )
        return {}
    for name in sorted({name for name in header if header.count(name) > 1}):
        complaints.add(line, FindingCode.BAD_REGISTRY, f"The header names the column {name!a} twice.")
    columns: dict[str, int] = {}
    for name in (source.key, *source.fields):
        if name in header:
            columns[name] = header.index(name)
        else:
            complaints.add(line, FindingCode.BAD_REGISTRY, f"The header lacks the declared column `{name}`.")
    return columns


def _check_cells(line: int, cells: Mapping[str, str], complaints: _Complaints) -> None:
    """Refuse a cell that could mean something else than it shows."""
    for name, cell in cells.items():
        # An empty recipient or a padded account would be bound, shown and sent as if it were one.
        if not cell or cell != cell.strip() or not cell.isprintable():
            message = f"The cell `{name}` is empty, padded with blanks, or holds a control character."
            complaints.add(line, FindingCode.BAD_REGISTRY, message)
        elif len(cell.encode("utf-8", "replace")) > CELL_BYTES_MAX:
            message = f"The cell `{name}` is longer than {CELL_BYTES_MAX} bytes."
            complaints.add(line, FindingCode.TOO_LARGE, message)


def _digest(source: RegistrySource, rows: Mapping[str, Mapping[str, str]]) -> str:
    """Return the digest; row by row, because one canonical document is smaller than a registry may be."""
    total = hashlib.sha256(_DIGEST_DOMAIN)
    total.update(canonical_bytes([source.key, list(source.fields)]) + b"\n")
    for key in sorted(rows):
        total.update(canonical_bytes([key, [rows[key][name] for name in source.fields]]) + b"\n")
    return total.hexdigest()
