"""What a profile may say about services: a read, a condition, what answers prove, and an inspection (OPR-01)."""

from pathlib import Path

import pytest

from issuer.operations.contract import Seen
from issuer.operations.http_before import ReadingAdapter
from issuer.operations.http_inspect import HttpInspector
from issuer.operations.registry import Operation, build_operations
from issuer.profile import FindingCode as C
from issuer.profile import Profile, ProfileRefused, operation_digest, parse_profile
from tests.support.service import Service
from tests.unit.test_http_inspect import look

HEAD = """
format = 1
name = "shop"
mode = "ordinary"
timezone = "UTC"
[audit]
sink.local = { type = "jsonl", path = "audit", required = true }
[class.payment]
automatic = false
lifetime = "10m"
[operation.pay]
class = "payment"
resource = { type = "Invoice", id = "{number}" }
payload = { number = { string = 40, public = true }, cents = { int = [1, 500], public = true }, \
pin = { string = 8, secret = true } }
cost = { "EUR.cent" = "{cents}", call = 1 }
"""
BEFORE = """before = { url = "https://bank.example/{number}", bearer = "look", etag = true, \
facts = { held = "bool" } }\n"""
HTTP = 'http = { method = "PUT", url = "https://bank.example/{number}", bearer = "pay", if_match = true }\n'
PROVES = """proves = { succeeded = [200], failed = [402], no_effect = [412, 422], accepted = [202], partial = [207], \
charged = { "EUR.cent" = "/paid/cents", call = "/calls" }, reference = "/id" }\n"""
INSPECT = """inspect = { url = "https://bank.example/{number}?key={effect_id}", found = "/items/0/key", \
equals = "{effect_id}", absent = { after = "20m", because = "keys are refused after ten minutes" }, \
bearer = "find", charged = { call = "/calls" }, reference = "/id" }\n"""
NO_FILES: dict[str, str] = {}
FULL = HEAD + BEFORE + HTTP + PROVES + INSPECT


def parsed(text: str = FULL) -> Profile:
    return parse_profile(text, where="profile.toml", registries=NO_FILES.__getitem__)


def changed(*pairs: tuple[str, str]) -> str:
    text = FULL
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_everything_that_can_be_said_about_a_service_is_accepted() -> None:
    pay = parsed().operations["pay"]
    assert pay.credentials == ("pay", "look", "find")
    assert pay.proves is not None
    assert dict(pay.proves.charged) == {"EUR.cent": "/paid/cents", "call": "/calls"}
    assert (pay.proves.accepted, pay.proves.partial, pay.proves.reference) == ((202,), (207,), "/id")


@pytest.mark.spec("OPR-02")
def test_each_of_it_changes_the_contract() -> None:
    texts = [
        FULL,
        changed(('"/paid/cents"', '"/paid"')),
        changed(("accepted = [202]", "accepted = [203]")),
        changed(("partial = [207]", "partial = []")),
        changed((', reference = "/id" }\ninspect', " }\ninspect")),
        changed(('bearer = "find"', 'bearer = "pay"')),
        changed(('facts = { held = "bool" }', 'facts = { held = "int" }')),
        changed((", if_match = true", "")),
        changed(('"keys are refused after ten minutes"', '"keys are refused after nine minutes"')),
    ]
    digests = {operation_digest(parsed(text), "pay") for text in texts}
    assert len(digests) == len(texts)


