# Programs of many megabytes in the mount, which are executed in place.

# A program of 9 MiB, most of it a table, that tells what it finds of itself in memory.
large() {
    head -c 4000000 /dev/zero | tr '\0' a >part; seq 700000 | tr -d '\n' >>part; head -c 3145728 /dev/zero >>part
    cat >large.c <<'C'
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

__asm__(".section .rodata\n.globl table\n.balign 4096\ntable:\n.incbin \"part\"\n.globl table_end\ntable_end:\n.text\n");
extern const unsigned char table[], table_end[];
static int data[3000] = {1, 2, 3, [2999] = 4};
static char bss[100001];
static __thread int words[3] = {7, 8, 9};
static int started;

static int real(void) { return 42; }
#ifdef __GLIBC__
static int (*pick(void))(void) { return real; }
int chosen(void) __attribute__((ifunc("pick")));
#else
int chosen(void) { return real(); }
#endif
static void before(void) { started += 10; }
__attribute__((section(".preinit_array"), used)) static void (*early)(void) = before;
__attribute__((constructor)) static void up(void) { started++; }

static unsigned long sum(void)
{
    unsigned long s = 0;
    for (const unsigned char *at = table; at < table_end; at++)
        s = s * 31 + *at;
    return s;
}

static void *thread(void *unused)
{
    words[0]++;
    return (void *)(sum() + words[0]);
}

static void tell(const char *what)
{
    long zero = 0;
    for (unsigned i = 0; i < sizeof bss; i++)
        zero += bss[i];
    printf("%s: %lx %d %d %ld %d %d %d\n", what, sum(), data[0] + data[1] + data[2], data[2999], zero, words[2],
           started, chosen());
    fflush(stdout);
}

static void vector(int by_name)
{
    char text[4096];
    int fd = open("/proc/self/auxv", O_RDONLY);
    long bytes = read(fd, text, sizeof text), same = 0;
    close(fd);
    for (ElfW(auxv_t) *at = (void *)text; (char *)at < text + bytes && at->a_type; at++)
        if (at->a_type == AT_BASE || at->a_type == AT_ENTRY || at->a_type == AT_PHDR)
            same += at->a_un.a_val == getauxval(at->a_type);
    char name[16] = "";
    if (by_name)
        prctl(PR_GET_NAME, name);
    const ElfW(Phdr) *headers = (void *)getauxval(AT_PHDR);
    const char *loader = "";
    for (unsigned i = 0; i < getauxval(AT_PHNUM); i++)
        if (headers[i].p_type == PT_INTERP)
            loader = (char *)headers - headers[0].p_vaddr + headers[i].p_vaddr;
    printf("%ld %.4s %s %s %d\n", same, (char *)getauxval(AT_BASE) + 1, name, loader, sbrk(0) > (void *)0);
}

static void files(const char *self)
{
    int fd = open(self, O_RDWR);
    printf("%d %d", fd, errno);
    printf(" %d %d", truncate(self, 5), errno);
    char path[4096] = "";
    readlink("/proc/self/exe", path, sizeof path - 1);
    fd = open("/proc/self/exe", O_RDONLY);
    printf(" %s %ld\n", strrchr(path, '/'), (long)lseek(fd, 0, SEEK_END) > 9000000);
    close(fd);
}

int main(int count, char **arguments)
{
    setlinebuf(stdout);
    tell("start");
    vector(count < 2 || strcmp(arguments[1], "once more"));
    files(arguments[0]);
    data[0] = 100;
    bss[5] = 3;
    if (count > 1 && !strcmp(arguments[1], "again")) {
        execl("/proc/self/exe", arguments[0], "once more", NULL);
        puts("not executed");
    }
    if (count > 1 && !strcmp(arguments[1], "gone")) {
        unlink(arguments[0]);
        for (int i = 0; i < 30; i++) {
            char name[20];
            snprintf(name, sizeof name, "fill%d", i);
            int fd = open(name, O_RDWR | O_CREAT, 0600);
            memset(bss, i + 1, 65536);
            for (int j = 0; j < 16; j++)
                write(fd, bss, 65536);
            memset(bss, 0, 65536);
            close(fd);
        }
        execl("nosuch", "nosuch", NULL);
        printf("exec: %d", errno);
        execl(".", ".", NULL);
        printf(" %d\n", errno);
        for (int i = 0; i < 30; i++) {
            char name[20];
            snprintf(name, sizeof name, "fill%d", i);
            unlink(name);
        }
        if (fork() == 0) {
            tell("child");
            _exit(0);
        }
        wait(NULL);
    }
    pthread_t other;
    void *found;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, &found);
    printf("thread: %lx\n", (unsigned long)found);
    munmap((void *)(table + 8192), 4096);
    mprotect((void *)(table + 16384), 4096, PROT_READ | PROT_WRITE);
    ((unsigned char *)table)[16384] = 'b';
    printf("%c%c%c\n", table[8191], table[12288], table[16384]);
    return 5;
}
C
}

#:: started needs gcc limit 120
large; each() { gcc -w -rdynamic large.c -o program -pthread "$@" && ./program; echo $?; ./program again; echo $?; PATH=$T:$PATH program x | tail -2; (exec -a ./name ./program | tail -1); cp program twin; ./program gone; echo $?; ls; mv twin program; }; each; each -no-pie; each -no-pie -Wl,-z,noseparate-code; each -Wl,-z,max-page-size=0x200000,-z,now; rm -f program twin part

