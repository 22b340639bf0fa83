/*
 * mangrove.h: durable in-memory data at close to memory speed.
 * Long because one header has every function of the library, with its documentation.
 *
 * A mangrove_map is an ordered map from byte strings to byte strings. Programs read and write a working
 * copy in DRAM; a pool (a directory on a disk, or persistent memory) keeps what survives. With the
 * default durability a call that returns MANGROVE_OK, and whose name does not end in nowait, is
 * acknowledged: SIGKILL, a kernel panic or a power cut a nanosecond later does not lose it.
 *
 *     mangrove_map *map;
 *     if (mangrove_map_open("phonebook", NULL, &map) != MANGROVE_OK) {
 *         fprintf(stderr, "%s\n", mangrove_last_error());
 *         exit(1);
 *     }
 *     mangrove_map_put(map, "ada", 3, "+44 20 7946 0001", 16);
 *     mangrove_map_close(map);
 *
 * A mangrove_heap is memory that comes back at its address: C structures of any shape that point to each
 * other. Transactions change it atomically and durably.
 *
 *     static int deposit(mangrove_tx *tx, void *amount) {
 *         account *at, now;
 *         int s;
 *         if ((s = mangrove_tx_root(tx, "account", sizeof *at, (void **)&at))) return s;
 *         if ((s = MANGROVE_TX_LOAD(tx, at, &now))) return s;
 *         return MANGROVE_TX_STORE(tx, &at->balance, now.balance + *(uint64_t *)amount);
 *     }
 *     mangrove_transaction(heap, deposit, &amount, NULL);
 *
 * C++ programs use mangrove_heap.hpp.
 *
 * Rules that hold for every function:
 *
 * Results.  A mangrove_status of 0 is success, above 0 is an ordinary result ("not there"), below 0
 *   is an error. The numbers are part of the ABI and never change. After an error
 *   mangrove_last_error() returns a message that says what happened and what to do. Any function may
 *   return these two errors, so they are not repeated below: MANGROVE_ERR_INVALID_ARGUMENT (a NULL
 *   handle or out-parameter, a NULL pointer with a length, a number out of range; nothing happened)
 *   and MANGROVE_ERR_INTERNAL (a bug in Mangrove: please report it).
 *
 * Bytes.  Keys and values are a pointer and a length, with any bytes in them. The library copies
 *   what it is given; the caller may reuse its memory when the call returns. (NULL, 0) is the empty
 *   string. Keys are ordered byte by byte, as unsigned; a key comes before the keys that begin with it.
 *   Paths are NUL-terminated strings in the file system's own encoding.
 *
 * Ownership.  What a function hands out through `T **out` belongs to the caller, which gives it back
 *   with the function named there; *out is NULL after an error. Functions that free accept NULL and do
 *   nothing. Using a handle after it was freed or closed, or freeing it twice, is undefined.
 *
 * Threads.  "any" means that any number of threads may call it on the same handle at the same time.
 *   "one at a time" means that several threads may use the handle, but no two of them at once.
 *   Freeing or closing a handle must not overlap with another use of it.
 *
 * Crashes.  Each writing function says what a crash (SIGKILL, kernel panic, power cut) during or
 *   after the call keeps. "Acknowledged" means that it returned MANGROVE_OK while the
 *   durability is sync, and that its name does not end in nowait; with interval durability, and of
 *   nowait calls, a crash keeps a prefix of the writes.
 *
 * Processes.  Handles do not survive fork() in the child; let it exec or _exit. On a disk, writes of
 *   the child to them fail with a message and change nothing of the parent's. On every medium each call
 *   of the child on a heap, except mangrove_heap_base, fails with MANGROVE_ERR_UNSUPPORTED.
 *   No C++ exception, no longjmp and no pthread_exit may leave a callback. (The body of a transaction may be
 *   left in any way: see mangrove_tx_body.)
 *
 * Signals.  A call on a heap by a signal handler that has interrupted its thread in another call on a
 *   heap returns MANGROVE_ERR_TX_MISPLACED, and nothing happened. A handler must not call the
 *   library's other functions.
 *
 * This file is generated from crates/capi/src; edit there.
 */


#ifndef MANGROVE_H
#define MANGROVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of this header. Compare with mangrove_version(), the library's.
#define MANGROVE_VERSION "0.1.0"

#ifndef __cplusplus
// Reads *p of the heap into *into, inside a transaction: p and into point to the same type. A mangrove_status.
#define MANGROVE_TX_LOAD(tx, p, into) \
    mangrove_tx_read((tx), (p), (into), \
                     sizeof(*(into) = *(p)) * sizeof(char[sizeof *(into) == sizeof *(p) ? 1 : -1]))
// Writes the value to *p of the heap, inside a transaction. The type is that of *p. A mangrove_status.
#define MANGROVE_TX_STORE(tx, p, ...) \
    mangrove_tx_write((tx), (p), (__typeof__(*(p))[1]){__VA_ARGS__}, sizeof *(p))
#endif


// The most bytes of a key. The empty key is a key.
#define MANGROVE_KEY_BYTES_MAX 1024

// The most bytes of a value: 1 GiB.
#define MANGROVE_VALUE_BYTES_MAX 1073741824

// The most bytes of the name of a root.
#define MANGROVE_ROOT_NAME_BYTES_MAX 39

// The most roots of a heap.
#define MANGROVE_ROOT_COUNT_MAX 63

// The result of a call. Above 0: an ordinary result. Below 0: an error, see mangrove_last_error(). The
// numbers are part of the ABI. New ones may be added: treat an unknown one by its sign.
enum mangrove_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    MANGROVE_OK = 0,
    // There is no such key; or the iterator has no record there.
    MANGROVE_NOT_FOUND = 1,
    // The key is in another state than the call expected. Nothing changed.
    MANGROVE_MISMATCH = 2,
    // The value does not fit the caller's buffer; the call has returned its length.
    MANGROVE_BUFFER_TOO_SMALL = 3,
    // A check ran to its end and found damage.
    MANGROVE_UNSOUND = 4,
    // The body of a transaction aborted it. Nothing changed.
    MANGROVE_TX_ABORTED = 5,
    // Only inside a transaction: it must run again. Its body returns this status at once. (The number lies far from
    // those that programs abort with.)
    MANGROVE_TX_STOP = 1000000,
    // An argument breaks the rules of the call. Nothing happened.
    MANGROVE_ERR_INVALID_ARGUMENT = -1,
    // The key is longer than MANGROVE_KEY_BYTES_MAX. Nothing changed.
    MANGROVE_ERR_KEY_TOO_LONG = -2,
    // The value is longer than MANGROVE_VALUE_BYTES_MAX. Nothing changed.
    MANGROVE_ERR_VALUE_TOO_LONG = -3,
    // Another process, or another handle of this one, holds the pool.
    MANGROVE_ERR_POOL_BUSY = -4,
    // There is no pool at the path.
    MANGROVE_ERR_POOL_NOT_FOUND = -5,
    // Something is already at the path.
    MANGROVE_ERR_POOL_EXISTS = -6,
    // What lies at the path is not a Mangrove pool, or is a pool of the other byte order.
    MANGROVE_ERR_FOREIGN = -7,
    // The pool was written by a newer format than this library reads.
    MANGROVE_ERR_NEWER = -8,
    // The pool holds another kind of object than the one that was asked for.
    MANGROVE_ERR_WRONG_KIND = -9,
    // Bytes read back are not the bytes written, and were not returned. The message names the file and
    // the place.
    MANGROVE_ERR_CORRUPT = -10,
    // The map or the heap is open read-only, or its files cannot be written.
    MANGROVE_ERR_READ_ONLY = -11,
    // The medium is full, or a file of the pool reached the process's file size limit; the message
    // says which. Nothing changed; free some space there, or raise the limit, and retry.
    MANGROVE_ERR_NO_SPACE = -12,
    // This pool or this machine cannot do that.
    MANGROVE_ERR_UNSUPPORTED = -13,
    // An earlier I/O error poisoned the pool: reads continue, writes fail, nothing more is
    // acknowledged.
    MANGROVE_ERR_POISONED = -14,
    // More changed since the snapshot than it may hold; take a new one.
    MANGROVE_ERR_SNAPSHOT_EXPIRED = -15,
    // The callback stopped the call. Nothing is left of it.
    MANGROVE_ERR_STOPPED = -16,
    // The operating system refused; mangrove_last_os_error() has its number.
    MANGROVE_ERR_IO = -17,
    // malloc() had no memory for the result, or the process may not have as much memory as the pool needs. A
    // call that reads, or that grows the pool, changed nothing.
    MANGROVE_ERR_NO_MEMORY = -18,
    // Snapshots or iterators of the map are still alive, or a transaction on the heap is open. Nothing happened.
    MANGROVE_ERR_IN_USE = -19,
    // A bug in Mangrove. The map stays usable; please report the message.
    MANGROVE_ERR_INTERNAL = -20,
    // The pool's capacity is in use, or the address space that the process may have for it; the
    // message says which. Nothing changed; delete records, or load a larger pool, or raise the limit.
    MANGROVE_ERR_FULL = -21,
    // The log failed when other threads could see the transaction already: a crash may undo it. Nothing more
    // becomes durable; close the heap and open it again.
    MANGROVE_ERR_IN_DOUBT = -22,
    // The transaction has ended, or is another thread's; or the call cannot be made inside a transaction on the
    // same heap, or comes from a destructor of a thread that is ending, or from a signal handler that has
    // interrupted the library. Nothing happened.
    MANGROVE_ERR_TX_MISPLACED = -23,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_status mangrove_status;
