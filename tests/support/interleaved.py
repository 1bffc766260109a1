"""A run of `tests.support.interleaving` and its judgement: the office, its prepared revisions, and what was wrong.

The office asks as `ops` or through the host `till`, for `u-ana`; the actors answer to `boss`. Its revisions differ in
what they issue, whom they ask, and who is in which group, and each is activated once before anybody acts.
"""

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from issuer.checking import judge
from issuer.places import Places
from issuer.sealing import open_key_ring
from tests.support.approving import PEOPLE, POLICY, WHO, asked_of, made_office
from tests.support.cases import HOUSE
from tests.support.interleaving import WANTED
from tests.support.issuers import Made, open_task
from tests.support.lawful import Look, Oracle, Terms, spans_of
from tests.support.revised import activated, demand_one_revision, rewritten
from tests.support.revised import spans_of as attributes_of_all
from tests.support.service import Service, Step, accept_then_close, answer, delay
from tests.support.soft_keys import SoftKey, soft_key
from tests.support.steps import PATIENCE_S

KEYS: Final = 4
"""Keys of each person; the first is never revoked, so that the world goes on."""

ROUNDS_MAX_CONNECTIONS: Final = 240
"""Answers that one service has ready: what it takes in its life."""

LIMIT: Final = '<= 500 };\n@id("larger-refunds")'
DAN: Final = 'dan = { roles = ["approver"], groups = ["finance"]'
CHANGES: Final = {
    "[class.refund]": '[host]\ntill = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }\n[class.refund]',
    'lifetime = "10m"': 'lifetime = "2s"\nwait = "2s"',
    'host = { deadline = "5m" }': 'host = { deadline = "1s" }',
    "per_task = { permits = 100 }": "per_task = { permits = 1_000_000 }",
    "per_root = { permits = 200 }": "per_root = { permits = 1_000_000 }",
}


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One revision that is prepared: up to what it issues and asks, whom, and in which group dan is."""

    issues: int
    asks: int
    asked: str
    dan: str = "finance"

    @property
    def policy(self) -> str:
        """The text of its policies."""
        text = asked_of(self.asked).replace(LIMIT, LIMIT.replace("500", str(self.issues)))
        return text.replace("<= 100000", f"<= {self.asks}")

    @property
    def people(self) -> str:
        """The text of its people."""
        return PEOPLE.replace(DAN, DAN.replace("finance", self.dan))

    def terms(self, keys: Mapping[str, list[SoftKey]]) -> Terms:
        """Return what it means, in the words of the oracle."""
        pairs = [one.partition(":") for one in self.asked.split(",")]
        groups = {name: frozenset({"finance"}) for name in ("ops", "boss", "bob")}
        groups |= dict.fromkeys(("u-ana", "carol"), frozenset({"finance", "stewards"}))
        groups |= {"dan": frozenset({self.dan}), "erin": frozenset({"stewards"})}
        return Terms(
            automatic={"refund": self.issues, "publish": 1},
            asking={"refund": self.asks},
            quorum={group: int(count or 1) for group, _, count in pairs},
            answers_to={"agent-7": "boss", "agent-8": "boss"},
            groups=groups,
            keys={name: frozenset(key.fingerprint for key in of) for name, of in keys.items()},
        )


VARIANTS: Final = (
    Variant(issues=500, asks=100000, asked="finance"),
    Variant(issues=50, asks=100000, asked="finance"),
    Variant(issues=50, asks=100000, asked="finance:2", dan="stewards"),
    Variant(issues=50, asks=100000, asked="finance,stewards"),
    Variant(issues=50, asks=50, asked="finance"),
    Variant(issues=50, asks=100000, asked="finance", dan="stewards"),
)
"""Automatic; asking one; two, without dan; one of each group; nobody; and one, without dan."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """An office that is ready: where it is, and what each of its revisions means."""

    made: Made
    world: Path
    terms: Mapping[str, Terms]


def made_ground(folder: Path, port: int) -> Ground:
    """Make the office, everybody's keys, and every revision."""
    made, _keys = made_office(folder, port=port, policy=VARIANTS[0].policy, changes=CHANGES)
    if made.profile.read_text(encoding="utf-8").count(PEOPLE) != 1 or POLICY.count(LIMIT) != 1:
        raise AssertionError("the office is written in other words than the variants")
    keys = {name: [soft_key() for _key in range(KEYS)] for name in WHO}
    for name, of in keys.items():
        text = "".join(key.line for key in of)
        rewritten(made.folder / "people" / f"{name}.pub", text)
    profile = made.profile.read_text(encoding="utf-8")
    revisions: list[str] = []
    for variant in (*VARIANTS[1:], VARIANTS[0]):
        rewritten(made.profile, profile.replace(PEOPLE, variant.people))
        rewritten(made.folder / "policies" / "policies.cedar", variant.policy)
        revisions.append(activated(made.profile))
    terms = {
        digest: variant.terms(keys)
        for digest, variant in zip(revisions, (*VARIANTS[1:], VARIANTS[0]), strict=True)
    }
    with made.open() as issuer:
        both = ["agent-7", "agent-8"]
        open_task(
            issuer, "t1.s", parent="t1", budget={"USD.cent": "inherit"}, actors=both, classes={"refund": 8}
        )
        open_task(issuer, "t1.c", parent="t1", budget={"USD.cent": 100}, actors=both)
        (made.folder / "till.token").write_text(
            str(issuer.host_token("till").more["token"]), encoding="utf-8"
        )
        first = next(one["permit.revision.activated"] for one in attributes_of_all(issuer) if _activates(one))
    world = {
        "profile": str(made.profile),
        "revisions": revisions,
        "stricter": [revisions[1], revisions[2], revisions[4]],
        "keys": {name: [key.secret for key in of] for name, of in keys.items()},
    }
    path = made.folder / "world.json"
    path.write_text(json.dumps(world), encoding="utf-8")
    # Under the first revision only tasks were opened.
    return Ground(made=made, world=path, terms={first: VARIANTS[0].terms(keys), **terms})


