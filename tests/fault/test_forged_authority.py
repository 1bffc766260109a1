"""Forged authority: one row, one distinct attack. None of them makes a permit, and none of them sends anything.

Each attack is played against an effect that waits for a person (900 where 500 is automatic), or against one that was
approved and then lost what carried it. Afterwards the service was never connected to, no permit was used, and what the
trail tells of the effect is judged by an oracle that knows nothing but spans (`tests.support.lawful`).
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from issuer import Issuer
from issuer.wire import Answer
from ledger.model import EffectId, InstantMs
from tests.support.approving import POLICY, Office, opened_office, waiting
from tests.support.cases import Clock, command, state_of
from tests.support.issuers import HOUR_MS, Made, refund
from tests.support.lawful import Oracle, Span, spans_of
from tests.support.ledgers import without_guards
from tests.support.revised import activated, rewritten
from tests.support.ssh import make_key, sign

pytestmark = [pytest.mark.spec("APP-01", "APP-03", "APP-04", "POL-05", "SEC-02", "ADM-05")]

AUTOMATIC = POLICY.replace("<= 500", "<= 100000")
TWO = POLICY.replace('@approvers("finance")', '@approvers("finance:2")')
NOBODY = POLICY.replace('context.cost["USD.cent"] <= 100000', 'context.cost["USD.cent"] <= 501')
NEVER = frozenset({"permitted", "admitted", "succeeded", "failed", "no_effect", "unknown"})
"""States that nothing may have reached from a waiting one."""

HOSTS = """
[host]
till = { actors = ["agent-7"], subjects = ["u-ana"], login = "token" }
[class.refund]
"""
CHANGES: Final = {
    'agent-8 = { answers_to = "boss", groups = ["bots"] }\n': (
        'agent-8 = { answers_to = "boss", groups = ["bots"], login = "token" }\n'
    ),
    "[class.refund]\n": HOSTS.lstrip(),
}
GROUPS = {
    **dict.fromkeys(("ops", "boss", "bob", "dan", "mallory"), frozenset({"finance"})),
    **dict.fromkeys(("u-ana", "carol"), frozenset({"finance", "stewards"})),
    "erin": frozenset({"stewards"}),
}

Attack = Callable[["Scene"], Answer | None]


class Scene:
    """One office under attack, and the effect that the attack is about."""

    def __init__(self, office: Office, clock: Clock, folder: Path) -> None:
        self.office = office
        self.clock = clock
        self.folder = folder
        self.issuer = office.issuer
        self.effect = office.ask()

    @property
    def made(self) -> Made:
        return self.office.made

    def approve(self, signature: str, effect: str | None = None, issuer: Issuer | None = None) -> Answer:
        return (issuer or self.issuer).approve(effect or self.effect, signature)

    def signed_by(self, person: str, effect: str | None = None) -> str:
        return self.office.signature(person, self.office.statement(effect or self.effect))

    def approved(self, *people: str) -> None:
        """Let people say yes, so that the effect has its permit; the attack comes after it."""
        for person in people or ("bob",):
            assert self.office.approve(self.effect, person).code in {"approved", "permitted"}
        assert state_of(self.issuer, self.effect) == "permitted"

    def commit(self) -> Answer:
        return self.issuer.commit(self.effect)

    def activate(self, old: str, new: str, file: str = "profile.toml") -> None:
        """Let the owner change a file and put it in force."""
        path = self.made.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        rewritten(path, text.replace(old, new))
        activated(self.made.profile, clock=self.clock)

    def draft(self, old: str, new: str, file: str = "profile.toml") -> None:
        """Change a file of the owner's on the disk, and activate nothing."""
        path = self.made.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        rewritten(path, text.replace(old, new))

    def new_key(self) -> Path:
        path = self.folder / "new-key"
        make_key(path)
        return path

    def token(self, kind: str = "host") -> str:
        told = self.issuer.host_token("till") if kind == "host" else self.issuer.actor_token("agent-8")
        return str(told.more["token"])

    def agent(self, kind: str = "host") -> Issuer:
        return self.issuer.as_caller(token=self.token(kind))

    def by_sql(self, *statements: str) -> Answer:
        """Edit the file without keys while nobody has it open, and then use the effect."""
        self.issuer.close()
        without_guards(self.made.ledger, *statements)
        try:
            with self.made.open(clock=self.clock) as issuer:
                self.issuer = issuer
                return issuer.commit(self.effect)
        except Exception as refused:  # noqa: BLE001 - not to open at all is a no as well
            return Answer(issuer="", code="ledger_unavailable", mode="ordinary", say=type(refused).__name__)


# ----------------------------------------------------------------------------- words, fields, environment


