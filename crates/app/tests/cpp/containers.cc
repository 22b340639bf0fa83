// Ordinary C++ structures as durable state, none of them changed: maps, strings, vectors, deques, lists, shared
// pointers, virtual functions, std::function, function pointers, pointers to constants and to variables.
//
//   containers STATE run COUNT    makes commands until there are COUNT, prints the number of each once acknowledged
//   containers STATE check MIN    what is there is exactly what MIN or more commands make, by replaying them
#include <mangrove_app.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#define CHECK(c)                                                                                              \
    do {                                                                                                      \
        if (!(c)) {                                                                                           \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #c, mangrove_app_last_error());   \
            _Exit(99);                                                                                        \
        }                                                                                                     \
    } while (0)

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const = 0;
    virtual Shape *copy() const = 0;
};
struct Square final : Shape {
    long side;
    explicit Square(long s) : side(s) {}
    long area() const override { return side * side; }
    Shape *copy() const override { return new Square(*this); }
};
struct alignas(128) Box final : Shape {
    long a, b;
    Box(long x, long y) : a(x), b(y) {}
    long area() const override { return a * b; }
    Shape *copy() const override { return new Box(*this); }
};

static long twice(long x) { return 2 * x; }
static long square(long x) { return x * x; }
static const char *const colours[] = {"red", "green", "blue"};

struct State {
    std::map<std::string, std::string> ordered;
    std::unordered_map<uint64_t, std::vector<uint32_t>> hashed;
    std::deque<std::string> queue;
    std::list<uint64_t> recent;
    std::set<std::pair<int, std::string>> pairs;
    std::vector<std::unique_ptr<Shape>> shapes;
    std::vector<std::shared_ptr<std::string>> shared;
    std::multimap<int, const char *> by_colour;
    std::vector<long (*)(long)> steps;
    std::vector<std::function<long(long)>> closures;
    std::vector<bool> bits;
    std::string text;
    uint64_t done = 0, caught = 0;
};

// Variables: a pointer, a structure whose constructor allocates nothing, a table, counters.
static State *state;
static std::map<int, int> histogram;
static uint64_t table[5000];
static uint64_t done_too;
static int started_here = 0;  // of this run, next to the others

