"""Development case D11: a rule that cannot be evaluated denies; it is never skipped in favour of a broad permit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from issuer import Issuer
from policies import Bundle, BundleRefused, cedar_schema, engine, load_bundle
from tests.support.cases import (
    all_at,
    books,
    command,
    effect_ids,
    held_by,
    length,
    rebuilt,
    small_tree,
    state_of,
    trail,
)
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.revised import activated
from tests.support.service import Service, answer

BROAD = '@id("broad") permit (principal is Actor, action == Action::"issue", resource is Order);'
BROAD_ASK = (
    '@id("broad-ask") @approvers("finance") '
    'permit (principal is Actor, action == Action::"requestApproval", resource is Order);'
)
RELEASES = '@id("releases") permit (principal is Actor, action == Action::"issue", resource is Release);'
LIMIT = (
    '@id("limit") forbid (principal, action in Action::"permit", resource is Order) '
    "unless { resource.amount <= 1000 };"
)
PERMITS = f"{BROAD}\n{BROAD_ASK}\n{RELEASES}"
WHEN = '@id("rule") forbid (principal, action in Action::"permit", resource is Order) when { '
GHOST = WHEN + 'Person::"ghost".suspended };'
"""A forbid that fails and that the loader cannot know: who exists is the directory's business, and changes."""
REFUSED_AT_LOAD: dict[str, str] = {
    "a wrong attribute": WHEN + "resource.amout > 1000 };",
    "a fact that is not there": WHEN + "context.input.amount > 1000 };",
    "a text for a number": WHEN + 'resource.amount > "1000" };',
    "a number for a text": WHEN + "resource.order > 1000 };",
    "like on a number": WHEN + 'resource.amount like "9*" };',
    "an overflow": WHEN + "resource.amount * 9223372036854775807 > 1000 };",
    "an addition": WHEN + "resource.amount + 1 > 1000 };",
    "a decimal of what the actor says": WHEN + 'decimal(resource.order).greaterThan(decimal("1.0")) };',
    "an address of what the actor says": WHEN + 'ip(resource.order).isInRange(ip("10.0.0.0/8")) };',
    "a time of what the actor says": WHEN + 'datetime(resource.order) < datetime("2026-01-01") };',
    "another type's attribute": '@id("rule") forbid (principal, action, resource) when { resource.amount > 1 };',
    "a rule that can never apply": WHEN + "resource is Release };",
    "a rule with no end": WHEN + "resource.amount > 1000",
}
"""Forbids that would fail when asked, or never be asked. The bundle is refused as a whole."""
ASKED_ANYWAY: dict[str, tuple[str, str]] = {
    "an overflow": (WHEN + "resource.amount * 9223372036854775807 > 1000 };", "overflow"),
    "a wrong attribute": (WHEN + "resource.amout > 1000 };", "missing_attribute"),
    "a fact that is not there": (WHEN + "context.input.amount > 1000 };", "missing_attribute"),
    "a text for a number": (WHEN + 'resource.amount > "1000" };', "type_error"),
    "a decimal of a text": (WHEN + 'decimal(resource.order).greaterThan(decimal("1.0")) };', "bad_value"),
    "an entity that nobody declared": (GHOST, "missing_entity"),
}
"""The same kinds in a bundle that nobody checked, and the word for each."""


@dataclass(frozen=True, kw_only=True)
class Shop:
    """One service, one open issuer, and where it stands."""

    made: Made
    service: Service
    issuer: Issuer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service:
        folder = tmp_path_factory.mktemp("d11") / "f0"
        made = standard_issuer(folder, port=service.port, policy=f"{PERMITS}\n{LIMIT}")
        with made.open() as issuer:
            yield Shop(made=made, service=service, issuer=issuer)


def unchecked(issuer: Issuer, *texts: str) -> Bundle:
    """Return a bundle of the issuer's own catalogue whose policies were parsed and keyed, and nothing else."""
    catalogue = issuer._house.directory.catalogue

    def build() -> Bundle:
        text = cedar_schema(catalogue)
        parsed = [engine.parse_policy(one) for one in texts]
        nodes = {one.shape.policy_id: replace(one.node, id=one.shape.policy_id) for one in parsed}
        return Bundle(
            catalogue=catalogue,
            schema_text=text,
            digest="cd" * 32,
            engine=engine.engine_version(),
            policies=MappingProxyType({one.shape.policy_id: one.shape for one in parsed}),
            schema=engine.parse_schema(text),
            handle=engine.PolicyHandle(policy_ids=frozenset(nodes), handle=engine._policy_set(nodes)),
        )

    return engine.on_big_stack(build)


