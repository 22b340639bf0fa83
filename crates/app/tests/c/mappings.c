/*
 * What commands map: persistent whatever the flags, or refused with a message.
 *
 *   mappings STATE make FILE     maps, in a command, and kills itself; FILE has a page of 1 and 100 bytes of 2
 *   mappings STATE verify FILE   finds what was mapped, without the file
 *   mappings STATE HOW FILE      a command asks for what cannot be persistent
 */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MAP_32BIT
#define MAP_32BIT 0
#endif
enum { PAGE = 4096, BOTH = PROT_READ | PROT_WRITE, ANONYMOUS = MAP_PRIVATE | MAP_ANONYMOUS };

static unsigned char *stack, *eager, *huge, *zero, *area, *copy, *tail, *constant;
static unsigned verified;
static const char *path;
static unsigned char *outside;

static unsigned char *map(size_t len, int protection, int flags, int fd, off_t offset) {
    unsigned char *at = mmap(NULL, len, protection, flags, fd, offset);
    CHECK(at != MAP_FAILED && (uintptr_t)at % PAGE == 0);
    return at;
}

static void filled(unsigned char *at, size_t len, int with) {
    for (size_t i = 0; i < len; i++) CHECK(at[i] == with);
}

static void make(void *ctx) {
    (void)ctx;
    stack = map(3 * PAGE, BOTH, ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
    memset(stack, 11, 3 * PAGE);
    eager = map(PAGE, BOTH, ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);
    memset(eager, 12, PAGE);
    huge = map(PAGE, BOTH, ANONYMOUS | MAP_HUGETLB, -1, 0);
    CHECK((uintptr_t)huge % (2 << 20) == 0);
    memset(huge, 13, 2 << 20);
    unsigned char *other = map(PAGE, BOTH, ANONYMOUS | MAP_HUGETLB, -1, 0);
    CHECK(munmap(other, 2 << 20) == 0);
    filled(huge, 2 << 20, 13);
    int fd = open("/dev/zero", O_RDWR);
    zero = map(2 * PAGE, BOTH, MAP_PRIVATE, fd, 0);
    close(fd);
    filled(zero, 2 * PAGE, 0);
    memset(zero, 14, PAGE);
    /* Fixed places inside. */
    area = map(6 * PAGE, BOTH, ANONYMOUS, -1, 0);
    memset(area, 15, 6 * PAGE);
    int fixed = ANONYMOUS | MAP_FIXED | MAP_STACK;
    CHECK(mmap(area + PAGE, PAGE, BOTH, fixed, -1, 0) == area + PAGE);
    filled(area + PAGE, PAGE, 0);
    area[PAGE] = 16;
    CHECK(mmap(area, PAGE, BOTH, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
    /* Private mappings of a file are copies. */
    fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    copy = map(2 * PAGE, BOTH, MAP_PRIVATE, fd, 0);
    filled(copy, PAGE, 1), filled(copy + PAGE, 100, 2), filled(copy + PAGE + 100, PAGE - 100, 0);
    memset(copy, 17, 10);
    tail = map(100, PROT_READ, MAP_PRIVATE, fd, PAGE);
    filled(tail, 100, 2);
    constant = mmap(area + 3 * PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    CHECK(constant == area + 3 * PAGE);
    unsigned char *looked = map(PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(looked[PAGE - 1] == 1 && munmap(looked, PAGE) == 0);
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 1);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 1) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, 0, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EINVAL);
    close(fd);
    fd = open(path, O_WRONLY);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EACCES);
    close(fd);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED && errno == EBADF);
    /* What lies outside may be unmapped and moved there. */
    outside = mremap(outside, PAGE, 3 * PAGE, MREMAP_MAYMOVE);
    CHECK(outside != MAP_FAILED && munmap(outside, 3 * PAGE) == 0);
}

