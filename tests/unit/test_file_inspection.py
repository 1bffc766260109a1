"""What an entry shows about an effect on it afterwards (ADR-0018): ours, untouched, or neither."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.operations import file_inspection
from issuer.operations.contract import Inspection, Inspector, Look, Preparation, Request, Seen
from issuer.operations.file_adapter import FileAction, FileAdapter, FileSettings
from issuer.operations.templates import Template
from ledger.model import DurationMs
from tests.support.files import (
    CHANGING,
    EFFECT,
    adapter_for,
    edit_file,
    name_it_twice,
    open_to_others,
    order_for,
    private_root,
    remove_file,
    remove_folder,
    request,
    swap_file,
    swap_file_for_link,
    swap_folder,
    swap_folder_for_link,
    swap_root,
    tree,
    write,
)

HERE = {
    FileAction.CREATE: "notes/b.txt",
    FileAction.REPLACE: "notes/a.txt",
    FileAction.DELETE: "notes/a.txt",
}
STAGED = f".permit-staged-{EFFECT}"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return private_root(tmp_path)


def looked(adapter: Inspector, pinned: Preparation, asked: Request, remaining_ms: int = 10_000) -> Inspection:
    return adapter.inspect(
        Look(effect_id=EFFECT, request=asked, preparation=pinned, remaining_ms=DurationMs(remaining_ms))
    )


def seen(adapter: Inspector, pinned: Preparation, asked: Request) -> Seen:
    given = looked(adapter, pinned, asked)
    assert (given.source, given.reference, given.charged) == (f"file:{given.seen}", "", None)
    return given.seen


@pytest.mark.spec("REC-02", "OPR-01")
@pytest.mark.parametrize("action", FileAction)
@pytest.mark.parametrize("happened", [True, False])
def test_the_entry_tells_what_happened_from_what_did_not_and_looking_changes_nothing(
    root: Path, action: FileAction, happened: bool
) -> None:
    adapter, asked = adapter_for(root, action), request(HERE[action])
    pinned = adapter.prepare(asked)
    if happened:
        adapter.dispatch(order_for(pinned, asked))
    before = tree(root)
    assert seen(adapter, pinned, asked) is (Seen.FOUND if happened else Seen.ABSENT)
    assert tree(root) == before


@pytest.mark.spec("REC-02")
@pytest.mark.parametrize("action", [FileAction.CREATE, FileAction.REPLACE])
def test_a_content_that_was_only_staged_is_no_effect(root: Path, action: FileAction) -> None:
    """For a creation the staged name has changed the directory: then nothing is proven at all."""
    adapter, asked = adapter_for(root, action), request(HERE[action])
    pinned = adapter.prepare(asked)
    write(root / "notes" / STAGED, "new")
    expected = Seen.UNCLEAR if action is FileAction.CREATE else Seen.ABSENT
    assert seen(adapter, pinned, asked) is expected


@pytest.mark.spec("REC-02", "REC-05")
def test_a_file_that_was_made_and_fetched_again_leaves_no_proof_of_absence(root: Path) -> None:
    adapter, asked = adapter_for(root, FileAction.CREATE), request("notes/b.txt")
    pinned = adapter.prepare(asked)
    adapter.dispatch(order_for(pinned, asked))
    (root / "notes" / "b.txt").unlink()
    assert seen(adapter, pinned, asked) is Seen.UNCLEAR


@pytest.mark.spec("REC-02", "REC-05")
def test_a_file_that_was_restored_as_it_was_is_not_the_old_one(root: Path) -> None:
    """Even one that has got its old number back, which file systems give away again at once."""
    adapter, asked = adapter_for(root, FileAction.REPLACE), request()
    target = root / "notes" / "a.txt"
    pinned = adapter.prepare(asked)
    adapter.dispatch(order_for(pinned, asked))
    target.unlink()
    write(target, "old")
    assert seen(adapter, pinned, asked) is Seen.DIFFERS
    number = f"{target.stat().st_dev}:{target.stat().st_ino}"
    reused = Preparation(
        actual={**pinned.actual, "file": number},
        destination=pinned.destination,
        preconditions=pinned.preconditions,
    )
    assert seen(adapter, reused, asked) is Seen.DIFFERS


@pytest.mark.spec("REC-02")
@pytest.mark.parametrize("happened", [True, False])
def test_old_and_new_content_that_are_equal_are_told_apart_by_the_file(root: Path, happened: bool) -> None:
    adapter, asked = adapter_for(root, FileAction.REPLACE), request(text="old")
    pinned = adapter.prepare(asked)
    if happened:
        adapter.dispatch(order_for(pinned, asked))
    assert seen(adapter, pinned, asked) is (Seen.FOUND if happened else Seen.ABSENT)


@pytest.mark.spec("REC-02", "REC-05")
@pytest.mark.parametrize("action", FileAction)
@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (swap_folder, Seen.DIFFERS),
        (swap_root, Seen.DIFFERS),
        (swap_folder_for_link, Seen.UNCLEAR),
        (remove_folder, Seen.UNCLEAR),
        (open_to_others, None),
    ],
)
def test_another_folder_in_its_place_proves_nothing(
    root: Path, action: FileAction, happens: Callable[[Path], None], expected: Seen | None
) -> None:
    adapter, asked = adapter_for(root, action), request(HERE[action])
    pinned = adapter.prepare(asked)
    adapter.dispatch(order_for(pinned, asked))
    happens(root)
    # Where others can write by now, what is there may be theirs.
    assert seen(adapter, pinned, asked) is (expected or Seen.UNCLEAR)


@pytest.mark.spec("REC-02", "REC-05")
@pytest.mark.parametrize(
    ("action", "happens", "expected"),
    [
        (FileAction.REPLACE, swap_file, Seen.DIFFERS),
        (FileAction.REPLACE, swap_file_for_link, Seen.DIFFERS),
        (FileAction.REPLACE, edit_file, Seen.DIFFERS),
        (FileAction.REPLACE, remove_file, Seen.DIFFERS),
        (FileAction.REPLACE, name_it_twice, Seen.DIFFERS),
        (FileAction.DELETE, swap_file, Seen.DIFFERS),
        (FileAction.DELETE, swap_file_for_link, Seen.DIFFERS),
        (FileAction.DELETE, edit_file, Seen.DIFFERS),
        (FileAction.DELETE, name_it_twice, Seen.DIFFERS),
    ],
)
def test_what_somebody_else_did_to_the_file_proves_nothing(
    root: Path, action: FileAction, happens: Callable[[Path], None], expected: Seen
) -> None:
    adapter = adapter_for(root, action)
    pinned = adapter.prepare(request())
    happens(root)
    assert seen(adapter, pinned, request()) is expected


@pytest.mark.spec("REC-02", "REC-05")
@pytest.mark.parametrize("put", ["another text", "folder", "link", "the new text into the old file"])
def test_only_exactly_the_content_of_this_effect_is_its_own(root: Path, put: str) -> None:
    adapter, asked = adapter_for(root, FileAction.REPLACE), request()
    pinned, target = adapter.prepare(asked), root / "notes" / "a.txt"
    if put == "the new text into the old file":
        target.write_text("new")
    else:
        target.unlink()
        if put == "folder":
            target.mkdir()
        elif put == "link":
            write(root / "elsewhere", "new")
            target.symlink_to("../elsewhere")
        else:
            write(target, "new, or nearly so")
    assert seen(adapter, pinned, asked) is Seen.DIFFERS


@pytest.mark.spec("REC-02", "REC-05")
def test_a_deletion_of_a_file_that_is_there_again_proves_nothing(root: Path) -> None:
    adapter = adapter_for(root, FileAction.DELETE)
    pinned = adapter.prepare(request())
    adapter.dispatch(order_for(pinned, request()))
    write(root / "notes" / "a.txt", "old")
    assert seen(adapter, pinned, request()) is Seen.DIFFERS


@pytest.mark.spec("REC-02", "REC-05")
@pytest.mark.parametrize(("text", "expected"), [("{text}", Seen.UNCLEAR), ("{text} {effect_id}", Seen.FOUND)])
def test_where_others_write_too_only_a_content_with_the_effect_id_is_ours(
    root: Path, text: str, expected: Seen
) -> None:
    (root / "notes").chmod(0o777)
    adapter = FileAdapter(
        FileSettings(
            action=FileAction.CREATE,
            root=root,
            path=Template.parse("{path}"),
            content=Template.parse(text),
        )
    )
    pinned, asked = adapter.prepare(request("notes/b.txt")), request("notes/b.txt")
    adapter.dispatch(order_for(pinned, asked))
    assert seen(adapter, pinned, asked) is expected


@pytest.mark.spec("REC-02")
def test_the_file_of_another_account_is_not_ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, asked = adapter_for(root, FileAction.CREATE), request("notes/b.txt")
    pinned = adapter.prepare(asked)
    adapter.dispatch(order_for(pinned, asked))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert seen(adapter, pinned, asked) is Seen.DIFFERS


@pytest.mark.spec("REC-02")
@pytest.mark.parametrize("action", FileAction)
def test_on_a_file_system_of_another_machine_nothing_is_absent(
    root: Path, action: FileAction, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a dead process asked a server for may still be carried out; what is found is found all the same."""
    adapter, asked = adapter_for(root, action), request(HERE[action])
    pinned = adapter.prepare(asked)
    device = root.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / / rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(file_inspection, "_MOUNTS", mounts)
    assert seen(adapter, pinned, asked) is Seen.UNCLEAR
    mounts.unlink()
    assert seen(adapter, pinned, asked) is Seen.UNCLEAR
    adapter.dispatch(order_for(pinned, asked))
    assert seen(adapter, pinned, asked) is Seen.FOUND


