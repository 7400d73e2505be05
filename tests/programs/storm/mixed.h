// The mixed storm: workers of several roles, and the data that they share with their supervisor.
#ifndef MIXED_H
#define MIXED_H
#include "storm.h"

enum { WORKERS = 64, BLOCK_FILES = 4, BLOCKS = 512, DIRECTORIES = 4, SECONDS = 4096 };

// A worker's place; a new worker takes it over when the worker is killed.
struct worker {
    atomic_int pid;
    // Incremented before its worker is killed.
    atomic_int epoch;
    // Turns made: a worker that makes none hangs.
    count turns;
    // Queued signals sent and handled.
    count sent, handled;
    // Block being written, plus one.
    count writing;
};

struct storm {
    struct figures figures;
    struct worker worker[WORKERS];
    count stop, checks, forks, execs, torn;
    long workers, executing;
    // Last finished write of each block.
    count written[BLOCK_FILES * BLOCKS];
    // For each lock: who is inside (place and epoch), and the last completed update.
    struct {
        count inside, done;
    } lock[LOCK_FILES * LOCK_KINDS];
    count each_second[SECONDS];
    char dir[256];
};
extern struct storm *storm;
// The calling worker's place.
extern int place, epoch;

// One turn of each role. `*_begin` repairs what the place's last worker left when it was killed.
void blocks_begin(void), blocks_turn(void), blocks_end(void);
void names_begin(void), names_turn(void), names_end(void);
void locks_turn(void);
void forks_turn(void);
void own_file_turn(void);
// Signals are blocked from the fork on until the worker has its handlers.
void hold_signals_back(void);
// A worker's main function.
void worker_run(long place);
#endif
