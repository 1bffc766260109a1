"""How each situation of the table is brought about: one issuer, and for each row what the other side does."""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from issuer import Issuer
from issuer.flow.steps import Reached
from issuer.wire import Answer
from tests.support.cases import Clock
from tests.support.issuers import Made
from tests.support.service import (
    Service,
    Step,
    accept_late,
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
    slow_drip,
)
from tests.support.sinks import RAISING, FaultySink
from tests.support.situations import COST

DEADLINE_MS = 60_000
HOST_DEADLINE_MS = 3_000
LAST_MOMENTS_MS = 250
"""What is left of a deadline where it has to pass during an exchange."""


@dataclass(kw_only=True)
class Stage:
    """One issuer for all rows; `at` holds what happens at a named step of the next commit, once."""

    made: Made
    service: Service
    issuer: Issuer
    clock: Clock
    sink: FaultySink
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    rows: int = 0

    def reached(self, step: str) -> None:
        act = self.at.pop(step, None)
        if act is not None:
            act()

    def pass_time(self, ms: int) -> None:
        self.clock.ahead_ms += ms

    @property
    def files(self) -> Path:
        return self.made.folder / "files"


@dataclass(kw_only=True)
class Play:
    """One row under way: its tree, what it asks for, and what came of it."""

    stage: Stage
    tasks: tuple[str, str]
    effect: str = ""
    told: Answer | None = None
    sent: int = 0
    effects: int = 0

    @property
    def number(self) -> str:
        return f"n{self.stage.rows}"

    def ask(self, operation: str, **payload: object) -> Answer:
        """Ask for the permit of the row's one effect."""
        asked = self.stage.issuer.request(operation, payload, task=self.tasks[0], actor="agent-7")
        self.effect = asked.effect or ""
        self.told = asked
        return asked

    def use(self, call: Callable[[], Answer]) -> None:
        """Use it; an interruption is part of the row."""
        self.told = None
        with suppress(KeyboardInterrupt):
            self.told = call()


Player = Callable[[Play], None]


def _interrupt() -> None:
    raise KeyboardInterrupt


_SPOKEN = frozenset({"refund_tls", "refund_before"})
"""Operations of which a connection is no sending yet: it never got to speak TLS, or only reads."""


def _http(
    *steps: Step,
    reads: tuple[Step, ...] = (),
    at: str = "",
    do: Callable[[Play], None] | None = None,
    operation: str = "refund",
) -> Player:
    """Send one refund; the service does `reads` while it is prepared, and `steps` once it is committed."""

    def play(row: Play) -> None:
        stage = row.stage
        before = stage.service.counts()
        posts = sum(request.method == "POST" for request in stage.service.requests)
        stage.service.then(*reads)
        if row.ask(operation, order=row.number, amount=COST).code == "permitted":
            stage.service.then(*steps)
            if do is not None:
                stage.at[at] = lambda: do(row)
            row.use(lambda: stage.issuer.commit(row.effect))
        for name in ("hang", "late"):
            stage.service.gate(name).set()
        after = stage.service.counts()
        row.sent = after["connections"] - before["connections"]
        if operation in _SPOKEN:
            row.sent = sum(request.method == "POST" for request in stage.service.requests) - posts
        row.effects = after["effects"] - before["effects"]
        for name in ("hang", "late"):
            stage.service.gate(name).clear()

    return play


def _sink_dies(row: Play) -> None:
    row.stage.sink.fail(RAISING["unavailable"], probe=False)


def _nearly_over(row: Play) -> None:
    row.stage.pass_time(DEADLINE_MS - LAST_MOMENTS_MS)


