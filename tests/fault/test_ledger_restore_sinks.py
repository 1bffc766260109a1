"""What a restore makes of sinks: complete, lost, foreign, cut, forged; and how they go on in a new epoch (LED-08)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer import Issuer
from ledger.tree import leaf_hash
from tests.support.issuers import Made, budget_line, refund, standard_issuer
from tests.support.restoring import (
    published,
    refused,
    restored,
    saved,
    sent,
    states,
    tasks,
    tree_of,
)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return standard_issuer(tmp_path / "f0", port=9)


def gone(sink: Path) -> None:
    sink.unlink()


def of_another_ledger(sink: Path) -> None:
    other = json.dumps({"kind": "permit-audit", "ledger": "led_" + "0" * 32, "v": 1}, separators=(",", ":"))
    sink.write_text(other + "\n")


def emptied(sink: Path) -> None:
    sink.write_bytes(b"")


def cut_before_the_backup(sink: Path) -> None:
    lines = sink.read_bytes().splitlines(keepends=True)
    sink.write_bytes(b"".join(lines[:5]))


@pytest.mark.spec("LED-08", "AUD-02")
@pytest.mark.parametrize(
    ("lose", "state"),
    [
        (gone, "missing"),
        (of_another_ledger, "foreign"),
        (emptied, "foreign"),
        (cut_before_the_backup, "behind"),
    ],
)
def test_without_a_complete_sink_every_open_task_is_frozen_until_it_is_thawed(
    made: Made, lose: Callable[[Path], None], state: str
) -> None:
    with made.open() as issuer:
        void = published(issuer, "void")
    file = saved(made)
    with made.open() as issuer:
        lost = sent(issuer, "lost")
    lose(made.sink)
    stood = made.sink.read_bytes() if made.sink.exists() else None
    answer = restored(made, file)
    assert answer.more["sinks"] == {"local": state}
    assert "frozen" in answer.say
    kept = [path.read_bytes() for path in made.sink.parent.glob("*.before-epoch-2")]
    assert kept == ([stood] if state == "foreign" else [])
    assert states(made, (void, lost)) == ["revoked", None]
    with made.open() as issuer:
        assert set(tasks(issuer).values()) == {"frozen"}
        assert refund(issuer).code == "task_frozen"
        assert issuer.task_thaw("org").code == issuer.task_thaw("t1").code == "thawed"
        assert refund(issuer).code == "suspended"
        assert issuer.thaw().code == "resumed"
        assert issuer.admit(published(issuer, "after")).code == "admitted"
    lines = made.sink.read_bytes().splitlines()[1:]
    sequences = [json.loads(line)["sequence"] for line in lines]
    assert sequences == list(range(1, len(lines) + 1))


@pytest.mark.spec("LED-08", "AUD-02")
@pytest.mark.parametrize("lost", ["the first", "the second", "both"])
def test_one_complete_sink_of_two_is_enough_and_the_other_is_begun_anew(tmp_path: Path, lost: str) -> None:
    local = 'sink.local = { type = "jsonl", path = "audit", required = true }'
    changes = {local: f"{local}\n{local.replace('local', 'second').replace('audit', 'other')}"}
    made = standard_issuer(tmp_path / "f0", port=9, changes=changes)
    second = made.sink.parent.with_name("other") / made.sink.name
    file = saved(made)
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    whole = made.sink.read_bytes()
    assert second.read_bytes() == whole
    for sink, words in ((made.sink, {"the first", "both"}), (second, {"the second", "both"})):
        if lost in words:
            sink.unlink()
    answer = restored(made, file)
    assert states(made, [effect]) == [None if lost == "both" else "unknown"]
    assert (answer.more["frozen"] == []) == (lost != "both")
    with made.open() as issuer:
        issuer.task_thaw("org")
        issuer.task_thaw("t1")
        assert issuer.thaw().code == ("resumed" if lost == "both" else "nothing_to_change")
        assert issuer.admit(published(issuer, "v2")).code == "admitted"
    went_on = [sink.read_bytes().startswith(whole) for sink in (made.sink, second)]
    assert went_on == [lost == "the second", lost == "the first"]


@pytest.mark.spec("LED-08", "AUD-03")
def test_a_draft_that_names_other_sinks_decides_none_of_a_restore(made: Made) -> None:
    file = saved(made)
    text = made.profile.read_text()
    made.profile.write_text(text.replace("sink.local", "sink.renamed"))
    told = Issuer.ledger_restore(made.profile, file)
    assert (told.code, told.more["sinks"]) == ("restored", {"local": "complete"})


def another_story(lines: list[bytes]) -> list[bytes]:
    document = json.loads(lines[4])
    document["span"]["attributes"]["permit.task.name"] = "another"
    return [*lines[:4], line_of(document), *lines[5:]]


def line_of(document: dict[str, object]) -> bytes:
    body = json.dumps(document["span"], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    document["leaf"] = leaf_hash(body).hex()
    text = json.dumps({**document, "span": 0}, sort_keys=True, separators=(",", ":")).encode()
    return text.replace(b'"span":0', b'"span":' + body) + b"\n"


def flipped(lines: list[bytes]) -> list[bytes]:
    return [
        *lines[:-2],
        lines[-2].replace(b'"permit.actor":"agent-7"', b'"permit.actor":"agent-8"'),
        lines[-1],
    ]


def missing_one(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-2], lines[-1]]


def swapped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:-2], lines[-1], lines[-2]]


def elsewhere(lines: list[bytes]) -> list[bytes]:
    """The leaf is right for the body, and the body is of another place."""
    document = json.loads(lines[-1])
    document["sequence"] += 1
    return [*lines, line_of(document)]


def unheard_of(lines: list[bytes]) -> list[bytes]:
    document = json.loads(lines[-1])
    document["sequence"] += 1
    attributes = document["span"]["attributes"]
    attributes["permit.sequence"] += 1
    attributes["permit.resource.id"] = "line\u2028end"
    return [*lines, line_of(document)]


def a_new_epoch_out_of_nothing(lines: list[bytes]) -> list[bytes]:
    document = json.loads(lines[-1])
    document["epoch"] = document["span"]["attributes"]["permit.epoch"] = 2
    document["sequence"] = document["span"]["attributes"]["permit.sequence"] = 9
    return [*lines, line_of(document)]


@pytest.mark.spec("LED-08", "LED-06", "AUD-04")
@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        (another_story, "sink_diverged"),
        (flipped, "sink_damaged"),
        (missing_one, "sink_damaged"),
        (swapped, "sink_damaged"),
        (elsewhere, "sink_damaged"),
        (unheard_of, "sink_damaged"),
        (a_new_epoch_out_of_nothing, "sink_damaged"),
    ],
)
def test_a_sink_that_forks_or_does_not_prove_its_lines_is_refused_and_nothing_changes(
    made: Made, bend: Callable[[list[bytes]], list[bytes]], reason: str
) -> None:
    file = saved(made)
    with made.open() as issuer:
        sent(issuer, "v1")
    lines = made.sink.read_bytes().splitlines(keepends=True)
    bent = b"".join(bend(lines))
    assert bent != b"".join(lines)
    made.sink.write_bytes(bent)
    before = tree_of(made.folder)
    assert refused(lambda: Issuer.ledger_restore(made.profile, file)) == reason
    assert tree_of(made.folder) == before
    assert made.sink.read_bytes() == bent
    # The sentence's own way out: moved away, it is missing, and tasks are frozen.
    made.sink.rename(made.sink.with_name("away"))
    assert restored(made, file).more["sinks"] == {"local": "missing"}


@pytest.mark.spec("LED-08", "AUD-02")
def test_a_torn_last_line_was_never_acknowledged_and_is_not_read(made: Made) -> None:
    file = saved(made)
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    with made.sink.open("ab") as sink:
        sink.write(b'{"epoch":1,"lane":0,"leaf":"00')
    assert restored(made, file).more["replayed"] == 1
    assert states(made, [effect]) == ["unknown"]


@pytest.mark.spec("LED-08", "BUD-04")
def test_a_forged_outcome_in_a_sink_releases_nothing(made: Made) -> None:
    """Whoever can write the file can go on in it; only what holds or takes away is heard."""
    with made.open() as issuer:
        effect = sent(issuer, "v1")
    file = saved(made)
    lines = made.sink.read_bytes().splitlines(keepends=True)
    document = next(json.loads(line) for line in lines if b'"permit.effect.admitted"' in line)
    last = json.loads(lines[-1])["sequence"]
    span = document["span"]
    span["name"], document["sequence"] = "permit.effect.no_effect", last + 1
    held = {
        key: value
        for key, value in span["attributes"].items()
        if key.split(".")[1] not in {"cost", "reservation", "deadline_ms", "tier", "permit", "bundle"}
        and key not in {"permit.engine", "permit.policy.ids"}
    }
    span["attributes"] = {
        **held,
        "permit.sequence": last + 1,
        "permit.transition": "effect.no_effect",
        "permit.state.from": "admitted",
        "permit.state.to": "no_effect",
        "permit.evidence.class": "service",
    }
    made.sink.write_bytes(b"".join([*lines, line_of(document)]))
    restored(made, file)
    with made.open() as issuer:
        shown = issuer.show(effect)
        assert (shown.state, budget_line(issuer, "t1")["reserved"]) == ("unknown", 1)
        (evidence,) = shown.more["record"]["evidence"]  # type: ignore[index]
        assert evidence["reference"] == f"no_effect at local 1.{last + 1}"


# ------------------------------------------------------------------------------------------- epochs


@pytest.mark.spec("LED-08", "LED-06", "AUD-05")
def test_the_sink_goes_on_in_the_new_epoch_and_refuses_the_ledgers_of_the_old_one(made: Made) -> None:
    file = saved(made)
    with made.open() as issuer:
        sent(issuer, "v1")
    older = made.folder.parent / "older"
    shutil.copytree(made.ledger.parent, older)
    base = restored(made, file).more["base"]
    assert isinstance(base, dict)
    begins = base["sequence"] + 1
    with made.open() as issuer:
        sent(issuer, "v2")
    places = [
        (row["epoch"], row["sequence"]) for row in map(json.loads, made.sink.read_text().splitlines()[1:])
    ]
    joint = places.index((2, begins))
    assert places[:joint] == [(1, number) for number in range(1, joint + 1)]
    assert places[joint:] == [(2, number) for number in range(begins, begins + len(places) - joint)]
    for back in (older / "ledger.sqlite", file):
        for name in ("ledger.sqlite-wal", "ledger.sqlite-shm"):
            (made.ledger.parent / name).unlink(missing_ok=True)
        shutil.copy(back, made.ledger)
        with made.open() as issuer:
            assert refund(issuer).code == "audit_unavailable"
            assert issuer.task_close("t1.a").more["reason"] == "halted"
            assert issuer.list().code == "found"
        checked = Issuer.ledger_check(made.profile)
        assert [row["check"] for row in checked.more["findings"]] == ["behind_sink"]  # type: ignore[attr-defined]


@pytest.mark.spec("LED-08")
def test_a_backup_can_be_restored_again_and_again_and_no_admission_is_ever_forgotten(made: Made) -> None:
    first = saved(made)
    with made.open() as issuer:
        one = sent(issuer, "one")
    assert restored(made, first).more["epoch"] == 2
    with made.open() as issuer:
        two = sent(issuer, "two")
    second = saved(made, "second.sqlite")
    with made.open() as issuer:
        three = sent(issuer, "three")
    for file, epoch in ((first, 3), (second, 4), (first, 5)):
        assert restored(made, file).more["epoch"] == epoch
        assert states(made, (one, two, three)) == ["unknown"] * 3
        with made.open() as issuer:
            assert budget_line(issuer, "t1")["reserved"] == 3
    assert sorted(path.name for path in made.ledger.parent.glob("before-*")) == [
        *(f"before-epoch-{epoch}" for epoch in (2, 3, 4, 5)),
    ]
