"""What is over becomes a tombstone and nothing comes back out of it: no effect, no send, no money (PER-04, LED-02)."""
# ruff: noqa: S608 - tables and columns come from the tables of this file

import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.caller import Caller
from issuer.flow.collect import BATCH, UNUSED_KEPT, Keeping, due, forgettable
from issuer.flow.steps import Reached
from issuer.wire import Answer
from ledger.model import EffectId, InstantMs
from ledger.sqlite.connection import DRIVER
from ledger.states import EffectState
from tests.support.bounded import bounded_issuer, denied, holdings, with_bounds
from tests.support.cases import HOUSE, PROGRAM, Clock, all_at, books, command, effect_ids, state_of, trail
from tests.support.collecting import asked, collect
from tests.support.committing import Job
from tests.support.issuers import Made, permitted, refund
from tests.support.kills import TRANSACTION, Nursery
from tests.support.ledgers import CENT, HOUR_MS, START, admitted_effect, made_book, settle
from tests.support.ledgers import open_task as open_bare_task
from tests.support.recount import recounted, totals
from tests.support.service import Service, accept_then_close, answer
from tests.support.sinks import RAISING, FaultySink

MINUTE_MS = 60_000
DAY_MS = 86_400_000
KEPT_MS = 30 * DAY_MS
WINDOW_MS = DAY_MS + 11 * MINUTE_MS
"""A permit lives ten minutes, its sender has one, and the service keeps its key for a day."""

NOBODY = "eff_" + "0" * 32


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def made(tmp_path: Path, service: Service) -> Made:
    return bounded_issuer(tmp_path / "f0", port=service.port, keep="30d")


@pytest.fixture
def issuer(made: Made, clock: Clock) -> Iterator[Issuer]:
    with made.open(clock=clock) as opened:
        yield opened


def gone(said: Answer) -> int:
    """Return how many effects an answer says were collected."""
    assert said.code == "collected_now", said
    told = said.more["collected"]
    assert isinstance(told, dict)
    return int(told["effects"])


def sent(issuer: Issuer, service: Service, *, order: str = "o-1", key: str = "k-1") -> str:
    """Return an effect that was sent and succeeded."""
    effect = permitted(refund(issuer, order=order, amount=100, request_key=key))
    service.then(answer(201))
    assert issuer.commit(effect).code == "succeeded"
    return effect


def names_in(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple)
    return value


# ------------------------------------------------------------------------------------ what may go, when


@pytest.mark.spec("LED-02", "PER-04", "BUD-04")
def test_what_lives_or_is_unresolved_is_never_collected_however_old_it_is(
    issuer: Issuer, service: Service, clock: Clock
) -> None:
    service.then(accept_then_close())
    unknown = permitted(refund(issuer, order="o-1", amount=100))
    assert issuer.commit(unknown).code == "outcome_unknown"
    admitted = permitted(issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
    claim = str(issuer.admit(admitted).more["claim"])
    permitted(refund(issuer, order="o-2", amount=100))
    assert gone(issuer.ledger_collect(early=True)) == 0
    clock.ahead_ms = 300 * DAY_MS
    assert gone(issuer.ledger_collect(early=True)) == 1  # the permit that nobody used
    assert [state_of(issuer, one) for one in (unknown, admitted)] == ["unknown", "unknown"]
    # A late word settles the one, and only then can it go.
    assert issuer.report(admitted, claim, succeeded=True).code == "succeeded"
    assert gone(issuer.ledger_collect(early=True)) == 1
    assert state_of(issuer, unknown) == "unknown"
    assert books(issuer, "t1") == {"t1": all_at("t1", reserved=100, settled=1)["t1"]}


@pytest.mark.spec("LED-02", "PER-04")
@pytest.mark.parametrize("early", [True, False])
def test_an_outcome_stays_for_its_window_and_then_as_long_as_the_owner_keeps_it(
    early: bool, issuer: Issuer, service: Service, clock: Clock
) -> None:
    effect = sent(issuer, service)
    last = WINDOW_MS if early else KEPT_MS + WINDOW_MS
    for ahead_ms in (0, WINDOW_MS - MINUTE_MS, last - MINUTE_MS):
        clock.ahead_ms = ahead_ms
        assert gone(issuer.ledger_collect(early=early)) == 0
    clock.ahead_ms = last + MINUTE_MS
    assert gone(issuer.ledger_collect(early=early)) == 1
    assert issuer.show(effect).state == "succeeded"


@pytest.mark.spec("LED-02")
def test_what_settles_late_is_kept_from_its_end_on_and_not_from_its_window(tmp_path: Path) -> None:
    book = made_book(tmp_path / "book")
    ledger = book.open()
    task = open_bare_task(ledger, "org", {CENT: 1_000})
    effect = admitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START + HOUR_MS))
    settle(ledger, effect, EffectState.UNKNOWN)
    book.clock.now = START + 100 * HOUR_MS
    settle(ledger, effect, EffectState.SUCCEEDED, {CENT: 1})
    book.clock.now += 10 * HOUR_MS - 1
    assert collect(ledger, asked(keep_ms=10 * HOUR_MS)) == ()
    book.clock.now += 1
    assert collect(ledger, asked(keep_ms=10 * HOUR_MS)) == (effect.effect_id,)
    ledger.close()


