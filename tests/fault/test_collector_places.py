"""Where a sink that another program keeps stands: made once, on record, looked at, and what a restore makes of it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.sink_building import file_of, goes_to
from ledger.model import SinkRegistration
from ledger.sqlite.halt import standing_halt
from tests.fault.test_case_d12_collectors import FILE, caught_up, with_collector
from tests.support.cases import length
from tests.support.collector import LYING, Collector, Key
from tests.support.issuers import Made, permitted, refund, standard_issuer
from tests.support.restoring import restored, saved, sent
from tests.support.service import Service, answer
from tests.support.shell import issuer_here


@pytest.fixture(name="collector")
def _collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service() as service:
        yield service


def registered(issuer: Issuer, name: str = "siem") -> SinkRegistration:
    return next(sink for sink in issuer._house.ledger.read(lambda view: view.sinks()) if sink.name == name)


def watermark_of(made: Made) -> Path:
    with made.open(reading=True) as issuer:
        return file_of(registered(issuer))


@pytest.mark.spec("AUD-02", "AUD-03", "SEC-03")
def test_its_url_and_the_place_of_its_watermark_are_on_record_and_outside_the_ledger_s_folder(
    collector: Collector, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = with_collector(tmp_path / "f0", service, collector, required=True)
    with made.open() as issuer:
        sink = registered(issuer)
        assert (sink.kind, goes_to(sink)) == ("otlp", collector.url)
        mark = file_of(sink)
        assert not mark.is_relative_to(made.folder)
        assert mark.parent.stat().st_mode & 0o777 == 0o700
        service.then(answer(201))
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    assert mark.stat().st_mode & 0o777 == 0o600
    before = json.loads(mark.read_bytes())["sequence"]
    # Another state folder in the environment moves nothing.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    service.then(answer(201))
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
    assert json.loads(mark.read_bytes())["sequence"] > before
    assert not (tmp_path / "elsewhere").exists()
    assert collector.sequences == list(range(1, len(collector.sequences) + 1))


@pytest.mark.spec("AUD-02", "AUD-03")
def test_another_url_in_the_profile_sends_nothing_elsewhere(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    made = with_collector(tmp_path / "f0", service, collector, required=True)
    with Collector() as other:
        text = made.profile.read_text(encoding="utf-8").replace(collector.url, other.url)
        made.profile.write_text(text, encoding="utf-8")
        said = Issuer.activate(made.profile)
        assert said.code == "activated"
        assert "issuer sink replace siem" in said.say
        with made.open() as issuer:
            no = refund(issuer)
            assert (no.code, no.more["reason"]) == ("audit_unavailable", "sinks_changed")
            assert other.connections == 0
            assert issuer.sink_replace("siem").code == "sink_replaced"
            service.then(answer(201))
            assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
        assert other.sequences == list(range(1, len(other.sequences) + 1))
        assert Issuer.ledger_check(made.profile).code == "found"


@pytest.mark.spec("LED-06")
def test_a_ledger_that_was_set_back_is_found_by_a_watermark_alone(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    made = with_collector(tmp_path / "f0", service, collector, required=True)
    before = tmp_path / "before"
    shutil.copytree(made.ledger.parent, before)
    sink = made.sink.read_bytes()
    service.then(answer(201))
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    shutil.rmtree(made.ledger.parent)
    shutil.copytree(before, made.ledger.parent)
    # The file was set back with it, as whoever sets back a whole disk does.
    made.sink.write_bytes(sink)
    asked = collector.connections
    with made.open() as issuer:
        assert standing_halt(made.ledger) is not None
        assert refund(issuer).code in {"ledger_unavailable", "audit_unavailable"}
    assert collector.connections == asked


@pytest.mark.spec("LED-08", "AUD-05", "AUD-02")
def test_after_a_restore_a_collector_that_saw_more_gets_everything_again_with_keys_that_tell_the_epochs_apart(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    made = with_collector(tmp_path / "f0", service, collector, required=True)
    file = saved(made)
    with made.open() as issuer:
        sent(issuer, "v1")
    last = collector.spans[-1][0]
    answered = restored(made, file)
    assert answered.more["sinks"] == {"local": "complete", "siem": "ahead"}
    assert list(watermark_of(made).parent.glob("watermark.json.before-epoch-*"))
    with made.open() as issuer:
        caught_up(issuer, length(issuer))
        rows = issuer._house.ledger.read(lambda view: view.spans_after(0, limit=10_000))
    keys = {key for key, _body in collector.spans}
    places = [row.position for row in rows]
    assert {(place.ledger_id, place.epoch, place.lane, place.sequence) for place in places} < keys
    assert (places[-1].epoch, last in keys) == (last[1] + 1, True)
    bodies: dict[Key, set[bytes]] = {}
    for key, body in collector.spans:
        bodies.setdefault(key, set()).add(body)
    assert all(len(found) == 1 for found in bodies.values())


@pytest.mark.spec("LED-08")
def test_a_collector_alone_never_proves_that_no_admission_is_missed(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    line = f'sink.local = {{ type = "otlp", url = "{collector.url}" }}'
    line += '\nsink.zfile = { type = "jsonl", path = "audit", required = false }'
    old = 'sink.local = { type = "jsonl", path = "audit", required = true }'
    made = standard_issuer(tmp_path / "f0", port=service.port, changes={old: line})
    answered = restored(made, saved(made))
    assert answered.more["sinks"] == {"local": "ahead", "zfile": "complete"}
    with made.open() as issuer:
        assert refund(issuer).code != "permitted"


@pytest.mark.spec("AUD-02", "SUR-02")
def test_doctor_asks_the_collector_as_an_admission_does_and_says_where_it_is(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    made = with_collector(tmp_path / "f0", service, collector, required=True)
    ran = issuer_here("doctor", "--json", at=made.folder)
    assert f"siem: {collector.url} takes spans" in ran.out
    assert collector.requests[-1].body == b""
    collector.always(LYING["a login page"][0])
    ran = issuer_here("doctor", "--json", at=made.folder)
    assert ran.code == "audit_unavailable"
    assert "speaks another protocol" in ran.out
    assert "canary" not in ran.out


@pytest.mark.spec("AUD-02", "SEC-01", "ADM-06")
def test_a_bearer_is_read_from_the_issuer_s_own_credentials_and_stands_nowhere_else(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    line = f'\nsink.siem = {{ type = "otlp", url = "{collector.url}", bearer = "siem_token" }}'
    folder = tmp_path / "f0"
    (folder / "credentials").mkdir(parents=True, mode=0o700)
    secret = folder / "credentials" / "siem_token"
    secret.touch(mode=0o600)
    secret.write_text("canary-4711-token", encoding="utf-8")
    made = standard_issuer(folder, port=service.port, changes={FILE: FILE + line})
    service.then(answer(201))
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    assert {request.fields["authorization"] for request in collector.requests} == {"Bearer canary-4711-token"}
    holding = [
        path.name for path in folder.rglob("*") if path.is_file() and b"canary-4711" in path.read_bytes()
    ]
    assert holding == []
    with made.open() as issuer:
        effect = permitted(refund(issuer, order="o-2"))
        secret.unlink()
        assert issuer.commit(effect).code == "audit_unavailable"


@pytest.mark.spec("AUD-02")
def test_a_folder_of_the_state_that_was_lost_means_everything_again(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    made = with_collector(tmp_path / "f0", service, collector, required=True)
    service.then(answer(201), answer(201))
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
    held = len(collector.sequences)
    shutil.rmtree(watermark_of(made).parent)
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
    assert collector.sequences[held : 2 * held] == list(range(1, held + 1))


@pytest.mark.spec("AUD-02", "AUD-03", "POL-07")
def test_an_open_issuer_goes_on_with_the_credential_that_the_revision_in_force_names(
    collector: Collector, service: Service, tmp_path: Path
) -> None:
    line = f'\nsink.siem = {{ type = "otlp", url = "{collector.url}", bearer = "tenant_a" }}'
    folder = tmp_path / "f0"
    (folder / "credentials").mkdir(parents=True, mode=0o700)
    for name in ("tenant_a", "tenant_b"):
        (folder / "credentials" / name).touch(mode=0o600)
        (folder / "credentials" / name).write_text(f"token-{name}", encoding="utf-8")
    made = standard_issuer(folder, port=service.port, changes={FILE: FILE + line})
    service.then(answer(201), answer(201))
    with made.open() as issuer:
        assert issuer.commit(permitted(refund(issuer))).code == "succeeded"
        profile = made.profile.read_text(encoding="utf-8")
        made.profile.write_text(profile.replace("tenant_a", "tenant_b"), encoding="utf-8")
        assert issuer.activate(made.profile).code == "activated"
        before = len(collector.requests)
        assert issuer.commit(permitted(refund(issuer, order="o-2"))).code == "succeeded"
    assert {one.fields["authorization"] for one in collector.requests[before:]} == {"Bearer token-tenant_b"}
