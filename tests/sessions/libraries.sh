# Programs whose libraries lie in the mount: what the loader finds before the program starts.

# A library with one function `who`, that tells its name and what it is linked with.
library() { # file, text, gcc's further arguments
    local file=$1 text=$2; shift 2
    echo "const char *who(void) { return \"$text\"; }" | gcc -x c - -shared -fPIC -o "$file" "$@"
}

# A program that prints what `who` says, and the path by which the loader knows where that is.
main() {
    cat >main.c <<'X'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
const char *who(void);
int main(void)
{
    Dl_info info;
    dladdr((void *)who, &info);
    printf("%s %s\n", who(), info.dli_fname);
    return 0;
}
X
}

# What ldd says of a library of ours.
foo() {
    sed -n "s:$T:T:; s:/\\./:/:; s/^[[:space:]]*\(libfoo.*\) (0x.*/\1/p; s/^[[:space:]]*\(libfoo.*not found\)/\1/p"
}

#:: library_path needs gcc
main; mkdir lib other sub; library lib/libfoo.so first; library other/libfoo.so second; gcc main.c -Llib -lfoo -o app; ./app 2>&1; echo $?; LD_LIBRARY_PATH=lib ./app; LD_LIBRARY_PATH=$PWD/lib ./app; LD_LIBRARY_PATH=nosuch:other:lib ./app; LD_LIBRARY_PATH=/usr/lib:$T/lib/../other ./app; (cd lib; LD_LIBRARY_PATH=. ../app; LD_LIBRARY_PATH= ../app 2>&1; echo $?; LD_LIBRARY_PATH=: ../app; LD_LIBRARY_PATH=/nosuch: ../app); (cd sub; LD_LIBRARY_PATH=../lib ../app); LD_LIBRARY_PATH="lib;other" ./app; LD_LIBRARY_PATH='$ORIGIN/other' ./app; LD_LIBRARY_PATH='${ORIGIN}/lib' ./app; export LD_LIBRARY_PATH=$T/other; ./app; sh -c ./app; (cd /; "$T/app"; env -i "$T/app" 2>&1; env LD_LIBRARY_PATH=$T/lib "$T/app"); env | grep LD_; ln -s other link; LD_LIBRARY_PATH=link ./app; chmod 0 other/libfoo.so; rm lib/libfoo.so; echo junk >lib/libfoo.so; LD_LIBRARY_PATH=lib ./app 2>&1; echo $?

#:: run_path needs gcc
main; mkdir lib bin; library lib/libfoo.so found; for tags in enable disable; do for path in '$ORIGIN/../lib' '${ORIGIN}/../lib' '$ORIGIN:$ORIGIN/../lib' "$T/lib" "/nosuch:$T/lib" lib "$T/./bin//../lib"; do gcc main.c -Llib -lfoo -Wl,--$tags-new-dtags "-Wl,-rpath,$path" -o bin/app; ./bin/app; (cd /; "$T/bin/app" 2>&1; echo $?); done; done; gcc main.c -Llib -lfoo '-Wl,-rpath,$ORIGIN/../lib' -o bin/app; ln -s bin/app link; ./link; ln bin/app hard; ./hard 2>&1; mkdir bin/lib; library bin/lib/libfoo.so nearer; mv bin/app app; mkdir -p a/b; mv app a/b; mv lib a; ./a/b/app; PATH=$T/a/b app; echo '#!/bin/sh
exec "$(dirname "$0")/app"' >a/b/wrapper; chmod +x a/b/wrapper; a/b/wrapper; mv a "name with spaces"; "name with spaces/b/app"; rm -r "name with spaces/lib"; "name with spaces/b/app" 2>&1; echo $?

#:: precedence needs gcc
main; mkdir new old env; library new/libfoo.so runpath; library env/libfoo.so environment; library old/libfoo.so rpath; gcc main.c -Lnew -lfoo -Wl,--enable-new-dtags "-Wl,-rpath,$T/new" -o runs; gcc main.c -Lnew -lfoo -Wl,--disable-new-dtags "-Wl,-rpath,$T/old" -o has; ./runs; ./has; export LD_LIBRARY_PATH=$T/env; ./runs; ./has; rm old/libfoo.so; ./has; rm env/libfoo.so; ./runs; ./has 2>&1; echo $?; rm runs has

