/* read, write and their positioned and vector forms; lseek; their effect on position, size and contents. */
#include "conform.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

GROUP(rw, basic)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    char b[32] = { 0 };
    T(write(fd, "hello world", 11));
    T(lseek(fd, 0, SEEK_CUR));
    T(read(fd, b, 5));
    T(lseek(fd, 0, SEEK_SET));
    T(read(fd, b, 5));
    say_bytes("read", b, 5);
    T(read(fd, b, 100));
    T(read(fd, b, 100));
    T(read(fd, b, 0));
    T(write(fd, b, 0));
    T(pread(fd, b, 5, 6));
    T(pread(fd, b, 5, 9));
    T(pread(fd, b, 5, 11));
    T(pread(fd, b, 5, 1000));
    T(pread(fd, b, 5, -1));
    T(pwrite(fd, "X", 1, -1));
    T(pwrite(fd, "far", 3, 5000));
    attributes("f");
    T(pread(fd, b, 10, 4996));
    say_bytes("hole and data", b, 7);
    T(lseek(fd, 0, SEEK_CUR));
    contents("f");
    T(read(99, b, 1));
    T(write(99, b, 1));
    T(pread(99, b, 1, 0));
    T(read(-1, b, 1));
    T(close(fd));
    T(read(fd, b, 1));
    T(close(fd));
}

GROUP(rw, large_counts)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    char *big = malloc(1 << 20);
    memset(big, 'x', 1 << 20);
    T(write(fd, big, 1 << 20));
    T(pread(fd, big, 1 << 20, 1));
    T(pread(fd, big, 3, (1 << 20) - 2));
    T(read(fd, big, (size_t)-1));
    T(write(fd, big, (size_t)-1));
    T(pwrite(fd, "e", 1, 0x7fffffffffffffffL));
    T(pwrite(fd, "e", 1, 0x7ffffffffffffffeL));
    T(pread(fd, big, 1, 0x7fffffffffffffffL));
    T(pwrite(fd, "e", 1, 5L << 30));
    attributes("f");
    T(pread(fd, big, 4, (5L << 30) - 1));
    T(lseek(fd, 0, SEEK_END));
    for (size_t size = 1; size <= 1 << 20; size = size * 3 + 1) {
        memset(big, 'a' + size % 26, size);
        if (pwrite(fd, big, size, size * 7) != (ssize_t)size)
            say("short write %zu", size);
        memset(big, 0, size);
        if (pread(fd, big, size, size * 7) != (ssize_t)size || big[0] != (char)('a' + size % 26) || big[size - 1] != big[0])
            say("wrong read %zu", size);
    }
    T(ftruncate(fd, 0));
    attributes("f");
    free(big);
}

GROUP(rw, page_edges)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    long edges[] = { 0, 1, 63, 64, 65, 255, 256, 511, 512, 4095, 4096, 4097, 8191, 8192, 12287, 12289, 65535, 65536 };
    unsigned char *model = calloc(1, 200000), *back = malloc(200000);
    long size = 0;
    unsigned seed = 1;
    for (unsigned i = 0; i < COUNT(edges); i++)
        for (unsigned j = 0; j < COUNT(edges); j++) {
            long at = edges[i], length = edges[j];
            for (long k = 0; k < length; k++)
                model[at + k] = back[k] = (seed = seed * 1103515245 + 12345) >> 16;
            if (pwrite(fd, back, length, at) != length)
                say("short write at %ld of %ld", at, length);
            if (length && at + length > size)
                size = at + length;
            if (lseek(fd, 0, SEEK_END) != size)
                say("size %ld, not %ld", (long)lseek(fd, 0, SEEK_END), size);
            if (pread(fd, back, 200000, 0) != size || memcmp(back, model, size)) {
                say("contents differ after %ld at %ld", length, at);
                return;
            }
        }
    say("size %ld", size);
    free(model), free(back);
}

