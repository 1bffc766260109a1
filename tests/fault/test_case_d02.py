"""Development case D02: what a service does not show yet is no proof that nothing happened."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import all_at, books, command, state_of, trail
from tests.support.reconciling import (
    AFTER_3S,
    NEVER,
    NOT_FOUND,
    Inquiry,
    attempt_of,
    opened_inquiry,
    shows,
)
from tests.support.service import (
    Step,
    accept_late,
    accept_then_close,
    answer,
    close_before_read,
    cut_body,
    garbage,
    hang,
    redirect,
    reset,
)

SECOND_MS = 1000


@pytest.fixture
def never(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "never", absent=NEVER) as inquiry:
        yield inquiry


@pytest.fixture
def after(tmp_path: Path) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path / "after", absent=AFTER_3S) as inquiry:
        yield inquiry


@pytest.mark.spec("REC-01", "REC-02", "REC-06", "BUD-04", "REP-05")
def test_absence_that_is_never_conclusive_leaves_it_unknown_and_a_later_look_that_finds_it_settles_once(
    never: Inquiry,
) -> None:
    effect = never.unknown(accept_late())
    never.pass_ms(SECOND_MS)
    early = never.look(effect, NOT_FOUND)
    assert (early.code, early.state, early.exit, early.retryable) == ("outcome_unknown", "unknown", 5, False)
    assert attempt_of(early) == ("absent", "absence_never_proves")
    assert books(never.issuer) == all_at(reserved=300)
    assert len(never.service.requests) == 1
    never.service.gate("late").set()
    never.pass_ms(5 * SECOND_MS)
    found = never.look(effect)
    assert (found.code, found.state, found.exit) == ("succeeded", "succeeded", 0)
    assert attempt_of(found) == ("found", "inspection_found")
    assert books(never.issuer) == all_at(settled=300)
    for _ in range(2):
        assert never.look(effect).code == "succeeded"
    assert books(never.issuer) == all_at(settled=300)
    assert (len(never.service.requests), len(never.service.lookups)) == (1, 2)
    assert never.service.effects_of(effect) == 1
    assert never.evidence(effect)[1:] == [("inspection", "unknown", None), ("inspection", "succeeded", None)]


@pytest.mark.spec("REC-02", "BUD-03", "BUD-04")
def test_absence_is_conclusive_only_after_its_delay_and_then_releases(after: Inquiry) -> None:
    effect = after.unknown(answer(503, effect=False))
    after.pass_ms(SECOND_MS)
    early = after.look(effect, NOT_FOUND)
    assert (early.code, attempt_of(early)) == ("outcome_unknown", ("absent", "absence_too_early"))
    assert books(after.issuer) == all_at(reserved=300)
    after.pass_ms(3 * SECOND_MS)
    gone = after.look(effect, NOT_FOUND)
    assert (gone.code, gone.state, attempt_of(gone)) == (
        "no_effect",
        "no_effect",
        ("absent", "absence_conclusive"),
    )
    assert books(after.issuer) == all_at()
    assert len(after.service.requests) == 1
    assert after.issuer.commit(effect).code == "no_effect"
    assert len(after.service.requests) == 1


@pytest.mark.spec("REC-02")
@pytest.mark.parametrize(("since_lost_ms", "code"), [(2_000, "outcome_unknown"), (3_000, "no_effect")])
def test_the_delay_runs_from_the_end_of_the_sending(after: Inquiry, since_lost_ms: int, code: str) -> None:
    effect = after.unknown(answer(503, effect=False))
    after.pass_ms(since_lost_ms)
    assert after.look(effect, NOT_FOUND).code == code


@pytest.mark.spec("REC-01", "REC-02", "SUR-01", "SUR-02")
def test_the_same_on_the_command_line(tmp_path: Path) -> None:
    with opened_inquiry(tmp_path / "f0", absent=NEVER) as inquiry:
        effect = inquiry.unknown(accept_late())
        inquiry.service.then_on_lookup(NOT_FOUND)
        early = command(inquiry.made, "reconcile", effect)
        assert (early.exit, early.answer["code"], early.answer["state"]) == (5, "outcome_unknown", "unknown")
        assert "not found" in str(early.answer["say"])
        assert books(inquiry.issuer) == all_at(reserved=300)
        inquiry.service.gate("late").set()
        found = command(inquiry.made, "reconcile", effect)
        assert (found.exit, found.answer["code"]) == (0, "succeeded")
        assert books(inquiry.issuer) == all_at(settled=300)
        assert len(inquiry.service.requests) == 1


@pytest.mark.spec("REC-02", "BUD-03", "SUR-01")
@pytest.mark.parametrize(("after", "code", "held"), [("1h", "outcome_unknown", 300), ("1s", "no_effect", 0)])
def test_an_absence_is_conclusive_after_its_delay_on_the_command_line_too(
    tmp_path: Path, after: str, code: str, held: int
) -> None:
    absent = AFTER_3S.replace("3s", after)
    with opened_inquiry(tmp_path / "f0", absent=absent) as inquiry:
        effect = inquiry.unknown(answer(503, effect=False))
        time.sleep(1.1)  # the program has the machine's own clock, and a delay of a second has to run
        inquiry.service.then_on_lookup(NOT_FOUND)
        assert command(inquiry.made, "reconcile", effect).answer["code"] == code
        assert books(inquiry.issuer) == all_at(reserved=held)
        assert len(inquiry.service.requests) == 1


ANOTHER = json.dumps({"items": [{"id": "ref-1", "key": "eff_" + "0" * 32}]}).encode()
DOUBLED = b'{"items": [], "items": [{"key": "x"}]}'
OTHERS: dict[str, tuple[Step, str]] = {
    "an error": (answer(500, effect=False), "unclear"),
    "unavailable": (answer(503, effect=False), "unclear"),
    "an empty answer": (answer(200, body=b"", effect=False), "unclear"),
    "nothing at all": (answer(204, {"content-length": ""}, b"", effect=False), "unclear"),
    "not authenticated": (answer(401, effect=False), "unclear"),
    "not allowed": (answer(403, effect=False), "unclear"),
    "too many": (answer(429, effect=False), "unclear"),
    "sent elsewhere": (redirect("http://127.0.0.1:1/"), "unclear"),
    "closed without a word": (close_before_read(), "unclear"),
    "reset": (reset(), "unclear"),
    "garbage": (garbage(), "unclear"),
    "a cut answer": (cut_body(200), "unclear"),
    "a duplicate key": (answer(200, body=DOUBLED, effect=False), "unclear"),
    "no JSON": (answer(200, body=b"<html>not found</html>", effect=False), "unclear"),
    "another effect": (answer(200, body=ANOTHER, effect=False), "differs"),
}
"""What the service says when asked, and what that is; none of it may resolve anything, even when absence could."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inquiry]:
    with opened_inquiry(tmp_path_factory.mktemp("d02") / "f0", absent=AFTER_3S) as inquiry:
        yield inquiry


