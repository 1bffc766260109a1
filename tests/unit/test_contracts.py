"""An operation is registered with a whole contract, or refused in one sentence with a stable code."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from issuer.errors import SetupError
from issuer.operations.contract import (
    Absence,
    Answer,
    Inspection,
    Look,
    Order,
    Preparation,
    Proof,
    Request,
    Seen,
)
from issuer.operations.declaration import (
    DEADLINE_MS_MAX,
    SENTENCES,
    Abilities,
    AuditNeed,
    ConditionalWrite,
    Contract,
    Idempotency,
    InspectionTerms,
    RegistrationCode,
    RegistrationRefusedError,
    Resend,
    register,
)
from issuer.operations.deriving import Parts, contract_of
from issuer.operations.file_adapter import FileAction, FileAdapter, FileSettings
from issuer.operations.host_adapter import HostAdapter, HostSettings
from issuer.operations.payload import Field
from issuer.operations.registry import Operation, build_operations
from issuer.operations.templates import Template
from issuer.profile import parse_profile
from issuer.profile.example import EXAMPLE, EXAMPLE_REGISTRIES
from ledger.model import AMOUNT_MAX, DurationMs
from tests.support.issuers import STANDARD_PROFILE
from tests.support.third_party import PROVES

Code = RegistrationCode
DAY = DurationMs(86_400_000)
KEY: Final = Idempotency(scope="the endpoint and account", kept_ms=DAY)
ABLE: Final = Abilities(
    proofs=frozenset({Proof.SUCCEEDED, Proof.FAILED}),
    conditional=ConditionalWrite.SERVICE,
    key=True,
    charges=True,
)


@dataclass(kw_only=True)
class Sender:
    """An adapter as somebody writes it; each part can be another one."""

    kind: Any = "shop"
    implementation: Any = "a" * 64
    abilities: Any = field(default_factory=lambda: ABLE)

    def prepare(self, request: Request) -> Preparation:
        del request
        return Preparation(actual={}, destination={})

    def still_holds(self, request: Request, preparation: Preparation) -> str | None:
        del request, preparation
        return None

    def dispatch(self, order: Order) -> Answer:
        del order
        return Answer(proof=Proof.NOTHING, source="shop")


class Looker(Sender):
    def inspect(self, look: Look) -> Inspection:
        del look
        return Inspection(seen=Seen.UNCLEAR, source="shop")


class Unsteady(Sender):
    """Its digest is another one at each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.kind, self.abilities = "shop", ABLE

    def __getattribute__(self, name: str) -> Any:
        if name == "implementation":
            self.looks += 1
            return f"{self.looks:064x}"
        return super().__getattribute__(name)


VALUES: Final[dict[str, Any]] = {
    "id": "refund",
    "version": 1,
    "adapter": "shop",
    "implementation": "a" * 64,
    "payload": (Field(name="order", kind="string", exposure="public", length_max=40),),
    "resource_type": "Order",
    "resource_id": Template.parse("{order}"),
    "recipients": (),
    "action_class": "refund",
    "cost": {"USD.cent": (1, 300)},
    "lifetime_ms": None,
    "deadline_ms": DurationMs(60_000),
    "conditional_write": ConditionalWrite.NONE,
    "idempotency": None,
    "resend": None,
    "answers": {"shop:done": Proof.SUCCEEDED},
    "charged": False,
    "inspection": None,
    "cleanup": (),
    "audit": AuditNeed.EVERY_REQUIRED_SINK,
}


def contract(**changes: Any) -> Contract:
    return Contract(**{**VALUES, **changes})


def refused(act: Callable[[], object]) -> RegistrationRefusedError:
    with pytest.raises(RegistrationRefusedError) as caught:
        act()
    return caught.value


