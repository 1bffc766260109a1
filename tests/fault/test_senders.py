"""Senders that break, are killed, are stopped and wake up late: unknown, and never sent again on any surface.

Every sender is a process or an exception of its own, against a service on real sockets, a real file or a real command.
"""

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.operations import host_child
from issuer.operations.contract import Answer, NotDispatchedError, Order
from issuer.operations.deriving import DISPATCH_DEADLINE_MS
from issuer.operations.file_adapter import FileAction
from issuer.operations.host_adapter import run_child
from ledger.model import DurationMs, EffectId, InstantMs
from ledger.states import EffectState
from tests.support.cases import HOUSE, PROGRAM, all_at, books, command
from tests.support.charging import ChargingAdapter, with_adapter
from tests.support.committing import Job, file_clock, pass_time, show_time
from tests.support.files import adapter_for, order_for, private_root, request, tree
from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.kills import Child, Nursery, spans_named, step_number, untouched_state
from tests.support.polling import readable
from tests.support.service import Service, answer, hang, held

AMOUNT = 7
PATIENCE_S = 30.0
HOST_DEADLINE_MS = 5 * 60_000
NOTES = """[operation.note]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096, public = true } }
cost = { "USD.cent" = 7 }
file = { action = "create", root = "outbox", path = "{path}", content = "{content}" }
[operation.publish]"""
POLICY = (
    STANDARD_POLICY
    + """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note);
"""
)
CHANGES = {"[operation.publish]": NOTES, 'cost = { "USD.cent" = 1 }': f'cost = {{ "USD.cent" = {AMOUNT} }}'}
HELD, NOTHING_HELD = all_at(reserved=AMOUNT), all_at()


class AdapterBrokeError(Exception):
    """What an adapter of somebody else may raise."""


@dataclass(kw_only=True)
class Ground:
    """One issuer whose clock is a file; `desk` is a process that lives through everything."""

    made: Made
    desk: Issuer
    service: Service
    nursery: Nursery
    time: Path

    def set_time(self, now: int) -> None:
        show_time(self.time, now)

    def pass_ms(self, milliseconds: int) -> None:
        pass_time(self.time, milliseconds)

    def start(self, command_name: str, at: str | None = None, **arguments: object) -> Child:
        job = Job(
            profile=str(self.made.profile),
            command=command_name,
            arguments=arguments,
            at=None if at is None else step_number(at),
            sends=signal.SIGSTOP,
            clock=str(self.time),
        )
        return self.nursery.start(job)

    def asked(self, kind: str) -> str:
        asks = {
            "http": lambda: refund(self.desk, amount=AMOUNT, request_key="http"),
            "file": lambda: self.desk.request(
                "note", {"path": "n-1", "content": "new"}, task="t1", actor="agent-7", request_key="file"
            ),
            "host": lambda: self.desk.request(
                "publish", {"name": "r-1"}, task="t1", actor="agent-7", request_key="host"
            ),
        }
        told = asks[kind]()
        assert told.effect is not None, told
        return told.effect

    @property
    def mark(self) -> Path:
        """Where a host's command writes one line for each time it acts."""
        return self.made.folder / "acted"

    def acting(self, after: str = "") -> list[str]:
        """The command of a host that acts at once, and then does something else."""
        return ["sh", "-c", f"echo acted >> {self.mark}; {after}"]

    def effects(self, kind: str) -> int:
        if kind == "http":
            return len(self.service.effects)
        if kind == "file":
            return len(list((self.made.folder / "outbox").iterdir()))
        return len(self.mark.read_text().splitlines()) if self.mark.exists() else 0


@pytest.fixture
def ground(tmp_path: Path, nursery: Nursery) -> Iterator[Ground]:
    time_file = tmp_path / "time"
    with Service() as service:
        (tmp_path / "f0" / "outbox").mkdir(parents=True, mode=0o700)
        made = standard_issuer(tmp_path / "f0", port=service.port, policy=POLICY, changes=CHANGES)
        time_file.write_text(str(now_ms()))
        with made.open(clock=file_clock(time_file)) as desk:
            yield Ground(made=made, desk=desk, service=service, nursery=nursery, time=time_file)


