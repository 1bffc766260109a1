"""Attacks on an effect that waits for a person: words, fields, environment, signatures; with the code of the no."""

import os
from typing import Any

from issuer.wire import Answer
from tests.support.approving import opened_office, waiting
from tests.support.forging import Attack, Scene
from tests.support.issuers import refund
from tests.support.ssh import sign

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
