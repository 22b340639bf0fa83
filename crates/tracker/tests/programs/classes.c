// Stores that are not an ordinary mov: strings, locks, vectors, masks, state areas, stacks.
#define _GNU_SOURCE
#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ucontext.h>
#include <setjmp.h>

#define BYTES 65536
char area[BYTES] __attribute__((aligned(4096)));
static __thread char local[256];
char *heap;
void class_open(void *arg) { heap = malloc(BYTES); memset(heap, 0x11, BYTES); memset(area, 0x22, BYTES); }

void class_plain(void *arg) {
    heap[100] = 1; *(int *)(heap + 200) = 7; *(short *)(heap + 301) = 3; area[77]++; *(uint64_t *)(heap + 30) = ~0ull;
}
void class_tls(void *arg) { local[9] = 5; local[200]++; area[1] = local[9]; }
void class_lock(void *arg) {
    __sync_fetch_and_add((int *)(heap + 400), 3); __sync_lock_test_and_set((long *)(heap + 440), 9);
    __sync_bool_compare_and_swap((long *)(heap + 480), *(long *)(heap + 480), 77);
    uint64_t lo = *(uint64_t *)(area + 512), hi = *(uint64_t *)(area + 520);
    asm volatile("lock cmpxchg16b %0"
                 : "+m"(*(__int128 *)(area + 512)), "+a"(lo), "+d"(hi) : "b"(5ul), "c"(6ul) : "cc");
    asm volatile("lock cmpxchg16b %0"
                 : "+m"(*(__int128 *)(area + 528)), "+a"(lo), "+d"(hi) : "b"(5ul), "c"(6ul) : "cc");
    long one = 1; asm volatile("xchgq %0,%1" : "+r"(one), "+m"(*(long *)(heap + 5600)));
}
void class_string(void *arg) {
    char *d = heap + 1000; long n = 333; asm volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(0x5a) : "memory");
    d = heap + 2000; n = 50; asm volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(0x5a5a) : "memory");
    char *s = heap + 1000; d = heap + 3003; n = 29; asm volatile("rep movsl" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    d = heap + 3300; asm volatile("stosw" : "+D"(d) : "a"(99) : "memory");
    s = heap + 1000; asm volatile("movsb" : "+D"(d), "+S"(s)::"memory");
    n = 0; asm volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(1) : "memory");
}
/* More ranges and blocks than the recompiler's lists hold, and one range of more than a mebibyte. */
void class_string_many(void *arg) {
    static char *many; static int turn; if (!many) many = malloc(4 << 20); turn++;
    for (int i = 0; i < 5000; i++) { char *d = many + i * 200; long n = 100;
        asm volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(turn + i) : "memory"); }
    for (int i = 0; i < 12000; i++) { char *d = many + (1 << 20) + i * 96; long n = 5;
        asm volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(turn * 77l + i) : "memory"); }
    char *d = many + (5 << 19) + 3; long n = (1 << 20) + 77;
    asm volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(turn) : "memory");
}
void class_string_backward(void *arg) {
    char *d = heap + 1000; long n = 333; asm volatile("std; rep stosb; cld" : "+D"(d), "+c"(n) : "a"(0x6b) : "memory");
    char *s = heap + 3000; d = heap + 4016; n = 40;
    asm volatile("std; rep movsq; cld" : "+D"(d), "+S"(s), "+c"(n)::"memory");
    d = heap + 5000; asm volatile("std; stosl; cld" : "+D"(d) : "a"(0x77) : "memory");
    d = heap + 5100; n = 7;
    asm volatile("pushfq; orq $0x400, (%%rsp); popfq; rep stosw; cld"
                 : "+D"(d), "+c"(n) : "a"(0x78) : "memory", "cc");
}
void class_sse(void *arg) {
    __m128i v = _mm_set1_epi32(0x1234567); _mm_storeu_si128((__m128i *)(heap + 4209), v);
    _mm_maskmoveu_si128(v, _mm_set_epi8(-1,0,0,-1,0,0,0,0,-1,-1,0,0,0,0,0,-1), heap + 4700);
    _mm_stream_si64((long long *)(heap + 5000), 42); _mm_stream_si128((__m128i *)(area + 4096), v);
    *(double *)(heap + 5033) = 3.5; _mm_storeh_pd((double *)(heap + 5100), _mm_set1_pd(3));
    asm volatile("pextrb $3,%%xmm0,%0" : "=m"(heap[5150]));
    asm volatile("fldpi; fstpt %0" : "=m"(*(long double *)(heap + 5200)));
}
__attribute__((target("avx2"))) void class_avx(void *arg) {
    __m256i v = _mm256_set1_epi32(0x7654321); _mm256_storeu_si256((__m256i *)(heap + 4133), v);
    _mm256_maskstore_epi32((int *)(heap + 4800), _mm256_set_epi32(-1, 0, -1, 0, -1, 0, -1, 0), v);
    _mm256_maskstore_pd((double *)(heap + 4900), _mm256_set_epi64x(-1, 0, 0, -1), _mm256_set1_pd(2));
    _mm256_maskstore_ps((float *)(area + 4096 + 4084), _mm256_set_epi32(0, 0, 0, 0, 0, -1, -1, -1), _mm256_set1_ps(1));
    _mm256_stream_si256((__m256i *)(area + 128), v);
}
__attribute__((target("avx512f,avx512vl,avx512bw,avx512vbmi2"))) void class_avx512(void *arg) {
    __m512i v = _mm512_set1_epi32(0x1234567); _mm512_storeu_si512(heap + 4007, v);
    _mm512_mask_storeu_epi32(heap + 4300, 0x0f0f, v); _mm512_mask_storeu_epi8(heap + 4400, 0xf00f00ff00f00f0full, v);
    _mm512_stream_si512((void *)(area + 4544), v); _mm512_mask_compressstoreu_epi32(heap + 4900, 0x5555, v);
    _mm_mask_compressstoreu_epi8(heap + 5000, 0x8f01, _mm512_castsi512_si128(v));
    _mm512_mask_storeu_epi64(area + 8192 - 16, 0x03, v);
    __m512i i = _mm512_set_epi32(15, 140, 13, 120, 11, 100, 9, 80, -7, 60, 5, 40, 3, 20, 1, 0);
    _mm512_mask_i32scatter_epi32(area + 20000, 0xbeef, i, v, 8);
    _mm256_i64scatter_epi64(area + 30000, _mm256_set_epi64x(-9, 100, 3, 1), _mm256_set1_epi64x(77), 4);
    _mm512_i32scatter_pd(area + 40000, _mm256_set_epi32(70, 60, 50, 40, 30, 20, 10, 0), _mm512_set1_pd(1.5), 2);
    _mm512_mask_cvtepi32_storeu_epi8(heap + 5300, 0x7ff3, v);
    asm volatile("kmovq %%k1,%0" : "=m"(*(long *)(heap + 5250)));
}
/* The mask is set between the flags and the store; the store's address is in rax, with live flags around it; and
   32-bit scatters. */
