# Static programs: they see what the kernel would show them, and start others as any program does.

# Runs the session's function `each` with every way to link statically: name, compiler and options.
ways() {
    each glibc gcc -static; each pie gcc -static-pie; each musl musl-gcc -static
}

# A program that tells what it was started with.
started() {
    cat >started.c <<'C'
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <unistd.h>
extern char **environ, _start[];
static __thread int local = 42, zero;
static int initialised = 7, bss[100000];
static char text[1 << 16];
static long contents(const char *path)
{
    int fd = open(path, O_RDONLY), got;
    if (fd < 0)
        return -1;
    for (long all = 0;; all += got)
        if ((got = read(fd, text + all, sizeof text - all)) <= 0) {
            close(fd);
            return all;
        }
}
int main(int count, char **arguments)
{
    int sum = 0;
    for (int i = 0; i < 100000; i++)
        sum += bss[i];
    printf("%d %d %d %d\n", local, zero, initialised, sum);
    for (int i = 0; i < count; i++)
        printf("argument %s\n", arguments[i]);
    for (char **at = environ; *at; at++)
        if (!strncmp(*at, "LIGHTPATH_", 10) || !strncmp(*at, "LD_", 3) || !strncmp(*at, "OWN", 3))
            printf("%s\n", *at);
    Elf64_Phdr *headers = (void *)getauxval(AT_PHDR);
    int loads = 0;
    for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++)
        loads += headers[i].p_type == PT_LOAD;
    printf("%s %d %d %d %d\n", (char *)getauxval(AT_EXECFN), loads > 1, getauxval(AT_ENTRY) == (long)_start,
           getauxval(AT_BASE) == 0, getauxval(AT_SYSINFO_EHDR) != 0);
    printf("%lu %d\n", getauxval(AT_PHENT), (long)arguments % 16 == 8);
    long bytes = contents("/proc/self/auxv");
    Elf64_auxv_t *vector = (void *)text;
    for (; (char *)vector < text + bytes && vector->a_type; vector++)
        if (vector->a_type == AT_ENTRY || vector->a_type == AT_PHDR)
            printf("%d\n", vector->a_un.a_val == getauxval(vector->a_type));
    char name[16] = "", path[4096] = "";
    prctl(PR_GET_NAME, name);
    puts(name);
    bytes = contents("/proc/self/cmdline");
    for (long i = 0; i < bytes; i++)
        putchar(text[i] ? text[i] : '|');
    printf("\n%zd ", readlink("/proc/self/exe", path, sizeof path));
    puts(path);
    char other[64];
    snprintf(other, sizeof other, "/proc/%d/exe", getpid());
    printf("%zd %zd\n", readlink(other, path, sizeof path), readlink("/proc/thread-self/exe", path, 3));
    printf("%d %.3s\n", (int)contents("/proc/self/exe") > 4096, text + 1);
    if (count > 1 && !strcmp(arguments[1], "again")) {
        fflush(stdout);
        execl("/proc/self/exe", "itself", "once more", (char *)0);
    }
    return 3;
}
C
}

#:: started needs gcc,musl-gcc
started; each() { local n=$1; shift; "$@" -o "$n" started.c && ./"$n" a 'b c' ''; echo $?; OWN=x LD_PRELOAD=nosuch.so ./"$n" again; echo $?; (exec -a name "$T/$n"); mkdir -p d; cp "$n" /tmp/started.$$; /tmp/started.$$ | sed "s/started.$$/started/; /^[0-9]* \/tmp/d; s/^[0-9]* 3$/3/"; rm /tmp/started.$$; (cd d; ../"$n" | tail -4); }; ways; PATH=$T:$PATH; musl; rm glibc pie musl

