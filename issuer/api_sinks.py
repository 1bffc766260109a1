"""The sinks of an issuer, as methods: what is to be seen of them, and what an operator does about them (SUR-01)."""

from issuer import commands
from issuer.handle import Handle
from issuer.wire import Answer


class SinkCommands(Handle):
    """The commands about sinks; `issuer.api.Issuer` has them."""

    def sink_list(self) -> Answer:
        """Show every sink: its kind, class and place, up to where it is, in what state, and what is kept from it."""
        return self._done("sink-list", commands.sink_list)

    def sink_replace(self, name: str, *, path: str | None = None) -> Answer:
        """Let a sink stand where the profile in force says, or below the folder `path`; also one gained or lost since.

        The new place gets every span before it counts; an old one that is ahead of the ledger is never left (LED-06).
        """
        return self._done(
            "sink-replace", lambda visit: commands.sink_replace(visit, name, path), name=name, path=path
        )

    def sink_quarantine(self, name: str, *, reason: str, upto: int | None = None) -> Answer:
        """Keep the next span that a sink lacks from it, or all up to the sequence `upto`, on record.

        `reason` is `rejected`, `too_large` or `other`. A file has no gaps, and is refused.
        """
        return self._done(
            "sink-quarantine",
            lambda visit: commands.sink_quarantine(visit, name, reason=reason, upto=upto),
            name=name,
            reason=reason,
            upto=upto,
        )


__all__ = ["SinkCommands"]
