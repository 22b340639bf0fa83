"""One subject of `mangrove bench python`, in a process of its own: python driver.py SUBJECT FOLDER SETTINGS.

SETTINGS is JSON. Each measurement prints one line: section, what, threads and operations a second, with tabs between.
Every result is looked at; a wrong one ends the process. --version prints which package is measured."""

import itertools
import json
import os
import random
import shutil
import sys
import threading
import time

KEY_BYTES = 16
VALUE_BYTES = 100
BATCH_RECORDS = 1_000
GET_MANY = 100
LMDB_MAP_BYTES = 16 << 30
LEVELDB_CACHE_BYTES = 512 << 20


class Mangrove:
    """Our package. Unsynced: durable after 100 ms at most."""

    def __init__(self, path, synced):
        import mangrove

        self.map = mangrove.Map(path, durability="sync" if synced else 100)
        self.put = self.map.__setitem__
        self.get = self.map.get

    def batch(self, records):
        with self.map.batch() as batch:
            for key, value in records:
                batch[key] = value

    def reader(self):
        return self.map.get

    def many_reader(self):
        return self.map.get_many

    def scan(self):
        return iter(self.map.items())

    def close(self):
        self.map.close()

    @staticmethod
    def version():
        import mangrove

        return f"mangrove-db {mangrove.__version__}"


class Plyvel:
    """LevelDB, with a cache that holds everything and a Bloom filter."""

    def __init__(self, path, synced):
        import plyvel

        self.db = plyvel.DB(
            path, create_if_missing=True, lru_cache_size=LEVELDB_CACHE_BYTES, bloom_filter_bits=10
        )
        self.synced = synced
        self.get = self.db.get

    def put(self, key, value):
        self.db.put(key, value, sync=self.synced)

    def batch(self, records):
        with self.db.write_batch(sync=self.synced) as batch:
            for key, value in records:
                batch.put(key, value)

    def reader(self):
        return self.db.get

    def many_reader(self):
        get = self.db.get
        return lambda keys: [get(key) for key in keys]

    def scan(self):
        return iter(self.db)

    def close(self):
        self.db.close()

    @staticmethod
    def version():
        import plyvel

        return f"plyvel {plyvel.__version__} with LevelDB {plyvel.__leveldb_version__}"


class Lmdb:
    """A transaction a put. Reads go through one transaction, which is the fastest that LMDB has."""

    def __init__(self, path, synced):
        import lmdb

        self.env = lmdb.open(path, map_size=LMDB_MAP_BYTES, sync=synced, max_spare_txns=64)
        self.reading = None

    def put(self, key, value):
        with self.env.begin(write=True) as txn:
            txn.put(key, value)

    def get(self, key):
        with self.env.begin() as txn:
            return txn.get(key)

    def batch(self, records):
        with self.env.begin(write=True) as txn:
            for key, value in records:
                txn.put(key, value)

    def reader(self):
        self.reading = self.env.begin()
        return self.reading.get

    def many_reader(self):
        self.reading = self.env.begin()
        cursor = self.reading.cursor()

        def get_many(keys):
            found = dict(cursor.getmulti(keys))
            return [found.get(key) for key in keys]

        return get_many

    def scan(self):
        self.reading = self.env.begin()
        return iter(self.reading.cursor())

    def close(self):
        # A transaction that reads ends with what it lent.
        self.reading = None
        self.env.close()

    @staticmethod
    def version():
        import lmdb

        return f"lmdb {lmdb.__version__} with LMDB {'.'.join(map(str, lmdb.version()))}"


SUBJECTS = {"Mangrove": Mangrove, "plyvel": Plyvel, "lmdb": Lmdb}


def wrong(what):
    raise SystemExit(f"{what} is wrong")


