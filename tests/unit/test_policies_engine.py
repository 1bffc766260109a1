"""The engine's edges: what it reports in words, what it only does, and what an upgrade could change."""

import dataclasses
import importlib.metadata
import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import cedarpy
import pytest

from policies import (
    Bundle,
    Catalogue,
    Directory,
    EngineUnfit,
    PolicyTrouble,
    ResourceType,
    canaries,
    cedar_schema,
    decide,
    engine,
    load_bundle,
    run_canaries,
)
from policies.ask import tier_ask
from tests.support.policy_room import ACTORS, CATALOGUE, DIRECTORY, PEOPLE, bundle_without_checks, facts

ALLOW = '@id("allow") permit (principal is Actor, action == Action::"issue", resource is Invoice);'
ASK = (
    '@id("ask") @approvers("finance") '
    'permit (principal is Actor, action == Action::"requestApproval", resource is Invoice);'
)
FAILED_A = "error while evaluating policy `a`: "
FORBID = '@id("rule") forbid (principal, action in Action::"permit", resource)'

T = TypeVar("T")


def trouble(reason: Any, policy_id: str = "rule") -> tuple[PolicyTrouble, ...]:
    return (PolicyTrouble(policy_id=policy_id, reason=reason),)


def on_stack(size_bytes: int, work: Callable[[], T]) -> T:
    """Run `work` on a thread with a stack of this size, as a host might."""
    box: list[T] = []
    before = threading.stack_size(size_bytes)
    thread = threading.Thread(target=lambda: box.append(work()))
    thread.start()
    thread.join()
    threading.stack_size(before)
    return box[0]


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("context.nope", "missing_attribute"),
        ("resource.nope == 1", "missing_attribute"),
        ('principal.getTag("x") == 1', "missing_attribute"),
        ('context.cost["we`ird: type error"] > 1', "missing_attribute"),
        ('Person::"nobody".suspended', "missing_entity"),
        ('Actor::"nobody".answers_to.suspended', "missing_entity"),
        ('context.cost["EUR.cent"] + 9223372036854775807 > 0', "overflow"),
        ('context.cost["EUR.cent"] * 9223372036854775807 > 0', "overflow"),
        ("-(0 - 9223372036854775807 - 1) > 0", "overflow"),
        ('context.cost["EUR.cent"] > "5"', "type_error"),
        ("resource.vendor > 1000", "type_error"),
        ('resource.vendor in Group::"x"', "type_error"),
        ("resource.vendor.nope", "type_error"),
        ("1", "type_error"),
        ("if 1 then true else false", "type_error"),
        ('decimal(resource.vendor).lessThan(decimal("1.0"))', "bad_value"),
        ("ip(resource.vendor).isIpv4()", "bad_value"),
        ('datetime("abc") > context.clock.now', "bad_value"),
        ('context.clock.now.offset(duration("9223372036854775807ms")) > context.clock.now', "bad_value"),
    ],
)
@pytest.mark.parametrize("tier", ["both", "approval"])
def test_a_forbid_that_fails_is_named_and_denies(condition: str, reason: str, tier: str) -> None:
    scope = (
        FORBID if tier == "both" else FORBID.replace('in Action::"permit"', '== Action::"requestApproval"')
    )
    bundle = bundle_without_checks(ALLOW, ASK, f"{scope} when {{ {condition} }};")
    decision = decide(bundle, DIRECTORY, facts())
    assert (decision.code, decision.errors) == ("policy_error", trouble(reason))
    assert (decision.issue.allowed, decision.approval.allowed, decision.policy_ids) == (False, False, ())
    # The engine itself said yes: this is what the rule is for.
    ask = tier_ask(DIRECTORY, facts())
    said = engine.evaluate(ask.requests, bundle.handle, DIRECTORY, ask.entities_json, bundle.schema)
    assert [one.outcome for one in said] == ["allow", "allow"]


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"vendor": "hetzner", "number": "R-118"}, "missing_attribute"),
        ({"vendor": "hetzner", "number": "R-118", "amount_cents": "5000"}, "type_error"),
    ],
)
def test_a_forbid_about_an_amount_that_is_absent_or_text_denies_by_name(
    attributes: dict[str, Any], reason: str
) -> None:
    bundle = load_bundle(
        {
            "a.cedar": f"{ALLOW} {FORBID.replace(', resource)', ', resource is Invoice)')}"
            " when { resource.amount_cents > 100000 };"
        },
        CATALOGUE,
    )
    decision = decide(bundle, DIRECTORY, facts(attributes=attributes))
    assert (decision.code, decision.errors) == ("policy_error", trouble(reason))


