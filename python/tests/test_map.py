"""The map as a mapping, beside a dict that went through the same."""

import errno
import gc
import itertools
import operator
import os
import pickle
import random
import shutil
import signal
import tempfile
import threading
import unittest
import warnings
import weakref
from collections.abc import Mapping, MutableMapping

import mangrove


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.pool = os.path.join(scratch.name, "pool")

    def open(self, **options):
        opened = mangrove.Map(self.pool, **options)
        self.addCleanup(opened.close)
        return opened


class Records(Case):
    def test_what_was_put_is_there_after_reopening(self):
        with mangrove.Map(self.pool) as m:
            m[b"mangrove"] = b"lives in two elements"
            m[b""] = b"the empty key is a key"
            self.assertEqual(m[b"mangrove"], b"lives in two elements")
        with mangrove.Map(self.pool, create=False, read_only=True) as m:
            self.assertEqual(dict(m), {b"": b"the empty key is a key", b"mangrove": b"lives in two elements"})
            with self.assertRaises(mangrove.ReadOnly):
                m[b"x"] = b"y"

    def test_a_reader_sees_one_instant_beside_the_writer(self):
        m = self.open()
        m.update({b"a": b"1", b"b": b"2"})
        with mangrove.Map(self.pool, read_only=True) as beside:
            m[b"c"] = b"3"
            self.assertEqual(dict(beside), {b"a": b"1", b"b": b"2"})
            with self.assertRaises(mangrove.ReadOnly):
                beside[b"d"] = b"4"
        with self.assertRaises(mangrove.PoolBusy):
            mangrove.Map(self.pool)
        with mangrove.Map(self.pool, read_only=True) as beside:
            self.assertEqual(beside[b"c"], b"3")

    def test_is_a_mutable_mapping(self):
        m = self.open()
        self.assertIsInstance(m, MutableMapping)
        self.assertIsInstance(m.snapshot(), Mapping)
        self.assertNotIsInstance(m.snapshot(), MutableMapping)
        self.assertIsInstance(m[b"a":], Mapping)
        self.assertFalse(m)
        m.update({b"a": b"1", b"b": b"2"})
        m.update([(b"c", b"3")])
        self.assertTrue(m)
        self.assertEqual(m, {b"a": b"1", b"b": b"2", b"c": b"3"})
        self.assertEqual(m.keys() & {b"a", b"z"}, {b"a"})
        self.assertIn((b"a", b"1"), m.items())
        self.assertIn(b"3", m.values())
        self.assertNotIn(b"4", m.values())
        self.assertEqual(m.popitem(), (b"c", b"3"))
        self.assertEqual(m.popitem(last=False), (b"a", b"1"))
        m.clear()
        self.assertEqual(len(m), 0)
        with self.assertRaises(KeyError):
            m.popitem()
        with self.assertRaises(TypeError):
            m.update(a=b"1")

    def test_reads_and_removals(self):
        m = self.open()
        m.update({b"a": b"1", b"b": b"2"})
        self.assertEqual(m.get(b"x"), None)
        self.assertEqual(m.get(b"x", 7), 7)
        self.assertEqual(m.get_many([b"b", b"x", b"a"]), [b"2", None, b"1"])
        self.assertEqual(m.pop(b"a"), b"1")
        self.assertEqual(m.pop(b"a", None), None)
        with self.assertRaises(KeyError) as caught:
            m.pop(b"a")
        self.assertEqual(caught.exception.args, (b"a",))
        for missing in (lambda: m[b"a"], lambda: m.__delitem__(b"a")):
            with self.assertRaises(KeyError):
                missing()
        with self.assertRaises(TypeError):
            m.pop(b"a", 1, 2)
        del m[b"b"]
        self.assertNotIn(b"b", m)

    def test_conditional_writes(self):
        m = self.open()
        self.assertEqual(m.setdefault(b"lock", b"me"), b"me")
        self.assertEqual(m.setdefault(b"lock", b"you"), b"me")
        self.assertFalse(m.compare_and_set(b"lock", b"you", None))
        self.assertTrue(m.compare_and_set(b"lock", b"me", b"you"))
        self.assertTrue(m.compare_and_set(b"new", None, b"1"))
        self.assertFalse(m.compare_and_set(b"new", None, b"2"))
        self.assertTrue(m.compare_and_set(b"new", b"1", None))
        self.assertNotIn(b"new", m)

    def test_slices_and_prefixes(self):
        m = self.open()
        m.update({bytes([letter]): b"v" for letter in b"abcdef"})
        self.assertEqual(list(m[b"b":b"d"]), [b"b", b"c"])
        self.assertEqual(list(m[:b"c"].keys()), [b"a", b"b"])
        self.assertEqual(list(reversed(m[b"d":].items())), [(b"f", b"v"), (b"e", b"v"), (b"d", b"v")])
        self.assertEqual(len(m[b"b":b"d"]), 2)
        self.assertEqual(list(m[b"b":][:b"d"]), [b"b", b"c"])
        self.assertEqual(list(m[b"d":b"b"]), [])
        self.assertFalse(m[b"d":b"b"])
        self.assertTrue(m[b"e":])
        self.assertNotIn(b"a", m[b"b":])
        self.assertEqual(m[b"b":].get(b"a", 0), 0)
        self.assertEqual(m[b"b":].get_many([b"a", b"b"]), [None, b"v"])
        with self.assertRaises(KeyError):
            m[b"b":][b"a"]
        with self.assertRaises(ValueError):
            m[b"a":b"c":2]
        with self.assertRaises(TypeError):
            m[b"a":b"c"] = b"x"
        del m[b"b":b"d"]
        self.assertEqual(list(m), [b"a", b"d", b"e", b"f"])
        self.assertEqual(m.delete_range(b"e"), 2)
        m.update({b"l\xff\xff": b"1", b"l": b"2", b"m": b"3", b"\xff\xff": b"4"})
        self.assertEqual(list(m.prefix(b"l")), [b"l", b"l\xff\xff"])
        self.assertEqual(list(m.prefix(b"\xff")), [b"\xff\xff"])
        self.assertEqual(list(m.prefix(b"")), list(m))

    def test_against_a_dict(self):
        seed = int(os.environ.get("MANGROVE_TEST_SEED", "1"))
        chance = random.Random(seed)
        m, model = self.open(durability=1000), {}
        for _ in range(3000):
            key = bytes(chance.choices(b"ab\xff", k=chance.randrange(5)))
            match chance.randrange(6):
                case 0 | 1:
                    value = bytes(chance.randrange(300))
                    m[key], model[key] = value, value
                case 2:
                    self.assertEqual(m.pop(key, None), model.pop(key, None), seed)
                case 3:
                    self.assertEqual(m.setdefault(key, b"d"), model.setdefault(key, b"d"), seed)
                case 4:
                    self.assertEqual(m.get(key), model.get(key), seed)
                case 5:
                    stop = key + b"\xff"
                    expected = sorted(item for item in model.items() if key <= item[0] < stop)
                    self.assertEqual(list(m[key:stop].items()), expected, seed)
                    self.assertEqual(list(reversed(m[key:stop].values())), [v for _, v in reversed(expected)], seed)
        self.assertEqual(list(m.items()), sorted(model.items()), seed)
        self.assertEqual(len(m), len(model), seed)


