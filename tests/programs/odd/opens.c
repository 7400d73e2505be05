/* open(2), openat2(2), creat(2), open_by_handle_at(2). */
#include "odd.h"

/* openat2(2), asked again where the kernel answers EAGAIN because something has moved during a walk with `..`. */
static long open_how(int fd, const char *path, struct open_how *how, long size)
{
    long done = -1;
    for (int n = 0; n < 30; n++) {
        done = syscall(SYS_openat2, fd, path, how, size);
        if (done >= 0 || errno != EAGAIN)
            break;
        usleep(1000 * n);
    }
    return done;
}

void opens(void)
{
    static const long extras[] = { O_CREAT, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_CLOEXEC, O_PATH, O_TMPFILE,
        O_NONBLOCK, O_NOATIME, O_SYNC, O_DSYNC, O_DIRECT, O_ASYNC, O_NOCTTY, 020000000, 040000000 };
    static struct {
        struct file_handle head;
        char room[128];
    } handle;
    long flags = roll(4);
    for (unsigned n = roll(4); n; n--)
        flags |= extras[roll(COUNT(extras))];
    unsigned mode = roll(2) ? 0644 : roll(010000), at = slot();
    char dir[16];
    int fd = dir_fd(dir);
    struct path p = path(0);
    if (is_special(fd, p.at))
        flags |= O_PATH;
    /* The mode of the link itself is that of a placeholder. */
    if (is_link_of_descriptor(&p) && flags & O_PATH)
        flags &= ~(long)O_NOFOLLOW;
    /* A FIFO that was opened by its handle would wait. */
    if (roll(12) == 0 && !is_special(fd, p.at)) {
        int id;
        handle.head.handle_bytes = sizeof handle.room;
        DO(syscall(SYS_name_to_handle_at, fd, p.at, &handle, &id, 0), "name_to_handle_at(%s, %s, &handle, &id, 0)", dir, p.text);
        return;
    }
    if (roll(20) == 0 && handle.head.handle_type) {
        put(at, DO(syscall(SYS_open_by_handle_at, fd, &handle, flags), "f[%u] = open_by_handle_at(%s, &handle, 0x%lx)", at, dir, flags));
        return;
    }
    if (roll(20) == 0 && !is_special(AT_FDCWD, p.at)) {
        put(at, DO(creat(p.at, mode), "f[%u] = creat(%s, 0%o)", at, p.text, mode));
        return;
    }
    if (roll(3)) {
        put(at, DO(openat(fd, p.at, flags, mode), "f[%u] = openat(%s, %s, 0x%lx, 0%o)", at, dir, p.text, flags, mode));
        return;
    }
    /* What is behind a known structure is zero, or not. */
    struct {
        struct open_how how;
        char rest[4096];
    } given = { 0 };
    given.rest[5] = roll(2);
    struct open_how how = { .flags = flags, .mode = flags & (O_CREAT | 020000000) || roll(9) == 0 ? mode : 0 };
    for (unsigned n = roll(3); n; n--)
        how.resolve |= 1UL << PICK(0, 1, 2, 3, 4, 6);
    if (how.flags & O_ASYNC)
        how.flags &= ~(uint64_t)O_ASYNC;
    long size = roll(12) ? (long)sizeof how : PICK(0, 8, 23, 25, 32, 4096, 4097);
    given.how = how;
    if (roll(40) == 0) {
        DO(syscall(SYS_openat2, fd, p.at, roll(2) ? NULL : (void *)8, size), "openat2(%s, %s, bad, %ld)", dir, p.text, size);
        return;
    }
    put(at, DO(open_how(fd, p.at, &given.how, size), "f[%u] = openat2(%s, %s, (struct open_how){ 0x%llx, 0%llo, 0x%llx }, %ld)", at, dir,
                p.text, (long long)how.flags, (long long)how.mode, (long long)how.resolve, size));
}