@pytest.mark.spec("LED-02")
def test_what_was_never_admitted_goes_as_soon_as_an_operator_asks(issuer: Issuer, clock: Clock) -> None:
    denied(issuer, 1)
    waits = permitted(refund(issuer, order="o-1", amount=1))
    assert gone(issuer.ledger_collect()) == 1
    clock.ahead_ms = 11 * MINUTE_MS
    assert gone(issuer.ledger_collect()) == 1
    assert issuer.show(waits).state == "expired"


@pytest.mark.spec("LED-02", "POL-06", "AUD-01")
def test_by_itself_the_newest_denials_stand_whole_and_the_rest_goes_in_batches(issuer: Issuer) -> None:
    number = UNUSED_KEPT + 2 * BATCH + 5
    most = 0
    for one in range(number):
        denied(issuer, one)
        most = max(most, holdings(issuer).effects)
    held = holdings(issuer)
    assert most <= UNUSED_KEPT + BATCH + 1
    assert held.effects + held.tombstones == number
    spans = [entry for entry in trail(issuer) if entry.name == "ledger.collected"]
    assert [entry.attributes["permit.reason"] for entry in spans] == ["over"] * (held.tombstones // BATCH)
    collected = [name for entry in spans for name in names_in(entry.attributes["permit.collected"])]
    assert len(set(collected)) == len(collected) == held.tombstones
    newest = effect_ids(issuer, EffectState.DENIED)[-UNUSED_KEPT:]
    assert len(newest) == UNUSED_KEPT
    assert issuer._house.ledger.read(lambda view: all(view.decisions(EffectId(one)) for one in newest))


@pytest.mark.spec("LED-02")
def test_with_slack_a_whole_batch_has_to_be_due_and_without_it_one_is_enough(tmp_path: Path) -> None:
    book = made_book(tmp_path / "book")
    ledger = book.open()
    task = open_bare_task(ledger, "org", {CENT: 1_000})
    lazy = Keeping(unused=0, keep_ms=0, reason="over", slack=BATCH)

    def number(wanted: Keeping) -> int:
        now = InstantMs(START + 2 * HOUR_MS)
        return len(ledger.read(lambda view: due(view, now, wanted)))

    for one in range(1, BATCH + 2):
        effect = admitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START))
        settle(ledger, effect, EffectState.SUCCEEDED, {CENT: 1})
        assert number(lazy) == (BATCH if one >= BATCH else 0)
        assert number(asked()) == min(one, BATCH)
    ledger.close()


