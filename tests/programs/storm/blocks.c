// Blocks that contain their file, place, writer, sequence number and a checksum. Each has one writer and many
// readers.
#include "mixed.h"

struct block {
    uint64_t magic;
    uint32_t file, index, writer, spare;
    uint64_t sequence, fill[59], sum;
};
_Static_assert(sizeof(struct block) == 512, "blocks do not straddle pages");

static const uint64_t magic = 0x6b636f6c62ull;

static uint64_t sum(const struct block *block)
{
    const uint64_t *words = (const uint64_t *)block;
    uint64_t sum = 14695981039346656037ull;
    for (size_t i = 0; i + 1 < sizeof *block / 8; i++)
        sum = (sum ^ words[i]) * 1099511628211ull;
    return sum;
}

static int open_blocks(int which)
{
    char name[32];
    snprintf(name, sizeof name, "blocks.%d", which);
    return make(name);
}

static void write_block(int which)
{
    struct worker *worker = &storm->worker[place];
    struct block block = {magic, which / BLOCKS, which % BLOCKS, place};
    block.sequence = storm->written[which] + 1;
    for (int i = 0; i < 59; i++)
        block.fill[i] = block.sequence * 2654435761u + i + which;
    block.sum = sum(&block);
    int file = open_blocks(which / BLOCKS);
    worker->writing = which + 1;
    if (pwrite(file, &block, sizeof block, (which % BLOCKS) * sizeof block) != sizeof block)
        bad("a block cannot be written: %s", strerror(errno));
    storm->written[which] = block.sequence;
    worker->writing = 0;
    close(file);
}

static void read_block(int which)
{
    struct worker *writer = &storm->worker[which % storm->workers];
    struct block block;
    long before = storm->written[which];
    int busy = writer->writing == which + 1;
    if (before == 0)
        return;
    int file = open_blocks(which / BLOCKS);
    ssize_t got = pread(file, &block, sizeof block, (which % BLOCKS) * sizeof block);
    close(file);
    busy |= writer->writing == which + 1;
    long after = storm->written[which];
    if (got != sizeof block)
        lost("block %d.%d was written %ld times and reads %zd bytes", which / BLOCKS, which % BLOCKS, before, got);
    else if (block.sum != sum(&block) || block.magic != magic) {
        // The kernel lets a reader see half a write; a killed writer may leave half of one.
        if (busy || before != after)
            storm->torn++;
        else
            lost("block %d.%d is no block: written %ld times, sequence %ld", which / BLOCKS, which % BLOCKS, before,
                 (long)block.sequence);
    } else if (block.file * BLOCKS + block.index != (uint32_t)which || block.writer != which % storm->workers)
        bad("block %d.%d is %u.%u of writer %u", which / BLOCKS, which % BLOCKS, block.file, block.index, block.writer);
    else if ((long)block.sequence < before || (long)block.sequence > after + 1)
        lost("block %d.%d was written %ld times and has sequence %ld", which / BLOCKS, which % BLOCKS, before,
             (long)block.sequence);
    storm->checks++;
}

void blocks_begin(void)
{
    // The write in which the place's last worker was killed is repeated.
    long half = storm->worker[place].writing;
    if (half)
        write_block(half - 1);
}

void blocks_turn(void)
{
    for (int i = 0; i < 4; i++) {
        int which = below(BLOCK_FILES * BLOCKS / storm->workers) * storm->workers + place;
        write_block(which);
        for (int j = 0; j < 4; j++)
            read_block(below(BLOCK_FILES * BLOCKS));
    }
}

void blocks_end(void)
{
    for (int which = 0; which < BLOCK_FILES * BLOCKS; which++)
        read_block(which);
}
