"""A folder with one file, and what the tests of the file adapter do with it and to it."""

import os
from collections.abc import Callable
from pathlib import Path

from issuer.operations.contract import Answer, Order, Preparation, Request
from issuer.operations.file_adapter import FileAction, FileAdapter, FileSettings
from issuer.operations.templates import Template
from ledger.model import DurationMs, EffectId, InstantMs

EFFECT = EffectId("eff_" + "ef" * 16)
CHANGING = [FileAction.REPLACE, FileAction.DELETE]
WRITING = [FileAction.CREATE, FileAction.REPLACE]


def write(path: Path, text: str) -> None:
    """Write a file that is private but for the reading of its group."""
    path.write_text(text)
    path.chmod(0o640)


def adapter_for(root: Path, action: FileAction, **more: Callable[[], float]) -> FileAdapter:
    """Return the adapter for `{path}` with the content `{text}` below this root."""
    content = None if action is FileAction.DELETE else Template.parse("{text}")
    return FileAdapter(
        FileSettings(action=action, root=root, path=Template.parse("{path}"), content=content), **more
    )


def request(path: str = "notes/a.txt", text: str = "new") -> Request:
    """Return a checked payload."""
    return Request(values={"path": path, "text": text}, registries={})


def order_for(preparation: Preparation, asked: Request, remaining_ms: int = 10_000) -> Order:
    """Return the order to send this preparation."""
    return Order(
        effect_id=EFFECT,
        request=asked,
        preparation=preparation,
        deadline_ms=InstantMs(0),
        remaining_ms=DurationMs(remaining_ms),
        still_allowed=lambda: None,
    )


def perform(adapter: FileAdapter, asked: Request) -> Answer:
    """Prepare and dispatch."""
    return adapter.dispatch(order_for(adapter.prepare(asked), asked))


def tree(root: Path) -> dict[str, str | None]:
    """Everything below root: texts of files, targets of links, None for folders."""
    return {
        str(path.relative_to(root)): f"-> {path.readlink()}"
        if path.is_symlink()
        else (path.read_text() if path.is_file() else None)
        for path in sorted(root.rglob("*"))
    }


def private_root(parent: Path) -> Path:
    """Make a private folder with notes/a.txt in it."""
    folder = parent / "root"
    (folder / "notes").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    write(folder / "notes" / "a.txt", "old")
    return folder


def swap_folder_for_link(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes").rename(root / "moved")
    (root / "notes").symlink_to("moved")


def swap_folder(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes").rename(root / "moved")
    (root / "notes").mkdir(mode=0o700)
    write(root / "notes" / "a.txt", "old")


def swap_root(root: Path) -> None:
    """Do to the folder what the name says."""
    root.rename(root.with_name("moved"))
    (root / "notes").mkdir(parents=True, mode=0o700)
    root.chmod(0o700)
    write(root / "notes" / "a.txt", "old")


def swap_root_for_link(root: Path) -> None:
    """Do to the folder what the name says."""
    root.rename(root.with_name("moved"))
    root.symlink_to("moved")


def remove_folder(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes").rename(root.with_name("away"))


def swap_file(root: Path) -> None:
    """Do to the folder what the name says."""
    write(root / "b", "old")
    (root / "b").rename(root / "notes" / "a.txt")


def swap_file_for_link(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes" / "a.txt").rename(root / "b")
    (root / "notes" / "a.txt").symlink_to("../b")


def move_file_aside(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes" / "a.txt").rename(root / "aside")
    write(root / "notes" / "a.txt", "old")


def edit_file(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes" / "a.txt").write_text("odd")


def remove_file(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes" / "a.txt").unlink()


def name_it_twice(root: Path) -> None:
    """Do to the folder what the name says."""
    os.link(root / "notes" / "a.txt", root / "second")


def open_to_others(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes").chmod(0o722)


def open_file_to_others(root: Path) -> None:
    """Do to the folder what the name says."""
    (root / "notes" / "a.txt").chmod(0o646)
