"""Whatever a permit is bound to may not be another thing at commit: each member in turn, by whoever can change it.

The table says for each member how somebody changes it in reality, and how that is refused. `test_bound_leaves` edits
every leaf of a real binding in the ledger's file, and holds both tables to the binding itself, so that a member that is
added later cannot be forgotten.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from issuer import Issuer
from issuer.wire import Answer
from tests.fault.test_attacks import forge, unguarded
from tests.support.bound import SAID, Stage, opened, staged
from tests.support.cases import all_at, books
from tests.support.issuers import permitted
from tests.support.revised import activated, rewritten
from tests.support.service import Service, answer
from tests.support.third_party import admitted_issuer, installed


@pytest.fixture(name="service")
def _service() -> Iterator[Service]:
    with Service(*[answer(201)] * 2) as service:
        yield service


@pytest.fixture(name="stage")
def _stage(tmp_path: Path, service: Service) -> Iterator[Stage]:
    made = opened(tmp_path / "f0", service)
    with made.open() as issuer:
        yield staged(made, service, issuer)


def other_file(stage: Stage) -> Answer:
    fresh = stage.file.with_suffix(".new")
    fresh.write_bytes(stage.file.read_bytes())
    os.replace(fresh, stage.file)  # noqa: PTH105
    return stage.issuer.commit(stage.page)


def other_content(stage: Stage) -> Answer:
    stage.file.write_text("as it is now", encoding="utf-8")
    return stage.issuer.commit(stage.page)


def other_folder(stage: Stage) -> Answer:
    """Lead the operation's folder elsewhere: it is another destination from the next opening on."""
    pages = stage.made.folder / "pages"
    pages.rename(pages.with_name("pages-then"))
    pages.symlink_to("pages-then")
    with stage.made.open() as issuer:
        return issuer.commit(stage.page)


def other_caller(stage: Stage) -> Answer:
    house = stage.issuer._house
    other = replace(stage.issuer._caller, name="uid:4711")
    return Issuer(house, other, lambda: house).commit(stage.payment)


def other_secret(stage: Stage) -> Answer:
    """Write over the protected content, as somebody who can write the folder."""
    paths = [path for path in (stage.made.folder / "protected").rglob("*") if path.is_file()]
    changed = 0
    for path in paths:
        body = path.read_bytes()
        with suppress(OSError):
            path.chmod(0o600)
            path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
            changed += 1
    assert changed
    return stage.issuer.commit(stage.payment)


def sent_by_host(stage: Stage) -> Answer:
    text = stage.made.profile.read_text("utf-8")
    before, http, rest = text.partition(f'http = {{ method = "POST", url = "{stage.service.url}/payments"')
    _sent, payload, rest = rest.partition("[operation.pay.payload]")
    assert http
    assert payload
    rewritten(stage.made.profile, f'{before}host = {{ deadline = "5m" }}\n{payload}{rest}')
    activated(stage.made.profile)
    return stage.issuer.commit(stage.payment)


def lent(stage: Stage) -> Answer:
    """Put the binding of another payment, with its digest, into the row of this one."""
    other = permitted(stage.issuer.request("pay", {**SAID, "order": "o-2"}, task="t1", actor="agent-7"))
    with unguarded(stage.made) as raw:
        raw.execute(
            "UPDATE effects SET (binding, binding_digest) = (SELECT binding, binding_digest FROM effects "
            "WHERE effect_id = ?) WHERE effect_id = ?",
            (other, stage.payment),
        )
    return stage.issuer.commit(stage.payment)


