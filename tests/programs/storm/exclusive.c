// Counters in files, incremented under a lock on the file. Two writers inside, or a lost update, mean that
// exclusion failed.
#include "mixed.h"

void locks_turn(void)
{
    long which = below(LOCK_FILES * LOCK_KINDS);
    int kind = which / LOCK_FILES, file = lock_name(which);
    while (lock_file(file, kind, 1))
        if (errno != EINTR) {
            bad("lock %ld: %s", which, strerror(errno));
            close(file);
            return;
        }
    long mine = (long)epoch << 8 | place + 1;
    long other = atomic_exchange(&storm->lock[which].inside, mine);
    // A worker that was killed inside is outside now: its epoch was incremented before it was killed.
    if (other && storm->worker[(other & 255) - 1].epoch == other >> 8)
        bad("lock %ld (kind %d): workers %d and %ld are both inside", which, kind, place, (other & 255) - 1);
    uint64_t value = 0;
    long done = storm->lock[which].done;
    if (pread(file, &value, sizeof value, 0) != sizeof value)
        lost("the counter of lock %ld cannot be read", which);
    // One more than is known to be done: its writer was killed before it could record that.
    if ((long)value != done && (long)value != done + 1)
        lost("lock %ld (kind %d): %ld updates were made, the file says %ld", which, kind, done, (long)value);
    storm->lock[which].done = value++;
    if (below(8) == 0)
        sched_yield();
    pwrite(file, &value, sizeof value, 0);
    storm->lock[which].done = value;
    atomic_compare_exchange_strong(&storm->lock[which].inside, &mine, 0);
    unlock_file(file, kind);
    close(file);
    storm->checks++;
}
