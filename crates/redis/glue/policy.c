/* Lookups move entries of a table that is being rehashed. Outside of commands no tracker records that, and the next
 * commit would log a part of it. AVOID makes lookups leave such a table alone; inside commands the server's own
 * policy holds. */
#include "glue.h"

static hashtableResizePolicy wish = HASHTABLE_RESIZE_ALLOW;
/* Outside of tracked calls, from the first `policy_outside` on. */
static bool is_outside;

void __real_hashtableSetResizePolicy(hashtableResizePolicy policy);

void policy_inside(void) {
    is_outside = false;
    __real_hashtableSetResizePolicy(wish);
}

void policy_outside(void) {
    is_outside = true;
    bool as_it_is = wish == HASHTABLE_RESIZE_FORBID || left_out("policy");
    __real_hashtableSetResizePolicy(as_it_is ? wish : HASHTABLE_RESIZE_AVOID);
}

void __wrap_hashtableSetResizePolicy(hashtableResizePolicy policy) {
    HOOKED(POLICY);
    wish = policy;
    if (is_outside)
        policy_outside();
    else
        policy_inside();
}
