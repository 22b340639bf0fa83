/* A library that a program loads when it runs, with a function that a state points to. */
int plugged(const char *text);
static int count;

int plugged(const char *text) {
    return text[0] + ++count;
}
