"""The issuer's own keys are rotated, retired and revoked while it is in use (SEC-03, PER-02)."""

import fcntl
import hmac
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from audit.comparison import span_says
from issuer import Issuer
from issuer.caller import Caller, CallerKind
from issuer.checking import checked_ledger
from issuer.credentials import credential_reader, seal_credentials
from issuer.places import Places
from issuer.sealing import Purpose, credential_key_id, open_key_ring
from ledger.errors import LedgerCorrupt
from ledger.model import EffectId
from ledger.sqlite import rows
from tests.support.issuers import Made, permitted, refund
from tests.support.ledgers import attacker, without_guards
from tests.support.service import answer
from tests.support.shops import Shop, opened_shop

DONE = answer(201)
COUNTED = ("pending", "unresolved", "succeeded")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with opened_shop(tmp_path / "f0") as shop:
        yield shop


def keys(issuer: Issuer) -> dict[str, dict[str, Any]]:
    rows: Any = issuer.keys_list().more["keys"]
    return {row["key"]: row for row in rows}


def active(issuer: Issuer) -> str:
    return next(key for key, row in keys(issuer).items() if row["state"] == "active")


def states(issuer: Issuer) -> list[str]:
    """The states of the keys, the longest in the ring first."""
    return sorted(str(row["state"]) for row in keys(issuer).values())


def spans(issuer: Issuer, *names: str) -> list[tuple[str, str]]:
    """The spans of changes of the ring, with the key that each names."""
    ledger = issuer._house.ledger
    story = ledger.read(lambda view: view.story(ledger.ledger_id))
    return [
        (span.name, str(span_says(span.body)["permit.key.id"]))
        for span in story
        if span.name.startswith("key.") and (not names or span.name in names)
    ]


def is_clean(made: Made) -> bool:
    places = Places(made.profile)
    return checked_ledger(places, open_key_ring(places.keys)).is_clean


def tag_keys(made: Made) -> set[str]:
    """The keys that are named by the tags in the ledger, of every table."""
    raw = attacker(made.ledger)
    tables = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    found = set()
    for table in tables:
        if any(row[1] == "mac" for row in raw.execute(f"PRAGMA table_info({table})")):
            found |= {mac[:4].hex() for (mac,) in raw.execute(f"SELECT mac FROM {table}")}  # noqa: S608 - our tables
    raw.close()
    return found


@pytest.mark.spec("SEC-03", "PER-02")
def test_a_permit_from_before_a_rotation_commits_after_it_wherever_the_issuer_was_open(shop: Shop) -> None:
    old = permitted(refund(shop.issuer, order="o-1", amount=1))
    other = permitted(refund(shop.issuer, order="o-2", amount=1))
    first = active(shop.issuer)
    with shop.made.open() as second:
        rotated = second.keys_rotate()
        assert (rotated.code, rotated.exit) == ("rotated", 0)
        assert active(second) == rotated.more["key"] != first
        assert shop.send(old, DONE) == "succeeded"
        shop.service.then(DONE)
        assert second.commit(other).code == "succeeded"
        # What one seals with the new key the other opens, and the other way round.
        for asks, commits in ((second, shop.issuer), (shop.issuer, second)):
            effect = permitted(refund(asks, order=f"n-{asks is second}", amount=1))
            shop.service.then(DONE)
            assert commits.commit(effect).code == "succeeded"
        assert keys(second)[first]["state"] == "open_only"
        assert spans(second) == [("key.rotated", rotated.more["key"])]
    assert is_clean(shop.made)


@pytest.mark.spec("SEC-03", "SEC-01")
def test_a_list_tells_what_each_key_still_opens_and_no_bytes_of_it(shop: Shop) -> None:
    refund(shop.issuer, order="o-1", amount=1)
    first = active(shop.issuer)
    told = keys(shop.issuer)[first]
    assert str(told.pop("vkey")).startswith("permit-issuer/led_")
    assert told == {
        "key": first,
        "state": "active",
        "since": None,
        "serves": "seals, opens, proves, signs checkpoints",
        "permits": 1,
        "counts": True,
    }
    second = str(shop.issuer.keys_rotate().more["key"])
    refund(shop.issuer, order="o-2", amount=1)
    refund(shop.issuer, order="o-3", amount=1)
    told = keys(shop.issuer)
    assert {key: row["permits"] for key, row in told.items()} == {first: 1, second: 2}
    assert {key: row["counts"] for key, row in told.items()} == {first: True, second: False}
    assert all(row["since"] for row in told.values())
    ring = Places(shop.made.profile).keys / "ring"
    roots = [line.split()[3] for line in ring.read_text().splitlines()[1:-1]]
    assert len(roots) == 2
    assert not any(root in json.dumps(shop.issuer.keys_list().as_json()) for root in roots)


