"""The owner's terms that the model is played under, twice: as the files that the product reads, and as plain Python.

The two are written side by side and by hand, so that neither can follow a mistake of the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
TIMEZONE: Final = "Europe/Vienna"
AMOUNT_MAX: Final = 2**53 - 1

PROFILE: Final = """
format = 1
name = "model"
mode = "ordinary"
timezone = "Europe/Vienna"
[audit]
sink.local = { type = "jsonl", path = "@AUDIT@", required = true }
[ledger]
effects = 14
unended_per_task = 6
keep = "1h"
[person]
u-ana = { roles = ["owner", "operator"], groups = ["owners"], login = "uid:@UID@" }
u-ben = {}
[actor]
agent-7 = { answers_to = "u-ana", groups = ["bots"] }
agent-8 = { answers_to = "u-ana" }
[class.release]
each = { "USD.cent" = 12, publish = 1 }
per_task = { permits = 6 }
per_root = { permits = 10 }
per_day = { permits = 9, "USD.cent" = 36 }
lifetime = "20m"
wait = "6h"
[class.refund]
each = { "USD.cent" = 12, token = 1 }
per_task = { permits = 4 }
per_root = { permits = 7 }
lifetime = "10m"
wait = "90m"
[operation.publish]
class = "release"
resource = { type = "Release", id = "{order}" }
payload = { order = { string = 40, public = true }, amount = { int = [0, 20], public = true } }
cost = { "USD.cent" = "{amount}", publish = 1 }
host = { deadline = "5m" }
[operation.announce]
class = "release"
lifetime = "4m"
resource = { type = "Release", id = "{order}" }
payload = { order = { string = 40, public = true }, amount = { int = [0, 20], public = true } }
cost = { publish = 1 }
host = { deadline = "90s" }
[operation.refund]
class = "refund"
resource = { type = "Order", id = "{order}" }
payload = { order = { string = 40, public = true }, amount = { int = [0, 20], public = true } }
cost = { "USD.cent" = "{amount}", token = 1 }
http = { method = "POST", url = "http://127.0.0.1:9/refunds" }
body = { order = "{order}", amount = "{amount}" }
proves = { succeeded = [201] }
"""

POLICY: Final = """
@id("releases")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Release)
when { context.earlier.same_payload_unresolved < 2 && context.earlier.same_resource_succeeded < 5 };
@id("refunds")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Order)
when { context.earlier.same_payload_pending < 1 && context.cost["USD.cent"] <= context.remaining["USD.cent"] };
@id("larger") @approvers("owners")
permit (principal is Actor, action == Action::"requestApproval", resource is Order)
when { context.cost["USD.cent"] >= 5 };
"""

UNITS: Final = ("USD.cent", "publish", "token")
PEOPLE: Final = ("u-ana", "u-ben")
ACTORS: Final = ("agent-7", "agent-8")
BOTS: Final = ("agent-7",)
ORDERS: Final = ("o-1", "o-2", "o-3")

EFFECTS_MAX: Final = 14
PRESSED_AT: Final = 11
"""Three quarters of it: from here on nothing is kept only for being looked at."""
URGENT_AT: Final = 12
"""85 of 100: from here on room is made at once. Below, it is made in batches, larger than this house is."""
UNENDED_MAX: Final = 6
KEEP_MS: Final = HOUR


@dataclass(frozen=True, kw_only=True)
class Class:
    """Bounds of automatic permits; `per_day` may be empty."""

    each: dict[str, int]
    per_task: int
    per_root: int
    per_day: dict[str, int]
    lifetime: int
    wait: int


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation; times in milliseconds, `lifetime` beside that of its class."""

    of_class: str
    resource_type: str
    by_host: bool
    deadline: int
    lifetime: int
    cost: Callable[[int], dict[str, int]]


CLASSES: Final = {
    "release": Class(
        each={"USD.cent": 12, "publish": 1},
        per_task=6,
        per_root=10,
        per_day={"permits": 9, "USD.cent": 36},
        lifetime=20 * MINUTE,
        wait=360 * MINUTE,
    ),
    "refund": Class(
        each={"USD.cent": 12, "token": 1},
        per_task=4,
        per_root=7,
        per_day={},
        lifetime=10 * MINUTE,
        wait=90 * MINUTE,
    ),
}

OPERATIONS: Final = {
    "publish": Operation(
        of_class="release",
        resource_type="Release",
        by_host=True,
        deadline=5 * MINUTE,
        lifetime=20 * MINUTE,
        cost=lambda amount: {"USD.cent": amount, "publish": 1},
    ),
    "announce": Operation(
        of_class="release",
        resource_type="Release",
        by_host=True,
        deadline=MINUTE + MINUTE // 2,
        lifetime=4 * MINUTE,
        cost=lambda _amount: {"publish": 1},
    ),
    "refund": Operation(
        of_class="refund",
        resource_type="Order",
        by_host=False,
        deadline=MINUTE,
        lifetime=10 * MINUTE,
        cost=lambda amount: {"USD.cent": amount, "token": 1},
    ),
}


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How many other effects are pending, unresolved or succeeded."""

    pending: int
    unresolved: int
    succeeded: int


def may_issue(*, actor: str, operation: str, cost: int, left: int, payload: Counts, resource: Counts) -> bool:
    """Say what the owner's policies say to `issue`; `cost` and `left` are in `USD.cent`."""
    if actor not in BOTS:
        return False
    if OPERATIONS[operation].resource_type == "Release":
        return payload.unresolved < 2 and resource.succeeded < 5
    return payload.pending < 1 and cost <= left


def may_ask(*, operation: str, cost: int) -> bool:
    """Say what they say to `requestApproval`."""
    return OPERATIONS[operation].resource_type == "Order" and cost >= 5
