"""Refusals: one list in precedence order, each with an answer to whether a repeat may help."""

import pytest

from ledger.refusals import RETRYABLE, Refusal, RefusalCode

# By hand, in the order of severity: a code that is added, dropped or moved is a decision and not an accident.
ORDER = [
    "malformed",
    "unsupported",
    "ledger_unavailable",
    "audit_unavailable",
    "keys_unavailable",
    "clock_untrusted",
    "checkpoint_refused",
    "unauthenticated",
    "not_found",
    "unknown_reference",
    "mismatch",
    "request_key_reused",
    "forbidden",
    "signature_needed",
    "signature_refused",
    "outcome_unknown",
    "audit_pending",
    "already_consumed",
    "too_late",
    "name_taken",
    "nothing_to_change",
    "not_permitted_yet",
    "denied",
    "policy_error",
    "declined",
    "withdrawn",
    "revoked",
    "suspended",
    "expired",
    "outside_task",
    "collected",
    "invocation_over",
    "invocation_unsettled",
    "task_closed",
    "task_frozen",
    "task_expired",
    "permit_broken",
    "prepare_again",
    "cannot_prepare",
    "target_unreadable",
    "class_exhausted",
    "slots_exhausted",
    "task_full",
    "budget_overrun",
    "budget_exceeded",
    "ledger_full",
]
MAY_BE_REPEATED = {
    "ledger_unavailable",
    "audit_unavailable",
    "keys_unavailable",
    "target_unreadable",
    "suspended",
    "task_frozen",
    "task_full",
    "budget_exceeded",
    "ledger_full",
}


@pytest.mark.spec("SUR-02")
def test_the_list_is_the_precedence_and_has_each_code_once() -> None:
    assert [str(code) for code in RefusalCode] == ORDER
    assert len(set(ORDER)) == len(ORDER)


@pytest.mark.spec("SUR-02", "SUR-05")
def test_whether_a_repeat_may_help_is_answered_for_each_code() -> None:
    assert set(RETRYABLE) == set(RefusalCode)
    assert {str(code) for code in RefusalCode if Refusal(code=code).retryable} == MAY_BE_REPEATED
    assert all(type(value) is bool for value in RETRYABLE.values())


@pytest.mark.spec("SUR-05")
@pytest.mark.parametrize("code", ["outcome_unknown", "audit_pending", "already_consumed"])
def test_nothing_that_may_have_been_sent_invites_a_repeat(code: str) -> None:
    assert not Refusal(code=RefusalCode(code)).retryable


def test_the_table_of_repeats_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        RETRYABLE[RefusalCode.OUTCOME_UNKNOWN] = True  # type: ignore[index]  # the attempt is the test
