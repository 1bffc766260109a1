"""Somebody can write the ledger's file and has no keys: what they change is refused, or gains nothing (LED-06).

The attacks run over a bare connection with every trigger dropped and put back, so that the schema looks untouched.
What they leave undetected by design (one total edited while running) is no subject here.
"""
# ruff: noqa: S608 - tables and columns come from the tables of this file

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from issuer.flow.admit import claim_hash
from issuer.sealing import create_key_ring, open_key_ring
from issuer.sealing.authenticator import RingAuthenticator
from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.model import TaskState
from ledger.port import View
from ledger.refusals import RefusalCode
from ledger.sqlite import SqliteLedger
from ledger.states import EffectState
from tests.support.issuers import Made, budget_line, permitted, standard_issuer
from tests.support.ledger_stages import Stages, stages
from tests.support.ledgers import (
    CENT,
    Book,
    admit,
    attacker,
    commit_steps,
    made_book,
    move_task,
    open_task,
    probe,
    probe_step,
    without_guards,
)

S = EffectState


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def ledger(book: Book) -> Iterator[SqliteLedger]:
    opened = book.open()
    yield opened
    opened.close()


def why_corrupt(act: Callable[[], object]) -> str:
    with pytest.raises(LedgerCorrupt) as caught:
        act()
    assert str(caught.value).endswith((".", "one."))
    return caught.value.reason


def why_unavailable(act: Callable[[], object]) -> str:
    with pytest.raises(LedgerUnavailable) as caught:
        act()
    return caught.value.reason


HEAD = [
    ("epoch", "epoch + 1", "head_mac"),
    ("sequence", "sequence - 1", "head_mac"),
    ("sequence", "sequence + 1", "head_mac"),
    ("clock_ms", "clock_ms + 1", "head_mac"),
    ("clock_ms", "0", "head_mac"),
    ("frontier", "x'0000000000000000'", "head_mac"),
    ("root", "zeroblob(32)", "head_mac"),
    ("pending", "zeroblob(32)", "head_mac"),
    ("standing", "zeroblob(32)", "head_mac"),
    ("boot", "'another'", "head_mac"),
    ("boot_ms", "boot_ms + 1", "head_mac"),
    ("mac", "zeroblob(36)", "head_mac"),
    ("mac", "x''", "head_mac"),
    ("mac", "substr(mac, 1, 35)", "head_mac"),
]


@pytest.mark.spec("LED-06", "LED-04")
@pytest.mark.parametrize(("column", "value", "reason"), HEAD, ids=[f"{row[0]}={row[1]}" for row in HEAD])
def test_an_edited_head_stops_who_opens_and_who_has_it_open(
    book: Book, ledger: SqliteLedger, column: str, value: str, reason: str
) -> None:
    commit_steps(ledger, probe_step(), probe_step(), probe_step())
    without_guards(book.path, f"UPDATE head SET {column} = {value}")
    assert why_corrupt(book.open) == reason
    assert why_corrupt(lambda: probe(ledger)) == reason
    raw = attacker(book.path)
    assert raw.execute("SELECT count(*) FROM spans").fetchone() == (3,)
    raw.close()


@pytest.mark.spec("LED-06")
def test_an_older_head_with_its_own_tag_is_refused(book: Book, ledger: SqliteLedger) -> None:
    probe(ledger)
    raw = attacker(book.path)
    row = raw.execute("SELECT sequence, hex(frontier), hex(root), clock_ms, hex(mac) FROM head").fetchone()
    raw.close()
    probe(ledger)
    older = (
        f"UPDATE head SET sequence = {row[0]}, frontier = x'{row[1]}', root = x'{row[2]}', clock_ms = {row[3]}, "
        f"mac = x'{row[4]}'"
    )
    without_guards(book.path, older)
    assert why_corrupt(book.open) == "trail_length"
    assert why_corrupt(lambda: probe(ledger)) == "trail_length"


GROWN = (
    "INSERT INTO spans(sequence, epoch, lane, span_id, trace_id, name, story, effect_id, state_to, at_ms, body, leaf) "
    "SELECT 4, epoch, lane, 'ffffffffffffffff', trace_id, name, story, effect_id, state_to, at_ms, "
    "body, leaf FROM spans WHERE sequence = 3"
)


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DELETE FROM head", "no_head"),
        ("DELETE FROM spans WHERE sequence = (SELECT max(sequence) FROM spans)", "trail_length"),
        ("DELETE FROM spans WHERE sequence > 1", "trail_length"),
        ("DELETE FROM spans", "trail_length"),
        ("UPDATE spans SET sequence = 99 WHERE sequence = 3", "trail_length"),
        (GROWN, "trail_length"),
        ("UPDATE ledger SET ledger_id = 'led_' || hex(zeroblob(16))", "head_mac"),
        ("DELETE FROM ledger", "unfinished"),
    ],
)  # fmt: skip
def test_a_trail_that_is_cut_or_grown_is_refused(book: Book, statement: str, reason: str) -> None:
    ledger = book.open()
    commit_steps(ledger, probe_step(), probe_step(), probe_step())
    ledger.close()
    without_guards(book.path, statement)
    assert why_corrupt(book.open) == reason