@pytest.mark.spec("SEC-03", "PER-02")
def test_a_retired_key_opens_no_permit_any_more_and_its_history_stays(shop: Shop) -> None:
    done = permitted(refund(shop.issuer, order="o-0", amount=1))
    assert shop.send(done, DONE) == "succeeded"
    void = permitted(refund(shop.issuer, order="o-1", amount=1))
    first = active(shop.issuer)
    shop.issuer.keys_rotate()
    with shop.made.open() as second:
        answered = second.keys_retire(first)
    assert (answered.code, answered.more) == ("retired_now", {"key": first, "permits_void": 1})
    # It was open all the time, and knows.
    refused = shop.issuer.commit(void)
    assert (refused.code, refused.exit) == ("permit_broken", 7)
    assert len(shop.service.requests) == 1
    assert shop.issuer.show(done).state == "succeeded"
    assert is_clean(shop.made)
    assert spans(shop.issuer, "key.retired") == [("key.retired", first)]
    assert shop.issuer.keys_retire(first).code == "nothing_to_change"


@pytest.mark.spec("SEC-03", "PER-02", "LED-06")
def test_a_revoked_key_voids_its_permits_and_proves_nothing_and_all_that_is_right_stays(shop: Shop) -> None:
    done = permitted(refund(shop.issuer, order="o-0", amount=1))
    assert shop.send(done, DONE) == "succeeded"
    void = permitted(refund(shop.issuer, order="o-1", amount=1))
    held = refund(shop.issuer, order="o-2", amount=1, hold=True)
    first = active(shop.issuer)
    assert tag_keys(shop.made) == {first}
    with shop.made.open() as second:
        answered = second.keys_revoke(first)
        assert (answered.code, answered.more["permits_void"]) == ("revoked_now", 1)
        new = str(answered.more["active"])
    assert tag_keys(shop.made) == {new}
    assert is_clean(shop.made)
    # It was open all the time.
    assert shop.issuer.commit(void).code == "permit_broken"
    assert len(shop.service.requests) == 1
    assert shop.issuer.show(done).state == "succeeded"
    fresh = permitted(shop.issuer.request_held(str(held.effect)))
    assert shop.send(fresh, DONE) == "succeeded"
    assert tag_keys(shop.made) == {new}
    assert (keys(shop.issuer)[first]["state"], keys(shop.issuer)[first]["serves"]) == ("revoked", "nothing")
    assert spans(shop.issuer) == [("key.rotated", new), ("key.revoked", first)]
    assert shop.issuer.keys_revoke(first).code == "nothing_to_change"
    with shop.made.open() as later:
        assert later.show(done).state == "succeeded"


@pytest.mark.spec("SEC-03", "LED-06", "PER-02")
@pytest.mark.parametrize("reopened", [True, False])
def test_whoever_has_a_revoked_key_signs_nothing_that_is_believed(shop: Shop, reopened: bool) -> None:
    places = Places(shop.made.profile)
    stolen = open_key_ring(places.keys)
    named, subkey = stolen.active_key_id.to_bytes(4, "big"), stolen.subkey(Purpose.ROW_MAC)
    effect = refund(shop.issuer, order="o-1", amount=1, hold=True)
    assert shop.issuer.keys_revoke(active(shop.issuer)).code == "revoked_now"
    found = shop.issuer._house.ledger.read(lambda view: view.effect(EffectId(str(effect.effect))))
    assert found is not None
    forged = named + hmac.digest(subkey, b"row\x00" + rows.effect_authority(found), "sha256")
    without_guards(shop.made.ledger, f"UPDATE effects SET mac = x'{forged.hex()}'")  # noqa: S608 - hex of ours
    report = checked_ledger(places, open_key_ring(places.keys))
    assert "effect_mac" in {one.what for one in report.findings}
    issuer = shop.made.open() if reopened else shop.issuer
    try:
        # A fresh start may have checked the ledger already; either way nothing is permitted.
        assert issuer.request_held(str(effect.effect)).code in {"permit_broken", "ledger_unavailable"}
    finally:
        issuer.close()


@pytest.mark.spec("EFF-11", "POL-02", "SEC-03")
def test_a_request_key_and_what_was_done_before_are_known_across_every_change(shop: Shop) -> None:
    issuer = shop.issuer
    effect = permitted(refund(issuer, order="o-1", amount=7, request_key="once"))
    assert shop.send(effect, DONE) == "succeeded"

    def earlier() -> list[int]:
        asked = permitted(refund(issuer, order="o-1", amount=7, hold=False))
        body = issuer._house.ledger.read(lambda view: view.decisions(EffectId(asked)))[0].body
        facts: Any = json.loads(body)["facts"]["earlier"]
        return [facts[f"same_payload_{word}"] for word in COUNTED]

    first = active(issuer)
    counted = []
    for change in (
        lambda: None,
        issuer.keys_rotate,
        lambda: issuer.keys_retire(first),
        lambda: issuer.keys_revoke(first),
    ):
        change()
        again = refund(issuer, order="o-1", amount=7, request_key="once")
        assert (again.effect, again.code) == (effect, "succeeded")
        other = refund(issuer, order="o-1", amount=8, request_key="once")
        assert other.code == "request_key_reused"
        counted.append(earlier())
    assert counted == [[pending, 0, 1] for pending in range(4)]