class Instants(Case):
    def test_a_walk_is_of_one_instant(self):
        m = self.open()
        m.update({b"a": b"1", b"b": b"2"})
        walk = iter(m.items())
        m[b"b"], m[b"c"] = b"3", b"4"
        self.assertEqual(list(walk), [(b"a", b"1"), (b"b", b"2")])
        self.assertEqual(list(walk), [])

    def test_a_snapshot(self):
        m = self.open()
        m[b"leaf"] = b"green"
        with m.snapshot() as s:
            m[b"leaf"] = b"brown"
            del m[b"leaf"]
            m[b"other"] = b"x"
            self.assertEqual(s[b"leaf"], b"green")
            self.assertEqual(dict(s), {b"leaf": b"green"})
            self.assertEqual(dict(s[b"l":]), {b"leaf": b"green"})
            self.assertEqual(s.get_many([b"other", b"leaf"]), [None, b"green"])
            self.assertEqual(len(s), 1)
            with self.assertRaises(TypeError):
                s[b"leaf"] = b"x"
            view = s.prefix(b"")
            self.assertFalse(s.closed)
            self.assertFalse(view.closed)
        self.assertTrue(s.closed)
        self.assertTrue(view.closed)
        self.assertFalse(m.closed)
        with self.assertRaises(mangrove.Closed):
            s[b"leaf"]
        with self.assertRaises(mangrove.Closed):
            list(view)

    def test_a_batch_happens_as_a_whole_or_not_at_all(self):
        m = self.open()
        m[b"mangrove"] = b"1"
        with m.batch() as b:
            b[b"root"] = b"below"
            b[b"root"] = b"deeper"
            del b[b"mangrove"]
            del b[b"never there"]
            self.assertEqual(len(b), 4)
            self.assertIn(b"mangrove", m)
        self.assertEqual(dict(m), {b"root": b"deeper"})
        with self.assertRaises(ZeroDivisionError):
            with m.batch() as b:
                b[b"leaf"] = b"above"
                1 / 0
        with self.assertRaises(mangrove.Mismatch):
            with m.batch() as b:
                b.expect(b"root", b"above")
                b[b"leaf"] = b"above"
        with self.assertRaises(mangrove.TooLong):
            with m.batch() as b:
                b[b"leaf"] = b"above"
                b[bytes(1025)] = b""
        self.assertEqual(dict(m), {b"root": b"deeper"})
        with m.batch() as b:
            b.expect(b"root", b"deeper")
            b.expect(b"leaf", None)
            b[b"leaf"] = b"above"
        self.assertEqual(m[b"leaf"], b"above")

    def test_a_batch_that_was_not_written_can_be_written_again(self):
        m = self.open()
        m[b"root"] = b"below"
        b = m.batch()
        b.expect(b"root", b"above")
        b[b"leaf"] = b"green"
        del b[b"root"]
        for _ in range(2):
            with self.assertRaises(mangrove.Mismatch):
                b.write()
            self.assertEqual(len(b), 2)
        m[b"root"] = b"above"
        b.write()
        self.assertEqual(dict(m), {b"leaf": b"green"})
        self.assertEqual(len(b), 0)
        b.write()
        self.assertEqual(dict(m), {b"leaf": b"green"})

    def test_a_batch_that_is_too_large_to_be_kept_says_so(self):
        m = self.open()
        b = m.batch()
        b.expect(b"root", b"above")
        for number in range(5):
            b[b"%d" % number] = bytes(4 << 20)
        with self.assertRaises(mangrove.Mismatch):
            b.write()
        m[b"root"] = b"above"
        for _ in range(2):
            with self.assertRaisesRegex(mangrove.Error, "clear the batch"):
                b.write()
        self.assertEqual(len(m), 1)
        b.clear()
        b[b"leaf"] = b"green"
        b.write()
        self.assertEqual(m[b"leaf"], b"green")

    def test_a_backup(self):
        m = self.open()
        m.update({b"%d" % i: b"v" for i in range(10_000)})
        copy = self.pool + ".copy"
        self.assertEqual(m.backup(copy), 10_000)
        with self.assertRaises(mangrove.Exists):
            m.backup(copy)
        with mangrove.Map(copy, create=False) as other:
            self.assertEqual(other, m)

    def test_without_waiting(self):
        with mangrove.Map(self.pool) as m:
            for number in range(1000):
                m.put_nowait(b"%d" % number, b"v")
            self.assertTrue(m.delete_nowait(b"1"))
            self.assertFalse(m.delete_nowait(b"1"))
            self.assertEqual(len(m), 999)
            self.assertEqual(m[b"2"], b"v")
            m.sync()
        with mangrove.Map(self.pool) as m:
            self.assertEqual(len(m), 999)


