"""Who may look across scopes, and that each look is on record before anything is shown, or as soon as it can be."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from audit.queries import LOOKS
from issuer import Issuer
from issuer.look_spool import SPOOL_BYTES_MAX, Look, LookSpool
from issuer.places import Places
from issuer.sealing import open_key_ring
from issuer.wire import Answer
from issuer.wiring import span_recorder
from ledger.canonical import canonical_bytes
from ledger.errors import LedgerUnavailable, SpanNotRecorded
from ledger.model import InstantMs, LedgerId
from ledger.port import SpanRecorder
from ledger.transitions import Position, RecordedSpan, Transition
from tests.support.callers import WITH_ROLES, Shop, opened_shop
from tests.support.cases import Clock, length
from tests.support.issuers import HOUR_MS, Made, permitted, refund, standard_issuer
from tests.support.ledgers import without_guards
from tests.support.reviewing import Seen, whole_trail
from tests.support.service import Service
from tests.support.ssh import needs_ssh_keygen
from tests.support.starving import SmallDisk

Ask = Callable[[Issuer, Path], Answer]
QUESTIONS: Mapping[str, Ask] = {
    "audit-query": lambda issuer, _: issuer.audit_query(),
    "audit-issued": lambda issuer, _: issuer.audit_issued(),
    "audit-story": lambda issuer, _: issuer.timeline(task="t1"),
    "audit-unknowns": lambda issuer, _: issuer.audit_unknowns(),
    "audit-unused": lambda issuer, _: issuer.audit_unused(),
    "audit-denied-then-done": lambda issuer, _: issuer.audit_denied_then_done(),
    "audit-approvals": lambda issuer, _: issuer.audit_approvals(),
    "audit-access": lambda issuer, _: issuer.audit_access(),
    "audit-changes": lambda issuer, _: issuer.audit_changes(),
    "audit-report": lambda issuer, _: issuer.audit_report(),
    "audit-export": lambda issuer, folder: issuer.audit_export(another(folder)),
    "audit-snapshot": lambda issuer, folder: issuer.audit_snapshot(another(folder)),
}


def another(folder: Path) -> Path:
    """Return a name that nothing in the folder has."""
    return folder / f"file-{len([*folder.iterdir()])}"


FILLED_MAX = 2_000
SHOWN = ("rows", "lines", "text", "unknowns", "unused", "answers", "changes", "population", "spans")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Service() as service:
        return standard_issuer(tmp_path / "f0", port=service.port)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with opened_shop(tmp_path_factory.mktemp("shop") / "f0", policy=WITH_ROLES) as opened:
        yield opened


def looks(issuer: Issuer) -> list[Seen]:
    return [span for span in whole_trail(issuer) if span.name in LOOKS]


def shows_nothing(told: Answer) -> bool:
    return told.code != "found" and not any(name in told.more for name in SHOWN)


# ---------------------------------------------------------------------------------------------- who may


@needs_ssh_keygen
@pytest.mark.spec("AUD-06", "SEC-02", "EFF-08", "SEC-04")
@pytest.mark.parametrize("command", QUESTIONS)
def test_no_agent_asks_the_trail_whatever_policies_say(shop: Shop, files: Path, command: str) -> None:
    for caller in (shop.host(), shop.actor()):
        before = length(shop.issuer)
        told = QUESTIONS[command](caller, files)
        assert told.code == "forbidden"
        assert shows_nothing(told)
        (no,) = whole_trail(shop.issuer)[before:]
        assert (no.name, no["command"], no["refusal"]) == ("refused", command, "forbidden")
    assert not list(files.iterdir())


@needs_ssh_keygen
@pytest.mark.spec("AUD-06", "EFF-08", "POL-06")
@pytest.mark.parametrize("command", QUESTIONS)
def test_a_person_asks_where_a_policy_lets_them_observe_and_that_is_on_record(
    shop: Shop, files: Path, command: str
) -> None:
    told = QUESTIONS[command](shop.person("mia"), files)
    assert told.code == "forbidden"
    assert shows_nothing(told)
    before = length(shop.issuer)
    told = QUESTIONS[command](shop.person("ben"), files)
    assert told.code == "found"
    look = whole_trail(shop.issuer)[before:][-1]
    assert (look.name in LOOKS, look["command"], look["caller"]) == (True, command, "ben")
    assert look["policy.ids"], "the policy that let them is named"


# ------------------------------------------------------------------------------------ on record before it is shown


class NoLooks:
    """The real recorder, but for looks."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self._real: SpanRecorder = span_recorder(ledger_id)

    def record(
        self, transition: Transition, *, position: Position, parent_span_id: str | None, at_ms: InstantMs
    ) -> RecordedSpan:
        """See `SpanRecorder`."""
        if transition.name in LOOKS:
            raise SpanNotRecorded("vocabulary", "The span of a look cannot be recorded.")
        return self._real.record(transition, position=position, parent_span_id=parent_span_id, at_ms=at_ms)


