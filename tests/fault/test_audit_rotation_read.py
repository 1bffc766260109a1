"""Who reads a rotated sink: both verifiers over its files and its folder, restore, doctor, `sink list`."""

import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import issuer.sink_building as building
from audit import JsonlSink, SinkUnavailable
from audit.errors import TrailUnreadable
from audit.sinks.jsonl import create
from audit.sinks.lines import Tail, header_line, read_header, read_span_line
from audit.sinks.reading import read_jsonl
from audit.sinks.segments import segments_of
from issuer.profile import Sink as Declared
from issuer.verifying import Given, verify_exports
from ledger.model import LedgerId, SinkRegistration
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.restoring import published, restored, saved, sent, states
from tests.support.service import Service, answer
from tests.support.shell import issuer_here
from tests.support.spans import LEDGER
from tests.support.trails import CheckpointKey, Signed, signed_trail

FILE = Path(__file__).parents[2] / "audit" / "verifier" / "permit_audit_verifier.py"
KEY = CheckpointKey()
SPANS, PARTS = 40, 4


@pytest.fixture(scope="module")
def verifier() -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_file_verifier", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trail() -> Signed:
    return signed_trail(SPANS, KEY)


@pytest.mark.spec("AUD-09")
@pytest.mark.parametrize("said", [b"null", b"{}", b"[]", b'""', b"0"])
def test_a_header_that_goes_on_after_nothing_is_believed_by_neither_verifier(
    verifier: ModuleType, trail: Signed, tmp_path: Path, said: bytes
) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_bytes(trail.data.replace(b"{", b'{"after":' + said + b",", 1))
    given = Given(keys=(KEY.verifier,), notes=())
    with pytest.raises(TrailUnreadable):
        verify_exports([file], given, lambda _total, _what: lambda _step: None)
    assert verifier.verify_export([file], [], [])[0] == verifier.TAMPERED


def tail_of(line: bytes) -> Tail:
    return read_span_line(line + b"\n")


def put(folder: Path, trail: Signed) -> list[Path]:
    """Write a trail as a rotated sink has it; return its files in order."""
    lines = trail.lines[1:]
    size = SPANS // PARTS
    files = []
    for begin in range(0, SPANS, size):
        part = lines[begin : begin + size]
        after = None if begin == 0 else tail_of(lines[begin - 1])
        is_newest = begin + size == SPANS
        name = "spans.jsonl" if is_newest else f"spans.0000.{begin + 1:012d}-{begin + size:012d}.jsonl"
        files.append(folder / name)
        files[-1].write_bytes(header_line(LEDGER, after) + b"".join(line + b"\n" for line in part))
    return files


def verdicts(verifier: ModuleType, files: Sequence[Path], trail: Signed) -> tuple[str, str]:
    """Return what both verifiers say of files in order."""
    given = Given(keys=(KEY.verifier,), notes=(("c.note", trail.note),))
    ours = verify_exports(files, given, lambda _total, _what: lambda _step: None)
    theirs, _told = verifier.verify_export(
        list(files), [verifier.read_key(KEY.vkey)], [("c.note", trail.note)]
    )
    return ours.code, theirs


def said_of(files: Sequence[Path], trail: Signed) -> tuple[str, str]:
    """Return what is wrong with files in order, and where."""
    given = Given(keys=(KEY.verifier,), notes=(("c.note", trail.note),))
    answer = verify_exports(files, given, lambda _total, _what: lambda _step: None)
    finding = answer.more["verification"]["finding"]  # type: ignore[index]  # one answer's own shape
    return finding["what"], finding["where"]


# ------------------------------------------------------------------------------------------- verification


@pytest.mark.spec("AUD-04", "AUD-09")
def test_files_in_order_are_one_trail_and_so_is_their_folder(
    verifier: ModuleType, trail: Signed, tmp_path: Path
) -> None:
    files = put(tmp_path, trail)
    assert verdicts(verifier, files, trail) == ("verified", "verified")
    given = Given(keys=(KEY.verifier,), notes=(("c.note", trail.note),))
    answer = verify_exports([tmp_path], given, lambda _total, _what: lambda _step: None)
    assert (answer.code, answer.more["verification"]["spans_read"]) == ("verified", SPANS)  # type: ignore[index]
    # A writer was killed between the two names: the newest file has both.
    os.link(files[-1], tmp_path / f"spans.0000.{31:012d}-{40:012d}.jsonl")
    assert verify_exports([tmp_path], given, lambda _total, _what: lambda _step: None).code == "verified"


