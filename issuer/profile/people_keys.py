"""People's public keys: the files that `person.NAME.key` names, read with the profile and part of its digest.

Decides whether each file holds OpenSSH public keys and nothing else (`issuer.sealing.ssh_keys` says which), and that
no key belongs to two people: whose signature it is must never depend on who is asked first (APP-01, SEC-02). The files
stand below the profile's folder, so that a revision is complete with what is in that folder. The core makes no key of
a person and keeps no private one (SEC-03); a private key in such a file is a finding, and nothing of it is repeated.
`issuer/profile/reading.py` comes next.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from issuer.profile.draft import Draft
from issuer.profile.findings import FindingCode, KeyPath, Problem, Unread
from issuer.profile.models import Person
from issuer.sealing import SshKey, SshKeyRefused, read_public_keys

__all__ = ["KeyFiles", "key_path_problems", "leaves_the_folder", "read_people_keys"]

_OF_THE_FILE: Final = "The public key of this person"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFiles:
    """What the files gave: the keys of each person who has some, and every problem, placed at the profile's key."""

    keys: Mapping[str, tuple[SshKey, ...]]
    problems: tuple[Problem, ...]


def leaves_the_folder(path: str) -> bool:
    """Say whether a path is not plainly below the folder that it is relative to."""
    return path.startswith("/") or "\\" in path or any(part in {"", ".", ".."} for part in path.split("/"))


def key_path_problems(draft: Draft) -> Iterator[Problem]:
    """Yield each key file that is not below the profile's folder."""
    for name, person in draft.people.items():
        if person.key is not None and leaves_the_folder(person.key):
            message = 'A key file stands below the profile\'s folder, such as "people/NAME.pub".'
            yield Problem(path=_place(name), code=FindingCode.BAD_VALUE, message=message)


def read_people_keys(people: Mapping[str, Person], files: Callable[[str], str]) -> KeyFiles:
    """Read the key file of everybody who has one.

    `files` gives the text of a file named as in the profile; it raises `Unread`, `OSError` or `UnicodeDecodeError`,
    which become problems.
    """
    keys: dict[str, tuple[SshKey, ...]] = {}
    problems: list[Problem] = []
    owners: dict[str, str] = {}
    for name, person in people.items():
        if person.key is None or leaves_the_folder(person.key):
            continue
        read = _read(name, person.key, files)
        if isinstance(read, Problem):
            problems.append(read)
            continue
        keys[name] = read
        for key in read:
            owner = owners.setdefault(key.fingerprint, name)
            if owner != name:
                message = (
                    f"The key {key.fingerprint} already belongs to person.{owner}; one key is one person's."
                )
                problems.append(_problem(name, FindingCode.DUPLICATE_VALUE, message))
    return KeyFiles(keys=keys, problems=tuple(problems))


def _read(name: str, file: str, files: Callable[[str], str]) -> tuple[SshKey, ...] | Problem:
    try:
        return read_public_keys(files(file))
    except SshKeyRefused as refused:
        line = "" if refused.line is None else f" (line {refused.line} of the file)"
        return _problem(name, FindingCode.BAD_KEY, f"{refused.message.removesuffix('.')}{line}.")
    except Unread as fault:
        return _problem(name, fault.code, f"{_OF_THE_FILE}: {fault.message}")
    except UnicodeDecodeError:
        return _problem(name, FindingCode.NOT_UTF8, f"{_OF_THE_FILE}: The file is not UTF-8.")
    except OSError as fault:
        message = f"{_OF_THE_FILE}: The file cannot be read: {fault.strerror or 'unknown reason'}."
        return _problem(name, FindingCode.UNREADABLE, message)


def _problem(name: str, code: FindingCode, message: str) -> Problem:
    return Problem(path=_place(name), code=code, message=message)


def _place(name: str) -> KeyPath:
    return ("person", name, "key")
