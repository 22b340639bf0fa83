/* A program whose standard input, output and error are closed, and that prints all the same: what it prints goes into
 * no file of a pool. */
#include "check.h"
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORDS 10
/* The exit status tells the line: there may be nowhere to print to. */
#define TRY(call) do if ((call) != MANGROVE_OK) _exit(__LINE__); while (0)

static void print_much(void) {
    static const char text[] = "a warning that a program prints to wherever its output goes\n";
    for (int n = 0; n < 20; n++)
        for (int number = 0; number <= 2; number++) (void)!write(number, text, sizeof text - 1);
}

static mangrove_status set_root(mangrove_tx *tx, void *name) {
    void *at;
    mangrove_status done = mangrove_tx_alloc_zeroed(tx, 64, 0, &at);
    return done != MANGROVE_OK ? done : mangrove_tx_set_root(tx, name, at, 64);
}

/* A map and a heap, with prints between the writes. Numbers that were closed are closed afterwards. */
static void work(const char *map_path, const char *heap_path, mangrove_options *options) {
    int is_open[3];
    mangrove_map *map;
    mangrove_heap *heap;
    char key[16];
    for (int number = 0; number <= 2; number++) is_open[number] = fcntl(number, F_GETFD) >= 0;
    TRY(mangrove_map_open(map_path, options, &map));
    TRY(mangrove_heap_open(heap_path, NULL, &heap));
    for (int number = 0; number <= 2; number++)
        if ((fcntl(number, F_GETFD) >= 0) != is_open[number]) _exit(__LINE__);
    for (int n = 0; n < RECORDS; n++) {
        snprintf(key, sizeof key, "%d", n);
        TRY(mangrove_map_put(map, key, strlen(key), key, strlen(key)));
        TRY(mangrove_transaction(heap, set_root, key, NULL));
        print_much();
    }
    TRY(mangrove_map_close(map));
    TRY(mangrove_heap_close(heap));
}

int main(int argc, char **argv) {
    const char *folder = scratch_of(argc, argv);
    /* Which of the three are closed, by bits; and whether each write waits. */
    static const int all_closed[] = {1, 2, 4, 7};
    for (int at = 0; at < 4; at++)
        for (int waits = 0; waits < 2; waits++) {
            char map_name[32], heap_name[32];
            int closed = all_closed[at], status;
            snprintf(map_name, sizeof map_name, "map-%d-%d", closed, waits);
            snprintf(heap_name, sizeof heap_name, "heap-%d-%d", closed, waits);
            const char *map_path = below(folder, map_name), *heap_path = below(folder, heap_name);
            mangrove_options *options = mangrove_options_new();
            if (!waits) OK(mangrove_options_set_durability_interval(options, 5));
            pid_t pid = fork();
            CHECK(pid >= 0);
            if (pid == 0) {
                /* What stays open prints nothing into the test's own output. */
                int nowhere = open("/dev/null", O_RDWR);
                for (int number = 0; number <= 2; number++)
                    if (closed >> number & 1)
                        close(number);
                    else
                        dup2(nowhere, number);
                if (nowhere > 2) close(nowhere);
                work(map_path, heap_path, options);
                _exit(0);
            }
            CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
            if (WEXITSTATUS(status))
                fprintf(stderr, "closed %d, waits %d: line %d\n", closed, waits, WEXITSTATUS(status));
            CHECK(WEXITSTATUS(status) == 0);
            mangrove_map *map;
            mangrove_heap *heap;
            OK(mangrove_map_open(map_path, NULL, &map));
            CHECK(records_of(map) == RECORDS);
            value_is(map, "9", "9");
            OK(mangrove_map_close(map));
            OK(mangrove_heap_open(heap_path, NULL, &heap));
            OK(mangrove_heap_close(heap));
            mangrove_options_free(options);
        }
    return 0;
}
