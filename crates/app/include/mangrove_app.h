/*
 * mangrove_app.h: an in-memory program whose state survives any crash.
 *
 * The program keeps its data structures as they are and links this library. Commands that only read
 * run natively and in parallel. Commands that write run in batches, one after another; every store
 * they make is tracked, each batch is committed to a redo log as one atomic group, and its commands
 * are acknowledged when it is durable. At the next start memory is put back as the last durable batch
 * left it.
 *
 *     static bool is_read_only(void *ctx) { return ((command *)ctx)->kind == GET; }
 *     static void process(void *ctx) { handle_request(ctx); }
 *     static int init_state(void *user) { return init_store(); }
 *
 *     mangrove_app_callbacks callbacks = { .bytes = sizeof callbacks, .is_read_only = is_read_only,
 *                                          .process = process, .init_state = init_state };
 *     mangrove_app *app;
 *     mangrove_app_client *client;
 *     if (mangrove_app_open("state", NULL, &callbacks, &app) != MANGROVE_APP_OK ||
 *         mangrove_app_client_new(app, &client) != MANGROVE_APP_OK) {
 *         fprintf(stderr, "%s\n", mangrove_app_last_error());
 *         exit(1);
 *     }
 *     mangrove_app_cmd(client, &some_command);   // acknowledged: it survives
 *
 * What is persistent: memory that write commands (and init_state) allocate or map, and the variables
 * of the program and its libraries that they write. What is not: the rest of the heap, stacks,
 * thread-local variables, files, sockets, threads. docs/durable.md says more, on one page.
 *
 * Rules that hold for every function:
 *
 * Results.  A mangrove_app_status of 0 is success, below 0 an error. The numbers are part of the ABI
 *   and never change. After an error mangrove_app_last_error() returns a message that says what
 *   happened and what to do. Any function may return these two errors, so they are not repeated below:
 *   MANGROVE_APP_ERR_INVALID_ARGUMENT (a NULL handle or out-parameter, a number out of range; nothing
 *   happened) and MANGROVE_APP_ERR_INTERNAL (a bug in Mangrove: please report it).
 *
 * Ownership.  What a function hands out through `T **out` belongs to the caller, which gives it back
 *   with the function named there; *out is NULL after an error. Functions that free accept NULL and do
 *   nothing. Using a handle after it was freed or closed is undefined.
 *
 * Threads.  "any" means that any number of threads may call it on the same handle at the same time.
 *   "one at a time" means that several threads may use the handle, but no two of them at once.
 *   pthread_cancel ends a thread at its first cancellation point after the call that it is in, which
 *   for mangrove_app_serve means after mangrove_app_stop.
 *
 * Callbacks.  No C++ exception, no longjmp and no pthread_exit may leave a callback. A write's process()
 *   may run on another thread than its client's. Inside process() of a write, calls on an
 *   application or a client that return a status return MANGROVE_APP_ERR_NESTED, except a
 *   mangrove_app_stat that does not ask for used_bytes. Inside process() of a read, a thread may
 *   read through another client. It must not write through one: it would wait for itself, for ever.
 *
 * Crashes.  A command that crashes, or ends the process, is not committed, nor is its batch: the next
 *   start finds the state before it. Nothing is ever committed in part.
 *
 * Processes.  Handles do not survive fork() in the child; let it exec or _exit.
 *
 * This file is generated from crates/app/src; edit there.
 */


#ifndef MANGROVE_APP_H
#define MANGROVE_APP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of this header. Compare with mangrove_app_version(), the library's.
#define MANGROVE_APP_VERSION "0.1.0"


