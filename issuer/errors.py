"""What the owner set up cannot be used: said at the start, in one sentence, with a stable reason."""


class SetupError(Exception):
    """An issuer cannot be opened or made as it is set up; nothing was changed."""

    def __init__(self, reason: str, message: str) -> None:
        """Keep a stable snake_case reason and one sentence."""
        super().__init__(message)
        self.args = (reason, message)
        self.reason = reason
        self.message = message

    def __str__(self) -> str:
        """Return the sentence."""
        return self.message
