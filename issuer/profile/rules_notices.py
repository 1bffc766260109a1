"""Rules of `[notify.NAME]` and of the operations that name one: is there one way to tell, and is it safe to start?

Rules: exactly one of command and spool; a command is named by its full path, since nobody may choose for the issuer
what `mail` means; a spool is a folder of its own, never one that the issuer keeps something else in; who is named
exists. Whether the program is there is the machine's business: a notice that fails is kept, and `doctor` tells it.
`issuer/profile/rules_operations.py` comes next.
"""

from collections.abc import Iterator
from typing import Final

from issuer.profile.draft import Draft, unknown_name
from issuer.profile.findings import FindingCode, KeyPath, Problem
from issuer.profile.limits import NOTICE_ARGUMENTS_MAX, NOTICE_TABLES_MAX
from issuer.profile.models import Notify
from issuer.profile.people_keys import leaves_the_folder

__all__ = ["notice_problems"]

_OWN_FOLDERS: Final = frozenset(
    {"credentials", "keys", "ledger", "people", "policies", "protected", "revisions"}
)
"""What stands beside the profile and is read back: a stranger's file in it could stop the issuer."""


def notice_problems(draft: Draft) -> Iterator[Problem]:
    """Yield every problem of the tables by which people are told."""
    if len(draft.notices) > NOTICE_TABLES_MAX:
        message = f"At most {NOTICE_TABLES_MAX} tables say where people are told."
        yield Problem(path=("notify",), code=FindingCode.TOO_LARGE, message=message)
    for name, table in draft.notices.items():
        yield from _problems(("notify", name), table)
    for name, operation in draft.operations.items():
        for index, named in enumerate(operation.notify):
            yield from unknown_name(draft, ("operation", name, "notify", index), "notify", named)


def _problems(path: KeyPath, table: Notify) -> Iterator[Problem]:
    if (table.command is None) == (table.spool is None):
        message = "A notify table has exactly one of `command` and `spool`."
        yield Problem(path=path, code=FindingCode.NOT_EXACTLY_ONE, message=message)
    if not table.on:
        message = "Nothing is told here: `on` names at least one kind of notice."
        yield Problem(path=(*path, "on"), code=FindingCode.BAD_VALUE, message=message)
    if table.command is not None:
        yield from _command_problems((*path, "command"), table.command)
    if table.spool is not None and not _is_spool(table.spool):
        message = "A spool is an absolute path, or a folder of its own below the profile's."
        yield Problem(path=(*path, "spool"), code=FindingCode.BAD_VALUE, message=message)


def _command_problems(path: KeyPath, command: tuple[str, ...]) -> Iterator[Problem]:
    if not 1 <= len(command) <= NOTICE_ARGUMENTS_MAX:
        message = f"A command is a program and its arguments, {NOTICE_ARGUMENTS_MAX} at most."
        yield Problem(path=path, code=FindingCode.OUT_OF_RANGE, message=message)
    elif not command[0].startswith("/"):
        message = 'The program is named by its full path, such as "/usr/local/bin/tell".'
        yield Problem(path=(*path, 0), code=FindingCode.BAD_VALUE, message=message)


def _is_spool(spool: str) -> bool:
    if spool.startswith("/"):
        return not leaves_the_folder(spool[1:])
    return not leaves_the_folder(spool) and spool.split("/", maxsplit=1)[0] not in _OWN_FOLDERS