_DRIP = b"HTTP/1.1 201 Said\r\ncontent-length: 2000\r\n\r\n" + b" " * 2000
_TWO_LENGTHS = b"HTTP/1.1 201 Said\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}"
_SHOWN = answer(200, body=b'{"revision": 1}', effect=False)
_CHANGED = answer(200, body=b'{"revision": 2}', effect=False)
_AWAY = answer(503, effect=False)
_SOLD = answer(201, body=b'{"charged": 120}')
_HTTP: Mapping[str, Player] = {
    "what is read before cannot be read": _http(reads=(_AWAY,), operation="refund_before"),
    "what is read before has changed at the commit": _http(
        _CHANGED, reads=(_SHOWN,), operation="refund_before"
    ),
    "what is read before cannot be read at the commit": _http(
        _AWAY, reads=(_SHOWN,), operation="refund_before"
    ),
    "accepted, as declared: no job is done by that": _http(answer(202), operation="refund_said"),
    "a part, as declared": _http(answer(207, body=b'{"charged": 100}'), operation="refund_said"),
    "a declared success that does not say its declared charge": _http(answer(201), operation="refund_said"),
    "a declared success that says what it charged": _http(_SOLD, operation="refund_said"),
    "the host has no address": _http(operation="refund_nowhere"),
    "the port refuses the connection": _http(operation="refund_closed"),
    "the other side speaks no TLS": _http(close_before_read(), operation="refund_tls"),
    "the credential is missing": _http(operation="refund_secret"),
    "the deadline passes before the first byte": _http(
        at=Reached.ACKNOWLEDGED, do=lambda row: row.stage.pass_time(DEADLINE_MS)
    ),
    "a required sink dies after the admission": _http(at="committed", do=_sink_dies),
    "the task is frozen after the admission": _http(
        at=Reached.ACKNOWLEDGED, do=lambda row: _frozen(row.stage.issuer, row.tasks[1])
    ),
    "the call is interrupted before the first byte": _http(
        at=Reached.LOOKED_AGAIN, do=lambda _row: _interrupt()
    ),
    "the service closes the connection unread": _http(close_before_read()),
    "the service closes after the effect": _http(accept_then_close()),
    "the service resets after the effect": _http(reset(effect=True)),
    "half an answer": _http(half_answer()),
    "an answer that is no HTTP": _http(garbage()),
    "an interim answer only": _http(interim(final=None)),
    "a declared success whose body is cut": _http(cut_body()),
    "a declared failure whose body is cut": _http(cut_body(409)),
    "a declared no effect whose body is cut": _http(cut_body(422)),
    "an answer with two lengths": _http(raw(_TWO_LENGTHS)),
    "no answer within the deadline": _http(hang(effect=True), at=Reached.LOOKED_AGAIN, do=_nearly_over),
    "an answer byte by byte past the deadline": _http(
        slow_drip(_DRIP, gap_s=0.01), at=Reached.LOOKED_AGAIN, do=_nearly_over
    ),
    "the effect comes late, after a close without a word": _http(accept_late()),
    "a redirect": _http(redirect("http://127.0.0.1:1/")),
    "a success that is not declared": _http(answer(200)),
    "accepted, and not declared": _http(answer(202)),
    "not found": _http(answer(404)),
    "too many requests": _http(answer(429)),
    "unavailable": _http(answer(503)),
    "an error of the service after the effect": _http(answer(500, effect=True)),
    "a declared success": _http(answer(201)),
    "a declared success after interim answers": _http(interim(times=2)),
    "a declared failure": _http(answer(409)),
    "a declared no effect": _http(answer(422)),
    "a required sink dies after the send": _http(answer(201), at=Reached.ANSWERED, do=_sink_dies),
    "the call is interrupted once it is answered": _http(
        answer(201), at=Reached.ANSWERED, do=lambda _row: _interrupt()
    ),
}


def _frozen(issuer: Issuer, task: str) -> None:
    assert issuer.task_freeze(task).code == "frozen"


def _file(
    operation: str,
    *,
    there: str | None = None,
    asked: Callable[[Path], None] | None = None,
    at: str = "",
    do: Callable[[Play, Path], None] | None = None,
) -> Player:
    """Ask for one file; `there` is its content before, `asked` what happens to it once it is permitted."""

    def play(row: Play) -> None:
        root = row.stage.made.folder / ("shared" if operation == "replace_shared" else "files")
        path = root / row.number / "a.txt"
        path.parent.mkdir(mode=0o777 if operation == "replace_shared" else 0o700)
        if operation == "replace_shared":
            path.parent.chmod(0o777)
        if there is not None:
            path.write_text(there)
        changed = _changed(operation, path)
        if row.ask(operation, path=f"{row.number}/a.txt").code == "permitted":
            if asked is not None:
                asked(path)
            if do is not None:
                row.stage.at[at] = lambda: do(row, path)
            row.use(lambda: row.stage.issuer.commit(row.effect))
        row.effects = int(_changed(operation, path) and not changed)
        row.sent = row.effects
        if row.told is not None and row.told.code == "no_effect":
            row.sent = 1  # the file system was asked, and refused

    return play


def _changed(operation: str, path: Path) -> bool:
    """Say whether the file is as the operation makes it."""
    if operation == "delete":
        return not os.path.lexists(path)
    return path.is_file() and path.read_text() == "new"


def _relink(path: Path) -> None:
    path.rename(path.with_name("b.txt"))
    path.symlink_to("b.txt")


