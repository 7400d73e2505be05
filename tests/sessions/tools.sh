# The tools that walk trees, edit in place and pack. The order of a directory's names is the file system's own affair.

export TAR_OPTIONS=--sort=name

sample() {
    mkdir -p src/sub/deep src/empty
    seq -f "line %g" 200 >src/a.txt
    seq 5 >src/sub/b.txt
    head -c 50000 /dev/zero | tr '\0' x >src/sub/deep/c
    ln -s a.txt src/link; ln -s nowhere src/dangling; ln src/a.txt src/sub/hard
    printf 'tab\there' >$'src/odd name\n'
    chmod 750 src/sub; chmod 640 src/sub/b.txt
    find src -depth -exec touch -h -d '2020-01-02 03:04:05' {} +
}

#:: find needs find
sample; find src | sort; find src -type f -size +1k | sort; find src -name '*.txt' -printf '%p %s %m %n %Y %d %f %h %l %TY\n' | sort; find src -newer src/a.txt; find src -type l -xtype l; find src -empty | sort; find src -links 2 -type f | sort; find src -perm 640; find src -samefile src/a.txt | sort; find src -maxdepth 1 -mindepth 1 -printf '%y %f\0' | tr '\0' '\n' | sort; find src -type f -exec wc -c {} + | tail -1; find src -name b.txt -execdir pwd \; | sed "s:$T:T:"; find -L src -type f | sort; find src -inum "$(stat -c %i src/link)"; find nosuch; echo $?; find src -mtime +300 -type f | wc -l; find src -user 0 | wc -l; find src -ls | wc -l; find src -delete; ls

#:: find_xdev needs find
mkdir -p a/b; touch a/b/c; find "$M" -xdev -name c | sed "s:$M:M:"; find "$M/../$(basename "$M")" -mount -type d -name b | wc -l; cd a; find .. -name c; find . -path ./b -prune -o -print; touch -d '2 days ago' old; find . -mmin -60 -type f; find . -mtime +1; find b/../b/.. -maxdepth 0

#:: find_many needs find limit 120
for d in $(seq 40); do mkdir -p t/d$d/e; (cd t/d$d/e; seq 100 | xargs touch); done; find t -type f | wc -l; find t -name '*7' | wc -l; find t -type f -name '1*' -delete; find t -type f | wc -l; find t -type f -print0 | xargs -0 -n 50 ls | wc -l; find t -type d -exec rmdir {} + 2>/dev/null; find t -type d | wc -l; rm -rf t

#:: xargs needs xargs
sample; find src -type f -print0 | sort -z | xargs -0 md5sum; seq 10 >n; xargs -n 3 echo <n; xargs -a n -I{} touch f{}; xargs -P 4 -n 1 sh -c 'echo $0 >p$0' <n; cat p* | sort -n; ls f* | xargs rm; xargs -a nosuch; echo $?; echo nosuch | xargs cat; echo $?; xargs -L1 -a n echo l | tail -1; xargs false <n; echo $?

#:: grep needs grep
sample; grep -r 'line 1$' src | sort; grep -rn 'line 15' src | sort; grep -c line src/a.txt; grep -l 3 -r src | sort; grep -L 3 -r src | sort; grep -v line src/a.txt; echo $?; grep -q 99 src/a.txt; echo $?; grep x nosuch; echo $?; grep -s x nosuch; echo $?; grep -m2 line src/a.txt; grep -A1 -B1 'line 50' src/a.txt; grep -f src/sub/b.txt src/a.txt | wc -l; grep --include='*.txt' -r 5 src | wc -l; grep x src; echo $?; grep -R line src | wc -l; grep -o 'e 1..' src/a.txt | wc -l; head -c 3000000 /dev/zero >z; echo text >>z; grep -c text z; grep text z; grep -z -c . z; echo more >>grown; grep more grown >>grown; echo $?; grep -b 'line 9$' src/a.txt; grep line <src/a.txt | wc -l; fgrep -x 3 src/sub/b.txt; egrep '(4|5)' src/sub/b.txt