#else
typedef int32_t mangrove_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The medium of a pool.
enum mangrove_medium
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // That of an existing pool; for a new one dax where the directory supports it, else file.
    MANGROVE_MEDIUM_AUTO = 0,
    // Any file system: working copy in DRAM, redo log, and a data file that checkpoints bring up to
    // date.
    MANGROVE_MEDIUM_FILE = 1,
    // Persistent memory mapped with MAP_SYNC, or a devdax character device.
    MANGROVE_MEDIUM_DAX = 2,
    // DRAM that pretends to be persistent memory, for figures and tests. On tmpfs it survives the
    // process, never the machine.
    MANGROVE_MEDIUM_EMULATED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_medium mangrove_medium;
#else
typedef int32_t mangrove_medium;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Which stores survive a power cut on persistent memory.
enum mangrove_domain
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // What the platform reports.
    MANGROVE_DOMAIN_AUTO = 0,
    // Only what was written back from the CPU's caches.
    MANGROVE_DOMAIN_ADR = 1,
    // The caches too.
    MANGROVE_DOMAIN_EADR = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_domain mangrove_domain;
#else
typedef int32_t mangrove_domain;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How writers exclude each other.
enum mangrove_locking
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Readers take no lock, writers lock single nodes.
    MANGROVE_LOCKING_OPTIMISTIC = 0,
    // One lock for all keys that share their first two bytes, as in the HART paper.
    MANGROVE_LOCKING_PER_TREE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_locking mangrove_locking;
#else
typedef int32_t mangrove_locking;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What isolates the transactions of a heap.
enum mangrove_executor
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Software, on every CPU: ownership records, and none while only one thread has transactions.
    MANGROVE_EXECUTOR_RECORDS = 0,
    // RTM where it commits transactions, the caches are persistent and the heap lies on persistent memory;
    // otherwise ownership records. With a protocol of time stamps: RTM, or one lock.
    MANGROVE_EXECUTOR_AUTO = 1,
    // Intel RTM, and one lock for the transactions that RTM cannot run.
    MANGROVE_EXECUTOR_RTM = 2,
    // One lock: one transaction at a time.
    MANGROVE_EXECUTOR_ONE_LOCK = 3,
    // A model of RTM, for tests: slow, for at most 64 threads.
    MANGROVE_EXECUTOR_HARDWARE_MODEL = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_executor mangrove_executor;
#else
typedef int32_t mangrove_executor;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How a commit of a heap becomes durable.
enum mangrove_protocol
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Chosen by executor, medium and persistence domain.
    MANGROVE_PROTOCOL_AUTO = 0,
    // Commits are numbered without gaps: one fence a commit, none where the caches are persistent.
    MANGROVE_PROTOCOL_ONE_FENCE = 1,
    // SPHT: time stamps, and a durable marker.
    MANGROVE_PROTOCOL_SPHT = 2,
    // SPHT-eADR: time stamps, for persistent caches only.
    MANGROVE_PROTOCOL_SPHT_EADR = 3,
    // SPHT-eADR that flushes the log's lines, and waits for none.
    MANGROVE_PROTOCOL_SPHT_EADR_FLUSH = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_protocol mangrove_protocol;
#else
typedef int32_t mangrove_protocol;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Flags that change the meaning of a mangrove_range; add them up.
enum mangrove_range_flags
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The key `start` itself is not in the range.
    MANGROVE_RANGE_START_EXCLUDED = 1,
    // The key `end` itself is in the range.
    MANGROVE_RANGE_END_INCLUDED = 2,
    // The range is all keys that begin with `start`; `end` must be NULL.
    MANGROVE_RANGE_PREFIX = 4,
    // The range is every key; `start` and `end` must be NULL. Only mangrove_map_delete_range needs it.
    MANGROVE_RANGE_EVERYTHING = 8,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_range_flags mangrove_range_flags;
#else
typedef uint32_t mangrove_range_flags;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A list of puts and deletes for mangrove_map_write. Costs the memory of its keys and values.
// Threads: one at a time.
typedef struct mangrove_batch mangrove_batch;

// An open heap: memory that comes back at its address, changed by transactions.
typedef struct mangrove_heap mangrove_heap;

// How to open a heap. Threads: one at a time for setting; any for opening with it.
typedef struct mangrove_heap_options mangrove_heap_options;

// A cursor over the records of one range at one instant. Writes after it was made do not show.
// Threads: one at a time.
typedef struct mangrove_iter mangrove_iter;

// An open map. Snapshots and iterators of it must be freed before it can be closed.
typedef struct mangrove_map mangrove_map;

// How to open a map. Threads: one at a time for setting; any for opening with it.
typedef struct mangrove_options mangrove_options;

// A map as it was at one instant, to read from while writers continue. Costs DRAM for each record that
// changes while it lives, bounded by mangrove_options_set_snapshot_bytes_max; beyond that, reads
// return MANGROVE_ERR_SNAPSHOT_EXPIRED.
typedef struct mangrove_snapshot mangrove_snapshot;

// A transaction, inside its body. It ends when the body returns, or with mangrove_tx_commit or _abort; a later
// access with it, or one of another thread, returns MANGROVE_ERR_TX_MISPLACED and touches nothing; in a child of
// fork, MANGROVE_ERR_UNSUPPORTED. (It is a number in the shape of a pointer.)
typedef struct mangrove_tx mangrove_tx;

// A range of keys, from `start` (included) to `end` (excluded). NULL is no bound on that side, so a range of
// all zeros is everything. An end that comes before the start is an empty range. Initialise with { 0 } or by
// field name: later versions may append fields.
typedef struct {
    // First key, or NULL.
    const void *start;
    // Bytes of `start`.
    size_t start_len;
    // The first key after the range, or NULL.
    const void *end;
    // Bytes of `end`.
    size_t end_len;
    // Sum of mangrove_range_flags; 0 as described.
    uint32_t flags;
} mangrove_range;

// How far a backup is. Later versions may append fields.
typedef struct {
    // Records done.
    uint64_t records;
    // Records in all, as far as known.
    uint64_t records_total;
    // Bytes of keys and values done.
    uint64_t bytes;
} mangrove_progress;

// Called during a backup, on the thread that asked for it. Returns 0 to continue, another number to
// stop. `progress` is valid during the call. It may read and write the map, not close it.
typedef int32_t (*mangrove_progress_callback)(const mangrove_progress *progress, void *context);

// Fills the new map of mangrove_map_load, on the thread that asked for it. Returns 0 when all is in it,
// another number to leave nothing. `map` is valid during the call, for any number of threads; it must not
// be closed, and its snapshots, iterators and batches must be freed before this returns.
typedef int32_t (*mangrove_fill_callback)(mangrove_map *map, void *context);

// Figures of an open map. Counters count since it was opened.
typedef struct {
    // Set to sizeof(mangrove_stat) before the call. After it: the bytes that this library knows.
    size_t size;
    // Records in the map, those included that a crash could still undo.
    uint64_t records;
    // DRAM of the index, in bytes.
    uint64_t index_bytes;
    // DRAM of the allocator's bookkeeping, in bytes.
    uint64_t allocator_bytes;
    // Bytes of the pool's data file in use by records, with slack.
    uint64_t durable_bytes;
    // Bytes of the pool's data file that were made usable so far.
    uint64_t image_bytes;
    // The most bytes that the data file can grow to.
    uint64_t capacity;
    // Bytes of the redo log; 0 where there is none.
    uint64_t log_bytes;
    // Bytes of the redo log that wait for a checkpoint.
    uint64_t log_bytes_used;
    // Device writes of the log, each for all threads that waited.
    uint64_t group_commits;
    // Bytes written to the log, padding included.
    uint64_t log_bytes_written;
    // Bytes written to the data file and its page checksums.
    uint64_t image_bytes_written;
    // Checkpoints finished.
    uint64_t checkpoints;
    // Times a write waited for the checkpointer to free log space.
    uint64_t log_full_waits;
    // Snapshots and iterators alive.
    uint64_t snapshots;
    // DRAM held for them, in bytes.
    uint64_t snapshot_bytes;
    // Milliseconds of interval durability; 0 means sync.
    uint32_t interval_ms;
    // The medium of the pool: one of mangrove_medium.
    int32_t medium;
    // True when the map was opened read-only.
    bool read_only;
    // The I/O error that poisoned the pool (cut to fit); "" when there is none.
    char poisoned[256];
} mangrove_stat;

