"""A record that is looked at before it is deleted: its facts decide, its tag guards, and a failed look costs nothing.

The operation is the one of the experience, at a scripted service, in ordinary mode.
"""

import json
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from issuer import Issuer
from issuer.flow.steps import Reached
from issuer.selfcheck import examine
from issuer.wire import Answer
from ledger.model import EffectId
from tests.support.cases import Clock, books, length, refusals, state_of
from tests.support.issuers import Made, budget_line, open_task, permitted, standard_issuer
from tests.support.service import Service, Step, accept_then_close, answer, hang, redirect, shows
from tests.support.shell import HOUSE

EXPERIENCE = Path(os.environ.get("PERMIT_VECTORS", HOUSE.parent / "shared" / "vectors")).parent / "experience"
CANARY = "canary-91d2-crm-token"
FIELDS = 'table = { one_of = ["leads", "contacts"] }, record = { int = [1, 9_000_000] }'
DELETE_RECORD = f"""\
[operation.delete_record]
class    = "deletion"
resource = {{ type = "Record", id = "crm:{{table}}/{{record}}" }}
payload  = {{ {FIELDS} }}     # neither public nor secret = sensitive
cost     = {{ record = 1 }}
before   = {{ url = "https://crm.example/{{table}}/{{record}}", bearer = "crm_token", etag = true, facts = {{ legal_hold = "bool" }} }}
http     = {{ method = "DELETE", url = "https://crm.example/{{table}}/{{record}}", bearer = "crm_token", if_match = true }}
proves   = {{ succeeded = [204], no_effect = [403, 412] }}"""  # noqa: E501 - as the experience has it
DELETION = """[class.deletion]
each = { record = 1 }
per_task = { permits = 50 }
per_root = { permits = 50 }
lifetime = "10m"
"""
POLICY = """
@id("delete-what-nobody-holds")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Record)
unless { resource.legal_hold };
@id("releases")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Release);
"""
LEAD = {"table": "leads", "record": 7}
FREE, HELD = b'{"legal_hold":false,"name":"Ada"}', b'{"legal_hold":true,"name":"Ada"}'
TAG = '"v1"'


def there(body: bytes = FREE, tag: str = TAG) -> Step:
    return shows(body, tag=tag)


@dataclass(kw_only=True)
class Desk:
    """One issuer at one service, and what it asks there."""

    issuer: Issuer
    service: Service
    made: Made
    clock: Clock

    def ask(self, payload: Mapping[str, object] = LEAD, **options: Any) -> Answer:
        asked = {"task": "crm", "actor": "agent-7", **options}
        return self.issuer.request("delete_record", payload, **asked)

    def methods(self) -> list[str]:
        return [received.method for received in self.service.requests]


def made_at(folder: Path, service: Service, changes: Mapping[str, str] | None = None) -> Made:
    operation = DELETE_RECORD.replace("https://crm.example", service.url)
    for old, new in (changes or {}).items():
        assert old in operation
        operation = operation.replace(old, new)
    changed = {
        "[operation.publish]": f"{operation}\n[operation.publish]",
        "[class.refund]": f"{DELETION}[class.refund]",
    }
    made = standard_issuer(folder, port=9, policy=POLICY, changes=changed)
    token = made.folder / "credentials" / "crm_token"
    token.parent.mkdir(exist_ok=True)
    token.touch(0o600)
    token.write_text(CANARY)
    return made


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    clock = Clock()
    with Service() as service:
        made = made_at(tmp_path / "f0", service)
        with made.open(clock=clock) as issuer:
            open_task(issuer, "crm", budget={"record": 5}, subject="u-ana", actors=["agent-7"])
            yield Desk(issuer=issuer, service=service, made=made, clock=clock)


def test_the_operation_is_the_one_of_the_experience() -> None:
    if not (EXPERIENCE / "profile.toml").exists():
        pytest.skip("the experience's files are not here")
    lines = (EXPERIENCE / "profile.toml").read_text().splitlines()
    typed = "\n".join(lines).partition("[operation.delete_record]")[2].splitlines()
    for line in DELETE_RECORD.splitlines()[1:]:
        assert any(one.startswith(line) for one in typed), line