// The result of a call. 0: done. Below 0: an error, see mangrove_app_last_error(). The numbers are
// part of the ABI. New ones may be added: treat an unknown one by its sign.
enum mangrove_app_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // Done.
    MANGROVE_APP_OK = 0,
    // An argument breaks the rules of the call. Nothing happened.
    MANGROVE_APP_ERR_INVALID_ARGUMENT = -1,
    // The pool could not be opened, read or written; the message says why and what to do.
    MANGROVE_APP_ERR_POOL = -2,
    // The state belongs to another build of the program, or to another program.
    MANGROVE_APP_ERR_FOREIGN = -3,
    // The state points to something of the process that lies elsewhere in this run, or will in the next.
    MANGROVE_APP_ERR_MOVED = -4,
    // The state's own structures contradict each other; nothing was served.
    MANGROVE_APP_ERR_DAMAGED = -5,
    // The state's address space is used up.
    MANGROVE_APP_ERR_FULL = -6,
    // An earlier error of the medium poisoned the pool: reads continue, writes fail. The next start
    // has every acknowledged write, unless the message says that the pool is damaged.
    MANGROVE_APP_ERR_POISONED = -7,
    // A command ended halfway: nothing of its batch is durable, and nothing more is served. Restart.
    MANGROVE_APP_ERR_BROKEN = -8,
    // The call came from inside a command, or on a client that is in a call. Nothing happened.
    MANGROVE_APP_ERR_NESTED = -9,
    // The chosen tracker cannot work here.
    MANGROVE_APP_ERR_TRACKER = -10,
    // init_state or on_recover returned another number than 0.
    MANGROVE_APP_ERR_REFUSED = -11,
    // More clients at a time than can be counted.
    MANGROVE_APP_ERR_TOO_MANY_CLIENTS = -12,
    // A call of the server came in the wrong order.
    MANGROVE_APP_ERR_SERVER = -13,
    // The operating system refused; mangrove_app_last_os_error() has its number.
    MANGROVE_APP_ERR_IO = -14,
    // Clients are still alive. Nothing happened.
    MANGROVE_APP_ERR_IN_USE = -15,
    // A bug in Mangrove; please report the message.
    MANGROVE_APP_ERR_INTERNAL = -16,
    // A call of a batch came in the wrong order, or from the wrong thread or process. Nothing happened.
    MANGROVE_APP_ERR_BATCH = -17,
    // This process may not have the memory that the state needs; the message says what it needs, and what to do.
    MANGROVE_APP_ERR_NO_MEMORY = -18,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_app_status mangrove_app_status;
#else
typedef int32_t mangrove_app_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The medium of a pool.
enum mangrove_app_medium
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // That of an existing pool; for a new one dax where the directory supports it, else file.
    MANGROVE_APP_MEDIUM_AUTO = 0,
    // Any file system.
    MANGROVE_APP_MEDIUM_FILE = 1,
    // Persistent memory mapped with MAP_SYNC, or a devdax character device.
    MANGROVE_APP_MEDIUM_DAX = 2,
    // DRAM that pretends to be persistent memory, for figures and tests. On tmpfs it survives the
    // process, never the machine.
    MANGROVE_APP_MEDIUM_EMULATED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_app_medium mangrove_app_medium;
#else
typedef int32_t mangrove_app_medium;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How the state comes into memory when it is opened.
enum mangrove_app_start
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // All of it is read, by all processors, and compared with its checksums first.
    MANGROVE_APP_START_READ = 0,
    // It is mapped, copy on write: ready at once, whatever its size. On a file system a thread in the
    // background compares every page with its checksum. A page that does not match poisons the pool,
    // but commands may have seen it; a page that cannot be read ends the process with SIGBUS. On
    // persistent memory a state that was closed is not compared. A child of fork must not read the
    // state: a page that its parent stores to only later shows what the parent makes durable.
    MANGROVE_APP_START_COPY_ON_WRITE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_app_start mangrove_app_start;