// What opening a map had to do.
typedef struct {
    // Set to sizeof(mangrove_recovery) before the call. After it: the bytes that this library knows.
    size_t size;
    // Records found.
    uint64_t records;
    // Bytes of the data file that were read and verified.
    uint64_t image_bytes;
    // Groups of the log replayed.
    uint64_t log_groups;
    // Wall time of reading the pool, in seconds.
    double pool_seconds;
    // Wall time of rebuilding the index, in seconds.
    double index_seconds;
    // Wall time of the whole opening, in seconds.
    double seconds;
    // True when this opening created the map.
    bool created;
    // True when the pool had been closed in order: nothing had to be replayed.
    bool clean;
} mangrove_recovery;

// What a pool's superblock states.
typedef struct {
    // Set to sizeof(mangrove_pool_info) before the call. After it: the bytes that this library knows.
    size_t size;
    // The most bytes that the data file can grow to.
    uint64_t capacity;
    // Bytes of the data file that were made usable so far.
    uint64_t image_bytes;
    // Bytes of the redo log; 0 where there is none.
    uint64_t log_bytes;
    // Format version.
    uint32_t version;
    // Its medium: one of mangrove_medium.
    int32_t medium;
    // True when it was closed in order.
    bool clean;
    // True when a process holds it now.
    bool busy;
    // Name of this one pool, never used twice; NUL-terminated.
    char uuid[48];
    // Kind of object in it, as "map"; NUL-terminated.
    char kind[32];
} mangrove_pool_info;

// Figures of an open heap. Counters count since it was opened.
typedef struct {
    // Set to sizeof(mangrove_heap_figures) before the call. After it: the bytes that this library knows.
    size_t size;
    // The most bytes that the heap can grow to.
    uint64_t capacity;
    // Bytes under management so far.
    uint64_t bytes;
    // Blocks in use.
    uint64_t blocks;
    // Bytes of blocks in use, each counted with the size of its class.
    uint64_t used_bytes;
    // Bytes of whole free pages that were in use before; not those behind them that were never used.
    uint64_t free_bytes;
    // Bytes of the allocator's own state.
    uint64_t meta_bytes;
    // Bytes of the logs.
    uint64_t log_bytes;
    // Bytes of the logs in use.
    uint64_t log_bytes_used;
    // Transactions that wrote, of all threads, in the logs.
    uint64_t committed;
    // Transactions of the calling thread that committed.
    uint64_t thread_commits;
    // Runs of bodies of the calling thread that were undone because of another thread.
    uint64_t thread_conflicts;
    // True when this opening created the heap.
    bool created;
    // Of thread_commits, those in hardware (or its model), those that ran alone or under the one lock, and those
    // in solo mode. The others ran beside those of other threads, under ownership records.
    uint64_t thread_hardware;
    // See thread_hardware.
    uint64_t thread_serial;
    // See thread_hardware.
    uint64_t thread_solo;
    // Of thread_conflicts, runs in hardware that needed more lines than it holds.
    uint64_t thread_capacity;
    // Of thread_conflicts, runs in hardware that met a transaction with the lock.
    uint64_t thread_explicit;
    // Of thread_conflicts, runs in hardware that ended without a reason, such as a page fault.
    uint64_t thread_without_reason;
} mangrove_heap_figures;

// The body of a transaction. It returns
//   MANGROVE_OK to commit;
//   at once, the status of an access that was MANGROVE_TX_STOP or an error;
//   another number of its own, best above 0, to abort.
// It may run several times: whatever it does other than through `tx` happens in each run. All runs get the
// same `arg`, so a body that returns a result through it sets that anew in each run.
// However it is left, the transaction is undone and other threads continue: a C++ exception reaches the
// caller of mangrove_transaction (from code compiled with -fexceptions, as C++ is); pthread_exit and a
// cancellation, at a cancellation point of the body's own, end the thread; after a longjmp to outside of
// mangrove_transaction, the thread's next call on a heap undoes the transaction, or the thread's end does;
// until then other threads may wait for it. Its `tx` has ended: an access with it returns
// MANGROVE_ERR_TX_MISPLACED where the stack shows the jump, and changes nothing that stays. One way is
// excluded: a longjmp or siglongjmp out of a signal handler, as POSIX excludes it where the handler
// interrupts a function that is not async-signal-safe. No function of this library is. If the handler has
// interrupted one, the thread can use no heap any more, and others may wait for it for ever; let the handler
// set a flag that the body looks at.
// A body may run transactions on other heaps, which commit on their own: they stay if the outer one is undone,
// and happen again if it runs again. All threads nest the heaps in one order: if one thread runs a transaction
// on B inside one on A, and another one the other way round, both may wait for ever.
typedef int32_t (*mangrove_tx_body)(mangrove_tx *tx, void *arg);

// Names a commit of mangrove_transaction_nowait, in this opening of this heap. Plain data: copy it, pass it to other
// threads, forget it.
typedef struct {
    // Which opening of which heap.
    uint64_t opening;
    // Where in its log; 0: durable already.
    uint64_t position;
} mangrove_tx_ticket;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as "0.1.0". Compare with MANGROVE_VERSION, the header's. Static.
// Threads: any.
const char *mangrove_version(void);

// The name of a status, as "MANGROVE_ERR_IO"; "MANGROVE_UNKNOWN" for other numbers. Static.
// Threads: any.
const char *mangrove_status_name(int32_t status);

// What a status means in general, in a few words. mangrove_last_error() says more about the one case.
// Static. Threads: any.
const char *mangrove_status_text(int32_t status);

// What went wrong in the last call of this thread that returned an error: a message in UTF-8 of at
// most 2047 bytes, as "phonebook is in use by process 17 (server); close it there first". "" when there was none
// yet. A call that returns no error leaves it alone. Valid until the next call of this library on this thread; not
// to be freed. Threads: any, each has its own.
const char *mangrove_last_error(void);

// The errno that goes with mangrove_last_error() when that was MANGROVE_ERR_IO; 0 when there is
// none. Threads: any, each has its own.
int32_t mangrove_last_os_error(void);

// New options: create the pool when it is missing, read and write, durability sync, all else
// automatic; the same that NULL stands for in mangrove_map_open. Never NULL.
// Give back with mangrove_options_free. Threads: any.
mangrove_options *mangrove_options_new(void);

// Frees options; maps opened with them stay open. NULL is fine.
void mangrove_options_free(mangrove_options *options);

// Whether to create the pool when there is none. Default: true. With false, opening a missing pool
// returns MANGROVE_ERR_POOL_NOT_FOUND.
mangrove_status mangrove_options_set_create(mangrove_options *options, bool create);

// Whether the pool must be new: opening an existing one returns MANGROVE_ERR_POOL_EXISTS.
// Default: false.
mangrove_status mangrove_options_set_create_new(mangrove_options *options, bool create_new);

// Whether to open without writing a byte: recovery happens in private memory, writes return
// MANGROVE_ERR_READ_ONLY, nothing is created. On the file medium another process may have the pool open
// for writing: what is read is one durable instant, with all that was durable before this opening.
// Opening again reads a later one. Default: false.
mangrove_status mangrove_options_set_read_only(mangrove_options *options,
                                               bool read_only);

// The medium of a new pool, or the expected one of an existing pool: one of mangrove_medium.
// Default: MANGROVE_MEDIUM_AUTO.
mangrove_status mangrove_options_set_medium(mangrove_options *options, int32_t medium);

// The devdax device ("/dev/dax0.0") that holds the data of a new pool on the medium dax; the pool's directory may lie
// on any file system. Creation zeroes the device, and fails if its first page is not blank. An existing pool keeps
// its device, and another one is refused.
mangrove_status mangrove_options_set_devdax(mangrove_options *options,
                                            const char *device);

// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line
// that is read from memory.
mangrove_status mangrove_options_set_emulated_latency(mangrove_options *options,
                                                      uint32_t write_ns,
                                                      uint32_t read_ns);

// A write returns once it is durable; one device write serves all threads that wait. The default.
// A property of this opening, not of the pool.
mangrove_status mangrove_options_set_durability_sync(mangrove_options *options);

// A write returns at once and is durable at most `milliseconds` (1 to 60000) later. A crash keeps a
// prefix of the writes, in the order in which they took effect; mangrove_map_sync waits for all.
// A property of this opening, not of the pool.
mangrove_status mangrove_options_set_durability_interval(mangrove_options *options,
                                                         uint32_t milliseconds);

// With durability sync on the medium file, a write that no thread waits for (mangrove_map_put_nowait) is
// durable at most about `milliseconds` (0 to 60000) later. 0: never by itself. Default: 100.
// A property of this opening, not of the pool.
mangrove_status mangrove_options_set_nowait_within(mangrove_options *options,
                                                   uint32_t milliseconds);