def nothing_is_sent_again(ground: Ground, kind: str, effect: str, *, happened: int) -> None:
    """Every way to use a permit, and the request under its key, here and in a process that starts now."""
    connections = ground.service.connections
    with ground.made.open(clock=file_clock(ground.time)) as fresh:
        for issuer in (fresh, ground.desk):
            assert issuer.show(effect).state == "unknown"
            told = [
                issuer.commit(effect),
                issuer.dispatch(effect, ground.acting()),
                issuer.admit(effect),
                issuer.request_held(effect),
            ]
            assert [(one.code, one.retryable) for one in told] == [("outcome_unknown", False)] * 4
            assert ground.asked(kind) == effect
        assert spans_named(fresh, effect, "effect.admitted") == 1
        assert books(fresh) == HELD
    assert (ground.service.connections, ground.effects(kind)) == (connections, happened)


# -- exceptions after the first byte


class BreakingAdapter(ChargingAdapter):
    """Sends the whole request to the service, which does it, and then raises."""

    def __init__(self, port: int, raises: BaseException) -> None:
        super().__init__()
        self._port = port
        self._raises = raises

    def dispatch(self, order: Order) -> Answer:
        """See `Adapter.dispatch`."""
        super().dispatch(order)
        lines = (
            "POST /refunds HTTP/1.1",
            "Host: x",
            f"Idempotency-Key: {order.effect_id}",
            "Content-Length: 2",
        )
        head = "\r\n".join(lines) + "\r\n\r\n{}"
        with socket.create_connection(("127.0.0.1", self._port), PATIENCE_S) as connection:
            connection.sendall(head.encode())
            connection.recv(1)
        raise self._raises


