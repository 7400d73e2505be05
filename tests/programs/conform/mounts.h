/* What the groups on mounts share. */
#ifndef MOUNTS_H
#define MOUNTS_H

#include "conform.h"
#include <sched.h>
#include <sys/mount.h>

/* Mounts made from here on are nobody else's. Whether the caller may mount at all. */
static int in_own_namespace(void)
{
    if (unshare(CLONE_NEWNS))
        return say("no namespace: %s", strerrorname_np(errno)), 0;
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* The same, with the directories that these letters name. */
static inline int apart_with(const char *letters)
{
    if (!in_own_namespace())
        return 0;
    for (char name[2] = ""; (name[0] = *letters); letters++)
        make_dir(name);
    return 1;
}

#endif
