"""The commands about checkpoints, as methods of `issuer.Issuer` (SUR-01, AUD-04)."""

from pathlib import Path

from issuer import commands
from issuer.handle import Handle
from issuer.wire import Answer

__all__ = ["CheckpointCommands"]


class CheckpointCommands(Handle):
    """What `Issuer` says about checkpoints."""

    def audit_checkpoint(self) -> Answer:
        """Sign a checkpoint of the whole trail, to be kept elsewhere; where nothing happened since, show the newest."""
        return self._done("audit-checkpoint", commands.audit_checkpoint)

    def audit_key(self) -> Answer:
        """Show the public keys that checkpoints are verified with, the active one first."""
        return self._done("audit-key", commands.audit_key)

    def audit_prove(self, effect: str, out: str | Path) -> Answer:
        """Write a proof of an effect's story to the new file `out`; an effect of somebody else only for observers."""
        return self._done("audit-prove", lambda visit: commands.audit_prove(visit, effect, Path(out)))
