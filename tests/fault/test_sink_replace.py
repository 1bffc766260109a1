"""`sink replace`: a sink moves by an act on record, with all that was in it, and never so that a rollback is hidden."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit import create
from audit.sinks.reading import read_jsonl
from issuer import Issuer
from issuer.flow.steps import Reached
from ledger.sqlite.halt import lift_halt, standing_halt
from ledger.transitions import TransitionName
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.racing import Child
from tests.support.restoring import restored, saved, sent
from tests.support.revised import activated, rewritten, spans_of
from tests.support.service import Service, answer
from tests.support.shell import issuer_here

FILE = "spans.jsonl"
LOCAL = 'sink.local = { type = "jsonl", path = "audit", required = true }'
REPLACED, REGISTERED = str(TransitionName.SINK_REPLACED), str(TransitionName.SINK_REGISTERED)


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(*[answer(201)] * 8) as service:
        yield service


@pytest.fixture(name="made")
def _made(tmp_path: Path, service: Service) -> Made:
    return standard_issuer(tmp_path / "f0", port=service.port)


def changes(issuer: Issuer) -> list[dict[str, object]]:
    """Return what is on record of moved and gained sinks."""
    return [said for said in spans_of(issuer) if said["permit.transition"] in {REPLACED, REGISTERED}][1:]


def sequences(made: Made, file: Path) -> list[int]:
    """Return the sequences in an audit file, which proves itself line by line."""
    with made.open(reading=True) as issuer:
        ledger_id = issuer._house.ledger.ledger_id
    return [span.tail.sequence for span in read_jsonl(file, ledger_id, name="local")]


def moved(issuer: Issuer, folder: Path, name: str = "local") -> Path:
    """Move a sink below `folder`, which must be possible; return its new file."""
    said = issuer.sink_replace(name, path=str(folder))
    assert said.code == "sink_replaced", said
    assert "not every required sink" not in said.say
    return folder / FILE


def demand_whole(made: Made) -> None:
    assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("AUD-02", "AUD-09")
def test_a_moved_sink_has_every_span_before_it_counts_and_the_act_is_on_record(
    made: Made, tmp_path: Path
) -> None:
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        new = moved(issuer, tmp_path / "new")
        (said,) = changes(issuer)
        assert (said["permit.sink.name"], said["permit.reason"], said["permit.sink.upto"]) == (
            "local",
            "moved",
            11,
        )
        row = issuer._house.ledger.read(lambda view: view.span_at(11))
        assert row is not None
        assert said["permit.sink.leaf"] == row.leaf.hex()
        assert str(tmp_path) not in str(said)
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
        (line,) = [line for line in issuer.audit_changes().more["changes"] if line["name"] == REPLACED]  # type: ignore[attr-defined]
        assert line["by"] == "u-ana"
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer, order="o-3"))).code == "succeeded"
    # The old file ends with the span that says that it was left.
    assert sequences(made, made.sink) == list(range(1, 13))
    found = sequences(made, new)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 20
    demand_whole(made)


@pytest.mark.spec("AUD-02", "LED-06")
def test_a_ledger_that_is_set_back_to_before_the_move_is_behind_its_old_file(
    made: Made, tmp_path: Path
) -> None:
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    shutil.copytree(made.ledger.parent, tmp_path / "before")
    with made.open() as issuer:
        moved(issuer, tmp_path / "new")
    shutil.rmtree(made.ledger.parent)
    shutil.copytree(tmp_path / "before", made.ledger.parent)
    with made.open() as issuer:
        assert refund(issuer, order="o-2").code == "audit_unavailable"
    halt = standing_halt(made.ledger)
    assert halt is not None
    assert halt.word == "behind_sink"


@pytest.mark.spec("AUD-02", "LED-06")
def test_a_sink_that_is_ahead_is_never_left_since_that_would_hide_a_rollback(
    made: Made, tmp_path: Path
) -> None:
    shutil.copytree(made.ledger.parent, tmp_path / "before")
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    shutil.rmtree(made.ledger.parent)
    shutil.copytree(tmp_path / "before", made.ledger.parent)
    with made.open() as issuer:
        halt = standing_halt(made.ledger)
        assert halt is not None
        assert issuer.sink_replace("local", path=str(tmp_path / "new")).code == "ledger_unavailable"
        lift_halt(made.ledger, halt)
        said = issuer.sink_replace("local", path=str(tmp_path / "new"))
        assert said.code == "audit_unavailable"
        assert "issuer ledger restore FILE" in said.say
        assert changes(issuer) == []
    assert not (tmp_path / "new").exists()


@pytest.mark.spec("AUD-02")
def test_a_sink_that_is_gone_for_good_locks_no_money_for_good(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        shutil.rmtree(made.sink.parent)
        assert refund(issuer, order="o-2").code == "audit_unavailable"
        new = moved(issuer, tmp_path / "new")
        (said,) = changes(issuer)
        assert (said["permit.reason"], said["permit.sink.upto"]) == ("lost", 0)
        assert "permit.sink.leaf" not in said
        assert issuer.commit(permitted(refund(issuer, order="o-3"))).code == "succeeded"
    assert sequences(made, new)[:14] == list(range(1, 15))
    demand_whole(made)


@pytest.mark.spec("AUD-02")
def test_the_same_place_can_be_filled_anew_where_its_file_is_lost_and_not_where_it_is_there(
    made: Made,
) -> None:
    with made.open() as issuer:
        assert issuer.sink_replace("local").code == "nothing_to_change"
        assert issuer.sink_replace("nobody").code == "unknown_reference"
        made.sink.unlink()
        assert issuer.sink_replace("local").code == "sink_replaced"
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    demand_whole(made)


def foreign(file: Path) -> None:
    create(file, "led_" + "f" * 32)


def no_header(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"")


def another_story(file: Path) -> None:
    line = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*line[:3], line[3].replace(b'"sequence":3', b'"sequence":4'), *line[4:]]))


@pytest.mark.spec("AUD-02", "LED-06")
@pytest.mark.parametrize("spoil", [foreign, no_header, another_story])
def test_only_an_empty_place_or_one_with_the_first_spans_of_this_ledger_is_taken(
    made: Made, tmp_path: Path, spoil: object
) -> None:
    file = tmp_path / "new" / FILE
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        if spoil is another_story:
            file.parent.mkdir()
            shutil.copy(made.sink, file)
            file.chmod(0o600)
        spoil(file)  # type: ignore[operator]
        kept = file.read_bytes()
        said = issuer.sink_replace("local", path=str(file.parent))
        assert (said.code, said.more["field"]) == ("audit_unavailable", "local")
        assert (file.read_bytes(), changes(issuer)) == (kept, [])
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"


@pytest.mark.spec("AUD-02")
def test_a_place_that_holds_the_first_spans_already_goes_on_from_there(made: Made, tmp_path: Path) -> None:
    file = tmp_path / "new" / FILE
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        file.parent.mkdir()
        lines = made.sink.read_bytes().splitlines(keepends=True)
        file.write_bytes(b"".join(lines[:5]))
        file.chmod(0o600)
        moved(issuer, file.parent)
    assert sequences(made, file) == list(range(1, 13))


@pytest.mark.spec("AUD-02", "ADM-03")
def test_nothing_moves_under_what_is_in_flight_unless_the_sink_is_lost(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        sent(issuer, "r1")
        said = issuer.sink_replace("local", path=str(tmp_path / "new"))
        assert (said.code, changes(issuer)) == ("audit_unavailable", [])
        assert "not over yet" in said.say
        made.sink.unlink()
        moved(issuer, tmp_path / "new2")


@pytest.mark.spec("AUD-02", "AUD-03", "ADM-03")
def test_what_the_old_sink_acknowledged_counts_for_nothing_once_the_sink_has_moved(
    made: Made, service: Service, tmp_path: Path
) -> None:
    """A process is held between its probe and its admission: the old file would still take the span."""

    def observe(step: str) -> None:
        if step == Reached.SINKS_PROBED and not (tmp_path / "new").exists():
            with made.open() as operator:
                moved(operator, tmp_path / "new")

    with made.open() as issuer:
        effect = permitted(refund(issuer))
    with made.open(observe=observe) as issuer:
        said = issuer.commit(effect)
        assert (said.code, said.state) == ("prepare_again", "no_effect")
        assert len(service.requests) == 0
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
    demand_whole(made)


@pytest.mark.spec("AUD-02")
def test_an_open_process_goes_on_at_the_new_place_and_lets_the_old_one_go(made: Made, tmp_path: Path) -> None:
    with Child() as child, made.open() as issuer:
        first, second = permitted(refund(issuer)), permitted(refund(issuer, order="o-2"))
        # The other process is open and stands at its barrier with the second call while the sink moves.
        child.order(made, calls=[["commit", first]])
        child.ready()
        child.go()
        assert child.said()["code"] == "succeeded"
        child.order(made, calls=[["commit", second]])
        child.ready()
        new = moved(issuer, tmp_path / "new")
        left = made.sink.read_bytes()
        child.go()
        assert child.said()["code"] == "succeeded"
        assert made.sink.read_bytes() == left
    assert sequences(made, new)[-1] == 16


@pytest.mark.spec("AUD-02")
def test_of_two_processes_that_move_one_sink_at_once_one_does(made: Made, tmp_path: Path) -> None:
    codes: list[str] = []
    barrier = threading.Barrier(2)

    def move(issuer: Issuer, folder: Path) -> None:
        barrier.wait()
        codes.append(issuer.sink_replace("local", path=str(folder)).code)

    with made.open() as one, made.open() as other:
        threads = [
            threading.Thread(target=move, args=(issuer, tmp_path / name))
            for issuer, name in ((one, "a"), (other, "b"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done = changes(one)
        assert len(done) == codes.count("sink_replaced") >= 1
        assert one.commit(permitted(refund(one))).code == "succeeded"
        assert other.commit(permitted(refund(other, order="o-2"))).code == "succeeded"
    demand_whole(made)


@pytest.mark.spec("AUD-02", "POL-07")
def test_a_profile_that_gains_and_loses_sinks_says_so_and_each_is_an_act(made: Made, tmp_path: Path) -> None:
    text = made.profile.read_text(encoding="utf-8")
    second = LOCAL.replace("sink.local", "sink.other").replace('"audit"', f'"{tmp_path / "other"}"')
    rewritten(made.profile, text.replace(LOCAL, second))
    with made.open() as issuer:
        said = Issuer.activate(made.profile)
        assert said.code == "activated"
        assert "issuer sink replace" in said.say
        no = refund(issuer)
        assert (no.code, no.more["reason"]) == ("audit_unavailable", "sinks_changed")
        rows = {str(row["sink"]): row["state"] for row in issuer.sink_list().more["sinks"]}  # type: ignore[attr-defined]
        assert rows == {"local": "undeclared", "other": "unregistered"}
        last = issuer.sink_replace("local")
        assert (last.code, changes(issuer)) == ("audit_unavailable", [])
        gained = issuer.sink_replace("other")
        assert (gained.code, gained.more["reason"]) == ("sink_replaced", "gained")
        assert "issuer sink replace local" in gained.say
        assert refund(issuer).code == "audit_unavailable"
    with made.open() as issuer:
        dropped = issuer.sink_replace("local")
        assert (dropped.code, dropped.more["reason"]) == ("sink_replaced", "dropped")
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
        assert [said["permit.transition"] for said in changes(issuer)] == [REGISTERED, REPLACED]
    assert made.sink.read_bytes().count(b"\n") < (tmp_path / "other" / FILE).read_bytes().count(b"\n")
    demand_whole(made)


@pytest.mark.spec("AUD-02", "SUR-01")
def test_with_a_dead_sink_looking_revoking_and_the_act_itself_work_from_the_command_line(
    made: Made, tmp_path: Path
) -> None:
    with made.open() as issuer:
        effect = permitted(refund(issuer))
    made.sink.unlink()
    (row,) = issuer_here("--json", "sink", "list", at=made.folder).answer["sinks"]
    assert (row["state"], row["reason"], row["class"]) == ("failing", "missing", "durable")
    assert issuer_here("--json", "commit", effect, at=made.folder).code == "audit_unavailable"
    assert issuer_here("--json", "revoke", "effect", effect, at=made.folder).code == "revoked_now"
    assert issuer_here("--json", "doctor", at=made.folder).code == "audit_unavailable"
    ran = issuer_here("--json", "sink", "replace", "local", "--path", str(tmp_path / "new"), at=made.folder)
    assert (ran.exit, ran.code) == (0, "sink_replaced")
    shown = issuer_here("sink", "list", at=made.folder)
    assert "local  ready: jsonl, durable, required" in shown.out
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"


@pytest.mark.spec("LED-08", "AUD-02")
@pytest.mark.parametrize("is_lost", [False, True])
def test_what_a_sink_held_before_it_was_moved_proves_nothing_to_a_restore(
    made: Made, tmp_path: Path, *, is_lost: bool
) -> None:
    backup = saved(made)
    with made.open() as issuer:
        held = made.sink.rename(made.sink.with_name("away")) if is_lost else None
        moved(issuer, tmp_path / "new")
        if held is not None:
            held.rename(made.sink)
        sent(issuer, "r1")
    answer_ = restored(made, backup)
    assert "all" in str(answer_.more["stopped"])
    with made.open() as issuer:
        assert issuer.task_show("t1").more["task"]["state"] == "frozen"  # type: ignore[index]


@pytest.mark.spec("SEC-02", "POL-01")
def test_the_acts_are_asked_about_and_recorded_as_refused_for_who_may_not(made: Made, tmp_path: Path) -> None:
    policy = made.folder / "policies" / "policies.cedar"
    never = '\n@id("nobody") forbid (principal, action == Action::"activate", resource);\n'
    rewritten(policy, policy.read_text(encoding="utf-8") + never)
    activated(made.profile)
    with made.open() as issuer:
        assert issuer.sink_replace("local", path=str(tmp_path / "new")).code == "forbidden"
        assert issuer.sink_quarantine("local", reason="rejected").code == "forbidden"
        assert [said["permit.command"] for said in spans_of(issuer)[-2:]] == [
            "sink-replace",
            "sink-quarantine",
        ]
    assert not (tmp_path / "new").exists()


@pytest.mark.spec("AUD-02")
def test_a_place_that_does_not_take_everything_is_not_moved_to(made: Made, tmp_path: Path) -> None:
    with made.open() as issuer:
        file = tmp_path / "new" / FILE
        create(file, issuer._house.ledger.ledger_id)
        file.chmod(0o400)
        no = issuer.sink_replace("local", path=str(file.parent))
        assert (no.code, changes(issuer)) == ("audit_unavailable", [])
        file.chmod(0o600)
        moved(issuer, file.parent)
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
