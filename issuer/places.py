"""Where an issuer keeps what: everything beside its profile, except the audit file.

Rules: SEC-03 (keys outside the ledger), LED-06 (the anchor outside the ledger's folder), AUD-03 (the environment
says where the audit file goes once, at `init`; from then on the ledger says it).
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.model import LedgerId

PROFILE_NAME: Final = "profile.toml"
AUDIT_FILE: Final = "spans.jsonl"


@dataclass(frozen=True, slots=True)
class Places:
    """The folders and files of the issuer whose profile is `profile`."""

    profile: Path

    @property
    def folder(self) -> Path:
        """The folder of the profile; relative paths in it start here."""
        return self.profile.parent

    @property
    def policies(self) -> Path:
        """Folder of the owner's Cedar files."""
        return self.folder / "policies"

    @property
    def keys(self) -> Path:
        """Folder of the key ring, mode 0700."""
        return self.folder / "keys"

    @property
    def credentials(self) -> Path:
        """Folder of service credentials, one file each, mode 0700."""
        return self.folder / "credentials"

    @property
    def protected(self) -> Path:
        """Folder of the protected store, mode 0700."""
        return self.folder / "protected"

    @property
    def ledger_folder(self) -> Path:
        """Folder of the ledger and the locks of its writers."""
        return self.folder / "ledger"

    @property
    def ledger(self) -> Path:
        """The ledger file."""
        return self.ledger_folder / "ledger.sqlite"

    @property
    def founding(self) -> Path:
        """The file that is there while `init` makes keys and ledger, and never again."""
        return self.ledger_folder / "founding"

    @property
    def notices(self) -> Path:
        """Folder of what people are being told, what they were told, and what they could not be, mode 0700."""
        return self.ledger_folder / "notices"

    @property
    def looks(self) -> Path:
        """Folder of looks that the ledger could not take yet, mode 0700 (AUD-06)."""
        return self.ledger_folder / "looks"

    @property
    def restoring(self) -> Path:
        """Folder in which a restore builds the ledger that takes the place of this one."""
        return self.ledger_folder / "restoring"

    @property
    def checked(self) -> Path:
        """The file that says in which boot the ledger was last found whole."""
        return self.ledger_folder / "checked"

    @property
    def revisions(self) -> Path:
        """Folder of the owner's files as they were activated, one folder a revision, mode 0700 (POL-07)."""
        return self.ledger_folder / "revisions"

    @property
    def instances(self) -> Path:
        """Folder of the locks that running processes hold for life (ADM-07)."""
        return self.ledger_folder / "instances"


def state_folder() -> Path:
    """Return the user's state folder: `XDG_STATE_HOME`, or `~/.local/state` (XDG base directory specification)."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    if configured and Path(configured).is_absolute():
        return Path(configured)
    return Path.home() / ".local" / "state"


def audit_file(path: str, *, issuer: str, ledger_id: LedgerId) -> Path:
    """Return where a new JSONL sink is made: below the user's state folder unless `path` is absolute."""
    folder = Path(path)
    if folder.is_absolute():
        return folder / AUDIT_FILE
    return _state_of(issuer, ledger_id) / folder / AUDIT_FILE


def sink_folder(name: str, *, issuer: str, ledger_id: LedgerId) -> Path:
    """Return where a new sink that another program keeps has its watermark: below the user's state folder."""
    return _state_of(issuer, ledger_id) / "sinks" / name


def _state_of(issuer: str, ledger_id: LedgerId) -> Path:
    return state_folder() / "permit-issuer" / f"{issuer}-{ledger_id[4:12]}"