#:: scripts needs gcc
cat >arguments.c <<'C'
#include <stdio.h>
int main(int count, char **arguments)
{
    for (int i = 0; i < count; i++)
        printf("%s|", arguments[i]);
    puts("");
    return count;
}
C
gcc -static -o arguments arguments.c; there=$(mktemp -d); cp arguments "$there/static"; for i in "$T/arguments" "$there/static"; do for f in ./script "$there/script"; do printf '#! %s one argument \n' "$i" >"$f"; chmod +x "$f"; "$f" x 'y z'; echo $?; printf '#!%s\n' "$f" >second; chmod +x second; ./second w; echo $?; ./second; env "$f" 2; find "$f" -exec {} found \;; done; done | sed "s|$there|THERE|g"; rm -r "$there" arguments script second

#:: random_differs needs gcc
printf '#include <stdio.h>\n#include <sys/auxv.h>\nint main(void){unsigned char*r=(void*)getauxval(AT_RANDOM);for(int i=0;i<16;i++)printf("%%02x",r[i]);puts("");return 0;}\n' >r.c; gcc -static -o r r.c; a=$(./r); b=$(./r); [ "$a" != "$b" ] && [ ${#a} = 32 ] && echo differs; rm r

#:: no_library needs gcc
cat >bare.c <<'C'
static long call(long n, long a, long b, long c)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
__attribute__((force_align_arg_pointer)) void _start(void)
{
    static char buffer[64];
    long fd = call(2, (long)"file", 0102, 0644);
    call(1, fd, (long)"bare\n", 5);
    call(8, fd, 1, 0);
    call(1, 1, (long)buffer, call(0, fd, (long)buffer, sizeof buffer));
    call(60, -call(2, (long)"nosuch", 0, 0), 0, 0);
}
C
for o in -O1 -O2 '-O2 -static-pie -fpie' '-O2 -Wl,-z,execstack' '-O2 -Wl,-z,noseparate-code'; do gcc $o -static -nostdlib -o bare bare.c 2>/dev/null && ./bare; echo $?; cat file; rm -f file bare; done

#:: data_in_the_code needs gcc,musl-gcc
cat >data.c <<'C'
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__asm__(".text\n.globl count\n.balign 8\ncount: .quad 41\n");
extern volatile long count;
int main(void)
{
    int fd = open("file", O_CREAT | O_RDWR, 0644);
    count += 1;
    printf("%ld %zd\n", count, write(fd, "text", 4));
    return 0;
}
C
# The segment of the code is made writable: its header's flags are read, write and execute.
each() { local n=$1; shift; "$@" -O2 -o "$n" data.c; printf '\7' | dd of="$n" bs=1 conv=notrunc seek=$(readelf -lW "$n" | awk '/^  LOAD/ { n++ } /R E/ { print 64 + 56 * (n - 1) + 4 }') 2>/dev/null; ./"$n"; echo $?; rm "$n" file; }; each glibc gcc -static; each musl musl-gcc -static

#:: exec_chains needs gcc,musl-gcc
cat >chain.c <<'C'
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
int main(int count, char **arguments)
{
    int status, fd = open("log", O_CREAT | O_APPEND | O_WRONLY, 0644);
    dprintf(fd, "%s %d\n", arguments[0], count);
    if (count < 3)
        return 10 + count;
    pid_t child = fork();
    if (!child)
        execv(arguments[2], arguments + 2);
    waitpid(child, &status, 0);
    dprintf(fd, "fork %d\n", WEXITSTATUS(status));
    if (!(child = vfork())) {
        execv(arguments[2], arguments + 2);
        _exit(99);
    }
    waitpid(child, &status, 0);
    dprintf(fd, "vfork %d\n", WEXITSTATUS(status));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_CREAT | O_APPEND | O_WRONLY, 0644);
    posix_spawn(&child, "/bin/echo", &actions, 0, (char *[]){"echo", "spawned", 0}, environ);
    waitpid(child, &status, 0);
    FILE *pipe = popen("cat spawned", "r");
    char line[100] = "";
    fgets(line, sizeof line, pipe);
    dprintf(fd, "%d %s", pclose(pipe), line);
    dprintf(fd, "system %d\n", WEXITSTATUS(system("exit 5")));
    dprintf(fd, "absent %d\n", execl("./nosuch", "nosuch", (char *)0));
    return 10 + count;
}
C
gcc -o dynamic chain.c; gcc -static -o static chain.c; gcc -static-pie -o pie chain.c; musl-gcc -static -o musl chain.c; for p in dynamic static pie musl; do ./$p x ./static x ./dynamic x ./musl x ./pie; echo $?; done; wc -l <log; sort log | uniq -c; rm dynamic static pie musl

#:: threads needs gcc,musl-gcc
cat >threads.c <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile int handled, stop;
static __thread int mine;
static void handler(int number)
{
    int fd = open("handled", O_CREAT | O_WRONLY, 0644);
    if (fd < 0 || pwrite(fd, "x", 1, 0) != 1)
        abort();
    close(fd);
    __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}
static void *work(void *argument)
{
    char name[32], text[32], got[32];
    mine = (int)(long)argument;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "file%d.%d", mine, i % 3);
        snprintf(text, sizeof text, "%d %d", mine, i);
        int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0644);
        if (fd < 0 || write(fd, text, strlen(text) + 1) < 0 || pread(fd, got, sizeof got, 0) < 0 || strcmp(text, got))
            abort();
        close(fd);
    }
    if (mine != (int)(long)argument)
        abort();
    return argument;
}
static void *kicks(void *argument)
{
    while (!stop) {
        kill(getpid(), SIGUSR1);
        usleep(100);
    }
    return 0;
}
int main(void)
{
    signal(SIGUSR1, handler);
    pthread_t kicker, threads[8];
    pthread_create(&kicker, 0, kicks, 0);
    for (int round = 0; round < 20; round++) {
        for (long i = 0; i < 8; i++)
            if (pthread_create(threads + i, 0, work, (void *)i))
                abort();
        for (long i = 0; i < 8; i++) {
            void *result;
            pthread_join(threads[i], &result);
            if (result != (void *)i)
                abort();
        }
    }
    while (!handled)
        usleep(100);
    stop = 1;
    pthread_join(kicker, 0);
    pthread_t detached;
    for (int i = 0; i < 50; i++)
        if (!pthread_create(&detached, 0, work, (void *)(9L + i)))
            pthread_detach(detached);
    puts("done");
    pthread_exit(0);
}
C
each() { local n=$1; shift; "$@" -O1 -pthread -o "$n" threads.c && ./"$n"; echo $?; ls | wc -l; rm "$n" file* handled; }; ways

