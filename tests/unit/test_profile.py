"""The owner's profile: what is accepted, what it becomes, and what its digests cover."""

import os
from pathlib import Path

import pytest

from issuer.profile import (
    FieldKind,
    FieldRef,
    FindingCode,
    Profile,
    ProfileRefused,
    Visibility,
    class_digest,
    cost_range,
    load_profile,
    operation_digest,
    parse_profile,
    unserved,
    unserved_anywhere,
    unserved_reason,
)
from issuer.profile.limits import PROFILE_BYTES_MAX, REGISTRY_BYTES_MAX

FULL = """\
format   = 1
name     = "orchard"
mode     = "strict"
timezone = "Asia/Tokyo"

[audit]
sink.disk = { type = "jsonl", path = "trail", required = true }
sink.far  = { type = "otlp", url = "http://collector.example:4318/v1/traces", required = false }
checkpoint = { every = "2h", copy_to = "/elsewhere" }

[person]
kenji = { roles = ["owner", "operator"], groups = ["office"], login = "uid:1000", key = "people/kenji.pub" }
yuki  = { roles = ["approver", "reviewer", "host"], login = "token" }
guest = {}

[actor]
picker = { answers_to = "kenji", groups = ["bots"] }

[host]
desk = { actors = ["picker"], subjects = ["kenji", "yuki"], login = "uid:1200" }
shed = { actors = ["picker"], subjects = ["guest"], login = "token" }

[registry]
grower = { file = "growers.csv", key = "code", fields = ["account", "town"] }

[notify.mail-kenji]
command = ["/usr/bin/mail-kenji", "--urgent"]
on      = ["awaiting_approval", "outcome_unknown"]

[notify.desk]
spool = "told"
on    = ["awaiting_approval", "frozen", "sink_down", "nearly_full"]

[class.payment]
each     = { "JPY.yen" = 9_000, fee = 0 }
per_task = { permits = 5 }
per_root = { permits = 50 }
per_day  = { permits = 10, "JPY.yen" = 40_000 }
lifetime = "10m"

[class.removal]
automatic = false
lifetime  = "7d"

[operation.pay]
class    = "payment"
version  = 3
lifetime = "90s"
resource = { type = "Invoice", id = "{grower}/{number}", recipients = ["{grower.account}"] }
payload.grower = { registry = "grower", public = true }
payload.number = { string = 40, public = true }
payload.yen    = { int = [1, 500_000] }
payload.urgent = { bool = true }
payload.pin    = { string = 8, secret = true }
payload.way    = { one_of = ["bank", "post"] }
cost     = { "JPY.yen" = "{yen}", fee = 0 }
http     = { method = "POST", url = "https://bank.example/pay/{way}", bearer = "bank", once = "Pay-Key" }
body     = { to = "{grower.account}", yen = "{yen}", pin = "{pin}", id = "{effect_id}", note = "{{as is}}" }
proves   = { succeeded = [201], failed = [500], no_effect = [400, 422], key_kept = "30d" }
after_approval = "commit"
notify   = ["mail-kenji", "desk"]

[operation.pay.inspect]
url    = "https://bank.example/pay?key={effect_id}"
found  = "/items/0/id"
equals = "{number}"
absent = { after = "20m", because = "the bank refuses keys older than ten minutes" }

[operation.remove]
class    = "removal"
resource = { type = "Tree", id = "tree:{tree}" }
payload  = { tree = { int = [-5, 900] } }
cost     = { tree = 1 }
before   = { url = "https://trees.example/{tree}", bearer = "trees", etag = true, facts = { held = "bool" } }
http     = { method = "DELETE", url = "https://trees.example/{tree}", if_match = true }
inspect  = { url = "https://trees.example/{tree}", found = "/gone", absent = "never" }

[operation.ship]
class    = "removal"
resource = { type = "Crate", id = "crate" }
payload  = {}
cost     = { crate = 2 }
host     = { deadline = "5m" }

[operation.note]
class    = "removal"
resource = { type = "Note", id = "{day}" }
payload  = { day = { string = 10, public = true }, words = { string = 65_536, secret = true } }
cost     = { note = 1 }
file     = { action = "replace", root = "notes", path = "days/{day}.txt", content = "{words}\\n" }
"""

KENJI = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKSsaCwSQYr1DzU1CVErJUE7doQ46Myrx2qynjfLmBaq kenji@desk\n"
CSV = {
    "growers.csv": 'code,account,town,remark\nnorth,JP-100,Aomori,\nsouth,JP-200,"Ise, Mie",x\n',
    "people/kenji.pub": KENJI,
}


def parsed(text: str = FULL, files: dict[str, str] | None = None) -> Profile:
    return parse_profile(text, where="profile.toml", registries=(CSV | (files or {})).__getitem__)


def changed(old: str, new: str) -> Profile:
    assert FULL.count(old) == 1
    return parsed(FULL.replace(old, new))