#:: sed needs sed
sample; sed -i 's/line/LINE/' src/a.txt; head -2 src/a.txt; sed -i.bak '2d' src/sub/b.txt; ls src/sub; sed -n '5,7p;w out' src/a.txt; wc out; sed -i -e '1i\top' -e '$a\end' src/sub/b.txt; cat src/sub/b.txt; sed --follow-symlinks -i s/LINE/x/ src/link; head -1 src/a.txt; sed -i s/x/y/ src/link; ls -F src; sed -i s/a/b/ nosuch; echo $?; sed -i s/a/b/ src; echo $?; sed 's/1/&&/w w1' src/sub/b.txt; sed -s -n '$=' src/a.txt src/sub/b.txt; sed -e 'r src/sub/b.txt' -e q src/a.txt; sed -ni '/9/p' src/a.txt; wc -l src/a.txt; sed -c -i s/9/8/ src/a.txt 2>/dev/null; stat -c %a src/sub/b.txt

#:: ed_and_awk needs ed,awk
sample; printf '%s\n' 1d '$a' appended . 's/app/APP/' w q | ed -s src/sub/b.txt; cat src/sub/b.txt; awk '{print $2 > "out" ($2 % 3)}' src/a.txt; wc -l out0 out1 out2; awk 'BEGIN{while ((getline l < "src/sub/b.txt") > 0) print "got " l; close("src/sub/b.txt"); getline l < "src/sub/b.txt"; print l}'; awk '{print | "sort -rn | head -2"}' src/sub/b.txt; awk 'BEGIN{"cat src/sub/b.txt" | getline x; print x; print "a" >>"app"; print "b" >>"app"; close("app"); while ((getline y < "app")>0) print y; print "err" > "/dev/stderr"; r = getline z < "nosuch"; print r}'; awk 'END{print NR, FILENAME}' src/a.txt; awk 1 nosuch; echo $?; printf 'r nosuch\nQ\n' | ed 2>&1; echo $?

#:: tar needs tar
sample; tar -cf a.tar src; tar -tvf a.tar --full-time | sort; mkdir x; tar -xf a.tar -C x; diff -r src/sub x/src/sub; tar -df a.tar; tar -rf a.tar -C src sub/b.txt; tar -tf a.tar | wc -l; tar --delete -f a.tar src/a.txt; tar -tf a.tar | wc -l; echo new >src/new; tar -uf a.tar src; tar -tf a.tar | sort | uniq -c | sort -rn | head -1; tar -cf - src | (mkdir y; cd y; tar xf -); tar -cf b.tar --exclude='*.txt' src; tar tf b.tar | wc -l; tar xf nosuch; echo $?; tar -xf a.tar -O src/sub/b.txt; tar -cf /dev/null src; tar --sort=name --owner=0 --group=0 --mtime=@0 -cf det.tar src; md5sum <det.tar; tar -cf c.tar -T <(find src -type f | sort); tar tf c.tar; mkdir z; tar xf a.tar -C z --strip-components=1 --no-same-permissions; tar -xkf a.tar 2>/dev/null; echo $?; tar --overwrite -xf a.tar; tar --remove-files -cf gone.tar z; ls; rm *.tar

#:: tar_sparse_and_links needs tar
truncate -s 20M s; printf data | dd of=s bs=1 seek=9000000 conv=notrunc status=none; ln s h; ln -s s l; mkfifo p; tar -Scf s.tar s h l p; [ "$(stat -c %s s.tar)" -lt 200000 ] && echo small; mkdir x; tar -xf s.tar -C x; cmp s x/s; [ "$(stat -c %b x/s)" -lt 1000 ] && echo sparse; ls -F x; rm s.tar

#:: tar_many needs tar limit 120
mkdir src; (cd src; for i in $(seq 30); do mkdir d$i; (cd d$i; for j in $(seq 60); do echo "$i $j" >f$j; done); done); tar cf t.tar src; mkdir x; tar xf t.tar -C x; diff -r src x/src && echo same; tar czf t.tgz src; rm -r x/src; tar xzf t.tgz -C x; find x -type f | wc -l; find src -type f -print0 | sort -z | xargs -0 cat | md5sum; find x -type f -exec cat {} + | wc; rm t.tar t.tgz; rm -r x

#:: cpio_and_ar needs ar
sample; ar rc l.a src/a.txt src/sub/b.txt; ar t l.a; ar p l.a b.txt; ar x l.a; cmp a.txt src/a.txt; ar d l.a a.txt; ar tO l.a; ar rcD m.a src/sub/b.txt; md5sum m.a

