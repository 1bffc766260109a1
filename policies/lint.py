"""Which policies parse, but are not ours? Rules about one policy's shape, beyond what Cedar checks.

Rules: `@id` is required, well-formed and unique; annotations are a closed list, since no schema checks
them and a typing error would be silent; a permit names exactly one tier, or one act of people, and both
types, so that leaving something out never widens it; a permit of the approval tier says who may approve, and no
other policy does; a forbid has no arithmetic (an overflow would make it be skipped) and preferably says what is
good (`unless`), so that what nobody thought of is forbidden.

Not here: types (the strict validator), and text (`policies.text`). Next: `policies.bundle`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping

from policies.engine import PolicyShape
from policies.findings import Finding
from policies.schema import ACTS
from policies.text import PolicyText

ANNOTATIONS = ("id", "team", "approvers", "obligation", "say")
PERMIT_ACTIONS = ("issue", "requestApproval", "approve", *ACTS)
# Two sentences; a caller shows it whole, and a model reads it with every refusal.
SAY_CHARACTERS_MAX = 300
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
# Group, team and obligation names: what the profile allows, so that a list may be separated by commas.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?::[1-8])?\Z")
# Groups that one effect can wait for: what the ledger keeps of a wait.
GROUPS_MAX = 8
_NAMES_TYPE = frozenset({"is", "is_in", "eq"})


def lint(policy: PolicyText, shape: PolicyShape) -> tuple[Finding, ...]:
    """Return everything that is wrong with one policy's shape; the order is that of the rules above."""
    found = [*_identity(policy, shape), *_annotations(policy, shape)]
    if shape.effect == "permit":
        found += _permit(policy, shape)
    else:
        found += _forbid(policy, shape)
    return tuple(found)


def names(value: str) -> tuple[str, ...]:
    """Return the names of a comma-separated annotation value, sorted."""
    return tuple(sorted({name.strip() for name in value.split(",")}))


def quorum(value: str) -> Mapping[str, int]:
    """Return how many people of each group an `@approvers` value wants: `finance`, `finance:2`, `finance,stewards`.

    Every group that is named has to say yes; of a group that stands twice the larger number counts (ADR-0026).

    Raises:
        ValueError: the value is not of that form.
    """
    wanted: dict[str, int] = {}
    for one in value.split(","):
        word = one.strip()
        if not _GROUP.match(word):
            raise ValueError(word)
        group, _, count = word.partition(":")
        wanted[group] = max(wanted.get(group, 0), int(count or 1))
    if len(wanted) > GROUPS_MAX:
        raise ValueError(value)
    return dict(sorted(wanted.items()))


def _identity(policy: PolicyText, shape: PolicyShape) -> Iterator[Finding]:
    if "id" not in shape.annotations:
        yield policy.finding("id_missing", 'every policy needs a name: @id("what-it-does")')
    elif not _ID.match(shape.policy_id):
        yield policy.finding(
            "id_malformed",
            "an @id is 1 to 64 of a-z, 0-9, '.', '_', '-' and starts alphanumeric",
            annotation="id",
        )


def _annotations(policy: PolicyText, shape: PolicyShape) -> Iterator[Finding]:
    for name, value in shape.annotations.items():
        if name not in ANNOTATIONS:
            near = difflib.get_close_matches(name, ANNOTATIONS, n=1)
            hint = f"; did you mean @{near[0]}?" if near else f"; known are {', '.join(ANNOTATIONS)}"
            yield policy.finding("annotation_unknown", f"@{name} means nothing here{hint}", annotation=name)
        elif name == "say":
            if not value.isprintable() or not 0 < len(value) <= SAY_CHARACTERS_MAX:
                message = f"@say is 1 to {SAY_CHARACTERS_MAX} printable characters on one line"
                yield policy.finding("annotation_value", message, annotation=name)
        elif name == "approvers":
            yield from _quorum(policy, value)
        elif name != "id" and not all(_NAME.match(one) for one in names(value)):
            yield policy.finding(
                "annotation_value", f"@{name} is one name, or several separated by commas", annotation=name
            )


def _quorum(policy: PolicyText, value: str) -> Iterator[Finding]:
    try:
        quorum(value)
    except ValueError:
        message = f"@approvers is a group, or 1 to {GROUPS_MAX} separated by commas, each with :2 to :8 for more people"
        yield policy.finding("annotation_value", message, annotation="approvers")


def _permit(policy: PolicyText, shape: PolicyShape) -> Iterator[Finding]:
    tier = shape.actions[0] if shape.names_one_action and shape.actions else ""
    if tier not in PERMIT_ACTIONS:
        yield policy.finding(
            "tier",
            'a permit names one tier: action == Action::"issue", or "requestApproval" for a person\'s yes',
        )
    if shape.principal_scope.kind not in _NAMES_TYPE:
        yield policy.finding("principal_type", 'a permit says who: principal is Actor in Group::"..."')
    if shape.resource_scope.kind not in _NAMES_TYPE:
        yield policy.finding("resource_type", "a permit says on what: resource is <a resource type>")
    if tier == "requestApproval" and "approvers" not in shape.annotations:
        yield policy.finding("approvers_missing", 'who may say yes? add @approvers("group")')
    if tier != "requestApproval":
        yield from _no_approvers(policy, shape)


def _forbid(policy: PolicyText, shape: PolicyShape) -> Iterator[Finding]:
    yield from _no_approvers(policy, shape)
    if shape.has_arithmetic:
        message = "arithmetic can overflow, and then this forbid would be skipped; compare without it"
        yield policy.finding("forbid_arithmetic", message)
    if "when" in shape.clauses:
        message = "a guardrail is safer as `forbid ... unless { what is good }`"
        yield dataclasses.replace(policy.finding("forbid_when", message), severity="warning")


def _no_approvers(policy: PolicyText, shape: PolicyShape) -> Iterator[Finding]:
    if "approvers" in shape.annotations:
        message = "@approvers belongs to permits of the approval tier only; here it would do nothing"
        yield policy.finding("approvers_misplaced", message, annotation="approvers")
