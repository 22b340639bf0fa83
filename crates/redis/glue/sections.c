/* Read sections: the server's I/O threads read the keyspace beside the main thread, and never beside a change of it.
 * The main thread opens the sections at the end of a round and closes them before the next round's first change; a
 * thread that finds them closed leaves its read to the main thread and waits for nothing.
 *
 * Invariants:
 *   1. While a thread is inside a section, the main thread runs no tracked call, notes no changed key and commits
 *      nothing. What it writes natively meanwhile (fence.c lists it) no reader rests on.
 *   2. Sections are open only between batches. So no reader sees half of a transaction or of a script, and what a
 *      reader sees belongs to batches before `open_batch`.
 *   3. The main thread waits for a reader no longer than it would take for the read itself, and the time for which the
 *      reader's thread is off its processor. */
#include "glue.h"
#include <sched.h>
#include <stdatomic.h>

/* The main thread looks so often before it gives its processor away. */
#define LOOKS_MAX 1000

/* Each thread writes a line of its own. */
static struct {
    _Alignas(128) atomic_bool is_in;
} readers[IO_THREADS_MAX_NUM];
static _Alignas(128) atomic_bool is_open;
/* What the main thread has last stored to it. */
static _Alignas(128) bool opened;
static int threads;

void sections_start(int count) { threads = count; }

void sections_open(void) {
    if (!threads || opened) return;
    opened = true;
    /* Release: who enters (`section_enter`) sees everything that was changed until now. */
    atomic_store_explicit(&is_open, true, memory_order_release);
}

void sections_close(void) {
    if (!opened) return;
    opened = false;
    /* A child has no threads, and what they had noted when it was made stands for ever. */
    if (server.in_fork_child != CHILD_TYPE_NONE || left_out("sections")) return;
    /* SeqCst, as the store and the load in `section_enter`: of a reader that enters and a main thread that closes, at
     * least one sees the other. */
    atomic_store_explicit(&is_open, false, memory_order_seq_cst);
    for (int j = 0; j < threads; j++)
        /* SeqCst as above, and Acquire: the partner is `section_leave`, whose reads come before our changes. */
        for (long looks = 0; atomic_load_explicit(&readers[j].is_in, memory_order_seq_cst); looks++)
            if (looks < LOOKS_MAX)
                __builtin_ia32_pause();
            else
                sched_yield();
}

bool section_enter(int thread) {
    /* SeqCst: the partner is `sections_close`. */
    atomic_store_explicit(&readers[thread].is_in, true, memory_order_seq_cst);
    if (atomic_load_explicit(&is_open, memory_order_seq_cst) || left_out("sections")) return true;
    section_leave(thread);
    return false;
}

void section_leave(int thread) {
    /* Release: the partner is the load in `sections_close`. */
    atomic_store_explicit(&readers[thread].is_in, false, memory_order_release);
}
