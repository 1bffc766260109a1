import hashlib
import json
import random
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from audit import Delivery, JsonlSink, LedgerSpans
from audit.errors import AuditUnavailable
from issuer.checking import checked_ledger
from issuer.places import Places
from issuer.sealing import KeyRing, open_key_ring
from issuer.wiring import open_ledger
from ledger.errors import Fault
from ledger.states import EffectState
from tests.support.issuers import Made
from tests.support.powercut import Disk, Op, record
from tests.support.strikes import can_trace
from tests.support.transitions import soak_issuer

IMAGES_GOAL = 10_000
"""Images of the long run. It ends there, or with the recording."""

LONG_EFFECTS, LONG_AT_RANDOM = 16, 3
QUICK_EFFECTS, QUICK_AT_RANDOM, QUICK_EVERY = 2, 1, 12
CONTROL_EFFECTS, CONTROL_EVERY = 4, 3
SEED = 7

UNUSED = frozenset({EffectState.PREPARED, EffectState.PERMITTED})

pytestmark = [
    pytest.mark.skipif(not can_trace(), reason="strace is not here, or may not trace"),
    pytest.mark.spec("LED-01", "ADM-03", "LED-06", "AUD-02"),
]


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What our ledger made of one image: why it refuses new effects, what its check found, and the states."""

    refused: str | None = None
    findings: tuple[str, ...] = ()
    states: dict[str, EffectState] = field(default_factory=dict)
    in_sink: frozenset[str] = frozenset()


def admitted_in(sink: bytes) -> frozenset[str]:
    """Return the effects whose admission stands in whole lines of an image of the sink."""
    found = set()
    for line in sink.splitlines(keepends=True)[1:]:
        # A torn end was never acknowledged, and what is torn in the middle is no line of ours.
        with suppress(ValueError):
            span = json.loads(line)["span"]
            if span["name"] == "permit.effect.admitted":
                found.add(span["attributes"]["permit.effect.id"])
    return frozenset(found)


@dataclass(kw_only=True)
class Explored:
    """The count of one exploration."""

    images: int = 0
    distinct: int = 0
    refused: int = 0
    unclean: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unaudited: list[str] = field(default_factory=list)
    usable_again: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.images} images ({self.distinct} distinct): lost {len(self.lost)}, unclean {len(self.unclean)}, "
            f"unaudited {len(self.unaudited)}, usable a second time {len(self.usable_again)}, refused {self.refused}"
        )


@dataclass(kw_only=True)
class Explorer:
    """One issuer whose files are replaced by image after image."""

    made: Made
    ring: KeyRing
    known: dict[bytes, Opened] = field(default_factory=dict)
    explored: Explored = field(default_factory=Explored)
    permitted: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)

    def hear(self, words: tuple[str, ...]) -> None:
        """Take in what was answered, or seen to happen, before the next image."""
        if words[0] == "permitted":
            self.permitted.add(words[1])
            self.names[words[2]] = words[1]
        elif words[0] == "sent":
            self.used.add(self.names[words[1]])
        elif words[0] == "admitted":
            self.used.add(words[1])
        else:
            self.used.add(words[1])
            self.done.add(words[1])

    def judge(self, image: dict[str, bytes]) -> None:
        """Open one image, and compare it with what was answered."""
        digest = hashlib.sha256(
            b"".join(name.encode() + data for name, data in sorted(image.items()))
        ).digest()
        if digest not in self.known:
            self.known[digest] = self._opened(image)
            self.explored.distinct += 1
        opened, count = self.known[digest], self.explored
        count.images += 1
        count.refused += opened.refused is not None
        count.unclean.extend(opened.findings)
        lost = {one for one in self.permitted if one not in opened.states}
        lost |= {one for one in self.used if opened.states.get(one, EffectState.PREPARED) in UNUSED}
        lost |= {one for one in self.done if opened.states.get(one) is not EffectState.SUCCEEDED}
        count.lost.extend(lost)
        count.unaudited.extend(self.used - opened.in_sink)
        if opened.refused is None:
            count.usable_again.extend(lost & self.used)

    def _opened(self, image: dict[str, bytes]) -> Opened:
        places = Places(self.made.profile)
        for path in self.made.ledger.parent.glob("ledger.sqlite*"):
            path.unlink()
        for name, data in image.items():
            Path(name).write_bytes(data)
        in_sink = admitted_in(image[str(self.made.sink)])
        try:
            with closing(open_ledger(places, self.ring)) as ledger:
                effects = ledger.read(lambda view: view.effects(states=tuple(EffectState)))
                states = {str(one.effect_id): one.state for one in effects}
                report = checked_ledger(places, self.ring)
                sink = JsonlSink(self.made.sink, ledger.ledger_id, name="local", required=True)
                refused = None
                with closing(Delivery((sink,), LedgerSpans(ledger))) as delivery:
                    try:
                        delivery.probe()
                    except AuditUnavailable as fault:
                        refused = str(fault)
        except Fault as fault:
            return Opened(refused=str(fault), in_sink=in_sink)
        findings = tuple(one.what for one in report.findings)
        return Opened(refused=refused, findings=findings, states=states, in_sink=in_sink)


def explored(
    folder: Path, *, how: str, effects: int, at_random: int, every: int = 1, images_max: int = IMAGES_GOAL
) -> Explored:
    """Record some effects and open what the disk may hold after every so many steps."""
    made = soak_issuer(folder / how)
    watched = (made.ledger, *(made.ledger.with_name(made.ledger.name + end) for end in ("-wal", "-journal")))
    watched = (*watched, made.sink)
    start = {str(path): path.read_bytes() for path in watched if path.exists()}
    ops: list[Op] = record(made.profile, watched, count=effects, how=how, log=folder / "log")
    shutil.rmtree(Places(made.profile).instances)
    explorer = Explorer(made=made, ring=open_key_ring(Places(made.profile).keys))
    disk = Disk(start, random.Random(SEED))  # noqa: S311 - the same images in every run
    for number, op in enumerate(ops):
        if op.what == "said":
            explorer.hear(op.words)
        else:
            disk.replay(op)
        if number % every and op.what != "said":
            continue
        for image in disk.images(at_random):
            if explorer.explored.images == images_max:
                return explorer.explored
            explorer.judge(image)
    return explorer.explored


def assert_nothing_lost(found: Explored) -> None:
    assert not found.lost
    assert not found.unaudited
    assert not found.usable_again
    assert not found.unclean
    assert not found.refused


def test_a_few_power_cuts_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    found = explored(
        tmp_path, how="shipped", effects=QUICK_EFFECTS, at_random=QUICK_AT_RANDOM, every=QUICK_EVERY
    )
    assert found.images > 50
    assert_nothing_lost(found)


@pytest.mark.soak
def test_no_power_cut_loses_what_was_acknowledged(tmp_path: Path, figure: Callable[[str], None]) -> None:
    found = explored(tmp_path, how="shipped", effects=LONG_EFFECTS, at_random=LONG_AT_RANDOM)
    figure(f"power cuts, as shipped: {found}")
    assert found.images == IMAGES_GOAL
    assert_nothing_lost(found)


def assert_control_loses(found: Explored) -> None:
    """The explorer itself is tested: it must find the losses of settings that are known to lose.

    Even then nothing is used twice: the sink is ahead of such a ledger, which proves that something is missing.
    """
    assert found.lost
    assert not found.usable_again


def test_a_ledger_that_syncs_less_is_soon_seen_to_lose_what_was_acknowledged(tmp_path: Path) -> None:
    assert_control_loses(explored(tmp_path, how="normal", effects=2, at_random=0, every=25))


@pytest.mark.soak
@pytest.mark.parametrize("how", ["normal", "delete"])
def test_a_ledger_that_syncs_less_is_seen_to_lose_what_was_acknowledged(
    how: str, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    found = explored(tmp_path, how=how, effects=CONTROL_EFFECTS, at_random=1, every=CONTROL_EVERY)
    figure(f"power cuts, control {how}: {found}")
    assert_control_loses(found)