@pytest.mark.spec("REC-02", "REC-06", "BUD-04")
@pytest.mark.parametrize("row", OTHERS)
def test_nothing_but_a_conclusive_absence_or_the_effect_itself_resolves_anything(
    row: str, shop: Inquiry
) -> None:
    step, seen = OTHERS[row]
    effect = shop.unknown(answer(503, effect=False), amount=1)
    shop.past_deadline(10 * SECOND_MS)
    before, sent = books(shop.issuer), len(shop.service.requests)
    said = shop.look(effect, step)
    assert (said.code, said.exit, said.retryable, said.next) == ("outcome_unknown", 5, False, "tell_a_person")
    assert attempt_of(said)[0] == seen
    assert (state_of(shop.issuer, effect), books(shop.issuer)) == ("unknown", before)
    assert shop.names(effect)[-2:] == ["effect.inspecting", "effect.inspected"]
    assert len(shop.service.requests) == sent
    assert shop.look(effect, NOT_FOUND).code == "no_effect"


@pytest.mark.spec("REC-01", "REC-02")
def test_a_service_that_does_not_answer_in_time_resolves_nothing(tmp_path: Path) -> None:
    def nearly_over(step: str) -> None:
        if step == "attempt_acknowledged":
            inquiry.pass_ms(29_700)

    with opened_inquiry(tmp_path / "f0", absent=AFTER_3S, observe=nearly_over) as inquiry:
        effect = inquiry.unknown(answer(503, effect=False))
        inquiry.past_deadline(10 * SECOND_MS)
        said = inquiry.look(effect, hang())
        assert (said.code, attempt_of(said)[0]) == ("outcome_unknown", "unclear")
        assert books(inquiry.issuer) == all_at(reserved=300)


@pytest.mark.spec("REC-02")
def test_a_read_that_lags_behind_resolves_nothing_where_absence_never_proves(never: Inquiry) -> None:
    """The service has it all along; its list shows it only at the third look."""
    effect = never.unknown(accept_then_close())
    never.past_deadline(3_600 * SECOND_MS)
    empty = answer(200, body=b'{"items": []}', effect=False)
    for step in (empty, NOT_FOUND):
        assert never.look(effect, step).code == "outcome_unknown"
        assert books(never.issuer) == all_at(reserved=300)
    assert never.look(effect).code == "succeeded"
    assert books(never.issuer) == all_at(settled=300)


@pytest.mark.spec("REC-01", "REC-02", "REC-07", "ADM-07")
def test_what_a_host_sent_is_inspected_in_the_same_way_once_its_deadline_has_passed(after: Inquiry) -> None:
    asked = after.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7")
    effect = str(asked.effect)
    assert after.issuer.admit(effect).code == "admitted"
    live = after.look(effect)
    assert (live.code, live.retryable, after.service.lookups) == ("already_consumed", False, ())
    after.pass_ms(300_000 + 1_000)
    assert attempt_of(after.look(effect, NOT_FOUND)) == ("absent", "absence_too_early")
    after.pass_ms(3_000)
    assert after.look(effect, NOT_FOUND).code == "no_effect"
    names = [entry.name for entry in trail(after.issuer)]
    assert names.count("effect.inspecting") == 2


@pytest.mark.spec("REC-01")
def test_an_answer_that_comes_after_the_attempts_deadline_counts_for_nothing(tmp_path: Path) -> None:
    def late(step: str) -> None:
        if step == "looked":
            inquiry.pass_ms(30_000)

    with opened_inquiry(tmp_path / "f0", observe=late) as inquiry:
        effect = inquiry.unknown(accept_then_close())
        said = inquiry.look(effect, shows(effect))
        assert (said.code, attempt_of(said)) == ("outcome_unknown", ("unclear", "attempt_overdue"))
        assert books(inquiry.issuer) == all_at(reserved=300)
        assert inquiry.names(effect)[-2:] == ["effect.inspecting", "effect.inspected"]
