// What programs do with libc inside a command.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <locale.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <search.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
static char area[65536];
static int numbers[20000];
static char records[5000][64];
void libc_strings(void *a) {
    char *p = malloc(100), *q = strdup("a string to duplicate"); p = realloc(p, 50000); memset(p, 3, 50000);
    snprintf(area, 500, "%d %s %g %5.3f", 42, q, 3.14159, 2.5); strcpy(area + 600, q); strncpy(area + 700, q, 90);
    stpcpy(area + 800, q);
    strcat(area + 600, " and more"); strtok(area + 600, " "); wcscpy((wchar_t *)(area + 1000), L"wide");
    swab(q, area + 1100, 10);
    free(p); free(q); strtol("12345", 0, 10); strtod("3.25e10", 0);
    sscanf("17 99", "%d %d", (int *)(area + 1200), (int *)(area + 1204));
    *(double *)(area + 1300) = sin(1.5) + pow(2.5, 3.1); bzero(area + 1400, 77);
    memccpy(area + 1500, "abcdef", 'd', 6); strerror_r(5, area + 1600, 100);
}
void libc_heap(void *a) {
    void *v[300]; for (int i = 0; i < 300; i++) v[i] = calloc(1, i * 37 + 1);
    for (int i = 0; i < 300; i += 2) free(v[i]);
    for (int i = 1; i < 300; i += 2) v[i] = realloc(v[i], i * 91 + 1); for (int i = 1; i < 300; i += 2) free(v[i]);
    void *big = malloc(3 << 20); memset(big, 1, 1 << 20); big = realloc(big, 9 << 20); memset(big, 2, 100); free(big);
    void *al; if (posix_memalign(&al, 4096, 10000)) abort(); memset(al, 5, 10000); free(al);
}
static int cmp(const void *a, const void *b) { return (*(int *)a > *(int *)b) - (*(int *)a < *(int *)b); }
void libc_qsort(void *a) { uint32_t s = 1;
    for (int i = 0; i < 20000; i++) numbers[i] = (s = s * 1664525 + 1013904223) >> 3; qsort(numbers, 20000, 4, cmp);
    for (int i = 0; i < 5000; i++) *(int *)records[i] = (s = s * 1664525 + 1013904223) >> 3;
    qsort(records, 5000, 64, cmp); }
static void *root; static int cmpp(const void *a, const void *b) { return ((long)a > (long)b) - ((long)a < (long)b); }
void libc_search(void *a) { for (long i = 0; i < 2000; i++) tsearch((void *)((i * 7919) % 2003 * 4), &root, cmpp);
    hcreate(3000);
    for (long i = 0; i < 2000; i++) {
        char *k = malloc(20); sprintf(k, "key%ld", i); ENTRY e = {k, (void *)i}; hsearch(e, ENTER); }
    hdestroy(); }