#else
typedef int32_t mangrove_app_start;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How the library learns what write commands write.
enum mangrove_app_tracker
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    // The best there is: the recompiler on x86-64.
    MANGROVE_APP_TRACKER_AUTO = 0,
    // Translates what commands reach while they run. Nothing has to be rebuilt.
    MANGROVE_APP_TRACKER_RECOMPILER = 1,
    // The program was built by clang with -fsanitize-coverage=func,trace-stores and
    // mangrove_tracker.h. Code that was not built so (libraries) is not seen, and what it writes is
    // not durable.
    MANGROVE_APP_TRACKER_COMPILER = 2,
    // The program calls mangrove_app_will_write before it writes. What it forgets is not durable.
    MANGROVE_APP_TRACKER_EXPLICIT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mangrove_app_tracker mangrove_app_tracker;
#else
typedef int32_t mangrove_app_tracker;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A durable application, open.
typedef struct mangrove_app mangrove_app;

// Issues commands, one at a time; usually each thread has one. Cheap; any number.
typedef struct mangrove_app_client mangrove_app_client;

// How to open an application and how to serve it. Threads: one at a time.
typedef struct mangrove_app_options mangrove_app_options;

// A reply to a client. The memory of `data` stays the application's. The library copies it before the next
// callback on this client. It copies the reply to a read before any write runs, so that reply may point into
// the state. The reply to a write must not, since other writes may have run by then.
typedef struct {
    // First byte; may be NULL when len is 0.
    const void *data;
    // Number of bytes.
    size_t len;
    // Whether the connection is closed once everything is sent.
    bool close;
} mangrove_app_response;

// What the application does. Set `bytes` to sizeof(mangrove_app_callbacks) and what is not needed to
// NULL. Local mode needs process; RPC mode also deserialize and get_response.
//
// Callbacks of one client run one after another on one thread, except process of a write, which runs
// on the thread that executes the batch. Callbacks of different clients run at the same time. But beside
// process of a write no other process runs, and no get_response of a read. All other callbacks do, also
// is_read_only: they must not look at the state, which a write may be changing.
typedef struct {
    // sizeof(mangrove_app_callbacks).
    size_t bytes;
    // Handed to init_client, init_state and on_recover.
    void *user;
    // RPC mode: a client connected; `id` is its number. Returns the context that the other callbacks
    // get; NULL refuses the client. When this is NULL the context is NULL.
    void *(*init_client)(uint64_t id, void *user);
    // RPC mode: the client is gone.
    void (*destroy_client)(void *ctx);
    // RPC mode: looks for one request at the start of `input`. Returns the bytes that it takes (1 to len), 0
    // when it is not there in full (called again with more), a negative number when this is no request (the
    // client is disconnected). The bytes stay where they are until get_response was called, so the context may
    // keep the pointer.
    ptrdiff_t (*deserialize)(void *ctx, const void *input, size_t len);
    // True when the request in the context changes nothing that is persistent. When this is NULL every
    // request is taken for a write.
    bool (*is_read_only)(void *ctx);
    // Processes the request in the context. Reads run natively and in parallel; writes are tracked.
    void (*process)(void *ctx);
    // RPC mode: fills in the reply to the request that was processed.
    void (*get_response)(void *ctx, mangrove_app_response *response);
    // RPC mode: the write in the context was not and will not be made durable; `status` and `message` say
    // why. Returns true when get_response has a reply that reports it. If it returns false, or is NULL, the
    // connection is closed.
    bool (*failed)(void *ctx, int32_t status, const char *message);
    // The state is new: makes it, tracked, as a write command would. Runs once in the state's life;
    // after a crash before mangrove_app_open returned it runs again, with an empty state. Returns 0,
    // or another number to refuse.
    int (*init_state)(void *user);
    // The state was found: opens again what is transient (files, sockets, threads). Native. Returns 0,
    // or another number to refuse.
    int (*on_recover)(void *user);
} mangrove_app_callbacks;

