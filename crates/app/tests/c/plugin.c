/* A library that a program loads when it runs, with a function that a state points to. */
#ifndef START
#define START 0
#endif
#ifndef STEP
#define STEP 1
#endif
int plugged(const char *text);
static int count = START;

int plugged(const char *text) {
    return text == 0 ? count : text[0] + (count += STEP);
}
