/* trapped [LIBRARY]: files as a program sees them whose system calls cannot be patched: by calls that leave no
   room for a jump, in the program or (with LIBRARY, made with -DLIBRARY) in a library that it loads; or, with
   -DPACKED, by calls of code that it makes. In threads, children and handlers. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef long function(long number, long a, long b, long c);

#ifndef PACKED
/* There are jumps to the call from before and to what follows it, and none of them is ever taken. */
function odd;
__asm__(".pushsection .text\n"
        ".globl odd\n"
        ".type odd, @function\n"
        "odd:\n"
        "mov %rdi, %rax\n"
        "mov %rsi, %rdi\n"
        "mov %rdx, %rsi\n"
        "mov %rcx, %rdx\n"
        "cmp $-1, %rax\n"
        "je 1f\n"
        "nop\n"
        "1: syscall\n"
        "2: nop\n"
        "cmp $-5000, %rax\n"
        "je 1b\n"
        "cmp $-5001, %rax\n"
        "je 2b\n"
        "ret\n"
        ".size odd, . - odd\n"
        ".popsection");
#else
/* What UPX leaves in the headers. */
__asm__(".pushsection .note.packed, \"a\", @note\n"
        ".long 4, 4, 1\n"
        ".ascii \"UPX\\0UPX!\"\n"
        ".popsection");
#endif

#ifndef LIBRARY
static function *call;

static function *find(const char *library)
{
#ifdef PACKED
    static const char code[] = "\x48\x89\xf8\x48\x89\xf7\x48\x89\xd6\x48\x89\xca\x0f\x05\xc3";
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memcpy(at, code, sizeof code);
#elif defined(LOADS)
    void *loaded = dlopen(library, RTLD_NOW);
    return loaded ? dlsym(loaded, "odd") : NULL;
#else
    return odd;
#endif
}

static void reads(const char *who)
{
    char text[100] = "";
    long fd = call(SYS_open, (long)"f", O_RDONLY, 0);
    long length = call(SYS_read, fd, (long)text, sizeof text - 1);
    long gone = call(SYS_open, (long)"g", O_RDONLY, 0);
    long closed = call(SYS_close, fd, 0, 0);
    printf("%s: %ld bytes, \"%s\", %ld, %ld\n", who, length, text, gone, closed);
}

static void *in_thread(void *unused)
{
    reads("a thread");
    return NULL;
}

/* A thread that nobody waits for; musl's unmaps its own stack before its last call. */
static void detached(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_create(&thread, &attributes, in_thread, NULL);
    struct stat tasks;
    while (stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 3)
        usleep(100);
}

static void handler(int signal)
{
    reads("a handler");
}

/* Not by functions of the C library, which are patched, and do not block the signal of traps either. */
static void suspended(void)
{
    sigset_t usr1, others;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigfillset(&others);
    sigdelset(&others, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
    kill(getpid(), SIGUSR1);
    printf("%ld\n", call(SYS_rt_sigsuspend, (long)&others, 8, 0));
    sigprocmask(SIG_UNBLOCK, &usr1, NULL);
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    call = find(arguments[1]);
    if (!call) {
        printf("%s\n", dlerror());
        return 1;
    }
    long fd = call(SYS_open, (long)"f", O_RDWR | O_CREAT, 0644);
    call(SYS_write, fd, (long)"text", 4);
    reads("the program");
    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);
    detached();
    struct sigaction action = { .sa_handler = handler };
    sigfillset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    suspended();
    if (!fork()) {
        reads("a child");
        _exit(0);
    }
    wait(NULL);
    pid_t child = vfork();
    if (!child) {
        reads("a child in the program's memory");
        call(SYS_exit, 7, 0, 0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("%d\n", WEXITSTATUS(status));
    /* A program that is not trapped, and again one that is. */
    if (count < 3) {
        system("cat f; echo");
        execl("/proc/self/exe", "again", arguments[1] ? arguments[1] : "", "again", NULL);
    }
    return 0;
}
#endif
