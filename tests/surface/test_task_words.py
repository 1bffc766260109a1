"""`task open` without a budget opens the task and says that nothing that costs something can be done in it yet."""

import shlex
from pathlib import Path

import pytest

from issuer.clock import now_ms
from ledger.model import InstantMs
from tests.support.issuers import HOUR_MS, Made, open_task, refund, standard_issuer
from tests.support.shell import issuer_here

WARNING = (
    "The task is open, but it has no budget: whatever costs something in it will be refused. "
    "Add to it with `issuer task grant {name} --budget UNIT=AMOUNT`."
)
ROOT = ("--subject", "u-ana", "--actor", "agent-7", "--class", "refund=10")
BELOW = ("--parent", "t1")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return standard_issuer(tmp_path_factory.mktemp("words") / "f0", port=9)


@pytest.mark.spec("BUD-01", "SUR-03")
@pytest.mark.parametrize(
    ("name", "options", "warned"),
    [
        ("root", ROOT, True),
        ("root-of-zero", (*ROOT, "--budget", "USD.cent=0"), True),
        ("root-of-one", (*ROOT, "--budget", "USD.cent=1"), False),
        ("child", BELOW, True),
        ("child-of-zero", (*BELOW, "--budget", "USD.cent=0"), True),
        ("child-of-one", (*BELOW, "--budget", "USD.cent=1"), False),
        ("child-inherits", (*BELOW, "--budget", "USD.cent=inherit"), False),
    ],
)
def test_a_task_without_a_budget_is_opened_with_a_warning(
    made: Made, name: str, options: tuple[str, ...], *, warned: bool
) -> None:
    by_json = issuer_here("--json", "task", "open", name, *options, at=made.folder)
    by_hand = issuer_here("task", "open", f"{name}-2", *options, at=made.folder)
    assert (by_json.exit, by_json.code) == (0, "opened")
    assert by_json.answer["say"] == (WARNING.format(name=name) if warned else "The task is open.")
    assert by_hand.exit == 0
    assert by_hand.out.splitlines()[-1] == (
        WARNING.format(name=f"{name}-2") if warned else "The task is open."
    )


@pytest.mark.spec("BUD-01", "BUD-02")
def test_the_warning_is_true_and_what_it_says_to_type_ends_it(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    with made.open() as issuer:
        say = open_task(issuer, "later", budget={}, subject="u-ana", actors=["agent-7"]).say
        assert refund(issuer, task="later", amount=1).code == "budget_exceeded"
    typed = shlex.split(say.split("`")[1].replace("UNIT=AMOUNT", "USD.cent=300"))
    assert typed.pop(0) == "issuer"
    assert issuer_here(*typed, at=made.folder).exit == 0
    with made.open() as issuer:
        assert refund(issuer, task="later", amount=300).code == "permitted"


@pytest.mark.spec("EFF-05", "SEC-01")
@pytest.mark.parametrize("ceiling", [1, "inherit"])
def test_a_unit_that_is_no_name_is_refused_and_never_repeated(made: Made, ceiling: int | str) -> None:
    expires = InstantMs(now_ms() + HOUR_MS)
    with made.open() as issuer:
        answer = issuer.task_open("new", parent="t1", budget={"\x1b[31mred": ceiling}, expires_ms=expires)
    assert (answer.code, answer.more) == ("malformed", {"field": "unit", "reason": "wrong_type"})
    assert "red" not in answer.say
