/* What the programs of `cargo xtask space` share. */
#ifndef MANGROVE_SPACE_STEPS_H
#define MANGROVE_SPACE_STEPS_H

#include <stdio.h>
#include <stdlib.h>

/* Records of which one stays. */
#define ONE_STAYS 10

/* Tells the chore that a step is done, and waits until it has measured. */
static void pause_at(const char *step) {
    char line[16];
    printf("%s\n", step);
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL) exit(0);
}

#endif