@pytest.mark.spec("LED-02", "AUD-02")
def test_nothing_goes_of_which_a_required_sink_lacks_the_last_span(
    made: Made, service: Service, clock: Clock
) -> None:
    sink = FaultySink()
    with made.open(clock=clock, further_sinks=[sink]) as issuer:
        effect = sent(issuer, service)
        clock.ahead_ms = WINDOW_MS + MINUTE_MS
        sink.fail(RAISING["unavailable"], probe=False)
        assert gone(issuer.ledger_collect(early=True)) == 0
        assert state_of(issuer, effect) == "succeeded"
        sink.recover()
        assert gone(issuer.ledger_collect(early=True)) == 1


@pytest.mark.spec("LED-02", "EFF-11")
def test_of_tombstones_without_a_permit_only_the_newest_are_kept(tmp_path: Path) -> None:
    book = made_book(tmp_path / "book")
    ledger = book.open()
    task = open_bare_task(ledger, "org", {CENT: 1_000})
    used = admitted_effect(ledger, task, {CENT: 1}, window_ends_ms=InstantMs(START))
    settle(ledger, used, EffectState.NO_EFFECT)
    book.clock.now = START + 2 * HOUR_MS
    assert collect(ledger, asked(tombstones=0)) == (used.effect_id,)
    assert collect(ledger, asked(tombstones=0)) == ()
    tombstone = ledger.read(lambda view: view.tombstone(used.effect_id))
    assert tombstone is not None
    assert tombstone.permit_id is not None
    nothing = ledger.read(
        lambda view: (forgettable(view, asked(tombstones=0)), due(view, InstantMs(START), asked()))
    )
    assert nothing == ((), [])
    ledger.close()


# -------------------------------------------------------------------------------- what is left of it


@pytest.mark.spec("PER-04", "EFF-11", "REP-01", "SUR-05")
def test_a_collected_effect_is_told_as_such_and_nothing_is_made_or_sent(
    issuer: Issuer, service: Service, clock: Clock, made: Made
) -> None:
    effect = sent(issuer, service)
    before = (service.connections, totals(made.ledger))
    clock.ahead_ms = WINDOW_MS + MINUTE_MS
    assert gone(issuer.ledger_collect(early=True)) == 1
    told: dict[str, Callable[[], Answer]] = {
        "commit": lambda: issuer.commit(effect),
        "commit restated": lambda: issuer.commit(effect, payload={"order": "o-9", "amount": 1}),
        "admit": lambda: issuer.admit(effect),
        "dispatch": lambda: issuer.dispatch(effect, ["true"]),
        "report": lambda: issuer.report(effect, "any", succeeded=True),
        "request effect": lambda: issuer.request_held(effect),
        "request again": lambda: refund(issuer, order="o-1", amount=100, request_key="k-1"),
    }
    for what, act in told.items():
        said = act()
        assert (said.code, said.effect, said.state) == ("collected", effect, "succeeded"), what
        assert (said.retryable, said.next, int(said.exit)) == (False, "stop", 7), what
    other = refund(issuer, order="o-1", amount=101, request_key="k-1")
    assert (other.code, other.more["field"], other.effect) == ("request_key_reused", "amount", None)
    assert effect_ids(issuer) == []
    assert (service.connections, totals(made.ledger)) == before
    # Whose effect it was, and all that happened to it, is still told.
    shown = issuer.show(effect)
    record = shown.more["record"]
    assert isinstance(record, dict)
    assert (shown.code, shown.state, shown.operation) == ("found", "succeeded", "refund")
    assert (record["collected"], record["task"], record["request_key"]) == (True, "t1", "k-1")
    lines = issuer.timeline(effect).more["lines"]
    assert isinstance(lines, list)
    assert any("permitted -> admitted" in line for line in lines)
    assert sum("refusal=collected" in line for line in lines) == len(told)


@pytest.mark.spec("EFF-08", "PER-04")
def test_outside_its_caller_a_tombstone_reads_exactly_like_a_missing_effect(issuer: Issuer) -> None:
    effect = denied(issuer, 1).effect or ""
    assert gone(issuer.ledger_collect()) == 1
    house = issuer._house
    other = Issuer(house, Caller(name="somebody", account="uid:9", roles=()), lambda: house)
    acts: tuple[Callable[[str], Answer], ...] = (
        *(other.show, other.commit, other.admit, other.timeline, other.request_held),
        lambda one: other.report(one, "any", succeeded=True),
    )
    for act in acts:
        assert act(effect).as_json() == act(NOBODY).as_json()
        assert act(effect).code == "not_found"


