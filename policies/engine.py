"""What does Cedar say? The only door to cedarpy: everything that is known about its edges is handled here.

Rules.
1. Policies are re-keyed: their engine id is their `@id`, so reasons and errors name the owner's rule.
2. Entities are always built with the schema. Without it action groups vanish, and a forbid on
   `Action::"permit"` would silently never match.
3. Bundles are parsed on a thread with a stack of its own; on a small stack the validator passes policies
   that it did not check. Evaluation is refused on a thread whose stack cannot hold the deepest policy.
4. Engine error texts echo data. They are reduced to a policy id and one word of `Trouble` and dropped.
5. Whatever the engine raises, a panic of its native part included, becomes `EngineTrouble`.

Not here: what an answer means (`policies.decision`): an Allow with errors is no permission, and only a
decision knows that. Next: `policies.bundle` loads through this file, `policies.decision` evaluates.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeVar

import cedarpy
from cedarpy import pst

from policies.directory import Directory
from policies.trouble import PolicyTrouble, Trouble

# Exact: from Cedar 4.13 a rule that can never apply is a warning, and cedarpy drops every warning.
ENGINE_PIN = "4.12.2"
# The converter needs some 6 KB a level; 64 MiB hold a hundred times what `policies.text` lets through.
LOADING_STACK_BYTES = 64 * 1024 * 1024
# The tree form's own contract: deeper policies do not convert (cedarpy.pst, module docstring).
TREE_LEVELS_MAX = 100
# Twice the levels that load, so that a thread which passes has room to spare: between 1 and 2 MB of stack.
STACK_PROBE_TERMS = 2 * TREE_LEVELS_MAX
# Directory revisions in use at once are the active one, a candidate and perhaps two that drain.
HANDLES_KEPT_MAX = 8

# Anchored at the start of the message: what follows may repeat data that an actor chose.
_TROUBLES: tuple[tuple[str, Trouble], ...] = (
    ("record does not have the attribute", "missing_attribute"),
    ("entity `", "missing_entity"),
    ("integer overflow", "overflow"),
    ("type error", "type_error"),
    ("error while evaluating `", "bad_value"),
    ("the expression contains unknown", "unknown_value"),
    ("recursion limit", "recursion"),
    # Last, since it only says that a quoted name comes first: "`Type::"id"` does not have the attribute".
    ("`", "missing_attribute"),
)
_ERROR = re.compile(r"error while evaluating policy `([a-z0-9._-]+)`: (.*)", re.DOTALL)
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg", "offset", "duration_since"})

_T = TypeVar("_T")


class EngineUnfit(RuntimeError):  # noqa: N818 - says what the engine is, not what was raised
    """This engine must not decide: wrong version, or a canary failed. Whose fault: the installation's."""

    def __init__(self, canary: str) -> None:
        super().__init__(f"the policy engine is not fit to decide: {canary}")
        self.canary = canary


class EngineTrouble(RuntimeError):  # noqa: N818 - trouble is the word of the glossary here
    """The engine did not answer. `reason` is a word of `Trouble`; the cause is not repeated."""

    def __init__(self, reason: Trouble) -> None:
        super().__init__(reason)
        self.reason: Trouble = reason


