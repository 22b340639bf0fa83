/*
 * Runs a program as a container does: sandbox docker|all [user] [root=DIRECTORY] PROGRAM ARGUMENTS...
 *
 * docker: personality(2) fails with EPERM unless its argument is one that Docker's default profile allows (PER_LINUX,
 * PER_LINUX32, UNAME26, both, and the question). all: it always does. user: as nobody, if started by root.
 * root: with DIRECTORY as its root directory.
 */
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOBODY 65534

int main(int argc, char **argv) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_personality, 0, 7),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x0, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x8, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x20000, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x20008, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xffffffff, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    int at = 2;
    if (argc < 3) return 99;
    if (strcmp(argv[1], "all") == 0) {
        /* No argument gets past this load. */
        filter[2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    int as_nobody = strcmp(argv[at], "user") == 0 && argv[++at] != NULL && geteuid() == 0;
    if (argv[at] != NULL && strncmp(argv[at], "root=", 5) == 0) {
        if (chroot(argv[at++] + 5) != 0 || chdir("/") != 0) {
            perror("chroot");
            return 98;
        }
    }
    if (as_nobody && (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0)) {
        perror("nobody");
        return 98;
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("seccomp");
        return 98;
    }
    if (argv[at] == NULL) return 99;
    execv(argv[at], argv + at);
    perror(argv[at]);
    return 97;
}
