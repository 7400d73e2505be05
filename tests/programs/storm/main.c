// The modes, and the code they share.
#include "storm.h"

struct figures *figures;
char dir[256];
char *self;

static char **parameters;
static _Thread_local uint64_t random_state = 88172645463325252ull;

static const struct {
    const char *name;
    void (*run)(void);
    int enters_for_itself;
} modes[] = {
    {"forks", forks},
    {"newborn", newborn},
    {"families", families},
    {"execs", execs},
    {"revoked-files", revoked_files},
    {"revoked-directories", revoked_directories},
    {"stopped", stopped},
    {"mounts", mounts},
    {"holders", holders},
    {"relock", relock},
    {"waiters", waiters},
    {"halves", halves},
    {"halves-threads", halves_threads},
    {"halves-apart", halves_apart, 1},
    {"bereaved", bereaved},
    {"leaks", leaks},
    {"mixed", mixed},
};

long number(const char *name, long otherwise)
{
    size_t length = strlen(name);
    for (char **at = parameters; *at; at++)
        if (!strncmp(*at, name, length) && (*at)[length] == '=')
            return atol(*at + length + 1);
    return otherwise;
}

void *shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("storm: no shared memory");
        exit(99);
    }
    return memory;
}

// Descriptor of the memory that is passed on across exec.
#define KEPT_FD 200

static void *map_kept(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, KEPT_FD, 0);
    if (memory == MAP_FAILED) {
        perror("storm: no memory to keep over exec");
        _exit(99);
    }
    return memory;
}

void *kept_over_exec(size_t size)
{
    int memory = memfd_create("storm", 0);
    if (ftruncate(memory, size) || dup2(memory, KEPT_FD) < 0)
        bad("no memory to keep over exec: %s", strerror(errno));
    close(memory);
    return map_kept(size);
}

void *after_exec(size_t size)
{
    return map_kept(size);
}

void seed(uint64_t value)
{
    random_state = value * 0x9e3779b97f4a7c15ull | 1;
}

uint32_t below(uint32_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (random_state >> 32) % limit;
}

void nap(long microseconds)
{
    struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&time, NULL);
}

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

pid_t start(void (*work)(long), long argument)
{
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(98);
        seed(getpid() * 1000003ull + argument);
        work(argument);
        _exit(0);
    }
    if (child < 0)
        bad("fork: %s", strerror(errno));
    return child;
}

int ends_within(pid_t child, int *status, double seconds)
{
    int ignored;
    if (child <= 0)
        return 1;
    // It is looked at once more when the time is over: this process may not have run meanwhile either.
    for (double end = now() + seconds;; nap(200)) {
        int late = now() >= end;
        if (waitpid(child, status ? status : &ignored, WNOHANG) == child)
            return 1;
        if (late)
            return 0;
    }
}

int ended(pid_t child, int *status, const char *who)
{
    if (ends_within(child, status, PATIENCE))
        return 1;
    figures->hung++;
    fprintf(stderr, "hung: %s\n", who);
    show(child);
    return 0;
}

void finish(pid_t child)
{
    if (child <= 0)
        return;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void line_of(pid_t pid, const char *name, char *line, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, line, size - 1);
    line[got > 0 ? got : 0] = 0;
    if (file >= 0)
        close(file);
}

void show(pid_t pid)
{
    static const char *const names[] = {"stat", "wchan", "syscall", "stack"};
    char line[1024];
    for (int i = 0; i < 4; i++) {
        line_of(pid, names[i], line, sizeof line);
        fprintf(stderr, "  %d %s: %.400s\n", pid, names[i], line);
    }
}

void settle(pid_t thread)
{
    char line[512];
    for (double end = now() + 1; now() < end; nap(200)) {
        line_of(thread, "stat", line, sizeof line);
        char *state = strrchr(line, ')');
        if (!state || strchr("SDTZX", state[2]))
            return;
    }
}

static void tell(const char *what, const char *format, va_list rest)
{
    if (figures->said++ >= 20)
        return;
    char line[512];
    int at = snprintf(line, sizeof line, "%s: ", what);
    vsnprintf(line + at, sizeof line - at, format, rest);
    fprintf(stderr, "%s\n", line);
}

void bad(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    figures->bad++;
    tell("bad", format, rest);
    va_end(rest);
}

void lost(const char *format, ...)
{
    va_list rest;
    va_start(rest, format);
    figures->lost++;
    tell("lost", format, rest);
    va_end(rest);
}

int make(const char *name)
{
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0) {
        bad("open(%s, O_CREAT): %s", name, strerror(errno));
        _exit(1);
    }
    return file;
}

void clean_up(const char *directory, const char *kept)
{
    DIR *stream = opendir(directory);
    for (struct dirent *entry; stream && (entry = readdir(stream));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            !strncmp(entry->d_name, kept, strlen(kept)) || !unlink(path))
            continue;
        int error = errno;
        if (error != EISDIR) {
            bad("readdir lists %s, which cannot be removed: %s", path, strerror(error));
            continue;
        }
        clean_up(path, kept);
        if (rmdir(path))
            bad("rmdir(%s) after all in it was removed: %s", path, strerror(errno));
    }
    if (stream)
        closedir(stream);
}

int main(int count, char **arguments)
{
    self = "/proc/self/exe";
    if (count > 3 && !strcmp(arguments[1], "again"))
        return strcmp(arguments[2], "image") ? worker_again(arguments + 3) : image(arguments + 3);
    if (count < 3) {
        fprintf(stderr, "usage: storm MODE DIR [NAME=NUMBER]...\n");
        return 2;
    }
    parameters = arguments + 3;
    figures = shared(sizeof *figures);
    seed(number("seed", 1));
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    snprintf(dir, sizeof dir, "%s/storm", arguments[2]);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (strcmp(modes[i].name, arguments[1]))
            continue;
        if (!modes[i].enters_for_itself && (mkdir(dir, 0700) && errno != EEXIST || chdir(dir))) {
            perror(dir);
            return 99;
        }
        double began = now();
        printf("%s:", arguments[1]);
        fflush(stdout);
        modes[i].run();
        printf(" seconds=%.0f bad=%ld lost=%ld hung=%ld\n", now() - began, (long)figures->bad, (long)figures->lost,
               (long)figures->hung);
        return figures->bad || figures->lost || figures->hung;
    }
    fprintf(stderr, "storm: no mode %s\n", arguments[1]);
    return 2;
}