@pytest.mark.spec("REC-02", "REC-01")
@pytest.mark.parametrize("action", CHANGING)
def test_what_cannot_be_read_or_not_in_time_is_unclear(
    root: Path, action: FileAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, asked = adapter_for(root, action), request()
    pinned = adapter.prepare(asked)
    assert looked(adapter, pinned, asked, remaining_ms=0).seen is Seen.UNCLEAR
    ticks = itertools.chain([0.0, 0.0], itertools.repeat(11.0))
    slow = adapter_for(root, action, ticks=lambda: next(ticks))
    assert looked(slow, pinned, asked).seen is Seen.UNCLEAR

    def broken(*_args: object) -> bytes:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "read", broken)
    assert looked(adapter, pinned, asked).seen is Seen.UNCLEAR


@pytest.mark.spec("REC-02", "REC-05")
def test_a_file_that_changes_while_it_is_read_is_unclear(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, asked = adapter_for(root, FileAction.REPLACE), request()
    pinned, real = adapter.prepare(asked), os.read

    def read_and_touch(descriptor: int, count: int) -> bytes:
        os.utime(root / "notes" / "a.txt", ns=(1, 1))
        return real(descriptor, count)

    monkeypatch.setattr(os, "read", read_and_touch)
    assert seen(adapter, pinned, asked) is Seen.UNCLEAR


@pytest.mark.spec("REC-01")
@pytest.mark.parametrize("action", FileAction)
@pytest.mark.parametrize("happened", [True, False])
def test_a_look_whose_time_is_over_says_nothing(root: Path, action: FileAction, happened: bool) -> None:
    adapter, asked = adapter_for(root, action), request(HERE[action])
    pinned = adapter.prepare(asked)
    if happened:
        adapter.dispatch(order_for(pinned, asked))
    assert looked(adapter, pinned, asked, remaining_ms=0).seen is Seen.UNCLEAR


@pytest.mark.spec("REC-02", "LED-01")
@pytest.mark.parametrize("action", FileAction)
def test_what_is_said_to_be_found_is_made_to_stay(
    root: Path, action: FileAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender may have died between the change and the sync of the directory."""
    adapter, asked = adapter_for(root, action), request(HERE[action])
    pinned = adapter.prepare(asked)
    adapter.dispatch(order_for(pinned, asked))

    def broken(_descriptor: int) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    assert seen(adapter, pinned, asked) is Seen.UNCLEAR
