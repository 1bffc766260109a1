"""People's key files: read with the profile, one person a key, and part of what its digest covers."""

from pathlib import Path
from typing import Any

import pytest

from issuer.profile import FindingCode, Profile, ProfileRefused, load_profile, parse_profile
from issuer.profile.limits import REGISTRY_BYTES_MAX
from tests.support.issuers import standard_issuer
from tests.support.ssh import ED25519_TOUCH, make_key, needs_ssh_keygen, touch_key
from tests.unit.test_profile import CSV, FULL, KENJI

C = FindingCode
FILE = "people/kenji.pub"
TOUCH = touch_key(ED25519_TOUCH).line
YUKI = FULL.replace('login = "token" }\nguest', 'login = "token", key = "people/yuki.pub" }\nguest')


def parsed(text: str = FULL, files: dict[str, str] | None = None) -> Profile:
    held = CSV | (files or {})

    def read(file: str) -> str:
        if file not in held:
            raise FileNotFoundError(2, "No such file or directory", file)
        return held[file]

    return parse_profile(text, where="profile.toml", registries=read)


def refused(text: str = FULL, files: dict[str, str] | None = None) -> tuple[str, FindingCode, str]:
    with pytest.raises(ProfileRefused) as caught:
        parsed(text, files)
    (finding,) = caught.value.findings
    lines = text.splitlines()
    assert finding.where == "profile.toml"
    assert lines[finding.line - 1][finding.column - 1 :].startswith("key = "), "the finding stands at the key"
    assert "canary" not in str(finding)
    return finding.key, finding.code, finding.message


@pytest.mark.spec("APP-01", "SEC-03")
def test_a_persons_keys_are_read_and_the_others_have_none() -> None:
    profile = parsed(files={FILE: f"# Kenji\n{KENJI}\n{TOUCH}"})
    assert profile.keys.keys() == {"kenji"}
    assert [key.algorithm for key in profile.keys["kenji"]] == ["ssh-ed25519", ED25519_TOUCH]
    assert parsed(FULL.replace(f', key = "{FILE}"', "")).keys == {}


@pytest.mark.spec("POL-07", "APP-01")
def test_the_digest_covers_the_keys_and_not_the_words_beside_them() -> None:
    digest = parsed().digest
    assert parsed(files={FILE: "# other words\r\n" + KENJI.replace("kenji@desk", "at home")}).digest == digest
    assert parsed(files={FILE: TOUCH}).digest != digest
    both = parsed(files={FILE: KENJI + TOUCH}).digest
    assert both not in {digest, parsed(files={FILE: TOUCH}).digest}
    assert parsed(files={FILE: TOUCH + KENJI}).digest == both
    of_yuki = parsed(YUKI, {FILE: KENJI, "people/yuki.pub": TOUCH}).digest
    assert parsed(YUKI, {FILE: TOUCH, "people/yuki.pub": KENJI}).digest != of_yuki


NO_FILES: list[tuple[Any, ...]] = [
    ("a private key", "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n", C.BAD_KEY, "private key"),
    ("nothing", "", C.BAD_KEY, "No public key"),
    ("words", "# Kenji\n\ncanary\n", C.BAD_KEY, "(line 3 of the file)"),
    ("an option", f"no-touch-required {TOUCH}", C.BAD_KEY, "no options"),
    ("DSA", "ssh-dss AAAA canary", C.BAD_KEY, "this algorithm"),
    ("a certificate", "ssh-ed25519-cert-v01@openssh.com AAAA", C.BAD_KEY, "Certificates"),
    ("one key twice", KENJI + KENJI, C.BAD_KEY, "twice"),
]  # fmt: skip


@pytest.mark.spec("SEC-03", "APP-01")
@pytest.mark.parametrize(
    ("what", "text", "code", "words"),
    NO_FILES,
    ids=[row[0] for row in NO_FILES],
)
def test_a_file_that_is_not_public_keys_is_a_finding(
    what: str, text: str, code: FindingCode, words: str
) -> None:
    key, found, message = refused(files={FILE: text})
    assert (key, found) == ("person.kenji.key", code), what
    assert words in message


@pytest.mark.spec("SEC-03")
@pytest.mark.parametrize(
    "path",
    [
        *("/etc/canary.pub", "../canary.pub", "people/../../canary.pub", "people/./kenji.pub"),
        *("people//kenji.pub", "people\\\\kenji.pub", "people/", ".", ".."),
    ],
)
def test_a_key_file_stands_below_the_profiles_folder(path: str) -> None:
    text = FULL.replace(FILE, path)
    key, code, message = refused(text, {path: KENJI})
    assert (key, code) == ("person.kenji.key", C.BAD_VALUE)
    assert "below the profile's folder" in message


@pytest.mark.spec("APP-01", "SEC-02")
def test_a_key_is_one_persons() -> None:
    key, code, message = refused(YUKI, {FILE: TOUCH + KENJI, "people/yuki.pub": KENJI})
    assert (key, code) == ("person.yuki.key", C.DUPLICATE_VALUE)
    assert "already belongs to person.kenji" in message
    assert refused(FULL.replace("guest = {}", f'guest = {{ key = "{FILE}" }}'))[0] == "person.guest.key"


@pytest.mark.spec("SEC-03")
def test_a_missing_file_is_an_error_where_a_person_names_it(tmp_path: Path) -> None:
    key, code, message = refused(FULL.replace(FILE, "people/kenij.pub"))
    assert (key, code) == ("person.kenji.key", C.UNREADABLE)
    assert "No such file" in message
    path = tmp_path / "profile.toml"
    path.write_text(FULL, encoding="utf-8")
    (tmp_path / "growers.csv").write_text(CSV["growers.csv"], encoding="utf-8")
    for content, words in (
        (None, "no regular file"),
        (b"\xff", "not UTF-8"),
        (b"#" * (REGISTRY_BYTES_MAX + 1), "more"),
    ):
        if content is not None:
            (tmp_path / "people").mkdir(exist_ok=True)
            (tmp_path / FILE).write_bytes(content)
        with pytest.raises(ProfileRefused) as caught:
            load_profile(path)
        assert [finding.key for finding in caught.value.findings] == ["person.kenji.key"]
        assert words in str(caught.value)


@pytest.mark.spec("SEC-03")
def test_nobody_gets_a_key_from_init(tmp_path: Path) -> None:
    made = standard_issuer(tmp_path / "f0", port=9)
    assert load_profile(made.profile).keys == {}
    files = [path for path in made.folder.rglob("*") if path.is_file()]
    assert not [path.name for path in files if path.suffix == ".pub" or b"PRIVATE KEY" in path.read_bytes()]


@needs_ssh_keygen
@pytest.mark.spec("SEC-03", "APP-01")
def test_a_key_of_ssh_keygen_is_read_and_its_private_half_is_not(tmp_path: Path) -> None:
    (tmp_path / "people").mkdir()
    make_key(tmp_path / "people" / "kenji")
    (tmp_path / "growers.csv").write_text(CSV["growers.csv"], encoding="utf-8")
    path = tmp_path / "profile.toml"
    path.write_text(FULL, encoding="utf-8")
    assert len(load_profile(path).keys["kenji"]) == 1
    path.write_text(FULL.replace(FILE, "people/kenji"), encoding="utf-8")
    with pytest.raises(ProfileRefused, match="private key"):
        load_profile(path)
