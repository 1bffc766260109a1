"""Registry files: one table with one meaning, or every reason why not."""

import pytest

from issuer.profile import FindingCode, ProfileRefused, Registry, parse_profile
from issuer.profile.findings import Finding
from issuer.profile.limits import CELL_BYTES_MAX, FINDINGS_MAX, REGISTRY_BYTES_MAX, REGISTRY_ROWS_MAX
from issuer.profile.models import RegistrySource
from issuer.profile.registry import read_registry
from tests.unit.test_profile import CSV, FULL

SOURCE = RegistrySource(file="growers.csv", key="code", fields=("account",))
C = FindingCode


def read(text: str) -> Registry | list[Finding]:
    return read_registry("grower", SOURCE, text)


@pytest.mark.parametrize(
    ("text", "line", "code", "words"),
    [
        ("", 1, C.BAD_REGISTRY, "lacks the declared column `code`"),
        ("code,town\nn,x\n", 1, C.BAD_REGISTRY, "lacks the declared column `account`"),
        ("Code,account\nn,1\n", 1, C.BAD_REGISTRY, "lacks the declared column `code`"),
        ("code,account,account\nn,1,2\n", 1, C.BAD_REGISTRY, "'account' twice"),
        ("code,account,x,x\nn,1,2,3\n", 1, C.BAD_REGISTRY, "'x' twice"),
        ("\ufeffcode,account\nn,1\n", 1, C.BAD_REGISTRY, "byte order mark"),
        ("code;account\nn;1\n", 1, C.BAD_REGISTRY, "lacks"),
        ("code,account\nn,1\ns\n", 3, C.BAD_REGISTRY, "has 1 cells and the header 2"),
        ("code,account\nn,1,2\n", 2, C.BAD_REGISTRY, "has 3 cells"),
        ("code,account\nn,1\ns,2\nn,3\n", 4, C.DUPLICATE_VALUE, "already used on line 2"),
        ('code,account\n"a\nb",1\n', 2, C.BAD_REGISTRY, "control character"),
        ("code,account\nn,\n", 2, C.BAD_REGISTRY, "`account` is empty"),
        ("code,account\n,1\n", 2, C.BAD_REGISTRY, "`code` is empty"),
        ("code,account\nn, 1\n", 2, C.BAD_REGISTRY, "padded"),
        ("code,account\nn,1\u00a0\n", 2, C.BAD_REGISTRY, "padded"),
        ("code,account\nn,1\u202e2\n", 2, C.BAD_REGISTRY, "control character"),
        ("code,account\nn,1\x002\n", 2, C.BAD_REGISTRY, ""),
        ('code,account\nn,"1\n', 2, C.BAD_REGISTRY, "not CSV"),
        ('code,account\nn,"1"2\n', 2, C.BAD_REGISTRY, "not CSV"),
        (f"code,account\nn,{'1' * (CELL_BYTES_MAX + 1)}\n", 2, C.TOO_LARGE, "longer than"),
        (f"code,account\nn,{'1' * 200_000}\n", 2, C.BAD_REGISTRY, "not CSV"),
        ("x" * (REGISTRY_BYTES_MAX + 1), 1, C.TOO_LARGE, "at most"),
        ("code,account\n" + "".join(f"k{n},1\n" for n in range(REGISTRY_ROWS_MAX + 1)), REGISTRY_ROWS_MAX + 2,
         C.TOO_LARGE, "10000 rows"),
    ],
)  # fmt: skip
@pytest.mark.spec("EFF-12")
def test_a_file_that_could_mean_two_things_is_refused(
    text: str, line: int, code: FindingCode, words: str
) -> None:
    found = read(text)
    assert isinstance(found, list)
    match = [finding for finding in found if finding.code is code and words in finding.message]
    assert [(finding.where, finding.line, finding.key) for finding in match[:1]] == [
        ("growers.csv", line, "registry.grower")
    ]


@pytest.mark.spec("SEC-01")
def test_no_cell_of_a_bad_registry_is_repeated() -> None:
    found = read("code,account\nCANARY1,CANARY2 \nCANARY1,CANARY3,CANARY4\nCANARY1,\n")
    assert isinstance(found, list)
    assert len(found) > 2
    assert "CANARY" not in "\n".join(map(str, found))


@pytest.mark.parametrize("text", ["code,account\n", "code,account\r\n\r\n", "account,code"])
def test_a_registry_may_be_empty(text: str) -> None:
    registry = read(text)
    assert isinstance(registry, Registry)
    assert registry.rows == {}


def test_the_largest_registry_is_read() -> None:
    registry = read("code,account\n" + "".join(f"k{n},1\n" for n in range(REGISTRY_ROWS_MAX)))
    assert isinstance(registry, Registry)
    assert len(registry.rows) == REGISTRY_ROWS_MAX


def test_a_moved_cell_changes_the_digest() -> None:
    first, second = read("code,account\na,bc\n"), read("code,account\nab,c\n")
    assert isinstance(first, Registry)
    assert isinstance(second, Registry)
    assert first.digest != second.digest


def test_findings_of_one_file_are_bounded() -> None:
    found = read("code,account\n" + "x\n" * 5_000)
    assert isinstance(found, list)
    assert len(found) <= FINDINGS_MAX + 2


@pytest.mark.spec("EFF-12")
def test_findings_of_profile_and_registry_come_together_the_profile_first() -> None:
    text = FULL.replace('"strict"', '"strcit"')
    with pytest.raises(ProfileRefused) as caught:
        parse_profile(
            text,
            where="profile.toml",
            registries=(CSV | {"growers.csv": "code,account,town\nn,,t\n"}).__getitem__,
        )
    assert [finding.where for finding in caught.value.findings] == ["profile.toml", "growers.csv"]


def test_whoever_gives_the_files_may_fail() -> None:
    def nothing(_: str) -> str:
        raise PermissionError(13, "Permission denied")

    with pytest.raises(ProfileRefused, match=r"growers.csv:1:1: registry.grower.file: .*Permission denied"):
        parse_profile(FULL, where="profile.toml", registries=nothing)