#:: gzip needs gzip
sample; gzip -k src/a.txt; gzip -9 src/sub/b.txt; ls -R src; gunzip src/sub/b.txt.gz; zcat src/a.txt.gz | cmp - src/a.txt; gzip -l src/a.txt.gz | tail -1; gzip -t src/a.txt.gz; gzip src/a.txt; echo $?; gzip -f src/link; echo $?; gzip -r src 2>/dev/null; find src -type f | sort; gunzip -rf src 2>/dev/null; gzip -c src/sub/deep/c | gunzip | md5sum; gzip nosuch; echo $?; echo x >n.gz; gunzip n.gz; echo $?; zgrep -c line src/a.txt.gz 2>/dev/null; gzip -n <src/sub/deep/c >n1.gz; md5sum n1.gz; stat -c '%n %y %a' src/a.txt src/sub/b.txt; find . -name '*.gz' -delete

#:: xz_bzip2 needs xz,bzip2
sample; xz -k src/a.txt; xz -d -c src/a.txt.xz | cmp - src/a.txt; xz -T1 src/sub/deep/c; ls src/sub/deep; unxz src/sub/deep/c.xz; xz -l src/a.txt.xz | wc -l; bzip2 -k src/a.txt; bzcat src/a.txt.bz2 | md5sum; bunzip2 -f src/a.txt.bz2; xz nosuch; echo $?; xz -t src/a.txt.xz; xz -k src/a.txt; echo $?; tar -cJf a.txz src; tar -tJf a.txz | sort; tar -cjf a.tbz src; tar -xjf a.tbz --one-top-level; rm a.t*; xzcat <src/a.txt.xz | wc -l; md5sum src/a.txt.xz; stat -c %y src/sub/deep/c

#:: zip needs zip,unzip
sample; zip -qr a.zip src; unzip -l a.zip | awk '{print $1, $4}' | sort | head -20; unzip -q a.zip -d x; diff -r --no-dereference src/sub x/src/sub; zip -qy -r b.zip src; unzip -q b.zip -d y; ls -F y/src; unzip -p a.zip src/sub/b.txt; zip -qd a.zip src/a.txt; unzip -tq a.zip; zip -qm m.zip src/sub/b.txt; ls src/sub; unzip -qo a.zip; zip -q u.zip nosuch; echo $?; unzip -q nosuch.zip; echo $?; zip -qu a.zip src/link; unzip -n -q a.zip; rm *.zip

#:: rsync needs rsync limit 120
sample; rsync -a src/ dst/; rsync -ai src/ dst/; echo more >>src/a.txt; rsync -ai src/ dst/; rsync -aHi src/ hard/ | sort; rm src/link; rsync -ai --delete src/ dst/; rsync -a --inplace --no-whole-file src/sub/deep/c dst/c2; rsync -n -ai src/ nothing/ | wc -l; rsync -ac src/ dst/; rsync -a --link-dest="$T/dst" src/ linked/; stat -c %h linked/sub/b.txt; rsync -a --backup --suffix=~ src/sub/b.txt dst/; rsync -aS src/sub/deep/c sp; rsync -a nosuch x; echo $?; rsync -rt --chmod=F600,D700 src/sub/ chm/; rsync -a --remove-source-files src/sub/ moved/; find src -type f | sort; rsync -a --append dst/a.txt app; rsync -a --files-from=<(echo a.txt) src/ ff/; rsync -aR src/./sub rel/; find . -type f | sort | wc -l

#:: rsync_to_and_from_host needs rsync limit 120
sample; rsync -a src/ "$OUT/copy/"; rsync -ai src/ "$OUT/copy/"; rsync -a "$OUT/copy/" back/; diff -r --no-dereference src back; rsync -aiHAXc --delete "$OUT/copy/" back/; cp -r /etc/default host; rsync -rc --itemize-changes /etc/default/ host/

