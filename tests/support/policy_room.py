"""An owner's house for policy tests: invoices, packages and records, three people and two actors.

`facts()` is a small invoice that everything allows; a test names only what differs. `bundle_without_checks`
builds what a load would refuse, to show that a decision does not rely on the load alone.
"""

import dataclasses
import os
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from policies import (
    ActorFact,
    Attribute,
    Bundle,
    Catalogue,
    ClockFact,
    Directory,
    Earlier,
    Facts,
    Limits,
    PersonFact,
    ResourceType,
    TaskFact,
    Usage,
    cedar_schema,
    engine,
)

HOUSE = Path(__file__).resolve().parents[2]
VECTORS = Path(os.environ.get("PERMIT_VECTORS", HOUSE.parent / "shared" / "vectors"))
EXPERIENCE = HOUSE.parent / "shared" / "experience"


def _said(name: str, kind: Any) -> Attribute:
    return Attribute(name=name, kind=kind, said=True)


CATALOGUE = Catalogue(
    classes=("payment", "release", "deletion"),
    operations=("pay_invoice", "publish_package", "delete_record"),
    units=("EUR.cent", "publish", "record"),
    resource_types=(
        ResourceType(
            name="Invoice",
            attributes=(_said("vendor", "string"), _said("number", "string"), _said("amount_cents", "int")),
        ),
        ResourceType(
            name="Package",
            attributes=(_said("name", "string"), _said("version", "string"), _said("integrity", "string")),
        ),
        ResourceType(
            name="Record",
            attributes=(
                _said("table", "string"),
                _said("record", "int"),
                Attribute(name="legal_hold", kind="bool", said=False),
            ),
        ),
    ),
)
PEOPLE = (
    PersonFact(name="alice", groups=("platform",)),
    PersonFact(name="bob", groups=("finance",)),
    PersonFact(name="carol", groups=("finance", "stewards", "platform")),
)
ACTORS = (
    ActorFact(name="ap-bot", groups=("pay-bots",), answers_to="alice"),
    ActorFact(name="rel-bot", groups=("release-bots",), answers_to="alice"),
)
DIRECTORY = Directory(people=PEOPLE, actors=ACTORS, catalogue=CATALOGUE)
# A Tuesday, ten in the morning in Berlin.
NOW_MS = int(datetime(2026, 12, 1, 9, 0, tzinfo=UTC).timestamp()) * 1000


def task(name: str = "ap-december", **changes: Any) -> TaskFact:
    known: dict[str, Any] = {
        "name": name,
        "task_id": f"id-of-{name}",
        "subject": "bob",
        "depth": 0,
        "expires_ms": NOW_MS + 3_600_000,
    }
    return TaskFact(**(known | changes))


_BASE = Facts(
    actor="ap-bot",
    subject="bob",
    operation="pay_invoice",
    action_class="payment",
    resource_type="Invoice",
    resource_id="hetzner/R-118",
    attributes={"vendor": "hetzner", "number": "R-118", "amount_cents": 14_950},
    cost={"EUR.cent": 14_950},
    remaining={"EUR.cent": 1_000_000},
    recipients=("DE02120300000000202051",),
    tasks=(task("ap-december", depth=1), task("accounts-payable")),
    earlier=Earlier(),
    usage=Usage(),
    limits=Limits(task_permits=20, lifetime_s=600),
    clock=ClockFact(now_ms=NOW_MS, minute_of_day=600, weekday=2),
)


def facts(**changes: Any) -> Facts:
    return dataclasses.replace(_BASE, **changes)


def invoice(cents: int, **changes: Any) -> Facts:
    attributes = {"vendor": "hetzner", "number": "R-118", "amount_cents": cents}
    return facts(attributes=attributes, cost={"EUR.cent": cents}, **changes)


def package(version: str, **changes: Any) -> Facts:
    known: dict[str, Any] = {
        "actor": "rel-bot",
        "subject": "alice",
        "operation": "publish_package",
        "action_class": "release",
        "resource_type": "Package",
        "resource_id": f"npm:@acme/tool@{version}",
        "attributes": {"name": "@acme/tool", "version": version, "integrity": "sha512-x"},
        "cost": {"publish": 1},
        "remaining": {"publish": 3},
        "recipients": (),
    }
    return facts(**(known | changes))


def record(*, legal_hold: bool, **changes: Any) -> Facts:
    known: dict[str, Any] = {
        "operation": "delete_record",
        "action_class": "deletion",
        "resource_type": "Record",
        "resource_id": "crm:leads/7",
        "attributes": {"table": "leads", "record": 7, "legal_hold": legal_hold},
        "cost": {"record": 1},
        "recipients": (),
    }
    return facts(**(known | changes))


def at(weekday: int, hour: int, minute: int = 0) -> ClockFact:
    return ClockFact(now_ms=NOW_MS, minute_of_day=hour * 60 + minute, weekday=weekday)


def bundle_without_checks(*policies: str) -> Bundle:
    """Return a bundle of policies that were parsed and keyed, but neither linted nor validated."""

    def build() -> Bundle:
        schema = engine.parse_schema(cedar_schema(CATALOGUE))
        parsed = [engine.parse_policy(text) for text in policies]
        nodes = {one.shape.policy_id: dataclasses.replace(one.node, id=one.shape.policy_id) for one in parsed}
        handle = engine.PolicyHandle(policy_ids=frozenset(nodes), handle=engine._policy_set(nodes))
        return Bundle(
            catalogue=CATALOGUE,
            schema_text=cedar_schema(CATALOGUE),
            digest="unchecked",
            engine="unchecked",
            policies=MappingProxyType({one.shape.policy_id: one.shape for one in parsed}),
            schema=schema,
            handle=handle,
        )

    return engine.on_big_stack(build)
