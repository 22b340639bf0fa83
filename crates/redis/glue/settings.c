/* The handle of the state, its root, and the settings, which the launcher passes by the environment. */
#include "glue.h"

/* Batches that take longer are logged. */
#define SLOW_MS_DEFAULT 100

mangrove_app *app;
root_t *root;
settings_t settings;

void die(const char *what) {
    char why[1024];
    snprintf(why, sizeof why, "%s", mangrove_app_last_error());
    /* The library goes on with reads then, this server does not. */
    char *advice = strstr(why, "; reads go on");
    size_t left = advice ? sizeof why - (size_t)(advice - why) : 0;
    const char *next = ", and the next start has every acknowledged write";
    if (settings.interval_ms) next = ", and the next start has what was durable";
    if (strstr(why, "is damaged")) next = "";
    if (advice) snprintf(advice, left, "; the server ends%s", next);
    SAY(LL_WARNING, "mangrove: %s: %s", what, why);
    fprintf(stderr, "mangrove: %s: %s\n", what, why);
    _exit(70);
}

static bool is_hook(const char *name) {
    static const char *const names[] = {"seed", "policy", "setkey", "expiry", "eviction", "gate", "writeToClient",
                                        "io-threads", "commands", "natives", "unit", "grave", "touch", "blind",
                                        "sections", "io-batch", "grave-of-requests", "touch-moves", "inner", NULL};
    for (int j = 0; names[j]; j++)
        if (!strcmp(name, names[j])) return true;
    return false;
}

bool left_out(const char *hook) { return settings.without && !strcmp(settings.without, hook); }

static unsigned long long number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

void settings_read(void) {
    const char *text;
    settings.state = getenv("MANGROVE_REDIS_STATE");
    settings.interval_ms = (int)number("MANGROVE_REDIS_INTERVAL_MS");
    settings.log_bytes = number("MANGROVE_REDIS_LOG_BYTES");
    settings.wait_in_loop = (int)number("MANGROVE_REDIS_WAIT_IN_LOOP");
    settings.hold_ms = (int)number("MANGROVE_REDIS_HOLD_MS");
    settings.hold_file = getenv("MANGROVE_REDIS_HOLD_FILE");
    settings.slow_ms = getenv("MANGROVE_REDIS_SLOW_MS") ? (int)number("MANGROVE_REDIS_SLOW_MS") : SLOW_MS_DEFAULT;
    settings.io_reads = !getenv("MANGROVE_REDIS_IO_READS") || number("MANGROVE_REDIS_IO_READS");
    settings.fence = (int)number("MANGROVE_REDIS_FENCE");
    settings.apart = (int)number("MANGROVE_REDIS_CALLS_APART");
    settings.is_daemon = (int)number("MANGROVE_REDIS_DAEMON");
    settings.without = getenv("MANGROVE_REDIS_WITHOUT");
    if (settings.without && !is_hook(settings.without)) {
        fprintf(stderr, "mangrove: there is no hook '%s' to leave out\n", settings.without);
        exit(2);
    }
    settings.medium = MANGROVE_APP_MEDIUM_AUTO;
    if (!(text = getenv("MANGROVE_REDIS_MEDIUM")) || !strcmp(text, "auto")) return;
    if (!strcmp(text, "file"))
        settings.medium = MANGROVE_APP_MEDIUM_FILE;
    else if (!strcmp(text, "dax"))
        settings.medium = MANGROVE_APP_MEDIUM_DAX;
    else if (sscanf(text, "emulated=%u/%u", &settings.write_ns, &settings.read_ns) == 2)
        settings.medium = MANGROVE_APP_MEDIUM_EMULATED;
    else {
        fprintf(stderr, "mangrove: the medium '%s' is none of auto, file, dax, emulated=WRITE-NS/READ-NS\n", text);
        exit(2);
    }
}
