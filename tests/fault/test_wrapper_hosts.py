"""The word of a host that its owner admitted as a wrapper, and how little any other's is worth (REC-07)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.clock import instant_text, now_ms
from issuer.wire import Answer
from ledger.model import EffectId, InstantMs
from tests.support.cases import command
from tests.support.issuers import Made, budget_line, permitted, standard_issuer
from tests.support.kills import untouched_state
from tests.support.revised import activated

DEADLINE_MS = 5 * 60_000
PLAIN = 'host = { deadline = "5m" }'
WRAPPER = 'host = { deadline = "5m", wrapper = { because = "It runs in a sandbox that counts every byte." } }'
COST = 50


@dataclass(kw_only=True)
class Ground:
    """One issuer whose operation `publish` costs fifty cents at most, at a time that a test moves."""

    made: Made
    now: InstantMs

    def open(self) -> Issuer:
        return self.made.open(clock=lambda: self.now)

    def declare(self, old: str, new: str) -> None:
        text = self.made.profile.read_text()
        assert old in text
        self.made.profile.write_text(text.replace(old, new))
        activated(self.made.profile, clock=lambda: self.now)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    changes = {PLAIN: WRAPPER, 'cost = { "USD.cent" = 1 }': f'cost = {{ "USD.cent" = {COST} }}'}
    return Ground(made=standard_issuer(tmp_path / "f0", port=9, changes=changes), now=now_ms())


@pytest.fixture
def issuer(ground: Ground) -> Iterator[Issuer]:
    with ground.open() as opened:
        yield opened


def admitted(issuer: Issuer) -> tuple[str, str]:
    effect = permitted(issuer.request("publish", {"name": "r-1"}, task="t1", actor="agent-7"))
    given = issuer.admit(effect)
    assert (given.code, given.more["service_key"]) == ("admitted", effect)
    return effect, str(given.more["claim"])


def money(issuer: Issuer) -> tuple[object, object, object]:
    line = budget_line(issuer, "t1")
    return line["reserved"], line["settled"], line["overrun"]


def last_evidence(issuer: Issuer, effect: str) -> tuple[object, ...]:
    record = issuer.show(effect).more["record"]
    assert isinstance(record, dict)
    row = record["evidence"][-1]
    return row["class"], row["source"], row["proves"], row["late"]


def reason_of(issuer: Issuer, effect: str) -> object:
    story = issuer.timeline(effect).more["timeline"]
    assert isinstance(story, list)
    return story[-1]["attributes"]["permit.reason"]


def cents(amount: int | None) -> Mapping[str, int] | None:
    return None if amount is None else {"USD.cent": amount}


@pytest.mark.spec("REC-07", "REP-06", "BUD-03", "OPR-04")
@pytest.mark.parametrize(
    ("outcome", "cost", "books"),
    [
        ("succeeded", None, (0, COST, 0)),
        ("succeeded", 20, (0, 20, 0)),
        ("succeeded", 0, (0, 0, 0)),
        ("succeeded", COST + 7, (0, COST, 7)),
        ("failed", None, (0, COST, 0)),
        ("failed", 10, (0, 10, 0)),
        ("no_effect", None, (0, 0, 0)),
        ("no_effect", 0, (0, 0, 0)),
    ],
)
def test_the_report_of_a_wrapper_counts_as_it_is(
    ground: Ground,
    issuer: Issuer,
    outcome: str,
    cost: int | None,
    books: tuple[int, int, int],
) -> None:
    effect, claim = admitted(issuer)
    assert issuer.report(effect, claim, outcome=outcome, cost=cents(cost)).code == outcome
    assert (issuer.show(effect).state, money(issuer)) == (outcome, books)
    assert last_evidence(issuer, effect) == ("wrapper", "host:report", outcome, False)
    again = issuer.report(effect, claim, outcome="succeeded")
    assert again.code in {"already_consumed", "prepare_again"}
    assert money(issuer) == books
    assert Issuer.ledger_check(ground.made.profile).code == "found"


@pytest.mark.spec("REC-05", "REC-07", "BUD-04")
def test_a_wrapper_that_says_nothing_happened_and_charges_for_it_is_not_believed(issuer: Issuer) -> None:
    effect, claim = admitted(issuer)
    assert issuer.report(effect, claim, outcome="no_effect", cost=cents(1)).code == "outcome_unknown"
    assert (issuer.show(effect).state, money(issuer)) == ("unknown", (COST, 0, 0))
    assert reason_of(issuer, effect) == "charge_contradicts_report"
    assert last_evidence(issuer, effect)[0] == "host_claim"


@pytest.mark.spec("REC-07", "BUD-04", "REP-05")
@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        ("failed", "host_says_failed"),
        ("no_effect", "host_says_no_effect"),
        ("unknown", "host_does_not_know"),
    ],
)
@pytest.mark.parametrize("cost", [None, 0, 20])
def test_without_that_admission_every_word_but_success_leaves_it_unknown(
    ground: Ground, outcome: str, reason: str, cost: int | None
) -> None:
    ground.declare(WRAPPER, PLAIN)
    with ground.open() as issuer:
        effect, claim = admitted(issuer)
        assert issuer.report(effect, claim, outcome=outcome, cost=cents(cost)).code == "outcome_unknown"
        assert (issuer.show(effect).state, money(issuer)) == ("unknown", (COST, 0, 0))
        assert reason_of(issuer, effect) == reason
        assert last_evidence(issuer, effect) == ("host_claim", "host:report", "unknown", False)
        assert issuer.report(effect, claim, outcome="succeeded", cost=cents(1)).code == "succeeded"
        assert money(issuer) == (0, COST, 0)


@pytest.mark.spec("REC-07", "ADM-07", "BUD-04")
@pytest.mark.parametrize("swept", [True, False])
@pytest.mark.parametrize("outcome", ["failed", "no_effect"])
def test_after_the_deadline_a_wrapper_is_a_host_like_any_other(
    ground: Ground, issuer: Issuer, outcome: str, swept: bool
) -> None:
    effect, claim = admitted(issuer)
    ground.now = InstantMs(ground.now + DEADLINE_MS)
    if swept:
        assert issuer.show(effect).state == "unknown"
    assert issuer.report(effect, claim, outcome=outcome).code == "outcome_unknown"
    assert (issuer.show(effect).state, money(issuer)) == ("unknown", (COST, 0, 0))
    assert issuer.report(effect, claim, outcome="succeeded", cost=cents(1)).code == "succeeded"
    assert money(issuer) == (0, COST, 0)
    assert last_evidence(issuer, effect) == ("host_claim", "host:report", "succeeded", True)


@pytest.mark.spec("REC-07", "REC-05")
@pytest.mark.parametrize("outcome", ["failed", "no_effect"])
def test_a_wrapper_that_first_did_not_know_releases_nothing_with_a_second_word(
    issuer: Issuer, outcome: str
) -> None:
    effect, claim = admitted(issuer)
    assert issuer.report(effect, claim, outcome="unknown").code == "outcome_unknown"
    assert issuer.report(effect, claim, outcome=outcome).code == "outcome_unknown"
    assert (issuer.show(effect).state, money(issuer)) == ("unknown", (COST, 0, 0))


@pytest.mark.spec("REC-07", "OPR-02")
@pytest.mark.parametrize(
    ("before", "after"),
    [(WRAPPER, PLAIN), (PLAIN, WRAPPER), (WRAPPER, WRAPPER.replace("counts", "sees"))],
)
def test_the_admission_of_a_wrapper_counts_only_as_it_was_bound_and_still_is(
    ground: Ground, before: str, after: str
) -> None:
    """Neither one that the owner took back, nor one given after the effect was admitted, nor one with other reasons."""
    ground.declare(WRAPPER, before)
    with ground.open() as issuer:
        effect, claim = admitted(issuer)
    ground.declare(before, after)
    with ground.open() as issuer:
        assert issuer.report(effect, claim, outcome="no_effect").code == "outcome_unknown"
        assert money(issuer) == (COST, 0, 0)


@pytest.mark.spec("ADM-07", "REC-07")
def test_a_wrapper_needs_its_claim_too(issuer: Issuer) -> None:
    effect, _claim = admitted(issuer)
    told: Answer = issuer.report(effect, "clm_" + "0" * 32, outcome="no_effect")
    assert (told.code, told.more["field"]) == ("forbidden", "claim")
    assert (untouched_state(issuer, effect), money(issuer)) == ("admitted", (COST, 0, 0))


@pytest.mark.spec("SUR-05", "REC-07")
@pytest.mark.parametrize("outcome", ["", "done", "SUCCEEDED", "no_effect "])
def test_a_word_that_is_none_of_the_four_is_refused_and_changes_nothing(issuer: Issuer, outcome: str) -> None:
    effect, claim = admitted(issuer)
    told = issuer.report(effect, claim, outcome=outcome)
    assert (told.code, told.more["field"]) == ("malformed", "outcome")
    assert untouched_state(issuer, effect) == "admitted"


@pytest.mark.spec("SUR-01", "REC-07")
def test_a_wrapper_reports_on_the_command_line_too(ground: Ground) -> None:
    with ground.open() as issuer:
        effect, claim = admitted(issuer)
    said = ["report", effect, "--claim", "-", "--outcome", "failed", "--cost", "USD.cent=10"]
    ran = command(ground.made, *said, stdin=f"{claim}\n".encode())
    assert (ran.answer["code"], ran.answer["state"]) == ("failed", "failed")
    with ground.made.open() as issuer:
        assert money(issuer) == (0, 10, 0)


@pytest.mark.spec("SEC-01", "OPR-06")
def test_the_command_of_a_host_finds_what_its_owner_lets_through_and_no_secret_of_ours(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.declare(WRAPPER, 'host = { deadline = "5m", environment = ["NPM_TOKEN"] }')
    for name in ("NPM_TOKEN", "AWS_SECRET_ACCESS_KEY", "ISSUER_TOKEN", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, f"value-of-{name}")
    told = ground.made.folder / "told"
    with ground.open() as issuer:
        effect = permitted(issuer.request("publish", {"name": "r-1"}, task="t1", actor="agent-7"))
        assert issuer.dispatch(effect, ["sh", "-c", f"env > {told}"]).code == "succeeded"
        record = issuer._house.ledger.read(lambda view: view.claim(EffectId(effect)))
    assert record is not None
    found = dict(line.partition("=")[::2] for line in told.read_text().splitlines())
    own = {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "PWD", "SHLVL", "_", "OLDPWD"}
    assert found.keys() - own == {"NPM_TOKEN", "PERMIT_EFFECT_ID", "PERMIT_DEADLINE"}
    assert found["PERMIT_EFFECT_ID"] == effect
    assert found["PERMIT_DEADLINE"] == instant_text(record.deadline_ms)
