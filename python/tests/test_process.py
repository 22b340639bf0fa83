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


# What every program that a test runs has: strace, attached to each of its threads, that changes these system calls; and
# whether a thread is in pwrite64, which strace may hold.
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

def is_write_held():
    import glob, pathlib
    PWRITE64 = "18"
    def is_held(thread):
        try:
            return pathlib.Path(thread).read_text().split()[0] == PWRITE64
        except OSError:
            return False
    return any(is_held(thread) for thread in glob.glob("/proc/self/task/*/syscall"))
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

    def end_well(self, text):
        child = python(text, self.pool)
        try:
            out, errors = child.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            self.fail(f"it has not ended: {child.communicate()}")
        self.assertEqual((child.returncode, out, errors), (0, "", ""))

    def test_ended_under_threads_in_calls_of_all_kinds(self):
        for _ in range(5):
            self.end_well(
                """
                import mangrove, sys, threading, time
                m = mangrove.Map(sys.argv[1], durability=1000)
                m.update({b"%d" % number: b"value" for number in range(1000)})
                m.put_nowait(b"undurable", b"1")

                def work(call):
                    while True:
                        call()

                for call in (
                    lambda: m.__setitem__(b"a", b"1"),
                    lambda: m.put_nowait(b"b", b"2"),
                    lambda: m[b"1"],
                    lambda: next(iter(m)),
                    lambda: m.snapshot().close(),
                ) * 2:
                    threading.Thread(target=work, args=(call,), daemon=True).start()
                time.sleep(0.05)
                """
            )

    def test_a_function_of_atexit_may_wait_for_a_lock_of_a_thread_in_a_call(self):
        # logging.shutdown takes the lock of each handler. It runs after what is registered later, as by mangrove.
        self.end_well(
            """
            import logging
            import mangrove, sys, threading
            m = mangrove.Map(sys.argv[1])
            writes = threading.Event()

            class ToMap(logging.Handler):
                def emit(self, record):
                    writes.set()
                    m[b"message"] = record.getMessage().encode() * (16 << 20)

            logging.getLogger().addHandler(ToMap())
            threading.Thread(target=logging.warning, args=("ab",), daemon=True).start()
            writes.wait()
            """
        )
        with mangrove.Map(self.pool) as m:
            self.assertEqual(m[b"message"][-2:], b"ab")

    def test_a_function_of_atexit_may_close_the_map_under_readers(self):
        self.end_well(
            """
            import atexit
            atexit.register(lambda: m.close())
            import mangrove, sys, threading
            m = mangrove.Map(sys.argv[1])
            m.put_nowait(b"a", b"1")
            reads = threading.Event()

            def read():
                try:
                    while True:
                        m[b"a"]
                        reads.set()
                except mangrove.Closed:
                    pass

            threading.Thread(target=read, daemon=True).start()
            reads.wait()
            """
        )

    def test_functions_of_atexit_that_a_program_calls_by_itself_end_nothing(self):
        self.end_well(
            """
            import atexit, mangrove, sys, threading
            m = mangrove.Map(sys.argv[1])
            atexit._run_exitfuncs()
            thread = threading.Thread(target=lambda: m.__setitem__(b"a", b"1"))
            thread.start()
            thread.join()
            assert m[b"a"] == b"1"
            """
        )

    def test_a_snapshot_may_be_closed_under_threads_that_use_it(self):
        # With so short an interval a reader always waits for the interpreter's lock: it gets it when `close` lets go.
        self.end_well(
            """
            import mangrove, sys, threading
            m = mangrove.Map(sys.argv[1], durability=1000)
            shared, done = [m.snapshot()], threading.Event()

            def read():
                while not done.is_set():
                    shared[0].closed

            threads = [threading.Thread(target=read) for _ in range(2)]
            for thread in threads:
                thread.start()
            sys.setswitchinterval(1e-5)
            for _ in range(100):
                shared[0] = m.snapshot()
                shared[0].close()
            done.set()
            for thread in threads:
                thread.join()
            m.close()
            """
        )

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


