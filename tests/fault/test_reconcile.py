"""Attempts to learn the truth: who may make one, what each leaves on record, and what none can be made to do."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit import SinkUnavailable
from issuer import Issuer
from issuer.restore.restoring import restore
from issuer.surfaces.cli.output import render
from ledger.model import EffectId
from tests.support.cases import Clock, all_at, books, command, rebuilt, refusals, state_of
from tests.support.issuers import permitted, refund
from tests.support.reconciling import (
    AFTER_3S,
    DEADLINE_MS,
    NOT_FOUND,
    Inquiry,
    Says,
    attempt_of,
    opened_inquiry,
    shows,
    with_inspector,
)
from tests.support.revised import activated
from tests.support.service import accept_then_close, answer, held
from tests.support.sinks import FaultySink, raises

NO_ROOM = raises(SinkUnavailable("faulty", "no_space", "No room."))


@pytest.fixture
def after(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S) as inquiry:
        yield inquiry


def publication(inquiry: Inquiry) -> tuple[str, str]:
    """Admit one publication for a host outside; return the effect and its claim."""
    effect = permitted(inquiry.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    return effect, str(inquiry.issuer.admit(effect).more["claim"])


@pytest.mark.spec("REC-01", "EFF-08", "SUR-02")
def test_an_effect_that_is_not_the_callers_reads_like_a_missing_one(after: Inquiry) -> None:
    effect = after.unknown()
    house = rebuilt(after.issuer)._house
    other = Issuer(house, replace(after.issuer._caller, name="u-eve"), lambda: house)
    for reference in (effect, "eff_" + "0" * 32, "nonsense"):
        for said in (other.reconcile(reference), other.acknowledge(reference, reason="checked_by_phone")):
            assert (said.code, said.effect, said.state) == ("not_found", None, None)
    assert after.service.lookups == ()
    assert after.names(effect)[-1] == "effect.unknown"


@pytest.mark.spec("REC-01", "REP-04")
def test_what_was_never_admitted_is_refused_where_it_stands_and_nobody_is_asked(after: Inquiry) -> None:
    held_back = str(refund(after.issuer, order="h-1", hold=True).effect)
    ready = permitted(refund(after.issuer, order="h-2"))
    waiting = str(refund(after.issuer, order="h-3", amount=600).effect)
    assert {after.look(one).code for one in (held_back, ready, waiting)} == {"not_permitted_yet"}
    after.pass_ms(25 * 3_600_000)  # a person has a day to answer
    after.issuer.list()
    assert {after.look(one).code for one in (held_back, ready, waiting)} == {"expired"}
    assert after.service.lookups == ()


@pytest.mark.spec("REC-01", "REP-01")
def test_what_is_settled_answers_where_it_stands_and_nobody_is_asked(after: Inquiry) -> None:
    for status, code in ((201, "succeeded"), (409, "failed"), (422, "no_effect")):
        after.service.then(answer(status))
        effect = permitted(refund(after.issuer, order=f"s-{status}", amount=1))
        assert after.issuer.commit(effect).code == code
        assert after.look(effect).code == code
        assert after.look(effect, resend=True).code == code
    assert after.service.lookups == ()


@pytest.mark.spec("REC-01", "OPR-01")
def test_an_operation_without_an_inspection_says_so_and_stays_unknown(tmp_path: Path) -> None:
    with opened_inquiry(tmp_path / "f0") as inquiry:
        effect = inquiry.unknown()
        said = with_inspector(inquiry.issuer, None).reconcile(effect)
        assert (said.code, said.more["field"], said.retryable) == ("unsupported", "inspect", False)
        assert (state_of(inquiry.issuer, effect), inquiry.service.lookups) == ("unknown", ())


@pytest.mark.spec("REC-06", "AUD-01")
def test_every_attempt_is_on_record_before_anything_is_asked_and_once_more_when_it_ends(
    after: Inquiry,
) -> None:
    effect = after.unknown()
    seen: list[object] = []

    def look_at_the_trail(step: str) -> None:
        if step == "attempt_acknowledged":
            seen.append((after.names(effect)[-1], len(after.service.lookups)))

    issuer = rebuilt(after.issuer, observe=look_at_the_trail)
    after.service.then_on_lookup(NOT_FOUND)
    issuer.reconcile(effect)
    assert seen == [("effect.inspecting", 0)]
    began, ended = after.spans(effect)[-2:]
    assert (began["permit.attempt"], ended["permit.attempt"]) == ("inspect", "inspect")
    assert (ended["permit.seen"], ended["permit.evidence.source"]) == ("absent", "http:404")
    assert after.sink_has(began, ended)


@pytest.mark.spec("REC-06", "AUD-02", "SUR-05")
@pytest.mark.parametrize("where", ["probe", "ship"])
def test_without_its_sink_nobody_is_asked_and_nothing_invites_a_repetition(
    tmp_path: Path, where: str
) -> None:
    sink = FaultySink()
    with opened_inquiry(tmp_path / "f0", further_sinks=(sink,)) as inquiry:
        effect = inquiry.unknown()
        sink.fail(NO_ROOM, probe=where == "probe", ship=where == "ship")
        said = inquiry.look(effect)
        assert (said.code, said.state, said.retryable) == ("outcome_unknown", "unknown", False)
        assert said.more["reason"] == "no_space"
        assert inquiry.service.lookups == ()
        assert refusals(inquiry.issuer)[-1][0] == "audit_unavailable"
        ended = [span for span in inquiry.spans(effect) if span["name"] == "effect.inspected"]
        assert [span["permit.reason"] for span in ended] == (
            [] if where == "probe" else ["audit_unavailable"]
        )
        sink.recover()
        assert inquiry.look(effect).code == "succeeded"
        assert books(inquiry.issuer) == all_at(settled=300)


@pytest.mark.spec("REC-05", "AUD-02", "SUR-05")
def test_a_sink_that_dies_during_the_look_keeps_the_outcome_and_forbids_to_report_it(tmp_path: Path) -> None:
    sink = FaultySink()

    def die(step: str) -> None:
        if step == "looked":
            sink.fail(NO_ROOM)

    with opened_inquiry(tmp_path / "f0", further_sinks=(sink,), observe=die) as inquiry:
        effect = inquiry.unknown()
        said = inquiry.look(effect)
        assert (said.code, said.state, said.retryable) == ("audit_pending", "succeeded", False)
        assert books(inquiry.issuer) == all_at(settled=300)
        sink.recover()
        assert inquiry.issuer.reconcile(effect).code == "succeeded"


@pytest.mark.spec("REC-01", "REC-05", "BUD-03")
def test_two_attempts_at_once_settle_once(after: Inquiry) -> None:
    effect = after.unknown()
    after.service.then_on_lookup(*(held("both", shows(effect)) for _ in range(2)))
    answers: list[str] = []
    threads = [
        threading.Thread(target=lambda: answers.append(after.issuer.reconcile(effect).code)) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    after.service.wait_for(lookups=2)
    after.service.gate("both").set()
    for thread in threads:
        thread.join()
    assert answers == ["succeeded", "succeeded"]
    assert books(after.issuer) == all_at(settled=300)
    assert after.names(effect)[-4:] == [
        "effect.inspecting",
        "effect.inspecting",
        "effect.succeeded",
        "effect.inspected",
    ]
    assert after.evidence(effect)[-1] == ("inspection", "succeeded", None)
    assert after.checked()


@pytest.mark.spec("ADM-07", "REC-05", "REC-07", "BUD-03")
@pytest.mark.parametrize(
    ("step", "evidence"),
    [
        ("found", ("inspection", "succeeded", None)),
        ("absent", ("inspection", "no_effect", "succeeded")),
    ],
)
def test_a_first_hand_word_that_comes_during_the_look_settles_and_the_look_only_adds_evidence(
    tmp_path: Path, step: str, evidence: tuple[object, ...]
) -> None:
    told: dict[str, str] = {}

    def report(reached: str) -> None:
        if reached == "looked" and told:
            effect, claim = told.popitem()
            assert inquiry.issuer.report(effect, claim, succeeded=True).code == "succeeded"

    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S, observe=report) as inquiry:
        effect, claim = publication(inquiry)
        inquiry.pass_ms(300_000 + 3_000)
        told[effect] = claim
        said = inquiry.look(effect, shows(effect) if step == "found" else NOT_FOUND)
        assert (said.code, said.state) == ("succeeded", "succeeded")
        attempt: Any = said.more["attempt"]
        assert attempt["contradicts"] is (step == "absent")
        assert books(inquiry.issuer) == all_at(settled=1)
        assert inquiry.evidence(effect)[-1] == evidence
        assert inquiry.checked()


@pytest.mark.spec("REC-01", "BUD-05", "BUD-04")
def test_a_closed_task_is_still_reconciled(after: Inquiry) -> None:
    effect = after.unknown()
    for name in ("t1", "org"):
        assert after.issuer.task_close(name).code == "closed"
    assert after.look(effect).code == "succeeded"
    assert books(after.issuer) == all_at(settled=300)


@pytest.mark.spec("PER-03", "REC-02")
def test_a_clock_that_is_set_back_resolves_nothing_and_one_that_lags_a_little_shortens_no_delay(
    after: Inquiry,
) -> None:
    effect = after.unknown(answer(503, effect=False))
    after.pass_ms(1_500)
    assert attempt_of(after.look(effect, NOT_FOUND)) == ("absent", "absence_too_early")
    after.pass_ms(-60_000)
    back = after.look(effect, NOT_FOUND)
    assert (back.code, back.more["reason"], back.retryable) == ("clock_untrusted", "clock_behind", False)
    after.pass_ms(60_000 - 1_000)
    lagging = after.look(effect, NOT_FOUND)
    assert (lagging.code, attempt_of(lagging)) == ("outcome_unknown", ("absent", "absence_too_early"))
    assert books(after.issuer) == all_at(reserved=300)


@pytest.mark.spec("PER-03", "REC-01")
def test_a_clock_that_is_set_back_during_the_look_records_nothing(tmp_path: Path) -> None:
    def back(step: str) -> None:
        if step == "looked":
            inquiry.pass_ms(-60_000)

    with opened_inquiry(tmp_path / "f0", observe=back) as inquiry:
        effect = inquiry.unknown()
        said = inquiry.look(effect)
        assert (said.code, said.retryable) == ("outcome_unknown", False)
        assert state_of(inquiry.issuer, effect) == "unknown"
        assert inquiry.names(effect)[-1] == "effect.inspecting"
        inquiry.pass_ms(60_000)
        assert command(inquiry.made, "list", "--state", "unknown").answer["effects"]


def edit_profile(inquiry: Inquiry, old: str, new: str) -> None:
    text = inquiry.made.profile.read_text(encoding="utf-8")
    assert old in text
    inquiry.made.profile.write_text(text.replace(old, new), encoding="utf-8")
    activated(inquiry.made.profile, clock=inquiry.clock)


@pytest.mark.spec("REC-01", "OPR-02")
def test_an_attempt_ends_with_the_terms_it_began_under(tmp_path: Path) -> None:
    def change(step: str) -> None:
        if step == "looked":
            edit_profile(inquiry, '"USD.cent" = 500', '"USD.cent" = 400')

    with opened_inquiry(tmp_path / "f0", observe=change) as inquiry:
        effect = inquiry.unknown()
        said = inquiry.look(effect)
        assert (said.code, attempt_of(said)) == ("outcome_unknown", ("unclear", "terms_changed"))
        assert books(inquiry.issuer) == all_at(reserved=300)


@pytest.mark.spec("REC-02", "OPR-02", "REC-04")
def test_an_owner_who_repairs_the_inspection_can_find_it_and_can_not_declare_it_away(tmp_path: Path) -> None:
    with opened_inquiry(tmp_path / "f0") as inquiry:
        effect = inquiry.unknown()
        inquiry.past_deadline(10_000)
        assert attempt_of(inquiry.look(effect, NOT_FOUND)) == ("absent", "absence_never_proves")
        edit_profile(inquiry, 'absent = "never"', f"absent = {AFTER_3S}")
        assert attempt_of(inquiry.look(effect, NOT_FOUND)) == ("absent", "contract_changed")
        assert books(inquiry.issuer) == all_at(reserved=300)
        assert inquiry.look(effect).code == "succeeded"
        assert books(inquiry.issuer) == all_at(settled=300)


@pytest.mark.spec("OPR-02", "EFF-02")
def test_a_declaration_that_fits_the_binding_no_more_is_refused_and_frees_nothing(tmp_path: Path) -> None:
    order = "payload = { order = { string = 40, public = true }"
    with opened_inquiry(tmp_path / "f0") as inquiry:
        effect = inquiry.unknown()
        edit_profile(
            inquiry, order, order.replace("{ order", "{ note = { string = 9, public = true }, order")
        )
        said = inquiry.look(effect)
        assert (said.code, said.more["field"]) == ("unsupported", "contract")
        assert (books(inquiry.issuer), inquiry.service.lookups) == (all_at(reserved=300), ())


@pytest.mark.spec("REC-02", "REP-05", "SEC-01")
@pytest.mark.parametrize(
    "fault", [ValueError("s3cret"), OSError(5, "s3cret"), RecursionError(), MemoryError()]
)
def test_whatever_an_inspector_raises_is_unclear_and_its_words_are_kept_nowhere(
    after: Inquiry, fault: BaseException
) -> None:
    effect = after.unknown()
    said = with_inspector(after.issuer, Says(fault)).reconcile(effect)
    assert (said.code, attempt_of(said)) == ("outcome_unknown", ("unclear", "inspection_unclear"))
    assert "s3cret" not in str(said.as_json())
    assert after.spans(effect)[-1]["permit.evidence.source"] == f"exception:{type(fault).__name__}"


@pytest.mark.spec("REC-01", "REC-06")
def test_an_interrupted_look_is_on_record_and_goes_on_as_an_interruption(after: Inquiry) -> None:
    effect = after.unknown()
    with pytest.raises(KeyboardInterrupt):
        with_inspector(after.issuer, Says(KeyboardInterrupt())).reconcile(effect)
    assert after.spans(effect)[-1]["permit.reason"] == "interrupted"
    assert state_of(after.issuer, effect) == "unknown"


@pytest.mark.spec("REC-01", "BUD-04")
def test_nothing_reconciles_by_itself(after: Inquiry) -> None:
    """Every command that touches the effect, again and again, long after: nobody is asked, nothing is sent."""
    effect = after.unknown()
    after.pass_ms(DEADLINE_MS * 60)
    for _ in range(2):
        after.issuer.show(effect)
        after.issuer.list()
        after.issuer.timeline(effect)
        after.issuer.commit(effect)
        after.issuer.ledger_collect(early=True)
    with after.made.open(clock=after.clock) as other:
        other.list(["unknown"])
    assert after.service.lookups == ()
    assert len(after.service.requests) == 1
    assert state_of(after.issuer, effect) == "unknown"


@pytest.mark.spec("REC-01", "EFF-09", "BUD-04", "SUR-03")
def test_the_list_tells_what_is_held_where_since_when_for_whom_and_what_can_be_tried(after: Inquiry) -> None:
    effect = after.unknown(answer(503, effect=False))

    def listed() -> Any:
        return after.issuer.list(["unknown"]).more["effects"][0]  # type: ignore[index]

    first = listed()
    assert first["held"] == [
        {"task": "t1", "unit": "USD.cent", "amount": 300},
        {"task": "org", "unit": "USD.cent", "amount": 300},
    ]
    assert (first["task"], first["subject"], first["actor"]) == ("t1", "u-ana", "agent-7")
    assert (first["inspection"], first["attempts"], first["last_attempt"]) == (["inspect"], 0, None)
    since = after.issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert since is not None
    after.look(effect, NOT_FOUND)
    again = listed()
    assert again["since"] == first["since"]
    assert (again["attempts"], again["last_attempt"]["seen"]) == (1, "absent")
    record: Any = after.issuer.show(effect).more["record"]
    assert record["unknown"] == {name: again[name] for name in record["unknown"]}


@pytest.mark.spec("SUR-03")
def test_people_read_it_in_lines(after: Inquiry) -> None:
    effect = after.unknown()
    after.look(effect, NOT_FOUND)
    text = render(after.issuer.list(["unknown"]))
    assert "holds 3.00 USD at t1, 3.00 USD at org" in text
    assert "in t1, for u-ana, by agent-7" in text
    assert "possible: inspect; 1 attempt, the last: inspect, absent (absence_too_early)" in text
    assert "{" not in text
    assert "attempt: inspect, found (inspection_found)" in render(after.look(effect))


@pytest.mark.spec("LED-08", "REC-02", "REC-03")
def test_after_a_restore_the_delay_runs_from_it_since_attempts_after_the_backup_are_forgotten(
    tmp_path: Path,
) -> None:
    """A resend that the restored ledger never heard of may still be accepted by the service."""
    file = tmp_path / "backup.sqlite"
    clock = Clock()
    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S, resend=True, clock=clock) as inquiry:
        effect = inquiry.unknown(answer(503, effect=False))
        assert inquiry.issuer.ledger_backup(inquiry.made.profile, file).code == "backed_up"
        inquiry.past_deadline(60_000)
        inquiry.service.then(accept_then_close())
        assert inquiry.issuer.reconcile(effect, resend=True).code == "outcome_unknown"
        inquiry.issuer.close()
        restore(inquiry.made.profile, file, clock=clock)
        with inquiry.made.open(clock=clock) as inquiry.issuer:
            assert inquiry.names(effect).count("effect.inspecting") == 0
            for passed_ms, code in (
                (0, "outcome_unknown"),
                (20_000, "outcome_unknown"),
                (20_000, "no_effect"),
            ):
                inquiry.pass_ms(passed_ms)
                assert inquiry.look(effect, NOT_FOUND).code == code


HIDDEN = {"order = { string = 40, public = true }": "order = { string = 40 }"}


@pytest.mark.spec("REC-01", "EFF-10", "LED-03", "SEC-01")
def test_an_effect_with_protected_content_is_reconciled_and_its_content_goes_with_its_end(
    tmp_path: Path,
) -> None:
    with opened_inquiry(tmp_path / "f0", changes=HIDDEN) as inquiry:
        effect = inquiry.unknown()
        kept = list((inquiry.made.folder / "protected").glob("*.sealed"))
        assert len(kept) == 1
        assert inquiry.look(effect, NOT_FOUND).code == "outcome_unknown"
        assert kept[0].exists()
        edit_profile(inquiry, 'absent = "never"', f"absent = {AFTER_3S}")
        assert inquiry.look(effect).code == "succeeded"
        assert not kept[0].exists()
        assert "o-1" not in str(inquiry.spans(effect))


@pytest.mark.spec("REC-07", "REC-01", "LED-03")
def test_a_hosts_claim_whose_content_is_gone_answers_where_it_stands(tmp_path: Path) -> None:
    hidden = {"name = { string = 40, public = true }": "name = { string = 40 }"}
    with opened_inquiry(tmp_path / "f0", changes=hidden) as inquiry:
        effect, claim = publication(inquiry)
        assert inquiry.issuer.report(effect, claim, succeeded=True).code == "succeeded"
        assert inquiry.look(effect).code == "succeeded"
        assert inquiry.service.lookups == ()