@pytest.mark.spec("REP-05", "REP-01", "BUD-04", "ADM-04")
@pytest.mark.parametrize(
    "raises",
    [
        ConnectionResetError(104, "canary"),
        ValueError("canary"),
        AdapterBrokeError("canary"),
        MemoryError("canary"),
        RecursionError("canary"),
        NotImplementedError("canary"),
        KeyboardInterrupt("canary"),
        SystemExit(0),
        GeneratorExit("canary"),
        asyncio.CancelledError("canary"),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_whatever_is_raised_after_the_first_byte_the_outcome_is_unknown(
    ground: Ground, raises: BaseException
) -> None:
    """An interruption goes on once that is recorded; an exit code of 0 in it is no success."""
    adapter = BreakingAdapter(ground.service.port, raises)
    ground.service.then(answer(201))
    issuer = with_adapter(ground.desk, adapter)
    effect = permitted(refund(issuer, amount=AMOUNT))
    if isinstance(raises, Exception):
        assert issuer.commit(effect).code == "outcome_unknown"
    else:
        with pytest.raises(type(raises)):
            issuer.commit(effect)
    assert untouched_state(ground.desk, effect) is EffectState.UNKNOWN
    record = str(ground.desk.show(effect).more) + str(ground.desk.timeline(effect).more)
    assert f"exception:{type(raises).__name__}" in record
    assert "canary" not in record
    for other in (issuer, ground.desk):
        told = [other.commit(effect), other.dispatch(effect, ["true"]), other.admit(effect)]
        assert [one.code for one in told] == ["outcome_unknown"] * 3
    with ground.made.open(clock=file_clock(ground.time)) as fresh:
        assert fresh.commit(effect).code == "outcome_unknown"
        assert books(fresh) == HELD
    assert len(adapter.orders) == ground.service.connections == ground.service.effects_of(effect) == 1


# -- processes that are killed, ended and interrupted while they send


@contextmanager
def program(made: Made, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program itself; whatever the test did to it, it is gone afterwards."""
    process = subprocess.Popen(
        [*PROGRAM, "--json", "--profile", str(made.profile), *arguments],
        cwd=HOUSE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.spec("REP-05", "REP-01", "ADM-07", "SUR-01")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_program_that_is_ended_while_it_sends_leaves_an_unknown_effect(
    ground: Ground, number: signal.Signals
) -> None:
    effect = ground.asked("http")
    ground.service.then(hang(effect=True))
    with program(ground.made, "commit", effect) as sender:
        ground.service.wait_for(effects=1)
        sender.send_signal(number)
        sender.wait(PATIENCE_S)
        assert sender.returncode != 0
    ground.set_time(now_ms())  # the program has the machine's own time
    nothing_is_sent_again(ground, "http", effect, happened=1)
    if number is signal.SIGKILL:
        for again in (["commit", effect], ["admit", effect], ["dispatch", effect, "--", *ground.acting()]):
            ran = command(ground.made, *again)
            assert (ran.answer["code"], ran.exit) == ("outcome_unknown", 5)
        assert (ground.effects("http"), ground.effects("host")) == (1, 0)


@pytest.mark.spec("REP-05", "REP-01", "ADM-07")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_ended_while_it_sends_leaves_an_unknown_effect(
    ground: Ground, number: signal.Signals
) -> None:
    effect = ground.asked("http")
    ground.service.then(hang(effect=True))
    with ground.start("commit", effect=effect) as sender:
        ground.service.wait_for(effects=1)
        sender.send(number)
        sender.ended()
    nothing_is_sent_again(ground, "http", effect, happened=1)


@pytest.mark.spec("REP-05", "REP-01", "OPR-06", "ADM-07")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_ended_while_a_host_acts_leaves_an_unknown_effect_and_no_command(
    ground: Ground, number: signal.Signals
) -> None:
    effect = ground.asked("host")
    gone = ground.made.folder / "gone"
    os.mkfifo(gone)
    reading = os.open(gone, os.O_RDONLY | os.O_NONBLOCK)
    try:
        argv = ["sh", "-c", f"exec 3>{gone}; echo acted >> {ground.mark}; echo up >&3; sleep 600 & sleep 600"]
        with ground.start("dispatch", effect=effect, argv=argv) as sender:
            assert readable(reading, PATIENCE_S)
            assert os.read(reading, 16) == b"up\n"
            sender.send(number)
            # The end of the pipe: nobody is left who could write to it.
            assert readable(reading, PATIENCE_S)
            assert os.read(reading, 16) == b""
            sender.ended()
    finally:
        os.close(reading)
    nothing_is_sent_again(ground, "host", effect, happened=1)


# -- senders that stand still and wake up late


def arguments_of(ground: Ground, kind: str, effect: str) -> tuple[str, Mapping[str, object]]:
    if kind == "host":
        return "dispatch", {"effect": effect, "argv": ground.acting()}
    return "commit", {"effect": effect}


@pytest.mark.spec("ADM-05", "ADM-07", "REP-04", "REP-05")
@pytest.mark.parametrize("kind", ["http", "file", "host"])
@pytest.mark.parametrize("at", ["admission_acknowledged", "looked_again"])
def test_a_sender_that_wakes_up_after_its_deadline_sends_nothing(ground: Ground, kind: str, at: str) -> None:
    """While it stands still nobody can tell whether it sent, so nobody can give anything back either."""
    effect = ground.asked(kind)
    name, arguments = arguments_of(ground, kind, effect)
    with ground.start(name, at, **arguments) as sender:
        sender.stopped()
        ground.pass_ms(HOST_DEADLINE_MS if kind == "host" else DISPATCH_DEADLINE_MS)
        nothing_is_sent_again(ground, kind, effect, happened=0)
        claim = ground.desk._house.ledger.read(lambda view: view.claim(EffectId(effect)))
        assert claim is not None
        assert not ground.desk._house.instance.is_gone(claim.instance, claim.boot)
        sender.resume()
        assert sender.answer()["code"] in {"prepare_again", "not_dispatched"}
    assert ground.effects(kind) == ground.service.connections == 0
    assert untouched_state(ground.desk, effect) is EffectState.NO_EFFECT
    assert books(ground.desk) == NOTHING_HELD


@pytest.mark.spec("REP-05", "ADM-07", "BUD-04")
@pytest.mark.parametrize("kind", ["http", "file", "host"])
def test_a_sender_that_stands_still_after_it_sent_is_unknown_and_its_late_word_adds_no_second_effect(
    ground: Ground, kind: str
) -> None:
    effect = ground.asked(kind)
    ground.service.then(answer(201))
    name, arguments = arguments_of(ground, kind, effect)
    with ground.start(name, "answered", **arguments) as sender:
        sender.stopped()
        assert ground.effects(kind) == 1
        ground.pass_ms(HOST_DEADLINE_MS if kind == "host" else DISPATCH_DEADLINE_MS)
        nothing_is_sent_again(ground, kind, effect, happened=1)
        sender.resume()
        assert sender.answer()["code"] == "succeeded"
    assert ground.effects(kind) == 1
    assert books(ground.desk) == all_at(settled=AMOUNT)
    assert spans_named(ground.desk, effect, "effect.succeeded") == 1


@pytest.mark.spec("OPR-06", "REP-05", "ADM-07")
def test_a_program_that_stands_still_past_its_deadline_lets_its_command_act_no_longer(
    tmp_path: Path,
) -> None:
    """In real time: the watching process ends the command while nobody else can."""
    made = standard_issuer(
        tmp_path / "f0",
        port=9,
        changes={
            'deadline = "5m"': 'deadline = "2s"',
            'cost = { "USD.cent" = 1 }': f'cost = {{ "USD.cent" = {AMOUNT} }}',
        },
    )
    signs = tmp_path / "signs"
    os.mkfifo(signs)
    reading = os.open(signs, os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 3>{signs}; trap '' TERM HUP; echo up >&3; (setsid sleep 600 &) ; sleep 600; echo late >&3"
    with made.open() as desk:
        effect = permitted(desk.request("publish", {"name": "r-1"}, task="t1", actor="agent-7"))
        with program(made, "dispatch", effect, "--", "sh", "-c", script) as sender:
            assert readable(reading, PATIENCE_S)
            assert os.read(reading, 16) == b"up\n"
            sender.send_signal(signal.SIGSTOP)
            since = time.monotonic()
            assert readable(reading, PATIENCE_S)
            assert os.read(reading, 16) == b""
            assert time.monotonic() - since < PATIENCE_S / 2
            assert desk.show(effect).state == "unknown"
            assert (
                desk.dispatch(effect, ["sh", "-c", f"echo again > {tmp_path / 'again'}"]).code
                == "outcome_unknown"
            )
            sender.send_signal(signal.SIGCONT)
            sender.wait(PATIENCE_S)
            assert sender.returncode == 5
        assert desk.show(effect).state == "unknown"
        assert books(desk) == HELD
    os.close(reading)
    assert not (tmp_path / "again").exists()


@pytest.mark.spec("REP-05", "REP-01", "ADM-07", "SUR-01")
def test_a_program_that_stands_still_while_it_sends_is_unknown_to_all_others_and_sends_nothing_more(
    ground: Ground,
) -> None:
    """Its own clock is behind the others' by then, so that not even its answer is recorded: it says `unknown` too."""
    effect = ground.asked("http")
    ground.service.then(held("answer", answer(201)))
    with program(ground.made, "commit", effect) as sender:
        ground.service.wait_for(requests=1)
        sender.send_signal(signal.SIGSTOP)
        ground.set_time(now_ms() + DISPATCH_DEADLINE_MS)
        with ground.made.open(clock=file_clock(ground.time)) as fresh:
            assert fresh.show(effect).state == "unknown"
            assert fresh.commit(effect).code == "outcome_unknown"
        ground.service.gate("answer").set()
        ground.service.wait_for(effects=1)
        sender.send_signal(signal.SIGCONT)
        sender.wait(PATIENCE_S)
        assert sender.returncode == 5
    nothing_is_sent_again(ground, "http", effect, happened=1)


# -- the window between the last look at the clock and what cannot be taken back


@pytest.mark.spec("ADM-07", "OPR-06", "REP-04")
def test_a_command_is_not_started_by_a_sender_that_was_stopped_right_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last look is made where the command is executed, by the process that becomes it."""
    real, late = subprocess.Popen, tmp_path / "late"

    def stopped_before(argv: list[str], **more: object) -> object:
        if str(host_child._LAUNCHER) in argv:
            time.sleep(0.3)
        return real(argv, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", stopped_before)
    with pytest.raises(NotDispatchedError, match=r"^deadline_passed$"):
        run_child(
            ["sh", "-c", f"echo late > {late}"],
            effect_id=EffectId("eff_" + "0a" * 16),
            deadline_ms=InstantMs(0),
            remaining_ms=DurationMs(200),
            env={"PATH": os.environ["PATH"]},
        )
    assert not late.exists()


@pytest.mark.spec("ADM-07", "REP-04")
@pytest.mark.parametrize(
    ("action", "call"),
    [(FileAction.CREATE, "link"), (FileAction.REPLACE, "rename"), (FileAction.DELETE, "unlink")],
)
def test_nothing_waits_between_the_last_look_and_the_change_of_a_file(
    tmp_path: Path, action: FileAction, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the clock is the last call before the one that changes the entry."""
    root, path = private_root(tmp_path), "b.txt" if action is FileAction.CREATE else "notes/a.txt"
    done: list[str] = []

    def ticks() -> float:
        done.append("look")
        return 0.0

    adapter = adapter_for(root, action, ticks=ticks)
    pinned, before = adapter.prepare(request(path)), tree(root)
    watched = ("open", "read", "write", "fsync", "fchmod", "fstat", "stat", "link", "rename", "unlink")
    for name in watched:
        monkeypatch.setattr(os, name, telling(done, name, getattr(os, name)))
    adapter.dispatch(order_for(pinned, request(path)))
    monkeypatch.undo()
    assert done[done.index(call) - 1] == "look"
    assert tree(root) != before


def telling(done: list[str], name: str, real: Callable[..., object]) -> Callable[..., object]:
    """Return a system call that notes that it is made."""

    def call(*args: object, **more: object) -> object:
        done.append(name)
        return real(*args, **more)

    return call