@pytest.mark.spec("EFF-02", "EFF-06", "EFF-07", "POL-02")
def test_a_record_is_looked_at_decided_about_looked_at_again_and_deleted_under_its_tag(desk: Desk) -> None:
    desk.service.then(there(), there(), answer(204, body=b""))
    effect = permitted(desk.ask())
    assert desk.methods() == ["GET"]
    assert desk.issuer.commit(effect).code == "succeeded"
    assert desk.methods() == ["GET", "GET", "DELETE"]
    written = desk.service.writes[0]
    assert (written.path, written.headers["if-match"]) == ("/leads/7", TAG)
    assert {received.headers["authorization"] for received in desk.service.requests} == {f"Bearer {CANARY}"}
    assert books(desk.issuer, "crm", unit="record")["crm"].settled == 1


@pytest.mark.spec("POL-02", "EFF-06")
def test_what_is_known_of_the_record_decides_and_not_what_is_said(desk: Desk) -> None:
    desk.service.then(there(HELD), there(FREE))
    denied = desk.ask()
    assert (denied.code, denied.state) == ("denied", "denied")
    said = desk.ask({**LEAD, "legal_hold": False})
    assert said.code == "malformed"
    assert desk.methods() == ["GET"]
    assert desk.ask().code == "permitted"


@pytest.mark.spec("EFF-10", "POL-06", "SEC-01")
def test_what_was_read_stands_in_no_record_of_a_decision_where_a_field_does_not(desk: Desk) -> None:
    desk.service.then(there())
    effect = permitted(desk.ask())
    rows = desk.issuer._house.ledger.read(lambda view: view.decisions(EffectId(effect)))
    record: Any = json.loads(rows[0].body)
    assert record["withheld"] == ["legal_hold", "record", "table"]
    assert record["facts"]["attributes"] == {}
    stored = desk.issuer._house.ledger.read(lambda view: view.effect(EffectId(effect)))
    assert stored is not None
    assert b"legal_hold" not in stored.binding
    assert TAG.strip('"').encode() not in stored.binding
    kept = [path for path in desk.made.folder.rglob("*") if path.is_file() and path.name != "crm_token"]
    assert [path.name for path in kept if CANARY.encode() in path.read_bytes()] == []


@pytest.mark.spec("POL-06", "EFF-02")
def test_where_every_field_is_public_the_record_shows_what_was_read(tmp_path: Path) -> None:
    public = FIELDS.replace(" }", ", public = true }")
    with Service(there(HELD), there()) as service:
        made = made_at(tmp_path / "f0", service, {FIELDS: public})
        with made.open() as issuer:
            open_task(issuer, "crm", budget={"record": 5}, subject="u-ana", actors=["agent-7"])
            asked = issuer.request("delete_record", LEAD, task="crm", actor="agent-7")
            rows = issuer._house.ledger.read(lambda view: view.decisions(EffectId(str(asked.effect))))
            stored = issuer._house.ledger.read(lambda view: view.effect(EffectId(str(asked.effect))))
    record: Any = json.loads(rows[0].body)
    assert (asked.code, record["withheld"]) == ("denied", [])
    assert record["facts"]["attributes"] == {**LEAD, "legal_hold": True}
    assert stored is not None
    bound = json.loads(stored.binding)["preconditions"]
    assert (bound["etag"], bound["facts"]) == (TAG, {"legal_hold": True})


