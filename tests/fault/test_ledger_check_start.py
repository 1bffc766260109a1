"""What a check leads to: new effects stop and reading goes on; and when one is made without being asked (LED-04)."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer, checking
from issuer.checking import check_at_start, judge
from issuer.clock import boot_id
from issuer.places import Places
from issuer.sealing import open_key_ring
from ledger.errors import LedgerCorrupt, LedgerUnavailable
from ledger.sqlite.check import CheckReport
from ledger.sqlite.halt import lift_halt, refuse_halted, set_halt, standing_halt
from ledger.states import EffectState
from tests.support.committing import Job
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.kills import Nursery, state_of, step_number
from tests.support.ledgers import without_guards

WRONG = "UPDATE budgets SET settled = settled + 1"
RIGHT = "UPDATE budgets SET settled = settled - 1"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


@pytest.fixture
def places(made: Made) -> Places:
    return Places(made.profile)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[CheckReport]:
    """Every check that is made, seen on its way."""
    seen: list[CheckReport] = []
    check = checking.checked_ledger

    def told(places: Places, ring: object) -> CheckReport:
        seen.append(check(places, ring))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(checking, "checked_ledger", told)
    return seen


def ended_unclean(places: Places, name: str = "ins_dead") -> Path:
    """Leave what a killed process leaves: its lock file, which nobody holds."""
    path = places.instances / f"{name}.lock"
    path.touch(mode=0o600)
    return path


def noted(places: Places) -> tuple[str, list[str]]:
    """Return the boot and the dead processes of the last clean check."""
    _mac, boot, _epoch, _sequence, *known = places.checked.read_text().splitlines()
    return boot, known


def halted(places: Places) -> str | None:
    halt = standing_halt(places.ledger)
    return None if halt is None else halt.word


@pytest.mark.spec("LED-04", "REP-07")
def test_a_finding_stops_new_effects_in_every_process_and_reading_goes_on(made: Made, places: Places) -> None:
    with made.open() as before:
        effect = permitted(before.request("publish", {"name": "v1"}, task="t1", actor="agent-7"))
        without_guards(made.ledger, WRONG)
        assert Issuer.ledger_check(made.profile).code == "ledger_unavailable"
        assert halted(places) == "budget_settled"
        with made.open() as after:
            for issuer in (before, after):
                for answered in (issuer.admit(effect), refund(issuer), issuer.task_close("t1.a")):
                    assert (answered.code, answered.more["reason"]) == ("ledger_unavailable", "halted")
                    assert "`issuer ledger check`" in answered.say
                assert state_of(issuer, effect) == "permitted"
                assert issuer.timeline(effect).code == issuer.task_list().code == "found"
        without_guards(made.ledger, RIGHT)
        assert before.admit(effect).code == "ledger_unavailable"
        assert Issuer.ledger_check(made.profile).code == "found"
        assert halted(places) is None
        assert before.admit(effect).code == "admitted"


@pytest.mark.spec("LED-04")
def test_a_ledger_that_does_not_open_is_checked_all_the_same(made: Made, places: Places) -> None:
    without_guards(made.ledger, "UPDATE head SET mac = zeroblob(36)")
    with pytest.raises(LedgerCorrupt):
        made.open()
    answered = Issuer.ledger_check(made.profile)
    assert answered.code == "ledger_unavailable"
    assert [row["check"] for row in answered.more["findings"]] == ["head_mac"]  # type: ignore[attr-defined]
    assert halted(places) == "head_mac"


@pytest.mark.spec("LED-04")
def test_an_ordinary_start_checks_nothing(made: Made, checks: list[CheckReport]) -> None:
    with made.open(), made.open():
        pass
    made.open().close()
    assert checks == []


def in_a_new_boot(places: Places) -> None:
    places.checked.write_text("11111111-2222-3333-4444-555555555555\n")


def after_an_unclean_end(places: Places) -> None:
    ended_unclean(places)


def never_checked(places: Places) -> None:
    places.checked.unlink()


def told_nothing(places: Places) -> None:
    places.checked.write_bytes(b"")


def told_nonsense(places: Places) -> None:
    places.checked.write_bytes(b"\xff\xfe")


def told_too_much(places: Places) -> None:
    places.checked.write_text(f"{boot_id()}\n" + "ins_dead\n" * 10_000)


SUSPECT = (in_a_new_boot, after_an_unclean_end, never_checked, told_nothing, told_nonsense, told_too_much)


@pytest.mark.spec("LED-04", "REP-07")
@pytest.mark.parametrize("suspect", SUSPECT)
def test_a_suspect_start_checks_once_and_halts_what_is_wrong(
    made: Made, places: Places, checks: list[CheckReport], suspect: Callable[[Places], None]
) -> None:
    suspect(places)
    made.open().close()
    assert [report.is_clean for report in checks] == [True]
    made.open().close()
    assert len(checks) == 1
    assert noted(places) == (boot_id(), [])
    assert list(places.instances.iterdir()) == []
    suspect(places)
    without_guards(made.ledger, WRONG)
    with made.open() as issuer:
        assert [report.is_clean for report in checks] == [True, False]
        assert refund(issuer).code == "ledger_unavailable"
        assert issuer.list().code == "found"
    # What is stopped stays so until somebody asks, and no start after it pays for another check.
    without_guards(made.ledger, RIGHT)
    made.open().close()
    assert (len(checks), halted(places)) == (2, "budget_settled")


@pytest.mark.spec("ADM-07", "LED-04")
def test_a_dead_process_that_an_open_claim_names_keeps_its_file_until_the_claim_is_over(
    made: Made, places: Places, nursery: Nursery, checks: list[CheckReport]
) -> None:
    """Its free lock is the proof that it is gone; and it causes one check, however often others start."""
    with made.open() as issuer:
        effect = permitted(refund(issuer, amount=7))
    number = step_number("looked_again")
    job = Job(profile=str(made.profile), command="commit", arguments={"effect": effect}, at=number)
    with nursery.start(job) as child:
        assert child.ended() == -signal.SIGKILL
    (left,) = places.instances.glob("*.lock")
    for _ in range(3):
        made.open().close()
        assert left.exists()
    assert [report.is_clean for report in checks] == [True]
    assert noted(places) == (boot_id(), [left.stem])
    with made.open() as issuer:
        assert issuer.show(effect).state == EffectState.UNKNOWN
    made.open().close()
    assert not left.exists()
    assert len(checks) == 1
    assert noted(places) == (boot_id(), [])


@pytest.mark.spec("ADM-07")
def test_the_file_of_a_living_process_is_never_taken_for_a_dead_ones(
    made: Made, places: Places, checks: list[CheckReport]
) -> None:
    with made.open():
        (alive,) = places.instances.glob("*.lock")
        dead = ended_unclean(places)
        made.open().close()
        assert (alive.exists(), dead.exists(), len(checks)) == (True, False, 1)


@pytest.mark.spec("LED-04")
def test_a_finding_whose_mark_cannot_be_written_stops_the_start(made: Made, places: Places) -> None:
    """Where nothing can be stopped, nothing is opened."""
    ended_unclean(places)
    without_guards(made.ledger, WRONG)
    (places.ledger_folder / f"halted.{os.getpid()}").mkdir()
    with pytest.raises(LedgerUnavailable) as refused:
        made.open()
    assert refused.value.reason == "unwritable"


@pytest.mark.spec("LED-04")
def test_a_mark_that_was_set_while_a_check_ran_is_not_lifted_by_it(
    made: Made, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = open_key_ring(places.keys)
    check = checking.checked_ledger

    def meanwhile(places: Places, ring: object) -> CheckReport:
        set_halt(places.ledger, "tree")
        return check(places, ring)  # type: ignore[arg-type]

    monkeypatch.setattr(checking, "checked_ledger", meanwhile)
    for before in (None, "tree"):
        if before is not None:
            set_halt(places.ledger, before)
        judged = judge(places, ring)
        assert (judged.report.is_clean, judged.halted, halted(places)) == (True, True, "tree")
    monkeypatch.undo()
    assert not judge(places, ring).halted


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize("content", [b"", b"tree\n", b"\xff" * 200, b"Free text\n", b"tree\x1b[2J\n"])
def test_whatever_stands_in_the_mark_it_stops_and_is_not_repeated(tmp_path: Path, content: bytes) -> None:
    ledger = tmp_path / "ledger.sqlite"
    (tmp_path / "halted").write_bytes(content)
    with pytest.raises(LedgerCorrupt) as refused:
        refuse_halted(ledger)
    assert refused.value.reason == "halted"
    word = "tree" if content == b"tree\n" else "unreadable"
    assert f"({word})" in refused.value.message


@pytest.mark.spec("LED-04")
@pytest.mark.parametrize("kind", ["folder", "link", "dangling", "pipe"])
def test_a_mark_that_is_no_file_stops_as_well(tmp_path: Path, kind: str) -> None:
    mark = tmp_path / "halted"
    match kind:
        case "folder":
            mark.mkdir()
        case "link":
            (tmp_path / "other").write_text("tree\n")
            mark.symlink_to("other")
        case "dangling":
            mark.symlink_to("nowhere")
        case _:
            os.mkfifo(mark)
    with pytest.raises(LedgerCorrupt):
        refuse_halted(tmp_path / "ledger.sqlite")


@pytest.mark.spec("LED-04")
def test_only_the_mark_that_was_seen_is_lifted(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    set_halt(ledger, "tree")
    first = standing_halt(ledger)
    assert first is not None
    set_halt(ledger, "tree")
    assert not lift_halt(ledger, first)
    second = standing_halt(ledger)
    assert second is not None
    assert lift_halt(ledger, second)
    refuse_halted(ledger)


@pytest.mark.spec("LED-04")
def test_the_mark_is_private_and_goes_with_a_copy_of_the_folder(
    made: Made, places: Places, tmp_path: Path
) -> None:
    set_halt(places.ledger, "tree")
    assert (places.ledger_folder / "halted").stat().st_mode & 0o777 == 0o600
    shutil.copytree(places.ledger_folder, tmp_path / "copy")
    assert standing_halt(tmp_path / "copy" / "ledger.sqlite") is not None


@pytest.mark.spec("LED-04")
def test_a_start_where_everything_is_stopped_already_checks_nothing(
    made: Made, places: Places, checks: list[CheckReport]
) -> None:
    with made.open() as issuer:
        set_halt(places.ledger, "tree")
        ended_unclean(places)
        check_at_start(places, open_key_ring(places.keys), issuer._house.ledger)
    assert checks == []
