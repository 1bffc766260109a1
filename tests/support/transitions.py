"""The transitions that are struck: how each is set up, what a blow may leave, and that nothing happens twice after it.

Every judgement is made on an issuer opened afresh, before anything is touched: the full check is clean, what was
answered is on record, state, money and the world agree; then the same command again, as a caller would give it.
"""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from issuer import Issuer
from issuer.checking import judge
from issuer.clock import now_ms
from issuer.places import Places
from issuer.sealing import open_key_ring
from ledger.states import EffectState
from tests.support.cases import books, effect_ids
from tests.support.committing import Job, file_clock, pass_time, show_time
from tests.support.issuers import STANDARD_POLICY, Made, open_task, permitted, standard_issuer
from tests.support.kills import spans_named, untouched_state

POINTS_PER_ISSUER: Final = 60
"""Blows on one issuer: its history stays short, so that checking it stays cheap."""

HEAD_START_MS: Final = 60_000
"""A clock in a file begins so far ahead of the machine's, by which issuers are made."""

NOBODY: Final = 1
"""A port without a service: nothing here is sent over a network."""

FILE_OPERATION: Final = """[operation.note]
class = "refund"
resource = { type = "Note", id = "{path}" }
payload = { path = { string = 200, public = true }, content = { string = 4096 } }
cost = { "USD.cent" = 1 }
file = { action = "create", root = "outbox", path = "{path}", content = "{content}" }
[operation.brief]
class = "refund"
resource = { type = "Release", id = "{name}" }
payload = { name = { string = 40, public = true } }
cost = { "USD.cent" = 1 }
host = { deadline = "1s" }
[operation.publish]"""
CHANGES: Final = {
    "[operation.publish]": FILE_OPERATION,
    "per_task = { permits = 100 }": "per_task = { permits = 1_000_000 }",
    "per_root = { permits = 200 }": "per_root = { permits = 1_000_000 }",
}
POLICY: Final = (
    STANDARD_POLICY
    + """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note);
"""
)
CONTENT: Final = "complete\n" * 100
TASK: Final = "wide"
ACTOR: Final = "agent-7"

PERMITTED, ADMITTED, SUCCEEDED = EffectState.PERMITTED, EffectState.ADMITTED, EffectState.SUCCEEDED


def soak_issuer(folder: Path, *, ceiling: int = 1_000_000) -> Made:
    """Make an issuer whose effects need no service, with a task of its own under `ceiling`."""
    (folder / "outbox").mkdir(parents=True, mode=0o700)
    made = standard_issuer(folder, port=NOBODY, policy=POLICY, changes=CHANGES)
    with made.open() as issuer:
        open_task(issuer, TASK, budget={"USD.cent": ceiling}, subject="u-ana", actors=[ACTOR])
    return made


def ask_note(issuer: Issuer, name: str) -> str:
    """Ask for the creation of one file; return the effect."""
    payload = {"path": name, "content": CONTENT}
    return permitted(issuer.request("note", payload, task=TASK, actor=ACTOR, request_key=name))


def ask_publish(issuer: Issuer, name: str) -> str:
    """Ask for an effect that the host sends; return the effect."""
    return permitted(issuer.request("publish", {"name": name}, task=TASK, actor=ACTOR, request_key=name))


