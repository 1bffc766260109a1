"""The verifier in one file runs without this package, does its own Ed25519, and comes to the same verdict as ours."""

import importlib.util
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audit.errors import TrailUnreadable
from audit.proofs import PermitProof, proof_bytes
from audit.verifier import verifier_text
from issuer.sealing import is_ed25519_signature
from issuer.verifying import Given, verify_permit
from ledger.tree import EMPTY_ROOT
from tests.support.spans import LEDGER
from tests.support.trails import (
    CheckpointKey,
    Signed,
    document,
    edited,
    header,
    joined,
    line_of,
    reference_path,
    restored,
    restored_twice,
    rows_of,
    signed_trail,
    spelled,
    told_spans,
    verdict_of,
)

FILE = Path(__file__).parents[2] / "audit" / "verifier" / "permit_audit_verifier.py"
KEY = CheckpointKey()
SPANS, EDITS, SEED = 150, 200, 8032
L = 2**252 + 27742317777372353535851937790883648493

VECTORS = (
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2465"
            "5141438e7a100b"
        ),
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        (
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb0"
            "0d291612bb0c00"
        ),
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc0"
            "27beceea1ec40a"
        ),
    ),
)
"""The first three tests of RFC 8032 section 7.1: secret key, public key, message, signature."""


@pytest.fixture(scope="module")
def verifier() -> ModuleType:
    spec = importlib.util.spec_from_file_location("one_file_verifier", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trail() -> Signed:
    return signed_trail(SPANS, KEY)


def run(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the printed verifier in a bare interpreter, elsewhere; return its exit code and its lines."""
    script = folder / "verifier.py"
    script.write_text(verifier_text(), encoding="utf-8")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    command = [sys.executable, "-I", "-S", "-W", "error", str(script), *arguments]
    ran = subprocess.run(
        command, cwd=elsewhere, env={}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stderr == ""
    return ran.returncode, ran.stdout.splitlines()


def put(folder: Path, trail: Signed) -> list[str]:
    """Write a trail, its checkpoint and the key; return what to type."""
    (folder / "spans.jsonl").write_bytes(trail.data)
    (folder / "c.note").write_bytes(trail.note)
    (folder / "key").write_text(KEY.vkey)
    names = ("--key", "key", "--checkpoint", "c.note", "spans.jsonl")
    return [name if name.startswith("--") else str(folder / name) for name in names]


@pytest.mark.spec("AUD-09", "AUD-04")
def test_it_runs_bare_and_elsewhere_and_says_what_is_proven(trail: Signed, tmp_path: Path) -> None:
    asked = put(tmp_path, trail)
    code, lines = run(tmp_path, *asked)
    assert (code, lines[0]) == (0, "verified")
    assert f"  proven: spans 1 to {SPANS}, all of them, in order" in lines
    (tmp_path / "spans.jsonl").write_bytes(joined(trail.lines[:-1]))
    assert run(tmp_path, *asked)[0] == 8
    assert run(tmp_path, "--key", KEY.vkey, asked[-1])[1][0] == "not_anchored"
    assert run(tmp_path, "--key", "nothing", asked[-1])[0] == 2
    folder = tmp_path / "notes"
    folder.mkdir()
    (tmp_path / "c.note").rename(folder / "c.note")
    (tmp_path / "spans.jsonl").write_bytes(trail.data)
    assert run(tmp_path, "--key", KEY.vkey, "--checkpoint", str(folder), asked[-1])[0] == 0


@pytest.mark.spec("AUD-09")
def test_it_imports_nothing_of_the_house_and_says_that_it_is_slow() -> None:
    text = verifier_text()
    imported = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imported <= set(sys.stdlib_module_names) | {"__future__"}
    assert imported.isdisjoint({"subprocess", "socket", "os", "urllib", "http", "importlib"})
    assert "slow" in text.split('"""')[1]
    assert "independent" in text.split('"""')[1]


def _bits(data: bytes) -> list[bytes]:
    return [
        bytes([*data[:at], data[at] ^ bit, *data[at + 1 :]]) for at in range(len(data)) for bit in (1, 128)
    ]


@pytest.mark.spec("AUD-09")
def test_its_ed25519_is_that_of_rfc_8032(verifier: ModuleType) -> None:
    for _secret, public, message, signature in VECTORS:
        key, said, made = (bytes.fromhex(text) for text in (public, message, signature))
        assert verifier.is_signed(key, made, said)
        assert not verifier.is_signed(key, made, said + b"x")
        s = int.from_bytes(made[32:], "little")
        again = made[:32] + (s + L).to_bytes(32, "little")
        assert not verifier.is_signed(key, again, said)
        assert not verifier.is_signed(key, made[:63], said)
        assert not verifier.is_signed(key[:31], made, said)


@pytest.mark.spec("AUD-09")
def test_its_ed25519_agrees_with_another_on_good_and_bad_signatures(verifier: ModuleType) -> None:
    draw = random.Random(SEED)  # noqa: S311 - repeatable keys of a test
    accepted = 0
    for turn in range(24):
        key = Ed25519PrivateKey.from_private_bytes(draw.randbytes(32))
        public, message = key.public_key().public_bytes_raw(), draw.randbytes(turn * 7)
        good = key.sign(message)
        spoilt = draw.sample(_bits(good), 8)
        rows = [(public, good, message), (public, good, message + b"\0"), (draw.randbytes(32), good, message)]
        rows += [(public, each, message) for each in spoilt]
        rows += [(each, good, message) for each in draw.sample(_bits(public), 4)]
        for asked in rows:
            said = verifier.is_signed(*asked)
            assert said is is_ed25519_signature(*asked), asked
            accepted += said
    assert accepted == 24


@pytest.mark.spec("AUD-09")
def test_points_that_are_none_or_of_small_order_vouch_for_nothing(verifier: ModuleType) -> None:
    prime = 2**255 - 19
    for y in (0, 1, 2, prime - 1, prime, prime + 1, 2**255 - 1):
        for sign in (0, 1):
            public = (y | sign << 255).to_bytes(32, "little")
            for signature in (bytes(64), b"\x01" + bytes(63), public + bytes(32)):
                assert not verifier.is_signed(public, signature, b"anything")
                assert not is_ed25519_signature(public, signature, b"anything")


def verdict_by(verifier: ModuleType, folder: Path, made: Signed) -> str:
    """Return what the one file says of a trail and a checkpoint, in this process."""
    path = folder / "spans.jsonl"
    path.write_bytes(made.data)
    try:
        verdict, _told = verifier.verify_export([path], [(KEY.name, KEY.public)], [("c.note", made.note)])
    except verifier.Unusable:
        return "malformed"
    return str(verdict)


@pytest.mark.spec("AUD-09", "AUD-04")
def test_it_agrees_with_audit_verify_on_good_files_and_on_random_edits(
    verifier: ModuleType, trail: Signed, tmp_path: Path
) -> None:
    assert verdict_by(verifier, tmp_path, trail) == "verified"
    draw = random.Random(SEED)  # noqa: S311 - repeatable edits
    for turn in range(EDITS):
        name, made = edited(trail, turn, draw)
        ours = verdict_of(made.data, [made.note], KEY)
        assert verdict_by(verifier, tmp_path, made) == ours, (turn, name)
        assert ours != "verified", (turn, name)


def cases() -> Sequence[tuple[str, Signed]]:
    """Return trails that hold, with what they come to: restored ones, torn ones, shorter and longer ones."""
    source = told_spans(60)
    before = list(rows_of(source))
    old = KEY.over(before, 55)
    restored(source, 40, before[-1])
    for _ in range(10):
        source.add()
    after = list(rows_of(source))
    whole = (header(), *map(line_of, before), *map(line_of, after[40:]))
    export = (header(), *map(line_of, after))
    read = document(whole[50])
    read["span"]["attributes"]["permit.forged"] = "by_whom"
    forged = (*whole[:50], spelled(read), *whole[51:])
    read = document(whole[len(before) + 1])
    read["span"]["attributes"]["permit.sinks.left"].append(None)
    nameless = (*whole[: len(before) + 1], spelled(read))
    twice = [
        ("verified", Signed(lines=(header(), *map(line_of, file)), note=KEY.over(trail, size)))
        for base in (30, 45, 58)
        for file, trail in [restored_twice(base)]
        for size in (base + 1, base + 11)
    ]
    return [
        *twice,
        ("tampered", Signed(lines=nameless, note=KEY.over(before, 30))),
        ("tampered", Signed(lines=forged, note=KEY.over(after, 45))),
        ("not_anchored", Signed(lines=whole, note=old)),
        ("verified", Signed(lines=whole, note=KEY.over(after, 45))),
        ("verified", Signed(lines=export, note=KEY.over(after, 45))),
        ("not_anchored", Signed(lines=whole, note=KEY.over(after, 30))),
        ("tampered", Signed(lines=export, note=old)),
        ("verified", Signed(lines=(header(),), note=KEY.note(0, EMPTY_ROOT))),
        ("not_anchored", Signed(lines=export, note=KEY.note(0, EMPTY_ROOT))),
        ("tampered", Signed(lines=(header(),), note=KEY.note(1, bytes(32)))),
    ]


@pytest.mark.spec("AUD-09", "LED-08")
def test_it_agrees_on_restores_and_on_the_smallest_trails(verifier: ModuleType, tmp_path: Path) -> None:
    for wanted, made in cases():
        assert verdict_of(made.data, [made.note], KEY) == wanted
        assert verdict_by(verifier, tmp_path, made) == wanted


def proof_of(size: int = 40) -> PermitProof:
    rows = list(rows_of(told_spans(size)))[:size]
    leaves = [row.leaf for row in rows]
    story = [row for row in rows if row.story == rows[8].story]
    return PermitProof(
        ledger_id=LEDGER,
        effect=rows[8].story,
        note=KEY.over(rows),
        lines=tuple(map(line_of, story)),
        paths=tuple(tuple(reference_path(row.position.sequence - 1, leaves)) for row in story),
    )


@pytest.mark.spec("AUD-04", "AUD-09")
def test_the_proof_of_one_effect_holds_in_both_and_no_byte_of_it_can_be_changed(
    verifier: ModuleType, tmp_path: Path
) -> None:
    path, given, good = tmp_path / "proof", Given(keys=(KEY.verifier,)), proof_bytes(proof_of())

    def ours(data: bytes) -> str:
        path.write_bytes(data)
        try:
            return verify_permit(path, given).code
        except TrailUnreadable:
            return "malformed"

    def theirs(data: bytes) -> str:
        try:
            return str(verifier.verify_proof(data, [(KEY.name, KEY.public)])[0])
        except verifier.Unusable:
            return "malformed"

    assert (ours(good), theirs(good)) == ("verified", "verified")
    draw = random.Random(SEED)  # noqa: S311 - repeatable edits
    for at in draw.sample(range(len(good)), 120):
        data = bytearray(good)
        data[at] ^= 1 << draw.randrange(7)
        said = ours(bytes(data))
        assert said == theirs(bytes(data)), at
        assert said != "verified", at
    path.write_bytes(good)
    assert run(tmp_path, "--key", KEY.vkey, "--proof", str(path))[0] == 0


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("what", ["path", "order", "effect", "ledger", "foreign", "left_over", "no_spans"])
def test_a_proof_of_something_else_is_no_proof(verifier: ModuleType, tmp_path: Path, what: str) -> None:
    good = proof_of()
    first, second, *rest = good.paths
    made = {
        "path": replace(good, paths=(second, first, *rest)),
        "order": replace(
            good, paths=(second, first, *rest), lines=(good.lines[1], good.lines[0], *good.lines[2:])
        ),
        "effect": replace(good, effect="eff_" + "0" * 32),
        "ledger": replace(good, ledger_id="led_other"),
        "foreign": replace(good, note=CheckpointKey(name="permit-issuer/led_other").note(40, bytes(32))),
        "left_over": replace(good, paths=((*first, bytes(32)), second, *rest)),
        "no_spans": replace(good, paths=(), lines=()),
    }[what]
    path = tmp_path / "proof"
    path.write_bytes(proof_bytes(made))
    key = CheckpointKey(name="permit-issuer/led_other") if what == "foreign" else KEY
    wanted = "malformed" if what == "no_spans" else "tampered"
    try:
        ours = verify_permit(path, Given(keys=(key.verifier,))).code
    except TrailUnreadable:
        ours = "malformed"
    try:
        theirs = verifier.verify_proof(path.read_bytes(), [(key.name, key.public)])[0]
    except verifier.Unusable:
        theirs = "malformed"
    assert (ours, theirs) == (wanted, wanted)
