import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from issuer.operations.contract import (
    Adapter,
    Answer,
    PreparationRefusedError,
    Proof,
)
from issuer.operations.file_adapter import (
    CONTENT_BYTES_MAX,
    FileAction,
)
from ledger.canonical import canonical_bytes
from tests.support.files import (
    CHANGING,
    EFFECT,
    WRITING,
    adapter_for,
    order_for,
    perform,
    private_root,
    request,
    tree,
    write,
)

NO_FILE = "file that must not be touched"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return private_root(tmp_path)


@pytest.mark.spec("OPR-01", "REP-06")
@pytest.mark.parametrize(
    ("action", "path", "after", "source"),
    [
        (
            FileAction.CREATE,
            "notes/b.txt",
            {"notes": None, "notes/a.txt": "old", "notes/b.txt": "new"},
            "created",
        ),
        (FileAction.REPLACE, "notes/a.txt", {"notes": None, "notes/a.txt": "new"}, "replaced"),
        (FileAction.DELETE, "notes/a.txt", {"notes": None}, "deleted"),
    ],
)
def test_one_file_changes_and_nothing_else(
    root: Path, action: FileAction, path: str, after: Mapping[str, str | None], source: str
) -> None:
    adapter: Adapter = adapter_for(root, action)
    pinned = adapter.prepare(request(path))
    assert adapter.still_holds(request(path), pinned) is None
    given = adapter.dispatch(order_for(pinned, request(path)))
    assert given == Answer(proof=Proof.SUCCEEDED, source=f"file:{source}")
    assert tree(root) == {"notes": None, **after}


@pytest.mark.spec("EFF-06", "EFF-02")
@pytest.mark.parametrize("action", FileAction)
def test_preparation_changes_nothing_and_pins_the_entry_by_identity(root: Path, action: FileAction) -> None:
    path = "notes/b.txt" if action is FileAction.CREATE else "notes/a.txt"
    before = tree(root)
    pinned = adapter_for(root, action).prepare(request(path))
    assert tree(root) == before
    here, folder, file = ((root / name).stat() for name in ("", "notes", "notes/a.txt"))
    expected = {
        "kind": "file",
        "root": f"{here.st_dev}:{here.st_ino}",
        "directory": f"{folder.st_dev}:{folder.st_ino}",
        "name": Path(path).name,
    }
    conditions: dict[str, object] = {"file": "absent", "directory_changed": str(folder.st_ctime_ns)}
    if action is not FileAction.CREATE:
        expected["file"] = f"{file.st_dev}:{file.st_ino}"
        digest, changed = hashlib.sha256(b"old").hexdigest(), str(file.st_ctime_ns)
        conditions = {"size": 3, "sha256": digest, "mode": "0640", "changed": changed}
    assert pinned.actual == expected
    assert pinned.preconditions == conditions
    assert pinned.destination == {"kind": "file", "root": str(root), "action": str(action)}
    canonical_bytes(pinned.actual)
    canonical_bytes(pinned.preconditions)
    canonical_bytes(pinned.destination)