GROUP(rw, vectors)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    char a[4] = "abc", b[8] = "defgh", c[4] = "ij";
    struct iovec v[4] = { { a, 3 }, { b, 5 }, { NULL, 0 }, { c, 2 } };
    T(writev(fd, v, 4));
    T(writev(fd, v, 0));
    T(writev(fd, NULL, 0));
    T(writev(fd, v, -1));
    T(writev(fd, v, 1025));
    T(lseek(fd, 0, SEEK_CUR));
    T(pwritev(fd, v, 2, 20));
    T(pwritev(fd, v, 2, -1));
    T(pwritev2(fd, v, 2, -1, 0));
    T(pwritev2(fd, v, 2, 3, RWF_APPEND));
    T(pwritev2(fd, v, 1, -1, RWF_APPEND));
    T(pwritev2(fd, v, 1, 0, RWF_SYNC));
    T(pwritev2(fd, v, 1, 0, RWF_DSYNC));
    T(pwritev2(fd, v, 1, 0, RWF_NOWAIT));
    T(pwritev2(fd, v, 1, 0, RWF_HIPRI));
    T(pwritev2(fd, v, 1, 0, 0x40000000));
    T(pwritev2(fd, v, 1, -2, 0));
    contents("f");
    T(lseek(fd, 0, SEEK_SET));
    memset(a, 0, 4), memset(b, 0, 8), memset(c, 0, 4);
    T(readv(fd, v, 4));
    say("%.3s %.5s %.2s", a, b, c);
    T(preadv(fd, v, 2, 2));
    say("%.3s %.5s", a, b);
    T(preadv(fd, v, 2, -1));
    T(preadv2(fd, v, 2, -1, 0));
    T(preadv2(fd, v, 2, 0, RWF_NOWAIT));
    T(preadv2(fd, v, 2, 0, RWF_HIPRI));
    T(preadv2(fd, v, 2, 0, RWF_APPEND));
    T(preadv2(fd, v, 2, 0, 0x40000000));
    T(lseek(fd, 0, SEEK_CUR));
    struct iovec huge[2] = { { a, 3 }, { b, (size_t)-1 } };
    T(readv(fd, huge, 2));
    T(writev(fd, huge, 2));
    struct iovec overflow[2] = { { a, 0x7ffffffffffffff0 }, { b, 0x7ffffffffffffff0 } };
    T(readv(fd, overflow, 2));
    /* All lengths are looked at before the first address, and a single one is clipped first. */
    struct iovec late[3] = { { (void *)-8, 2 }, { a, 1 }, { b, -1 } };
    T(readv(fd, late, 3));
    T(writev(fd, late, 3));
    T(readv(fd, late, 2));
    T(preadv(fd, late, 3, 0));
    static char low[8]; /* The stack may end less than that below the end of the address space. */
    struct iovec one = { low, 1UL << 62 };
    T(lseek(fd, -1, SEEK_END));
    T(readv(fd, &one, 1));
    T(preadv(fd, &one, 1, 1 << 20));
    one = (struct iovec){ (void *)-8, 1UL << 62 };
    T(readv(fd, &one, 1));
    T(writev(fd, &one, 1));
    static struct iovec many[1024];
    static char bytes[1024];
    for (int i = 0; i < 1024; i++)
        many[i] = (struct iovec){ bytes + i, 1 }, bytes[i] = 'a' + i % 26;
    T(pwritev(fd, many, 1024, 0));
    memset(bytes, 0, sizeof bytes);
    T(preadv(fd, many, 1024, 0));
    say_bytes("many", bytes, 30);
    T(writev(99, v, 1));
    T(readv(99, v, 1));
    T(preadv(99, v, 1, 0));
    int ap = T(open("f", O_WRONLY | O_APPEND));
    T(pwritev(ap, v, 1, 0));
    T(pwritev2(ap, v, 1, 0, 0x20));
    attributes("f");
}

