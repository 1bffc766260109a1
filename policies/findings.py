"""What is wrong with a bundle, said so that its owner can go to the place and mend it.

Rules: a finding names file, line and column (both counted from 1), a stable code and one sentence. An
error refuses the whole bundle (POL-04); a warning never does.
Not here: deciding what is an error (`text`, `lint`, `bundle` do), or printing.
Next: `policies.text` produces the first findings of a load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """One thing an owner should look at. Findings sort by file, line, column and code."""

    file: str
    line: int
    column: int
    code: str
    message: str
    severity: Severity = "error"

    def __str__(self) -> str:
        """Read like a compiler message: `file:line:column: severity: code: message`."""
        return f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.code}: {self.message}"


class BundleRefused(ValueError):  # noqa: N818 - the project's word for this is "refused", not "error"
    """A bundle was refused as a whole; the one that served before keeps serving (POL-04).

    Whose fault: the owner's text. `findings` is sorted and holds at least one error.
    """

    def __init__(self, findings: tuple[Finding, ...]) -> None:
        """Keep the sorted findings; the message is all of them, one a line."""
        self.findings = tuple(sorted(findings))
        super().__init__("\n".join(str(finding) for finding in self.findings))
