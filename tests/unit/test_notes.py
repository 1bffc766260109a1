"""Signed notes and checkpoints have one form, and count for the key that a verifier has brought and for no other."""

import base64
from collections.abc import Callable

import pytest

from audit.errors import NoteRefused
from audit.notes import (
    NOTE_BYTES_MAX,
    Checkpoint,
    VerifierKey,
    checkpoint_text,
    key_hash,
    opened_checkpoint,
    read_checkpoint,
    read_note,
    read_vkey,
    signed,
    vkey,
)
from issuer.sealing import is_ed25519_signature
from tests.support.trails import ORIGIN, CheckpointKey

KEY = CheckpointKey()
WITNESS = CheckpointKey(b"w" * 32, name="witness.example/w1")
ROOT = bytes(range(32))
NOTE = KEY.note(20852163, ROOT)
TEXT = checkpoint_text(ORIGIN, 20852163, ROOT)

SONNET = (
    "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n\n"
    "— quasimodo.example/salvatore NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3Ze"
    "kRwNtIc=\n"
)
SOFA = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeM"
    "cTOAYQ8=\n"
)
"""The examples of the two specifications (C2SP signed-note, tlog-checkpoint)."""


def opened(note: bytes, key: CheckpointKey = KEY) -> Checkpoint:
    return opened_checkpoint(note, key.verifier, is_ed25519_signature)


def line(key: CheckpointKey, text: str = TEXT) -> bytes:
    """Return the signature line of a key over a text."""
    return signed(text, key.name, key.public, key.sign(text.encode())).split(b"\n\n")[-1]


@pytest.mark.spec("AUD-04")
def test_the_examples_of_the_specifications_are_read() -> None:
    sonnet, sofa = (read_note(text.encode()) for text in (SONNET, SOFA))
    assert sonnet.unverified_text.endswith("\n\ned è subito sera.\n")
    assert sonnet.signatures[0].name == "quasimodo.example/salvatore"
    assert len(sonnet.signatures[0].unverified_signature) == 64
    read = read_checkpoint(sofa.unverified_text)
    assert (read.origin, read.size, read.root[:3].hex()) == (
        "example.com/behind-the-sofa",
        20852163,
        "0ac518",
    )


@pytest.mark.spec("AUD-04")
def test_a_checkpoint_comes_back_as_it_was_signed_and_its_key_as_it_was_written() -> None:
    assert opened(NOTE) == Checkpoint(origin=ORIGIN, size=20852163, root=ROOT)
    assert read_vkey(f"  {KEY.vkey}\n") == KEY.verifier
    assert KEY.vkey.split("+")[1] == key_hash(ORIGIN, KEY.public).hex()
    assert opened(KEY.note(0, ROOT)).size == 0


@pytest.mark.spec("AUD-04")
def test_lines_of_other_keys_are_passed_over_and_every_line_of_ours_must_verify() -> None:
    head = TEXT.encode() + b"\n"
    assert opened(head + line(WITNESS) + line(KEY) + line(WITNESS)).size == 20852163
    same_name = CheckpointKey(b"x" * 32)
    assert opened(head + line(same_name) + line(KEY)).size == 20852163
    forged = line(KEY, checkpoint_text(ORIGIN, 1, ROOT))
    for lines in (line(WITNESS), line(same_name), forged, line(KEY) + forged, forged + line(KEY)):
        with pytest.raises(NoteRefused):
            opened(head + lines)


@pytest.mark.spec("AUD-04")
def test_the_origin_is_the_name_of_the_key_and_never_the_files_to_choose() -> None:
    foreign = KEY.note(5, ROOT, origin="permit-issuer/led_other")
    with pytest.raises(NoteRefused, match="another log"):
        opened(foreign)
    with pytest.raises(NoteRefused, match="not signed by this key"):
        opened(CheckpointKey(b"x" * 32).note(5, ROOT))


LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _note: b"",
    "no blank line": lambda note: note.replace(b"\n\n", b"\n"),
    "no signature": lambda note: note.split(b"\n\n")[0] + b"\n\n",
    "no last newline": lambda note: note[:-1],
    "one more newline": lambda note: note + b"\n",
    "carriage returns": lambda note: note.replace(b"\n", b"\r\n"),
    "a tab": lambda note: note.replace(b" ", b"\t"),
    "a hyphen for the dash": lambda note: note.replace("—".encode(), b"-"),
    "two spaces": lambda note: note.replace(b"0001+ ", b"0001+  ") + b" ",
    "no utf-8": lambda note: b"\xff" + note,
    "a byte order mark": lambda note: b"\xef\xbb\xbf" + note,
    "base64 without padding": lambda note: note.replace(b"=\n", b"\n"),
    # The last letter before the padding has two bits to spare.
    "base64 with loose bits": lambda note: note[:-3] + bytes([LETTERS[LETTERS.index(note[-3]) | 1]]) + b"=\n",
    "url base64": lambda note: note.replace(b"+", b"-").replace(b"/", b"_"),
    "a longer signature": lambda note: _resigned(note, 1),
    "a shorter signature": lambda note: _resigned(note, -1),
    "too long": lambda note: b"x" * NOTE_BYTES_MAX + note,
}


def _resigned(note: bytes, by: int) -> bytes:
    head, last = note.rsplit(b" ", 1)
    held = base64.b64decode(last)
    changed = held + b"x" if by > 0 else held[:-1]
    return head + b" " + base64.b64encode(changed) + b"\n"


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("name", BROKEN)
def test_a_note_in_another_form_is_none(name: str) -> None:
    with pytest.raises(NoteRefused):
        opened(BROKEN[name](NOTE))


@pytest.mark.spec("AUD-04")
def test_a_note_with_any_byte_changed_does_not_count() -> None:
    for at in range(len(NOTE)):
        for bit in (1, 2, 128):
            changed = bytearray(NOTE)
            changed[at] ^= bit
            with pytest.raises(NoteRefused):
                opened(bytes(changed))


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize(
    "text",
    [
        f"{ORIGIN}\n5\n",
        f"{ORIGIN}\n05\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        f"{ORIGIN}\n+5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        f"{ORIGIN}\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=\n",
        f"{ORIGIN}\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==\n",
        f"{ORIGIN}\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\nextension\n",
        f"{ORIGIN}\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        f"{ORIGIN}\n\u0665\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        f"{ORIGIN}\n12345678901234567\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
        "a b\n5\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n",
    ],
)
def test_a_checkpoint_has_one_text(text: str) -> None:
    with pytest.raises(NoteRefused):
        read_checkpoint(text)


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("+", "-"),
        lambda text: text.replace("+", "+0", 1),
        lambda text: text.upper(),
        lambda text: text[:-1],
        lambda text: text.replace("permit", "Permit"),
        lambda text: text.split("+")[0],
        lambda _text: "",
        lambda text: text + "\n" + text,
    ],
)
def test_a_verifier_key_has_one_text(change: Callable[[str], str]) -> None:
    with pytest.raises(NoteRefused):
        read_vkey(change(KEY.vkey))


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\u2003b", "a\nb", "x" * 257])
def test_a_name_that_would_blur_a_line_is_none(name: str) -> None:
    for make in (
        lambda: vkey(name, KEY.public),
        lambda: checkpoint_text(name, 1, ROOT),
        lambda: VerifierKey(name=name, public_key=KEY.public),
        lambda: signed("x\n", name, KEY.public, bytes(64)),
    ):
        with pytest.raises(NoteRefused):
            make()


@pytest.mark.spec("AUD-04")
def test_what_has_no_place_in_a_note_is_not_written() -> None:
    for text, public, signature in (
        ("no newline", KEY.public, bytes(64)),
        ("a\ttab\n", KEY.public, bytes(64)),
        (TEXT, KEY.public[:31], bytes(64)),
        (TEXT, KEY.public, bytes(63)),
    ):
        with pytest.raises(NoteRefused):
            signed(text, ORIGIN, public, signature)
    with pytest.raises(NoteRefused):
        checkpoint_text(ORIGIN, -1, ROOT)
    with pytest.raises(NoteRefused):
        checkpoint_text(ORIGIN, 1, ROOT[:31])


@pytest.mark.spec("AUD-04")
@pytest.mark.parametrize("y", [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18])
def test_a_key_of_small_order_or_not_in_its_one_form_vouches_for_nothing(y: int) -> None:
    for sign in (0, 1):
        public = (y | sign << 255).to_bytes(32, "little")
        for signature in (bytes(64), b"\x01" + bytes(63)):
            assert not is_ed25519_signature(public, signature, b"anything")