class Unreadable(ValueError):  # noqa: N818 - describes the text
    """Text that the engine cannot parse. Whose fault: the owner's; the message is the engine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a principal or resource clause demands; `type_name` and `entity` where it names them."""

    kind: Literal["any", "is", "in", "is_in", "eq"]
    type_name: str = ""
    entity: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyShape:
    """A policy as owners' tools see it: its scope, annotations and the facts about its condition.

    `actions` is None where any action matches; `names_one_action` is `action == ...`. `reads` holds the
    names of all attributes that the condition mentions, whatever they belong to.
    """

    policy_id: str
    effect: Literal["permit", "forbid"]
    annotations: Mapping[str, str]
    principal_scope: Scope
    actions: tuple[str, ...] | None
    names_one_action: bool
    resource_scope: Scope
    clauses: tuple[Literal["when", "unless"], ...]
    has_arithmetic: bool
    reads: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPolicy:
    """One policy: its shape, and the engine's tree of it."""

    shape: PolicyShape
    node: pst.Template = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaHandle:
    """A parsed schema and the digest of its text."""

    digest: str
    handle: cedarpy.Schema = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyHandle:
    """A parsed, re-keyed policy set, immutable and shared between threads."""

    policy_ids: frozenset[str]
    handle: cedarpy.PolicySet = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the engine said to one request; reasons and errors are sorted (its own order is random)."""

    outcome: Literal["allow", "deny", "none"]
    reasons: tuple[str, ...]
    errors: tuple[PolicyTrouble, ...]


def engine_version() -> str:
    """Return the name and version that decisions record (POL-06)."""
    return f"cedarpy {importlib.metadata.version('cedarpy')}"


def require_pinned_engine() -> None:
    """Refuse any engine but the measured one.

    Raises:
        EngineUnfit: naming `engine_version`.
    """
    if importlib.metadata.version("cedarpy") != ENGINE_PIN:
        raise EngineUnfit("engine_version")


# ------------------------------------------------------------------------------------------ loading

_stack_size_lock = threading.Lock()


def on_big_stack(work: Callable[[], _T]) -> _T:
    """Run `work` on a thread of its own with `LOADING_STACK_BYTES` of stack, and return its answer.

    What it raises is raised here. The size is a setting of the whole process, so it is set and put back
    under a lock; another thread that starts in between gets more address space, nothing else.
    """
    answers: list[_T] = []
    troubles: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as trouble:  # noqa: BLE001 - re-raised on the caller's thread, whatever it is
            troubles.append(trouble)

    with _stack_size_lock:
        before_bytes = threading.stack_size(LOADING_STACK_BYTES)
        try:
            thread = threading.Thread(target=run, name="policies-loading")
            thread.start()
        finally:
            threading.stack_size(before_bytes)
    thread.join()
    if troubles:
        raise troubles[0]
    return answers[0]


def parse_schema(text: str) -> SchemaHandle:
    """Parse schema text. Call it through `on_big_stack`.

    Raises:
        Unreadable: the text is blank (the engine would take that for "no schema") or does not parse.
    """
    if not text.strip():
        raise Unreadable("a schema cannot be empty")
    try:
        handle = cedarpy.Schema.from_str(text)
    except ValueError as trouble:
        raise Unreadable(str(trouble)) from None
    return SchemaHandle(digest=hashlib.sha256(text.encode()).hexdigest(), handle=handle)


def parse_policy(text: str) -> ParsedPolicy:
    """Parse the text of exactly one policy, guarded before by `policies.text`. Call through `on_big_stack`.

    Raises:
        Unreadable: a syntax error, a template (it permits nothing until linked, and links are not
            validated), none or several policies, more than `TREE_LEVELS_MAX` levels.
    """
    try:
        nodes = cedarpy.PolicySet.from_str(text).to_pst()
    except ValueError as trouble:
        raise Unreadable(str(trouble)) from None
    if nodes.templates:
        raise Unreadable("templates are not allowed: ?principal and ?resource have no meaning here")
    if len(nodes.static_policies) != 1:
        raise Unreadable("expected one policy, ended by one semicolon")
    (node,) = nodes.static_policies.values()
    return ParsedPolicy(shape=_shape(node), node=node)


def validate(text: str, schema: SchemaHandle) -> tuple[str, ...]:
    """Return the strict validator's complaints about one policy's text, in the engine's words."""
    result = cedarpy.validate_policies(text, schema.handle)
    if result.validation_passed:
        return ()
    found = tuple(dict.fromkeys(_without_position(error.error) for error in result.errors))
    return found or ("validation failed without saying why",)


def _without_position(message: str) -> str:
    """Drop the engine's own name of the policy, which is a position in text that it saw alone."""
    return re.sub(r"^for policy `policy\d+`, ", "", message)


def is_impossible(policy: ParsedPolicy, schema: SchemaHandle) -> bool:
    """Whether a validated policy can never apply, by its types alone.

    The engine finds that out but only warns, and the binding drops warnings. So the question is put as an
    error: in `if condition then 1 < "text" else true` the ill-typed branch is not looked at exactly when
    the type checker knows that the condition is false in every environment.
    """
    holds: pst.Expr = pst.BoolLit(True)  # noqa: FBT003 - the tree's own constructor
    for clause in policy.node.clauses:
        term = pst.UnaryOp("not", clause.expr) if isinstance(clause, pst.Unless) else clause.expr
        holds = term if holds == pst.BoolLit(True) else pst.BinaryOp("and", holds, term)  # noqa: FBT003
    ill_typed = pst.BinaryOp("less", pst.LongLit(1), pst.StringLit("text"))
    probe = pst.IfThenElse(holds, ill_typed, pst.BoolLit(True))  # noqa: FBT003
    node = dataclasses.replace(policy.node, clauses=(pst.When(probe),))
    try:
        text = str(_policy_set({node.id: node}))
    except ValueError:
        # The probe is three levels deeper than the policy; at the very edge the question cannot be asked.
        return False
    return bool(cedarpy.validate_policies(text, schema.handle).validation_passed)


