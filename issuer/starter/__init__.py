"""What `issuer init` writes for a first effect, as data: files in a folder of your own, or example families."""

__all__ = ["FAMILIES", "family_files", "first_steps", "starter_profile"]

from issuer.starter.families import FAMILIES, first_steps
from issuer.starter.profile import family_files, starter_profile