@pytest.mark.spec("AUD-06", "AUD-01")
@pytest.mark.parametrize("command", QUESTIONS)
def test_what_cannot_be_put_on_record_is_not_shown(made: Made, files: Path, command: str) -> None:
    with made.open(recorder=NoLooks) as issuer:
        told = QUESTIONS[command](issuer, files)
        assert told.code == "audit_unavailable"
        assert shows_nothing(told)
        assert not list(files.iterdir())
        assert not LookSpool(
            Places(made.profile), issuer._house.ring, issuer._house.ledger.ledger_id
        ).waiting()


@pytest.mark.spec("AUD-06")
@pytest.mark.parametrize("command", QUESTIONS)
def test_a_look_says_by_which_command_and_at_how_much(made: Made, files: Path, command: str) -> None:
    with made.open() as issuer:
        permitted(refund(issuer))
        told = QUESTIONS[command](issuer, files)
        look = looks(issuer)[-1]
        assert (look["command"], look["caller"]) == (command, "u-ana")
        shown = next((told.more[name] for name in SHOWN if name in told.more and name != "lines"), None)
        if isinstance(shown, list):
            assert look["count"] == len(shown)
        elif isinstance(shown, int):
            assert look["count"] == shown > 0


@pytest.mark.spec("AUD-06", "SEC-01")
def test_a_look_names_what_was_asked_for_by_its_digest_alone(made: Made) -> None:
    """A value that was asked for would make the look a span about that value, and be found with it."""
    with made.open() as issuer:
        issuer.audit_query(actor="agent-7", resource="o-1")
        issuer.audit_query(actor="agent-7", resource="o-1", limit=3)
        issuer.audit_query(actor="agent-7", resource="o-2")
        first, again, other = looks(issuer)
        assert first["filter.digest"] != other["filter.digest"]
        assert first["filter.digest"] != again["filter.digest"]
        assert first["actor"] is None
        # Whoever has the trail and no key cannot try what it was.
        asked = {"command": "audit-query", "asked": {"actor": "agent-7", "resource": "o-1", "limit": 100}}
        assert first["filter.digest"] != hashlib.sha256(canonical_bytes(asked)).hexdigest()
        found: Any = issuer.audit_query(actor="agent-7").more["rows"]
        assert not [one for one in found if one["name"] == "observed"]


# ----------------------------------------------------------------------------------------- recorded later


def back_in_time(clock: Clock) -> None:
    clock.ahead_ms -= HOUR_MS


