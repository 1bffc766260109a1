"""Real issuers in a temporary folder: profile, policies, keys, ledger and sink, made by the product's own `init`.

`standard_issuer` is the fixture F0 of the development cases: refunds of one service in `USD.cent`, an organisation
task with a small tree below it, an automatic tier up to 500 and a person's above.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from issuer import Issuer
from issuer.clock import now_ms
from issuer.setup import initialise
from issuer.wire import Answer
from ledger.model import InstantMs
from ledger.scope import SLOTS_MAX

HOUR_MS = 3_600_000

STANDARD_PROFILE = """
format = 1
name = "f0"
mode = "ordinary"
timezone = "UTC"
[audit]
sink.local = { type = "jsonl", path = "audit", required = true }
[person]
u-ana = { roles = ["owner", "operator"], groups = ["finance"], login = "uid:@UID@" }
[actor]
agent-7 = { answers_to = "u-ana", groups = ["bots"] }
agent-8 = { answers_to = "u-ana", groups = ["bots"] }
[class.refund]
each = { "USD.cent" = 500 }
per_task = { permits = 100 }
per_root = { permits = 200 }
lifetime = "10m"
[operation.refund]
class = "refund"
resource = { type = "Order", id = "{order}" }
payload = { order = { string = 40, public = true }, amount = { int = [1, 1_000_000], public = true } }
cost = { "USD.cent" = "{amount}" }
http = { method = "POST", url = "http://127.0.0.1:@PORT@/refunds", once = "Idempotency-Key" }
body = { order = "{order}", amount = "{amount}" }
proves = { succeeded = [201], failed = [409], no_effect = [400, 402, 422], key_kept = "24h" }
[operation.publish]
class = "refund"
resource = { type = "Release", id = "{name}" }
payload = { name = { string = 40, public = true } }
cost = { "USD.cent" = 1 }
host = { deadline = "5m" }
"""

STANDARD_POLICY = """
@id("small-refunds")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Order)
when { context.cost["USD.cent"] <= 500 };
@id("larger-refunds") @approvers("finance")
permit (principal is Actor in Group::"bots", action == Action::"requestApproval", resource is Order)
when { context.cost["USD.cent"] <= 100000 };
@id("releases")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Release);
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An issuer that was made; `profile` is the path to open it with, `sink` its audit file."""

    folder: Path
    sink: Path

    @property
    def profile(self) -> Path:
        """The path of its profile."""
        return self.folder / "profile.toml"

    @property
    def ledger(self) -> Path:
        """The path of its ledger."""
        return self.folder / "ledger" / "ledger.sqlite"

    def open(self, **options: object) -> Issuer:
        """Open it in this process."""
        return Issuer.open(self.profile, **options)  # type: ignore[arg-type]


def made_issuer(folder: Path, profile: str, policies: Mapping[str, str]) -> Made:
    """Make an issuer in `folder` from a profile's text and policies by file name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.toml").write_text(profile, encoding="utf-8")
    (folder / "policies").mkdir(exist_ok=True)
    for name, text in policies.items():
        (folder / "policies" / name).write_text(text, encoding="utf-8")
    made = initialise(folder, uid=os.getuid())
    return Made(folder=folder, sink=Path(made.sinks[0]))


def standard_issuer(
    folder: Path,
    *,
    port: int,
    policy: str = STANDARD_POLICY,
    changes: Mapping[str, str] | None = None,
    hours: int = 24,
) -> Made:
    """Make the standard issuer F0 against the service at `port`; `changes` replaces texts of its profile.

    Tasks: `org` 10,000; `t1` 1,000 below it; `t1.a` 400 and `t1.b` (inherit) below `t1`; all for `hours`.
    """
    text = STANDARD_PROFILE.replace("@UID@", str(os.getuid())).replace("@PORT@", str(port))
    for old, new in (changes or {}).items():
        if old not in text:
            raise AssertionError(f"the standard profile has no {old!r}")
        text = text.replace(old, new)
    made = made_issuer(folder, text, {"policies.cedar": policy})
    with made.open() as issuer:
        whom, one = ["agent-7", "agent-8"], ["agent-7"]
        open_task(issuer, "org", budget={"USD.cent": 10_000}, subject="u-ana", actors=whom, hours=hours)
        open_task(issuer, "t1", parent="org", budget={"USD.cent": 1_000}, hours=hours)
        open_task(issuer, "t1.a", parent="t1", budget={"USD.cent": 400}, actors=one, hours=hours)
        open_task(issuer, "t1.b", parent="t1", budget={"USD.cent": "inherit"}, actors=one, hours=hours)
    return made


def open_task(
    issuer: Issuer,
    name: str,
    *,
    budget: Mapping[str, int | str],
    parent: str | None = None,
    subject: str | None = None,
    actors: Sequence[str] = (),
    hours: int = 24,
    classes: Mapping[str, int | str] | None = None,
    **scope: Mapping[str, int | str],
) -> Answer:
    """Open a task that must open; a root that names no classes here may use every one, as often as a test needs."""
    expires = InstantMs(now_ms() + hours * HOUR_MS)
    if classes is None and parent is None:
        classes = dict.fromkeys(issuer.classes, SLOTS_MAX)
    answer = issuer.task_open(
        name,
        budget=budget,
        parent=parent,
        subject=subject,
        actors=actors,
        classes=classes,
        expires_ms=expires,
        **scope,
    )
    if answer.code != "opened":
        raise AssertionError(answer)
    return answer


def refund(
    issuer: Issuer, *, order: str = "o-1", amount: int = 300, task: str = "t1", **options: object
) -> Answer:
    """Ask for a refund as `agent-7`."""
    payload = {"order": order, "amount": amount}
    return issuer.request("refund", payload, task=task, actor="agent-7", **options)  # type: ignore[arg-type]


def permitted(answer: Answer) -> str:
    """Return the effect of an answer that must be `permitted`."""
    if answer.code != "permitted" or answer.effect is None:
        raise AssertionError(answer)
    return answer.effect


def budget_line(issuer: Issuer, task: str, unit: str = "USD.cent") -> Mapping[str, object]:
    """Return one budget line of a task as `task show` tells it."""
    shown = issuer.task_show(task).more["task"]
    return shown["budget"][unit]  # type: ignore[index,no-any-return]
