"""Several processes on one ledger: nothing is lost, nothing is done twice, nobody starves, a kill stops nobody."""

import json
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.errors import CommitUncertain, LedgerUnavailable
from ledger.model import InstantMs
from ledger.port import Verdict, View
from ledger.sqlite import SqliteLedger, lock
from tests.support.ledger_children import PATIENCE_S, ended, go, heard, started
from tests.support.ledgers import (
    CENT,
    START,
    Book,
    attacker,
    line,
    made_book,
    open_task,
    permitted_effect,
    probe,
    probe_step,
)

FAR_FUTURE = START + 10**11
PROCESSES = 4


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return made_book(tmp_path / "book")


@pytest.fixture
def ledger(book: Book) -> Iterator[SqliteLedger]:
    opened = book.open()
    yield opened
    opened.close()


def stories(ledger: SqliteLedger) -> list[str]:
    return [span.story for span in ledger.read(lambda view: view.spans_after(0, limit=10_000))]


def assert_contiguous(ledger: SqliteLedger) -> int:
    """Every sequence from 1 to the head is there once; return the head."""
    spans = ledger.read(lambda view: view.spans_after(0, limit=10_000))
    head = ledger.read(lambda view: view.head()).sequence
    assert [span.position.sequence for span in spans] == list(range(1, head + 1))
    assert [span.at_ms for span in spans] == sorted(span.at_ms for span in spans)
    return head


@pytest.mark.spec("BUD-02", "ADM-02", "ADM-04", "ADM-06", "POL-03")
def test_processes_lose_no_update_and_never_admit_above_a_ceiling(book: Book, ledger: SqliteLedger) -> None:
    each, ceiling = 8, 20
    task = open_task(ledger, "org", {CENT: ceiling}, expires_ms=FAR_FUTURE)
    children = [started("admits", book.folder, f"p-{number}", str(each)) for number in range(PROCESSES)]
    go(children)
    told = [json.loads(ended(child)[1]) for child in children]
    assert sum(each_told["won"] for each_told in told) == ceiling
    assert [each_told["permitted"] for each_told in told] == [each] * PROCESSES
    assert line(ledger, task) == (ceiling, ceiling, 0, 0)
    assert ledger.read(lambda view: view.counter("all")) == PROCESSES * each
    found = ledger.read(lambda view: view.repetition_of_content(b"\x0c" * 32))
    assert (found.pending, found.unresolved) == (PROCESSES * each - ceiling, ceiling)
    # One span for the task, and three a try: prepared, permitted, admitted or refused.
    assert assert_contiguous(ledger) == 1 + 3 * PROCESSES * each


@pytest.mark.spec("ADM-04", "ADM-06")
def test_of_processes_that_want_the_same_effects_each_effect_has_one_winner(
    book: Book, ledger: SqliteLedger
) -> None:
    task = open_task(ledger, "org", {CENT: 1_000})
    effects = [permitted_effect(ledger, task, {CENT: 1}).effect_id for _ in range(6)]
    orders = [effects, effects[::-1], effects[3:] + effects[:3]]
    children = [started("contends", book.folder, *order) for order in orders]
    go(children)
    won = [name for child in children for name in json.loads(ended(child)[1])]
    assert sorted(won) == sorted(effects)
    assert line(ledger, task)[1] == len(effects)


@pytest.mark.spec("LED-01")
def test_writers_queue_fairly_so_none_is_left_far_behind(book: Book, ledger: SqliteLedger) -> None:
    each = 40
    names = [f"p-{number}" for number in range(PROCESSES)]
    children = [started("probes", book.folder, name, str(each)) for name in names]
    go(children)
    for child in children:
        assert ended(child) == (0, "done")
    order = stories(ledger)
    assert sorted(order) == sorted(names * each)
    # From when all have begun until the first is done, told by the trail itself and by no clock.
    begun = max(order.index(name) for name in names)
    first_done = min(len(order) - order[::-1].index(name) for name in names)
    span = order[begun:first_done]
    assert span
    counts = [span.count(name) for name in names]
    assert min(counts) >= max(counts) / 4, counts