#:: detached_threads_leave_nothing needs gcc,musl-gcc
cat >detached.c <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
static void *work(void *argument)
{
    close(open("file", O_CREAT | O_RDWR, 0644));
    return argument;
}
static long mapped(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        return -1;
    fclose(file);
    return pages;
}
int main(void)
{
    long before = 0;
    struct stat tasks;
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, 0) || pthread_detach(thread))
            return 1;
        while (!stat("/proc/self/task", &tasks) && tasks.st_nlink > 3)
            sched_yield();
        if (i == 50)
            before = mapped();
    }
    puts(mapped() - before < 2000 ? "as much memory as before" : "more memory");
    return 0;
}
C
each() { local n=$1; shift; "$@" -O1 -pthread -o "$n" detached.c && ./"$n"; echo $?; rm "$n" file; }; ways

#:: signals needs gcc,musl-gcc
cat >signals.c <<'C'
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static sigjmp_buf back;
static void leap(int number) { siglongjmp(back, number); }
static void tell(int number, siginfo_t *info, void *context)
{
    dprintf(1, "signal %d %d\n", number, info->si_code);
    if (number == SIGALRM)
        siglongjmp(back, 1);
}
int main(int count, char **arguments)
{
    struct stat found;
    int ends[2], fd = open("file", O_CREAT | O_RDWR, 0644);
    printf("%zd %d\n", write(fd, (void *)8, 10), errno);
    printf("%zd %d\n", read(fd, (void *)8, 10), errno);
    write(fd, "text", 4);
    printf("%zd %d\n", pread(fd, (void *)8, 10, 0), errno);
    printf("%d %d\n", open((char *)16, O_RDONLY), errno);
    printf("%d %d\n", stat("file", (void *)1), errno);
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&other, 0);
    struct sigaction action = {.sa_handler = leap, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, 0);
    if (!sigsetjmp(back, 1))
        *(volatile int *)8 = 1;
    else
        puts("segmentation fault");
    printf("%zd %d\n", pread(fd, (void *)8, 10, 0), errno);
    action = (struct sigaction){.sa_sigaction = tell, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    sigaction(SIGALRM, &action, 0);
    raise(SIGUSR1);
    pipe(ends);
    alarm(1);
    char byte;
    if (!sigsetjmp(back, 1))
        printf("%zd\n", read(ends[0], &byte, 1));
    printf("%d ", fstat(fd, &found));
    printf("%ld\n", (long)found.st_size);
    fflush(stdout);
    signal(SIGSEGV, SIG_DFL);
    if (count > 1)
        *(volatile int *)8 = 1;
    kill(getpid(), SIGTERM);
}
C
ulimit -c 0; each() { local n=$1; shift; "$@" -o "$n" signals.c && { ./"$n"; echo $?; ./"$n" x; echo $?; } 2>&1 | grep -v "Terminated\|Segmentation"; rm "$n"; }; ways