@pytest.mark.spec("OPR-01")
def test_a_contract_says_everything_and_what_is_not_supported_too() -> None:
    assert {member.name for member in fields(Contract)} == set(VALUES)
    for name in VALUES:
        with pytest.raises(TypeError):
            Contract(**{key: value for key, value in VALUES.items() if key != name})
    whole = contract()
    with pytest.raises(AttributeError):
        whole.charged = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        whole.cost["USD.cent"] = (0, 1)  # type: ignore[index]


@pytest.mark.spec("OPR-01")
def test_a_contract_and_an_adapter_that_fit_are_registered_as_they_are() -> None:
    sender = Sender()
    registered = register(contract(), sender)
    assert (registered.contract, registered.adapter, registered.inspector) == (contract(), sender, None)
    everything = contract(
        conditional_write=ConditionalWrite.SERVICE,
        idempotency=KEY,
        resend=Resend(within_ms=DAY),
        answers={"shop:done": Proof.SUCCEEDED, "shop:failed": Proof.FAILED, "shop:busy": Proof.NOTHING},
        charged=True,
        inspection=InspectionTerms(by="shop", absence=Absence(after_ms=DAY, because="the key is closed")),
        cleanup=("void-the-invoice",),
        lifetime_ms=DurationMs(1),
    )
    assert register(everything, Looker()).contract == everything
    assert register(everything, Sender(), Looker()).inspector is not None


COSTS: Final[dict[str, Any]] = {
    "none": {},
    "no mapping": None,
    "a list": [("USD.cent", (0, 1))],
    "below zero": {"USD.cent": (-1, -1)},
    "from below zero": {"USD.cent": (-1, 5)},
    "a greatest below the least": {"USD.cent": (5, 1)},
    "one too many": {"USD.cent": (0, AMOUNT_MAX + 1)},
    "beyond 64 bits": {"USD.cent": (0, 2**70)},
    "a float": {"USD.cent": (0, 1.0)},
    "infinite": {"USD.cent": (0, float("inf"))},
    "not a number": {"USD.cent": (0, float("nan"))},
    "text": {"USD.cent": (0, "5")},
    "true": {"USD.cent": (0, True)},
    "false": {"USD.cent": (False, 1)},
    "no bound": {"USD.cent": (0, None)},
    "one number": {"USD.cent": 5},
    "no unit's name": {"": (0, 1)},
    "a unit that is no text": {1: (0, 1)},
    "one of two": {"USD.cent": (0, 1), "EUR.cent": (0, None)},
}
ALONE: Final[dict[str, tuple[Code, dict[str, Any]]]] = {
    **{f"cost: {row}": (Code.NO_FINITE_COST, {"cost": cost}) for row, cost in COSTS.items()},
    **{
        f"{name}: {time!r}": (Code.NO_FINITE_TIME, {name: time})
        for name in ("deadline_ms", "lifetime_ms")
        for time in (0, -1, DEADLINE_MS_MAX + 1, 1.5, True, "1h", float("inf"))
    },
    "deadline: None": (Code.NO_FINITE_TIME, {"deadline_ms": None}),
    "a resend without a key": (Code.RESEND_WITHOUT_KEY, {"resend": Resend(within_ms=DAY)}),
    "a resend of a key that is kept for nobody knows how long": (
        Code.RESEND_WITHOUT_RETENTION,
        {"resend": Resend(within_ms=DAY), "idempotency": Idempotency(scope="account", kept_ms=None)},
    ),
    "a resend for longer than the key is kept": (
        Code.RESEND_WITHOUT_RETENTION,
        {"resend": Resend(within_ms=DurationMs(DAY + 1)), "idempotency": KEY},
    ),
    "a resend for ever": (
        Code.RESEND_WITHOUT_RETENTION,
        {"resend": Resend(within_ms=float("inf")), "idempotency": KEY},  # type: ignore[arg-type]
    ),
    "a key that is kept for no time": (
        Code.RESEND_WITHOUT_RETENTION,
        {"idempotency": Idempotency(scope="account", kept_ms=DurationMs(0))},
    ),
    **{
        f"an absence because {because!r}": (
            Code.ABSENCE_WITHOUT_REASON,
            {"inspection": InspectionTerms(by="shop", absence=Absence(after_ms=DAY, because=because))},  # type: ignore[arg-type]
        )
        for because in ("", "  \t", None)
    },
    "an absence before": (
        Code.ABSENCE_WITHOUT_REASON,
        {
            "inspection": InspectionTerms(
                by="shop", absence=Absence(after_ms=DurationMs(-1), because="closed")
            )
        },
    ),
    "a name with a line end": (Code.CONTRACT_MALFORMED, {"id": "refund\n"}),
    "no name": (Code.CONTRACT_MALFORMED, {"id": None}),
    "version 0": (Code.CONTRACT_MALFORMED, {"version": 0}),
    "a version that is true": (Code.CONTRACT_MALFORMED, {"version": True}),
    "a short digest": (Code.CONTRACT_MALFORMED, {"implementation": "a" * 63}),
    "a digest in capitals": (Code.CONTRACT_MALFORMED, {"implementation": "A" * 64}),
    "a proof in words": (Code.CONTRACT_MALFORMED, {"answers": {"shop:done": "succeeded"}}),
    "answers that are none": (Code.CONTRACT_MALFORMED, {"answers": None}),
    "an answer class in free text": (Code.CONTRACT_MALFORMED, {"answers": {"all is well": Proof.SUCCEEDED}}),
    "a condition in words": (Code.CONTRACT_MALFORMED, {"conditional_write": "service"}),
    "a charge that is 1": (Code.CONTRACT_MALFORMED, {"charged": 1}),
    "an obligation without a name": (Code.CONTRACT_MALFORMED, {"cleanup": ("",)}),
    "no audit": (Code.CONTRACT_MALFORMED, {"audit": None}),
    "a field twice": (Code.CONTRACT_MALFORMED, {"payload": VALUES["payload"] * 2}),
}
"""What no contract can say, whatever its adapter is."""