#:: needed_by_path needs gcc
main; mkdir sub; library libfoo.so slash; library sub/libfoo.so below; gcc main.c ./libfoo.so -o app; ./app; (cd sub; ../app); (cd /; "$T/app" 2>&1; echo $?); gcc main.c "$T/libfoo.so" -o absolute; (cd /; "$T/absolute"); mv libfoo.so gone; ./absolute 2>&1; echo $?; LD_LIBRARY_PATH=sub ./absolute 2>&1; echo $?; rm absolute

#:: transitive needs gcc
main; mkdir -p app one two three; echo 'const char *deep(void) { return "deep"; }' | gcc -x c - -shared -fPIC -o three/libdeep.so; echo 'const char *deep(void); const char *mid(void) { return deep(); }' | gcc -x c - -shared -fPIC -o two/libmid.so -Lthree -ldeep '-Wl,-rpath,$ORIGIN/../three'; echo 'const char *mid(void); const char *who(void) { return mid(); }' | gcc -x c - -shared -fPIC -o one/libfoo.so -Ltwo -lmid '-Wl,-rpath,$ORIGIN/../two'; gcc main.c -Lone -lfoo '-Wl,-rpath,$ORIGIN/../one' -Wl,-rpath-link,two:three -o app/app; ./app/app; (cd /; "$T/app/app"); mkdir tree; mv app one two three tree; tree/app/app; mv tree/two/libmid.so tree/; tree/app/app 2>&1; echo $?; LD_LIBRARY_PATH=tree tree/app/app 2>&1; LD_LIBRARY_PATH=tree:tree/three tree/app/app

#:: sonames needs gcc
main; mkdir lib; library lib/libfoo.so.1.2 versioned -Wl,-soname,libfoo.so.1; ln -s libfoo.so.1.2 lib/libfoo.so.1; ln -s libfoo.so.1 lib/libfoo.so; gcc main.c -Llib -lfoo -o app; export LD_LIBRARY_PATH=lib; ./app; library lib/libfoo.so.1.3 newer -Wl,-soname,libfoo.so.1; ln -sf libfoo.so.1.3 lib/libfoo.so.1; ./app; rm lib/libfoo.so.1; ./app 2>&1; echo $?; ln -s loop lib/loop; ln -s loop lib/libfoo.so.1; ./app 2>&1; echo $?; rm lib/libfoo.so.1; ln -s "$T/lib/libfoo.so.1.2" lib/libfoo.so.1; ./app

#:: shadow needs gcc,sed
mkdir lib; cat >z.c <<'X'
const char *zlibVersion(void) { return "ours"; }
X
printf '#include <stdio.h>\nconst char *zlibVersion(void);\nint main(void) { puts(zlibVersion()); return 0; }\n' >main.c; gcc -shared -fPIC -Wl,-soname,libm.so.6 -o lib/libm.so.6 z.c; gcc main.c lib/libm.so.6 -o app; ./app 2>&1 | sed 's/.*symbol lookup error.*/not ours/'; LD_LIBRARY_PATH=lib ./app; LD_LIBRARY_PATH=$T/lib:/lib ./app; gcc main.c lib/libm.so.6 '-Wl,-rpath,$ORIGIN/lib' -o own; ./own

#:: preload needs gcc
printf '#include <stdio.h>\n#include <unistd.h>\n__attribute__((constructor)) static void up(void) { printf("up %%s", TEXT); fflush(stdout); }\nint getpagesize(void) { return 7; }\n' >l.c; gcc -shared -fPIC '-DTEXT="one\n"' -o one.so l.c; gcc -shared -fPIC '-DTEXT="two\n"' -o two.so l.c; printf '#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint main(void) { printf("%%d %%s\\n", getpagesize(), getenv("LD_PRELOAD")); return 0; }\n' >m.c; gcc -o app m.c; ./app; LD_PRELOAD=./one.so ./app; LD_PRELOAD=$T/one.so ./app; LD_PRELOAD="$T/two.so ./one.so" ./app; LD_PRELOAD=./one.so:two.so LD_LIBRARY_PATH=. ./app; LD_PRELOAD=one.so LD_LIBRARY_PATH=$T ./app; LD_PRELOAD=./nosuch.so ./app 2>&1; LD_PRELOAD=./one.so /bin/true; LD_PRELOAD=$T/one.so sh -c 'env | grep PRELOAD; exec /bin/echo end'; cp app "$OUT/app"; LD_PRELOAD=$T/two.so "$OUT/app"; export LD_PRELOAD=$T/one.so; ./app | cat; unset LD_PRELOAD; ./app