GROUP(rw, seek)
{
    int fd = make_open("f", "0123456789", O_RDWR);
    T(lseek(fd, 3, SEEK_SET));
    T(lseek(fd, 2, SEEK_CUR));
    T(lseek(fd, -2, SEEK_END));
    T(lseek(fd, 100, SEEK_END));
    T(lseek(fd, -1, SEEK_SET));
    T(lseek(fd, 0, SEEK_CUR));
    T(lseek(fd, -200, SEEK_CUR));
    T(lseek(fd, -11, SEEK_END));
    T(lseek(fd, 0x7fffffffffffffffL, SEEK_SET));
    T(lseek(fd, 1, SEEK_CUR));
    T(lseek(fd, 0x7fffffffffffffffL, SEEK_END));
    T(lseek(fd, 0x7fffffffffffffffL, SEEK_CUR));
    T(write(fd, "x", 1));
    char b[4];
    T(read(fd, b, 4));
    T(lseek(fd, 0x8000000000000000L, SEEK_SET));
    T(lseek(fd, 0, 5));
    T(lseek(fd, 0, 99));
    T(lseek(fd, 0, -1));
    T(lseek(99, 0, SEEK_SET));
    T(lseek(fd, 20, SEEK_SET));
    T(write(fd, "end", 3));
    contents("f");
}

GROUP(rw, seek_data_and_hole)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    T(lseek(fd, 0, SEEK_DATA));
    T(lseek(fd, 0, SEEK_HOLE));
    T(ftruncate(fd, 100000));
    T(lseek(fd, 0, SEEK_DATA));
    T(lseek(fd, 0, SEEK_HOLE));
    T(pwrite(fd, "data", 4, 40000));
    long at[] = { 0, 1, 36863, 36864, 40000, 40003, 40004, 40959, 40960, 50000, 99999, 100000, 100001, -1 };
    for (unsigned i = 0; i < COUNT(at); i++) {
        say("at %ld", at[i]);
        T(lseek(fd, at[i], SEEK_DATA));
        T(lseek(fd, at[i], SEEK_HOLE));
    }
    T(pwrite(fd, "data", 4, 99998));
    T(lseek(fd, 50000, SEEK_DATA));
    T(lseek(fd, 98304, SEEK_HOLE));
    T(lseek(fd, 0, SEEK_CUR));
    T(lseek(fd, 5, SEEK_SET));
    T(lseek(fd, 200000, SEEK_DATA));
    T(lseek(fd, 0, SEEK_CUR));
    int d = T(open(".", O_RDONLY));
    T(lseek(d, 0, SEEK_DATA));
    T(lseek(d, 0, SEEK_HOLE));
    T(lseek(d, 0, SEEK_END));
    T(lseek(d, -1, SEEK_SET));
}

