"""Rulings, waits and approvals edited by somebody without keys: named by `check`, and refused where they are used."""
# ruff: noqa: S608 - tables and columns come from the tables of this file

from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.look import open_to_look
from issuer.sealing.authenticator import RingAuthenticator
from issuer.wiring import open_ledger
from ledger.authority import ACTIVE_REVISION, RulingKind, Stop
from ledger.errors import Broken, LedgerCorrupt
from ledger.model import Effect, Tier
from ledger.port import View
from ledger.sqlite import SqliteLedger
from ledger.sqlite.authority_rows import RULING_COLUMNS, ruling_authority, ruling_from
from ledger.sqlite.copying import copy_here
from ledger.sqlite.register import recomputed
from ledger.standing import Standing, bucket_of
from ledger.states import EffectState
from tests.fault.test_ledger_attacks import why_corrupt
from tests.support.approved import approved_issuer
from tests.support.busy import Busy
from tests.support.collecting import WINDOW_MS, asked, collect
from tests.support.editing import Edit, assert_named
from tests.support.ledger_authority import (
    KEY,
    OPERATION,
    approve,
    asking,
    dropping,
    one_of_each,
    rule,
    ruling,
    ruling_step,
)
from tests.support.ledger_edits_four import EDITS_FOUR
from tests.support.ledger_stages import current
from tests.support.ledgers import (
    CENT,
    START,
    Book,
    admit,
    attacker,
    commit_steps,
    made_book,
    open_task,
    permit,
    prepare,
    settle,
    state_of,
    without_guards,
)
from tests.support.recount import recounted, totals

TABLES = ("rulings", "approval_waits", "approvals")
STOP = f"kind = 'stop' AND name = '{OPERATION}'"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Busy:
    return approved_issuer(tmp_path_factory.mktemp("approved") / "f0")


@pytest.fixture
def approved(kept: Busy, tmp_path: Path) -> Busy:
    return kept.copied(tmp_path / "f0")


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def ledger(book: Book) -> SqliteLedger:
    return book.open()