// Counters since the opening. Nothing needs to be set; mangrove_app_stat fills as many bytes as the
// caller says.
typedef struct {
    // Batches that were executed.
    uint64_t batches;
    // Write commands in them.
    uint64_t commands;
    // The number of the newest committed batch; grows.
    uint64_t committed;
    // The number of the newest durable batch; smaller than `committed` while a sync is under way.
    uint64_t durable;
    // 1 when writes fail, with a status that says why: the pool is poisoned, a command ended halfway, or a commit
    // was refused.
    uint64_t failed;
    // Ranges of bytes that batches committed.
    uint64_t ranges;
    // Bytes in them.
    uint64_t bytes;
    // Bytes of blocks in use in the state's memory, each as its allocation takes, and of memory that
    // commands mapped.
    uint64_t used_bytes;
    // Bytes of the log.
    uint64_t log_bytes;
    // Bytes of the log in use.
    uint64_t log_used;
    // Milliseconds since the last checkpoint, or the opening; 0 where the log is applied all the time
    // (persistent memory).
    uint64_t checkpoint_age;
    // Blocks that were freed outside commands and wait for the next batch.
    uint64_t waiting_frees;
} mangrove_app_counters;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as "0.1.0". Compare with MANGROVE_APP_VERSION, the header's. Static.
// Threads: any.
const char *mangrove_app_version(void);

// The name of a status, as "MANGROVE_APP_ERR_IO"; "MANGROVE_APP_UNKNOWN" for other numbers. Static.
// Threads: any.
const char *mangrove_app_status_name(int32_t status);

// What a status means in general, in a few words. mangrove_app_last_error() says more about the one
// case. Static. Threads: any.
const char *mangrove_app_status_text(int32_t status);

// What went wrong in the last call of this thread that returned an error: a message in UTF-8 of at
// most 1023 bytes. "" when there was none yet. A call that returns no error leaves it alone. Valid
// until the next call of this library on this thread; not to be freed. Threads: any, each has its own.
const char *mangrove_app_last_error(void);

// The errno that goes with mangrove_app_last_error() when that was MANGROVE_APP_ERR_IO; 0 when there
// is none. Threads: any, each has its own.
int32_t mangrove_app_last_os_error(void);

// New options: create the state when it is missing, durability sync, all else automatic; the same that
// NULL stands for in mangrove_app_open. Never NULL. Give back with mangrove_app_options_free.
// Threads: any.
mangrove_app_options *mangrove_app_options_new(void);

// Frees options; applications opened with them stay open. NULL is fine.
void mangrove_app_options_free(mangrove_app_options *options);

// Whether to make the state when there is none. Default: true. With false, opening a missing one
// returns MANGROVE_APP_ERR_POOL.
mangrove_app_status mangrove_app_options_set_create(mangrove_app_options *options, bool create);

// The medium of a new state: one of mangrove_app_medium. Default: MANGROVE_APP_MEDIUM_AUTO.
mangrove_app_status mangrove_app_options_set_medium(mangrove_app_options *options, int32_t medium);

// The devdax device ("/dev/dax0.0") that holds the data of a new state on the medium dax; the state's directory may
// lie on any file system. Creation zeroes the device, and fails if its first page is not blank. An existing state
// keeps its device, and another one is refused.
mangrove_app_status mangrove_app_options_set_devdax(mangrove_app_options *options,
                                                    const char *device);

// Chooses the emulated medium, with nanoseconds added to each flushed cache line and to each line that
// is read from memory.
mangrove_app_status mangrove_app_options_set_emulated_latency(mangrove_app_options *options,
                                                              uint32_t write_ns,
                                                              uint32_t read_ns);

// How the state comes into memory: one of mangrove_app_start. Default: MANGROVE_APP_START_READ.
mangrove_app_status mangrove_app_options_set_start(mangrove_app_options *options, int32_t start);

// A result is acknowledged when everything that it depends on is durable. The default.
mangrove_app_status mangrove_app_options_set_durability_sync(mangrove_app_options *options);

// Calls return at once, and what they did is durable at most about `milliseconds` (1 to 60000) later. A
// crash keeps a prefix of the batches, in the order in which they took effect; mangrove_app_sync
// waits.
mangrove_app_status mangrove_app_options_set_durability_interval(mangrove_app_options *options,
                                                                 uint32_t milliseconds);