#:: diff_patch needs diff,patch,cmp
sample; cp -a src new; sed -i '10d;20s/$/ changed/;$a\added' new/a.txt; rm new/sub/b.txt; echo fresh >new/fresh; printf 'no newline' >new/sub/nn; diff -ru src new | grep -v '^[-+][-+][-+]'; diff -rq src new; diff -r --brief src src; diff -Naur src new >p; echo $?; patch -d src -p1 <p; diff -rq --no-dereference src new; patch -R -d src -p1 <p; diff -q src/a.txt new/a.txt; patch -s -d src -p1 <p; patch -d src -p1 -N <p; echo $?; find src -name '*.rej' -o -name '*.orig' | sort; diff3 src/a.txt new/a.txt src/a.txt | wc -l; sdiff -s src/a.txt src/sub/hard; cmp src/a.txt new/sub/hard; echo $?; cmp nosuch src/a.txt; echo $?; diff nosuch src; echo $?; diff src/a.txt new; cmp -n 10 -i 5 src/a.txt new/a.txt; patch -b src/a.txt <<'X'
1c1
< line 1
---
> first
X
head -1 src/a.txt; rm p src/*.rej

#:: acl_and_xattr needs setfattr,getfattr,setfacl,getfacl
echo x >f; mkdir d; setfattr -n user.a -v one f; setfattr -n user.b f; getfattr -d f; getfattr -n user.a --only-values f; echo; setfattr -x user.a f; getfattr -n user.a f; echo $?; setfattr -n trusted.t -v t f; getfattr -m- -d f; setfattr -n bogus.x -v 1 f; echo $?; setfattr -n user.d -v dir d; getfattr -d d; ln -s f l; setfattr -h -n user.l -v 1 l; echo $?; cp -a f g; getfattr -d g; setfacl -m u:1234:rw f; getfacl -cn f; stat -c %a f; setfacl -m d:u:99:rx d; mkdir d/s; touch d/t; getfacl -cn d d/s d/t; setfacl -b f; getfacl -cn f; setfacl -m g:77:x f; chmod 640 f; getfacl -cn f; ls -l --time-style=+ f; cp -p f h; getfacl -cn h; setfacl -k d; setfacl -x g:77 f; getfacl -cn f d

#:: less_common needs file,strings,install,split,time,xxd
sample; file src/a.txt src/sub src/link src/dangling; strings src/a.txt | head -2; xxd -l 32 src/a.txt; xxd src/sub/b.txt | xxd -r | cmp - src/sub/b.txt; column -t src/sub/b.txt 2>/dev/null; look lin src/a.txt 2>/dev/null | head -1; hexdump -C src/sub/b.txt 2>/dev/null; rev src/sub/b.txt 2>/dev/null; namei -m src/sub/b.txt 2>/dev/null | tail -3; flock lock -c 'echo locked >in'; cat in; flock -n lock flock -n lock true; echo $?; fallocate -l 100000 fa; stat -c '%s %b' fa; fallocate -p -o 0 -l 8192 fa; stat -c '%s %b' fa; fallocate -c -o 0 -l 4096 fa; echo $?; rename.ul 2>/dev/null; getopt ab -a >g; cat g; logger --version >/dev/null; mcookie -f src/a.txt 2>/dev/null | wc -c; cksfv 2>/dev/null; script -qc 'echo typed' ts >/dev/null; grep -c typed ts; rm ts; truncate -s 1M disk; mkfs.ext2 -q disk 2>/dev/null; rm disk

#:: sanitizers needs gcc limit 120
cat >m.c <<'X'
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
static int count;
static void *add(void *path)
{
    for (int i = 0; i < 1000; i++) __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    FILE *f = fopen(path, "a");
    fputs("x", f);
    fclose(f);
    return 0;
}
int main(int c, char **v)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, add, "file");
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    // Runs a process that shares memory and thread-local storage; afterwards the mount is there as before.
    for (int i = 0; i < 3 && __lsan_do_recoverable_leak_check; i++) {
        int found = __lsan_do_recoverable_leak_check(), status = 0;
        add("file");
        if (!fork()) _exit(access("file", R_OK) ? 1 : 3);
        wait(&status);
        printf("%d %d\n", found, WEXITSTATUS(status));
    }
    char b[20] = "", *volatile p = malloc(10);
    FILE *f = fopen("file", "r");
    fgets(b, sizeof b, f);
    fclose(f);
    printf("%s %d\n", b, count);
    fflush(stdout);
    if (c > 1 && !strcmp(v[1], "past")) p[10] = 1;
    if (c > 1 && !strcmp(v[1], "leak")) p = 0; else free(p);
    return 0;
}
X
for s in address leak undefined; do gcc -fsanitize=$s m.c -o $s -lpthread; for how in none past leak; do for i in 1 2; do rm -f file; ./$s $how 2>err; echo $?; grep -o 'SUMMARY: [^/]*' err; done; done; done; gcc m.c -o plain -lpthread; rm file; LD_PRELOAD=$(gcc -print-file-name=libasan.so) ./plain; rm file; LD_PRELOAD=libasan.so.8 sh -c ./plain 2>&1 | sed 's/.*libasan.*/no such version/'