@pytest.mark.spec("LED-01", "ADM-02")
def test_a_process_killed_with_the_lock_stops_nobody_and_leaves_nothing(
    book: Book, ledger: SqliteLedger
) -> None:
    child = started("holds", book.folder)
    heard(child, "held")
    child.kill()
    assert child.wait(PATIENCE_S) == -signal.SIGKILL
    child.communicate()
    assert probe(ledger).sequence == 1
    assert "child" not in stories(ledger)


@pytest.mark.spec("LED-01", "ADM-02")
@pytest.mark.parametrize(("step", "survives"), [("locked", 1), ("before_commit", 1), ("committed", 2)])
def test_a_kill_leaves_exactly_what_was_committed(book: Book, step: str, survives: int) -> None:
    child = started("dies", book.folder, step)
    assert ended(child)[0] == -signal.SIGKILL
    ledger = book.open()
    assert stories(ledger) == ["first", "second"][:survives]
    assert probe(ledger).sequence == survives + 1
    assert_contiguous(ledger)
    ledger.close()


@pytest.mark.spec("ADM-03", "LED-04")
def test_a_lock_held_beyond_the_wait_is_an_answer_and_not_a_hang(
    book: Book, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT_MAX_S", 0.2)
    child = started("holds", book.folder)
    heard(child, "held")
    for _ in range(2):
        with pytest.raises(LedgerUnavailable) as caught:
            probe(ledger)
        # Our own queue gave up; SQLite's unfair waiting was never reached.
        assert (caught.value.reason, "Other programs" in str(caught.value)) == ("busy", True)
    # Reading waits for nobody.
    assert ledger.read(lambda view: view.head()).sequence == 0
    assert ended(child) == (0, "done")
    # Whoever gave up left no place in the queue behind that would keep the lock.
    monkeypatch.setattr(lock, "WAIT_MAX_S", PATIENCE_S)
    assert probe(ledger).sequence == 2
    assert stories(ledger) == ["child", "led"]
    other = started("holds", book.folder)
    heard(other, "held")
    assert ended(other) == (0, "done")


@pytest.mark.spec("ADM-03")
def test_a_thread_that_waits_too_long_for_another_gets_an_answer(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "WAIT_MAX_S", 0.2)
    answers: list[str] = []

    def late() -> None:
        with pytest.raises(LedgerUnavailable) as caught:
            probe(ledger)
        answers.append(caught.value.reason)

    def decide(_view: View, _now: InstantMs) -> Verdict[None]:
        thread = threading.Thread(target=late)
        thread.start()
        thread.join(PATIENCE_S)
        return Verdict(value=None, steps=(probe_step(),))

    assert ledger.transact(decide).sequence == 1
    assert answers == ["busy"]


@pytest.mark.spec("ADM-03", "LED-04")
def test_a_program_that_locks_the_file_past_our_lock_is_answered(book: Book, ledger: SqliteLedger) -> None:
    raw = attacker(book.path)
    raw.execute("BEGIN IMMEDIATE")
    ledger._raw.execute("PRAGMA busy_timeout = 50")
    with pytest.raises(LedgerUnavailable) as caught:
        probe(ledger)
    assert caught.value.reason == "busy"
    assert ledger.read(lambda view: view.head()).sequence == 0
    raw.execute("ROLLBACK")
    raw.close()
    assert probe(ledger).sequence == 1


@pytest.mark.spec("ADM-06")
def test_a_lock_file_that_was_deleted_still_lets_writers_in_one_at_a_time(
    book: Book, ledger: SqliteLedger
) -> None:
    other = book.open()
    sequences: list[int] = []
    thread = threading.Thread(target=lambda: sequences.append(probe(other).sequence))

    def decide(view: View, _now: InstantMs) -> Verdict[int]:
        lock_file = book.path.with_name("ledger.sqlite.lock")
        lock_file.unlink()
        thread.start()
        # The other makes a new lock file, gets it at once, and SQLite's own lock is what holds it back.
        while not lock_file.exists():
            threading.Event().wait(0.001)
        return Verdict(value=view.head().sequence, steps=(probe_step(),))

    assert ledger.transact(decide).sequence == 1
    thread.join(PATIENCE_S)
    assert sequences == [2]
    other.close()


@pytest.mark.spec("ADM-06", "AUD-03")
def test_a_forked_child_is_refused_and_hurts_nobody(book: Book) -> None:
    code, said = ended(started("forks", book.folder))
    assert code == 0, said
    assert json.loads(said) == [0, 2]


def traced(tmp_path: Path, book: Book, calls: str, error: str, when: int) -> tuple[list[str], bool]:
    """Run two commits with the `when`th call failing; return both answers and whether the fault was injected."""
    tracer = shutil.which("strace")
    if tracer is None:
        pytest.skip("strace is not installed")
    log = tmp_path / f"{when}.strace"
    fault = f"inject={calls}:error={error}:when={when}"
    options = (tracer, "-f", "-qq", "-o", str(log), "-e", f"trace={calls}", "-e", fault)
    child = started("commits_on_bad_disk", book.folder, before=options)
    out, err = child.communicate(timeout=PATIENCE_S)
    if child.returncode != 0 and "ptrace" in err:
        pytest.skip("strace may not trace here")
    injected = "INJECTED" in log.read_text()
    return (json.loads(out) if out.strip() else [err.strip().splitlines()[-1]]), injected


@pytest.mark.spec("ADM-03", "LED-01", "LED-04")
@pytest.mark.skipif(sys.platform != "linux", reason="strace is for Linux")
def test_a_sync_that_fails_makes_the_commit_uncertain_the_object_dead_and_the_file_whole(
    tmp_path: Path, book: Book
) -> None:
    pristine = tmp_path / "pristine"
    shutil.copytree(book.folder, pristine)
    seen: set[str] = set()
    for when in range(1, 12):
        shutil.rmtree(book.folder)
        shutil.copytree(pristine, book.folder)
        answers, injected = traced(tmp_path, book, "fsync,fdatasync", "EIO", when)
        if not injected:
            break
        seen.update(answers)
        fresh = book.open()
        found = stories(fresh)
        # Nothing that was confirmed is missing; what is uncertain is there or not, whole.
        assert answers.count("done") <= len(found) <= answers.count("done") + answers.count("uncertain")
        if "uncertain" in answers[:1]:
            assert answers[1] == "unavailable:dead"
        head = probe(fresh).sequence
        assert head == len(found) + 1
        assert_contiguous(fresh)
        fresh.close()
    else:
        pytest.fail("every run had a sync to fail")
    assert "uncertain" in seen
    assert "done" in seen


def test_an_uncertain_commit_kills_this_object_and_no_other(
    book: Book, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing:
        """The live connection, whose COMMIT reports an error."""

        def __init__(self, raw: object) -> None:
            self._inner = raw

        def execute(self, sql: str, *values: object) -> object:
            if sql == "COMMIT":
                self._inner.execute("ROLLBACK")  # type: ignore[attr-defined]  # the driver has no types
                raise KeyboardInterrupt
            return self._inner.execute(sql, *values)  # type: ignore[attr-defined]

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    monkeypatch.setattr(ledger, "_raw", Failing(ledger._raw))
    with pytest.raises(CommitUncertain) as caught:
        probe(ledger)
    assert isinstance(caught.value.__cause__, KeyboardInterrupt)
    with pytest.raises(LedgerUnavailable) as refused:
        probe(ledger)
    assert refused.value.reason == "dead"
    assert ledger.read(lambda view: view.head()).sequence == 0
    other = book.open()
    assert probe(other).sequence == 1
    other.close()
