"""The wire: what goes out to callers, in one form for every surface."""

__all__ = ["Answer", "Code", "Next", "code_of", "exit_of"]

from issuer.wire.answers import Answer
from issuer.wire.codes import Code, Next, code_of, exit_of