TASK = {
    "name": "'other'",
    "parent_id": "NULL",
    "subject": "'u-eve'",
    "actors": """'["agent-7","agent-evil"]'""",
    "expires_ms": "expires_ms + 1",
    "state": "'frozen'",
    "opened_ms": "0",
    "ceilings": """'{"EUR.cent":999999}'""",
    "scope": """'{"classes":null,"operations":null,"resources":null}'""",
    "sequence": "sequence - 1",
    "mac": "zeroblob(36)",
    "root_id": "'tsk_' || hex(zeroblob(16))",
}


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(("column", "value"), TASK.items(), ids=list(TASK))
def test_an_edited_task_row_gives_no_authority(
    book: Book, ledger: SqliteLedger, column: str, value: str
) -> None:
    made = stages(ledger)
    leaf = made.leaf.task_id
    extra = ", depth = 0, root_id = task_id" if column == "parent_id" else ""
    without_guards(book.path, f"UPDATE tasks SET {column} = {value}{extra} WHERE task_id = '{leaf}'")
    assert why_corrupt(lambda: admit(ledger, made.effects[S.PERMITTED])) == "task_mac"
    assert why_corrupt(lambda: ledger.read(lambda view: view.task(leaf))) == "task_mac"
    # A task that is read before it and falls into its bucket tells of it first.
    assert why_corrupt(lambda: ledger.read(lambda view: view.tasks())) in {"task_mac", "standing"}


@pytest.mark.spec("LED-06", "BUD-05")
def test_a_closed_task_that_is_set_back_to_its_own_older_row_stays_closed(
    book: Book, ledger: SqliteLedger
) -> None:
    task = open_task(ledger, "org", {CENT: 10})
    raw = attacker(book.path)
    (mac,) = raw.execute("SELECT hex(mac) FROM tasks").fetchone()
    raw.close()
    move_task(ledger, task, TaskState.CLOSED)
    assert ledger.read(lambda view: view.path(task.task_id))[0].task.state is TaskState.CLOSED
    without_guards(book.path, f"UPDATE tasks SET state = 'open', sequence = 1, mac = x'{mac}'")
    assert why_corrupt(lambda: ledger.read(lambda view: view.path(task.task_id))) == "standing"
    assert why_corrupt(lambda: move_task(ledger, task, TaskState.FROZEN)) == "standing"


@pytest.mark.spec("LED-06", "BUD-02")
@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM task_path WHERE task_id = '{leaf}' AND distance = 1",
        "DELETE FROM task_path WHERE task_id = '{leaf}' AND distance = 0",
        "UPDATE task_path SET ancestor_id = '{closed}' WHERE task_id = '{leaf}' AND distance = 1",
        "UPDATE task_path SET distance = 2 - distance WHERE task_id = '{leaf}'",
    ],
)
def test_a_shortened_or_bent_line_of_ancestors_is_refused(
    book: Book, ledger: SqliteLedger, statement: str
) -> None:
    made = stages(ledger)
    names = {"leaf": made.leaf.task_id, "closed": made.closed.task_id}
    without_guards(book.path, statement.format(**names))
    assert why_corrupt(lambda: admit(ledger, made.effects[S.PERMITTED])) == "task_path"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Made, Path]:
    """One real issuer, and a copy of its ledger and sink as they were made."""
    folder = tmp_path_factory.mktemp("kept")
    state = folder / "state"
    state.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(state))
        made = standard_issuer(folder / "issuer", port=9)
    shutil.copytree(made.ledger.parent, folder / "copy" / "ledger")
    shutil.copytree(made.sink.parent, folder / "copy" / "sink")
    return made, folder / "copy"


@pytest.fixture
def made(kept: tuple[Made, Path]) -> Made:
    """The issuer as it was made; its operation `publish` is sent by the host, so no service is needed."""
    made, copy = kept
    for folder, source in ((made.ledger.parent, copy / "ledger"), (made.sink.parent, copy / "sink")):
        shutil.rmtree(folder)
        shutil.copytree(source, folder)
    return made


def published(made: Made) -> str:
    """Return a permitted effect that a host sends."""
    with made.open() as issuer:
        asked = issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7")
    return permitted(asked)