// The most bytes that a new state can grow to: address space, not disk space. It cannot be changed later: a state
// that has another one is not opened. Default: 256 GiB.
mangrove_app_status mangrove_app_options_set_capacity(mangrove_app_options *options,
                                                      uint64_t bytes);

// Bytes that the state's redo log may grow to; on persistent memory, bytes of a new state's log. They bound the
// time of recovery, and the burst of writes that is accepted without waiting. Default: 1 GiB, of which a
// state that is opened copy on write uses 256 MiB; on persistent memory 64 MiB.
mangrove_app_status mangrove_app_options_set_log_bytes(mangrove_app_options *options,
                                                       uint64_t bytes);

// The most memory that this process may have, in bytes (what it uses elsewhere counts too). Opening a state
// that needs more returns MANGROVE_APP_ERR_NO_MEMORY, and the allocation of a command that would make the
// state grow beyond fails: malloc returns NULL. Default: nine tenths of what the machine and the process's
// control groups have, swap space included.
mangrove_app_status mangrove_app_options_set_memory_max(mangrove_app_options *options,
                                                        uint64_t bytes);

// How the library learns what commands write: one of mangrove_app_tracker. Default:
// MANGROVE_APP_TRACKER_AUTO.
mangrove_app_status mangrove_app_options_set_tracker(mangrove_app_options *options,
                                                     int32_t tracker);

// From now on `function` (a pointer to a function, as const void *) runs natively wherever write commands call
// it, as it would outside of them: what it allocates comes from the process's own heap and not from the
// state's, and what it writes is not tracked. For work that is not part of the state: making a reply, logging,
// telling other clients. It must not write to the state, throw, or jump out. Any number of functions. A call
// that the compiler has inlined is not noticed: name functions of another source file, or functions that are
// not inlined. Needs MANGROVE_APP_TRACKER_RECOMPILER; with another tracker opening returns
// MANGROVE_APP_ERR_TRACKER.
mangrove_app_status mangrove_app_native(mangrove_app_options *options,
                                        const void *function);

// For tests of a port: outside of commands the state's memory is read-only. Each write there is reported,
// once for each backtrace, and let through: report(address, frames, count, user) gets the addresses in the
// functions that led to it, innermost first, in a signal handler (SIGSEGV) of the thread that writes. NULL:
// a line and the backtrace go to standard error. Such writes are lost by the next restart, or survive in
// part, unless the program knows why they do no harm. Slow; one state of a process has it at a time. A
// system call that would write there fails with EFAULT.
mangrove_app_status mangrove_app_options_set_write_fence(mangrove_app_options *options,
                                                         void (*report)(const void *address,
                                                                        void *const *frames,
                                                                        size_t count,
                                                                        void *user),
                                                         void *user);

// The block in which writes are deduplicated: 16, 32, 64 or 128 bytes. Default: 32.
mangrove_app_status mangrove_app_options_set_block_bytes(mangrove_app_options *options,
                                                         uint32_t bytes);

// Whether a block that several commands of a batch wrote goes to the log once. Default: true. Without it the
// log has what each command wrote: for measurements.
mangrove_app_status mangrove_app_options_set_deduplicates(mangrove_app_options *options,
                                                          bool yes);

// Whether variables of the program and its libraries (.data, .bss) that commands write are part of the
// state. Default: true.
mangrove_app_status mangrove_app_options_set_variables(mangrove_app_options *options,
                                                       bool keep);

// Promises that the state depends on no address of code, constants or variables of the program and its
// libraries: neither by pointing there (a commit that does is refused, with MANGROVE_APP_ERR_MOVED), nor
// by hashing such an address. Then it can be made and opened where the program cannot have the same
// addresses at each start (mangrove_app_addresses_are_fixed). Default: false: there, opening returns
// MANGROVE_APP_ERR_MOVED, unless the program and its own libraries are linked at a fixed address
// (-no-pie) or MANGROVE_RANDOM_ADDRESSES is in the environment.
mangrove_app_status mangrove_app_options_set_random_addresses(mangrove_app_options *options,
                                                              bool promise);