@pytest.mark.spec("AUD-06", "LED-04")
@pytest.mark.parametrize("command", QUESTIONS)
def test_where_nothing_can_be_written_a_look_is_shown_and_recorded_later(
    made: Made, files: Path, command: str
) -> None:
    clock = Clock()
    with made.open(clock=clock) as issuer:
        permitted(refund(issuer))
        back_in_time(clock)
        told = QUESTIONS[command](issuer, files)
        assert (told.code, told.more["recorded"]) == ("found", False)
        assert "will be on record as soon as it can" in told.say
        assert not looks(issuer)
        waiting = [] if command == "audit-access" else rows_waiting(issuer)
        assert [(one["command"], one["caller"]) for one in waiting] == [(command, "u-ana")] * len(waiting)
        at = issuer._house.now()
    with made.open() as issuer:  # the next process that can write does it, before anybody asks
        recorded = [one for one in looks(issuer) if one["command"] == command]
        assert [one["reason"] for one in recorded] == ["recorded_later"]
        assert abs(recorded[0]["looked_ms"] - at) < 60_000
        assert recorded[0].at_ms - recorded[0]["looked_ms"] > HOUR_MS / 2
        assert not rows_waiting(issuer)


def rows_waiting(issuer: Issuer) -> list[dict[str, Any]]:
    told = issuer.audit_access()
    assert told.code == "found"
    found = told.more.get("not_recorded_yet", [])
    assert isinstance(found, list)
    return found


@pytest.mark.spec("AUD-06", "LED-04", "LED-06")
def test_a_damaged_ledger_is_read_and_the_looks_are_recorded_once_it_is_whole(made: Made) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    without_guards(made.ledger, "UPDATE tasks SET subject = 'u-eve' WHERE name = 't1'")
    with made.open(reading=True) as issuer:
        issuer.task_show("t1")
        told = issuer.audit_query(effect=effect)
        assert (told.code, told.more["recorded"]) == ("found", False)
        assert told.more["damaged"] == "task_mac"
        assert len(told.more["rows"]) == 2  # type: ignore[arg-type]
    without_guards(made.ledger, "UPDATE tasks SET subject = 'u-ana' WHERE name = 't1'")
    with made.open() as issuer:
        assert [(one["command"], one["reason"]) for one in looks(issuer)] == [
            ("audit-query", "recorded_later")
        ]


@pytest.mark.spec("AUD-06", "LED-04")
def test_an_altered_span_is_told_as_altered_and_hides_nothing_of_the_rest(made: Made) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
        expected = [row["sequence"] for row in issuer.audit_query(effect=effect).more["rows"]]  # type: ignore[attr-defined]
    without_guards(
        made.ledger,
        "UPDATE spans SET body = CAST(replace(body, 'agent-7', 'agent-8') AS BLOB) "
        "WHERE name = 'effect.prepared'",
    )
    with made.open(reading=True) as issuer:
        told = issuer.audit_query(effect=effect)
        rows: Any = told.more["rows"]
        assert [row["sequence"] for row in rows] == expected
        assert [row["name"] for row in rows] == ["altered", "effect.permitted"]
        assert "agent-8" not in json.dumps(rows[0])
        assert "1 of the spans are not what was recorded" in told.say


@pytest.mark.spec("AUD-06", "LED-04")
def test_on_a_full_disk_the_look_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with SmallDisk(tmp_path / "disk", 24) as disk, Service() as service:
        made = standard_issuer(disk.folder / "f0", port=service.port)
        with made.open() as issuer:
            disk.fill(0)
            told = issuer.audit_query(limit=1)
            for _ in range(FILLED_MAX):  # the log has room left for some spans
                if not told.more.get("recorded", True):
                    break
                told = issuer.audit_query(limit=1)
            disk.empty()
        assert (told.code, told.more["recorded"]) == ("found", False)
        with made.open() as issuer:
            assert "recorded_later" in {one["reason"] for one in looks(issuer)}


