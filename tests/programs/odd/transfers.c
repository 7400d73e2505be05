/* Calls that move data from one descriptor to another. */
#include "odd.h"
#include <sys/sendfile.h>

void transfers(void)
{
    unsigned a = slot(), b = slot();
    off_t in = roll(3) ? small() : PICK(-1, INT64_MAX, INT64_MIN), out = roll(3) ? small() : PICK(-1, INT64_MAX, INT64_MAX - 5);
    off_t *from = roll(2) ? &in : NULL, *to = roll(2) ? &out : NULL;
    long n = roll(3) ? small() : amount(), first = in, second = out;
    unsigned flags = PICK(0, 0, 0, 1, 2, 8, 16);
    struct stat st, other;
    int known = !fstat(f[a], &st) && !fstat(f[b], &other);
    /* What a file gets from itself is up to the kernel, and gigabytes take their time. */
    if (known && st.st_ino == other.st_ino)
        return;
    if (known && st.st_size > 1 << 24)
        return;
    if (roll(20) == 0)
        from = (off_t *)8;
    errno = 0;
    long got;
    const char *name;
    switch (roll(4)) {
    case 0:
        name = "copy_file_range", got = syscall(SYS_copy_file_range, f[a], from, f[b], to, n, flags);
        break;
    case 1:
        name = "sendfile", got = syscall(SYS_sendfile, f[b], f[a], from, n);
        break;
    case 2:
        name = "splice", got = syscall(SYS_splice, f[a], from, f[b], to, n, flags | 2);
        break;
    default:
        name = "tee", got = syscall(SYS_tee, f[a], f[b], n, flags | 2);
    }
    say(got, "%s(f[%u], %s%ld, f[%u], %s%ld, %ld, %u) /* %ld %ld */", name, a, from ? from == &in ? "" : "bad " : "none ", first, b, to ? "" : "none ",
        second, n, flags, (long)in, (long)out);
}
