"""`make bench`: one warm process; floors beside figures; a table on the terminal, JSON beside it where asked for.

Usage: `python -m tests.bench.run [--json FILE] [--rounds N] [--effects N]`. Goals are design section 9; a goal that is
missed is said in the table and does not fail the run: the figures are for people, the counts are tests elsewhere.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path

from issuer import Issuer
from issuer.flow.decide import decide
from issuer.flow.reference import bound_operation, open_binding
from issuer.house import Locked
from ledger.model import EffectId
from ledger.transitions import Position, Transition, TransitionName
from tests.bench.full_ledger import full_ledger_rows
from tests.bench.parts import BareProgram, Row, median_cost
from tests.bench.recording import recording_rows
from tests.bench.verifying import verifying_rows
from tests.support.issuers import Made, budget_line, made_issuer, open_task, permitted

CALLERS = 64
PROFILE = """
format = 1
name = "bench"
mode = "ordinary"
timezone = "UTC"
[audit]
sink.local = { type = "jsonl", path = "@AUDIT@", required = true }
[person]
ana = { roles = ["owner"], groups = ["g"], login = "uid:@UID@" }
[actor]
bot = { answers_to = "ana", groups = ["bots"] }
[class.note]
each = { note = 1 }
per_task = { permits = 1_000_000 }
per_root = { permits = 1_000_000 }
lifetime = "10m"
[operation.note]
class = "note"
resource = { type = "Note", id = "{name}" }
payload = { name = { string = 40, public = true }, text = { string = 100, public = true } }
cost = { note = 1 }
file = { action = "create", root = "notes", path = "{name}", content = "{text}" }
"""
POLICY = """
@id("notes")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Note)
when { context.cost["note"] <= 1 };
@id("never-twice")
forbid (principal, action == Action::"issue", resource)
unless { context.earlier.same_resource_unresolved == 0 && context.earlier.same_resource_succeeded == 0 };
"""


def _bench_issuer(folder: Path) -> Made:
    text = PROFILE.replace("@UID@", str(os.getuid())).replace("@AUDIT@", str(folder / "audit"))
    made = made_issuer(folder / "issuer", text, {"bench.cedar": POLICY})
    (made.folder / "notes").mkdir(mode=0o700)
    with made.open() as issuer:
        open_task(issuer, "root", budget={"note": 1_000_000}, subject="ana", actors=["bot"])
        open_task(issuer, "leaf", budget={"note": 1_000_000}, parent="root")
    return made


class _Bench:
    def __init__(self, folder: Path, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.made = _bench_issuer(folder)
        self.issuer: Issuer = self.made.open()
        self.count = 0
        self.lock = threading.Lock()

    def next_name(self) -> str:
        with self.lock:
            self.count += 1
            return f"n{self.count}"

    def one(self) -> None:
        """Request and commit one effect."""
        payload = {"name": self.next_name(), "text": "hello"}
        effect = permitted(self.issuer.request("note", payload, task="leaf", actor="bot"))
        if self.issuer.commit(effect).code != "succeeded":
            raise SystemExit("a commit of the benchmark did not succeed")

    def decision(self) -> object:
        """Return something that decides once on what the ledger holds."""
        payload = {"name": self.next_name(), "text": "hello"}
        effect_id = permitted(self.issuer.request("note", payload, task="leaf", actor="bot"))
        house = self.issuer._house
        effect = house.ledger.read(lambda view: view.effect(EffectId(effect_id)))
        if effect is None:
            raise SystemExit("the benchmark's effect is missing")
        pinned = open_binding(house, effect, bound_operation(house, effect))

        def once() -> object:
            return house.ledger.read(
                lambda view: decide(
                    house,
                    pinned,
                    effect,
                    Locked(view=view, now=house.now(), path=view.path(effect.task_id)),
                    stored=True,
                    taken=True,
                )
            )

        return once

    def span(self) -> object:
        """Return something that makes one span."""
        house = self.issuer._house
        recorder = house.ledger.beneath._recorder  # type: ignore[attr-defined]
        transition = Transition(
            name=TransitionName.PROBE, story=house.ledger.ledger_id, attributes={"permit.mode": "ordinary"}
        )
        position = Position(ledger_id=house.ledger.ledger_id, epoch=1, lane=0, sequence=1)
        return lambda: recorder.record(transition, position=position, parent_span_id=None, at_ms=house.now())

    def throughput(self, callers: int, seconds: float) -> float:
        """Return effects per second with so many threads."""
        until = time.perf_counter() + seconds
        done = [0] * callers

        def work(place: int) -> None:
            while time.perf_counter() < until:
                self.one()
                done[place] += 1

        began = time.perf_counter()
        threads = [threading.Thread(target=work, args=(place,)) for place in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(done) / (time.perf_counter() - began)


def _effect_rows(bench: _Bench) -> list[Row]:
    rounds = bench.rounds
    effect = median_cost(bench.one, rounds=rounds)
    decision = median_cost(bench.decision(), rounds=rounds)  # type: ignore[arg-type]
    span = median_cost(bench.span(), rounds=rounds)  # type: ignore[arg-type]
    bare = BareProgram(bench.folder)
    floor = median_cost(bare.run, rounds=rounds)
    bare.close()
    parts = 2 * decision.cpu_s + 4 * span.cpu_s + floor.cpu_s
    return [
        Row(
            what="CPU of one effect (request + commit)",
            figure=f"{effect.cpu_s * 1000:.2f} ms",
            floor=f"{parts * 1000:.2f} ms: 2 decisions, 4 spans, 3 bare commits",
            ratio=effect.cpu_s / parts,
            goal="<= 1.3",
        ),
        Row(
            what="one decision under the lock",
            figure=f"{decision.cpu_s * 1000:.2f} ms",
            floor="-",
            ratio=None,
            goal="",
        ),
        Row(what="one span", figure=f"{span.cpu_s * 1e6:.0f} us", floor="-", ratio=None, goal=""),
        Row(
            what="wall clock of one effect, sequential",
            figure=f"{1 / effect.wall_s:.0f}/s",
            floor=f"{1 / floor.wall_s:.0f}/s: bare program, same durable commits",
            ratio=floor.wall_s / effect.wall_s,
            goal=">= 0.5",
        ),
    ]


def _caller_row(bench: _Bench) -> Row:
    one, many = bench.throughput(1, 3.0), bench.throughput(CALLERS, 3.0)
    return Row(
        what=f"{CALLERS} callers",
        figure=f"{many:.0f}/s",
        floor=f"{one:.0f}/s with one caller",
        ratio=many / one,
        goal=">= 2 where syncing dominates",
    )


def _process_cost(command: list[str], folder: Path, rounds: int) -> float:
    """Return the median CPU seconds of a child process."""
    costs = []
    for _ in range(rounds):
        before = os.times()
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        after = os.times()
        costs.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    return sorted(costs)[rounds // 2]


def _shell_rows(bench: _Bench) -> list[Row]:
    issuer = str(Path(sys.executable).with_name("issuer"))
    (bench.made.folder / "payload.json").write_text('{"name": "same", "text": "hello"}', encoding="utf-8")
    request = [issuer, "request", "note", "--task", "leaf", "--actor", "bot", "--payload", "payload.json"]
    bare = _process_cost([sys.executable, "-c", "pass"], bench.folder, 7)
    rows = []
    for what, command, goal in (
        ("issuer --help", [issuer, "--help"], "<= 3"),
        ("a decision from the shell", request, "<= 6"),
    ):
        cost = _process_cost(command, bench.made.folder, 5)
        rows.append(
            Row(
                what=what,
                figure=f"{cost * 1000:.0f} ms CPU",
                floor=f"{bare * 1000:.0f} ms: bare Python",
                ratio=cost / bare,
                goal=goal,
            )
        )
    return rows


def main() -> int:
    """Measure, print the table, and write the JSON where asked."""
    parser = argparse.ArgumentParser(description="figures beside floors")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument(
        "--effects", type=int, default=2_000, help="of the ledger that is checked; 10000 are full"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        bench = _Bench(Path(name), asked.rounds)
        rows = [*_effect_rows(bench), _caller_row(bench)]
        spent = budget_line(bench.issuer, "root", "note")["settled"]
        bench.issuer.close()
        rows += _shell_rows(bench)
        rows += recording_rows(Path(name))
        rows += full_ledger_rows(Path(name), effects=asked.effects)
        rows += verifying_rows(Path(name))
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        print(f"{row.what:<38}{row.figure:>12}   {ratio:>6}  {row.goal:<28}{row.floor}")
    print(f"{spent} effects were really done")
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