# ------------------------------------------------------------------------------------- what an edit gains

Rows = Mapping[str, list[tuple[Any, ...]]]
KEPT = ("effects", "permits", "decisions", "counter_takes")


@contextmanager
def unguarded(made: Made) -> Iterator[Any]:
    """Edit the file as somebody without keys can: triggers away, rows changed, the same triggers back."""
    raw = DRIVER.connect(str(made.ledger), isolation_level=None)
    raw.execute("PRAGMA foreign_keys=OFF")
    kept = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid").fetchall()
    for name, _sql in kept:
        raw.execute(f"DROP TRIGGER {name}")
    yield raw
    for _name, sql in kept:
        raw.execute(sql)
    raw.close()


def put_back(raw: Any, rows: Rows) -> None:
    for table in KEPT:
        for row in rows[table]:
            raw.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)


TRACES = (
    "DELETE FROM tombstones WHERE effect_id = ?",
    "DELETE FROM permit_uses WHERE effect_id = ?",
    "UPDATE spans SET name = 'effect.reported' WHERE effect_id = ? AND name = 'effect.admitted'",
)
"""What says that an effect is over and its permit spent: the tombstone, the use, the trail."""


@pytest.mark.spec("PER-04", "LED-06", "ADM-02")
@pytest.mark.parametrize("wiped", range(len(TRACES) + 1))
@pytest.mark.parametrize("used", [True, False])
def test_a_collected_permit_cannot_be_revived_by_putting_its_rows_back(
    used: bool, wiped: int, made: Made, service: Service, clock: Clock
) -> None:
    with made.open(clock=clock) as issuer:
        effect = permitted(refund(issuer, order="o-1", amount=100, request_key="k-1"))
    with unguarded(made) as raw:  # as it stood when it was permitted
        rows = {
            name: raw.execute(f"SELECT * FROM {name} WHERE effect_id = ?", (effect,)).fetchall()
            for name in KEPT
        }
    with made.open(clock=clock) as issuer:
        if used:
            service.then(answer(201))
            assert issuer.commit(effect).code == "succeeded"
        clock.ahead_ms = WINDOW_MS + MINUTE_MS
        assert gone(issuer.ledger_collect(early=True)) == 1
    with unguarded(made) as raw:
        for trace in TRACES[:wiped]:
            raw.execute(trace, (effect,))
        put_back(raw, rows)
    before = service.connections
    with made.open(clock=clock) as issuer:
        assert issuer.commit(effect).code in {"already_consumed", "expired", "ledger_unavailable"}
    assert service.connections == before


@pytest.mark.spec("LED-06", "PER-04")
def test_a_tombstone_that_was_changed_without_the_keys_is_told_as_damage(issuer: Issuer, made: Made) -> None:
    effect = denied(issuer, 1).effect or ""
    assert gone(issuer.ledger_collect()) == 1
    with unguarded(made) as raw:
        raw.execute("UPDATE tombstones SET request = x'7b7d' WHERE effect_id = ?", (effect,))
    with made.open() as anew:
        said = refund(anew, order="bad-1", amount=1, request_key="bad-t1-1")
        assert (said.code, said.more) == ("ledger_unavailable", {"reason": "tombstone_mac"})


# -------------------------------------------------------------------------------------------- crowds


@pytest.mark.spec("LED-02", "PER-04", "ADM-04")
def test_what_is_collected_between_the_look_and_the_lock_is_told_as_collected(
    made: Made, service: Service, clock: Clock
) -> None:
    plans: dict[str, Callable[[], None]] = {}

    def observe(step: str) -> None:
        plan = plans.pop(step, None)
        if plan is not None:
            plan()

    with made.open(clock=clock, observe=observe) as issuer, made.open(clock=clock) as operator:
        effect = permitted(refund(issuer, order="o-1", amount=100))

        def happen() -> None:
            clock.ahead_ms = HOUR_MS
            assert gone(operator.ledger_collect()) == 1

        plans[str(Reached.SINKS_PROBED)] = happen
        before = service.connections
        said = issuer.commit(effect)
        assert (said.code, said.effect) == ("collected", effect)
        assert service.connections == before
        assert not plans


