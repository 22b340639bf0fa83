"""The exceptions. Each has `path` and `offset`: the file and the byte that it is about, where there is one."""


class Error(Exception):
    """What the map raises, other than KeyError for a key that is not there."""

    path = None
    offset = None

    def __reduce__(self):
        made, arguments, *state = super().__reduce__()
        if getattr(self, "errno", None) is not None:
            # An OSError keeps its number among its arguments alone, and has no other argument here than the message.
            state = [{**(state[0] if state else {}), "errno": self.errno}]
        return (made, arguments, *state)


class PoolBusy(Error):
    """Another process, or another Map of this one, has the pool open."""


class Corruption(Error):
    """The medium returned other bytes than were written: `path` is the file and `offset` the byte."""


class Poisoned(Error):
    """An earlier I/O error ended writing: open the pool again."""


class Full(Error):
    """There is no space: on the disk, in the pool, or within the process's limit of a file's size."""


class Forked(Error):
    """The map was opened by the process from which this one was forked."""


class Closed(Error, ValueError):
    """The map, or the snapshot, was closed."""


class TooLong(Error, ValueError):
    """A key of more than KEY_BYTES_MAX bytes, or a value of more than VALUE_BYTES_MAX."""


class NotFound(Error, FileNotFoundError):
    """There is no pool at the path."""


class Exists(Error, FileExistsError):
    """Something is already at the path."""


class NotAMap(Error):
    """What lies at the path is no pool, no map, or one that a newer version wrote."""


class ReadOnly(Error):
    """The map was opened read-only, or its files cannot be written."""


class Mismatch(Error):
    """A record was not as the batch expected; nothing was changed."""


class SnapshotExpired(Error):
    """Too much changed since the snapshot or the iterator was made: raise `snapshot_bytes_max`."""


class NoMemory(Error, MemoryError):
    """There is no memory for the value, or for the map."""


class InputOutput(Error, OSError):
    """The operating system refused."""