static uint64_t mix(uint64_t x) {
    x ^= x >> 30, x *= 0xbf58476d1ce4e5b9u, x ^= x >> 27, x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Command number n, on any state.
static void apply(State &s, std::map<int, int> &counts, uint64_t *numbers, uint64_t n) {
    uint64_t r = mix(n + 1);
    auto dice = [&](uint64_t below) { r = mix(r + 1); return r % below; };
    for (int i = 0; i < 4; i++) {
        std::string key = "key" + std::to_string(dice(500));
        switch (dice(14)) {
        case 0: case 1: s.ordered[key] = std::string(dice(400), char('a' + dice(26))); break;
        case 2: s.ordered.erase(key); break;
        case 3: {
            auto &v = s.hashed[dice(300)];
            for (uint64_t k = dice(40); k > 0; k--) v.push_back(uint32_t(dice(1u << 31)));
            if (v.size() > 200) v.resize(v.size() / 3), v.shrink_to_fit();
            break;
        }
        case 4: s.hashed.erase(dice(300)); break;
        case 5: s.queue.push_back(key); if (s.queue.size() > 700) { s.queue.pop_front(); s.queue.pop_front(); } break;
        case 6: s.recent.push_front(dice(1000)); if (s.recent.size() > 100) s.recent.pop_back(); s.recent.sort(); break;
        case 7: if (!s.pairs.insert({int(dice(50)), key}).second) s.pairs.clear(); break;
        case 8:
            if (dice(2)) s.shapes.emplace_back(new Square(long(dice(100))));
            else s.shapes.push_back(std::make_unique<Box>(long(dice(9)), long(dice(9))));
            if (s.shapes.size() > 150) s.shapes.erase(s.shapes.begin(), s.shapes.begin() + 77);
            break;
        case 9: {
            auto p = std::make_shared<std::string>(key);
            s.shared.push_back(p), s.shared.push_back(p);
            if (s.shared.size() > 101) s.shared.pop_back();
            if (s.shared.size() > 200) s.shared.clear();
            break;
        }
        case 10:
            s.by_colour.emplace(int(dice(20)), colours[dice(3)]);
            if (s.by_colour.size() > 300) s.by_colour.erase(int(dice(20)));
            break;
        case 11: {
            s.steps.push_back(dice(2) ? twice : square);
            long k = long(dice(100)), l = long(dice(7)), m = long(dice(5));
            s.closures.push_back([k, l, m](long x) { return x * m + k - l; });
            if (s.steps.size() > 90) s.steps.clear(), s.closures.clear();
            break;
        }
        case 12:
            try {
                std::string wish(dice(60), '!');
                if (wish.size() % 2) throw std::runtime_error(wish + key);
                s.text += wish;
                if (s.text.size() > 5000) s.text.erase(0, 4000);
            } catch (const std::exception &e) {
                s.caught += strlen(e.what());
            }
            break;
        case 13: s.bits.push_back(dice(2) == 1); if (s.bits.size() > 3000) s.bits.resize(64); break;
        }
        counts[int(dice(64))]++;
        numbers[dice(5000)] += n;
    }
    s.done = n + 1;
}

static void process(void *) {
    apply(*state, histogram, table, state->done);
    done_too++;
}

static int init_state(void *) {
    state = new State();
    return 0;
}

static int on_recover(void *) {
    CHECK(started_here == 1);  // not brought back
    return 0;
}

static void check(void *arg) {
    uint64_t least = *(uint64_t *)arg;
    CHECK(state->done >= least && state->done == done_too);
    auto *model = new State();
    std::map<int, int> counts;
    auto *numbers = new uint64_t[5000]();
    for (uint64_t n = 0; n < state->done; n++) apply(*model, counts, numbers, n);
    const State &a = *state, &b = *model;
    CHECK(a.ordered == b.ordered && a.hashed == b.hashed && a.queue == b.queue && a.recent == b.recent);
    CHECK(a.pairs == b.pairs && a.bits == b.bits && a.text == b.text && a.caught == b.caught && a.steps == b.steps);
    CHECK(histogram == counts && memcmp(table, numbers, sizeof table) == 0);
    CHECK(a.shapes.size() == b.shapes.size() && a.shared.size() == b.shared.size());
    CHECK(a.closures.size() == b.closures.size());
    auto is_box = [](Shape *shape) { return dynamic_cast<Box *>(shape) != nullptr; };
    for (size_t i = 0; i < a.shapes.size(); i++) {
        std::unique_ptr<Shape> copy(a.shapes[i]->copy());
        CHECK(copy->area() == b.shapes[i]->area() && is_box(copy.get()) == is_box(b.shapes[i].get()));
    }
    for (size_t i = 0; i < a.shared.size(); i++) {
        CHECK(*a.shared[i] == *b.shared[i] && a.shared[i].use_count() == b.shared[i].use_count());
    }
    for (size_t i = 0; i < a.closures.size(); i++) CHECK(a.closures[i](long(i)) == b.closures[i](long(i)));
    CHECK(a.by_colour.size() == b.by_colour.size());
    auto x = a.by_colour.begin();
    for (auto y = b.by_colour.begin(); y != b.by_colour.end(); ++x, ++y) {
        CHECK(x->first == y->first && x->second == y->second);
    }
    delete[] numbers;
    delete model;
}

int main(int argc, char **argv) {
    CHECK(argc == 4);
    started_here = 1;
    mangrove_app_callbacks callbacks{};
    callbacks.bytes = sizeof callbacks;
    callbacks.process = process;
    callbacks.init_state = init_state;
    callbacks.on_recover = on_recover;
    mangrove_app *app;
    mangrove_app_client *client;
    mangrove_app_status status = mangrove_app_open(argv[1], nullptr, &callbacks, &app);
    if (status != MANGROVE_APP_OK) {
        fprintf(stderr, "%s: %s\n", mangrove_app_status_name(status), mangrove_app_last_error());
        return 2;
    }
    CHECK(mangrove_app_client_new(app, &client) == MANGROVE_APP_OK);
    uint64_t number = strtoull(argv[3], nullptr, 10);
    if (strcmp(argv[2], "check") == 0) {
        CHECK(mangrove_app_read(client, check, &number) == MANGROVE_APP_OK);
        printf("%llu\n", (unsigned long long)state->done);
    } else {
        setvbuf(stdout, nullptr, _IONBF, 0);
        while (state->done < number) {
            CHECK(mangrove_app_cmd(client, nullptr) == MANGROVE_APP_OK);
            printf("%llu\n", (unsigned long long)state->done);
        }
    }
    mangrove_app_client_free(client);
    CHECK(mangrove_app_close(app) == MANGROVE_APP_OK);
    return 0;
}
