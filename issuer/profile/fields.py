"""The kinds of value that a profile is made of: names, units, durations, templates, logins, addresses.

Decides what one value may look like on its own; what two values mean together is decided by the rules.
Every kind checks strictly (no text is read as a number, no true as 1) and carries the words that the
reference page prints for it, so page and check cannot drift apart. A refusal here is a
`PydanticCustomError` whose type is a `FindingCode`. pydantic is used here, in the models and nowhere else
in this package but the reader. `issuer/profile/models.py` comes next.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, Field, PlainValidator
from pydantic_core import PydanticCustomError

from issuer.profile.findings import FindingCode
from issuer.profile.limits import (
    DURATION_MS_MAX,
    DURATION_MS_MIN,
    EFFECTS_RANGE,
    ENTRIES_MAX,
    FIELD_NAME_CHARACTERS_MAX,
    FORMAT,
    NAME_CHARACTERS_MAX,
    RECORD_BYTES_RANGE,
    RETENTION_MS_MAX,
    SEGMENT_BYTES_RANGE,
    SPAN_BYTES_RANGE,
    STRING_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    UID_MAX,
    UNENDED_RANGE,
    WHOLE_MAX,
)
from issuer.profile.template import Placeholder, Template, TemplateText
from ledger.model import DurationMs

__all__ = [
    "PERMITS",
    "Amount",
    "ColumnName",
    "ContentTemplate",
    "Cost",
    "Count",
    "Digest",
    "Distinct",
    "Duration",
    "EffectsMax",
    "EnvironmentName",
    "FieldName",
    "FieldRef",
    "FormatNumber",
    "FrozenMap",
    "HeaderName",
    "IntRange",
    "JsonPointer",
    "Login",
    "Name",
    "OnlyTrue",
    "PositiveVersion",
    "RecordBytes",
    "RelativePath",
    "ResourceType",
    "Retention",
    "Says",
    "SegmentBytes",
    "SpanBytes",
    "Status",
    "StringBytes",
    "Text",
    "TextTemplate",
    "Unended",
    "UnitName",
    "Url",
    "UrlTemplate",
    "described",
    "is_private_url",
    "refused",
]

_V = TypeVar("_V")
PERMITS: Final = "permits"
"""The count of permits inside a bound; therefore no unit may have this name."""

_NAME: Final = re.compile(rf"[a-z][a-z0-9_-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_FIELD_NAME: Final = re.compile(rf"[a-z][a-z0-9_]{{0,{FIELD_NAME_CHARACTERS_MAX - 1}}}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_UNIT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")
_COLUMN: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{FIELD_NAME_CHARACTERS_MAX - 1}}}")
_RESOURCE_TYPE: Final = re.compile(rf"[A-Z][A-Za-z0-9_]{{0,{NAME_CHARACTERS_MAX - 1}}}")
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})(s|m|h|d)")
_SIZE: Final = re.compile(r"([1-9][0-9]{0,6}) (MiB|GiB)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_UID_LOGIN: Final = re.compile(r"uid:(0|[1-9][0-9]{0,9})")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VARIABLE: Final = re.compile(r"(?!ISSUER_|PERMIT_)[A-Za-z_][A-Za-z0-9_]{0,63}")
_POINTER: Final = re.compile(r"(/([^~/]|~[01])*)+")
_AUTHORITY: Final = re.compile(r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?=[/?]|$)")
_URL_CHARACTERS: Final = re.compile(r"[!-~]*")

_OWN_TYPES: Final = frozenset({
    *("Action", "Actor", "Ask", "Class", "Clock", "Earlier", "Group", "Operation", "Person", "Request"),
    *("Task", "Units", "Bool", "Boolean", "Entity", "Extension", "Long", "Set", "String"),
})  # fmt: skip
"""Type names that the generated Cedar schema, or Cedar itself, already gives a meaning."""

_OWN_HEADERS: Final = frozenset({
    *("authorization", "connection", "content-length", "content-type", "cookie", "host", "if-match"),
    *("if-none-match", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
})  # fmt: skip
"""Headers with a meaning of their own (RFC 9110, RFC 9112): an idempotency key must not replace them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Says:
    """The words of the reference page for a kind of value."""

    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRef:
    """A cost that is the value of one whole-number payload field, written `"{field}"`."""

    field: str

    def __str__(self) -> str:
        """Return the reference as it is written."""
        return f"{{{self.field}}}"