// The most memory that this process may have, in bytes, on the medium file (what it uses elsewhere counts too).
// Opening a pool that needs more, and a write that would make it grow beyond, fail with
// MANGROVE_ERR_NO_MEMORY before the system would end the process. What the snapshots and iterators keep of old
// values is no growth: it may come to a quarter of this, and lie beyond it, before they expire. Default: nine
// tenths of what the machine and the process's control groups have, swap space included.
mangrove_status mangrove_options_set_memory_max(mangrove_options *options,
                                                uint64_t bytes);

// How long opening waits, in milliseconds, until another opener of this process or of another one has closed
// the pool; then it fails with MANGROVE_ERR_POOL_BUSY. Default: 0.
mangrove_status mangrove_options_set_busy_wait(mangrove_options *options,
                                               uint32_t milliseconds);

// The most bytes that the pool can grow to, 1 MiB to 64 TiB: address space, not disk space. Default: 128 GiB for a
// new pool. A pool that has less gets it in place when it is opened for writing; one that has more is not opened
// (MANGROVE_ERR_UNSUPPORTED). Values of each size class that is used take at least a segment of 256 KiB, so with
// values of many lengths a map of a few MiB is full (MANGROVE_ERR_FULL) when it holds little: give it 16 MiB at least.
mangrove_status mangrove_options_set_capacity(mangrove_options *options,
                                              uint64_t bytes);

// Bytes that the pool's redo log may grow to, 16 KiB to 1 GiB (file medium). The log begins small and grows with use.
// This limit bounds the time of recovery, and the burst of writes that is accepted without waiting. The pool records
// it; a limit below the log's present size is refused. Default: 1 GiB.
mangrove_status mangrove_options_set_log_bytes(mangrove_options *options,
                                               uint64_t bytes);

// The persistence domain to assume on persistent memory: one of mangrove_domain. The environment
// variable MANGROVE_DOMAIN sets the same. Default: MANGROVE_DOMAIN_AUTO. A wrong claim of EADR
// loses acknowledged writes in a power cut.
mangrove_status mangrove_options_set_domain(mangrove_options *options, int32_t domain);

// How writers exclude each other: one of mangrove_locking. Default: MANGROVE_LOCKING_OPTIMISTIC.
mangrove_status mangrove_options_set_locking(mangrove_options *options, int32_t locking);

// Bytes of DRAM that the snapshots and iterators may hold for old values before they expire; but no more than
// a quarter of what mangrove_options_set_memory_max says, or of its default. UINT64_MAX: they never expire,
// whatever memory they take. Default: 1 GiB.
mangrove_status mangrove_options_set_snapshot_bytes_max(mangrove_options *options,
                                                        uint64_t bytes);

// Threads that rebuild the index while the pool is opened, 1 to 1024. Default: one a CPU.
mangrove_status mangrove_options_set_recovery_threads(mangrove_options *options, uint32_t threads);

// Whether a map on the file medium compacts itself, in a thread of its own, when at least 32 MiB and
// a quarter of the space in use would come back. It does what mangrove_map_compact does, in smaller
// steps and with pauses, and only while no snapshot and no iterator lives. Default: true.
mangrove_status mangrove_options_set_background_compaction(mangrove_options *options,
                                                           bool yes);

// Whether opening a map returns before the map is recovered, if it lies on the file medium, was
// closed, has a data file of at least 16 MiB, and is opened for writing. A thread then reads the
// data file and builds the index. Meanwhile gets of records that are there are answered from the
// files; every other call waits for the thread: a write, an iterator, a get of a key that is
// absent. Damage that the thread finds, and other errors that it meets, these calls report, and not
// the opening. Closing a map leaves what such gets need, 5 bytes a record. mangrove_map_load,
// mangrove_map_backup and mangrove_map_salvage leave none: opening what they made takes its whole
// time, the first time. Default: true.
mangrove_status mangrove_options_set_background_recovery(mangrove_options *options, bool yes);

// Opens the pool at `path`, a directory, and recovers the map in it. `options` may be NULL: then
// the pool is created when missing, with all defaults.
//
// Time: reads the pool's data file once, and its log, plus about 100 ns a record and CPU. Of a
// large map that was closed, milliseconds; then the calls that need the whole map wait that long
// (mangrove_options_set_background_recovery), and report what is found to be damaged.
// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_EXISTS, _POOL_BUSY, _FOREIGN, _NEWER, _WRONG_KIND,
// _CORRUPT, _READ_ONLY, _NO_SPACE, _FULL, _NO_MEMORY, _UNSUPPORTED, _IO; the pool is as it was.
// Crash: during a creation it leaves either no pool or a whole one, which opens.
// Give back with mangrove_map_close. Threads: any.
mangrove_status mangrove_map_open(const char *path,
                                  const mangrove_options *options,
                                  mangrove_map **map);

// Makes everything durable, brings the data file up to date, marks the pool clean, unlocks it and
// frees the handle.
//
// Errors: MANGROVE_ERR_IN_USE: snapshots or iterators are alive; the map stays open and the handle
// valid. After any other result the handle is gone. MANGROVE_ERR_POISONED, _IO: the pool is not clean;
// what was acknowledged is in its log all the same. Of a map that could not be recovered in the
// background, the error that says why: nothing was written.
// A process that ends without closing loses nothing acknowledged; the next opening replays the log.
// Closing twice is undefined, as is a call on the map that runs at the same time.
mangrove_status mangrove_map_close(mangrove_map *map);

// The value of `key`, copied into new memory: give *value back with mangrove_free. One NUL byte
// follows it that *value_len does not count, so text can be printed as it is.
//
// Returns MANGROVE_NOT_FOUND, with *value NULL and *value_len 0, when there is no such key.
// Errors: MANGROVE_ERR_KEY_TOO_LONG; _CORRUPT: the value is not what was written; _POISONED: it was
// never made durable; _NO_MEMORY. While the durability is sync, it never returns a value that a crash
// could still undo.
// Threads: any.
mangrove_status mangrove_map_get(const mangrove_map *map,
                                 const void *key,
                                 size_t key_len,
                                 void **value,
                                 size_t *value_len);

// The value of `key`, copied into the caller's `buffer` of `capacity` bytes. *value_len is the length
// of the value in any case, so a call with (NULL, 0) finds it out. No NUL is added.
//
// Returns MANGROVE_BUFFER_TOO_SMALL when the value does not fit, and MANGROVE_NOT_FOUND when there is
// no such key. After any result but MANGROVE_OK the buffer may hold anything: the value is copied
// once, and checked as it is copied. The key may lie in the buffer.
// Errors: as mangrove_map_get, also where only the length is asked for. Threads: any.
mangrove_status mangrove_map_get_into(const mangrove_map *map,
                                      const void *key,
                                      size_t key_len,
                                      void *buffer,
                                      size_t capacity,
                                      size_t *value_len);

// The values of `count` keys. All four arrays have `count` elements: the keys, their lengths, and in
// their order copies of their values and the lengths of these; give each copy back with mangrove_free.
// A copy is NULL where there is no such key; a NUL byte follows it, as in mangrove_map_get. Where the
// map is larger than the processor's caches, this takes a fraction of the time of single calls,
// because the cache misses of the lookups overlap.
//
// Each value is what mangrove_map_get would return at some moment during the call; for values of one
// moment see mangrove_map_snapshot. Returns MANGROVE_OK whether keys are there or not. One array may
// hold the keys' lengths before the call and the values' after it.
// Errors: as mangrove_map_get, at the first key that fails: then every copy is NULL. Threads: any.
mangrove_status mangrove_map_get_many(const mangrove_map *map,
                                      size_t count,
                                      const void *const *keys,
                                      const size_t *key_lens,
                                      void **values,
                                      size_t *value_lens);

// MANGROVE_OK when `key` is there, MANGROVE_NOT_FOUND when not. Note that MANGROVE_OK is 0.
// Errors: as mangrove_map_get. Threads: any.
mangrove_status mangrove_map_contains(const mangrove_map *map, const void *key, size_t key_len);

// Sets `key` to `value`.
//
// Errors: MANGROVE_ERR_KEY_TOO_LONG, _VALUE_TOO_LONG, _READ_ONLY, _NO_SPACE, _FULL, _NO_MEMORY: nothing
// changed.
// MANGROVE_ERR_POISONED, _IO: not acknowledged; it may survive a restart or not.
// Crash: once acknowledged it is kept; during the call the key has its old or its new value, whole.
// Threads: any.
mangrove_status mangrove_map_put(const mangrove_map *map,
                                 const void *key,
                                 size_t key_len,
                                 const void *value,
                                 size_t value_len);

// As mangrove_map_put, but returns before the write is durable, whatever the durability. It becomes
// durable within about 100 ms (mangrove_options_set_nowait_within), with interval durability within
// about the interval, or when the process returns from main or calls exit, whichever comes first;
// _exit and exec wait for nothing.
// Crash: a prefix of such writes is kept; mangrove_map_sync waits for all. Threads: any.
mangrove_status mangrove_map_put_nowait(const mangrove_map *map,
                                        const void *key,
                                        size_t key_len,
                                        const void *value,
                                        size_t value_len);

