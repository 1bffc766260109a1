r"""One value on paper: printable ASCII, quoted, whole; and beneath it what a reader could mistake in it (APP-02).

Rules:
1. Text is quoted. What is not printable ASCII is written `\u{430}`, a quote `\"` and a backslash `\\`, so that two
   different texts are never the same on paper, and none can end its line or look like another one.
2. A long text goes on in further quoted lines; nothing is cut. No escape is torn in two.
3. Beneath a text with anything but printable ASCII stands a mark that names it: the character, and whether it reorders
   text, cannot be seen, or looks like a letter of ASCII; and whether the text is not in its composed form (NFC).
Names come from Unicode 3.2, which Python ships beside the current version, so that every Python writes the same bytes;
what came later is marked without a name. Pure; nothing but the standard library.
Next: `issuer.approving.rendering`.
"""

import re
import unicodedata
from typing import Final

__all__ = ["escaped", "marks", "quoted_lines"]

LINE_CHARS: Final = 72
"""Characters of one quoted piece: with what stands before it, it fits a terminal of 80 columns."""

MARKED_MAX: Final = 32
"""Different characters that are named beneath one text; the text itself shows every one of them."""

_UNICODE: Final = unicodedata.ucd_3_2_0
_REORDERS: Final = frozenset({0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)})
_HIDDEN: Final = frozenset(
    {
        *(0x00AD, 0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0, 0x2028, 0x2029),
        *(*range(0x180B, 0x180F), *range(0x200B, 0x200E), *range(0x2060, 0x2066), *range(0x206A, 0x2070)),
        *(*range(0x20), *range(0x7F, 0xA0), *range(0xFE00, 0xFE10), *range(0xE0000, 0xE0200)),
    }
)
"""Characters without a picture of their own: controls, joiners, fillers, selectors, tags (UAX 31, UTS 39)."""


def _pairs(words: str) -> dict[str, str]:
    """Return `0410A`, the code of a character and what it looks like, as a table."""
    return {chr(int(word[:4], 16)): word[4:] for word in words.split(" ")}


_LIKE: Final = {
    **_pairs("0410A 0412B 0415E 0405S 04173 0406I 0408J 041AK 041CM 041DH 041EO 0420P 0421C 0422T 0425X"),
    **_pairs("04AEY 0430a 0435e 0455s 0456i 0458j 043Eo 0440p 0441c 0443y 0445x 0501d 051Bq 051Dw 04BBh"),
    **_pairs("0391A 0392B 0395E 0396Z 0397H 0399I 039AK 039CM 039DN 039FO 03A1P 03A4T 03A5Y 03A7X 03BDv"),
    **_pairs("03BFo 03B9i 03C1p 03C5u"),
    **_pairs("0131i 0251a 0261g 2113l 2010- 2011- 2012- 2013- 2014- 2212- 02BC' 2019' 2018' 201C\" 201D\""),
    **_pairs("A4F2I 01C0l 2044/ 2215/ 2024. 201A,"),
}
"""Letters of other scripts and signs that most fonts draw like one of ASCII (UTS 39, the common ones)."""


_ODD: Final = re.compile(r"[^ -~]")
"""What is not printable ASCII."""

_ATOM: Final = re.compile(r"\\u\{[0-9A-F]+\}|\\.|.")
"""What may not be torn in two: an escape, or a character."""

_WRITTEN: Final = re.compile(r'[^ -~]|["\\]')


def _written(match: re.Match[str]) -> str:
    char = match[0]
    return f"\\{char}" if char in {'"', "\\"} else f"\\u{{{ord(char):X}}}"


def escaped(text: str) -> str:
    """Return a text as it stands inside the quotes, on one line: printable ASCII only, and of no other text."""
    return _WRITTEN.sub(_written, text)


def quoted_lines(text: str) -> list[str]:
    """Return a text as one or more quoted pieces of at most `LINE_CHARS` characters; empty is `""`."""
    whole = escaped(text)
    if len(whole) <= LINE_CHARS:
        return [f'"{whole}"']
    lines, line = [], ""
    for piece in _ATOM.findall(whole):
        if len(line) + len(piece) > LINE_CHARS:
            lines.append(line)
            line = ""
        line += piece
    return [f'"{one}"' for one in (*lines, line)]


def marks(text: str) -> list[str]:
    """Return what stands beneath a text that is not plain ASCII: a line for each different character, and for NFC."""
    odd = sorted(set(_ODD.findall(text)))
    if not odd:
        return []
    lines = [f"not plain ASCII: {_named(char)}" for char in odd[:MARKED_MAX]]
    if len(odd) > MARKED_MAX:
        lines.append(
            f"not plain ASCII: {len(odd) - MARKED_MAX} further characters, written as \\u{{...}} above"
        )
    if _UNICODE.normalize("NFC", text) != text:
        lines.append("not in composed form (NFC): it can look the same as another text")
    return lines


def _named(char: str) -> str:
    name = _UNICODE.name(char, "")
    words = [f"U+{ord(char):04X}", *([name] if name else [])]
    if ord(char) in _REORDERS:
        words.append("(reorders text)")
    elif ord(char) in _HIDDEN:
        words.append("(cannot be seen)")
    like = _LIKE.get(char) or _folded(char)
    if like:
        words.append(f"(looks like {like})")
    return " ".join(words)


def _folded(char: str) -> str:
    """Return the plain character that a compatibility form, such as a fullwidth letter, stands for; else nothing."""
    folded = _UNICODE.normalize("NFKC", char)
    return folded if folded != char and len(folded) == 1 and "!" <= folded <= "~" else ""
