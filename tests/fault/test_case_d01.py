"""Development case D01: the answer is lost, and whatever anybody does next, nothing is sent a second time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.flow.steps import Reached
from tests.support.cases import (
    LEVELS,
    NEVER_TWICE,
    Clock,
    all_at,
    books,
    command,
    effect_ids,
    held_by,
    small_tree,
    state_of,
    trail,
)
from tests.support.issuers import HOUR_MS, STANDARD_POLICY, permitted, refund, standard_issuer
from tests.support.service import (
    Service,
    Step,
    accept_then_close,
    answer,
    close_before_read,
    cut_body,
    garbage,
    half_answer,
    hang,
    interim,
    raw,
    redirect,
    reset,
)

POLICY = STANDARD_POLICY + NEVER_TWICE
LOST: dict[str, tuple[Step, int]] = {
    "closed after the effect": (accept_then_close(), 1),
    "reset after the effect": (reset(effect=True), 1),
    "closed unread": (close_before_read(), 0),
    "half an answer": (half_answer(), 1),
    "garbage": (garbage(), 1),
    "an interim answer only": (interim(final=None), 1),
    "a body cut after a declared success": (cut_body(), 1),
    "a body cut after a declared failure": (cut_body(409), 1),
    "a body cut after a declared no effect": (cut_body(422), 1),
    "accepted, not declared": (answer(202, effect=True), 1),
    "another success, not declared": (answer(200), 1),
    "an error of the service": (answer(500, effect=True), 1),
    "unavailable": (answer(503, effect=False), 0),
    "too many": (answer(429, effect=False), 0),
    "not found": (answer(404, effect=False), 0),
    "sent elsewhere": (redirect("http://127.0.0.1:1/"), 0),
    "an answer with two lengths": (
        raw(b"HTTP/1.1 201 Said\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"),
        1,
    ),
}
"""What the service does, and how many effects it has then."""


class Shop:
    """One service and one open issuer for the whole table; each row has a task tree and an order of its own."""

    def __init__(self, service: Service, issuer: Issuer) -> None:
        self.service = service
        self.issuer = issuer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with Service() as service:
        made = standard_issuer(tmp_path_factory.mktemp("d01") / "f0", port=service.port, policy=POLICY)
        with made.open() as issuer:
            yield Shop(service, issuer)


def assert_still_unknown(issuer: Issuer, effect: str, levels: tuple[str, str] = LEVELS) -> None:
    """Nothing of the effect has been let go: it is unknown, listed, and holds its maximum at every level."""
    assert state_of(issuer, effect) == "unknown"
    assert listed(issuer).count(effect) == 1
    assert books(issuer, *levels) == all_at(*levels, reserved=300)
    assert held_by(issuer, effect) == dict.fromkeys(levels, 300)


def listed(issuer: Issuer) -> list[object]:
    rows = issuer.list(["unknown"]).more["effects"]
    assert isinstance(rows, list)
    return [row["effect"] for row in rows]


def assert_every_repetition_is_refused(
    issuer: Issuer, effect: str, task: str = "t1", order: str = "o-1"
) -> None:
    """Commit again, ask again with the same key, take the same effect further, ask afresh for the same."""
    for again in (
        issuer.commit(effect),
        issuer.commit(effect, payload={"order": order, "amount": 300}, task=task, actor="agent-7"),
        refund(issuer, order=order, task=task, request_key="k-1"),
        issuer.request_held(effect),
    ):
        assert (again.code, again.effect, again.state) == ("outcome_unknown", effect, "unknown")
        assert (again.exit, again.retryable, again.next) == (5, False, "tell_a_person")
    for key in (None, "k-2"):
        fresh = refund(issuer, order=order, task=task, request_key=key)
        assert (fresh.code, fresh.exit) == ("denied", 3)
        assert fresh.effect != effect
    assert effect_ids(issuer).count(effect) == 1


@pytest.mark.spec("REP-01", "REP-05", "BUD-04", "ADM-04", "SUR-05", "EFF-11")
@pytest.mark.parametrize("row", LOST)
def test_a_lost_answer_is_unknown_for_good_and_no_repetition_reaches_the_service(
    row: str, shop: Shop
) -> None:
    step, effects = LOST[row]
    order = f"o-{list(LOST).index(row)}"
    levels = small_tree(shop.issuer, f"tree-{order}")
    before = shop.service.counts()
    shop.service.then(step)
    effect = permitted(refund(shop.issuer, order=order, task=levels[0], request_key="k-1"))
    assert shop.service.connections == before["connections"]
    done = shop.issuer.commit(effect)
    assert (done.code, done.state, done.exit) == ("outcome_unknown", "unknown", 5)
    assert (done.retryable, done.next) == (False, "tell_a_person")
    assert_still_unknown(shop.issuer, effect, levels)
    assert_every_repetition_is_refused(shop.issuer, effect, levels[0], order)
    assert_still_unknown(shop.issuer, effect, levels)
    assert shop.service.connections == before["connections"] + 1
    assert len(shop.service.effects) == before["effects"] + effects


@pytest.mark.spec("REP-04", "REP-05")
def test_a_connection_reset_unread_is_unknown_or_provably_nothing_and_never_sent_again(shop: Shop) -> None:
    # Whether the reset comes before the first byte leaves is the network's choice; both answers must be true.
    levels = small_tree(shop.issuer, "tree-reset")
    before = shop.service.connections
    shop.service.then(reset(reads=False))
    effect = permitted(refund(shop.issuer, order="o-reset", task=levels[0]))
    done = shop.issuer.commit(effect)
    assert (done.code, done.state, done.exit) in {
        ("outcome_unknown", "unknown", 5),
        ("not_dispatched", "no_effect", 8),
    }
    held = 300 if done.state == "unknown" else 0
    assert books(shop.issuer, *levels) == all_at(*levels, reserved=held)
    assert shop.issuer.commit(effect).code == done.code
    assert shop.service.connections == before + 1


@pytest.mark.spec("REP-01", "REP-05", "BUD-04", "LED-01")
def test_a_restart_changes_nothing_about_what_is_unknown(tmp_path: Path) -> None:
    with Service(accept_then_close(), half_answer(), answer(500, effect=True)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY)
        with made.open() as issuer:
            trees = [small_tree(issuer, f"tree-{number}") for number in range(3)]
            effects = [
                permitted(refund(issuer, order=f"o-{number}", task=tree[0], request_key="k-1"))
                for number, tree in enumerate(trees)
            ]
            assert [issuer.commit(effect).exit for effect in effects] == [5, 5, 5]
        with made.open() as restarted:
            for number, (effect, tree) in enumerate(zip(effects, trees, strict=True)):
                assert_still_unknown(restarted, effect, tree)
                assert_every_repetition_is_refused(restarted, effect, tree[0], f"o-{number}")
                assert_still_unknown(restarted, effect, tree)
            admitted = [entry for entry in trail(restarted) if entry.state_to == "admitted"]
            assert len(admitted) == len(effects)
        assert (service.connections, len(service.effects)) == (3, 3)


@pytest.mark.spec("REP-05", "BUD-04")
def test_an_answer_that_does_not_come_in_time_is_unknown(tmp_path: Path) -> None:
    clock = Clock()

    def nearly_over(step: str) -> None:
        if step == Reached.LOOKED_AGAIN:
            # The exchange ends with the admission's deadline, a minute after it; 200 ms of it are left.
            clock.ahead_ms += 59_800

    with Service(hang(effect=True)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY)
        with made.open(clock=clock, observe=nearly_over) as issuer:
            effect = permitted(refund(issuer, request_key="k-1"))
            assert issuer.commit(effect).code == "outcome_unknown"
            assert_still_unknown(issuer, effect)
            assert_every_repetition_is_refused(issuer, effect)
        assert (service.connections, len(service.effects)) == (1, 1)


@pytest.mark.spec("BUD-04", "BUD-05", "REP-05")
def test_an_unknown_effect_holds_its_maximum_past_permit_task_and_day(tmp_path: Path) -> None:
    clock = Clock()
    with Service(accept_then_close()) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY)
        with made.open(clock=clock) as issuer:
            effect = permitted(refund(issuer, request_key="k-1"))
            assert issuer.commit(effect).code == "outcome_unknown"
            for name in LEVELS:
                assert issuer.task_close(name).code == "closed"
            assert_still_unknown(issuer, effect)
        clock.ahead_ms = 100 * HOUR_MS
        with made.open(clock=clock) as later:
            assert_still_unknown(later, effect)
            assert later.commit(effect).code == "outcome_unknown"
            assert_still_unknown(later, effect)
        assert service.connections == 1


@pytest.mark.spec("REP-03", "POL-02")
def test_without_such_a_policy_the_same_again_is_an_effect_of_its_own_that_needs_its_own_permit(
    tmp_path: Path,
) -> None:
    with Service(accept_then_close(), answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            first = permitted(refund(issuer))
            assert issuer.commit(first).code == "outcome_unknown"
            second = permitted(refund(issuer))
            assert second != first
            assert service.connections == 1
            assert issuer.commit(second).code == "succeeded"
            assert issuer.commit(first).code == "outcome_unknown"
            assert [received.key for received in service.requests] == [first, second]
            assert all(line.reserved == 300 and line.settled == 300 for line in books(issuer).values())


@pytest.mark.spec("REP-01", "SUR-01", "SUR-02", "SUR-05")
def test_the_command_line_says_unknown_with_exit_code_5_and_lists_it(tmp_path: Path) -> None:
    asking = ("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-", "--request-key")
    with Service(accept_then_close()) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY)
        with made.open() as issuer:
            effect = permitted(refund(issuer, request_key="k-1"))
        for ran in (
            command(made, "commit", effect),
            command(made, *asking, "k-1", stdin=b'{"order": "o-1", "amount": 300}'),
        ):
            assert (ran.exit, ran.answer["code"], ran.answer["effect"]) == (5, "outcome_unknown", effect)
            assert (ran.answer["retryable"], ran.answer["state"]) == (False, "unknown")
        shown = command(made, "list", "--state", "unknown")
        assert shown.exit == 0
        assert [row["effect"] for row in shown.answer["effects"]] == [effect]  # type: ignore[attr-defined]
        assert (service.connections, len(service.effects)) == (1, 1)


@pytest.mark.spec("REP-04", "REP-06", "BUD-03")
@pytest.mark.parametrize(
    ("name", "step", "code", "end"),
    [
        ("created", answer(201), "succeeded", (0, 300)),
        ("conflict", answer(409), "failed", (9, 300)),
        ("invalid", answer(422, effect=False), "no_effect", (9, 0)),
        ("with hints", interim(), "succeeded", (0, 300)),
    ],
)
def test_an_answer_that_is_declared_and_whole_settles_and_a_repetition_says_the_same(
    name: str, step: Step, code: str, end: tuple[int, int], shop: Shop
) -> None:
    exit_code, settled = end
    order = name.replace(" ", "-")
    levels = small_tree(shop.issuer, order)
    before = shop.service.connections
    shop.service.then(step)
    effect = permitted(refund(shop.issuer, order=order, task=levels[0], request_key="k-1"))
    for again in (
        shop.issuer.commit(effect),
        shop.issuer.commit(effect),
        refund(shop.issuer, order=order, task=levels[0], request_key="k-1"),
    ):
        assert (again.code, int(again.exit), again.effect) == (code, exit_code, effect)
    assert books(shop.issuer, *levels) == all_at(*levels, settled=settled)
    assert effect not in listed(shop.issuer)
    assert shop.service.connections == before + 1