// Sets `key` to `value` when `key` is absent; else returns MANGROVE_MISMATCH and changes nothing.
// Errors and crash: as mangrove_map_put. Threads: any.
mangrove_status mangrove_map_insert_new(const mangrove_map *map,
                                        const void *key,
                                        size_t key_len,
                                        const void *value,
                                        size_t value_len);

// Removes `key`; returns MANGROVE_NOT_FOUND when it was not there.
// Errors: as mangrove_map_put.
// Crash: once acknowledged the key stays removed; during the call its record is there, whole, or removed.
// Threads: any.
mangrove_status mangrove_map_delete(const mangrove_map *map,
                                    const void *key,
                                    size_t key_len);

// As mangrove_map_delete, but returns before it is durable. See mangrove_map_put_nowait.
// Threads: any.
mangrove_status mangrove_map_delete_nowait(const mangrove_map *map,
                                           const void *key,
                                           size_t key_len);

// Changes `key` from `expected` to `desired`, with nothing in between; returns MANGROVE_MISMATCH, and
// changes nothing, when the key is not as expected. A NULL pointer stands for "absent" here, on either
// side: (NULL, 0) as `desired` removes the key; the empty value is a pointer to anything and the
// length 0.
// Errors and crash: as mangrove_map_put. Threads: any.
mangrove_status mangrove_map_compare_and_set(const mangrove_map *map,
                                             const void *key,
                                             size_t key_len,
                                             const void *expected,
                                             size_t expected_len,
                                             const void *desired,
                                             size_t desired_len);

// How many records are in the map, in *len; as with mangrove_map_get, no crash can undo them.
// Beside writers the number is off by at most what they insert and remove during the call;
// mangrove_snapshot_len is right at any time.
// Errors: MANGROVE_ERR_POISONED when some may never have been made durable. Threads: any.
mangrove_status mangrove_map_len(const mangrove_map *map, uint64_t *len);

// Waits until every write that returned so far is durable.
// Errors: MANGROVE_ERR_POISONED, _IO: some may not be. Threads: any.
mangrove_status mangrove_map_sync(const mangrove_map *map);

// Brings the pool's data file up to date and empties the log, so that the next opening has nothing to
// replay. Happens by itself in the background; call it before copying files or measuring.
// Errors: MANGROVE_ERR_POISONED, _IO. Crash: keeps what it would keep without the call. Threads: any.
mangrove_status mangrove_map_checkpoint(const mangrove_map *map);

// Gives disk space and memory of deleted records back: moves what is left together and makes holes of free parts of
// the data file. Others read and write meanwhile; writes wait while up to 2,000 records
// are looked at, of which 50 move at most. Snapshots
// (iterators too) keep copies of what moves, and may expire. On dax and emulated media space stays with the pool.
// Errors: MANGROVE_ERR_READ_ONLY, _POISONED, _IO. Crash: keeps every record. Threads: any.
mangrove_status mangrove_map_compact(const mangrove_map *map);

// An iterator over `range` (NULL: everything) of the map as it is now; holds a snapshot until it is
// freed. It stands before the first record:
//
//     for (s = mangrove_iter_next(it); s == MANGROVE_OK; s = mangrove_iter_next(it)) ...
//
// Errors: MANGROVE_ERR_POISONED. Give back with mangrove_iter_free, before the map is closed.
// Threads: any for the map.
mangrove_status mangrove_map_iter(const mangrove_map *map,
                                  const mangrove_range *range,
                                  mangrove_iter **iter);

// As mangrove_map_iter, over a snapshot, which may be freed before the iterator.
// Give back with mangrove_iter_free. Threads: any for the snapshot.
mangrove_status mangrove_snapshot_iter(const mangrove_snapshot *snapshot,
                                       const mangrove_range *range,
                                       mangrove_iter **iter);

// Frees an iterator, and with it the bytes that mangrove_iter_key and _value pointed at. NULL is
// fine.
void mangrove_iter_free(mangrove_iter *iter);

// Moves to the first record of the range. Returns MANGROVE_NOT_FOUND when the range is empty.
// Errors, of this and the other moves: MANGROVE_ERR_CORRUPT, _SNAPSHOT_EXPIRED; the iterator then
// stands on no record, and mangrove_iter_next and _prev return the same error until another move succeeds. Of an
// expired snapshot none does.
mangrove_status mangrove_iter_first(mangrove_iter *iter);

// Moves to the last record of the range. Returns MANGROVE_NOT_FOUND when the range is empty.
mangrove_status mangrove_iter_last(mangrove_iter *iter);

// Moves to the first record of the range whose key is `key` or comes after it. Returns
// MANGROVE_NOT_FOUND when there is none; the iterator then stands after the last record.
mangrove_status mangrove_iter_seek(mangrove_iter *iter, const void *key, size_t key_len);

// Moves to the last record of the range whose key is `key` or comes before it. Returns
// MANGROVE_NOT_FOUND when there is none; the iterator then stands before the first record.
mangrove_status mangrove_iter_seek_back(mangrove_iter *iter, const void *key, size_t key_len);

// Moves to the next record: from before the first to the first, from the last to after it, where it returns
// MANGROVE_NOT_FOUND and stays. A change of direction costs a seek.
mangrove_status mangrove_iter_next(mangrove_iter *iter);

// Moves to the previous record: from after the last to the last, from the first to before it, where it
// returns MANGROVE_NOT_FOUND and stays.
mangrove_status mangrove_iter_prev(mangrove_iter *iter);

// True when the iterator stands on a record; false for NULL.
bool mangrove_iter_valid(const mangrove_iter *iter);

// The key under the iterator; *key_len, which may be NULL, is its length. Never NULL while the
// iterator stands on a record, NULL otherwise. Valid until the iterator moves or is freed.
const void *mangrove_iter_key(const mangrove_iter *iter, size_t *key_len);

// The value under the iterator, in the same way.
const void *mangrove_iter_value(const mangrove_iter *iter, size_t *value_len);

// An empty batch. Never NULL. Give back with mangrove_batch_free. Threads: any.
mangrove_batch *mangrove_batch_new(void);

// Frees a batch; entries that were not written are forgotten. NULL is fine.
void mangrove_batch_free(mangrove_batch *batch);

// Adds "set `key` to `value`". Of several entries for one key the last one counts.
// Errors: MANGROVE_ERR_KEY_TOO_LONG, _VALUE_TOO_LONG; the batch is as it was.
mangrove_status mangrove_batch_put(mangrove_batch *batch,
                                   const void *key,
                                   size_t key_len,
                                   const void *value,
                                   size_t value_len);

// Adds "remove `key`", which need not be there.
// Errors: MANGROVE_ERR_KEY_TOO_LONG; the batch is as it was.
mangrove_status mangrove_batch_delete(mangrove_batch *batch, const void *key, size_t key_len);

// Adds a condition: the batch takes effect only if `key` has the value `expected` at that moment, or is
// absent where `expected` is NULL (the empty value is a pointer to anything and the length 0). Otherwise
// mangrove_map_write returns MANGROVE_MISMATCH and changes nothing.
// Errors: MANGROVE_ERR_KEY_TOO_LONG, _VALUE_TOO_LONG; the batch is as it was.
mangrove_status mangrove_batch_expect(mangrove_batch *batch,
                                      const void *key,
                                      size_t key_len,
                                      const void *expected,
                                      size_t expected_len);

// Puts and deletes added; 0 for NULL.
size_t mangrove_batch_len(const mangrove_batch *batch);

// Bytes of all keys and values added; 0 for NULL.
uint64_t mangrove_batch_bytes(const mangrove_batch *batch);

// Forgets all entries and conditions.
mangrove_status mangrove_batch_clear(mangrove_batch *batch);

// Applies a batch: all of it or nothing, and no reader sees a part. The entries move into the map:
// afterwards the batch is empty, whatever the result, and may be filled again.
//
// Returns MANGROVE_MISMATCH, and changes nothing, when a record is not as the batch expects.
// Errors: MANGROVE_ERR_READ_ONLY, _NO_SPACE, _FULL: nothing of it happened. MANGROVE_ERR_POISONED, _IO:
// not acknowledged; it may survive a restart, as a whole, or not.
// Crash: once acknowledged all of it is kept; during the call all of it or nothing.
// Threads: any for the map, one at a time for the batch.
mangrove_status mangrove_map_write(const mangrove_map *map,
                                   mangrove_batch *batch);

// Removes every key in `range`, all or nothing; it takes no space, also on a full map. *removed, which may be
// NULL, is how many there were. To remove every key give { .flags = MANGROVE_RANGE_EVERYTHING }: NULL, or a
// range with neither start nor end, or with an empty start and no end, is MANGROVE_ERR_INVALID_ARGUMENT here.
// Errors and crash: as mangrove_map_write. Threads: any.
mangrove_status mangrove_map_delete_range(const mangrove_map *map,
                                          const mangrove_range *range,
                                          uint64_t *removed);