// Event loops of the server, 1 to 1024; another number is taken for the nearest of these. Default: one a CPU.
mangrove_app_status mangrove_app_options_set_workers(mangrove_app_options *options,
                                                     uint32_t count);

// Longest request in bytes; a client that sends a longer one is disconnected. Default: 512 MiB.
mangrove_app_status mangrove_app_options_set_request_bytes_max(mangrove_app_options *options,
                                                               uint64_t bytes);

// Bytes of unsent replies at which a client's further requests wait. Default: 1 MiB.
mangrove_app_status mangrove_app_options_set_backlog_bytes_max(mangrove_app_options *options,
                                                               uint64_t bytes);

// Clients at a time; more are closed as they come. Default: 10000.
mangrove_app_status mangrove_app_options_set_clients_max(mangrove_app_options *options,
                                                         uint32_t count);

// Milliseconds after which a client that takes nothing of a waiting reply is disconnected. Default: 60000.
mangrove_app_status mangrove_app_options_set_stalled_max(mangrove_app_options *options,
                                                         uint32_t milliseconds);

// Milliseconds after which a client that sends nothing is disconnected. 0: never, the default (TCP keep-alive
// finds clients that vanished).
mangrove_app_status mangrove_app_options_set_idle_max(mangrove_app_options *options,
                                                      uint32_t milliseconds);

// Milliseconds that a shutdown waits for clients to take their replies. Default: 10000.
mangrove_app_status mangrove_app_options_set_shutdown_max(mangrove_app_options *options,
                                                          uint32_t milliseconds);

// Opens the state in the directory `path`, or makes it, with `options` (NULL: the defaults) and the
// application's `callbacks`, which are copied. On success memory is as the last durable batch left it, and
// init_state (new) or on_recover (found) has run. *out is set before they run, so init_state may call
// mangrove_app_root.
//
// Call it early in main, before the program makes threads or uses what is persistent. Close with
// mangrove_app_close. Errors: MANGROVE_APP_ERR_POOL, _FOREIGN, _MOVED, _DAMAGED, _TRACKER, _REFUSED, _IO,
// _NO_MEMORY, and with copy on write _POISONED, when a damaged page is found meanwhile.
// A crash during the call: the next one finds the state whole, or none.
mangrove_app_status mangrove_app_open(const char *path,
                                      const mangrove_app_options *options,
                                      const mangrove_app_callbacks *callbacks,
                                      mangrove_app **out);

// Makes everything durable, brings the data file up to date, and closes the state. NULL is fine. After
// MANGROVE_APP_ERR_IN_USE (clients are alive), _BATCH (a batch is open, or this process is a forked child) and
// _NESTED the application is still open. After every other result it is gone, and after an error the next opening
// recovers. Not to be called while another thread uses it.
mangrove_app_status mangrove_app_close(mangrove_app *app);

// True when mangrove_app_open made the state rather than found one. False for NULL. Threads: any.
bool mangrove_app_is_new(const mangrove_app *app);

// One of sixteen pointers of the state (`index` 0 to 15), NULL at first: from them a program
// without variables of its own finds its data again. Write it inside write commands only. NULL for
// a NULL application or another index. Threads: any.
void **mangrove_app_root(const mangrove_app *app, uint32_t index);

// Waits until every write that has returned so far is durable, whatever the durability.
// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
mangrove_app_status mangrove_app_sync(const mangrove_app *app);

// Brings the data file up to date and frees the log, so that the next opening has less to do. Runs
// beside commands.
// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
mangrove_app_status mangrove_app_checkpoint(const mangrove_app *app);