class Scarce(Case):
    """Too few threads, too little memory."""

    def told(self, text, **options):
        child = python(text, self.pool, **options)
        out, errors = child.communicate(timeout=60)
        self.assertEqual((child.returncode, errors), (0, ""), out)
        return out.splitlines()

    def test_where_there_are_no_threads(self):
        with mangrove.Map(self.pool) as m:
            m[b"a"] = b"1"
        # No address space has room for such a stack.
        told = self.told(
            """
            import mangrove, sys
            pool = sys.argv[1]
            with mangrove.Map(pool, read_only=True) as m:
                print(dict(m))
            for use in (lambda: mangrove.Map(pool), lambda: mangrove.Map.load(pool + ".new", {b"a": b"1"})):
                try:
                    use()
                except mangrove.Error as error:
                    print("cannot start the thread" in str(error))
            """,
            env={**os.environ, "RUST_MIN_STACK": str(1 << 47)},
        )
        self.assertEqual(told, ["{b'a': b'1'}", "True", "True"])

    def test_where_there_is_no_memory_for_a_result(self):
        with mangrove.Map(self.pool) as m:
            m[b"large"] = bytes(64 << 20)
        told = self.told(
            """
            import mangrove, resource, sys
            m = mangrove.Map(sys.argv[1], background_recovery=False)
            snapshot = m.snapshot()
            before = resource.getrlimit(resource.RLIMIT_AS)

            def told(call):
                # The engine's copy has room, and that for Python has not. The first number is of the pages in use.
                used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), before[1]))
                try:
                    return len(call())
                except BaseException as error:
                    return type(error).__name__
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, before)

            print(told(lambda: m[b"large"]))
            print(told(lambda: snapshot[b"large"]))
            print(told(lambda: m.get_many([b"large"])))
            print(told(lambda: snapshot.get_many([b"large"])))
            print(told(lambda: next(iter(m.values()))))
            print(told(lambda: m.setdefault(b"large", b"")))
            m.put_nowait(b"small", b"undurable")
            print(told(lambda: m[b"large"]))
            print(told(lambda: m.pop(b"large")))
            """
        )
        # For many keys, and to compare what it removes, the engine makes a second copy: it finds so first.
        expected = ["MemoryError"] * 8
        expected[2] = expected[7] = "NoMemory"
        self.assertEqual(told, expected)