def _claims_in_the_payload(scene: Scene) -> Answer:
    payload = {"order": "o-9", "amount": 900, "approved": True, "approved_by": "boss"}
    return scene.issuer.request("refund", payload, task="t1", actor="agent-7")


def _a_yes_in_a_text_field(scene: Scene) -> Answer:
    order = "o-9 approved by: boss"
    return scene.issuer.request("refund", {"order": order, "amount": 900}, task="t1", actor="agent-7")


def _a_yes_in_the_request_key(scene: Scene) -> Answer:
    return refund(scene.issuer, order="o-9", amount=900, request_key="approved-by:boss")


def _environment(scene: Scene) -> Answer:
    names = ("PERMIT_APPROVED", "ISSUER_APPROVED_BY", "ISSUER_ROLE", "PERMIT_EFFECT_ID", "ISSUER_AS")
    for name in names:
        os.environ[name] = "boss"
    try:
        return scene.commit()
    finally:
        for name in names:
            del os.environ[name]


def _lowered_amount(scene: Scene) -> Answer:
    return scene.issuer.commit(scene.effect, payload={"order": "o-1", "amount": 1})


def _another_order(scene: Scene) -> Answer:
    scene.approved()
    return scene.issuer.commit(scene.effect, payload={"order": "o-2", "amount": 900})


WORDS: dict[str, tuple[Attack, str]] = {
    "approved and approved_by in the payload": (_claims_in_the_payload, "malformed"),
    "a yes inside a text field": (_a_yes_in_a_text_field, "awaiting_approval"),
    "a yes inside the request key": (_a_yes_in_the_request_key, "awaiting_approval"),
    "a yes in the environment": (_environment, "not_permitted_yet"),
    "commit without an approval": (Scene.commit, "not_permitted_yet"),
    "admit without an approval": (lambda s: s.issuer.admit(s.effect), "unsupported"),
    "commit with an amount that needs nobody": (_lowered_amount, "mismatch"),
    "commit of another order after the yes": (_another_order, "mismatch"),
    "ask anew for the same effect": (lambda s: s.issuer.request_held(s.effect), "awaiting_approval"),
}

# ------------------------------------------------------------------------------------------ signatures


def _flipped(signature: str) -> str:
    lines = signature.split("\n")
    lines[2] = ("A" if lines[2][0] != "A" else "B") + lines[2][1:]
    return "\n".join(lines)


def _other_ledger(scene: Scene) -> Answer:
    with opened_office(scene.folder / "elsewhere" / "f0") as elsewhere:
        effect = elsewhere.ask()
        return scene.approve(sign(scene.office.keys["bob"], elsewhere.statement(effect)))


def _another_effects_yes(scene: Scene) -> Answer:
    return scene.approve(scene.signed_by("bob", scene.office.ask()))


def _replayed_on_the_next(scene: Scene) -> Answer:
    signature = scene.signed_by("bob")
    assert scene.issuer.withdraw(scene.effect).code == "withdrawn_now"
    scene.effect = waiting(refund(scene.issuer, amount=900))
    return scene.approve(signature)


def _one_byte(scene: Scene) -> Answer:
    text = bytearray(scene.office.statement(scene.effect))
    text[text.index(b"900")] = ord("1")
    return scene.approve(scene.office.signature("bob", bytes(text)))


def _no_as_yes(scene: Scene) -> Answer:
    text = scene.office.statement(scene.effect, decline="not_agreed")
    return scene.approve(scene.office.signature("bob", text))


def _digest_alone(scene: Scene) -> Answer:
    shown: Any = scene.issuer.show(scene.effect).more["record"]
    return scene.approve(scene.office.signature("bob", shown["binding_digest"].encode()))


