/* Draws arguments. */
#include "odd.h"

static uint64_t state;
int f[8] = { -1, -1, -1, -1, -1, -1, -1, -1 };
char buffer[70000];

void begin_step(uint64_t seed, unsigned number)
{
    step = number;
    state = (seed + 1) * 0x9e3779b97f4a7c15ULL ^ (number + 1) * 0xd1b54a32d192ed03ULL;
    roll(2), roll(2);
}

unsigned roll(unsigned n)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dULL >> 33) % n;
}

unsigned slot(void)
{
    return roll(8);
}

void put(unsigned at, long fd)
{
    if (f[at] > 2 && f[at] != fd)
        close(f[at]);
    f[at] = fd;
}

static char rooms[2][5000];

static const char *name(void)
{
    static const char *names[] = { "a", "b", "c", "d", "e", "l", "k" };
    unsigned at = roll(COUNT(names));
    return is_beside && (at == 4 || roll(5) == 0) ? "m" : names[at];
}

struct path path(unsigned which)
{
    struct path p = { rooms[which], "" };
    char *room = rooms[which];
    *room = 0;
    switch (roll(60)) {
    case 0:
        snprintf(p.text, sizeof p.text, "\"\"");
        return p;
    case 1:
        p.at = NULL;
        snprintf(p.text, sizeof p.text, "NULL");
        return p;
    case 2:
        p.at = (char *)8;
        snprintf(p.text, sizeof p.text, "(char *)8");
        return p;
    case 3: {
        unsigned length = PICK(254, 255, 256);
        memset(room, 'n', length);
        room[length] = 0;
        snprintf(p.text, sizeof p.text, "name(%u)", length);
        return p;
    }
    case 4: {
        unsigned length = PICK(4094, 4095, 4096, 4097);
        for (unsigned i = 0; i < length; i++)
            room[i] = i % 2 ? '/' : '.';
        room[length] = 0;
        snprintf(p.text, sizeof p.text, "dots(%u)", length);
        return p;
    }
    case 5: {
        unsigned at = slot();
        /* The link of a closed number has known differences. */
        int fd = which || fcntl(f[at], F_GETFD) < 0 ? 0 : f[at];
        sprintf(room, "/proc/self/fd/%d%s", fd, PICK(0, 0, 1) ? "/a" : "");
        break;
    }
    case 6:
        sprintf(room, "/proc/self/cwd/%s", name());
        break;
    case 7:
        sprintf(room, "%s/%s", base, name());
        snprintf(p.text, sizeof p.text, "BASE \"/%s\"", room + strlen(base) + 1);
        return p;
    default: {
        unsigned parts = 1 + roll(2) + (roll(4) == 0);
        for (unsigned i = 0; i < parts; i++) {
            /* `..` only behind a name, so that few paths lead out. */
            const char *part = roll(14) ? name() : roll(2) && i + 1 == parts ? "." : i ? ".." : "a";
            strcat(strcat(room, i ? roll(20) ? "/" : "//" : ""), part);
        }
        if (roll(14) == 0)
            strcat(room, roll(3) ? "/" : "/.");
    }
    }
    snprintf(p.text, sizeof p.text, "\"%s\"", room);
    return p;
}

int may_be_target(const struct path *p)
{
    /* Behind a link to `.`, as many `..` as a path has may lead out. */
    return !strstr(p->text, "..") && strncmp(p->text, "dots", 4) && strcmp(p->text, "\".\"");
}

int is_link_of_descriptor(const struct path *p)
{
    static const char fds[] = "/proc/self/fd/";
    return p->at > (char *)8 && !strncmp(p->at, fds, sizeof fds - 1) && !strchr(p->at + sizeof fds - 1, '/');
}

int dir_fd(char *text)
{
    unsigned at = slot();
    if (roll(3)) {
        strcpy(text, "AT_FDCWD");
        return AT_FDCWD;
    }
    sprintf(text, "f[%u]", at);
    return f[at];
}

long amount(void)
{
    return PICK(0, 1, 2, 7, 100, 255, 4095, 4096, 4097, 12288, 65536, -1, INT64_MAX, INT64_MIN, 1L << 31);
}
long small(void)
{
    return PICK(0, 1, 2, 7, 100, 4095, 4096, 4097, 8192, 12288);
}
long where(void)
{
    return PICK(0, 0, 1, 10, 4095, 4096, 5000, 100000, -1, -2, INT64_MAX, INT64_MIN, 1L << 40);
}
void *memory(char *text)
{
    switch (roll(20)) {
    case 0:
        strcpy(text, "NULL");
        return NULL;
    case 1:
        strcpy(text, "(void *)8");
        return (void *)8;
    default:
        strcpy(text, "buffer");
        return buffer;
    }
}
unsigned sum(long n)
{
    unsigned h = 1;
    for (long i = 0; i < n && i < (long)sizeof buffer; i++)
        h = h * 31 + (unsigned char)buffer[i];
    return n > 0 ? h & 0xffff : 0;
}
void fill(void)
{
    for (unsigned i = 0; i < sizeof buffer; i++)
        buffer[i] = 'a' + (i + step) % 26;
}


int is_special(int dir, const char *name)
{
    struct stat st;
    return !fstatat(dir, name, &st, 0) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}