def loaded(issuer: Issuer, *texts: str) -> Bundle:
    """Return a bundle that passed every check, for the issuer's own catalogue."""
    return load_bundle({"policies.cedar": "\n".join(texts)}, issuer._house.directory.catalogue)


def assert_denied_by_error(issuer: Issuer, start: int, said: Any, errors: tuple[str, ...]) -> None:
    """The answer is a denial that tells nothing; the span says which policy and why."""
    assert (said.code, int(said.exit), said.state) == ("policy_error", 3, "denied")
    assert (said.retryable, said.next) == (False, "tell_a_person")
    assert all(error.split(":")[0] not in said.say for error in errors)
    spans = {entry.state_to: entry.attributes for entry in trail(issuer, start)}
    assert spans.keys() == {"prepared", "denied"}
    assert spans["denied"]["permit.refusal"] == "policy_error"
    assert spans["denied"]["permit.policy.errors"] == errors
    assert "permit.tier" not in spans["denied"]


@pytest.mark.spec("POL-04", "EFF-05")
@pytest.mark.parametrize(
    ("payload", "code", "exit_code"),
    [
        ({"order": "o-1"}, "malformed", 2),
        ({"order": "o-1", "amount": "5000"}, "malformed", 2),
        ({"order": "o-1", "amount": None}, "malformed", 2),
        ({"order": "o-1", "amount": 5_000}, "denied", 3),
        ({"order": "o-1", "amount": 1_001}, "denied", 3),
        ({"order": "o-1", "amount": -5_000}, "malformed", 2),
    ],
)
def test_the_published_case_is_refused_before_or_by_the_policy(
    payload: Mapping[str, object], code: str, exit_code: int, shop: Shop
) -> None:
    task = f"as-published-{length(shop.issuer)}"
    small_tree(shop.issuer, task, task=10_000)
    before = shop.service.connections
    for hold in (False, True):
        asked = shop.issuer.request("refund", payload, task=f"{task}.t", actor="agent-7", hold=hold)
        no = shop.issuer.request_held(asked.effect) if asked.code == "prepared" and asked.effect else asked
        assert (no.code, int(no.exit)) == (code, exit_code)
        if code == "denied":
            denied = trail(shop.issuer)[-1]
            assert (denied.state_to, denied.attributes["permit.policy.ids"]) == ("denied", ("limit",))
    assert shop.service.connections == before


@pytest.mark.spec("POL-04", "POL-01")
@pytest.mark.parametrize("row", REFUSED_AT_LOAD)
def test_a_forbid_that_would_fail_refuses_the_whole_bundle(row: str, shop: Shop, tmp_path: Path) -> None:
    text = "\n".join((PERMITS, REFUSED_AT_LOAD[row]))
    with pytest.raises(BundleRefused) as refused:
        loaded(shop.issuer, text)
    assert all(finding.line == len(PERMITS.splitlines()) + 1 for finding in refused.value.findings)
    with pytest.raises(BundleRefused):
        standard_issuer(tmp_path / "f0", port=9, policy=text)
    assert not (tmp_path / "f0" / "ledger").exists()