// Takes a snapshot. Waits for the writes that are under way, not for any reader.
// Errors: MANGROVE_ERR_POISONED. A crash ends it, as it ends the process.
// Give back with mangrove_snapshot_free, before the map is closed. Threads: any.
mangrove_status mangrove_map_snapshot(const mangrove_map *map, mangrove_snapshot **snapshot);

// Frees a snapshot. Iterators made from it stay valid, and keep what they need of it. NULL is fine.
void mangrove_snapshot_free(mangrove_snapshot *snapshot);

// As mangrove_map_get, at the snapshot's instant. One more error: MANGROVE_ERR_SNAPSHOT_EXPIRED.
// Give *value back with mangrove_free. Threads: any.
mangrove_status mangrove_snapshot_get(const mangrove_snapshot *snapshot,
                                      const void *key,
                                      size_t key_len,
                                      void **value,
                                      size_t *value_len);

// As mangrove_map_get_into, at the snapshot's instant. One more error:
// MANGROVE_ERR_SNAPSHOT_EXPIRED. Threads: any.
mangrove_status mangrove_snapshot_get_into(const mangrove_snapshot *snapshot,
                                           const void *key,
                                           size_t key_len,
                                           void *buffer,
                                           size_t capacity,
                                           size_t *value_len);

// How many records there were at the snapshot's instant, in *len.
// Errors: as mangrove_map_len. Threads: any.
mangrove_status mangrove_snapshot_len(const mangrove_snapshot *snapshot, uint64_t *len);

// Copies the map as it is at this instant into a new pool at `path`, while readers and writers
// continue. `callback` (NULL for none) is called every few thousand records, with `context`. *records,
// which may be NULL, is how many were copied.
//
// Errors: MANGROVE_ERR_POOL_EXISTS, _NO_SPACE, _FULL, _IO, _SNAPSHOT_EXPIRED, _STOPPED, _CORRUPT; _FOREIGN:
// something else lies at `path`; _UNSUPPORTED: `path` lies in a pool's directory; _POOL_BUSY: another backup
// to `path` is at work. Nothing is left at `path`.
// Crash: the new pool appears whole and durable, or not at all. Threads: any.
mangrove_status mangrove_map_backup(const mangrove_map *map,
                                    const char *path,
                                    mangrove_progress_callback callback,
                                    void *context,
                                    uint64_t *records);

// Reads every record against its checksums and every structure against its rules, while readers
// continue and writers wait. Returns MANGROVE_UNSOUND when something is wrong: *problems is then
// text, one problem a line, to give back with mangrove_free; otherwise NULL. *records is how many
// records are sound. Both may be NULL.
// Errors: only when the check itself cannot run. Threads: any.
mangrove_status mangrove_map_check(const mangrove_map *map, uint64_t *records, char **problems);

// Reads every byte of the pool at `path` against its checksums, without opening the map in it; of a heap,
// also its roots, what they point to, and every structure of its allocator. Writes nothing. Returns
// MANGROVE_UNSOUND when something is damaged, with *problems (which may be NULL) as in mangrove_map_check.
// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_BUSY, _FOREIGN, _NEWER, _CORRUPT, _IO; of a heap,
// _UNSUPPORTED: something else lies at its address. Threads: any.
mangrove_status mangrove_pool_check(const char *path,
                                    char **problems);

// Makes a new map at `path` with what `fill` puts into the map that it gets, with `context`. On the medium
// file it is written without a redo log, most of it in the background: with a quarter of the bytes that the
// same writes to an open map cost. Its writes do not wait for the disk. Open it with mangrove_map_open
// afterwards. `options` may be NULL for all defaults; whether they allow or demand an existing pool does
// not count: `path` must be free.
//
// `fill` may read, put, delete and write batches; keys in order are not needed. mangrove_map_checkpoint ends
// the load: what `fill` writes after it fails.
// Time: that of `fill`, then O(bytes) for those that have not been written yet, and one sync.
// Errors: MANGROVE_ERR_STOPPED: `fill` returned another number than 0; _IN_USE: it left a snapshot or an
// iterator alive; _POOL_EXISTS; _FOREIGN: something else lies at `path`; _POOL_BUSY: another load or backup to
// `path` is at work; _UNSUPPORTED: `path` lies in a pool's directory, or the options open read-only;
// _NO_SPACE, _FULL, _NO_MEMORY, _IO. Nothing is left at `path`.
// Crash: the new map appears whole and durable, or not at all. Threads: any.
mangrove_status mangrove_map_load(const char *path,
                                  const mangrove_options *options,
                                  mangrove_fill_callback fill,
                                  void *context);

// Copies every sound record of the map in the pool at `bad`, which may be damaged, into a new pool at
// `path`; `bad` stays as it is. Left out are records whose bytes do not have their checksum, and the
// writes of a log from its first damaged place on. `callback` and `context` are as in
// mangrove_map_backup. *records, which may be NULL, is how many were copied.
//
// Returns MANGROVE_UNSOUND when something is damaged: *damage, which may be NULL, is then text, one
// damaged place a line, to give back with mangrove_free; otherwise NULL. The new pool is there then, too.
// Errors: as mangrove_map_backup about `path`; about `bad`: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_BUSY,
// _WRONG_KIND, _FOREIGN, _NEWER, _IO; _CORRUPT: its file `pool` is damaged, or another file is missing.
// Crash: the new pool appears whole and durable, or not at all. Threads: any.
mangrove_status mangrove_map_salvage(const char *bad,
                                     const char *path,
                                     mangrove_progress_callback callback,
                                     void *context,
                                     uint64_t *records,
                                     char **damage);

// Figures of the map into *stat, whose `size` the caller has set. Costs a few
// microseconds. Threads: any.
mangrove_status mangrove_map_stat(const mangrove_map *map, mangrove_stat *stat);

// Waits until the map is recovered (mangrove_options_set_background_recovery).
//
// Errors: those of mangrove_map_open, MANGROVE_ERR_CORRUPT above all. Each later call that needs the
// whole map fails so, too. Threads: any.
mangrove_status mangrove_map_wait_recovered(const mangrove_map *map);

// What opening this map had to do, into *recovery, whose `size` the caller has set. Threads: any.
mangrove_status mangrove_map_recovery(const mangrove_map *map, mangrove_recovery *recovery);

// What the superblock of an open map's pool states, into *info, whose `size` the caller has set.
// Threads: any.
mangrove_status mangrove_map_info(const mangrove_map *map, mangrove_pool_info *info);

// What the superblock of the pool at `path` states, into *info, whose `size` the caller has set. Writes
// nothing; works on a pool that is in use. To find out whether it is, the call holds the pool's lock for an
// instant; an opening at that moment waits.
// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _FOREIGN, _NEWER, _CORRUPT, _IO. Threads: any.
mangrove_status mangrove_pool_read_info(const char *path,
                                        mangrove_pool_info *info);

// Figures of the heap into *stat, whose `size` the caller has set. No transaction runs meanwhile.
// Time: in proportion to the heap's pages.
// Errors: MANGROVE_ERR_TX_MISPLACED inside a transaction on it. Threads: any.
mangrove_status mangrove_heap_stat(const mangrove_heap *heap, mangrove_heap_figures *stat);

// Compares every structure of the heap's allocator with its rules. No transaction runs meanwhile.
// Returns MANGROVE_UNSOUND when something is wrong: *problems, which may be NULL, is then text, one
// problem a line, to give back with mangrove_free; otherwise NULL.
// Errors: MANGROVE_ERR_TX_MISPLACED inside a transaction on it. Threads: any.
mangrove_status mangrove_heap_check(const mangrove_heap *heap, char **problems);

// Opens the heap in the directory `path`, and recovers what was committed. It lies at the address that
// it had in every process before, so pointers stored in it are right again. `options` may be NULL: then
// the heap is created when missing, with all defaults.
//
// Time: reads the heap's data file once, and its log.
// Errors: MANGROVE_ERR_POOL_NOT_FOUND, _POOL_EXISTS, _POOL_BUSY, _FOREIGN, _NEWER, _WRONG_KIND,
// _CORRUPT, _READ_ONLY, _NO_SPACE, _FULL, _NO_MEMORY, _UNSUPPORTED (also: something else lies at its
// address), _IO; the heap is as it was.
// Crash: during a creation it leaves no heap, or a whole one, or one that opens as new.
// Give back with mangrove_heap_close. Threads: any.
mangrove_status mangrove_heap_open(const char *path,
                                   const mangrove_heap_options *options,
                                   mangrove_heap **heap);

