// Redis's commands, given to a client without a connection: no sockets, no event loop, no threads.
#include "server.h"
#include "mt19937-64.h"
#include <locale.h>
#include <time.h>

void dictSetHashFunctionSeed(uint8_t *seed);
void crc64_init(void);
void moduleInitModulesSystem(void);
void ACLLoadUsersAtStartup(void);

static client *client_without_connection;
static char said[4 << 20];
static size_t said_bytes;

// What main() does, without bioInit: its threads would write while memory is compared. Randomness is fixed, so
// that two runs answer the same.
void redis_open(void *arg) {
    static uint8_t seed[16];
    char options[300];
    (void)arg;
    if (client_without_connection) return;
    setlocale(LC_COLLATE, "");
    tzset();
    srand(1);
    srandom(1);
    init_genrand64(1);
    crc64_init();
    dictSetHashFunctionSeed(seed);
    initServerConfig();
    ACLInit();
    moduleInitModulesSystem();
    snprintf(options, sizeof options,
        "port 0\nunixsocket /tmp/mangrove-tracker-redis-%d\nsave \"\"\nloglevel warning\n", getpid());
    sds text = sdsnew(options);
    loadServerConfig(NULL, 0, text);
    sdsfree(text);
    initServer();
    unlink(server.unixsocket);
    ACLLoadUsersAtStartup();
    client_without_connection = createClient(NULL);
    // Answers are kept although there is no connection.
    client_without_connection->flags |= CLIENT_MODULE;
}

static void take(const char *from, size_t len) {
    if (said_bytes + len >= sizeof said) abort();
    for (size_t i = 0; i < len; i++) said[said_bytes++] = from[i] == 0 ? '?' : from[i];
}

static void forget_answer(client *c) {
    c->bufpos = 0;
    listEmpty(c->reply);
    c->reply_bytes = 0;
    resetClient(c);
}

static void run_line(const char *line, int keep) {
    client *c = client_without_connection;
    int argc;
    sds *words = sdssplitargs(line, &argc);
    if (words == NULL) abort();
    c->argc = argc;
    c->argv = zmalloc(sizeof(robj *) * argc);
    c->argv_len_sum = 0;
    for (int i = 0; i < argc; i++) {
        c->argv[i] = createObject(OBJ_STRING, words[i]);
        c->argv_len_sum += sdslen(words[i]);
    }
    zfree(words);
    processCommand(c);
    if (keep) {
        listIter at;
        listNode *node;
        take(line, strlen(line));
        take("\n", 1);
        take(c->buf, c->bufpos);
        listRewind(c->reply, &at);
        while ((node = listNext(&at))) {
            clientReplyBlock *block = listNodeValue(node);
            if (block) take(block->buf, block->used);
        }
    }
    forget_answer(c);
}

