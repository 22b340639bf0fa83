/* PUBLISH in a cluster tells the other nodes by the bus, and its links write past the gate. So what is published waits
 * here until the batch is durable that it may rest on, as a subscriber's output waits in the gate. */
#include "glue.h"

typedef struct message_t {
    struct message_t *next;
    robj *channel, *text;
    int sharded;
    uint64_t batch; /* it rests on this one; not known yet of those from `fresh` on */
} message_t;

/* In the order in which they were published. */
static message_t *first, **end = &first, **fresh = &first;

void __real_clusterPropagatePublish(robj *channel, robj *text, int sharded);
void __wrap_clusterPropagatePublish(robj *channel, robj *text, int sharded) {
    if (!app || inside || starting || left_out("gate")) {
        __real_clusterPropagatePublish(channel, text, sharded);
        return;
    }
    message_t *m = zcalloc(sizeof *m);
    /* Copies: the interpreter writes to its arguments again. */
    m->channel = dupStringObject(channel);
    m->text = dupStringObject(text);
    m->sharded = sharded;
    *end = m;
    end = &m->next;
}

void bus_rests_on(uint64_t batch) {
    for (; *fresh; fresh = &(*fresh)->next) (*fresh)->batch = batch;
}

void bus_send(uint64_t durable) {
    while (fresh != &first && first->batch <= durable) {
        message_t *m = first;
        first = m->next;
        if (fresh == &m->next) fresh = &first;
        if (end == &m->next) end = &first;
        __real_clusterPropagatePublish(m->channel, m->text, m->sharded);
        decrRefCount(m->channel);
        decrRefCount(m->text);
        zfree(m);
    }
}
