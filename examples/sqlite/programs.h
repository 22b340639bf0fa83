/* The programs beside the shell. Arguments without the program's and their own name. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

int stress(int argc, char **argv);
int bench(int argc, char **argv);

#endif
