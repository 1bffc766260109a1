"""A ledger is restored: nothing that may have been sent is free again, and no permit from before lives on (LED-08)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.restore.restoring import restore
from ledger.model import InstantMs
from ledger.sqlite.schema import SCHEMA_VERSION
from ledger.timekeeping import CLOCK_BACKWARD_TOLERANCE_MS
from tests.support.issuers import Made, budget_line, open_task, refund, standard_issuer
from tests.support.ledgers import attacker, without_guards
from tests.support.restoring import (
    published,
    refused,
    restored,
    root,
    saved,
    sent,
    states,
    tasks,
    tree_of,
)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


@pytest.mark.spec("LED-08", "BUD-02", "BUD-04", "ADM-02")
def test_what_was_admitted_since_is_unknown_and_held_and_every_other_permit_is_void(made: Made) -> None:
    with made.open() as issuer:
        done = sent(issuer, "done")
        claim = issuer.admit(published(issuer, "open"))
        opened = str(claim.effect)
        permitted_then = published(issuer, "permitted")
        void = published(issuer, "void")
        held = str(issuer.request("publish", {"name": "held"}, task="t1", actor="agent-7", hold=True).effect)
        idle = str(issuer.request("publish", {"name": "idle"}, task="t1", actor="agent-7", hold=True).effect)
        file = saved(made)
        assert issuer.admit(permitted_then).code == "admitted"
        assert issuer.request_held(held).code == "permitted"
        assert issuer.admit(held).code == "admitted"
        unheard = sent(issuer, "unheard")
        never = published(issuer, "never")
        assert issuer.report(opened, str(claim.more["claim"]), succeeded=True).code == "succeeded"
    answer = restored(made, file)
    assert (answer.more["replayed"], answer.more["unknown"], answer.more["revoked"]) == (3, 2, 2)
    effects = (done, opened, permitted_then, held, unheard, void, idle, never)
    assert states(made, effects) == [*["unknown"] * 5, *["revoked"] * 2, None]
    with made.open() as issuer:
        for task in ("t1", "org"):
            line = budget_line(issuer, task)
            assert (line["reserved"], line["settled"]) == (5, 0)
        for effect in effects[:5]:
            for again in (issuer.admit(effect), issuer.commit(effect), issuer.request_held(effect)):
                assert again.code not in {"admitted", "permitted", "succeeded"}
                assert "claim" not in again.more
        assert issuer.admit(void).code == "revoked"
        assert issuer.admit(never).code == "not_found"
        assert issuer.admit(published(issuer, "after")).code == "admitted"
        # The claim of an admission that the backup holds still proves who its winner was; it releases nothing.
        late = issuer.report(opened, str(claim.more["claim"]), succeeded=True)
        assert (late.code, budget_line(issuer, "t1")["settled"]) == ("succeeded", 1)


@pytest.mark.spec("LED-08", "EFF-09")
def test_a_replayed_effect_shows_what_it_was_and_where_the_sink_tells_of_it(made: Made) -> None:
    file = saved(made)
    with made.open() as issuer:
        admitted = issuer.admit(published(issuer, "v1"))
        effect = str(admitted.effect)
        issuer.report(effect, str(admitted.more["claim"]), succeeded=True)
        before = issuer.show(effect)
    restored(made, file)
    with made.open() as issuer:
        after = issuer.show(effect)
        lines = issuer.timeline(effect).more["lines"]
    assert (after.code, after.state) == ("found", "unknown")
    assert (after.operation, after.resource, after.cost) == (before.operation, before.resource, before.cost)
    record, earlier = after.more["record"], before.more["record"]
    for name in ("actor", "subject", "task", "class", "caller", "binding_digest", "reserved", "prepared"):
        assert record[name] == earlier[name]  # type: ignore[index]
    (evidence,) = record["evidence"]  # type: ignore[index]
    assert evidence["class"] == "none"
    assert evidence["reference"] == "admitted at local 1.11, succeeded at local 1.12"
    assert len(lines) == 1  # type: ignore[arg-type]


@pytest.mark.spec("LED-08", "BUD-06", "POL-03")
def test_slots_and_bounds_of_the_class_stay_taken(tmp_path: Path) -> None:
    changes = {"per_task = { permits = 100 }": "per_task = { permits = 3 }"}
    made = standard_issuer(tmp_path / "f0", port=9, changes=changes)
    with made.open() as issuer:
        root(issuer, "two", 100, refunds=2)
        root(issuer, "many", 100)
    file = saved(made)
    with made.open() as issuer:
        for number in range(2):
            sent(issuer, f"two-{number}", task="two")
        for number in range(3):
            sent(issuer, f"many-{number}", task="many")
    restored(made, file)
    with made.open() as issuer:
        for task, code in (("two", "slots_exhausted"), ("many", "class_exhausted")):
            asked = issuer.request("publish", {"name": "one more"}, task=task, actor="agent-7")
            assert asked.code == code


@pytest.mark.spec("LED-08", "BUD-03")
def test_what_was_spent_of_a_grant_that_is_not_repeated_stands_above_the_ceiling_and_blocks(
    made: Made,
) -> None:
    file = saved(made)
    with made.open() as issuer:
        issuer.task_grant("t1.a", budget={"USD.cent": 200})
        for order in ("o-1", "o-2"):
            asked = refund(issuer, order=order, amount=250, task="t1.a")
            admitted = issuer.commit(str(asked.effect))
            assert admitted.code == "not_dispatched"
    restored(made, file)
    with made.open() as issuer:
        line = budget_line(issuer, "t1.a")
        assert (line["ceiling"], line["reserved"], line["above"]) == (400, 500, 100)
        small = issuer.request("publish", {"name": "small"}, task="t1.a", actor="agent-7")
        assert small.code == "budget_exceeded"
        # The other branch is only bound by what its ancestors still bear.
        assert issuer.admit(published(issuer, "free", task="t1.b")).code == "admitted"


# ------------------------------------------------------------------------------------------- tasks


@pytest.mark.spec("LED-08", "BUD-05")
def test_what_narrows_tasks_is_done_again_and_what_widens_them_is_not(made: Made) -> None:
    with made.open() as issuer:
        for name in ("closed", "frozen", "thawed", "lowered", "granted"):
            root(issuer, name, 100)
        assert issuer.task_freeze("thawed").code == "frozen"
    file = saved(made)
    with made.open() as issuer:
        last = sent(issuer, "last", task="closed")
        assert issuer.task_close("closed").code == "closed"
        assert issuer.task_freeze("frozen").code == "frozen"
        assert issuer.task_thaw("thawed").code == "thawed"
        assert issuer.task_lower("lowered", budget={"USD.cent": 40}).code == "lowered"
        assert issuer.task_grant("granted", budget={"USD.cent": 900}).code == "granted"
        assert issuer.task_lower("granted", budget={"USD.cent": 500}).code == "lowered"
        root(issuer, "new", 50)
        open_task(issuer, "new.child", parent="new", budget={"USD.cent": "inherit"})
        assert issuer.task_grant("new", budget={"USD.cent": 50}).code == "granted"
        child = sent(issuer, "v1", task="new.child")
    answer = restored(made, file)
    assert answer.more["frozen"] == ["frozen", "new", "new.child"]
    with made.open() as issuer:
        found = tasks(issuer)
        assert found == {
            **dict.fromkeys(("org", "t1", "t1.a", "t1.b", "lowered", "granted"), "open"),
            **dict.fromkeys(("frozen", "thawed", "new", "new.child"), "frozen"),
            "closed": "closed",
        }
        ceilings = {name: budget_line(issuer, name)["ceiling"] for name in ("lowered", "granted", "new")}
        assert ceilings == {"lowered": 40, "granted": 100, "new": 50}
        assert budget_line(issuer, "new.child") == {**budget_line(issuer, "new.child"), "reserved": 1}
        assert issuer.show(child).state == issuer.show(last).state == "unknown"
        assert budget_line(issuer, "closed")["reserved"] == 1
        asked = issuer.request("publish", {"name": "v2"}, task="new", actor="agent-7")
        assert asked.code == "task_frozen"
        assert issuer.task_thaw("new").code == issuer.task_thaw("new.child").code == "thawed"
        assert issuer.admit(published(issuer, "v3", task="new.child")).code == "admitted"


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.spec("LED-08", "ADM-06")
def test_while_another_process_has_the_ledger_open_nothing_is_restored(made: Made) -> None:
    file = saved(made)
    with made.open():
        before = tree_of(made.folder)
        assert refused(lambda: Issuer.ledger_restore(made.profile, file)) == "in_use"
        assert tree_of(made.folder) == before
    restored(made, file)


@pytest.mark.spec("LED-08", "ADM-07")
def test_a_process_that_opened_the_ledger_meanwhile_ends_with_the_old_file(made: Made) -> None:
    file = saved(made)
    opened: list[Issuer] = []

    def opens(step: str) -> None:
        if step == "exchange":
            opened.append(made.open())

    restore(made.profile, file, observe=opens)
    (issuer,) = opened
    answer = issuer.task_close("t1.a")
    assert (answer.code, answer.more["reason"]) == ("ledger_unavailable", "replaced")
    issuer.close()
    with made.open() as after:
        assert after.admit(published(after, "v1")).code == "admitted"


def bent_head(file: Path) -> None:
    without_guards(file, "UPDATE head SET clock_ms = clock_ms + 1")


def bent_total(file: Path) -> None:
    without_guards(file, "UPDATE budgets SET settled = settled + 1 WHERE ceiling > 1")


def of_another_release(file: Path) -> None:
    raw = attacker(file)
    raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    raw.close()


def half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def nothing(file: Path) -> None:
    file.write_bytes(b"")


def absent(file: Path) -> None:
    file.unlink()


def linked(file: Path) -> None:
    real = file.rename(file.with_name("real"))
    file.symlink_to(real)


@pytest.mark.spec("LED-08", "LED-04")
@pytest.mark.parametrize(
    ("bend", "reasons"),
    [
        (bent_head, {"head_mac"}),
        (bent_total, {"backup_damaged"}),
        (half, {"malformed", "backup_damaged"}),
        (of_another_release, {"schema_version"}),
        (nothing, {"not_a_ledger"}),
        (absent, {"missing"}),
        (linked, {"not_a_file"}),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_and_nothing_changes(
    made: Made, bend: Callable[[Path], None], reasons: set[str]
) -> None:
    file = saved(made)
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    bend(file)
    before = tree_of(made.folder)
    assert refused(lambda: Issuer.ledger_restore(made.profile, file)) in reasons
    assert tree_of(made.folder) == before
    assert states(made, [effect]) == ["admitted"]


@pytest.mark.spec("LED-08", "ADM-06")
def test_another_ledgers_backup_and_the_ledger_itself_are_refused(made: Made, tmp_path: Path) -> None:
    other = standard_issuer(tmp_path / "other", port=9)
    file = tmp_path / "of-another.sqlite"
    assert Issuer.ledger_backup(other.profile, file).code == "backed_up"
    assert refused(lambda: Issuer.ledger_restore(made.profile, file)) == "foreign_ledger"
    assert refused(lambda: Issuer.ledger_restore(made.profile, made.ledger)) == "same_file"


@pytest.mark.spec("LED-08", "PER-03")
def test_a_clock_behind_what_a_sink_has_seen_restores_nothing(made: Made) -> None:
    file = saved(made)
    with made.open(clock=lambda: InstantMs(now_ms() + 3_600_000)) as issuer:
        effect = sent(issuer, "v1")
    before = tree_of(made.folder)
    assert refused(lambda: Issuer.ledger_restore(made.profile, file)) == "clock_behind"
    assert tree_of(made.folder) == before
    with made.open(reading=True) as issuer:
        assert issuer.show(effect).state == "admitted"


def test_a_clock_a_moment_behind_what_a_sink_has_seen_restores_at_that_instant(made: Made) -> None:
    """As any entry would: what time services correct is no reason to stop, and the ledger's time stands still."""
    file = saved(made)
    with made.open(clock=lambda: InstantMs(now_ms() + CLOCK_BACKWARD_TOLERANCE_MS)) as issuer:
        effect = sent(issuer, "v1")
        last = issuer._house.ledger.read(lambda view: view.last_entry_ms())
    clock = InstantMs(last - CLOCK_BACKWARD_TOLERANCE_MS)
    assert restore(made.profile, file, clock=lambda: clock).outcome.replayed == [effect]
    with made.open() as issuer:
        assert issuer._house.ledger.read(lambda view: view.last_entry_ms()) == last