static const char *const lines[] = {
    // strings
    "SET s hello", "SET n 10", "GET s", "APPEND s \" world, and more than fits into a small string object\"",
    "SETRANGE s 6 there", "GETRANGE s 0 -1",
    "STRLEN s", "INCR n", "INCRBY n 1000000", "DECR n", "DECRBY n 7", "INCRBYFLOAT n 3.25", "GETSET s other",
    "GETDEL s", "MSET a 1 b 2 c 3 d 4",
    "MGET a b c d e", "MSETNX a 9 nine 9", "MSETNX y 8 nine 9", "SETNX a 0", "SETNX w 1", "SET a 5 XX GET",
    "SETEX t 1000 value", "PSETEX t 1000000 value2",
    "GETEX t PERSIST", "SET k v EX 5000 NX", "SET k v2 KEEPTTL", "STRALGO LCS STRINGS ohmytext mynewtext",
    "OBJECT ENCODING n",
    // bits
    "SETBIT bits 7 1", "SETBIT bits 100000 1", "SETBIT bits 7 0", "BITCOUNT bits", "BITPOS bits 1",
    "BITFIELD bf SET u8 0 200 INCRBY u5 9 1 OVERFLOW SAT INCRBY u2 100 3 GET u8 0",
    "BITFIELD bf OVERFLOW FAIL INCRBY i16 300 32767 INCRBY i16 300 1", "SET x foobar", "SET y abcdef",
    "BITOP AND dest x y", "BITOP OR dest x y", "BITOP XOR dest x y", "BITOP NOT dest x", "GET dest",
    // hyperloglogs
    "PFADD hll a b c d e f g", "PFADD hll a", "PFCOUNT hll", "PFADD hll2 x y z", "PFMERGE hll3 hll hll2",
    "PFCOUNT hll hll2", "PFDEBUG TODENSE hll3", "PFADD hll3 one two three", "PFCOUNT hll3",
    // hashes
    "HSET h f1 v1 f2 v2 f3 v3", "HSET h f1 new", "HSETNX h f4 v4", "HSETNX h f1 no", "HGET h f1",
    "HMSET h f5 v5 f6 v6", "HMGET h f1 f2 none", "HINCRBY h count 5", "HINCRBY h count -2",
    "HINCRBYFLOAT h real 1.5", "HDEL h f2 f3", "HLEN h", "HEXISTS h f1", "HSTRLEN h f1", "HGETALL h",
    "HSET h long \"a value of more than sixty-four bytes turns the small list of pairs into a table of its own\"",
    "OBJECT ENCODING h", "HDEL h long f1", "HLEN h",
    // lists
    "RPUSH l a b c d e", "LPUSH l 1 2 3", "LPUSHX l 0", "RPUSHX none 0", "LPOP l", "RPOP l 2",
    "LINSERT l BEFORE a between", "LINSERT l AFTER a after", "LSET l 0 first", "LREM l 0 c", "LTRIM l 0 3",
    "LRANGE l 0 -1", "LINDEX l 1", "LLEN l", "RPOPLPUSH l l2", "LMOVE l l2 LEFT RIGHT", "LPOS l2 first", "BLPOP l2 1",
    "BRPOPLPUSH l l3 1", "BLMOVE l3 l LEFT LEFT 1", "LRANGE l 0 -1",
    // sets
    "SADD i 1 2 3 4 5", "SADD i 100000 10000000000", "SADD i word", "SREM i 1 2", "SMEMBERS i", "SADD u a b c d",
    "SADD v c d e f", "SINTER u v", "SUNIONSTORE uv u v", "SINTERSTORE iv u v", "SDIFFSTORE dv u v",
    "SMOVE u v a", "SISMEMBER v a", "SMISMEMBER v a b", "SCARD uv", "SPOP uv", "SPOP uv 3", "SRANDMEMBER uv",
    "SMEMBERS iv",
    // sorted sets
    "ZADD z 1 one 2 two 3 three 4.5 four", "ZADD z XX CH 10 one", "ZADD z NX 5 five", "ZADD z GT 11 one",
    "ZADD z INCR 2 two", "ZINCRBY z 3.5 three", "ZREM z four", "ZRANGE z 0 -1 WITHSCORES", "ZRANK z two",
    "ZREVRANK z two", "ZSCORE z one", "ZMSCORE z one two none", "ZCOUNT z 2 9", "ZADD z2 1 one 7 seven",
    "ZUNIONSTORE zu 2 z z2 WEIGHTS 2 3 AGGREGATE MAX", "ZINTERSTORE zi 2 z z2", "ZDIFFSTORE zd 2 z z2",
    "ZUNION 2 z z2 WITHSCORES",
    "ZRANGESTORE zr z 0 1", "ZPOPMIN z", "ZPOPMAX z 1", "BZPOPMIN z2 1", "ZADD lex 0 a 0 b 0 c 0 d",
    "ZREMRANGEBYLEX lex [b [c", "ZREMRANGEBYRANK zu 0 0", "ZREMRANGEBYSCORE zu 5 7",
    "ZADD zl 1 \"a member of more than sixty-four bytes turns the small list into a skip list and a table\"",
    "ZADD zl 2 b 3 c 4 d", "ZINCRBY zl 10 b", "ZREM zl c", "ZRANGEBYSCORE zl 0 100", "OBJECT ENCODING zl",
    "ZRANDMEMBER zl 2",
    // geography
    "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania", "GEODIST g Palermo Catania km",
    "GEOHASH g Palermo", "GEOPOS g Catania", "GEORADIUS g 15 37 200 km STORE near",
    "GEOSEARCHSTORE near2 g FROMLONLAT 15 37 BYBOX 400 400 km ASC", "ZRANGE near 0 -1",
    // streams
    "XADD st 1-1 f v", "XADD st 1-2 f v g w", "XADD st 2-0 other field", "XADD st MAXLEN 10 3-0 a b", "XLEN st",
    "XRANGE st - +", "XDEL st 1-2", "XTRIM st MAXLEN 2", "XGROUP CREATE st grp 0",
    "XREADGROUP GROUP grp me COUNT 1 STREAMS st >",
    "XREADGROUP GROUP grp you STREAMS st >", "XACK st grp 2-0", "XCLAIM st grp me 0 3-0 JUSTID",
    "XAUTOCLAIM st grp you 0 0 JUSTID", "XGROUP CREATECONSUMER st grp he", "XGROUP DELCONSUMER st grp you",
    "XGROUP SETID st grp 0", "XSETID st 9-9", "XADD st 9-10 k v", "XREVRANGE st + -", "XGROUP DESTROY st grp",
    // keys
    "EXPIRE a 10000", "PEXPIRE b 10000000", "EXPIREAT c 99999999999", "PEXPIREAT d 99999999999999", "PERSIST a",
    "TTL a", "RENAME a renamed", "RENAMENX b renamed", "RENAMENX b fresh", "COPY h h-copy", "COPY l l-copy DB 1",
    "MOVE zl 2", "TOUCH h l", "EXISTS h none", "TYPE st",
    "DUMP x", "EVAL \"return redis.call('restore', KEYS[1], 0, redis.call('dump', KEYS[2]))\" 2 restored x",
    "GET restored", "DEL x y", "UNLINK dest hll", "SORT i ALPHA STORE sorted", "RPUSH so 3 1 2", "SORT so DESC",
    "SORT so BY nosort GET # STORE so2", "LRANGE sorted 0 -1", "OBJECT FREQ h", "SWAPDB 0 1", "SWAPDB 0 1",
    "SELECT 3", "SET inthree 1", "SELECT 0", "DBSIZE", "RANDOMKEY",
    "SET gone soon PX 1", "@sleep", "GET gone", "SET gone2 soon PX 1", "@sleep", "@cron",
    // transactions and scripts
    "WATCH n", "MULTI", "SET m 1", "INCR m", "EXEC", "MULTI", "SET m 7", "DISCARD",
    "EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 lua value",
    "EVAL \"for i = 1, 200 do redis.call('rpush', KEYS[1], i) end return redis.call('llen', KEYS[1])\" 1 lualist",
    "EVAL \"return {1, 2, {3, 'four'}, cjson.encode({a = 1}), tostring(redis.sha1hex('x'))}\" 0",
    "SCRIPT LOAD \"return redis.call('incr', KEYS[1])\"",
    "EVALSHA 2bab3b661081db58bd2341920e0ba7cf5dc77b25 1 luacount", "EVAL \"return redis.error_reply('no')\" 0",
    "EVAL \"return redis.call('lpop', 'n')\" 0", "SCRIPT FLUSH",
    // the server
    "SUBSCRIBE channel", "PUBLISH channel message", "UNSUBSCRIBE channel", "CONFIG SET maxmemory-policy allkeys-lru",
    "CONFIG SET hash-max-ziplist-entries 4", "HSET h2 a 1 b 2 c 3 d 4 e 5", "CONFIG RESETSTAT",
    "CLIENT SETNAME tracked", "ACL SETUSER someone on >pw ~key* +get", "ACL DELUSER someone", "LATENCY RESET",
    "SLOWLOG RESET", "MEMORY DOCTOR",
    // what fails
    "INCR l", "LPUSH n x", "GET h", "NOSUCHCOMMAND", "SET onlyone", "HINCRBY h f5 1", "ZADD z x notanumber",
    "XADD st 1-1 late entry", "RESTORE bad 0 junk",
    "DEBUG DIGEST", "@grow", "DEBUG DIGEST", "@cron", "@shrink", "@cron", "DEBUG DIGEST", "FLUSHDB", "DBSIZE",
    "FLUSHALL", "DEBUG DIGEST",
};

