"""What counts as repeating a value that was told in confidence (SEC-01)."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.operations.repeating import repeats

VALUE = "Ana Müller/7+é?"
DATA = VALUE.encode()


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"refunds/{VALUE}/1",
        VALUE.upper(),
        VALUE.lower(),
        quote(VALUE),
        quote(VALUE, safe=""),
        quote(VALUE, safe="").lower(),
        quote(quote(VALUE)),
        quote(VALUE).replace("%20", "+"),
        json.dumps(VALUE),
        DATA.hex(),
        DATA.hex().upper(),
        base64.b64encode(DATA).decode(),
        "id." + base64.urlsafe_b64encode(b"x" + DATA + b"yz").decode(),
        base64.b64encode(b"xy" + DATA + b"z").decode(),
    ],
)
def test_a_value_is_found_in_every_form(text: str) -> None:
    assert repeats(text, VALUE)


@pytest.mark.spec("SEC-01", "EFF-09")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("r-1", "777"), ("ref_9f8e7d", "o-1"), ("re_3MtwBwLkdIwHu7ix", "Ana Müller"), ("", "777"), ("r-1", ""),
        ("ab", "a"), ("%zz%", "777"), ("1234567", "76"),
    ],
)  # fmt: skip
def test_an_own_name_of_the_service_is_none_of_it(text: str, value: str) -> None:
    assert not repeats(text, value)


@pytest.mark.spec("SEC-01")
@pytest.mark.parametrize(("text", "value"), [("a", "a"), ("%61", "a"), ("7", "7")])
def test_a_short_value_counts_as_all_of_it(text: str, value: str) -> None:
    assert repeats(text, value)


@pytest.mark.spec("SEC-01")
@given(value=st.text(min_size=6, max_size=40), before=st.binary(max_size=4), after=st.binary(max_size=4))
def test_whatever_the_value_and_whatever_stands_around_it(value: str, before: bytes, after: bytes) -> None:
    data = value.encode("utf-8", "surrogatepass")
    assert repeats(base64.urlsafe_b64encode(before + data + after).decode().rstrip("="), value)
    assert repeats(f"x{data.hex()}", value)
    assert repeats(f"<{value}>", value)
