"""Operations: what an owner lets be done, what an actor may say about it, and who carries it out."""

__all__: list[str] = []