// Structures that outgrow their first encodings, and keys enough for tables to be rehashed.
static void grow(int n) {
    static const char *const forms[] = {"SET key:%d value:%d", "HSET big f%d value:%d", "RPUSH biglist %d element:%d",
        "SADD bigset %d m%d", "SADD bigints %d 1%d", "ZADD bigz %d member:%d", "XADD bigstream %d-1 field value:%d",
        "SETBIT bigbits %d 1"};
    char line[200];
    for (int i = 1; i <= n; i++)
        for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
            snprintf(line, sizeof line, forms[form], i * 7919 % (form == 6 ? 1 << 30 : n * 2), i);
            if (form == 6) snprintf(line, sizeof line, forms[form], i, i);
            run_line(line, 0);
        }
}

static void shrink(int n) {
    static const char *const forms[] = {"DEL key:%d", "HDEL big f%d", "LPOP biglist", "SREM bigset %d",
        "SREM bigints %d", "ZREM bigz member:%d", "XDEL bigstream %d-1"};
    char line[200];
    for (int i = 1; i <= n; i++)
        for (size_t form = 0; form < sizeof forms / sizeof *forms; form++) {
            snprintf(line, sizeof line, forms[form], i);
            run_line(line, 0);
        }
}

// Line number `arg`.
void redis_line(void *arg) {
    size_t line = (size_t)arg;
    if (line >= sizeof lines / sizeof *lines) return;
    if (strcmp(lines[line], "@sleep") == 0) usleep(5000);
    else if (strcmp(lines[line], "@cron") == 0) {
        updateCachedTime(1);
        activeExpireCycle(ACTIVE_EXPIRE_CYCLE_SLOW);
        databasesCron();
    } else if (strcmp(lines[line], "@grow") == 0) grow(1500);
    else if (strcmp(lines[line], "@shrink") == 0) shrink(1400);
    else run_line(lines[line], 1);
}

