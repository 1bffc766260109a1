"""Attacks with other people's names, credentials and references, and on the owner's files and the ledger's rows."""
# ruff: noqa: S608 - ids of effects of these attacks stand in SQL text

from collections.abc import Callable
from pathlib import Path

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import InstantMs
from tests.support.approving import opened_office
from tests.support.cases import command
from tests.support.forging import AUTOMATIC, CHANGES, Attack, Scene
from tests.support.issuers import HOUR_MS
from tests.support.revised import rewritten
from tests.support.ssh import sign

# ----------------------------------------------------------------------- other people's names and references


def _unknown_token(scene: Scene) -> Answer:
    scene.token()
    return scene.issuer.as_caller(token="pit_host_till_" + "A" * 43).commit(scene.effect)


def _revoked_token(scene: Scene) -> Answer:
    token = scene.token()
    scene.issuer.revoke("host", "till")
    return scene.issuer.as_caller(token=token).request(
        "refund", {"order": "o-1", "amount": 900}, task="t1", actor="agent-7"
    )


def _token_elsewhere(scene: Scene) -> Answer:
    with opened_office(scene.folder / "elsewhere" / "f0", changes=CHANGES) as elsewhere:
        token = str(elsewhere.issuer.host_token("till").more["token"])
    scene.token()
    return scene.issuer.as_caller(token=token).commit(scene.effect)


def _for_another_actor(scene: Scene) -> Answer:
    return scene.agent().request("refund", {"order": "o-1", "amount": 900}, task="t1", actor="agent-8")


def _restating_another_actor(scene: Scene) -> Answer:
    return scene.issuer.commit(scene.effect, actor="agent-8")


def _under_another_task(scene: Scene) -> Answer:
    return scene.issuer.commit(scene.effect, task="org")


def _token_in_the_payload(scene: Scene) -> Answer:
    payload = {"order": scene.token(), "amount": 900}
    return scene.issuer.request("refund", payload, task="t1", actor="agent-7")


def _agents(act: Callable[[Issuer, Scene], Answer], kind: str = "host") -> Attack:
    return lambda scene: act(scene.agent(kind), scene)


NAMES: dict[str, tuple[Attack, str]] = {
    "a guessed id": (lambda s: s.issuer.approve("eff_" + "0" * 32, s.signed_by("bob")), "not_found"),
    "an id that is none": (lambda s: s.issuer.approve("boss", s.signed_by("bob")), "not_found"),
    "another caller's reference": (_agents(lambda i, s: i.commit(s.effect)), "not_found"),
    "another caller's reference, of an actor": (
        _agents(lambda i, s: i.commit(s.effect), "actor"),
        "not_found",
    ),
    "a reference under another actor": (_restating_another_actor, "mismatch"),
    "a reference under another task": (_under_another_task, "mismatch"),
    "a host for an actor that is not its own": (_for_another_actor, "forbidden"),
    "a credential that nobody issued": (_unknown_token, "unauthenticated"),
    "a credential that was revoked": (_revoked_token, "unauthenticated"),
    "a credential of another issuer": (_token_elsewhere, "unauthenticated"),
    "a credential in the payload": (_token_in_the_payload, "malformed"),
    "a host that hands in a good signature": (
        _agents(lambda i, s: i.approve(s.effect, s.signed_by("bob"))),
        "forbidden",
    ),
    "an actor that hands in a good signature": (
        _agents(lambda i, s: i.approve(s.effect, s.signed_by("bob")), "actor"),
        "forbidden",
    ),
    "a host that opens a task of its own": (
        _agents(
            lambda i, s: i.task_open(
                "mine", parent="t1", budget={}, expires_ms=InstantMs(s.clock() + HOUR_MS)
            )
        ),
        "forbidden",
    ),
    "a host that grants itself money": (
        _agents(lambda i, _s: i.task_grant("t1", budget={"USD.cent": 1})),
        "forbidden",
    ),
    "a host that thaws": (_agents(lambda i, _s: i.thaw()), "forbidden"),
    "a host that makes itself a credential": (_agents(lambda i, _s: i.host_token("till")), "forbidden"),
}

# ------------------------------------------------------------------------------------ files and rows


def _draft_policy(scene: Scene) -> Answer:
    rewritten(scene.made.folder / "policies" / "policies.cedar", AUTOMATIC)
    with scene.made.open(clock=scene.clock) as issuer:
        return issuer.request("refund", {"order": "o-1", "amount": 900}, task="t1", actor="agent-7")


def _draft_key(scene: Scene) -> Answer:
    key = scene.new_key()
    rewritten(scene.made.folder / "people" / "bob.pub", Path(f"{key}.pub").read_text(encoding="utf-8"))
    with scene.made.open(clock=scene.clock) as issuer:
        return issuer.approve(scene.effect, sign(key, scene.office.statement(scene.effect)))


def _draft_role(scene: Scene) -> Answer:
    scene.draft('mallory = { roles = ["reviewer"]', 'mallory = { roles = ["approver"]')
    with scene.made.open(clock=scene.clock) as issuer:
        return issuer.approve(scene.effect, scene.signed_by("mallory"))


def _snapshot(scene: Scene) -> Answer | None:
    """Edit the copy that is in force: it is not served, whatever it says now."""
    (copy,) = (scene.made.folder / "ledger" / "revisions").glob("*/*policies.cedar")
    copy.chmod(0o600)
    copy.write_text(AUTOMATIC, encoding="utf-8")
    scene.issuer.close()
    asked = ("request", "refund", "--task", "t1", "--actor", "agent-7", "--payload", "-")
    ran = command(scene.made, *asked, stdin=b'{"order":"o-1","amount":900}')
    assert ran.exit == 8, ran
    return None


def _sql(*statements: str) -> Attack:
    return lambda scene: scene.by_sql(*(one.replace("@E", scene.effect) for one in statements))


def _copied_approval(scene: Scene) -> Answer:
    first = scene.effect
    scene.approved()
    scene.effect = scene.office.ask()
    return scene.by_sql(
        "INSERT INTO approvals SELECT "
        f"'{scene.effect}', person, key, signature, at_ms, sequence, mac FROM approvals WHERE effect_id = '{first}'",
        "INSERT INTO permits SELECT "
        f"'{scene.effect}', 'pmt_{'9' * 32}', seal, tier, issued_ms, expires_ms, caps, sequence "
        f"FROM permits WHERE effect_id = '{first}'",
        f"UPDATE effects SET state = 'permitted' WHERE effect_id = '{scene.effect}'",
    )


def _renamed_approver(scene: Scene) -> Answer:
    scene.approved()
    return scene.by_sql(f"UPDATE approvals SET person = 'carol' WHERE effect_id = '{scene.effect}'")


FILES: dict[str, tuple[Attack, str]] = {
    "policies edited on the disk": (_draft_policy, "awaiting_approval"),
    "a person's key edited on the disk": (_draft_key, "signature_refused"),
    "a person's role edited on the disk": (_draft_role, "forbidden"),
    "the copy in force edited": (_snapshot, ""),
    "the effect's row set to permitted": (
        _sql("UPDATE effects SET state = 'permitted' WHERE effect_id = '@E'"),
        "not_permitted_yet",
    ),
    "an approval and a permit copied from another effect": (_copied_approval, "permit_broken"),
    "the name in an approval edited": (_renamed_approver, "ledger_unavailable"),
    "what is waited for edited": (
        _sql("UPDATE approval_waits SET approvers = '{\"stewards\":1}' WHERE effect_id = '@E'"),
        "not_permitted_yet",
    ),
}
