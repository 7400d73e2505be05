# Programs that leave their parent, talk through the mount, or are killed.
wait_for() { until [ -e "$1" ]; do sleep 0.02; done; }

#:: daemon needs perl
cat >d.pl <<'X'
use POSIX; exit if fork; POSIX::setsid(); exit if fork; chdir $ENV{T}; open STDIN, '<', '/dev/null'; open STDOUT, '>>', 'log'; open STDERR, '>&', \*STDOUT; $| = 1; open my $p, '>', 'pid.tmp'; print $p "$$\n"; close $p; rename 'pid.tmp', 'pid';
$SIG{TERM} = sub { print "term\n"; unlink 'pid'; exit }; $SIG{HUP} = sub { print "hup\n" }; while (1) { if (-e 'request') { open my $r, '<', 'request'; my $l = <$r>; close $r; open my $o, '>', 'answer.tmp'; print $o "answered $l"; close $o; unlink 'request'; rename 'answer.tmp', 'answer' } select undef, undef, undef, 0.02 }
X
perl d.pl; wait_for pid; echo hello >r; mv r request; wait_for answer; cat answer; kill -HUP $(cat pid); until grep -q hup log; do sleep 0.02; done; kill $(cat pid); while [ -e pid ]; do sleep 0.02; done; cat log; rm d.pl

#:: orphan_keeps_file
(sh -c 'exec 3>held; until [ -e go ]; do sleep 0.02; done; echo late >&3; echo done >new; mv new flag' &) ; wait_for held; rm -f held; ls; : >go; wait_for flag; cat flag; setsid sh -c 'sleep 0.2; echo session >s' & wait; cat s; nohup sh -c 'sleep 0.2; echo hup >h' >/dev/null 2>&1 & wait; cat h

#:: killed_process_leaves_others
exec 2>/dev/null # the shell tells process numbers
# Everything has ended, children of the killed too, when nobody has the pipe open any longer.
seq 100000 >a; { for i in 1 2 3 4 5 6; do (while :; do cat a >c$i; mv c$i m$i; ls >/dev/null; done) 2>/dev/null & p[$i]=$!; done; for i in 1 2 3 4 5 6; do sleep 0.1; kill -9 ${p[$i]}; done; wait 2>/dev/null; } 9>&1 | cat; seq 10 >b; cat b | wc -l; for i in 1 2 3; do mkdir d$i && rmdir d$i; done; cmp a <(seq 100000) && echo intact; rm -f c* m*; ls

#:: unix_socket needs python3
cat >s.py <<'X'
import socket, os, sys, array, threading
s = socket.socket(socket.AF_UNIX); s.bind('sock'); s.listen(5)
if os.fork() == 0:
    c = socket.socket(socket.AF_UNIX); c.connect('sock'); c.sendall(b'ping'); print('child', c.recv(4).decode(), flush=True); m, fds, f, a = socket.recv_fds(c, 10, 2); print('passed', os.read(fds[0], 20), os.lseek(fds[0], 0, 1), flush=True); os.write(fds[1], b'from child'); os._exit(0)
k, _ = s.accept(); print(k.recv(10)); k.sendall(b'pong'); open('f', 'w').write('file content'); f = os.open('f', os.O_RDONLY); g = os.open('g', os.O_RDWR | os.O_CREAT); socket.send_fds(k, [b'x'], [f, g]); os.wait(); print(os.lseek(f, 0, 1), os.pread(g, 20, 0)); print(os.stat('sock').st_size, oct(os.stat('sock').st_mode))
for bad in (lambda: socket.socket(socket.AF_UNIX).bind('sock'), lambda: socket.socket(socket.AF_UNIX).connect('nosuch'), lambda: socket.socket(socket.AF_UNIX).connect('f'), lambda: open('sock'), lambda: socket.socket(socket.AF_UNIX).bind('nodir/s')):
    try: bad(); print('no error')
    except OSError as e: print(e.errno)
