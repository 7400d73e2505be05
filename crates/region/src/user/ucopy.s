// The routines of ucopy.rs. They keep nothing on the stack: a fault between lp_ucopy_start and lp_ucopy_end
// resumes at lp_ucopy_fault, which returns to the caller.

.section .text.startup.lp_ucopy,"ax",@progbits
    .balign 64
    .globl lp_ucopy_start
    .globl lp_ucopy_end
    .globl lp_ucopy_fault
    .globl lp_ucopy
    .globl lp_ucopy_wide
    .globl lp_uzero
    .globl lp_ustr
    .globl lp_ustraight
    .globl lp_ustat
    .globl lp_ustat_file
    .globl lp_ustatx
    .globl lp_ubyte
    .globl lp_uword
    .hidden lp_ucopy_start
    .hidden lp_ucopy_end
    .hidden lp_ucopy_fault
    .hidden lp_ucopy
    .hidden lp_ucopy_wide
    .hidden lp_uzero
    .hidden lp_ustr
    .hidden lp_ustraight
    .hidden lp_ustat
    .hidden lp_ustat_file
    .hidden lp_ustatx
    .hidden lp_ubyte
    .hidden lp_uword

// rax: the size of the directory at rsi, 20 bytes per entry, as tmpfs counts.
.macro lp_dirsize
    mov eax, dword ptr [rsi + {entries}]
    lea rax, [rax + rax * 4]
    lea rax, [rax * 4 + 40]
.endm

lp_ucopy_start:
    .cfi_startproc

// lp_ucopy_wide: lp_ucopy, with ymm registers from 128 bytes on if available.
lp_ucopy_wide:
    cmp rdx, 16
    jbe 15f
    cmp rdx, 128
    jb 4f
    cmp byte ptr [rip + {wide}], 0
    je 4f
    sub rdx, 128
18:
    vmovdqu ymm0, ymmword ptr [rsi]
    vmovdqu ymm1, ymmword ptr [rsi + 32]
    vmovdqu ymm2, ymmword ptr [rsi + 64]
    vmovdqu ymm3, ymmword ptr [rsi + 96]
    vmovdqu ymmword ptr [rdi], ymm0
    vmovdqu ymmword ptr [rdi + 32], ymm1
    vmovdqu ymmword ptr [rdi + 64], ymm2
    vmovdqu ymmword ptr [rdi + 96], ymm3
    add rsi, 128
    add rdi, 128
    sub rdx, 128
    jae 18b
    // The remainder, together with bytes already copied: another 128 bytes.
    add rsi, rdx
    add rdi, rdx
    add rdx, 128
    jz 19f
    xor edx, edx
    jmp 18b
19:
    vzeroupper
    xor eax, eax
    ret

// lp_ucopy(rdi to, rsi from, rdx bytes) -> rax 0 or 1.
lp_ucopy:
    cmp rdx, 16
    ja 4f
15:
    cmp edx, 1
    jbe 5f
    cmp edx, 4
    jae 2f
    // The second byte is the last one, or the one before.
    movzx eax, byte ptr [rsi]
    movzx ecx, byte ptr [rsi + rdx - 1]
    movzx r8d, byte ptr [rsi + 1]
    mov byte ptr [rdi + 1], r8b
    mov byte ptr [rdi + rdx - 1], cl
    mov byte ptr [rdi], al
    xor eax, eax
    ret
5:
    jb 1f
    movzx eax, byte ptr [rsi]
    mov byte ptr [rdi], al
1:
    xor eax, eax
    ret
2:
    cmp edx, 8
    jae 3f
    mov eax, dword ptr [rsi]
    mov ecx, dword ptr [rsi + rdx - 4]
    mov dword ptr [rdi], eax
    mov dword ptr [rdi + rdx - 4], ecx
    xor eax, eax
    ret
3:
    mov rax, qword ptr [rsi]
    mov rcx, qword ptr [rsi + rdx - 8]
    mov qword ptr [rdi], rax
    mov qword ptr [rdi + rdx - 8], rcx
    xor eax, eax
    ret
