"""Development case D12, with the file that every issuer has: what people and disks do to it, at every moment."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.flow.steps import Reached
from issuer.wire import Answer
from tests.support.cases import all_at, books, command, effect_ids, length, small_tree, state_of
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer
from tests.support.spans import sequences_in

DISK_BYTES = 24 * 1024 * 1024
"""More than the free room that a probe asks for, and little to fill."""
NOBODY = "eff_" + "0" * 32


def aside(path: Path) -> Path:
    return path.with_suffix(".aside")


def put_back(path: Path) -> None:
    if aside(path).exists():
        path.unlink(missing_ok=True)
        aside(path).rename(path)


def take_away(path: Path) -> None:
    path.rename(aside(path))


def replace(path: Path) -> None:
    take_away(path)
    path.write_bytes(b"2026-12-01 somebody's log\n")
    path.chmod(0o600)


def replace_by_a_copy(path: Path) -> None:
    take_away(path)
    path.write_bytes(aside(path).read_bytes())
    path.chmod(0o600)
    aside(path).unlink()


def replace_by_an_empty_one(path: Path) -> None:
    take_away(path)
    path.touch(mode=0o600)


def replace_by_a_link(path: Path) -> None:
    take_away(path)
    path.symlink_to(aside(path))


def close_to_writing(path: Path) -> None:
    path.chmod(0o400)


def open_to_others(path: Path) -> None:
    path.chmod(0o622)


def close_to_others(path: Path) -> None:
    path.chmod(0o600)


def give_a_second_name(path: Path) -> None:
    os.link(path, aside(path))


def take_the_second_name(path: Path) -> None:
    aside(path).unlink()


def fill_the_disk(path: Path) -> None:
    """Leave no free page on the file system of `path`."""
    with (path.parent / "filler").open("wb", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"\x00" * (1 << 20))
    with (path.parent / "filler").open("ab", buffering=0) as filler, suppress(OSError):
        while True:
            filler.write(b"\x00" * 4096)


def empty_the_disk(path: Path) -> None:
    (path.parent / "filler").unlink()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to the file, and how it is undone."""

    happen: Callable[[Path], None]
    mend: Callable[[Path], None] = put_back


FAULTS: dict[str, Fault] = {
    "gone": Fault(happen=take_away),
    "replaced by another": Fault(happen=replace),
    "replaced by an empty one": Fault(happen=replace_by_an_empty_one),
    "replaced by a link": Fault(happen=replace_by_a_link),
    "read-only": Fault(happen=close_to_writing, mend=close_to_others),
    "open to others": Fault(happen=open_to_others, mend=close_to_others),
    "under a second name": Fault(happen=give_a_second_name, mend=take_the_second_name),
    "on a full disk": Fault(happen=fill_the_disk, mend=empty_the_disk),
}


@dataclass(kw_only=True)
class Shop:
    """One service, one open issuer whose only sink is its file, and what happens at the next named step."""

    made: Made
    service: Service
    issuer: Issuer
    plans: dict[str, Callable[[], None]] = field(default_factory=dict)
    trees: int = 0

    def tree(self) -> tuple[str, str]:
        self.trees += 1
        return small_tree(self.issuer, f"tree-{self.trees}")

    def assert_the_file_is_whole(self, effect: str) -> None:
        """The file has every span once and in order, the outcome of `effect` among them."""
        sequences = sequences_in(self.made.sink)
        assert sequences == list(range(1, len(sequences) + 1))
        record = self.issuer.show(effect).more["record"]
        assert isinstance(record, dict)
        assert record["sequence"] in sequences


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of one's own needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def opened(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    plans: dict[str, Callable[[], None]] = {}

    def observe(step: str) -> None:
        plan = plans.pop(step, None)
        if plan is not None:
            plan()

    with Service() as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(disk))
        made = standard_issuer(tmp_path_factory.mktemp("d12") / "f0", port=service.port)
        assert made.sink.is_relative_to(disk)
        with made.open(observe=observe) as issuer:
            yield Shop(made=made, service=service, issuer=issuer, plans=plans)


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Fault:
    return FAULTS[request.param]


@pytest.fixture
def shop(opened: Shop, fault: Fault) -> Iterator[Shop]:
    yield opened
    opened.plans.clear()
    with suppress(OSError):
        fault.mend(opened.made.sink)


def assert_unavailable(no: Answer) -> None:
    assert (no.code, int(no.exit), no.next) == ("audit_unavailable", 8, "tell_a_person")


