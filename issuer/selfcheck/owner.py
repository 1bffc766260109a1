"""What the owner wrote: profile, policies, operations; and the credentials that operations name."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from issuer.selfcheck.finding import Finding, Known, NotJudgedError

_MODES = {"ordinary": "one account, roles are recorded and not enforced", "strict": "not served yet"}


def profile(known: Known) -> Iterator[Finding]:
    """Say everything that is wrong with the profile, or what it is."""
    from issuer.profile import ProfileRefused, load_profile

    where = known.places.profile
    try:
        known.profile = load_profile(where)
    except ProfileRefused as refused:
        there = where.is_file()
        remedy = (
            "Repair that place." if there else "Name the profile with --profile, or run `issuer init FOLDER`."
        )
        for found in refused.findings:
            yield Finding(check="profile", ok=False, says=str(found), next=remedy)
        return
    mode = known.profile.mode
    says = f"The profile of {known.profile.name} loads; mode {mode}: {_MODES[mode]}."
    yield Finding(check="profile", ok=True, says=says)


def unserved(known: Known) -> Iterator[Finding]:
    """Say what the profile asks for and this release does not serve (OPR-03): never ignored, always refused."""
    from issuer.profile import unserved as unserved_keys
    from issuer.profile import unserved_anywhere, unserved_reason

    profile = known.the_profile()
    everywhere = unserved_keys(profile, None)
    for key in unserved_anywhere(profile):
        blocks = key in everywhere
        refused = "Every command is" if blocks else "Its operation is"
        yield Finding(
            check="unserved",
            ok=not blocks,
            says=f"{key}: {unserved_reason(key)} {refused} refused as unsupported.",
            next=f"Take {key} out of the profile until it is served.",
        )
    if not unserved_anywhere(profile):
        yield Finding(check="unserved", ok=True, says="The profile asks for nothing that is not served yet.")


def policies(known: Known) -> Iterator[Finding]:
    """Say everything that is wrong with the policies, or how many there are (POL-04)."""
    from issuer.errors import SetupError
    from issuer.operations.registry import build_catalogue
    from issuer.policy_files import read_policies
    from policies import BundleRefused, load_bundle

    profile = known.the_profile()
    if not known.engine_is_fit:
        raise NotJudgedError("engine")
    try:
        bundle = load_bundle(read_policies(known.places.policies), build_catalogue(profile))
    except BundleRefused as refused:
        for found in refused.findings:
            mends = found.severity == "error"
            remedy = "Repair that place; until then no policy serves."
            yield Finding(
                check="policies", ok=not mends, says=str(found), next=remedy if mends else "Look at it."
            )
        return
    except SetupError as fault:
        yield Finding(check="policies", ok=False, says=fault.message, next="Put the owner's policies back.")
        return
    except ValueError as fault:
        yield Finding(check="policies", ok=False, says=f"{fault}", next="Repair the profile's operations.")
        return
    for found in bundle.warnings:
        yield Finding(check="policies", ok=True, says=str(found), next="Look at it.")
    yield Finding(check="policies", ok=True, says=f"{len(bundle.policies)} policies load.")
    yield from _looks_forgotten(known)


def _looks_forgotten(known: Known) -> Iterator[Finding]:
    """Point at what no rule is broken by, and nobody can have meant."""
    from issuer.policy_files import POLICY_SUFFIX, read_policies

    profile = known.the_profile()
    members = {group for person in profile.people.values() for group in person.groups}
    members |= {group for actor in profile.actors.values() for group in actor.groups}
    for name, text in read_policies(known.places.policies).items():
        for group in sorted(set(re.findall(r'Group::"([^"]+)"', text)) - members):
            says = f"{name} names the group {group}, which nobody is in."
            yield Finding(
                check="policies", ok=True, says=says, next="Look at its spelling, or at the profile."
            )
    for path in sorted(known.places.policies.iterdir()):
        if path.suffix not in {POLICY_SUFFIX, ".toml"}:
            says = f"{path.name} is not read: policies end in {POLICY_SUFFIX}."
            yield Finding(check="policies", ok=True, says=says, next="Rename it, or take it away.")


def operations(known: Known) -> Iterator[Finding]:
    """Say whether every operation's declaration is one that its adapter can honour (OPR-01)."""
    from issuer.credentials import credential_reader
    from issuer.errors import SetupError
    from issuer.operations.registry import build_operations

    profile = known.the_profile()
    places = known.places
    try:
        built = build_operations(
            profile, folder=places.folder, credentials=credential_reader(places.credentials)
        )
    except SetupError as fault:
        says = fault.message
        yield Finding(check="operations", ok=False, says=says, next="Repair its table in the profile.")
        return
    yield Finding(
        check="operations", ok=True, says=f"{len(built)} operations are declared as they can be served."
    )
    for name, operation in profile.operations.items():
        if operation.file is not None and not (places.folder / operation.file.root).is_dir():
            says = f"The operation {name} works in {operation.file.root}/, which does not exist."
            yield Finding(check="operations", ok=True, says=says, next="Make the folder.")


