"""The desk: acts that need no open issuer, by whoever's account this is or with a person's signature (SEC-02, LED-08).

`Issuer.desk(profile)` gives one. An act is signed as those of an open issuer: `stated` returns the text, `signed` takes
it back with its signature, for that one act. What is signed says what it is about, not only where that lay:
`activate` the digest of the files, `ledger_restore` the last span of the backup.
Next: `issuer.commands`; `issuer.unopened` judges.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Self

from issuer import commands
from issuer.backup import backup_statement
from issuer.commands.revisions import activation_statement
from issuer.errors import SetupError
from issuer.house import SignedText
from issuer.operations.admitted_code import Factory
from issuer.restore.restoring import restore_statement
from issuer.unopened import Act
from issuer.wire import Answer


class _StatedInstead(Exception):  # noqa: N818 - ends an act where its statement was wanted
    def __init__(self, statement: str) -> None:
        super().__init__()
        self.statement = statement


class Desk:
    """The acts on the issuer of one profile that open none."""

    def __init__(
        self, profile: Path, *, act: Act | None = None, stated_by: str | None = None, is_strict: bool = False
    ) -> None:
        """Use `Issuer.desk`; `is_strict` is a strictness that the profile cannot say yet (OPR-03)."""
        self._profile = profile
        self._is_strict = is_strict
        self._act = act or Act(is_strict=is_strict)
        self._stated_by = stated_by

    def signed(self, signature: str, statement: str) -> Self:
        """Return a desk for one act that a person signed, as `issuer.handle.Handle.signed`."""
        text = SignedText(signature=signature, statement=statement)
        act = Act(text=text, is_strict=self._is_strict)
        return type(self)(self._profile, act=act, is_strict=self._is_strict)

    def stated(self, person: str, call: Callable[[Self], object]) -> str:
        """Return what `person` signs for the one act that `call` gives; nothing of it is carried out.

        Raises:
            RefusedError: nobody of that name is in force.
            ProfileRefused, SetupError, Fault: what it is about cannot be read; or `call` gives no act.
        """
        try:
            call(type(self)(self._profile, stated_by=person, is_strict=self._is_strict))
        except _StatedInstead as stated:
            return stated.statement
        raise SetupError("no_command", "There is no command to sign.")

    def activate(
        self, revision: str | None = None, *, adapters: Mapping[str, Factory] = MappingProxyType({})
    ) -> Answer:
        """Put the files beside the profile in force, or those of an earlier `revision`; as `Issuer.activate`."""
        if self._stated_by is not None:
            raise _StatedInstead(activation_statement(self._profile, self._stated_by, revision))
        return commands.activate(self._profile, revision, adapters=adapters, act=self._act)

    def ledger_backup(self, file: str | Path) -> Answer:
        """Copy the ledger to the new file `file`; as `Issuer.ledger_backup`."""
        if self._stated_by is not None:
            raise _StatedInstead(backup_statement(self._profile, self._stated_by, Path(file)))
        return commands.ledger_backup(self._profile, Path(file), act=self._act)

    def ledger_restore(self, file: str | Path) -> Answer:
        """Bring the ledger back as it was in the backup `file`; as `Issuer.ledger_restore`."""
        if self._stated_by is not None:
            raise _StatedInstead(restore_statement(self._profile, self._stated_by, Path(file)))
        return commands.ledger_restore(self._profile, Path(file), act=self._act)