def refused(code: FindingCode, message: str) -> PydanticCustomError:
    """Return the error that carries a finding's code and sentence through pydantic."""
    # The sentence travels as context, so that braces in it are not taken for a format.
    return PydanticCustomError(code.value, "{sentence}", {"sentence": message})


def described(value: object) -> str:
    """Return in words what kind of TOML value this is, for "must be X, not Y"."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return "a whole number"
        case float():
            return "a number with a fraction"
        case str():
            return "a string"
        case tuple() | list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return "a date or time"


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise refused(FindingCode.WRONG_TYPE, f"This must be {what}, not {described(value)}.")
    return value


def _whole(value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(FindingCode.WRONG_TYPE, f"This must be a whole number, not {described(value)}.")
    if not low <= value <= high:
        raise refused(FindingCode.OUT_OF_RANGE, f"This must be between {low} and {high}.")
    return value


def _check_name(value: str) -> str:
    if _NAME.fullmatch(value) is None:
        message = "A name is 1 to 64 lower-case letters, digits, _ or -, and begins with a letter."
        raise refused(FindingCode.BAD_NAME, message)
    return value


def _check_field_name(value: str) -> str:
    if _FIELD_NAME.fullmatch(value) is None:
        message = (
            f"A field name is 1 to {FIELD_NAME_CHARACTERS_MAX} lower-case letters, digits or _, "
            "and begins with a letter."
        )
        raise refused(FindingCode.BAD_NAME, message)
    return value


def _check_unit(value: str) -> str:
    if len(value) > NAME_CHARACTERS_MAX or _UNIT.fullmatch(value) is None:
        message = "A unit is words of letters, digits and _ joined by dots, 64 characters at most."
        raise refused(FindingCode.BAD_NAME, message)
    if value == PERMITS:
        raise refused(FindingCode.BAD_NAME, "`permits` counts permits and cannot be a unit of cost.")
    return value


def _check_column(value: str) -> str:
    if _COLUMN.fullmatch(value) is None:
        message = f"A column in use is 1 to {FIELD_NAME_CHARACTERS_MAX} letters, digits or _."
        raise refused(FindingCode.BAD_NAME, message)
    return value


def _check_resource_type(value: str) -> str:
    if _RESOURCE_TYPE.fullmatch(value) is None:
        raise refused(
            FindingCode.BAD_NAME,
            "A resource type is a capital letter, then letters, digits or _ (64 at most).",
        )
    if value in _OWN_TYPES:
        raise refused(
            FindingCode.BAD_NAME, f"The policy schema uses the type {value} itself; choose another."
        )
    return value


def _check_text(value: str) -> str:
    if not 1 <= len(value) <= TEXT_CHARACTERS_MAX:
        raise refused(FindingCode.OUT_OF_RANGE, f"This must have 1 to {TEXT_CHARACTERS_MAX} characters.")
    return value


def _check_login(value: str) -> str:
    match = _UID_LOGIN.fullmatch(value)
    if value != "token" and (match is None or int(match[1]) > UID_MAX):
        raise refused(FindingCode.BAD_VALUE, 'A login is "token" or "uid:N" with the number of an account.')
    return value


def _check_digest(value: str) -> str:
    if _DIGEST.fullmatch(value) is None:
        raise refused(FindingCode.BAD_VALUE, "A digest is 64 lower-case hexadecimal digits.")
    return value


def _check_variable(value: str) -> str:
    if _VARIABLE.fullmatch(value) is None:
        message = (
            "A variable is 1 to 64 letters, digits or _, and none of the issuer's own (ISSUER_, PERMIT_)."
        )
        raise refused(FindingCode.BAD_NAME, message)
    return value


def _check_header(value: str) -> str:
    if _HEADER.fullmatch(value) is None:
        raise refused(FindingCode.BAD_NAME, "This is not the name of an HTTP header (RFC 9110, section 5.1).")
    if value.lower() in _OWN_HEADERS:
        raise refused(
            FindingCode.BAD_NAME, f"The header {value} has a meaning of its own; it cannot carry the key."
        )
    return value


def _check_pointer(value: str) -> str:
    if _POINTER.fullmatch(_check_text(value)) is None:
        raise refused(FindingCode.BAD_VALUE, 'This must be a JSON pointer such as "/items/0/id" (RFC 6901).')
    return value


def _read_duration(value: object, high_ms: int) -> DurationMs:
    text = _text(value, 'a duration such as "10m"')
    match = _DURATION.fullmatch(text)
    if match is None:
        message = 'A duration is a whole number and one of s, m, h, d, such as "30s", "10m" or "24h".'
        raise refused(FindingCode.BAD_VALUE, message)
    duration_ms = int(match[1]) * _SECONDS[match[2]] * 1_000
    if not DURATION_MS_MIN <= duration_ms <= high_ms:
        raise refused(FindingCode.OUT_OF_RANGE, f"This must be between 1s and {high_ms // 86_400_000}d.")
    return DurationMs(duration_ms)


def _read_size(value: object) -> int:
    match = _SIZE.fullmatch(_text(value, 'a size such as "64 MiB"'))
    if match is None:
        raise refused(FindingCode.BAD_VALUE, 'A size is a whole number and MiB or GiB, such as "64 MiB".')
    return _whole(int(match[1]) << (20 if match[2] == "MiB" else 30), *SEGMENT_BYTES_RANGE)


def _read_template(value: object) -> TemplateText:
    return _parsed(_check_text(_text(value, "a template string")))


def _read_content(value: object) -> TemplateText:
    # What is sent or written may be empty; an address, a path or an identity may not.
    return _parsed(_text(value, "a template string"))


def _parsed(text: str) -> TemplateText:
    try:
        return TemplateText(text=text, parsed=Template.parse(text))
    except ValueError as fault:
        raise refused(FindingCode.BAD_TEMPLATE, str(fault)) from None


def _read_relative_path(value: object) -> TemplateText:
    template = _read_template(value)
    # A placeholder stands for a name here, so that what is left between slashes shows every way out.
    shape = "".join(part if isinstance(part, str) else "x" for part in template.parsed.parts)
    if any(piece in {"", ".", ".."} for piece in shape.split("/")) or "\\" in shape:
        message = "A path is relative to its root, with no empty part, no `.` and no `..` in it."
        raise refused(FindingCode.BAD_VALUE, message)
    return template


def _read_url_template(value: object) -> TemplateText:
    template = _read_template(value)
    try:
        parsed = Template.parse_url(template.text)
    except ValueError as fault:
        raise refused(FindingCode.BAD_DESTINATION, str(fault)) from None
    match = _AUTHORITY.match(template.text)
    if match is None:
        raise refused(FindingCode.BAD_DESTINATION, "A URL is https://HOST[:PORT]/ with a fixed host.")
    _check_authority(match, plain_allowed=False)
    return TemplateText(text=template.text, parsed=parsed)


def _check_url(value: str) -> str:
    match = _AUTHORITY.match(_check_text(value))
    if match is None or "#" in value or _URL_CHARACTERS.fullmatch(value) is None:
        message = "This must be http(s)://HOST[:PORT]/..., in ASCII, without user or fragment."
        raise refused(FindingCode.BAD_DESTINATION, message)
    _check_authority(match, plain_allowed=True)
    return value


def _check_authority(match: re.Match[str], *, plain_allowed: bool) -> None:
    scheme, host, port = match.groups()
    if port is not None and not 1 <= int(port) <= 65_535:  # noqa: PLR2004  # the range of a TCP port
        raise refused(FindingCode.BAD_DESTINATION, "The port must be between 1 and 65535.")
    if scheme == "http" and not plain_allowed and not _is_loopback(host):
        # Whoever is on the way could answer for the service, and read the bearer.
        raise refused(FindingCode.BAD_DESTINATION, "Plain http is accepted for this machine only; use https.")


def is_private_url(url: str) -> bool:
    """Say whether nobody on the way to a URL that was read can read along: https, or this machine."""
    match = _AUTHORITY.match(url)
    return match is not None and (match[1] == "https" or _is_loopback(match[2]))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _read_int_range(value: object) -> tuple[int, int]:
    shape = "a list of two whole numbers, [low, high]"
    if not isinstance(value, tuple) or len(value) != 2:  # noqa: PLR2004  # low and high
        found = f"a list of {len(value)}" if isinstance(value, tuple) else described(value)
        raise refused(FindingCode.WRONG_TYPE, f"This must be {shape}, not {found}.")
    low, high = (_whole(bound, -WHOLE_MAX, WHOLE_MAX) for bound in value)
    if low > high:
        raise refused(FindingCode.OUT_OF_RANGE, f"The lower end {low} is above the upper end {high}.")
    return low, high


def _read_cost(value: object) -> int | FieldRef:
    if not isinstance(value, str):
        return _whole(value, 0, WHOLE_MAX)
    match _parsed(value).parsed.parts:
        case (Placeholder(name=name, column=None),):
            return FieldRef(field=name)
        case _:
            # EFF-04: text is never an amount, and a computed one has no bound that can be read here.
            message = 'A cost is a whole number, or "{field}" with one whole-number field of the payload.'
            raise refused(FindingCode.WRONG_TYPE, message)


def _read_format(value: object) -> int:
    number = _whole(value, 0, WHOLE_MAX)
    if number != FORMAT:
        raise refused(FindingCode.BAD_VALUE, f"This release reads format {FORMAT} only.")
    return number


def _read_true(value: object) -> bool:
    if value is not True:
        raise refused(FindingCode.WRONG_TYPE, f"This must be true, not {described(value)}.")
    return True


def _freeze(value: Mapping[str, _V]) -> Mapping[str, _V]:
    if len(value) > ENTRIES_MAX:
        raise refused(FindingCode.TOO_LARGE, f"A table has at most {ENTRIES_MAX} entries.")
    return MappingProxyType(dict(value))


def _distinct(value: tuple[_V, ...]) -> tuple[_V, ...]:
    if len(value) > ENTRIES_MAX:
        raise refused(FindingCode.TOO_LARGE, f"A list has at most {ENTRIES_MAX} items.")
    if len(set(value)) != len(value):
        twice = next(item for index, item in enumerate(value) if item in value[:index])
        raise refused(FindingCode.DUPLICATE_VALUE, f"{twice!s} stands in this list twice.")
    return value


_K = TypeVar("_K", bound=str)
FrozenMap = Annotated[Mapping[_K, _V], AfterValidator(_freeze)]
"""A table of entries that cannot be changed afterwards."""
Distinct = Annotated[tuple[_V, ...], AfterValidator(_distinct)]
"""A list without repeats."""

Name = Annotated[str, AfterValidator(_check_name), Says(words="name")]
FieldName = Annotated[str, AfterValidator(_check_field_name), Says(words="field name")]
UnitName = Annotated[str, AfterValidator(_check_unit), Says(words="unit")]
ColumnName = Annotated[
    str, AfterValidator(_check_column), Says(words="column name: `[A-Za-z][A-Za-z0-9_]{0,39}`")
]
ResourceType = Annotated[
    str, AfterValidator(_check_resource_type), Says(words="Cedar type name: `[A-Z][A-Za-z0-9_]*`")
]
Text = Annotated[
    str, AfterValidator(_check_text), Says(words=f"text of 1 to {TEXT_CHARACTERS_MAX} characters")
]
Login = Annotated[str, AfterValidator(_check_login), Says(words='`"uid:N"` or `"token"`')]
Digest = Annotated[str, AfterValidator(_check_digest), Says(words="SHA-256 in 64 hexadecimal digits")]
EnvironmentName = Annotated[
    str, AfterValidator(_check_variable), Says(words="name of an environment variable")
]
HeaderName = Annotated[str, AfterValidator(_check_header), Says(words="HTTP header name")]
JsonPointer = Annotated[str, AfterValidator(_check_pointer), Says(words="JSON pointer (RFC 6901)")]
Url = Annotated[str, AfterValidator(_check_url), Says(words="http or https URL with a fixed host")]

Amount = Annotated[
    int, PlainValidator(lambda value: _whole(value, 0, WHOLE_MAX)), Says(words="whole number, 0 to 2^53-1")
]
Count = Annotated[
    int, PlainValidator(lambda value: _whole(value, 1, WHOLE_MAX)), Says(words="whole number, 1 to 2^53-1")
]
Status = Annotated[
    int, PlainValidator(lambda value: _whole(value, 200, 599)), Says(words="HTTP status code, 200 to 599")
]
StringBytes = Annotated[
    int,
    PlainValidator(lambda value: _whole(value, 1, STRING_BYTES_MAX)),
    Says(words=f"whole number, 1 to {STRING_BYTES_MAX}"),
]
IntRange = Annotated[
    tuple[int, int], PlainValidator(_read_int_range), Says(words="`[low, high]`, both within ±(2^53-1)")
]
Cost = Annotated[
    int | FieldRef, PlainValidator(_read_cost), Says(words='whole number, 0 to 2^53-1, or `"{field}"`')
]
Duration = Annotated[
    DurationMs,
    PlainValidator(lambda value: _read_duration(value, DURATION_MS_MAX)),
    Says(words='duration such as `"30s"`, `"10m"`, `"24h"`; 1s to 7d'),
]
Retention = Annotated[
    DurationMs,
    PlainValidator(lambda value: _read_duration(value, RETENTION_MS_MAX)),
    Says(words='duration such as `"24h"`; 1s to 366d'),
]
FormatNumber = Annotated[int, PlainValidator(_read_format), Says(words=f"`{FORMAT}`")]
OnlyTrue = Annotated[bool, PlainValidator(_read_true), Says(words="`true`")]
TextTemplate = Annotated[TemplateText, PlainValidator(_read_template), Says(words="template")]
ContentTemplate = Annotated[TemplateText, PlainValidator(_read_content), Says(words="template")]
UrlTemplate = Annotated[
    TemplateText, PlainValidator(_read_url_template), Says(words="template of an https URL with a fixed host")
]
RelativePath = Annotated[
    TemplateText, PlainValidator(_read_relative_path), Says(words="template of a path below the root")
]
EffectsMax = Annotated[
    int,
    PlainValidator(lambda value: _whole(value, *EFFECTS_RANGE)),
    Says(words="whole number, {} to {}".format(*EFFECTS_RANGE)),
]
RecordBytes = Annotated[
    int,
    PlainValidator(lambda value: _whole(value, *RECORD_BYTES_RANGE)),
    Says(words="whole number, {} to {}".format(*RECORD_BYTES_RANGE)),
]
SpanBytes = Annotated[
    int,
    PlainValidator(lambda value: _whole(value, *SPAN_BYTES_RANGE)),
    Says(words="whole number, {} to {}".format(*SPAN_BYTES_RANGE)),
]
SegmentBytes = Annotated[
    int, PlainValidator(_read_size), Says(words='size such as `"64 MiB"`; 1 MiB to 64 GiB')
]
Unended = Annotated[
    int,
    PlainValidator(lambda value: _whole(value, *UNENDED_RANGE)),
    Says(words="whole number, {} to {}".format(*UNENDED_RANGE)),
]
PositiveVersion = Annotated[int, Field(ge=1, le=WHOLE_MAX), Says(words="whole number, 1 to 2^53-1")]
