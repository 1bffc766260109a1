"""What one process of `tests.support.interleaving` does: at random, from a seed, on what all of them share.

Sometimes it takes something of the authority away that an effect has just got, and then tries to use it: by itself that
is rare, and it is what a run is about. It tells what it was answered, and what it had seen before each second look.
"""

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from issuer import Issuer
from issuer.clock import now_ms
from issuer.commands.freezing import stopped_names
from issuer.wire import Answer
from ledger.errors import LedgerUnavailable
from ledger.model import InstantMs, TaskState
from tests.support.soft_keys import SoftKey, soft_key

STOPS: Final = (
    *(("all", None), ("class", "refund"), ("operation", "refund"), ("operation", "publish")),
    *(("person", "u-ana"), ("person", "boss"), ("person", "bob"), ("person", "carol"), ("host", "till")),
    *(("actor", "agent-7"), ("actor", "agent-8"), ("actor", "agent-7"), ("person", "bob"), ("person", "dan")),
)
TASKS: Final = ("org", "t1", "t1", "t1.a", "t1.b", "t1.c", "t1.c", "t1.s", "t1.k", "t1.k")
"""Where things are asked for; `t1.k` stands for a child that comes and goes, see `passing_task`."""
APPROVERS: Final = ("bob", "carol", "dan", "erin")
PEOPLE: Final = (*("bob", "carol", "dan") * 4, "erin", "erin", "ops", "boss", "u-ana", "mallory")
AUTOMATIC, WAITING = (10, 50), (60, 90)
"""Costs that every revision issues by itself, and those that some ask people about."""

PAUSE_S: Final = 0.08
"""A winner pauses at most so long before its second look: long enough for others to stop it, short for a test."""

RECENT: Final = 10
OVER: Final = frozenset(
    {"denied", "declined", "withdrawn", "expired", "revoked", "succeeded", "failed", "no_effect", "unknown"}
)
"""What a worker has seen to be over it leaves alone; others still meet it."""

PASSING_S: Final = 2
"""Every so many seconds another child of `t1` is meant, for all workers alike."""

ACTS_MAX: Final = 100_000
"""Acts of one worker, which is killed long before."""

Tell = Callable[..., None]


def passing_task() -> str:
    """Return the name of the child that is meant now."""
    return f"t1.k{int(time.time()) // PASSING_S}"


