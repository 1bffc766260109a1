import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import instance as instance_module
from issuer.clock import boot_id
from issuer.instance import Instance
from ledger.errors import LedgerUnavailable

BOOT = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "instances"


@pytest.fixture
def here(folder: Path) -> Iterator[Instance]:
    one = Instance(folder, "ins_here")
    yield one
    one.close(keep_file=False)


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - the listing itself opens and closes one


@pytest.mark.spec("ADM-07")
def test_an_instance_is_not_gone_while_it_holds_its_lock_and_is_as_soon_as_it_does_not(
    folder: Path, here: Instance
) -> None:
    other = Instance(folder, "ins_other")
    assert not here.is_gone("ins_other", here.boot)
    other.close(keep_file=True)
    assert here.is_gone("ins_other", here.boot)


@pytest.mark.spec("ADM-07")
def test_what_is_gone_stays_gone_and_asking_leaves_nothing_held(folder: Path, here: Instance) -> None:
    """Asking takes the lock for a moment; a lock that stayed would make a dead sender look alive to others."""
    Instance(folder, "ins_other").close(keep_file=True)
    open_before = descriptors()
    assert [here.is_gone("ins_other", here.boot) for _ in range(3)] == [True] * 3
    assert descriptors() == open_before
    third = Instance(folder, "ins_third")
    assert third.is_gone("ins_other", third.boot)
    third.close(keep_file=False)


@pytest.mark.spec("ADM-07")
def test_a_missing_file_proves_nothing(folder: Path, here: Instance) -> None:
    Instance(folder, "ins_other").close(keep_file=False)
    assert not (folder / "ins_other.lock").exists()
    assert not here.is_gone("ins_other", here.boot)
    assert not here.is_gone("ins_never", here.boot)


@pytest.mark.spec("ADM-07")
def test_another_boot_proves_that_it_is_gone_whatever_its_file_says(folder: Path, here: Instance) -> None:
    other = Instance(folder, "ins_other")
    assert here.boot
    assert here.is_gone("ins_other", BOOT)
    assert here.is_gone("ins_never", BOOT)
    other.close(keep_file=False)


@pytest.mark.spec("ADM-07")
@pytest.mark.parametrize("ours", [BOOT, ""])
def test_an_unknown_boot_on_either_side_proves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setattr(instance_module, "boot_id", lambda: ours)
    one, other = Instance(folder, "ins_one"), Instance(folder, "ins_other")
    assert not one.is_gone("ins_other", "")
    if not ours:
        assert not one.is_gone("ins_other", BOOT)
    other.close(keep_file=False)
    one.close(keep_file=False)


@pytest.mark.spec("ADM-07")
def test_a_host_outside_and_the_instance_itself_are_never_gone(here: Instance) -> None:
    assert not here.is_gone("", "")
    assert not here.is_gone("", BOOT)
    assert not here.is_gone(here.name, here.boot)


@pytest.mark.spec("ADM-07")
def test_a_link_or_a_folder_in_place_of_the_lock_proves_nothing(
    folder: Path, here: Instance, tmp_path: Path
) -> None:
    target = tmp_path / "free.lock"
    target.write_bytes(b"")
    (folder / "ins_link.lock").symlink_to(target)
    assert not here.is_gone("ins_link", here.boot)
    (folder / "ins_folder.lock").mkdir()
    assert not here.is_gone("ins_folder", here.boot)


@pytest.mark.spec("ADM-07")
def test_a_lock_that_is_shared_or_asked_about_by_others_is_still_held(folder: Path, here: Instance) -> None:
    other = Instance(folder, "ins_other")
    other.close(keep_file=True)
    asking = os.open(folder / "ins_other.lock", os.O_RDWR)
    fcntl.flock(asking, fcntl.LOCK_SH)
    assert not here.is_gone("ins_other", here.boot)
    os.close(asking)
    assert here.is_gone("ins_other", here.boot)


@pytest.mark.spec("ADM-07", "LED-04")
def test_two_instances_cannot_have_one_name(folder: Path, here: Instance) -> None:
    open_before = descriptors()
    with pytest.raises(LedgerUnavailable) as refused:
        Instance(folder, here.name)
    assert refused.value.reason == "instance_lock"
    assert descriptors() == open_before
    assert not here.is_gone("ins_other", here.boot)


@pytest.mark.spec("ADM-07", "SEC-03")
def test_locks_are_open_to_nobody_else(folder: Path) -> None:
    before = os.umask(0)
    try:
        one = Instance(folder, "ins_one")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "ins_one.lock").stat().st_mode & 0o777 == 0o600
    one.close(keep_file=False)


@pytest.mark.spec("ADM-07")
def test_the_boot_of_this_machine_is_one_value() -> None:
    assert boot_id() == boot_id() != BOOT