os.rename('sock', 'moved'); c = socket.socket(socket.AF_UNIX); c.connect('moved'); k, _ = s.accept(); print('moved ok', os.path.basename(s.getsockname())); os.chdir('/'); c = socket.socket(socket.AF_UNIX); c.connect(os.environ['T'] + '/moved'); s.close(); c = socket.socket(socket.AF_UNIX)
try: c.connect(os.environ['T'] + '/moved')
except OSError as e: print(e.errno)
d = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); os.chdir(os.environ['T']); d.bind('dg'); e = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); e.bind('eg'); e.sendto(b'dgram', 'dg'); print(d.recvfrom(10)); d.sendto(b'back', 'eg'); print(e.recv(10)); os.unlink('dg'); os.unlink('eg')
X
python3 s.py; ls -F; rm s.py

#:: fifo_processes
mkfifo p; (for i in 1 2 3; do echo "w $i"; done >p) & cat <p; wait; (cat p >o) & exec 3>p; echo one >&3; sh -c 'echo two >&3'; exec 3>&-; wait; cat o; mv p q; (echo moved >q) & read x <q; echo $x; wait; ln q l; (echo hard >l) & cat q; wait; exec 4<>q; echo rw >&4; read y <&4; echo $y; rm q l; echo still >&4; read y <&4; echo $y; ls; mkfifo a b; tee a <(seq 5) >/dev/null <<<x & cat a; wait; dd if=b iflag=nonblock status=none; echo $?; dd of=b oflag=nonblock if=/dev/null status=none; echo $?

#:: inherited_descriptors needs perl,python3
seq 100 >a; exec 3<a 4>b 5<>c; perl -e 'open F, "<&=", 3; print scalar(<F>); open G, ">&=", 4; print G "perl\n"; close G'; python3 -c 'import os; print(os.read(3, 10), os.lseek(3, 0, 1)); os.write(4, b"python\n"); os.close(4)'; sh -c 'head -c 5 <&3; echo sh >&4'; bash -c 'exec 6<&3; read -u 6 x; exec sh -c "read y <&6; echo \$y"'; exec 3<&- 4>&- 5>&-; cat b; python3 -c 'import subprocess, os
f = os.open("a", os.O_RDONLY); print(subprocess.run(["cat", f"/dev/fd/{f}"], pass_fds=[f], capture_output=True).stdout[:5]); print(subprocess.run(["sh", "-c", f"cat <&{f}"], capture_output=True).returncode); os.set_inheritable(f, True); print(subprocess.run(["sh", "-c", f"head -c 3 <&{f}"], close_fds=False, capture_output=True).stdout); print(os.lseek(f, 0, 1))'

#:: threads_64
cat >t.c <<'X'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static void *work(void *arg)
{
    long n = (long)arg, bad = 0;
    char name[32], text[64], back[64];
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "f%ld.%d", n, i % 5);
        int length = snprintf(text, sizeof text, "thread %ld round %d", n, i);
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (fd < 0 || write(fd, text, length) != length || pread(fd, back, length, 0) != length || memcmp(text, back, length)) bad++;
        struct stat st;
        if (fstat(fd, &st) || st.st_size != length || close(fd)) bad++;
        if (i % 7 == 0 && unlink(name)) bad++;
    }
    int log = open("log", O_WRONLY | O_APPEND | O_CREAT, 0644);
    for (int i = 0; i < 20; i++) if (write(log, "0123456789\n", 11) != 11) bad++;
    close(log);
    return (void *)bad;
}
int main(void)
{
    pthread_t t[64];
    long bad = 0;
    for (long i = 0; i < 64; i++) pthread_create(&t[i], 0, work, (void *)i);
    for (int i = 0; i < 64; i++) { void *r; pthread_join(t[i], &r); bad += (long)r; }
    printf("bad %ld\n", bad);
    return bad != 0;
}
X
gcc -O1 -g0 -pthread -o t t.c && ./t; grep -vc '^0123456789$' log; wc -l log; ls | wc -l; rm t