class Loads(Case):
    def nothing_is_there(self):
        self.assertEqual(os.listdir(os.path.dirname(self.pool)), [])

    def test_what_was_loaded_is_there(self):
        expected = {b"%08x" % (i * 0x9E3779B1 % 2**32): b"%d" % i * (i % 40) for i in range(50_000)}
        caller, threads = threading.get_ident(), set()

        def records():
            for record in expected.items():
                threads.add(threading.get_ident())
                yield record
            yield bytearray(b"tide"), memoryview(b"low")
            yield b"tide", b"high"

        self.assertEqual(mangrove.Map.load(self.pool, records()), 50_001)
        self.assertEqual(threads, {caller})
        with mangrove.Map(self.pool, create=False) as m:
            self.assertEqual(m.pop(b"tide"), b"high")
            self.assertEqual(m, expected)
        with self.assertRaises(mangrove.Exists):
            mangrove.Map.load(self.pool, expected)
        self.assertEqual(mangrove.Map.load(self.pool + ".copy", expected, capacity=1 << 28), 50_000)
        self.assertEqual(mangrove.Map.load(self.pool + ".empty", {}), 0)
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.pool))), ["pool", "pool.copy", "pool.empty"])

    def test_a_load_that_fails_leaves_nothing(self):
        def ends_with(error, value=b"v" * 100):
            for number in range(30_000):
                yield b"%d" % number, value
            if error is not None:
                raise error

        for error in KeyboardInterrupt(), RuntimeError("planted"):
            with self.assertRaises(type(error)):
                mangrove.Map.load(self.pool, ends_with(error))
            self.nothing_is_there()
        for records, wrong in (
            ([(b"a", b"b"), ("text", b"b")], TypeError),
            ([(b"a", b"b"), (b"alone",)], ValueError),
            ([(b"a", b"b"), 5], TypeError),
            (5, TypeError),
            ([(b"k" * 1025, b"v")], mangrove.TooLong),
        ):
            with self.assertRaises(wrong):
                mangrove.Map.load(self.pool, records)
            self.nothing_is_there()

        # The thread that puts fails first: the iterator is not walked to its end.
        def endless():
            yield b"k" * 1025, b"v"
            while True:
                yield b"key", b"v" * 1000

        with self.assertRaises(mangrove.TooLong):
            mangrove.Map.load(self.pool, endless())
        self.nothing_is_there()
        with mangrove.Map(self.pool) as m:
            self.assertEqual(len(m), 0)

    def test_a_load_of_records_without_bytes_looks_for_signals(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        # An iterator that runs no byte code, at which Python would look for signals.
        records = itertools.repeat((b"", b""), 50_000_000)
        with self.assertRaises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            mangrove.Map.load(self.pool, records)
        self.assertGreater(operator.length_hint(records), 0)
        self.nothing_is_there()

    def test_a_load_whose_iterator_forks(self):
        for records_after, ends_with in (100_000, None), (0, None), (0, RuntimeError("of the child")):
            parent, child = os.getpid(), None

            def records():
                nonlocal child
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)
                    child = os.fork()
                if not child:
                    # Ends a child that waits for ever.
                    signal.alarm(120)
                    if ends_with is not None:
                        raise ends_with
                for number in range(records_after):
                    yield b"%d" % number, bytes(100)

            expected = mangrove.Forked if ends_with is None else RuntimeError
            try:
                count = mangrove.Map.load(self.pool, records())
            except BaseException as error:
                if os.getpid() == parent:
                    raise
                os._exit(0 if isinstance(error, expected) else 1)
            if os.getpid() != parent:
                os._exit(2)
            self.assertEqual((os.waitpid(child, 0)[1], count), (0, records_after))
            shutil.rmtree(self.pool)


