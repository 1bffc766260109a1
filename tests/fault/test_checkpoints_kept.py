"""Checkpoints by themselves, and their copies elsewhere: nobody's effect waits for one (AUD-02, AUD-04)."""

import json
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.checkpoints import keeper, signing
from issuer.clock import now_ms
from issuer.commands import checkpoints
from issuer.verifying import Given, verify_exports
from issuer.wire import Answer
from tests.support.checkpoints import (
    TABLE,
    demand_true,
    folder,
    notes,
    signed,
    spans_of_checkpoints,
    vkey,
)
from tests.support.issuers import HOUR_MS, Made, open_task, permitted, refund, standard_issuer
from tests.support.ledgers import Clock
from tests.support.revised import activated
from tests.support.service import Service, answer
from tests.support.shell import issuer_here
from tests.support.starving import SmallDisk


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    where = tmp_path / "elsewhere"
    where.mkdir()
    return where


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as opened:
        yield opened


@pytest.fixture
def made(tmp_path: Path, elsewhere: Path, service: Service) -> Made:
    table = TABLE.replace("@ELSEWHERE@", str(elsewhere))
    return standard_issuer(tmp_path / "f0", port=service.port, changes={"[person]": f"{table}[person]"})


def grown(issuer: Issuer, name: str) -> None:
    open_task(issuer, name, budget={"USD.cent": 1}, parent="org", actors=["agent-7"])


def settled(issuer: Issuer) -> None:
    """Return once no checkpoint is being signed."""
    thread = issuer._keeper._thread
    if thread is not None:
        thread.join(10)
        assert not thread.is_alive()


def reasons(made: Made) -> list[str]:
    return [said["permit.reason"] for said in spans_of_checkpoints(made)]


def finding(made: Made, check: str) -> dict[str, object]:
    told = json.loads(issuer_here("doctor", "--json", at=made.folder).out)
    (found,) = [one for one in told["findings"] if one["check"] == check]
    return dict(found)


def told_once(made: Made) -> dict[str, object]:
    """Return the one notice that people were told, once it is there."""
    until = time.monotonic() + 30
    while not (found := list((made.folder / "told").glob("[!.]*"))) and time.monotonic() < until:
        time.sleep(0.02)
    (one,) = found
    return dict(json.loads(one.read_text()))


# ------------------------------------------------------------------------------------ when


@pytest.mark.spec("AUD-04")
def test_with_a_schedule_the_first_command_signs_and_then_one_an_interval(made: Made) -> None:
    # Making the issuer gave commands already.
    assert reasons(made) == ["scheduled"]
    clock = Clock(now_ms())
    with made.open(clock=clock) as issuer:
        for number, (later, wanted) in enumerate(((0, 1), (HOUR_MS - 60_000, 1), (120_000, 2), (1000, 2))):
            clock.now += later
            grown(issuer, f"n{number}")
            settled(issuer)
            assert reasons(made) == ["scheduled"] * wanted
    demand_true(made)


@pytest.mark.spec("AUD-04")
def test_another_process_that_was_quicker_is_noticed_and_nothing_is_signed_twice(made: Made) -> None:
    clock = Clock(now_ms())
    with made.open(clock=clock) as first, made.open(clock=clock) as second:
        grown(first, "a")
        grown(second, "b")
        clock.now += HOUR_MS
        grown(first, "c")
        settled(first)
        grown(second, "d")
        settled(second)
        assert reasons(made) == ["scheduled"] * 2


@pytest.mark.spec("AUD-04")
def test_without_a_schedule_it_is_signed_when_enough_has_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = standard_issuer(tmp_path / "plain", port=9)
    assert reasons(made) == []
    assert keeper.SPANS_MAX == 1000
    monkeypatch.setattr(keeper, "SPANS_MAX", 12)
    with made.open() as issuer:
        for number in range(20):
            grown(issuer, f"n{number}")
            settled(issuer)
    assert reasons(made) == ["full", "full"]
    first, second = (said["permit.tree.size"] for said in spans_of_checkpoints(made))
    assert second - first >= 12
    demand_true(made)


@pytest.mark.spec("AUD-04", "INV-03")
def test_a_process_that_had_it_open_for_long_signs_as_it_closes(made: Made) -> None:
    clock = Clock(now_ms())
    with made.open(clock=clock) as issuer:
        grown(issuer, "a")
        clock.now += 30_000
    assert reasons(made) == ["scheduled"]
    with made.open(clock=clock) as issuer:
        grown(issuer, "b")
        clock.now += 60_000
    assert reasons(made) == ["scheduled", "shutdown"]
    with made.open(clock=clock) as issuer:
        grown(issuer, "c")
        clock.now += 60_000
        signed(issuer)
    assert reasons(made) == ["scheduled", "shutdown", "demanded"]
    with made.open(clock=clock, reading=True) as issuer:
        clock.now += 2 * HOUR_MS
        assert issuer.list().code == "found"
    assert len(reasons(made)) == 3
    demand_true(made)


