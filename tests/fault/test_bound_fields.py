"""Whatever a permit is bound to may not be another thing at commit: each member in turn, by whoever can change it.

Two tables. One says for each member how somebody changes it in reality, and how that is refused. The other is every
leaf of a real binding, edited in the ledger's file by somebody without the keys. A test holds both to the binding
itself, so that a member that is added later cannot be forgotten.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from issuer import Issuer
from issuer.flow.binding import binding_digest
from issuer.wire import Answer
from ledger.canonical import canonical_bytes, parse_strict
from ledger.model import EffectId
from tests.fault.test_attacks import forge, unguarded
from tests.fault.test_terms import rewrite
from tests.support.cases import all_at, books, state_of
from tests.support.issuers import STANDARD_POLICY, Made, permitted, standard_issuer
from tests.support.service import Service, answer
from tests.support.third_party import admitted_issuer, installed

PAYMENT: Final = """
[registry]
vendors = { file = "vendors.csv", key = "id", fields = ["iban", "email"] }
[operation.pay]
class = "refund"
resource = { type = "Payment", id = "{order}", recipients = ["{vendor.email}"] }
cost = { "USD.cent" = "{amount}" }
http = { method = "POST", url = "http://127.0.0.1:@PORT@/payments", once = "Idempotency-Key" }
body = { order = "{order}", amount = "{amount}", iban = "{vendor.iban}", card = "{card}" }
proves = { succeeded = [201], key_kept = "24h" }
[operation.pay.payload]
order = { string = 40, public = true }
amount = { int = [1, 1_000], public = true }
vendor = { registry = "vendors", public = true }
note = { string = 40 }
card = { string = 40, secret = true }
[operation.page]
class = "refund"
resource = { type = "Page", id = "{order}" }
payload = { order = { string = 40, public = true } }
cost = { "USD.cent" = 1 }
file = { action = "replace", root = "pages", path = "{order}", content = "{order}" }
[operation.publish]"""
PAGES: Final = """
@id("pages")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Page);
@id("payments")
permit (principal is Actor in Group::"bots", action == Action::"issue", resource is Payment);
"""
VENDORS: Final = "id,iban,email\nacme,DE01,pay@acme.example\nother,DE02,pay@other.example\n"
SAID: Final[Mapping[str, object]] = {
    "order": "o-1",
    "amount": 300,
    "vendor": "acme",
    "note": "for ana",
    "card": "4000-1",
}


@dataclass(kw_only=True)
class Stage:
    """One open issuer with a permit for a payment and one for a page; nothing of either was sent."""

    made: Made
    service: Service
    issuer: Issuer
    payment: str
    page: str

    @property
    def file(self) -> Path:
        return self.made.folder / "pages" / "o-1"

    def edited(self, old: str, new: str, file: str = "profile.toml") -> Answer:
        """Commit the payment after the owner changed a text of a file."""
        path = self.made.folder / file
        text = path.read_text("utf-8")
        assert text.count(old) >= 1
        rewrite(path, text.replace(old, new))
        return self.issuer.commit(self.payment)

    def restated(self, **changes: object) -> Answer:
        return self.issuer.commit(self.payment, payload={**SAID, **changes})

    def forged(self, column: str, value: object) -> Answer:
        """Commit the payment after somebody changed a column of its row."""
        with unguarded(self.made) as raw:
            raw.execute(f"UPDATE effects SET {column} = ? WHERE effect_id = ?", (value, self.payment))  # noqa: S608 - our own word
        return self.issuer.commit(self.payment)


def opened(folder: Path, service: Service) -> Made:
    pages = folder / "pages"
    pages.mkdir(parents=True)
    pages.chmod(0o700)
    (pages / "o-1").write_text("as it was", encoding="utf-8")
    (folder / "vendors.csv").write_text(VENDORS, encoding="utf-8")
    changes = {"[operation.publish]": PAYMENT.replace("@PORT@", str(service.port))}
    return standard_issuer(folder, port=service.port, policy=STANDARD_POLICY + PAGES, changes=changes)


def staged(made: Made, service: Service, issuer: Issuer) -> Stage:
    payment = permitted(issuer.request("pay", dict(SAID), task="t1", actor="agent-7"))
    page = permitted(issuer.request("page", {"order": "o-1"}, task="t1", actor="agent-7"))
    return Stage(made=made, service=service, issuer=issuer, payment=payment, page=page)


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
    rewrite(stage.made.profile, f'{before}host = {{ deadline = "5m" }}\n{payload}{rest}')
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
    revision = stage.issuer._current().profile.digest
    assert stage.edited(old, new).code == "succeeded"
    assert stage.issuer._current().profile.digest != revision
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


# ------------------------------------------------------------------------------------ every leaf, in the file


@dataclass(kw_only=True)
class Kept:
    """A closed issuer whose ledger holds one permitted payment, and its genuine row."""

    made: Made
    service: Service
    effect: str
    row: tuple[bytes, bytes]

    @property
    def body(self) -> dict[str, Any]:
        body: Any = parse_strict(self.row[0])
        return body  # type: ignore[no-any-return]  # a binding is an object


def kept_issuer(folder: Path, service: Service) -> Kept:
    made = opened(folder, service)
    with made.open() as issuer:
        stage = staged(made, service, issuer)
        found = issuer._house.ledger.read(lambda view: view.effect(EffectId(stage.payment)))
        assert found is not None
        return Kept(
            made=made, service=service, effect=stage.payment, row=(found.binding, found.binding_digest)
        )


@pytest.fixture(name="kept", scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with Service(answer(201)) as service:
        yield kept_issuer(tmp_path_factory.mktemp("bound") / "f0", service)


MEMBERS: Final = (
    *("v", "effect", "task", "subject", "actor", "caller", "invocation", "revision", "expires_ms"),
    *("operation.id", "operation.version", "operation.contract", "operation.implementation"),
    *("operation.adapter", "resource.type", "resource.id", "cost.USD.cent"),
    *(
        "payload.order",
        "payload.amount",
        "payload.vendor",
        "payload.note.commitment",
        "payload.card.commitment",
    ),
    *("actual.commitment", "destination.commitment", "preconditions.commitment", "recipients.commitment"),
)
"""Every leaf of a binding."""

COMPARED: Final = {
    f"operation.{name}": (AGAIN, name) for name in ("version", "contract", "implementation", "adapter")
}
"""What is compared with what is declared now, before anything else is."""


def leaves(value: object, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, f"{path}.{name}" if path else name)
    else:
        yield path


def edited(body: dict[str, Any], member: str) -> bytes:
    """Return the body with one leaf changed to another value of its type."""
    at: Any = body
    *above, name = ["cost", "USD.cent"] if member.startswith("cost.") else member.split(".")
    for part in above:
        at = at[part]
    old = at[name]
    if old is None:
        at[name] = "inv_" + "1" * 32
    elif type(old) is int:
        at[name] = old + 1
    else:
        at[name] = old[:-1] + ("0" if old[-1] != "0" else "1")
    assert at[name] != old
    return canonical_bytes(body)


@pytest.mark.spec("EFF-02")
def test_the_tables_name_every_member_of_a_binding(kept: Kept) -> None:
    assert set(leaves(kept.body)) == set(MEMBERS)
    tops = {member.split(".")[0] for member in MEMBERS}
    # The version of the format has no other maker than we; an invocation and a revision are changed by nobody else.
    by_nobody = {"v", "invocation", "revision"}
    said = {member for member, *_rest in BY_WHOM.values()}
    assert {member.split(".")[0] for member in said} == tops - by_nobody
    assert {f"payload.{name}" for name in SAID} <= said
    operation = {member for member in MEMBERS if member.startswith("operation.")}
    assert operation - said == {"operation.implementation"}


@pytest.mark.spec("EFF-02", "EFF-03", "LED-06", "PER-02")
@pytest.mark.parametrize("own_digest", [False, True], ids=["the digest left", "with its own digest"])
@pytest.mark.parametrize("member", MEMBERS)
def test_a_leaf_that_was_edited_in_the_file_is_refused_and_sends_nothing(
    member: str, own_digest: bool, kept: Kept
) -> None:
    forged = edited(kept.body, member)
    digest = binding_digest(forged) if own_digest else kept.row[1]
    write(kept, forged, digest)
    try:
        with kept.made.open() as issuer:
            no = issuer.commit(kept.effect)
            assert no.state in {"permitted", None}
            assert books(issuer) == all_at()
    finally:
        write(kept, *kept.row)
    if member == "v":
        assert no.code == "ledger_unavailable"
    elif member in COMPARED:
        assert (no.code, no.more["field"]) == COMPARED[member]
    else:
        assert no.code == "permit_broken", no.as_json()
        assert no.more["field"] in {"binding", "effect"}
    assert kept.service.connections == 0


@pytest.mark.spec("EFF-02")
def test_the_genuine_binding_that_was_put_back_is_sent_once(tmp_path: Path) -> None:
    with Service(answer(201)) as service:
        kept = kept_issuer(tmp_path / "f0", service)
        write(kept, edited(kept.body, "resource.id"), kept.row[1])
        write(kept, *kept.row)
        with kept.made.open() as issuer:
            assert state_of(issuer, kept.effect) == "permitted"
            assert issuer.commit(kept.effect).code == "succeeded"
            assert issuer.commit(kept.effect).code == "succeeded"
        assert service.connections == 1


def write(kept: Kept, body: bytes, digest: bytes) -> None:
    with unguarded(kept.made) as raw:
        raw.execute(
            "UPDATE effects SET binding = ?, binding_digest = ? WHERE effect_id = ?",
            (body, digest, kept.effect),
        )