def assemble(policies: Sequence[ParsedPolicy], schema: SchemaHandle) -> PolicyHandle:
    """Build the set that decides, keyed by `@id`. Call through `on_big_stack`.

    The set is taken apart once more and compared, and its own text is validated: what serves is what was
    checked, not what another path through the engine made of it.

    Raises:
        EngineUnfit: naming `round_trip` where the set does not come back as it went in.
    """
    nodes = {one.shape.policy_id: dataclasses.replace(one.node, id=one.shape.policy_id) for one in policies}
    handle = _policy_set(nodes)
    if dict(handle.to_pst().static_policies) != nodes or len(nodes) != len(policies):
        raise EngineUnfit("round_trip")
    if not cedarpy.validate_policies(str(handle), schema.handle).validation_passed:
        raise EngineUnfit("round_trip")
    return PolicyHandle(policy_ids=frozenset(nodes), handle=handle)


def _policy_set(nodes: Mapping[str, pst.Template]) -> cedarpy.PolicySet:
    bare = pst.PolicySet(templates=pst.FrozenMap(), static_policies=pst.FrozenMap(nodes), template_links=())
    return cedarpy.PolicySet.from_pst(bare)


def _walk(root: object) -> Iterator[object]:
    """Yield every node under `root`, with a list and not by recursion, so depth costs only memory."""
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            pending.extend(node.values())
        elif isinstance(node, tuple):
            pending.extend(node)
        elif dataclasses.is_dataclass(node):
            yield node
            pending.extend(getattr(node, one.name) for one in dataclasses.fields(node))


def _scope(constraint: pst.PrincipalOrResourceConstraint) -> Scope:
    match constraint:
        case pst.ScopeAny():
            return Scope(kind="any")
        case pst.ScopeIs(entity_type):
            return Scope(kind="is", type_name=str(entity_type))
        case pst.ScopeEq(pst.EntityUid(kind, name)):
            return Scope(kind="eq", type_name=str(kind), entity=(str(kind), name))
        case pst.ScopeIn(pst.EntityUid(kind, name)):
            return Scope(kind="in", entity=(str(kind), name))
        case pst.ScopeIsIn(entity_type, pst.EntityUid(kind, name)):
            return Scope(kind="is_in", type_name=str(entity_type), entity=(str(kind), name))
        case _:
            raise Unreadable("templates are not allowed: ?principal and ?resource have no meaning here")


def _shape(node: pst.Template) -> PolicyShape:
    match node.action:
        case pst.ActionEq(entity):
            actions: tuple[str, ...] | None = (entity.id,)
        case pst.ActionIn(entities):
            actions = tuple(sorted(entity.id for entity in entities))
        case _:
            actions = None
    nodes = tuple(_walk(tuple(clause.expr for clause in node.clauses)))
    operations = {one.op for one in nodes if isinstance(one, pst.UnaryOp | pst.BinaryOp)}
    reads = {one.attr for one in nodes if isinstance(one, pst.GetAttr)}
    reads |= {name for one in nodes if isinstance(one, pst.HasAttr) for name in one.attrs}
    return PolicyShape(
        policy_id=node.annotations.get("id", ""),
        effect=node.effect,
        annotations=MappingProxyType(dict(node.annotations)),
        principal_scope=_scope(node.principal),
        actions=actions,
        names_one_action=isinstance(node.action, pst.ActionEq),
        resource_scope=_scope(node.resource),
        clauses=tuple("unless" if isinstance(one, pst.Unless) else "when" for one in node.clauses),
        has_arithmetic=bool(operations & _ARITHMETIC),
        reads=frozenset(reads),
    )


# --------------------------------------------------------------------------------------- evaluation

_handles: OrderedDict[tuple[str, str], cedarpy.Entities] = OrderedDict()
_handles_lock = threading.Lock()
_this_thread = threading.local()