class Signals(Case):
    def test_no_thread_takes_the_signals_of_the_program(self):
        # SIGTERM would end the process if a thread took it that has not blocked it.
        child = python(
            """
            import mangrove, os, signal, sys, time

            def waited():
                os.kill(os.getpid(), signal.SIGTERM)
                return signal.sigwait({signal.SIGTERM}).name

            def records():
                # A thread that has just begun has all signals blocked.
                time.sleep(0.2)
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                print(waited(), flush=True)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
                yield b"a", b"1"

            print(mangrove.Map.load(sys.argv[1], records()), flush=True)
            m = mangrove.Map(sys.argv[1])
            m[b"b"] = b"2"
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            print(waited())
            m.close()
            """,
            self.pool,
        )
        out, errors = child.communicate(timeout=30)
        self.assertEqual((child.returncode, out, errors), (0, "SIGTERM\n1\nSIGTERM\n", ""))


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

    def test_a_put_of_a_child_that_another_thread_forked(self):
        # The handler of a signal ends what holds the put: it runs during the put, or never.
        if not strace():
            self.skipTest("strace cannot trace here")
        child = python(
            """
            import faulthandler, mangrove, os, signal, sys, threading, warnings
            pool = sys.argv[1]
            warnings.simplefilter("ignore")

            def put():
                faulthandler.dump_traceback_later(200, exit=True)
                m = mangrove.Map(pool)
                m[b"before"] = b"1"
                tracer = trace("pwrite64", "delay_enter=300000000")

                def release(*_):
                    if is_write_held():
                        tracer.terminate()

                signal.signal(signal.SIGALRM, release)
                signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
                m[b"during"] = b"2"
                signal.setitimer(signal.ITIMER_REAL, 0)
                tracer.wait()
                m.close()
                os._exit(0)

            def fork():
                with mangrove.Map(pool + ".of the thread") as m:
                    m[b"a"] = b"1"
                child = os.fork()
                if child == 0:
                    put()
                print(os.waitpid(child, 0)[1])

            thread = threading.Thread(target=fork)
            thread.start()
            thread.join()
            """,
            self.pool,
        )
        out, errors = child.communicate(timeout=250)
        self.assertEqual((child.returncode, out, errors), (0, "0\n", ""))

    def test_a_put_whose_handler_forks(self):
        # The handler of a signal forks while a thread holds the put: it does so during the put, or never.
        if not strace():
            self.skipTest("strace cannot trace here")
        child = python(
            """
            import faulthandler, mangrove, os, signal, sys, warnings
            pool = sys.argv[1]
            warnings.simplefilter("ignore")
            once, child = iter([True]), None

            def fork(*_):
                global child
                held = is_write_held()
                if held and next(once, False):
                    child = os.fork()
                    if child:
                        tracer.terminate()
                    else:
                        # Ends a child that waits for ever.
                        faulthandler.dump_traceback_later(150, exit=True)

            m = mangrove.Map(pool)
            m[b"before"] = b"1"
            tracer = trace("pwrite64", "delay_enter=300000000")
            signal.signal(signal.SIGALRM, fork)
            signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
            try:
                m[b"during"] = b"2"
            except mangrove.Forked:
                os._exit(0)
            if not child:
                os._exit(1)
            signal.setitimer(signal.ITIMER_REAL, 0)
            tracer.wait()
            print(os.waitpid(child, 0)[1], m[b"during"])
            """,
            self.pool,
        )
        out, errors = child.communicate(timeout=250)
        self.assertEqual((child.returncode, out, errors), (0, "0 b'2'\n", ""))

    def test_a_batch_whose_write_was_interrupted_is_not_written_again(self):
        if not strace():
            self.skipTest("strace cannot trace here")
        self.interrupt(
            """
            m = mangrove.Map(pool)
            b = m.batch()
            b[b"during"], b[b"too"] = b"2", b"2"
            trace("pwrite64", "delay_enter=2000000")
            print("ready", flush=True)
            try:
                b.write()
            except KeyboardInterrupt:
                try:
                    b.write()
                    print("nothing was raised")
                except mangrove.Error:
                    b.clear()
                    b[b"after"] = b"3"
                    b.write()
                    raise KeyboardInterrupt
            """
        )
        with mangrove.Map(self.pool) as m:
            self.assertEqual(m[b"after"], b"3")

    def test_other_threads_run_while_the_end_of_a_snapshot_closes_its_map(self):
        # strace holds the writes of closing until another thread of Python has seen one of them, and ends it.
        if not strace():
            self.skipTest("strace cannot trace here")
        child = python(
            """
            import mangrove, sys, threading, time
            m = mangrove.Map(sys.argv[1])
            m[b"a"] = b"1"
            snapshot = m.snapshot()
            del m

            def release(tracer):
                while not is_write_held():
                    time.sleep(0.01)
                tracer.terminate()
                tracer.wait()

            tracer = trace("pwrite64", "delay_enter=300000000")
            thread = threading.Thread(target=release, args=(tracer,))
            thread.start()
            del snapshot
            thread.join()
            """,
            self.pool,
        )
        try:
            out, errors = child.communicate(timeout=250)
        except subprocess.TimeoutExpired:
            child.kill()
            self.fail(f"no other thread ran: {child.communicate()}")
        self.assertEqual((child.returncode, out, errors), (0, "", ""))

    def go_on(self, text):
        """Expects no pause of the main thread in `watch`; where other programs keep the processors busy, of three times
        once."""
        gaps = []
        while not gaps or gaps[-1] >= 0.5:
            self.assertLess(len(gaps), 3, gaps)
            child = python(
                """
                import mangrove, os, shutil, signal, sys, threading, time
                pool = sys.argv[1]
                shutil.rmtree(pool, ignore_errors=True)

                def watch(goes_on):
                    last, gap = time.monotonic(), 0
                    while goes_on():
                        time.sleep(0.01)
                        now = time.monotonic()
                        last, gap = now, max(gap, now - last)
                    print(gap, flush=True)
                    os._exit(0)
                """
                + textwrap.indent(textwrap.dedent(text), " " * 16),
                self.pool,
            )
            out, errors = child.communicate(timeout=120)
            self.assertEqual(child.returncode, 0, errors)
            gaps.append(float(out))

    def test_other_threads_run_while_a_map_that_nobody_waits_for_is_closed(self):
        # strace has opening and closing take seconds..
        if not strace():
            self.skipTest("strace cannot trace here")
        self.go_on(
            """
            with mangrove.Map(pool) as m:
                m[b"a"] = bytes(1 << 20)
            trace("madvise,pwrite64,fdatasync", "delay_enter=1000000")
            signal.signal(signal.SIGINT, signal.default_int_handler)
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                mangrove.Map(pool, background_recovery=False)
                print("nothing was raised")
            except KeyboardInterrupt:
                watch(lambda: len(os.listdir("/proc/self/task")) > 1)
            """
        )

    def test_other_threads_run_while_a_walk_waits_for_the_map_s_own_compaction(self):
        # strace holds each write and sync for a second. The compaction begins 0.2 s after the deletions.
        if not strace():
            self.skipTest("strace cannot trace here")
        self.go_on(
            """
            m = mangrove.Map(pool)
            m.update((b"%06d" % number, bytes(2000)) for number in range(30_000))
            with m.batch() as b:
                for number in range(30_000):
                    if number % 8:
                        del b[b"%06d" % number]
            trace("pwrite64,fdatasync,fsync", "delay_enter=1000000")

            def walk():
                while True:
                    next(iter(m))
                    len(m)

            threading.Thread(target=walk, daemon=True).start()
            end = time.monotonic() + 4
            watch(lambda: time.monotonic() < end)
            """
        )

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