@pytest.mark.spec("OPR-01", "EFF-04", "REC-02", "REC-03")
@pytest.mark.parametrize("row", ALONE)
def test_a_combination_that_cannot_hold_is_no_contract(row: str) -> None:
    code, changes = ALONE[row]
    no = refused(lambda: contract(**changes))
    assert (no.code, no.reason) == (code, str(code))
    assert no.message.endswith(SENTENCES[code])
    assert no.message.count("\n") == 0


BESIDE: Final[dict[str, tuple[Code, dict[str, Any], Any]]] = {
    "no adapter": (Code.ADAPTER_MALFORMED, {}, None),
    "an adapter that cannot send": (Code.ADAPTER_MALFORMED, {}, type("Half", (), {"prepare": len})()),
    "a kind that is no word": (Code.ADAPTER_MALFORMED, {}, Sender(kind="Shop!")),
    "no kind": (Code.ADAPTER_MALFORMED, {}, Sender(kind=None)),
    "a short digest": (Code.ADAPTER_MALFORMED, {}, Sender(implementation="a" * 63)),
    "a digest in bytes": (Code.ADAPTER_MALFORMED, {}, Sender(implementation=b"a" * 64)),
    "no digest": (Code.ADAPTER_MALFORMED, {}, Sender(implementation="")),
    "a digest that changes": (Code.IMPLEMENTATION_UNSTEADY, {}, Unsteady()),
    "a contract about another kind": (Code.ADAPTER_OTHER, {"adapter": "http"}, Sender()),
    "a contract about another code": (Code.ADAPTER_OTHER, {"implementation": "b" * 64}, Sender()),
    "a check and then a write": (
        Code.CHECK_THEN_WRITE,
        {"conditional_write": ConditionalWrite.SERVICE},
        Sender(abilities=replace(ABLE, checks_then_writes=True)),
    ),
    "a condition by somebody else": (
        Code.CONDITION_NOT_IMPLEMENTED,
        {"conditional_write": ConditionalWrite.FILE_SYSTEM},
        Sender(),
    ),
    "a key that is not sent": (
        Code.KEY_NOT_IMPLEMENTED,
        {"idempotency": KEY},
        Sender(abilities=replace(ABLE, key=False)),
    ),
    "a proof that is never given": (
        Code.PROOF_NOT_IMPLEMENTED,
        {"answers": {"shop:none": Proof.NO_EFFECT}},
        Sender(),
    ),
    "a charge that is not read": (
        Code.CHARGE_NOT_IMPLEMENTED,
        {"charged": True},
        Sender(abilities=replace(ABLE, charges=False)),
    ),
    "an inspection by nobody": (
        Code.INSPECTION_NOT_IMPLEMENTED,
        {"inspection": InspectionTerms(by="shop", absence=None)},
        Sender(),
    ),
    "abilities that are hints": (
        Code.PROOF_NOT_IMPLEMENTED,
        {},
        Sender(abilities={"safe": True, "proofs": "all"}),
    ),
    "abilities that are left out": (Code.PROOF_NOT_IMPLEMENTED, {}, Sender(abilities=None)),
}
"""What an adapter does not do, and a contract says of it."""


