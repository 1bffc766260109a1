"""The starter profile: one actor may create notes by itself; or the example families that an owner asked for.

Decides only how parts become files; every word of theirs is data in this folder. What the parts say has to be one
profile and one bundle for any choice of families, so people, actors and groups are those that the choice needs.
Next: `issuer.setup` writes the files where there are none.
"""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Final

from issuer.starter.families import ACTORS, OWNER, PEOPLE, REGISTRY_FILES, chosen
from policies import role_policies

POLICY_FILE: Final = "policies/starter.cedar"
CASES_FILE: Final = "policies/tests.toml"


def starter_profile(*, name: str, uid: int, families: Sequence[str] = ()) -> str:
    """Return the text of a starter profile for the issuer `name`, owned by the account `uid`.

    Without `families` it is the one for files in a folder of one's own.

    Raises:
        KeyError: a family does not exist.
    """
    picked = chosen(families)
    if not picked:
        return _own(_data("profile.toml"), name, uid)
    head = _data("head.toml").replace("@PEOPLE@", _people(picked)).replace("@ACTORS@", _actors(picked))
    return "\n".join((_own(head, name, uid), *(_data(family, "profile.toml") for family in picked)))


def family_files(families: Sequence[str]) -> Mapping[str, str]:
    """Return what stands beside the profile of `families`: registries, policies and their cases, by relative path.

    Raises:
        KeyError: a family does not exist.
    """
    picked = chosen(families)
    registries = {file: _data(family, file) for family in picked for file in REGISTRY_FILES.get(family, ())}
    policies = (
        _data("head.cedar"),
        *(_data(family, "policies.cedar") for family in picked),
        _data("guards.cedar"),
        role_policies(),
    )
    cases = [_data(family, "cases.toml") for family in picked]
    # A part that begins with keys goes on with [base], so nothing may stand between the two.
    base = _data("cases.toml") + ("\n" if cases[0].startswith("[") else "") + "\n".join(cases)
    return {**registries, POLICY_FILE: "\n".join(policies), CASES_FILE: base}


def _data(*path: str) -> str:
    return resources.files("issuer.starter").joinpath(*path).read_text(encoding="utf-8")


def _own(text: str, name: str, uid: int) -> str:
    return text.replace("@NAME@", name).replace("@UID@", str(uid))


def _people(picked: Sequence[str]) -> str:
    lines = []
    for name, roles, groups, needed_by in PEOPLE:
        if set(picked).intersection(needed_by):
            said = [f"roles = {_list(roles)}", *_groups(groups, picked)]
            said += ['login = "uid:@UID@"'] if name == OWNER else []
            lines.append(f"{name} = {{ {', '.join(said)} }}")
    return "\n".join(lines)


def _actors(picked: Sequence[str]) -> str:
    lines = []
    for name, groups, needed_by in ACTORS:
        if set(picked).intersection(needed_by):
            said = [f'answers_to = "{OWNER}"', *_groups(groups, picked)]
            lines.append(f"{name} = {{ {', '.join(said)} }}")
    return "\n".join(lines)


def _groups(groups: Mapping[str, str], picked: Sequence[str]) -> list[str]:
    wanted = [group for family, group in groups.items() if family in picked]
    return [f"groups = {_list(wanted)}"] if wanted else []


def _list(names: Sequence[str]) -> str:
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"