@pytest.mark.spec("AUD-04")
def test_a_folder_whose_newest_file_becomes_full_meanwhile_is_listed_again(
    trail: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *_full, newest = put(tmp_path, trail)
    lines = newest.read_bytes().splitlines(keepends=True)
    real, waits = Path.open, [True]

    def opened(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == newest and waits:
            waits.clear()
            full = newest.with_name(f"spans.0000.{31:012d}-{35:012d}.jsonl")
            full.write_bytes(b"".join(lines[:6]))
            header = header_line(LEDGER, read_span_line(lines[5]))
            newest.write_bytes(header + b"".join(lines[6:]))
        return real(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", opened)
    given = Given(keys=(KEY.verifier,), notes=(("c.note", trail.note),))
    assert verify_exports([tmp_path], given, lambda _total, _what: lambda _step: None).code == "verified"
    assert not waits


@pytest.mark.spec("AUD-04", "SUR-03")
def test_the_command_takes_a_folder(trail: Signed, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    put(folder, trail)
    (tmp_path / "c.note").write_bytes(trail.note)
    asked = ("--checkpoint", "c.note", "--key", KEY.vkey, "--json")
    assert issuer_here("audit", "verify", "audit", *asked, at=tmp_path).code == "verified"
    segments_of(folder / "spans.jsonl")[1].path.unlink()
    assert issuer_here("audit", "verify", "audit", *asked, at=tmp_path).code == "tampered"
    (tmp_path / "none").mkdir()
    assert issuer_here("audit", "verify", "none", *asked, at=tmp_path).code == "malformed"


def first_missing(files: list[Path]) -> list[Path]:
    return files[1:]


def middle_missing(files: list[Path]) -> list[Path]:
    return [files[0], *files[2:]]


def swapped(files: list[Path]) -> list[Path]:
    return [files[0], files[2], files[1], files[3]]


def doubled(files: list[Path]) -> list[Path]:
    return [files[0], files[1], files[1], *files[2:]]


def cut_before_the_next(files: list[Path]) -> list[Path]:
    lines = files[1].read_bytes().splitlines(keepends=True)
    files[1].write_bytes(b"".join(lines[:-1]))
    return files


def other_leaf(files: list[Path]) -> list[Path]:
    header, *lines = files[2].read_bytes().splitlines(keepends=True)
    leaf = tail_of(files[1].read_bytes().splitlines()[-1]).leaf.hex().encode()
    files[2].write_bytes(header.replace(leaf, b"0" * 64) + b"".join(lines))
    return files


def other_epoch(files: list[Path]) -> list[Path]:
    header, *lines = files[2].read_bytes().splitlines(keepends=True)
    files[2].write_bytes(header.replace(b'"epoch":0', b'"epoch":1') + b"".join(lines))
    return files


@pytest.mark.spec("AUD-04", "AUD-09")
@pytest.mark.parametrize(
    ("harm", "where"),
    [
        (first_missing, "spans.0000.000000000011-000000000020.jsonl line 1"),
        (middle_missing, "spans.0000.000000000021-000000000030.jsonl line 1"),
        (swapped, "spans.0000.000000000021-000000000030.jsonl line 1"),
        (doubled, "spans.0000.000000000011-000000000020.jsonl line 1"),
        (cut_before_the_next, "spans.0000.000000000021-000000000030.jsonl line 1"),
        (other_leaf, "spans.0000.000000000021-000000000030.jsonl line 1"),
        (other_epoch, "spans.0000.000000000021-000000000030.jsonl line 1"),
    ],
)
def test_files_that_do_not_follow_each_other_are_no_trail_to_either_verifier(
    verifier: ModuleType,
    trail: Signed,
    tmp_path: Path,
    harm: Callable[[list[Path]], list[Path]],
    where: str,
) -> None:
    files = harm(put(tmp_path, trail))
    assert verdicts(verifier, files, trail) == ("tampered", "tampered")
    assert said_of(files, trail) == ("gap", where)


@pytest.mark.spec("AUD-04", "AUD-09")
@pytest.mark.parametrize(
    "change",
    [
        (b'"lane":0', b'"lane":0.0'),
        (b'"epoch":0', b'"epoch":-1'),
        (b'"leaf":"', b'"leaf":"0'),
        (b'"sequence":10', b'"sequence":"10"'),
        (b'{"after":{"epoch":0', b'{"after":{"also":1,"epoch":0'),
        (b'"lane":0', b'"lane":false'),
        (b'{"after":{"epoch":0,', b'{"after":null,"also":{"epoch":0,'),
        (b'"sequence":10', b'"sequence":0'),
        (b'"kind":"permit-audit"', b'"kind": "permit-audit"'),
    ],
)
def test_a_header_in_another_form_is_believed_by_neither_verifier(
    verifier: ModuleType, trail: Signed, tmp_path: Path, change: tuple[bytes, bytes]
) -> None:
    files = put(tmp_path, trail)
    header, *lines = files[1].read_bytes().splitlines(keepends=True)
    assert change[0] in header
    files[1].write_bytes(header.replace(*change) + b"".join(lines))
    given = Given(keys=(KEY.verifier,), notes=())
    with pytest.raises(TrailUnreadable):
        verify_exports(files, given, lambda _total, _what: lambda _step: None)
    try:
        verdict, _told = verifier.verify_export(files, [], [])
    except verifier.Unusable:
        verdict = verifier.MALFORMED
    assert verdict in {verifier.MALFORMED, verifier.TAMPERED}


def renamed(full: Path) -> None:
    full.rename(full.with_name("spans.1.jsonl"))


def behind_a_link(full: Path) -> None:
    full.rename(full.with_suffix(".real"))
    full.symlink_to(full.with_suffix(".real"))


def cut(full: Path) -> None:
    full.write_bytes(b"".join(full.read_bytes().splitlines(keepends=True)[:-1]))


def of_another_ledger(full: Path) -> None:
    full.write_bytes(full.read_bytes().replace(LEDGER.encode(), b"ldg_0000000a", 1))


def a_pipe(full: Path) -> None:
    full.unlink()
    os.mkfifo(full)


@pytest.mark.spec("AUD-04", "AUD-03")
@pytest.mark.parametrize("harm", [renamed, behind_a_link, cut, of_another_ledger, a_pipe])
def test_a_full_file_that_is_not_what_the_next_header_says_is_missing(
    trail: Signed, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    files = put(tmp_path, trail)
    sink = JsonlSink(files[-1], LEDGER, name="local", required=True)
    assert [path.name for path in sink.chain().paths] == [file.name for file in files[:-1]]
    assert sink.chain().missing is None
    harm(files[1])
    missing = sink.chain().missing
    assert missing is not None
    assert missing.sequence == 20
    with pytest.raises(SinkUnavailable) as caught:
        list(read_jsonl(files[-1], LEDGER, name="local"))
    assert caught.value.reason == "damaged"


# --------------------------------------------------------------------- an issuer whose files are tiny


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(building, "SEGMENT_BYTES", 1_000)
    return standard_issuer(tmp_path / "f0", port=9)


def told(made: Made) -> list[tuple[int, int]]:
    with made.sink.open("rb") as file:
        ledger_id = read_header(file.readline()).ledger_id
    spans = read_jsonl(made.sink, LedgerId(ledger_id), name="local")
    return [(span.tail.epoch, span.tail.sequence) for span in spans]


@pytest.mark.spec("LED-08", "AUD-02")
def test_a_restore_learns_of_admissions_from_all_files_of_a_sink(made: Made) -> None:
    with made.open() as issuer:
        void = published(issuer, "void")
    file = saved(made)
    with made.open() as issuer:
        lost = [sent(issuer, f"lost-{turn}") for turn in range(4)]
    before = len(segments_of(made.sink))
    assert before >= 4
    answer = restored(made, file)
    assert answer.more["sinks"] == {"local": "complete"}
    assert states(made, (void, *lost)) == ["revoked", *(["unknown"] * 4)]
    with made.open() as issuer:
        issuer.thaw()
        sent(issuer, "after")
        rows: Any = issuer.sink_list().more["sinks"]
        assert [(row["state"], row["behind"]) for row in rows] == [("ready", 0)]
    places = told(made)
    assert places == sorted(places)
    assert {epoch for epoch, _sequence in places} == {1, 2}
    assert len(segments_of(made.sink)) > before


@pytest.mark.spec("LED-08", "AUD-03")
def test_a_sink_whose_newest_file_is_lost_is_begun_anew_and_its_full_files_are_kept_aside(made: Made) -> None:
    with made.open() as issuer:
        for turn in range(3):
            sent(issuer, f"one-{turn}")
    file = saved(made)
    full = {each.path.name: each.path.read_bytes() for each in segments_of(made.sink)}
    assert len(full) >= 2
    made.sink.unlink()
    answer = restored(made, file)
    assert answer.more["sinks"] == {"local": "missing"}
    kept = {each.name: each.read_bytes() for each in made.sink.parent.glob("*.before-epoch-2")}
    assert kept == {f"{name}.before-epoch-2": data for name, data in full.items()}
    places = told(made)
    assert [sequence for _epoch, sequence in places] == list(range(1, len(places) + 1))


@pytest.mark.spec("AUD-02", "LED-06")
def test_a_sink_is_moved_to_a_copy_of_all_its_files_and_not_to_one_that_lacks_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "SEGMENT_BYTES", 1_000)
    with Service(*[answer(201)] * 4) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port)
        with made.open() as issuer:
            for turn in range(2):
                assert issuer.commit(permitted(refund(issuer, order=f"o-{turn}"))).code == "succeeded"
    with made.open() as issuer:
        whole, lacking = tmp_path / "whole", tmp_path / "lacking"
        for folder in (whole, lacking):
            shutil.copytree(made.sink.parent, folder)
        segments_of(lacking / made.sink.name)[0].path.unlink()
        said = issuer.sink_replace("local", path=str(lacking))
        assert said.code == "audit_unavailable"
        assert "is missing" in said.say
        assert issuer.sink_replace("local", path=str(whole)).code == "sink_replaced"
        sent(issuer, "after")
    places = told(replace(made, sink=whole / made.sink.name))
    assert [sequence for _epoch, sequence in places] == list(range(1, len(places) + 1))
    assert len(places) > len(told(made))


@pytest.mark.spec("AUD-04", "OPR-04")
def test_doctor_tells_a_full_file_that_is_missing_and_dispatch_goes_on(made: Made) -> None:
    with made.open() as issuer:
        for turn in range(3):
            sent(issuer, f"one-{turn}")
        assert "audit file that ends" not in issuer_here("doctor", "--json", at=made.folder).out
        gone = segments_of(made.sink)[0]
        gone.path.rename(made.folder / "away")
        sent(issuer, "two")
        ran = issuer_here("doctor", "--json", at=made.folder)
        assert ran.code == "audit_unavailable"
        assert f"the full audit file that ends with span {gone.last} is missing" in ran.out
        (made.folder / "away").rename(gone.path)
        assert "audit file that ends" not in issuer_here("doctor", "--json", at=made.folder).out


@pytest.mark.spec("AUD-08")
def test_the_bound_of_the_profile_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    create(path, LEDGER)
    registration = SinkRegistration(name="local", kind="jsonl", location=str(path))
    for text, size in ((None, 64 << 20), ("1 MiB", 1 << 20), ("2 GiB", 2 << 30)):
        keys = {"type": "jsonl", "path": "audit", **({"segment": text} if text else {})}
        declared = Declared.model_validate(keys)
        sink = building.built_sink(registration, LEDGER, declared)
        assert isinstance(sink, JsonlSink)
        assert sink._segment_bytes == size