@dataclass(kw_only=True)
class World:
    """What all workers share: the profile, the digests of the prepared revisions, and everybody's keys.

    `stricter` are those of the revisions under which an earlier yes is likely to be too little.
    """

    profile: Path
    revisions: Sequence[str]
    stricter: Sequence[str]
    keys: dict[str, list[SoftKey]]

    @property
    def effects(self) -> Path:
        """The file to which every worker adds what it asked for."""
        return self.profile.parent / "asked.txt"

    @property
    def token(self) -> Path:
        """The file with the host's credential."""
        return self.profile.parent / "till.token"

    @staticmethod
    def read(path: Path) -> "World":
        """Read what `tests.support.interleaved` wrote."""
        said = json.loads(path.read_text(encoding="utf-8"))
        keys = {person: [soft_key(one) for one in secrets] for person, secrets in said["keys"].items()}
        return World(
            profile=Path(said["profile"]), revisions=said["revisions"], stricter=said["stricter"], keys=keys
        )


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One line of the file of effects."""

    effect: str
    operation: str
    by_host: bool
    waits: bool


class Worker:
    """One process with an issuer of its own."""

    def __init__(self, world: World, rng: random.Random, tell: Tell) -> None:
        self.world = world
        self.rng = rng
        self.tell = tell
        self.sending = ""
        self.over: set[str] = set()
        self.ready: list[Asked] = []
        self.debts: list[tuple[int, Callable[[], Answer | None]]] = []
        """What it owes after so many acts more: thaws, so that the world goes on."""
        self.issuer = Issuer.open(world.profile, observe=self.observe)

    def work(self) -> None:
        """Act until killed."""
        acts: Sequence[tuple[int, Callable[[], Answer | None]]] = (
            *(
                (24, self.ask),
                (14, self.approve),
                (10, self.agree),
                (20, self.commit),
                (3, self.decline),
                (2, self.withdraw),
            ),
            *(
                (3, self.stop),
                (2, self.revoke_effect),
                (4, self.revoke_late),
                (2, self.thaw),
                (1, self.new_token),
            ),
            *(
                (2, self.freeze_task),
                (4, self.change_task),
                (2, self.money),
                (4, self.activate),
                (2, self.look),
            ),
        )
        weights = [weight for weight, _act in acts]
        for act in self.rng.choices([act for _weight, act in acts], weights, k=ACTS_MAX):
            self.do(act)
            due, self.debts = (
                [owed for left, owed in self.debts if left <= 0],
                [(left - 1, owed) for left, owed in self.debts if left > 0],
            )
            for owed in due:
                self.do(owed)

    def do(self, act: Callable[[], Answer | None]) -> None:
        """Do one thing and tell what it was answered."""
        answer = act()
        if answer is not None:
            self.tell("act", getattr(act, "__name__", "owed"), answer.code)
            if answer.effect is not None and answer.state in OVER:
                self.over.add(answer.effect)

    def observe(self, step: str) -> None:
        """Before the second look of a commit: wait a little, and tell how long the trail is by then (ADM-05)."""
        if step != "admission_acknowledged" or not self.sending:
            return
        if self.rng.random() < 0.6:
            time.sleep(self.rng.uniform(0, PAUSE_S))
        at_ms = now_ms()
        head = self.issuer._house.ledger.read(lambda view: view.head())
        self.tell("look", self.sending, head.sequence, at_ms)

    # -- effects

    def recent(self, *, waits: bool = False) -> Asked | None:
        """Return one of the latest effects of anybody."""
        if not self.world.effects.exists():
            return None
        lines = self.world.effects.read_text(encoding="utf-8").splitlines()[-RECENT * 2 :]
        rows = [line.split() for line in lines]
        found = [
            Asked(effect=row[0], operation=row[1], by_host=row[2] == "host", waits=row[3] == "waits")
            for row in rows
            if len(row) == 4 and row[0] not in self.over and (not waits or row[3] == "waits")
        ]
        return self.rng.choice(found[-RECENT:]) if found else None

    def handle(self, *, by_host: bool) -> Issuer:
        """Return the issuer as whoever asked for an effect has it."""
        if not by_host:
            return self.issuer
        return self.issuer.as_caller(token=self.world.token.read_text(encoding="utf-8"))

    def ask(self) -> Answer | None:
        """Ask for something, of any kind."""
        rng = self.rng
        by_host, held = rng.random() < 0.12, rng.random() < 0.05
        issuer = self.handle(by_host=by_host)
        actor = "agent-7" if by_host or rng.random() < 0.7 else "agent-8"
        task, number = self._task(), rng.getrandbits(40)
        operation, waits = "refund", rng.random() < 0.65
        payload: dict[str, object] = {
            "order": f"o-{number}",
            "amount": rng.randint(*(WAITING if waits else AUTOMATIC)),
        }
        if rng.random() < 0.15:
            operation, waits, payload = "publish", False, {"name": f"r-{number}"}
        answer = issuer.request(operation, payload, task=task, actor=actor, hold=held)
        if answer.effect is None:
            return answer
        line = f"{answer.effect} {operation} {'host' if by_host else 'ops'} {'waits' if waits else 'goes'}\n"
        with self.world.effects.open("a", encoding="utf-8") as file:
            file.write(line)
        effect = str(answer.effect)
        if held:
            self.debts.append((2, lambda: issuer.request_held(effect)))
        elif answer.code == "permitted":
            asked = Asked(effect=effect, operation=operation, by_host=by_host, waits=waits)
            self.now_ready(asked, crossed=0.3)
        return answer

    def _task(self) -> str:
        name = self.rng.choice(TASKS)
        return passing_task() if name == "t1.k" else name

    def _signed(self, person: str, shown: Answer) -> str | None:
        statement = shown.more.get("statement")
        return (
            None
            if statement is None
            else self.rng.choice(self.world.keys[person]).sign(str(statement).encode())
        )

    def approve(self) -> Answer | None:
        """Say yes as somebody."""
        asked = self.recent(waits=True)
        return None if asked is None else self.yes(asked, self.rng.choice(PEOPLE))

    def agree(self) -> Answer | None:
        """Let one after the other say yes to the same effect, until it has its permit."""
        asked, answer = self.recent(waits=True), None
        if asked is None:
            return None
        for person in self.rng.sample(APPROVERS, len(APPROVERS)):
            answer = self.yes(asked, person)
            if answer.code not in {"approved", "forbidden"}:
                break
        return answer

    def yes(self, asked: Asked, person: str) -> Answer:
        """Say yes to an effect as one person."""
        shown = self.issuer.statement(asked.effect)
        signature = self._signed(person, shown)
        if signature is None:
            return shown
        answer = self.issuer.approve(asked.effect, signature)
        if answer.code == "permitted":
            self.now_ready(asked, crossed=0.8)
        return answer

    def decline(self) -> Answer | None:
        """Say no as somebody."""
        asked = self.recent(waits=True)
        if asked is None:
            return None
        shown = self.issuer.statement(asked.effect, decline="not_agreed")
        signature = self._signed(self.rng.choice(PEOPLE[:6]), shown)
        if signature is None:
            return shown
        return self.issuer.decline(asked.effect, signature, reason="not_agreed")

    def withdraw(self) -> Answer | None:
        """Take something back."""
        asked = self.recent()
        return None if asked is None else self.handle(by_host=asked.by_host).withdraw(asked.effect)

    def now_ready(self, asked: Asked, *, crossed: float) -> None:
        """Keep what has its permit, to use it some time; or take something of its authority away and use it then."""
        if self.rng.random() >= crossed:
            self.ready.append(asked)
            return
        acts: Sequence[Callable[[], Answer | None]] = (
            self.stop,
            self.freeze_task,
            self.activate,
            self.activate,
        )
        self.debts.append((0, self.rng.choice(acts)))
        self.debts.append((0, lambda: self.use(asked)))

    def commit(self) -> Answer | None:
        """Use something."""
        self.ready = [one for one in self.ready[-RECENT:] if one.effect not in self.over]
        is_known = self.ready and self.rng.random() < 0.6
        asked = self.rng.choice(self.ready) if is_known else self.recent()
        return None if asked is None else self.use(asked)

    def use(self, asked: Asked) -> Answer | None:
        """Send something; of what hosts send, take the claim and sometimes report."""
        issuer = self.handle(by_host=asked.by_host)
        if asked.operation == "publish":
            answer = issuer.admit(asked.effect)
            if answer.code != "admitted":
                return answer
            self.tell("given", asked.effect)
            self.tell("act", "admit", answer.code)
            if self.rng.random() < 0.2:
                return None
            succeeded = self.rng.random() < 0.9
            return issuer.report(asked.effect, str(answer.more["claim"]), succeeded=succeeded)
        return self.send(issuer, asked.effect)

    def send(self, issuer: Issuer, effect: str) -> Answer:
        """Commit an effect."""
        self.sending = effect
        answer = issuer.commit(effect)
        self.sending = ""
        if answer.state == "no_effect" and answer.code in {"prepare_again", "revoked"}:
            self.tell("act", "commit", "held_back")
        return answer

    # -- stops

    def stop(self) -> Answer:
        """Freeze or revoke a name, and owe its thaw."""
        kind, name = self.rng.choice(STOPS)
        self.debts.append((0, self.commit))
        self.debts.append((self.rng.randint(1, 3), lambda: self.issuer.thaw(kind, name)))
        roll = self.rng.random()
        if roll < 0.25:
            return self.issuer.revoke(kind, name)
        if kind in {"person", "actor"} and roll < 0.6:
            return self.issuer.suspend(kind, str(name))
        return self.issuer.freeze(kind, name)

    def thaw(self) -> Answer | None:
        """Thaw something that is stopped, whoever stopped it."""
        names = self.issuer._house.ledger.read(stopped_names)
        if not names:
            return None
        kind, _colon, name = self.rng.choice(names).partition(":")
        return self.issuer.thaw(kind, name or None)

    def revoke_effect(self) -> Answer | None:
        """Revoke one effect, one person's yes to it, a key, or a task with all below it."""
        asked, roll = self.recent(waits=self.rng.random() < 0.5), self.rng.random()
        if roll < 0.1:
            person = self.rng.choice(("bob", "carol", "dan"))
            keys = self.world.keys[person]
            return self.issuer.revoke("key", self.rng.choice(keys[1:]).fingerprint)
        if roll < 0.2:
            return self.issuer.revoke("task", passing_task())
        if asked is None:
            return None
        if roll < 0.45:
            return self.issuer.revoke("approval", asked.effect, self.rng.choice(PEOPLE[:3]))
        return self.issuer.revoke("effect", asked.effect)

    def revoke_late(self) -> Answer | None:
        """Revoke an effect that somebody sends just now, if there is one."""
        open_ones = self.issuer._house.ledger.read(lambda view: view.claims_open())
        claims = [claim for claim in open_ones if claim.instance]
        return self.issuer.revoke("effect", self.rng.choice(claims).effect_id) if claims else None

    def new_token(self) -> Answer:
        """Give the host a new credential."""
        answer = self.issuer.host_token("till")
        if answer.code == "credential_issued":
            fresh = self.world.token.with_suffix(f".{os.getpid()}")
            fresh.write_text(str(answer.more["token"]), encoding="utf-8")
            fresh.replace(self.world.token)
        return answer

    # -- tasks, money, revisions

    def freeze_task(self) -> Answer:
        """Freeze a task, and owe its thaw."""
        name = self._task()
        self.debts.append((self.rng.randint(0, 3), lambda: self.issuer.task_thaw(name)))
        return self.issuer.task_freeze(name)

    def change_task(self) -> Answer:
        """Close or open a child that comes and goes."""
        name = passing_task()
        if self.rng.random() < 0.15:
            return self.issuer.task_close(name)
        frozen = [
            one.name
            for one in self.issuer._house.ledger.read(lambda view: view.tasks())
            if one.state is TaskState.FROZEN
        ]
        if frozen and self.rng.random() < 0.4:
            return self.issuer.task_thaw(self.rng.choice(frozen))
        until = InstantMs(now_ms() + self.rng.randint(500, 4000))
        return self.issuer.task_open(
            name, parent="t1", budget={"USD.cent": "inherit"}, actors=["agent-7", "agent-8"], expires_ms=until
        )

    def money(self) -> Answer:
        """Grant or lower a ceiling."""
        name = self.rng.choice(("t1", "t1.a", "t1.c", "t1.c"))
        if self.rng.random() < (0.8 if name == "t1" else 0.4):
            return self.issuer.task_grant(name, budget={"USD.cent": self.rng.randint(20, 120)})
        line: Any = self.issuer.task_show(name).more["task"]
        ceiling = int(line["budget"]["USD.cent"]["ceiling"])
        return self.issuer.task_lower(name, budget={"USD.cent": max(0, ceiling - self.rng.randint(1, 150))})

    def tighten(self) -> Answer | None:
        """Put a revision in force that asks more people, or has others to ask."""
        return self.activate(self.world.stricter)

    def activate(self, among: Sequence[str] = ()) -> Answer | None:
        """Put another prepared revision in force."""
        try:
            return Issuer.activate(self.world.profile, self.rng.choice(among or self.world.revisions))
        except LedgerUnavailable:
            return None  # others did so at the same time

    def look(self) -> Answer:
        """Look at everything, which ends what is over."""
        return self.issuer.list(("permitted",))
