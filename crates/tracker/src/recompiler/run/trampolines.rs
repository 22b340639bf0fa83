//! The entry to translated code and the exit from it, and the stubs that translated code jumps to.
//!
//! Hand-written machine code; `recompiler/run/context.rs` lays out everything that it addresses absolutely. Rules:
//! - only `enter` touches memory below the program's stack pointer (its red zone);
//! - stubs keep every register, but `slow_copy` may change rax, rcx and r8 to r11; they may change flags, because
//!   records run where flags are dead or saved.

use super::context::{
    EXACT_END, EXACT_PAGES, EXACT_SHADOWS, FILTER, FILTER_SLOTS, GRANULE_BYTES, GRANULES_FULL, LARGE_END,
    LIST_END, LOW, LowContext, RECENT, RECENT_EXACT, RECENT_SLOTS, STACK_BLOCKS_END, TABLE, TARGETS, WATCHED,
};
use super::stubs::{
    EXIT_BRANCH, EXIT_RECORD, LEFT_ABANDONED, LEFT_BY_EXCEPTION, LEFT_ESCAPED, LEFT_NORMALLY,
};
use crate::write_set::block_table::{HASH_FACTOR, HASH_SHIFT, SLOT_COUNT};
use std::arch::global_asm;

macro_rules! at_reg {
    ($reg:expr) => {
        LOW + std::mem::offset_of!(LowContext, regs) + 8 * $reg
    };
}

