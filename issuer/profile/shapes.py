"""From parsed TOML to models, and from what pydantic says to findings with our own sentences.

Decides which entries are well formed. Each entry of a section is read on its own where the whole is not
well formed, so that the rules still see the good ones (`issuer/profile/draft.py`). For an unknown key the
keys that do exist there are the candidates of the hint. pydantic's own sentences are never shown.
`issuer/profile/reading.py` comes next.
"""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from issuer.profile.draft import Draft
from issuer.profile.fields import described
from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.models import (
    ActionClass,
    Actor,
    Audit,
    Document,
    Host,
    Notify,
    Operation,
    Person,
    RegistrySource,
    Table,
)

__all__ = ["draft_of", "keys_of", "read_document", "shape_problems", "table_in"]

_M = TypeVar("_M", bound=Table)
_KEY_MARK: Final = "[key]"
"""pydantic's last path part where a key, not its value, is wrong."""

_CODES: Final = {code.value: code for code in FindingCode}
"""Our own error types (`fields.refused`); none of them is a type of pydantic's."""

_EXPECTED: Final = {
    "string_type": "a string",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "mapping_type": "a table",
    "tuple_type": "a list",
}


def read_document(raw: dict[str, object]) -> Document | list[Problem]:
    """Return the document, or a problem for each value that is not well formed (at least one).

    `raw` holds tuples for lists: the models are strict and accept nothing else.
    """
    try:
        return Document.model_validate(raw)
    except ValidationError as fault:
        return [_problem(error) for error in fault.errors(include_url=False)]


def shape_problems(document: Document | list[Problem]) -> list[Problem]:
    """Return the problems of a document that is not well formed, or nothing."""
    return document if isinstance(document, list) else []


def draft_of(raw: Mapping[str, object]) -> Draft:
    """Return the entries of `raw` that are well formed by themselves, and the names of all entries."""
    names = {
        section: tuple(_table(raw, section))
        for section in ("person", "actor", "host", "registry", "class", "notify")
    }
    zone = raw.get("timezone")
    return Draft(
        timezone=zone if isinstance(zone, str) else None,
        audit=_read(Audit, raw.get("audit")),
        people=_entries(Person, raw, "person"),
        actors=_entries(Actor, raw, "actor"),
        hosts=_entries(Host, raw, "host"),
        registries=_entries(RegistrySource, raw, "registry"),
        classes=_entries(ActionClass, raw, "class"),
        operations=_entries(Operation, raw, "operation"),
        notices=_entries(Notify, raw, "notify"),
        names=names,
    )


def _table(raw: Mapping[str, object], section: str) -> dict[str, object]:
    value = raw.get(section, {})
    return value if isinstance(value, dict) else {}


def _entries(model: type[_M], raw: Mapping[str, object], section: str) -> dict[str, _M]:
    read = ((name, _read(model, entry)) for name, entry in _table(raw, section).items())
    return {name: entry for name, entry in read if entry is not None}


def _read(model: type[_M], entry: object) -> _M | None:
    try:
        return model.model_validate(entry)
    except ValidationError:
        # `read_document` has reported what is wrong with it.
        return None


def _problem(error: ErrorDetails) -> Problem:
    """Return our finding for one pydantic error."""
    path: KeyPath = tuple(part for part in error["loc"] if part != _KEY_MARK)
    kind, given = error["type"], error["input"]
    if kind in _CODES:
        return Problem(path=path, code=_CODES[kind], message=str(error["ctx"]["sentence"]))
    if kind == "missing":
        return _missing(path)
    if kind == "extra_forbidden":
        known = keys_of(table_in(Document, path[:-1]))
        message = f"There is no key `{path[-1]}` here."
        return Problem(
            path=path, code=FindingCode.UNKNOWN_KEY, message=message, wanted=str(path[-1]), candidates=known
        )
    if kind == "literal_error":
        return _not_listed(path, given)
    if kind in _EXPECTED:
        message = f"This must be {_EXPECTED[kind]}, not {described(given)}."
        return Problem(path=path, code=FindingCode.WRONG_TYPE, message=message)
    # Only bounds are left; the words of a new kind are pydantic's, which is better than none.
    return Problem(path=path, code=FindingCode.OUT_OF_RANGE, message=f"{error['msg']}.")


def _missing(path: KeyPath) -> Problem:
    if path[0] == "class" and path[-1] == "lifetime":
        message = 'This class does not say how long its permits live: lifetime = "10m".'
        return Problem(path=path, code=FindingCode.MISSING_BOUND, message=message)
    return Problem(path=path, code=FindingCode.MISSING_KEY, message=f"The key `{path[-1]}` is missing.")


def _not_listed(path: KeyPath, given: object) -> Problem:
    allowed = tuple(str(value) for value in _literals(_annotation_at(path)))
    shown = ", ".join(f'"{value}"' for value in allowed)
    if not isinstance(given, str):
        message = f"This must be one of {shown}, not {described(given)}."
        return Problem(path=path, code=FindingCode.WRONG_TYPE, message=message)
    message = f"{given[:80]!a} is not one of {shown}."
    return Problem(path=path, code=FindingCode.BAD_VALUE, message=message, wanted=given, candidates=allowed)


def keys_of(table: type[Table] | None) -> tuple[str, ...]:
    """Return the keys that a table may hold; nothing for a table whose keys the owner names."""
    if table is None:
        return ()
    return tuple(field.alias or name for name, field in table.model_fields.items())


def table_in(table: type[Table], path: KeyPath) -> type[Table] | None:
    """Return the model of the table at `path` below `table`, or None where it has no fixed keys."""
    annotation = _walk(table, path)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Table) else None


def _annotation_at(path: KeyPath) -> object:
    return _walk(Document, path)


def _walk(start: object, path: KeyPath) -> object:
    """Follow keys and indexes through the annotations; None where they lead nowhere."""
    here = start
    for part in path:
        if isinstance(here, type) and issubclass(here, Table):
            fields = {field.alias or name: field for name, field in here.model_fields.items()}
            here = bare(fields[part].annotation) if part in fields else None
        elif get_origin(here) is not None:
            # tuple[X, ...] holds X first, Mapping[K, V] holds V second.
            held = get_args(here)
            here = bare(held[0] if get_origin(here) is tuple else held[-1])
        else:
            return None
    return here


def bare(annotation: Any) -> Any:  # noqa: ANN401  # annotations have no common type
    """Return the annotation without `Annotated` and without `| None`."""
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in {Union, UnionType}:
            left = [part for part in get_args(annotation) if part is not type(None)]
            if len(left) != 1:
                return annotation
            annotation = left[0]
        else:
            return annotation


def _literals(annotation: object) -> Iterator[object]:
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