#:: host_programs needs gcc,python3 limit 120
main; mkdir lib; library lib/libfoo.so inside; gcc main.c -Llib -lfoo -o "$OUT/plain"; gcc main.c -Llib -lfoo "-Wl,-rpath,$T/lib" -o "$OUT/path"; gcc main.c "$T/lib/libfoo.so" -o "$OUT/slash"; ln -s "$T/lib" "$OUT/link"; gcc main.c -Llib -lfoo '-Wl,-rpath,$ORIGIN/link' -o "$OUT/origin"; "$OUT/plain" 2>&1 | sed 's/.*: //'; LD_LIBRARY_PATH=lib "$OUT/plain"; LD_LIBRARY_PATH=$T/lib "$OUT/plain"; "$OUT/path"; (cd /; "$OUT/path"; "$OUT/slash"); "$OUT/slash"; "$OUT/origin" | sed 's/ .*//'; LD_LIBRARY_PATH=$OUT/link "$OUT/plain" | sed 's/ .*//'; cat >use.py <<'X'
import ctypes, os, subprocess, sys, threading
lib = ctypes.CDLL("libfoo.so")
lib.who.restype = ctypes.c_char_p
print(lib.who(), os.environ.get("LD_LIBRARY_PATH") is not None, "LD_AUDIT" in os.environ, "LD_PRELOAD" in os.environ)
def work(number):
    with open(f"f{number}", "w") as f: f.write("x" * number)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(subprocess.run([sys.executable, "-c", "import ctypes; ctypes.CDLL('libfoo.so'); print('child')"], capture_output=True).stdout)
if os.fork() == 0:
    print(open("f3").read(), flush=True); os._exit(0)
print(os.wait()[1], sorted(os.listdir(".")))
X
LD_LIBRARY_PATH=lib python3 use.py; LD_LIBRARY_PATH=$T/lib python3 use.py; sleep 3; for i in 1 2; do "$OUT/path"; LD_LIBRARY_PATH=lib "$OUT/plain"; done

#:: environment needs gcc,python3
mkdir lib; cat >e.c <<'X'
#include <stdio.h>
extern char **environ;
int main(void) { for (char **e = environ; *e; e++) if ((*e)[0] != '_') puts(*e); return 0; }
X
gcc -o e e.c '-Wl,-rpath,$ORIGIN/lib'; env -i ./e; env -i A=1 LD_LIBRARY_PATH=lib B=2 ./e; env -i LD_LIBRARY_PATH=/usr/lib LD_PRELOAD= ./e; env -i LD_AUDIT=/nosuch A=1 ./e 2>/dev/null; python3 - <<'X'
import os, ctypes
libc = ctypes.CDLL(None)
def run(*env):
    pid = os.fork()
    if pid == 0:
        strings = (ctypes.c_char_p * (len(env) + 1))(*[e.encode() for e in env], None)
        libc.execve(b"./e", (ctypes.c_char_p * 2)(b"e", None), strings)
        os._exit(9)
    print(os.waitpid(pid, 0)[1], flush=True)
run(); run("A=1", "LD_LIBRARY_PATH=lib", "A=2"); run("LD_LIBRARY_PATH=/nosuch", "LD_LIBRARY_PATH=lib"); run("LD_PRELOAD=", "LD_AUDIT=", "B=3", "LD_AUDIT="); run("LD_LIBRARY_PATH=" + "lib:" * 5000)
X

#:: threads_and_signals needs gcc limit 120
mkdir lib; cat >l.c <<'X'
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__thread int mine __attribute__((tls_model("initial-exec"))) = 5;
__thread char more[300];
int work(int number)
{
    char name[16];
    sprintf(name, "w%d", number);
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < 1000; i++) pwrite(fd, name, strlen(name), i * 3);
    close(fd);
    more[1] = 1;
    return mine++ + more[0];
}
X
cat >m.c <<'X'
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int work(int);
static void *run(void *p) { return (void *)(long)(work((long)p) + work((long)p)); }
static volatile sig_atomic_t seen;
static void on(int s) { seen = s; }
int main(void)
{
    pthread_t t[8];
    long sum = work(100), got;
    signal(SIGUSR1, on);
    for (long i = 0; i < 8; i++) pthread_create(&t[i], 0, run, (void *)i);
    for (int i = 0; i < 8; i++) { pthread_join(t[i], (void **)&got); sum += got; }
    raise(SIGUSR1);
    printf("%ld %d\n", sum, seen == SIGUSR1);
    fflush(stdout);
    pid_t p = fork();
    if (!p) _exit(work(50));
    int status;
    waitpid(p, &status, 0);
    printf("%d %d\n", WEXITSTATUS(status), system("ls | wc -l"));
    return 0;
}
X
gcc -shared -fPIC -o lib/libwork.so l.c; gcc -pthread -o app m.c -Llib -lwork '-Wl,-rpath,$ORIGIN/lib'; ./app; ./app

