"""Random JSON documents, written down in many ways and changed in small ones, from a seed; and what each means.

A meaning is a value of the standard library's own kinds, made without the product's encoding: two documents mean the
same exactly if their meanings are equal. Everything is drawn from one generator, so a seed tells the whole run.
"""

import json
import random
from collections.abc import Hashable, Iterator
from typing import Any, Final

from ledger.canonical import WHOLE_MAX

Document = Any
WORDS: Final = (
    *(
        "",
        "a",
        "b",
        "aa",
        "A",
        "amount",
        "10",
        "1",
        "01",
        "true",
        "null",
        "[]",
        "{}",
        ",",
        ":",
        '"',
        "\\",
        "/",
    ),
    *(
        "\u00e9",
        "e\u0301",
        "\ufb33",
        "\U0001f600",
        "\u2028",
        "\x7f",
        "\t",
        "\n",
        "a b",
        " a",
        "a ",
        "\u200b",
        "\ud7ff",
    ),
)
"""Texts that are mistaken for one another, or for what stands around them."""

NUMBERS: Final = (0, 1, -1, 9, 10, 100, WHOLE_MAX, -WHOLE_MAX, WHOLE_MAX - 1, 2**31, -(2**31))
SPACES: Final = ("", "", " ", "\n", "\t", "\r\n", "  ")
DEPTH_MAX: Final = 4
MEMBERS_MAX: Final = 4


def drawn(chance: random.Random, depth: int = 0) -> Document:
    """Return one document."""
    kind = chance.randrange(4 if depth >= DEPTH_MAX else 7)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind == 1:
        return chance.choice(NUMBERS) if chance.random() < 0.5 else chance.randint(-WHOLE_MAX, WHOLE_MAX)
    if kind in {2, 3}:
        return text(chance)
    if kind == 4:
        return [drawn(chance, depth + 1) for _ in range(chance.randrange(MEMBERS_MAX + 1))]
    return {text(chance): drawn(chance, depth + 1) for _ in range(chance.randrange(MEMBERS_MAX + 1))}


def text(chance: random.Random) -> str:
    """Return one text."""
    return "".join(chance.choice(WORDS) for _ in range(chance.choice((1, 1, 2, 3))))


def meaning(document: Document) -> Hashable:
    """Return what a document means: tagged, and without order where JSON has none."""
    if isinstance(document, dict):
        return ("object", frozenset((name, meaning(member)) for name, member in document.items()))
    if isinstance(document, list):
        return ("array", tuple(meaning(member) for member in document))
    # A bool equals its number in Python, and is not the same in JSON.
    return (type(document).__name__, document)


def written(document: Document, chance: random.Random) -> bytes:
    """Return one of the many texts of a document: another order, other white space, other escapes."""
    return f"{chance.choice(SPACES)}{_written(document, chance)}{chance.choice(SPACES)}".encode()


def _written(document: Document, chance: random.Random) -> str:
    gap = chance.choice(SPACES)
    if isinstance(document, dict):
        names = list(document)
        chance.shuffle(names)
        members = [f"{_text(name, chance)}{gap}:{gap}{_written(document[name], chance)}" for name in names]
        return "{" + gap + f"{gap},{gap}".join(members) + gap + "}"
    if isinstance(document, list):
        return "[" + gap + f"{gap},{gap}".join(_written(member, chance) for member in document) + gap + "]"
    return _text(document, chance) if isinstance(document, str) else json.dumps(document)


def _text(said: str, chance: random.Random) -> str:
    return '"' + "".join(_letter(letter, chance) for letter in said) + '"'


def _letter(letter: str, chance: random.Random) -> str:
    plain = json.dumps(letter, ensure_ascii=False)[1:-1]
    if chance.random() < 0.6:
        return plain
    if letter == "/" and chance.random() < 0.5:
        return "\\/"
    units = letter.encode("utf-16-be")
    digits = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    return "".join(f"\\u{chance.choice((unit, unit.upper()))}" for unit in digits)


def neighbours(document: Document) -> Iterator[Document]:
    """Yield documents that are nearly this one, and other ones."""
    yield [document]
    yield {"": document}
    yield json.dumps(document)
    if isinstance(document, bool) or document is None:
        yield int(bool(document))
    elif isinstance(document, int):
        yield str(document)
        yield document - 1 if document > 0 else document + 1
    elif isinstance(document, str):
        yield document + " "
        yield document.upper()
    elif isinstance(document, list):
        yield [*document, None]
        yield document[::-1]
        yield {str(at): member for at, member in enumerate(document)}
    else:
        yield {**document, "more": None}
        yield {name + "\u200b": member for name, member in document.items()}
        yield [[name, member] for name, member in document.items()]