@pytest.mark.spec("POL-04")
def test_a_missing_attribute_that_no_policy_reads_denies_as_well() -> None:
    bundle = load_bundle({"a.cedar": ALLOW}, CATALOGUE)
    decision = decide(bundle, DIRECTORY, facts(attributes={}))
    assert (decision.code, decision.errors) == ("policy_error", trouble("missing_attribute", ""))


@pytest.mark.spec("POL-04")
def test_an_error_in_a_permit_denies_even_where_another_permits() -> None:
    other = ALLOW.replace('"allow"', '"rule"').replace(
        ";", " when { resource.amount_cents + 9223372036854775807 > 0 };"
    )
    bundle = load_bundle({"a.cedar": ALLOW + other}, CATALOGUE)
    decision = decide(bundle, DIRECTORY, facts())
    assert (decision.code, decision.errors) == ("policy_error", trouble("overflow"))


def with_raw_policies(text: str) -> Bundle:
    """A bundle whose engine set was parsed from text directly, past every door of ours."""
    bundle = bundle_without_checks(ALLOW)
    handle = dataclasses.replace(bundle.handle, handle=cedarpy.PolicySet.from_str(text))
    return dataclasses.replace(bundle, handle=handle)


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (ALLOW + FORBID + ' when { unknown("x") };', trouble("unknown_value", "policy1")),
        # Positions instead of ids: an Allow for a reason that nobody loaded.
        (ALLOW, trouble("anomaly", "")),
        # A forbid that nobody loaded is no reason either.
        (FORBID + ";", trouble("anomaly", "")),
    ],
)
def test_an_answer_that_does_not_fit_the_bundle_denies(text: str, errors: tuple[PolicyTrouble, ...]) -> None:
    decision = decide(with_raw_policies(text), DIRECTORY, facts())
    assert (decision.code, decision.errors) == ("policy_error", errors)


@pytest.mark.spec("POL-04")
def test_a_permit_for_another_tier_or_a_forbid_that_permits_is_an_anomaly() -> None:
    bundle = bundle_without_checks(ALLOW)
    shape = bundle.policies["allow"]
    for lie in (
        dataclasses.replace(shape, actions=("requestApproval",)),
        dataclasses.replace(shape, names_one_action=False),
        dataclasses.replace(shape, effect="forbid"),
    ):
        decision = decide(dataclasses.replace(bundle, policies={"allow": lie}), DIRECTORY, facts())
        assert (decision.code, decision.errors) == ("policy_error", trouble("anomaly", ""))


@pytest.mark.spec("POL-04")
def test_an_answer_without_reasons_is_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundle_without_checks(ALLOW)
    real = cedarpy.is_authorized_batch

    def without_reasons(*asked: Any) -> list[cedarpy.AuthzResult]:
        answers = real(*asked)
        for answer in answers:
            answer.diagnostics.reasons.clear()
        return answers

    assert decide(bundle, DIRECTORY, facts()).code == "permit"
    monkeypatch.setattr(cedarpy, "is_authorized_batch", without_reasons)
    assert decide(bundle, DIRECTORY, facts()).errors == trouble("anomaly", "")
    monkeypatch.setattr(cedarpy, "is_authorized_batch", lambda *asked: real(*asked)[:1])
    assert decide(bundle, DIRECTORY, facts()).errors == trouble("anomaly", "")


