/* Memory of mapped files: advice, locks. */
#include "conform.h"
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE 4096L

GROUP(memory, removed)
{
    int rw = make_open("f", "of the file", O_RDWR), ro = T(open("f", O_RDONLY));
    char *shared = TP(mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0));
    char *reads = TP(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, ro, 0));
    char *private = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, rw, 0));
    T(madvise(reads, PAGE, MADV_REMOVE));
    contents("f");
    T(madvise(private, PAGE, MADV_REMOVE));
    contents("f");
    T(madvise(shared + 1, PAGE, MADV_REMOVE));
    T(madvise(shared, 0, MADV_REMOVE));
    T(madvise(shared + PAGE, PAGE, MADV_REMOVE));
    contents("f");
    T(madvise(shared, 2 * PAGE, MADV_REMOVE));
    contents("f");
    say("%d %d %d", shared[0], reads[0], private[0]);
    memcpy(shared, "again", 5);
    contents("f");
    T(munmap(shared + PAGE, PAGE));
    T(madvise(shared, 2 * PAGE, MADV_REMOVE));
    contents("f");
    T(ftruncate(rw, 3 * PAGE));
    char *three = TP(mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0));
    memset(three, 'x', 3 * PAGE);
    T(munmap(three + PAGE, PAGE));
    T(madvise(three, 3 * PAGE, MADV_REMOVE));
    contents("f");
}

GROUP(memory, locked)
{
    int fd = make_open("f", "text", O_RDWR);
    char *m = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    T(mlock(m, PAGE));
    T(mlock2(m, PAGE, MLOCK_ONFAULT));
    T(mlock2(m, PAGE, 2));
    T(munlock(m, PAGE));
    T(mlockall(0));
    T(mlockall(8));
    T(mlockall(MCL_ONFAULT));
    T(mlockall(MCL_CURRENT));
    m[0] = 'T';
    char *n = TP(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    T(munlockall());
    T(mlockall(MCL_CURRENT | MCL_FUTURE));
    char *own = TP(mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    unsigned char in[4] = { 0 };
    T(mincore(own, 4 * PAGE, in));
    say_bytes("in memory", in, 4);
    CHILD say("%c%c", m[0], n[0]);
    T(munlockall());
    T(munlock(m + 1, PAGE));
    T(mlock(m, 2 * PAGE));
    T(msync(m, PAGE, MS_INVALIDATE));
    become_nobody();
    struct rlimit none = { 0, 0 };
    T(setrlimit(RLIMIT_MEMLOCK, &none));
    T(mlockall(MCL_CURRENT));
    T(mlock(m, PAGE));
}
