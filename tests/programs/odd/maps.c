/* Mappings, and what reading through them gives. Nothing is written through a shared one: that it changes the
 * time of modification is a known difference (docs/differences.md). */
#include "odd.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static sigjmp_buf back;
static void jump(int signal)
{
    siglongjmp(back, signal);
}

/* The byte at `at`, or the number of the signal, negative. */
static int look(const volatile char *at)
{
    struct sigaction act = { .sa_handler = jump }, before[2];
    sigaction(SIGBUS, &act, &before[0]), sigaction(SIGSEGV, &act, &before[1]);
    int signal = sigsetjmp(back, 1), got = -signal;
    if (!signal)
        got = (unsigned char)*at;
    sigaction(SIGBUS, &before[0], NULL), sigaction(SIGSEGV, &before[1], NULL);
    return got;
}

void maps(void)
{
    unsigned a = slot();
    int protection = PICK(0, 1, 1, 1, 2, 3), flags = PICK(MAP_SHARED, MAP_PRIVATE, MAP_PRIVATE, MAP_SHARED_VALIDATE, 0, MAP_SHARED_VALIDATE | 0x80000, MAP_PRIVATE | MAP_LOCKED,
        MAP_PRIVATE | MAP_POPULATE, MAP_SHARED | MAP_DENYWRITE);
    long length = PICK(0, 1, 4096, 8192, 12288, -1), from = PICK(0, 0, 4096, 8192, 1, -4096);
    struct stat st;
    /* A hole that is mapped takes all its space, not only the first and the last page, which are touched here:
     * docs/differences.md. */
    if (!fstat(f[a], &st) && S_ISREG(st.st_mode) && st.st_blocks * 512 < st.st_size
        && (flags != MAP_PRIVATE || protection == PROT_NONE || length > 8192))
        return;
    errno = 0;
    char *map = mmap(NULL, length, protection, flags, f[a], from);
    say(map == MAP_FAILED ? -1 : 0, "mmap(NULL, %ld, %d, 0x%x, f[%u], %ld)", length, protection, flags, a, from);
    if (map == MAP_FAILED)
        return;
    say(look(map), "map[0]");
    say(look(map + length - 1), "map[%ld]", length - 1);
    switch (roll(5)) {
    case 0: {
        int how = PICK(MS_SYNC, MS_ASYNC, MS_INVALIDATE, 3, 8, MS_SYNC | MS_ASYNC);
        DO(msync(map, length, how), "msync(map, %ld, %d)", length, how);
        break;
    }
    case 1: {
        int how = PICK(PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, 8);
        DO(mprotect(map, length, how), "mprotect(map, %ld, %d)", length, how);
        break;
    }
    case 2: {
        int how = PICK(MADV_WILLNEED, MADV_DONTNEED, MADV_RANDOM, MADV_FREE, 1000);
        DO(madvise(map, length, how), "madvise(map, %ld, %d)", length, how);
        break;
    }
    case 3:
        if (protection & PROT_WRITE && (flags & MAP_TYPE) == MAP_PRIVATE && length <= st.st_size - from)
            map[0] = 'z';
    }
    munmap(map, length);
}
