"""Reading the owner's Cedar files; what they say is judged by `policies`."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from issuer.errors import SetupError

POLICY_SUFFIX: Final = ".cedar"


def read_policies(folder: Path) -> Mapping[str, str]:
    """Return the owner's Cedar files by name.

    Raises:
        SetupError: there is none, or one cannot be read.
    """
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix == POLICY_SUFFIX)
        texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    except (OSError, UnicodeDecodeError):
        raise SetupError("policies_unreadable", f"The policies in {folder.name}/ cannot be read.") from None
    if not texts:
        raise SetupError("policies_missing", f"There is no {POLICY_SUFFIX} file in {folder.name}/.")
    return MappingProxyType(texts)