// Gives back the memory and the disk space of pages of 4 KiB in which nothing is allocated, and brings
// the data file up to date. What is allocated stays where it is. Commands and reads wait for the first
// part, which takes milliseconds for each gigabyte. Closing does the same if an eighth of the state is
// free.
// Errors: MANGROVE_APP_ERR_POISONED. Threads: any.
mangrove_app_status mangrove_app_compact(const mangrove_app *app);

// A new client of the application. Free it with mangrove_app_client_free.
// Errors: MANGROVE_APP_ERR_TOO_MANY_CLIENTS. Threads: any.
mangrove_app_status mangrove_app_client_new(const mangrove_app *app, mangrove_app_client **out);

// Ends a client. NULL is fine. Not while it is in a call.
void mangrove_app_client_free(mangrove_app_client *client);

// Processes one command, `ctx` being what the callbacks get: a read natively, beside other reads, a
// write in a batch. Returns when the write, or what the read saw, is durable (with interval durability:
// at once). The results are where process() put them.
//
// Errors: MANGROVE_APP_ERR_POISONED, _BROKEN (a write: not durable; with _POISONED it may or may not have run),
// _MOVED and _FOREIGN (the commit was refused: the write is not durable, and no later one will be), _NESTED, _BATCH
// (this thread has a batch open; nothing was done). A crash during the call: the write is there whole or not at all.
// Complexity: that of process(), plus two uncontended atomic operations for a read, plus the tracking and the log
// for a write. Threads: one at a time.
mangrove_app_status mangrove_app_cmd(mangrove_app_client *client,
                                     void *ctx);

// As mangrove_app_cmd, for a read that is another function than the process callback: f(ctx) runs
// natively, beside other reads, never beside a write. Threads: one at a time.
mangrove_app_status mangrove_app_read(mangrove_app_client *client, void (*f)(void *ctx), void *ctx);

// As mangrove_app_cmd, for a write that is another function than the process callback: f(ctx) runs
// tracked and alone. Threads: one at a time.
mangrove_app_status mangrove_app_write(mangrove_app_client *client,
                                       void (*f)(void *ctx),
                                       void *ctx);

// With MANGROVE_APP_TRACKER_EXPLICIT: announces, inside a write command, that `len` bytes at `ptr` are
// about to be written. Elsewhere it does nothing.
void mangrove_app_will_write(const void *ptr,
                             size_t len);

// Runs f(ctx) tracked and alone, into the open batch; opens one first if none is open. From then on until
// mangrove_app_batch_commit clients of other threads neither read nor write: they wait. Between its calls
// the thread reads the state as it likes; what it allocates there is not persistent, and what it frees
// becomes free with the commit.
//
// Errors: MANGROVE_APP_ERR_POISONED and _BROKEN are final: nothing of the batch is committed. _NESTED:
// called from inside a command or a read. _BATCH: another thread has a batch open, or this process is a
// forked child. A crash before the commit: nothing of the batch is there. Complexity: that of f, plus the
// tracking; no system call.
// Threads: any, but one has the batch open at a time, from its first call to the commit.
// A thread that ends before the commit ends the batch: nothing of it is committed, and every later call
// returns MANGROVE_APP_ERR_BROKEN.
mangrove_app_status mangrove_app_batch_call(const mangrove_app *app,
                                            void (*f)(void *ctx),
                                            void *ctx);

// Commits the open batch as one atomic group, after the frees that were waiting, and does not wait until it is
// durable. Replies to the batch, and to reads after it, may leave when mangrove_app_durable is at least
// *ticket, which is 0 after an error. Tickets grow. If no batch is open and frees wait, the call commits
// those.
//
// On persistent memory the batch is durable when this returns: call mangrove_app_durable after each commit.
//
// Errors: MANGROVE_APP_ERR_POISONED, _BROKEN, _MOVED: nothing of the batch is durable, nor will be.
// _BATCH: no batch is open and no free waits; another thread has it open; a forked child. _NESTED. A crash
// during the call: the batch is there whole or not at all.
// Threads: the one that has the batch open.
mangrove_app_status mangrove_app_batch_commit(const mangrove_app *app,
                                              uint64_t *ticket);

