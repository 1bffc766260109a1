import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer.operations.contract import Adapter, NotDispatchedError, Order, Proof, Request
from issuer.operations.host_adapter import (
    ChildEnd,
    ChildResult,
    HostAdapter,
    HostSettings,
    run_child,
)
from ledger.canonical import canonical_bytes
from ledger.model import DurationMs, EffectId, InstantMs
from tests.support.polling import readable

PATIENCE_S = 20.0
LONG_MS = DurationMs(60_000)
EFFECT = EffectId("eff_" + "09" * 16)
DEADLINE = InstantMs(1_800_000_000_123)
ENV = {"PATH": os.environ["PATH"]}


class Signs:
    """A pipe with a name: what processes write arrives here, and its end says that all of them are gone."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> bytes:
        """Wait for something; empty means that nobody is left who could write."""
        is_ready = readable(self.descriptor, PATIENCE_S)
        assert is_ready, "nothing was written, and somebody still could"
        return os.read(self.descriptor, 4096)

    def read_to_end(self) -> bytes:
        data = b""
        while chunk := self.read():
            data += chunk
        return data


@pytest.fixture
def signs(tmp_path: Path) -> Iterator[Signs]:
    made = Signs(tmp_path / "signs")
    yield made
    os.close(made.descriptor)


def run(
    *argv: str,
    remaining_ms: int = LONG_MS,
    env: dict[str, str] | None = None,
    effect: EffectId = EFFECT,
    passes: tuple[str, ...] = (),
) -> ChildResult:
    return run_child(
        argv,
        effect_id=effect,
        deadline_ms=DEADLINE,
        remaining_ms=DurationMs(remaining_ms),
        env=ENV if env is None else env,
        passes=passes,
    )


def shell(script: str, remaining_ms: int = LONG_MS, **variables: str) -> ChildResult:
    return run("sh", "-c", script, remaining_ms=remaining_ms, env=ENV | variables)


@pytest.mark.spec("REC-07")
@pytest.mark.parametrize(
    ("script", "expected", "proof", "source"),
    [
        ("exit 0", ChildResult(end=ChildEnd.EXITED, exit_code=0), Proof.SUCCEEDED, "host:exit:0"),
        ("exit 1", ChildResult(end=ChildEnd.EXITED, exit_code=1), Proof.NOTHING, "host:exit:1"),
        ("exit 255", ChildResult(end=ChildEnd.EXITED, exit_code=255), Proof.NOTHING, "host:exit:255"),
        ("kill -9 $$", ChildResult(end=ChildEnd.SIGNALLED, signal=9), Proof.NOTHING, "host:signalled"),
        ("kill -15 $$", ChildResult(end=ChildEnd.SIGNALLED, signal=15), Proof.NOTHING, "host:signalled"),
    ],
)
def test_only_an_exit_code_of_zero_is_a_claim_of_success(
    script: str, expected: ChildResult, proof: Proof, source: str
) -> None:
    result = shell(script)
    assert result == expected
    assert (result.proof, result.source) == (proof, source)


@pytest.mark.spec("REP-04")
def test_what_cannot_be_executed_was_never_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o700)
    orphan = tmp_path / "orphan"
    orphan.write_text("#!/nowhere/interpreter\n")
    orphan.chmod(0o700)
    paths = (plain, broken, orphan, tmp_path)
    for argv in ([], ["no-such-program-here"], ["a\0b"], *([str(path)] for path in paths)):
        with pytest.raises(NotDispatchedError, match=r"^command_not_started$"):
            run(*argv)


@pytest.mark.spec("REP-04")
@pytest.mark.parametrize("remaining_ms", [0, -5])
def test_after_the_deadline_nothing_is_started(remaining_ms: int, tmp_path: Path) -> None:
    with pytest.raises(NotDispatchedError, match=r"^deadline_passed$"):
        run("touch", str(tmp_path / "made"), remaining_ms=remaining_ms)
    assert not (tmp_path / "made").exists()


@pytest.mark.spec("SEC-01", "OPR-06")
def test_the_command_has_a_clean_environment_and_nothing_else(signs: Signs) -> None:
    given = {
        **ENV,
        "HOME": "/h",
        "LANG": "C.UTF-8",
        "LC_TIME": "tr_TR.UTF-8",
        "TZ": "UTC",
        "TMPDIR": "/t",
        "NPM_TOKEN": "theirs",
        "OTHER_TOKEN": "canary",
        "AWS_SECRET_ACCESS_KEY": "canary",
        "ISSUER_TOKEN": "canary",
        "PERMIT_CLAIM": "canary",
        "PERMIT_EFFECT_ID": "canary",
        "LD_PRELOAD": "",
        "PYTHONPATH": "canary",
        "SSH_AUTH_SOCK": "canary",
        "OTEL_SERVICE_NAME": "canary",
    }
    show = "import os; open(os.environ['TZ'] and SIGNS, 'wb').write(open('/proc/self/environ', 'rb').read())"
    run(
        sys.executable,
        "-c",
        show.replace("SIGNS", repr(str(signs.path))),
        env=given,
        passes=("NPM_TOKEN", "ISSUER_TOKEN", "PERMIT_CLAIM"),
    )
    lines = set(signs.read_to_end().decode().strip("\0").split("\0"))
    assert lines == {
        *(
            f"{name}={given[name]}"
            for name in ("PATH", "HOME", "LANG", "LC_TIME", "TZ", "TMPDIR", "NPM_TOKEN")
        ),
        f"PERMIT_EFFECT_ID={EFFECT}",
        "PERMIT_DEADLINE=2027-01-15T08:00:00.123Z",
    }


C_LIBRARY_SIGNAL = 32
"""The first of the signals that no program can use (signal(7)); 33 is the second."""


@pytest.mark.spec("OPR-06")
def test_the_command_finds_signals_and_language_as_any_program_does(signs: Signs) -> None:
    """What starts it is a Python, which ignores the end of a reader and may choose a language of its own."""
    run(
        "sh",
        "-c",
        f"grep SigIgn /proc/$$/status > {signs.path}; echo ${{LC_CTYPE-none}} >> {signs.path}",
        env=ENV,
    )
    ignored, language = signs.read_to_end().decode().splitlines()
    # The C library's own two, which a program that `posix_spawn` started ignores, are nobody's to change.
    ours = int(ignored.split()[1], 16) & ~(0b11 << (C_LIBRARY_SIGNAL - 1))
    assert (ours, language) == (0, "none")
    run("sh", "-c", f"echo $LC_CTYPE > {signs.path}", env={**ENV, "LC_CTYPE": "C"})
    assert signs.read_to_end() == b"C\n"


def test_standard_input_is_empty_and_output_goes_to_our_standard_error() -> None:
    program = (
        "import sys; from issuer.operations.host_adapter import run_child\n"
        f"run_child(['sh', '-c', 'cat; echo said; echo warned >&2'], effect_id={EFFECT!r},"
        f" deadline_ms=0, remaining_ms=60000, env={ENV!r})\n"
        "print('the answer')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=b"not for the child", capture_output=True, check=True
    )
    assert done.stdout == b"the answer\n"
    assert done.stderr == b"said\nwarned\n"


SHOW = "import os, sys; open(sys.argv[1], 'w').write(f'{os.getpid()} {os.getpgid(0)} {os.getsid(0)}')"


@pytest.mark.spec("OPR-06")
def test_the_command_has_a_session_of_its_own(signs: Signs) -> None:
    run(sys.executable, "-c", SHOW, str(signs.path))
    pid, group, session = signs.read_to_end().split()
    assert pid == group == session
    assert int(session) != os.getsid(0)


@pytest.mark.spec("OPR-06")
@pytest.mark.parametrize(
    "left_behind",
    [
        "sleep 600 &",
        "(trap '' TERM HUP; sleep 600; sleep 600) &",
        "setsid sleep 600 &",
        "setsid sh -c 'setsid sleep 600 & setsid sleep 600 & sleep 600' &",
        "sh -c 'while :; do setsid sleep 600 & sleep 0.01; done' &",
        # What turns into another program all the time has, at many a look, no environment yet.
        *['setsid sh -c \'exec sh -c "$0" "$0"\' \'exec sh -c "$0" "$0"\' &'] * 8,
    ],
)
def test_whatever_a_command_leaves_running_ends_with_it(signs: Signs, left_behind: str) -> None:
    result = shell(f"exec 3>{signs.path}; {left_behind} echo started >&3; exit 0")
    assert result.exit_code == 0
    assert signs.read_to_end() == b"started\n"


@pytest.mark.spec("OPR-06", "REP-05")
@pytest.mark.parametrize("stubborn", ["", "trap '' TERM; "])
def test_at_the_deadline_the_whole_group_is_dead(signs: Signs, stubborn: str) -> None:
    since = time.monotonic()
    result = shell(f"exec 3>{signs.path}; {stubborn}sleep 600 & sleep 600; sleep 600", remaining_ms=400)
    assert time.monotonic() - since < PATIENCE_S
    assert (result.end, result.proof) == (ChildEnd.DEADLINE, Proof.NOTHING)
    assert signs.read_to_end() == b""


@pytest.mark.spec("OPR-06", "REP-05")
def test_a_command_that_ends_well_only_because_it_was_told_to_proves_nothing() -> None:
    result = shell("trap 'exit 0' TERM; while :; do sleep 0.01; done", remaining_ms=1000)
    assert (result.end, result.exit_code, result.proof) == (ChildEnd.DEADLINE, 0, Proof.NOTHING)


PARENT = """
import sys
from issuer.operations.host_adapter import run_child
print("ready", flush=True)
result = run_child(sys.argv[1:], effect_id=EFFECT, deadline_ms=0, remaining_ms=60000, env=ENV)
print(result.end, result.proof, flush=True)
"""


def parent_of(script: str) -> subprocess.Popen[bytes]:
    """A process that runs a command, as `issuer dispatch` would."""
    program = f"EFFECT = {EFFECT!r}\nENV = {ENV!r}\n{PARENT}"
    return subprocess.Popen([sys.executable, "-c", program, "sh", "-c", script], stdout=subprocess.PIPE)


@pytest.mark.spec("OPR-06", "REP-05")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_when_we_are_interrupted_the_command_ends_and_proves_nothing(signs: Signs, number: int) -> None:
    with parent_of(f"exec 3>{signs.path}; echo up >&3; sleep 600 & sleep 600") as parent:
        assert signs.read() == b"up\n"
        parent.send_signal(number)
        assert signs.read_to_end() == b""
        said, _ = parent.communicate(timeout=PATIENCE_S)
    assert said == b"ready\ninterrupted nothing\n"


@pytest.mark.spec("OPR-06", "ADM-07")
def test_when_we_are_killed_the_command_dies_all_the_same(signs: Signs) -> None:
    with parent_of(f"exec 3>{signs.path}; echo up >&3; setsid sleep 600 & sleep 600") as parent:
        assert signs.read() == b"up\n"
        parent.kill()
        assert signs.read_to_end() == b""


@pytest.mark.spec("OPR-06")
def test_other_threads_can_run_commands_too_and_spare_each_other(signs: Signs) -> None:
    results: list[ChildResult] = []

    def one(number: int) -> None:
        effect = EffectId(f"eff_{number:032x}")
        script = f"setsid sleep 600 & read line < {signs.path}.{number}; exit 0"
        results.append(run("sh", "-c", script, effect=effect))

    for number in range(3):
        os.mkfifo(f"{signs.path}.{number}")
    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number, thread in enumerate(threads):
        # Each command waits for its own line; the ends of the ones before must not have taken it along.
        Path(f"{signs.path}.{number}").write_text("go\n")
        thread.join(PATIENCE_S)
    assert [result.proof for result in results] == [Proof.SUCCEEDED] * 3


def test_the_handlers_of_signals_are_as_before() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    shell("exit 0")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.spec("REP-05")
def test_an_end_that_somebody_else_collected_is_no_success() -> None:
    program = (
        "import signal; from issuer.operations.host_adapter import run_child\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        f"result = run_child(['true'], effect_id={EFFECT!r}, deadline_ms=0, remaining_ms=60000, env={ENV!r})\n"
        "print(result.end, result.proof)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"lost nothing\n"


# -- the adapter


@pytest.mark.spec("EFF-02", "EFF-06")
def test_the_host_adapter_pins_who_sends_and_sends_nothing_itself() -> None:
    adapter: Adapter = HostAdapter(HostSettings(deadline_ms=DurationMs(300_000)))
    asked = Request(values={}, registries={})
    pinned = adapter.prepare(asked)
    assert pinned.destination == {"kind": "host", "deadline_ms": 300_000}
    canonical_bytes(pinned.destination)
    assert adapter.still_holds(asked, pinned) is None
    other = HostAdapter(HostSettings(deadline_ms=DurationMs(1)))
    assert other.still_holds(asked, pinned) == "destination_changed"
    assert other.implementation != adapter.implementation
    order = Order(
        effect_id=EFFECT,
        request=asked,
        preparation=pinned,
        deadline_ms=InstantMs(0),
        remaining_ms=LONG_MS,
        still_allowed=lambda: None,
    )
    with pytest.raises(NotDispatchedError, match=r"^host_sends$"):
        adapter.dispatch(order)


@pytest.mark.parametrize("deadline_ms", [0, -1, 86_400_001, True])
def test_a_host_has_a_finite_deadline(deadline_ms: int) -> None:
    with pytest.raises(ValueError, match="at most a day"):
        HostSettings(deadline_ms=DurationMs(deadline_ms))