@pytest.mark.spec("LED-06", "AUD-03")
@pytest.mark.parametrize("column", ["location", "kind", "name", "mac"])
def test_an_edited_sink_row_stops_the_issuer(made: Made, column: str) -> None:
    value = "zeroblob(36)" if column == "mac" else "'elsewhere'"
    without_guards(made.ledger, f"UPDATE sinks SET {column} = {value}")
    assert why_corrupt(made.open) == "sink_mac"


SET_BACK = "UPDATE effects SET state = 'permitted' WHERE effect_id = '{effect}'"
UNUSED = "DELETE FROM permit_uses WHERE effect_id = '{effect}'"
RELEASED = (
    "DELETE FROM claims WHERE effect_id = '{effect}'",
    "DELETE FROM reservations WHERE effect_id = '{effect}'",
    "UPDATE budgets SET reserved = 0",
)
UNSEEN = "DELETE FROM spans WHERE effect_id = '{effect}' AND name = 'effect.admitted'"


@pytest.mark.spec("LED-06", "ADM-02", "ADM-04")
@pytest.mark.parametrize(
    "statements",
    [(SET_BACK,), (SET_BACK, UNUSED), (SET_BACK, UNUSED, *RELEASED), (SET_BACK, UNSEEN)],
    ids=["state", "state and use", "state, use and money", "state and span"],
)
def test_an_effect_that_is_set_back_to_permitted_is_not_admitted_again(
    made: Made, statements: tuple[str, ...]
) -> None:
    effect = published(made)
    with made.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
    # A host's claim is open, and one more span follows, so that the cut trail still has its length.
    published(made)
    without_guards(made.ledger, *(statement.format(effect=effect) for statement in statements))
    with made.open() as issuer:
        again = issuer.admit(effect)
    # Where a span is missing that the sink does not have yet, the sink is the first to say no.
    noticed_by_sink = UNSEEN in statements
    assert again.code == ("audit_unavailable" if noticed_by_sink else "already_consumed")
    assert again.state == "permitted"
    assert "claim" not in again.more


@pytest.mark.spec("LED-06", "ADM-02", "ADM-04", "REP-07")
@pytest.mark.parametrize("companions", [0, 3], ids=["alone", "among others"])
def test_an_effect_whose_every_trace_was_wiped_out_is_not_admitted_again(made: Made, companions: int) -> None:
    effect = published(made)
    with made.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
        others = [published(made) for _ in range(companions + 1)]
        # The sink has everything, and its last span is one that stays.
        assert issuer.admit(others[0]).code == "admitted"
    wiped = (
        SET_BACK,
        UNUSED,
        RELEASED[0],
        RELEASED[1],
        "UPDATE budgets SET reserved = 1 WHERE reserved > 0",
        "UPDATE spans SET name = 'refused', state_to = NULL WHERE effect_id = '{effect}' AND name = 'effect.admitted'",
    )
    without_guards(made.ledger, *(statement.format(effect=effect) for statement in wiped))
    with made.open() as issuer:
        again = issuer.admit(effect)
    assert (again.code, again.more.get("reason")) == ("ledger_unavailable", "pending_set")
    assert "claim" not in again.more


@pytest.mark.spec("LED-06", "ADM-02")
def test_an_effect_that_was_done_cannot_be_made_to_look_like_a_held_one(made: Made) -> None:
    effect = published(made)
    with made.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
        published(made)
    wiped = (
        "UPDATE effects SET state = 'prepared' WHERE effect_id = '{effect}'",
        UNUSED,
        *RELEASED,
        "DELETE FROM counter_takes WHERE effect_id = '{effect}'",
        "DELETE FROM permits WHERE effect_id = '{effect}'",
    )
    without_guards(made.ledger, *(statement.format(effect=effect) for statement in wiped))
    with made.open() as issuer:
        again = issuer.request_held(effect)
    assert (again.code, again.more.get("reason")) == ("ledger_unavailable", "pending_set")


@pytest.mark.spec("LED-06", "ADM-07")
@pytest.mark.parametrize("column", ["claim_hash", "deadline_ms", "instance", "boot"])
def test_an_edited_claim_lets_nobody_report_as_the_winner(made: Made, column: str) -> None:
    effect = published(made)
    with made.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
    mine = claim_hash("clm_mine").hex()
    value = {"claim_hash": f"x'{mine}'", "deadline_ms": "deadline_ms + 1"}.get(column, "'other'")
    without_guards(made.ledger, f"UPDATE claims SET {column} = {value}")
    with made.open() as issuer:
        told = issuer.report(effect, "clm_mine", succeeded=True)
        assert (told.exit, told.more.get("reason")) == (5, "claim_mac")
        assert budget_line(issuer, "t1")["settled"] == 0


