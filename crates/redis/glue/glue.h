/* What the files of the glue share. The server's objects are linked unmodified; the linker gives our
 * definitions of some of its functions (`--wrap`, and symbols made weak), each in the file named for its matter.
 *
 * Invariants:
 *   1. What the keyspace holds is written inside tracked calls only (`track`); the whitelist of `fence.c` names
 *      the exceptions.
 *   2. A commit is made at the end of a round of the event loop, never within one: a request whose argument
 *      became a value holds a reference to it until the client is reset.
 *   3. No byte leaves for a client or a replica while a batch on which it may depend is not durable. */
#ifndef MANGROVE_GLUE_H
#define MANGROVE_GLUE_H

#include "server.h"
#include "cluster.h"
#include "functions.h"
#include "io_threads.h"
#include "kvstore.h"
#include "rdb.h"
#include "script.h"
#include "mangrove_app.h"

/* More than the server has commands and subcommands. */
#define COMMANDS_MAX 2048
/* The most databases that a state has room for. */
#define DATABASES_MAX 1024

typedef struct {
    kvstore *keys, *expires;
} database_t;

/* Values that commands detached and that the loop frees in slices. */
typedef struct grave_t {
    struct grave_t *next;
    robj *value;            /* or */
    kvstore *keys, *expires;
} grave_t;

/* Root 0 of the state. */
typedef struct {
    uint8_t seed[16];       /* of both hash functions */
    int ready;              /* the databases are made */
    int loaded;             /* the first start's import is in whole */
    int aof_begun;          /* that import is one of an append-only file, and not in whole */
    int syncing;            /* a replica takes over a primary's data: half of it is worth nothing */
    int databases;
    int cluster;
    int emulated;           /* made on the emulated medium, which keeps nothing over a power cut */
    grave_t *grave;
    size_t grave_len;
    database_t *temporary;  /* what a replica loads beside the databases, to be exchanged with them */
    sds functions;          /* sources of the libraries: length (8 bytes), bytes, and so on */
    int replicating;        /* the next three count */
    char replid[CONFIG_RUN_ID_SIZE + 1];
    long long offset;
    int stream_db;
    database_t db[DATABASES_MAX];
} root_t;

/* What the launcher asks for, from the environment. */
typedef struct {
    const char *state;      /* directory; NULL: no durability was asked for */
    int interval_ms;        /* 0: sync */
    int medium;             /* of mangrove_app_medium */
    unsigned write_ns, read_ns;
    uint64_t log_bytes;     /* 0: the library's default */
    int slow_ms;            /* batches that take longer are logged; 0: none */
    int io_reads;           /* I/O threads execute reads */
    int wait_in_loop;       /* replies wait in the loop instead of being parked */
    int hold_ms;            /* a batch counts as durable so much later, for tests */
    const char *hold_file;  /* no batch counts as durable while it is there, for tests; an absolute path */
    int fence;
    int apart;              /* the log gets what each command wrote, for measurements of deduplication */
    int is_daemon;          /* the launcher made the process a daemon */
    const char *without;    /* a hook left out, for tests of the tests */
} settings_t;

#define SAY(...) serverLog(__VA_ARGS__)

/* What each file gives the others, from the bottom up: a file uses those above its own here. `cargo xtask tidy` finds
 * circles. */

/* settings.c */
extern mangrove_app *app;   /* NULL: the server runs as it is, without durability */
extern root_t *root;
extern settings_t settings;
void settings_read(void);
/* Ends the process: memory may no longer be what a restart would find. */
void die(const char *what);
bool left_out(const char *hook);

/* slow.c */
void slow_round(void), slow_commit(void), slow_durable(uint64_t durable);
void slow_committed(uint64_t ticket, long long commands);
extern long long slow_units;

/* hooks.c */
enum hook {
    HOOK_DICT_SEED, HOOK_TABLE_SEED, HOOK_POLICY, HOOK_COMMANDS, HOOK_SET_KEY, HOOK_ADD, HOOK_REPLACE,
    HOOK_EXPIRED, HOOK_EXPIRE_CYCLE, HOOK_RESIZE, HOOK_REHASH, HOOK_EVICT, HOOK_FREE, HOOK_EMPTY, HOOK_PENDING,
    HOOK_WRITE, HOOK_IO_WRITE, HOOK_PIECE, HOOK_TOUCH, HOOK_AHEAD, HOOK_IO_READ, HOOKS
};
extern long long hook_calls[HOOKS];
#define HOOKED(h) (hook_calls[HOOK_##h]++)
const char *hook_name(enum hook h);
sds hooks_info(sds info);