@pytest.mark.spec("APP-01", "APP-02", "SEC-03")
def test_what_people_are_asked_stays_the_same_text_across_a_rotation_and_is_asked_anew_after_a_revocation(
    shop: Shop,
) -> None:
    issuer, first = shop.issuer, active(shop.issuer)
    waiting = str(refund(issuer, order="o-1", amount=700).effect)
    asked = issuer.statement(waiting)
    for change in (issuer.keys_rotate, lambda: issuer.keys_retire(first)):
        change()
        assert issuer.statement(waiting).more == asked.more
    assert issuer.keys_revoke(first).code == "revoked_now"
    refused = issuer.statement(waiting)
    assert (refused.code, refused.more.get("statement")) == ("prepare_again", None)
    assert issuer.statement(str(refund(issuer, order="o-1", amount=700).effect)).code == "found"


@pytest.mark.spec("SUR-01", "SUR-02", "SEC-03")
def test_what_cannot_be_done_with_a_key_is_an_answer_and_changes_nothing(shop: Shop) -> None:
    issuer, first = shop.issuer, active(shop.issuer)
    for command in (issuer.keys_retire, issuer.keys_revoke):
        assert (command("0000000g").code, command(first[:7]).code) == ("malformed", "malformed")
        assert command("ffffffff" if first != "ffffffff" else "fffffffe").code == "not_found"
    refused = issuer.keys_retire(first)
    assert (refused.code, "issuer keys rotate" in refused.say) == ("malformed", True)
    assert (states(issuer), spans(issuer)) == (["active"], [])


@pytest.mark.spec("SEC-02", "SEC-03")
@pytest.mark.parametrize("kind", [CallerKind.HOST, CallerKind.ACTOR])
def test_neither_a_host_nor_an_actor_looks_after_keys(shop: Shop, kind: CallerKind) -> None:
    first = active(shop.issuer)
    with shop.made.open() as opened:
        agent = Caller(name="agent-7", account="token", roles=("owner",), kind=kind)
        issuer = Issuer(opened._house, agent, opened._current)
        answers = [
            issuer.keys_list(),
            issuer.keys_rotate(),
            issuer.keys_retire(first),
            issuer.keys_revoke(first),
        ]
    assert {(one.code, one.more.get("keys")) for one in answers} == {("forbidden", None)}
    assert (states(shop.issuer), spans(shop.issuer)) == (["active"], [])


class Cut(BaseException):
    """An end between two steps, past every clean-up that knows of it."""


def cut_at(step: str) -> Callable[[str], None]:
    def observe(reached: str) -> None:
        if reached == step:
            raise Cut

    return observe


@pytest.mark.spec("SEC-03", "AUD-01")
@pytest.mark.parametrize("command", ["rotate", "retire"])
def test_an_interrupted_change_is_put_on_record_by_the_same_command_and_done_once(
    shop: Shop, command: str
) -> None:
    first = active(shop.issuer)
    if command == "retire":
        shop.issuer.keys_rotate()

    def run(issuer: Issuer) -> Any:
        return issuer.keys_rotate() if command == "rotate" else issuer.keys_retire(first)

    with shop.made.open(observe=cut_at("key_changed")) as cut, pytest.raises(Cut):
        run(cut)
    changed = states(shop.issuer)
    assert changed == (["active", "open_only"] if command == "rotate" else ["active", "retired"])
    name = "key.rotated" if command == "rotate" else "key.retired"
    assert len(spans(shop.issuer, name)) == 0
    answered = run(shop.issuer)
    assert answered.exit == 0
    assert states(shop.issuer) == changed
    assert len(spans(shop.issuer, name)) == 1
    assert is_clean(shop.made)


STEPS = (
    "key_changed",
    "resigning_locked",
    "resigning_checked",
    "resigning_before_commit",
    "resigning_committed",
    "key_resigned",
)


