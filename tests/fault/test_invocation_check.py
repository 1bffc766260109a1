"""`check` over invocations and obligations: every row edited, removed, set back or put in is named with its place."""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from pathlib import Path

import pytest

from issuer.sealing.authenticator import RingAuthenticator
from issuer.wiring import open_ledger
from ledger.errors import LedgerCorrupt
from ledger.model import InvocationId
from ledger.sqlite.invocation_rows import INVOCATION_COLUMNS, invocation_authority, invocation_from
from tests.support.busy import Busy
from tests.support.editing import Edit, assert_named
from tests.support.invoking import invoked_issuer
from tests.support.ledger_edits_three import CANCELLED, EDITS_THREE
from tests.support.ledgers import attacker, without_guards
from tests.support.recount import recounted


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Busy:
    return invoked_issuer(tmp_path_factory.mktemp("invoked") / "f0")


@pytest.fixture
def invoked(kept: Busy, tmp_path: Path) -> Busy:
    return kept.copied(tmp_path / "f0")


@pytest.mark.spec("LED-04", "LED-02")
def test_a_healthy_ledger_with_invocations_has_no_finding(invoked: Busy) -> None:
    assert invoked.check().findings == ()
    recounted(invoked.places.ledger)
    raw = attacker(invoked.places.ledger)
    found = {word for (word,) in raw.execute("SELECT outcome FROM invocations")}
    raw.close()
    assert found == {None, "succeeded", "cancelled", "failed_application", "rejected"}


@pytest.mark.spec("LED-06", "INV-02", "EFF-09")
@pytest.mark.parametrize("edit", EDITS_THREE, ids=[edit.name for edit in EDITS_THREE])
def test_an_edit_of_an_invocation_is_named_with_its_place(invoked: Busy, edit: Edit) -> None:
    assert_named(invoked, edit)


@pytest.mark.spec("LED-06", "INV-02", "ADM-01")
def test_an_earlier_row_of_an_ended_invocation_is_genuine_and_serves_nobody(invoked: Busy) -> None:
    raw = attacker(invoked.places.ledger)
    sql = f"SELECT {INVOCATION_COLUMNS} FROM invocations WHERE invocation_id = {CANCELLED}"
    row = list(raw.execute(sql).fetchone())
    told = f"SELECT sequence FROM spans WHERE name = 'invocation.opened' AND story = '{row[0]}'"
    (sequence,) = raw.execute(told).fetchone()
    raw.close()
    row[6] = row[7] = None
    mac = RingAuthenticator(invoked.ring).tag(
        "row", invocation_authority(invocation_from(tuple(row)), sequence)
    )
    without_guards(
        invoked.places.ledger,
        f"UPDATE invocations SET outcome = NULL, ended_ms = NULL, sequence = {sequence}, mac = X'{mac.hex()}' "
        f"WHERE invocation_id = '{row[0]}'",
    )
    ledger = open_ledger(invoked.places, invoked.ring)
    with pytest.raises(LedgerCorrupt) as refused:
        ledger.read(lambda view: view.invocation(InvocationId(row[0])))
    ledger.close()
    assert refused.value.reason == "standing"
    assert {"invocation_set_back", "standing"} <= {found.what for found in invoked.check().findings}
