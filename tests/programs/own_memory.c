/* own_memory DIRECTORY: every call that changes a mapping, on the memory that the gate has in this process.
 * Each must fail with EPERM, as on a mapping that mseal(2) has sealed. Files work afterwards, here and in a
 * child, and locking all memory locks what the program has and nothing of the region.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096UL
#define GATE_PAGE 0x7ffd0000UL

static int bad;
static void refused(const char *what, const char *call, long result)
{
    int error = errno;
    if (result != -1 || error != EPERM)
        printf("%s: %s = %ld %s\n", what, call, result, result == -1 ? strerrorname_np(error) : ""), bad = 1;
}
#define REFUSED(call) refused(what, #call, (errno = 0, (long)(call)))

/* `joined`: the process has used a file in the mount. Before, locking the gate's page does no harm. */
static void all_calls(const char *what, char *at, unsigned long length, int joined)
{
    char *own = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int segment = shmget(IPC_PRIVATE, PAGE, 0600), file = open("/proc/self/exe", O_RDONLY);
    char *middle = at + (length / 2 & -PAGE), *end = at + length;
    REFUSED(mmap(at, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    REFUSED(mmap(middle, PAGE, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    REFUSED(mmap(at - PAGE, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    REFUSED(mmap(end - 1 - (end - 1 - at) % PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0));
    REFUSED(munmap(at, PAGE));
    REFUSED(munmap(middle, PAGE));
    REFUSED(munmap(at - PAGE, 2 * PAGE));
    REFUSED(mprotect(at, PAGE, PROT_NONE));
    REFUSED(mprotect(middle, PAGE, PROT_READ));
    REFUSED(syscall(SYS_pkey_mprotect, middle, PAGE, PROT_NONE, -1));
    REFUSED(mremap(middle, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    REFUSED(mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, own));
    REFUSED(mremap(own, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, middle));
    for (int advice = MADV_NORMAL; advice <= 25; advice++)
        REFUSED(madvise(middle, PAGE, advice));
    REFUSED(shmat(segment, middle, SHM_REMAP));
    if (joined) {
        REFUSED(mlock(middle, PAGE));
        REFUSED(mlock2(middle, PAGE, MLOCK_ONFAULT));
        REFUSED(syscall(SYS_remap_file_pages, middle, PAGE, 0, 0, 0));
    }
    if (mmap(middle, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != MAP_FAILED || errno != EEXIST)
        printf("%s: MAP_FIXED_NOREPLACE\n", what), bad = 1;
    char *elsewhere = mmap(middle, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (elsewhere == MAP_FAILED || (elsewhere >= at && elsewhere < end))
        printf("%s: hint\n", what), bad = 1;
    munmap(elsewhere, PAGE);
    munmap(own, 2 * PAGE);
    shmctl(segment, IPC_RMID, NULL);
    close(file);
}

/* Kilobytes that a line of /proc/self/status gives. */
static long status(const char *name)
{
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            found = atol(line + strlen(name));
    fclose(file);
    return found;
}

static void use_files(const char *text)
{
    char back[64] = { 0 };
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(fd, text, strlen(text)) < 1 || pread(fd, back, sizeof back, 0) < 1 || strcmp(text, back))
        printf("%s: %s\n", text, strerror(errno)), bad = 1;
    close(fd);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 2)
        return 2;
    all_calls("page, before", (char *)GATE_PAGE, PAGE, 0);
    if (chdir(argv[1]))
        return 2;
    use_files("before");
    /* The region is by far the largest mapping; the gate's page has a fixed address. */
    unsigned long start, end, region = 0, length = 0, page = 0, pages = 0;
    char line[512], protection[8];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx %7s", &start, &end, protection) != 3)
            continue;
        if (!strcmp(protection, "rw-s") && end - start > length)
            region = start, length = end - start;
        if (start == GATE_PAGE)
            page = start, pages = end - start;
    }
    fclose(maps);
    if (length < 8UL << 30 || !page)
        return printf("not found\n"), 3;
    all_calls("region", (char *)region, length, 1);
    all_calls("page", (char *)page, pages, 1);
    use_files("after");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        use_files("child");
        _exit(bad);
    }
    int end_of_child;
    if (waitpid(child, &end_of_child, 0) != child || end_of_child)
        printf("child: %x\n", end_of_child), bad = 1;

    char *own = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char in[64], all = 1;
    int fd = open("file", O_RDWR);
    char *mapped = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    long before = status("VmRSS:");
    if (mlockall(MCL_CURRENT | MCL_FUTURE))
        printf("mlockall: %s\n", strerror(errno)), bad = 1;
    mincore(own, 64 * PAGE, in);
    for (unsigned i = 0; i < sizeof in; i++)
        all &= in[i];
    if (!all || status("VmLck:") < 256 || status("VmLck:") > 1 << 20 || status("VmRSS:") - before > 1 << 19)
        printf("mlockall: %d, %ld kB locked, %ld kB more\n", all, status("VmLck:"), status("VmRSS:") - before), bad = 1;
    mapped[0] = 'm';
    use_files("locked");
    if (munlockall() || status("VmLck:"))
        printf("munlockall: %ld kB\n", status("VmLck:")), bad = 1;
    return bad;
}