global_asm!(
    r#"
    .text
    .p2align 4
    .globl mangrove_tracker_enter
    .hidden mangrove_tracker_enter
    .hidden mangrove_tracker_personality
    .type mangrove_tracker_enter, @function
mangrove_tracker_enter:
    .cfi_startproc
    .cfi_personality 0x1b, mangrove_tracker_personality
    push rbp
    .cfi_adjust_cfa_offset 8
    .cfi_offset rbp, -16
    mov rbp, rsp
    .cfi_def_cfa_register rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    .cfi_offset rbx, -24
    .cfi_offset r12, -32
    .cfi_offset r13, -40
    .cfi_offset r14, -48
    .cfi_offset r15, -56
    sub rsp, 8
    mov [{frame}], rsp
    mov [{target}], rdi
    mov rcx, rdi
    mov rdi, rsi
    lea rax, [rip + mangrove_tracker_return]
    push rax
    movzx ecx, cx
    jmp qword ptr [rdx + rcx*8]
    .globl mangrove_tracker_return
    .hidden mangrove_tracker_return
    nop
mangrove_tracker_return:
    mov eax, {escaped}
    jmp 2f
    .globl mangrove_tracker_caught
    .hidden mangrove_tracker_caught
mangrove_tracker_caught:
    mov rdi, rax
    call {destroy}
    .globl mangrove_tracker_thrown
    .hidden mangrove_tracker_thrown
mangrove_tracker_thrown:
    mov eax, {escaped}
    jmp 2f
    .globl mangrove_tracker_leave_thrown
    .hidden mangrove_tracker_leave_thrown
mangrove_tracker_leave_thrown:
    mov eax, {exception}
    jmp 2f
    .globl mangrove_tracker_abandon
    .hidden mangrove_tracker_abandon
mangrove_tracker_abandon:
    cld
    mov eax, {abandoned}
    jmp 2f
    .globl mangrove_tracker_leave
    .hidden mangrove_tracker_leave
mangrove_tracker_leave:
    xor eax, eax
2:
    mov rsp, [{frame}]
    add rsp, 8
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    .cfi_def_cfa rsp, 8
    ret
    .cfi_endproc
    .size mangrove_tracker_enter, . - mangrove_tracker_enter

    .globl mangrove_tracker_branch_miss
    .hidden mangrove_tracker_branch_miss
mangrove_tracker_branch_miss:
    mov rcx, [{branch_rcx}]
    mov dword ptr [{exit}], {exit_branch}
    .globl mangrove_tracker_dispatch
    .hidden mangrove_tracker_dispatch
mangrove_tracker_dispatch:
    mov [{r0}], rax
    mov [{r1}], rcx
    mov [{r2}], rdx
    mov [{r3}], rbx
    mov [{r4}], rsp
    mov [{r5}], rbp
    mov [{r6}], rsi
    mov [{r7}], rdi
    mov [{r8}], r8
    mov [{r9}], r9
    mov [{r10}], r10
    mov [{r11}], r11
    mov [{r12}], r12
    mov [{r13}], r13
    mov [{r14}], r14
    mov [{r15}], r15
    mov rsp, [{host_rsp}]
    pushfq
    pop qword ptr [{flags}]
    cld
    mov eax, [{xsave_mask}]
    xor edx, edx
    mov rbx, [{xsave}]
    xsave64 [rbx]
    call {dispatcher}
    mov [{next}], rax
    mov eax, [{xsave_mask}]
    xor edx, edx
    mov rbx, [{xsave}]
    xrstor64 [rbx]
    push qword ptr [{flags}]
    popfq
    mov rax, [{r0}]
    mov rcx, [{r1}]
    mov rdx, [{r2}]
    mov rbx, [{r3}]
    mov rsp, [{r4}]
    mov rbp, [{r5}]
    mov rsi, [{r6}]
    mov rdi, [{r7}]
    mov r8, [{r8}]
    mov r9, [{r9}]
    mov r10, [{r10}]
    mov r11, [{r11}]
    mov r12, [{r12}]
    mov r13, [{r13}]
    mov r14, [{r14}]
    mov r15, [{r15}]
    jmp qword ptr [{next}]

    # Records a write [write_addr, +write_len) whose block is not in the filter, and returns to [resume].
    .p2align 4
    .globl mangrove_tracker_slow
    .hidden mangrove_tracker_slow
mangrove_tracker_slow:
    mov [{s0}], rax
    mov [{s1}], rcx
    mov [{s2}], rdx
    mov rax, [{addr}]
    mov ecx, [{len}]
    lea rcx, [rax + rcx - 1]
    and rax, [{mask}]
    and rcx, [{mask}]
    mov [{s3}], rcx
3:  # rax is a block: in the filter?
    mov rdx, rax
    mov ecx, [{filter_shift}]
    shr rdx, cl
    and edx, {filter_mask}
    mov rcx, [rdx + {filter}]
    cmp rcx, rax
    je 5f
    test rcx, rcx
    jnz 4f
6:  # a new one: of a page with exact bytes? of the own stack?
    mov rcx, rax
    shr rcx, 12
    movzx ecx, cx
    cmp byte ptr [rcx + {exact_pages}], 0
    jne 8f
    mov rcx, rax
    sub rcx, [{stack_lo}]
    cmp rcx, [{stack_all}]
    mov [rdx + {filter}], rax
    jae 2f
    mov rcx, [{stack_blocks_ptr}]
    cmp rcx, {stack_blocks_end}
    jae 5f
    mov [rcx], rax
    add rcx, 8
    mov [{stack_blocks_ptr}], rcx
    jmp 5f
2:
    mov rcx, [{list_ptr}]
    mov [rcx], rax
    add rcx, 8
    mov [{list_ptr}], rcx
    cmp rcx, {list_end}
    jae 9f
5:
    cmp rax, [{s3}]
    je 7f
    add rax, [{block_bytes}]
    jmp 3b
7:
    mov rax, [{s0}]
    mov rcx, [{s1}]
    mov rdx, [{s2}]
    jmp qword ptr [{resume}]
4:  # its slot has another block (rcx), which goes to the table if it is a recorded one
    mov [{s4}], r8
    mov r8, rcx
    sub r8, [{stack_lo}]
    cmp r8, [{stack_all}]
    jb 3f
    imul r8, rcx, {hash_factor}
    shr r8, {hash_shift} - 3
    and r8d, {table_mask}
2:
    cmp [r8 + {table}], rcx
    je 3f
    cmp qword ptr [r8 + {table}], 0
    je 2f
    add r8d, 8
    and r8d, {table_mask}
    jmp 2b
2:
    mov [r8 + {table}], rcx
    mov r8, [{victims_ptr}]
    mov [r8], rcx
    add r8, 8
    mov [{victims_ptr}], r8
3:  # and this one (rax): was it evicted before?
    imul r8, rax, {hash_factor}
    shr r8, {hash_shift} - 3
    and r8d, {table_mask}
2:
    mov rcx, [r8 + {table}]
    cmp rcx, rax
    je 2f
    add r8d, 8
    and r8d, {table_mask}
    test rcx, rcx
    jnz 2b
    mov r8, [{s4}]
    jmp 6b
2:
    mov r8, [{s4}]
    mov [rdx + {filter}], rax
    jmp 5b
    # As `slow`, for a write that begins on a page with exact bytes.
    .p2align 4
    .globl mangrove_tracker_slow_exact
    .hidden mangrove_tracker_slow_exact
mangrove_tracker_slow_exact:
    mov [{s0}], rax
    mov [{s1}], rcx
    mov [{s2}], rdx
8:  # a page with exact bytes: flags in its shadow, if the write lies in one page that has one
    mov rax, [{addr}]
    mov ecx, [{len}]
    mov edx, eax
    and edx, 4095
    add edx, ecx
    cmp edx, 4096
    ja 8f
    mov rdx, rax
    shr rdx, 12
    movzx edx, dx
    mov rdx, [rdx*8 + {shadows}]
    add rdx, rax
    mov rax, rdx
    sub rax, [{shadow_lo}]
    cmp rax, [{shadow_len}]
    jae 8f
    cmp ecx, 8
    jb 3f
    mov qword ptr [rdx + rcx - 8], -1
2:
    mov qword ptr [rdx], -1
    add rdx, 8
    sub ecx, 8
    cmp ecx, 8
    ja 2b
    jmp 2f
3:
    mov byte ptr [rdx + rcx - 1], -1
    dec ecx
    jnz 3b
2:  # its first and its last granule: in the list?
    mov ecx, [{len}]
    lea rcx, [rax + rcx - 1]
    shr rax, {granule_shift}
    shr rcx, {granule_shift}
    add rax, [{granule_marks}]
    add rcx, [{granule_marks}]
    cmp byte ptr [rax], 0
    jne 2f
    mov byte ptr [rax], 1
    mov rax, [{addr}]
    and rax, -{granule}
    mov rdx, [{granules_ptr}]
    mov [rdx], rax
    add qword ptr [{granules_ptr}], 8
2:
    cmp byte ptr [rcx], 0
    jne 3f
    mov byte ptr [rcx], 1
    mov rax, [{addr}]
    mov ecx, [{len}]
    lea rax, [rax + rcx - 1]
    and rax, -{granule}
    mov rdx, [{granules_ptr}]
    mov [rdx], rax
    add qword ptr [{granules_ptr}], 8
3:
    cmp qword ptr [{granules_ptr}], {granules_full}
    jbe 7b
    jmp 9f
8:  # else a recent pair, a new one, or one for the dispatcher
    mov rax, [{addr}]
    mov ecx, [{len}]
    mov rdx, rax
    shr rdx, 2
    xor edx, ecx
    and edx, {recent_mask}
    shl edx, 4
    cmp [rdx + {recent_exact}], rax
    jne 2f
    cmp [rdx + {recent_exact} + 8], rcx
    je 7b
2:
    lea rcx, [rax + rcx - 1]
    shr rax, 12
    movzx eax, ax
    cmp byte ptr [rax + {exact_pages}], {watched}
    je 9f
    shr rcx, 12
    movzx ecx, cx
    cmp byte ptr [rcx + {exact_pages}], {watched}
    je 9f
    mov rax, [{exact_ptr}]
    cmp rax, {exact_end} - 16
    ja 9f
    mov ecx, [{len}]
    mov [rdx + {recent_exact} + 8], rcx
    mov [rax + 8], rcx
    mov rcx, [{addr}]
    mov [rdx + {recent_exact}], rcx
    mov [rax], rcx
    add rax, 16
    mov [{exact_ptr}], rax
    jmp 7b
9:
    mov rax, [{s0}]
    mov rcx, [{s1}]
    mov rdx, [{s2}]
    mov dword ptr [{exit}], {exit_record}
    jmp mangrove_tracker_dispatch

    # As `slow`, for a masked store. [exit] has its exit number, for the cases that need the mask.
    .globl mangrove_tracker_slow_masked
    .hidden mangrove_tracker_slow_masked
mangrove_tracker_slow_masked:
    mov [{s0}], rax
    mov [{s1}], rcx
    mov rax, [{addr}]
    mov ecx, [{len}]
    lea rcx, [rax + rcx - 1]
    xor rcx, rax
    test rcx, -4096
    jne 2f
    shr rax, 12
    movzx eax, ax
    cmp byte ptr [rax + {exact_pages}], 0
    jne 2f
    mov rax, [{s0}]
    mov rcx, [{s1}]
    jmp mangrove_tracker_slow
2:
    mov rax, [{s0}]
    mov rcx, [{s1}]
    jmp mangrove_tracker_dispatch

    # Records the write [rdi, +rdx) of a function of memcpy's family, and returns to rcx. May use rax, rcx,
    # r8-r11 and flags.
    .p2align 4
    .globl mangrove_tracker_slow_copy
    .hidden mangrove_tracker_slow_copy
mangrove_tracker_slow_copy:
    test rdx, rdx
    je 6f
    lea r8, [rdi + rdx - 1]
    mov rax, rdi
    shr rax, 12
    movzx eax, ax
    cmp byte ptr [rax + {exact_pages}], 0
    jne 9f
    cmp rdx, {small_max}
    jae 3f
    mov r9, r8
    shr r9, 12
    movzx r9d, r9w
    cmp byte ptr [r9 + {exact_pages}], 0
    jne 22f
    # small: block by block
    mov r9, rdi
    and r9, [{mask}]
    and r8, [{mask}]
    mov r10, rcx
    mov ecx, [{filter_shift}]
2:
    mov rax, r9
    shr rax, cl
    and eax, {filter_mask}
    cmp [rax + {filter}], r9
    jne 5f
4:
    cmp r9, r8
    je 8f
    add r9, [{block_bytes}]
    jmp 2b
8:
    jmp r10
5:  # a new block
    mov r11, r9
    sub r11, [{stack_lo}]
    cmp r11, [{stack_all}]
    jb 4b
    cmp qword ptr [rax + {filter}], 0
    jne 5f
    mov [rax + {filter}], r9
    mov r11, [{list_ptr}]
    mov [r11], r9
    add r11, 8
    mov [{list_ptr}], r11
    cmp r11, {list_end}
    jb 4b
    mov rcx, r10
    jmp 7f
22:
    mov r10, rcx
5:  # whose slot is taken
    mov [{addr}], rdi
    mov [{len}], rdx
    mov [{resume}], r10
    jmp mangrove_tracker_slow
3:  # large: one range, unless it is the same again
    cmp rdx, 0x100000
    ja 7f
    shr r8, 12
    sub r8d, eax
    movzx r8d, r8w
3:
    lea r9d, [rax + r8]
    movzx r9d, r9w
    cmp byte ptr [r9 + {exact_pages}], 0
    jne 9f
    sub r8d, 1
    jae 3b
    mov rax, rdi
    sub rax, [{stack_lo}]
    cmp rax, [{stack_all}]
    jb 6f
    mov rax, rdi
    shr rax, 4
    xor rax, rdx
    and eax, {recent_mask}
    shl eax, 4
    cmp [rax + {recent}], rdi
    jne 3f
    cmp [rax + {recent} + 8], rdx
    je 6f
3:
    mov [rax + {recent}], rdi
    mov [rax + {recent} + 8], rdx
    mov rax, [{large_ptr}]
    mov [rax], rdi
    mov [rax + 8], rdx
    add rax, 16
    mov [{large_ptr}], rax
    cmp rax, {large_end}
    je 7f
6:
    jmp rcx
9:  # pages with exact bytes: small writes as in `slow`, else a pair, unless it is the same again
    cmp rdx, {small_max}
    jb 8f
    cmp rdx, 0x100000
    ja 7f
    mov rax, rdi
    lea r8, [rdi + rdx - 1]
    shr rax, 12
    shr r8, 12
2:
    movzx r9d, ax
    cmp byte ptr [r9 + {exact_pages}], {watched}
    je 7f
    add rax, 1
    cmp rax, r8
    jbe 2b
    mov rax, rdi
    shr rax, 4
    xor rax, rdx
    and eax, {recent_mask}
    shl eax, 4
    cmp [rax + {recent_exact}], rdi
    jne 2f
    cmp [rax + {recent_exact} + 8], rdx
    je 6b
2:
    mov r8, [{exact_ptr}]
    cmp r8, {exact_end} - 16
    ja 7f
    mov [rax + {recent_exact}], rdi
    mov [rax + {recent_exact} + 8], rdx
    mov [r8], rdi
    mov [r8 + 8], rdx
    add r8, 16
    mov [{exact_ptr}], r8
    jmp rcx
8:
    mov [{addr}], rdi
    mov [{len}], rdx
    mov [{resume}], rcx
    jmp mangrove_tracker_slow_exact
7:
    mov [{addr}], rdi
    mov [{len}], rdx
    mov [{resume}], rcx
    mov dword ptr [{exit}], {exit_record}
    jmp mangrove_tracker_dispatch

    # Records a write of write_len bytes (64 bits) at write_addr, and returns to [resume] with all registers.
    .globl mangrove_tracker_slow_range
    .hidden mangrove_tracker_slow_range
mangrove_tracker_slow_range:
    mov [{q0}], rax
    mov [{q0} + 8], rcx
    mov [{q0} + 16], rdx
    mov [{q0} + 24], rdi
    mov [{q0} + 32], r8
    mov [{q0} + 40], r9
    mov [{q0} + 48], r10
    mov [{q0} + 56], r11
    mov rax, [{resume}]
    mov [{leaf_return}], rax
    mov rdi, [{addr}]
    mov rdx, [{len}]
    lea rcx, [rip + 2f]
    jmp mangrove_tracker_slow_copy
2:
    mov rax, [{q0}]
    mov rcx, [{q0} + 8]
    mov rdx, [{q0} + 16]
    mov rdi, [{q0} + 24]
    mov r8, [{q0} + 32]
    mov r9, [{q0} + 40]
    mov r10, [{q0} + 48]
    mov r11, [{q0} + 56]
    jmp qword ptr [{leaf_return}]

    # rsp was just changed: does it still (or again) point into the thread's own stack?
    # The program's rax is in [stub + 24]. Returns to [resume], or enters the dispatcher with [exit].
    .globl mangrove_tracker_check_own_stack
    .hidden mangrove_tracker_check_own_stack
mangrove_tracker_check_own_stack:
    lahf
    seto al
    mov [{saved_flags}], rax
    mov rax, rsp
    sub rax, [{stack_lo}]
    cmp rax, [{stack_len}]
    mov rax, [{saved_flags}]
    jae 2f
3:
    add al, 0x7f
    sahf
    mov rax, [{s3}]
    jmp qword ptr [{resume}]
2:
    add al, 0x7f
    sahf
    mov rax, [{s3}]
    jmp mangrove_tracker_dispatch
    .globl mangrove_tracker_check_foreign_stack
    .hidden mangrove_tracker_check_foreign_stack
mangrove_tracker_check_foreign_stack:
    lahf
    seto al
    mov [{saved_flags}], rax
    mov rax, rsp
    sub rax, [{stack_lo}]
    cmp rax, [{stack_all}]
    mov rax, [{saved_flags}]
    jb 2b
    jmp 3b
"#,
    frame = const at!(frame),
    target = const at!(branch_target),
    branch_rcx = const at!(branch_rcx),
    exit = const at!(exit),
    exit_branch = const EXIT_BRANCH as i32,
    exit_record = const EXIT_RECORD as i32,
    escaped = const LEFT_ESCAPED,
    exception = const LEFT_BY_EXCEPTION,
    abandoned = const LEFT_ABANDONED,
    destroy = sym super::unwind::destroy_exception,
    dispatcher = sym super::dispatch::dispatch,
    host_rsp = const at!(host_rsp),
    flags = const at!(flags),
    next = const at!(next),
    xsave = const at!(xsave_area),
    xsave_mask = const at!(xsave_mask),
    r0 = const at_reg!(0), r1 = const at_reg!(1), r2 = const at_reg!(2), r3 = const at_reg!(3),
    r4 = const at_reg!(4), r5 = const at_reg!(5), r6 = const at_reg!(6), r7 = const at_reg!(7),
    r8 = const at_reg!(8), r9 = const at_reg!(9), r10 = const at_reg!(10), r11 = const at_reg!(11),
    r12 = const at_reg!(12), r13 = const at_reg!(13), r14 = const at_reg!(14), r15 = const at_reg!(15),
    s0 = const at!(stub), s1 = const at!(stub) + 8, s2 = const at!(stub) + 16, s3 = const at!(stub) + 24,
    s4 = const at!(stub) + 32,
    q0 = const at!(range_stub),
    leaf_return = const at!(leaf_return),
    addr = const at!(write_addr),
    len = const at!(write_len),
    resume = const at!(resume),
    saved_flags = const at!(saved_flags),
    mask = const at!(block_mask),
    block_bytes = const at!(block_bytes),
    filter_shift = const at!(filter_shift),
    filter_mask = const (FILTER_SLOTS - 1) * 8,
    filter = const FILTER,
    exact_pages = const EXACT_PAGES,
    watched = const WATCHED,
    exact_ptr = const at!(exact_ptr),
    exact_end = const EXACT_END,
    table = const TABLE,
    table_mask = const (SLOT_COUNT - 1) * 8,
    hash_factor = const HASH_FACTOR,
    hash_shift = const HASH_SHIFT,
    list_ptr = const at!(list_ptr),
    list_end = const LIST_END,
    victims_ptr = const at!(victims_ptr),
    stack_blocks_ptr = const at!(stack_blocks_ptr),
    stack_blocks_end = const STACK_BLOCKS_END,
    large_ptr = const at!(large_ptr),
    large_end = const LARGE_END,
    recent = const RECENT,
    recent_exact = const RECENT_EXACT,
    recent_mask = const RECENT_SLOTS - 1,
    shadows = const EXACT_SHADOWS,
    shadow_lo = const at!(shadow_lo),
    shadow_len = const at!(shadow_len),
    granule = const GRANULE_BYTES,
    granule_shift = const GRANULE_BYTES.trailing_zeros(),
    granule_marks = const at!(granule_marks),
    granules_ptr = const at!(granules_ptr),
    granules_full = const GRANULES_FULL,
    small_max = const crate::write_set::write_set::SMALL_BYTES_MAX + 1,
    stack_lo = const at!(stack_lo),
    stack_len = const at!(stack_len),
    stack_all = const at!(stack_all),
);

const _: () = assert!(EXACT_END > LARGE_END && TARGETS[0] > EXACT_END && LEFT_NORMALLY == 0);
