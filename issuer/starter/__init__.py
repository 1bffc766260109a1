"""What `issuer init` writes for a first effect: a profile for files in a folder of your own, as data."""

__all__ = ["starter_profile"]

from issuer.starter.profile import starter_profile
