/* Locks of files, and who is said to hold them. */
#include "odd.h"
#include <sys/file.h>

static const char *holder(const struct flock *lock, pid_t self)
{
    if (lock->l_type == F_UNLCK || lock->l_pid == 0)
        return "nobody";
    return lock->l_pid == -1 ? "a description" : lock->l_pid == self ? "itself" : "another";
}

static void record_lock(unsigned at)
{
    struct flock lock = { .l_type = PICK(0, 1, 2, 3), .l_whence = PICK(0, 0, 1, 2, 3), .l_start = roll(2) ? small() : where(), .l_len = roll(2) ? small() : where() };
    int command = PICK(F_SETLK, F_SETLK, F_OFD_SETLK, F_GETLK, F_OFD_GETLK);
    short type = lock.l_type;
    long start = lock.l_start, length = lock.l_len;
    if (roll(30) == 0) {
        DO(fcntl(f[at], command, roll(2) ? NULL : (void *)8), "fcntl(f[%u], %d, bad)", at, command);
        return;
    }
    if (roll(20) == 0)
        lock.l_pid = 7;
    errno = 0;
    long done = fcntl(f[at], command, &lock);
    say(done, "fcntl(f[%u], %d, lock(%d, %d, %ld, %ld)) /* %d %ld %ld %s */", at, command, type, lock.l_whence, start, length, lock.l_type,
        (long)lock.l_start, (long)lock.l_len, command == F_GETLK || command == F_OFD_GETLK ? holder(&lock, getpid()) : "");
}

void locks(void)
{
    unsigned at = slot();
    struct stat st;
    /* A device of the host's belongs to all that run meanwhile. */
    if (!fstat(f[at], &st) && S_ISCHR(st.st_mode))
        return;
    switch (roll(4)) {
    case 0: {
        int how = PICK(LOCK_SH, LOCK_EX, LOCK_UN, 0, 3, 16) | LOCK_NB;
        DO(flock(f[at], how), "flock(f[%u], %d)", at, how);
        break;
    }
    case 1: {
        int how = PICK(F_ULOCK, F_TLOCK, F_TEST, 9);
        long length = PICK(0, 1, 100, -1, -100, INT64_MAX);
        DO(lockf(f[at], how, length), "lockf(f[%u], %d, %ld)", at, how, length);
        break;
    }
    default:
        record_lock(at);
    }
}
