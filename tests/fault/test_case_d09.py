"""Development case D09: no amount, wherever it comes from, ever makes more budget than the owner gave."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.operations.contract import Proof
from issuer.profile import ProfileRefused
from issuer.wire import Answer
from ledger.model import AMOUNT_MAX
from tests.support.cases import (
    Clock,
    all_at,
    books,
    command,
    effect_ids,
    held_by,
    length,
    refusals,
    small_tree,
    state_of,
    trail,
)
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.issuers import HOUR_MS, Made, budget_line, permitted, refund, standard_issuer
from tests.support.service import Service
from tests.support.service import answer as replied
from tests.support.shell import issuer_here

NOT_WHOLE: dict[str, Any] = {
    "negative": -300,
    "one below": -1,
    "a float": 300.0,
    "a fraction": 0.5,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "true": True,
    "false": False,
    "text": "300",
    "nothing": None,
    "a list": [300],
    "too large": AMOUNT_MAX + 1,
    "beyond 64 bits": 2**64 + 300,
    "the lowest of 64 bits": -(2**63),
}
"""What is no whole amount of a unit, in any place."""


class Shop:
    """One service that nothing may reach, and one open issuer with a tree for each test."""

    def __init__(self, made: Made, service: Service, issuer: Issuer) -> None:
        self.made = made
        self.service = service
        self.issuer = issuer
        self.trees = 0

    def tree(self, **ceilings: int) -> tuple[str, str]:
        self.trees += 1
        return small_tree(self.issuer, f"tree-{self.trees}", **ceilings)

    def admitted(self, task: str) -> tuple[str, str]:
        """Return an effect of 1 that a host was admitted to send, and its claim."""
        name = {"name": f"v{self.trees}.{length(self.issuer)}"}
        effect = permitted(self.issuer.request("publish", name, task=task, actor="agent-7"))
        return effect, str(self.issuer.admit(effect).more["claim"])


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service:
        made = standard_issuer(tmp_path_factory.mktemp("d09") / "f0", port=service.port)
        with made.open() as issuer:
            yield Shop(made, service, issuer)
        assert service.connections == 0


def available(issuer: Issuer, task: str) -> int:
    left = budget_line(issuer, task)["available"]
    assert isinstance(left, int)
    return left


# -------------------------------------------------------------------------------- what is asked for


@pytest.mark.spec("EFF-04", "EFF-05", "SUR-02")
@pytest.mark.parametrize("row", [*NOT_WHOLE, "zero", "above the declared range"])
def test_no_other_amount_than_a_positive_whole_one_is_prepared(row: str, shop: Shop) -> None:
    task, root = shop.tree()
    amount = {**NOT_WHOLE, "zero": 0, "above the declared range": 1_000_001}[row]
    effects, start = effect_ids(shop.issuer), length(shop.issuer)
    for hold in (False, True):
        no = refund(shop.issuer, amount=amount, task=task, request_key="k-1", hold=hold)
        assert (no.code, int(no.exit), no.effect) == ("malformed", 2, None)
    assert effect_ids(shop.issuer) == effects
    assert [code for code, _field, _level in refusals(shop.issuer, start)] == ["malformed"] * 2
    assert length(shop.issuer) == start + 2
    assert books(shop.issuer, task, root) == all_at(task, root)
    assert permitted(refund(shop.issuer, amount=300, task=task, request_key="k-1"))


@pytest.mark.spec("EFF-04", "EFF-05")
@pytest.mark.parametrize(
    "text", ["-300", "-0", "3e2", "300.0", "-1e2", "1E400", "NaN", "-Infinity", "0300", "+1"]
)
def test_no_spelling_of_a_number_gets_past_the_reader(text: str, shop: Shop) -> None:
    task, root = shop.tree()
    effects = effect_ids(shop.issuer)
    payload = f'{{"order": "o-1", "amount": {text}}}'.encode()
    no = shop.issuer.request("refund", payload, task=task, actor="agent-7")
    assert (no.code, int(no.exit), no.effect) == ("malformed", 2, None)
    assert effect_ids(shop.issuer) == effects
    assert books(shop.issuer, task, root) == all_at(task, root)


@pytest.mark.spec("EFF-04", "OPR-01")
@pytest.mark.parametrize(
    "changes",
    [
        {'cost = { "USD.cent" = "{amount}" }': 'cost = { "USD.cent" = -1 }'},
        {'cost = { "USD.cent" = "{amount}" }': 'cost = { "USD.cent" = 1.5 }'},
        {'cost = { "USD.cent" = "{amount}" }': 'cost = { "USD.cent" = true }'},
        {'cost = { "USD.cent" = "{amount}" }': f'cost = {{ "USD.cent" = {AMOUNT_MAX + 1} }}'},
        {'cost = { "USD.cent" = "{amount}" }': "cost = {}"},
        {'cost = { "USD.cent" = "{amount}" }': 'cost = { "USD.cent" = "{order}" }'},
        {'cost = { "USD.cent" = "{amount}" }': 'cost = { "USD.cent" = "{nothing}" }'},
        {"int = [1, 1_000_000]": "int = [-1, 1_000_000]"},
        {"int = [1, 1_000_000]": "int = [-5, -1]"},
        {"int = [1, 1_000_000]": f"int = [1, {AMOUNT_MAX + 1}]"},
        {'each = { "USD.cent" = 500 }': 'each = { "USD.cent" = -500 }'},
        {'each = { "USD.cent" = 500 }': 'each = { "USD.cent" = 0.5 }'},
        {"per_task = { permits = 100 }": "per_task = { permits = -1 }"},
    ],
)
def test_an_operation_whose_cost_could_be_negative_or_without_bound_is_not_registered(
    changes: Mapping[str, str], tmp_path: Path
) -> None:
    with pytest.raises(ProfileRefused) as refused:
        standard_issuer(tmp_path / "f0", port=9, changes=changes)
    assert refused.value.findings
    assert not (tmp_path / "f0" / "ledger").exists()


# -------------------------------------------------------------------------------- what is given


def grants(shop: Shop, task: str, amount: Any) -> tuple[Answer, Answer]:
    """Grant an amount, and open a task with it."""
    granted = shop.issuer.task_grant(task, budget={"USD.cent": amount})
    expires = Clock()() + HOUR_MS
    opened = shop.issuer.task_open(
        f"{task}-new",
        parent=task,
        budget={"USD.cent": amount},
        expires_ms=expires,  # type: ignore[arg-type]
    )
    return granted, opened


@pytest.mark.spec("EFF-04", "BUD-01")
@pytest.mark.parametrize("row", NOT_WHOLE)
def test_no_ceiling_is_made_of_anything_but_a_whole_amount(row: str, shop: Shop) -> None:
    task, root = shop.tree()
    for no in grants(shop, task, NOT_WHOLE[row]):
        assert (no.code, int(no.exit)) == ("malformed", 2)
    assert (available(shop.issuer, task), available(shop.issuer, root)) == (1_000, 10_000)
    assert shop.issuer.task_show(f"{task}-new").code == "unknown_reference"


@pytest.mark.spec("EFF-04", "BUD-01")
def test_a_grant_adds_at_least_one_and_never_overflows(shop: Shop) -> None:
    task, root = shop.tree()
    for amount in (0, AMOUNT_MAX, AMOUNT_MAX - 9_999):
        no = shop.issuer.task_grant(root, budget={"USD.cent": amount})
        assert (no.code, int(no.exit)) == ("malformed", 2)
    assert shop.issuer.task_grant(root, budget={}).code == "malformed"
    assert available(shop.issuer, root) == 10_000
    assert shop.issuer.task_grant(root, budget={"USD.cent": AMOUNT_MAX - 10_000}).code == "granted"
    assert available(shop.issuer, root) == AMOUNT_MAX
    # What is held above is still bounded by the level below.
    assert refund(shop.issuer, amount=500_000, task=task).code == "budget_exceeded"


# -------------------------------------------------------------------------------- what a host reports


@pytest.mark.spec("EFF-04", "BUD-03", "REC-07")
@pytest.mark.parametrize("row", NOT_WHOLE)
def test_a_report_of_anything_but_a_whole_cost_records_nothing_and_releases_nothing(
    row: str, shop: Shop
) -> None:
    levels = shop.tree()
    effect, claim = shop.admitted(levels[0])
    for cost in ({"USD.cent": NOT_WHOLE[row]}, {"USD.cent": 1, "EUR.cent": NOT_WHOLE[row]}):
        for succeeded in (True, False):
            no = shop.issuer.report(effect, claim, succeeded=succeeded, cost=cost)
            assert (no.code, int(no.exit)) == ("malformed", 2)
    assert state_of(shop.issuer, effect) == "admitted"
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=1)
    assert shop.issuer.report(effect, claim, succeeded=True, cost={"USD.cent": 1}).code == "succeeded"
    assert books(shop.issuer, *levels) == all_at(*levels, settled=1)


@pytest.mark.spec("REC-07", "BUD-03")
@pytest.mark.parametrize("cost", [{"USD.cent": 0}, {"USD.cent": 1}, {}, None])
def test_a_host_that_says_it_cost_less_is_charged_the_maximum(
    cost: Mapping[str, int] | None, shop: Shop
) -> None:
    levels = shop.tree()
    effect, claim = shop.admitted(levels[0])
    assert shop.issuer.report(effect, claim, succeeded=True, cost=cost).code == "succeeded"
    assert books(shop.issuer, *levels) == all_at(*levels, settled=1)


@pytest.mark.spec("BUD-03", "REC-07", "EFF-09")
def test_a_host_that_says_it_cost_more_is_believed_in_full_and_the_path_is_blocked(shop: Shop) -> None:
    levels = shop.tree()
    other = permitted(refund(shop.issuer, task=levels[0]))
    effect, claim = shop.admitted(levels[0])
    in_flight, second = shop.admitted(levels[0])
    start = length(shop.issuer)
    assert shop.issuer.report(effect, claim, succeeded=True, cost={"USD.cent": 1_618}).code == "succeeded"
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=1, settled=1, overrun=1_617)
    flagged = [entry.attributes.get("permit.overrun") for entry in trail(shop.issuer, start)]
    assert ("USD.cent=1617",) in flagged
    assert [available(shop.issuer, level) for level in levels] == [0, 0]
    for no in (refund(shop.issuer, amount=1, task=levels[0]), shop.issuer.commit(other)):
        assert (no.code, int(no.exit), no.more["level"]) == ("budget_overrun", 6, levels[0])
    # A ceiling that is raised is not what is wrong here.
    assert shop.issuer.task_grant(levels[0], budget={"USD.cent": 5_000}).code == "granted"
    assert shop.issuer.commit(other).code == "budget_overrun"
    # What was in flight is still settled, also where it overruns again.
    assert shop.issuer.report(in_flight, second, succeeded=True, cost={"USD.cent": 2}).code == "succeeded"
    assert books(shop.issuer, *levels) == all_at(*levels, settled=2, overrun=1_618)


@pytest.mark.spec("BUD-03", "REC-07", "SEC-01")
def test_a_host_cannot_report_in_a_unit_that_no_operation_costs(shop: Shop) -> None:
    levels = shop.tree()
    effect, claim = shop.admitted(levels[0])
    for cost in ({"EUR.cent": 5}, {"USD.cent": 1, "EUR.cent": 0}):
        no = shop.issuer.report(effect, claim, succeeded=True, cost=cost)
        assert (no.code, int(no.exit), state_of(shop.issuer, effect)) == ("unknown_reference", 2, "admitted")
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=1)


@pytest.mark.spec("BUD-03", "BUD-04", "ADM-07")
def test_overruns_that_no_number_can_hold_together_keep_what_is_held(tmp_path: Path) -> None:
    clock = Clock()
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open(clock=clock) as issuer:
        shop = Shop(made, Service(), issuer)
        shop.service.close()
        pairs = [shop.admitted("t1") for _ in range(2)]
        for effect, claim in pairs:
            issuer.report(effect, claim, succeeded=True, cost={"USD.cent": AMOUNT_MAX})
        for line in books(issuer).values():
            assert (line.settled + line.reserved, line.overrun >= AMOUNT_MAX - 1) == (2, True)
        clock.ahead_ms += HOUR_MS // 2
        issuer.list()
        assert state_of(issuer, pairs[1][0]) in {"unknown", "succeeded"}
        assert refund(issuer, amount=1).code == "budget_overrun"
        assert [available(issuer, level) for level in ("t1", "org")] == [0, 0]


# -------------------------------------------------------------------------------- what an adapter measured


@pytest.mark.spec("EFF-04", "BUD-03", "BUD-04", "REP-05")
@pytest.mark.parametrize("proof", [Proof.SUCCEEDED, Proof.FAILED, Proof.NO_EFFECT])
@pytest.mark.parametrize("row", NOT_WHOLE)
def test_an_adapter_whose_charge_is_no_whole_amount_proves_nothing(
    row: str, proof: Proof, shop: Shop
) -> None:
    levels = shop.tree()
    adapter = ChargingAdapter()
    issuer = with_adapter(shop.issuer, adapter)
    adapter.proof, adapter.charged = proof, {"USD.cent": NOT_WHOLE[row]}
    effect = permitted(refund(issuer, task=levels[0]))
    done = issuer.commit(effect)
    assert (done.code, done.state, int(done.exit)) == ("outcome_unknown", "unknown", 5)
    assert books(issuer, *levels) == all_at(*levels, reserved=300)
    assert held_by(issuer, effect) == dict.fromkeys(levels, 300)
    assert available(issuer, levels[0]) == 700
    assert issuer.commit(effect).code == "outcome_unknown"
    assert len(adapter.orders) == 1


@pytest.mark.spec("EFF-04", "REP-05")
@pytest.mark.parametrize(
    "charged", [{"no such unit!": 1}, {"": 1}, {1: 1}, [("USD.cent", 1)], "USD.cent", -300]
)
def test_a_charge_that_is_no_amount_per_unit_proves_nothing_either(charged: Any, shop: Shop) -> None:
    levels = shop.tree()
    adapter = ChargingAdapter()
    issuer = with_adapter(shop.issuer, adapter)
    adapter.charged = charged
    effect = permitted(refund(issuer, task=levels[0]))
    assert issuer.commit(effect).code == "outcome_unknown"
    assert books(issuer, *levels) == all_at(*levels, reserved=300)


@pytest.mark.spec("REC-05", "BUD-03", "BUD-04")
@pytest.mark.parametrize("charged", [{"USD.cent": 1}, {"USD.cent": 1_618}, {"EUR.cent": 5}])
def test_a_charge_beside_a_proof_of_no_effect_resolves_nothing(
    charged: Mapping[str, int], shop: Shop
) -> None:
    levels = shop.tree()
    adapter = ChargingAdapter()
    issuer = with_adapter(shop.issuer, adapter)
    adapter.proof, adapter.charged = Proof.NO_EFFECT, charged
    effect = permitted(refund(issuer, task=levels[0]))
    assert issuer.commit(effect).code == "outcome_unknown"
    assert books(issuer, *levels) == all_at(*levels, reserved=300)


@pytest.mark.spec("BUD-03")
def test_a_charge_in_a_unit_that_had_none_is_recorded_in_full_and_blocks_it(shop: Shop) -> None:
    levels = shop.tree()
    adapter = ChargingAdapter()
    issuer = with_adapter(shop.issuer, adapter)
    adapter.charged = {"USD.cent": 120, "EUR.cent": 5}
    assert issuer.commit(permitted(refund(issuer, task=levels[0]))).code == "succeeded"
    assert books(issuer, *levels) == all_at(*levels, settled=120)
    assert books(issuer, *levels, unit="EUR.cent") == all_at(*levels, overrun=5)


@pytest.mark.spec("BUD-03", "REP-06", "REP-04")
@pytest.mark.parametrize(
    ("proof", "charged", "settled", "overrun"),
    [
        (Proof.SUCCEEDED, None, 300, 0),
        (Proof.SUCCEEDED, {"USD.cent": 0}, 0, 0),
        (Proof.SUCCEEDED, {"USD.cent": 120}, 120, 0),
        (Proof.SUCCEEDED, {}, 300, 0),
        (Proof.SUCCEEDED, {"EUR.cent": 0}, 300, 0),
        (Proof.NO_EFFECT, {"USD.cent": 0}, 0, 0),
        (Proof.NO_EFFECT, {}, 0, 0),
        (Proof.SUCCEEDED, {"USD.cent": 301}, 300, 1),
        (Proof.SUCCEEDED, {"USD.cent": 1_618}, 300, 1_318),
        (Proof.SUCCEEDED, {"USD.cent": AMOUNT_MAX}, 300, AMOUNT_MAX - 300),
        (Proof.FAILED, {"USD.cent": 1_618}, 300, 1_318),
        (Proof.FAILED, None, 300, 0),
        (Proof.NO_EFFECT, None, 0, 0),
    ],
)
def test_a_measured_charge_settles_what_it_says_and_above_the_maximum_it_blocks(
    proof: Proof, charged: Mapping[str, int] | None, settled: int, overrun: int, shop: Shop
) -> None:
    levels = shop.tree()
    adapter = ChargingAdapter()
    issuer = with_adapter(shop.issuer, adapter)
    adapter.proof, adapter.charged = proof, charged
    assert issuer.commit(permitted(refund(issuer, task=levels[0]))).code == str(proof)
    assert books(issuer, *levels) == all_at(*levels, settled=settled, overrun=overrun)
    assert available(issuer, levels[0]) == (0 if overrun else 1_000 - settled)
    again = refund(issuer, amount=1, order="o-2", task=levels[0])
    assert again.code == ("budget_overrun" if overrun else "permitted")


@pytest.mark.spec("EFF-04", "BUD-01", "BUD-03", "SUR-01", "SUR-02")
def test_the_command_line_refuses_a_negative_amount_in_every_place(shop: Shop) -> None:
    levels = shop.tree()
    effect, claim = shop.admitted(levels[0])
    for arguments in (
        ("task", "grant", levels[0], "--budget", "USD.cent=-300"),
        ("report", effect, "--claim", claim, "--outcome", "succeeded", "--cost", "USD.cent=-1618"),
    ):
        ran = command(shop.made, *arguments)
        assert (ran.exit, ran.answer["code"]) == (2, "malformed"), ran.answer
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=1)
    assert available(shop.issuer, levels[0]) == 999


SPELLINGS = (
    "-1",
    "-0",
    "1e2",
    "1E400",
    "1.0",
    "NaN",
    "Infinity",
    "true",
    "0x10",
    "9007199254740992",
    "",
    " 5",
    "+5",
    "\u0665",
)
"""What is no whole amount on a command line: an Arabic-Indic five among them, which `int` would read."""


@pytest.mark.spec("EFF-04", "BUD-01", "BUD-03", "SUR-02")
@pytest.mark.parametrize("text", SPELLINGS)
def test_no_spelling_of_an_amount_gets_past_the_command_line(text: str, shop: Shop, tmp_path: Path) -> None:
    levels = shop.tree()
    effect, claim = shop.admitted(levels[0])
    amount = f"USD.cent={text}"
    profile = ("--json", "--profile", str(shop.made.profile))
    for arguments in (
        ("task", "grant", levels[0], "--budget", amount),
        ("task", "lower", levels[0], "--budget", amount),
        ("report", effect, "--claim", claim, "--outcome", "succeeded", "--cost", amount),
    ):
        ran = issuer_here(*profile, *arguments, at=tmp_path)
        assert (ran.exit, ran.code) == (2, "malformed"), (arguments, ran.out)
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=1)
    assert available(shop.issuer, levels[0]) == 999


@pytest.mark.spec("EFF-04", "REP-05", "BUD-03", "BUD-04")
@pytest.mark.parametrize(
    "text",
    ["-300", "-0", "300.0", "3e2", "1E400", "true", "false", '"300"', "null", "9007199254740992", "NaN"],
)
def test_a_service_that_says_it_charged_what_is_no_whole_amount_proves_nothing(
    text: str, tmp_path: Path
) -> None:
    proves = "proves = { succeeded = [201]"
    with Service(replied(201, body=f'{{"charged": {text}}}'.encode())) as service:
        changes = {proves: proves + ', charged = { "USD.cent" = "/charged" }'}
        made = standard_issuer(tmp_path / "f0", port=service.port, changes=changes)
        with made.open() as issuer:
            done = issuer.commit(permitted(refund(issuer)))
            assert (done.code, done.state) == ("outcome_unknown", "unknown")
            assert books(issuer) == all_at(reserved=300)
            assert available(issuer, "t1") == 700
        assert service.connections == 1