// The greatest ticket that is durable, in every durability mode: one load. It grows no more once the medium
// has failed. 0 for NULL. Threads: any.
uint64_t mangrove_app_durable(const mangrove_app *app);

// Waits until a reply that depends on `ticket` may leave: until the ticket is durable. With interval
// durability it returns at once (mangrove_app_sync waits in every mode).
//
// Errors: MANGROVE_APP_ERR_POISONED: the medium has failed, and the ticket is not durable. _BATCH: no batch
// has this ticket; a forked child. _NESTED.
// Threads: any.
mangrove_app_status mangrove_app_wait(const mangrove_app *app,
                                      uint64_t ticket);

// A descriptor for the program's event loop (an eventfd, not blocking, close-on-exec). It becomes readable
// when a batch becomes durable after its mangrove_app_batch_commit has returned, and once when the medium
// has failed. The loop reads its eight bytes and then calls mangrove_app_durable.
//
// The first call starts a thread that has all signals blocked and makes batches durable, one sync after
// the other; without it mangrove_app_wait does that. The descriptor stays the application's, and
// mangrove_app_close closes it. -1 on failure, and mangrove_app_last_error says why.
// Threads: any.
int32_t mangrove_app_notify_fd(const mangrove_app *app);

// Whether `ptr` points into the memory of an open state. One comparison for most other pointers.
// Threads: any.
bool mangrove_app_is_persistent(const void *ptr);

// Whether the calling thread runs a write command: what it allocates now is persistent. False inside a
// function that mangrove_app_native named. Threads: any.
bool mangrove_app_is_inside(void);

// Listens at `address`: "HOST:PORT" (port 0: the system chooses, see mangrove_app_address) or
// "unix:PATH" (a socket file that a crash left is replaced). May be called several times before
// mangrove_app_serve. Clients may connect from now on and are served from then on.
// Errors: MANGROVE_APP_ERR_IO, _SERVER (deserialize or get_response is missing; or it has served already).
// Threads: any.
mangrove_app_status mangrove_app_listen(const mangrove_app *app,
                                        const char *address);

// The `index`-th address that mangrove_app_listen opened, in the form for clients; NULL when there is
// none. Valid until the application is closed. Threads: any.
const char *mangrove_app_address(const mangrove_app *app,
                                 uint32_t index);

// Serves until mangrove_app_stop: accepts clients, has their requests processed, and sends replies once what
// they depend on is durable. Once in the life of an application. On return every client is gone and everything
// is durable. Errors: MANGROVE_APP_ERR_SERVER (listens nowhere), _IO, _POISONED (at the last sync).
// Threads: any; other threads may keep using clients of their own.
mangrove_app_status mangrove_app_serve(const mangrove_app *app);

// Ends mangrove_app_serve: no new clients; requests that were received in full are processed, and their
// replies sent, first. Async-signal-safe; let no handler call it once mangrove_app_close has begun. Does nothing when
// nothing listens. Threads: any.
void mangrove_app_stop(const mangrove_app *app);

// Fills `out`, `bytes` being sizeof(mangrove_app_counters) as the caller's header has it. If used_bytes is
// among them it waits until no batch of another thread is open, and looks at the whole arena: less than a
// millisecond for each gigabyte. Errors: MANGROVE_APP_ERR_NESTED; _BATCH: a forked child.
// Threads: any.
mangrove_app_status mangrove_app_stat(const mangrove_app *app,
                                      mangrove_app_counters *out,
                                      size_t bytes);

// Whether this process has its modules where every start has them. False where a sandbox forbids
// personality(2), or with MANGROVE_RANDOM_ADDRESSES in the environment: opening then demands a program
// at a fixed address (-no-pie) or a promise (mangrove_app_options_set_random_addresses), and no command
// may make the state point to a module that moves.
// Threads: any.
bool mangrove_app_addresses_are_fixed(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MANGROVE_APP_H */