def assert_clean(made: Made) -> None:
    """Fail where the full check finds anything, or anything stops new effects."""
    places = Places(made.profile)
    judged = judge(places, open_key_ring(places.keys))
    assert judged.report.is_clean, judged.report.findings
    assert not judged.halted


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One effect on its way, closed: what will be struck, and the money before it."""

    made: Made
    name: str
    effect: str = ""
    claim: str = ""
    before: tuple[int, int] = (0, 0)
    clock: str | None = None

    @property
    def note(self) -> Path:
        """The file that the effect would make."""
        return self.made.folder / "outbox" / self.name

    def job(self, command: str, **arguments: object) -> Job:
        """Return the command that is struck."""
        return Job(profile=str(self.made.profile), command=command, arguments=arguments, clock=self.clock)


def money(issuer: Issuer) -> tuple[int, int]:
    """What is reserved and settled at the task."""
    line = books(issuer, TASK)[TASK]
    return line.reserved, line.settled


def _more(scene: Scene, *, reserved: int = 0, settled: int = 0) -> tuple[int, int]:
    return scene.before[0] + reserved, scene.before[1] + settled


def _before_request(issuer: Issuer, made: Made, name: str) -> Scene:
    return Scene(made=made, name=name, before=money(issuer))


def _request(scene: Scene) -> Job:
    payload = {"path": scene.name, "content": CONTENT}
    return scene.job(
        "request", operation="note", payload=payload, task=TASK, actor=ACTOR, request_key=scene.name
    )


def _after_request(issuer: Issuer, scene: Scene, answer: Mapping[str, object] | None) -> str:
    known = set(effect_ids(issuer))
    effect = ask_note(issuer, scene.name)
    if answer is not None and answer["code"] == "permitted":
        assert effect == answer["effect"], "an acknowledged permit is lost"
        assert effect in known
    assert untouched_state(issuer, effect) is PERMITTED
    assert spans_named(issuer, effect, "effect.permitted") == 1
    assert money(issuer) == scene.before
    assert not scene.note.exists()
    return "there" if effect in known else "absent"


def _before_admission(issuer: Issuer, made: Made, name: str) -> Scene:
    return Scene(made=made, name=name, effect=ask_publish(issuer, name), before=money(issuer))


def _admit(scene: Scene) -> Job:
    return scene.job("admit", effect=scene.effect)


def _after_admission(issuer: Issuer, scene: Scene, answer: Mapping[str, object] | None) -> str:
    state = untouched_state(issuer, scene.effect)
    acknowledged = answer is not None and answer["code"] == "admitted"
    assert state is ADMITTED or not acknowledged, "an acknowledged admission is lost"
    assert state in {PERMITTED, ADMITTED, EffectState.NO_EFFECT}
    assert money(issuer) == _more(scene, reserved=state is ADMITTED)
    again = issuer.admit(scene.effect)
    assert (again.code == "admitted") == (state is PERMITTED), again
    assert spans_named(issuer, scene.effect, "effect.admitted") == 1
    assert money(issuer) == _more(scene, reserved=state is not EffectState.NO_EFFECT)
    return str(state)


def _before_settlement(issuer: Issuer, made: Made, name: str) -> Scene:
    effect = ask_publish(issuer, name)
    before = money(issuer)
    claim = str(issuer.admit(effect).more["claim"])
    return Scene(made=made, name=name, effect=effect, claim=claim, before=before)


def _report(scene: Scene) -> Job:
    return scene.job("report", effect=scene.effect, claim=scene.claim, succeeded=True)


def _after_settlement(issuer: Issuer, scene: Scene, answer: Mapping[str, object] | None) -> str:
    state = untouched_state(issuer, scene.effect)
    acknowledged = answer is not None and answer["code"] == "succeeded"
    assert state is SUCCEEDED or not acknowledged, "an acknowledged outcome is lost"
    assert state in {ADMITTED, SUCCEEDED}
    done = state is SUCCEEDED
    assert money(issuer) == _more(scene, reserved=not done, settled=done)
    issuer.report(scene.effect, scene.claim, succeeded=True)
    assert untouched_state(issuer, scene.effect) is SUCCEEDED
    assert money(issuer) == _more(scene, settled=1)
    assert issuer.admit(scene.effect).code != "admitted"
    assert spans_named(issuer, scene.effect, "effect.succeeded") == 1
    return str(state)


def _report_doubt(scene: Scene) -> Job:
    return scene.job("report", effect=scene.effect, claim=scene.claim, succeeded=False)


def _after_doubt(issuer: Issuer, scene: Scene, answer: Mapping[str, object] | None) -> str:
    state = untouched_state(issuer, scene.effect)
    # The answer is the same whether it stands on record or not: what is admitted counts as possibly sent.
    assert answer is None or answer["code"] in {"outcome_unknown", "clock_untrusted"}, answer
    assert state in {ADMITTED, EffectState.UNKNOWN}
    assert money(issuer) == _more(scene, reserved=1)
    issuer.report(scene.effect, scene.claim, succeeded=False)
    assert untouched_state(issuer, scene.effect) is EffectState.UNKNOWN
    assert money(issuer) == _more(scene, reserved=1)
    assert issuer.admit(scene.effect).code == "outcome_unknown"
    assert spans_named(issuer, scene.effect, "effect.unknown") == 1
    return str(state)


def _before_late(issuer: Issuer, made: Made, name: str) -> Scene:
    scene = _before_settlement(issuer, made, name)
    issuer.report(scene.effect, scene.claim, succeeded=False)
    return scene


def _after_late(issuer: Issuer, scene: Scene, answer: Mapping[str, object] | None) -> str:
    state = untouched_state(issuer, scene.effect)
    acknowledged = answer is not None and answer["code"] == "succeeded"
    assert state is SUCCEEDED or not acknowledged, "an acknowledged outcome is lost"
    assert state in {EffectState.UNKNOWN, SUCCEEDED}
    done = state is SUCCEEDED
    assert money(issuer) == _more(scene, reserved=not done, settled=done)
    assert issuer.admit(scene.effect).code != "admitted"
    issuer.report(scene.effect, scene.claim, succeeded=True)
    assert untouched_state(issuer, scene.effect) is SUCCEEDED
    assert money(issuer) == _more(scene, settled=1)
    assert spans_named(issuer, scene.effect, "effect.succeeded") == 1
    return str(state)


def _before_overdue(issuer: Issuer, made: Made, name: str) -> Scene:
    before = money(issuer)
    effect = permitted(issuer.request("brief", {"name": name}, task=TASK, actor=ACTOR, request_key=name))
    issuer.admit(effect)
    return Scene(made=made, name=name, effect=effect, before=before)


def _list(scene: Scene) -> Job:
    return scene.job("list")


def _after_overdue(issuer: Issuer, scene: Scene, _answer: Mapping[str, object] | None) -> str:
    state = untouched_state(issuer, scene.effect)
    assert state in {ADMITTED, EffectState.UNKNOWN}
    assert money(issuer) == _more(scene, reserved=1)
    issuer.list()
    assert untouched_state(issuer, scene.effect) is EffectState.UNKNOWN
    assert money(issuer) == _more(scene, reserved=1)
    assert issuer.admit(scene.effect).code == "outcome_unknown"
    assert spans_named(issuer, scene.effect, "effect.unknown") == 1
    return str(state)


def _before_sending(issuer: Issuer, made: Made, name: str) -> Scene:
    return Scene(made=made, name=name, effect=ask_note(issuer, name), before=money(issuer))


def _commit(scene: Scene) -> Job:
    return scene.job("commit", effect=scene.effect)


def _after_sending(issuer: Issuer, scene: Scene, answer: Mapping[str, object] | None) -> str:
    state = untouched_state(issuer, scene.effect)
    acknowledged = answer is not None and answer["code"] == "succeeded"
    assert state is SUCCEEDED or not acknowledged, "an acknowledged outcome is lost"
    assert state in {PERMITTED, ADMITTED, SUCCEEDED, EffectState.NO_EFFECT, EffectState.UNKNOWN}
    sent = _seen(scene.note)
    assert sent is None or state not in {PERMITTED, EffectState.NO_EFFECT}
    assert sent is not None or state is not SUCCEEDED
    held = state in {ADMITTED, EffectState.UNKNOWN}
    assert money(issuer) == _more(scene, reserved=held, settled=state is SUCCEEDED)
    again = issuer.commit(scene.effect)
    if state is PERMITTED:
        assert again.code == "succeeded", again
    else:
        assert _seen(scene.note) == sent, "the effect was done again"
    assert spans_named(issuer, scene.effect, "effect.admitted") == 1
    return str(state)


def _seen(note: Path) -> tuple[int, int] | None:
    """Which file stands there, complete, and when it was written; None where there is none."""
    if not note.exists():
        return None
    assert note.read_text() == CONTENT
    return note.stat().st_ino, note.stat().st_mtime_ns


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of transition.

    Attributes:
        name: its key in `KINDS`.
        before: brings an effect to where it is struck, in an issuer that is then closed.
        command: the command that is struck.
        after: judges what the blow left and returns it in a word.
        waits_ms: what passes, on the clock of its stage, between the two.
    """

    name: str
    before: Callable[[Issuer, Made, str], Scene]
    command: Callable[[Scene], Job]
    after: Callable[[Issuer, Scene, Mapping[str, object] | None], str]
    waits_ms: int = 0

    def job(self, scene: Scene, *, at: int | None = None, **more: object) -> Job:
        """Return the job of a process that stands still before its command, or at step `at` of it."""
        standing = {"traced": True} if at is None else {"at": at, "sends": signal.SIGSTOP}
        return replace(self.command(scene), **(standing | more))  # type: ignore[arg-type]


