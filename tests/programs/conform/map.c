/* mmap of files: shared and private, coherence with read and write and between processes, mremap, msync,
 * errors. */
#include "map.h"
#include <pthread.h>
#include <sched.h>
#include <sys/statfs.h>

static int filled(const char *name, long size)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (long i = 0; i < size; i += 64) {
        char line[65];
        snprintf(line, sizeof line, "%063ld\n", i);
        if (write(fd, line, size - i < 64 ? size - i : 64) < 1)
            say("short");
    }
    return fd;
}

GROUP(map, shared_and_private)
{
    int fd = filled("f", 3 * PAGE);
    char *s = TP(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *p = TP(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    char *r = TP(mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, PAGE));
    say("%.6s %.6s %.6s", s + 58, p + PAGE + 58, r + 58);
    memcpy(s, "SHARED", 6);
    memcpy(p + PAGE, "PRIVATE", 7);
    char b[16] = { 0 };
    T(pread(fd, b, 8, 0));
    say("%s", b);
    T(pread(fd, b, 8, PAGE));
    say("%s", b);
    T(pwrite(fd, "through write", 13, PAGE + 100));
    say("%.13s %.13s", s + PAGE + 100, r + 100);
    T(pwrite(fd, "third", 5, 2 * PAGE));
    say("%.5s %.5s", p + 2 * PAGE, r + PAGE);
    p[2 * PAGE + 10] = 'P';
    T(pwrite(fd, "THIRD", 5, 2 * PAGE));
    say("%.5s", p + 2 * PAGE);
    T(msync(s, 3 * PAGE, MS_SYNC));
    T(msync(s, PAGE, MS_ASYNC));
    T(msync(s, PAGE, MS_INVALIDATE));
    T(msync(s, PAGE, MS_SYNC | MS_ASYNC));
    T(msync(s + 1, PAGE, MS_SYNC));
    T(close(fd));
    memcpy(s + 50, "after close", 11);
    contents("f");
    T(unlink("f"));
    memcpy(s, "after unlink", 12);
    say("%.12s", s);
    T(munmap(s, 3 * PAGE));
    T(munmap(p, 3 * PAGE));
    T(munmap(r, PAGE));
    say("%.5s", r + PAGE);
    T(munmap(r + PAGE, PAGE));
}

GROUP(map, errors)
{
    int rw = filled("f", PAGE), ro = T(open("f", O_RDONLY)), wo = T(open("f", O_WRONLY)), path = T(open("f", O_PATH)), d = T(open(".", O_RDONLY));
    TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0));
    TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, ro, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ro, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, wo, 0));
    TP(mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, wo, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, wo, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, path, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, d, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, 99, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rw, 100));
    TP(mmap(NULL, 0, PROT_READ, MAP_SHARED, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, 0, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_PRIVATE, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | 0x8000000, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, rw, 0));
    TP(mmap(NULL, PAGE, PROT_NONE, MAP_SHARED, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED | MAP_POPULATE, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_LOCKED, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rw, -PAGE));
    TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rw, 0x7ffffffffffff000L));
    TP(mmap(NULL, 0x7ffffffffffff000L, PROT_READ, MAP_SHARED, rw, 0));
    TP(mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, rw, 0));
    char *m = TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, rw, 0));
    T(mprotect(m, PAGE, PROT_READ | PROT_WRITE));
    touch("writable", m, 1);
    char *n = TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ro, 0));
    T(mprotect(n, PAGE, PROT_READ | PROT_WRITE));
    touch("read-only", n, 1);
    char *o = TP(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, ro, 0));
    T(mprotect(o, PAGE, PROT_READ | PROT_WRITE));
    touch("private", o, 1);
    T(madvise(m, PAGE, MADV_DONTNEED));
    T(madvise(m, PAGE, MADV_WILLNEED));
    T(madvise(m, PAGE, MADV_REMOVE));
    touch("removed", m, 0);
    T(madvise(o, PAGE, MADV_DONTNEED));
    touch("again from the file", o, 0);
    T(mlock(m, PAGE));
    T(munlock(m, PAGE));
    unsigned char in[1];
    T(mincore(m, PAGE, in));
}

