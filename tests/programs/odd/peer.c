/* The second process of a sequence: forked with the first descriptors, so that it shares their open files, it
 * makes the steps that fall to it while the first process waits. */
#include "odd.h"
#include <sys/wait.h>

/* Beyond the numbers that the sequence's own descriptors get. */
enum { ORDERS = 60, ANSWERS = 62 };
static pid_t peer;

static int line_at(int number)
{
    int ends[2];
    if (pipe(ends))
        return -1;
    int made = dup2(ends[0], number) < 0 || dup2(ends[1], number + 1) < 0;
    close(ends[0]), close(ends[1]);
    return made ? -1 : 0;
}

int start_peer(void (*make)(unsigned number))
{
    if (line_at(ORDERS) || line_at(ANSWERS))
        return -1;
    peer = fork();
    if (peer)
        return peer < 0;
    is_peer = 1;
    close(ORDERS + 1), close(ANSWERS);
    unsigned number;
    while (read(ORDERS, &number, sizeof number) == sizeof number) {
        make(number);
        if (write(ANSWERS + 1, "", 1) != 1)
            break;
    }
    _exit(0);
}

void let_peer(unsigned number)
{
    char done;
    close(ANSWERS + 1);
    if (write(ORDERS + 1, &number, sizeof number) != sizeof number || read(ANSWERS, &done, 1) != 1)
        say(-1, "the peer has died");
}

void end_peer(void)
{
    if (!peer)
        return;
    close(ORDERS + 1);
    int status;
    waitpid(peer, &status, 0);
    if (status)
        say(status, "the peer's end");
}
