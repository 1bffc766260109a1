"""Development case D08: every level of the tree has its say, and whoever is refused leaves nothing at any level."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.wire import Answer
from tests.support.cases import Books, all_at, books, command, effect_ids, held_by, length, refusals, state_of
from tests.support.issuers import open_task, permitted, refund, standard_issuer
from tests.support.service import Service, Step, accept_then_close, answer

NOTHING = Books(reserved=0, settled=0)


class Shop:
    """One service that answers what it is told, else 201, and one open issuer with a tree for each test."""

    def __init__(self, service: Service, issuer: Issuer) -> None:
        self.service = service
        self.issuer = issuer
        self.orders = 0

    def tree(self, name: str, *, t1: int | str = 1_000) -> None:
        """Open org (10,000), T1, T1.a (400) and T1.b (without a ceiling of its own), each named after the test."""
        budget = {"USD.cent": 10_000}
        open_task(self.issuer, f"{name}-org", budget=budget, subject="u-ana", actors=["agent-7"])
        open_task(self.issuer, f"{name}-t1", parent=f"{name}-org", budget={"USD.cent": t1})
        open_task(self.issuer, f"{name}-a", parent=f"{name}-t1", budget={"USD.cent": 400})
        open_task(self.issuer, f"{name}-b", parent=f"{name}-t1", budget={"USD.cent": "inherit"})

    def ask(self, task: str, amount: int) -> Answer:
        """Ask for a refund of an order that nobody asked for before."""
        self.orders += 1
        return refund(self.issuer, order=f"o-{self.orders}", amount=amount, task=task)

    def spend(self, task: str, amount: int, step: Step | None = None) -> str:
        """Send a refund and return its effect."""
        effect = permitted(self.ask(task, amount))
        self.send(effect, step)
        return effect

    def send(self, effect: str, step: Step | None = None) -> Answer:
        """Commit a permitted effect."""
        self.service.then(step or answer(201))
        return self.issuer.commit(effect)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service:
        made = standard_issuer(tmp_path_factory.mktemp("d08") / "f0", port=service.port)
        with made.open() as issuer:
            yield Shop(service, issuer)


def assert_refused_at(shop: Shop, no: Answer, level: str, code: str = "budget_exceeded") -> None:
    assert (no.code, no.more["level"], no.more["field"]) == (code, level, "USD.cent")
    assert (int(no.exit), no.next) == (6, "tell_a_person")
    assert f"level: {level}" in no.say
    assert refusals(shop.issuer)[-1] == (code, "USD.cent", level)


def levels_of(name: str) -> tuple[str, ...]:
    return tuple(f"{name}-{level}" for level in ("a", "b", "t1", "org"))


@pytest.mark.spec("BUD-01", "BUD-02", "SUR-05")
def test_i_a_child_is_held_to_its_own_ceiling(shop: Shop) -> None:
    shop.tree("i")
    before = shop.service.connections
    for amount in (401, 500):
        assert_refused_at(shop, shop.ask("i-a", amount), "i-a")
    one, two = permitted(shop.ask("i-a", 300)), permitted(shop.ask("i-a", 101))
    shop.send(one)
    assert_refused_at(shop, shop.issuer.commit(two), "i-a")
    assert (state_of(shop.issuer, two), held_by(shop.issuer, two)) == ("permitted", {})
    spent = Books(reserved=0, settled=300)
    assert books(shop.issuer, *levels_of("i")) == all_at(*levels_of("i"), settled=300) | {"i-b": NOTHING}
    assert books(shop.issuer, "i-t1", "i-org") == {"i-t1": spent, "i-org": spent}
    assert shop.service.connections == before + 1
    # To the cent: what is left fits, and then nothing does.
    assert shop.spend("i-a", 100)
    assert_refused_at(shop, shop.ask("i-a", 1), "i-a")


@pytest.mark.spec("BUD-01", "BUD-02", "BUD-04")
@pytest.mark.parametrize("how", ["settled", "unknown"])
def test_ii_what_one_child_spent_or_may_have_spent_is_missing_to_its_sibling(how: str, shop: Shop) -> None:
    name = f"ii-{how}"
    shop.tree(name)
    early = [permitted(shop.ask(f"{name}-b", amount)) for amount in (500, 101)]
    shop.spend(f"{name}-a", 400, accept_then_close() if how == "unknown" else None)
    held, settled = (400, 0) if how == "unknown" else (0, 400)
    before = shop.service.connections
    for amount in (601, 700):
        assert_refused_at(shop, shop.ask(f"{name}-b", amount), f"{name}-t1")
    assert books(shop.issuer, f"{name}-b") == {f"{name}-b": NOTHING}
    assert shop.send(early[0]).code == "succeeded"
    assert_refused_at(shop, shop.issuer.commit(early[1]), f"{name}-t1")
    assert held_by(shop.issuer, early[1]) == {}
    assert books(shop.issuer, f"{name}-b") == {f"{name}-b": Books(reserved=0, settled=500)}
    for level in (f"{name}-t1", f"{name}-org"):
        assert books(shop.issuer, level)[level] == Books(reserved=held, settled=settled + 500)
    assert shop.service.connections == before + 1


@pytest.mark.spec("BUD-01", "BUD-02", "BUD-03")
@pytest.mark.parametrize("t1", [1_000, "inherit"])
def test_iii_the_organisation_has_the_last_word(t1: int | str, shop: Shop) -> None:
    name = f"iii-{t1}"
    shop.tree(name, t1=t1)
    early = permitted(shop.ask(f"{name}-b", 100))
    shop.spend(f"{name}-a", 400)
    assert shop.issuer.task_lower(f"{name}-org", budget={"USD.cent": 450}).code == "lowered"
    before = shop.service.connections
    for amount in (51, 100):
        assert_refused_at(shop, shop.ask(f"{name}-b", amount), f"{name}-org")
    assert_refused_at(shop, shop.issuer.commit(early), f"{name}-org")
    spent = all_at(*levels_of(name), settled=400) | {f"{name}-b": NOTHING}
    assert books(shop.issuer, *levels_of(name)) == spent
    assert (held_by(shop.issuer, early), state_of(shop.issuer, early)) == ({}, "permitted")
    assert shop.service.connections == before
    # The permit was not spent by the refusal: with 50 more at that level, and only there, it can be used.
    assert shop.issuer.task_grant(f"{name}-org", budget={"USD.cent": 50}).code == "granted"
    assert shop.send(early).code == "succeeded"
    assert held_by(shop.issuer, early) == dict.fromkeys((f"{name}-b", f"{name}-t1", f"{name}-org"), 100)


@pytest.mark.spec("BUD-02", "BUD-03", "BUD-04")
@pytest.mark.parametrize("how", ["settled", "unknown"])
def test_iii_an_organisation_lowered_below_what_is_used_admits_nothing_until_that_is_under_it(
    how: str, shop: Shop
) -> None:
    name = f"below-{how}"
    shop.tree(name)
    shop.spend(f"{name}-a", 400, accept_then_close() if how == "unknown" else None)
    assert shop.issuer.task_lower(f"{name}-org", budget={"USD.cent": 399}).code == "lowered"
    held, settled = (400, 0) if how == "unknown" else (0, 400)
    for _try in range(2):
        assert_refused_at(shop, shop.ask(f"{name}-b", 1), f"{name}-org")
    assert books(shop.issuer, f"{name}-org")[f"{name}-org"] == Books(reserved=held, settled=settled)
    assert shop.issuer.task_grant(f"{name}-org", budget={"USD.cent": 1}).code == "granted"
    assert_refused_at(shop, shop.ask(f"{name}-b", 1), f"{name}-org")
    assert shop.issuer.task_grant(f"{name}-org", budget={"USD.cent": 1}).code == "granted"
    assert shop.spend(f"{name}-b", 1)


@pytest.mark.spec("BUD-01", "BUD-02")
def test_where_several_levels_refuse_the_lowest_is_named(shop: Shop) -> None:
    shop.tree("all")
    assert shop.issuer.task_lower("all-org", budget={"USD.cent": 300}).code == "lowered"
    assert_refused_at(shop, shop.ask("all-a", 500), "all-a")
    assert_refused_at(shop, shop.ask("all-b", 500), "all-org")
    assert shop.issuer.task_lower("all-t1", budget={"USD.cent": 200}).code == "lowered"
    assert_refused_at(shop, shop.ask("all-b", 500), "all-t1")


@pytest.mark.spec("BUD-01")
@pytest.mark.parametrize("missing", ["leaf", "middle", "root"])
def test_a_unit_that_a_level_does_not_name_is_zero_there(missing: str, shop: Shop) -> None:
    name = f"none-{missing}"
    # Below a level that has nothing no number could stand, so what is below inherits.
    order = ("root", "middle", "leaf")
    ceilings: Mapping[str, Mapping[str, int | str]] = {
        level: {}
        if level == missing
        else {"USD.cent": "inherit" if order.index(level) > order.index(missing) else 1_000}
        for level in order
    }
    actors = ["agent-7"]
    open_task(shop.issuer, f"{name}-root", budget=ceilings["root"], subject="u-ana", actors=actors)
    open_task(shop.issuer, f"{name}-middle", parent=f"{name}-root", budget=ceilings["middle"])
    open_task(shop.issuer, f"{name}-leaf", parent=f"{name}-middle", budget=ceilings["leaf"])
    assert_refused_at(shop, shop.ask(f"{name}-leaf", 1), f"{name}-{missing}")


@pytest.mark.spec("BUD-02", "EFF-11")
def test_a_request_that_is_refused_for_budget_stores_nothing_and_keeps_its_key_free(shop: Shop) -> None:
    shop.tree("key")
    effects, start = effect_ids(shop.issuer), length(shop.issuer)
    no = refund(shop.issuer, task="key-a", amount=401, request_key="k-1")
    assert_refused_at(shop, no, "key-a")
    assert (no.effect, effect_ids(shop.issuer), length(shop.issuer)) == (None, effects, start + 1)
    assert permitted(refund(shop.issuer, task="key-a", amount=400, request_key="k-1"))


@pytest.mark.spec("BUD-02", "SUR-01", "SUR-02")
def test_the_command_line_names_the_level_and_exits_with_6(tmp_path: Path) -> None:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        asking = ("request", "refund", "--task", "t1.a", "--actor", "agent-7", "--payload", "-")
        ran = command(made, *asking, stdin=b'{"order": "o-1", "amount": 500}')
        assert (ran.exit, ran.answer["code"], ran.answer["level"]) == (6, "budget_exceeded", "t1.a")
        assert service.connections == 0