#:: vfork_storm needs gcc,musl-gcc
cat >storm.c <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *storm(void *argument)
{
    char name[32];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "s%ld", (long)argument);
        int status, fd = open(name, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0644);
        pid_t child = i % 2 ? vfork() : fork();
        if (!child) {
            dup2(fd, 1);
            execl(i % 4 < 2 ? "./line" : "/bin/echo", "echo", "x", (char *)0);
            _exit(99);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status)
            abort();
        close(fd);
    }
    return 0;
}
int main(void)
{
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(threads + i, 0, storm, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], 0);
    return 0;
}
C
printf '#include <unistd.h>\nint main(void){return write(1,"x\\n",2)!=2;}\n' >line.c; gcc -static -o line line.c; each() { local n=$1; shift; "$@" -pthread -o "$n" storm.c && ./"$n"; echo $?; cat s0 s1 s2 s3 | wc -l; rm -f "$n" s0 s1 s2 s3; }; ways; rm line

#:: threads_that_end_without_a_stack needs gcc
cat >ends.c <<'C'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *run(void *argument)
{
    char name[32];
    snprintf(name, sizeof name, "e%ld", (long)argument);
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, "text", 4) != 4 || close(fd))
        return argument;
    __asm__ volatile("xor %%esp, %%esp\n\txor %%edi, %%edi\n\tmov $60, %%eax\n\tsyscall" ::: "memory");
    return argument;
}
int main(void)
{
    for (int round = 0; round < 20; round++) {
        pthread_t threads[8];
        for (long i = 0; i < 8; i++)
            pthread_create(threads + i, 0, run, (void *)i);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], 0);
    }
    return 0;
}
C
each() { local n=$1; shift; "$@" -pthread -o "$n" ends.c && ./"$n"; echo $?; cat e?; echo; rm -f "$n" e?; }; each glibc gcc -static; each pie gcc -static-pie; each dynamic gcc

