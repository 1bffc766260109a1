"""Rules of the profile's head, sinks, people, actors, hosts and registries: do the names they use exist?

Rules: the zone is one of the IANA database; at least one sink is required in any mode (AUD-02: an empty
list never means "all good"); one account is one caller (SEC-02), so no uid logs in two people, hosts or actors; who
is named exists. Pure, except that the zone is looked up in the machine's database.
`issuer/profile/rules_classes.py` comes next.
"""

import re
import zoneinfo
from collections.abc import Iterator, Mapping
from typing import Final

from issuer.profile.draft import Draft, unknown_name
from issuer.profile.fields import is_private_url
from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.models import Sink

__all__ = ["people_problems"]

_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*")
_NOT_IANA: Final = ("localtime", "posixrules", "posix/", "right/")
"""Files that some machines keep beside the zones: their meaning differs from machine to machine."""


def people_problems(draft: Draft) -> Iterator[Problem]:
    """Yield every problem of head, audit, people, actors, hosts and registries."""
    if draft.timezone is not None and not _is_zone(draft.timezone):
        yield Problem(
            path=("timezone",),
            code=FindingCode.UNKNOWN_NAME,
            message=f"{draft.timezone!a} is not a zone of the IANA database.",
            wanted=draft.timezone,
            candidates=tuple(sorted(zoneinfo.available_timezones())),
        )
    if draft.audit is not None:
        for name, sink in draft.audit.sinks.items():
            yield from _sink_problems(("audit", "sink", name), sink)
        if not any(sink.required for sink in draft.audit.sinks.values()):
            yield Problem(
                path=("audit", "sink"),
                code=FindingCode.NO_REQUIRED_SINK,
                message="At least one sink must be required: nothing is sent that no sink has acknowledged.",
            )
    yield from _reference_problems(draft)
    yield from _login_problems(draft)
    for name, registry in draft.registries.items():
        if registry.key in registry.fields:
            yield Problem(
                path=("registry", name, "fields", registry.fields.index(registry.key)),
                code=FindingCode.DUPLICATE_VALUE,
                message="The key column is always there; `fields` lists the other columns.",
            )


def _reference_problems(draft: Draft) -> Iterator[Problem]:
    """Yield each person or actor who is named and not declared."""
    for name, actor in draft.actors.items():
        yield from unknown_name(draft, ("actor", name, "answers_to"), "person", actor.answers_to)
    for name, host in draft.hosts.items():
        for index, actor_name in enumerate(host.actors):
            yield from unknown_name(draft, ("host", name, "actors", index), "actor", actor_name)
        for index, subject in enumerate(host.subjects):
            yield from unknown_name(draft, ("host", name, "subjects", index), "person", subject)


def _is_zone(name: str) -> bool:
    if _ZONE.fullmatch(name) is None or name.startswith(_NOT_IANA):
        return False
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        # OSError: the name of a folder of the database, such as "Europe".
        return False
    return True


_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "jsonl": ("path",),
    "otlp": ("url",),
    "python": ("plugin", "digest"),
}
"""The keys that each type of sink needs."""

_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "jsonl": ("segment",),
    "otlp": ("bearer",),
    "python": ("settings",),
}
"""The keys that a type may have beside those; any other one is of another type."""


def _sink_problems(path: KeyPath, sink: Sink) -> Iterator[Problem]:
    needed = _NEEDED[sink.type]
    own = {*needed, *_ALLOWED.get(sink.type, ())}
    foreign = {key for keys in (*_NEEDED.values(), *_ALLOWED.values()) for key in keys} - own
    for key in needed:
        if getattr(sink, key) is None:
            message = f"A sink of type {sink.type} needs `{key}`."
            yield Problem(path=(*path, key), code=FindingCode.MISSING_KEY, message=message)
    for key in sorted(foreign):
        if getattr(sink, key):
            message = f"A sink of type {sink.type} has no `{key}`."
            yield Problem(path=(*path, key), code=FindingCode.CONFLICT, message=message)
    if sink.bearer is not None and sink.url is not None and not is_private_url(sink.url):
        message = "A bearer token goes over https, or to this machine; anybody on the way could read it."
        yield Problem(path=(*path, "url"), code=FindingCode.BAD_DESTINATION, message=message)


def _login_problems(draft: Draft) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    logins = [("person", name, person.login) for name, person in draft.people.items()]
    logins += [("host", name, host.login) for name, host in draft.hosts.items()]
    logins += [("actor", name, actor.login) for name, actor in draft.actors.items()]
    for section, name, login in logins:
        if login is None or login == "token":
            continue
        owner = seen.setdefault(login, f"{section}.{name}")
        if owner != f"{section}.{name}":
            message = f"{login} already logs in {owner}; one account is one caller."
            yield Problem(path=(section, name, "login"), code=FindingCode.DUPLICATE_LOGIN, message=message)
