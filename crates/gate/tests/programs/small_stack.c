/* System calls of a program's own, on a stack of a few hundred bytes with an unreadable page below, as goroutines make them; with
 * values in vector registers across them, also at a thread's first call. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Makes a call with rsp = stack and every xmm register set to its number; gives the number of registers that changed. */
static long on_stack(char *stack, long nr, long a, long b, long c, long d, long *result) {
    long changed = 0, r;
    unsigned long saved[2] = { (unsigned long)stack, 0 };
    register long r10 asm("r10") = d;
    asm volatile(
        ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n mov $\\i + 1, %%ecx\n movd %%ecx, %%xmm\\i\n .endr\n"
        "mov %%rsp, %%rbx\n mov %[stack], %%rsp\n"
        "syscall\n"
        "mov %%rbx, %%rsp\n"
        ".irp i, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n movd %%xmm\\i, %%ecx\n cmp $\\i + 1, %%ecx\n je 1f\n inc %[changed]\n 1:\n .endr\n"
        : "=a"(r), [changed] "+r"(changed)
        : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), [stack] "r"(saved[0])
        : "rcx", "r11", "rbx", "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
          "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    *result = r;
    return changed;
}

static char *new_stack(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(pages, 4096, PROT_NONE);
    return pages + 4096 + 640;
}

static void session(const char *who) {
    char *stack = new_stack();
    long fd, r, changed;
    changed = on_stack(stack, SYS_open, (long)"/dev/null", O_RDWR, 0, 0, &fd);
    printf("%s open %d changed %ld\n", who, fd >= 0, changed);
    changed = on_stack(stack, SYS_lseek, fd, 5, SEEK_SET, 0, &r);
    printf("%s lseek %ld changed %ld\n", who, r, changed);
    changed = on_stack(stack, SYS_write, fd, (long)"x", 1, 0, &r);
    printf("%s write %ld changed %ld\n", who, r, changed);
    changed = on_stack(stack, SYS_stat, (long)"/nonexistent/a", (long)stack - 200, 0, 0, &r);
    printf("%s stat %ld changed %ld\n", who, r, changed);
    changed = on_stack(stack, SYS_close, fd, 0, 0, 0, &r);
    printf("%s close %ld changed %ld\n", who, r, changed);
}

/* A child as Go's runtime makes it: CLONE_VM|CLONE_VFORK, on the parent's small stack; execs a shell. */
static void child(void) {
    static char *argv[] = { "sh", "-c", "exit 6", NULL };
    static char *envp[] = { NULL };
    char *stack = new_stack();
    long pid;
    asm volatile("mov %%rsp, %%rbx\n mov %[stack], %%rsp\n syscall\n"
                 "test %%rax, %%rax\n jnz 1f\n"
                 "mov $59, %%eax\n lea %[path], %%rdi\n lea %[argv], %%rsi\n lea %[envp], %%rdx\n syscall\n"
                 "mov $60, %%eax\n mov $99, %%edi\n syscall\n"
                 "1: mov %%rbx, %%rsp\n"
                 : "=a"(pid)
                 : "a"(SYS_clone), "D"(CLONE_VM | CLONE_VFORK | SIGCHLD), "S"(0), "d"(0), [stack] "r"(stack), [path] "m"(*"/bin/sh"),
                   [argv] "m"(argv), [envp] "m"(envp)
                 : "rcx", "r11", "rbx", "r10", "r8", "r9", "memory", "xmm15");
    int status = 0;
    waitpid(pid, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
}

static void *thread(void *x) { session(x); return NULL; }

int main(void) {
    pthread_t t;
    session("main");
    pthread_create(&t, NULL, thread, "thread");
    pthread_join(t, NULL);
    child();
    return 0;
}