def _guarded(work: Callable[[], _T]) -> _T:
    """Turn whatever the engine raises into `EngineTrouble`; interrupts of the process pass."""
    try:
        return work()
    except Exception:  # noqa: BLE001 - the binding documents no closed list; a decision must fail closed
        raise EngineTrouble("engine_fault") from None
    except BaseException as trouble:
        # A panic of the native part is not an Exception, so that nobody swallows it; here it means deny.
        if type(trouble).__name__ == "PanicException":
            raise EngineTrouble("engine_fault") from None
        raise


def _base_entities(directory: Directory, schema: SchemaHandle) -> cedarpy.Entities:
    """Return the directory's entities under the schema, parsed once per revision and schema."""
    key = (directory.revision, schema.digest)
    with _handles_lock:
        handle = _handles.get(key)
        if handle is None:
            handle = cedarpy.Entities.from_json_str(directory.entities_json, schema.handle)
            _handles[key] = handle
            if len(_handles) > HANDLES_KEPT_MAX:
                _handles.popitem(last=False)
        else:
            _handles.move_to_end(key)
    return handle


def evaluate(
    requests: Sequence[Mapping[str, object]],
    policies: PolicyHandle,
    directory: Directory,
    entities_json: str,
    schema: SchemaHandle,
) -> tuple[Answer, ...]:
    """Ask the engine about each request, with the directory's entities and those of `entities_json`.

    Returns:
        One answer per request, in order; `none` where the engine did not decide.

    Raises:
        EngineTrouble: the engine raised, answered another number of requests, or this thread's stack is
            too small to trust it. Never anything else but an interrupt of the process.
    """
    _require_stack()

    def ask() -> list[cedarpy.AuthzResult]:
        base = _base_entities(directory, schema)
        entities = base.with_added_json_str(entities_json, schema.handle)
        return cedarpy.is_authorized_batch(
            [dict(request) for request in requests], policies.handle, entities, schema.handle
        )

    results = _guarded(ask)
    if len(results) != len(requests):
        raise EngineTrouble("anomaly")
    return tuple(_answer(result) for result in results)


def _answer(result: cedarpy.AuthzResult) -> Answer:
    if result.decision is cedarpy.Decision.Allow:
        outcome: Literal["allow", "deny", "none"] = "allow"
    elif result.decision is cedarpy.Decision.Deny:
        outcome = "deny"
    else:
        # The texts of an undecided request repeat whole entities and contexts: none of them is read.
        return Answer(outcome="none", reasons=(), errors=(PolicyTrouble(policy_id="", reason="no_decision"),))
    errors = {read_error(message) for message in result.diagnostics.errors}
    reasons = tuple(sorted(result.diagnostics.reasons))
    return Answer(outcome=outcome, reasons=reasons, errors=tuple(sorted(errors)))


def read_error(message: str) -> PolicyTrouble:
    """Reduce an evaluation error to policy id and word; an unrecognised one is an `anomaly`."""
    match = _ERROR.match(message)
    if match is None:
        return PolicyTrouble(policy_id="", reason="anomaly")
    policy_id, rest = match.groups()
    for start, reason in _TROUBLES:
        if rest.startswith(start):
            return PolicyTrouble(policy_id=policy_id, reason=reason)
    return PolicyTrouble(policy_id=policy_id, reason="anomaly")


def _require_stack() -> None:
    """Refuse to decide on a thread whose stack cannot hold the deepest policy that loads.

    On a small stack the evaluator gives up in the middle, and the policy it was in is skipped. Python
    cannot ask for the size of a running thread's stack, so each thread proves it once, by evaluating a
    policy as deep as the tree form allows.
    """
    if getattr(_this_thread, "is_roomy", False):
        return
    if not _guarded(_deep_policy_evaluates):
        raise EngineTrouble("small_stack")
    _this_thread.is_roomy = True


@functools.cache
def _deep_policy() -> tuple[cedarpy.PolicySet, cedarpy.Entities]:
    condition = " && ".join(["principal == principal"] * STACK_PROBE_TERMS)
    text = f"permit (principal, action, resource) when {{ {condition} }};"
    return on_big_stack(lambda: (cedarpy.PolicySet.from_str(text), cedarpy.Entities.from_json_str("[]")))


def _deep_policy_evaluates() -> bool:
    request: dict[str, object] = {
        variable: {"type": variable.title(), "id": "probe"}
        for variable in ("principal", "action", "resource")
    }
    result = cedarpy.is_authorized(request | {"context": {}}, *_deep_policy())
    return result.decision is cedarpy.Decision.Allow and not result.diagnostics.errors