def _activates(said: Mapping[str, object]) -> bool:
    return said["permit.transition"] == "revision.activated"


def script(rng: random.Random) -> list[Step]:
    """Return what a service does to one connection after the other: mostly well, and sometimes slowly."""
    kinds = (answer(201), answer(201), answer(201), answer(409), answer(422), accept_then_close())
    steps = [rng.choice(kinds) for _step in range(ROUNDS_MAX_CONNECTIONS)]
    return [delay(rng.uniform(0, 0.1), step) if rng.random() < 0.4 else step for step in steps]


@dataclass(kw_only=True)
class Played:
    """What one run came to."""

    wrongs: list[str]
    codes: Counter[str]
    seen: Counter[str]
    acts: int
    kills: int
    reasons: Counter[str] = field(default_factory=Counter)
    looks: int = 0

    @property
    def missing(self) -> set[str]:
        """What was never answered, though a run has to meet it."""
        return set(WANTED - self.codes.keys())

    def line(self) -> str:
        """Return the figures of a run."""
        return (
            f"{self.acts} acts, {self.seen['effect.admitted']} admissions, {self.looks} second looks, "
            f"{self.codes['held_back']} held back, {self.seen['revision.activated']} activations, "
            f"{self.kills} kills, wrong {len(self.wrongs)}"
        )


def play(folder: Path, *, seed: int, workers: int, acts: int, seconds: float) -> Played:
    """Let a crew loose on an office of its own in `folder`, and judge what it left."""
    rng = random.Random(seed)  # noqa: S311 - a test's choices, no secrets
    with Service(*script(rng)) as service:
        ground = made_ground(folder / "office", service.port)
        numbers = [str(one) for one in (workers, acts, seconds, seed)]
        own = [sys.executable, "-m", "tests.support.interleaving", str(ground.world), *numbers]
        ran = subprocess.run(
            own, check=True, stdout=subprocess.PIPE, cwd=HOUSE, timeout=seconds + 2 * PATIENCE_S
        )
        told = json.loads(ran.stdout)
        sent = Counter(received.key for received in service.requests)
        happened = Counter(effect.key for effect in service.effects)
    played = _judged(ground, told, sent)
    played.wrongs += [f"{key} happened {times} times" for key, times in happened.items() if times > 1]
    return played


def _judged(ground: Ground, told: Mapping[str, object], sent: Mapping[str, int]) -> Played:
    looks = [Look(effect=one[0], sequence=one[1], at_ms=one[2]) for one in told["looks"]]  # type: ignore[attr-defined]
    with ground.made.open() as issuer:
        issuer.list()  # what is over by now ends
        spans = spans_of(issuer)
        oracle = Oracle(terms=ground.terms.__getitem__, looks=looks).walk(spans)
        wrongs = [*oracle.wrongs, *oracle.judge_sent(sent, told["given"])]  # type: ignore[arg-type]
        try:
            demand_one_revision(attributes_of_all(issuer))
        except AssertionError as moved:
            wrongs.append(str(moved))
    places = Places(ground.made.profile)
    wrongs += [
        f"the check of the ledger: {found}"
        for found in judge(places, open_key_ring(places.keys)).report.findings
    ]
    if told["faults"]:
        wrongs.append(f"{told['faults']} workers ended by themselves")
    reasons = Counter(effect.held_back for effect in oracle.effects.values() if effect.held_back)
    return Played(
        wrongs=wrongs,
        codes=Counter(told["codes"]),  # type: ignore[call-overload]
        seen=oracle.seen,
        acts=int(str(told["acts"])),
        kills=int(str(told["kills"])),
        reasons=reasons,
        looks=len(looks),
    )
