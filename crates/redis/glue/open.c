/* Opening the state: the first thing that the server does, since both of its hash functions are seeded then. */
#include "glue.h"

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
    if (settings.apart) bad |= mangrove_app_options_set_deduplicates(options, false);
    if (settings.fence) bad |= !fence_set(options);
    natives_add(options);
    if (bad || mangrove_app_open(settings.state, options, &callbacks, &app) != MANGROVE_APP_OK) {
        fprintf(stderr, "mangrove: the state in %s cannot be opened: %s\n", settings.state, mangrove_app_last_error());
        exit(1);
    }
    mangrove_app_options_free(options);
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
    settings_read();
    if (settings.state) {
        open_state(seed);
        space_start();
    }
    __real_dictSetHashFunctionSeed(app && !left_out("seed") ? root->seed : seed);
}

void __real_hashtableSetHashFunctionSeed(const uint8_t *seed);
void __wrap_hashtableSetHashFunctionSeed(const uint8_t *seed) {
    HOOKED(TABLE_SEED);
    __real_hashtableSetHashFunctionSeed(app && !left_out("seed") ? root->seed : seed);
}
