"""`issuer keys`, as it is typed."""

from pathlib import Path

import pytest

from tests.support.issuers import standard_issuer
from tests.support.shell import issuer_here

NOBODY = 1


@pytest.mark.spec("SEC-03", "SUR-01", "SUR-03", "SEC-01")
def test_keys_are_listed_rotated_retired_and_revoked_and_never_shown(tmp_path: Path) -> None:
    folder = standard_issuer(tmp_path / "f0", port=NOBODY).folder
    rotated = issuer_here("keys", "rotate", "--json", at=folder)
    assert (rotated.exit, rotated.answer["code"]) == (0, "rotated")
    shown = issuer_here("keys", "list", at=folder)
    rows = [line for line in shown.out.splitlines() if line.endswith(("0 live permits", "counts repetition"))]
    assert (shown.exit, len(rows)) == (0, 2)
    (old,) = [row.split()[0] for row in rows if " open_only since 20" in row]
    retired = issuer_here("keys", "retire", old, at=folder)
    assert (retired.exit, retired.out.splitlines()[-1].startswith("The key opens no permit")) == (0, True)
    revoked = issuer_here("keys", "revoke", old, at=folder)
    assert (revoked.exit, "make a new one" in revoked.out) == (0, True)
    roots = [line.split()[3] for line in (folder / "keys" / "ring").read_text().splitlines()[1:-1]]
    assert len(roots) == 3
    assert not any(root in ran.out for root in roots for ran in (rotated, shown, retired, revoked))
    unknown = issuer_here("keys", "retire", "00000000", "--json", at=folder)
    assert (unknown.exit, unknown.answer["code"], unknown.answer["field"]) == (2, "not_found", "key")
