/* Times of changes. */
#include "differ.h"

/* Changes that each follow a stat, within a few ticks of the clock: whether most have a time of their own. */
CASE(times_within_a_tick)
{
    struct stat before, after;
    int moved = 0, fd = open("f", O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 100; i++) {
        if (fstat(fd, &before) || pwrite(fd, "x", 1, 0) != 1 || fstat(fd, &after))
            return 1;
        moved += !is_same_time(&before, &after);
    }
    tell("%s", moved > 90 ? "times of their own" : moved < 50 ? "the time of a tick" : "neither");
    return 0;
}
