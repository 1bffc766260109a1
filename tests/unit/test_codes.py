"""The one table of codes: complete, in precedence order, and worded so that nobody reads a no as a reason to repeat."""

import re
from pathlib import Path

import pytest

from issuer.wire.codes import CODES, Code, Exit, Next, code_of, exit_of
from issuer.wire.reference import reference_page
from ledger.refusals import RETRYABLE, RefusalCode
from ledger.states import EffectState

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "codes.md"
RETRIED_BY_LAYERS = {408, 425, 429}
POSSIBLY_SENT = ("outcome_unknown", "audit_pending")
INVITATION = re.compile(r"\b(re-?try|retries|retrying|again|once more|repeat|resend|try)\b", re.IGNORECASE)
NOT_AN_INVITATION = re.compile(r"\b(?:never|do not|nobody|not)\b[^.;:]*", re.IGNORECASE)
ALL = sorted(CODES.values(), key=lambda code: code.name)


@pytest.mark.spec("SUR-02", "SUR-03")
def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "run: python -m issuer.wire.reference"


@pytest.mark.spec("SUR-02")
def test_every_refusal_and_every_state_has_a_row_and_a_line_in_the_reference() -> None:
    page = reference_page()
    for code in RefusalCode:
        assert str(code) in CODES
        assert RETRYABLE[code] is CODES[str(code)].retryable
    for state in EffectState:
        assert code_of(state) in CODES, state
        assert exit_of(code_of(state)) is CODES[code_of(state)].exit
    for name in CODES:
        assert page.count(f"\n| `{name}` |") == 1, name


@pytest.mark.spec("SUR-02")
def test_the_precedence_of_the_page_is_that_of_the_list() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", reference_page(), re.MULTILINE)
    order = [str(code) for code in RefusalCode]
    assert listed[: len(order)] == order
    assert len(listed) == len(CODES)


REFUSED_FOR_NOW = {"task_frozen", "suspended"}
"""A no of the owner's that the owner may take back, so that the same effect may go on (BUD-05)."""


ABOUT_A_FILE = {"not_anchored", "tampered"}
"""Verdicts on a trail that somebody holds in their hands (AUD-04): nobody asked for anything to be sent."""


@pytest.mark.spec("SUR-05", "REP-05")
@pytest.mark.parametrize("name", POSSIBLY_SENT)
def test_what_may_have_been_sent_is_never_told_in_a_form_that_layers_retry(name: str) -> None:
    code = CODES[name]
    assert code.http < 500
    assert code.http not in RETRIED_BY_LAYERS
    assert code.retryable is False
    assert code.exit is Exit.UNKNOWN
    assert code.next is Next.TELL_A_PERSON


@pytest.mark.spec("SUR-02", "SUR-05")
@pytest.mark.parametrize("code", ALL, ids=lambda code: code.name)
def test_each_row_keeps_the_rules_of_its_exit(code: Code) -> None:
    assert code.http not in RETRIED_BY_LAYERS
    assert (code.exit is Exit.DONE) == (code.http in {200, 201} and code.exit is not Exit.SERVICE_SAID_NO)
    if code.http >= 500:
        assert code.exit in {Exit.UNAVAILABLE, Exit.OUR_FAULT}
    if code.retryable:
        assert code.exit in {Exit.UNAVAILABLE, Exit.BUDGET} or code.name in REFUSED_FOR_NOW
        assert code.next is Next.TELL_A_PERSON
    if code.exit is Exit.UNAVAILABLE and code.name not in ABOUT_A_FILE:
        assert "othing was sent" in code.say
    if code.next in {Next.COMMIT, Next.DISPATCH}:
        assert code.exit is Exit.DONE


@pytest.mark.spec("SUR-05", "SEC-04")
@pytest.mark.parametrize("code", ALL, ids=lambda code: code.name)
def test_each_sentence_is_fixed_ends_and_invites_no_repetition(code: Code) -> None:
    assert code.say[0].isupper()
    assert code.say.endswith(".")
    assert not re.search(r"[{}%<>\n]", code.say), "a value could be filled in"
    assert not re.search(r"\d", code.say)
    rest = NOT_AN_INVITATION.sub("", code.say)
    if code.next is Next.PREPARE_AGAIN:
        rest = rest.replace("prepare it again", "")
    assert not INVITATION.search(rest), code.say


@pytest.mark.parametrize(
    ("sentence", "invites"),
    [
        ("Not available; try again later.", True),
        ("Retry after a minute.", True),
        ("It is never sent again; its budget stays held.", False),
        ("Wait, and do not ask again.", False),
        ("It was not sent; send it again.", True),
    ],
)
def test_the_search_for_an_invitation_finds_what_it_is_for(sentence: str, invites: bool) -> None:
    assert bool(INVITATION.search(NOT_AN_INVITATION.sub("", sentence))) is invites


@pytest.mark.spec("SUR-02")
def test_the_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: int(code.exit) for code in ALL if code.name in EXITS} == EXITS
    assert [int(code) for code in Exit] == list(range(10))


EXITS = {
    "permitted": 0,
    "succeeded": 0,
    "fault": 1,
    "malformed": 2,
    "not_found": 2,
    "denied": 3,
    "policy_error": 3,
    "awaiting_approval": 4,
    "outcome_unknown": 5,
    "audit_pending": 5,
    "budget_exceeded": 6,
    "cannot_prepare": 7,
    "target_unreadable": 8,
    "class_exhausted": 6,
    "ledger_full": 6,
    "already_consumed": 7,
    "expired": 7,
    "mismatch": 7,
    "unsupported": 7,
    "forbidden": 7,
    "ledger_unavailable": 8,
    "audit_unavailable": 8,
    "keys_unavailable": 8,
    "failed": 9,
    "no_effect": 9,
}
HTTP = {
    "permitted": 201,
    "awaiting_approval": 202,
    "denied": 403,
    "forbidden": 403,
    "not_found": 404,
    "already_consumed": 409,
    "outcome_unknown": 409,
    "expired": 409,
    "mismatch": 422,
    "request_key_reused": 422,
    "ledger_unavailable": 503,
}


@pytest.mark.spec("SUR-02")
def test_the_http_statuses_are_the_documented_ones() -> None:
    assert {name: CODES[name].http for name in HTTP} == HTTP