static void verify(void *ctx) {
    (void)ctx;
    filled(stack, 3 * PAGE, 11);
    filled(eager, PAGE, 12);
    filled(huge, 2 << 20, 13);
    filled(zero, PAGE, 14), filled(zero + PAGE, PAGE, 0);
    filled(area, PAGE, 15), filled(area + PAGE + 1, PAGE - 1, 0), filled(area + 2 * PAGE, PAGE, 15);
    filled(area + 5 * PAGE, PAGE, 15);
    CHECK(area[PAGE] == 16);
    filled(copy, 10, 17), filled(copy + 10, PAGE - 10, 1), filled(copy + PAGE, 100, 2);
    filled(copy + PAGE + 100, PAGE - 100, 0);
    filled(tail, 100, 2);
    filled(constant, PAGE, 1), filled(constant + PAGE, 100, 2), filled(constant + PAGE + 100, PAGE - 100, 0);
}

static void again(void *ctx) {
    (void)ctx;
    CHECK(munmap(tail, PAGE) == 0);
    tail = map(PAGE, BOTH, ANONYMOUS | MAP_STACK, -1, 0);
    memset(tail, 2, 100);
    verified++;
}

static void bad(void *ctx) {
    const char *how = ctx;
    int fd = open(path, O_RDWR);
    verified = 1000;
    void *away = outside;
    if (strcmp(how, "shared") == 0) mmap(NULL, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (strcmp(how, "shared over") == 0) mmap(area, PAGE, BOTH, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (strcmp(how, "shared file") == 0) mmap(NULL, PAGE, BOTH, MAP_SHARED, fd, 0);
    if (strcmp(how, "shared look") == 0) mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (strcmp(how, "fixed") == 0) mmap(away, PAGE, BOTH, ANONYMOUS | MAP_FIXED, -1, 0);
    if (strcmp(how, "fixed noreplace") == 0) {
        mmap((void *)0x200000000, PAGE, BOTH, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    }
    if (strcmp(how, "fixed file") == 0) mmap(away, PAGE, BOTH, MAP_PRIVATE | MAP_FIXED, fd, 0);
    if (strcmp(how, "over") == 0) {
        char *block = malloc(100000);
        mmap((void *)(((uintptr_t)block + PAGE) & ~(uintptr_t)(PAGE - 1)), PAGE, BOTH, ANONYMOUS | MAP_FIXED, -1, 0);
    }
    if (strcmp(how, "moved over") == 0) mremap(away, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area);
    if (strcmp(how, "execute") == 0) mmap(NULL, PAGE, BOTH | PROT_EXEC, ANONYMOUS, -1, 0);
    if (strcmp(how, "grows") == 0) mmap(NULL, PAGE, BOTH, ANONYMOUS | MAP_GROWSDOWN | MAP_STACK, -1, 0);
    if (strcmp(how, "low") == 0) mmap(NULL, PAGE, BOTH, ANONYMOUS | MAP_32BIT, -1, 0);
    if (strcmp(how, "device") == 0) mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, open("/dev/null", O_RDONLY), 0);
}

int main(int argc, char **argv) {
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = bad};
    mangrove_app *app;
    mangrove_app_client *client;
    CHECK(argc == 4);
    const char *how = argv[2];
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    path = argv[3];
    outside = mmap(NULL, PAGE, BOTH, ANONYMOUS, -1, 0);
    if (strcmp(how, "make") == 0) {
        OK(mangrove_app_write(client, make, NULL));
        OK(mangrove_app_read(client, verify, NULL));
        raise(SIGKILL);
    }
    OK(mangrove_app_read(client, verify, NULL));
    CHECK(verified < 1000);
    if (strcmp(how, "verify") == 0) {
        OK(mangrove_app_write(client, again, NULL));
        OK(mangrove_app_read(client, verify, NULL));
        mangrove_app_client_free(client);
        OK(mangrove_app_close(app));
        return 0;
    }
    mangrove_app_status status = mangrove_app_write(client, bad, argv[2]);
    fprintf(stderr, "%s: %s\n", mangrove_app_status_name(status), mangrove_app_last_error());
    return status == MANGROVE_APP_ERR_BROKEN ? 3 : 4;
}
