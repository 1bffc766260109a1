"""Reading the owner's Cedar files; what they say is judged by `policies`."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer.errors import SetupError

POLICY_SUFFIX: Final = ".cedar"
POLICY_BYTES_MAX: Final = 256 * 1024
"""Bytes of one file that are worth reading: a whole bundle has no more (`policies.text`)."""

_LINE_END: Final = re.compile("\r\n?")


def read_policy_files(folder: Path) -> Mapping[str, bytes]:
    """Return the bytes of the owner's Cedar files by name, each read up to one byte more than a bundle may have.

    Raises:
        SetupError: there is none, or one cannot be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == POLICY_SUFFIX)
        read = {path.name: _bounded(path) for path in files}
    except OSError:
        raise _unreadable(folder.name) from None
    if not read:
        raise SetupError("policies_missing", f"There is no {POLICY_SUFFIX} file in {folder.name}/.")
    return MappingProxyType(read)


def policy_texts(files: Mapping[str, bytes]) -> Mapping[str, str]:
    """Return Cedar files as texts; line ends of either kind are one.

    Raises:
        SetupError: one is not UTF-8.
    """
    try:
        texts = {name: data.decode("utf-8") for name, data in files.items()}
    except UnicodeDecodeError:
        raise _unreadable("policies") from None
    return MappingProxyType({name: _LINE_END.sub("\n", text) for name, text in texts.items()})


def read_policies(folder: Path) -> Mapping[str, str]:
    """Return the owner's Cedar files by name, as texts.

    Raises:
        SetupError: there is none, or one cannot be read.
    """
    return policy_texts(read_policy_files(folder))


def _bounded(path: Path) -> bytes:
    if not path.is_file():
        # Asked first, because opening a pipe would wait for a writer.
        raise OSError
    with path.open("rb") as file:
        return file.read(POLICY_BYTES_MAX + 1)


def _unreadable(folder: str) -> SetupError:
    return SetupError("policies_unreadable", f"The policies in {folder}/ cannot be read.")