def private_flaw(path: Path) -> tuple[str, str] | None:
    """Return what is wrong with a private folder and what to do, or None."""
    try:
        seen = path.lstat()
    except OSError:
        return f"There is no folder {path.name}/.", f"Bring {path} back, or make it: mkdir -m 700 {path}"
    if not stat.S_ISDIR(seen.st_mode):
        return f"{path.name} is not a folder.", f"Put the real folder at {path}."
    if seen.st_uid != os.geteuid():
        return f"{path.name}/ belongs to uid {seen.st_uid}.", f"chown {os.geteuid()} {path}"
    if seen.st_mode & 0o077:
        return f"{path.name}/ is open to others ({seen.st_mode & 0o777:04o}).", f"chmod 700 {path}"
    return None


def _named_credentials(known: Known) -> frozenset[str]:
    profile = known.profile
    if profile is None:
        return frozenset()
    named = {name for operation in profile.operations.values() for name in operation.credentials}
    return frozenset(
        named | {sink.bearer for sink in profile.audit.sinks.values() if sink.bearer is not None}
    )


def credentials(known: Known) -> Iterator[Finding]:
    """Say whether credentials are private, and whether each that an operation names is there (SEC-03).

    Each is read as dispatch reads it, and what was read is dropped at once.
    """
    from issuer.credentials import CredentialMissingError, CredentialSealedError, credential_reader
    from issuer.sealing import KeysUnavailable, open_key_ring

    folder, named = known.places.credentials, _named_credentials(known)
    if not folder.exists() and not named:
        yield Finding(check="credentials", ok=True, says="No operation and no sink needs a credential.")
        return
    flaw = private_flaw(folder)
    if flaw is not None:
        yield Finding(check="credentials", ok=False, says=flaw[0], next=flaw[1])
        return
    names = sorted({*named, *(path.name for path in folder.iterdir())})
    ring, broken = None, 0
    with suppress(KeysUnavailable):  # told by the check of the keys
        ring = open_key_ring(known.places.keys)
    read = credential_reader(folder, None if ring is None else lambda: ring, seals=False)
    for name in names:
        try:
            read(name)
        except CredentialSealedError:  # the check of the keys tells why it cannot be opened
            continue
        except CredentialMissingError as fault:
            remedy = f"Write the secret into {folder / name}, a plain file of yours, mode 0600."
            says = f"{fault}.".capitalize()
        except UnicodeDecodeError:
            says, remedy = f"The credential {name} is not text.", f"Write {folder / name} again."
        else:
            continue
        broken += 1
        yield Finding(check="credentials", ok=False, says=says, next=remedy)
    if not broken:
        yield Finding(check="credentials", ok=True, says=f"{len(names)} credentials, each private.")
