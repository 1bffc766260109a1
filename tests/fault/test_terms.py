"""A process that lives long serves the owner's terms as they are now, and never half of them (POL-04, POL-05)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer

NEVER = """
@id("never-again")
@say("The owner stopped refunds.")
forbid (principal, action in Action::"permit", resource is Order);
"""


def rewrite(path: Path, text: str) -> None:
    """Write a file as an editor does: whole, under its own name."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, path)  # noqa: PTH105


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(answer(201), answer(201)) as service:
        yield service


@pytest.fixture(name="made")
def _made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.mark.spec("POL-05", "ADM-01")
def test_a_policy_written_after_the_permit_stops_the_commit_in_an_open_process(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        rewrite(made.folder / "policies" / "policies.cedar", STANDARD_POLICY + NEVER)
        stopped = issuer.commit(effect)
        assert (stopped.code, stopped.say) == ("denied", "The owner stopped refunds.")
        assert service.connections == 0
        rewrite(made.folder / "policies" / "policies.cedar", STANDARD_POLICY)
        assert issuer.commit(effect).code == "succeeded"
    assert service.connections == 1


@pytest.mark.spec("POL-05", "POL-04")
def test_a_policy_file_that_is_added_counts_and_a_broken_one_leaves_the_good_ones_serving(made: Made) -> None:
    with made.open() as issuer:
        added = made.folder / "policies" / "more.cedar"
        added.write_text("permit (principal, action, resource)", encoding="utf-8")
        assert refund(issuer, order="o-1").code == "permitted"
        rewrite(added, NEVER)
        assert refund(issuer, order="o-2").code == "denied"
        added.unlink()
        assert refund(issuer, order="o-3").code == "permitted"


@pytest.mark.spec("OPR-02", "EFF-07")
def test_an_operation_changed_after_the_permit_voids_it_in_an_open_process(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        text = made.profile.read_text(encoding="utf-8")
        rewrite(made.profile, text.replace('body = { order = "{order}"', 'body = { ref = "{order}"'))
        assert issuer.commit(effect).code == "prepare_again"
    assert service.connections == 0


@pytest.mark.spec("POL-04")
def test_a_profile_that_cannot_be_read_changes_nothing_in_an_open_process(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        rewrite(made.profile, "this is no profile")
        assert issuer.commit(effect).code == "succeeded"
    assert service.connections == 1