#:: cpp_library needs g++ limit 120
mkdir -p build/lib build/bin; cat >shape.cpp <<'X'
#include <fstream>
#include <stdexcept>
#include <string>
std::string shape(const std::string &path) { std::ifstream f(path); if (!f) throw std::runtime_error("no " + path); std::string s; std::getline(f, s); return s; }
X
cat >main.cpp <<'X'
#include <iostream>
#include <string>
std::string shape(const std::string &path);
int main(int c, char **v) { try { std::cout << shape(v[1]) << std::endl; } catch (std::exception &e) { std::cout << "caught " << e.what() << std::endl; } }
X
g++ -shared -fPIC -g0 -o build/lib/libshape.so.2 -Wl,-soname,libshape.so.2 shape.cpp; ln -s libshape.so.2 build/lib/libshape.so; g++ -g0 main.cpp -Lbuild/lib -lshape -Wl,-rpath,$PWD/build/lib -o build/bin/shape; echo circle >c; build/bin/shape c; build/bin/shape nosuch; cp -r build installed; LD_LIBRARY_PATH=$PWD/installed/lib installed/bin/shape c; rm -r build; installed/bin/shape c 2>&1; echo $?; rm installed/bin/shape

#:: asan needs gcc limit 120
mkdir lib; printf '#include <stdlib.h>\nint first(int n) { int *a = malloc(n * sizeof *a); a[0] = n; int r = a[0]; free(a); return r; }\n' >l.c; printf '#include <stdio.h>\nint first(int);\nint main(void) { printf("%%d\\n", first(9)); return 0; }\n' >m.c; gcc -fsanitize=address,undefined -shared -fPIC -o lib/libfirst.so l.c; gcc -fsanitize=address,undefined -o app m.c -Llib -lfirst '-Wl,-rpath,$ORIGIN/lib'; ASAN_OPTIONS=detect_leaks=0 ./app

#:: openmp needs gcc limit 120
mkdir lib; printf '#include <omp.h>\nint sum(int n) { int s = 0;\n#pragma omp parallel for reduction(+:s) num_threads(4)\nfor (int i = 0; i < n; i++) s += i;\nreturn s; }\n' >l.c; printf '#include <stdio.h>\nint sum(int);\nint main(void) { printf("%%d\\n", sum(1000)); return 0; }\n' >m.c; gcc -fopenmp -shared -fPIC -o lib/libsum.so l.c; gcc -o app m.c -Llib -lsum '-Wl,-rpath,$ORIGIN/lib'; ./app

#:: static_tls needs gcc
mkdir lib; printf '__thread char big[24000] __attribute__((tls_model("initial-exec"))) = {7};\nint first(void) { return big[0]++; }\n' >l.c; printf '#include <pthread.h>\n#include <stdio.h>\nint first(void);\nstatic void *run(void *p) { printf("%%d\\n", first()); return p; }\nint main(void) { pthread_t t; run(0); pthread_create(&t, 0, run, 0); pthread_join(t, 0); run(0); return 0; }\n' >m.c; gcc -shared -fPIC -o lib/libbig.so l.c; gcc -pthread -o app m.c -Llib -lbig '-Wl,-rpath,$ORIGIN/lib'; ./app

#:: dlopen needs gcc
mkdir -p lib plug; library plug/plug.so plugged; library lib/libdep.so dep; echo 'const char *dep(void); const char *who(void) { return dep(); }' >w.c; echo 'const char *dep(void) { return "dependency"; }' | gcc -x c - -shared -fPIC -o lib/libdep.so; gcc -shared -fPIC -o lib/libfoo.so w.c -Llib -ldep '-Wl,-rpath,$ORIGIN'; cat >m.c <<'X'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
const char *who(void);
static int each(struct dl_phdr_info *i, size_t n, void *p) { if (strstr(i->dlpi_name, "/lib/lib") && strstr(i->dlpi_name, "/t/")) puts(i->dlpi_name); return 0; }
int main(int c, char **v)
{
    puts(who());
    for (int i = 1; i < c; i++) {
        void *h = dlopen(v[i], RTLD_NOW | RTLD_LOCAL);
        if (!h) { puts(dlerror()); continue; }
        const char *(*f)(void) = dlsym(h, "who");
        Dl_info info;
        dladdr(f, &info);
        printf("%s %s\n", f(), info.dli_fname);
        dlclose(h);
    }
    dl_iterate_phdr(each, 0);
    return 0;
}
X
gcc -o app m.c -Llib -lfoo '-Wl,-rpath,$ORIGIN/lib:$ORIGIN/plug' -Wl,-rpath-link,lib; ./app plug.so ./plug/plug.so "$T/plug/plug.so" '$ORIGIN/plug/plug.so' nosuch.so libfoo.so '$ORIGIN/nosuch.so'; cd plug; ../app ./plug.so plug.so; LD_LIBRARY_PATH=. ../app plug.so; ls /proc/self/fd | wc -l