KINDS: Final[Mapping[str, Kind]] = {
    "request": Kind(name="request", before=_before_request, command=_request, after=_after_request),
    "admission": Kind(name="admission", before=_before_admission, command=_admit, after=_after_admission),
    "settlement": Kind(
        name="settlement", before=_before_settlement, command=_report, after=_after_settlement
    ),
    "doubt": Kind(name="doubt", before=_before_settlement, command=_report_doubt, after=_after_doubt),
    "late": Kind(name="late", before=_before_late, command=_report, after=_after_late),
    "overdue": Kind(
        name="overdue", before=_before_overdue, command=_list, after=_after_overdue, waits_ms=2_000
    ),
    "sending": Kind(name="sending", before=_before_sending, command=_commit, after=_after_sending),
}


UNTOUCHED: Final[Mapping[str, str]] = {
    "request": "absent",
    "admission": "permitted",
    "settlement": "admitted",
    "doubt": "admitted",
    "late": "unknown",
    "overdue": "admitted",
    "sending": "permitted",
}
"""What stands where nothing happened."""
SUCCESS: Final[Mapping[str, str]] = {
    "request": "permitted",
    "admission": "admitted",
    "settlement": "succeeded",
    "doubt": "outcome_unknown",
    "late": "succeeded",
    "overdue": "found",
    "sending": "succeeded",
}
"""What is answered where nothing is in the way."""
NOTHING_HAPPENED: Final = frozenset(
    {"ledger_unavailable", "ledger_full", "audit_unavailable", "keys_unavailable", "clock_untrusted"}
)
WITHDRAWN: Final[Mapping[str, frozenset[str]]] = {
    "prepare_again": frozenset({"no_effect", "permitted"}),
    "not_dispatched": frozenset({"no_effect"}),
}
"""What may stand where nothing was sent and it is to be prepared again; a target that changed leaves the permit."""


