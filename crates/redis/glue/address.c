/* The note of how the server is reached, for programs that want to ask it, and for the launcher, which returns from
 * `daemonize yes` when the server serves. */
#include "glue.h"
#include <limits.h>

/* Not before the state is open: the note may be another server's. */
void address_note(bool serves) {
    const char *text = getenv("MANGROVE_REDIS_ADDRESS"), *file = getenv("MANGROVE_REDIS_ADDRESS_FILE");
    char new_file[PATH_MAX];
    if (!text || !file) return;
    snprintf(new_file, sizeof new_file, "%s.new", file);
    FILE *note = fopen(new_file, "w");
    bool good = note && fprintf(note, "%s%s", text, serves ? "" : "starting\n") >= 0;
    if (note) good &= !fclose(note);
    if (!good || rename(new_file, file))
        fprintf(stderr, "mangrove: cannot write %s (%s): `mangrove redis stat` does not find this server\n", file,
                strerror(errno));
}
