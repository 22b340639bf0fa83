"""A durable dictionary: an ordered map of bytes that survives crashes.

    import mangrove

    with mangrove.Map("words.pool") as m:
        m[b"mangrove"] = b"lives in two elements"   # durable when the line is done

docs/python.md is the page about it.
"""

from collections.abc import Mapping, MutableMapping

from . import _native
from ._errors import (
    Closed,
    Corruption,
    Error,
    Exists,
    Forked,
    Full,
    InputOutput,
    Mismatch,
    NoMemory,
    NotAMap,
    NotFound,
    Poisoned,
    PoolBusy,
    ReadOnly,
    SnapshotExpired,
    TooLong,
)
from ._native import KEY_BYTES_MAX, VALUE_BYTES_MAX, Batch
from ._views import Views

__version__ = _native.VERSION

__all__ = [
    "Batch",
    "Closed",
    "Corruption",
    "Error",
    "Exists",
    "Forked",
    "Full",
    "InputOutput",
    "KEY_BYTES_MAX",
    "Map",
    "Mismatch",
    "NoMemory",
    "NotAMap",
    "NotFound",
    "Poisoned",
    "PoolBusy",
    "Range",
    "ReadOnly",
    "Snapshot",
    "SnapshotExpired",
    "TooLong",
    "VALUE_BYTES_MAX",
]


class Range(_native.Range, Views, Mapping):
    """The records of a map or a snapshot between two keys: a view, which holds no records."""

    __slots__ = ()
    __hash__ = None


class Snapshot(_native.Snapshot, Views, Mapping):
    """One instant of a map, to read from while the map changes."""

    __slots__ = ()
    __hash__ = None


def _pairs(records):
    """The (key, value) pairs of a mapping, or of an iterable of them."""
    if isinstance(records, Mapping):
        return records.items()
    if hasattr(records, "keys"):
        return ((key, records[key]) for key in records.keys())
    return records


class Map(_native.Map, Views, MutableMapping):
    """A durable ordered map from bytes to bytes, in the pool at `path`."""

    __slots__ = ("__weakref__",)
    __hash__ = None

    @staticmethod
    def load(path, records, *, capacity=None, memory_bytes_max=None):
        """Makes a new map at `path` with all the records of a mapping or of (key, value) pairs; returns how many.

        It appears whole and durable, or not at all. It is written without a log, faster than an open map is.
        """
        return _native.load(path, _pairs(records), capacity=capacity, memory_bytes_max=memory_bytes_max)

    def snapshot(self):
        """This instant, as a mapping that cannot be changed."""
        return Snapshot(self)

    def batch(self):
        """Collects writes; when its `with` block ends, all of them happen or none."""
        return Batch(self)

    def update(self, other=(), /, **no_names):
        """Sets all the records of a mapping or of (key, value) pairs, as one batch."""
        if no_names:
            raise TypeError("keys are bytes, and the names of keyword arguments are not")
        with self.batch() as batch:
            for key, value in _pairs(other):
                batch[key] = value

    def popitem(self, last=True):
        """Removes the record with the greatest key, or with the least, and returns it."""
        missing = object()
        while True:
            for key in reversed(self) if last else self:
                break
            else:
                raise KeyError("the map is empty")
            value = self.pop(key, missing)
            if value is not missing:
                return key, value