class PanicException(BaseException):
    """What a panic of the native part looks like: not an Exception."""


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    "raised", [KeyError("x"), TypeError(), ValueError(), RecursionError(), MemoryError(), PanicException()]
)
def test_whatever_the_engine_raises_denies(raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundle_without_checks(ALLOW)

    def fail(*_asked: object) -> None:
        raise raised

    monkeypatch.setattr(cedarpy, "is_authorized_batch", fail)
    decision = decide(bundle, DIRECTORY, facts())
    assert (decision.code, decision.errors) == ("policy_error", trouble("engine_fault", ""))


def test_an_interrupt_is_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = bundle_without_checks(ALLOW)

    def interrupt(*_asked: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cedarpy, "is_authorized_batch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        decide(bundle, DIRECTORY, facts())


@pytest.mark.spec("POL-04", "SEC-01")
def test_no_decision_denies_and_repeats_nothing() -> None:
    other = Catalogue(
        classes=CATALOGUE.classes,
        operations=CATALOGUE.operations,
        units=("EUR.cent",),
        resource_types=CATALOGUE.resource_types,
    )
    bundle = load_bundle({"a.cedar": ALLOW}, other)
    # Three units are sent where the schema declares one: the engine does not decide.
    mixed = dataclasses.replace(bundle, catalogue=CATALOGUE)
    decision = decide(mixed, DIRECTORY, facts(recipients=("canary-4711",)))
    assert (decision.code, decision.errors) == ("policy_error", trouble("no_decision", ""))
    assert "canary" not in repr(decision)


@pytest.mark.spec("POL-04")
def test_a_directory_of_another_catalogue_is_not_asked() -> None:
    other = Catalogue(
        classes=CATALOGUE.classes,
        operations=CATALOGUE.operations,
        units=CATALOGUE.units,
        resource_types=(*CATALOGUE.resource_types, ResourceType(name="Truck", attributes=())),
    )
    bundle = load_bundle({"a.cedar": ALLOW}, other)
    assert decide(bundle, DIRECTORY, facts()).errors == trouble("anomaly", "")
    moved = Directory(people=PEOPLE, actors=ACTORS, catalogue=other)
    assert decide(bundle, moved, facts()).code == "permit"


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize("size_kib", [128, 256, 512, 1024])
def test_a_small_stack_denies_instead_of_skipping(size_kib: int) -> None:
    long = " && ".join(["!principal.suspended"] * 95)
    bundle = load_bundle({"a.cedar": f"{ALLOW} {FORBID} unless {{ {long} }};"}, CATALOGUE)
    assert decide(bundle, DIRECTORY, facts()).code == "permit"
    decision = on_stack(size_kib * 1024, lambda: decide(bundle, DIRECTORY, facts()))
    assert (decision.code, decision.errors) == ("policy_error", trouble("small_stack", ""))
    roomy = on_stack(8 * 1024 * 1024, lambda: decide(bundle, DIRECTORY, facts()))
    assert roomy.code == "permit"


@pytest.mark.spec("POL-04")
def test_a_bundle_loads_the_same_from_a_small_stack() -> None:
    deep = "(" * 20 + "principal.suspended" + ")" * 20
    text = f"{ALLOW} {FORBID} unless {{ !{deep} }};"
    small = on_stack(256 * 1024, lambda: load_bundle({"a.cedar": text}, CATALOGUE).digest)
    assert small == load_bundle({"a.cedar": text}, CATALOGUE).digest
    assert threading.stack_size() == 0


@pytest.mark.parametrize(
    ("message", "policy_id", "reason"),
    [
        ("error while evaluating policy `a`: recursion limit reached", "a", "recursion"),
        ("error while evaluating policy `a`: something new", "a", "anomaly"),
        ("error while evaluating policy `a`: integer overflow", "a", "overflow"),
        # A message cannot speak for another policy, whatever data it repeats.
        (
            f"{FAILED_A}record does not have the attribute `x`\n{FAILED_A[:-3]}b`: type",
            "a",
            "missing_attribute",
        ),
        (f'{FAILED_A}entity `T::"integer overflow"` does not exist', "a", "missing_entity"),
        ("prefix error while evaluating policy `a`: type error", "", "anomaly"),
        ("error while evaluating policy `A B`: type error", "", "anomaly"),
        ("", "", "anomaly"),
    ],
)
def test_an_error_is_reduced_to_an_id_and_a_word(message: str, policy_id: str, reason: str) -> None:
    assert (engine.read_error(message),) == trouble(reason, policy_id)


@pytest.mark.spec("POL-04")
def test_the_canaries_sing_on_the_pinned_engine() -> None:
    run_canaries()
    assert len(canaries.CANARIES) == 10


@pytest.mark.spec("POL-04")
def test_another_engine_version_is_unfit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "4.13.0")
    for refuse in (run_canaries, lambda: load_bundle({"a.cedar": ALLOW}, CATALOGUE)):
        with pytest.raises(EngineUnfit) as unfit:
            refuse()
        assert unfit.value.canary == "engine_version"


def _validates_everything(*_asked: object) -> Any:
    class Passed:
        validation_passed = True
        errors = ()

    return Passed()


def _silent(*asked: Any) -> list[cedarpy.AuthzResult]:
    answers = REAL_BATCH(*asked)
    for answer in answers:
        answer.diagnostics.errors.clear()
    return answers


def _positional(*asked: Any) -> list[cedarpy.AuthzResult]:
    answers = REAL_BATCH(*asked)
    for answer in answers:
        answer.diagnostics.reasons[:] = [f"policy{n}" for n, _ in enumerate(answer.diagnostics.reasons)]
    return answers


def _without_schema(requests: Any, policies: Any, entities: Any, _schema: Any) -> list[cedarpy.AuthzResult]:
    return REAL_BATCH(requests, policies, entities)


def _schemaless_entities(
    requests: Any, policies: Any, entities: Any, schema: Any
) -> list[cedarpy.AuthzResult]:
    """The same entities, built without the schema: an action is then in no group."""
    bare = [one for one in json.loads(str(entities)) if one["uid"]["type"] != "Action"]
    return REAL_BATCH(requests, policies, cedarpy.Entities.from_json_str(json.dumps(bare)), schema)


REAL_BATCH = cedarpy.is_authorized_batch


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("name", "lie", "canary"),
    [
        ("validate_policies", _validates_everything, "dead_forbid_is_refused"),
        ("is_authorized_batch", _silent, "erroring_forbid_denies"),
        ("is_authorized_batch", _positional, "group_forbid_fires"),
        ("is_authorized_batch", _schemaless_entities, "group_forbid_fires"),
        ("is_authorized_batch", _without_schema, "extra_context_is_undecided"),
    ],
)
def test_an_engine_that_behaves_otherwise_is_named_unfit(
    name: str, lie: object, canary: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cedarpy, name, lie)
    with pytest.raises(EngineUnfit) as unfit:
        run_canaries()
    assert unfit.value.canary == canary


