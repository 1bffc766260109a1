"""A target that is not what was prepared any more costs no permit and no money (EFF-07, ADM-01)."""

from pathlib import Path

import pytest

from tests.support.issuers import Made, budget_line, permitted, standard_issuer

NOTES = """
[operation.note]
class = "refund"
resource = { type = "Note", id = "{name}" }
payload = { name = { string = 40, public = true } }
cost = { "USD.cent" = 1 }
file = { action = "create", root = "notes", path = "{name}", content = "said" }
"""

POLICY = """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note);
"""


@pytest.fixture(name="made")
def _made(tmp_path: Path) -> Made:
    before = "[operation.publish]"
    (tmp_path / "f0" / "notes").mkdir(parents=True)
    changes = {before: NOTES + before}
    return standard_issuer(tmp_path / "f0", port=9, policy=POLICY, changes=changes)


@pytest.mark.spec("EFF-07", "ADM-01")
def test_a_permit_for_a_target_that_changed_is_not_spent(made: Made) -> None:
    note = made.folder / "notes" / "n-1"
    with made.open() as issuer:
        effect = permitted(issuer.request("note", {"name": "n-1"}, task="t1", actor="agent-7"))
        note.write_text("somebody else's", encoding="utf-8")
        refused = issuer.commit(effect)
        assert (refused.code, refused.state) == ("prepare_again", "permitted")
        assert refused.more["field"] == "file_exists"
        assert (budget_line(issuer, "t1")["reserved"], note.read_text()) == (0, "somebody else's")
        note.unlink()
        assert issuer.commit(effect).code == "succeeded"
        assert (budget_line(issuer, "t1")["settled"], note.read_text()) == (1, "said")