#:: loaded_after_a_change_of_user needs gcc
# Such a process cannot add to root's site images, and its directory in /proc is closed to its new user. The
# library has the bytes of a system call, within another instruction.
echo 'int answer(void) { volatile int syscall_like = 0x50f; return syscall_like; }' >lib.c; gcc -shared -fPIC -o lib.so lib.c; cat >p.c <<'X'
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    if (getuid() == 0 && setresuid(65534, 65534, 65534)) return 1;
    void *library = dlopen("./lib.so", RTLD_NOW);
    int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : 0;
    return printf("%d\n", answer ? answer() : -1) < 0;
}
X
gcc -o p p.c; chmod 755 . lib.so; ./p; echo $?

#:: loads_late needs gcc
# What a host program in the mount loads long after its start, and in what state: a library of the mount or a
# host library that it has not used.
library lib.so late; cat >p.c <<'X'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static char *path;
static void *load(void *unused)
{
    void *library = dlopen(path, RTLD_NOW);
    const char *(*who)(void) = library ? dlsym(library, "who") : NULL;
    printf("%s\n", who ? who() : library ? "loaded" : dlerror());
    fflush(stdout);
    return unused;
}
static void *nothing(void *unused) { return unused; }
int main(int count, char **words)
{
    path = words[1];
    const char *state = words[2];
    int file = open("f", O_RDWR | O_CREAT, 0600);
    pthread_t thread;
    if (!strcmp(state, "thread")) {
        pthread_create(&thread, NULL, load, NULL);
        return pthread_join(thread, NULL);
    }
    if (!strcmp(state, "after")) {
        pthread_create(&thread, NULL, nothing, NULL);
        pthread_join(thread, NULL);
    }
    if (!strcmp(state, "fork") && fork())
        return wait(NULL) < 0;
    if (!strcmp(state, "full"))
        while (open("/dev/null", O_RDONLY) >= 0)
            ;
    if (!strcmp(state, "limit")) {
        struct rlimit limit = { file + 1, file + 1 };
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    load(NULL);
    return count < 3;
}
X
gcc -pthread -o "$OUT/p" p.c; gcc -pthread -o p p.c; ulimit -n 256; for state in now thread after fork full limit; do "$OUT/p" ./lib.so $state; "$OUT/p" libm.so.6 $state; ./p "$T/lib.so" $state; done

#:: loads_after_a_killed_child needs gcc limit 120
# A host program's child of vfork is killed as it makes a call before which the loader is patched, for its
# parent too.
library lib.so late; cat >p.c <<'X'
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **words)
{
    int ends[2];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    fclose(fopen("f", "w"));
    if (pipe(ends))
        return count;
    if (!fork()) {
        pid_t child;
        read(ends[0], &child, sizeof child);
        kill(child, SIGKILL);
        _exit(0);
    }
    if (!vfork()) {
        pid_t own = getpid();
        write(ends[1], &own, sizeof own);
        for (volatile int left = atoi(words[1]) * 1000; left > 0; left--)
            ;
        for (;;)
            setrlimit(RLIMIT_NOFILE, &limit);
    }
    while (wait(NULL) > 0)
        ;
    void *library = dlopen("./lib.so", RTLD_NOW);
    const char *(*who)(void) = library ? dlsym(library, "who") : NULL;
    puts(who ? who() : dlerror());
    return 0;
}
X
gcc -o "$OUT/p" p.c; for turn in $(seq 0 400); do "$OUT/p" $turn; done | sort | uniq -c

#:: loads_in_another_root needs gcc
# Of the libraries there, none has the bytes of a system call.
mkdir "$OUT/root"; library "$OUT/root/lib.so" elsewhere; cat >p.c <<'X'
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words)
{
    if (chroot(words[1]) || chdir("/"))
        return 1;
    void *library = dlopen("/lib.so", RTLD_NOW);
    const char *(*who)(void) = library ? dlsym(library, "who") : 0;
    puts(who ? who() : dlerror());
    return count < 2;
}
X
gcc -o "$OUT/p" p.c; "$OUT/p" "$OUT/root"; cd /; "$OUT/p" "$OUT/root"

