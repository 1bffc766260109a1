"""Who may say what became of an admission: the holder of its claim, and nobody else (ADM-07)."""

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.clock import now_ms
from issuer.operations.deriving import DISPATCH_DEADLINE_MS
from issuer.wire import Answer
from ledger.model import InstantMs
from ledger.states import EffectState
from tests.support.committing import Job
from tests.support.issuers import Made, budget_line, permitted, refund, standard_issuer
from tests.support.kills import Nursery, spans_named, step_number, untouched_state
from tests.support.service import Service, answer, hang, held

HOST_DEADLINE_MS = 300_000
NOBODYS_CLAIM = "clm_" + "0" * 32


@dataclass(kw_only=True)
class Ground:
    """One issuer with a clock of its own; `issuer` is this process."""

    made: Made
    issuer: Issuer
    service: Service
    now: InstantMs

    def admitted(self, name: str = "r-1") -> tuple[str, str]:
        """Admit one publication for a host outside; return the effect and the claim."""
        asked = self.issuer.request("publish", {"name": name}, task="t1", actor="agent-7")
        effect = permitted(asked)
        answered = self.issuer.admit(effect)
        assert answered.code == "admitted"
        return effect, str(answered.more["claim"])

    def pass_ms(self, milliseconds: int) -> None:
        self.now = InstantMs(self.now + milliseconds)

    def job(self, effect: str, *, at: str | None = None, sends: int = signal.SIGKILL) -> Job:
        """Commit an effect in another process, at the same instant."""
        clock = self.made.folder / "time"
        clock.write_text(str(self.now))
        number = None if at is None else step_number(at)
        return Job(
            profile=str(self.made.profile),
            command="commit",
            arguments={"effect": effect},
            at=number,
            sends=sends,
            clock=str(clock),
        )

    def evidence(self, effect: str) -> list[tuple[object, ...]]:
        record = self.issuer.show(effect).more["record"]
        assert isinstance(record, dict)
        return [(row["class"], row["source"], row["proves"], row["late"]) for row in record["evidence"]]

    def money(self) -> tuple[object, object]:
        line = budget_line(self.issuer, "t1")
        return line["reserved"], line["settled"]

    def head(self) -> int:
        return self.issuer._house.ledger.read(lambda view: view.head()).sequence


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    with Service() as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        ground = Ground(made=made, issuer=None, service=service, now=now_ms())  # type: ignore[arg-type]
        with made.open(clock=lambda: ground.now) as ground.issuer:
            yield ground


def named(answered: Answer) -> tuple[str, object]:
    return answered.code, answered.more.get("field")


@pytest.mark.spec("ADM-07", "REC-07", "AUD-01")
@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("claim", [NOBODYS_CLAIM, "", "clm_", "İ", "another's"])
def test_a_report_with_a_wrong_claim_changes_nothing_and_is_on_record(
    ground: Ground, claim: str, succeeded: bool
) -> None:
    effect, right = ground.admitted()
    if claim == "another's":
        _, claim = ground.admitted("r-2")
    money = ground.money()
    before = ground.head()
    assert named(ground.issuer.report(effect, claim, succeeded=succeeded)) == ("forbidden", "claim")
    assert untouched_state(ground.issuer, effect) is EffectState.ADMITTED
    assert (ground.evidence(effect), ground.money()) == ([], money)
    assert ground.head() == before + 1
    assert spans_named(ground.issuer, effect, "refused") == 1
    assert ground.issuer.report(effect, right, succeeded=True).code == "succeeded"


@pytest.mark.spec("ADM-07", "SEC-01")
def test_a_claim_is_told_once_and_kept_nowhere(ground: Ground) -> None:
    effect, claim = ground.admitted()
    assert named(ground.issuer.admit(effect))[0] == "already_consumed"
    told = [ground.issuer.show(effect), ground.issuer.timeline(effect), ground.issuer.admit(effect)]
    assert claim not in str([answered.as_json() for answered in told])
    kept = [path for path in ground.made.folder.rglob("*") if path.is_file()]
    assert ground.made.ledger in kept
    for path in (*kept, ground.made.sink):
        assert claim.encode() not in path.read_bytes()
        assert claim.removeprefix("clm_").encode() not in path.read_bytes()