#:: thread_sanitizer needs gcc,setarch limit 120
# Programs that watch their own memory and threads: the tools see the accesses of calls on the mount as the program's.
cat >r.c <<'X'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <dirent.h>
#include <signal.h>
static int shared, fd;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *add(void *how)
{
    char b[8];
    for (int i = 0; i < 200; i++) {
        if (how) pthread_mutex_lock(&m);
        shared++;
        if (how) pthread_mutex_unlock(&m);
        pwrite(fd, "x", 1, i);
        pread(fd, b, 1, i);
        struct stat s;
        stat("file", &s);
        close(open("file", O_RDONLY));
    }
    return 0;
}
static void on(int s) { (void)s; }
int main(int c, char **v)
{
    pthread_t t[4];
    signal(SIGUSR1, on);
    fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int race = c > 1 && !strcmp(v[1], "race");
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, add, race ? 0 : "locked");
    for (int i = 0; i < 4; i++) pthread_kill(t[i], SIGUSR1);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    if (!fork()) { FILE *f = fopen("file", "a"); fputs("child", f); fclose(f); _exit(0); }
    wait(0);
    char *p = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    p[0] = 'y';
    DIR *d = opendir(".");
    int n = 0;
    while (readdir(d)) n++;
    closedir(d);
    struct stat s;
    fstat(fd, &s);
    printf("%d %ld %c %d\n", race ? 0 : shared, (long)s.st_size, p[0], n > 2);
    fflush(stdout);
    system("cat file | wc -c");
    if (c > 1 && !strcmp(v[1], "shift")) { volatile int k = 40; printf("%d\n", 1 << k); }
    return 0;
}
X
gcc -w -g -fsanitize=thread r.c -o thread -lpthread; gcc -w -g -fsanitize=undefined r.c -o undefined -lpthread; gcc -w -g r.c -o plain -lpthread
for how in none race; do setarch -R ./thread $how 2>err; echo $?; grep -o 'SUMMARY: ThreadSanitizer: [a-z ]*' err | sort -u; done; ./undefined shift 2>err; echo $?; grep -c 'shift exponent' err; rm -f err thread undefined plain

#:: memory_sanitizer needs clang limit 120
# The tool knows what calls have written, on the mount as on the host; and it reports what they did not write.
cat >m.c <<'X'
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static void *each(void *name)
{
    char b[8];
    int f = open(name, O_RDWR | O_CREAT, 0600);
    write(f, "abc", 3);
    if (pread(f, b, 3, 0) == 3 && b[2] == 'c') unlink(name);
    close(f);
    return 0;
}
int main(int c, char **v)
{
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600), sum = 0, n = 0, status;
    char *out = calloc(100, 1), *in = malloc(100), cwd[4096];
    struct stat s;
    write(fd, out, 100);
    pread(fd, in, 100, 0);
    for (int i = 0; i < 100; i++) sum += in[i] == 0;
    if (fstat(fd, &s) || s.st_size != 100 || stat("file", &s) || !S_ISREG(s.st_mode)) puts("stat");
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));) n += !strcmp(e->d_name, "file");
    closedir(d);
    char *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m[3] == 0) m[4] = 'x';
    munmap(m, 4096);
    pthread_t t[4];
    char *names[] = { "t0", "t1", "t2", "t3" };
    for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, each, names[i]);
    for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
    if (!fork()) _exit(in[5] + 3);
    wait(&status);
    printf("%d %d %d %d\n", sum, n, WEXITSTATUS(status), getcwd(cwd, sizeof cwd) && cwd[0] == '/');
    fflush(stdout);
    system("ls");
    char *fresh = malloc(10);
    pread(fd, fresh, 5, 0);
    if (c > 1 && fresh[!strcmp(v[1], "past") ? 7 : 4] == 7) puts("seven");
    return 0;
}
X
clang -w -g -fsanitize=memory m.c -o memory -lpthread; for how in none past read; do ./memory $how 2>err; echo $?; grep -o 'SUMMARY: MemorySanitizer: [a-z-]*' err; done; rm -f err memory

