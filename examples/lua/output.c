/* In a file of its own, so that the compiler puts it in line nowhere: mangrove_app_native needs a call. */
#include "durable_lua.h"

#include <stdlib.h>
#include <string.h>

void output_append(output *to, const char *bytes, size_t len)
{
    if (to->cut || len > OUTPUT_BYTES_MAX - to->len) {
        to->cut = true;
        return;
    }
    if (to->len + len > to->capacity) {
        size_t capacity = (to->len + len) * 2;
        char *larger = realloc(to->text, capacity);
        if (!larger) {
            to->cut = true;
            return;
        }
        to->text = larger;
        to->capacity = capacity;
    }
    if (len)
        memcpy(to->text + to->len, bytes, len);
    to->len += len;
}