@pytest.mark.spec("ADM-07", "REP-06", "BUD-03")
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_a_second_report_rewrites_nothing(ground: Ground, first: bool, second: bool) -> None:
    """A word of success after one of not knowing still settles, since that claims more; nothing after it does."""
    effect, claim = ground.admitted()
    assert ground.issuer.report(effect, claim, succeeded=first).code == (
        "succeeded" if first else "outcome_unknown"
    )
    before, money = ground.evidence(effect), ground.money()
    again = ground.issuer.report(effect, claim, succeeded=second)
    if second and not first:
        assert again.code == "succeeded"
        assert (ground.evidence(effect)[:1], ground.money()) == (before, (0, 1))
        assert ground.issuer.report(effect, claim, succeeded=True).code == "already_consumed"
        return
    assert again.code == ("already_consumed" if first else "outcome_unknown")
    assert (ground.evidence(effect), ground.money()) == (before, money)
    assert ground.money() == ((0, 1) if first else (1, 0))


@pytest.mark.spec("ADM-07", "REC-05", "BUD-04")
@pytest.mark.parametrize("swept", [True, False])
def test_a_report_after_the_deadline_settles_once_and_is_marked_late(ground: Ground, swept: bool) -> None:
    effect, claim = ground.admitted()
    ground.pass_ms(HOST_DEADLINE_MS - 1)
    assert ground.issuer.show(effect).state == "admitted"
    ground.pass_ms(1)
    if swept:
        assert (ground.issuer.show(effect).state, ground.money()) == ("unknown", (1, 0))
    assert named(ground.issuer.report(effect, NOBODYS_CLAIM, succeeded=True)) == ("forbidden", "claim")
    assert ground.issuer.report(effect, claim, succeeded=True).code == "succeeded"
    passed, late = (
        ("none", "deadline_passed", "unknown", False),
        ("host_claim", "host:report", "succeeded", True),
    )
    assert ground.evidence(effect) == ([passed, late] if swept else [late])
    assert ground.money() == (0, 1)
    assert ground.issuer.report(effect, claim, succeeded=True).code == "already_consumed"
    assert ground.evidence(effect)[-1] == late
    assert ground.money() == (0, 1)


@pytest.mark.spec("ADM-07", "REP-05", "BUD-04")
def test_nobody_turns_anothers_admission_into_anything_but_unknown(ground: Ground) -> None:
    """Every command of another process, before and after the deadline: admitted, then unknown, and held throughout."""
    effect, _claim = ground.admitted()
    with ground.made.open(clock=lambda: ground.now) as other:
        for passed, state in ((0, "admitted"), (HOST_DEADLINE_MS, "unknown"), (HOST_DEADLINE_MS, "unknown")):
            ground.pass_ms(passed)
            other.list()
            other.task_list()
            other.timeline(effect)
            other.commit(effect)
            other.admit(effect)
            other.dispatch(effect, ["false"])
            other.request_held(effect)
            for succeeded in (True, False):
                assert other.report(effect, NOBODYS_CLAIM, succeeded=succeeded).code == "forbidden"
            assert other.show(effect).state == state
            assert ground.money() == (1, 0)
    assert ground.evidence(effect) == [("none", "deadline_passed", "unknown", False)]
    assert spans_named(ground.issuer, effect, "effect.unknown") == 1
    assert spans_named(ground.issuer, effect, "effect.no_effect") == 0


@pytest.mark.spec("ADM-07", "REP-05")
def test_a_host_outside_has_its_deadline_whatever_becomes_of_the_process_that_admitted(
    ground: Ground,
) -> None:
    """Its claim names no instance: that the issuer's own process ended says nothing about the host."""
    with ground.made.open(clock=lambda: ground.now) as short:
        effect = permitted(short.request("publish", {"name": "r-9"}, task="t1", actor="agent-7"))
        claim = str(short.admit(effect).more["claim"])
    assert ground.issuer.show(effect).state == "admitted"
    assert ground.issuer.report(effect, claim, succeeded=True).code == "succeeded"
    assert ground.evidence(effect) == [("host_claim", "host:report", "succeeded", False)]


