"""Forged authority: one row, one distinct attack. None of them makes a permit, and none of them sends anything.

Each attack is played against an effect that waits for a person (900 where 500 is automatic), or against one that was
approved and then lost what carried it. Afterwards the service was never connected to, nothing was admitted, and what
the trail tells of the effect is judged by an oracle that knows nothing but spans (`tests.support.lawful`).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.approving import POLICY, opened_office
from tests.support.cases import Clock, state_of
from tests.support.forgeries import SIGNATURES, WORDS
from tests.support.forgeries_of_others import FILES, NAMES
from tests.support.forgeries_of_the_lost import LOST
from tests.support.forging import CHANGES, TWO, Scene
from tests.support.lawful import Oracle, Terms, spans_of
from tests.support.service import answer
from tests.support.ssh import make_key

pytestmark = [pytest.mark.spec("APP-01", "APP-03", "APP-04", "POL-05", "SEC-02", "ADM-05", "AUD-01")]

NEVER = frozenset({"permitted", "admitted", "succeeded", "failed", "no_effect", "unknown"})
"""States that nothing may have reached from a waiting one."""


GROUPS = {
    **dict.fromkeys(("ops", "boss", "bob", "dan"), frozenset({"finance"})),
    **dict.fromkeys(("u-ana", "carol"), frozenset({"finance", "stewards"})),
    "erin": frozenset({"stewards"}),
}


def _twice(scene: Scene) -> Answer:
    signature = scene.signed_by("bob")
    assert scene.approve(signature).code == "approved"
    return scene.approve(signature)


ALL: Final = {**WORDS, **SIGNATURES, **LOST, **NAMES, **FILES}


def test_the_table_is_a_table_of_distinct_attacks() -> None:
    assert len(ALL) == sum(map(len, (WORDS, SIGNATURES, LOST, NAMES, FILES))) >= 60


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    clock = Clock()
    wants_two = "twice" in request.node.name
    with opened_office(
        tmp_path / "f0", policy=TWO if wants_two else POLICY, changes=CHANGES, clock=clock
    ) as office:
        new = office.made.folder / "people" / "new.pub"
        shutil.copy(office.made.folder / "people" / "dan.pub", new)
        make_key(tmp_path / "exchanged")
        new.write_text((tmp_path / "exchanged.pub").read_text(encoding="utf-8"), encoding="utf-8")
        yield Scene(office, clock, tmp_path)


@pytest.mark.parametrize("name", ALL)
def test_no_forged_authority_permits_or_sends(scene: Scene, name: str) -> None:
    attack, code = ALL[name]
    was_permitted = name in LOST or name == "commit of another order after the yes"
    told = attack(scene)
    if told is not None:
        assert told.code == code, (told.code, told.say, told.more)
    assert scene.office.service.connections == 0
    if not was_permitted and name not in FILES:
        assert state_of(scene.issuer, scene.effect) not in NEVER
    if name in SIGNATURES:
        _assert_on_record(scene, code)
    with scene.made.open(clock=scene.clock, reading=True) as looking:
        _assert_lawful(looking, scene, asked=2 if "twice" in name else 1)


def test_one_person_is_not_two_however_often_the_signature_is_handed_in_twice(scene: Scene) -> None:
    told = _twice(scene)
    assert (told.code, state_of(scene.issuer, scene.effect)) == ("nothing_to_change", "awaiting_approval")
    assert scene.commit().code == "not_permitted_yet"
    assert scene.office.service.connections == 0


def _assert_on_record(scene: Scene, code: str) -> None:
    """A forged answer has its span, which names whoever was authenticated (AUD-01)."""
    last = [span for span in spans_of(scene.issuer) if span.name == "refused"][-1]
    assert (last["caller"], last["refusal"], last["command"]) == ("ops", code, "approve")
    assert EffectId(str(last.effect)) == scene.effect


def _assert_lawful(issuer: Issuer, scene: Scene, *, asked: int) -> None:
    """Let the oracle judge the trail; nothing in it was admitted."""
    spans = spans_of(issuer)
    oracle = Oracle(terms=lambda _revision: _terms(scene, asked))
    oracle.walk(spans)
    about = [wrong for wrong in oracle.wrongs if scene.effect in wrong]
    assert oracle.admitted == 0
    assert about == []


def _terms(scene: Scene, asked: int) -> Terms:
    """What the policies gave when a permit was issued; nothing is admitted here, so later ones do not count."""
    house = scene.office.issuer._house
    return Terms(
        automatic={"refund": 500, "publish": 1},
        asking={"refund": 100_000},
        quorum={"finance": asked},
        answers_to={"agent-7": "boss", "agent-8": "boss"},
        groups=GROUPS,
        keys={name: frozenset(key.fingerprint for key in of) for name, of in house.profile.keys.items()},
    )


def test_nothing_but_the_real_thing_is_permitted(scene: Scene) -> None:
    """The control: the same office, one good signature, one effect."""
    scene.approved()
    scene.office.service.then(answer(201))
    assert scene.commit().code == "succeeded"
    assert len(scene.office.service.effects) == 1
