"""The starter profile: one actor may create notes by itself; everything else asks a person or is denied."""

from importlib import resources


def starter_profile(*, name: str, uid: int) -> str:
    """Return the text of a starter profile for the issuer `name`, owned by the account `uid`."""
    text = resources.files("issuer.starter").joinpath("profile.toml").read_text(encoding="utf-8")
    return text.replace("@NAME@", name).replace("@UID@", str(uid))
