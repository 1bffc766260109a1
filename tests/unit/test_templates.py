"""Where an actor's words may stand in an owner's template, and what they can never change there."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import pytest

from issuer.operations.templates import Placeholder, Template, escape_url_component
from ledger.errors import Broken, Malformed

VALUES: Mapping[str, str | int | bool] = {
    "vendor": "hetzner",
    "number": "R/1 {amount}",
    "amount": 900,
    "urgent": True,
}
ENTRIES = {"vendor": {"iban": "DE02 1203"}}


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("", ""),
        ("plain", "plain"),
        ("{vendor}/{number}", "hetzner/R/1 {amount}"),
        ("{vendor.iban}", "DE02 1203"),
        ("x{amount}y{urgent}", "x900ytrue"),
        ("{effect_id}", "eff_1"),
        ("{{{amount}}}", "{900}"),
        ("{{amount}}", "{amount}"),
        ("}}{{", "}{"),
        ("{{}}", "{}"),
        ("{{{{amount}}}}", "{{amount}}"),
        ("{amount}}}", "900}"),
    ],
)
def test_a_template_says_what_the_owner_wrote(text: str, rendered: str) -> None:
    assert Template.parse(text).render(VALUES, ENTRIES, "eff_1") == rendered


@pytest.mark.spec("OPR-01")
@pytest.mark.parametrize(
    "text",
    [
        "{",
        "}",
        "{}",
        "{ amount}",
        "{amount",
        "amount}",
        "{{amount}",
        "{amount!r}",
        "{amount:>99}",
        "{amount[0]}",
        "{vendor.}",
        "{.iban}",
        "{vendor.iban.x}",
        "{vendor.__class__}",
        "{__class__}",
        "{0}",
        "{effect_id.x}",
        "{é}",
        "{a\n}",
        "{a{b}}",
        "a" * 4097,
    ],
)
def test_a_template_has_no_other_language(text: str) -> None:
    with pytest.raises(ValueError, match=r"brace|placeholder|columns|long"):
        Template.parse(text)


def test_placeholders_are_told_once_and_in_order() -> None:
    found = Template.parse("{b}{a.c}{b}{effect_id}{a}").placeholders
    assert [(place.name, place.column, place.is_effect_id) for place in found] == [
        ("b", None, False),
        ("a", "c", False),
        ("effect_id", None, True),
        ("a", None, False),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{amount}", 900),
        ("{urgent}", True),
        ("{vendor}", "hetzner"),
        ("{amount} ", "900 "),
        ("{amount}{amount}", "900900"),
    ],
)
def test_a_lone_placeholder_keeps_its_type_in_a_body(text: str, value: object) -> None:
    rendered = Template.parse(text).render_value(VALUES, ENTRIES, None)
    assert (type(rendered), rendered) == (type(value), value)


@pytest.mark.parametrize(
    "text", ["{missing}", "{missing.iban}", "{vendor.missing}", "{number.iban}", "{effect_id}", "{bad}"]
)
def test_a_placeholder_without_a_value_is_our_own_fault(text: str) -> None:
    values: dict[str, object] = {**VALUES, "bad": 1.5}
    with pytest.raises(Broken):
        Template.parse(text).render(values, ENTRIES, None)  # type: ignore[arg-type]  # the float is the point
    with pytest.raises(Broken):
        Template.parse(text).render_value(values, ENTRIES, None)  # type: ignore[arg-type]


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize(
    "value",
    [
        "a/b",
        "../admin",
        "a?x=1",
        "a#f",
        "a&b=c",
        "a;b",
        "@evil.example",
        "//evil.example/",
        "http://evil.example/",
        "a\\b",
        "%2e%2e%2f",
        "%",
        "a b\r\nHost: evil",
        "é\U0001f600",
        "...",
        "\t",
    ],
)
def test_a_value_in_a_url_stays_one_component(value: str) -> None:
    template = Template.parse_url("https://crm.example:8443/v1/{table}/{record}?key={table}")
    plain = urlsplit(template.render({"table": "t", "record": "r"}, {}, None, escape=escape_url_component))
    url = urlsplit(template.render({"table": value, "record": "r"}, {}, None, escape=escape_url_component))
    assert (url.scheme, url.netloc, url.fragment) == (plain.scheme, plain.netloc, plain.fragment)
    assert url.path.split("/")[3:] == ["r"]
    assert url.path.count("/") == plain.path.count("/")
    assert url.query.count("=") == 1
    assert set(url.query) <= set("=%-._~") | set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    )


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_value_that_would_remove_a_path_segment_is_refused_by_name(value: str) -> None:
    template = Template.parse_url("https://crm.example/{table}/{record}")
    with pytest.raises(Malformed) as caught:
        template.render({"table": value, "record": 7}, {}, None, escape=escape_url_component)
    assert (caught.value.code, caught.value.field) == ("not_a_url_component", "table")


def test_unreserved_characters_stand_as_they_are_and_all_others_as_octets() -> None:
    assert escape_url_component("AZaz09-._~") == "AZaz09-._~"
    assert escape_url_component("é/ ") == "%C3%A9%2F%20"
    with pytest.raises(Broken) as caught:
        escape_url_component("\ud800")
    assert caught.value.__context__ is None


@pytest.mark.spec("EFF-02")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{host}",
        "{scheme}://bank.example/",
        "https://{host}/",
        "https://bank.{tld}/",
        "https://bank.example{path}",
        "https://bank.example:{port}/",
        "https://bank.example",
        "https://bank.example?x={a}",
        "https://user@bank.example/",
        "https://bank.example\\@evil.example/",
        "https://bank.example/{a}#{b}",
        "https://bank.example/a b",
        "https://bank.example/a\r\n",
        "https://bank.example/\u00e9",
        "https:///path",
        "//bank.example/",
        "file:///etc/{a}",
        " https://bank.example/",
    ],
)
def test_no_placeholder_can_stand_in_the_origin_of_a_url(text: str) -> None:
    with pytest.raises(ValueError, match="URL template"):
        Template.parse_url(text)


@pytest.mark.parametrize(
    "text", ["http://127.0.0.1:8080/", "https://[::1]:1/{a}", "https://bank.example/v1?key={effect_id}&x=%20"]
)
def test_a_url_with_a_literal_origin_is_a_template(text: str) -> None:
    assert Template.parse_url(text) == Template.parse(text)


def test_a_placeholder_cannot_be_made_with_a_name_that_no_template_has() -> None:
    for name, column in (("", None), ("a.b", None), ("a", ""), ("a", "b}"), ("effect_id", "x")):
        with pytest.raises(ValueError, match=r"placeholder|columns"):
            Placeholder(name=name, column=column)