4:
    cmp rdx, 1024
    ja 7f
    // 17..1024 bytes: 64 and 32 at a time, the last 16 overlapping.
    movdqu xmm1, xmmword ptr [rsi + rdx - 16]
    lea r8, [rdi + rdx - 16]
    mov rcx, rdx
    and rcx, -32
    jz 6f
    add rsi, rcx
    add rdi, rcx
    neg rcx
    test cl, 32
    jz 16f
    movdqu xmm0, xmmword ptr [rsi + rcx]
    movdqu xmm2, xmmword ptr [rsi + rcx + 16]
    movdqu xmmword ptr [rdi + rcx], xmm0
    movdqu xmmword ptr [rdi + rcx + 16], xmm2
    add rcx, 32
    jz 6f
16:
    movdqu xmm0, xmmword ptr [rsi + rcx]
    movdqu xmm2, xmmword ptr [rsi + rcx + 16]
    movdqu xmm3, xmmword ptr [rsi + rcx + 32]
    movdqu xmmword ptr [rdi + rcx], xmm0
    movdqu xmm0, xmmword ptr [rsi + rcx + 48]
    movdqu xmmword ptr [rdi + rcx + 16], xmm2
    movdqu xmmword ptr [rdi + rcx + 32], xmm3
    movdqu xmmword ptr [rdi + rcx + 48], xmm0
    add rcx, 64
    jnz 16b
6:
    test dl, 16
    jz 14f
    movdqu xmm0, xmmword ptr [rsi]
    movdqu xmmword ptr [rdi], xmm0
14:
    movdqu xmmword ptr [r8], xmm1
    xor eax, eax
    ret
7:
    mov rcx, rdx
    test dl, 7
    jnz 17f
    // Whole words: faster between aligned addresses.
    shr rcx, 3
    rep movsq
    xor eax, eax
    ret
17:
    rep movsb
    xor eax, eax
    ret

// lp_uzero(rdi to, rsi bytes) -> rax 0 or 1.
lp_uzero:
    mov rcx, rsi
    xor eax, eax
    rep stosb
    ret

// lp_ustr(rdi to, rsi from, rdx room) -> rax length without NUL, or room when there is no NUL; -1 for a
// fault. rdx bytes up to the last slash and with it. 16 at a time where neither the buffer nor the
// source's page ends within them: the page behind may not be there.
lp_ustr:
    pxor xmm1, xmm1
    mov eax, 0x2f2f2f2f
    movd xmm2, eax
    pshufd xmm2, xmm2, 0
    // Most paths end within 32 bytes.
    mov eax, esi
    and eax, 4095
    cmp eax, 4064
    ja 21f
    cmp rdx, 32
    jb 21f
    movdqu xmm0, xmmword ptr [rsi]
    movdqu xmmword ptr [rdi], xmm0
    movdqa xmm3, xmm0
    pcmpeqb xmm0, xmm1
    pcmpeqb xmm3, xmm2
    pmovmskb eax, xmm0
    pmovmskb ecx, xmm3
    test eax, eax
    jnz 22f
    movdqu xmm0, xmmword ptr [rsi + 16]
    movdqu xmmword ptr [rdi + 16], xmm0
    movdqa xmm3, xmm0
    pcmpeqb xmm0, xmm1
    pcmpeqb xmm3, xmm2
    pmovmskb eax, xmm0
    pmovmskb r8d, xmm3
    shl r8d, 16
    or ecx, r8d
    shl eax, 16
    jz 23f
22:  // Slashes behind the NUL do not count. A one below the slashes' bits stands for none.
    lea r8d, [rax - 1]
    xor r8d, eax
    and ecx, r8d
    bsf eax, eax
    lea rcx, [rcx + rcx + 1]
    bsr rdx, rcx
    ret
23:
    lea rcx, [rcx + rcx + 1]
    bsr r10, rcx
    mov r9d, 32
    jmp 8f
21:
    xor r9d, r9d
    xor r10d, r10d
8:
    lea rax, [r9 + 16]
    cmp rax, rdx
    ja 20f
    lea rax, [rsi + r9]
    and eax, 4095
    cmp eax, 4080
    ja 20f
    movdqu xmm0, xmmword ptr [rsi + r9]
    movdqu xmmword ptr [rdi + r9], xmm0
    movdqa xmm3, xmm0
    pcmpeqb xmm0, xmm1
    pcmpeqb xmm3, xmm2
    pmovmskb eax, xmm0
    pmovmskb ecx, xmm3
    test eax, eax
    jnz 18f
    add r9, 16
    test ecx, ecx
    jz 8b
    bsr ecx, ecx
    lea r10, [r9 + rcx - 15]
    jmp 8b
