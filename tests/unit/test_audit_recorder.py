"""The recorder: a complete span, or none, whatever the environment and the host's OpenTelemetry do."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import (
    SpanLimits,
)

from audit.recorder import OtelRecorder, trace_id_of
from audit.vocabulary import AUTOMATIC
from ledger.canonical import canonical_bytes, parse_strict
from ledger.errors import SpanNotRecorded
from ledger.model import InstantMs, LedgerId
from ledger.transitions import Position, RecordedSpan, TransitionName
from tests.support.spans import EFFECT, LEDGER, START_MS, VERSION, counted_bytes, recorder, sample

HOUSE = Path(__file__).resolve().parents[2]
PLACE = Position(ledger_id=LEDGER, epoch=2, lane=0, sequence=7)
PARENT = "00f067aa0ba902b7"


def record(made: OtelRecorder, **changed: Any) -> RecordedSpan:
    transition = changed.pop("transition", sample(TransitionName.EFFECT_ADMITTED, everything=True))
    arguments: dict[str, Any] = {"position": PLACE, "parent_span_id": PARENT, "at_ms": InstantMs(START_MS)}
    return made.record(transition, **(arguments | changed))


def why_not(made: OtelRecorder, **changed: Any) -> str:
    with pytest.raises(SpanNotRecorded) as caught:
        record(made, **changed)
    return caught.value.reason


@pytest.mark.spec("AUD-01", "AUD-05", "AUD-07")
def test_a_span_says_everything_that_was_asked_for_and_nothing_else() -> None:
    transition = sample(TransitionName.EFFECT_ADMITTED, everything=True)
    made = record(recorder(), transition=transition)
    document: Any = parse_strict(made.body)
    attributes = document.pop("attributes")
    assert document == {
        "v": 1,
        "name": "permit.effect.admitted",
        "trace": made.trace_id,
        "span": made.span_id,
        "parent": PARENT,
        "kind": "internal",
        "start": f"{START_MS}000000",
        "end": f"{START_MS}000000",
        "links": [],
        "resource": {"service.name": "permit-issuer", "service.version": VERSION},
        "scope": {"name": "permit_issuer", "version": VERSION},
    }
    asked = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in transition.attributes.items()
    }
    assert attributes == asked | {
        "permit.ledger.id": LEDGER,
        "permit.epoch": 2,
        "permit.lane": 0,
        "permit.sequence": 7,
        "permit.transition": "effect.admitted",
        "permit.story": EFFECT,
        "permit.effect.id": EFFECT,
        "permit.state.from": "permitted",
        "permit.state.to": "admitted",
    }
    assert attributes.keys() - asked.keys() == AUTOMATIC.keys()
    assert canonical_bytes(document | {"attributes": attributes}) == made.body


@pytest.mark.spec("AUD-05")
def test_the_trace_follows_from_ledger_and_story_alone() -> None:
    first = record(recorder(seed=1), parent_span_id=None)
    later = record(recorder(seed=2), parent_span_id=first.span_id, at_ms=InstantMs(START_MS + 10**9))
    assert first.trace_id == later.trace_id == trace_id_of(LEDGER, EFFECT)
    assert first.span_id != later.span_id
    assert trace_id_of("other", EFFECT) != first.trace_id
    # Worked out with sha256sum, so that a ledger's traces can be found after an upgrade.
    assert trace_id_of("ldg_1", "eff_1") == "635671de04bc31125c4c03e9d33c16e0"


@pytest.mark.spec("AUD-03")
def test_the_selftest_passes_here_and_refuses_a_tracer_that_cuts() -> None:
    made = recorder()
    made.selftest()
    made._tracer._span_limits = SpanLimits()
    with pytest.raises(SpanNotRecorded):
        made.selftest()


# ------------------------------------------------------------------- what the environment can do

CHILD = """
import sys
from ledger.errors import SpanNotRecorded
try:
    import audit.recorder
    from tests.unit.test_audit_recorder import record
    from tests.support.spans import recorder
    made = recorder()
    made.selftest()
    sys.stdout.write(record(made).body.decode())
except SpanNotRecorded as refused:
    sys.stdout.write("refused " + refused.reason + " " + refused.message)