@pytest.mark.spec("SEC-01", "SEC-03", "ADM-06")
def test_every_credential_that_a_read_names_is_sealed_and_looked_after(tmp_path: Path) -> None:
    inspect = 'inspect = { url = "http://127.0.0.1:9/{record}", found = "/id", absent = "never", bearer = "crm_find" }'
    changes = {
        'bearer = "crm_token", etag': 'bearer = "crm_look", etag',
        "no_effect = [403, 412] }": f"no_effect = [403, 412] }}\n{inspect}",
    }
    with Service(there(), there(), answer(204, body=b"")) as service:
        made = made_at(tmp_path / "f0", service, changes)
        look = made.folder / "credentials" / "crm_look"
        look.touch(0o600)
        look.write_text("canary-look")
        missing = [
            one.says for one in examine(made.profile).findings if one.check == "credentials" and not one.ok
        ]
        assert len(missing) == 1
        assert "crm_find" in missing[0]
        with made.open() as issuer:
            open_task(issuer, "crm", budget={"record": 5}, subject="u-ana", actors=["agent-7"])
            effect = permitted(issuer.request("delete_record", LEAD, task="crm", actor="agent-7"))
            assert issuer.commit(effect).code == "succeeded"
        assert "canary-look" not in look.read_text()
        read, again, written = [received.headers["authorization"] for received in service.requests]
    assert (read, again, written) == ("Bearer canary-look", "Bearer canary-look", f"Bearer {CANARY}")


CHANGED: list[tuple[str, Step, str]] = [
    ("another tag", there(FREE, '"v2"'), "etag"),
    ("held now", there(HELD), "legal_hold"),
    ("held now, under another tag", there(HELD, '"v2"'), "etag"),
]


@pytest.mark.spec("EFF-07", "ADM-01")
@pytest.mark.parametrize(("step", "field"), [row[1:] for row in CHANGED], ids=[row[0] for row in CHANGED])
def test_a_record_that_changed_is_not_deleted_and_its_permit_is_not_spent(
    desk: Desk, step: Step, field: str
) -> None:
    desk.service.then(there())
    effect = permitted(desk.ask())
    desk.service.then(step)
    refused = desk.issuer.commit(effect)
    assert (refused.code, refused.state, refused.more["field"]) == ("prepare_again", "permitted", field)
    assert refusals(desk.issuer)[-1] == ("prepare_again", field, None)
    assert (desk.service.writes, budget_line(desk.issuer, "crm", "record")["reserved"]) == ((), 0)
    # As it was again, the same permit is still good, once.
    desk.service.then(there(), answer(204, body=b""))
    assert desk.issuer.commit(effect).code == "succeeded"
    assert len(desk.service.writes) == 1


UNREADABLE: list[tuple[str, Step, str]] = [
    ("no answer", accept_then_close(), "no_answer"),
    ("gone", shows(status=404), "not_found"),
    ("away", shows(status=503), "service_failed"),
    ("elsewhere", redirect("http://127.0.0.1:9/"), "redirected"),
    ("said twice", there(b'{"legal_hold":true,"legal_hold":false}'), "duplicate_key"),
    ("weak tag", there(tag='W/"v1"'), "tag_weak"),
    ("no fact", there(b"{}"), "fact_missing"),
    ("fact of another type", there(b'{"legal_hold":"no"}'), "fact_wrong_type"),
]


@pytest.mark.spec("EFF-06", "SUR-02")
@pytest.mark.parametrize(
    ("step", "word"), [row[1:] for row in UNREADABLE], ids=[row[0] for row in UNREADABLE]
)
def test_what_cannot_be_looked_at_is_neither_prepared_nor_deleted(desk: Desk, step: Step, word: str) -> None:
    desk.service.then(step)
    no = desk.ask()
    assert (no.code, no.effect, no.retryable, no.more["field"]) == ("target_unreadable", None, True, word)
    assert refusals(desk.issuer)[-1] == ("target_unreadable", word, None)
    desk.service.then(there())
    effect = permitted(desk.ask())
    desk.service.then(step)
    later = desk.issuer.commit(effect)
    assert (later.code, later.state, later.more["field"]) == ("target_unreadable", "permitted", word)
    assert (desk.service.writes, budget_line(desk.issuer, "crm", "record")["reserved"]) == ((), 0)
    desk.service.then(there(), answer(204, body=b""))
    assert desk.issuer.commit(effect).code == "succeeded"