__attribute__((target("avx512f"))) void class_masks(void *arg) {
    static unsigned turn = 0x1234567; turn++;
    asm volatile("vpbroadcastd %1, %%zmm0; kxorw %%k1,%%k1,%%k1; cmp %%eax,%%eax; kmovw %2,%%k1; vmovdqu32 %%zmm0,(%0)%{%%k1%}; jne 1f; 1:"
                 ::"r"(area + 4096 * 3 - 32), "r"(turn), "r"(0xffff) : "xmm0", "k1", "memory", "cc");
    asm volatile("vpbroadcastd %1, %%zmm0; kmovw %2,%%k1; cmp %%ecx,%%ecx; vmovdqu32 %%zmm0,(%%rax)%{%%k1%}; jne 1f; 1:"
                 ::"a"(area + 4096 * 4 - 32), "r"(turn), "r"(0xf0f3) : "xmm0", "k1", "memory", "cc");
    static char *low; if (!low) { low = (char *)syscall(SYS_mmap, 0x21000000, 4096, 3, 0x32, -1, 0); }
    if (low == (char *)0x21000000)
        asm volatile("vpbroadcastd %1, %%zmm0; vpbroadcastd %2, %%zmm1; kmovw %3,%%k1; "
                     "vpscatterdd %%zmm0,(%k0,%%zmm1,1)%{%%k1%}"
                     ::"r"(0xf0000000l), "r"(turn), "r"(0x31000100), "r"(3) : "xmm0", "xmm1", "k1", "memory", "cc");
}
void class_state(void *arg) {
    asm volatile("fxsave64 (%0)" ::"r"(area + 8192) : "memory");
    asm volatile("xsave64 (%0)" ::"r"(area + 12288), "a"(0xe7), "d"(0) : "memory");
    asm volatile("xsavec64 (%0)" ::"r"(area + 20480), "a"(0xe7), "d"(0) : "memory");
    asm volatile("fnstenv (%0); fldenv (%0)" ::"r"(heap + 9000) : "memory");
    asm volatile("fnsave (%0); frstor (%0)" ::"r"(heap + 9100) : "memory");
    asm volatile("fnstcw %0; stmxcsr %1" : "=m"(*(short *)(heap + 5740)), "=m"(*(int *)(heap + 5780)));
}
void class_direct(void *arg) {
    asm volatile("movdir64b (%0),%1" ::"r"(heap), "r"(area + 13056) : "memory");
    asm volatile("movdiri %1,%0" : "=m"(*(long *)(heap + 13200)) : "r"(9l));
}
void class_stack(void *arg) {
    asm volatile("pushq %1; popq %0" : "=m"(*(long *)(heap + 5700)) : "m"(*(long *)(heap + 400)));
    asm volatile("push %%rbp; enter $64, $0; movq $5, -8(%%rbp); leave; pop %%rbp" ::: "memory");
    asm volatile("push %%rbp; enter $64, $5; leave; pop %%rbp" ::: "memory");
    long i = 5; asm volatile("1: movb %%cl,(%1,%0); loop 1b" : "+c"(i) : "r"(heap + 13300) : "memory");
    asm volatile("xor %%ecx,%%ecx; jrcxz 1f; movb $1,%0; 1: movb $2,%1"
                 : "=m"(heap[13400]), "=m"(heap[13480])::"rcx", "cc");
}
/* rsp points into the heap: everything stored through it must be reported. */
void class_foreign_stack(void *arg) {
    asm volatile("mov %%rsp, %%rbx; mov %0, %%rsp; push $77; pushq $78; call 1f; jmp 2f; 1: push %%rbx; "
                 "pop %%rcx; ret; 2: movl $9, -64(%%rsp); enter $32, $3; leave; pushfq; mov %%rbx, %%rsp"
                 ::"r"(heap + 30000) : "rbx", "rcx", "memory", "cc");
}
/* The same, with rsp set by less usual instructions. */
void class_foreign_stack_rare(void *arg) {
    static long turn; turn++;
    asm volatile("mov %%rsp, %%rbx; cmp %%eax, %%eax; cmovge %0, %%rsp; push %1; mov %%rbx, %%rsp; "
                 "movq %0, %%xmm0; movq %%xmm0, %%rsp; push %1; push %1; mov %%rbx, %%rsp; "
                 "mov %0, %%rcx; sub %%rsp, %%rcx; sub $64, %%rcx; add %%rcx, %%rsp; push %1; mov %%rbx, %%rsp; "
                 "sub $64, %%rcx; lea (%%rsp,%%rcx), %%rsp; push %1; mov %%rbx, %%rsp"
                 ::"r"(heap + 32000), "r"(turn) : "rbx", "rcx", "xmm0", "memory", "cc");
}
void class_segment(void *arg) {
    syscall(SYS_arch_prctl, ARCH_SET_GS, heap + 20000);
    asm volatile("movq $33, %%gs:64; mov $8, %%rax; movb $3, %%gs:100(%%rax,%%rax)" ::: "rax", "memory");
    asm volatile("movl $0x5566, %%fs:(%0)" ::"r"(local + 32 - (char *)__builtin_thread_pointer()) : "memory");
    syscall(SYS_arch_prctl, ARCH_SET_GS, 0);
}
/* A function that returns flags, and one that takes them: code that no compiler makes. */
void class_flags(void *arg) {
    long r = 0;
    asm volatile("jmp 3f; 1: movl $1, 700(%1); cmp %1, %1; movl $2, 704(%1); ret; 2: setc %b0; ret;"
                 "3: sub $128, %%rsp; mov $0, %0; call 1b; jz 4f; mov $100, %0; 4: movl $3, 708(%1); "
                 "stc; movl $4, 712(%1); call 2b; add $128, %%rsp"
                 : "+&r"(r) : "r"(heap) : "memory", "cc");
    *(long *)(heap + 720) = r;
}
static ucontext_t main_context, co_context; static int turns;
static void coroutine(void) {
    char mine[300];
    for (int i = 0; i < 5; i++) {
        memset(mine, i, sizeof mine); turns += mine[7]; swapcontext(&co_context, &main_context);
    }
}
void class_coroutine(void *arg) {
    static char *stack; if (!stack) stack = malloc(65536);
    getcontext(&co_context); co_context.uc_stack.ss_sp = stack; co_context.uc_stack.ss_size = 65536;
    co_context.uc_link = &main_context;
    makecontext(&co_context, coroutine, 0); for (int i = 0; i < 5; i++) swapcontext(&main_context, &co_context);
    *(int *)(heap + 740) = turns;
}
static jmp_buf inside; static volatile int depth;
__attribute__((noinline)) static void deep(int n) {
    depth++; heap[15000 + n] = n; if (n == 20) longjmp(inside, 5); deep(n + 1); heap[15100] = 1;
}
void class_longjmp(void *arg) { depth = 0; int r = setjmp(inside); if (!r) deep(0); else heap[15200] = r; }
void class_narrow(void *arg) { /* 32-bit address arithmetic */
    static char *low; if (!low) { low = (char *)syscall(SYS_mmap, 0x20000000, 4096, 3, 0x32, -1, 0); }
    if ((uintptr_t)low < 0x7fffffff)
        asm volatile("movl $7, 16(%k0); movl $8, (%k0,%k1,4)" ::"r"(low), "r"(20l) : "memory");
}