@pytest.mark.spec("REP-05", "ADM-07", "AUD-02")
def test_an_interrupt_while_sending_is_recorded_as_unknown_before_it_goes_on(
    ground: Ground, nursery: Nursery
) -> None:
    effect = permitted(refund(ground.issuer, amount=7))
    ground.service.then(hang(effect=True))
    with nursery.start(ground.job(effect)) as child:
        ground.service.wait_for(effects=1)
        child.send(signal.SIGINT)
        assert child.raised() == "KeyboardInterrupt"
        child.ended()
    assert untouched_state(ground.issuer, effect) is EffectState.UNKNOWN
    assert ground.evidence(effect) == [("none", "exception:KeyboardInterrupt", "unknown", False)]
    assert ground.money() == (7, 0)
    assert ground.issuer.commit(effect).code == "outcome_unknown"
    assert ground.service.effects_of(effect) == ground.service.connections == 1


@pytest.mark.spec("REP-04", "AUD-02")
@pytest.mark.parametrize("at", ["admission_acknowledged", "looked_again"])
def test_an_interrupt_before_sending_gives_everything_back_before_it_goes_on(
    ground: Ground, nursery: Nursery, at: str
) -> None:
    effect = permitted(refund(ground.issuer, amount=7))
    with nursery.start(ground.job(effect, at=at, sends=signal.SIGINT)) as child:
        assert child.raised() == "KeyboardInterrupt"
    assert untouched_state(ground.issuer, effect) is EffectState.NO_EFFECT
    assert ground.evidence(effect) == [("not_sent", "winner", "no_effect", False)]
    assert ground.money() == (0, 0)
    assert ground.issuer.commit(effect).code == "not_dispatched"
    assert ground.service.connections == 0


@pytest.mark.spec("REP-05", "ADM-07", "BUD-04")
def test_an_interrupt_in_the_admission_itself_leaves_what_others_see_orphaned(
    ground: Ground, nursery: Nursery
) -> None:
    """Nobody learnt that it won, and the process ends in order: its lock file stays, free, as the proof."""
    effect = permitted(refund(ground.issuer, amount=7))
    with nursery.start(ground.job(effect, at="admission:committed", sends=signal.SIGINT)) as child:
        assert child.raised() == "KeyboardInterrupt"
        child.ended()
    assert untouched_state(ground.issuer, effect) is EffectState.ADMITTED
    assert (ground.issuer.show(effect).state, ground.money()) == ("unknown", (7, 0))
    assert ground.evidence(effect) == [("none", "sender_gone", "unknown", False)]
    assert ground.service.connections == 0


@pytest.mark.spec("ADM-07", "ADM-04")
def test_a_sender_that_lives_and_waits_is_not_gone(ground: Ground, nursery: Nursery) -> None:
    effect = permitted(refund(ground.issuer, amount=7))
    ground.service.then(held("answer", answer(201)))
    with nursery.start(ground.job(effect)) as child:
        ground.service.wait_for(requests=1)
        assert ground.issuer.show(effect).state == "admitted"
        assert ground.issuer.commit(effect).code == "already_consumed"
        ground.service.gate("answer").set()
        assert child.answer()["code"] == "succeeded"
    assert ground.evidence(effect) == [("service", "http:201", "succeeded", False)]
    assert ground.service.connections == 1


@pytest.mark.spec("ADM-07", "REP-05")
@pytest.mark.parametrize("boot_changed", [True, False])
def test_a_changed_boot_orphans_an_admission_whose_lock_file_is_gone(
    ground: Ground, nursery: Nursery, monkeypatch: pytest.MonkeyPatch, boot_changed: bool
) -> None:
    """Without the file only the boot or the deadline tells; files alone can be deleted by anybody tidy."""
    effect = permitted(refund(ground.issuer, amount=7))
    with nursery.start(ground.job(effect, at="looked_again")) as child:
        assert child.ended() == -signal.SIGKILL
    record = ground.issuer._house.ledger.read(lambda view: view.claims_open())
    (ground.made.folder / "ledger" / "instances" / f"{record[0].instance}.lock").unlink()
    assert ground.issuer.show(effect).state == "admitted"
    if boot_changed:
        monkeypatch.setattr(ground.issuer._house.instance, "boot", "another-boot")
        assert ground.issuer.show(effect).state == "unknown"
        return
    ground.pass_ms(DISPATCH_DEADLINE_MS)
    assert ground.issuer.show(effect).state == "unknown"