#:: system_and_popen needs gcc
cat >s.c <<'X'
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <fcntl.h>
extern char **environ;
int main(void)
{
    system("echo system >a"); FILE *p = popen("cat a; echo popen", "r"); char l[100]; while (fgets(l, 100, p)) fputs(l, stdout); printf("%d\n", pclose(p)); p = popen("cat >b", "w"); fputs("to b\n", p); pclose(p);
    posix_spawn_file_actions_t fa; posix_spawn_file_actions_init(&fa); posix_spawn_file_actions_addopen(&fa, 1, "c", O_WRONLY | O_CREAT, 0644); posix_spawn_file_actions_adddup2(&fa, 1, 2); posix_spawn_file_actions_addopen(&fa, 0, "b", O_RDONLY, 0); pid_t pid; char *av[] = { "cat", 0 }; printf("%d\n", posix_spawnp(&pid, "cat", &fa, 0, av, environ)); int st; waitpid(pid, &st, 0); printf("%d\n", st);
    char *ev[] = { "ONLY=this", 0 }; char *ev2[] = { 0 }; char *sh[] = { "sh", "-c", "echo env $ONLY $HOME >>c; cat c", 0 }; posix_spawn(&pid, "/bin/sh", 0, 0, sh, ev); waitpid(pid, &st, 0); printf("%d\n", posix_spawn(&pid, "./nosuch", 0, 0, sh, ev2)); if (!(pid = vfork())) { execle("/bin/cat", "cat", "c", (char *)0, ev2); _exit(1); } waitpid(pid, &st, 0); printf("%d\n", st); FILE *t = tmpfile(); fputs("tmp", t); rewind(t); puts(fgets(l, 100, t)); int fd = open("x", O_RDWR | O_CREAT | O_CLOEXEC, 0600); if (!(pid = fork())) { dup2(fd, 9); execlp("sh", "sh", "-c", "echo nine >&9; echo no 2>/dev/null >&8; echo $?", (char *)0); } waitpid(pid, &st, 0); fflush(stdout); fexecve(open("/bin/cat", O_RDONLY | O_CLOEXEC), (char *[]){ "cat", "x", 0 }, environ); return 1;
}
X
gcc -g0 -w -o s s.c && ./s; rm s

#:: env_is_untouched
env | grep -v -e ^T= -e ^OUT= -e ^HOME= -e ^M= -e ^_= -e ^PWD -e ^OLDPWD -e ^LIGHTPATH= -e ^TREE -e ^SHLVL | sort; env -i sh -c 'echo x >f; cat f; export -p'; env -i /usr/bin/env; env -i A=1 B=2 /usr/bin/env; LD_PRELOAD= /bin/cat f; perl -e 'print join(" ", grep /^L[DI]/, sort keys %ENV), "\n"; %ENV = (); exec "/usr/bin/env"'; tr '\0' '\n' </proc/self/environ | grep -c ^PATH; sh -c 'unset LD_PRELOAD; cat f'; python3 -c 'import os; os.execve("/bin/cat", ["cat", "f"], {})'

#:: resource_limits
# What Lightpath keeps of a program that it meets first has no room under the limit.
head -c 0 /dev/zero; stat . >/dev/null; ls; (ulimit -n 8; sh -c 'exec 3</dev/null')
ulimit -f 10; { head -c 100000 /dev/zero >big; echo $?; } 2>/dev/null; stat -c %s big; (trap '' XFSZ; head -c 100000 /dev/zero >big2); echo $?; stat -c %s big2; ulimit -n 8; sh -c 'exec 3>a 4>b 5>c 6>d 7>e; echo ok; exec 8>f' ; echo $?; ls

