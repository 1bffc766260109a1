"""A process that lives long serves the revision in force, whoever activates it, and never a draft (POL-04, POL-05)."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from policies import BundleRefused
from tests.support.issuers import STANDARD_POLICY, Made, open_task, permitted, refund, standard_issuer
from tests.support.revised import activated, demand_one_revision, rewritten, spans_of
from tests.support.service import Service, answer

NEVER = """
@id("never-again")
@say("The owner stopped refunds.")
forbid (principal, action in Action::"permit", resource is Order);
"""


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(answer(201), answer(201)) as service:
        yield service


@pytest.fixture(name="made")
def _made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.mark.spec("POL-05", "POL-07", "ADM-01")
def test_a_policy_activated_after_the_permit_stops_the_commit_in_an_open_process(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        rewritten(made.folder / "policies" / "policies.cedar", STANDARD_POLICY + NEVER)
        activated(made.profile)
        stopped = issuer.commit(effect)
        assert (stopped.code, stopped.say) == ("denied", "The owner stopped refunds.")
        assert service.connections == 0
        rewritten(made.folder / "policies" / "policies.cedar", STANDARD_POLICY)
        activated(made.profile)
        assert issuer.commit(effect).code == "succeeded"
        in_force = demand_one_revision(spans_of(issuer))
    assert service.connections == 1
    assert (len(in_force), in_force[0]) == (3, in_force[2])


@pytest.mark.spec("POL-07")
def test_a_draft_is_not_in_force_neither_in_an_open_process_nor_in_a_fresh_one(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        rewritten(made.folder / "policies" / "policies.cedar", STANDARD_POLICY + NEVER)
        (made.folder / "policies" / "more.cedar").write_text(NEVER.replace("never", "nor"), encoding="utf-8")
        rewritten(made.profile, made.profile.read_text(encoding="utf-8").replace('"10m"', '"1m"'))
        assert issuer.commit(effect).code == "succeeded"
    with made.open() as fresh:
        assert refund(fresh, order="o-2").code == "permitted"
        assert len(demand_one_revision(spans_of(fresh))) == 1
    assert service.connections == 1


@pytest.mark.spec("POL-04", "POL-07")
def test_a_broken_draft_stops_no_request_and_is_not_activated(made: Made) -> None:
    added = made.folder / "policies" / "more.cedar"
    added.write_text("permit (principal, action, resource)", encoding="utf-8")
    with made.open() as issuer:
        with pytest.raises(BundleRefused):
            Issuer.activate(made.profile)
        assert refund(issuer, order="o-1").code == "permitted"
        added.write_text(NEVER, encoding="utf-8")
        activated(made.profile)
        assert refund(issuer, order="o-2").code == "denied"
        added.unlink()
        assert refund(issuer, order="o-2").code == "denied"
        activated(made.profile)
        assert refund(issuer, order="o-3").code == "permitted"


@pytest.mark.spec("OPR-02", "EFF-07")
def test_an_operation_changed_after_the_permit_voids_it_in_an_open_process(
    made: Made, service: Service
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        text = made.profile.read_text(encoding="utf-8")
        rewritten(made.profile, text.replace('body = { order = "{order}"', 'body = { ref = "{order}"'))
        activated(made.profile)
        assert issuer.commit(effect).code == "prepare_again"
    assert service.connections == 0


@pytest.mark.spec("POL-04", "POL-07")
def test_a_profile_that_cannot_be_read_changes_nothing(made: Made, service: Service) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        rewritten(made.profile, "this is no profile")
        assert issuer.commit(effect).code == "succeeded"
    with made.open() as fresh:
        assert refund(fresh, order="o-2").code == "permitted"
    assert service.connections == 1


@pytest.mark.spec("POL-07", "ADM-03", "AUD-02")
def test_an_open_process_waits_for_the_sinks_that_the_revision_in_force_requires(
    tmp_path: Path, service: Service
) -> None:
    local = 'sink.local = { type = "jsonl", path = "audit", required = true }'
    far = 'sink.far = { type = "jsonl", path = "far", required = false }'
    made = standard_issuer(tmp_path / "two", port=service.port, changes={local: f"{local}\n{far}"})
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        sinks = issuer._house.ledger.read(lambda view: {one.name: one.location for one in view.sinks()})
        Path(sinks["far"]).write_text("this is no trail\n", encoding="utf-8")
        text = made.profile.read_text(encoding="utf-8")
        rewritten(made.profile, text.replace(far, far.replace("false", "true")))
        activated(made.profile)
        assert issuer.commit(effect).code == "audit_unavailable"
        assert service.connections == 0
        rewritten(made.profile, text)
        activated(made.profile)
        assert issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("POL-07", "ADM-03", "AUD-02")
def test_what_was_admitted_waits_for_the_sinks_of_its_own_revision_whatever_is_in_force_by_then(
    tmp_path: Path, service: Service
) -> None:
    local = 'sink.local = { type = "jsonl", path = "audit", required = true }'
    far = 'sink.far = { type = "jsonl", path = "far", required = true }'
    made = standard_issuer(tmp_path / "two", port=service.port, changes={local: f"{local}\n{far}"})
    steps: list[str] = []

    def observe(step: str) -> None:
        steps.append(step)
        if steps[-4:] == ["sinks_probed", "locked", "before_commit", "committed"]:
            # What another thread does that has just read a revision which waits for less.
            steps.append("loosened")
            issuer._house.delivery.require({"local": True, "far": False})

    with made.open(observe=observe) as issuer:
        effect = permitted(refund(issuer))
        assert issuer.commit(effect).code == "prepare_again"
        assert "loosened" in steps
        assert service.connections == 0


@pytest.mark.spec("POL-07", "LED-02")
def test_an_open_process_keeps_the_rest_of_the_trail_that_the_revision_in_force_keeps(made: Made) -> None:
    with made.open() as issuer:
        before = issuer._house.ledger.noise_bytes_max
        text = made.profile.read_text(encoding="utf-8")
        rewritten(made.profile, text.replace("[person]", "[ledger]\nspan_bytes = 8_000_000\n[person]"))
        activated(made.profile)
        assert refund(issuer).code == "permitted"
        here = issuer._house.ledger.noise_bytes_max
        with made.open() as fresh:
            assert before != here == fresh._house.ledger.noise_bytes_max


@pytest.mark.spec("POL-07", "SEC-02")
def test_an_account_is_whoever_the_revision_in_force_says_in_an_open_process_as_well(made: Made) -> None:
    login = f', login = "uid:{os.getuid()}"'
    text = made.profile.read_text(encoding="utf-8")
    with made.open() as issuer:
        assert issuer.freeze("class", "refund").code == "suspended_now"
        assert issuer.thaw("class", "refund").code == "resumed"
        agent = 'agent-8 = { answers_to = "u-ana", groups = ["bots"]'
        rewritten(made.profile, text.replace(login, "").replace(agent, agent + login))
        activated(made.profile)
        assert issuer.freeze("class", "refund").code == "forbidden"
        assert refund(issuer).code == "forbidden"  # it was another's name to ask in
        assert len(demand_one_revision(spans_of(issuer))) == 2


@pytest.mark.spec("REP-06", "POL-07")
def test_a_host_reports_in_the_unit_that_was_bound_though_the_owner_has_dropped_it_since(
    tmp_path: Path, service: Service
) -> None:
    paper = 'cost = { "page" = 3 }\nhost ='
    limits = 'each = { "USD.cent" = 500, "page" = 5 }'
    changes = {'cost = { "USD.cent" = 1 }\nhost =': paper, 'each = { "USD.cent" = 500 }': limits}
    made = standard_issuer(tmp_path / "f0", port=service.port, changes=changes)
    with made.open() as issuer:
        whom = ["agent-7", "agent-8"]
        open_task(issuer, "paper", budget={"page": 100}, subject="u-ana", actors=whom)
        payload = {"name": "n"}
        effect = permitted(issuer.request("publish", payload, task="paper", actor="agent-7"))
        claim = str(issuer.admit(effect).more["claim"])
        text = made.profile.read_text(encoding="utf-8").replace(paper, 'cost = { "USD.cent" = 1 }\nhost =')
        rewritten(made.profile, text.replace(limits, 'each = { "USD.cent" = 500 }'))
        activated(made.profile)
        assert issuer.report(effect, claim, succeeded=True, cost={"page": 4}).code == "succeeded"