size_t redis_line_count(void) {
    return sizeof lines / sizeof *lines;
}

// All answers so far.
const char *redis_said(void) {
    said[said_bytes] = 0;
    return said;
}

static unsigned rolled = 1;
static unsigned roll(unsigned below) {
    rolled = rolled * 1664525 + 1013904223;
    return (rolled >> 8) % below;
}

static void command(int argc, const char **argv) {
    client *c = client_without_connection;
    c->argc = argc;
    c->argv = zmalloc(sizeof(robj *) * argc);
    for (int i = 0; i < argc; i++) c->argv[i] = createStringObject(argv[i], strlen(argv[i]));
    processCommand(c);
    forget_answer(c);
}

// `arg` times SET of 100 bytes to one of 100,000 keys.
void redis_sets(void *arg) {
    static char value[101];
    char key[32];
    const char *words[] = {"SET", key, value};
    memset(value, 'v', 100);
    for (size_t i = 0; i < (size_t)arg; i++) {
        snprintf(key, sizeof key, "bench:%u", roll(100000));
        command(3, words);
    }
}

// `arg` commands of six kinds.
void redis_mixed(void *arg) {
    char key[32], field[32], number[32];
    for (size_t i = 0; i < (size_t)arg; i++) {
        snprintf(key, sizeof key, "m%u", roll(1000));
        snprintf(field, sizeof field, "field:%u", roll(1000));
        snprintf(number, sizeof number, "%u", roll(100000));
        switch (i % 6) {
        case 0: command(4, (const char *[]){"HSET", "bench-hash", field, number}); break;
        case 1: key[0] = 'l'; command(3, (const char *[]){"LPUSH", key, number}); break;
        case 2: command(4, (const char *[]){"ZADD", "bench-z", number, field}); break;
        case 3: key[0] = 'i'; command(2, (const char *[]){"INCR", key}); break;
        case 4: command(3, (const char *[]){"SADD", "bench-set", field}); break;
        default: key[0] = 'l'; command(2, (const char *[]){"RPOP", key}); break;
        }
    }
}
