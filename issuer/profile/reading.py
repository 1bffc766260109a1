"""Reads the owner's profile: the one place that makes a `Profile`, or says everything that is wrong with it.

The steps, each only where the earlier ones allow it: (1) the bytes: size and UTF-8; (2) the positions and
the TOML; (3) the shape of every table; (4) the registries and people's key
files; (5) what keys mean together; (6) the digest.
Steps 3 to 5 add their findings to one list. Nothing is written, nothing is sent, no environment is asked.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer.profile.digests import profile_digest_of
from issuer.profile.draft import Draft
from issuer.profile.findings import (
    Finding,
    FindingCode,
    KeyPath,
    Problem,
    ProfileRefused,
    Unread,
    bounded,
    dotted,
)
from issuer.profile.limits import DEPTH_MAX, PROFILE_BYTES_MAX, REGISTRY_BYTES_MAX
from issuer.profile.models import Document, RegistrySource
from issuer.profile.people_keys import key_path_problems, read_people_keys
from issuer.profile.positions import Position, PositionIndex, index_positions
from issuer.profile.profile import Profile
from issuer.profile.registry import Registry, read_registry
from issuer.profile.rules_classes import class_problems
from issuer.profile.rules_notices import notice_problems
from issuer.profile.rules_operations import operation_problems
from issuer.profile.rules_people import people_problems
from issuer.profile.rules_templates import template_problems
from issuer.profile.shapes import draft_of, read_document, shape_problems
from issuer.sealing import SshKey

__all__ = ["load_profile", "parse_profile", "registries_declared"]

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_REPEATED: Final = ("Cannot overwrite", "Cannot declare", "Cannot mutate", "Duplicate inline table key")
"""How tomllib's messages begin (3.11 to 3.13) where a key or table is given a second time."""

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Control characters but tab and line ends: invisible to whoever reviews the profile, and NUL cuts paths."""


def _keep_nothing(_name: str, _text: str) -> None:
    """Keep nothing of what was read."""


def load_profile(path: Path, *, keep: Callable[[str, str], None] = _keep_nothing) -> Profile:
    """Read and check the profile at `path`; registries and key files are looked for beside it.

    `keep` is told the name and the text of each file as it was read: the profile's own name first, then each registry
    and key file as the profile names it.

    Raises:
        ProfileRefused: with every finding; also where a file cannot be read, is no regular file, is not
            UTF-8, or is larger than 256 KiB (a registry: 4 MiB; people's keys: 64 KiB).
    """

    def read(name: str, bytes_max: int) -> str:
        text = _read_text(path.parent / name, bytes_max)
        keep(name, text)
        return text

    where = str(path)
    try:
        text = read(path.name, PROFILE_BYTES_MAX)
    except Unread as fault:
        raise _refused_at(where, Position(line=1, column=1), fault.code, fault.message) from None
    return parse_profile(text, where=where, registries=lambda file: read(file, REGISTRY_BYTES_MAX))


def parse_profile(text: str, *, where: str, registries: Callable[[str], str]) -> Profile:
    """Check the text of a profile.

    Args:
        text: TOML, at most 256 KiB in UTF-8; line ends of either kind.
        where: the file's name, for findings.
        registries: gives the text of a registry or of a person's key file, named as in the profile; it may raise
            `OSError` or `UnicodeDecodeError`, which become findings.

    Raises:
        ProfileRefused: with every finding, in the order of their places.
    """
    if len(text.encode("utf-8", "surrogatepass")) > PROFILE_BYTES_MAX:
        message = f"A profile has at most {PROFILE_BYTES_MAX} bytes."
        raise _refused_at(where, Position(line=1, column=1), FindingCode.TOO_LARGE, message)
    text = text.replace("\r\n", "\n")
    index = index_positions(text)
    raw = _parse_toml(text, where, index)
    document = read_document(raw)
    draft = draft_of(raw)
    read, findings = _read_registries(draft, registries)
    people = read_people_keys(draft.people, registries)
    problems = [*_control_problems(raw), *shape_problems(document), *_rule_problems(draft), *people.problems]
    findings += [_placed(problem, where, index) for problem in problems]
    if findings or not isinstance(document, Document):
        # The profile's own findings come first, then those of each registry file.
        findings.sort(
            key=lambda found: (found.where != where, found.where, found.line, found.column, found.key)
        )
        raise ProfileRefused(bounded(findings))
    return _profile(where, document, read, people.keys)


def _profile(
    where: str, document: Document, registries: Mapping[str, Registry], keys: Mapping[str, tuple[SshKey, ...]]
) -> Profile:
    return Profile(
        where=where,
        format=document.format,
        name=document.name,
        mode=document.mode,
        timezone=document.timezone,
        audit=document.audit,
        ledger=document.ledger,
        people=document.people,
        actors=document.actors,
        hosts=document.hosts,
        keys=MappingProxyType(dict(keys)),
        registries=MappingProxyType(dict(registries)),
        classes=document.classes,
        operations=document.operations,
        obligations=document.obligations,
        notices=document.notices,
        digest=profile_digest_of(document, registries, keys),
    )


def _rule_problems(draft: Draft) -> Iterator[Problem]:
    yield from people_problems(draft)
    yield from key_path_problems(draft)
    yield from class_problems(draft)
    yield from operation_problems(draft)
    yield from template_problems(draft)
    yield from notice_problems(draft)


def _parse_toml(text: str, where: str, index: PositionIndex) -> dict[str, object]:
    """Return the parsed document with tuples for lists, or raise the one finding that stops everything."""
    if index.too_deep is not None:
        message = f"Tables and lists are nested deeper than {DEPTH_MAX} levels."
        raise _refused_at(where, index.too_deep, FindingCode.TOO_DEEP, message)
    if text.startswith("\ufeff"):
        message = "The file begins with a byte order mark; save it without."
        raise _refused_at(where, Position(line=1, column=1), FindingCode.SYNTAX, message)
    try:
        parsed: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise _syntax(str(fault), text, where, index) from None
    except ValueError as fault:
        # Not tomllib's own: a number too long for Python to convert, or a date that does not exist.
        message = f"A value cannot be read: {fault}."
        raise _refused_at(where, Position(line=1, column=1), FindingCode.SYNTAX, message) from None
    except RecursionError:
        message = "Tables and lists are nested too deeply."
        raise _refused_at(where, Position(line=1, column=1), FindingCode.TOO_DEEP, message) from None
    return {key: _with_tuples(value) for key, value in parsed.items()}


def _syntax(message: str, text: str, where: str, index: PositionIndex) -> ProfileRefused:
    """Return tomllib's refusal with its place; a repeated key with the places of both."""
    match = _PLACE.search(message)
    reason = message[: match.start()] if match is not None else message
    if match is not None and match[1] is not None:
        place = Position(line=int(match[1]), column=int(match[2]))
    else:
        lines = text.rstrip("\n").split("\n")
        place = Position(line=len(lines), column=len(lines[-1]) + 1)
    if not reason.startswith(_REPEATED):
        return _refused_at(where, place, FindingCode.SYNTAX, f"This is not TOML: {reason}.")
    repeat = index.repeat
    if repeat is None:
        sentence = f"A key or table is given twice: {reason}."
        return _refused_at(where, place, FindingCode.DUPLICATE_KEY, sentence)
    sentence = f"This is already given on line {repeat.first.line}; TOML allows each key and table once."
    return _refused_at(where, repeat.again, FindingCode.DUPLICATE_KEY, sentence, dotted(repeat.path))


def _with_tuples(value: object) -> object:
    """Return the value with tuples for lists: frozen models hold no list, and strict ones accept none."""
    if isinstance(value, dict):
        return {key: _with_tuples(held) for key, held in value.items()}
    if isinstance(value, list):
        return tuple(_with_tuples(held) for held in value)
    return value


def _control_problems(value: object, path: KeyPath = ()) -> Iterator[Problem]:
    """Yield each text or key that holds a character nobody sees."""
    message = "This holds a control character."
    if isinstance(value, dict):
        for key, held in value.items():
            if _CONTROL.search(key):
                yield Problem(path=(*path, key), code=FindingCode.CONTROL_CHARACTER, message=message)
            yield from _control_problems(held, (*path, key))
    elif isinstance(value, tuple):
        for position, held in enumerate(value):
            yield from _control_problems(held, (*path, position))
    elif isinstance(value, str) and _CONTROL.search(value):
        yield Problem(path=path, code=FindingCode.CONTROL_CHARACTER, message=message)


def _read_registries(
    draft: Draft, registries: Callable[[str], str]
) -> tuple[dict[str, Registry], list[Finding]]:
    """Read every registry that is declared well, and return them with all findings."""
    read: dict[str, Registry] = {}
    findings: list[Finding] = []
    for name, source in draft.registries.items():
        try:
            result = read_registry(name, source, registries(source.file))
        except Unread as fault:
            result = [_file_finding(name, source.file, fault.code, fault.message)]
        except UnicodeDecodeError:
            result = [_file_finding(name, source.file, FindingCode.NOT_UTF8, "The file is not UTF-8.")]
        except OSError as fault:
            message = f"The file cannot be read: {fault.strerror or 'unknown reason'}."
            result = [_file_finding(name, source.file, FindingCode.UNREADABLE, message)]
        if isinstance(result, Registry):
            read[name] = result
        else:
            findings += result
    return read, findings


def registries_declared(text: str) -> Mapping[str, RegistrySource]:
    """Return the registries of a profile that was accepted before, by name; nothing else of it is judged again.

    Raises:
        ValueError: it is no TOML, or this release reads a registry in it differently.
    """
    declared = tomllib.loads(text.replace("\r\n", "\n")).get("registry", {})
    found = draft_of({"registry": _with_tuples(declared)}).registries if type(declared) is dict else {}
    if type(declared) is not dict or declared.keys() != found.keys():
        raise ValueError("a registry of this profile is not declared as this release reads it")
    return found


def _file_finding(name: str, file: str, code: FindingCode, message: str) -> Finding:
    return Finding(where=file, line=1, column=1, key=f"registry.{name}.file", code=code, message=message)


def _placed(problem: Problem, where: str, index: PositionIndex) -> Finding:
    place = index.at(problem.path)
    return Finding(
        where=where,
        line=place.line,
        column=place.column,
        key=dotted(problem.path),
        code=problem.code,
        message=problem.sentence(),
    )


def _refused_at(
    where: str, place: Position, code: FindingCode, message: str, key: str = ""
) -> ProfileRefused:
    finding = Finding(where=where, line=place.line, column=place.column, key=key, code=code, message=message)
    return ProfileRefused((finding,))


def _read_text(path: Path, bytes_max: int) -> str:
    """Return the text of a regular file; one byte more than allowed is read, never the rest."""
    try:
        if not path.is_file():
            # Asked first, because opening a pipe would wait for a writer.
            code = FindingCode.UNREADABLE
            raise Unread(code, "There is no regular file of this name.")
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as fault:
        raise Unread(FindingCode.UNREADABLE, f"The file cannot be read: {fault.strerror}.") from None
    if len(data) > bytes_max:
        code = FindingCode.TOO_LARGE
        raise Unread(code, f"The file has more than {bytes_max} bytes.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise Unread(FindingCode.NOT_UTF8, f"The file is not UTF-8 (line {line}).") from None
