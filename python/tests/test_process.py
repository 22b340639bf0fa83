"""Processes: killed, interrupted, forked, ended with the map open."""

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest

import mangrove
from test_map import Case


# What every program that a test runs has: strace, attached to each of its threads, that changes these system calls.
TRACE = """
def trace(calls, change):
    import glob, os, pathlib, subprocess, time
    tracer = subprocess.Popen(
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={calls}",
         "-e", f"inject={calls}:{change}", "-p", str(os.getpid())])
    while any("TracerPid:\\t0\\n" in pathlib.Path(status).read_text()
              for status in glob.glob("/proc/self/task/*/status")):
        time.sleep(0.05)
    return tracer
"""


def python(text, *arguments, **options):
    command = [sys.executable, "-X", "faulthandler", "-c", TRACE + textwrap.dedent(text), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def use_what_the_parent_opened(m, walk, snapshot, report):
    uses = {
        "get": lambda: m[b"a"],
        "put": lambda: m.__setitem__(b"a", b"child"),
        "nowait": lambda: m.put_nowait(b"a", b"child"),
        "len": lambda: len(m),
        "iter": lambda: iter(m),
        "next": lambda: next(walk),
        "snapshot": lambda: m.snapshot(),
        "of snapshot": lambda: snapshot[b"a"],
        "sync": lambda: m.sync(),
    }
    for name, use in uses.items():
        try:
            use()
            report.put((name, "nothing was raised"))
        except mangrove.Forked:
            report.put((name, "Forked"))
        except BaseException as error:
            report.put((name, repr(error)))
    m.close()
    with mangrove.Map(m.path.parent / "of child") as own:
        own[b"x"] = b"y"
        report.put(("own", own[b"x"].decode()))


class Fork(Case):
    def test_a_child_of_fork_gets_an_exception_and_the_parent_goes_on(self):
        context = multiprocessing.get_context("fork")
        m = self.open()
        m.update({b"a": b"parent", b"b": b"2"})
        m[b"helper"] = b"is there"
        report = context.SimpleQueue()
        child = context.Process(target=use_what_the_parent_opened, args=(m, iter(m), m.snapshot(), report))
        child.start()
        child.join(20)
        self.assertEqual(child.exitcode, 0)
        told = {}
        while not report.empty():
            name, what = report.get()
            told[name] = what
        self.assertEqual(told.pop("own"), "y")
        self.assertEqual(set(told.values()), {"Forked"}, told)
        self.assertEqual(len(told), 9)
        m[b"a"] = b"after"
        self.assertEqual(m[b"a"], b"after")

    def test_a_child_of_fork_is_told_so_also_beside_writers(self):
        m = self.open()
        done = threading.Event()

        def write(name):
            while not done.is_set():
                m[name] = b"value"

        writers = [threading.Thread(target=write, args=(b"%d" % number,)) for number in range(4)]
        for writer in writers:
            writer.start()
        hung = 0
        for _ in range(100):
            child = os.fork()
            if child == 0:
                signal.alarm(10)
                try:
                    m[b"child"] = b"value"
                except mangrove.Forked:
                    os._exit(0)
                os._exit(1)
            _, status = os.waitpid(child, 0)
            hung += status != 0
        done.set()
        for writer in writers:
            writer.join()
        self.assertEqual(hung, 0)

    def test_a_map_is_not_pickled(self):
        with self.assertRaises(TypeError):
            multiprocessing.reduction.ForkingPickler.dumps(self.open())


class Ends(Case):
    def test_killed_in_the_middle_of_puts(self):
        child = python(
            """
            import mangrove, sys
            m = mangrove.Map(sys.argv[1])
            for number in range(1_000_000):
                m[b"%07d" % number] = b"%d" % number
                print(number, flush=True)
            """,
            self.pool,
        )
        for _ in range(300):
            child.stdout.readline()
        child.kill()
        # Not communicate(), which leaves out the lines that were read ahead.
        rest = child.stdout.read()
        child.communicate()
        acknowledged = 300 + rest.count("\n")
        with mangrove.Map(self.pool, create=False) as m:
            self.assertIn(len(m), (acknowledged, acknowledged + 1))
            self.assertEqual([int(value) for value in m.values()], list(range(len(m))))

    def test_ended_with_the_map_open(self):
        child = python(
            """
            import mangrove, sys, threading
            m = mangrove.Map(sys.argv[1])
            m[b"a"] = b"1"
            m.put_nowait(b"b", b"2")
            walk, snapshot = iter(m), m.snapshot()
            cycle = [m, walk]
            cycle.append(cycle)
            threading.Thread(target=lambda: [m.__setitem__(b"c", b"3") for _ in range(10_000)], daemon=True).start()
            """,
            self.pool,
        )
        out, errors = child.communicate(timeout=30)
        self.assertEqual((child.returncode, out, errors), (0, "", ""))
        with mangrove.Map(self.pool) as m:
            self.assertEqual((m[b"a"], m[b"b"]), (b"1", b"2"))

    def test_a_subinterpreter_is_refused(self):
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        other = interpreters.create()
        self.addCleanup(interpreters.destroy, other)

        def told(text):
            # Up to Python 3.12 an exception of the other interpreter is raised here; then it is returned.
            try:
                ended = interpreters.run_string(other, text)
            except interpreters.RunFailedError as error:
                return str(error)
            return "nothing was raised" if ended is None else ended.formatted

        self.assertEqual(told("import json"), "nothing was raised")
        self.assertIn("ImportError", told("import mangrove"))


def strace():
    """Whether strace can trace here."""
    try:
        return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"]).returncode == 0
    except FileNotFoundError:
        return False


class Broken(Case):
    def test_a_device_that_fails_ends_writing_with_poisoned(self):
        # strace answers every write to the log with an I/O error.
        if not strace():
            self.skipTest("strace cannot trace here")
        child = python(
            """
            import mangrove, sys

            def told(name, use):
                try:
                    print(name, use())
                except mangrove.Error as error:
                    print(name, type(error).__name__)

            m = mangrove.Map(sys.argv[1])
            m[b"before"] = b"1"
            tracer = trace("pwrite64,pwritev,pwritev2,fdatasync,fsync", "error=EIO")
            told("first", lambda: m.__setitem__(b"during", b"2"))
            told("second", lambda: m.__setitem__(b"after", b"3"))
            told("batch", lambda: m.update({b"after": b"3"}))
            told("sync", lambda: m.sync())
            told("read", lambda: m[b"before"])
            told("close", lambda: m.close())
            tracer.terminate()
            tracer.wait()
            """,
            self.pool,
        )
        out, errors = child.communicate(timeout=60)
        self.assertEqual((child.returncode, errors), (0, ""), out)
        said = dict(line.split(" ", 1) for line in out.splitlines())
        self.assertEqual(said.pop("read"), "b'1'")
        self.assertEqual(said, dict.fromkeys(["first", "second", "batch", "sync", "close"], "Poisoned"))
        # Opened again, it has what was acknowledged.
        with mangrove.Map(self.pool) as m:
            self.assertEqual(dict(m), {b"before": b"1"})
            m[b"after"] = b"3"


class Interrupted(Case):
    """Ctrl-C in calls that wait."""

    def interrupt(self, text, delay=0.5):
        """Sends SIGINT while `text` runs; returns how long it then took, and what it printed."""
        child = python(
            """
            import mangrove, os, signal, sys, time
            pool = sys.argv[1]
            # A shell starts background jobs with SIGINT ignored, and Python leaves it so.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
            """
            + textwrap.indent(textwrap.dedent(text), " " * 16)
            + """
                print("nothing was raised")
            except KeyboardInterrupt:
                # CLOCK_MONOTONIC is one for all processes.
                print("interrupted", time.monotonic(), flush=True)
            """,
            self.pool,
        )
        self.assertEqual(child.stdout.readline(), "ready\n", child.poll())
        time.sleep(delay)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=60)
        words = out.split()
        self.assertEqual(words[:1], ["interrupted"], out + errors)
        return float(words[1]) - sent

    def interrupt_soon(self, text, delay=0.5):
        """Expects an exception within 100 ms; where other programs keep the processors busy, of three times once."""
        waits = []
        while not waits or waits[-1] >= 0.1:
            self.assertLess(len(waits), 3, waits)
            waits.append(self.interrupt(text, delay))

    def test_a_put_that_waits_for_a_device(self):
        # strace holds the next write to the log for 3 s: a device that has stalled.
        if not strace():
            self.skipTest("strace cannot trace here")
        self.interrupt_soon(
            """
            m = mangrove.Map(pool)
            m[b"before"] = b"1"
            trace("pwrite64", "delay_enter=3000000")
            print("ready", flush=True)
            m[b"during"] = b"2"
            """
        )
        with mangrove.Map(self.pool) as m:
            self.assertEqual(m[b"before"], b"1")

    def test_calls_that_wait_until_a_large_map_is_recovered(self):
        # strace holds the thread that recovers the map whenever it asks for huge pages.
        if not strace():
            self.skipTest("strace cannot trace here")
        with mangrove.Map(self.pool) as m:
            m[b"large"] = bytes(20 << 20)
        for call in ["m.get(b'absent')", "b'absent' in m", "len(m)", "m.put_nowait(b'during', b'2')"]:
            with self.subTest(call):
                self.interrupt_soon(
                    f"""
                    trace("madvise", "delay_enter=2000000")
                    m = mangrove.Map(pool)
                    print("ready", flush=True)
                    {call}
                    """,
                    delay=0.2,
                )
        with mangrove.Map(self.pool) as m:
            self.assertEqual(list(m), [b"large"])

    def test_a_backup(self):
        self.interrupt_soon(
            """
            import shutil
            m = mangrove.Map(pool, durability=1000)
            shutil.rmtree(pool + ".copy", ignore_errors=True)
            for part in range(40):
                m.update([(b"%d/%d" % (part, i), bytes(100)) for i in range(25_000)])
            print("ready", flush=True)
            while True:
                m.backup(pool + ".copy")
                shutil.rmtree(pool + ".copy")
            """,
            delay=0.3,
        )
        # The process has ended, and had removed what it had not finished.
        left = [name for name in os.listdir(os.path.dirname(self.pool)) if ".mangrove-" in name]
        self.assertEqual(left, [])

    def test_a_wait_of_another_kind(self):
        # A signal handler that raises nothing interrupts nothing.
        m = self.open()
        caught = []
        before = signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        done = threading.Event()

        def send():
            # Sleeps in between, so that the puts run.
            while not done.wait(0.001):
                os.kill(os.getpid(), signal.SIGUSR1)

        sender = threading.Thread(target=send)
        sender.start()
        number = 0
        while number < 200 or len(caught) < 20:
            m[b"%d" % number] = b"v"
            number += 1
        done.set()
        sender.join()
        self.assertEqual(len(m), number)


if __name__ == "__main__":
    unittest.main()
