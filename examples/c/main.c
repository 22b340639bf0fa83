/*
 * wordcount: counts the words of a text, and can be killed at any moment.
 *
 *     cc main.c $(pkg-config --cflags --libs mangrove) -o wordcount
 *     ./wordcount POOL TEXT
 *
 * Each line becomes one batch: the new counts of its words, and the position behind it. A batch is
 * there as a whole or not at all, so whatever kills the program, the next run goes on with the line
 * after the last one counted, and no word is counted twice or forgotten.
 */
#include <ctype.h>
#include <inttypes.h>
#include <mangrove.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES_MAX = 40, LINE_BYTES_MAX = 4096, TOP = 10 };

typedef struct {
    char word[WORD_BYTES_MAX + 1];
    uint64_t count;
} tally;

/* Statuses below zero are errors; the others are answers. */
static mangrove_status need(mangrove_status status) {
    if (status < 0) {
        fprintf(stderr, "wordcount: %s\n", mangrove_last_error());
        exit(1);
    }
    return status;
}

/* Numbers are kept as text, so that `mangrove map get POOL word/the` can be read. */
static uint64_t get_number(const mangrove_map *map, const char *key) {
    void *text;
    size_t len;
    if (need(mangrove_map_get(map, key, strlen(key), &text, &len)) == MANGROVE_NOT_FOUND) return 0;
    uint64_t number = strtoull(text, NULL, 10); /* a NUL follows every value */
    mangrove_free(text);
    return number;
}

static void set_number(mangrove_batch *batch, const char *key, uint64_t number) {
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRIu64, number);
    need(mangrove_batch_put(batch, key, strlen(key), text, (size_t)len));
}

/* Reads a line, or as much as fits of a longer one: a word that does not fit waits for the next call, if others do. */
static char *read_line(char *line, FILE *text) {
    if (fgets(line, LINE_BYTES_MAX, text) == NULL) return NULL;
    size_t len = strlen(line), end = len;
    if (len < LINE_BYTES_MAX - 1) return line;
    while (end > 0 && isalpha((unsigned char)line[end - 1])) end--;
    if (end > 0 && end < len && fseek(text, -(long)(len - end), SEEK_CUR) == 0) line[end] = 0;
    return line;
}

/* How often each word occurs in a line; the number of different words. */
static size_t count_words(const char *line, tally *tallies) {
    size_t words = 0;
    while (*line != 0) {
        char word[WORD_BYTES_MAX + 1];
        size_t len = 0, i;
        while (*line != 0 && !isalpha((unsigned char)*line)) line++;
        for (; isalpha((unsigned char)*line); line++)
            if (len < WORD_BYTES_MAX) word[len++] = (char)tolower((unsigned char)*line);
        if (len == 0) break;
        word[len] = 0;
        for (i = 0; i < words && strcmp(tallies[i].word, word) != 0; i++) {}
        if (i == words) {
            strcpy(tallies[words].word, word);
            tallies[words++].count = 0;
        }
        tallies[i].count++;
    }
    return words;
}

/* The most frequent words: one walk over all keys that begin with "word/". */
static void print_top(const mangrove_map *map) {
    tally top[TOP + 1] = {{"", 0}};
    uint64_t words = 0, different = 0;
    mangrove_range range = {.start = "word/", .start_len = 5, .flags = MANGROVE_RANGE_PREFIX};
    mangrove_iter *iter;
    need(mangrove_map_iter(map, &range, &iter));
    while (need(mangrove_iter_next(iter)) == MANGROVE_OK) {
        size_t key_len, value_len;
        const char *key = mangrove_iter_key(iter, &key_len);
        const char *value = mangrove_iter_value(iter, &value_len);
        tally new;
        char digits[24];
        snprintf(new.word, sizeof new.word, "%.*s", (int)key_len - 5, key + 5);
        snprintf(digits, sizeof digits, "%.*s", (int)value_len, value);
        new.count = strtoull(digits, NULL, 10);
        words += new.count;
        different++;
        int place = TOP;
        for (; place > 0 && top[place - 1].count < new.count; place--) top[place] = top[place - 1];
        if (place < TOP) top[place] = new;
    }
    mangrove_iter_free(iter);
    printf("%" PRIu64 " words, %" PRIu64 " different\n", words, different);
    for (int i = 0; i < TOP && top[i].count > 0; i++) printf("%8" PRIu64 "  %s\n", top[i].count, top[i].word);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: wordcount POOL TEXT\n");
        return 2;
    }
    FILE *text = fopen(argv[2], "rb");
    if (text == NULL) {
        perror(argv[2]);
        return 1;
    }
    mangrove_map *map;
    need(mangrove_map_open(argv[1], NULL, &map)); /* NULL: create it when missing, sync durability */

    char position[MANGROVE_KEY_BYTES_MAX];
    snprintf(position, sizeof position, "position/%s", argv[2]);
    uint64_t start = get_number(map, position);
    if (start > 0) printf("going on at byte %" PRIu64 "\n", start);
    fseek(text, (long)start, SEEK_SET);

    static char line[LINE_BYTES_MAX];
    static tally tallies[LINE_BYTES_MAX / 2];
    mangrove_batch *batch = mangrove_batch_new();
    while (read_line(line, text) != NULL) {
        size_t words = count_words(line, tallies);
        for (size_t i = 0; i < words; i++) {
            char key[WORD_BYTES_MAX + 8];
            snprintf(key, sizeof key, "word/%s", tallies[i].word);
            set_number(batch, key, get_number(map, key) + tallies[i].count);
        }
        set_number(batch, position, (uint64_t)ftell(text));
        need(mangrove_map_write(map, batch)); /* from here on this line is counted, come what may */
    }
    mangrove_batch_free(batch);
    fclose(text);
    print_top(map);
    need(mangrove_map_close(map));
    return 0;
}