"""


def in_child(environment: dict[str, str]) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd=HOUSE,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


TINY = (
    *("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
    *("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"),
    *("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
)


@pytest.mark.spec("AUD-03")
@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_SAMPLER": "always_off", "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0"},
        dict.fromkeys(TINY, "1"),
        dict.fromkeys(TINY, "0"),
        # The SDK reads one limit when it is imported, and the others only where it is not told what to do.
        {name: "many" for name in TINY if name != "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"},
        {"OTEL_RESOURCE_ATTRIBUTES": "service.name=evil,api.key=sk-1", "OTEL_SERVICE_NAME": "evil"},
        {
            "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": "true",
            "OTEL_PYTHON_METER_PROVIDER": "none_such",
            "OTEL_PYTHON_TRACER_PROVIDER": "none_such",
            "OTEL_PYTHON_TRACER_CONFIGURATOR": "none_such",
            "OTEL_PYTHON_CONTEXT": "none_such",
            "OTEL_PYTHON_ID_GENERATOR": "none_such",
        },
    ],
)
def test_the_environment_changes_no_byte_of_a_span(environment: dict[str, str]) -> None:
    assert in_child(environment) == record_after_selftest().decode()


def record_after_selftest() -> bytes:
    made = recorder()
    made.selftest()
    return record(made).body


@pytest.mark.spec("AUD-03")
@pytest.mark.parametrize("value", ["many-4711", "-4711"])
def test_a_malformed_limit_is_a_clear_refusal_that_does_not_repeat_it(value: str) -> None:
    said = in_child({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": value})
    assert said.startswith("refused otel_environment ")
    assert "4711" not in said


@pytest.mark.spec("AUD-03")
def test_a_forked_child_is_refused() -> None:
    script = """
import os
from ledger.errors import SpanNotRecorded
from tests.unit.test_audit_recorder import record
from tests.support.spans import recorder
made = recorder()
record(made)
child = os.fork()
if child == 0:
    try:
        record(made)
    except SpanNotRecorded as refused:
        os._exit(17 if refused.reason == "forked" else 18)
    os._exit(19)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
record(made)
"""
    subprocess.run([sys.executable, "-c", script], cwd=HOUSE, check=True, timeout=60)


# ------------------------------------------------------------------------------ what callers can do


@pytest.mark.spec("AUD-01")
@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("foreign_position", {"position": Position(ledger_id=LedgerId("x"), epoch=0, lane=0, sequence=1)}),
        ("parent", {"parent_span_id": ""}),
        ("parent", {"parent_span_id": "0" * 16}),
        ("parent", {"parent_span_id": PARENT.upper()}),
        ("parent", {"parent_span_id": PARENT + "\n"}),
        ("instant", {"at_ms": -1}),
        ("instant", {"at_ms": 1.5}),
        ("instant", {"at_ms": True}),
        ("instant", {"at_ms": 2**63}),
        ("vocabulary", {"transition": sample(TransitionName.EFFECT_ADMITTED, payload="x")}),
        ("secret_in_span", {"transition": sample(TransitionName.EFFECT_ADMITTED, actor="sk-CANARY-4711")}),
    ],
)
def test_what_cannot_be_a_span_is_refused_with_its_reason(reason: str, changed: dict[str, Any]) -> None:
    assert why_not(recorder(), **changed) == reason


@pytest.mark.spec("AUD-01")
@pytest.mark.parametrize("drawn", [b"", bytes(8), b"short"])
def test_a_random_source_that_gives_nothing_gives_no_span(drawn: bytes) -> None:
    made = OtelRecorder(LEDGER, random_bytes=lambda _size: drawn, service_version=VERSION)
    assert why_not(made) == "span_id"


@pytest.mark.spec("SEC-01", "AUD-01")
def test_an_outcome_with_a_secret_is_recorded_without_it() -> None:
    transition = sample(TransitionName.EFFECT_SUCCEEDED, reference="sk-CANARY-4711")
    made = record(recorder(), transition=transition)
    assert b"CANARY" not in made.body
    assert json.loads(made.body)["attributes"]["permit.reference"] == "[redacted:api_key]"


@pytest.mark.spec("AUD-03", "AUD-05")
def test_threads_share_a_recorder_without_mixing_their_stories() -> None:
    made = OtelRecorder(LEDGER, random_bytes=os.urandom, service_version=VERSION)
    spans: dict[str, list[RecordedSpan]] = {}
    start = threading.Barrier(8)

    def work(story: str) -> None:
        transition = sample(TransitionName.EFFECT_ADMITTED, effect_id=story)  # type: ignore[arg-type]
        start.wait()
        spans[story] = [record(made, transition=transition, parent_span_id=None) for _ in range(50)]

    workers = [threading.Thread(target=work, args=(f"eff_{place:032x}",)) for place in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len({span.span_id for made_here in spans.values() for span in made_here}) == 400
    for story, made_here in spans.items():
        assert {span.trace_id for span in made_here} == {trace_id_of(LEDGER, story)}
        assert all(f'"permit.story":"{story}"'.encode() in span.body for span in made_here)


@pytest.mark.spec("AUD-01")
def test_equal_inputs_give_equal_bytes() -> None:
    assert record(recorder(seed=5)) == record(recorder(seed=5))
    assert counted_bytes(5)(8) == counted_bytes(5)(8)
