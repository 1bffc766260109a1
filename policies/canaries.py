"""Is this engine still the one whose behaviour was measured? Ten questions with known answers.

Each canary is a behaviour that a decision depends on and that an upgrade could change without any error.
One that does not sing makes the engine unfit: nothing is decided (POL-04). They cost some milliseconds and
run at start, at activation and in the self-check; they use the same doors as a decision does.

Not here: what happens then. Next: nothing; this is the last file of the room.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from policies import engine
from policies.ask import tier_ask
from policies.bundle import Bundle, load_bundle
from policies.decision import Decision, decide
from policies.directory import ActorFact, Directory, PersonFact
from policies.engine import Answer, EngineUnfit
from policies.facts import ClockFact, Earlier, Facts, Limits, TaskFact, Usage, cedar_datetime
from policies.findings import BundleRefused
from policies.schema import UNBOUNDED, Attribute, Catalogue, ResourceType
from policies.text import NESTING_MAX, OPERATORS_MAX

_CATALOGUE = Catalogue(
    classes=("nest",),
    operations=("sing",),
    units=("note",),
    resource_types=(
        ResourceType(name="Bird", attributes=(Attribute(name="age", kind="int", said=True),)),
        ResourceType(name="Egg", attributes=()),
    ),
)
_DIRECTORY = Directory(
    people=(PersonFact(name="ann", groups=()),),
    actors=(ActorFact(name="bot", groups=("choir",), answers_to="ann"),),
    catalogue=_CATALOGUE,
)
# 2027-01-15 08:00 UTC; any instant would do.
_NOW_MS = 1_800_000_000_000
_PERMIT = '@id("alpha") permit (principal is Actor, action == Action::"issue", resource is Bird);\n'
_I64_MAX = 2**63 - 1


def _facts(age: int = 1) -> Facts:
    return Facts(
        actor="bot",
        subject="ann",
        operation="sing",
        action_class="nest",
        resource_type="Bird",
        resource_id="canary",
        attributes={"age": age},
        cost={"note": 1},
        remaining={"note": 9},
        recipients=(),
        tasks=(TaskFact(name="t", task_id="t", subject="ann", depth=0, expires_ms=_NOW_MS + 1),),
        earlier=Earlier(),
        usage=Usage(),
        limits=Limits(),
        clock=ClockFact(now_ms=_NOW_MS, minute_of_day=0, weekday=1),
    )


def _load(text: str) -> Bundle:
    return load_bundle({"canary.cedar": text}, _CATALOGUE)


def _decide(text: str, age: int = 1) -> Decision:
    return decide(_load(text), _DIRECTORY, _facts(age))


def _refused(text: str, code: str) -> bool:
    try:
        _load(text)
    except BundleRefused as refused:
        return code in {finding.code for finding in refused.findings}
    return False


def _answer(text: str, context: Mapping[str, object]) -> Answer:
    """Ask the engine about the issue tier with some of the context replaced."""
    bundle = _load(text)
    ask = tier_ask(_DIRECTORY, _facts())
    request = ask.requests[0]
    known = request["context"]
    whole = {**known, **context} if isinstance(known, Mapping) else context
    requests = [{**request, "context": whole}]
    (answer,) = engine.evaluate(requests, bundle.handle, _DIRECTORY, ask.entities_json, bundle.schema)
    return answer


def _dead_forbid_is_refused() -> bool:
    """A forbid that no action can reach: the reason for the exact pin, an error up to Cedar 4.12 only."""
    scope = 'principal is Actor, action == Action::"approve", resource is Bird'
    return _refused(_PERMIT + f'@id("dead") forbid ({scope});', "types") and _refused(
        _PERMIT + '@id("dead") forbid (principal, action, resource is Bird) unless { resource is Bird };',
        "impossible",
    )


def _erroring_forbid_denies() -> bool:
    """A forbid about somebody who does not exist fails, is skipped by the engine, and must deny."""
    forbid = '@id("beta") forbid (principal, action, resource)'
    decision = _decide(_PERMIT + forbid + ' unless { !Person::"nobody".suspended };')
    return decision.code == "policy_error" and [(one.policy_id, one.reason) for one in decision.errors] == [
        ("beta", "missing_entity")
    ]


def _group_forbid_fires() -> bool:
    """A forbid on the group of tiers fires only where the entities were built with the schema."""
    decision = _decide(_PERMIT + '@id("beta") forbid (principal, action in Action::"permit", resource);')
    return decision.code == "denied" and decision.policy_ids == ("beta",)


def _reasons_name_our_ids() -> bool:
    """Reasons are the owner's ids, not positions in a text."""
    decision = _decide(_PERMIT)
    return decision.code == "permit" and decision.policy_ids == ("alpha",)