PERMIT = {
    "expires_ms": "expires_ms + 1000000",
    "issued_ms": "issued_ms - 1",
    "tier": "'approval'",
    "permit_id": "'pmt_' || lower(hex(zeroblob(16)))",
    "seal": "substr(seal, 1, length(seal) - 2) || iif(substr(seal, -2, 1) = 'A', 'B', 'A') || substr(seal, -1)",
    "caps": "'{}'",
}


@pytest.mark.spec("LED-06", "PER-03")
@pytest.mark.parametrize(("column", "value"), PERMIT.items(), ids=list(PERMIT))
def test_an_edited_permit_admits_nothing_it_was_not_sealed_for(made: Made, column: str, value: str) -> None:
    effect = published(made)
    without_guards(made.ledger, f"UPDATE permits SET {column} = {value}")
    with made.open() as issuer:
        answer = issuer.admit(effect)
    # The caps are words for people: the seal carries the instant that counts.
    assert answer.code == ("admitted" if column == "caps" else "permit_broken")


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("binding_digest", "zeroblob(32)"),
        ("binding", "x'7b7d'"),
        ("binding", "x''"),
        ("binding", "x'5b5d'"),
        ("binding", "CAST(replace(binding, 'v1', 'v2') AS BLOB)"),
        ("binding", 'CAST(replace(binding, \'"resource":{\', \'"resource":{"x":1,\') AS BLOB)'),
        ("binding", "CAST(replace(binding, '\"resource\"', '\"resourced\"') AS BLOB)"),
        ("cost", "'{\"USD.cent\":0}'"),
        ("task_id", "(SELECT task_id FROM tasks WHERE name = 'org')"),
    ],
)
def test_an_edited_effect_admits_nothing_it_was_not_sealed_for(made: Made, column: str, value: str) -> None:
    effect = published(made)
    without_guards(made.ledger, f"UPDATE effects SET {column} = {value}")
    with made.open() as issuer:
        answer = issuer.admit(effect)
    assert answer.code not in {"admitted", "permitted", "succeeded"}
    assert answer.state != "admitted"


@pytest.mark.spec("LED-06", "PER-03")
def test_a_permit_cannot_be_lent_to_another_effect(made: Made) -> None:
    first, second = published(made), published(made)
    without_guards(
        made.ledger,
        f"UPDATE permits SET seal = (SELECT seal FROM permits WHERE effect_id = '{first}') "
        f"WHERE effect_id = '{second}'",
    )
    with made.open() as issuer:
        assert issuer.admit(second).code == "permit_broken"
        assert issuer.admit(first).code == "admitted"


@pytest.mark.spec("LED-06")
@pytest.mark.parametrize(("root", "key_id"), [(b"\x02" * 32, 7), (b"\x02" * 32, 8), (b"\x01" * 32, 8)])
def test_other_keys_open_nothing(book: Book, tmp_path: Path, root: bytes, key_id: int) -> None:
    create_key_ring(tmp_path / "other", root=root, key_id=key_id)
    other = RingAuthenticator(open_key_ring(tmp_path / "other"))
    assert why_corrupt(lambda: book.open(keys=other)) == "head_mac"


@pytest.mark.spec("LED-06", "ADM-06")
def test_an_older_copy_of_the_whole_ledger_is_refused_by_what_the_sink_holds(made: Made) -> None:
    effect = published(made)
    older = made.folder / "older"
    shutil.copytree(made.ledger.parent, older)
    with made.open() as issuer:
        assert issuer.admit(effect).code == "admitted"
    shutil.rmtree(made.ledger.parent)
    shutil.copytree(older, made.ledger.parent)
    with made.open() as issuer:
        again = issuer.admit(effect)
    assert again.code == "audit_unavailable"
    assert again.state != "admitted"


@pytest.mark.spec("LED-04")
def test_reading_stays_possible_where_writing_was_refused(book: Book, ledger: SqliteLedger) -> None:
    made: Stages = stages(ledger)
    without_guards(book.path, "UPDATE head SET mac = zeroblob(36)")
    assert why_corrupt(lambda: probe(ledger)) == "head_mac"

    def look(view: View) -> EffectState | None:
        found = view.effect(made.effects[S.UNKNOWN].effect_id)
        return None if found is None else found.state

    assert ledger.read(look) is S.UNKNOWN


@pytest.mark.spec("LED-06")
def test_an_attack_is_answered_and_not_only_refused(book: Book, ledger: SqliteLedger) -> None:
    made = stages(ledger)
    without_guards(
        book.path,
        f"UPDATE effects SET state = 'permitted' WHERE effect_id = '{made.effects[S.UNKNOWN].effect_id}'",
    )
    before = ledger.read(lambda view: view.head()).sequence
    answer = admit(ledger, made.effects[S.UNKNOWN])
    assert answer.refusal is not None
    assert answer.refusal.code is RefusalCode.ALREADY_CONSUMED
    assert answer.sequence == before + 1
