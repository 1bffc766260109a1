"""The command line; the only door to click.

Every command needs the ledger's words, so a foreign `ledger` ends it here; the other rooms are judged by the commands.
"""

from issuer.rooms import FOREIGN_NEXT, foreign_rooms, foreign_sentence

_FOREIGN = [room for room in foreign_rooms() if room.name == "ledger"]
if _FOREIGN:
    raise SystemExit(f"fault: {foreign_sentence(_FOREIGN)} {FOREIGN_NEXT}")  # to standard error, exit code 1

from issuer.surfaces.cli.main import main  # noqa: E402 - it loads the ledger's words

__all__ = ["main"]