#:: converters needs gcc,iconv
# A directory of the mount with a converter of iconv(3), which the C library loads for itself.
mkdir gconv; cp /usr/lib/x86_64-linux-gnu/gconv/IBM037.so gconv/OWN.so; printf 'module OWN// INTERNAL OWN 1\nmodule INTERNAL OWN// OWN 1\nalias OWN// IBM037//\nmodule IBM037// INTERNAL OWN 1\nmodule INTERNAL IBM037// OWN 1\n' >gconv/gconv-modules; export GCONV_PATH=$T/gconv; printf '\310\205\223\223\226\n' | iconv -f IBM037 -t ASCII 2>&1; echo $?; cat >p.c <<'X'
#include <iconv.h>
#include <stdio.h>
#include <stdlib.h>
int main(int count, char **words)
{
    fclose(fopen("f", "w"));
    setenv("GCONV_PATH", words[1], 1);
    iconv_t converter = iconv_open("ASCII", "IBM037");
    printf("%d\n", converter != (iconv_t)-1);
    return count < 2;
}
X
gcc -o "$OUT/p" p.c; unset GCONV_PATH; "$OUT/p" "$T/gconv"; "$OUT/p" "$T/nosuch"

#:: concurrent needs gcc limit 120
main; mkdir lib; library lib/libfoo.so shared; gcc main.c -Llib -lfoo '-Wl,-rpath,$ORIGIN/lib' -o app; for i in 1 2 3 4; do (for j in 1 2 3 4 5 6 7 8 9 10; do ./app; done) & done | sort | uniq -c; wait; ./app >/dev/null & kill -9 $! 2>/dev/null; wait 2>/dev/null; ./app; for i in 1 2 3 4 5 6 7 8; do library "lib/new$i.so" "take $i"; mv -f "lib/new$i.so" lib/libfoo.so; ./app; done

#:: inline_system_calls needs gcc
mkdir lib; echo text >file; cat >l.c <<'X'
#include <fcntl.h>
#include <sys/syscall.h>
static long call(long n, long a, long b, long c)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
long take(const char *path, char *to, long n)
{
    long fd = call(SYS_open, (long)path, O_RDONLY, 0);
    if (fd < 0) return fd;
    long got = call(SYS_read, fd, (long)to, n);
    call(SYS_close, fd, 0, 0);
    return got;
}
X
printf '#include <stdio.h>\nlong take(const char *, char *, long);\nint main(void) { char b[9] = ""; long n = take("file", b, 8); printf("%%ld %%s", n, b); printf("%%ld\\n", take("nosuch", b, 8)); return 0; }\n' >m.c; for id in sha1 none; do gcc -shared -fPIC -O1 -Wl,--build-id=$id -o lib/libtake.so l.c; gcc -o app m.c -Llib -ltake '-Wl,-rpath,$ORIGIN/lib'; ./app; ./app; done; cat >again.c <<'X'
#include <dlfcn.h>
#include <stdio.h>
int main(int c, char **v)
{
    for (int i = 0; i < 3; i++) {
        char b[9] = "";
        void *h = dlopen(v[1], RTLD_NOW);
        long (*take)(const char *, char *, long) = dlsym(h, "take");
        printf("%ld ", take(v[2], b, 8));
        printf("%s", b);
        dlclose(h);
    }
    return 0;
}
X
gcc -o again again.c; ./again lib/libtake.so file; cd /; "$T/again" "$T/lib/libtake.so" "$T/file"

#:: more_than_the_builder_takes_at_once needs gcc limit 120
mkdir lib; cat >l.c <<'X'
#include <sys/syscall.h>
long NAME(const char *path)
{
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"((long)SYS_access), "D"(path), "S"(0L) : "rcx", "r11", "memory");
    return r;
}
X
for i in $(seq 1 280); do echo "long f$i(const char *);"; done >m.c; { echo '#include <stdio.h>'; echo 'int main(void) { long good = 0;'; for i in $(seq 1 280); do echo "good += f$i(\"file\") == 0 && f$i(\"nosuch\") == -2;"; done; echo 'printf("%ld\n", good); return 0; }'; } >>m.c; gcc -c -fPIC -O1 l.c; seq 1 280 | xargs -I % ld -shared --defsym f%=NAME -o lib/lib%.so l.o; gcc m.c -o app -Llib $(seq -f -l%g 1 280) '-Wl,-rpath,$ORIGIN/lib' 2>&1; echo x >file; ./app; ./app