def _unknown_is_refused() -> bool:
    """A call of `unknown` validates and then makes its policy be skipped; nothing between hides it."""
    forbid = '@id("beta") forbid (principal, action, resource) unless {'
    return all(
        _refused(_PERMIT + forbid + call + " };", "unknown_call")
        for call in ('unknown("x")', 'unknown // (\n ("x")')
    )


def _depth_is_guarded() -> bool:
    """One bracket and one operator too many are refused by us, before the engine could die of more."""
    deep = "(" * (NESTING_MAX + 1) + "true" + ")" * (NESTING_MAX + 1)
    long = " && ".join(["true"] * (OPERATORS_MAX + 2))
    start = '@id("beta") forbid (principal, action, resource) unless '
    return _refused(f"{start}{{ {deep} }};", "too_deep") and _refused(f"{start}{{ {long} }};", "too_long")


def _extra_context_is_undecided() -> bool:
    """The context is closed: a field nobody declared is no decision, and so is a number of another type."""
    return all(
        _answer(_PERMIT, change).outcome == "none"
        for change in ({"extra": 1}, {"cost": {"note": 1.0}}, {"cost": {"note": "1"}}, {"recipients": [1]})
    )


def _enum_typo_is_refused() -> bool:
    """Classes and operations are closed: a misspelt one is found at load."""
    scope = 'principal is Actor, action == Action::"issue", resource is Bird in Class::"nets"'
    return _refused(f'@id("alpha") permit ({scope});', "types")


def _numbers_keep_their_edges() -> bool:
    """Our largest number compares exactly, 2^63 does not parse, and an overflow is an error, not a number."""
    exact = _decide(_PERMIT.replace(";", f" when {{ resource.age == {UNBOUNDED} }};"), UNBOUNDED)
    below = _decide(_PERMIT.replace(";", f" when {{ resource.age == {UNBOUNDED} }};"), UNBOUNDED - 1)
    over = _decide(_PERMIT.replace(";", f" when {{ resource.age + {_I64_MAX} > 0 }};"))
    return (
        (exact.code, below.code, over.code) == ("permit", "denied", "policy_error")
        and over.errors[0].reason == "overflow"
        and _refused(_PERMIT.replace(";", f" when {{ resource.age < {_I64_MAX + 1} }};"), "syntax")
    )


def _datetimes_read_as_written() -> bool:
    """Our form of an instant is exact to the millisecond; the forms that the engine rejects stay rejected."""
    text = _PERMIT.replace(";", ' when { context.clock.now == datetime("2027-01-15T08:00:00.000Z") };')
    clock = {"minute_of_day": 0, "weekday": 1}
    later = {"clock": {"now": cedar_datetime(_NOW_MS + 1), **clock}}
    offset = {"__extn": {"fn": "datetime", "arg": "2027-01-15T08:00:00+00:00"}}
    return (
        _decide(text).code == "permit"
        and _answer(text, later).outcome == "deny"
        and _answer(text, {"clock": {"now": offset, **clock}}).outcome == "none"
    )


CANARIES: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("dead_forbid_is_refused", _dead_forbid_is_refused),
    ("erroring_forbid_denies", _erroring_forbid_denies),
    ("group_forbid_fires", _group_forbid_fires),
    ("reasons_name_our_ids", _reasons_name_our_ids),
    ("unknown_is_refused", _unknown_is_refused),
    ("depth_is_guarded", _depth_is_guarded),
    ("extra_context_is_undecided", _extra_context_is_undecided),
    ("enum_typo_is_refused", _enum_typo_is_refused),
    ("numbers_keep_their_edges", _numbers_keep_their_edges),
    ("datetimes_read_as_written", _datetimes_read_as_written),
)


def run_canaries() -> None:
    """Ask all ten.

    Raises:
        EngineUnfit: naming `engine_version`, or the first canary that did not sing or could not be asked.
    """
    engine.require_pinned_engine()
    for name, sings in CANARIES:
        try:
            heard = sings()
        except Exception as trouble:
            raise EngineUnfit(name) from trouble
        if not heard:
            raise EngineUnfit(name)