/* policy.c */
void policy_inside(void), policy_outside(void);

/* sections.c */
/* So many threads may read, numbered from 0. */
void sections_start(int threads);
/* On the main thread: lets threads in, or keeps them out and waits until none is inside. */
void sections_open(void), sections_close(void);
/* On the thread with this number: false, the sections are closed. */
bool section_enter(int thread);
void section_leave(int thread);

/* round.c */
extern int starting;        /* until the server serves */
extern int inside;          /* a tracked call runs */
extern int dirty;           /* tracked calls ran since the last commit */
extern uint64_t open_batch; /* the number of the batch that collects */
extern uint64_t last_ticket;
extern long long tracked_calls, commits;
void track(void (*f)(void *), void *ctx);
/* `f` tracks what the state is to have beside what commands wrote. */
void before_commit(void (*f)(void));
/* Calls those. */
void collect(void);
/* Ends the round's batch. */
void commit(void);
/* Commits and waits for durability. Not within a transaction or a script. */
void settle(void);

/* address.c */
/* Notes how the server is reached, and whether it serves already. */
void address_note(bool serves);

/* space.c */
/* With less left on the file system beside what an allocation asks for, one that fails is due to that. */
#define SPACE_LOW (16 << 20)
/* From now on a failed allocation ends the process with a message. One that the server only tries does so if the medium
 * is full. */
void space_start(void);
/* Gives free pages back if a command has asked for it; at a round's end, when nothing is open. */
void space_give_back(void);

/* changes.c */
void changes_key(int db, const robj *key), changes_all(void);
/* The keys that the command names, or everything if it names none. */
void changes_by_command(client *c);
/* The newest batch that changed the key; it may be durable. */
uint64_t changes_of(int db, const robj *key);
/* The newest batch that changed a key of the command, into `batch` if it is newer. False: its keys are not known. */
bool changes_of_command(client *c, uint64_t *batch);
bool changes_each_key(client *c, void (*f)(int db, const robj *key, void *ctx), void *ctx);

/* functions.c */
void functions_keep(void), functions_load(void);

/* replication.c */
void replication_keep(void);
bool replication_found(rdbSaveInfo *info);

/* grave.c */
/* Puts tables into it; inside a tracked call. */
void grave_bury(kvstore *keys, kvstore *expires);
extern int memory_is_wanted; /* eviction runs */
/* Frees a slice of it; false when it is empty. */
bool grave_dig(void);
/* Goes on with what the last process left. */
void grave_start(void);

/* import.c */
extern int importing;       /* pieces of a file go into the databases, and are committed now and then */
void import_slice(void);
/* There is an append-only file to import. */
bool import_finds_aof(void);
/* Drops what an import, or a replica's synchronisation, left that a crash cut off. */
void import_recover(void);
void import_end(void);

/* bus.c */
/* What was published since the last call rests on this batch; 0: on nothing that is not durable. */
void bus_rests_on(uint64_t batch);
/* Sends what rests on batches up to this one. */
void bus_send(uint64_t durable);

/* gate.c */
void gate_start(void);
void gate_flush(void);
/* No output leaves from now on until what was executed so far is durable, with interval durability too. */
void gate_hold_until_durable(void);
size_t gate_parked(void);
/* Where the client's output ends: differs when something was added. */
uint64_t gate_mark(client *c);
/* What the client was told since `before` rests on `batch` and those before it, and on no later one. */
void gate_read(client *c, uint64_t before, uint64_t batch);
extern long long gate_waits, gate_held, gate_passed;

/* commands.c */
extern int commands_hooked;
/* Calls `f` with each command of both tables, subcommands too: also those that rename-command took away. A command that
 * is in both comes twice. */
void each_command(void (*f)(struct serverCommand *cmd));
void hook_commands(void);

/* io_reads.c */
void io_reads_start(void);
/* Adds the answer that an I/O thread has made for the command which is about to be called, and tells the batch that it
 * rests on. False: there is none. */
bool io_reads_answer(client *c, uint64_t *batch);
extern long long io_reads_given, io_reads_dropped;

/* reads.c */
void hook_reads(void);

/* info.c */
/* Lets used_memory include what was found. Before anything of it is freed. */
void memory_recovered(void);

/* symbols.c */
void symbols_read(void);
/* The function that has this instruction; "?" if it has no name. */
const char *symbol_name(const void *code);

/* fence.c */
bool fence_set(mangrove_app_options *options);

/* native.c */
void natives_add(mangrove_app_options *options);

/* rehearsal.c */
void hooks_check(void);

#endif
