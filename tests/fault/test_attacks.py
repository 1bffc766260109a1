"""Holes that an attack found: each test here was a send, a slot or an answer that should not have been.

Whoever edits the file of the ledger takes its triggers away first and puts the same ones back, so nothing of
the schema tells: what has to notice is a key that the attacker does not have.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.credentials import CredentialMissingError, credential_reader
from issuer.flow.binding import binding_digest
from issuer.flow.steps import Reached
from issuer.sealing import ProtectedStoreUnavailable, protected
from ledger.canonical import canonical_bytes, parse_strict
from ledger.errors import LedgerUnavailable
from ledger.model import AMOUNT_MAX
from ledger.sqlite.connection import DRIVER
from tests.support.cases import Books, Clock, books, effect_ids, state_of
from tests.support.issuers import (
    STANDARD_POLICY,
    Made,
    budget_line,
    open_task,
    permitted,
    refund,
    standard_issuer,
)
from tests.support.revised import activated
from tests.support.service import Service, accept_then_close, answer
from tests.support.shell import issuer_here

DAY_MS = 86_400_000


@pytest.fixture
def service() -> Iterator[Service]:
    with Service(*[answer(201)] * 4) as made:
        yield made


@contextmanager
def unguarded(made: Made) -> Iterator[Any]:
    """Edit the ledger as somebody with the file and without the keys can; the schema is the same afterwards."""
    raw = DRIVER.connect(str(made.ledger), isolation_level=None)
    raw.execute("PRAGMA foreign_keys=OFF")
    kept = raw.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid").fetchall()
    for name, _sql in kept:
        raw.execute(f"DROP TRIGGER {name}")
    yield raw
    for _name, sql in kept:
        raw.execute(sql)
    raw.close()


def forge(raw: Any, edit: Callable[[dict[str, Any]], None]) -> tuple[bytes, bytes]:
    """Write another binding with its own right digest into the only effect; return what was there."""
    old = raw.execute("SELECT binding, binding_digest FROM effects").fetchone()
    body: Any = parse_strict(bytes(old[0]))
    edit(body)
    forged = canonical_bytes(body)
    raw.execute("UPDATE effects SET binding = ?, binding_digest = ?", (forged, binding_digest(forged)))
    return bytes(old[0]), bytes(old[1])


def other_amount(body: dict[str, Any]) -> None:
    body["payload"]["amount"] = 900_000


def other_address(body: dict[str, Any]) -> None:
    body["destination"]["addresses"] = ["127.0.0.2"]


def no_cost(body: dict[str, Any]) -> None:
    body["cost"] = {"USD.cent": 0}


# -- an edited ledger


@pytest.mark.spec("LED-06", "EFF-02", "EFF-04")
@pytest.mark.parametrize("edit", [other_amount, other_address, no_cost])
def test_a_held_effect_that_was_edited_in_the_file_gets_no_permit(
    edit: Callable[[dict[str, Any]], None], tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        effect = refund(issuer, hold=True).effect
    assert effect is not None
    with unguarded(made) as raw:
        forge(raw, edit)
        if edit is no_cost:
            raw.execute("""UPDATE effects SET cost = '{"USD.cent":0}'""")
    with made.open() as issuer:
        held = issuer.request_held(effect)
        assert (held.code, held.more["field"], held.retryable) == ("permit_broken", "effect", False)
        assert issuer.commit(effect).code in {"not_permitted_yet", "permit_broken"}
    assert service.requests == ()


@pytest.mark.spec("LED-06", "ADM-01", "EFF-03")
def test_a_forged_binding_that_is_put_back_before_the_lock_is_not_sent(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    with unguarded(made) as raw:
        genuine = forge(raw, lambda body: body["payload"].update(order="o-666"))

    def put_back(step: str) -> None:
        if step == Reached.SINKS_PROBED:
            with unguarded(made) as raw:
                raw.execute("UPDATE effects SET binding = ?, binding_digest = ?", genuine)

    with made.open(observe=put_back) as issuer:
        assert issuer.commit(effect).code == "permit_broken"
    assert service.requests == ()


@pytest.mark.spec("LED-06", "EFF-09")
@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("resource_id", "o-2"),
        ("root_id", "tsk_" + "0" * 32),
        ("action_class", "other"),
        ("content_key", bytes(32)),
        ("request", b"{}"),
    ],
    ids=["resource_id", "root_id", "action_class", "content_key", "request"],
)
def test_a_permitted_effect_with_an_edited_column_outside_its_binding_is_not_admitted(
    column: str, other: str | bytes, tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    with unguarded(made) as raw:
        raw.execute(f"UPDATE effects SET {column} = ?", (other,))  # noqa: S608 - our own word
    with made.open() as issuer:
        refused = issuer.commit(effect)
        assert (refused.code, refused.more["field"]) == ("permit_broken", "effect")
    assert service.requests == ()


@pytest.mark.spec("LED-06", "PER-01", "BUD-05")
def test_a_task_whose_line_of_ancestors_was_led_to_another_task_admits_nothing(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        open_task(issuer, "rich", budget={"USD.cent": 9_000}, subject="u-ana", actors=["agent-7"])
        effect = permitted(refund(issuer, task="t1.a"))
        issuer.task_close("t1.a")
    with unguarded(made) as raw:
        ids = dict(raw.execute("SELECT name, task_id FROM tasks").fetchall())
        raw.execute("DELETE FROM task_path WHERE task_id = ?", (ids["t1.a"],))
        raw.execute("INSERT INTO task_path VALUES (?, 0, ?)", (ids["t1.a"], ids["rich"]))
    with made.open() as issuer:
        assert issuer.commit(effect).more["reason"] == "task_path"
    assert service.requests == ()


TOTAL = "UPDATE budgets SET ceiling = 100000 WHERE ceiling = 1"
ROW = """UPDATE tasks SET ceilings = '{"USD.cent":100000}' WHERE name = 'tiny'"""
CEILINGS = {
    "the total": ((TOTAL,), "ceiling"),
    "the task's row": ((ROW,), "task_mac"),
    "the row and the total": ((ROW, TOTAL), "task_mac"),
}
FORGED = (
    "INSERT INTO grants SELECT task_id, 'USD.cent', 1, 'add', 99999, x'00' FROM tasks WHERE name = 'tiny'"
)
GRANTS = {
    "a grant without a key": (FORGED, "grant_mac"),
    "a grant taken away": ("DELETE FROM grants WHERE amount = 1", "budget_ceiling"),
    "a grant edited": ("UPDATE grants SET amount = 100000 WHERE amount = 1", "grant_mac"),
}


def tiny(made: Made) -> None:
    """Open a task that may spend a cent."""
    with made.open() as issuer:
        open_task(issuer, "tiny", budget={"USD.cent": 1}, subject="u-ana", actors=["agent-7"])


@pytest.mark.spec("LED-06", "BUD-02")
@pytest.mark.parametrize("edited", CEILINGS)
def test_a_ceiling_is_what_the_tasks_own_row_says_and_the_row_is_proven(
    edited: str, tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    tiny(made)
    statements, reason = CEILINGS[edited]
    with unguarded(made) as raw:
        for sql in statements:
            raw.execute(sql)
    with made.open() as issuer:
        refused = refund(issuer, task="tiny")
        assert (refused.code, refused.more["reason"]) == ("ledger_unavailable", reason)


@pytest.mark.spec("LED-06", "BUD-02")
@pytest.mark.parametrize("edited", GRANTS)
def test_a_grants_row_gives_nothing_by_itself_and_a_check_proves_each(
    edited: str, tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    tiny(made)
    sql, finding = GRANTS[edited]
    with unguarded(made) as raw:
        raw.execute(sql)
    with made.open() as issuer:
        refused = refund(issuer, task="tiny")
        assert (refused.code, refused.more["level"]) == ("budget_exceeded", "tiny")
    assert finding in findings(made)


@pytest.mark.spec("LED-06", "BUD-02")
def test_a_forged_grant_that_raises_the_total_by_the_databases_own_trigger_is_no_ceiling(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    tiny(made)
    raw = DRIVER.connect(str(made.ledger), isolation_level=None)
    raw.execute(FORGED)
    assert raw.execute("SELECT count(*) FROM budgets WHERE ceiling = 100000").fetchone() == (1,)
    raw.close()
    with made.open() as issuer:
        refused = refund(issuer, task="tiny")
        assert (refused.code, refused.more["reason"]) == ("ledger_unavailable", "ceiling")
    assert {"grant_mac", "budget_ceiling"} <= findings(made)


def findings(made: Made) -> set[str]:
    """Return what a full check finds."""
    answer = issuer_here("ledger", "check", "--json", at=made.folder).answer
    return {row["check"] for row in answer["findings"]}


@pytest.mark.spec("LED-06", "ADM-06")
def test_a_reader_is_never_opened_on_another_file_than_the_writer(tmp_path: Path, service: Service) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        ledger: Any = issuer._house.ledger.beneath
        ledger._reader.close()
        ledger._reader = None
        aside = made.ledger.with_name("aside")
        made.ledger.rename(aside)
        made.ledger.write_bytes(aside.read_bytes())
        with pytest.raises(LedgerUnavailable, match="replaced"):
            ledger.read(lambda view: view.head())


# -- sent too late


@pytest.mark.spec("PER-03", "ADM-05", "REP-04")
def test_a_permit_that_expires_while_the_sinks_are_waited_for_sends_nothing(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(
        tmp_path / "f0", port=service.port, changes={'lifetime = "10m"': 'lifetime = "2s"'}
    )
    clock = Clock()

    def late(step: str) -> None:
        if step == Reached.ACKNOWLEDGED:
            clock.ahead_ms += 2_000

    with made.open(clock=clock, observe=late) as issuer:
        effect = permitted(refund(issuer))
        assert issuer.commit(effect).code == "prepare_again"
        assert state_of(issuer, effect) == "no_effect"
        assert books(issuer, "t1")["t1"] == Books(reserved=0, settled=0)
    assert service.requests == ()


@pytest.mark.spec("ADM-05", "ADM-07", "BUD-05")
@pytest.mark.parametrize("change", ["deadline passed", "task closed"])
def test_a_host_gets_no_claim_for_what_ended_while_the_sinks_were_waited_for(
    change: str, tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    clock = Clock()
    with made.open(clock=clock) as issuer, made.open(clock=clock) as other:
        effect = publish(issuer, "n")
        delivery: Any = issuer._house.delivery
        acknowledge = delivery.acknowledge

        def slowly(sequence: int) -> None:
            acknowledge(sequence)
            if change == "task closed":
                other.task_close("org")
            else:
                clock.ahead_ms += 300_000

        delivery.acknowledge = slowly
        refused = issuer.admit(effect)
        assert (refused.code, refused.state) == ("prepare_again", "no_effect")
        assert "claim" not in refused.more
        assert state_of(issuer, effect) == "no_effect"


def publish(issuer: Issuer, name: str) -> str:
    return permitted(issuer.request("publish", {"name": name}, task="t1", actor="agent-7"))


# -- the class, asked again


@pytest.mark.spec("POL-03", "POL-05")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[class.refund]", "[class.refund]\nautomatic = false"),
        ('each = { "USD.cent" = 500 }', 'each = { "USD.cent" = 100 }'),
    ],
)
def test_a_class_that_the_owner_narrowed_since_admits_no_earlier_automatic_permit(
    old: str, new: str, tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    made.profile.write_text(made.profile.read_text().replace(old, new))
    activated(made.profile)
    with made.open() as issuer:
        no = issuer.commit(effect)
        assert (no.code, no.state, no.more["level"]) == ("class_exhausted", "permitted", "refund")
    assert service.requests == ()


ONE_A_DAY = """
@id("one-a-day")
forbid (principal, action == Action::"issue", resource) unless { context.usage.day_permits < 1 };
"""


@pytest.mark.spec("POL-02", "POL-03")
def test_a_permit_used_after_midnight_is_not_taken_off_the_count_of_the_new_day(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(
        tmp_path / "f0",
        port=service.port,
        policy=STANDARD_POLICY + ONE_A_DAY,
        changes={'lifetime = "10m"': 'lifetime = "2h"\nper_day = { permits = 9 }'},
    )
    clock = Clock()
    clock.ahead_ms += DAY_MS - clock() % DAY_MS - 60_000
    with made.open(clock=clock) as issuer:
        yesterday = permitted(refund(issuer, order="o-1"))
        clock.ahead_ms += 120_000
        today = permitted(refund(issuer, order="o-2"))
        assert issuer.commit(yesterday).code == "denied"
        assert issuer.commit(today).code == "succeeded"
    assert len(service.requests) == 1


# -- answers about what may have been sent


def sink_unwritable(issuer: Issuer, made: Made, effect: str) -> None:
    made.sink.chmod(0o400)


def dead_ledger(issuer: Issuer, made: Made, effect: str) -> None:
    issuer._house.ledger.beneath._die("A commit of this ledger ended uncertainly; open it anew.")  # type: ignore[attr-defined]


@pytest.mark.spec("SUR-05", "REP-01", "REP-05")
@pytest.mark.parametrize("trouble", [sink_unwritable, dead_ledger])
@pytest.mark.parametrize("state", ["unknown", "admitted"])
def test_trouble_around_what_may_have_been_sent_is_never_answered_as_not_sent_and_to_be_tried_again(
    state: str, trouble: Callable[[Issuer, Made, str], None], tmp_path: Path
) -> None:
    with Service(accept_then_close()) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            if state == "unknown":
                effect = permitted(refund(issuer))
                issuer.commit(effect)
                repeat: Callable[[], Any] = lambda: issuer.commit(effect)  # noqa: E731
            else:
                effect = publish(issuer, "n")
                claim = str(issuer.admit(effect).more["claim"])
                repeat = lambda: issuer.dispatch(effect, ["true"])  # noqa: E731
                assert claim
            trouble(issuer, made, effect)
            said = repeat()
            assert said.code in {"outcome_unknown", "already_consumed"}
            assert state == "admitted" or said.code == "outcome_unknown"
            assert (said.retryable, said.next in {"stop", "tell_a_person"}) == (False, True)
            assert "nothing was sent" not in said.as_json()["say"].lower()


@pytest.mark.spec("SUR-05", "REP-01", "OPR-02")
@pytest.mark.parametrize(
    ("step", "code"), [(accept_then_close(), "outcome_unknown"), (answer(201), "already_consumed")]
)
def test_a_changed_contract_does_not_ask_to_prepare_again_what_was_sent(
    step: Any, code: str, tmp_path: Path
) -> None:
    with Service(step) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            effect = permitted(refund(issuer))
            issuer.commit(effect)
        text = made.profile.read_text()
        made.profile.write_text(
            text.replace("string = 40, public = true }, amount", "string = 41, public = true }, amount")
        )
        activated(made.profile)
        with made.open() as issuer:
            said = issuer.commit(effect, payload={"order": "o-1", "amount": 300})
            assert (said.code, said.retryable) == (code, False)
            assert said.next != "prepare_again"
            fresh = permitted(refund(issuer, order="o-2"))
        made.profile.write_text(text)
        activated(made.profile)
        with made.open() as issuer:
            assert issuer.commit(fresh).code == "prepare_again"


# -- a host's own words, and what it may charge


@pytest.mark.spec("SEC-01", "BUD-03")
def test_a_host_cannot_put_words_of_its_own_into_the_trail_as_a_unit(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        effect = publish(issuer, "n")
        claim = str(issuer.admit(effect).more["claim"])
        refused = issuer.report(effect, claim, succeeded=True, cost={"CANARY_hunter2": 5})
        assert (refused.code, refused.more["field"]) == ("unknown_reference", "cost")
        assert state_of(issuer, effect) == "admitted"
        assert issuer.report(effect, claim, succeeded=True, cost={"USD.cent": 5}).code == "succeeded"
    assert "CANARY" not in made.sink.read_text()
    assert b"CANARY" not in made.ledger.read_bytes()


@pytest.mark.spec("BUD-03")
def test_two_overruns_of_the_largest_amount_are_both_recorded_in_full(
    tmp_path: Path, service: Service
) -> None:
    made = standard_issuer(tmp_path / "f0", port=service.port)
    with made.open() as issuer:
        effects = [publish(issuer, name) for name in "ab"]
        claims = [str(issuer.admit(effect).more["claim"]) for effect in effects]
        for effect, claim in zip(effects, claims, strict=True):
            reported = issuer.report(effect, claim, succeeded=True, cost={"USD.cent": AMOUNT_MAX})
            assert reported.code == "succeeded"
        assert budget_line(issuer, "org")["overrun"] == 2 * (AMOUNT_MAX - 1)


# -- waits without an end


@pytest.mark.spec("EFF-06")
def test_a_stopped_process_that_holds_the_protected_store_lets_a_request_end(
    tmp_path: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected, "_LOCK_WAIT_S", 0.05)
    public = "payload = { name = { string = 40, public = true } }"
    made = standard_issuer(
        tmp_path / "f0", port=service.port, changes={public: "payload = { name = { string = 40 } }"}
    )
    holder = os.open(made.folder / "protected", os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with made.open() as issuer:
            refused = issuer.request("publish", {"name": "n"}, task="t1", actor="agent-7")
            assert refused.code == "ledger_unavailable"
            assert effect_ids(issuer) == []
            with pytest.raises(ProtectedStoreUnavailable):
                issuer._house.protected.erase("eff_" + "0" * 32)
    finally:
        os.close(holder)


@pytest.mark.spec("SEC-03")
def test_a_credential_that_is_a_pipe_keeps_no_dispatch_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "bank", 0o600)
    with pytest.raises(CredentialMissingError):
        credential_reader(tmp_path)("bank")
