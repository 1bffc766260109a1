import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from issuer.operations.contract import (
    Answer,
    NotDispatchedError,
    Order,
    Proof,
)
from issuer.operations.file_adapter import (
    ChangedUnseenError,
    FileAction,
    FileAdapter,
)
from tests.support.files import (
    EFFECT,
    WRITING,
    adapter_for,
    edit_file,
    move_file_aside,
    order_for,
    private_root,
    request,
    tree,
    write,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return private_root(tmp_path)


@pytest.mark.spec("REP-04")
@pytest.mark.parametrize("action", WRITING)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_a_content_that_cannot_be_staged_leaves_the_target_alone(
    root: Path, action: FileAction, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "b.txt" if action is FileAction.CREATE else "notes/a.txt"
    adapter = adapter_for(root, action)
    pinned = adapter.prepare(request(path))
    before = tree(root)

    def full(*_args: object) -> int:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(NotDispatchedError, match=r"^not_staged$"):
        adapter.dispatch(order_for(pinned, request(path)))
    assert tree(root) == before


@pytest.mark.spec("REP-05")
@pytest.mark.parametrize(
    ("action", "call"),
    [(FileAction.CREATE, "link"), (FileAction.REPLACE, "rename"), (FileAction.DELETE, "unlink")],
)
def test_a_failure_of_the_change_itself_is_unknown(
    root: Path, action: FileAction, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "b.txt" if action is FileAction.CREATE else "notes/a.txt"
    adapter = adapter_for(root, action)
    pinned = adapter.prepare(request(path))

    def broken(*_args: object, **_more: object) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, call, broken)
    with pytest.raises(OSError, match="input/output") as lost:
        adapter.dispatch(order_for(pinned, request(path)))
    assert not isinstance(lost.value, NotDispatchedError)


@pytest.mark.spec("REP-05")
@pytest.mark.parametrize("action", FileAction)
def test_a_change_that_cannot_be_made_durable_is_unknown(
    root: Path, action: FileAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "b.txt" if action is FileAction.CREATE else "notes/a.txt"
    adapter = adapter_for(root, action)
    pinned = adapter.prepare(request(path))
    sync = os.fsync

    def only_files(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(5, "input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", only_files)
    with pytest.raises(OSError, match="input/output"):
        adapter.dispatch(order_for(pinned, request(path)))


@pytest.mark.spec("OPR-04", "REP-05")
@pytest.mark.parametrize(("action", "call"), [(FileAction.REPLACE, "rename"), (FileAction.DELETE, "unlink")])
@pytest.mark.parametrize("race", [move_file_aside, edit_file])
def test_a_race_that_privacy_should_have_excluded_is_noticed_and_never_called_success(
    root: Path, action: FileAction, call: str, race: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter = adapter_for(root, action)
    os.utime(root / "notes" / "a.txt", ns=(1, 1))
    pinned = adapter.prepare(request())
    real = getattr(os, call)

    def after_the_race(*args: object, **more: object) -> None:
        monkeypatch.setattr(os, call, real)
        race(root)
        real(*args, **more)

    monkeypatch.setattr(os, call, after_the_race)
    with pytest.raises(ChangedUnseenError):
        adapter.dispatch(order_for(pinned, request()))


# -- kill -9 at every step

SYSTEM_CALLS = (
    *("open", "close", "read", "write", "fsync", "fchmod", "fstat", "stat", "link", "rename", "unlink"),
)


@pytest.mark.spec("REP-05")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("unnamed", [True, False])
@pytest.mark.parametrize("action", FileAction)
def test_a_kill_before_any_system_call_leaves_the_old_or_the_complete_new_content(
    tmp_path: Path, action: FileAction, unnamed: bool
) -> None:
    """One run per system call that dispatch makes, each killed right before it, until one run survives."""
    states: list[str | None] = []
    path = "b.txt" if action is FileAction.CREATE else "notes/a.txt"
    for steps in range(200):
        root = tmp_path / f"run{steps}"
        (root / "notes").mkdir(parents=True, mode=0o700)
        root.chmod(0o700)
        write(root / "notes" / "a.txt", "old")
        adapter, asked = adapter_for(root, action), request(path, "new" * 1000)
        survived = _run_until(adapter, order_for(adapter.prepare(asked), asked), steps, unnamed=unnamed)
        left = tree(root)
        states.append(left.pop(path, None))
        strangers = set(left) - {"notes", "notes/a.txt"}
        # What is left behind has a name that no request can use, and never stands in for the target.
        assert all(Path(name).name == f".permit-staged-{EFFECT}" for name in strangers)
        if action is FileAction.DELETE or (action is FileAction.CREATE and unnamed):
            assert not strangers
        if survived:
            break
    else:
        pytest.fail("dispatch made more system calls than a file takes")
    old = None if action is FileAction.CREATE else "old"
    new = None if action is FileAction.DELETE else "new" * 1000
    flipped = states.index(new)
    assert 5 < flipped < len(states)
    assert states == [old] * flipped + [new] * (len(states) - flipped)


def _run_until(adapter: FileAdapter, order: Order, steps: int, *, unnamed: bool) -> bool:
    """Dispatch in a process of its own that dies at step number `steps`; True where it came to its end."""
    child = os.fork()
    if child == 0:
        _dispatch_and_die(adapter, order, steps, unnamed=unnamed)
    _pid, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


def _dispatch_and_die(adapter: FileAdapter, order: Order, steps: int, *, unnamed: bool) -> NoReturn:
    left = iter(range(steps))
    kill, leave, me = os.kill, os._exit, os.getpid()

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            if next(left, None) is None:
                kill(me, signal.SIGKILL)
            return real(*args, **more)

        return call

    try:
        if not unnamed:
            vars(os).pop("O_TMPFILE", None)
        for name in SYSTEM_CALLS:
            setattr(os, name, counted(getattr(os, name)))
        proof = adapter.dispatch(order).proof
    except BaseException:  # noqa: BLE001 - a forked child must not come back into the test run
        leave(2)
    leave(0 if proof is Proof.SUCCEEDED else 3)


@pytest.mark.spec("REP-06")
def test_a_name_that_is_taken_by_our_own_content_is_the_effect_and_not_its_absence(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, asked = adapter_for(root, FileAction.CREATE), request("notes/b.txt")
    pinned = adapter.prepare(asked)
    real = os.link

    def repeated(*args: Any, **more: Any) -> None:
        real(*args, **more)
        real(*args, **more)

    # A network file system whose first reply was lost asks again, and then finds its own work.
    monkeypatch.setattr(os, "link", repeated)
    given = adapter.dispatch(order_for(pinned, asked))
    assert given == Answer(proof=Proof.SUCCEEDED, source="file:created")
    assert tree(root)["notes/b.txt"] == "new"
