/* Reading, writing and what else changes the content of a file. */
#include "odd.h"
#include <sys/uio.h>

/* Vectors whose count or lengths no call takes. Which of several faults comes first is a known difference. */
static void whole_vectors(unsigned a)
{
    static struct iovec v[1025];
    long count = PICK(-1, 0, 1, 2, 1024, 1025), first = PICK(0, 5, -1), second = PICK(0, 1, 5, -1);
    for (unsigned i = 0; i < COUNT(v); i++)
        v[i] = (struct iovec){ buffer + i % 64, i > 2 ? i % 3 : i ? second : first };
    fill();
    void *at = roll(12) ? v : roll(2) ? NULL : (void *)8;
    if (roll(2))
        DO(syscall(SYS_readv, f[a], at, count), "readv(f[%u], %s(%ld, %ld), %ld)", a, at == v ? "v" : "bad", first, second, count);
    else
        DO(syscall(SYS_writev, f[a], at, count), "writev(f[%u], %s(%ld, %ld), %ld)", a, at == v ? "v" : "bad", first, second, count);
}

void data(void)
{
    unsigned a = slot();
    char at[24];
    void *to = memory(at);
    long n = roll(3) ? small() : amount(), offset = roll(2) ? small() : where();
    struct stat st;
    if ((n < 0 || n > (long)sizeof buffer) && to == buffer)
        n = sizeof buffer;
    int whole = to == buffer;
    switch (roll(15)) {
    case 0: {
        long got = whole ? read(f[a], to, n) : read(f[a], to, n);
        say(got, "read(f[%u], %s, %ld) /* %x */", a, at, n, whole ? sum(got) : 0);
        break;
    }
    case 1: {
        long got = pread(f[a], to, n, offset);
        say(got, "pread(f[%u], %s, %ld, %ld) /* %x */", a, at, n, offset, whole ? sum(got) : 0);
        break;
    }
        case 2:
        fill();
        if (whole)
            DO(write(f[a], to, n), "write(f[%u], %s, %ld)", a, at, n);
        break;
    case 3:
        if (!whole)
            break;
        fill();
        if (offset > 1 << 20)
            offset = 1 << 20;
        DO(pwrite(f[a], to, n, offset), "pwrite(f[%u], %s, %ld, %ld)", a, at, n, offset);
        break;
    case 4: {
        int how = PICK(0, 0, 1, 2, 4, 8, 16, 32, 0x40, 0x80, 0x100, 0x30);
        struct iovec v[3] = { { buffer, small() }, { to, small() }, { buffer + 100, small() } };
        int count = PICK(0, 1, 3, 3);
        fill();
        if (offset > 1 << 20)
            offset = -1;
        if (whole && roll(2))
            DO(pwritev2(f[a], v, count, offset, how), "pwritev2(f[%u], v(%ld, %s, %ld, %ld), %d, %ld, %d)", a, (long)v[0].iov_len, at, (long)v[1].iov_len,
                (long)v[2].iov_len, count, offset, how);
        else
            DO(preadv2(f[a], v, count, offset, how), "preadv2(f[%u], v(%ld, %s, %ld, %ld), %d, %ld, %d)", a, (long)v[0].iov_len, at, (long)v[1].iov_len,
                (long)v[2].iov_len, count, offset, how);
        break;
    }
    case 5: {
        int whence = PICK(0, 1, 2, 0, 5, -1);
        if (!fstat(f[a], &st) && S_ISDIR(st.st_mode))
            offset = whence = 0;
        DO(lseek(f[a], offset, whence), "lseek(f[%u], %ld, %d)", a, offset, whence);
        break;
    }
    case 6:
        if (offset > 1 << 20)
            offset = 1 << 20;
        DO(ftruncate(f[a], offset), "ftruncate(f[%u], %ld)", a, offset);
        break;
    case 7: {
        int mode = PICK(0, 1, 2, 3, 8, 16, 17, 32, 64, 128);
        if (offset > 1 << 20)
            offset = 1 << 20;
        /* Gigabytes of space would be given. */
        if (n == 1L << 31)
            n = 1 << 20;
        DO(fallocate(f[a], mode, offset, n), "fallocate(f[%u], %d, %ld, %ld)", a, mode, offset, n);
        break;
    }
    case 9:
        DO(posix_fadvise(f[a], offset, n, PICK(0, 1, 2, 3, 4, 5, 6)), "posix_fadvise(f[%u], %ld, %ld)", a, offset, n);
        break;
    case 10:
        DO(sync_file_range(f[a], offset, n, PICK(0, 1, 2, 4, 8)), "sync_file_range(f[%u], %ld, %ld)", a, offset, n);
        break;
    case 11:
        DO(readahead(f[a], offset, n), "readahead(f[%u], %ld, %ld)", a, offset, n);
        break;
    case 12: {
        if (!fstat(f[a], &st))
            say_stat(&st);
        break;
    }
    case 8:
        whole_vectors(a);
        break;
    case 13:
        DO(roll(2) ? fdatasync(f[a]) : syncfs(f[a]), "sync(f[%u])", a);
        break;
    case 14: {
        uint64_t range[2] = { offset, n }, counts[5];
        unsigned how = PICK(0, 0, 1);
        DO(syscall(451, f[a], roll(9) ? range : NULL, counts, how), "cachestat(f[%u], { %ld, %ld }, %u)", a, offset, n, how);
        break;
    }
    }
}