@pytest.mark.spec("SEC-03", "LED-06", "AUD-01")
@pytest.mark.parametrize("step", STEPS)
def test_a_revocation_that_was_interrupted_voids_permits_at_once_and_ends_when_it_is_given_again(
    shop: Shop, step: str
) -> None:
    void = permitted(refund(shop.issuer, order="o-1", amount=1))
    first = active(shop.issuer)
    with shop.made.open(observe=cut_at(step)) as cut, pytest.raises(Cut):
        cut.keys_revoke(first)
    assert keys(shop.issuer)[first]["state"] == "revoking"
    assert "again" in keys(shop.issuer)[first]["serves"]
    assert is_clean(shop.made)
    assert shop.issuer.commit(void).code == "permit_broken"
    assert shop.issuer.keys_revoke(first).code == "revoked_now"
    assert states(shop.issuer) == ["active", "revoked"]
    assert tag_keys(shop.made) == {active(shop.issuer)}
    assert [name for name, _key in spans(shop.issuer)] == ["key.rotated", "key.revoked"]
    assert is_clean(shop.made)


@pytest.mark.spec("SEC-03", "LED-06")
def test_nothing_is_signed_anew_in_a_ledger_that_holds_what_its_keys_did_not_write(shop: Shop) -> None:
    for number in range(2):
        refund(shop.issuer, order=f"o-{number}", amount=1)
    first = active(shop.issuer)
    places = Places(shop.made.profile)
    # A thief with the key sets a permitted effect back to what it was: authentic, and not the latest.
    without_guards(places.ledger, "UPDATE effects SET state = 'prepared'")
    answered = shop.issuer.keys_revoke(first)
    assert (answered.code, answered.exit) == ("ledger_unavailable", 8)
    assert keys(shop.issuer)[first]["state"] == "revoking"
    assert first in tag_keys(shop.made)
    assert spans(shop.issuer, "key.revoked") == []


@pytest.mark.spec("SEC-03", "LED-06")
def test_a_ring_from_before_a_revocation_opens_the_ledger_no_more(shop: Shop, tmp_path: Path) -> None:
    places = Places(shop.made.profile)
    shop.issuer.keys_rotate()
    before = {entry.name: entry.read_bytes() for entry in places.keys.iterdir()}
    first = next(key for key, row in keys(shop.issuer).items() if row["state"] == "open_only")
    assert shop.issuer.keys_revoke(first).code == "revoked_now"
    for name, data in before.items():
        (places.keys / name).write_bytes(data)
    with pytest.raises(LedgerCorrupt) as refused:
        shop.made.open()
    assert refused.value.reason == "head_mac"


@pytest.mark.spec("SEC-03", "LED-08")
def test_a_backup_from_before_a_revocation_is_not_restored_and_one_from_between_its_ends_is(
    shop: Shop, tmp_path: Path
) -> None:
    first = active(shop.issuer)
    assert Issuer.ledger_backup(shop.made.profile, tmp_path / "before").code == "backed_up"
    with shop.made.open(observe=cut_at("resigning_before_commit")) as cut, pytest.raises(Cut):
        cut.keys_revoke(first)
    shop.issuer.close()
    assert Issuer.ledger_restore(shop.made.profile, tmp_path / "before").code == "restored"
    with shop.made.open() as issuer:
        assert issuer.keys_revoke(first).code == "revoked_now"
    assert is_clean(shop.made)
    with pytest.raises(LedgerCorrupt) as refused:
        Issuer.ledger_restore(shop.made.profile, tmp_path / "before")
    assert refused.value.reason == "head_mac"
    assert is_clean(shop.made)


@pytest.mark.spec("SEC-03")
def test_another_change_of_the_ring_at_the_same_time_is_told(shop: Shop) -> None:
    holder = os.open(Places(shop.made.profile).keys, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        answered = shop.issuer.keys_rotate()
    finally:
        os.close(holder)
    assert (answered.code, "Another program" in answered.say) == ("keys_unavailable", True)
    assert shop.issuer.keys_rotate().code == "rotated"


@pytest.mark.spec("SEC-03", "ADM-06")
def test_a_credential_of_a_revoked_key_is_sealed_anew_before_it_proves_nothing(shop: Shop) -> None:
    places = Places(shop.made.profile)
    places.credentials.mkdir(mode=0o700, exist_ok=True)
    for name in ("one", "two"):
        descriptor = os.open(places.credentials / name, os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(descriptor, f"secret-{name}".encode())
        os.close(descriptor)
    first = active(shop.issuer)
    seal_credentials(places.credentials, open_key_ring(places.keys), {"one"})
    assert shop.issuer.keys_revoke(first).code == "revoked_now"
    ring = open_key_ring(places.keys)
    assert credential_key_id((places.credentials / "one").read_bytes()) == ring.active_key_id
    assert (places.credentials / "two").read_bytes() == b"secret-two"
    read = credential_reader(places.credentials, lambda: ring)
    assert (read("one"), read("two")) == ("secret-one", "secret-two")
