/*
 * Every way to get memory, inside write commands and outside, and mappings made by commands; then the same memory
 * in the next run.
 *
 *   memory STATE make      makes the state, exits without closing
 *   memory STATE verify    finds it
 *   memory STATE double|wild|brk|shared|execute|over    a command that must be refused
 */
#include "check.h"
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCKS 400
#define PAGE 4096

typedef struct {
    unsigned char *at;
    size_t len;
    unsigned char fill;
} block;

static block blocks[BLOCKS];
static char *copied, *printed, *line;
static unsigned char *mapped, *moved, *huge, *zeroed;
static char *from_outside;
/* Those of C23. */
void free_sized(void *block, size_t bytes);
void free_aligned_sized(void *block, size_t align, size_t bytes);

static void *made_inside[3];
static unsigned verified;

static void keep(int at, void *p, size_t len) {
    CHECK(p != NULL && malloc_usable_size(p) >= len);
    blocks[at] = (block){p, len, (unsigned char)(at * 7 + 1)};
    memset(p, blocks[at].fill, len);
}

static void families(void *ctx) {
    (void)ctx;
    int n = 0;
    void *p;
    for (int i = 0; i < 40; i++) {
        size_t len = (size_t)i * (size_t)i * 40 + 1, align = (size_t)16 << (i % 10);
        keep(n++, malloc(len), len);
        p = calloc(len, 2);
        for (size_t j = 0; j < 2 * len; j++) CHECK(((char *)p)[j] == 0);
        keep(n++, p, 2 * len);
        keep(n++, realloc(malloc(10), len), len);
        keep(n++, reallocarray(NULL, len, 3), 3 * len);
        p = aligned_alloc(align, len);
        CHECK((uintptr_t)p % align == 0);
        keep(n++, p, len);
        p = memalign(align, len);
        CHECK((uintptr_t)p % align == 0);
        keep(n++, p, len);
        CHECK(posix_memalign(&p, align, len) == 0 && (uintptr_t)p % align == 0);
        keep(n++, p, len);
        p = i % 2 ? valloc(len) : pvalloc(len);
        CHECK((uintptr_t)p % PAGE == 0);
        keep(n++, p, len);
        /* Freed inside, and used again. */
        free(malloc(len));
        free_sized(malloc(len), len);
        free_aligned_sized(aligned_alloc(align, len), align, len);
        p = malloc(len);
        memset(p, 3, len);
        p = realloc(p, 3 * len + 100);
        for (size_t j = 0; j < len; j++) CHECK(((char *)p)[j] == 3);
        CHECK(realloc(p, 0) == NULL);
    }
    CHECK(n < BLOCKS);
    volatile size_t half = SIZE_MAX / 2;
    errno = 0;
    void *volatile none = calloc(half, 4);
    CHECK(none == NULL && errno == ENOMEM);
    errno = 0;
    none = malloc(half);
    CHECK(none == NULL && errno == ENOMEM);
    CHECK(posix_memalign(&p, 3, 1) == EINVAL && posix_memalign(&p, 24, 1) == EINVAL);
    CHECK(malloc_usable_size(NULL) == 0);
    free(NULL);
    /* Functions of libc that allocate. */
    copied = strdup("copied by strdup");
    CHECK(asprintf(&printed, "%s %d", "printed by asprintf", 42) > 0);
    size_t room = 0;
    line = NULL;
    FILE *stream = fmemopen((char[]){"one line\nanother\n"}, 17, "r");
    CHECK(stream != NULL && getline(&line, &room, stream) == 9);
    fclose(stream);
    /* A block of the process's heap that a command makes longer is persistent from then on. */
    from_outside = realloc(from_outside, 1000);
    CHECK(strcmp(from_outside, "made outside") == 0);
    for (int i = 0; i < 3; i++) made_inside[i] = malloc(100 << (8 * i));
}

