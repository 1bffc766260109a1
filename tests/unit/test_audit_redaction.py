"""Secrets at the last door: refused before anything was sent, replaced in what already happened."""

import time
from dataclasses import replace

import pytest

from audit.redaction import without_secrets
from audit.vocabulary import OUTCOMES, check
from ledger.errors import SpanNotRecorded
from ledger.transitions import TransitionName
from tests.support.spans import sample

SECRETS = [
    ("api_key", "sk-CANARY-4711"),
    ("api_key", "key=sk-proj-abcDEF0123456789"),
    ("code_host_token", "ghp_" + "a1" * 18),
    ("code_host_token", "github_pat_" + "A1" * 20),
    ("cloud_key", "AKIA" + "IOSFODNN7EXAMPLE"),
    ("web_token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc"),
    ("pem", "-----BEGIN EC PRIVATE KEY-----"),
    ("bearer", "Bearer abcdef0123456789"),
    ("bearer", "authorization: BEARER abcdef0123456789"),
    ("url_password", "https://bob:hunter2@bank.example/v1"),
]
INNOCENT = [
    "npm:sk-learn-utils@1.0.0",
    "task-2026/desk-0001",
    "hetzner/R-119",
    "https://bank.example/v1/payments?key=eff_" + "0" * 32,
    "crm:leads/9000000",
    "bearer-bonds",
    "AKIAK",
    "/srv/akiaPictures/eyJ",
]


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(("rule", "secret"), SECRETS)
def test_a_secret_before_dispatch_refuses_the_span_and_is_not_repeated(rule: str, secret: str) -> None:
    with pytest.raises(SpanNotRecorded) as caught:
        without_secrets(sample(TransitionName.EFFECT_ADMITTED, resource__id=secret))
    assert caught.value.reason == "secret_in_span"
    assert "permit.resource.id" in caught.value.message
    assert rule in caught.value.message
    assert secret not in caught.value.message


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(("rule", "secret"), SECRETS)
def test_a_secret_in_a_list_is_found_as_well(rule: str, secret: str) -> None:
    with pytest.raises(SpanNotRecorded):
        without_secrets(sample(TransitionName.EFFECT_PERMITTED, obligations=("notify finance", secret)))


@pytest.mark.spec("SEC-01")
def test_the_name_of_an_attribute_that_is_itself_a_secret_is_not_repeated() -> None:
    name = "sk-CANARY-4711"
    with pytest.raises(SpanNotRecorded) as caught:
        without_secrets(replace(sample(TransitionName.REFUSED), attributes={name: name}))
    assert name not in caught.value.message


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize("text", INNOCENT)
def test_ordinary_names_are_left_alone(text: str) -> None:
    transition = sample(TransitionName.EFFECT_ADMITTED, resource__id=text)
    assert without_secrets(transition) is transition


@pytest.mark.spec("SEC-01", "AUD-01")
@pytest.mark.parametrize("name", sorted(OUTCOMES))
@pytest.mark.parametrize(("rule", "secret"), SECRETS)
def test_in_an_outcome_the_value_alone_is_replaced(name: TransitionName, rule: str, secret: str) -> None:
    kept = without_secrets(sample(name, reference=secret, evidence__source="answer 201"))
    assert kept.attributes["permit.reference"] == f"[redacted:{rule}]"
    assert kept.attributes["permit.evidence.source"] == "answer 201"
    check(kept)


@pytest.mark.spec("SEC-01", "AUD-01")
@pytest.mark.parametrize("reference", ["päy", "two\nlines", "x" * 257, "\x00", "\ud800", ""])
def test_a_reference_of_a_service_in_the_wrong_form_does_not_lose_the_outcome(reference: str) -> None:
    kept = without_secrets(sample(TransitionName.EFFECT_SUCCEEDED, reference=reference))
    assert kept.attributes["permit.reference"] == "[redacted:form]"
    check(kept)


@pytest.mark.spec("SEC-01")
def test_a_mark_of_redaction_cannot_be_used_before_dispatch() -> None:
    with pytest.raises(SpanNotRecorded):
        check(sample(TransitionName.EFFECT_ADMITTED, actor="[redacted:form]"))


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(
    "text", ["sk-" * 3000, "a://" * 3000, "-----BEGIN " * 800, "bearer " * 1200, "eyJ" * 3000]
)
def test_a_text_made_to_be_slow_is_searched_in_linear_time(text: str) -> None:
    before = time.process_time()
    without_secrets(sample(TransitionName.EFFECT_SUCCEEDED, reference=text))
    assert time.process_time() - before < 1.0