@pytest.mark.spec("EFF-06")
def test_a_held_effect_is_looked_at_again_before_it_is_decided(desk: Desk) -> None:
    desk.service.then(there(), there(HELD), shows(status=503), there())
    held = desk.ask(hold=True)
    assert held.code == "prepared"
    assert desk.issuer.request_held(str(held.effect)).more["field"] == "legal_hold"
    assert desk.issuer.request_held(str(held.effect)).code == "target_unreadable"
    assert desk.issuer.request_held(str(held.effect)).code == "permitted"


@pytest.mark.spec("EFF-07", "REP-04", "OPR-01")
def test_what_changes_after_the_last_look_is_refused_by_the_service_and_costs_nothing(desk: Desk) -> None:
    desk.service.then(there(), there(), answer(412))
    effect = permitted(desk.ask())
    done = desk.issuer.commit(effect)
    assert (done.code, done.state) == ("no_effect", "no_effect")
    assert books(desk.issuer, "crm", unit="record")["crm"].settled == 0
    assert len(desk.service.writes) == 1


@pytest.mark.spec("REP-01", "REP-05")
def test_a_404_to_the_deletion_proves_nothing_and_nobody_looks_again_by_itself(desk: Desk) -> None:
    desk.service.then(there(), there(), answer(404))
    effect = permitted(desk.ask())
    assert desk.issuer.commit(effect).state == "unknown"
    assert desk.issuer.commit(effect).code == "outcome_unknown"
    assert desk.methods() == ["GET", "GET", "DELETE"]


@pytest.mark.spec("EFF-06", "BUD-05", "BUD-06", "SEC-02")
def test_for_a_task_that_may_not_the_service_is_not_even_asked(desk: Desk) -> None:
    issuer = desk.issuer
    one = {"budget": {"record": 5}, "subject": "u-ana"}
    open_task(issuer, "others", actors=["agent-8"], **one)  # type: ignore[arg-type]
    open_task(issuer, "narrow", actors=["agent-7"], classes={"refund": 5}, **one)  # type: ignore[arg-type]
    open_task(issuer, "operations", actors=["agent-7"], operations={"publish": 5}, **one)  # type: ignore[arg-type]
    open_task(issuer, "parent", actors=["agent-7"], **one)  # type: ignore[arg-type]
    open_task(issuer, "child", parent="parent", budget={"record": "inherit"}, actors=["agent-7"])
    open_task(issuer, "short", actors=["agent-7"], hours=1, **one)  # type: ignore[arg-type]
    issuer.task_freeze("parent")
    codes = {
        "parent": "task_frozen",
        "child": "task_frozen",
        "others": "forbidden",
        "narrow": "outside_task",
        "operations": "outside_task",
    }
    for task, code in codes.items():
        assert desk.ask(task=task).code == code, task
        assert refusals(issuer)[-1][0] == code
    desk.clock.ahead_ms = 2 * 3_600_000
    assert desk.ask(task="short").code == "task_expired"
    assert desk.ask(task="nowhere").code == "unknown_reference"
    issuer.task_close("crm")
    assert desk.ask().code == "task_closed"
    assert desk.service.connections == 0


@pytest.mark.spec("EFF-06", "PER-03", "ADM-04")
def test_for_an_effect_that_cannot_be_used_the_service_is_not_asked_again(desk: Desk) -> None:
    desk.service.then(there(), there(), there(), answer(204, body=b""))
    effect, late = permitted(desk.ask()), permitted(desk.ask({**LEAD, "record": 8}))
    desk.issuer.task_freeze("crm")
    assert desk.issuer.commit(effect).code == "task_frozen"
    assert desk.methods() == ["GET", "GET"]
    desk.issuer.task_thaw("crm")
    assert desk.issuer.commit(effect).code == "succeeded"
    assert desk.issuer.commit(effect).code == "succeeded"
    assert desk.methods() == ["GET", "GET", "GET", "DELETE"]
    desk.clock.ahead_ms = 11 * 60_000
    expired = desk.issuer.commit(late)
    assert (expired.code, state_of(desk.issuer, late)) == ("expired", "expired")
    assert len(desk.service.requests) == 4