@pytest.mark.spec("EFF-11", "EFF-06")
@pytest.mark.parametrize("held", [True, False])
def test_what_is_collected_while_a_request_prepares_is_not_made_anew(
    held: bool, made: Made, clock: Clock
) -> None:
    sink = FaultySink()
    with made.open(clock=clock, further_sinks=[sink]) as issuer, made.open(clock=clock) as operator:
        ours = refund(issuer, order="o-1", amount=1, hold=True).effect or ""

        def happen(well: FaultySink, _honest: object) -> None:
            well.recover()
            if held:
                clock.ahead_ms = HOUR_MS
            else:
                denied(operator, 7)
            assert gone(operator.ledger_collect()) == 1

        sink.fail(happen, ship=False)
        said = (
            issuer.request_held(ours)
            if held
            else refund(issuer, order="bad-7", amount=1, request_key="bad-t1-7")
        )
        assert said.code == "collected"
        assert effect_ids(issuer) == ([] if held else [ours])


@pytest.mark.spec("LED-02", "PER-04")
def test_two_processes_that_collect_at_once_take_each_effect_once(made: Made, issuer: Issuer) -> None:
    number = 3 * BATCH
    for one in range(number):
        denied(issuer, one)
    before = totals(made.ledger)
    argv = [*PROGRAM, "--json", "--profile", str(made.profile), "ledger", "collect"]
    running = [
        subprocess.Popen(argv, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [one.communicate(timeout=120) for one in running]
    assert [one.returncode for one in running] == [0, 0], said
    held = holdings(issuer)
    assert (held.effects, held.tombstones) == (0, number)
    assert totals(made.ledger) == before
    recounted(made.ledger)
    checked = command(made, "ledger", "check")
    assert (checked.exit, checked.answer["findings"]) == (0, [])


@pytest.mark.spec("LED-02", "PER-04", "LED-01")
def test_a_kill_in_the_middle_leaves_each_effect_whole_or_collected(
    made: Made, service: Service, nursery: Nursery
) -> None:
    with made.open() as issuer:
        for number in range(BATCH + 3):
            denied(issuer, number)
        sent(issuer, service)
    before = totals(made.ledger)
    for step, tombstones in (("locked", 0), ("before_commit", 0), ("committed", BATCH)):
        at = TRANSACTION.index(step) + 1
        with nursery.start(Job(profile=str(made.profile), command="ledger_collect", at=at)) as child:
            assert child.ended() == -9
        recounted(made.ledger)
        assert totals(made.ledger) == before
        with unguarded(made) as raw:
            assert raw.execute("SELECT count(*) FROM tombstones").fetchone()[0] == tombstones


@pytest.mark.spec("LED-02")
def test_under_pressure_what_a_request_needs_is_collected_on_its_way(
    issuer: Issuer, service: Service, clock: Clock
) -> None:
    effects = [sent(issuer, service, order=f"o-{n}", key=f"k-{n}") for n in range(4)]
    clock.ahead_ms = WINDOW_MS - DAY_MS
    tight = with_bounds(issuer, effects=4)
    assert refund(tight, order="o-9", amount=1, task="org").code == "ledger_full"
    assert holdings(issuer).effects == 4
    clock.ahead_ms = WINDOW_MS + MINUTE_MS
    # The tasks of the fixture are over by then, and the room is made all the same.
    assert refund(tight, order="o-9", amount=1, task="org").code == "task_expired"
    assert holdings(issuer).effects == 0
    assert [issuer.show(one).state for one in effects] == ["succeeded"] * 4
    (span,) = (entry for entry in trail(issuer) if entry.name == "ledger.collected")
    assert span.attributes["permit.reason"] == "space"