#:: ldd needs ldd,gcc
main; mkdir lib sub; library lib/libfoo.so text; gcc main.c -Llib -lfoo '-Wl,-rpath,$ORIGIN/lib' -o uniquely_named; gcc main.c -Llib -lfoo -o without; linker=/lib64/ld-linux-x86-64.so.2; ldd uniquely_named | foo; ldd "$T/uniquely_named" | foo; ldd ./without | foo; LD_LIBRARY_PATH=lib ldd ./without | foo; (cd sub; ldd ../uniquely_named | foo | sed 's:sub/../::'; ldd ../lib/libfoo.so | grep -c libc.so.6); ldd lib/libfoo.so | grep -c libc.so.6; $linker --verify ./uniquely_named; echo $?; $linker --verify main.c 2>&1; echo $?; LD_TRACE_LOADED_OBJECTS=1 $linker ./without | foo; LD_TRACE_LOADED_OBJECTS=1 $linker ./uniquely_named | foo; $linker --list /bin/true | grep -c libc.so; $linker --list lib/libfoo.so | grep -c libc.so; $linker --list ./nosuch 2>&1; echo $?; ldd nosuch; echo $?; ldd main.c; echo $?; ldd lib; echo $?; chmod -x without; ldd ./without 2>&1 | foo; chmod 0 without; ls

#:: preloads needs eatmydata,/usr/lib/x86_64-linux-gnu/libjemalloc.so.2,/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4,python3 limit 120
cat >w.py <<'X'
import os, threading
def work():
    for i in range(300):
        with open("t", "a") as f: f.write("x")
        os.stat("t")
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(os.stat("t").st_size)
os.remove("t")
X
j=libjemalloc.so.2 t=libtcmalloc_minimal.so.4 e=libeatmydata.so; for list in $j $t $e "$j $e" "$e $j" "$t:$e" "$e:$t"; do LD_PRELOAD=$list sh -c 'echo a >f; cat f; touch g; sync f; dd if=f of=h conv=fsync status=none; cmp f h; ls; python3 -S w.py; sh -c "cat h"; env | grep LD_PRELOAD'; done; eatmydata sh -c 'echo q >q; sync q; cat q'; cp "$(realpath /usr/lib/x86_64-linux-gnu/$j)" own.so; LD_PRELOAD=$T/own.so python3 -S w.py; LD_PRELOAD=./own.so cat f

#:: faketime needs faketime
echo old >f; touch -d 2019-01-01 f; faketime '2021-05-06 07:08:09' date '+%F %H'; faketime '2021-05-06' sh -c 'touch -d "$(date +%F)" x; stat -c %y x | cut -c1-10; test x -nt f && echo newer; find . -name x -newermt 2021-05-05 | wc -l; cat f; stat -c %y f | cut -c1-4'; NO_FAKE_STAT=1 faketime '2021-05-06' sh -c 'touch n; test $(stat -c %Y n) -gt 1700000000; echo $?; rm n'; stat -c %y x | cut -c1-10; faketime -f '+10y' sh -c 'test $(date +%Y) -gt 2030; echo $?; ls'

#:: one_site needs gcc,python3
cat >calls.S <<'X'
/* A C library by its name, whose functions make their calls at one site, at once if the byte says so. */
.data
own:    .byte 1
.text
.type site, @function
site:
    push %rbx
    mov %rcx, %r10
    cmpb $0, own(%rip)
    jne 1f
    mov $-38, %rax
    pop %rbx
    ret
1:  mov 16(%rsp), %rax
    syscall
    pop %rbx
    ret
.size site, .-site
.type checked, @function
checked:
    sub $16, %rsp
    push 24(%rsp)
    call site
    pop %rdx
    pop %rcx
    cmp $-4096, %rax
    ja 1f
    add $8, %rsp
    ret
1:  mov why@gottpoff(%rip), %rdx
    neg %eax
    mov %eax, %fs:(%rdx)
    mov $-1, %rax
    add $8, %rsp
    ret
.size checked, .-checked
.macro function name, number
.globl \name
.type \name, @function
\name:
    .cfi_startproc
    movslq %edi, %rdi
    xor %r8d, %r8d
    push $\number
    .cfi_adjust_cfa_offset 8
    call checked
    add $8, %rsp
    .cfi_adjust_cfa_offset -8
    ret
    .cfi_endproc