@pytest.mark.spec("POL-04", "POL-06", "ADM-03")
@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("row", ASKED_ANYWAY)
def test_a_forbid_that_fails_all_the_same_denies_and_is_named(row: str, hold: bool, shop: Shop) -> None:
    rule, word = ASKED_ANYWAY[row]
    issuer = rebuilt(shop.issuer, bundle=unchecked(shop.issuer, BROAD, BROAD_ASK, rule))
    levels = small_tree(issuer, f"{row.replace(' ', '-')}-{hold}")
    before, start = shop.service.connections, length(issuer)
    said = refund(issuer, task=levels[0], hold=hold)
    if hold:
        said = issuer.request_held(said.effect or "")
    assert_denied_by_error(issuer, start, said, (f"rule:{word}",))
    no = issuer.commit(said.effect or "")
    assert (no.code, int(no.exit)) == ("denied", 3)
    assert books(issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before


@pytest.mark.spec("POL-04", "POL-06")
def test_an_error_in_one_permit_denies_although_another_allows(shop: Shop) -> None:
    # Arithmetic is allowed in permits, where an error takes permission away; it denies all the same.
    overflowing = BROAD.replace('"broad"', '"sums"').replace(
        ";", " when { resource.amount * 9223372036854775807 > 0 };"
    )
    issuer = rebuilt(shop.issuer, bundle=loaded(shop.issuer, BROAD, BROAD_ASK, overflowing))
    levels = small_tree(issuer, "sums")
    start = length(issuer)
    assert_denied_by_error(issuer, start, refund(issuer, task=levels[0]), ("sums:overflow",))
    # Where it does not overflow it permits, so the rule itself is a good one.
    assert refund(issuer, task=levels[0], amount=1).code == "permitted"


@pytest.mark.spec("POL-05", "POL-04", "ADM-01")
@pytest.mark.parametrize("row", ASKED_ANYWAY)
def test_a_rule_that_fails_at_admission_stops_what_was_permitted_before(row: str, shop: Shop) -> None:
    rule, word = ASKED_ANYWAY[row]
    levels = small_tree(shop.issuer, f"late-{row.replace(' ', '-')}")
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    later = rebuilt(shop.issuer, bundle=unchecked(shop.issuer, BROAD, BROAD_ASK, rule))
    start = length(shop.issuer)
    no = later.commit(effect)
    assert (no.code, int(no.exit), no.state) == ("policy_error", 3, "permitted")
    (span,) = trail(shop.issuer, start)
    assert span.attributes["permit.refusal"] == "policy_error"
    assert span.attributes["permit.policy.errors"] == (f"rule:{word}",)
    assert (held_by(shop.issuer, effect), state_of(shop.issuer, effect)) == ({}, "permitted")
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before
    # The refusal took nothing: under the owner's good rules the permit still serves, once.
    shop.service.then(answer(201))
    assert shop.issuer.commit(effect).code == "succeeded"
    assert shop.service.connections == before + 1


@pytest.mark.spec("POL-04", "POL-05", "POL-06", "SUR-01", "SUR-02")
def test_a_forbid_of_the_owners_file_that_fails_denies_everything_until_it_is_mended(tmp_path: Path) -> None:
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        file = made.folder / "policies" / "policies.cedar"
        good = file.read_text()
        with made.open() as issuer:
            effect = permitted(refund(issuer))
        file.write_text(good + GHOST)
        activated(made.profile)
        with made.open() as issuer:
            for amount in (1, 300, 900):
                start = length(issuer)
                said = refund(issuer, amount=amount)
                assert_denied_by_error(issuer, start, said, ("rule:missing_entity",))
            assert issuer.commit(effect).code == "policy_error"
        ran = command(made, "commit", effect)
        assert (ran.exit, ran.answer["code"], ran.answer["state"]) == (3, "policy_error", "permitted")
        file.write_text(good)
        activated(made.profile)
        with made.open() as issuer:
            assert books(issuer) == all_at()
            assert service.connections == 0
            assert issuer.commit(effect).code == "succeeded"
        assert service.connections == 1


@pytest.mark.spec("POL-04", "LED-04", "SUR-02")
def test_a_broken_bundle_is_not_activated_and_the_good_one_goes_on(tmp_path: Path) -> None:
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        file = made.folder / "policies" / "policies.cedar"
        good = file.read_text()
        with made.open() as issuer:
            effect = permitted(refund(issuer))
            effects = effect_ids(issuer)
        file.write_text(good + REFUSED_AT_LOAD["an overflow"])
        ran = command(made, "activate")
        assert (ran.exit, ran.answer["code"]) == (2, "malformed")
        for words in (["show", effect], ["list"], ["audit", "timeline", effect], ["task", "list"]):
            assert command(made, *words).exit == 0
        # A house that only reads permits nothing, whatever is in force.
        with made.open(reading=True) as issuer:
            assert effect_ids(issuer) == effects
            assert refund(issuer, order="o-2").code == "denied"
            assert issuer.commit(effect).code == "denied"
        assert service.connections == 0
        with made.open() as issuer:
            assert issuer.commit(effect).code == "succeeded"
        assert service.connections == 1
