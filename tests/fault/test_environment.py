import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from audit.sinks.lines import span_line
from issuer import Issuer
from ledger.canonical import parse_strict
from ledger.transitions import SpanRow
from tests.support.environed import ODD_ORDER
from tests.support.issuers import Made, budget_line, permitted, refund, standard_issuer
from tests.support.service import Service, answer

LIMITS = (
    *("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
    *("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"),
    *("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT", "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
)


def limits(value: str) -> dict[str, str]:
    return dict.fromkeys(LIMITS, value)


@dataclass(frozen=True, kw_only=True)
class Ground:
    """One issuer and its service; `plain` is what an effect looks like where the environment says nothing."""

    made: Made
    service: Service
    desk: Issuer
    plain: dict[str, object] = field(default_factory=dict)

    def run(self, environment: Mapping[str, str]) -> dict[str, object]:
        command = [sys.executable, "-m", "tests.support.environed", str(self.made.profile)]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=True)
        facts = json.loads(done.stdout)
        assert isinstance(facts, dict)
        return facts

    def story(self, effect: object) -> list[SpanRow]:
        return list(self.desk._house.ledger.read(lambda view: view.story(str(effect))))

    def head(self) -> int:
        return self.desk._house.ledger.read(lambda view: view.head()).sequence


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    folder = tmp_path_factory.mktemp("environment")
    with Service() as service:
        made = standard_issuer(folder / "f0", port=service.port)
        with made.open() as desk:
            bare = Ground(made=made, service=service, desk=desk)
            service.then(answer(201))
            yield Ground(made=made, service=service, desk=desk, plain=bare.run({}))


def body_of(row: SpanRow) -> dict[str, Any]:
    body = parse_strict(row.body)
    assert isinstance(body, dict)
    return body


def shape(rows: list[SpanRow]) -> list[dict[str, Any]]:
    """What must not change from one environment to another: everything but ids, times and values."""
    shapes = []
    for row in rows:
        body = body_of(row)
        kinds = {name: type(value).__name__ for name, value in body["attributes"].items()}
        same = ("v", "name", "kind", "links", "resource", "scope")
        shapes.append({"attributes": kinds, **{member: body[member] for member in same}})
    return shapes


def assert_done_and_complete(ground: Ground, facts: dict[str, object]) -> None:
    """Check the effect: permitted, sent once, and every span whole in the ledger and byte for byte in the sink."""
    assert (facts["asked"], facts["done"]) == ("permitted", "succeeded"), facts
    assert ground.service.effects_of(str(facts["effect"])) == 1
    rows = ground.story(facts["effect"])
    assert shape(rows) == shape(ground.story(ground.plain["effect"]))
    assert len(rows) == 4
    shipped = set(ground.made.sink.read_bytes().splitlines(keepends=True))
    assert {span_line(row) for row in rows} <= shipped
    assert {body_of(row)["attributes"]["permit.resource.id"] for row in rows} == {ODD_ORDER}


HARMLESS: dict[str, Mapping[str, str]] = {
    "the SDK is switched off": {"OTEL_SDK_DISABLED": "true"},
    "every limit is 0": limits("0"),
    "every limit is 1": limits("1"),
    "every limit is 8": limits("8"),
    "nothing is sampled, and everything else is the host's": {
        "OTEL_TRACES_SAMPLER": "always_off",
        "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00",
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=evil,permit.actor=nobody,service.version=0",
        "OTEL_SERVICE_NAME": "evil",
        "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process,os,host",
        "OTEL_PROPAGATORS": "none",
        "OTEL_TRACES_EXPORTER": "none",
        "OTEL_PYTHON_TRACER_PROVIDER": "no_such_provider",
        "OTEL_PYTHON_CONTEXT": "no_such_context",
        "OTEL_PYTHON_ID_GENERATOR": "no_such_generator",
        "OTEL_PYTHON_TRACER_CONFIGURATOR": "no_such_configurator",
        "OTEL_BSP_MAX_QUEUE_SIZE": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    },
}


@pytest.mark.spec("AUD-01", "AUD-03")
@pytest.mark.parametrize("case", HARMLESS)
def test_the_environment_neither_silences_nor_cuts_nor_moves_a_span(ground: Ground, case: str) -> None:
    ground.service.then(answer(201))
    facts = ground.run(HARMLESS[case])
    assert_done_and_complete(ground, facts)
    assert facts["binding"] == ground.plain["binding"]


@pytest.mark.spec("AUD-01", "AUD-03", "ADM-03")
@pytest.mark.parametrize("value", ["many", "-1"])
def test_a_malformed_limit_stops_everything_before_anything_is_recorded_or_sent(
    ground: Ground, value: str
) -> None:
    head, connections, line = ground.head(), ground.service.connections, budget_line(ground.desk, "t1")
    facts = ground.run(limits(value))
    assert (facts["raised"], facts["reason"]) == ("SpanNotRecorded", "otel_environment")
    assert value not in str(facts["message"])
    assert (ground.head(), ground.service.connections) == (head, connections)
    assert budget_line(ground.desk, "t1") == line


@pytest.mark.spec("AUD-03", "OPR-02")
def test_proxies_of_the_environment_are_never_asked(ground: Ground) -> None:
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    with Service() as proxy:
        ground.service.then(answer(201))
        facts = ground.run({**dict.fromkeys(names, proxy.url), "NO_PROXY": "", "no_proxy": ""})
        assert_done_and_complete(ground, facts)
        assert proxy.connections == 0


@pytest.mark.spec("AUD-03", "LED-06")
def test_a_changed_state_folder_moves_no_sink(ground: Ground, tmp_path: Path) -> None:
    before = ground.made.sink.stat()
    ground.service.then(answer(201))
    elsewhere = {name: str(tmp_path / "elsewhere") for name in ("XDG_STATE_HOME", "HOME", "XDG_DATA_HOME")}
    assert_done_and_complete(ground, ground.run(elsewhere))
    assert not (tmp_path / "elsewhere").exists()
    assert ground.made.sink.stat().st_ino == before.st_ino
    assert ground.made.sink.stat().st_size > before.st_size


WHERE: dict[str, Mapping[str, str]] = {
    "east": {"TZ": "Asia/Kolkata", "LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8", "PYTHONHASHSEED": "1"},
    "west": {"TZ": "America/New_York", "LC_ALL": "C", "PYTHONHASHSEED": "2", "PYTHONOPTIMIZE": "2"},
    "nowhere": {
        "TZ": "No/Such_Zone",
        "LC_ALL": "POSIX",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONHASHSEED": "0",
        "PYTHONINTMAXSTRDIGITS": "640",
    },
}


@pytest.mark.spec("EFF-03", "PER-03", "AUD-03")
@pytest.mark.parametrize("where", WHERE)
def test_zone_locale_hash_seed_and_optimisation_change_no_digest_and_no_instant(
    ground: Ground, where: str
) -> None:
    ground.service.then(answer(201))
    facts = ground.run(WHERE[where])
    assert_done_and_complete(ground, facts)
    assert facts["binding"] == ground.plain["binding"]
    binding = facts["binding"]
    assert isinstance(binding, dict)
    assert binding["expires_ms"] == 1_893_436_200_000
    assert binding["wall"] == ["2029-12-31", 19 * 60 + 30, 1]
    assert str(facts["expires"]).endswith("Z")


@pytest.mark.spec("SEC-03", "LED-06")
def test_an_umask_of_nothing_opens_nothing_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with Service(answer(201)) as service:
            made = standard_issuer(tmp_path / "f0", port=service.port)
            with made.open() as issuer:
                assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
                folders = [made.folder / name for name in ("ledger", "keys", "protected", "credentials")]
                inside = [path for folder in folders for path in (folder, *folder.rglob("*"))]
                ours = [made.sink, made.sink.parent, *inside]
                assert {made.ledger, made.ledger.with_name(made.ledger.name + "-wal")} < set(ours)
                assert [path for path in ours if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    finally:
        os.umask(before)