@pytest.mark.spec("OPR-01", "OPR-04", "OPR-05")
@pytest.mark.parametrize("row", BESIDE)
def test_what_an_adapter_does_not_implement_cannot_be_declared(row: str) -> None:
    code, changes, adapter = BESIDE[row]
    no = refused(lambda: register(contract(**changes), adapter))
    assert (no.code, no.reason, no.operation) == (code, str(code), "refund")
    assert no.message == f"The operation refund cannot be registered: {SENTENCES[code]}"


@pytest.mark.spec("OPR-01")
def test_every_code_has_one_sentence_and_no_sentence_serves_two() -> None:
    assert set(SENTENCES) == set(RegistrationCode)
    assert len(set(SENTENCES.values())) == len(SENTENCES)
    assert all(sentence.endswith(".") and sentence.count(". ") == 0 for sentence in SENTENCES.values())


# ------------------------------------------------------------------------------------ of a profile


def built(text: str, folder: Path) -> dict[str, Operation]:
    profile = parse_profile(
        text, where="profile.toml", registries=lambda name: EXAMPLE_REGISTRIES.get(name, "")
    )
    return dict(build_operations(profile, folder=folder, credentials=str))


def standard(changes: dict[str, str]) -> str:
    text = STANDARD_PROFILE.replace("@UID@", "1000").replace("@PORT@", "9")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.spec("OPR-01")
def test_an_operation_of_a_profile_has_the_contract_that_its_owner_declared(tmp_path: Path) -> None:
    operations = built(standard({}), tmp_path)
    sent, granted = operations["refund"].terms, operations["publish"].terms
    assert (sent.id, sent.version, sent.adapter, sent.action_class) == ("refund", 1, "http", "refund")
    assert sent.implementation == operations["refund"].adapter.implementation
    assert dict(sent.cost) == {"USD.cent": (1, 1_000_000)}
    assert sent.idempotency is not None
    assert (sent.idempotency.kept_ms, sent.resend) == (DAY, None)
    assert dict(sent.answers) == {
        "http:201": Proof.SUCCEEDED,
        "http:409": Proof.FAILED,
        **dict.fromkeys(("http:400", "http:402", "http:422"), Proof.NO_EFFECT),
    }
    assert (granted.adapter, dict(granted.answers), granted.idempotency, granted.resend) == (
        "host",
        {},
        None,
        None,
    )
    for terms in (sent, granted):
        assert (terms.conditional_write, terms.charged) == (ConditionalWrite.NONE, False)
        assert (terms.inspection, terms.cleanup, terms.lifetime_ms) == (None, (), None)