_AT_LAST = Reached.LOOKED_AGAIN
_FILE: Mapping[str, Player] = {
    "the file to create is there already": _file("create", there="old"),
    "the file to delete is not there": _file("delete"),
    "the folder is open to others, and replacing is asked for": _file("replace_shared", there="old"),
    "the file appears after the permit": _file("create", asked=lambda path: _write(path, "theirs")),
    "the file to replace is edited after the permit": _file(
        "replace", there="old", asked=lambda path: _write(path, "edited")
    ),
    "the file to replace is edited after the admission": _file(
        "replace", there="old", at=_AT_LAST, do=lambda _row, path: _write(path, "edited")
    ),
    "the file to delete is replaced by a link after the admission": _file(
        "delete", there="old", at=_AT_LAST, do=lambda _row, path: _relink(path)
    ),
    "the folder is gone after the admission": _file(
        "create", at=_AT_LAST, do=lambda _row, path: path.parent.rmdir()
    ),
    "the deadline passes before the change": _file(
        "create", at=Reached.ACKNOWLEDGED, do=lambda row, _path: row.stage.pass_time(DEADLINE_MS)
    ),
    "the name is taken in the last moment": _file(
        "create", at=_AT_LAST, do=lambda _row, path: _write(path, "theirs")
    ),
    "the file is created": _file("create"),
    "the file is replaced": _file("replace", there="old"),
    "the file is deleted": _file("delete", there="old"),
    "the call is interrupted once the file is changed": _file(
        "create", at=Reached.ANSWERED, do=lambda _row, _path: _interrupt()
    ),
}


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _dispatch(
    code: str, *, at: str = "", do: Callable[[Play], None] | None = None, program: str = ""
) -> Player:
    """Run a command that adds one line to a file, which is its effect, and then does `code`."""

    def play(row: Play) -> None:
        done = row.stage.made.folder / f"{row.number}.done"
        script = f"import os, signal, sys, time; open({str(done)!r}, 'a').write('x'); {code}"
        assert row.ask("run", name=row.number).code == "permitted"
        if do is not None:
            row.stage.at[at] = lambda: do(row)
        argv = [program or sys.executable, "-c", script]
        row.use(lambda: row.stage.issuer.dispatch(row.effect, argv))
        row.sent = row.effects = len(done.read_text()) if done.exists() else 0

    return play


_DISPATCH: Mapping[str, Player] = {
    "the command cannot be started": _dispatch("pass", program="/nowhere/at/all"),
    "the deadline passes before the command": _dispatch(
        "pass", at=Reached.ACKNOWLEDGED, do=lambda row: row.stage.pass_time(HOST_DEADLINE_MS)
    ),
    "the command ends with another code than 0": _dispatch("sys.exit(3)"),
    "the command is ended by a signal": _dispatch("os.kill(os.getpid(), signal.SIGKILL)"),
    "the command is not done at the deadline": _dispatch("time.sleep(60)"),
    "a process that the command left behind would go on": _dispatch(
        "sys.exit(1) if os.fork() else time.sleep(60)"
    ),
    "the command ends with 0": _dispatch("pass"),
}


def _host(
    then: Callable[[Play, str], Answer], *, at: str = "", do: Callable[[Play], None] | None = None
) -> Player:
    """Admit an effect for a host outside; `then` is what that host does with its claim."""

    def play(row: Play) -> None:
        assert row.ask("run", name=row.number).code == "permitted"
        if do is not None:
            row.stage.at[at] = lambda: do(row)
        admitted = row.stage.issuer.admit(row.effect)
        row.told = admitted
        if admitted.code == "admitted":
            row.sent = row.effects = 1
            row.told = then(row, str(admitted.more["claim"]))

    return play


def _report(row: Play, claim: str, *, succeeded: bool = True, after_ms: int = 0) -> Answer:
    row.stage.pass_time(after_ms)
    return row.stage.issuer.report(row.effect, claim, succeeded=succeeded)


def _silent(row: Play, _claim: str) -> Answer:
    row.stage.pass_time(HOST_DEADLINE_MS)
    row.stage.issuer.list()  # whoever touches the ledger next
    return row.stage.issuer.admit(row.effect)


_HOST: Mapping[str, Player] = {
    "a required sink dies after the admission": _host(_silent, at="committed", do=_sink_dies),
    "the host says nothing until the deadline": _host(_silent),
    "the host says that it does not know": _host(lambda row, claim: _report(row, claim, succeeded=False)),
    "somebody else reports": _host(lambda row, _claim: _report(row, "not-the-claim")),
    "the host says that it is done": _host(_report),
    "the host says so late, after the deadline": _host(
        lambda row, claim: _report(row, claim, after_ms=HOST_DEADLINE_MS)
    ),
}
MANNERS = (
    "",
    "prepare fails",
    "look fails",
    "not sent",
    "fails unsent",
    "fails sent",
    "no answer",
    "charges less",
)
"""How the third party's adapter behaves (`tests.support.third_party`); each is an operation `sell_N`."""


def _python(manner: str, *steps: Step) -> Player:
    return _http(*steps, operation=f"sell_{MANNERS.index(manner)}")


_PYTHON: Mapping[str, Player] = {
    "the adapter fails to prepare": _python("prepare fails"),
    "the adapter's look before the commit fails": _python("look fails"),
    "the adapter proves that it sent nothing": _python("not sent"),
    "the adapter fails before it sends, and proves nothing": _python("fails unsent"),
    "the adapter fails after it sent": _python("fails sent", answer(201)),
    "the service closes without a word": _python("", accept_then_close()),
    "an answer of another shape": _python("no answer", answer(201)),
    "accepted: no job is done by that": _python("", answer(202)),
    "a part": _python("", answer(207)),
    "success": _python("", answer(201)),
    "success that says what it charged": _python("charges less", answer(201)),
    "failure": _python("", answer(409)),
    "no effect": _python("", answer(422)),
}
PLAYERS = {"http": _HTTP, "file": _FILE, "dispatch": _DISPATCH, "host": _HOST, "python": _PYTHON}
