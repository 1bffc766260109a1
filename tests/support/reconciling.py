"""Unknown effects of a service that can be asked: what tests of reconciliation start from.

The issuer is F0 with a declared inspection, on a clock that a test moves; the service is the scripted one.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from issuer import Issuer
from issuer.operations.contract import Inspection, Inspector, Look
from issuer.operations.deriving import DISPATCH_DEADLINE_MS
from issuer.wire import Answer
from tests.support.cases import Clock, rebuilt, trail
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.service import Service, Step, accept_then_close, answer

NEVER: Final = '"never"'
AFTER_3S: Final = '{ after = "3s", because = "The service refuses requests older than their deadline." }'
KEPT: Final = 'key_kept = "24h" }'
RESEND: Final = (
    'key_kept = "24h", resend = { because = "The service stores the first answer under the key." } }'
)
NOT_FOUND: Final = answer(404, effect=False)
DEADLINE_MS: Final = DISPATCH_DEADLINE_MS


def inspect_line(port: int, absent: str) -> str:
    """Return the owner's declaration of a look by the effect's own id."""
    url = f"http://127.0.0.1:{port}/refunds?key={{effect_id}}"
    return (
        f'inspect = {{ url = "{url}", found = "/items/0/key", equals = "{{effect_id}}", absent = {absent} }}'
    )


@dataclass(kw_only=True)
class Inquiry:
    """One issuer whose effects can be asked about, and its service."""

    service: Service
    made: Made
    clock: Clock
    issuer: Issuer = field(init=False)
    orders: int = 0

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.ahead_ms += milliseconds

    def unknown(self, step: Step | None = None, *, amount: int = 300, task: str = "t1") -> str:
        """Send one refund whose answer is lost, and return its effect."""
        self.orders += 1
        self.service.then(step or accept_then_close())
        effect = permitted(refund(self.issuer, order=f"o-{self.orders}", amount=amount, task=task))
        assert self.issuer.commit(effect).code == "outcome_unknown"
        return effect

    def past_deadline(self, more_ms: int = 0) -> None:
        """Go on to the deadline of what was admitted just now, or a little beyond it."""
        self.pass_ms(DEADLINE_MS + more_ms)

    def look(self, effect: str, *steps: Step, **options: Any) -> Answer:
        self.service.then_on_lookup(*steps)
        return self.issuer.reconcile(effect, **options)

    def evidence(self, effect: str) -> list[tuple[object, ...]]:
        record: Any = self.issuer.show(effect).more["record"]
        return [(row["class"], row["proves"], row["contradicts"]) for row in record["evidence"]]

    def spans(self, effect: str) -> list[Mapping[str, object]]:
        """Return what the trail tells of an effect, with the name of each span."""
        return [
            {"name": entry.name, **entry.attributes}
            for entry in trail(self.issuer)
            if entry.attributes.get("permit.effect.id") == effect
        ]

    def sink_has(self, *spans: Mapping[str, object]) -> bool:
        """Whether the audit file holds these spans."""
        lines = self.made.sink.read_text(encoding="utf-8")
        return all(f'"permit.sequence":{span["permit.sequence"]}' in lines.replace(" ", "") for span in spans)

    def checked(self) -> bool:
        """Whether a full check of the ledger finds nothing."""
        found: Any = Issuer.ledger_check(self.made.profile)
        if found.code != "found" or found.more.get("findings"):
            raise AssertionError(found)
        return True

    def listed(self) -> Any:
        """Return the one unknown effect, as `list` tells of it."""
        effects: Any = self.issuer.list(["unknown"]).more["effects"]
        (row,) = effects
        return row

    def names(self, effect: str) -> list[object]:
        return [span["name"] for span in self.spans(effect)]


def shows(effect: str) -> Step:
    """Return an answer to a lookup that shows the effect."""
    return answer(200, body=json.dumps({"items": [{"key": effect}]}).encode(), effect=False)


class Says:
    """An inspector that says or raises what a test wants; implements `contract.Inspector`.

    An owner's plug-in may have been written by anybody.
    """

    def __init__(self, says: Inspection | BaseException) -> None:
        self.says = says
        self.looks: list[Look] = []

    def inspect(self, look: Look) -> Inspection:
        """See `Inspector.inspect`."""
        self.looks.append(look)
        if isinstance(self.says, BaseException):
            raise self.says
        return self.says


def with_inspector(issuer: Issuer, inspector: Inspector | None) -> Issuer:
    """Return the same open issuer, whose operation `refund` is inspected by `inspector`."""
    operations: Mapping[str, Any] = issuer._house.operations
    refunds = replace(operations["refund"], inspector=inspector)
    return rebuilt(issuer, operations={**operations, "refund": refunds})


def attempt_of(answered: Answer) -> tuple[object, object]:
    attempt: Any = answered.more["attempt"]
    return attempt["seen"], attempt["reason"]


@contextmanager
def opened_inquiry(
    folder: Path,
    *,
    absent: str = NEVER,
    resend: bool = False,
    changes: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    observe: Callable[[str], None] = lambda _step: None,
    **options: Any,
) -> Iterator[Inquiry]:
    """Make an inquiry in `folder` and close it at the end; `options` go to the opening of its issuer."""
    time = clock or Clock()
    with Service() as service:
        line = inspect_line(service.port, absent)
        host = 'host = { deadline = "5m" }'
        declared = {KEPT: f"{RESEND if resend else KEPT}\n{line}", host: f"{host}\n{line}", **(changes or {})}
        made = standard_issuer(folder, port=service.port, changes=declared, hours=72)
        inquiry = Inquiry(service=service, made=made, clock=time)
        with made.open(clock=time, observe=observe, **options) as inquiry.issuer:
            yield inquiry
