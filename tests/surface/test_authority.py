"""What a caller, an agent or a tool says about itself grants nothing (OPR-05, SEC-02, APP-01)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.issuers import budget_line, permitted, refund, standard_issuer
from tests.support.revised import activated
from tests.support.service import Service, answer

HINTS = (
    {"readOnly": True},
    {"idempotent": True},
    {"annotations": {"destructiveHint": False, "readOnlyHint": True}},
    {"_meta": {"safe": True}},
    {"approved": True, "approved_by": "u-ana"},
    {"role": "owner"},
    {"permit": "pmt_" + "0" * 32},
    {"tier": "issue"},
)


@pytest.mark.spec("OPR-05", "SEC-02")
@pytest.mark.parametrize("hint", HINTS, ids=lambda hint: next(iter(hint)))
def test_a_hint_or_a_claim_beside_the_payload_is_refused_and_changes_no_decision(
    tmp_path: Path, hint: dict[str, object]
) -> None:
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            said = {"order": "o-1", "amount": 900, **hint}
            refused = issuer.request("refund", said, task="org", actor="agent-7")
            assert (refused.code, refused.more["reason"]) == ("malformed", "undeclared_field")
            # Without the hint the same amount needs a person, and with one it would have needed one too.
            asked = refund(issuer, amount=900, task="org")
            assert asked.code == "awaiting_approval"
            assert issuer.commit(asked.effect or "").code == "not_permitted_yet"
        assert service.connections == 0


@pytest.mark.spec("SEC-02")
def test_the_caller_is_the_account_and_nothing_in_the_environment_makes_it_another(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    environment = {
        **os.environ,
        "USER": "boss",
        "LOGNAME": "boss",
        "SUDO_USER": "boss",
        "ISSUER_ACTOR": "boss",
    }
    command = [sys.executable, "-c", "from issuer.surfaces.cli import main; main()"]
    shown = subprocess.run(
        [*command, "--json", "--profile", str(made.profile), "show", effect],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert '"caller": "u-ana"' in shown.stdout
    assert "boss" not in shown.stdout


@pytest.mark.spec("SEC-02", "BUD-01")
def test_an_actor_the_task_does_not_name_gets_nothing_whoever_asks_for_it(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer:
        payload = {"order": "o-1", "amount": 300}
        refused = issuer.request("refund", payload, task="t1.a", actor="agent-8")
        assert (refused.code, refused.more["field"]) == ("forbidden", "actor")
        assert budget_line(issuer, "t1.a")["reserved"] == 0


@pytest.mark.spec("EFF-08", "SEC-02", "SEC-04")
def test_the_effect_of_another_account_reads_exactly_like_a_missing_one(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    mine = made.profile.read_text()
    made.profile.write_text(mine.replace(f"uid:{os.getuid()}", "uid:4294967294"))
    activated(made.profile)
    with made.open() as issuer:
        for use in (issuer.show, issuer.timeline, issuer.commit, issuer.admit, issuer.request_held):
            told = use(effect)
            assert (told.code, told) == ("not_found", use("eff_" + "0" * 32))
        told = issuer.report(effect, "clm_mine", succeeded=True)
        assert told.code == "not_found"
    made.profile.write_text(mine)
    activated(made.profile)
    with made.open() as issuer:
        assert (issuer.show(effect).state, budget_line(issuer, "t1")["reserved"]) == ("permitted", 0)