@pytest.mark.spec("AUD-02", "AUD-03", "ADM-01", "ADM-03")
def test_before_admission_nothing_is_issued_and_no_permit_is_spent(shop: Shop, fault: Fault) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    effects = effect_ids(shop.issuer)
    fault.happen(shop.made.sink)
    assert_unavailable(refund(shop.issuer, order="o-2", task=levels[0], request_key="k-2"))
    assert_unavailable(shop.issuer.commit(effect))
    assert (effect_ids(shop.issuer), state_of(shop.issuer, effect)) == (effects, "permitted")
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before
    fault.mend(shop.made.sink)
    shop.service.then(answer(201))
    assert permitted(refund(shop.issuer, order="o-2", task=levels[0], request_key="k-2"))
    assert shop.issuer.commit(effect).code == "succeeded"
    assert shop.service.connections == before + 1
    shop.assert_the_file_is_whole(effect)


@pytest.mark.spec("AUD-02", "AUD-03", "ADM-03", "REP-04")
def test_between_admission_and_dispatch_nothing_is_sent(shop: Shop, fault: Fault) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.plans[Reached.SINKS_PROBED] = lambda: fault.happen(shop.made.sink)
    done = shop.issuer.commit(effect)
    assert (done.code, done.state, int(done.exit)) == ("prepare_again", "no_effect", 7)
    assert books(shop.issuer, *levels) == all_at(*levels)
    assert shop.service.connections == before
    assert_unavailable(refund(shop.issuer, order="o-2", task=levels[0]))
    fault.mend(shop.made.sink)
    assert shop.issuer.commit(effect).code == "not_dispatched"
    assert shop.service.connections == before
    shop.assert_the_file_is_whole(effect)


@pytest.mark.spec("AUD-02", "AUD-03", "REP-01", "SUR-05")
def test_after_the_send_success_is_pending_until_the_file_has_it(shop: Shop, fault: Fault) -> None:
    levels = shop.tree()
    before = shop.service.connections
    shop.service.then(answer(201), answer(201))
    effect = permitted(refund(shop.issuer, task=levels[0]))
    other = permitted(refund(shop.issuer, order="o-2", task=levels[0]))

    def happen() -> None:
        # More than a page is still to be written, or a full disk might have room for it in the last one.
        for _ in range(8):
            assert shop.issuer.show(NOBODY).code == "not_found"
        fault.happen(shop.made.sink)

    shop.plans[Reached.ANSWERED] = happen
    for said in (shop.issuer.commit(effect), shop.issuer.commit(effect)):
        assert (said.code, said.state, int(said.exit)) == ("audit_pending", "succeeded", 5)
        assert (said.retryable, said.next) == (False, "tell_a_person")
    assert books(shop.issuer, *levels) == all_at(*levels, settled=300)
    assert_unavailable(shop.issuer.commit(other))
    assert (state_of(shop.issuer, other), shop.service.connections) == ("permitted", before + 1)
    fault.mend(shop.made.sink)
    assert shop.issuer.commit(effect).code == "succeeded"
    assert shop.service.connections == before + 1
    shop.assert_the_file_is_whole(effect)
    assert shop.issuer.commit(other).code == "succeeded"
    assert shop.service.connections == before + 2
    shop.assert_the_file_is_whole(other)


@pytest.mark.spec("AUD-02", "AUD-03", "ADM-03")
@pytest.mark.parametrize("fault", [Fault(happen=replace_by_a_copy)])
def test_a_whole_copy_in_its_place_costs_one_permit_and_then_is_the_file(shop: Shop, fault: Fault) -> None:
    levels = shop.tree()
    before = shop.service.connections
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.plans[Reached.SINKS_PROBED] = lambda: fault.happen(shop.made.sink)
    assert shop.issuer.commit(effect).code == "prepare_again"
    assert shop.service.connections == before
    shop.service.then(answer(201))
    fresh = permitted(refund(shop.issuer, order="o-2", task=levels[0]))
    assert shop.issuer.commit(fresh).code == "succeeded"
    assert shop.service.connections == before + 1
    shop.assert_the_file_is_whole(fresh)


@pytest.mark.spec("AUD-02", "SUR-01", "SUR-05")
@pytest.mark.parametrize("fault", [FAULTS["gone"]])
def test_another_process_is_told_the_same_and_catches_up_for_the_first(shop: Shop, fault: Fault) -> None:
    levels = shop.tree()
    before = shop.service.connections
    shop.service.then(answer(201))
    effect = permitted(refund(shop.issuer, task=levels[0]))
    shop.plans[Reached.ANSWERED] = lambda: fault.happen(shop.made.sink)
    assert shop.issuer.commit(effect).code == "audit_pending"
    ran = command(shop.made, "commit", effect)
    assert (ran.exit, ran.answer["code"], ran.answer["state"]) == (5, "audit_pending", "succeeded")
    fault.mend(shop.made.sink)
    ran = command(shop.made, "commit", effect)
    assert (ran.exit, ran.answer["code"]) == (0, "succeeded")
    assert shop.service.connections == before + 1
    shop.assert_the_file_is_whole(effect)
    assert length(shop.issuer) >= sequences_in(shop.made.sink)[-1]
