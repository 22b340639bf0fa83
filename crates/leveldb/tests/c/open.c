/* Opening, creating, locking, destroying, repairing, and the errors of each.
 * Usage: open DIRECTORY. What it prints must be the same for every implementation of the API. */

#include "said.h"

#include <unistd.h>

static int forwards(void *state, const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t least = a_len < b_len ? a_len : b_len;
    int order = least ? memcmp(a, b, least) : 0;
    (void)state;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static const char *named_other(void *state) {
    (void)state;
    return "other";
}

static void count_down(void *state) { --*(int *)state; }

static char *no_filter(void *s, const char *const *k, const size_t *kl, int n, size_t *len) {
    (void)s, (void)k, (void)kl, (void)n;
    *len = 0;
    return malloc(1);
}

static uint8_t always(void *s, const char *k, size_t kl, const char *f, size_t fl) {
    (void)s, (void)k, (void)kl, (void)f, (void)fl;
    return 1;
}

static void say_value(const char *what, leveldb_t *db, const char *key) {
    char *error = NULL;
    size_t len = 77;
    leveldb_readoptions_t *reads = leveldb_readoptions_create();
    char *value = leveldb_get(db, reads, key, strlen(key), &len, &error);
    say_error(what, &error);
    if (value == NULL) printf("%s: none, %zu\n", what, len);
    else {
        printf("%s: ", what);
        say_bytes(value, len);
        printf("\n");
        leveldb_free(value);
    }
    leveldb_readoptions_destroy(reads);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    char path[4096];
    char *error = NULL;
    snprintf(path, sizeof path, "%s/db", argv[1]);

    printf("version %d.%d\n", leveldb_major_version(), leveldb_minor_version());
    leveldb_options_t *options = leveldb_options_create();
    leveldb_writeoptions_t *writes = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(writes, 1);

    leveldb_destroy_db(options, path, &error);
    say_error("destroy nothing", &error);
    leveldb_t *db = leveldb_open(options, path, &error);
    printf("%s\n", db ? "open" : "NULL");
    say_error("open nothing", &error);

    leveldb_options_set_create_if_missing(options, 1);
    db = leveldb_open(options, path, &error);
    say_error("create", &error);
    CHECK(db != NULL);
    leveldb_put(db, writes, "tide", 4, "high", 4, &error);
    say_error("put", &error);

    leveldb_t *second = leveldb_open(options, path, &error);
    printf("%s\n", second ? "open" : "NULL");
    say_error("open twice", &error);
    leveldb_destroy_db(options, path, &error);
    say_error("destroy an open one", &error);
    say_value("still there", db, "tide");
    leveldb_close(db);

    leveldb_options_set_error_if_exists(options, 1);
    db = leveldb_open(options, path, &error);
    printf("%s\n", db ? "open" : "NULL");
    say_error("error if exists", &error);
    leveldb_options_set_error_if_exists(options, 0);

    /* A new error frees and replaces an earlier error string; success leaves it. */
    error = strdup("old words");
    CHECK(leveldb_open(options, "/nonexistent/folder/\xff/db", &error) == NULL);
    CHECK(strcmp(error, "old words") != 0);
    free(error);
    error = strdup("old words");
    db = leveldb_open(options, path, &error);
    CHECK(db != NULL && strcmp(error, "old words") == 0);
    free(error);
    error = NULL;
    say_value("reopened", db, "tide");
    say_value("not there", db, "ebb");
    leveldb_close(db);

    int alive = 2;
    leveldb_comparator_t *other = leveldb_comparator_create(&alive, count_down, forwards, named_other);
    leveldb_options_set_comparator(options, other);
    db = leveldb_open(options, path, &error);
    printf("%s\n", db ? "open" : "NULL");
    say_error("another comparator", &error);
    leveldb_options_set_comparator(options, NULL);
    leveldb_comparator_destroy(other);
    printf("%d alive\n", alive);
    leveldb_options_destroy(options);

    /* Everything that can be set. */
    options = leveldb_options_create();
    leveldb_env_t *env = leveldb_create_default_env();
    leveldb_cache_t *cache = leveldb_cache_create_lru(1 << 20);
    leveldb_filterpolicy_t *own =
        leveldb_filterpolicy_create(&alive, count_down, no_filter, always, named_other);
    leveldb_filterpolicy_t *bloom = leveldb_filterpolicy_create_bloom(10);
    leveldb_options_set_env(options, env);
    leveldb_options_set_cache(options, cache);
    leveldb_options_set_filter_policy(options, own);
    leveldb_options_set_filter_policy(options, bloom);
    leveldb_options_set_info_log(options, NULL);
    leveldb_options_set_paranoid_checks(options, 1);
    leveldb_options_set_write_buffer_size(options, 100000);
    leveldb_options_set_max_open_files(options, 20);
    leveldb_options_set_block_size(options, 1024);
    leveldb_options_set_block_restart_interval(options, 8);
    leveldb_options_set_max_file_size(options, 3 << 20);
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_options_set_compression(options, leveldb_snappy_compression);
    db = leveldb_open(options, path, &error);
    say_error("open with everything set", &error);
    CHECK(db != NULL);
    say_value("with everything set", db, "tide");

    char *property = leveldb_property_value(db, "nonsense");
    printf("%s\n", property ? property : "no such property");
    for (int level = 0; level < 8; level++) {
        char name[64];
        snprintf(name, sizeof name, "leveldb.num-files-at-level%d", level);
        property = leveldb_property_value(db, name);
        printf("%s: %s\n", name, property ? "a number" : "none");
        CHECK(property == NULL || strspn(property, "0123456789") == strlen(property));
        leveldb_free(property);
    }
    const char *names[] = { "leveldb.stats", "leveldb.sstables", "leveldb.approximate-memory-usage" };
    for (int i = 0; i < 3; i++) {
        property = leveldb_property_value(db, names[i]);
        CHECK(property != NULL && property[0] != 0);
        leveldb_free(property);
    }
    leveldb_compact_range(db, NULL, 0, NULL, 0);
    leveldb_compact_range(db, "a", 1, "u", 1);
    say_value("compacted", db, "tide");
    leveldb_close(db);

    leveldb_repair_db(options, path, &error);
    say_error("repair", &error);
    db = leveldb_open(options, path, &error);
    say_error("open what was repaired", &error);
    say_value("repaired", db, "tide");
    leveldb_close(db);

    char stranger[4200];
    snprintf(stranger, sizeof stranger, "%s/stranger", path);
    FILE *file = fopen(stranger, "w");
    CHECK(file != NULL && fclose(file) == 0);
    leveldb_destroy_db(options, path, &error);
    say_error("destroy", &error);
    printf("%s\n", access(stranger, F_OK) == 0 ? "the stranger's file is there" : "gone");
    leveldb_options_set_create_if_missing(options, 0);
    db = leveldb_open(options, path, &error);
    printf("%s\n", db ? "open" : "NULL");
    say_error("open what was destroyed", &error);

    leveldb_options_destroy(options);
    leveldb_writeoptions_destroy(writes);
    leveldb_filterpolicy_destroy(bloom);
    leveldb_filterpolicy_destroy(own);
    printf("%d alive\n", alive);
    leveldb_cache_destroy(cache);
    char *folder = leveldb_env_get_test_directory(env);
    CHECK(folder != NULL && access(folder, W_OK) == 0);
    leveldb_free(folder);
    leveldb_env_destroy(env);
    leveldb_free(NULL);
    return 0;
}