void libc_files(void *a) {
    int fd = open("/proc/self/stat", 0); *(long *)(area + 3000) = read(fd, area + 3100, 300); close(fd);
    struct stat st; stat("/", (struct stat *)(area + 4000)); (void)st;
    FILE *f = fopen("/proc/self/status", "r"); char line[300];
    while (fgets(line, 300, f)) if (strstr(line, "Name")) strcpy(area + 4500, line); fclose(f);
    int p[2]; if (pipe(p) || write(p[1], "through a pipe", 14) != 14) abort();
    struct iovec v[2] = {{area + 5000, 5}, {area + 5100, 50}}; *(long *)(area + 5200) = readv(p[0], v, 2);
    struct pollfd *pf = (struct pollfd *)(area + 5300); pf[0] = (struct pollfd){p[1], POLLOUT}; poll(pf, 1, 0);
    fd_set *s = (fd_set *)(area + 5400); FD_ZERO(s); FD_SET(p[1], s); struct timeval tv = {0, 0};
    select(p[1] + 1, 0, s, 0, &tv);
    int e = epoll_create1(0); struct epoll_event ev = {EPOLLOUT, {.u64 = 77}}; epoll_ctl(e, EPOLL_CTL_ADD, p[1], &ev);
    epoll_wait(e, (struct epoll_event *)(area + 5600), 4, 0); close(e); close(p[0]); close(p[1]);
    int sv[2]; if (socketpair(AF_UNIX, SOCK_DGRAM, 0, sv)) abort(); send(sv[0], "datagram", 8, 0);
    recv(sv[1], area + 5800, 100, 0); send(sv[0], "message", 7, 0); struct iovec iv = {area + 5900, 64};
    struct msghdr m = {.msg_iov = &iv, .msg_iovlen = 1}; recvmsg(sv[1], &m, 0); *(socklen_t *)(area + 6000) = 100;
    getsockname(sv[0], (void *)(area + 6010), (socklen_t *)(area + 6000)); close(sv[0]); close(sv[1]);
}
void libc_time(void *a) {
    clock_gettime(CLOCK_MONOTONIC, (void *)(area + 7000));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, (void *)(area + 7100)); time_t t = time(0);
    gmtime_r(&t, (void *)(area + 7200)); localtime(&t); getrusage(RUSAGE_SELF, (void *)(area + 7400));
    getrandom(area + 7600, 100, 0); setenv("XX", "YY", 1); getenv("HOME"); struct timespec d = {0, 1000};
    nanosleep(&d, (void *)(area + 7800)); getcwd(area + 7900, 200); readlink("/proc/self/exe", area + 8200, 200);
}
void libc_maps(void *a) {
    char *m = mmap(0, 1 << 16, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memset(m, 1, 1 << 16);
    m = mremap(m, 1 << 16, 1 << 18, MREMAP_MAYMOVE); m[100000] = 5; munmap(m + 4096, 8192);
    mprotect(m, 4096, PROT_NONE); char *k = mmap(0, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); k[5000] = 1;
    *(char **)(area + 9000) = k; void *b = sbrk(8192);
    /* Another mapping may lie right above the heap. */
    if (b != (void *)-1) { memset(b, 7, 8192); sbrk(-4096); }
}
void libc_locale(void *a) { setlocale(LC_ALL, "C.UTF-8"); setlocale(LC_ALL, "C"); errno = 77; }
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; static pthread_once_t once = PTHREAD_ONCE_INIT;
static void init(void) { area[9100] = 1; } static __thread char local[64];
void libc_locks(void *a) {
    pthread_mutex_lock(&mutex); area[9200]++; pthread_mutex_unlock(&mutex); pthread_once(&once, init); local[3]++;
}
/* The kernel writes in less usual ways: whatever the other arguments are, or although the call fails. An earlier call
   has set what a later one only changes. */
static void on_alarm(int signal) {}
void libc_kernel(void *a) {
    static int turn; char *at = area + 10000 + turn++ * 1000; int p[2]; long got; register long r10 asm("r10") = 0;
    asm volatile("syscall" : "=a"(got) : "a"(SYS_sched_getaffinity), "D"(0), "S"(128), "d"(at), "r"(r10)
                 : "rcx", "r11", "memory"); if (got <= 0) abort();
    if (pipe(p) || write(p[1], "into a vector", 13) != 13) abort();
    struct iovec v = {at + 200, 13}; if (vmsplice(p[0], &v, 1, 0) != 13) abort();
    if (!socketpair(AF_INET, SOCK_STREAM, 0, (int *)(at + 300))) abort();
    fd_set *s = (fd_set *)(at + 400); struct timeval soon = {0, 1000};
    if (select(-1, s, 0, 0, &soon) != -1 || syscall(SYS_poll, at + 500, -1, 0) != -1) abort();
    char *m = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!madvise(m, 4096, 24) || errno != EINVAL || !madvise(m, 4096, 102) || errno != EINVAL) abort(); munmap(m, 4096);
    int *owner = (int *)(area + 20000); struct pollfd *pf = (struct pollfd *)(area + 20100);
    if (turn == 1) { *owner = 1; *pf = (struct pollfd){p[0], POLLIN, 0x77}; return; }
    struct timespec past = {0, 1000}; if (!syscall(SYS_futex, owner, 6, 0, &past, 0, 0)) abort();
    struct sigaction sa = {.sa_handler = on_alarm}; sigaction(SIGALRM, &sa, 0);
    struct itimerval it = {.it_value = {0, 30000}}; setitimer(ITIMER_REAL, &it, 0);
    if (poll(pf, 1, 5000) != -1 || errno != EINTR) abort(); signal(SIGALRM, SIG_DFL);
}
/* The kernel's own structures are larger than what it writes: next to each written place lies a byte that stays. */
char exact_area[8192] __attribute__((aligned(64))); int exact_attributes;
void exact_kernel(void *a) {
    int p[2], sv[2]; if (pipe(p) || write(p[1], "x", 1) != 1 || socketpair(AF_UNIX, SOCK_DGRAM, 0, sv)) abort();
    struct pollfd *pf = (struct pollfd *)(exact_area + 64); if (poll(pf, 2, 0) != 1) abort();
    int fd = open("/proc/self/exe", O_RDONLY); exact_attributes = ioctl(fd, 0x80086601, exact_area + 128) == 0;
    struct iovec spliced = {exact_area + 192, 4}; if (vmsplice(p[1], &spliced, 1, 0) != 4) abort();
    struct mmsghdr *out = (struct mmsghdr *)(exact_area + 512), *in = (struct mmsghdr *)(exact_area + 1024);
    if (sendmmsg(sv[0], out, 2, 0) != 2 || recvmmsg(sv[1], in, 2, 0, 0) != 2) abort();
    struct sock_filter code[3] = {{0x20, 0, 0, 4}, {0x15, 0, 0, 9}, {6, 0, 0, 1}}; struct sock_fprog filter = {3, code};
    socklen_t length = 10; if (setsockopt(sv[0], SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) ||
        getsockopt(sv[0], SOL_SOCKET, 26, exact_area + 2048, &length) || length != 3) abort();
    int from = socket(AF_UNIX, SOCK_DGRAM, 0), to = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct sockaddr_un name = {.sun_family = AF_UNIX}; length = sizeof name; /* the kernel chooses names of 8 bytes */
    if (bind(from, (void *)&name, sizeof name.sun_family) || bind(to, (void *)&name, sizeof name.sun_family) ||
        getsockname(to, (void *)&name, &length) || sendto(from, "named", 5, 0, (void *)&name, length) != 5 ||
        recvmsg(to, (struct msghdr *)(exact_area + 3200), 0) != 5 ||
        sendto(from, "named", 5, 0, (void *)&name, length) != 5 ||
        recvmmsg(to, (struct mmsghdr *)(exact_area + 3584), 1, 0, 0) != 1) abort();
    close(from); close(to);
    close(fd); close(p[0]); close(p[1]); close(sv[0]); close(sv[1]);
}
/* Called natively before: the first descriptor is never open, the others are -1; buffers have 8 bytes. */
void exact_prepare(void *a) {
    static struct iovec parts[4]; static char sent[16] = "to be received"; static char received[16];
    struct pollfd *pf = (struct pollfd *)(exact_area + 64); pf[0] = (struct pollfd){0x7fffff, POLLIN, 0x77};
    pf[1] = (struct pollfd){-1, POLLIN, 0x77};
    for (int i = 0; i < 4; i++) parts[i] = (struct iovec){(i < 2 ? sent : received) + i % 2 * 8, 8};
    for (int i = 0; i < 4; i++)
        ((struct mmsghdr *)(exact_area + 512 + i / 2 * 512))[i % 2] =
            (struct mmsghdr){.msg_hdr = {.msg_iov = &parts[i], .msg_iovlen = 1}};
    *(struct msghdr *)(exact_area + 3200) = (struct msghdr){
        .msg_name = exact_area + 3072, .msg_namelen = 4, .msg_iov = &parts[2], .msg_iovlen = 1};
    *(struct mmsghdr *)(exact_area + 3584) = (struct mmsghdr){.msg_hdr = {
        .msg_name = exact_area + 3456, .msg_namelen = 4, .msg_iov = &parts[2], .msg_iovlen = 1}};
}
/* Stores as told, each of a kind and a width; 0, 0, 0 ends the list. */
char exact_large[1 << 19] __attribute__((aligned(4096))); struct exact_store { int kind, offset, len; };
void exact_discard(void *a) { if (madvise(exact_large + 4096, 8192, 4)) abort(); } /* MADV_DONTNEED */
void exact_stores(void *a) {
    static char from[4096];
    for (struct exact_store *s = a; s->len; s++) {
        volatile char *p = exact_large + s->offset; size_t n = s->len;
        if (s->kind == 0 && n == 1) *p = 1;
        else if (s->kind == 0 && n == 2) *(volatile short *)p = 1;
        else if (s->kind == 0 && n == 4) *(volatile int *)p = 1;
        else if (s->kind == 0 && n == 8) *(volatile long *)p = 1;
        else if (s->kind == 0 && n == 16) { __asm__ volatile("movdqu %%xmm0, %0" : "=m"(*(char(*)[16])p)); }
        else if (s->kind == 4) {
            /* Stores that the recompiler records together: of 3 to 64 bytes. */
            volatile short *h = (void *)p; volatile int *w = (void *)p; volatile long *q = (void *)p;
            if (n == 3) { h[0] = 1; p[2] = 1; }
            else if (n == 6) { w[0] = 1; h[2] = 1; }
            else if (n == 12) { q[0] = 1; w[2] = 1; }
            else if (n == 17) { q[0] = q[1] = 1; p[16] = 1; }
            else if (n == 24) { q[0] = q[1] = q[2] = 1; }
            else if (n == 39) { q[0] = q[1] = q[2] = q[3] = 1; w[8] = 1; h[18] = 1; p[38] = 1; }
            else if (n == 48) { q[0] = q[1] = q[2] = q[3] = q[4] = q[5] = 1; }
            else if (n == 64) { q[0] = q[1] = q[2] = q[3] = q[4] = q[5] = q[6] = q[7] = 1; }
            else abort();
        }
        else if (s->kind == 1) memset((char *)p, 1, n);
        else if (s->kind == 2) memcpy((char *)p, from, n);
        else { char *to = (char *)p; __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(1) : "memory"); }
    }
}
/* Code up to the end of its mapping, with nothing mapped after it: ret, (xor eax,eax), (je to the ret), nop... */
void libc_code_at_an_end(void *a) {
    char name[] = "/tmp/mangrove-code-XXXXXX"; int fd = mkstemp(name); unlink(name); static unsigned char page[4096];
    memset(page, 0x90, 4096);
    memcpy(page + 4080, "\xc3\x31\xc0\x74\xfb", 5); if (write(fd, page, 4096) != 4096) abort();
    unsigned char *p = mmap(0, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mmap(p, 4096, 5, MAP_PRIVATE | MAP_FIXED, fd, 0) != p) abort();
    close(fd); area[9300] += 1 + ((int (*)(void))(p + 4081))(); munmap(p, 8192);
}
// Refused calls. After a denied system call the program continues with libc's locks released and everything works;
// the tracked call ends with the reason.
static void still_works(void) {
    for (int i = 0; i < 100; i++) free(malloc(i * 1000 + 1));
    FILE *f = fopen("/dev/null", "w"); if (!f || fprintf(f, "%d\n", 1) < 0 || fclose(f)) abort(); fflush(0);
    pthread_mutex_lock(&mutex); pthread_mutex_unlock(&mutex);
}
void refused_fork(void *a) {
    pid_t p = fork(); if (p == 0) _exit(0); if (p != -1 || errno != ENOSYS) abort(); still_works();
}
void refused_vfork(void *a) { pid_t p = vfork(); if (p == 0) _exit(0); if (p != -1) abort(); still_works(); }
void refused_system(void *a) { if (system("true") != 127 << 8) abort(); still_works(); }
void refused_spawn(void *a) {
    pid_t p; char *v[] = {"true", 0}; if (posix_spawn(&p, "/bin/true", 0, 0, v, v) == 0) abort(); still_works();
}
void refused_popen(void *a) { if (popen("true", "r")) abort(); still_works(); }
static void *body(void *a) { return a; }
void refused_thread(void *a) { pthread_t t; if (pthread_create(&t, 0, body, 0) == 0) abort(); still_works(); }
void refused_jit(void *a) {
    unsigned char *p = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memcpy(p, "\xb8\x05\0\0\0\xc3", 6);
    area[9400] = ((int (*)(void))p)();
}
void refused_jit_readonly(void *a) {
    unsigned char *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); memcpy(p, "\xb8\x05\0\0\0\xc3", 6);
    mprotect(p, 4096, 5); area[9400] = ((int (*)(void))p)();
}
void refused_jit_shared(void *a) {
    char name[] = "/tmp/mangrove-code-XXXXXX"; int fd = mkstemp(name); unlink(name); if (ftruncate(fd, 4096)) abort();
    unsigned char *w = mmap(0, 4096, 3, MAP_SHARED, fd, 0), *x = mmap(0, 4096, 5, MAP_SHARED, fd, 0);
    memcpy(w, "\xb8\x05\0\0\0\xc3", 6); area[9400] = ((int (*)(void))x)();
}
void refused_fiemap(void *a) {
    struct { unsigned long start, length; unsigned flags, mapped, count, reserved; char extents[4][56]; } *map =
        malloc(sizeof *map);
    memset(map, 0, sizeof *map); map->length = -1; map->count = 4;
    int fd = open("/proc/self/exe", O_RDONLY); ioctl(fd, 0xc020660b, map);
}
void refused_pthread_exit(void *a) { pthread_exit(0); }
void refused_thrd_exit(void *a) { thrd_exit(0); }
void refused_unknown(void *a) { asm volatile(".byte 0x06"); }
void refused_padlock(void *a) { asm volatile(".byte 0xf3, 0x0f, 0xa7, 0xc8"); } /* rep xcryptecb */
void refused_fcntl(void *a) { fcntl(0, 1999, a); }
void refused_zerocopy(void *a) {
    char option[64] = {0};
    socklen_t len = sizeof option;
    getsockopt(0, IPPROTO_TCP, 35, option, &len);
}
void refused_syscall(void *a) { syscall(9999); }
void refused_exec(void *a) { char *v[] = {"true", 0}; execv("/bin/true", v); }
#include <setjmp.h>
static jmp_buf outside; void *jump_target = outside;
void refused_longjmp(void *a) { longjmp(outside, 1); }
int call_with_setjmp(int (*call)(void *), void *arg) { if (setjmp(outside)) return 99; return call(arg); }
void refused_exit_thread(void *a) { syscall(60, 0); }
void crash_null(void *a) { *(volatile int *)0 = 1; }
void crash_abort(void *a) { abort(); }
void crash_illegal(void *a) { __builtin_trap(); }
void crash_wild(void *a) { void (*volatile f)(void) = (void (*)(void))0x123456789a; f(); area[1] = 1; }
void crash_divide(void *a) { volatile int z = 0; area[0] = 5 / z; }
void calls_exit(void *a) { _exit(7); }