Change = Callable[[Stage], Answer]
AGAIN: Final = "prepare_again"
BY_WHOM: Final[dict[str, tuple[str, Change, str, str | None]]] = {
    "the owner renames the operation": (
        "operation.id",
        lambda s: s.edited("operation.pay", "operation.pay2"),
        AGAIN,
        "operation",
    ),
    "the owner raises the version": (
        "operation.version",
        lambda s: s.edited("[operation.pay]\n", "[operation.pay]\nversion = 2\n"),
        AGAIN,
        "version",
    ),
    "the owner edits the body that is sent": (
        "operation.contract",
        lambda s: s.edited('iban = "{vendor.iban}", ', ""),
        AGAIN,
        "contract",
    ),
    "the owner lets a host send instead": ("operation.adapter", sent_by_host, AGAIN, "contract"),
    "the owner edits the cost": (
        "cost",
        lambda s: s.edited('"USD.cent" = "{amount}"', '"USD.cent" = 1'),
        AGAIN,
        "contract",
    ),
    "the owner edits the resource": (
        "resource",
        lambda s: s.edited('id = "{order}", recipients', 'id = "x-{order}", recipients'),
        AGAIN,
        "contract",
    ),
    "the owner sends elsewhere": (
        "destination",
        lambda s: s.edited("/payments", "/elsewhere"),
        AGAIN,
        "contract",
    ),
    "the owner edits the vendor's account": (
        "payload.vendor",
        lambda s: s.edited("DE01", "DE99", "vendors.csv"),
        AGAIN,
        "contract",
    ),
    "the owner edits the vendor's address": (
        "recipients",
        lambda s: s.edited("pay@acme", "new@acme", "vendors.csv"),
        AGAIN,
        "contract",
    ),
    "the owner takes the vendor away": (
        "payload.vendor",
        lambda s: s.edited("acme,DE01,pay@acme.example\n", "", "vendors.csv"),
        AGAIN,
        "contract",
    ),
    "the caller restates another order": (
        "payload.order",
        lambda s: s.restated(order="o-2"),
        "mismatch",
        "order",
    ),
    "the caller restates another amount": (
        "payload.amount",
        lambda s: s.restated(amount=301),
        "mismatch",
        "amount",
    ),
    "the caller restates another vendor": (
        "payload.vendor",
        lambda s: s.restated(vendor="other"),
        "mismatch",
        "vendor",
    ),
    "the caller restates another note": (
        "payload.note",
        lambda s: s.restated(note="for bob"),
        "mismatch",
        "note",
    ),
    "the caller restates another card": (
        "payload.card",
        lambda s: s.restated(card="4000-2"),
        "mismatch",
        "card",
    ),
    "the caller restates an amount in words": (
        "payload.amount",
        lambda s: s.restated(amount="300"),
        "malformed",
        "amount",
    ),
    "the caller restates another task": (
        "task",
        lambda s: s.issuer.commit(s.payment, task="org"),
        "mismatch",
        "task",
    ),
    "the caller restates another actor": (
        "actor",
        lambda s: s.issuer.commit(s.payment, actor="agent-8"),
        "mismatch",
        "actor",
    ),
    "another caller commits it": ("caller", other_caller, "not_found", None),
    "somebody puts another file in the place": ("actual", other_file, AGAIN, "target_changed"),
    "somebody writes into the file": ("preconditions", other_content, AGAIN, "target_changed"),
    "somebody leads the folder elsewhere": ("destination", other_folder, AGAIN, "implementation"),
    "somebody writes over the protected content": ("payload.card", other_secret, "permit_broken", "binding"),
    "somebody lends it another binding": ("effect", lent, "permit_broken", "binding"),
    "somebody makes it last longer": (
        "expires_ms",
        lambda s: s.forged("expires_ms", 2**50),
        "permit_broken",
        "binding",
    ),
    "somebody makes it cheaper": (
        "cost",
        lambda s: s.forged("cost", '{"USD.cent":1}'),
        "permit_broken",
        "binding",
    ),
    "somebody writes another subject": (
        "subject",
        lambda s: s.forged("subject", "u-bob"),
        "permit_broken",
        "binding",
    ),
    "somebody writes it into another invocation": (
        "invocation",
        lambda s: s.forged("invocation_id", "inv_" + "1" * 32),
        "permit_broken",
        "binding",
    ),
    "somebody writes another actor": (
        "actor",
        lambda s: s.forged("actor", "agent-8"),
        "permit_broken",
        "binding",
    ),
    "somebody writes another caller": ("caller", lambda s: s.forged("caller", "u-bob"), "not_found", None),
}
"""Who changes what; the member that is another one then; how a commit is refused, and with which field."""


@pytest.mark.spec("EFF-02", "EFF-03", "EFF-07", "EFF-12", "OPR-02", "REP-02", "ADM-01")
@pytest.mark.parametrize("row", BY_WHOM)
def test_a_bound_member_that_is_another_one_at_commit_is_refused_by_its_name_and_sends_nothing(
    row: str, stage: Stage
) -> None:
    _member, change, code, field = BY_WHOM[row]
    no = change(stage)
    assert no.code == code, no.as_json()
    assert no.more.get("field") == field
    assert stage.service.connections == 0
    assert stage.file.read_text("utf-8") in {"as it was", "as it is now"}
    assert books(stage.issuer) == all_at()


@pytest.mark.spec("OPR-02", "EFF-02")
def test_an_upgraded_adapter_voids_by_its_name_and_sends_nothing(tmp_path: Path, service: Service) -> None:
    with installed(tmp_path / "site") as shop:
        made = admitted_issuer(tmp_path, shop, port=service.port)
        with made.open() as issuer:
            payload = {"order": "o-1", "amount": 300}
            effect = permitted(issuer.request("refund", payload, task="t1", actor="agent-7"))
            shop.file.write_text(shop.file.read_text("utf-8") + "\n", encoding="utf-8")
            no = issuer.commit(effect)
            assert (no.code, no.more["field"]) == (AGAIN, "implementation")
            assert books(issuer) == all_at()
    assert service.connections == 0


@pytest.mark.spec("EFF-02", "OPR-02", "EFF-12")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('host = { deadline = "5m" }', 'host = { deadline = "6m" }'),
        ("per_task = { permits = 100 }", "per_task = { permits = 99 }"),
        ('name = "f0"', 'name = "f1"'),
        ('groups = ["finance"]', 'groups = ["finance", "more"]'),
        ("/refunds", "/returns"),
    ],
)
def test_another_revision_that_does_not_touch_the_operation_voids_nothing(
    old: str, new: str, stage: Stage
) -> None:
    stage.service.then(answer(201))
    revision = stage.issuer._current().revision
    assert stage.edited(old, new).code == "succeeded"
    assert stage.issuer._current().revision != revision
    assert stage.service.connections == 1


@pytest.mark.spec("LED-06", "EFF-06", "EFF-07")
def test_nothing_is_asked_at_a_place_that_somebody_wrote_into_the_file(
    tmp_path: Path, service: Service
) -> None:
    terms = 'proves = ["succeeded"]'
    with installed(tmp_path / "site") as shop, Service() as trap:
        made = admitted_issuer(tmp_path, shop, port=service.port, terms=terms, manner="looks at the service")
        with made.open() as issuer:
            effect = permitted(
                issuer.request("refund", {"order": "o-1", "amount": 300}, task="t1", actor="agent-7")
            )
            with unguarded(made) as raw:
                forge(raw, lambda body: body["destination"].update(port=trap.port))
            no = issuer.commit(effect)
        assert (no.code, no.more["field"]) == ("permit_broken", "effect")
        assert (trap.connections, service.connections) == (0, 0)