#:: sparse needs gcc limit 120
large; gcc -w large.c -o whole -pthread; cp --sparse=always whole program; cmp whole program && ./program | head -1; : >twin; truncate -s "$(stat -c %s whole)" twin; dd if=whole of=twin bs=3000 conv=notrunc,sparse status=none; chmod +x twin; ./twin gone; rm whole program part

#:: named_and_limited needs gcc limit 120
large; printf '%s\n' '#include <stdio.h>' '#include <sys/auxv.h>' '__attribute__((constructor)) static void tell(void) { puts((char *)getauxval(AT_EXECFN)); }' >named.c; gcc -w large.c named.c -o program -pthread; ./program | head -1; (exec -a other "$T/program" | head -1 | sed "s:$T:T:"); (PATH=$T; program) | head -1 | sed "s:$T:T:"; (ulimit -f 8; ./program; echo $? >&2) 2>&1 | sed -n '2p;$p'; rm -f program named.c part

#:: named_in_other_ways needs gcc,musl-gcc limit 120
large; printf '%s\n' '#include <stdio.h>' '#include <sys/auxv.h>' '#include <sys/prctl.h>' '__attribute__((constructor)) static void tell(void) { char comm[16]; prctl(PR_GET_NAME, comm); printf("%s %s\n", (char *)getauxval(AT_EXECFN), comm); }' >named.c; gcc -w large.c named.c -o program -pthread; echo 'int main(void) {}' >main.c; gcc main.c named.c -o small; musl-gcc main.c named.c -o musl; ln -s small linked; printf '#!%s\n' "$T/small" >script; chmod +x script; for way in NONE= LD_LIBRARY_PATH=/nowhere LD_LIBRARY_PATH=$T LD_PRELOAD=libm.so.6 LD_AUDIT=/nowhere.so; do export "$way"; for p in ./program ./small ./musl ./linked ./script; do $p | head -1; done; (PATH=$T; program | { read line; echo "$line"; }; small) | sed "s:$T:T:"; unset "${way%%=*}"; done 2>/dev/null; rm -f program small musl linked script named.c main.c part

#:: in_many_pieces needs gcc limit 120
large; gcc -w large.c -o whole -pthread; size=$(stat -c %s whole); for bytes in 262144 65536; do rm -f program; for i in $(seq 0 $((size / bytes))); do dd if=whole of=program bs=$bytes skip=$i seek=$i count=1 conv=notrunc status=none; dd if=/dev/urandom of=other bs=4k seek=$i count=1 conv=notrunc status=none; done; chmod +x program; cmp whole program; ./program | head -1; ./program gone | tail -2; done; rm whole other part

#:: many_at_once needs gcc limit 120
large; gcc -w large.c -o program -pthread; for i in 1 2 3 4 5 6; do ./program >out$i & done; wait; cat out? | sort | uniq -c; for i in $(seq 30); do ./program >out & sleep 0.00$((i % 10)); kill -9 $! 2>/dev/null; wait $! 2>/dev/null; done; rm -f program out; ls; echo 'int main(void) { return 3; }' | gcc -x c - -o program; ./program; echo $?; rm program part

#:: replaced needs gcc limit 120
large; gcc -w large.c -o program -pthread; ./program | head -1; printf x >>part; gcc -w large.c -o program -pthread; ./program | head -1; cp program other; printf y | dd of=other bs=1 seek=3000000 conv=notrunc status=none; ./other | head -1; cp part /tmp/large.$$; ./program | head -1 & wait; rm -f /tmp/large.$$ part program other

#:: cut_short needs gcc limit 120
large; gcc -w large.c -o program -pthread; size=$(stat -c %s program); for cut in 100 5000 7000000; do head -c $((size - cut)) program >short; chmod +x short; s=$(bash -c './short >/dev/null 2>&1; echo $?' 2>/dev/null); [ $s = 5 ] && echo runs || echo fails; done; for n in 63 64 100 4096; do head -c $n program >short; s=$(bash -c './short >/dev/null 2>&1; echo $?' 2>/dev/null); [ $s = 5 ] && echo runs || echo fails; done; rm -f short program part

#:: loader_is_missing needs gcc
large; gcc -w large.c -o program -pthread -Wl,--dynamic-linker=/nowhere/ld.so; ./program 2>/dev/null; echo $?; gcc -w large.c -o program -pthread -Wl,--dynamic-linker="$T/ld.so"; ./program 2>/dev/null; echo $?; rm program part

#:: with_musl needs gcc,musl-gcc limit 120
large; musl-gcc -w large.c -o program; ./program; echo $?; ./program again | tail -2; ./program gone; echo $?; rm -f program part

#:: debugged needs gcc,gdb limit 120
large; gcc -w -g large.c -o program -pthread; printf 'break sum\nrun\nbt\ncontinue\ninfo symbol chosen\nprint data[2999]\nkill\nquit\n' >commands; gdb -batch -nx -x commands ./program 2>&1 | grep -E '^#|^Breakpoint|= |in section|annot' | sed 's/0x[0-9a-f]*/X/g; s/of .*//'; rm program part