#:: valgrind needs gcc,valgrind limit 120
cat >v.c <<'X'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int c, char **v)
{
    char *b = malloc(16), r = 0;
    struct stat s;
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    if (write(fd, "abcdef", 6) != 6 || pread(fd, b, 3, 2) != 3 || fstat(fd, &s) || s.st_size != 6) return 1;
    printf("%.3s\n", b);
    fflush(stdout);
    char *p = mmap(0, 4096, PROT_READ, MAP_SHARED, fd, 0);
    putchar(p[5]);
    if (!fork()) { FILE *f = fopen("file", "a"); fputs("child", f); fclose(f); _exit(0); }
    wait(0);
    fflush(stdout);
    system("cat file; ls");
    if (c > 1) r = b[3] == 'x';                 /* not read */
    if (c > 2) write(fd, b, 17);                /* one too many */
    if (c < 4) free(b);
    return r ? 2 : 0;
}
X
gcc -w -g v.c -o v; for given in '' 'a b c'; do rm -f file; valgrind -q --leak-check=full --error-exitcode=9 ./v $given 2>err; echo $?; sed -n 's/^==[0-9]*== \([A-Z].*\)/\1/p; s/.* are definitely/definitely/p' err | grep -v Address | sed 's/ in loss record.*//'; done; mkdir lib; echo 'int two(void) { return 2; }' | gcc -x c - -shared -fPIC -o lib/libtwo.so; echo 'int two(void); int main(void) { return two(); }' | gcc -x c - -Llib -ltwo '-Wl,-rpath,$ORIGIN/lib' -o l; valgrind -q ./l; echo $?; valgrind -q --trace-children=yes ./l; echo $?; rm -f err v l lib/*

#:: unwinding needs g++ limit 120
cat >u.cpp <<'X'
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
struct Guard { const char *name; ~Guard() { printf("~%s\n", name); fflush(stdout); } };
static int fd;
static volatile pid_t waiter;
static void on_signal(int)
{
    void *at[64];
    int n = backtrace(at, 64);
    printf("handler:");
    for (int i = 0; i < n; i++) { Dl_info d; if (dladdr(at[i], &d) && d.dli_sname && !strncmp(d.dli_sname, "step_", 5)) printf(" %s", d.dli_sname); }
    puts("");
    fflush(stdout);
}
static void on_throw(int) { throw 7; }
static struct flock whole() { struct flock l = {}; l.l_type = F_WRLCK; return l; }
static int locked() { struct flock l = whole(); return fcntl(fd, F_SETLKW, &l); }
extern "C" __attribute__((noinline)) int step_lock() { int r = locked(); return r + 1; }
extern "C" __attribute__((noinline)) int step_raw() { struct flock l = whole(); int r = syscall(SYS_fcntl, fd, F_SETLKW, &l); return r + 1; }
extern "C" __attribute__((noinline)) int step_inline()
{
    struct flock l = whole();
    long r;
    asm volatile("syscall" : "=a"(r) : "a"(SYS_fcntl), "D"((long)fd), "S"((long)F_SETLKW), "d"(&l) : "rcx", "r11", "memory");
    return r + 1;
}
extern "C" __attribute__((noinline)) void *step_thread(void *f) { Guard g{"thread"}; waiter = gettid(); ((int (*)())f)(); return 0; }
// Returns once a thread sleeps in its call.
static void asleep(pid_t process, pid_t thread)
{
    char name[64], text[256], state = 0;
    snprintf(name, sizeof name, "/proc/%d/task/%d/stat", process, thread);
    for (int seen = 0; seen < 3; usleep(20000)) {
        FILE *f = fopen(name, "r");
        if (f && fgets(text, sizeof text, f)) state = strrchr(text, ')')[2];
        if (f) fclose(f);
        seen = state == 'S' ? seen + 1 : 0;
    }
}
static pthread_t start(int (*f)())
{
    pthread_t t;
    waiter = 0;
    pthread_create(&t, 0, step_thread, (void *)f);
    while (!waiter) usleep(1000);
    asleep(getpid(), waiter);
    return t;
}
int main()
{
    int p[2];
    char b;
    fd = open("lock", O_RDWR | O_CREAT, 0600);
    if (pipe(p)) return 1;
    pid_t holder = fork();
    if (!holder) { locked(); if (write(p[1], "x", 1)) alarm(60); for (;;) pause(); }
    if (read(p[0], &b, 1) != 1) return 1;
    struct sigaction a = {};
    a.sa_handler = on_signal;
    sigaction(SIGUSR1, &a, 0);
    a.sa_handler = on_throw;
    sigaction(SIGUSR2, &a, 0);
    int (*how[])() = {step_lock, step_raw, step_inline};
    void *end;
    for (int i = 0; i < 3; i++) { pthread_t t = start(how[i]); pthread_kill(t, SIGUSR1); pthread_join(t, 0); }
    pthread_t t = start(step_lock);
    pthread_cancel(t);
    pthread_join(t, &end);
    printf("cancelled %d\n", end == PTHREAD_CANCELED);
    fflush(stdout);
    if (!fork()) { asleep(getppid(), getppid()); kill(getppid(), SIGUSR2); _exit(0); }
    try { Guard g{"try"}; step_lock(); } catch (int e) { printf("caught %d\n", e); }
    kill(holder, SIGKILL);
    while (wait(0) > 0);
    return 0;
}
X
g++ -O1 -rdynamic -fnon-call-exceptions -fasynchronous-unwind-tables u.cpp -o u -lpthread; ./u
# With the gate preloaded.
LD_LIBRARY_PATH=/nonexistent ./u; rm u

#:: gdb needs gdb,gcc limit 120
cat >b.c <<'X'
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static char *how;
static int fd;
static struct flock whole = {.l_type = F_WRLCK};
__attribute__((noinline)) int step_fifo(void) { char b[8]; mkfifo("fifo", 0600); int r = read(open("fifo", O_RDWR), b, 8); return r + 1; }
__attribute__((noinline)) int step_lock(void) { int r = fcntl(fd, F_SETLKW, &whole); return r + 1; }
__attribute__((noinline)) int step_inline(void)
{
    long r;
    asm volatile("syscall" : "=a"(r) : "a"(SYS_fcntl), "D"((long)fd), "S"((long)F_SETLKW), "d"(&whole) : "rcx", "r11", "memory");
    return r + 1;
}
__attribute__((noinline)) void *step_thread(void *none) { if (strstr(how, "fifo")) step_fifo(); else if (strstr(how, "inline")) step_inline(); else step_lock(); return none; }
int main(int c, char **v)
{
    int p[2];
    char b;
    pthread_t t;
    how = v[1];
    fd = open("lock", O_RDWR | O_CREAT, 0600);
    if (pipe(p)) return 1;
    if (!fork()) { fcntl(fd, F_SETLKW, &whole); if (write(p[1], "x", 1)) close(p[0]); close(p[1]); sleep(60); _exit(0); }
    close(p[1]);
    if (read(p[0], &b, 1) != 1) return 1;
    close(open("ready", O_CREAT, 0600));
    if (strstr(how, "thread")) pthread_create(&t, 0, step_thread, 0), pthread_join(t, 0); else step_thread(0);
    return c;
}
X
gcc -O1 b.c -o b -lpthread; exec 2>/dev/null # the shell tells process numbers
for how in lock fifo inline thread_lock thread_fifo thread_inline; do ./b $how & p=$!; s=; while [ "$s" != SSS ]; do sleep 0.05; [ -e ready ] || continue; case $(cat /proc/$p/task/*/wchan /proc/$p/task/*/stat) in *') R '*) s= ;; *) s=${s}S ;; esac; done; echo $how; gdb -batch -nx -p $p -ex 'thread apply all bt' | grep '^[#B]' | grep -o 'in step_[a-z]*\|in main\|Backtrace stopped.*'; rm ready; kill -9 $p $(cat /proc/$p/task/*/children); wait $p; done; rm -f b fifo
