"""`audit verify`: a trail, or a proof, held against checkpoints and a key, without a profile and without an issuer.

Rules: AUD-04, AUD-09. Key and checkpoints come from whoever verifies, and the key's name says of which ledger they are:
nothing in the file can choose its own witness. The answer says in words up to where something is proven and what is
not, and no more: that spans are as they were recorded, and not that what they tell is true.
Next: `audit.verification`, `audit.trail_lines`, `audit.trail_rows`, `audit.proofs`.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from audit.errors import NoteRefused, TrailUnreadable
from audit.notes import NOTE_BYTES_MAX, Checkpoint, VerifierKey, ledger_origin, opened_checkpoint, read_vkey
from audit.proofs import PROOF_BYTES_MAX, read_proof, verify_proof
from audit.sinks.segments import segments_of
from audit.trail_lines import TrailFile, header_of, verify_files
from audit.trail_rows import verify_rows
from audit.verification import KeptCheckpoint, Standing, TrailReport, Verdict
from issuer.places import AUDIT_FILE
from issuer.sealing import is_ed25519_signature
from issuer.wire import Answer
from ledger.sqlite.span_stream import open_span_stream

__all__ = ["Given", "Progress", "verify_exports", "verify_ledger", "verify_permit"]

Progress = Callable[[int, str], Callable[[int], None]]
"""Takes a total and what is counted; returns what is told of each step."""

KEYS_MAX: Final = 64
CHECKPOINTS_MAX: Final = 10_000
LISTINGS_MAX: Final = 16
"""Times that a folder is listed again since an audit file became full meanwhile."""

_NOTES: Final = "*.note"
_DATABASE: Final = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the verifier brings: keys, and checkpoints that were kept elsewhere, each with the name of its file."""

    keys: tuple[VerifierKey, ...] = ()
    notes: tuple[tuple[str, bytes], ...] = ()

    @classmethod
    def of(cls, keys: Sequence[str], checkpoints: Sequence[Path]) -> "Given":
        """Read keys (each a text or a file of such, one a line) and checkpoints (each a file, or a folder of `*.note`).

        Raises:
            TrailUnreadable: one of them is missing or is none.
        """
        with _readable():
            texts = [line for key in keys for line in _key_lines(key)]
        try:
            read = tuple(read_vkey(text) for text in texts if text.strip())
        except NoteRefused as fault:
            raise TrailUnreadable(f"A key cannot be used: {fault.message}.") from None
        files = [file for place in checkpoints for file in (_notes_in(place) if place.is_dir() else [place])]
        if len(read) > KEYS_MAX or len(files) > CHECKPOINTS_MAX:
            raise TrailUnreadable(f"At most {KEYS_MAX} keys and {CHECKPOINTS_MAX} checkpoints are taken.")
        notes = tuple((file.name, _bytes_of(file, NOTE_BYTES_MAX + 1)) for file in files)
        if (keys and not read) or (checkpoints and not notes):
            raise TrailUnreadable("There is no key, or no checkpoint, where one was named.")
        if notes and not read:
            raise TrailUnreadable(
                "A checkpoint is worth nothing without the key that signed it; name it with --key."
            )
        return cls(keys=read, notes=notes)

    def opened(self, ledger_id: str) -> tuple[list[KeptCheckpoint], list[tuple[str, str]]]:
        """Return the checkpoints of a ledger that a key signed, and each other one with the reason against it."""
        checkpoints: list[KeptCheckpoint] = []
        refused: list[tuple[str, str]] = []
        for name, note in self.notes:
            try:
                checkpoint = opened_by(self.keys, note)
            except NoteRefused as fault:
                refused.append((name, fault.message))
                continue
            if checkpoint.origin != ledger_origin(ledger_id):
                refused.append((name, "the checkpoint and its key are of another ledger"))
            else:
                checkpoints.append(KeptCheckpoint(name=name, checkpoint=checkpoint))
        return checkpoints, refused


def opened_by(keys: Sequence[VerifierKey], note: bytes) -> Checkpoint:
    """Return what a checkpoint says that one of `keys` signed.

    Raises:
        NoteRefused: none did, or it is none.
    """
    fault = NoteRefused("no key was given")
    for key in keys:
        try:
            return opened_checkpoint(note, key, is_ed25519_signature)
        except NoteRefused as refused:
            fault = refused
    raise fault