def test_a_root_behind_a_link_is_pinned_where_it_really_is(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    pinned = adapter_for(tmp_path / "alias", FileAction.DELETE).prepare(request())
    assert pinned.destination["root"] == str(root)
    assert pinned == adapter_for(root, FileAction.DELETE).prepare(request())


# -- paths


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "/",
            "/etc/passwd",
            "notes/",
            "notes//a.txt",
            ".",
            "..",
            "./a",
            "notes/.",
            "notes/..",
            "../place/x",
        ),
        *(
            "../place/x",
            "notes/../../x",
            "a\x00b",
            "a\nb",
            "a\x7fb",
            "a\u200bb",
            "a\u202eb",
            "a\u2028b",
            "\ud800",
        ),
        *("n" * 256, "ä" * 128, "/".join("d" * 33), ".permit-staged-x", "notes/.permit-staged-" + EFFECT),
    ],
)
@pytest.mark.parametrize("action", FileAction)
def test_a_path_that_is_not_plain_is_refused(root: Path, path: str, action: FileAction) -> None:
    before = tree(root)
    with pytest.raises(PreparationRefusedError) as refused:
        adapter_for(root, action).prepare(request(path))
    assert refused.value.code == "path_not_plain"
    assert refused.value.message == "The file cannot be prepared as the operation says."
    assert tree(root) == before


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize("action", FileAction)
def test_no_symbolic_link_is_followed_below_the_root(root: Path, tmp_path: Path, action: FileAction) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    write(outside / "x.txt", NO_FILE)
    (root / "link").symlink_to(outside)
    (root / "inner").symlink_to("notes")
    (root / "file").symlink_to(outside / "x.txt")
    (root / "dangling").symlink_to(outside / "y.txt")
    for path, code in [
        ("link/x.txt", "path_through_link"),
        ("inner/a.txt", "path_through_link"),
        ("notes/a.txt/x", "path_through_link"),
        ("missing/x.txt", "directory_missing"),
        ("file", "file_exists" if action is FileAction.CREATE else "file_not_plain"),
        ("dangling", "file_exists" if action is FileAction.CREATE else "file_not_plain"),
        ("notes", "file_exists" if action is FileAction.CREATE else "file_not_plain"),
    ]:
        with pytest.raises(PreparationRefusedError) as refused:
            adapter_for(root, action).prepare(request(path))
        assert (path, refused.value.code) == (path, code)
    assert tree(outside) == {"x.txt": NO_FILE}


@pytest.mark.spec("EFF-02", "OPR-04")
@pytest.mark.parametrize("action", CHANGING)
def test_a_file_that_is_not_ours_alone_cannot_be_replaced_or_deleted(root: Path, action: FileAction) -> None:
    def refusal() -> str:
        with pytest.raises(PreparationRefusedError) as refused:
            adapter_for(root, action).prepare(request())
        return refused.value.code

    target = root / "notes" / "a.txt"
    os.link(target, root / "other-name")
    assert refusal() == "file_has_other_names"
    (root / "other-name").unlink()
    target.chmod(0o660)
    assert refusal() == "file_not_private"
    target.chmod(0o600)
    for folder, mode in [(root, 0o770), (root, 0o707), (root / "notes", 0o770), (root / "notes", 0o703)]:
        folder.chmod(mode)
        assert refusal() == "root_not_private"
        folder.chmod(0o700)
    target.unlink()
    assert refusal() == "file_missing"
    os.mkfifo(target, 0o600)
    assert refusal() == "file_not_plain"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("action", CHANGING)
@pytest.mark.parametrize("name", ["", "notes", "notes/a.txt"])
def test_what_another_account_owns_is_not_private(root: Path, action: FileAction, name: str) -> None:
    os.chown(root / name, 12345, -1)
    with pytest.raises(PreparationRefusedError) as refused:
        adapter_for(root, action).prepare(request())
    assert refused.value.code == ("file_not_private" if name.endswith("txt") else "root_not_private")


def test_create_needs_no_private_folder_because_the_file_system_decides(root: Path) -> None:
    root.chmod(0o777)
    assert perform(adapter_for(root, FileAction.CREATE), request("b.txt")).proof is Proof.SUCCEEDED


@pytest.mark.parametrize("action", WRITING)
def test_contents_are_bounded_and_exact(root: Path, action: FileAction) -> None:
    path = "c.txt" if action is FileAction.CREATE else "notes/a.txt"
    with pytest.raises(PreparationRefusedError) as refused:
        adapter_for(root, action).prepare(request(path, "x" * (CONTENT_BYTES_MAX + 1)))
    assert refused.value.code == "content_too_large"
    text = "€\r\n" + "x" * (CONTENT_BYTES_MAX - 5)
    assert perform(adapter_for(root, action), request(path, text)).proof is Proof.SUCCEEDED
    assert (root / path).read_bytes() == text.encode()


def test_replacing_keeps_the_permission_bits_and_gives_a_new_file(root: Path) -> None:
    target = root / "notes" / "a.txt"
    before = target.stat()
    perform(adapter_for(root, FileAction.REPLACE), request())
    after = target.stat()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_ino, after.st_nlink) == (after.st_ino, 1)
    assert after.st_ino != before.st_ino