class BadInput(Case):
    def test_text_is_no_bytes(self):
        m = self.open()
        for wrong in (
            lambda: m["a"],
            lambda: m.get("a"),
            lambda: "a" in m,
            lambda: m.__setitem__(b"a", "text"),
            lambda: m.__setitem__("a", b"bytes"),
            lambda: m.__setitem__(b"a", 7),
            lambda: m.__setitem__(b"a", None),
            lambda: m.__delitem__("a"),
            lambda: m["a":],
            lambda: m.get_many(["a"]),
            lambda: m.get_many(7),
            lambda: m.setdefault(b"a", "text"),
            lambda: m.compare_and_set(b"a", "x", None),
            lambda: m.update({"a": b"x"}),
            lambda: mangrove.Map(7),
        ):
            with self.assertRaises(TypeError):
                wrong()
        self.assertEqual(len(m), 0)

    def test_other_kinds_of_bytes(self):
        m = self.open()
        value = bytearray(b"1")
        m[bytearray(b"a")] = value
        value[:] = b"2"
        m[memoryview(b"xbx")[1:2]] = memoryview(b"123")[::2]
        self.assertEqual(dict(m), {b"a": b"1", b"b": b"13"})

    def test_what_is_too_long(self):
        m = self.open()
        m[bytes(1024)] = b"longest"
        for call in (lambda: m.__setitem__(bytes(1025), b""), lambda: m[bytes(1025)], lambda: bytes(1025) in m):
            with self.assertRaises(mangrove.TooLong):
                call()
        with self.assertRaises(ValueError):
            m[b"k"] = bytes(mangrove.VALUE_BYTES_MAX + 1)
        self.assertEqual(len(m), 1)

    def is_whole_when_pickled(self, error):
        again = pickle.loads(pickle.dumps(error))
        self.assertIs(type(again), type(error))
        self.assertEqual(str(again), str(error))
        for name in ("args", "path", "offset", "errno"):
            self.assertEqual(getattr(again, name, None), getattr(error, name, None), name)

    def test_how_it_is_opened(self):
        with self.assertRaises(mangrove.NotFound) as caught:
            mangrove.Map(self.pool, create=False)
        self.assertIsInstance(caught.exception, FileNotFoundError)
        self.assertEqual(os.fspath(caught.exception.path), self.pool)
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertEqual(str(caught.exception), f"there is no pool at {self.pool}")
        self.is_whole_when_pickled(caught.exception)
        self.assertFalse(os.path.exists(self.pool))
        for options in ({"durability": 0}, {"durability": "never"}, {"durability": 60_001}, {"durability": True}, {"create": "old"}, {"create": "new", "read_only": True}, {"capacity": 0}):
            with self.assertRaises(ValueError):
                mangrove.Map(self.pool, **options)
        for wrong in (lambda: mangrove.Map(""), lambda: mangrove.Map.load(self.pool, [], capacity=4096)):
            with self.assertRaises(ValueError):
                wrong()
        self.assertFalse(os.path.exists(self.pool))
        m = self.open(create="new")
        with self.assertRaises(mangrove.PoolBusy) as caught:
            mangrove.Map(self.pool)
        self.is_whole_when_pickled(caught.exception)
        m.close()
        with self.assertRaises(mangrove.Exists) as caught:
            mangrove.Map(self.pool, create="new")
        self.assertEqual(caught.exception.errno, errno.EEXIST)
        with open(self.pool + ".other", "w") as other:
            other.write("no pool")
        with self.assertRaises(mangrove.Error):
            mangrove.Map(self.pool + ".other")
        with self.assertRaises(mangrove.InputOutput) as caught:
            mangrove.Map(os.path.join(self.pool + ".other", "below"))
        self.assertEqual(caught.exception.errno, errno.ENOTDIR)
        self.assertTrue(str(caught.exception).startswith("cannot "), caught.exception)

    def test_a_walk_whose_snapshot_expired_does_not_look_whole(self):
        m = self.open(snapshot_bytes_max=50_000, durability=100)
        m.update((b"%03d" % i, b"v" * 500) for i in range(600))
        walk = iter(m.items())
        next(walk)
        for i in range(600):
            m[b"%03d" % i] = b"w" * 500
        with self.assertRaises(mangrove.SnapshotExpired):
            list(walk)
        for _ in range(3):
            with self.assertRaises(mangrove.SnapshotExpired):
                list(walk)

    def test_damage_is_told_with_its_place(self):
        with mangrove.Map(self.pool) as m:
            m.update({b"%d" % i: b"v" * 1000 for i in range(100)})
        image = os.path.join(self.pool, "image")
        with open(image, "r+b") as file:
            file.seek(1 << 14)
            bytes_there = file.read(1 << 16)
            file.seek(1 << 14)
            file.write(bytes(byte ^ 0x55 for byte in bytes_there))
        with self.assertRaises(mangrove.Corruption) as caught:
            with mangrove.Map(self.pool) as m:
                list(m.items())
        self.assertEqual(os.fspath(caught.exception.path), image)
        self.assertIsInstance(caught.exception.offset, int)

    def test_a_pool_that_is_full(self):
        m = self.open(capacity=8 << 20)
        with self.assertRaises(mangrove.Full):
            for number in range(100):
                m[b"%d" % number] = bytes(1 << 20)
        m[b"0"] = b"small"
        del m[:]
        m[b"1"] = bytes(1 << 20)