FINDINGS: list[tuple[str, list[tuple[str, str]], str, C]] = [
    (
        "a redirect proves",
        [("succeeded = [200]", "succeeded = [200, 302]")],
        "proves.succeeded[1]",
        C.BAD_VALUE,
    ),
    ("not modified proves", [("no_effect = [412", "no_effect = [304")], "proves.no_effect[0]", C.BAD_VALUE),
    ("accepted and done", [("accepted = [202]", "accepted = [200]")], "proves.accepted[0]", C.CONFLICT),
    ("in part and not", [("partial = [207]", "partial = [422]")], "proves.partial[0]", C.CONFLICT),
    (
        "charge in no unit of it",
        [('charged = { "EUR.cent"', 'charged = { "USD.cent"')],
        'proves.charged."USD.cent"',
        C.UNKNOWN_NAME,
    ),
    ("charge of no body", [("succeeded = [200]", "succeeded = [204]")], "proves.succeeded[0]", C.CONFLICT),
    ("charge at no pointer", [('"/paid/cents"', '"paid"')], 'proves.charged."EUR.cent"', C.BAD_VALUE),
    (
        "charge in no name",
        [('charged = { "EUR.cent"', "charged = { permits")],
        "proves.charged.permits",
        C.BAD_NAME,
    ),
    (
        "read for nothing",
        [(', etag = true, facts = { held = "bool" }', ""), (", if_match = true", "")],
        "before",
        C.MISSING_KEY,
    ),
    ("condition without a tag", [("etag = true, ", "")], "http.if_match", C.CONFLICT),
    ("condition without a read", [(BEFORE, "")], "http.if_match", C.CONFLICT),
    (
        "tag of another address",
        [
            (
                'before = { url = "https://bank.example/{number}"',
                'before = { url = "https://bank.example/v2/{number}"',
            )
        ],
        "http.if_match",
        C.CONFLICT,
    ),
    (
        "tag of another host",
        [('before = { url = "https://bank.example', 'before = { url = "https://blank.example')],
        "http.if_match",
        C.CONFLICT,
    ),
    (
        "secret where it is read",
        [
            (
                'before = { url = "https://bank.example/{number}"',
                'before = { url = "https://bank.example/{pin}"',
            ),
            (", if_match = true", ""),
        ],
        "before.url",
        C.SECRET_EXPOSED,
    ),
    ("secret where it is looked for", [("{number}?key=", "{pin}?key=")], "inspect.url", C.SECRET_EXPOSED),
    (
        "anybody's is found",
        [("{number}?key={effect_id}", ""), ('equals = "{effect_id}", ', "")],
        "inspect.url",
        C.CONFLICT,
    ),
    (
        "another's charge is taken",
        [('equals = "{effect_id}", ', "")],
        "inspect.charged",
        C.CONFLICT,
    ),
    (
        "inspected in clear",
        [('inspect = { url = "https:', 'inspect = { url = "http:')],
        "inspect.url",
        C.BAD_DESTINATION,
    ),
    (
        "inspected charge in no unit of it",
        [("charged = { call", "charged = { calls")],
        "inspect.charged.calls",
        C.UNKNOWN_NAME,
    ),
    (
        "a bare delay",
        [(', because = "keys are refused after ten minutes"', "")],
        "inspect.absent",
        C.BAD_VALUE,
    ),
    ("a blank reason", [('"keys are refused after ten minutes"', '"   "')], "inspect.absent", C.BAD_VALUE),
    (
        "an empty reason",
        [('"keys are refused after ten minutes"', '""')],
        "inspect.absent.because",
        C.OUT_OF_RANGE,
    ),
    (
        "a file that is asked for",
        [(HTTP, 'file = { action = "delete", root = "r", path = "{number}" }\n'), (PROVES, "")],
        "inspect",
        C.CONFLICT,
    ),
]


@pytest.mark.spec("OPR-01", "REP-06", "REC-02", "EFF-07")
@pytest.mark.parametrize(
    ("pairs", "key", "code"), [row[1:] for row in FINDINGS], ids=[row[0] for row in FINDINGS]
)
@pytest.mark.parametrize("mode", ["ordinary", "strict"])
def test_what_cannot_hold_is_one_finding(pairs: list[tuple[str, str]], key: str, code: C, mode: str) -> None:
    text = changed(*pairs).replace('mode = "ordinary"', f'mode = "{mode}"')
    with pytest.raises(ProfileRefused) as refused:
        parsed(text)
    assert [(one.key, one.code) for one in refused.value.findings] == [(f"operation.pay.{key}", code)]


def _build(text: str, tokens: dict[str, str] | None = None) -> Operation:
    asked: list[str] = []

    def credentials(name: str) -> str:
        asked.append(name)
        return (tokens or {})[name]

    operation = build_operations(parsed(text), folder=Path("/nowhere"), credentials=credentials)["pay"]
    assert asked == []
    return operation


@pytest.mark.spec("OPR-01", "REC-02")
def test_an_operation_has_the_inspector_the_read_and_the_terms_that_were_declared() -> None:
    operation = _build(FULL)
    assert isinstance(operation.adapter, ReadingAdapter)
    assert isinstance(operation.inspector, HttpInspector)
    assert operation.absence is not None
    assert (operation.absence.after_ms, operation.reads_service) == (1_200_000, True)
    host = changed((BEFORE, ""), (HTTP, 'host = { deadline = "5m" }\n'), (PROVES, "")).replace(
        'absent = { after = "20m", because = "keys are refused after ten minutes" }', 'absent = "never"'
    )
    sent = _build(host)
    assert isinstance(sent.inspector, HttpInspector)
    assert (sent.absence, sent.reads_service, sent.adapter.kind) == (None, False, "host")
    none = _build(changed((INSPECT, "")))
    assert (none.inspector, none.absence) == (None, None)


@pytest.mark.spec("SEC-01", "REC-01")
@pytest.mark.parametrize(
    ("own", "elsewhere", "token"),
    [(True, False, "Bearer f"), (True, True, "Bearer f"), (False, False, "Bearer p"), (False, True, None)],
)
def test_an_inspection_takes_its_own_credential_or_that_of_the_sending_to_the_same_origin(
    own: bool, elsewhere: bool, token: str | None
) -> None:
    with Service() as service, Service() as other:
        inspect = INSPECT.replace("https://bank.example", service.url)
        inspect = inspect if own else inspect.replace('bearer = "find", ', "")
        sends = (HTTP + BEFORE).replace("https://bank.example", (other if elsewhere else service).url)
        operation = _build(HEAD + sends + PROVES + inspect, {"find": "f", "pay": "p"})
        assert operation.inspector is not None
        assert operation.inspector.inspect(look(number="n-1")).seen is Seen.ABSENT
        assert service.lookups[0].headers.get("authorization") == token
        assert other.connections == 0