@pytest.mark.spec("OPR-01")
def test_every_key_of_the_format_is_accepted_and_becomes_a_value() -> None:
    profile = parsed()
    assert (profile.format, profile.name, profile.mode, profile.timezone) == (
        1,
        "orchard",
        "strict",
        "Asia/Tokyo",
    )
    assert profile.audit.checkpoint is not None
    assert profile.audit.checkpoint.every_ms == 7_200_000
    assert profile.audit.sinks["disk"].required
    assert profile.people["yuki"].roles == ("approver", "reviewer", "host")
    assert profile.people["guest"].login is None
    assert profile.hosts["desk"].subjects == ("kenji", "yuki")
    payment = profile.classes["payment"]
    assert (payment.automatic, payment.lifetime_ms, payment.permits_per_day) == (True, 600_000, 10)
    assert payment.units_per_day == {"JPY.yen": 40_000}
    assert payment.per_task is not None
    assert payment.per_task.permits == 5
    assert not profile.classes["removal"].automatic


@pytest.mark.spec("OPR-01", "EFF-10")
def test_an_operation_keeps_kinds_visibility_adapter_and_proofs_apart() -> None:
    operations = parsed().operations
    pay = operations["pay"]
    assert {name: field.kind for name, field in pay.payload.items()} == {
        "grower": FieldKind.REGISTRY,
        "number": FieldKind.STRING,
        "yen": FieldKind.INT,
        "urgent": FieldKind.BOOL,
        "pin": FieldKind.STRING,
        "way": FieldKind.ONE_OF,
    }
    assert pay.payload["number"].visibility is Visibility.PUBLIC
    assert pay.payload["yen"].visibility is Visibility.SENSITIVE
    assert pay.payload["pin"].visibility is Visibility.SECRET
    assert [operations[name].adapter for name in operations] == ["http", "http", "host", "file"]
    assert pay.cost == {"JPY.yen": FieldRef(field="yen"), "fee": 0}
    assert pay.inspect is not None
    assert pay.inspect.absent.after_ms == 1_200_000
    assert pay.proves is not None
    assert (pay.proves.failed, pay.proves.key_kept_ms) == ((500,), 30 * 86_400_000)
    remove = operations["remove"]
    assert remove.inspect is not None
    assert remove.inspect.absent.after_ms is None
    assert operations["note"].version == 1


@pytest.mark.spec("EFF-04")
def test_the_least_and_greatest_cost_follow_from_the_profile_alone() -> None:
    operations = parsed().operations
    assert cost_range(operations["pay"]) == {"JPY.yen": (1, 500_000), "fee": (0, 0)}
    assert cost_range(operations["ship"]) == {"crate": (2, 2)}


@pytest.mark.spec("EFF-12")
def test_a_registry_gives_the_declared_columns_of_every_entry() -> None:
    registry = parsed().registries["grower"]
    assert registry.rows["south"] == {"code": "south", "account": "JP-200", "town": "Ise, Mie"}
    assert list(registry.rows) == ["north", "south"]


def test_nothing_in_an_accepted_profile_can_be_changed() -> None:
    profile = parsed()
    for mapping in (
        profile.operations,
        profile.classes,
        profile.registries,
        profile.registries["grower"].rows["north"],
        profile.operations["pay"].payload,
        profile.classes["removal"].each,
        profile.audit.sinks,
    ):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["intruder"] = None  # type: ignore[index]
    with pytest.raises(ValueError, match="frozen"):
        profile.people["kenji"].roles = ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('name     = "orchard"\n', 'name = "orchard" # a comment\n'),
        ('lifetime = "10m"', 'lifetime = "600s"'),
        ("9_000", "9000"),
        ("required = true", "required=true"),
        ("guest = {}", "guest = { roles = [], groups = [] }"),
        ('automatic = false\nlifetime  = "7d"', 'lifetime = "168h"\nautomatic = false'),
        ('host     = { deadline = "5m" }', 'version = 1\nhost = { deadline = "300s" }'),
        ("\n[host]\n", "\r\n[host]\r\n"),
        ('{ "JPY.yen" = 9_000, fee = 0 }', '{ fee = 0, "JPY.yen" = 9_000 }'),
    ],
    ids=[
        "comment",
        "duration",
        "underscore",
        "spacing",
        "default",
        "order",
        "version",
        "line ends",
        "order of units",
    ],
)
@pytest.mark.spec("POL-07")
def test_the_digest_does_not_change_with_the_form_of_the_file(old: str, new: str) -> None:
    assert changed(old, new).digest == parsed().digest


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"orchard"', '"orchard2"'),
        ('timezone = "Asia/Tokyo"', 'timezone = "Asia/Seoul"'),
        ('path = "trail"', 'path = "trail2"'),
        ('roles = ["owner", "operator"]', 'roles = ["owner"]'),
        (', key = "people/kenji.pub"', ""),
        ("permits = 5 }", "permits = 6 }"),
        ("automatic = false", "per_task = { permits = 1 }\nautomatic = false"),
        ("{{as is}}", "{{as  is}}"),
        ('note = "{{as is}}"', 'note = ""'),
        ("int = [1, 500_000]", "int = [1, 500_001]"),
        ("urgent = { bool = true }", "urgent = { bool = true, public = true }"),
    ],
)
@pytest.mark.spec("POL-07")
def test_the_digest_changes_with_every_meaning(old: str, new: str) -> None:
    assert changed(old, new).digest != parsed().digest