class Closing(Case):
    def test_closing_ends_what_is_alive(self):
        m = self.open()
        m.update({b"%d" % i: b"v" for i in range(100)})
        walk, other, snapshot, batch = iter(m), iter(m.items()), m.snapshot(), m.batch()
        next(walk)
        of_snapshot = iter(snapshot)
        m.close()
        m.close()
        self.assertTrue(m.closed)
        for use in (
            lambda: next(walk),
            lambda: next(other),
            lambda: next(of_snapshot),
            lambda: snapshot[b"1"],
            lambda: m[b"1"],
            lambda: len(m),
            lambda: m.__setitem__(b"1", b"v"),
            lambda: iter(m),
            lambda: m.snapshot(),
            lambda: m.sync(),
            lambda: batch.__exit__(None, None, None),
        ):
            with self.assertRaises(mangrove.Closed):
                use()
        # It is closed: another can open it while the old objects are alive.
        with mangrove.Map(self.pool) as again:
            self.assertEqual(len(again), 100)

    def test_a_map_that_nobody_closes_is_closed_when_it_goes(self):
        m = mangrove.Map(self.pool)
        m[b"a"] = b"1"
        gone = weakref.ref(m)
        walk = iter(m.items())
        del m
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(list(walk), [(b"a", b"1")])
        del walk
        with mangrove.Map(self.pool) as m:
            self.assertEqual(m[b"a"], b"1")

    def test_closing_under_threads(self):
        m = self.open()
        m.update({b"%d" % i: b"v" for i in range(1000)})
        ended, errors = [], []

        def work(number):
            written = 0
            try:
                while True:
                    m[b"%d" % number] = b"x"
                    written += 1
                    for _ in m.items():
                        pass
                    m.get(b"7")
            except mangrove.Closed:
                ended.append(written)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        threading.Event().wait(0.3)
        m.close()
        for thread in threads:
            thread.join(10)
        self.assertEqual(errors, [])
        self.assertEqual(len(ended), 8)
        with mangrove.Map(self.pool) as m:
            self.assertEqual(len(m), 1000)


class Threads(Case):
    def test_other_threads_run_while_one_waits(self):
        m, numbers = self.open(), range(8)

        def work(number):
            for one in range(200):
                m[b"%d/%d" % (number, one)] = b"%d" % one

        threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(m), 8 * 200)
        for number in numbers:
            self.assertEqual(m[b"%d/199" % number], b"199")


if __name__ == "__main__":
    unittest.main()
