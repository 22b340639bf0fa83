/* Space for the state: what the server says when there is none left, and pages that are given back. */
#include "glue.h"
#include <fcntl.h>
#include <limits.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool is_to_give_back;

static void say(int fd, const char *text) {
    char line[600];
    int len = snprintf(line, sizeof line, "%d:M # mangrove: %s\n", (int)getpid(), text);
    if (write(fd, line, (size_t)len) < 0) return; /* there is no other way to report it */
}

/* What the state's file system has left; ULLONG_MAX: that is not known. */
static unsigned long long space_left(void) {
    struct statvfs about;
    return statvfs(settings.state, &about) ? ULLONG_MAX : (unsigned long long)about.f_bavail * about.f_frsize;
}

static bool is_too_little(unsigned long long left, size_t bytes) {
    return left < SPACE_LOW || left - SPACE_LOW < bytes;
}

/* Whether the limit on the size of files keeps the state from growing by so much. */
static bool is_file_limited(size_t bytes) {
    struct rlimit limit;
    struct stat image;
    char path[PATH_MAX];
    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY) return false;
    snprintf(path, sizeof path, "%s/image", settings.state);
    unsigned long long size = stat(path, &image) ? 0 : (unsigned long long)image.st_size;
    return size >= limit.rlim_cur || is_too_little(limit.rlim_cur - size, bytes);
}

/* No value has so many bytes: a damaged length, not a full medium, makes such an allocation fail. */
static bool is_absurd(size_t bytes) { return bytes > (size_t)server.proto_max_bulk_len + SPACE_LOW; }

/* An allocation failed, inside a command mostly: the command cannot be taken back, so the process ends, and the next
 * start has every acknowledged write. */
static void no_memory(size_t bytes) {
    unsigned long long left = space_left();
    char text[512];
    if (is_too_little(left, mangrove_app_is_inside() && !is_absurd(bytes) ? bytes : 0))
        snprintf(text, sizeof text, "no space for %zu bytes in the state %s: its file system has %llu bytes left. Free "
                 "some megabytes there and start again; every acknowledged write is kept", bytes, settings.state, left);
    else
        snprintf(text, sizeof text, "no memory for %zu bytes (the state %s; limits of the process or its group, or of "
                 "the size of files): every acknowledged write is kept", bytes, settings.state);
    say(STDERR_FILENO, text);
    /* serverLog would allocate. */
    if (server.logfile && server.logfile[0])
        say(open(server.logfile, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644), text);
    _exit(70);
}

void space_start(void) { zmalloc_set_oom_handler(no_memory); }

/* Who tries takes a failure for bad data: the load of a dump, a replica's synchronisation and RESTORE would call a good
 * value damaged on a full medium. */
static void *tried(void *block, size_t bytes) {
    if (!block && mangrove_app_is_inside() && !is_absurd(bytes) &&
        (is_too_little(space_left(), bytes) || is_file_limited(bytes)))
        no_memory(bytes);
    return block;
}
void *__real_ztrymalloc(size_t bytes);
void *__wrap_ztrymalloc(size_t bytes) { return tried(__real_ztrymalloc(bytes), bytes); }
void *__real_ztrymalloc_usable(size_t bytes, size_t *usable);
void *__wrap_ztrymalloc_usable(size_t bytes, size_t *usable) {
    return tried(__real_ztrymalloc_usable(bytes, usable), bytes);
}
void *__real_ztrycalloc(size_t bytes);
void *__wrap_ztrycalloc(size_t bytes) { return tried(__real_ztrycalloc(bytes), bytes); }

/* MEMORY PURGE. */
int __real_jemalloc_purge(void);
int __wrap_jemalloc_purge(void) {
    is_to_give_back = true;
    return __real_jemalloc_purge();
}

/* FLUSHALL and FLUSHDB purge as well, but only in a server that was built with jemalloc. */
static void flush(client *c, serverCommandProc *real) {
    bool is_lazy = c->argc == 1 ? server.lazyfree_lazy_user_flush : !strcasecmp(c->argv[1]->ptr, "async");
    if (!is_lazy) is_to_give_back = true;
    real(c);
}
void __real_flushallCommand(client *c);
void __wrap_flushallCommand(client *c) { flush(c, __real_flushallCommand); }
void __real_flushdbCommand(client *c);
void __wrap_flushdbCommand(client *c) { flush(c, __real_flushdbCommand); }

void space_give_back(void) {
    if (!is_to_give_back || inside || dirty || starting) return;
    is_to_give_back = false;
    sections_close();
    if (mangrove_app_compact(app) != MANGROVE_APP_OK) die("free pages could not be given back");
}
