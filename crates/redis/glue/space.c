/* Space for the state: what the server says when there is none left, and pages that are given back. */
#include "glue.h"
#include <fcntl.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool is_to_give_back;

static void say(int fd, const char *text) {
    char line[600];
    int len = snprintf(line, sizeof line, "%d:M # mangrove: %s\n", (int)getpid(), text);
    if (write(fd, line, (size_t)len) < 0) return; /* there is no other way to report it */
}

/* An allocation failed, inside a command mostly: the command cannot be taken back, so the process ends, and the next
 * start has every acknowledged write. */
static void no_memory(size_t bytes) {
    struct statvfs about;
    bool known = !statvfs(settings.state, &about);
    unsigned long long left = known ? (unsigned long long)about.f_bavail * about.f_frsize : 0;
    char text[512];
    if (known && left < SPACE_LOW)
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