@pytest.mark.spec("POL-04")
def test_what_was_not_checked_is_not_assembled() -> None:
    schema = engine.on_big_stack(lambda: engine.parse_schema(cedar_schema(CATALOGUE)))
    fine, ill_typed = (
        engine.on_big_stack(lambda text=text: engine.parse_policy(text))  # type: ignore[misc]
        for text in (ALLOW, ALLOW.replace(";", " when { context.nope };"))
    )
    assert engine.on_big_stack(lambda: engine.assemble([fine], schema)).policy_ids == {"allow"}
    for policies in ([fine, fine], [ill_typed]):
        with pytest.raises(EngineUnfit, match="round_trip"):
            engine.on_big_stack(lambda chosen=policies: engine.assemble(chosen, schema))  # type: ignore[misc]


def test_a_directory_is_read_once_for_each_schema() -> None:
    engine._handles.clear()
    wider = Catalogue(
        classes=CATALOGUE.classes,
        operations=CATALOGUE.operations,
        units=(*CATALOGUE.units, "token"),
        resource_types=CATALOGUE.resource_types,
    )
    for catalogue in (CATALOGUE, wider, CATALOGUE, wider):
        directory = Directory(people=PEOPLE, actors=ACTORS, catalogue=catalogue)
        assert decide(load_bundle({"a.cedar": ALLOW}, catalogue), directory, facts()).code == "permit"
    # The same people twice: what an entity is depends on the schema that it was read under.
    assert len(engine._handles) == 2
    assert len({revision for revision, _ in engine._handles}) == 1


def test_handles_of_old_directory_revisions_are_let_go() -> None:
    bundle = load_bundle({"a.cedar": ALLOW}, CATALOGUE)
    for number in range(2 * engine.HANDLES_KEPT_MAX):
        people = (*PEOPLE, dataclasses.replace(PEOPLE[0], name=f"p{number}"))
        directory = Directory(people=people, actors=ACTORS, catalogue=CATALOGUE)
        assert decide(bundle, directory, facts()).code == "permit"
        assert decide(bundle, DIRECTORY, facts()).code == "permit"
    assert len(engine._handles) <= engine.HANDLES_KEPT_MAX
    assert any(key[0] == DIRECTORY.revision for key in engine._handles)


def test_threads_decide_the_same_on_shared_handles() -> None:
    bundle = load_bundle({"a.cedar": ALLOW + ASK + FORBID + " unless { !principal.suspended };"}, CATALOGUE)
    expected = decide(bundle, DIRECTORY, facts())
    seen: list[bool] = []
    threads = [
        threading.Thread(
            target=lambda: seen.extend(decide(bundle, DIRECTORY, facts()) == expected for _ in range(100))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 400
