"""Issue, ask a person, or deny? One decision over one set of facts, and the reasons for it.

Rules (POL-01, POL-04).
1. Both tiers are asked in one batch. `issue` allowed is a permit; otherwise `requestApproval` allowed is an
   approval; otherwise denied. Deny is the default.
2. Any evaluation error in either tier denies: Cedar skips a forbid that fails and answers Allow. An error
   in a permit only takes permission away, but telling the two apart is not worth a second path.
3. No answer, an exception, an Allow without reasons or with a reason that is not a permit of that tier, a
   Deny with a reason that is not a forbid, a reference to nobody: all deny as `policy_error`.
4. Errors carry a policy id and a fixed word, never the engine's text, which repeats data (SEC-01).

Not here: counting, bounds and budgets (the ledger enforces those as well, POL-03), and whether somebody is
suspended or revoked (the flow asks the ledger; policies see it as a fact).
Next: the flow records the decision in the transaction that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from policies.ask import TIERS, Ask, act_ask, approval_ask, tier_ask
from policies.bundle import Bundle
from policies.directory import Directory, FactsRefused
from policies.engine import Answer, EngineTrouble, evaluate
from policies.facts import ActFacts, ApprovalFacts, Facts
from policies.lint import GROUPS_MAX
from policies.trouble import PolicyTrouble, Trouble


def _nobody() -> Mapping[str, int]:
    return MappingProxyType({})


Code = Literal["permit", "approval", "denied", "policy_error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """One tier's answer.

    `policy_ids` are the permits that allowed it, or the forbids that closed it; `approvers` counts people per group.
    """

    allowed: bool
    policy_ids: tuple[str, ...]
    obligations: tuple[str, ...] = ()
    approvers: Mapping[str, int] = field(default_factory=_nobody)
    say: str | None = None


CLOSED = TierResult(allowed=False, policy_ids=())


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the policies said. Only `permit` issues by itself and only `approval` asks a person.

    `policy_ids` are the determining ones, sorted; `approvers` says how many different people of each group have to
    say yes (whether one may is what the `approve` policy says); `say` is the owner's sentence for the caller. `errors`
    is empty unless the code is `policy_error`.
    """

    issue: TierResult
    approval: TierResult
    code: Code
    policy_ids: tuple[str, ...]
    errors: tuple[PolicyTrouble, ...]
    obligations: tuple[str, ...]
    approvers: Mapping[str, int]
    say: str | None
    bundle_digest: str
    engine: str

    def __post_init__(self) -> None:
        """Refuse a decision whose code does not follow from its tiers and errors."""
        if self.code != _code(self.issue, self.approval, self.errors):
            raise ValueError("a decision's code must follow from its tiers")
        if self.errors and (self.issue.allowed or self.approval.allowed):
            raise ValueError("a decision with errors allows nothing")

    def without_automatic(self) -> Decision:
        """Return this decision for a class whose automatic bound is exhausted (POL-03).

        The automatic tier is closed; the approval tier stays what the policies said.
        """
        if self.errors:
            return self
        return _conclude(CLOSED, self.approval, (), self.bundle_digest, self.engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverDecision:
    """Whether one person may approve one effect, and by which policies."""

    allowed: bool
    policy_ids: tuple[str, ...]
    errors: tuple[PolicyTrouble, ...]
    bundle_digest: str
    engine: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActDecision:
    """Whether one person may do one thing, and by which policies."""

    allowed: bool
    policy_ids: tuple[str, ...]
    errors: tuple[PolicyTrouble, ...]
    bundle_digest: str
    engine: str


class _Undecided(Exception):  # noqa: N818 - carries the errors out of a check and never leaves this file
    def __init__(self, *errors: PolicyTrouble) -> None:
        super().__init__()
        self.errors = tuple(sorted(set(errors)))


def undecided(bundle: Bundle, reason: Trouble) -> Decision:
    """Return the denial for facts that could not even be stated (POL-04)."""
    trouble = PolicyTrouble(policy_id="", reason=reason)
    return _conclude(CLOSED, CLOSED, (trouble,), bundle.digest, bundle.engine)


def decide(bundle: Bundle, directory: Directory, facts: Facts) -> Decision:
    """Return the decision of `bundle` about `facts`. It never raises for facts or for engine trouble."""
    errors: tuple[PolicyTrouble, ...] = ()
    issue = approval = CLOSED
    try:
        issue, approval = _results(bundle, directory, TIERS, lambda: tier_ask(directory, facts))
    except FactsRefused as refused:
        errors = _about(bundle, facts, refused)
    except _Undecided as undecided:
        errors = undecided.errors
    return _conclude(issue, approval, errors, bundle.digest, bundle.engine)


def may_approve(bundle: Bundle, directory: Directory, facts: ApprovalFacts) -> ApproverDecision:
    """Return whether the person of `facts` may approve (APP-03, POL-05). It fails closed like `decide`."""
    errors: tuple[PolicyTrouble, ...] = ()
    result = CLOSED
    try:
        (result,) = _results(bundle, directory, ("approve",), lambda: approval_ask(directory, facts))
    except FactsRefused as refused:
        errors = (PolicyTrouble(policy_id="", reason=refused.reason),)
    except _Undecided as undecided:
        errors = undecided.errors
    return ApproverDecision(
        allowed=result.allowed,
        policy_ids=result.policy_ids,
        errors=errors,
        bundle_digest=bundle.digest,
        engine=bundle.engine,
    )


def _results(
    bundle: Bundle, directory: Directory, actions: tuple[str, ...], question: Callable[[], Ask]
) -> tuple[TierResult, ...]:
    """Ask about each action and return what was answered, or raise `_Undecided` or `FactsRefused`."""
    if bundle.catalogue != directory.catalogue:
        raise _Undecided(PolicyTrouble(policy_id="", reason="anomaly"))
    ask = question()
    try:
        answers = evaluate(ask.requests, bundle.handle, directory, ask.entities_json, bundle.schema)
    except EngineTrouble as trouble:
        raise _Undecided(PolicyTrouble(policy_id="", reason=trouble.reason)) from None
    # Rule 2: an error at either tier counts for both, so all are collected before any answer is read.
    errors = [error for answer in answers for error in answer.errors]
    if errors:
        raise _Undecided(*errors)
    return tuple(_result(bundle, action, answer) for action, answer in zip(actions, answers, strict=True))


def _result(bundle: Bundle, action: str, answer: Answer) -> TierResult:
    """Read one answer without errors; rule 3 refuses what cannot be true of this bundle."""
    allowed = answer.outcome == "allow"
    shapes = [bundle.policies.get(policy_id) for policy_id in answer.reasons]
    for shape in shapes:
        fits = shape is not None and (
            (shape.effect == "permit" and shape.names_one_action and shape.actions == (action,))
            if allowed
            else shape.effect == "forbid"
        )
        if not fits:
            raise _Undecided(PolicyTrouble(policy_id="", reason="anomaly"))
    if answer.outcome == "none" or (allowed and not shapes):
        raise _Undecided(PolicyTrouble(policy_id="", reason="anomaly"))
    wanted = bundle.quorum(answer.reasons) if allowed else _nobody()
    if len(wanted) > GROUPS_MAX:
        # Several policies that ask one another's groups: no wait of ours holds so many, so nobody is asked.
        raise _Undecided(PolicyTrouble(policy_id="", reason="anomaly"))
    return TierResult(
        allowed=allowed,
        policy_ids=answer.reasons,
        obligations=bundle.named(answer.reasons, "obligation") if allowed else (),
        approvers=wanted,
        say=bundle.said(answer.reasons),
    )


def _about(bundle: Bundle, facts: Facts, refused: FactsRefused) -> tuple[PolicyTrouble, ...]:
    """Name each policy that would have read the attribute at fault; an owner sees what depends on it."""
    readers = [
        policy_id
        for policy_id, shape in bundle.policies.items()
        if refused.attribute in shape.reads and shape.resource_scope.type_name in {"", facts.resource_type}
    ]
    return tuple(PolicyTrouble(policy_id=one, reason=refused.reason) for one in readers or [""])


def _code(issue: TierResult, approval: TierResult, errors: tuple[PolicyTrouble, ...]) -> Code:
    if errors:
        return "policy_error"
    if issue.allowed:
        return "permit"
    return "approval" if approval.allowed else "denied"


def _conclude(
    issue: TierResult,
    approval: TierResult,
    errors: tuple[PolicyTrouble, ...],
    bundle_digest: str,
    engine: str,
) -> Decision:
    """Put the answer together from the tier that decides; a denial names what closed either tier."""
    code = _code(issue, approval, errors)
    deciding = issue if code == "permit" else approval
    policy_ids, say = deciding.policy_ids, deciding.say
    if code == "denied":
        policy_ids = tuple(sorted({*issue.policy_ids, *approval.policy_ids}))
        # The sentence that closed both ways says more than one that closed the automatic way only.
        say = approval.say or issue.say
    return Decision(
        issue=issue,
        approval=approval,
        code=code,
        policy_ids=policy_ids,
        errors=errors,
        obligations=deciding.obligations,
        approvers=deciding.approvers if code == "approval" else _nobody(),
        say=say,
        bundle_digest=bundle_digest,
        engine=engine,
    )


def may_act(bundle: Bundle, directory: Directory, facts: ActFacts) -> ActDecision:
    """Return whether the person of `facts` may do what they ask (POL-01). It fails closed like `decide`."""
    errors: tuple[PolicyTrouble, ...] = ()
    result = CLOSED
    try:
        (result,) = _results(bundle, directory, (facts.action,), lambda: act_ask(directory, facts))
    except FactsRefused as refused:
        errors = (PolicyTrouble(policy_id="", reason=refused.reason),)
    except _Undecided as undecided:
        errors = undecided.errors
    return ActDecision(
        allowed=result.allowed,
        policy_ids=result.policy_ids,
        errors=errors,
        bundle_digest=bundle.digest,
        engine=bundle.engine,
    )
