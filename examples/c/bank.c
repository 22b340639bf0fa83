/*
 * bank: threads transfer money between accounts of a durable heap, and can be killed at any moment.
 *
 *     cc bank.c $(pkg-config --cflags --libs mangrove) -pthread -o bank
 *     ./bank HEAP run COUNT [THREADS]   each thread makes COUNT transfers (0: for ever); "< T N" says that the
 *                                       N-th transfer of thread T is durable
 *     ./bank HEAP check                 says how many transfers there were, and whether any money is missing
 *
 * The accounts are a list of ordinary structures that point to each other. A transfer is one transaction: after a
 * crash it is there as a whole or not at all, and the pointers are right because the heap comes back at its address.
 */
#include <inttypes.h>
#include <mangrove.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCOUNTS = 50, EACH = 1000, THREADS_MAX = 16 };

typedef struct account {
    uint64_t number;
    uint64_t balance;
    struct account *next;
} account;

typedef struct {
    account *first;
    uint64_t transfers[THREADS_MAX]; /* of each thread */
} bank;

static mangrove_heap *heap;

/* Statuses below zero are errors; the others are answers. */
static mangrove_status need(mangrove_status status) {
    if (status < 0) {
        fprintf(stderr, "bank: %s\n", mangrove_last_error());
        exit(1);
    }
    return status;
}

/* In a body: passes on what an access answered, unless it is 0. */
#define TRY(access)                         \
    do {                                    \
        mangrove_status tried_ = (access);  \
        if (tried_ != MANGROVE_OK) return tried_; \
    } while (0)

/* What the body of a transfer returns when it aborts. */
enum { NOT_COVERED = 1 };

static int make_bank(mangrove_tx *tx, void *unused) {
    bank *bank_at, empty = {0};
    (void)unused;
    mangrove_status there = mangrove_tx_root(tx, "bank", sizeof(bank), (void **)&bank_at);
    if (there != MANGROVE_NOT_FOUND) return there; /* made before, or an error */
    for (uint64_t number = ACCOUNTS; number-- > 0;) {
        account *at;
        TRY(mangrove_tx_alloc(tx, sizeof *at, 0, (void **)&at));
        TRY(MANGROVE_TX_STORE(tx, at, {number, EACH, empty.first}));
        empty.first = at;
    }
    TRY(mangrove_tx_alloc(tx, sizeof(bank), 0, (void **)&bank_at));
    TRY(MANGROVE_TX_STORE(tx, bank_at, empty));
    return mangrove_tx_set_root(tx, "bank", bank_at, sizeof(bank));
}

typedef struct {
    unsigned thread;
    uint64_t from, to, amount;
    uint64_t count; /* the answer */
} transfer;

static int find(mangrove_tx *tx, bank *at, uint64_t number, account **found) {
    account *next;
    uint64_t its_number;
    TRY(MANGROVE_TX_LOAD(tx, &at->first, &next));
    while (next != NULL) {
        TRY(MANGROVE_TX_LOAD(tx, &next->number, &its_number));
        *found = next;
        if (its_number == number) return MANGROVE_OK;
        TRY(MANGROVE_TX_LOAD(tx, &next->next, &next));
    }
    return NOT_COVERED;
}

static int move_money(mangrove_tx *tx, void *arg) {
    transfer *it = arg;
    bank *at;
    account *from, *to;
    uint64_t balance;
    TRY(mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at));
    TRY(find(tx, at, it->from, &from));
    TRY(find(tx, at, it->to, &to));
    TRY(MANGROVE_TX_LOAD(tx, &from->balance, &balance));
    TRY(MANGROVE_TX_STORE(tx, &from->balance, balance - it->amount));
    if (balance < it->amount) return NOT_COVERED; /* undoes the store above, too */
    TRY(MANGROVE_TX_LOAD(tx, &to->balance, &balance));
    TRY(MANGROVE_TX_STORE(tx, &to->balance, balance + it->amount));
    TRY(MANGROVE_TX_LOAD(tx, &at->transfers[it->thread], &it->count));
    it->count++;
    return MANGROVE_TX_STORE(tx, &at->transfers[it->thread], it->count);
}

typedef struct {
    uint64_t sum, transfers;
} report;

static int audit(mangrove_tx *tx, void *arg) {
    report *it = arg;
    bank *at, all;
    account now;
    memset(it, 0, sizeof *it); /* a body may run again */
    TRY(mangrove_tx_root(tx, "bank", sizeof *at, (void **)&at));
    TRY(MANGROVE_TX_LOAD(tx, at, &all));
    for (account *next = all.first; next != NULL; next = now.next) {
        TRY(MANGROVE_TX_LOAD(tx, next, &now));
        it->sum += now.balance;
    }
    for (int i = 0; i < THREADS_MAX; i++) it->transfers += all.transfers[i];
    return MANGROVE_OK;
}

typedef struct {
    unsigned thread;
    long count;
} job;

static void *work(void *arg) {
    const job *it = arg;
    uint64_t random = 88172645463325252u + it->thread;
    for (long i = 0; it->count == 0 || i < it->count; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        transfer one = {.thread = it->thread, .from = random % ACCOUNTS, .amount = (random >> 32) % 300};
        one.to = (one.from + 1 + (random >> 16) % (ACCOUNTS - 1)) % ACCOUNTS;
        if (need(mangrove_transaction(heap, move_money, &one, NULL)) == MANGROVE_OK) {
            printf("< %u %" PRIu64 "\n", one.thread, one.count);
            fflush(stdout);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: bank HEAP run COUNT [THREADS] | bank HEAP check\n");
        return 2;
    }
    need(mangrove_heap_open(argv[1], NULL, &heap)); /* NULL: create it when missing, sync durability */
    need(mangrove_transaction(heap, make_bank, NULL, NULL));
    if (strcmp(argv[2], "run") == 0) {
        pthread_t threads[THREADS_MAX];
        job jobs[THREADS_MAX];
        int count = argc > 4 ? atoi(argv[4]) : 4;
        if (count < 1 || count > THREADS_MAX) count = THREADS_MAX;
        for (int i = 0; i < count; i++) {
            jobs[i] = (job){(unsigned)i, argc > 3 ? atol(argv[3]) : 1000};
            if (pthread_create(&threads[i], NULL, work, &jobs[i]) != 0) abort();
        }
        for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    }
    report it;
    need(mangrove_transaction_read(heap, audit, &it, NULL));
    printf("%" PRIu64 " transfers between %d accounts: %s\n", it.transfers, ACCOUNTS,
           it.sum == ACCOUNTS * EACH ? "all is well" : "money is missing");
    need(mangrove_heap_close(heap));
    return it.sum == ACCOUNTS * EACH ? 0 : 1;
}
