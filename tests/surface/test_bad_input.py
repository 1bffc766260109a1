"""Bad input is refused with one stable code, one sentence and nothing else, alike on every surface served.

The rows stand in `tests.support.bad_rows` and `bad_task_rows`. Each is typed on the command line and passed to the
Python API; after each nothing is consumed, reserved, written or sent but the refusal's own span.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from issuer.wire import Answer
from tests.support.bad_rows import EFFECT, EFFECT_ROWS, Row
from tests.support.bad_task_rows import TASK_ROWS
from tests.support.issuers import Made, open_task, permitted, refund, standard_issuer
from tests.support.service import Service
from tests.support.shell import issuer_here
from tests.support.witness import Seen, assert_nothing_but_a_refusal, witness

ROWS = (*EFFECT_ROWS, *TASK_ROWS)


@dataclass(kw_only=True)
class Room:
    """One issuer that every row is tried on, and what it held last."""

    made: Made
    effect: str
    service: Service
    seen: Seen
    by_api: Mapping[str, Answer]

    def assert_nothing_changed(self, code: str, *, spans: int = 1) -> None:
        """Compare with what was held last, so that one row's failure is not the next one's."""
        before, self.seen = self.seen, witness(self.made)
        assert_nothing_but_a_refusal(before, self.seen, code=code, spans=spans)
        assert self.service.counts()["connections"] == 0


def _begun(folder: Path, service: Service) -> tuple[Made, str]:
    """Make an issuer with a task that is closed and an effect that has a permit."""
    made = standard_issuer(folder, port=service.port)
    with made.open() as issuer:
        open_task(issuer, "done", parent="org", budget={"USD.cent": 10})
        assert issuer.task_close("done").code == "closed"
        return made, permitted(refund(issuer))


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    with Service() as service:
        made, effect = _begun(tmp_path_factory.mktemp("bad") / "f0", service)
        before = witness(made)
        with made.open() as issuer:
            by_api = {row.what: row.api(issuer, effect) for row in ROWS if row.api is not None}
        after = witness(made)
        assert after.rows == before.rows
        assert after.files == before.files
        fresh = after.spans[len(before.spans) :]
        assert {name for name, _body in fresh} == {"refused"}
        assert len(fresh) == len(by_api)
        assert service.counts()["connections"] == 0
        yield Room(made=made, effect=effect, service=service, seen=after, by_api=by_api)


@pytest.fixture(scope="module")
def typed_room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """One that nothing was refused in yet: of many refusals of one kind the later ones are only counted."""
    with Service() as service:
        made, effect = _begun(tmp_path_factory.mktemp("typed") / "f0", service)
        yield Room(made=made, effect=effect, service=service, seen=witness(made), by_api={})


def _checked(row: Row, answer: Mapping[str, object]) -> None:
    assert answer["code"] == row.code, answer
    if row.field is not None:
        assert answer.get("field", "") == row.field, answer
    assert answer.get("reason") == row.reason, answer
    say = str(answer["say"])
    assert say.endswith((".", ")", "?")), say
    assert "\n" not in say
    assert answer["retryable"] is False
    assert answer["next"] == "stop"


def test_each_row_has_a_name_of_its_own() -> None:
    assert len({row.what for row in ROWS}) == len(ROWS)


@pytest.mark.spec("EFF-05", "EFF-08", "SUR-02", "SUR-03")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_the_command_line_refuses_it_and_changes_nothing(typed_room: Room, row: Row) -> None:
    room = typed_room
    arguments = [room.effect if part == EFFECT else part for part in row.cli]
    ran = issuer_here("--json", *arguments, at=room.made.folder, stdin=row.stdin)
    room.assert_nothing_changed(row.code, spans=0 if row.api is None else 1)
    assert ran.err == ""
    assert ran.exit == row.exit, ran.out
    _checked(row, ran.answer)


@pytest.mark.spec("SUR-01")
@pytest.mark.parametrize("row", [row for row in ROWS if row.api is not None], ids=lambda row: row.what)
def test_the_python_api_gives_the_same_answer(room: Room, row: Row) -> None:
    answer = room.by_api[row.what]
    _checked(row, answer.as_json())
    assert int(answer.exit) == row.exit


@pytest.mark.spec("EFF-08", "SEC-04")
def test_a_missing_effect_reads_the_same_whatever_is_wrong_with_the_reference(room: Room) -> None:
    told = {
        tuple((name, str(value)) for name, value in answer.as_json().items())
        for what, answer in room.by_api.items()
        if answer.code == "not_found"
    }
    assert len(told) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["request", "refund"], "needs --task, --actor and --payload"),
        (
            ["request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "missing.json"],
            "cannot be read",
        ),
        (["request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "."], "cannot be read"),
        (["request", EFFECT, "--hold"], "give no other option"),
        (["request", EFFECT, "--task", "t1"], "give no other option"),
        (["task", "open"], "Missing argument 'NAME'"),
        (["task", "grant", "t1"], "Missing option '--budget'"),
        (["task", "open", "x", "--budget", "USD.cent=1", "--budget", "USD.cent=2"], "twice"),
        (["report", EFFECT, "--claim", "c", "--outcome", "partly"], "Invalid value for '--outcome'"),
        (["dispatch", EFFECT], "Missing argument"),
        (["commit", EFFECT, "--force"], "No such option"),
        (["commit", EFFECT, "again"], "unexpected extra argument"),
        (["comit", EFFECT], "No such command"),
        ([], "Missing command"),
    ],
)
@pytest.mark.spec("SUR-03")
def test_wrong_usage_is_one_object_too(room: Room, arguments: list[str], words: str) -> None:
    typed = [room.effect if part == EFFECT else part for part in arguments]
    ran = issuer_here(*typed, "--json", at=room.made.folder)
    room.assert_nothing_changed("malformed", spans=0)
    assert (ran.exit, ran.code, ran.err) == (2, "malformed", "")
    assert words in ran.answer["say"]


@pytest.mark.spec("SUR-03")
def test_without_json_a_no_is_told_in_words_and_wrong_usage_on_standard_error(
    room: Room, tmp_path: Path
) -> None:
    refused = issuer_here("show", "eff_0", at=room.made.folder)
    assert (refused.exit, refused.err) == (2, "")
    assert refused.out.startswith("not_found")
    assert refused.out.endswith("There is no such effect here.\n")
    room.assert_nothing_changed("not_found")
    typed = issuer_here("comit", "eff_0", at=tmp_path)
    assert (typed.exit, typed.out) == (2, "")
    assert typed.err.startswith("malformed: No such command 'comit'")