SIGNATURES: dict[str, tuple[Attack, str]] = {
    "no signature": (lambda s: s.approve(""), "signature_refused"),
    "the name of the boss": (lambda s: s.approve("boss"), "signature_refused"),
    "the effect's own id": (lambda s: s.approve(s.effect), "signature_refused"),
    "the statement instead of a signature": (
        lambda s: s.approve(s.office.statement(s.effect).decode()),
        "signature_refused",
    ),
    "a key that nobody registered": (
        lambda s: s.approve(sign(s.new_key(), s.office.statement(s.effect))),
        "signature_refused",
    ),
    "a signature made for git": (
        lambda s: s.approve(sign(s.office.keys["bob"], s.office.statement(s.effect), namespace="git")),
        "signature_refused",
    ),
    "a signature made for a file": (
        lambda s: s.approve(sign(s.office.keys["bob"], s.office.statement(s.effect), namespace="file")),
        "signature_refused",
    ),
    "the right key over the binding's digest": (_digest_alone, "signature_refused"),
    "the right key over the statement with a byte changed": (_one_byte, "signature_refused"),
    "the right key over another effect's statement": (_another_effects_yes, "signature_refused"),
    "the right key over a no": (_no_as_yes, "signature_refused"),
    "a signature with a bit changed": (
        lambda s: s.approve(_flipped(s.signed_by("bob"))),
        "signature_refused",
    ),
    "a signature cut short": (lambda s: s.approve(s.signed_by("bob")[:-40]), "signature_refused"),
    "a signature from another ledger": (_other_ledger, "signature_refused"),
    "a yes given to a request that was withdrawn": (_replayed_on_the_next, "signature_refused"),
    "somebody who is no approver": (lambda s: s.approve(s.signed_by("mallory")), "forbidden"),
    "an approver of another group": (lambda s: s.approve(s.signed_by("erin")), "forbidden"),
    "for whom it is": (lambda s: s.approve(s.signed_by("u-ana")), "forbidden"),
    "whom the actor answers to": (lambda s: s.approve(s.signed_by("boss")), "forbidden"),
    "whoever asked": (lambda s: s.approve(s.signed_by("ops")), "forbidden"),
}

# --------------------------------------------------------------------------------- what no longer carries


def _twice(scene: Scene) -> Answer:
    signature = scene.signed_by("bob")
    assert scene.approve(signature).code == "approved"
    return scene.approve(signature)


def _after(act: Callable[[Scene], object], *people: str) -> Attack:
    """Approve, let `act` happen, and then commit."""

    def attack(scene: Scene) -> Answer:
        scene.approved(*people)
        act(scene)
        return scene.commit()

    return attack


def _before(act: Callable[[Scene], object], person: str = "bob") -> Attack:
    """Sign, let `act` happen, and then hand the signature in."""

    def attack(scene: Scene) -> Answer:
        signature = scene.signed_by(person)
        act(scene)
        return scene.approve(signature)

    return attack


def _to_the_end(scene: Scene) -> None:
    shown: Any = scene.issuer.show(scene.effect).expires
    from issuer.clock import parse_instant  # noqa: PLC0415 - one row's own need

    scene.clock.ahead_ms += parse_instant(shown, "expires") - scene.clock()


def _policy(new: str) -> Callable[[Scene], None]:
    def act(scene: Scene) -> None:
        rewritten(scene.made.folder / "policies" / "policies.cedar", new)
        activated(scene.made.profile, clock=scene.clock)

    return act


BOB = 'bob = { roles = ["approver"], groups = ["finance"], key = "people/bob.pub" }'
LOST: dict[str, tuple[Attack, str]] = {
    "the approver's key revoked": (_after(lambda s: s.issuer.revoke("key", "bob")), "revoked"),
    "the approval revoked": (_after(lambda s: s.issuer.revoke("approval", s.effect, "bob")), "revoked"),
    "the approver suspended": (_after(lambda s: s.issuer.suspend("person", "bob")), "suspended"),
    "the approver's role taken away": (
        _after(lambda s: s.activate(BOB, BOB.replace('"approver"', '"reviewer"'))),
        "revoked",
    ),
    "the approver moved to another group": (
        _after(lambda s: s.activate(BOB, BOB.replace('"finance"', '"stewards"'))),
        "revoked",
    ),
    "the approver's key exchanged": (
        _after(lambda s: s.activate(BOB, BOB.replace("people/bob.pub", "people/new.pub"))),
        "revoked",
    ),
    "the approver made whom the actor answers to": (
        _after(lambda s: s.activate('answers_to = "boss"', 'answers_to = "bob"')),
        "prepare_again",
    ),
    "the policies of now want two": (_after(_policy(TWO)), "revoked"),
    "the policies of now say no": (_after(_policy(NOBODY)), "denied"),
    "the policy about approvers gone": (
        _after(
            _policy(
                POLICY.replace(
                    "principal in resource.approvers",
                    "principal in resource.approvers && principal == resource.subject",
                )
            )
        ),
        "denied",
    ),
    "everything frozen": (_after(lambda s: s.issuer.freeze()), "suspended"),
    "the operation revoked": (_after(lambda s: s.issuer.revoke("operation", "refund")), "revoked"),
    "the subject revoked and thawed": (
        _after(lambda s: (s.issuer.revoke("person", "u-ana"), s.issuer.thaw("person", "u-ana"))),
        "revoked",
    ),
    "the actor revoked": (_after(lambda s: s.issuer.revoke("actor", "agent-7")), "revoked"),
    "the task closed": (_after(lambda s: s.issuer.task_close("t1")), "task_closed"),
    "the root frozen": (_after(lambda s: s.issuer.task_freeze("org")), "task_frozen"),
    "the permit over, at its instant": (_after(_to_the_end), "expired"),
    "withdrawn by its caller": (_after(lambda s: s.issuer.withdraw(s.effect)), "withdrawn"),
    "a yes at the instant of the end": (_before(_to_the_end), "expired"),
    "a yes after a no": (_before(lambda s: s.office.decline(s.effect, "carol")), "declined"),
    "a yes of a suspended person": (_before(lambda s: s.issuer.suspend("person", "bob")), "forbidden"),
    "a yes with a revoked key": (_before(lambda s: s.issuer.revoke("key", "bob")), "forbidden"),
    "a yes under policies that say no": (_before(_policy(NOBODY)), "denied"),
    "a yes in a closed task": (_before(lambda s: s.issuer.task_close("t1")), "task_closed"),
    "a yes while the class is frozen": (_before(lambda s: s.issuer.freeze("class", "refund")), "suspended"),
}

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
    (copy,) = (scene.made.folder / "ledger" / "revisions").glob("*/policies/policies.cedar")
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

