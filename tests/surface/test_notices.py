"""People are told, in the core's words, once, and nothing ever waits for it or follows from it."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from issuer import notifying
from issuer.clock import now_ms
from issuer.house import House
from issuer.notice_courier import FAILED
from issuer.notifying import WAITING_MAX, Notice, NoticeKind, failed_notices, notify
from issuer.wiring import open_house
from ledger.model import InstantMs
from tests.support.canaries import found_in
from tests.support.issuers import HOUR_MS, Made, permitted, refund, standard_issuer
from tests.support.service import Service, accept_then_close, answer
from tests.support.shell import issuer_here, issuer_process

PATIENCE_S = 20.0
ON = '["awaiting_approval", "outcome_unknown", "frozen", "sink_down", "nearly_full"]'
SECRET: Final = "canary-note-7f3a9c"
KEYS = ["notice", "issuer", "at", "reference", "operation", "resource", "money", "until", "say"]


def tables(**told: str) -> dict[str, str]:
    """Return the changes of the standard profile that declare these tables, named by both operations."""
    declared = "".join(f"[notify.{name}]\n{how}\non = {ON}\n" for name, how in told.items())
    names = json.dumps(list(told))
    return {
        'key_kept = "24h" }': f'key_kept = "24h" }}\nnotify = {names}',
        'host = { deadline = "5m" }': f'host = {{ deadline = "5m" }}\nnotify = {names}',
        "[class.refund]": f"{declared}[class.refund]",
    }


def script(path: Path, body: str) -> str:
    """Write a command and return the line of the profile that names it."""
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o700)
    return f'command = ["{path}", "--urgent"]'


def awaited(look: Callable[[], Any]) -> Any:
    """Return what `look` gives as soon as it is true."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        seen = look()
        if seen:
            return seen
        threading.Event().wait(0.01)
    raise AssertionError("it never came")


def under_way(made: Made) -> list[Path]:
    folder = made.folder / "ledger" / "notices"
    return [path for path in folder.glob("*.json") if path.name[0].isdigit()]


def settled(made: Made) -> None:
    """Wait until no courier is at work."""
    awaited(lambda: not under_way(made))


def told_in(made: Made, spool: str = "told") -> list[dict[str, Any]]:
    settled(made)
    return [json.loads(path.read_text()) for path in sorted((made.folder / spool).glob("[!.]*"))]


def failures(made: Made) -> list[dict[str, str]]:
    settled(made)
    folder = made.folder / "ledger" / "notices"
    return [json.loads(path.read_text())["why"] for path in sorted(folder.glob(f"{FAILED}*"))]


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as running:
        yield running


def made_with(folder: Path, port: int = 9, changes: Mapping[str, str] | None = None, **told: str) -> Made:
    return standard_issuer(folder / "f0", port=port, changes={**tables(**told), **(changes or {})})


@pytest.mark.spec("APP-02", "SEC-01")
def test_a_wait_for_a_person_is_told_once_as_one_private_file(tmp_path: Path) -> None:
    made = made_with(tmp_path, desk='spool = "told"')
    with made.open() as issuer:
        asked = refund(issuer, amount=90_00, request_key="k-1", task="org")
        assert asked.code == "awaiting_approval"
        assert refund(issuer, amount=90_00, request_key="k-1", task="org").code == "awaiting_approval"
        (told,) = told_in(made)
        assert refund(issuer, order="o-2", amount=100, request_key="k-2").code == "permitted"
        assert told_in(made) == [told], "what a policy permits waits for nobody"
    assert list(told) == KEYS
    assert (told["notice"], told["issuer"], told["reference"]) == (
        "awaiting_approval",
        asked.issuer,
        asked.effect,
    )
    assert (told["operation"], told["resource"]) == ("refund", 'Order::"o-1"')
    assert (told["money"], told["until"]) == (["90.00 USD"], asked.expires)
    assert "look at it" in told["say"]
    (file,) = (made.folder / "told").iterdir()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert (made.folder / "ledger" / "notices").stat().st_mode & 0o777 == 0o700


@pytest.mark.spec("APP-02")
def test_a_held_effect_is_told_when_it_begins_to_wait_and_not_before(tmp_path: Path) -> None:
    made = made_with(tmp_path, desk='spool = "told"')
    with made.open() as issuer:
        held = refund(issuer, amount=900, hold=True)
        assert (held.code, told_in(made)) == ("prepared", [])
        assert issuer.request_held(str(held.effect)).code == "awaiting_approval"
        assert [told["reference"] for told in told_in(made)] == [held.effect]


