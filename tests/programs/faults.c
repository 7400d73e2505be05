/* How many page faults a child costs that fork(2) makes, with a file of DIR open:
 *     faults DIR fork     one that ends at once
 *     faults DIR start    one that executes cat, from one file of DIR to another
 * Prints the child's and its parent's. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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
    if (count != 3 || chdir(arguments[1]))
        return 1;
    int starts = !strcmp(arguments[2], "start"), file = open("f", O_RDWR | O_CREAT, 0600);
    if (file < 0 || write(file, "f", 1) != 1)
        return 1;
    long children = 0, own = 0;
    for (int i = -1; i < CHILDREN; i++) {
        /* The first finds what nobody has touched yet. */
        if (i == 0) {
            children = faults(RUSAGE_CHILDREN);
            own = faults(RUSAGE_SELF);
        }
        pid_t child = fork();
        if (!child) {
            if (starts) {
                int to = open("g", O_WRONLY | O_CREAT | O_TRUNC, 0600);
                dup2(to, 1);
                close(to);
                execl("/bin/cat", "cat", "f", (char *)0);
            }
            _exit(starts);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            return 2;
    }
    printf("%ld %ld\n", (faults(RUSAGE_CHILDREN) - children) / CHILDREN, (faults(RUSAGE_SELF) - own) / CHILDREN);
    return 0;
}