GROUP(rw, shared_position)
{
    int fd = make_open("f", "0123456789abcdefghij", O_RDWR);
    int d = T(dup(fd)), other = T(open("f", O_RDWR));
    char b[4] = { 0 };
    T(read(fd, b, 3));
    T(lseek(d, 0, SEEK_CUR));
    T(lseek(other, 0, SEEK_CUR));
    CHILD {
        T(read(fd, b, 3));
        say("%s", b);
        T(lseek(d, 0, SEEK_CUR));
        CHILD {
            T(lseek(fd, 2, SEEK_CUR));
        }
        T(write(d, "XX", 2));
    }
    T(lseek(fd, 0, SEEK_CUR));
    T(read(d, b, 3));
    say("%s", b);
    T(close(fd));
    T(read(d, b, 3));
    say("%s", b);
    contents("f");
    int w = T(open("g", O_WRONLY | O_CREAT, 0644));
    pid_t child[4];
    for (int i = 0; i < 4; i++)
        if (!(child[i] = fork())) {
            char line[8];
            int n = sprintf(line, "%d----\n", i);
            for (int k = 0; k < 200; k++)
                if (write(w, line, n) != n)
                    _exit(1);
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        say_wait(child[i]);
    T(lseek(w, 0, SEEK_CUR));
    attributes("g");
    unlink("g");
}

GROUP(rw, append_from_many)
{
    pid_t child[4];
    for (int i = 0; i < 4; i++)
        if (!(child[i] = fork())) {
            int fd = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
            char line[101];
            memset(line, 'a' + i, 99), line[99] = '\n';
            for (int k = 0; k < 300; k++)
                if (write(fd, line, 100) != 100)
                    _exit(1);
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        say_wait(child[i]);
    FILE *f = fopen("log", "r");
    char line[200];
    int lines[26] = { 0 }, torn = 0;
    while (fgets(line, sizeof line, f)) {
        lines[line[0] - 'a']++;
        for (int i = 1; i < 99; i++)
            torn += line[i] != line[0];
    }
    say("%d %d %d %d torn %d", lines[0], lines[1], lines[2], lines[3], torn);
    fclose(f);
    unlink("log");
}

GROUP(rw, unlinked_but_open)
{
    int fd = make_open("f", "still here", O_RDWR);
    T(unlink("f"));
    char b[32] = { 0 };
    T(read(fd, b, 32));
    say("%s", b);
    T(write(fd, " and more", 9));
    attributes_fd(fd);
    T(access("f", F_OK));
    make("f", "another");
    T(pread(fd, b, 32, 0));
    contents("f");
    CHILD {
        T(pread(fd, b, 5, 0));
        T(ftruncate(fd, 3));
    }
    attributes_fd(fd);
    int d = T(dup(fd));
    T(close(fd));
    T(pread(d, b, 5, 0));
    char proc[40];
    sprintf(proc, "/proc/self/fd/%d", d);
    int again = TN("reopen", open(proc, O_RDWR));
    T(pwrite(again, "R", 1, 0));
    T(pread(d, b, 5, 0));
    say("%.3s", b);
    T(linkat(AT_FDCWD, proc, AT_FDCWD, "revived", AT_SYMLINK_FOLLOW));
}

GROUP(rw, sync_calls)
{
    int fd = make_open("f", "x", O_RDWR), d = T(open(".", O_RDONLY));
    T(fsync(fd));
    T(fdatasync(fd));
    T(fsync(d));
    T(syncfs(fd));
    T(sync_file_range(fd, 0, 100, SYNC_FILE_RANGE_WRITE));
    T(sync_file_range(fd, -1, 100, 0));
    T(sync_file_range(fd, 0, 0, 0x100));
    T(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    T(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    T(posix_fadvise(fd, 0, 0, 77));
    T(readahead(fd, 0, 100));
    T(fsync(99));
    T(fdatasync(99));
    T(syncfs(99));
    T(posix_fadvise(99, 0, 0, 0));
    T(readahead(99, 0, 1));
    sync();
    char b[2];
    T(read(fd, b, 2));
    T(write(fd, "y", 1));
}

GROUP(rw, much_again)
{
    /* The same megabyte repeatedly: the kernel or the process may copy it in each round, with the same
     * result. */
    enum { MUCH = 1 << 20 };
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    unsigned char *from = malloc(MUCH + 100), *to = malloc(MUCH + 100);
    for (int round = 0; round < 5; round++) {
        for (long i = 0; i < MUCH; i++)
            from[i] = (i * 7 + i / 4096 + round) & 0xff;
        T(pwrite(fd, from, MUCH, round % 2 ? 12345 : 0));
        memset(to, 0, MUCH);
        T(pread(fd, to, MUCH, round % 2 ? 12345 : 0));
        say("same %d", memcmp(from, to, MUCH) == 0);
        CHILD {
            memset(to, 0, MUCH);
            T(pread(fd, to + 3, MUCH / 2, 12345));
            T(pwrite(fd, to + 3, MUCH / 2, 12345));
            say("same %d", memcmp(from + (round % 2 ? 0 : 12345), to + 3, MUCH / 2) == 0);
        }
    }
    T(ftruncate(fd, MUCH / 2));
    T(pread(fd, to, MUCH, 100000));
    T(ftruncate(fd, MUCH));
    T(pread(fd, to, MUCH, 0));
    say("cut %d", to[MUCH / 2 - 1] == from[MUCH / 2 - 1] && !to[MUCH / 2] && !to[MUCH - 1]);
    T(unlink("f"));
    T(pread(fd, to, MUCH, 0));
}

/* Lengths and positions near the largest, in all calls that take them. */
GROUP(rw, largest_lengths_and_positions)
{
    /* Not on the stack, which may end less than the largest length below the end of all addresses. */
    static char room[64] = "abcdefgh";
    char sink[16];
    int in = make_open("f", "0123456789", O_RDWR), out = make_open("g", "", O_RDWR), pair[2];
    T(pipe2(pair, O_NONBLOCK));
    const size_t lengths[] = { INT64_MAX, (size_t)INT64_MAX + 1, SIZE_MAX, INT32_MAX, 0x7ffff000, 0x80000000 };
    for (unsigned i = 0; i < COUNT(lengths); i++) {
        struct iovec second[2] = { { room, 4 }, { room + 8, lengths[i] } }, first[2] = { { room, lengths[i] }, { room, 1 } };
        struct iovec none[2] = { { NULL, 0 }, { (void *)8, 0 } };
        say("length %zx", lengths[i]);
        T(preadv(in, second, 2, 0));
        T(preadv(in, first, 2, 0));
        T(readv(in, second, 2));
        T(lseek(in, 0, SEEK_SET));
        if ((ssize_t)lengths[i] < 0) {
            T(pwritev(out, second, 2, 0));
            T(pwritev(out, first, 2, 0));
        }
        T(pwritev(out, none, 2, 0));
        T(preadv(in, none, 2, 0));
        T(pread(in, room, lengths[i], 0));
        T(pread(in, room, lengths[i], 4));
        T(pread(in, room, lengths[i], INT64_MAX - 1));
    }
    T(preadv(in, NULL, 1025, 0));
    T(preadv(in, NULL, -1, 0));
    T(preadv(in, (void *)8, 1, 0));
    T(preadv(in, NULL, 0, -1));
    T(pwritev(in, NULL, 0, -1));
    const loff_t positions[] = { INT64_MAX, INT64_MAX - 1, INT64_MAX - 4096, -1, INT64_MIN };
    for (unsigned i = 0; i < COUNT(positions); i++) {
        loff_t at = positions[i], zero = 0;
        say("position %lx", at);
        T(pwrite(out, room, 2, at));
        T(pwrite(out, room, 0, at));
        T(pread(out, room, 2, at));
        T(pread(out, room, 0, at));
        T(splice(in, &at, pair[1], NULL, 4, SPLICE_F_NONBLOCK));
        at = positions[i], write(pair[1], "pipe", 4);
        T(splice(pair[0], NULL, out, &at, 4, SPLICE_F_NONBLOCK));
        while (read(pair[0], sink, sizeof sink) > 0) {}
        at = positions[i];
        T(sendfile(out, in, &at, 4));
        at = positions[i];
        T(copy_file_range(in, &at, out, &zero, 4, 0));
        at = positions[i], zero = 0;
        T(copy_file_range(in, &zero, out, &at, 4, 0));
        at = positions[i], zero = 0;
        T(copy_file_range(in, &zero, out, &at, SIZE_MAX, 0));
        at = positions[i];
        T(ftruncate(out, at));
        T(lseek(out, at, SEEK_SET) == at ? 0 : -1);
        T(fallocate(out, FALLOC_FL_KEEP_SIZE, at, 2));
        T(fallocate(out, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, at, 2));
        T(posix_fadvise(out, at, 10, POSIX_FADV_DONTNEED));
        T(readahead(out, at, 10));
        T(sync_file_range(out, at, 10, 0));
        T(ftruncate(out, 0));
    }
    T(ftruncate(out, LONG_MAX));
    T(fcntl(out, F_SETFL, O_APPEND));
    T(write(out, room, 2));
    T(pwrite(out, room, 2, 0));
    T(ftruncate(out, 0));
}

/* write(2) by a program that has the direction flag set, which it finds set afterwards. */
GROUP(rw, with_the_direction_flag)
{
    static char text[8192];
    for (unsigned i = 0; i < sizeof text; i++)
        text[i] = i % 251;
    for (int time = 0; time < 2; time++) {
        int fd = open("f", O_CREAT | O_TRUNC | O_RDWR, 0644);
        long result, flags;
        __asm__ volatile("std\n\t"
                         "mov $1, %%eax\n\t"
                         "syscall\n\t"
                         "lea -128(%%rsp), %%rsp\n\t"
                         "pushfq\n\t"
                         "pop %%rdx\n\t"
                         "lea 128(%%rsp), %%rsp\n\t"
                         "cld"
                         : "=a"(result), "=d"(flags)
                         : "D"((long)fd), "S"(text), "1"(sizeof text)
                         : "rcx", "r11", "memory", "cc");
        char *got = calloc(1, sizeof text);
        pread(fd, got, sizeof text, 0);
        say("%ld, flag %d, the same %d", result, (flags & 0x400) != 0, !memcmp(got, text, sizeof text));
        free(got);
        close(fd);
    }
}
