"""Where keys stand: the index agrees with tomllib about every key of every text, and never loses its way."""

import time
import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.profile.findings import KeyPath, dotted
from issuer.profile.limits import DEPTH_MAX
from issuer.profile.positions import Position, index_positions
from tests.unit.test_profile import FULL

TRICKY = '''\
# [not.a.table] = "x"
plain = 1 # a = 2
"quoted key" = "a # no comment, no = key"
'literal.key' = 'C:\\dir "x" ]'
"esc\\u0041ped" = "\\"]\\n\\\\"
dotted . "with space".tail = { a = [1, [2, {b = "}"}]], 'c' = """]""" }
many = """
[inside]
key = "value"
quote \\""" and two at the end"""""
raw = \'\'\'
[inside2] # 'x' ''
x = 1\'\'\'\'\'
list = [ # comment ]
  "a,b", # ]
  { x = 1, y = [ ] },
  2026-12-01T10:00:00+01:00, 1.5e3, true,
]
empty = {}
[ spaced . "table" ]
a = 0x1
[arr.ay]
b = 1
[[things]]
name = "first"
[things.below]
x = 1
[[things]]
name = "second"
[[things.inner]]
deep = 1
[[things.inner]]
deep = 2
'''


def paths_of(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, held in value.items():
            yield from paths_of(held, (*path, key))
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from paths_of(held, (*path, index))


@pytest.mark.parametrize("text", [TRICKY, FULL, "", "\n\n", "a=1", "a={b={c={}}}\n"])
def test_every_key_that_tomllib_reads_has_a_place_and_no_other(text: str) -> None:
    index = index_positions(text)
    assert set(index.places) == set(paths_of(tomllib.loads(text)))
    assert index.too_deep is None


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("plain",), "plain ="),
        (("quoted key",), '"quoted key"'),
        (("literal.key",), "'literal.key'"),
        (("escAped",), '"esc\\u0041ped"'),
        (("dotted",), "dotted ."),
        (("dotted", "with space", "tail"), "tail ="),
        (("dotted", "with space", "tail", "a", 1, 1, "b"), 'b = "}"'),
        (("dotted", "with space", "tail", "c"), "'c'"),
        (("raw",), "raw ="),
        (("list", 0), '"a,b"'),
        (("list", 1, "y"), "y = ["),
        (("list", 4), "true"),
        (("spaced", "table"), '"table" ]'),
        (("arr", "ay", "b"), "b = 1\n"),
        (("things", 0, "below", "x"), 'x = 1\n[[things]]\nname = "second'),
        (("things", 1, "name"), 'name = "second"'),
        (("things", 1, "inner", 1, "deep"), "deep = 2"),
    ],
)
def test_a_place_is_where_a_person_would_point(path: KeyPath, words: str) -> None:
    start = TRICKY.index(words)
    line = TRICKY.count("\n", 0, start) + 1
    column = start - TRICKY.rfind("\n", 0, start)
    assert index_positions(TRICKY).at(path) == Position(line=line, column=column)


def test_a_missing_key_points_at_the_table_that_lacks_it() -> None:
    index = index_positions("a = 1\n[b.c]\nd = 2\n")
    assert index.at(("b", "c", "missing", "more")) == Position(line=2, column=4)
    assert index.at(("nowhere",)) == Position(line=1, column=1)


@pytest.mark.parametrize(
    ("text", "path", "first", "again"),
    [
        ("a = 1\na = 2", ("a",), (1, 1), (2, 1)),
        ("[a]\nb = 1\n[a]", ("a",), (1, 2), (3, 2)),
        ("a = {b = 1, b = 2}", ("a", "b"), (1, 6), (1, 13)),
        ("a = {}\na.b = 1", ("a",), (1, 1), (2, 1)),
        ("a = 1\n[a]", ("a",), (1, 1), (2, 2)),
        ("[[a]]\n[a]", ("a",), (1, 3), (2, 2)),
        ("a.b = 1\na = 2", ("a",), (1, 1), (2, 1)),
        ("a.b = 1\na.'b' = 2", ("a", "b"), (1, 3), (2, 3)),
        ("[x]\n[[x]]", ("x",), (1, 2), (2, 3)),
    ],
)
def test_a_repeat_is_found_with_both_places(
    text: str, path: KeyPath, first: tuple[int, int], again: tuple[int, int]
) -> None:
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)
    repeat = index_positions(text).repeat
    assert repeat is not None
    assert repeat.path == path
    assert (repeat.first.line, repeat.first.column) == first
    assert (repeat.again.line, repeat.again.column) == again


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000,
        "a = " + '{"b" = ' * 40_000,
        "[" + ".".join("a" * 100_000) + "]",
        ".".join("a" * 100_000) + " = 1",
        "\n".join(f"[{'.'.join('a' * depth)}]" for depth in range(1, DEPTH_MAX + 2)),
    ],
)
def test_what_is_too_deep_is_seen_before_anybody_recurses(text: str) -> None:
    assert index_positions(text).too_deep is not None


@pytest.mark.parametrize(
    "text",
    [
        'a = "' + '\\"' * 120_000,
        'a = """' + '""a' * 80_000,
        "a = '''" + "''b" * 80_000,
        "#" * 250_000,
        "a = [" + "1," * 60_000 + "]",
        " " * 250_000 + "=",
        "\n" * 250_000,
        'a = "' + "\\" * 250_001,
    ],
    ids=["escapes", "quotes", "apostrophes", "comment", "list", "spaces", "lines", "backslashes"],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    start = time.process_time()
    index_positions(text)
    # A quadratic walk over 250,000 characters takes minutes; the bound only tells the two apart.
    assert time.process_time() - start < 10


@given(st.text(alphabet="ab.=[]{}\"'#\\,\n 1", max_size=60))
def test_any_text_is_walked_to_an_end_and_valid_ones_completely(text: str) -> None:
    index = index_positions(text)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert set(index.places) == set(paths_of(document))
    lines = text.split("\n")
    for place in index.places.values():
        assert place.column <= len(lines[place.line - 1])


_KEYS = st.text(max_size=6).map(lambda text: text.encode("utf-8", "ignore").decode())


def as_toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)} = {as_toml(held)}" for key, held in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(held) for held in value) + "]"
    return quoted(value) if isinstance(value, str) else str(value).lower()


def quoted(text: str) -> str:
    return (
        '"'
        + "".join(
            f"\\U{ord(letter):08x}" if letter in '"\\' or not letter.isprintable() else letter
            for letter in text
        )
        + '"'
    )


@given(
    st.dictionaries(
        _KEYS,
        st.recursive(
            st.booleans() | st.integers(-9, 9) | _KEYS,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_every_document_is_indexed_as_it_is_read(document: dict[str, object]) -> None:
    text = "\n".join(f"{quoted(key)} = {as_toml(value)}" for key, value in document.items())
    paths = set(paths_of(tomllib.loads(text)))
    if all(len(path) <= DEPTH_MAX for path in paths):
        assert set(index_positions(text).places) == paths


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("a", "b-c", 0), "a.b-c[0]"),
        (("class", "EUR.cent"), 'class."EUR.cent"'),
        (("a b", ""), '"a b".""'),
        (('q"q',), '"q\\"q"'),
        (("\x1b",), '"\\x1b"'),
        ((), ""),
    ],
)
def test_a_path_is_written_as_in_the_file(path: KeyPath, text: str) -> None:
    assert dotted(path) == text