#:: go needs go limit 240 size 4G
cat >main.go <<'G'
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	runtime.GOMAXPROCS(8)
	var all sync.WaitGroup
	for i := 0; i < 200; i++ {
		all.Add(1)
		i := i
		go func() {
			defer all.Done()
			name := fmt.Sprintf("f%d", i)
			for j := 0; j < 20; j++ {
				text := bytes.Repeat([]byte{byte(j)}, 1+j*100)
				check(os.WriteFile(name, text, 0o644))
				got, err := os.ReadFile(name)
				check(err)
				if !bytes.Equal(got, text) {
					panic(name)
				}
				if j == 10 {
					runtime.GC()
				}
			}
		}()
	}
	for i := 0; i < 64; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			runtime.LockOSThread()
			for j := 0; j < 50; j++ {
				file, err := os.Open("main.go")
				check(err)
				check(file.Close())
			}
		}()
	}
	for i := 0; i < 10; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			out, err := exec.Command("cat", "go.mod").Output()
			check(err)
			if string(out) != "module m\n" {
				panic(string(out))
			}
			err = exec.Command("./nosuch").Run()
			if !os.IsNotExist(err) {
				panic(err)
			}
		}()
	}
	all.Wait()
	entries, err := os.ReadDir(".")
	check(err)
	self, err := os.Executable()
	check(err)
	fmt.Println(len(entries), self, os.Args[1:])
	for _, entry := range entries {
		if entry.Name()[0] == 'f' {
			check(os.Remove(entry.Name()))
		}
	}
	if len(os.Args) > 1 {
		check(syscall.Exec("/proc/self/exe", []string{"m"}, os.Environ()))
	}
	var none *int
	defer func() { fmt.Println(recover()) }()
	*none = 1
}
G
echo 'module m' >go.mod; export GOCACHE=$T/.cache GOPATH=$T/.path GOPROXY=off GOFLAGS=-p=2 GOTOOLCHAIN=local; go build -o m . && ./m 1 2 && ./m; echo $?; rm m main.go
cat >m.go <<'G'
package main

import (
	"fmt"
	"os"
)

func answer() int { return 42 }

func main() {
	fmt.Println("hello", answer())
	os.Exit(3)
}
G
cat >m_test.go <<'G'
package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnswer(t *testing.T) {
	if answer() != 42 {
		t.Fatal()
	}
	name := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
}
G
export TMPDIR=$T/.tmp; mkdir .tmp; go test . | cut -f1,2; go run . 2>&1; echo $?; go list -f '{{.Name}}' .; chmod -R u+w .cache .path 2>/dev/null; rm -rf .cache .path .tmp

#:: busybox_shell needs busybox limit 120
cat >hundred.sh <<'S'
b() { "$B" "$@"; }
for i in 1 2 3 4 5 6 7 8 9 10; do
    b mkdir -p d$i/e; b echo text $i >d$i/a; b cp d$i/a d$i/b; b mv d$i/b d$i/c; b cat d$i/a d$i/c | b sort | b uniq -c
    b ln -s a d$i/l; b readlink d$i/l; b ls d$i; b stat -c '%F %s' d$i/c; b grep -c text d$i/a
done
b find . -name a | b sort; b tar cf t.tar d1 d2; b tar tf t.tar | b wc -l; b sed -i 's/text/word/' d3/a; b cat d3/a
b awk '{print $2}' d4/a; b cmp d1/a d1/c; b diff d1/a d2/a; b md5sum d5/a; b gzip t.tar; b gunzip t.tar.gz; b tail -1 d6/a
b head -c 2 d7/a; b dd if=d8/a of=d8/z bs=1 count=3 2>/dev/null; b wc -c d8/z; b rm -r d9; b test -e d9 || b echo gone
b sh -c 'echo $0 $1; exit 4' x y; echo $?; b chmod 600 d1/a; b stat -c %a d1/a; b touch n; b rmdir d10/e; b xargs "$B" echo <d2/a
(cd d1 && b pwd | b sed 's|.*/||'); echo here | while read word; do echo "$word"; done; b sh -c "exec \"$B\" echo replaced"
S
B=$(command -v busybox); export B; "$B" sh hundred.sh; echo $?; rm t.tar