18:  // Slashes behind the NUL do not count.
    lea r8d, [rax - 1]
    xor r8d, eax
    and ecx, r8d
    jz 19f
    bsr ecx, ecx
    lea r10, [r9 + rcx + 1]
19:
    bsf eax, eax
    add rax, r9
    mov rdx, r10
    ret
20:
    cmp r9, rdx
    jae 9f
    movzx eax, byte ptr [rsi + r9]
    mov byte ptr [rdi + r9], al
    test al, al
    jz 9f
    inc r9
    cmp al, 0x2f
    cmove r10, r9
    jmp 8b
9:
    mov rax, r9
    mov rdx, r10
    ret

// lp_ustraight(rdi string) -> rax 0 when no component of the path is empty, `.` or `..`; else, and for a
// fault, not 0. It is also not 0 when a component starts with `..`, or when the string is longer than any path
// or ends near the end of a page: the page behind may not be there.
lp_ustraight:
    mov eax, 0x2f2f2f2f
    movd xmm2, eax
    pshufd xmm2, xmm2, 0
    mov eax, 0x2e2e2e2e
    movd xmm3, eax
    pshufd xmm3, xmm3, 0
    pxor xmm1, xmm1
    lea r11, [rdi + {longest}]
    xor r8d, r8d
    xor r9d, r9d
30:
    mov eax, edi
    and eax, 4095
    cmp eax, 4080
    ja 32f
    movdqu xmm0, xmmword ptr [rdi]
    movdqa xmm4, xmm0
    pcmpeqb xmm4, xmm3
    pmovmskb ecx, xmm4
    movdqa xmm4, xmm0
    pcmpeqb xmm4, xmm2
    pmovmskb edx, xmm4
    pcmpeqb xmm0, xmm1
    pmovmskb eax, xmm0
    // Bytes that end `/.`: slashes, dots and the NUL.
    mov r10d, ecx
    or r10d, edx
    or r10d, eax
    // Bytes behind a slash, and behind `/.`. Bit 16 is the next block's first byte.
    lea r8d, [r8 + 2 * rdx]
    and ecx, r8d
    lea r9d, [r9 + 2 * rcx]
    and r10d, r9d
    and edx, r8d
    or r10d, edx
    test eax, eax
    jnz 31f
    test r10d, r10d
    jnz 32f
    shr r8d, 16
    shr r9d, 16
    add rdi, 16
    cmp rdi, r11
    jb 30b
32:
    mov eax, 1
    ret
31:  // What is behind the NUL does not count.
    lea ecx, [rax - 1]
    xor eax, ecx
    and eax, r10d
    ret

// lp_ustat(rdi struct stat, rsi inode, rdx st_dev) -> rax 0: the result of fstat(2) straight
// from the record.
lp_ustat:
    mov r8d, dword ptr [rsi + {mode}]
    and r8d, 0xf000
    cmp r8d, 0x4000
    jne lp_ustat_file
    // A directory has no blocks.
    lp_dirsize
    xor ecx, ecx
    jmp 15f

// lp_ustat_file: lp_ustat of anything but a directory.
lp_ustat_file:
    mov rax, qword ptr [rsi + {size}]
    mov ecx, dword ptr [rsi + {pages}]
    shl rcx, 3