static void mappings(void *ctx) {
    (void)ctx;
    mapped = mmap(NULL, 10 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && (uintptr_t)mapped % PAGE == 0);
    for (int i = 0; i < 10 * PAGE; i++) CHECK(mapped[i] == 0);
    memset(mapped, 5, 10 * PAGE);
    CHECK(munmap(mapped + 4 * PAGE, 2 * PAGE) == 0);
    CHECK(madvise(mapped + PAGE, PAGE, MADV_DONTNEED) == 0 && mapped[PAGE] == 0);
    CHECK(mprotect(mapped, PAGE, PROT_READ) == 0 && mprotect(mapped, PAGE, PROT_READ | PROT_WRITE) == 0);
    unsigned char *third = mapped + 2 * PAGE;
    CHECK(mmap(third, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == third);
    CHECK(mapped[2 * PAGE] == 0);
    moved = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(moved, 6, 3 * PAGE);
    moved = mremap(moved, 3 * PAGE, 300 * PAGE, MREMAP_MAYMOVE);
    CHECK(moved != MAP_FAILED && moved[3 * PAGE - 1] == 6 && moved[3 * PAGE] == 0);
    moved = mremap(moved, 300 * PAGE, 200 * PAGE, 0);
    moved[200 * PAGE - 1] = 7;
    CHECK(munmap(mapped + 100 * PAGE + 1, PAGE) == -1 && errno == EINVAL);
    huge = malloc(40 << 20);
    huge[0] = 1, huge[(40 << 20) - 1] = 2;
    free(huge);
    zeroed = calloc(1, 30 << 20);
    for (size_t i = 0; i < 30 << 20; i += 4096) CHECK(zeroed[i] == 0);
    zeroed[12345678] = 9;
}

static void verify(void *ctx) {
    (void)ctx;
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].at == NULL) continue;
        CHECK(malloc_usable_size(blocks[i].at) >= blocks[i].len);
        for (size_t j = 0; j < blocks[i].len; j++) CHECK(blocks[i].at[j] == blocks[i].fill);
    }
    CHECK(strcmp(copied, "copied by strdup") == 0 && strcmp(printed, "printed by asprintf 42") == 0);
    CHECK(strcmp(line, "one line\n") == 0 && strcmp(from_outside, "made outside") == 0);
    for (int i = 0; i < 10 * PAGE; i++) {
        if (i / PAGE == 4 || i / PAGE == 5) continue;
        CHECK(mapped[i] == (i / PAGE == 1 || i / PAGE == 2 ? 0 : 5));
    }
    CHECK(moved[0] == 6 && moved[3 * PAGE - 1] == 6 && moved[3 * PAGE] == 0 && moved[200 * PAGE - 1] == 7);
    for (size_t i = 0; i < 30 << 20; i++) CHECK(zeroed[i] == (i == 12345678 ? 9 : 0));
}

static void release(void *ctx) {
    (void)ctx;
    for (int i = 0; i < BLOCKS; i += 2) {
        free(blocks[i].at);
        blocks[i].at = NULL;
    }
    verified++;
}

static void bad(void *ctx) {
    const char *how = ctx;
    verified = 1000;
    if (strcmp(how, "double") == 0) {
        void *volatile p = malloc(100);
        free(p);
        void *volatile again = p;
        free(again);
    }
    if (strcmp(how, "wild") == 0) {
        char *volatile p = malloc(100);
        void *volatile inner = p + 16;
        free(inner);
    }
    if (strcmp(how, "brk") == 0) sbrk(4096);
    if (strcmp(how, "shared") == 0) mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (strcmp(how, "execute") == 0) {
        void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(p, PAGE, PROT_READ | PROT_EXEC);
    }
    if (strcmp(how, "over") == 0) {
        char *p = malloc(100000);
        mremap(p, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x10000000);
    }
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = bad};
    mangrove_app *app;
    mangrove_app_client *client;
    CHECK(argc == 3);
    const char *how = argv[2];
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    if (strcmp(how, "make") == 0) {
        from_outside = strdup("made outside");
        OK(mangrove_app_write(client, families, NULL));
        OK(mangrove_app_write(client, mappings, NULL));
        OK(mangrove_app_read(client, verify, NULL));
        /* Outside commands: persistent blocks are known by their addresses. */
        CHECK(malloc_usable_size(made_inside[0]) >= 100);
        char *copy = realloc(made_inside[1], 1 << 20);
        memset(copy, 1, 1 << 20);
        free(copy);
        free(made_inside[0]);
        free(made_inside[2]);
        _exit(0);
    }
    if (strcmp(how, "verify") == 0) {
        OK(mangrove_app_read(client, verify, NULL));
        unsigned before = verified;
        OK(mangrove_app_write(client, release, NULL));
        CHECK(verified == before + 1);
        OK(mangrove_app_read(client, verify, NULL));
        mangrove_app_client_free(client);
        OK(mangrove_app_close(app));
        return 0;
    }
    CHECK(verified < 1000);
    mangrove_app_status status = mangrove_app_write(client, bad, argv[2]);
    fprintf(stderr, "%s: %s\n", mangrove_app_status_name(status), mangrove_app_last_error());
    return status == MANGROVE_APP_ERR_BROKEN ? 3 : 4;
}
