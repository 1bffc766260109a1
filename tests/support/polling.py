"""Waiting for a descriptor of any number: `select` knows none above 1,023, and a long run has more open."""

import select


def readable(descriptor: int, seconds: float) -> bool:
    """Say whether something can be read, or the other end is gone, within `seconds`."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(max(0.0, seconds) * 1000))