def verify_exports(paths: Sequence[Path], given: Given, progress: Progress) -> Answer:
    """Verify files of spans that follow each other, as one trail; or one copy of a ledger.

    A folder stands for the files of the sink in it: the full ones in order, and then the newest.

    Raises:
        TrailUnreadable: one of them cannot be read, or is no file of spans.
        LedgerUnavailable, LedgerCorrupt: the copy of a ledger cannot be read.
    """
    if len(paths) == 1 and paths[0].is_file() and _bytes_of(paths[0], len(_DATABASE)) == _DATABASE:
        return verify_ledger(paths[0], given, progress)
    with ExitStack() as stack, _readable():
        opened = _opened(paths, stack)
        headers = [header_of(file, name) for name, file in opened]
        ledgers = [header.ledger_id for header in headers]
        if len(set(ledgers)) != 1:
            raise TrailUnreadable("The files are of different ledgers.")
        files = [
            TrailFile(name=name, file=file, after=header.after)
            for (name, file), header in zip(opened, headers, strict=True)
        ]
        checkpoints, refused = given.opened(ledgers[0])
        total = sum(os.fstat(file.fileno()).st_size for _name, file in opened)
        tick = progress(total, "bytes")
        tick(sum(file.file.tell() for file in files))  # the headers are read already
        report = verify_files(files, ledgers[0], checkpoints, tick=tick)
    return _answer(report, refused)


def _opened(paths: Sequence[Path], stack: ExitStack) -> Sequence[tuple[str, BinaryIO]]:
    """Open files, and those that folders stand for; of a sink that is written to, all as they were at one moment.

    Raises:
        TrailUnreadable: a folder holds no sink, or never stays as it is.
        OSError: a file cannot be read.
    """
    found = _files_of(paths)
    for _try in range(LISTINGS_MAX):
        opened = [(path.name, stack.enter_context(path.open("rb"))) for path in found]
        before, found = found, _files_of(paths)
        if found == before:
            return opened
    raise TrailUnreadable("The files of a folder change all the time; verify a copy.")


def _files_of(paths: Sequence[Path]) -> list[Path]:
    return [file for path in paths for file in (_files_in(path) if path.is_dir() else [path])]


def _files_in(folder: Path) -> list[Path]:
    """Return the files of the sink in a folder, in order.

    Raises:
        TrailUnreadable: it holds none.
    """
    newest = folder / AUDIT_FILE
    with _readable():
        there = [newest] if newest.exists() else []
        # A writer that was killed while it renamed a full file leaves it with both names.
        full = [each.path for each in segments_of(newest)]
        found = [path for path in full if not (there and path.samefile(newest))] + there
    if not found:
        raise TrailUnreadable(f"There is no {AUDIT_FILE} in the folder {folder.name}.")
    return found


def verify_ledger(ledger: Path, given: Given, progress: Progress) -> Answer:
    """Verify the trail in a ledger's own file, columns and bodies.

    Raises:
        LedgerUnavailable, LedgerCorrupt: it cannot be read.
    """
    with open_span_stream(ledger) as stream:
        checkpoints, refused = given.opened(stream.ledger_id)
        report = verify_rows(
            stream.batches,
            stream.ledger_id,
            checkpoints,
            archived=stream.archived,
            tick=progress(stream.count, "spans"),
        )
    return _answer(report, refused)


def verify_permit(path: Path, given: Given) -> Answer:
    """Verify the proof of one effect's story.

    Raises:
        TrailUnreadable: it cannot be read, or is no proof.
    """
    proof = read_proof(_bytes_of(path, PROOF_BYTES_MAX + 1))
    try:
        checkpoint = opened_by(given.keys, proof.note)
    except NoteRefused as fault:
        say = f"Nothing is proven: the checkpoint in the proof does not count, since {fault.message}."
        return _said(proof.ledger_id, Verdict.NOT_ANCHORED, say, {"about_effect": proof.effect})
    wrong = verify_proof(proof, checkpoint)
    spans = len(proof.lines)
    facts = {
        "about_effect": proof.effect,
        "spans": spans,
        "checkpoint_size": checkpoint.size,
        "checkpoint_root": checkpoint.root.hex(),
    }
    if wrong is not None:
        return _said(proof.ledger_id, Verdict.TAMPERED, f"The proof does not hold: {wrong}", facts)
    says = (
        f"Proven: these {spans} spans of {proof.effect} are among the first {checkpoint.size} of the ledger's trail, "
        "as they were recorded. Not proven: that there are no others about it."
    )
    return _said(proof.ledger_id, Verdict.VERIFIED, says, facts)