GROUP(map, end_of_file)
{
    int fd = filled("f", PAGE + 100);
    char *m = TP(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    touch("last byte", m + PAGE + 99, 0);
    touch("beyond, same page", m + PAGE + 100, 0);
    touch("beyond, same page", m + 2 * PAGE - 1, 1);
    touch("next page", m + 2 * PAGE, 0);
    touch("next page", m + 3 * PAGE, 1);
    attributes_fd(fd);
    T(ftruncate(fd, 4 * PAGE));
    touch("grown", m + 2 * PAGE, 0);
    touch("grown", m + 3 * PAGE, 1);
    touch("what was written beyond", m + 2 * PAGE - 1, 0);
    char b[4];
    T(pread(fd, b, 1, 3 * PAGE));
    say_bytes("read", b, 1);
    T(ftruncate(fd, 10));
    touch("kept", m + 5, 0);
    touch("cut, same page", m + 20, 0);
    touch("cut", m + PAGE, 0);
    T(ftruncate(fd, 3 * PAGE));
    touch("grown again", m + PAGE, 0);
    touch("grown again", m + 20, 0);
    char *p = TP(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    touch("private", p + PAGE, 1);
    T(ftruncate(fd, PAGE));
    touch("private copy after truncate", p + PAGE, 0);
    touch("private after truncate", p + 2 * PAGE, 0);
    T(pwrite(fd, "extended", 8, 2 * PAGE));
    say("%.8s", m + 2 * PAGE);
    T(read(fd, m + 3 * PAGE, 10));
    T(pread(fd, m + 3 * PAGE, 10, 0));
    T(write(fd, m + 3 * PAGE, 10));
}

GROUP(map, holes)
{
    int fd = T(open("f", O_RDWR | O_CREAT, 0644));
    T(ftruncate(fd, 64 * PAGE));
    char *s = TP(mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *p = TP(mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    touch("hole", s + 10 * PAGE, 0);
    touch("hole, private", p + 10 * PAGE, 0);
    s[20 * PAGE] = 'S';
    touch("private sees the shared write", p + 20 * PAGE, 0);
    p[30 * PAGE] = 'P';
    touch("shared does not see the private one", s + 30 * PAGE, 0);
    T(pwrite(fd, "w", 1, 40 * PAGE));
    touch("written", s + 40 * PAGE, 0);
    char b[2];
    T(pread(fd, b, 1, 20 * PAGE));
    say_bytes("read", b, 1);
    T(fallocate(fd, 3, 20 * PAGE, PAGE));
    touch("punched", s + 20 * PAGE, 0);
    s[20 * PAGE + 1] = 'T';
    T(pread(fd, b, 2, 20 * PAGE));
    say_bytes("read", b, 2);
    CHILD {
        s[50 * PAGE] = 'C';
        p[51 * PAGE] = 'D';
        touch("child sees the private one", p + 30 * PAGE, 0);
    }
    touch("parent sees the child's", s + 50 * PAGE, 0);
    touch("but not this", p + 51 * PAGE, 0);
    T(pread(fd, b, 1, 50 * PAGE));
    say_bytes("read", b, 1);
}

GROUP(map, between_processes)
{
    int fd = filled("f", 4 * PAGE);
    volatile int *flag = TP(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    memset((void *)flag, 0, 4 * PAGE);
    pid_t child = fork();
    if (!child) {
        int own = open("f", O_RDWR);
        volatile int *other = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
        for (int i = 1; i <= 1000; i++) {
            while (other[0] != i)
                sched_yield();
            other[1024] = i;
        }
        _exit(other == MAP_FAILED);
    }
    for (int i = 1; i <= 1000; i++) {
        flag[0] = i;
        while (flag[1024] != i)
            sched_yield();
    }
    say_wait(child);
    int value = 0;
    T(pread(fd, &value, sizeof value, PAGE));
    say("%d", value);
    __atomic_store_n(flag, 0, __ATOMIC_SEQ_CST);
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        if (!(pids[i] = fork())) {
            for (int k = 0; k < 10000; k++)
                __atomic_fetch_add(flag, 1, __ATOMIC_SEQ_CST);
            _exit(0);
        }
    for (int i = 0; i < 4; i++)
        say_wait(pids[i]);
    say("%d", *flag);
    T(ftruncate(fd, 0));
}

GROUP(map, mremap)
{
    int fd = filled("f", 8 * PAGE);
    char *m = TP(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    m = TP(mremap(m, 2 * PAGE, 6 * PAGE, MREMAP_MAYMOVE));
    say("%.10s", m + 5 * PAGE + 54);
    m[5 * PAGE] = 'X';
    m = TP(mremap(m, 6 * PAGE, PAGE, 0));
    say("%.10s", m + 54);
    char *n = TP(mmap(NULL, 4 * PAGE, PROT_READ, MAP_SHARED, fd, 4 * PAGE));
    char *fixed = TP(mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TP(mremap(n, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, fixed));
    say("%.10s", fixed + 3 * PAGE + 54);
    say("%c", fixed[PAGE]);
    char *dup = TP(mremap(fixed, 0, PAGE, MREMAP_MAYMOVE));
    say("%.10s", dup + 54);
    TP(mremap(m, PAGE, 2 * PAGE, 99));
    TP(mremap(m + 1, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    char *anywhere = TP(mmap(fixed, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 7 * PAGE));
    say("%d %.10s", anywhere == fixed, fixed + 54);
    TP(mmap(fixed, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0));
    T(munmap(fixed + PAGE, PAGE));
    touch("unmapped", fixed + PAGE, 0);
    touch("still", fixed + 2 * PAGE, 0);
}

GROUP(map, over_unlink_and_rename)
{
    int fd = filled("f", PAGE);
    char *m = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    T(close(fd));
    make("g", "replacement");
    T(rename("g", "f"));
    say("%.10s", m + 54);
    contents("f");
    T(unlink("f"));
    for (int i = 0; i < 50; i++) {
        char name[16];
        sprintf(name, "n%d", i);
        close(filled(name, PAGE * 3));
        unlink(name);
    }
    m[0] = 'M';
    say("%.10s", m + 54);
    CHILD {
        say("%c %.10s", m[0], m + 54);
        m[0] = 'C';
    }
    say("%c", m[0]);
    T(munmap(m, PAGE));
}

GROUP(map, many)
{
    int fd = filled("f", 64 * PAGE);
    char *maps[64];
    int bad = 0;
    for (int i = 0; i < 64; i++) {
        maps[i] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (63 - i) * PAGE);
        bad += maps[i] == MAP_FAILED;
    }
    for (int i = 0; i < 64; i++)
        *(int *)maps[i] = i;
    for (int i = 0; i < 64; i++) {
        int value;
        if (pread(fd, &value, sizeof value, (63 - i) * PAGE) != sizeof value || value != i)
            bad++;
    }
    for (int i = 0; i < 64; i += 2)
        bad += munmap(maps[i], PAGE) != 0;
    for (int i = 1; i < 64; i += 2)
        bad += *(int *)maps[i] != i;
    say("bad %d", bad);
    char *big = TP(mmap(NULL, 64 * PAGE, PROT_READ, MAP_SHARED, fd, 0));
    T(write(STDOUT_FILENO, big + PAGE + 64, 64));
    int g = T(open("g", O_RDWR | O_CREAT, 0644));
    T(write(g, big, 64 * PAGE));
    T(pwrite(fd, big, 10 * PAGE, 5 * PAGE) == 10 * PAGE);
}

/* Sixteen other files get pages now; a store through a mapping whose pages were freed would reach one of
 * them. */
static void store_and_look(const char *text, char *at, long size)
{
    char other[2 * PAGE];
    int fd = open("others", O_RDWR | O_CREAT | O_TRUNC, 0600);
    memset(other, 'o', sizeof other);
    for (long i = 0; i < 16 * size; i += sizeof other)
        if (write(fd, other, sizeof other) != sizeof other)
            say("short");
    memset(at, 'm', size);
    long bad = 0;
    for (long i = 0; i < 16 * size; i += sizeof other) {
        if (pread(fd, other, sizeof other, i) != sizeof other)
            say("short");
        for (unsigned j = 0; j < sizeof other; j++)
            bad += other[j] != 'o';
    }
    say("%s: %ld bytes of another file changed", text, bad);
    close(fd);
    unlink("others");
}

GROUP(map, what_fails_leaves_the_mapping)
{
    long size = 64 * PAGE;
    int fd = filled("f", size), ro = T(open("f", O_RDONLY)), wo = T(open("f", O_WRONLY));
    char *m = TP(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    char *n = TP(mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    T(close(fd));
    T(unlink("f"));
    TP(mmap(m, size, PROT_READ, MAP_SHARED | MAP_FIXED, 999, 0));
    store_and_look("descriptor that is not open", m, size);
    TP(mmap(m, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, ro, 0));
    TP(mmap(m, size, PROT_READ, MAP_SHARED | MAP_FIXED, wo, 0));
    TP(mmap(m, size, PROT_READ, MAP_SHARED | MAP_FIXED, ro, 100));
    store_and_look("file that may not be mapped", m, size);
    TP(mremap(n, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, m + 1));
    TP(mremap(n, size, size, MREMAP_FIXED, m));
    TP(mremap(n + 1, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, m));
    store_and_look("mremap onto it", m, size);
    TP(mremap(m, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, m + size / 2));
    TP(mremap(m, size, 2 * size, MREMAP_MAYMOVE | MREMAP_FIXED, m - size));
    TP(mremap(m, size, 2 * size, MREMAP_MAYMOVE | MREMAP_FIXED, (char *)0 - 2 * PAGE));
    T(munmap(m, 0));
    store_and_look("mremap of it", m, size);
    say("%d", TP(mremap(n, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, m)) == m);
    touch("replaced", m, 0);
    T(munmap(m, size));
    T(close(ro));
    T(close(wo));
}

GROUP(map, mremap_across_neighbours)
{
    int fd = filled("f", 4 * PAGE);
    char *m = TP(mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    TP(mmap(m + 2 * PAGE, 2 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0));
    T(mremap(m, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
    touch("in place", m + 3 * PAGE, 0);
    T(mremap(m, 4 * PAGE, 3 * PAGE, 0) == m);
    touch("kept", m + 2 * PAGE, 0);
    touch("cut", m + 3 * PAGE, 0);
    T(munmap(m, 3 * PAGE));
}

static void *maps_and_unmaps(void *fd)
{
    long bad = 0;
    for (int i = 0; i < 20000; i++) {
        void *m = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, (long)fd, 0);
        bad += m == MAP_FAILED || munmap(m, 16 * PAGE);
    }
    return (void *)bad;
}

GROUP(map, fork_beside_a_thread_that_maps)
{
    long fd = filled("f", 16 * PAGE);
    pthread_t thread;
    void *bad;
    pthread_create(&thread, NULL, maps_and_unmaps, (void *)fd);
    int hung = 0, wrong = 0;
    for (int i = 0; i < 200 && !hung; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(10);
            void *m = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
            _exit(m == MAP_FAILED || munmap(m, PAGE));
        }
        int status;
        waitpid(child, &status, 0);
        hung += WIFSIGNALED(status);
        wrong += status != 0;
    }
    pthread_join(thread, &bad);
    say("hung %d, wrong %d, failed %ld", hung, wrong, (long)bad);
}

/* Approximate bytes in use: whether they include those of a file that should be gone. */
static long in_use(void)
{
    struct statfs s;
    return statfs(".", &s) ? -1 : (long)(s.f_blocks - s.f_bfree) * s.f_bsize;
}

GROUP(map, space_of_an_inherited_mapping)
{
    long size = 64 << 20, before = in_use();
    int fd = T(open("f", O_RDWR | O_CREAT, 0600)), ready[2], end[2];
    char c;
    T(posix_fallocate(fd, 0, size));
    char *m = TP(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    T(pipe(ready));
    T(pipe(end));
    CHILD {
        if (fork() == 0) {
            close(end[1]);
            munmap(m, size);
            close(fd);
            write(ready[1], "x", 1);
            read(end[0], &c, 1);
            _exit(0);
        }
    }
    T(read(ready[0], &c, 1));
    T(munmap(m, size));
    T(unlink("f"));
    T(close(fd));
    say("given back while the child lives: %d", in_use() - before < size / 2);
    T(close(end[1]));
}

static volatile pid_t mapper;

static void *kills_mapper(void *unused)
{
    unsigned random = (uintptr_t)unused;
    while (!mapper)
        sched_yield();
    for (volatile unsigned i = random * 2654435761u % 20000; i; i--)
        ;
    kill(mapper, SIGKILL);
    return NULL;
}

/* A child of vfork changes its parent's mappings. If it is killed while it does so, they must stay usable. */
GROUP(map, vfork_child_killed_as_it_maps)
{
    static char text[65536];
    int fd = make_open("f", "x", O_RDWR), bad = 0;
    T(write(fd, text, sizeof text));
    char *kept = mmap(NULL, sizeof text, PROT_READ, MAP_SHARED, fd, 0);
    for (int round = 1; round <= 100; round++) {
        pthread_t killer;
        int status;
        mapper = 0;
        pthread_create(&killer, NULL, kills_mapper, (void *)(uintptr_t)round);
        pid_t child = vfork();
        if (!child) {
            mapper = getpid();
            for (;;) {
                char *at = mmap(NULL, sizeof text, PROT_READ, MAP_SHARED, fd, 0);
                munmap(at + 4096, 4096);
                munmap(at, sizeof text);
            }
        }
        pthread_join(killer, NULL);
        bad += waitpid(child, &status, 0) != child || !WIFSIGNALED(status);
        char *at = mmap(NULL, sizeof text, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        at[5000] = round;
        bad += kept[5000] != (char)round || munmap(at, sizeof text);
    }
    say("%d bad", bad);
    T(munmap(kept, sizeof text));
}

/* Space behind the end outlives mappings, but not a truncation. */
GROUP(map, space_behind_the_end)
{
    static const struct {
        int flags;
        size_t at, bytes;
    } maps[] = { { MAP_PRIVATE, 0, 12288 }, { MAP_PRIVATE | MAP_LOCKED, 0, 12288 }, { MAP_SHARED, 8192, 1 }, { MAP_SHARED, 4096, 65536 } };
    struct stat st;
    for (unsigned size = 0; size < 8193; size += size ? 4096 : 1)
        for (unsigned i = 0; i < COUNT(maps); i++) {
            int fd = open("f", O_CREAT | O_TRUNC | O_RDWR, 0644);
            ftruncate(fd, size);
            TN("fallocate", fallocate(fd, FALLOC_FL_KEEP_SIZE, 1, 20000));
            char *map = mmap(NULL, maps[i].bytes, PROT_READ, maps[i].flags, fd, maps[i].at);
            fstat(fd, &st);
            say("%u, %u: %ld", size, i, (long)st.st_blocks);
            TN("munmap", munmap(map, maps[i].bytes));
            fstat(fd, &st);
            say("afterwards %ld", (long)st.st_blocks);
            map = mmap(NULL, maps[i].bytes, PROT_READ, maps[i].flags, fd, maps[i].at);
            TN("ftruncate", ftruncate(fd, size));
            munmap(map, maps[i].bytes);
            fstat(fd, &st);
            say("cut %ld", (long)st.st_blocks);
            TN("fallocate", fallocate(fd, FALLOC_FL_KEEP_SIZE, 16384, 4096));
            fstat(fd, &st);
            say("again %ld", (long)st.st_blocks);
            close(fd);
        }
}