@pytest.mark.spec("AUD-06", "LED-04")
def test_where_the_look_cannot_be_kept_either_nothing_is_shown(
    made: Made, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    with made.open(clock=clock) as issuer:
        back_in_time(clock)
        Places(made.profile).looks.write_text("no folder")
        state = files / "occupied"
        state.write_text("no folder either")
        monkeypatch.setenv("XDG_STATE_HOME", str(state))
        for ask in QUESTIONS.values():
            told = ask(issuer, files)
            assert told.code in {"ledger_unavailable", "unknown_reference"}, told
            assert shows_nothing(told)
    assert [one.name for one in files.iterdir()] == ["occupied"]


# --------------------------------------------------------------------------------------------- the spool


@pytest.fixture
def spool(made: Made) -> LookSpool:
    ring = open_key_ring(Places(made.profile).keys)
    return LookSpool(Places(made.profile), ring, LedgerId(str(ring.ledger_id)))


def one_look(command: str = "audit-query") -> Look:
    said = {"permit.mode": "ordinary", "permit.caller": "u-ana", "permit.command": command, "permit.count": 3}
    return Look(at_ms=InstantMs(1), name="observed", story="led_" + "0" * 32, effect_id=None, said=said)


def spool_file(made: Made) -> Path:
    return Places(made.profile).looks / "looks.jsonl"


@pytest.mark.spec("AUD-06", "SEC-03")
def test_the_spool_is_private_bounded_and_believes_its_own_keys_alone(made: Made, spool: LookSpool) -> None:
    spool.keep(one_look())
    file = spool_file(made)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    (line,) = file.read_text().splitlines()
    forged = line.replace("u-ana", "u-eve")
    deep = "[" * 50_000
    file.write_text(f"{line}\n{forged}\nnot a look\n[]\n{{}}\n{deep}\n")
    assert [one.said["permit.caller"] for one in spool.waiting()] == ["u-ana"]
    bytes_each = len(line) + 1
    file.write_text(f"{line}\n" * (SPOOL_BYTES_MAX // bytes_each))
    assert len(spool.waiting()) > 100
    with pytest.raises(LedgerUnavailable, match="neither can the file"):
        spool.keep(one_look())
    assert file.stat().st_size <= SPOOL_BYTES_MAX


@pytest.mark.spec("AUD-06")
def test_an_account_without_a_home_has_one_place_less(
    made: Made, spool: LookSpool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    ring = open_key_ring(Places(made.profile).keys)
    alone = LookSpool(Places(made.profile), ring, LedgerId(str(ring.ledger_id)))
    alone.keep(one_look())
    assert len(alone.waiting()) == len(spool.waiting()) == 1
    with made.open() as issuer:
        assert [one["reason"] for one in looks(issuer)] == ["recorded_later"]


@pytest.mark.spec("AUD-06")
def test_a_torn_line_of_the_spool_is_cut_off_and_the_others_stay(made: Made, spool: LookSpool) -> None:
    spool.keep(one_look("audit-query"))
    with spool_file(made).open("ab") as file:
        file.write(b'{"look":{"at_ms":1,')
    spool.keep(one_look("audit-access"))
    assert [one.said["permit.command"] for one in spool.waiting()] == ["audit-query", "audit-access"]


@pytest.mark.spec("AUD-06")
def test_what_is_handed_over_is_forgotten_only_once_it_was_taken(made: Made, spool: LookSpool) -> None:
    spool.keep(one_look())

    def fails(_looks: tuple[Look, ...]) -> None:
        raise LedgerUnavailable("full", "The disk is full.")

    with pytest.raises(LedgerUnavailable):
        spool.hand_over(fails)
    taken: list[Look] = []
    spool.hand_over(taken.extend)
    spool.hand_over(taken.extend)
    assert len(taken) == 1
    assert not spool.waiting()


@pytest.mark.spec("AUD-06", "SEC-03")
def test_a_spool_that_is_a_link_or_open_to_others_is_not_used(
    made: Made, spool: LookSpool, files: Path
) -> None:
    folder = Places(made.profile).looks
    folder.mkdir(mode=0o700)
    (files / "elsewhere").write_text("")
    (folder / "looks.jsonl").symlink_to(files / "elsewhere")
    spool.keep(one_look())  # in the other place
    assert (files / "elsewhere").read_text() == ""
    assert len(spool.waiting()) == 1
    (folder / "looks.jsonl").unlink()
    folder.chmod(0o755)
    spool.keep(one_look())
    assert not (folder / "looks.jsonl").exists()
    assert len(spool.waiting()) == 2
