"""The Python API's way to find an object whose name is not public in the trail. Next: `issuer.api`."""

from issuer import commands
from issuer.handle import Handle
from issuer.wire import Answer


class HashHandle(Handle):
    """One method of a reviewer's seat."""

    def audit_hash(self, resource_type: str, name: bytes | str) -> Answer:
        """Tell the keyed hash under which the object `name` stands in the trail; each ask is on record (AUD-06)."""
        data = name.encode("utf-8", "surrogatepass") if isinstance(name, str) else name
        return self._done("audit-hash", lambda visit: commands.audit_hash(visit, resource_type, data))