def counts(path: Path) -> dict[str, int]:
    raw = attacker(path)
    found = {table: raw.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
    raw.close()
    return found


def damage_of(ledger: SqliteLedger) -> str:
    return "" if ledger.damage is None else ledger.damage.reason


def waiting_for(ledger: SqliteLedger, name: str, *people: str) -> Effect:
    """Return an effect of a task of its own that waits for people, some of whom said yes."""
    effect = prepare(ledger, open_task(ledger, name, {CENT: 10}), {CENT: 1})
    commit_steps(ledger, asking(effect, approvers={"finance": 2}))
    for person in people:
        approve(ledger, effect, person)
    return effect


@pytest.mark.spec("LED-04", "LED-02", "APP-01", "POL-07")
def test_a_healthy_ledger_with_rulings_and_approvals_has_no_finding(approved: Busy) -> None:
    assert approved.check().findings == ()
    recounted(approved.places.ledger)
    raw = attacker(approved.places.ledger)
    kinds = {kind for (kind,) in raw.execute("SELECT kind FROM rulings")}
    people = [many for (many,) in raw.execute("SELECT count(*) FROM approvals GROUP BY effect_id")]
    raw.close()
    assert kinds == {str(kind) for kind in RulingKind}
    assert sorted(people) == [1, 1, 3]


@pytest.mark.spec("LED-06", "APP-01", "POL-07", "ADM-05")
@pytest.mark.parametrize("edit", EDITS_FOUR, ids=[edit.name for edit in EDITS_FOUR])
def test_an_edit_of_a_ruling_a_wait_or_an_approval_is_named_with_its_place(
    approved: Busy, edit: Edit
) -> None:
    assert_named(approved, edit)


def genuine(approved: Busy, kind: str, name: str, value: str, span: str) -> str:
    """Return the statement that puts back a ruling as it was signed at an earlier span."""
    raw = attacker(approved.places.ledger)
    sql = f"SELECT {RULING_COLUMNS} FROM rulings WHERE kind = ? AND name = ?"
    row = list(raw.execute(sql, (kind, name)).fetchone())
    told = (
        "SELECT max(sequence) FROM spans WHERE name = ? AND sequence < "
        "(SELECT sequence FROM rulings WHERE kind = ? AND name = ?)"
    )
    (sequence,) = raw.execute(told, (span, kind, name)).fetchone()
    raw.close()
    row[2], row[3] = value, 0
    mac = RingAuthenticator(approved.ring).tag("row", ruling_authority(ruling_from(tuple(row)), sequence))
    return (
        f"UPDATE rulings SET value = '{value}', voids_until_ms = 0, sequence = {sequence}, mac = X'{mac.hex()}' "
        f"WHERE kind = '{kind}' AND name = '{name}'"
    )


@pytest.mark.spec("LED-06", "POL-07", "ADM-05")
@pytest.mark.parametrize(
    ("kind", "name", "value", "span"),
    [
        (RulingKind.STOP, OPERATION, "frozen", "stop.frozen"),
        (RulingKind.REVISION, ACTIVE_REVISION, "1a" * 32, "revision.activated"),
    ],
)
def test_an_earlier_ruling_is_genuine_and_rules_nothing(
    approved: Busy, kind: RulingKind, name: str, value: str, span: str
) -> None:
    approved.attack(genuine(approved, str(kind), name, value, span))
    ledger = open_ledger(approved.places, approved.ring)
    with pytest.raises(LedgerCorrupt) as refused:
        ledger.read(lambda view: view.ruling(kind, name))
    ledger.close()
    assert refused.value.reason == "standing"
    assert {"ruling_set_back", "standing"} <= {found.what for found in approved.check().findings}


@pytest.mark.spec("LED-06", "ADM-05")
def test_an_earlier_ruling_is_found_even_where_every_register_was_made_anew(approved: Busy) -> None:
    approved.attack(genuine(approved, "stop", OPERATION, "frozen", "stop.frozen"))
    raw = attacker(approved.places.ledger)
    register = recomputed(raw, Standing.TASKS)
    raw.close()
    approved.attack(f"UPDATE standing SET register = X'{register.hex()}' WHERE kind = 'tasks'")
    assert {found.what for found in approved.check().findings} == {"ruling_set_back", "standing"}


RULED: dict[str, tuple[str, str]] = {
    "its value": (f"UPDATE rulings SET value = 'open' WHERE {STOP}", "ruling_mac"),
    "what it voids": (f"UPDATE rulings SET voids_until_ms = 0 WHERE {STOP}", "ruling_mac"),
    "since when": (f"UPDATE rulings SET since_ms = since_ms + 1 WHERE {STOP}", "ruling_mac"),
    "its span": (f"UPDATE rulings SET sequence = sequence - 1 WHERE {STOP}", "ruling_mac"),
    "its MAC": (f"UPDATE rulings SET mac = x'00' WHERE {STOP}", "standing"),
    "removed": (f"DELETE FROM rulings WHERE {STOP}", "standing"),
    "its id": (f"UPDATE rulings SET ruling_id = 'rul_' || hex(zeroblob(16)) WHERE {STOP}", "standing"),
    "its bucket": (f"UPDATE rulings SET bucket = (bucket + 1) % 64 WHERE {STOP}", "standing"),
    "its name": (f"UPDATE rulings SET name = 'operation:x' WHERE {STOP}", "ruling_mac"),
    "another's in its place": (
        (
            "UPDATE rulings SET (value, since_ms, sequence, mac) = "
            f"(SELECT value, since_ms, sequence, mac FROM rulings WHERE name = '{KEY}') WHERE {STOP}"
        ),
        "standing",
    ),
}


@pytest.mark.spec("LED-06", "ADM-05", "POL-07")
@pytest.mark.parametrize("edit", RULED)
def test_a_ruling_that_was_touched_is_refused_where_it_is_used(
    book: Book, ledger: SqliteLedger, edit: str
) -> None:
    one_of_each(ledger)
    assert ledger.read(lambda view: view.ruling(RulingKind.STOP, OPERATION)) is not None
    statement, reason = RULED[edit]
    without_guards(book.path, statement)
    uses: list[Callable[[View], object]] = [
        lambda view: view.ruling(RulingKind.STOP, OPERATION),
        lambda view: view.rulings(RulingKind.STOP),
    ]
    for use in uses:
        assert why_corrupt(lambda use=use: ledger.read(use)) == reason  # type: ignore[misc]
    ledger.close()


@pytest.mark.spec("LED-06", "POL-07", "ADM-05")
@pytest.mark.parametrize("kind", RulingKind)
def test_a_ruling_that_was_removed_is_not_one_that_never_was(
    book: Book, ledger: SqliteLedger, kind: RulingKind
) -> None:
    made = one_of_each(ledger)[kind]
    without_guards(book.path, f"DELETE FROM rulings WHERE kind = '{kind}'")
    assert why_corrupt(lambda: ledger.read(lambda view: view.ruling(kind, made.name))) == "standing"
    assert why_corrupt(lambda: ledger.read(lambda view: view.rulings(kind))) == "standing"
    ledger.close()


@pytest.mark.spec("LED-06", "ADM-05")
def test_no_ruling_is_made_in_the_place_of_one_that_was_touched_or_beside_it(
    book: Book, ledger: SqliteLedger
) -> None:
    rule(ledger, RulingKind.STOP, OPERATION, Stop.REVOKED)
    at = bucket_of(ruling(RulingKind.STOP, OPERATION, Stop.OPEN).ruling_id)
    names = (f"operation:{number}" for number in range(1_000))
    beside = next(
        name for name in names if bucket_of(ruling(RulingKind.STOP, name, Stop.FROZEN).ruling_id) == at
    )
    without_guards(book.path, "DELETE FROM rulings")
    for name in (OPERATION, beside):
        reason = why_corrupt(lambda name=name: rule(ledger, RulingKind.STOP, name, Stop.FROZEN))  # type: ignore[misc]
        assert reason == "standing"
    ledger.close()


@pytest.mark.spec("LED-07", "LED-06", "ADM-05")
def test_what_is_stopped_is_proven_once_for_each_word_and_every_word_is_seen(
    book: Book, ledger: SqliteLedger
) -> None:
    beside = book.open()
    asked: list[str] = []

    def stops() -> list[str]:
        asked.clear()
        return [one.value for one in ledger.read(lambda view: view.rulings(RulingKind.STOP))]

    one_of_each(ledger)
    before = stops()
    ledger._reader.set_trace_callback(asked.append)
    assert stops() == before
    assert not [sql for sql in asked if "rulings" in sql]
    rule(beside, RulingKind.STOP, OPERATION, Stop.OPEN)
    assert stops() == [str(Stop.OPEN)]
    assert [sql for sql in asked if "rulings" in sql]
    without_guards(book.path, f"UPDATE rulings SET value = 'frozen' WHERE {STOP}")
    assert stops() == [str(Stop.OPEN)]  # the proven word, whatever was written over it
    assert (
        why_corrupt(lambda: ledger.read(lambda view: view.ruling(RulingKind.STOP, OPERATION))) == "ruling_mac"
    )
    beside.close()
    ledger.close()


@pytest.mark.spec("LED-06", "ADM-05")
def test_a_ruling_put_in_without_the_keys_is_refused(book: Book, ledger: SqliteLedger) -> None:
    one_of_each(ledger)
    wanted = ruling(RulingKind.STOP, "all", Stop.OPEN).ruling_id
    without_guards(
        book.path,
        f"INSERT INTO rulings SELECT '{wanted}', {bucket_of(wanted)}, kind, 'all', 'open', 0, since_ms, sequence, mac "
        f"FROM rulings WHERE {STOP}",
    )
    assert why_corrupt(lambda: ledger.read(lambda view: view.ruling(RulingKind.STOP, "all"))) == "standing"
    assert why_corrupt(lambda: ledger.read(lambda view: view.rulings(RulingKind.STOP))) == "standing"
    ledger.close()


@pytest.mark.spec("LED-02", "LED-05")
def test_a_challenge_is_dropped_after_its_time_and_nothing_else_ever_is(
    book: Book, ledger: SqliteLedger
) -> None:
    one_of_each(ledger)
    rule(ledger, RulingKind.CHALLENGE, "chl-2", str(START + 2))
    book.clock.now = START + 1
    with pytest.raises(Broken, match="append_only_rulings"):
        commit_steps(ledger, dropping("chl-2"))
    commit_steps(ledger, dropping(OPERATION))  # no challenge has that name, and the stop stays
    assert counts(book.path)["rulings"] == 9
    commit_steps(ledger, dropping("chl-1"))
    assert counts(book.path)["rulings"] == 8
    assert ledger.read(lambda view: view.ruling(RulingKind.CHALLENGE, "chl-1")) is None
    assert [one.name for one in ledger.read(lambda view: view.rulings(RulingKind.CHALLENGE))] == ["chl-2"]
    recounted(book.path)
    ledger.close()


@pytest.mark.spec("LED-05", "APP-01")
def test_a_challenge_is_used_once(book: Book, ledger: SqliteLedger) -> None:
    one_of_each(ledger)
    again = ruling(RulingKind.CHALLENGE, "chl-1", str(START + 9))
    with pytest.raises(Broken, match="guard:ruling_"):
        commit_steps(ledger, ruling_step(again))
    found = ledger.read(lambda view: view.ruling(RulingKind.CHALLENGE, "chl-1"))
    assert found is not None
    assert found.value == str(START)
    ledger.close()


ONE, TWO = "(SELECT min(effect_id) FROM approvals)", "(SELECT max(effect_id) FROM approvals)"
COLUMNS = "person, key, signature, at_ms, sequence, mac"
GIVEN: dict[str, tuple[str, str]] = {
    "who": (
        f"UPDATE approvals SET person = 'u-eve' WHERE effect_id = {ONE} AND person = 'u-ana'",
        "approval_mac",
    ),
    "with which key": (f"UPDATE approvals SET key = 'SHA256:x' WHERE effect_id = {ONE}", "approval_mac"),
    "the signature": (f"UPDATE approvals SET signature = 'x' WHERE effect_id = {ONE}", "approval_mac"),
    "when": (f"UPDATE approvals SET at_ms = at_ms + 1 WHERE effect_id = {ONE}", "approval_mac"),
    "removed": (f"DELETE FROM approvals WHERE effect_id = {ONE} AND person = 'u-ana'", "approval_missing"),
    "all removed": (f"DELETE FROM approvals WHERE effect_id = {ONE}", "approval_missing"),
    "one person twice": (
        (
            f"INSERT INTO approvals SELECT effect_id, 'u-cy', key, signature, at_ms, sequence, mac FROM approvals "
            f"WHERE effect_id = {ONE} AND person = 'u-ana'"
        ),
        "approval_missing",
    ),
    "one person in the place of another": (
        (
            f"UPDATE approvals SET (key, signature, at_ms, mac) = (SELECT key, signature, at_ms, mac FROM approvals "
            f"WHERE effect_id = {ONE} AND person = 'u-ana') WHERE effect_id = {ONE} AND person = 'u-bo'"
        ),
        "approval_mac",
    ),
    "another effect's": (
        (
            f"UPDATE approvals SET ({COLUMNS}) = (SELECT {COLUMNS} FROM approvals AS a WHERE a.effect_id = {TWO} "
            f"AND a.person = approvals.person) WHERE effect_id = {ONE}"
        ),
        "approval_mac",
    ),
    "another effect's beside": (
        (
            f"INSERT INTO approvals SELECT {ONE}, 'u-cy', key, signature, at_ms, sequence, mac FROM approvals "
            f"WHERE effect_id = {TWO} AND person = 'u-ana'"
        ),
        "approval_missing",
    ),
}


@pytest.mark.spec("LED-06", "APP-01", "APP-03")
@pytest.mark.parametrize("edit", GIVEN)
def test_an_approval_that_was_touched_is_refused_where_it_is_used(
    book: Book, ledger: SqliteLedger, edit: str
) -> None:
    effects = [waiting_for(ledger, name, "u-ana", "u-bo") for name in ("one", "two")]
    first = min(effect.effect_id for effect in effects)
    assert len(ledger.read(lambda view: view.approvals(first))) == 2
    statement, reason = GIVEN[edit]
    without_guards(book.path, statement)
    assert why_corrupt(lambda: ledger.read(lambda view: view.approvals(first))) == reason
    ledger.close()


@pytest.mark.spec("LED-06", "APP-01")
def test_an_approval_of_another_effect_approves_nothing(book: Book, ledger: SqliteLedger) -> None:
    approved, waits = waiting_for(ledger, "one", "u-ana"), waiting_for(ledger, "two")
    told = (
        "INSERT INTO spans(sequence, epoch, lane, span_id, trace_id, name, story, effect_id, state_to, at_ms, "
        "body, leaf) "
        "SELECT sequence + 1000, epoch, lane, 'ffffffffffffffff', trace_id, name, "
        f"'{waits.effect_id}', '{waits.effect_id}', state_to, at_ms, body, leaf FROM spans "
        "WHERE name = 'effect.approved'"
    )
    copied = (
        f"INSERT INTO approvals SELECT '{waits.effect_id}', person, key, signature, at_ms, sequence, mac "
        f"FROM approvals WHERE effect_id = '{approved.effect_id}'"
    )
    without_guards(book.path, copied)
    reason = why_corrupt(lambda: ledger.read(lambda view: view.approvals(waits.effect_id)))
    assert reason == "approval_missing"
    without_guards(book.path, told)
    raw = attacker(book.path)
    sql = "SELECT count(*) FROM spans WHERE story = ? AND name = 'effect.approved'"
    assert raw.execute(sql, (waits.effect_id,)).fetchone() == (1,)
    raw.close()
    # Where a span was forged as well, the row is still nobody's yes to this effect.
    reason = why_corrupt(lambda: ledger.read(lambda view: view.approvals(waits.effect_id)))
    assert reason == "approval_mac"
    ledger.close()


WAITED: dict[str, str] = {
    "fewer people": """approvers = '{"finance":1}'""",
    "other people": """approvers = '{"bots":2}'""",
    "another statement": "statement_digest = zeroblob(32)",
    "another time": "asked_ms = asked_ms + 1",
    "another effect's": "(approvers, statement_digest, asked_ms, sequence, mac) = (SELECT approvers, statement_digest, "
    "asked_ms, sequence, mac FROM approval_waits ORDER BY effect_id DESC LIMIT 1)",
}


@pytest.mark.spec("LED-06", "APP-01", "APP-03")
@pytest.mark.parametrize("edit", WAITED)
def test_what_an_effect_waits_for_is_refused_where_it_was_touched(
    book: Book, ledger: SqliteLedger, edit: str
) -> None:
    effects = [waiting_for(ledger, name) for name in ("one", "two")]
    first = min(effect.effect_id for effect in effects)
    assert ledger.read(lambda view: view.approval_wait(first)) is not None
    where = "effect_id = (SELECT min(effect_id) FROM approval_waits)"
    without_guards(book.path, f"UPDATE approval_waits SET {WAITED[edit]} WHERE {where}")
    assert why_corrupt(lambda: ledger.read(lambda view: view.approval_wait(first))) == "wait_mac"
    ledger.close()


@pytest.mark.spec("LED-02", "APP-01", "PER-04")
def test_waits_and_approvals_go_with_their_effect_and_every_total_stays_true(
    book: Book, ledger: SqliteLedger
) -> None:
    one_of_each(ledger)
    sent, waits = waiting_for(ledger, "one", "u-ana", "u-bo"), waiting_for(ledger, "two", "u-ana")
    permit(ledger, current(ledger, sent), tier=Tier.APPROVAL)
    assert admit(ledger, sent).refusal is None
    assert settle(ledger, sent, EffectState.SUCCEEDED, {CENT: 1}).refusal is None
    recounted(book.path)
    assert counts(book.path) == {"rulings": 8, "approval_waits": 2, "approvals": 3}
    book.clock.now += WINDOW_MS
    money = totals(book.path)
    assert collect(ledger, asked()) == (sent.effect_id,)
    assert counts(book.path) == {"rulings": 8, "approval_waits": 1, "approvals": 1}
    recounted(book.path)
    assert totals(book.path) == money
    assert ledger.read(lambda view: view.approval_wait(sent.effect_id)) is None
    assert ledger.read(lambda view: view.approval_wait(waits.effect_id)) is not None
    ledger.close()


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (f"UPDATE rulings SET value = 'open' WHERE {STOP}", "ruling_mac"),
        ("DELETE FROM rulings WHERE kind = 'key'", "standing"),
        ("DELETE FROM approvals WHERE person = 'u-cy'", "approval_missing"),
        ("UPDATE approvals SET signature = 'x'", "approval_mac"),
        ("UPDATE approval_waits SET asked_ms = 1", "wait_mac"),
    ],
)
def test_what_was_edited_is_still_shown_as_it_stands(approved: Busy, statement: str, reason: str) -> None:
    def look(view: View) -> tuple[object, ...]:
        effects = view.effects(states=list(EffectState))
        return (
            [view.rulings(kind) for kind in RulingKind],
            view.ruling(RulingKind.STOP, OPERATION),
            view.ruling(RulingKind.KEY, KEY),
            [view.approvals(effect.effect_id) for effect in effects],
            [view.approval_wait(effect.effect_id) for effect in effects],
        )

    ledger = open_to_look(approved.places, approved.ring, tolerant=True)
    genuine_ones = ledger.read(look)
    assert damage_of(ledger) == ""
    approved.attack(statement)
    assert ledger.read(look) != genuine_ones
    assert damage_of(ledger) == reason
    ledger.close()


@pytest.mark.spec("LED-08", "LED-02")
def test_a_backup_carries_rulings_waits_and_approvals(approved: Busy, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy_here(approved.places.ledger, copy)
    for table in TABLES:
        sql = f"SELECT * FROM {table}"
        here, there = attacker(approved.places.ledger), attacker(copy)
        assert here.execute(sql).fetchall() == there.execute(sql).fetchall() != []
        here.close()
        there.close()


@pytest.mark.spec("LED-05", "APP-01", "PER-01")
def test_by_the_port_nothing_is_permitted_that_waits_and_nobody_approved(ledger: SqliteLedger) -> None:
    effect = waiting_for(ledger, "one")
    stood = ledger.read(lambda view: view.effect(effect.effect_id))
    assert stood is not None
    with pytest.raises(Broken, match="permitted_without_approval"):
        permit(ledger, stood, tier=Tier.APPROVAL)
    approve(ledger, stood, "u-ana")
    with pytest.raises(Broken, match="permitted_without_approval"):
        permit(ledger, stood, tier=Tier.ISSUE)
    assert permit(ledger, stood, tier=Tier.APPROVAL).refusal is None
    assert state_of(ledger, stood) is EffectState.PERMITTED
    ledger.close()
