"""What a person reads and signs: the core's statement of one effect, made from its binding and from nothing else."""

__all__ = ["Act", "StatementUntrue", "Untrue", "human_part", "recompute"]

from issuer.approving.recompute import StatementUntrue, Untrue, human_part, recompute
from issuer.approving.rendering import Act