@pytest.mark.spec("REC-01")
def test_an_unknown_outcome_is_told_by_whoever_learns_of_it(tmp_path: Path, service: Service) -> None:
    made = made_with(tmp_path, service.port, desk='spool = "told"')
    service.then(accept_then_close(), answer(201))
    with made.open() as issuer:
        lost = permitted(refund(issuer, order="o-1"))
        assert issuer.commit(lost).code == "outcome_unknown"
        assert issuer.commit(permitted(refund(issuer, order="o-2", amount=100))).code == "succeeded"
        host = permitted(issuer.request("publish", {"name": "one"}, task="t1", actor="agent-7"))
        assert issuer.admit(host).code == "admitted"
    with made.open(clock=lambda: InstantMs(now_ms() + HOUR_MS)) as later:
        later.clock_accept()
        refund(later, order="o-3", amount=1)
    told = told_in(made)
    assert [(one["notice"], one["reference"]) for one in told] == [
        ("outcome_unknown", lost),
        ("outcome_unknown", host),
    ]
    assert all(one["until"] is None and "Do not send it again" in one["say"] for one in told)


@pytest.mark.spec("BUD-05", "AUD-02")
def test_what_is_wrong_with_the_issuer_is_told_once_an_hour(tmp_path: Path) -> None:
    made = made_with(tmp_path, desk='spool = "told"')
    with made.open() as issuer:
        assert issuer.task_freeze("t1.a").code == "frozen"
        assert issuer.task_freeze("t1.b").code == "frozen"
        made.sink.rename(made.sink.with_suffix(".away"))
        for order in ("o-1", "o-2"):
            assert refund(issuer, order=order).code == "audit_unavailable"
        kinds = [told["notice"] for told in told_in(made)]
        assert kinds == ["frozen", "sink_down"]
        assert told_in(made)[0]["reference"] == issuer.task_show("t1.a").more["task"]["id"]  # type: ignore[index]
        made.sink.with_suffix(".away").rename(made.sink)
    with made.open(clock=lambda: InstantMs(now_ms() + HOUR_MS)) as later:
        later.clock_accept()
        assert later.freeze("actor", "agent-8").code == "suspended_now"
    told = told_in(made)
    assert [one["notice"] for one in told] == ["frozen", "sink_down", "frozen"]
    assert told[2]["reference"] == "actor:agent-8"


@pytest.mark.spec("LED-02")
def test_a_ledger_that_fills_up_is_told_before_it_is_full(tmp_path: Path) -> None:
    bounds = {"[actor]": "[ledger]\neffects = 10\n[actor]"}
    made = made_with(tmp_path, changes=bounds, desk='spool = "told"')
    with made.open() as issuer:
        for number in range(7):
            permitted(refund(issuer, order=f"o-{number}", amount=1))
        assert told_in(made) == []
        permitted(refund(issuer, order="o-7", amount=1))
        permitted(refund(issuer, order="o-8", amount=1))
    (told,) = told_in(made)
    assert (told["notice"], told["reference"], told["money"]) == ("nearly_full", None, [])


@pytest.mark.spec("SEC-01")
def test_a_command_gets_the_notice_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tmp_path / "seen"
    body = f'{{ cat; env; echo "ARGS $*"; ls /proc/self/fd 2>/dev/null; }} >"{seen}.new"; mv "{seen}.new" "{seen}"'
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("ISSUER_TOKEN_FILE", SECRET)
    monkeypatch.setenv("PERMIT_CLAIM", SECRET)
    note = {
        "payload = { order = { string = 40, public = true }, amount": "payload = { order = { string = 40 }, amount"
    }
    made = made_with(tmp_path, changes=note, mail=script(tmp_path / "tell", body))
    with made.open() as issuer:
        asked = refund(issuer, order=SECRET, amount=900)
        assert asked.code == "awaiting_approval"
        awaited(seen.exists)
        settled(made)
    text = seen.read_text()
    document, _, rest = text.partition("\n")
    assert list(json.loads(document)) == KEYS
    assert json.loads(document)["reference"] == asked.effect
    assert "hidden:" in json.loads(document)["resource"]
    assert "ARGS --urgent\n" in rest
    names = {line.partition("=")[0] for line in rest.splitlines() if "=" in line}
    assert names <= {"HOME", "LANG", "PATH", "TMPDIR", "TZ", "PWD", "SHLVL", "_", "OLDPWD"} | {
        name for name in names if name.startswith("LC_")
    }
    for path in (made.folder / "ledger" / "notices").iterdir():
        assert not found_in(path.read_bytes(), (SECRET,))
    assert not found_in(seen.read_bytes(), (SECRET,))
    assert failures(made) == []


