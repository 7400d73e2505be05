/*
 * Does work that commutes scale? N workers, each bound to a processor, make one kind of call for a
 * fixed time; the figure is their calls per second together, in millions.
 *
 *     scale DIR MILLISECONDS processes|threads N...
 *
 * files     each worker reads and writes its own file (pread 4096, pwrite 256)
 * position  each worker opens the same file and moves its own position
 * stat      all workers stat the same path
 * open      all workers open and close the same path
 * create    each worker creates and unlinks in a directory of its own
 */
#include "bench.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

enum { FILE_SIZE = 1 << 20, ROUND = 64 };

struct worker {
    const char *dir, *shared_path;
    char *own_path, *own_name;
    int own_fd, shared_fd;
    off_t offset;
    char data[4096];
};

static void turn_files(struct worker *w)
{
    w->offset = (w->offset + 4096) & (FILE_SIZE - 1);
    CHECK(pread(w->own_fd, w->data, 4096, w->offset) == 4096);
    CHECK(pwrite(w->own_fd, w->data, 256, w->offset) == 256);
}

static void turn_position(struct worker *w)
{
    w->offset = (w->offset + 4096) & (FILE_SIZE - 1);
    CHECK(lseek(w->shared_fd, w->offset, SEEK_SET) == w->offset);
}

static void turn_stat(struct worker *w)
{
    struct stat st;
    CHECK(stat(w->shared_path, &st) == 0);
}

static void turn_open(struct worker *w)
{
    int fd = open(w->shared_path, O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
}

static void turn_create(struct worker *w)
{
    int fd = open(w->own_name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0);
    close(fd);
    CHECK(unlink(w->own_name) == 0);
}

static const struct kind {
    const char *name;
    void (*turn)(struct worker *);
    int calls; /* in one turn */
} kinds[] = {
    { "files", turn_files, 2 }, { "position", turn_position, 1 }, { "stat", turn_stat, 1 },
    { "open", turn_open, 2 },   { "create", turn_create, 3 },
};

/* Shared by the workers, processes or threads: the gate they start at and what each one did. */
struct board {
    int ready;
    int go;
    uint64_t stop_ns;
    struct {
        uint64_t turns;
        double seconds;
        char pad[112];
    } slot[256];
};

static struct board *board;
static const char *top;
static const struct kind *kind;

/* Binds the caller to the INDEX-th processor that it may use, wrapping around. */
static void bind_to(int index)
{
    cpu_set_t allowed, one;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    int skip = index % CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || skip-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        return;
    }
}

static void open_own(struct worker *w, int index)
{
    char *dir = in_dir(top, "worker%d", index);
    CHECK(mkdir(dir, 0755) == 0 || errno == EEXIST);
    w->own_path = in_dir(dir, "file");
    w->own_name = in_dir(dir, "name");
    w->own_fd = make_file(w->own_path, FILE_SIZE);
    w->shared_path = in_dir(top, "shared");
    w->shared_fd = open(w->shared_path, O_RDONLY);
    CHECK(w->shared_fd >= 0);
}

static void work(int index)
{
    struct worker w = { .dir = top };
    bind_to(index);
    open_own(&w, index);
    for (int i = 0; i < ROUND; i++)
        kind->turn(&w);
    __atomic_add_fetch(&board->ready, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&board->go, __ATOMIC_ACQUIRE))
        sched_yield();
    uint64_t turns = 0, start = now_ns();
    do {
        for (int i = 0; i < ROUND; i++)
            kind->turn(&w);
        turns += ROUND;
    } while (now_ns() < board->stop_ns);
    board->slot[index].turns = turns;
    board->slot[index].seconds = seconds_since(start);
    close(w.own_fd);
    close(w.shared_fd);
}

static void *work_thread(void *index)
{
    work((int)(intptr_t)index);
    return NULL;
}

static void let_go(int workers, long milliseconds)
{
    while (__atomic_load_n(&board->ready, __ATOMIC_ACQUIRE) < workers)
        usleep(200);
    board->stop_ns = now_ns() + (uint64_t)milliseconds * 1000000;
    __atomic_store_n(&board->go, 1, __ATOMIC_RELEASE);
}

static void run_processes(int workers, long milliseconds)
{
    for (int i = 0; i < workers; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            work(i);
            _exit(0);
        }
    }
    let_go(workers, milliseconds);
    reap(workers);
}

static void run_threads(int workers, long milliseconds)
{
    pthread_t threads[256];
    for (int i = 0; i < workers; i++) {
        errno = pthread_create(&threads[i], NULL, work_thread, (void *)(intptr_t)i);
        CHECK(errno == 0);
    }
    let_go(workers, milliseconds);
    for (int i = 0; i < workers; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    top = in_dir(argv[1], "scale");
    CHECK(mkdir(top, 0755) == 0);
    close(make_file(in_dir(top, "shared"), FILE_SIZE));
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    long milliseconds = number(argv[2]);
    int threads = strcmp(argv[3], "threads") == 0;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        kind = &kinds[k];
        for (int i = 4; i < argc; i++) {
            int workers = (int)number(argv[i]);
            if (workers < 1 || workers > 256)
                return 2;
            memset(board, 0, sizeof *board);
            (threads ? run_threads : run_processes)(workers, milliseconds);
            double rate = 0;
            for (int w = 0; w < workers; w++)
                rate += (double)board->slot[w].turns * kind->calls / board->slot[w].seconds;
            char metric[64];
            snprintf(metric, sizeof metric, "%s_%s", argv[3], kind->name);
            emit_at(metric, workers, "M/s", rate / 1e6);
        }
    }
    RUN("rm", "-r", (char *)top);
    return 0;
}