// Brings the data file up to date, marks the heap clean, unlocks it and frees the handle.
//
// Errors: MANGROVE_ERR_IN_USE: a thread is inside a transaction on it, or left one by longjmp and has not
// come back to the library since; MANGROVE_ERR_TX_MISPLACED: the calling thread is a signal handler that
// interrupted the library; MANGROVE_ERR_UNSUPPORTED: the process was forked since it was opened. The heap
// stays open then and the handle valid. After any other result the handle is gone. MANGROVE_ERR_POISONED,
// _IO: the heap is not clean; what was acknowledged is in its log all the same.
// A process that ends without closing loses nothing acknowledged; the next opening replays the log.
// Closing twice is undefined, as is a call on the heap that runs at the same time.
mangrove_status mangrove_heap_close(mangrove_heap *heap);

// The heap's first byte, in *base: the same address in every process. Blocks lie behind it.
// Threads: any.
mangrove_status mangrove_heap_base(const mangrove_heap *heap, void **base);

// Copies the heap as it is at this instant into a new heap at `path`, while transactions continue; they
// wait only while memory is compared with the copy. *bytes, which may be NULL, is how many were copied.
// The new heap belongs at the same address, so one process opens one of the two at a time. The copy of an
// emulated heap lies on the medium file, where a copy is in memory until it is durable.
//
// Errors: MANGROVE_ERR_POOL_EXISTS, _NO_SPACE, _READ_ONLY, _IO, _POISONED; _NO_MEMORY: the process would have
// more than nine tenths of the memory of the machine or its control groups; _FOREIGN: something else lies at
// `path`; _UNSUPPORTED: `path` lies in another pool's directory; _POOL_BUSY: another backup to `path` is at
// work; _TX_MISPLACED inside a transaction on it. Nothing is left at `path`.
// Crash: the new heap appears whole and durable, or not at all. Threads: any.
mangrove_status mangrove_heap_backup(const mangrove_heap *heap,
                                     const char *path,
                                     uint64_t *bytes);

// Gives back the memory and the disk space of pages of 4 KiB in which no block lies, and brings the data file
// up to date. Blocks stay where they are. Transactions wait for the first part, which takes microseconds for
// each run of free pages. On dax and emulated media space stays with the heap.
// Errors: MANGROVE_ERR_READ_ONLY, _POISONED, _IO; _TX_MISPLACED inside a transaction on it.
// Crash: keeps every transaction. Threads: any.
mangrove_status mangrove_heap_compact(const mangrove_heap *heap);

// Waits until every transaction that has returned is durable, whatever the durability.
// Errors: MANGROVE_ERR_POISONED, _IO. Threads: any.
mangrove_status mangrove_heap_sync(const mangrove_heap *heap);

// New options: create the heap when it is missing, durability sync, all else automatic; the same
// that NULL stands for in mangrove_heap_open. Never NULL. Give back with mangrove_heap_options_free.
// Threads: any.
mangrove_heap_options *mangrove_heap_options_new(void);

// Frees options; heaps opened with them stay open. NULL is fine.
void mangrove_heap_options_free(mangrove_heap_options *options);

// Whether to create the heap when there is none. Default: true. With false, opening a missing heap
// returns MANGROVE_ERR_POOL_NOT_FOUND.
mangrove_status mangrove_heap_options_set_create(mangrove_heap_options *options, bool create);

// Whether the heap must be new: opening an existing one returns MANGROVE_ERR_POOL_EXISTS.
// Default: false.
mangrove_status mangrove_heap_options_set_create_new(mangrove_heap_options *options,
                                                     bool create_new);

// Whether to open without writing a byte: recovery happens in private memory, a transaction that wrote is
// undone and returns MANGROVE_ERR_READ_ONLY, nothing is created. On the file medium another process may have
// the heap open for writing: what is read is one durable instant, with all that was durable before this
// opening. Opening again reads a later one. Default: false.
mangrove_status mangrove_heap_options_set_read_only(mangrove_heap_options *options,
                                                    bool read_only);

// The medium of a new heap, or the expected one of an existing heap: one of mangrove_medium.
// Default: MANGROVE_MEDIUM_AUTO.
mangrove_status mangrove_heap_options_set_medium(mangrove_heap_options *options, int32_t medium);

// The devdax device ("/dev/dax0.0") that holds the data of a new heap on the medium dax, as for a map.
mangrove_status mangrove_heap_options_set_devdax(mangrove_heap_options *options,
                                                 const char *device);

// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line
// that is read from memory.
mangrove_status mangrove_heap_options_set_emulated_latency(mangrove_heap_options *options,
                                                           uint32_t write_ns,
                                                           uint32_t read_ns);

// A transaction returns once it is durable. The default. A property of this opening.
mangrove_status mangrove_heap_options_set_durability_sync(mangrove_heap_options *options);

// A transaction returns at once and is durable at most `milliseconds` (1 to 60000) later; so is what it
// read. A crash keeps a prefix of the transactions; mangrove_heap_sync waits for all. A property of this
// opening.
mangrove_status mangrove_heap_options_set_durability_interval(mangrove_heap_options *options,
                                                              uint32_t milliseconds);

// The most bytes that a new heap can grow to, 8 MiB to 16 TiB: address space, not disk space. It cannot
// be changed later: a heap that has another one is not opened (MANGROVE_ERR_UNSUPPORTED). Default: 256 GiB.
mangrove_status mangrove_heap_options_set_capacity(mangrove_heap_options *options,
                                                   uint64_t bytes);

// Bytes that the heap's redo log may grow to, 16 KiB to 1 GiB; on persistent memory the bytes of each of its
// logs. They bound the time of recovery, and the burst of transactions that is accepted without waiting.
// Default: 1 GiB, of which a heap that is opened copy on write uses 256 MiB; on persistent memory 64 MiB.
mangrove_status mangrove_heap_options_set_log_bytes(mangrove_heap_options *options,
                                                    uint64_t bytes);

// Logs of a new heap on persistent memory, 1 to 64: so many threads commit at the same time. On the
// file medium all threads share one. Default: the number of CPUs, at least 4.
mangrove_status mangrove_heap_options_set_log_count(mangrove_heap_options *options, uint32_t count);

// The persistence domain to assume on persistent memory: one of mangrove_domain, as for a map.
mangrove_status mangrove_heap_options_set_domain(mangrove_heap_options *options, int32_t domain);

// What isolates transactions: one of mangrove_executor. Default: MANGROVE_EXECUTOR_RECORDS. A property of
// this opening. mangrove_heap_open returns MANGROVE_ERR_INVALID_ARGUMENT for one that this machine does not
// have, or that does not go with the protocol; mangrove_last_error says what would work.
mangrove_status mangrove_heap_options_set_executor(mangrove_heap_options *options,
                                                   int32_t executor);

// How a commit becomes durable: one of mangrove_protocol. Default: MANGROVE_PROTOCOL_AUTO. A property of
// this opening. The file medium has MANGROVE_PROTOCOL_AUTO alone (group commit). On persistent memory
// those with time stamps go with every executor but MANGROVE_EXECUTOR_RECORDS, and need CPUs whose time
// stamp counters agree. mangrove_heap_open returns MANGROVE_ERR_INVALID_ARGUMENT otherwise, also where a
// busy machine could not compare the counters within 10 seconds: then a retry may help.
mangrove_status mangrove_heap_options_set_protocol(mangrove_heap_options *options,
                                                   int32_t protocol);

// The most memory that the heap takes, in bytes, at least 4 MiB: so the heap can be larger than the machine's
// memory. It is mapped copy on write, whatever mangrove_heap_options_set_copy_on_write says. A thread writes
// changed pages to the file and gives the memory of some back while no transaction runs, a pause of
// milliseconds; what running transactions write may exceed the limit for that long. Only transactions store to
// such a heap, also after mangrove_tx_privatise. What the library needs besides, above all memory
// for the redo log (up to its bytes), comes on top. A heap opened read-only lies in memory as a whole: opening
// fails with MANGROVE_ERR_INVALID_ARGUMENT if it takes more. Default: no limit. A property of this opening.
mangrove_status mangrove_heap_options_set_memory_max(mangrove_heap_options *options,
                                                     uint64_t bytes);

// Whether the heap is mapped, copy on write, instead of read when it is opened: opening then takes no
// time. On the file medium the checksums are compared afterwards: a page that does not match poisons the
// heap, but the program may have read it before. On dax and emulated nothing compares them: a damaged page
// is read as it is, and closing may give it a new checksum; mangrove_pool_check compares a closed heap. A
// page that cannot be read ends the process with SIGBUS. Default: false.
mangrove_status mangrove_heap_options_set_copy_on_write(mangrove_heap_options *options,
                                                        bool copy_on_write);

// Begins a transaction; *tx is for its accesses. `reads`: true if it rarely or never writes.
//
//     mangrove_status s = mangrove_tx_begin(heap, false, &tx);
//     while (tx != NULL) {
//         ... accesses, until one does not return MANGROVE_OK ...
//         s = mangrove_tx_commit(&tx); // MANGROVE_TX_STOP: again, with another tx
//     }
//
// A thread that ends before commit or abort undoes it. Other threads may wait for it until then, so keep it
// short.
// Errors: as those of mangrove_transaction; *tx is NULL then. Threads: any.
mangrove_status mangrove_tx_begin(const mangrove_heap *heap,
                                  bool reads,
                                  mangrove_tx **tx);