.size \name, .-\name
.endm
function reads, 0
function writes, 1
function reads_at, 17
function writes_at, 18
.globl allow
.type allow, @function
allow:
    mov %dil, own(%rip)
    ret
.size allow, .-allow
.section .tbss,"awT",@nobits
.globl why
.type why, @tls_object
.size why, 4
why:    .zero 4
X
cat >use.py <<'X'
import ctypes, os, signal, sys, threading
lib = ctypes.CDLL("./librt.so.9")
for name in "reads", "writes", "reads_at", "writes_at":
    getattr(lib, name).restype = ctypes.c_long
why = ctypes.c_int.in_dll(lib, "why")
def say(what, result):
    print(what, result, why.value if result < 0 else "", flush=True)
room = ctypes.create_string_buffer(64)
def all_of(path, flags=os.O_RDWR):
    f = os.open(path, flags | os.O_CREAT, 0o644)
    say("write", lib.writes(f, b"some text", ctypes.c_size_t(9)))
    say("pwrite", lib.writes_at(f, b"ANY", ctypes.c_size_t(3), ctypes.c_long(5)))
    os.lseek(f, 2, os.SEEK_SET)
    say("read", lib.reads(f, room, ctypes.c_size_t(4))); print(room.value, flush=True)
    say("pread", lib.reads_at(f, room, ctypes.c_size_t(64), ctypes.c_long(4))); print(room.value, flush=True)
    say("end", lib.reads_at(f, room, ctypes.c_size_t(64), ctypes.c_long(400)))
    say("address", lib.reads(f, ctypes.c_void_p(8), ctypes.c_size_t(4)))
    say("position", lib.reads_at(f, room, ctypes.c_size_t(4), ctypes.c_long(-1)))
    high = os.dup2(f, 200)
    say("high", lib.reads_at(high, room, ctypes.c_size_t(3), ctypes.c_long(5)))
    os.close(high); os.close(f)
    say("closed", lib.reads(f, room, ctypes.c_size_t(4)))
    say("negative", lib.writes(-1, room, ctypes.c_size_t(4)))
    f = os.open(path, os.O_RDONLY)
    say("mode", lib.writes(f, room, ctypes.c_size_t(4)))
    os.close(f)
def pipes(path):
    os.mkfifo(path)
    f = os.open(path, os.O_RDWR)
    say("fifo", lib.writes(f, b"abc", ctypes.c_size_t(3)))
    say("fifo", lib.reads(f, room, ctypes.c_size_t(2))); print(room.raw[:2], flush=True)
    say("seek", lib.reads_at(f, room, ctypes.c_size_t(2), ctypes.c_long(0)))
    calls = []
    signal.signal(signal.SIGALRM, lambda *_: calls.append("alarm"))
    signal.siginterrupt(signal.SIGALRM, True)
    lib.reads(f, room, ctypes.c_size_t(1))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    say("interrupted", lib.reads(f, room, ctypes.c_size_t(1))); print(calls, flush=True)
    os.close(f)
    r = os.open(path, os.O_RDONLY | os.O_NONBLOCK); w = os.open(path, os.O_WRONLY)
    say("empty", lib.reads(r, room, ctypes.c_size_t(1)))
    os.close(r)
    signal.signal(signal.SIGPIPE, lambda *_: calls.append("pipe"))
    say("broken", lib.writes(w, room, ctypes.c_size_t(1))); print(calls, flush=True)
    os.close(w); os.unlink(path)
all_of("file"); pipes("fifo"); all_of(os.environ["OUT"] + "/file")
threads = [threading.Thread(target=all_of, args=("other",))]; [t.start() for t in threads]; [t.join() for t in threads]
if os.fork() == 0:
    all_of("child"); os._exit(0)
os.wait()
lib.allow(0)
f = os.open("file", os.O_RDWR)
say("not allowed", lib.reads(f, room, ctypes.c_size_t(4)))
lib.allow(1)
say("allowed", lib.reads(f, room, ctypes.c_size_t(4)))
X
gcc -s -shared -nostdlib -Wl,-soname,librt.so.9 -o librt.so.9 calls.S && python3 -S use.py; sed -i 's/^    jne 1f/    je 1f/; s/^own:    .byte 1/own:    .byte 0/' calls.S; sed -i 's/allow(0)/allow(2)/; s/allow(1)/allow(0)/; s/allow(2)/allow(1)/' use.py; gcc -s -shared -nostdlib -Wl,-soname,librt.so.9 -o librt.so.9 calls.S && python3 -S use.py | tail -2