@pytest.mark.spec("APP-01")
def test_a_command_that_hangs_is_waited_for_by_nobody_and_dead_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifying, "COMMAND_S", 1)
    pids = tmp_path / "pids"
    note = f'{{ echo $!; echo $$; }} >"{pids}.new"; mv "{pids}.new" "{pids}"'
    body = f'trap "" TERM HUP INT\nsleep 300 &\n{note}\nwait'
    made = made_with(tmp_path, mail=script(tmp_path / "tell", body), desk='spool = "told"')
    with made.open() as issuer:
        assert refund(issuer, amount=900).code == "awaiting_approval"
        assert under_way(made), "the answer came while the command hangs"
        numbers = [int(line) for line in awaited(lambda: pids.exists() and pids.read_text()).split()]
        assert failures(made) == [{"mail": "deadline_passed"}]
        assert len(told_in(made)) == 1, "the other place was told meanwhile"
    awaited(lambda: not any(_runs(number) for number in numbers))


@pytest.mark.spec("APP-01", "SUR-03")
def test_the_command_line_ends_with_its_answer_and_the_notice_goes_on(tmp_path: Path) -> None:
    made = made_with(
        tmp_path, mail=script(tmp_path / "tell", f'echo $$ >"{tmp_path}/pid-$$"\nexec sleep 300')
    )
    asked = ("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-", "--json")
    ran = issuer_process(*asked, at=made.folder, stdin=b'{"order": "o-1", "amount": 900}')
    assert (ran.code, ran.err) == ("awaiting_approval", "")
    assert under_way(made), "the process ended while its notice was on the way"
    awaited(lambda: list(tmp_path.glob("pid-*")))
    for courier in _couriers(made):
        os.kill(courier, signal.SIGTERM)
    assert failures(made) == [{"courier": "ended"}]


def _runs(number: int) -> bool:
    """Say whether a process runs; one that is dead and not collected by its new parent does not."""
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exit 3", "exit_code"),
        ("kill -9 $$", "exit_code"),
        ("exec <&-; exit 0", ""),
        (None, "not_started"),
    ],
)
def test_a_command_that_fails_changes_no_answer_and_is_told_by_doctor(
    tmp_path: Path, body: str | None, why: str, service: Service
) -> None:
    service.then(answer(201))
    how = 'command = ["/no/such/program"]' if body is None else script(tmp_path / "tell", body)
    made = made_with(tmp_path, service.port, mail=how)
    with made.open() as issuer:
        asked = refund(issuer, amount=900)
        assert asked.code == "awaiting_approval"
        assert failures(made) == ([{"mail": why}] if why else [])
        assert issuer.show(str(asked.effect)).state == "awaiting_approval", "a notice decides nothing"
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
    said = [found for found in issuer_here("doctor", "--json", at=made.folder).answer["findings"]
            if found["check"] == "notices"]  # fmt: skip
    assert any("1 are kept" in found["says"] for found in said) is bool(why)
    assert any("notify.mail" in found["says"] for found in said) is (body is None)
    assert all(found["ok"] for found in said)


@pytest.mark.spec("APP-01", "SEC-01")
@pytest.mark.parametrize(
    ("what", "why"),
    [("file", "spool_not_private"), ("open", "spool_not_private"), ("link", "spool_not_private"),
     ("missing", "spool_unwritable"), ("full", "spool_full")],
)  # fmt: skip
def test_a_spool_that_is_not_its_own_folder_is_not_used(tmp_path: Path, what: str, why: str) -> None:
    spool = tmp_path / "above" / "told"
    made = made_with(tmp_path, desk=f'spool = "{spool}"')
    if what != "missing":
        spool.parent.mkdir()
    if what == "file":
        spool.write_text("")
    elif what == "open":
        spool.mkdir()
        spool.chmod(0o755)
    elif what == "link":
        (tmp_path / "else").mkdir(mode=0o700)
        spool.symlink_to(tmp_path / "else")
    elif what == "full":
        spool.mkdir(mode=0o700)
        for number in range(1_000):
            (spool / str(number)).touch()
    with made.open() as issuer:
        assert refund(issuer, amount=900).code == "awaiting_approval"
        assert failures(made) == [{"desk": why}]
    assert not list((tmp_path / "else").glob("*"))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = made_with(tmp_path, desk='spool = "told"')
    opened = open_house(made.profile)
    yield opened
    opened.ledger.close()


def waiting(number: int) -> Notice:
    return Notice(kind=NoticeKind.AWAITING_APPROVAL, reference=f"eff_{number:032x}", notify=("desk",))


def files(house: House, pattern: str) -> list[str]:
    return sorted(path.name for path in house.places.notices.glob(pattern))


@pytest.mark.spec("APP-01")
def test_telling_takes_no_time_of_the_caller(tmp_path: Path) -> None:
    made = made_with(
        tmp_path, mail=script(tmp_path / "tell", f'echo $$ >"{tmp_path}/pid-$$"\nexec sleep 300')
    )
    opened = open_house(made.profile)
    took = []
    for number in range(5):
        began = time.monotonic()
        notify(opened, Notice(kind=NoticeKind.OUTCOME_UNKNOWN, reference=f"eff_{number}", notify=("mail",)))
        took.append(time.monotonic() - began)
    opened.ledger.close()
    assert min(took) < 0.05, took
    awaited(lambda: len(list(tmp_path.glob("pid-*"))) == len(took))
    for courier in _couriers(made):
        os.kill(courier, signal.SIGTERM)
    assert {json.dumps(why) for why in failures(made)} == {'{"courier": "ended"}'}
    commands = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
    awaited(lambda: not _couriers(made) and not any(_runs(number) for number in commands))