// Commits the transaction *tx. MANGROVE_OK: it is durable (with interval durability: at most that much later).
// MANGROVE_TX_STOP: it conflicted with another one, or asked for mangrove_tx_retry; it is undone and has begun
// again: do everything again with the new *tx. After any other result it has ended, and *tx is NULL.
// Errors: that of its first access that failed, and as those of mangrove_transaction: all is undone.
// MANGROVE_ERR_TX_MISPLACED: *tx is no transaction that this thread has begun by mangrove_tx_begin; or a signal
// handler has interrupted it, and *tx stays as it is.
// Crash: as mangrove_transaction. Threads: the one that began it.
mangrove_status mangrove_tx_commit(mangrove_tx **tx);

// Undoes the transaction *tx, and sets *tx to NULL. Returns MANGROVE_TX_ABORTED, when what the transaction read is
// durable.
// Errors: that of its first access that failed; MANGROVE_ERR_TX_MISPLACED: as for mangrove_tx_commit.
// Threads: the one that began it.
mangrove_status mangrove_tx_abort(mangrove_tx **tx);

// Runs `body` with `arg` as one transaction: atomic, isolated from those of other threads, and durable
// when the call returns MANGROVE_OK (with an interval, that much later: see
// mangrove_heap_options_set_durability_interval).
//
// Returns MANGROVE_TX_ABORTED when the body returned a number of its own, which is then in *value (may be
// NULL; 0 otherwise). Everything is undone then, and nothing was allocated or freed.
// Errors: that of the first access of the last run that failed, whatever the body returned after it: all is
// undone. MANGROVE_ERR_TX_MISPLACED: the calling thread is inside a transaction on this heap (use its `tx`),
// or a signal handler has interrupted the library, or the call comes from a destructor of a thread that is
// ending (a C++ thread_local, pthread_key_create) and has left the heap. MANGROVE_ERR_UNSUPPORTED: in a
// child of the process that opened the heap, also one that the body has forked. _POISONED, _NO_SPACE, _IO,
// _NO_MEMORY: all is undone.
// MANGROVE_ERR_IN_DOUBT: other threads have seen it, and a crash may undo it.
// Crash: once acknowledged it is kept; before that all of it or nothing. Threads: any.
mangrove_status mangrove_transaction(const mangrove_heap *heap,
                                     mangrove_tx_body body,
                                     void *arg,
                                     int32_t *value);

// As mangrove_transaction, for a body that rarely or never writes: what only writers need is skipped.
// With durability sync, the default, what it read is durable when the call returns. With an interval it is
// durable at most that much later; a crash before that undoes it. Threads: any.
mangrove_status mangrove_transaction_read(const mangrove_heap *heap,
                                          mangrove_tx_body body,
                                          void *arg,
                                          int32_t *value);

// As mangrove_transaction, but returns before what the body changed, and what it read, is durable; *ticket
// (may be NULL) names it for mangrove_heap_wait; after every result but MANGROVE_OK it holds zeros, and waiting for it
// returns MANGROVE_ERR_INVALID_ARGUMENT. Many commits then share one fence or one device write. Other
// transactions see the changes at once; those that wait for durability return when what they saw is durable,
// too. A commit that no thread waits for becomes durable within about 100 ms, and when the heap is closed.
// Crash: a prefix of the commits is kept, in their order. Threads: any.
mangrove_status mangrove_transaction_nowait(const mangrove_heap *heap,
                                            mangrove_tx_body body,
                                            void *arg,
                                            int32_t *value,
                                            mangrove_tx_ticket *ticket);

// Waits until the commit is durable, whatever the durability; so is everything that was committed before it.
// Errors: MANGROVE_ERR_IN_DOUBT: the medium failed before it was. MANGROVE_ERR_INVALID_ARGUMENT: the ticket is of
// another heap, or of an earlier opening; what was committed before an opening is durable if it is there.
// Threads: any.
mangrove_status mangrove_heap_wait(const mangrove_heap *heap,
                                   mangrove_tx_ticket ticket);

// Whether mangrove_heap_wait would return at once, into *durable. Errors: as there. Threads: any.
mangrove_status mangrove_heap_is_durable(const mangrove_heap *heap,
                                         mangrove_tx_ticket ticket,
                                         bool *durable);

// Copies `len` bytes of the heap, from `at` on, into the caller's memory at `into`, as the transaction sees
// them: its own writes, and else one consistent state. Any alignment. Time: in proportion to `len`.
//
// Returns MANGROVE_TX_STOP when the transaction must run again: return that from the body at once; later
// accesses return it too. Errors: MANGROVE_ERR_INVALID_ARGUMENT (also: not in the heap) undoes the
// transaction, whatever the body does then; MANGROVE_ERR_TX_MISPLACED: it has ended, or is another
// thread's. Both hold for every mangrove_tx function, and are not repeated below.
// A read or write of a whole aligned word of 8 bytes is the fastest, and one of 0 bytes does nothing, wherever `at`
// points. `into` is not in the heap.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_read(mangrove_tx *tx,
                                 const void *at,
                                 void *into,
                                 size_t len);

// Copies `len` bytes from the caller's memory at `from` into the heap, from `at` on. Others see them when
// the transaction has committed; bytes beside them are not stored to. Any alignment. Time: in proportion
// to `len`. Write to blocks that you have allocated: the heap's own words lie between them, and a write to those
// damages the heap. `from` is not in the heap: read what lies there with mangrove_tx_read first.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_write(mangrove_tx *tx,
                                  void *at,
                                  const void *from,
                                  size_t len);

// The word of 8 bytes at `at`, into *value. Threads: the one that runs the body.
mangrove_status mangrove_tx_load(mangrove_tx *tx, const uint64_t *at, uint64_t *value);

// Writes the word of 8 bytes at `at`. Threads: the one that runs the body.
mangrove_status mangrove_tx_store(mangrove_tx *tx, uint64_t *at, uint64_t value);

// Undoes the transaction and runs it again when something that it has read has changed. Returns
// MANGROVE_TX_STOP, for the body to return: `return mangrove_tx_retry(tx);`
// pthread_cancel does not end the wait: to end the thread, commit a change of what it has read.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_retry(mangrove_tx *tx);

// Asks that the commit return only when no other transaction can still read what this one unlinks, or
// undo a write to it: from then on plain loads and stores may use that memory.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_privatise(mangrove_tx *tx);

// A new block of at least `bytes` bytes of undefined content, at a multiple of 16 and of `align` (0, or a
// power of two). It exists once the transaction commits; *at is its address in every process, and NULL
// after another result.
// Errors: the transaction is undone, and the heap stays usable. MANGROVE_ERR_FULL: its capacity is in use, or no
// free part of it is long enough.
// MANGROVE_ERR_NO_SPACE: its medium is full.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_alloc(mangrove_tx *tx,
                                  size_t bytes,
                                  size_t align,
                                  void **at);

// As mangrove_tx_alloc, with every byte zero. Time: in proportion to `bytes`.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_alloc_zeroed(mangrove_tx *tx, size_t bytes, size_t align, void **at);

// Frees the block at `at`. Other transactions may get it once this one has committed. NULL is fine.
// Errors: MANGROVE_ERR_INVALID_ARGUMENT: no block in use begins there, and the transaction is undone.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_free(mangrove_tx *tx,
                                 void *at);

// Bytes that may be used of the block at `at`, into *bytes: those asked for, or a few more. Returns
// MANGROVE_NOT_FOUND, with *bytes 0, if no block in use begins there.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_usable_bytes(mangrove_tx *tx, const void *at, size_t *bytes);

// What the root `name` points to, into *at. Returns MANGROVE_NOT_FOUND, with *at NULL, when there is no
// such root. `bytes` is the size of what it points to, and must be what it was set with, from any language:
// MANGROVE_ERR_INVALID_ARGUMENT otherwise. Threads: the one that runs the body.
mangrove_status mangrove_tx_root(mangrove_tx *tx,
                                 const char *name,
                                 size_t bytes,
                                 void **at);

// Makes the root `name` (1 to MANGROVE_ROOT_NAME_BYTES_MAX bytes of UTF-8) point to `at`, where `bytes`
// bytes lie; replaces one of the same name.
// Errors: MANGROVE_ERR_INVALID_ARGUMENT: the name, or there are MANGROVE_ROOT_COUNT_MAX roots already.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_set_root(mangrove_tx *tx,
                                     const char *name,
                                     const void *at,
                                     size_t bytes);

// Removes the root `name`; what it pointed to stays. Returns MANGROVE_NOT_FOUND when there is none.
// Threads: the one that runs the body.
mangrove_status mangrove_tx_remove_root(mangrove_tx *tx, const char *name);

// Frees memory that a function of this library handed out as bytes or text; the same as free(). NULL
// is fine. Threads: any.
void mangrove_free(void *bytes);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MANGROVE_H */
