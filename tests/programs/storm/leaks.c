// Everything that killed processes had open, mapped, half written or removed must be free again once they
// have been waited for.
#include "storm.h"

static count *turns;

static void use_space(long which)
{
    static char bytes[1 << 17];
    char name[32], other[48];
    for (long i = 0;; i++, ++*turns) {
        snprintf(name, sizeof name, "leak.%ld.%ld", which, i % 8);
        snprintf(other, sizeof other, "%s.moved", name);
        int file = open(name, O_RDWR | O_CREAT, 0600);
        pwrite(file, bytes, below(sizeof bytes), below(1 << 20));
        char *mapped = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        unlink(name);
        ftruncate(file, below(1 << 18));
        if (below(2))
            close(file);
        if (mapped != MAP_FAILED && below(2))
            munmap(mapped, 8192);
        mkdir(other, 0700);
        rename(other, name);
        rmdir(name);
        if (i % 64 == 63)
            execl("/bin/true", "true", NULL);
    }
}

// Kills all at once. By then the files they made have no names, except the one each is working on.
static void one_burst(long together)
{
    enum { MOST = 64 };
    pid_t user[MOST];
    long turn = *turns;
    for (int i = 0; i < together && i < MOST; i++)
        user[i] = start(use_space, i);
    while (*turns < turn + 20 * together)
        nap(50);
    nap(below(2000));
    for (int i = 0; i < together && i < MOST; i++)
        kill(user[i], SIGKILL);
    for (int i = 0; i < together && i < MOST; i++)
        finish(user[i]);
}

void leaks(void)
{
    long kills = number("kills", 600), together = number("together", 12);
    turns = shared(sizeof *turns);
    struct room before = room();
    for (long done = 0; done < kills; done += together) {
        mkdir("work", 0700);
        chdir("work");
        one_burst(together);
        clean_up(".", "/");
        chdir("..");
        if (rmdir("work"))
            bad("rmdir of an emptied directory: %s", strerror(errno));
        same_room(before);
    }
    printf(" kills=%ld turns=%ld", kills, (long)*turns);
}