def _answer(report: TrailReport, refused: Sequence[tuple[str, str]]) -> Answer:
    verdict = report.verdict
    if refused and verdict is Verdict.VERIFIED:
        verdict = Verdict.NOT_ANCHORED
    finding = report.finding
    facts: dict[str, object] = {
        "verification": {
            "ledger": report.ledger_id,
            "spans_read": report.spans,
            "spans": report.size,
            "anchored": report.anchored,
            "not_anchored": report.size - report.anchored,
            "epochs": [{"epoch": epoch, "first": first} for epoch, first in report.epochs],
            "torn_line": report.is_torn,
            "checkpoints": [
                {
                    "name": kept.name,
                    "size": kept.checkpoint.size,
                    "root": kept.checkpoint.root.hex(),
                    "standing": str(kept.standing),
                }
                for kept in report.checkpoints
            ],
            "refused": [{"name": name, "reason": reason} for name, reason in refused],
            "finding": None
            if finding is None
            else {"what": finding.what, "where": finding.where, "says": finding.says},
        },
        "lines": _lines(report, refused),
    }
    return _said(report.ledger_id, verdict, _SAYS[verdict], facts)


_SAYS: Final = {
    Verdict.VERIFIED: "Verified: what was signed is what is here.",
    Verdict.NOT_ANCHORED: "Not proven: no checkpoint that counts is over all that would have to be under one.",
    Verdict.TAMPERED: "This is not what was signed: something was altered, removed, put in or cut off.",
}

_STANDINGS: Final = {
    Standing.HOLDS: "holds",
    Standing.LEFT_BEHIND: "holds for what a restore left behind, and says nothing of what came after it",
    Standing.DIFFERS: "does NOT hold: the first {size} spans are not those that were signed",
    Standing.NOT_REACHED: "does NOT hold: what is here ends, or goes wrong, before span {size}",
}


def _lines(report: TrailReport, refused: Sequence[tuple[str, str]]) -> list[str]:
    """Return for people what is proven up to where, and what is not."""
    size, anchored = report.size, report.anchored
    lines = [f"  read: {report.spans} spans of {report.ledger_id}"]
    if report.finding is not None:
        lines.append(f"  wrong: {report.finding.where}: {report.finding.says} Nothing after it was read.")
    lines += [
        f"  checkpoint {kept.name}: {_STANDINGS[kept.standing].format(size=kept.checkpoint.size)}"
        for kept in report.checkpoints
        if kept.standing is not Standing.HOLDS
    ]
    lines += [f"  checkpoint {name}: does not count, since {reason}" for name, reason in refused]
    if anchored:
        lines.append(
            f"  proven: spans 1 to {anchored} are exactly those that were signed, all of them, in order"
        )
    if size > anchored:
        what = f"spans {anchored + 1} to {size} hang together, and no checkpoint is over them"
        lines.append(f"  not anchored: {what}")
    if anchored < report.believed_from:
        lines.append(
            f"  not proven: an epoch that begins at span {report.believed_from} left earlier spans behind, "
            "and no checkpoint is over its first span; whoever can write the file could have made it up"
        )
    if report.is_torn:
        lines.append(
            "  the last line has no end, and was not read: it was cut off in writing, or by somebody"
        )
    return lines


def _said(ledger_id: str, verdict: Verdict, say: str, facts: dict[str, object]) -> Answer:
    return Answer(issuer=ledger_id, code=str(verdict), mode="", say=say, more=facts)


def _key_lines(key: str) -> list[str]:
    """Return the keys of a file of that name, a line each; where there is none, the text is the key."""
    return _text_of(Path(key)).splitlines() if Path(key).is_file() else [key]


def _notes_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(_NOTES))


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise TrailUnreadable(f"A file cannot be read: {fault.strerror}.") from None


def _bytes_of(path: Path, limit: int) -> bytes:
    with _readable():
        file: BinaryIO
        with path.open("rb") as file:
            return file.read(limit)


def _text_of(path: Path) -> str:
    try:
        return _bytes_of(path, NOTE_BYTES_MAX).decode()
    except UnicodeDecodeError:
        raise TrailUnreadable("A file of keys is text.") from None