@pytest.mark.spec("AUD-02", "AUD-04")
def test_an_answer_waits_for_no_checkpoint_and_closing_for_it_only_so_long(
    made: Made, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, reached = threading.Event(), threading.Event()

    def hold(step: str) -> None:
        if step == "checkpoint_alone":
            reached.set()
            assert go_on.wait(10)

    clock = Clock(now_ms())
    service.then(answer(201))
    monkeypatch.setattr(keeper, "CLOSE_S", 0.05)
    with made.open(clock=clock, observe=hold) as issuer:
        clock.now += HOUR_MS
        effect = permitted(refund(issuer, order="o-1", amount=1))
        assert reached.wait(10)
        assert issuer.commit(effect).code == "succeeded"
        thread = issuer._keeper._thread
        assert thread is not None
        assert thread.is_alive()
    assert thread.is_alive()
    go_on.set()
    thread.join(10)
    assert reasons(made) == ["scheduled"]


@pytest.mark.spec("AUD-04")
def test_nobody_signs_while_another_does(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "WAIT_S", 0.05)
    answers: list[Answer | None] = []

    def meanwhile(step: str) -> None:
        if step == "checkpoint_alone" and not answers:
            answers.append(None)
            with made.open() as other:
                grown(other, "other")
                answers[:] = [other.audit_checkpoint()]

    with made.open(observe=meanwhile) as issuer:
        grown(issuer, "more")
        signed(issuer)
    (busy,) = answers
    assert busy is not None
    assert (busy.code, "another process is signing" in busy.say) == ("audit_unavailable", True)
    demand_true(made)


@pytest.mark.spec("AUD-02", "AUD-04")
def test_what_stands_in_the_way_of_a_checkpoint_changes_no_answer_and_is_not_tried_each_time(
    made: Made, service: Service
) -> None:
    clock = Clock(now_ms())
    tried: list[str] = []
    service.then(answer(201), answer(201))
    watch = '[notify.watch]\nspool = "told"\non = ["checkpoint_failed"]\n'
    made.profile.write_text(f"{made.profile.read_text()}{watch}")
    activated(made.profile)
    folder(made).chmod(0o755)
    with made.open(clock=clock, observe=tried.append) as issuer:
        clock.now += HOUR_MS
        for order in ("o-1", "o-2"):
            effect = permitted(refund(issuer, order=order, amount=1))
            assert issuer.commit(effect).code == "succeeded"
            settled(issuer)
    assert "checkpoint_alone" not in tried
    told_of = told_once(made)
    assert (told_of["notice"], "issuer doctor" in str(told_of["say"])) == ("checkpoint_failed", True)
    folder(made).chmod(0o700)
    assert reasons(made) == ["scheduled"]


# ------------------------------------------------------------------------------------ copies


@pytest.mark.spec("AUD-04")
def test_each_note_is_copied_as_it_is_and_shown_to_be(made: Made, elsewhere: Path) -> None:
    with made.open() as issuer:
        grown(issuer, "more")
        told = signed(issuer).more["copies"]
        own = str(issuer.name).rpartition("/")[2]
    assert told == {"folder": str(elsewhere), "missing": 0, "trouble": ""}
    kept = {f"{own}-{path.name}": path.read_bytes() for path in notes(folder(made))}
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == kept
    assert len(kept) == 2
    assert "Every checkpoint has its copy" in str(finding(made, "checkpoint_copies")["says"])
    assert "The newest checkpoint holds" in str(finding(made, "checkpoints")["says"])


@pytest.mark.spec("AUD-04", "AUD-02")
def test_a_folder_that_is_gone_blocks_nothing_is_told_and_is_filled_once_it_is_back(
    made: Made, elsewhere: Path
) -> None:
    shutil.rmtree(elsewhere)
    with made.open() as issuer:
        grown(issuer, "more")
        answered = signed(issuer)
        assert answered.more["copies"] == {"folder": str(elsewhere), "missing": 2, "trouble": "missing"}
        assert f"Not all copies are in {elsewhere}" in answered.say
        assert not elsewhere.exists()
        found = finding(made, "checkpoint_copies")
        assert (found["ok"], "it is not there" in str(found["says"])) == (True, True)
        assert found["next"]
        elsewhere.mkdir()
        assert signed(issuer).more["copies"] == {"folder": str(elsewhere), "missing": 0, "trouble": ""}
    assert len(notes(elsewhere)) == 2


@pytest.mark.spec("AUD-04")
def test_a_different_file_under_the_name_of_a_copy_is_left_and_told(made: Made, elsewhere: Path) -> None:
    with made.open() as issuer:
        signed(issuer)
        newest = notes(elsewhere)[-1]
        newest.write_text("somebody else's")
        assert signed(issuer).more["copies"]["trouble"] == "different"  # type: ignore[index]
        assert newest.read_text() == "somebody else's"
    assert "not the note that was signed" in str(finding(made, "checkpoint_copies")["says"])


@pytest.mark.spec("AUD-04", "AUD-02")
def test_a_folder_without_room_is_told_and_filled_once_there_is_some(made: Made, elsewhere: Path) -> None:
    shutil.rmtree(elsewhere)
    with SmallDisk(elsewhere, 1) as disk, made.open() as issuer:
        disk.fill(0)
        grown(issuer, "more")
        told = signed(issuer).more["copies"]
        assert (told["missing"], told["trouble"]) == (2, "full")  # type: ignore[index]
        assert [path.name for path in elsewhere.iterdir()] == ["filler"]
        disk.empty()
        assert signed(issuer).more["copies"]["missing"] == 0  # type: ignore[index]


@pytest.mark.spec("AUD-02", "AUD-04")
def test_a_folder_that_hangs_is_left_to_its_thread_after_its_time() -> None:
    go_on = threading.Event()
    began = time.monotonic()
    assert signing.within(0.05, lambda: go_on.wait(30)) is None
    assert time.monotonic() - began < 10
    go_on.set()
    assert signing.within(10, lambda: "answered") == "answered"


@pytest.mark.spec("AUD-04", "LED-02", "AUD-02")
def test_where_the_signer_has_no_room_nothing_is_signed_and_effects_go_on(
    made: Made, service: Service, tmp_path: Path
) -> None:
    shutil.move(folder(made), tmp_path / "aside")
    service.then(answer(201))
    with SmallDisk(folder(made), 1) as disk:
        for path in (tmp_path / "aside").iterdir():
            shutil.copy2(path, folder(made))
        disk.fill(0)
        with made.open() as issuer:
            grown(issuer, "more")
            answered = issuer.audit_checkpoint()
            assert (answered.code, "no room" in answered.say) == ("audit_unavailable", True)
            assert issuer.commit(permitted(refund(issuer, order="o-1", amount=1))).code == "succeeded"
            disk.empty()
            signed(issuer)
        demand_true(made)


@pytest.mark.spec("AUD-04", "AUD-02")
def test_where_the_audit_file_moves_the_signer_takes_along_what_it_signed(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        grown(issuer, "more")
        signed(issuer)
        before = {path.name: path.read_bytes() for path in folder(made).iterdir() if path.name != "lock"}
        answered = issuer.sink_replace("local", path=str(tmp_path / "moved"))
        assert (answered.code, "checkpoints_left_in" in answered.more) == ("sink_replaced", False), answered
        (there,) = tmp_path.glob("moved/**/checkpoints")
        assert {path.name: path.read_bytes() for path in there.iterdir() if path.name != "lock"} == before
        assert Path(str(signed(issuer).more["file"])).parent == there


@pytest.mark.spec("AUD-04", "AUD-02")
def test_folders_that_are_called_like_copies_cost_no_open_file(made: Made, elsewhere: Path) -> None:
    with made.open() as issuer:
        signed(issuer)
        newest = max(elsewhere.glob("*-*.note"))
        for number in range(50):
            newest.with_name(f"{newest.name[:9]}0009-{number:012d}.note").mkdir()
        grown(issuer, "first")
        signed(issuer)
        before = len(list(Path("/dev/fd").iterdir()))
        grown(issuer, "second")
        signed(issuer)
        assert len(list(Path("/dev/fd").iterdir())) <= before


@pytest.mark.spec("AUD-04", "LED-06")
def test_a_signer_that_waited_while_the_audit_file_moved_signs_nothing_in_the_folder_that_was_left(
    made: Made, tmp_path: Path
) -> None:
    moves: list[Answer] = []

    def observe(step: str) -> None:
        if step == "checkpoint_alone" and armed and not moves:
            moves.append(other.sink_replace("local", path=str(tmp_path / "moved")))

    armed: list[bool] = []
    with made.open(observe=observe) as issuer, made.open() as other:
        signed(issuer)
        grown(issuer, "more")
        left = {path.name: path.read_bytes() for path in folder(made).iterdir()}
        armed.append(True)
        said = issuer.audit_checkpoint()
        assert (moves[0].code, said.code == "checkpointed") == ("sink_replaced", False)
        assert {path.name: path.read_bytes() for path in folder(made).iterdir()} == left
        assert signed(issuer).more["size"]


@pytest.mark.spec("AUD-04", "AUD-02")
def test_the_file_of_a_sink_has_all_that_was_signed_though_nothing_was_sent_since(made: Made) -> None:
    with made.open() as issuer:
        grown(issuer, "more")
        signed(issuer)
        key = vkey(issuer)
        given = Given.of([key], [folder(made)])
        assert verify_exports([made.sink], given, lambda _total, _what: lambda _read: None).code == "verified"