@pytest.mark.spec("OPR-01", "OPR-02")
def test_every_operation_of_the_example_is_registered_and_none_around_it(tmp_path: Path) -> None:
    for operation in built(EXAMPLE, tmp_path).values():
        terms = operation.terms
        assert (terms.adapter, terms.implementation) == (
            operation.adapter.kind,
            operation.adapter.implementation,
        )
        assert (terms.payload, terms.deadline_ms) == (operation.fields, operation.deadline_ms)


FILES: Final = """
[operation.note]
class = "refund"
resource = { type = "Note", id = "{name}" }
payload = { name = { string = 40, public = true } }
cost = { "USD.cent" = 1 }
file = { action = "ACTION", root = "notes", path = "{name}" }
"""


@pytest.mark.spec("OPR-04")
@pytest.mark.parametrize("action", ["create", "replace", "delete"])
def test_a_file_is_written_under_a_condition_that_the_file_system_holds(action: str, tmp_path: Path) -> None:
    table = FILES.replace("ACTION", action)
    if action != "delete":
        table = table.replace('path = "{name}"', 'path = "{name}", content = "x"')
    terms = built(standard({"[operation.publish]": table + "[operation.publish]"}), tmp_path)["note"].terms
    assert terms.conditional_write is ConditionalWrite.FILE_SYSTEM
    assert Proof.NOTHING not in terms.answers.values()


@pytest.mark.spec("OPR-04")
def test_a_file_adapter_that_would_only_check_and_write_may_not_claim_a_condition(tmp_path: Path) -> None:
    class Shared(FileAdapter):
        """The same, for roots that others can write to: then a check alone stands before the change."""

        @property
        def abilities(self) -> Abilities:
            return replace(super().abilities, checks_then_writes=True)

    settings = FileSettings(action=FileAction.DELETE, root=tmp_path, path=Template.parse("{name}"))
    for adapter, no in ((FileAdapter(settings), None), (Shared(settings), Code.CHECK_THEN_WRITE)):
        terms = contract(
            adapter="file",
            implementation=adapter.implementation,
            conditional_write=ConditionalWrite.FILE_SYSTEM,
            answers={"file:deleted": Proof.SUCCEEDED},
        )
        if no is None:
            assert register(terms, adapter).contract is terms
        else:
            assert refused(partial(register, terms, adapter)).code is no


@pytest.mark.spec("OPR-01", "REC-07")
def test_nothing_that_a_host_says_can_be_declared_a_proof() -> None:
    adapter = HostAdapter(HostSettings(deadline_ms=DurationMs(1_000)))
    terms = contract(adapter="host", implementation=adapter.implementation)
    assert refused(lambda: register(terms, adapter)).code is Code.PROOF_NOT_IMPLEMENTED


@pytest.mark.spec("OPR-01")
def test_settings_that_an_adapter_cannot_honour_are_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught:
        built(standard({PROVES: ""}), tmp_path)
    assert caught.value.reason == str(Code.SETTINGS_NOT_HONOURED)
    assert caught.value.message.startswith("The operation refund cannot be registered: ")


@pytest.mark.spec("OPR-01")
def test_a_contract_made_from_a_profile_is_held_to_the_adapter_that_was_built(tmp_path: Path) -> None:
    profile = parse_profile(standard({}), where="profile.toml", registries=lambda _name: "")
    parts = Parts(adapter=HostAdapter(HostSettings(deadline_ms=DurationMs(1_000))))
    terms = contract_of("refund", profile.operations["refund"], parts)
    no = refused(lambda: register(terms, parts.adapter))
    assert no.code is Code.KEY_NOT_IMPLEMENTED


@pytest.mark.spec("OPR-01")
def test_the_page_of_contracts_names_every_member_and_every_reason_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "contracts.md").read_text(encoding="utf-8")
    said, refusals = page.split("## What is refused")
    members = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", said, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert members == {member.name for member in fields(Contract)}
    reasons = refusals.split("## An adapter of one's own")[0]
    assert re.findall(r"^\| `(\w+)` \|", reasons, re.MULTILINE) == [str(code) for code in Code]
