"""mangrove.dbm, and shelve over it."""

import os
import shelve
import unittest

import mangrove
import mangrove.dbm
from test_map import Case


def tree(folder):
    """Every file below a directory, with its bytes and times."""
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            file = os.path.join(path, name)
            with open(file, "rb") as opened:
                found[file] = opened.read(), os.stat(file).st_mtime_ns
    return found


class Dbm(Case):
    def test_flags(self):
        for flag in "rw":
            with self.assertRaises(mangrove.dbm.error):
                mangrove.dbm.open(self.pool, flag)
        self.assertFalse(os.path.exists(self.pool))
        for flag in ("x", "", "rw", "cf", None):
            with self.assertRaises(ValueError):
                mangrove.dbm.open(self.pool, flag)
        with mangrove.dbm.open(self.pool, "c") as db:
            db["text"] = "täxt"
            db[b"bytes"] = b"1"
            self.assertEqual(db["text"], "täxt".encode())
            self.assertEqual(db.keys(), [b"bytes", b"text"])
            self.assertIn("bytes", db)
            self.assertEqual(db.get("x"), None)
            self.assertEqual(db.setdefault("bytes", "2"), b"1")
        with mangrove.dbm.open(self.pool, "w") as db:
            self.assertEqual(len(db), 2)
            del db["text"]
            with self.assertRaises(KeyError):
                del db["text"]
        with mangrove.dbm.open(self.pool, "n", 0o600) as db:
            self.assertEqual(len(db), 0)
            db["a"] = "1"
        with mangrove.dbm.open(self.pool, "c") as db:
            self.assertEqual(dict(db), {b"a": b"1"})

    def test_to_read_writes_nothing(self):
        with mangrove.dbm.open(self.pool, "c") as db:
            db["a"] = "1"
        before = tree(self.pool)
        with mangrove.dbm.open(self.pool) as db:
            self.assertEqual(db["a"], b"1")
            for change in (lambda: db.__setitem__("a", "2"), lambda: db.__delitem__("a"), lambda: db.clear()):
                with self.assertRaises(mangrove.dbm.error):
                    change()
        self.assertEqual(tree(self.pool), before)

    def test_shelve(self):
        with shelve.Shelf(mangrove.dbm.open(self.pool, "c")) as shelf:
            shelf["mangrove"] = {"elements": 2}
            shelf["list"] = [1, 2]
            shelf.sync()
        with shelve.Shelf(mangrove.dbm.open(self.pool), writeback=False) as shelf:
            self.assertEqual(shelf["mangrove"], {"elements": 2})
            self.assertEqual(sorted(shelf), ["list", "mangrove"])
        with shelve.Shelf(mangrove.dbm.open(self.pool, "w"), writeback=True) as shelf:
            shelf["list"].append(3)
            del shelf["mangrove"]
        with shelve.Shelf(mangrove.dbm.open(self.pool)) as shelf:
            self.assertEqual(dict(shelf), {"list": [1, 2, 3]})


if __name__ == "__main__":
    unittest.main()