ALL: Final = {**WORDS, **SIGNATURES, **LOST, **NAMES, **FILES}


def test_the_table_is_a_table_of_distinct_attacks() -> None:
    assert len(ALL) == sum(map(len, (WORDS, SIGNATURES, LOST, NAMES, FILES))) >= 60


@pytest.fixture
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Scene]:
    clock = Clock()
    wants_two = "twice" in request.node.name
    with opened_office(
        tmp_path / "f0", policy=TWO if wants_two else POLICY, changes=CHANGES, clock=clock
    ) as office:
        new = office.made.folder / "people" / "new.pub"
        shutil.copy(office.made.folder / "people" / "dan.pub", new)
        make_key(tmp_path / "exchanged")
        new.write_text((tmp_path / "exchanged.pub").read_text(encoding="utf-8"), encoding="utf-8")
        yield Scene(office, clock, tmp_path)


@pytest.mark.parametrize("name", ALL)
def test_no_forged_authority_permits_or_sends(scene: Scene, name: str) -> None:
    attack, code = ALL[name]
    was_permitted = name in LOST or name == "commit of another order after the yes"
    told = attack(scene)
    if told is not None:
        assert told.code == code, (told.code, told.say, told.more)
    assert scene.office.service.connections == 0
    if not was_permitted and name not in FILES:
        assert state_of(scene.issuer, scene.effect) not in NEVER
    with scene.made.open(clock=scene.clock, reading=True) as looking:
        _assert_lawful(looking, scene)


def test_one_person_is_not_two_however_often_the_signature_is_handed_in_twice(scene: Scene) -> None:
    told = _twice(scene)
    assert (told.code, state_of(scene.issuer, scene.effect)) == ("nothing_to_change", "awaiting_approval")
    assert scene.commit().code == "not_permitted_yet"
    assert scene.office.service.connections == 0


def _assert_lawful(issuer: Issuer, scene: Scene) -> None:
    """Let the oracle judge the trail; nothing in it was admitted."""
    spans = spans_of(issuer)
    oracle = Oracle(
        tiers=_tiers, answers_to={"agent-7": "boss", "agent-8": "boss"}, groups=GROUPS, hosts=frozenset()
    )
    oracle.walk(spans)
    about = [wrong for wrong in oracle.wrongs if scene.effect in wrong]
    assert oracle.admitted == 0
    assert about == []


def _tiers(_revision: str, _effect: Span) -> frozenset[str]:
    """What the policies gave when a permit was issued; nothing is admitted here, so later ones do not count."""
    return frozenset({"approval"})


@pytest.mark.spec("AUD-01")
@pytest.mark.parametrize("name", SIGNATURES)
def test_each_forged_answer_is_on_record_with_whoever_was_authenticated(scene: Scene, name: str) -> None:
    attack, code = SIGNATURES[name]
    attack(scene)
    last = [span for span in spans_of(scene.issuer) if span.name == "refused"][-1]
    assert (last["caller"], last["refusal"], last["command"]) == ("ops", code, "approve")
    assert EffectId(str(last.effect)) == scene.effect


def test_nothing_but_the_real_thing_is_permitted(scene: Scene) -> None:
    """The control: the same office, one good signature, one effect."""
    scene.approved()
    from tests.support.service import answer  # noqa: PLC0415 - the one row that lets something through

    scene.office.service.then(answer(201))
    assert scene.commit().code == "succeeded"
    assert len(scene.office.service.effects) == 1
