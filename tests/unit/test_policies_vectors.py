"""Published Cedar suites, through our own doors: same decisions, and what must not validate does not load."""

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import cedarpy
import pytest

from policies import engine
from policies.text import guard, split
from tests.support.policy_room import VECTORS

SUITE = VECTORS / "cedar" / "integration-tests"
SAMPLES = VECTORS / "cedar" / "cedar-cli-sample-data" / "cedar-policy-cli" / "sample-data"
pytestmark = pytest.mark.skipif(
    not SUITE.is_dir(), reason="the published vectors are not beside this repository"
)


@functools.cache
def schema(path: Path) -> engine.SchemaHandle:
    text = path.read_text()
    return engine.on_big_stack(lambda: engine.parse_schema(text))


def parsed(path: Path) -> list[tuple[str, engine.ParsedPolicy]]:
    """The policies of a file, each cut out and parsed alone, as a load does."""
    text = path.read_text()
    assert guard(path.name, text) == ()
    texts = [one.text for one in split(path.name, text)]
    return engine.on_big_stack(lambda: [(one, engine.parse_policy(one)) for one in texts])


def complaints(policies: list[tuple[str, engine.ParsedPolicy]], known: engine.SchemaHandle) -> list[str]:
    return engine.on_big_stack(
        lambda: [found for text, _ in policies for found in engine.validate(text, known)]
    )


def cases() -> list[Any]:
    return [
        pytest.param(path, id=f"{path.parent.name}-{path.stem}")
        for path in sorted((SUITE / "tests").glob("*/*.json"))
    ]


@pytest.mark.parametrize("path", cases())
def test_the_published_requests_are_decided_as_published(path: Path) -> None:
    suite = json.loads(path.read_text())
    known = schema(SUITE / suite["schema"])
    policies = parsed(SUITE / suite["policies"])
    assert (complaints(policies, known) == []) is suite["shouldValidate"]
    # The suite counts policies by position; a position becomes the id under which ours are kept.
    nodes = {
        f"policy{number}": dataclasses.replace(one.node, id=f"policy{number}")
        for number, (_, one) in enumerate(policies)
    }
    handle = engine.PolicyHandle(policy_ids=frozenset(nodes), handle=engine._policy_set(nodes))
    entities = cedarpy.Entities.from_json_str((SUITE / suite["entities"]).read_text(), known.handle)
    assert suite["requests"]
    for request in suite["requests"]:
        asked = {name: request[name] for name in ("principal", "action", "resource", "context")}
        (result,) = cedarpy.is_authorized_batch([asked], handle.handle, entities, known.handle)
        answer = engine._answer(result)
        assert answer.outcome == request["decision"], request["description"]
        assert list(answer.reasons) == sorted(request["reason"]), request["description"]
        assert [one.policy_id for one in answer.errors] == sorted(request["errors"]), request["description"]


def test_the_suite_is_all_there() -> None:
    assert sum(len(json.loads(case.values[0].read_text())["requests"]) for case in cases()) == 74


@pytest.mark.spec("POL-04")
@pytest.mark.parametrize(
    ("policies", "declared"),
    [
        ("sandbox_a/policies_1_bad.cedar", "sandbox_a/schema.cedarschema"),
        ("sandbox_b/policies_5_bad.cedar", "sandbox_b/schema.cedarschema"),
        ("tiny_sandboxes/sample9/policy_bad.cedar", "tiny_sandboxes/sample9/schema.cedarschema"),
    ],
)
def test_sets_that_parse_but_must_not_validate_do_not(policies: str, declared: str) -> None:
    assert complaints(parsed(SAMPLES / policies), schema(SAMPLES / declared)) != []
    good = SAMPLES / policies.replace("_bad", "")
    if good.is_file():
        assert complaints(parsed(good), schema(SAMPLES / declared)) == []


def test_every_published_policy_is_cut_as_the_engine_reads_it() -> None:
    files = [
        path for path in sorted(VECTORS.glob("cedar/**/*.cedar")) if guard(path.name, path.read_text()) == ()
    ]
    assert len(files) > 30
    for path in files:
        text = path.read_text()
        try:
            whole = cedarpy.PolicySet.from_str(text).to_pst()
        except ValueError:
            continue
        parts = [cedarpy.PolicySet.from_str(one.text).to_pst() for one in split(path.name, text)]
        assert all(len(part.static_policies) + len(part.templates) == 1 for part in parts)
        assert len(parts) == len(whole.static_policies) + len(whole.templates)
