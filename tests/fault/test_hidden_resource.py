"""The name of a resource that repeats a value that is not public is told and kept nowhere (EFF-10, SEC-01)."""

import json
from pathlib import Path

import pytest

from issuer import Issuer
from issuer.profile import ProfileRefused
from tests.support.callers import opened_shop
from tests.support.cases import length, trail
from tests.support.issuers import STANDARD_POLICY, Made, permitted, refund, standard_issuer
from tests.support.service import Service, answer
from tests.support.shell import issuer_here

CANARY = "CANARY-7c1f-order"


@pytest.mark.spec("EFF-10", "SEC-01", "POL-06")
def test_a_resource_named_after_a_value_that_is_not_public_is_hidden_everywhere(tmp_path: Path) -> None:
    public, sensitive = "order = { string = 40, public = true }", "order = { string = 40 }"
    with Service(answer(201)) as service:
        made = standard_issuer(tmp_path / "f0", port=service.port, changes={public: sensitive})
        with made.open() as issuer:
            effect = permitted(refund(issuer, order=CANARY))
            assert issuer.commit(effect).code == "succeeded"
            told = [issuer.show(effect), issuer.list(), issuer.timeline(effect)]
        assert CANARY in service.requests[0].body.decode()
    assert (told[0].resource or "").startswith('Order::"hidden:')
    kept = [
        path for folder in (made.folder, made.sink.parent) for path in folder.rglob("*") if path.is_file()
    ]
    assert {made.ledger, made.sink} <= set(kept)
    assert [path.name for path in kept if CANARY.encode() in path.read_bytes()] == []
    assert CANARY not in repr([one.as_json() for one in told])


RECORDS = """
[operation.delete_record]
class = "refund"
resource = { type = "Record", id = "crm:{table}/{record}" }
payload = { table = { string = 40 }, record = { int = [1, 9_000_000] } }
cost = { "USD.cent" = 1 }
host = { deadline = "5m" }
"""
ALLOWS = """
@id("records") permit (principal is Actor, action == Action::"issue", resource is Record);
"""
NAME = "crm:CANARY-7c1f-patients/4711"


def record(issuer: Issuer, table: str = "CANARY-7c1f-patients") -> str:
    payload = {"table": table, "record": 4711}
    return permitted(issuer.request("delete_record", payload, task="t1", actor="agent-7"))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    changes = {"[operation.publish]": f"{RECORDS}\n[operation.publish]"}
    return standard_issuer(tmp_path / "f0", port=9, changes=changes, policy=STANDARD_POLICY + ALLOWS)


@pytest.mark.spec("EFF-10", "SEC-01", "AUD-06")
def test_whoever_knows_the_name_of_an_object_finds_it_by_its_hash_and_the_ask_is_on_record(
    made: Made,
) -> None:
    with made.open() as issuer:
        effect = record(issuer)
        before = length(issuer)
        told = issuer.audit_hash("Record", NAME)
        shown = issuer.show(effect)
        assert (told.code, shown.resource) == ("found", f'Record::"{told.more["id"]}"')
        (look,) = trail(issuer, before)
        said = {name: look.attributes[f"permit.{name}"] for name in ("command", "count", "resource.id")}
        assert said == {"command": "audit-hash", "count": 1, "resource.id": told.more["id"]}
        prepared = trail(issuer)[-3]
        assert (prepared.name, prepared.attributes["permit.resource.key"]) == (
            "effect.prepared",
            told.more["hash"],
        )
        # Another name, another type and another issuer give another hash; a rotated key gives the same.
        others = [issuer.audit_hash("Record", NAME + "x"), issuer.audit_hash("Order", NAME)]
        assert len({told.more["hash"], *(one.more["hash"] for one in others)}) == 3
        assert issuer.keys_rotate().code == "rotated"
        assert issuer.audit_hash("Record", NAME.encode() + b"\n").more == told.more
    kept = [
        path for folder in (made.folder, made.sink.parent) for path in folder.rglob("*") if path.is_file()
    ]
    assert [path.name for path in kept if b"CANARY-7c1f" in path.read_bytes()] == []


@pytest.mark.spec("SEC-01", "SEC-04")
@pytest.mark.parametrize(
    ("resource_type", "name", "code"),
    [
        ("Nothing", NAME, "unknown_reference"),
        ("CANARY-7c1f", NAME, "unknown_reference"),
        ("Record", "", "malformed"),
        ("Record", "CANARY-7c1f" * 60, "malformed"),
        ("Record", "CANARY-7c1f\n\n", "malformed"),
        ("Record", b"CANARY-7c1f\xff", "malformed"),
        ("Record", "CANARY-7c1f\ud800", "malformed"),
    ],
)
def test_a_name_that_is_none_is_refused_and_not_repeated(
    made: Made, resource_type: str, name: str | bytes, code: str
) -> None:
    with made.open() as issuer:
        told = issuer.audit_hash(resource_type, name)
        assert (told.code, told.more.get("hash")) == (code, None)
        assert "CANARY" not in repr(told.as_json())
        assert "CANARY" not in repr(trail(issuer))


@pytest.mark.spec("AUD-06", "AUD-01")
def test_a_hash_that_cannot_be_put_on_record_is_not_told(made: Made) -> None:
    with made.open() as issuer:
        issuer._house.ledger.beneath._die("as after an uncertain commit")  # type: ignore[attr-defined]
        told = issuer.audit_hash("Record", NAME)
        assert (told.code, told.more.get("hash")) == ("ledger_unavailable", None)


@pytest.mark.spec("SEC-02", "POL-01")
def test_no_agent_and_nobody_who_may_not_observe_is_told_a_hash(tmp_path: Path) -> None:
    with opened_shop(tmp_path / "f0") as shop:
        for agent in (shop.host(), shop.actor()):
            told = agent.audit_hash("Order", "o-1")
            assert (told.code, told.more.get("hash")) == ("forbidden", None)


@pytest.mark.spec("SEC-01", "SUR-01")
def test_the_command_line_takes_the_name_from_standard_input_or_a_file_and_from_no_argument(
    made: Made,
) -> None:
    with made.open() as issuer:
        wanted = issuer.audit_hash("Record", NAME).more["hash"]
    (made.folder / "name").write_text(NAME + "\n")
    for options, stdin in (((), NAME.encode()), (("--file", "name"), b"")):
        ran = issuer_here("--json", "audit", "hash", "Record", *options, at=made.folder, stdin=stdin)
        assert json.loads(ran.out)["hash"] == wanted
    (made.folder / "name").unlink()
    for words in (("hash", "Record", NAME), ("hash", "Record", "--file", "name")):
        ran = issuer_here("--json", "audit", *words, at=made.folder)
        assert (ran.exit, ran.code) == (2, "malformed")
        assert NAME not in ran.out + ran.err


@pytest.mark.spec("EFF-10", "POL-04")
def test_a_secret_field_in_the_name_of_an_object_is_refused_by_check(tmp_path: Path) -> None:
    secret = RECORDS.replace("table = { string = 40 }", "table = { string = 40, secret = true }")
    with pytest.raises(ProfileRefused) as caught:
        standard_issuer(
            tmp_path / "f1", port=9, changes={"[operation.publish]": f"{secret}\n[operation.publish]"}
        )
    assert "secret_exposed" in str(caught.value)