@pytest.mark.spec("EFF-06", "EFF-07", "ADM-05")
@pytest.mark.parametrize(
    ("kind", "name"),
    [("all", None), ("class", "deletion"), ("operation", "delete_record"), ("actor", "agent-7")],
)
def test_for_what_is_frozen_the_service_is_not_even_asked(desk: Desk, kind: str, name: str | None) -> None:
    desk.service.then(there())
    effect = permitted(desk.ask())
    desk.issuer.freeze(kind, name)
    assert desk.ask({**LEAD, "record": 8}).code == "suspended"
    assert desk.issuer.commit(effect).code == "suspended"
    assert desk.methods() == ["GET"]


@pytest.mark.spec("EFF-11")
def test_the_same_request_is_found_without_looking_at_its_target_again(desk: Desk) -> None:
    desk.service.then(there())
    first = desk.ask(request_key="k-1")
    again = desk.ask(request_key="k-1")
    assert (again.code, again.effect) == ("permitted", first.effect)
    assert desk.methods() == ["GET"]


@pytest.mark.spec("EFF-03", "POL-02")
def test_what_was_read_is_bound_and_is_no_part_of_what_counts_as_the_same_content(desk: Desk) -> None:
    desk.service.then(there(), there(FREE, '"v2"'))
    made = [permitted(desk.ask()), permitted(desk.ask())]
    first, second = desk.issuer._house.ledger.read(lambda view: [view.effect(EffectId(one)) for one in made])
    assert first is not None
    assert second is not None
    assert first.content_key == second.content_key
    assert first.binding != second.binding


@pytest.mark.spec("EFF-06", "AUD-01")
def test_a_look_happens_before_the_lock_is_taken(tmp_path: Path) -> None:
    with Service() as service:
        made = made_at(tmp_path / "f0", service)
        seen: list[tuple[str, int]] = []
        with made.open(observe=lambda step: seen.append((step, len(service.requests)))) as issuer:
            open_task(issuer, "crm", budget={"record": 5}, subject="u-ana", actors=["agent-7"])
            service.then(there(), there(), answer(204, body=b""))
            effect = permitted(issuer.request("delete_record", LEAD, task="crm", actor="agent-7"))
            before = length(issuer)
            assert issuer.commit(effect).code == "succeeded"
            assert length(issuer) == before + 2
    assert (str(Reached.SINKS_PROBED), 2) in [(str(step), count) for step, count in seen]


@pytest.mark.spec("EFF-02", "EFF-06", "SEC-01")
def test_the_environment_changes_nothing_about_a_look(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.touch(0o600)
    netrc.write_text("default login nobody password canary-netrc\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(netrc))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keylog"))
    with Service() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.upper(), proxy.url)
        monkeypatch.setenv("no_proxy", "")
        desk.service.then(there(), there(), answer(204, body=b""))
        assert desk.issuer.commit(permitted(desk.ask())).code == "succeeded"
        assert proxy.connections == 0
    assert {received.headers["authorization"] for received in desk.service.requests} == {f"Bearer {CANARY}"}
    assert not (tmp_path / "keylog").exists()


@pytest.mark.spec("EFF-06")
def test_a_service_that_says_nothing_holds_no_lock_while_it_is_waited_for(desk: Desk) -> None:
    desk.service.then(hang("slow"))
    asked: list[Answer] = []
    waiting = threading.Thread(target=lambda: asked.append(desk.ask()))
    waiting.start()
    desk.service.wait_for(requests=1)
    other = desk.issuer.request("publish", {"name": "v1"}, task="t1", actor="agent-7")
    assert other.code == "permitted"
    desk.service.gate("slow").set()
    waiting.join(20)
    assert [one.code for one in asked] == ["target_unreadable"]