def _couriers(made: Made) -> list[int]:
    """Return the couriers at work for this issuer."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if b"notice_courier" in line and str(made.folder).encode() in line:
            found.append(int(entry.name))
    return found


@pytest.mark.spec("APP-01")
def test_a_storm_starts_no_crowd_and_hides_nothing(house: House) -> None:
    now = house.now()
    house.places.notices.mkdir(mode=0o700)
    for number in range(WAITING_MAX):
        (house.places.notices / f"{now:015d}-frozen-{number}.json").write_text("{}")
    notify(house, waiting(1))
    (failed,) = files(house, f"{FAILED}*")
    assert json.loads((house.places.notices / failed).read_text())["why"] == {"courier": "too_many"}
    assert len(files(house, "0*.json")) == WAITING_MAX
    assert failed_notices(house.places.notices, now) == 1
    # Half a minute later their couriers must be gone, and that is a failure of each.
    later = InstantMs(now + 30_001)
    assert failed_notices(house.places.notices, later) == WAITING_MAX + 1


@pytest.mark.spec("APP-01")
def test_what_a_clock_left_behind_that_was_ahead_keeps_no_place(house: House) -> None:
    ahead = house.now() + HOUR_MS
    house.places.notices.mkdir(mode=0o700)
    for number in range(WAITING_MAX):
        (house.places.notices / f"{ahead:015d}-frozen-{number}.json").write_text("{}")
    assert failed_notices(house.places.notices, house.now()) == WAITING_MAX
    notify(house, waiting(1))
    failed = [json.loads((house.places.notices / name).read_text()) for name in files(house, f"{FAILED}*")]
    assert {"courier": "too_many"} not in [one.get("why") for one in failed]


@pytest.mark.spec("APP-01")
def test_a_full_disk_leaves_no_part_of_a_notice_behind(house: House) -> None:
    (house.places.notices / "told").mkdir(parents=True, mode=0o700)
    notify(house, waiting(1))
    assert files(house, ".*") == []


@pytest.mark.spec("APP-01")
def test_few_failures_are_kept(house: House) -> None:
    house.places.notices.mkdir(mode=0o700)
    for number in range(150):
        (house.places.notices / f"{FAILED}{number:015d}-frozen-x.json").write_text("{}")
    notify(house, waiting(1))
    kept = files(house, f"{FAILED}*")
    assert (len(kept), kept[0]) == (100, f"{FAILED}{50:015d}-frozen-x.json")


@pytest.mark.spec("APP-01")
@pytest.mark.parametrize("told", [b"", b"[1, 2]", b'{"x": "y"}', b"\xff", b"{" * 100_000])
def test_a_damaged_memory_tells_once_more_rather_than_not(house: House, told: bytes) -> None:
    house.places.notices.mkdir(mode=0o700)
    (house.places.notices / "told").write_bytes(told)
    notify(house, waiting(1))
    notify(house, waiting(1))
    awaited(lambda: not files(house, "0*.json"))
    assert len(list((house.places.folder / "told").iterdir())) == 1
    assert len(json.loads((house.places.notices / "told").read_text())) == 1


@pytest.mark.spec("APP-01")
def test_where_nothing_can_be_kept_nothing_else_goes_wrong(tmp_path: Path) -> None:
    made = made_with(tmp_path, desk='spool = "told"')
    (made.folder / "ledger" / "notices").write_text("")
    with made.open() as issuer:
        assert refund(issuer, amount=900).code == "awaiting_approval"
        assert issuer.task_freeze("t1").code == "frozen"


@pytest.mark.spec("APP-01")
def test_nobody_is_told_who_was_not_asked_for(tmp_path: Path) -> None:
    changes = {'key_kept = "24h" }': 'key_kept = "24h" }\nnotify = ["desk"]',
               "[class.refund]": '[notify.desk]\nspool = "told"\non = ["outcome_unknown"]\n'
                                 f'[notify.other]\nspool = "other"\non = {ON}\n[class.refund]'}  # fmt: skip
    made = standard_issuer(tmp_path / "f0", port=9, changes=changes)
    with made.open() as issuer:
        assert refund(issuer, amount=900).code == "awaiting_approval"
        assert issuer.task_freeze("t1").code == "frozen"
        assert (told_in(made), len(told_in(made, "other"))) == ([], 1)
