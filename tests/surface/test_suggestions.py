"""A name that stands for nothing gets a question after its no, and never more than its caller may know.

Names that an owner declared, and tasks in which the stated actor may act, can be meant; an effect, an entry of a
registry, or what is another actor's cannot. The question stands in the answer alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.flow.refusing import NAMES_MAX, hint_of
from issuer.wire import Answer
from tests.support.cases import rebuilt
from tests.support.issuers import (
    STANDARD_POLICY,
    Made,
    made_issuer,
    open_task,
    permitted,
    standard_issuer,
)
from tests.support.shell import issuer_here
from tests.support.witness import witness

PAYLOAD = '{"order": "o-1", "amount": 1}'
MORE = {
    'host = { deadline = "5m" }': """host = { deadline = "5m" }
[operation.reindex]
class = "refund"
resource = { type = "Index", id = "{name}" }
payload = { name = { string = 40, public = true } }
cost = { "write" = 1, "EUR.cent" = 1 }
host = { deadline = "5m" }
""",
    'each = { "USD.cent" = 500 }': 'each = { "USD.cent" = 500, "write" = 1, "EUR.cent" = 1 }',
}
OPERATION = "The owner has declared no operation of that name."
ACTOR = "The owner has declared no actor of that name."
SUBJECT = "The owner has declared no person of that name."
TASK = "There is no task of that name; open it first."
PARENT = "There is no task of that name to open another one below."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """F0 with two more units, and a task that is closed."""
    made = standard_issuer(tmp_path_factory.mktemp("names") / "f0", port=9, changes=MORE)
    with made.open() as issuer:
        open_task(issuer, "over", parent="org", budget={"USD.cent": 1})
        assert issuer.task_close("over").code == "closed"
    return made


@pytest.fixture
def issuer(made: Made) -> Iterator[Issuer]:
    with made.open() as opened:
        yield opened


def asked(operation: str = "refund", task: str = "t1", actor: str = "agent-7", *more: str) -> tuple[str, ...]:
    return ("request", operation, "--task", task, "--actor", actor, "--payload", "-", *more)


def opened(*more: str) -> tuple[str, ...]:
    return ("task", "open", "new", *more)


ROOT = ("--subject", "u-ana", "--actor", "agent-7")
ROWS: list[tuple[tuple[str, ...], str, str | None]] = [
    (asked("refnud"), OPERATION, "refund"),
    (asked("Refund"), OPERATION, "refund"),
    (asked("zzzzzz"), OPERATION, None),
    (asked(actor="agent7"), ACTOR, "agent-7"),
    (asked(actor="agent-9"), ACTOR, "agent-8"),
    (asked(actor="u-ana"), ACTOR, None),
    (asked("refund", "t1", "agent-7", "--subject", "ana"), SUBJECT, "u-ana"),
    (asked("refund", "t1", "agent-7", "--subject", "agent-7"), SUBJECT, None),
    (asked(task="ogr"), TASK, "org"),
    (asked(task="t1.c"), TASK, "t1.b"),
    (asked(task="ovre"), TASK, None),
    (opened("--parent", "ogr"), PARENT, "org"),
    (opened("--parent", "nothing-like-it"), PARENT, None),
    (opened("--subject", "u-anna", "--actor", "agent-7"), SUBJECT, "u-ana"),
    (opened("--subject", "u-ana", "--actor", "agent-77"), ACTOR, "agent-7"),
    (opened(*ROOT, "--budget", "USD.cents=1"), "No operation costs USD.cents.", "USD.cent"),
    (opened(*ROOT, "--budget", "usd.cent=1"), "No operation costs usd.cent.", "USD.cent"),
    (opened(*ROOT, "--budget", "wirte=1"), "No operation costs wirte.", "write"),
    (opened("--parent", "org", "--budget", "USD.cnt=inherit"), "No operation costs USD.cnt.", "USD.cent"),
    (("task", "grant", "t1", "--budget", "EUR.cetn=1"), "No operation costs EUR.cetn.", "EUR.cent"),
    (("task", "grant", "t11", "--budget", "USD.cent=1"), TASK, "t1"),
    (("task", "close", "ogr"), TASK, "org"),
    (("task", "show", "ovre"), TASK, "over"),
    (("task", "show", "nothing-like-it"), TASK, None),
]


@pytest.mark.spec("SUR-02", "SEC-04", "SEC-01")
@pytest.mark.parametrize(("typed", "sentence", "meant"), ROWS, ids=lambda value: str(value)[:60])
def test_a_name_that_stands_for_nothing_is_followed_by_the_one_that_may_have_been_meant(
    made: Made, typed: tuple[str, ...], sentence: str, meant: str | None
) -> None:
    before = witness(made)
    ran = issuer_here("--json", *typed, at=made.folder, stdin=PAYLOAD.encode())
    assert (ran.exit, ran.code, ran.answer["next"]) == (2, "unknown_reference", "stop")
    assert ran.answer["say"] == (sentence if meant is None else f'{sentence} Did you mean "{meant}"?')
    after = witness(made)
    told = str(after.spans[len(before.spans) :]) + str(after.sink[len(before.sink) :])
    assert "unknown_reference" in told
    assert "Did you" not in told
    assert ran.answer["field"] in told


def test_people_read_the_question_too(made: Made) -> None:
    ran = issuer_here(*asked("refnud"), at=made.folder, stdin=PAYLOAD.encode())
    assert ran.exit == 2
    assert ran.out.splitlines()[-1] == f'{OPERATION} Did you mean "refund"?'


@pytest.mark.spec("SEC-04", "EFF-08")
def test_a_task_in_which_the_stated_actor_may_not_act_is_never_suggested_to_it(issuer: Issuer) -> None:
    for actor, meant in (("agent-7", ' Did you mean "t1.a"?'), ("agent-8", "")):
        answer = issuer.request("refund", PAYLOAD.encode(), task="t1.aaaa", actor=actor)
        assert (answer.code, answer.say) == ("unknown_reference", TASK + meant)


@pytest.mark.spec("SEC-04")
@pytest.mark.parametrize("unit", ["AUD.cent", "US.cent", "UR.cent"])
def test_one_currency_is_never_offered_for_another(issuer: Issuer, unit: str) -> None:
    answer = issuer.task_grant("t1", budget={unit: 1})
    assert (answer.code, answer.say) == ("unknown_reference", f"No operation costs {unit}.")


@pytest.mark.spec("REC-07", "SEC-01")
def test_a_host_that_names_a_unit_wrongly_is_told_the_right_one_and_its_claim_still_counts(
    issuer: Issuer,
) -> None:
    effect = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim = str(issuer.admit(effect).more["claim"])
    wrong = issuer.report(effect, claim, succeeded=True, cost={"USD.cnt": 1})
    assert (wrong.code, wrong.more) == ("unknown_reference", {"field": "cost"})
    assert wrong.say == 'No operation costs USD.cnt. Did you mean "USD.cent"?'
    assert issuer.report(effect, claim, succeeded=True, cost={"USD.cent": 1}).code == "succeeded"


COMMANDS: dict[str, Callable[[Issuer, str], Answer]] = {
    "show": lambda issuer, effect: issuer.show(effect),
    "timeline": lambda issuer, effect: issuer.timeline(effect),
    "commit": lambda issuer, effect: issuer.commit(effect),
    "request": lambda issuer, effect: issuer.request_held(effect),
    "admit": lambda issuer, effect: issuer.admit(effect),
    "dispatch": lambda issuer, effect: issuer.dispatch(effect, ["true"]),
    "report": lambda issuer, effect: issuer.report(effect, "x", succeeded=True),
}


@pytest.mark.spec("EFF-08", "SEC-04")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_effect_is_never_suggested_however_near_the_reference_comes(issuer: Issuer, command: str) -> None:
    key = f"near-{command}"
    effect = permitted(
        issuer.request("refund", {"order": "o-1", "amount": 1}, task="t1", actor="agent-7", request_key=key)
    )
    near = effect[:-1] + ("1" if effect[-1] == "0" else "0")
    answer = COMMANDS[command](issuer, near)
    assert (answer.code, answer.say) == ("not_found", "There is no such effect here.")


@pytest.mark.spec("EFF-08", "SEC-04")
def test_a_restatement_that_differs_is_a_mismatch_without_a_question(issuer: Issuer) -> None:
    effect = permitted(issuer.request("refund", {"order": "o-1", "amount": 1}, task="t1", actor="agent-7"))
    for answer in (issuer.commit(effect, task="t11"), issuer.commit(effect, actor="agent-77")):
        assert answer.code == "mismatch"
        assert "Did you" not in answer.say


@pytest.mark.spec("EFF-05", "EFF-12", "SEC-04")
def test_a_misspelt_field_is_told_by_the_declared_name_and_an_entry_of_a_registry_is_never_told(
    tmp_path: Path,
) -> None:
    profile = (
        standard_issuer(tmp_path / "f0", port=9).profile.read_text()
        + '[registry.orders]\nfile = "orders.csv"\nkey = "order"\nfields = ["shop"]\n'
    ).replace("order = { string = 40, public = true }", 'order = { registry = "orders", public = true }')
    folder = tmp_path / "f1"
    folder.mkdir()
    (folder / "orders.csv").write_text("order,shop\ncanary-1,north\n")
    made = made_issuer(folder, profile, {"policies.cedar": STANDARD_POLICY})
    with made.open() as issuer:
        open_task(issuer, "t1", budget={"USD.cent": 10}, subject="u-ana", actors=["agent-7"])
        typo = issuer.request("refund", {"ordre": "canary-1", "amount": 1}, task="t1", actor="agent-7")
        entry = issuer.request("refund", {"order": "canary-2", "amount": 1}, task="t1", actor="agent-7")
    assert (typo.code, typo.say) == ("malformed", "The field 'order' is required.")
    assert entry.code == "unknown_reference"
    assert "canary-1" not in entry.say


@pytest.mark.spec("SEC-04")
def test_near_misses_are_for_owners_so_outside_ordinary_mode_nobody_gets_one(issuer: Issuer) -> None:
    strict = rebuilt(issuer, profile=replace(issuer._house.profile, mode="strict"))
    answer = strict.request("refnud", PAYLOAD.encode(), task="t1", actor="agent-7")
    assert (answer.code, answer.say) == ("unknown_reference", OPERATION)
    assert (strict.task_show("ogr").code, strict.task_close("ogr").code) == ("forbidden", "unsupported")


def test_a_no_compares_a_bounded_number_of_names(issuer: Issuer) -> None:
    taken: list[str] = []

    def names() -> Iterator[str]:
        for number in range(NAMES_MAX * 3):
            taken.append(f"name-{number}")
            yield taken[-1]

    assert hint_of(issuer._house, "name-7x", names()) == 'Did you mean "name-7"?'
    assert len(taken) <= NAMES_MAX + 1