def assert_told_as_it_is(kind: str, code: str | None, left: str) -> None:
    """Fail where an answer says that nothing happened, or that all was withdrawn, and the record says otherwise."""
    if code in NOTHING_HAPPENED:
        assert left == UNTOUCHED[kind], (code, left)
    if code is not None and code in WITHDRAWN:
        assert left in WITHDRAWN[code], (code, left)


@dataclass(kw_only=True)
class Stage:
    """Makes scenes of one kind, on a fresh issuer every so many; `clock` is a file that shows the time, if any."""

    kind: Kind
    folder: Path
    clock: Path | None = None
    _count: int = 0
    _made: Made | None = field(default=None)

    def __post_init__(self) -> None:
        """Give a kind that waits a clock that need not be waited for."""
        if self.kind.waits_ms and self.clock is None:
            self.folder.mkdir(parents=True)
            self.clock = self.folder / "time"
            show_time(self.clock, now_ms() + HEAD_START_MS)

    def scene(self) -> Scene:
        """Bring one effect to where it is struck."""
        if self._made is None or self._count % POINTS_PER_ISSUER == 0:
            self._made = soak_issuer(self.folder / f"i{self._count}")
        self._count += 1
        with self._opened(self._made) as issuer:
            scene = self.kind.before(issuer, self._made, f"n-{self._count}")
        if self.clock is None:
            return scene
        pass_time(self.clock, self.kind.waits_ms)
        return replace(scene, clock=str(self.clock))

    def _opened(self, made: Made) -> Issuer:
        return made.open() if self.clock is None else made.open(clock=file_clock(self.clock))

    def judged(self, scene: Scene, answer: Mapping[str, object] | None) -> str:
        """Judge what a blow left: check, read, repeat, and check again; `clock` shows a time again that is believed."""
        assert_clean(scene.made)
        with self._opened(scene.made) as issuer:
            left = self.kind.after(issuer, scene, answer)
        assert_clean(scene.made)
        return left
