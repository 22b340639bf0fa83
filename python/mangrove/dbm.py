"""The protocol of the standard library's dbm modules, over a durable map.

    import mangrove.dbm, shelve

    with shelve.Shelf(mangrove.dbm.open("words.db", "c")) as shelf:
        shelf["mangrove"] = {"elements": 2}
"""

from collections.abc import MutableMapping

from . import Error, Map

__all__ = ["error", "open"]

error = Error

_FLAGS = {
    "r": {"read_only": True},
    "w": {"create": False},
    "c": {"create": True},
    "n": {"create": True},
}


def _encoded(text):
    return text.encode() if isinstance(text, str) else text


class _Database(MutableMapping):
    """Keys and values are bytes; text is encoded as UTF-8, as by the other dbm modules."""

    def __init__(self, map):
        self._map = map

    def __getitem__(self, key):
        return self._map[_encoded(key)]

    def __setitem__(self, key, value):
        self._map[_encoded(key)] = _encoded(value)

    def __delitem__(self, key):
        del self._map[_encoded(key)]

    def __contains__(self, key):
        return _encoded(key) in self._map

    def __iter__(self):
        return iter(self._map)

    def __reversed__(self):
        return reversed(self._map)

    def __len__(self):
        return len(self._map)

    def keys(self):
        """All keys, as a list: so the protocol has it."""
        return list(self._map)

    def get(self, key, default=None):
        return self._map.get(_encoded(key), default)

    def setdefault(self, key, default=b""):
        return self._map.setdefault(_encoded(key), _encoded(default))

    def pop(self, key, *default):
        return self._map.pop(_encoded(key), *default)

    def clear(self):
        self._map.clear()

    def sync(self):
        self._map.sync()

    def close(self):
        self._map.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def open(file, flag="r", mode=0o666, **options):
    """Opens the database at `file`: to read with "r", to write with "w", "c" makes it if it is missing, "n" empties it.

    `mode` is accepted and not used: a pool's files are for their owner and as the umask has it. The other options are
    those of mangrove.Map, as durability.
    """
    if flag not in _FLAGS:
        raise ValueError(f"flag is 'r', 'w', 'c' or 'n', not {flag!r}")
    map = Map(file, **_FLAGS[flag], **options)
    if flag == "n":
        try:
            map.clear()
        except BaseException:
            map.close()
            raise
    return _Database(map)
