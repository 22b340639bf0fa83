/* Looks up the keys of a client's pipeline ahead, so that its commands find them in the cache. A client's buffer
 * holds the next commands, so their keys are known, and the fields and members after them. Each lookup would wait for
 * several cache lines, one after the other; here the server's own incremental lookup requests those of all keys in
 * turns. Nothing depends on the result: a key that is not found, or that changes until its command runs, costs that
 * command a cache miss. */
#include "glue.h"
#include "hashtable.h"

/* Commands at a time: what they bring fits into the first cache. */
#define AHEAD_MAX 32
/* As long as a key with the shortest header but one may be. */
#define KEY_BYTES_MAX 255
/* Commands with more arguments are not looked into. */
#define ARGUMENTS_MAX 64

#define LINE_BYTES 64

typedef struct {
    struct sdshdr8 header;
    char text[KEY_BYTES_MAX + 1];
} __attribute__((packed)) word_t;
/* Of each command the key, and the word after it: a hash's field, a set's member. */
static word_t keys[AHEAD_MAX], fields[AHEAD_MAX];
static bool has_field[AHEAD_MAX];

/* Reads a number that ends a line; where the next line begins, or NULL: the line is not whole, or no such number. */
static const char *number(const char *at, const char *end, long *value) {
    long n = 0;
    const char *begin = at;
    for (; at < end && *at >= '0' && *at <= '9' && at - begin < 10; at++) n = n * 10 + (*at - '0');
    if (at == begin || end - at < 2 || at[0] != '\r' || at[1] != '\n') return NULL;
    *value = n;
    return at + 2;
}

/* The words of the command that begins at `*at`, which moves behind the command: the second and third, NULL if it has
 * fewer. False: it is not whole. */
static bool read_command(const char **at, const char *end, const char *words[2], long len[2]) {
    const char *p = *at;
    long count, bytes;
    words[0] = words[1] = NULL;
    if (p == end || *p != '*' || !(p = number(p + 1, end, &count)) || count > ARGUMENTS_MAX) return false;
    for (long j = 0; j < count; j++) {
        if (p == end || *p != '$' || !(p = number(p + 1, end, &bytes)) || bytes > end - p - 2) return false;
        if (j == 1 || j == 2) {
            words[j - 1] = p;
            len[j - 1] = bytes;
        }
        p += bytes + 2;
    }
    *at = p;
    return true;
}

/* False: there is none, or it is too long. */
static bool keep(word_t *word, const char *text, long len) {
    if (!text || len > KEY_BYTES_MAX) return false;
    word->header.len = word->header.alloc = (uint8_t)len;
    word->header.flags = SDS_TYPE_8;
    memcpy(word->text, text, (size_t)len);
    word->text[len] = 0;
    return true;
}

static int read_keys(client *c) {
    const char *at = c->querybuf + c->qb_pos, *end = c->querybuf + sdslen(c->querybuf), *words[2];
    long len[2];
    int count = 0;
    for (int commands = 0; commands < AHEAD_MAX && read_command(&at, end, words, len); commands++) {
        if (!keep(&keys[count], words[0], len[0])) continue;
        has_field[count] = keep(&fields[count], words[1], len[1]);
        count++;
    }
    return count;
}

static void ask_for(const void *at) {
    __builtin_prefetch(at);
    __builtin_prefetch((const char *)at + LINE_BYTES);
}

static hashtableIncrementalFindState finds[AHEAD_MAX];

/* Takes the first `count` lookups to their ends, in turns. */
static void find_all(int count) {
    int going[AHEAD_MAX], left = count;
    for (int j = 0; j < count; j++) going[j] = j;
    while (left) {
        int still = 0;
        for (int j = 0; j < left; j++)
            if (hashtableIncrementalFindStep(&finds[going[j]])) going[still++] = going[j];
        left = still;
    }
}

static void look_ahead(client *c) {
    hashtable *table = kvstoreGetHashtable(c->db->keys, 0), *inner[AHEAD_MAX];
    int count = table ? read_keys(c) : 0, inner_count = 0, field_of[AHEAD_MAX];
    /* One command alone has nothing to do meanwhile. */
    if (count < 2) return;
    hook_calls[HOOK_AHEAD] += count;
    for (int j = 0; j < count; j++) hashtableIncrementalFindInit(&finds[j], table, keys[j].text);
    find_all(count);
    for (int j = 0; j < count; j++) {
        void *found;
        if (!hashtableIncrementalFindGetResult(&finds[j], &found)) continue;
        const robj *value = found;
        ask_for((const char *)value + LINE_BYTES);
        if (value->encoding == OBJ_ENCODING_INT || value->encoding == OBJ_ENCODING_EMBSTR) continue;
        ask_for((const char *)value->ptr - LINE_BYTES / 4);
        if (value->encoding == OBJ_ENCODING_HASHTABLE && has_field[j]) {
            inner[inner_count] = value->ptr;
            field_of[inner_count++] = j;
        }
    }
    for (int j = 0; j < inner_count; j++)
        hashtableIncrementalFindInit(&finds[j], inner[j], fields[field_of[j]].text);
    find_all(inner_count);
}

/* Weak in networking.o, which reads. */
int __real_processInputBuffer(client *c);
int processInputBuffer(client *c) {
    if (app && !inside && !starting && !server.cluster_enabled && c->querybuf && !c->multibulklen && c->db)
        look_ahead(c);
    return __real_processInputBuffer(c);
}
