"""The commands about checkpoints, as methods of `issuer.Issuer` (SUR-01, AUD-04)."""

from collections.abc import Sequence
from pathlib import Path

from issuer import commands
from issuer.commands.audit_files import Progress, no_progress
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

    def audit_prove(self, effect: str, out: str | Path, *, archives: Sequence[str | Path] = ()) -> Answer:
        """Write a proof of an effect's story to the new file `out`; an effect of somebody else only for observers.

        What was archived of the story is read from the files `archives`.
        """
        files = tuple(map(Path, archives))
        return self._done(
            "audit-prove", lambda visit: commands.audit_prove(visit, effect, Path(out), archives=files)
        )

    def audit_archive(
        self,
        out: str | Path,
        *,
        before: str | None = None,
        upto: int | None = None,
        progress: Progress = no_progress,
    ) -> Answer:
        """Seal the trail up to a signed checkpoint into the new file `out`, and let go of what nothing alive needs.

        The checkpoint is the newest whose spans are all earlier than `before`, or up to the sequence `upto`.
        """
        file = Path(out)
        return self._done(
            "audit-archive",
            lambda visit: commands.audit_archive(visit, file, before=before, upto=upto, progress=progress),
            out=str(out),
            before=before,
            upto=upto,
        )