15:
    movdqu xmm0, xmmword ptr [rsi + {mode}]  // And owner, group, padding.
    mov qword ptr [rdi], rdx
    mov r8, qword ptr [rsi + {number}]
    mov qword ptr [rdi + 8], r8
    mov r8d, dword ptr [rsi + {nlink}]
    mov qword ptr [rdi + 16], r8
    movdqu xmmword ptr [rdi + 24], xmm0
    mov r8d, dword ptr [rsi + {rdev}]
    mov qword ptr [rdi + 40], r8
    mov qword ptr [rdi + 48], rax
    mov qword ptr [rdi + 56], {page}
    mov qword ptr [rdi + 64], rcx
    movdqu xmm0, xmmword ptr [rsi + {atime}]
    movdqu xmm1, xmmword ptr [rsi + {atime} + 16]
    movdqu xmm2, xmmword ptr [rsi + {atime} + 32]
    pxor xmm3, xmm3
    movdqu xmmword ptr [rdi + 72], xmm0
    movdqu xmmword ptr [rdi + 88], xmm1
    movdqu xmmword ptr [rdi + 104], xmm2
    // The number of links came with ctime.
    movdqu xmmword ptr [rdi + 116], xmm3
    xor eax, eax
    movdqu xmmword ptr [rdi + 128], xmm3
    ret

// lp_ustatx(rdi struct statx, rsi inode, rdx what the inode does not say) -> rax 0: the result of
// statx(2).
lp_ustatx:
    mov rcx, qword ptr [rdx]  // Mask and block size.
    mov rax, qword ptr [rdx + 8]
    mov qword ptr [rdi], rcx
    mov qword ptr [rdi + 8], rax
    mov eax, dword ptr [rsi + {nlink}]
    mov r8, qword ptr [rsi + {mode} + 4]  // Owner and group.
    mov dword ptr [rdi + 16], eax
    movzx eax, word ptr [rsi + {mode}]
    mov qword ptr [rdi + 20], r8
    mov dword ptr [rdi + 28], eax
    and eax, 0xf000
    mov r8, qword ptr [rsi + {number}]
    mov qword ptr [rdi + 32], r8
    cmp eax, 0x4000
    mov rax, qword ptr [rsi + {size}]
    mov r8d, dword ptr [rsi + {pages}]
    lea r8, [r8 * 8]
    jne 20f
    lp_dirsize
    xor r8d, r8d
20:
    mov qword ptr [rdi + 40], rax
    mov qword ptr [rdi + 48], r8
    mov rax, qword ptr [rdx + 16]
    mov r8, qword ptr [rdx + 24]
    mov qword ptr [rdi + 56], rax
    mov qword ptr [rdi + 128], r8
    mov rax, qword ptr [rdx + 32]
    mov r8, qword ptr [rdx + 40]
    mov qword ptr [rdi + 136], rax
    mov qword ptr [rdi + 144], r8
    pxor xmm3, xmm3
    movdqu xmm0, xmmword ptr [rsi + {atime}]
    movdqu xmm1, xmmword ptr [rsi + {atime} + 16]
    movdqu xmm2, xmmword ptr [rsi + {atime} + 32]
    movdqu xmmword ptr [rdi + 64], xmm0
    xor eax, eax
    xor r8d, r8d
    test ecx, {mtime_asked}
    jnz 21f
    movdqa xmm1, xmm3
    movdqa xmm2, xmm3
21:
    test ecx, {btime_asked}
    jz 22f
    mov rax, qword ptr [rsi + {btime}]
    mov r8d, dword ptr [rsi + {btime} + 8]
22:
    mov qword ptr [rdi + 80], rax
    mov qword ptr [rdi + 88], r8
    movdqu xmmword ptr [rdi + 96], xmm2
    mov dword ptr [rdi + 108], 0  // The number of links came with ctime.
    movdqu xmmword ptr [rdi + 112], xmm1
    movdqu xmmword ptr [rdi + 152], xmm3
    movdqu xmmword ptr [rdi + 168], xmm3
    movdqu xmmword ptr [rdi + 184], xmm3
    movdqu xmmword ptr [rdi + 200], xmm3
    movdqu xmmword ptr [rdi + 216], xmm3
    movdqu xmmword ptr [rdi + 232], xmm3
    xor eax, eax
    mov qword ptr [rdi + 248], rax
    ret

// lp_ubyte(rdi from) -> rax the byte there, or -1.
lp_ubyte:
    movzx eax, byte ptr [rdi]
    ret

// lp_uword(rdi from) -> rax the eight bytes there, or -1.
lp_uword:
    mov rax, qword ptr [rdi]
    ret

lp_ucopy_end:
lp_ucopy_fault:
    mov rax, -1
    ret
    .cfi_endproc
.text
.purgem lp_dirsize
