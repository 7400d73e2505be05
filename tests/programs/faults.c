/* How many page faults a child costs that fork(2) makes, and that ends at once: `faults DIR`, with a file of
 * the directory open. Prints the child's and its parent's. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 200 };

static long faults(int of)
{
    struct rusage usage;
    return getrusage(of, &usage) ? -1 : usage.ru_minflt;
}

int main(int count, char **arguments)
{
    if (count != 2 || chdir(arguments[1]) || open("f", O_RDWR | O_CREAT, 0600) < 0)
        return 1;
    long children = 0, own = 0;
    for (int i = -1; i < CHILDREN; i++) {
        /* The first finds what nobody has touched yet. */
        if (i == 0) {
            children = faults(RUSAGE_CHILDREN);
            own = faults(RUSAGE_SELF);
        }
        pid_t child = fork();
        if (!child)
            _exit(0);
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 2;
    }
    printf("%ld %ld\n", (faults(RUSAGE_CHILDREN) - children) / CHILDREN, (faults(RUSAGE_SELF) - own) / CHILDREN);
    return 0;
}