class Round:
    """All measurements of one subject, once."""

    def __init__(self, subject, folder, settings):
        self.subject = subject
        self.folder = folder
        self.seconds = settings["seconds"]
        self.threads = settings["threads"]
        self.only = settings["only"]
        self.random = random.Random(1)
        count = settings["records"]
        # 16 hexadecimal digits in no order.
        self.keys = [b"%016x" % key for key in self.random.sample(range((1 << 63) - 1), count)]
        self.value = self.random.randbytes(VALUE_BYTES)

    def wanted(self, section):
        return not self.only or section in self.only

    def fresh(self, synced):
        path = os.path.join(self.folder, "db")
        if os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.exists(path):
            os.remove(path)
        os.sync()
        return self.subject(path, synced)

    @staticmethod
    def say(section, what, threads, rate):
        print(section, what, threads, rate, sep="\t", flush=True)

    def puts(self, db, threads):
        """Puts a second of `threads` threads, each with its own share of the keys."""
        done = [0] * threads
        failed = []
        stop = False
        begin = threading.Barrier(threads + 1)

        def work(number):
            value = self.value
            put = db.put
            begin.wait()
            count = 0
            try:
                for key in itertools.cycle(self.keys[number::threads]):
                    if stop:
                        break
                    put(key, value)
                    count += 1
            except BaseException as error:
                failed.append(error)
            done[number] = count

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        begin.wait()
        start = time.perf_counter()
        time.sleep(self.seconds)
        stop = True
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - start
        if failed:
            raise failed[0]
        for number in range(threads):
            share = self.keys[number::threads]
            if done[number] and db.get(share[min(done[number], len(share)) - 1]) != self.value:
                wrong("the last record that a thread put")
        return sum(done) / seconds

    def writing(self):
        for threads in self.threads:
            db = self.fresh(synced=True)
            self.say("writing", "put, synced", threads, self.puts(db, threads))
            db.close()
        db = self.fresh(synced=False)
        self.say("writing", "put, not synced", 1, self.puts(db, 1))
        db.close()
        db = self.fresh(synced=True)
        records = [(key, self.value) for key in self.keys]
        count = 0
        start = time.perf_counter()
        while time.perf_counter() - start < self.seconds:
            at = count % len(records)
            part = records[at : at + BATCH_RECORDS]
            db.batch(part)
            count += len(part)
        seconds = time.perf_counter() - start
        if db.get(part[-1][0]) != self.value:
            wrong("the last record of a batch")
        self.say("writing", f"batch of {BATCH_RECORDS:,}, synced, records", 1, count / seconds)
        db.close()

    def load(self):
        db = self.fresh(synced=False)
        for at in range(0, len(self.keys), BATCH_RECORDS):
            db.batch([(key, key + self.value) for key in self.keys[at : at + BATCH_RECORDS]])
        return db

    def reading(self):
        db = self.load()
        asked = self.random.sample(self.keys, len(self.keys))
        # Once without the clock, so that caches are as warm as they get.
        for _ in db.scan():
            pass

        get = db.reader()
        value_bytes = KEY_BYTES + VALUE_BYTES
        start = time.perf_counter()
        for key in asked:
            if len(get(key)) != value_bytes:
                wrong("the length of a value")
        self.say("reading", "get", 1, len(asked) / (time.perf_counter() - start))
        for key in asked[:1000]:
            if get(key) != key + self.value:
                wrong("a value")
        if get(b"absent") is not None:
            wrong("a value of a key that was never put")
        del get

        parts = [asked[at : at + GET_MANY] for at in range(0, len(asked), GET_MANY)]
        get_many = db.many_reader()
        count = 0
        start = time.perf_counter()
        for part in parts:
            values = get_many(part)
            if values[-1] is None:
                wrong("a value among many")
            count += len(values)
        self.say("reading", f"get, {GET_MANY} at a time", 1, count / (time.perf_counter() - start))
        if values != [key + self.value for key in part]:
            wrong("what was got at once")
        del get_many

        count = 0
        start = time.perf_counter()
        for key, value in db.scan():
            count += 1
        self.say("reading", "scan, records", 1, count / (time.perf_counter() - start))
        if count != len(self.keys) or key != max(self.keys) or value != key + self.value:
            wrong("a scan")
        db.close()

    def run(self):
        for section in ("writing", "reading"):
            if self.wanted(section):
                getattr(self, section)()


def main():
    subject = SUBJECTS[sys.argv[1]]
    if sys.argv[2] == "--version":
        print(subject.version())
        return
    Round(subject, sys.argv[2], json.loads(sys.argv[3])).run()


if __name__ == "__main__":
    main()
