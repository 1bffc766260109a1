"""Reads `policies/tests.toml` of an issuer's folder and says what its policies really answer to each case.

It asks the product's own rooms: the payload is read as a request's would be, the facts are those of a fresh task, and
`policies.decide` and `policies.may_approve` answer. The command that does this for owners comes later.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from issuer.clock import local_time, parse_instant
from issuer.flow.prepare import read_payload, registry_rows
from issuer.flow.refusing import RefusedError
from issuer.operations.payload import UnknownReference, chosen_entries, derive_cost
from issuer.operations.registry import Operation, build_operations
from issuer.places import Places
from issuer.profile import Profile, load_profile
from issuer.terms import load_policies
from ledger.errors import Malformed
from ledger.model import InstantMs
from policies import (
    ApprovalFacts,
    Bundle,
    ClockFact,
    Decision,
    Directory,
    Earlier,
    Facts,
    Limits,
    TaskFact,
    Usage,
    decide,
    may_approve,
)

HOUR_MS = 3_600_000
WORDS = {"permit": "permit", "approval": "approval", "denied": "deny"}
KEYS = frozenset(
    {"name", "expect", "by", "approvers", "actor", "subject", "at", "operation", "payload", "earlier"}
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case, its base filled in: what is asked, and what must be answered (None: not said)."""

    name: str
    ask: Mapping[str, Any]
    expect: str
    by: list[str] | None
    approvers: list[str] | None


@dataclass(frozen=True, kw_only=True)
class Told:
    """What was really answered."""

    expect: str
    by: list[str]
    approvers: list[str]


def read_cases(path: Path) -> list[Case]:
    """Return every case of a file; a key that no reader would know fails."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    base, rows = document.pop("base"), document.pop("case")
    if document:
        raise AssertionError(f"unknown tables {sorted(document)}")
    return [_case(base, row) for row in rows]


def _case(base: Mapping[str, Any], row: Mapping[str, Any]) -> Case:
    if not row.keys() <= KEYS:
        raise AssertionError(f"unknown keys {sorted(row.keys() - KEYS)}")
    # A case that names its operation brings a whole payload: another operation's fields would be in the way.
    own = {} if "operation" in row else base.get("payload", {})
    return Case(
        name=row["name"],
        ask={**base, **row, "payload": {**own, **row.get("payload", {})}},
        expect=row["expect"],
        by=row.get("by"),
        approvers=row.get("approvers"),
    )


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The policies of one issuer's folder, as they answer now."""

    profile: Profile
    operations: Mapping[str, Operation]
    bundle: Bundle
    directory: Directory

    @classmethod
    def of(cls, folder: Path) -> "Judge":
        """Load profile and policies."""
        profile = load_profile(folder / "profile.toml")
        bundle, directory = load_policies(profile, Places(folder / "profile.toml"))
        operations = build_operations(profile, folder=folder, credentials=str)
        return cls(profile=profile, operations=operations, bundle=bundle, directory=directory)

    def answer(self, ask: Mapping[str, Any]) -> Told:
        """Return what is answered to a case's ask."""
        try:
            facts = self._facts(ask)
        except UnknownReference:
            return Told(expect="refused:unknown_reference", by=[], approvers=[])
        except RefusedError as no:
            return Told(expect=f"refused:{no.refusal.code}", by=[], approvers=[])
        except Malformed:
            return Told(expect="refused:malformed", by=[], approvers=[])
        decision = decide(self.bundle, self.directory, facts)
        return Told(
            expect=WORDS.get(decision.code, decision.code),
            by=list(decision.policy_ids),
            approvers=sorted(self._approvers(decision, facts)),
        )

    def _facts(self, ask: Mapping[str, Any]) -> Facts:
        operation = self.operations[ask["operation"]]
        rows = registry_rows(self.profile)
        values = read_payload(operation, ask["payload"], rows)
        entries = chosen_entries(operation.fields, values, rows)
        cost = derive_cost(operation.cost, values)
        now = parse_instant(ask["at"], "at")
        local = local_time(now, self.profile.timezone)
        expires = InstantMs(now + HOUR_MS)
        return Facts(
            actor=ask["actor"],
            subject=ask["subject"],
            operation=operation.name,
            action_class=operation.action_class,
            resource_type=operation.resource_type,
            resource_id=operation.resource_id.render(values, entries, None),
            attributes={field.name: values[field.name] for field in operation.fields},
            cost=cost,
            remaining=cost,
            recipients=tuple(template.render(values, entries, None) for template in operation.recipients),
            tasks=(TaskFact(name="t", task_id="t", subject=ask["subject"], depth=0, expires_ms=expires),),
            earlier=Earlier(**ask.get("earlier", {})),
            usage=Usage(),
            limits=Limits(),
            clock=ClockFact(now_ms=now, minute_of_day=local.minute_of_day, weekday=local.weekday),
        )

    def _approvers(self, decision: Decision, facts: Facts) -> set[str]:
        """Return everybody in the house whom the policies would let say yes."""
        return {
            person
            for person in self.profile.people
            for group in decision.approvers
            if may_approve(
                self.bundle,
                self.directory,
                ApprovalFacts(
                    person=person,
                    effect_id="eff_0",
                    action_class=facts.action_class,
                    subject=facts.subject,
                    actor=facts.actor,
                    approvers=group,
                    now_ms=facts.clock.now_ms,
                ),
            ).allowed
        }
