/* Helpers for the groups of mappings. */
#ifndef MAP_H
#define MAP_H

#include "conform.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#define PAGE 4096L

static sigjmp_buf fault_exit;
static siginfo_t fault_info;
static void on_fault(int signal, siginfo_t *info, void *context)
{
    fault_info = *info;
    siglongjmp(fault_exit, signal);
}

/* Reads (or writes) one byte and prints the byte or the signal. */
static void touch(const char *text, volatile char *at, int writing)
{
    struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, segv, bus;
    sigaction(SIGSEGV, &act, &segv), sigaction(SIGBUS, &act, &bus);
    int signal = sigsetjmp(fault_exit, 1);
    if (signal)
        say("%s: signal %d, code %d, address %d", text, signal, fault_info.si_code, fault_info.si_addr == at);
    else if (writing)
        *at = 'W', say("%s: written", text);
    else
        say("%s: %02x", text, (unsigned char)*at);
    sigaction(SIGSEGV, &segv, NULL), sigaction(SIGBUS, &bus, NULL);
}

#endif
