import os
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.operations.contract import (
    Answer,
    NotDispatchedError,
    Proof,
)
from issuer.operations.file_adapter import (
    FileAction,
)
from tests.support.files import (
    CHANGING,
    adapter_for,
    edit_file,
    move_file_aside,
    name_it_twice,
    open_file_to_others,
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
    swap_root_for_link,
    tree,
    write,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return private_root(tmp_path)


@pytest.mark.spec("EFF-07", "OPR-04", "REP-04")
@pytest.mark.parametrize("action", CHANGING)
@pytest.mark.parametrize(
    ("happens", "word"),
    [
        (swap_folder_for_link, "path_through_link"),
        (swap_folder, "target_changed"),
        (swap_root, "target_changed"),
        (swap_root_for_link, "root_missing"),
        (remove_folder, "directory_missing"),
        (swap_file, "target_changed"),
        (move_file_aside, "target_changed"),
        (swap_file_for_link, "file_not_plain"),
        (edit_file, "target_changed"),
        (remove_file, "file_missing"),
        (name_it_twice, "file_has_other_names"),
        (open_to_others, "root_not_private"),
        (open_file_to_others, "file_not_private"),
    ],
)
def test_a_target_that_changed_since_preparation_is_left_alone(
    root: Path, action: FileAction, happens: Callable[[Path], None], word: str
) -> None:
    adapter = adapter_for(root, action)
    pinned = adapter.prepare(request())
    happens(root)
    before = tree(root.parent)
    assert adapter.still_holds(request(), pinned) == word
    with pytest.raises(NotDispatchedError) as refused:
        adapter.dispatch(order_for(pinned, request()))
    assert refused.value.reason == "target_changed"
    assert tree(root.parent) == before


@pytest.mark.spec("EFF-07", "REP-04")
@pytest.mark.parametrize(
    ("happens", "word"),
    [
        (swap_folder_for_link, "path_through_link"),
        (swap_folder, "target_changed"),
        (swap_root, "target_changed"),
        (swap_root_for_link, "root_missing"),
        (remove_folder, "directory_missing"),
    ],
)
def test_nothing_is_created_in_another_folder_than_the_prepared_one(
    root: Path, happens: Callable[[Path], None], word: str
) -> None:
    adapter = adapter_for(root, FileAction.CREATE)
    pinned = adapter.prepare(request("notes/b.txt"))
    happens(root)
    before = tree(root.parent)
    assert adapter.still_holds(request("notes/b.txt"), pinned) == word
    with pytest.raises(NotDispatchedError, match=r"^target_changed$"):
        adapter.dispatch(order_for(pinned, request("notes/b.txt")))
    assert tree(root.parent) == before


@pytest.mark.spec("OPR-04", "REP-04", "EFF-07")
@pytest.mark.parametrize("kind", ["file", "link", "folder"])
@pytest.mark.parametrize("unnamed", [True, False])
def test_a_name_that_was_taken_meanwhile_is_no_effect_and_the_file_system_says_so(
    root: Path, kind: str, unnamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    adapter, asked = adapter_for(root, FileAction.CREATE), request("notes/b.txt")
    pinned = adapter.prepare(asked)
    target = root / "notes" / "b.txt"
    if kind == "file":
        write(target, "theirs")
    elif kind == "link":
        target.symlink_to("nowhere")
    else:
        target.mkdir()
    before = tree(root)
    assert adapter.still_holds(asked, pinned) == "file_exists"
    given = adapter.dispatch(order_for(pinned, asked))
    assert given == Answer(proof=Proof.NO_EFFECT, source="file:exists")
    assert tree(root) == before


@pytest.mark.spec("REP-04")
@pytest.mark.parametrize("action", FileAction)
def test_after_the_deadline_nothing_changes(root: Path, action: FileAction) -> None:
    path = "b.txt" if action is FileAction.CREATE else "notes/a.txt"
    adapter = adapter_for(root, action)
    pinned = adapter.prepare(request(path))
    before = tree(root)
    with pytest.raises(NotDispatchedError, match=r"^deadline_passed$"):
        adapter.dispatch(order_for(pinned, request(path), remaining_ms=0))
    ticks = iter([0.0, 0.0, 11.0])
    late = adapter_for(root, action, ticks=lambda: next(ticks))
    with pytest.raises(NotDispatchedError, match=r"^deadline_passed$"):
        late.dispatch(order_for(pinned, request(path)))
    assert tree(root) == before
