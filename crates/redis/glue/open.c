/* Opening the state: the first thing that the server does, since both of its hash functions are seeded then. The
 * settings come from the launcher, by the environment. */
#include "glue.h"
#include <limits.h>

mangrove_app *app;
root_t *root;
settings_t settings;
int was_new;

void die(const char *what) {
    SAY(LL_WARNING, "mangrove: %s: %s", what, mangrove_app_last_error());
    fprintf(stderr, "mangrove: %s: %s\n", what, mangrove_app_last_error());
    _exit(70);
}

static bool is_hook(const char *name) {
    static const char *const names[] = {"seed", "policy", "setkey", "expiry", "eviction", "gate", "writeToClient",
                                        "io-threads", "commands", "natives", "unit", NULL};
    for (int j = 0; names[j]; j++)
        if (!strcmp(name, names[j])) return true;
    return false;
}

bool left_out(const char *hook) { return settings.without && !strcmp(settings.without, hook); }

static unsigned long long number(const char *name) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static void read_settings(void) {
    const char *text;
    settings.state = getenv("MANGROVE_REDIS_STATE");
    settings.interval_ms = (int)number("MANGROVE_REDIS_INTERVAL_MS");
    settings.log_bytes = number("MANGROVE_REDIS_LOG_BYTES");
    settings.wait_in_loop = (int)number("MANGROVE_REDIS_WAIT_IN_LOOP");
    settings.fence = (int)number("MANGROVE_REDIS_FENCE");
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

static int make_root(void *seed) {
    root = zcalloc(sizeof *root);
    memcpy(root->seed, seed, sizeof root->seed);
    root->emulated = settings.medium == MANGROVE_APP_MEDIUM_EMULATED;
    *mangrove_app_root(app, 0) = root;
    return 0;
}

static void no_command(void *ctx) { UNUSED(ctx); }

static void open_state(uint8_t *seed) {
    mangrove_app_callbacks callbacks = {
        .bytes = sizeof callbacks, .user = seed, .process = no_command, .init_state = make_root};
    mangrove_app_options *options = mangrove_app_options_new();
    /* Everything persistent hangs on root 0; the server makes its variables afresh. */
    int bad = mangrove_app_options_set_variables(options, false);
    if (settings.medium == MANGROVE_APP_MEDIUM_EMULATED)
        bad |= mangrove_app_options_set_emulated_latency(options, settings.write_ns, settings.read_ns);
    else
        bad |= mangrove_app_options_set_medium(options, settings.medium);
    if (settings.log_bytes) bad |= mangrove_app_options_set_log_bytes(options, settings.log_bytes);
    if (settings.interval_ms)
        bad |= mangrove_app_options_set_durability_interval(options, (uint32_t)settings.interval_ms);
    if (settings.fence) bad |= !fence_set(options);
    natives_add(options);
    if (bad || mangrove_app_open(settings.state, options, &callbacks, &app) != MANGROVE_APP_OK) {
        fprintf(stderr, "mangrove: the state in %s cannot be opened: %s\n", settings.state, mangrove_app_last_error());
        exit(1);
    }
    mangrove_app_options_free(options);
    was_new = mangrove_app_is_new(app);
    root = *mangrove_app_root(app, 0);
    if (!root) {
        fprintf(stderr, "mangrove: the state in %s is none of this server\n", settings.state);
        exit(1);
    }
    if (root->emulated && settings.medium != MANGROVE_APP_MEDIUM_EMULATED) {
        fprintf(stderr, "mangrove: the state in %s was made on the emulated medium, which no power cut leaves anything "
                        "of: start with --medium emulated=WRITE-NS/READ-NS\n", settings.state);
        exit(1);
    }
}

/* hashtable.c and dict.c have a seed each; fields of hashes and members of sets use that of dict.c. The server sets
 * dict's first. */
void __real_dictSetHashFunctionSeed(uint8_t *seed);
void __wrap_dictSetHashFunctionSeed(uint8_t *seed) {
    HOOKED(DICT_SEED);
    read_settings();
    if (settings.state) open_state(seed);
    __real_dictSetHashFunctionSeed(app && !left_out("seed") ? root->seed : seed);
}

void __real_hashtableSetHashFunctionSeed(const uint8_t *seed);
void __wrap_hashtableSetHashFunctionSeed(const uint8_t *seed) {
    HOOKED(TABLE_SEED);
    __real_hashtableSetHashFunctionSeed(app && !left_out("seed") ? root->seed : seed);
}