@pytest.mark.spec("EFF-12", "OPR-02")
def test_a_registry_counts_by_its_columns_in_use_and_not_by_its_form() -> None:
    base = parsed()
    reordered = {"growers.csv": 'code,town,account\nsouth,"Ise, Mie",JP-200\n\nnorth,Aomori,JP-100\n'}
    other = {"growers.csv": CSV["growers.csv"].replace("JP-100", "JP-101")}
    assert parsed(files=reordered).digest == base.digest
    assert parsed(files=other).digest != base.digest
    assert operation_digest(parsed(files=other), "pay") != operation_digest(base, "pay")
    # An operation that uses no registry keeps its outstanding permits.
    assert operation_digest(parsed(files=other), "ship") == operation_digest(base, "ship")


@pytest.mark.spec("OPR-02")
def test_an_operation_digest_covers_the_operation_and_not_its_neighbours() -> None:
    base = parsed()
    versioned = changed("version  = 3", "version  = 4")
    assert operation_digest(versioned, "pay") != operation_digest(base, "pay")
    assert operation_digest(versioned, "note") == operation_digest(base, "note")
    bounded = changed("permits = 5 }", "permits = 6 }")
    assert operation_digest(bounded, "pay") == operation_digest(base, "pay")
    assert class_digest(bounded, "payment") != class_digest(base, "payment")
    assert class_digest(bounded, "removal") == class_digest(base, "removal")
    with pytest.raises(KeyError):
        operation_digest(base, "nothing")


@pytest.mark.spec("OPR-02")
def test_two_operations_that_differ_in_name_only_have_two_digests() -> None:
    start = FULL.index("[operation.ship]")
    end = FULL.index("[operation.note]")
    profile = parsed(FULL + "\n" + FULL[start:end].replace("operation.ship", "operation.send"))
    assert operation_digest(profile, "send") != operation_digest(profile, "ship")


@pytest.mark.spec("OPR-01", "OPR-03")
def test_what_is_not_served_yet_is_named_key_by_key() -> None:
    profile = parsed()
    everywhere = ("mode", "person.yuki.login")
    assert unserved(profile, None) == everywhere
    assert unserved(profile, "pay") == everywhere
    assert unserved(profile, "remove") == everywhere
    assert unserved(profile, "ship") == everywhere
    for key in unserved_anywhere(profile):
        assert unserved_reason(key).endswith(".")
    with pytest.raises(KeyError):
        unserved(profile, "nothing")
    with pytest.raises(KeyError):
        unserved_reason("person.kenji.key")


def test_a_profile_is_loaded_from_disk_with_the_registry_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(FULL)
    for name, content in CSV.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert load_profile(path).digest == parsed().digest
    assert load_profile(path).where == str(path)


def refusal_of(path: Path) -> tuple[str, FindingCode, str]:
    with pytest.raises(ProfileRefused) as caught:
        load_profile(path)
    (finding,) = caught.value.findings
    return finding.where, finding.code, finding.message


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, FindingCode.UNREADABLE),
        (b"a" * (PROFILE_BYTES_MAX + 1), FindingCode.TOO_LARGE),
        (b"name = '\xff'\n", FindingCode.NOT_UTF8),
        (b"\xef\xbb\xbfformat = 1\n", FindingCode.SYNTAX),
    ],
)
def test_a_profile_without_usable_text_is_one_finding(
    tmp_path: Path, content: bytes | None, code: FindingCode
) -> None:
    path = tmp_path / "profile.toml"
    if content is not None:
        path.write_bytes(content)
    assert refusal_of(path)[:2] == (str(path), code)


def test_a_byte_order_mark_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(FULL, encoding="utf-8-sig")
    assert "byte order mark" in refusal_of(path)[2]


@pytest.mark.spec("EFF-10")
def test_a_secret_field_is_no_attribute_so_operations_of_one_type_differ_without_it() -> None:
    same_type = FULL.replace("payload  = {}", "payload  = { day = { int = [1, 9], secret = true } }")
    with pytest.raises(ProfileRefused) as refused:
        parsed(same_type.replace('type = "Crate"', 'type = "Note"'))
    (finding,) = refused.value.findings
    assert (finding.key, finding.code) == ("operation.ship.resource.type", FindingCode.CONFLICT)
    assert "`day` is one in" in finding.message


def test_a_pipe_in_place_of_the_profile_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    os.mkfifo(path)
    assert refusal_of(path)[1] is FindingCode.UNREADABLE


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, FindingCode.UNREADABLE),
        (b"code,account,town\n\xff,1,2\n", FindingCode.NOT_UTF8),
        (b"x" * (REGISTRY_BYTES_MAX + 1), FindingCode.TOO_LARGE),
    ],
)
def test_a_registry_without_usable_text_is_one_finding_about_its_file(
    tmp_path: Path, content: bytes | None, code: FindingCode
) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(FULL.replace(', key = "people/kenji.pub"', ""))
    if content is not None:
        (tmp_path / "growers.csv").write_bytes(content)
    assert refusal_of(path)[:2] == ("growers.csv", code)
