/*
 * suspended DIR WORD...: a coroutine whose stack lies in the state, and a place that longjmp goes to.
 *
 * go: the coroutine takes a step, several calls deep, and the number of its step is printed; set: setjmp; jump: longjmp
 * to where an earlier start was.
 */
#include "check.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static ucontext_t *inside, *outside;
static jmp_buf *place;
static int step;

/* Returns through frames that an earlier start of the program made. */
__attribute__((noinline)) static int deep(int depth)
{
    char text[32];
    snprintf(text, sizeof text, "%d", depth);
    if (depth == 0) {
        swapcontext(inside, outside);
        return 0;
    }
    int below = deep(depth - 1);
    return below + atoi(text);
}

static void run(void)
{
    for (;;)
        step += deep(3) == 6;
}

static int make(void *user)
{
    (void)user;
    inside = malloc(sizeof *inside);
    outside = malloc(sizeof *outside);
    place = malloc(sizeof *place);
    getcontext(inside);
    inside->uc_stack.ss_size = 1 << 16;
    inside->uc_stack.ss_sp = malloc(inside->uc_stack.ss_size);
    inside->uc_link = NULL;
    makecontext(inside, run, 0);
    return 0;
}

static void process(void *context)
{
    const char *word = context;
    if (strcmp(word, "go") == 0)
        swapcontext(outside, inside);
    else if (strcmp(word, "set") == 0)
        step += setjmp(*place) == 0;
    else
        longjmp(*place, 1);
}

int main(int argc, char **argv)
{
    mangrove_app_callbacks callbacks = {.bytes = sizeof callbacks, .process = process, .init_state = make};
    mangrove_app *app;
    mangrove_app_client *client;
    if (argc < 2)
        return 2;
    OK(mangrove_app_open(argv[1], NULL, &callbacks, &app));
    OK(mangrove_app_client_new(app, &client));
    for (int i = 2; i < argc; i++)
        OK(mangrove_app_cmd(client, argv[i]));
    printf("step %d\n", step);
    fflush(stdout);
    _Exit(0);
}
