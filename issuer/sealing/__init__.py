"""Keys, sealed permits, signatures, commitments and protected content: the only door to `cryptography`.

Random bytes, nonces, salts, ids and times come in as arguments. Nothing here reads a clock or a random
source, and nothing here decides whether a permit is alive, spent or allowed.
"""

from issuer.sealing.checkpoint_key import checkpoint_public_key, sign_checkpoint
from issuer.sealing.commitment import CONTENT_KEY_PARTS, commit, content_key, verify
from issuer.sealing.credential import (
    credential_key_id,
    is_sealed_credential,
    open_credential,
    seal_credential,
)
from issuer.sealing.ed25519 import is_ed25519_signature
from issuer.sealing.errors import (
    CommitmentBroken,
    KeyForbids,
    KeysUnavailable,
    KeyUnusable,
    ProtectedContentDiffers,
    ProtectedContentMissing,
    ProtectedContentTooLarge,
    ProtectedStoreFull,
    ProtectedStoreUnavailable,
    SealBroken,
    StorageFault,
)
from issuer.sealing.keys import (
    KeyRing,
    KeyState,
    Purpose,
    bind_key_ring,
    create_key_ring,
    open_key_ring,
)
from issuer.sealing.protected import ProtectedStore, create_protected_folder
from issuer.sealing.ring_changes import begin_revocation, end_revocation, retire_key, rotate_key
from issuer.sealing.roots import may
from issuer.sealing.seal import NONCE_BYTES, PermitClaims, open_permit, permit_says, seal_key_id, seal_permit
from issuer.sealing.ssh_signature import (
    NAMESPACE,
    SignatureRefused,
    SshKey,
    SshKeyRefused,
    read_public_keys,
    signer_of,
)

__all__ = [
    "CONTENT_KEY_PARTS",
    "NAMESPACE",
    "NONCE_BYTES",
    "CommitmentBroken",
    "KeyForbids",
    "KeyRing",
    "KeyState",
    "KeyUnusable",
    "KeysUnavailable",
    "PermitClaims",
    "ProtectedContentDiffers",
    "ProtectedContentMissing",
    "ProtectedContentTooLarge",
    "ProtectedStore",
    "ProtectedStoreFull",
    "ProtectedStoreUnavailable",
    "Purpose",
    "SealBroken",
    "SignatureRefused",
    "SshKey",
    "SshKeyRefused",
    "StorageFault",
    "begin_revocation",
    "bind_key_ring",
    "checkpoint_public_key",
    "commit",
    "content_key",
    "create_key_ring",
    "create_protected_folder",
    "credential_key_id",
    "end_revocation",
    "is_ed25519_signature",
    "is_sealed_credential",
    "may",
    "open_credential",
    "open_key_ring",
    "open_permit",
    "permit_says",
    "read_public_keys",
    "retire_key",
    "rotate_key",
    "seal_credential",
    "seal_key_id",
    "seal_permit",
    "sign_checkpoint",
    "signer_of",
    "verify",
]