#:: redis needs redis-server,redis-cli limit 120
up() { for i in $(seq 500); do [ "$(cli ping 2>/dev/null)" = PONG ] && return; sleep 0.02; done; echo 'not up'; }
cli() { redis-cli -s "$T/r.sock" "$@"; }
exec 2>/dev/null # the shell tells process numbers
redis-server --port 0 --unixsocket "$T/r.sock" --dir "$T" --appendonly yes --appendfsync always --save '' >log & p=$!
up; for i in $(seq 200); do echo "SET k$i v$i"; done | cli >/dev/null; cli incrby n 41; cli incr n; cli lpush l a b c; cli bgrewriteaof >/dev/null
for i in $(seq 500); do cli info persistence | grep -q 'aof_rewrite_in_progress:0' && break; sleep 0.02; done; cli set last 1; cli dbsize; kill -9 $p; wait $p; rm r.sock
redis-server --port 0 --unixsocket "$T/r.sock" --dir "$T" --appendonly yes --save '' >log & p=$!
up; cli dbsize; cli get n; cli get k200; cli get last; cli lrange l 0 -1; cli save; cli shutdown; wait $p; echo $?; ls; ls appendonlydir | wc -l; rm -r log dump.rdb appendonlydir

#:: nginx needs nginx,curl limit 120
mkdir -p n www; seq 20000 >www/big; echo one >www/small
[ "$(id -u)" = 0 ] && user='user root root;'
cat >n/c <<X
$user daemon off; worker_processes 2; pid $T/n/pid; error_log $T/n/err; events {}
http { access_log $T/n/acc; sendfile on; client_body_temp_path $T/n/b; proxy_temp_path $T/n/p; fastcgi_temp_path $T/n/f; uwsgi_temp_path $T/n/u; scgi_temp_path $T/n/s; server { listen unix:$T/n/sock; root $T/www; } }
X
nginx -p "$T/n" -c "$T/n/c" & p=$!
get() { curl -s --unix-socket "$T/n/sock" "$@"; }
for i in $(seq 500); do get http://x/small >/dev/null && break; sleep 0.02; done
get http://x/small; get http://x/big | cmp - www/big; echo two >www/small; get http://x/small; echo three >new; mv new www/small; get http://x/small; get -r 10-20 http://x/big; get -o /dev/null -w '%{http_code}\n' http://x/none; echo tail >>www/big; get http://x/big | tail -1; : >www/big; get http://x/big | wc -c
for i in 1 2 3 4; do (for j in $(seq 25); do get http://x/small >/dev/null || echo lost; done) & w="$w $!"; done; wait $w; kill -HUP $p; sleep 0.3; get http://x/small; kill -QUIT $p; wait $p; echo $?; wc -l <n/acc; rm -r n

#:: memcached needs memcached,python3
as=; [ "$(id -u)" = 0 ] && as='-u root'
memcached $as -s "$T/s" -P "$T/pid" -m 32 -t 2 & p=$!
for i in $(seq 500); do [ -S s ] && [ -s pid ] && break; sleep 0.02; done
python3 - <<'X'
import socket, os
c = socket.socket(socket.AF_UNIX); c.connect(os.environ['T'] + '/s'); f = c.makefile('rwb')
for i in range(300): f.write(b'set k%d 0 0 6\r\nvalue%d\r\n' % (i, i % 10))
f.flush(); print(sum(f.readline() == b'STORED\r\n' for i in range(300)))
f.write(b'get k7 k299\r\n'); f.flush(); print([f.readline() for i in range(5)])
X
kill $p; wait $p; echo $?; rm -f s pid

#:: postgres needs pg_ctlcluster,pgbench,setpriv limit 120
# A backend that is killed has the server recover what it shares; a server that is killed recovers from its log.
PATH=$(echo /usr/lib/postgresql/*/bin | tr ' ' '\n' | tail -1):$PATH
as_user() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
sql() { as_user psql -h "$PWD" -U bench -At postgres "$@"; }
server() { as_user pg_ctl -s -w -D data -l log "$@"; }
until_ready() { for i in $(seq 200); do sql -c 'select 1' >/dev/null 2>&1 && return; sleep 0.05; done; }
mkdir cluster; if [ "$(id -u)" = 0 ]; then chmod a+x "$M" "$M/.." "$M/../.." .; chown 65534:65534 cluster; fi; cd cluster
as_user initdb -D data -U bench --no-sync -A trust >/dev/null; server -o "-k $PWD -h ''" start
as_user pgbench -h "$PWD" -U bench -i -q postgres >/dev/null 2>&1; as_user pgbench -h "$PWD" -U bench -c 4 -j 2 -T 2 postgres 2>/dev/null | grep failed
sql -c 'create table t(a int primary key, b text)' -c "insert into t select i, 'row ' || i from generate_series(1, 2000) i"
sql -c 'select pg_backend_pid()' -c 'begin' -c "update t set b = 'lost'" -c 'select pg_sleep(60)' >backend 2>/dev/null & waits=$!
for i in $(seq 200); do [ -n "$(sql -c "select 1 from pg_stat_activity where query like '%pg_sleep(60)%' and pid <> pg_backend_pid()")" ] && break; sleep 0.05; done
kill -9 "$(head -1 backend)"; wait $waits; until_ready
sql -c 'select count(*), min(b), max(b) from t' -c 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history)'
grep -c 'was terminated by signal 9' log; server -m immediate stop; server -o "-k $PWD -h ''" start
sql -c 'select count(*) from t' -c 'reindex table t' -c 'vacuum full t' -c 'select count(*) from t where a between 100 and 199'; server -m fast stop; cd ..; rm -rf cluster

#:: mariadb needs mariadbd,mariadb-install-db,mariadb,mariadb-admin limit 120
# Killed with a transaction open, the server finds in its log what was committed.
as_user() { if [ "$(id -u)" = 0 ]; then exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else exec "$@"; fi; }
sql() { mariadb --no-defaults -uroot -S "$PWD/s" -N "$@"; }
server() { as_user mariadbd --no-defaults --datadir="$PWD/data" --socket="$PWD/s" --skip-networking >>log 2>&1 & p=$!; for i in $(seq 400); do sql -e 'select 1' >/dev/null 2>&1 && return; sleep 0.05; done; echo 'not up'; tail log; }
mkdir d; if [ "$(id -u)" = 0 ]; then chmod a+x "$M" "$M/.." "$M/../.." .; chown 65534:65534 d; fi; cd d
(as_user mariadb-install-db --no-defaults --datadir="$PWD/data" --auth-root-authentication-method=normal --skip-test-db >/dev/null 2>&1); server
sql -e 'create database t; use t; create table a(id int primary key auto_increment, b varchar(100), key(b)) engine=innodb; create table m(id int primary key, b text) engine=aria'
for i in $(seq 8); do sql t -e "insert into a(b) select concat('row ', seq) from seq_1_to_1000; insert into m values($i, repeat('x', 5000))" & w="$w $!"; done; wait $w
sql t -e "start transaction; update a set b = 'lost'; select 'open'; select sleep(60)" >open 2>/dev/null & q=$!
for i in $(seq 200); do [ -n "$(sql -e "select 1 from information_schema.processlist where info like '%sleep(60)' and info not like '%processlist%'")" ] && break; sleep 0.05; done
kill -9 $p; wait $p $q 2>/dev/null; rm -f s; server
sql t -e 'select count(*), min(b), max(b) from a; select count(*), sum(length(b)) from m; check table a, m'; mariadb-admin --no-defaults -uroot -S "$PWD/s" shutdown; wait $p; echo $?; grep -c ERROR log; ls data/t; cd ..; rm -r d

#:: jvm needs java,javac,curl limit 120
mkdir www; seq 20000 >www/big; echo one >www/small
cat >S.java <<'J'
import com.sun.net.httpserver.HttpServer;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.concurrent.Executors;
public class S {
    public static void main(String[] a) throws Exception {
        Path root = Path.of("www").toAbsolutePath();
        HttpServer s = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        s.createContext("/", x -> {
            Path p = root.resolve(x.getRequestURI().getPath().substring(1));
            int status = Files.isRegularFile(p) ? 200 : 404;
            if (x.getRequestMethod().equals("PUT")) {
                Path t = Files.createTempFile(root, "up", ".tmp");
                Files.copy(x.getRequestBody(), t, StandardCopyOption.REPLACE_EXISTING);
                Files.move(t, p, StandardCopyOption.ATOMIC_MOVE);
                status = 201;
            } else if (x.getRequestMethod().equals("DELETE")) {
                status = Files.deleteIfExists(p) ? 204 : 404;
            }
            x.sendResponseHeaders(status, status == 200 ? 0 : -1);
            if (status == 200)
                try (FileChannel c = FileChannel.open(p); OutputStream o = x.getResponseBody()) {
                    byte[] b = new byte[(int) c.size()];
                    if (x.getRequestURI().getQuery() == null) Files.copy(p, o);
                    else { c.map(FileChannel.MapMode.READ_ONLY, 0, b.length).get(b); o.write(b); }
                }
            x.close();
        });
        s.setExecutor(Executors.newFixedThreadPool(8));
        s.start();
        Files.writeString(Path.of("port.tmp"), "" + s.getAddress().getPort());
        Files.move(Path.of("port.tmp"), Path.of("port"));
        WatchService w = FileSystems.getDefault().newWatchService();
        root.register(w, StandardWatchEventKinds.ENTRY_DELETE);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> { try { Files.writeString(Path.of("bye"), "bye\n"); } catch (Exception e) { } }));
        for (WatchKey k = w.take();; k = w.take()) {
            for (WatchEvent<?> e : k.pollEvents())
                if (e.context().toString().equals("up")) Files.writeString(Path.of("seen"), e.kind() + "\n");
            k.reset();
        }
    }
}
J
javac S.java; java -cp . S & p=$!
wait_for port; u=http://127.0.0.1:$(cat port); get() { curl -s --noproxy '*' "$@"; }
get $u/small; get $u/big | cmp - www/big; get "$u/big?map" | cmp - www/big; echo two >www/small; get $u/small; echo tail >>www/big; get "$u/big?map" | tail -1; get -w '%{http_code}\n' $u/none
for i in 1 2 3 4; do (for j in $(seq 10); do get $u/small >/dev/null || echo lost; seq $j | get -T - $u/f$i; done) & w="$w $!"; done; wait $w; wc -l www/f*; seq 5000 | get -w '%{http_code}\n' -T - $u/up; sleep 0.5
for i in 1 2; do get -w '%{http_code}\n' -X DELETE $u/up; done; wait_for seen; cat seen; kill $p; wait $p; echo $?; cat bye; rm port ./*.class

#:: started_as_another_user needs start-stop-daemon,redis-server,redis-cli limit 120
# Root starts a server as nobody and stops it by its pid file; another user's session only starts and stops it.
mkdir d; user=; if [ "$(id -u)" = 0 ]; then chmod a+x "$M" "$M/.." "$M/../.." .; chown 65534:65534 d; user='--chuid 65534:65534'; fi
start-stop-daemon --start $user --pidfile "$T/d/pid" --chdir "$T/d" --exec "$(command -v redis-server)" -- --port 0 --unixsocket "$T/d/s" --dir "$T/d" --daemonize yes --pidfile "$T/d/pid" --logfile "$T/d/log" --save ''
for i in $(seq 500); do [ "$(redis-cli -s d/s ping 2>/dev/null)" = PONG ] && break; sleep 0.02; done; redis-cli -s d/s set a b; redis-cli -s d/s save; stat -c '%n %u %a' d/* | grep -v log
control() { start-stop-daemon "$@" --pidfile "$T/d/pid" --exec "$(command -v redis-server)"; echo $?; }
control --status; control --stop --quiet --retry 5; control --status; ls d; rm -r d
