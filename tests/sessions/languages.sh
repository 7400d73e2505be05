# Interpreters and virtual machines.

#:: perl needs perl
cat >p.pl <<'X'
use strict; use warnings; use Fcntl qw(:flock :seek :DEFAULT); use File::Temp qw(tempfile); use File::Copy; use File::Find; use File::Path; use Cwd; use POSIX ();
open my $f, '+>', 'a' or die; print $f "line $_\n" for 1..50; seek $f, 0, SEEK_SET; my @l = <$f>; print scalar(@l), "\n"; truncate $f, 20; close $f; print -s 'a', ' ', (-f 'a' ? 'file' : 'no'), "\n";
mkdir 'd'; copy('a', 'd/b'); move('d/b', 'd/c'); link 'a', 'l'; symlink 'a', 's'; print readlink('s'), ' ', (lstat 's')[7], ' ', (stat 'a')[3], "\n"; rename 'l', 'm'; chmod 0600, 'm'; utime 1000000000, 1000000001, 'm'; print((stat 'm')[9], "\n");
File::Path::make_path('x/y/z'); my @found; find({ wanted => sub { push @found, $File::Find::name }, no_chdir => 1 }, '.'); print join(' ', sort @found), "\n"; print join(',', sort glob('*')), "\n";
sysopen my $e, 'a', O_CREAT | O_EXCL | O_WRONLY or print "excl: $!\n"; open $e, '<', 'nosuch' or print "open: $!\n"; opendir my $d, 'nosuch' or print "opendir: $!\n"; rmdir 'x' or print "rmdir: $!\n"; unlink 'd' or print "unlink: $!\n";
open my $k, '>>', 'lock'; flock $k, LOCK_EX; if (my $p = fork) { waitpid $p, 0; print 'child ', $? >> 8, "\n" } else { open my $q, '>>', 'lock'; POSIX::_exit(flock($q, LOCK_EX | LOCK_NB) ? 0 : 7) }
local $SIG{ALRM} = sub { open my $h, '>>', 'handler'; print $h "tick\n"; close $h }; for (1..3) { kill 'ALRM', $$ } open my $pipe, '-|', 'cat a | wc -c'; print <$pipe>; close $pipe; print `cat a | head -1`; open my $dup, '>&', \*STDOUT; print $dup "dup\n"; close $dup;
my ($t, $name) = tempfile(DIR => '.', UNLINK => 1); print $t "x"; open my $in, '<:mmap', 'a' or die; print scalar(<$in>); { local @ARGV = ('a'); local $^I = '.bak'; while (<>) { s/line/LINE/; print } } print -e 'a.bak' ? "bak\n" : "none\n"; chdir 'd'; print getcwd() =~ m{/t/d$} ? "cwd\n" : getcwd() . "\n"; File::Path::remove_tree('../x'); unlink "../$name"; exec '/bin/ls', '..';
X
perl p.pl; perl -i -pe 's/LINE/x/' a; cat a; perl -MDB_File -e '' 2>/dev/null; perl -e 'use SDBM_File; use Fcntl; tie my %h, "SDBM_File", "sdbm", O_RDWR|O_CREAT, 0644 or die; $h{$_}=$_*2 for 1..100; untie %h; tie %h, "SDBM_File", "sdbm", O_RDWR, 0644; print $h{50}, " ", scalar(keys %h), "\n"'; perl -e 'use Storable; store {a=>1}, "st"; print retrieve("st")->{a}, "\n"; require IO::File; my $f = IO::File->new_tmpfile; print $f "x"; seek $f,0,0; print <$f>, "\n"'; rm st; printf 'package My; sub x { "module\n" } 1;' >My.pm; perl -I. -MMy -e 'print My::x()'

#:: python needs python3
cat >p.py <<'X'
import os, sys, shutil, mmap, fcntl, subprocess, tempfile, threading, multiprocessing, json, pickle, sqlite3, zipfile, glob, pathlib, select, stat
open('a', 'w').write('hello\nworld\n'); print(open('a').readlines(), os.path.getsize('a'))
with open('a', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 0); m[0:5] = b'HELLO'; print(m.find(b'world')); m.flush(); m.close(); f.seek(0); print(f.read()); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
os.makedirs('d/e/f'); shutil.copy2('a', 'd/e/x'); shutil.copytree('d', 'copy'); shutil.move('copy', 'd/moved'); os.symlink('a', 's'); os.link('a', 'l'); print(sorted(os.listdir('.')), os.readlink('s'), os.stat('a').st_nlink)
print([(r, sorted(d), sorted(f)) for r, d, f in sorted(os.walk('.'))]); print(sorted(e.name for e in os.scandir('.') if e.is_file())); print(sorted(map(str, pathlib.Path('.').rglob('x')))); print(sorted(glob.glob('**/x', recursive=True)))
for bad in (lambda: open('nosuch'), lambda: os.rmdir('d'), lambda: os.mkdir('d'), lambda: os.unlink('d'), lambda: os.rename('d', 'd/e/g'), lambda: open('d', 'w'), lambda: os.listdir('a'), lambda: os.readlink('a'), lambda: open('a/b'), lambda: os.open('x' * 300, os.O_RDONLY), lambda: os.fdopen(99)):
    try: bad(); print('no error')
    except OSError as e: print(type(e).__name__, e.errno)
with tempfile.NamedTemporaryFile(dir='.') as t: t.write(b'x' * 100000); t.flush(); print(os.stat(t.name).st_size)
with tempfile.TemporaryFile(dir='.') as t: t.write(b'anon'); t.seek(0); print(t.read())
with tempfile.TemporaryDirectory(dir='.') as t: open(os.path.join(t, 'f'), 'w').close()
def w(i):
    for j in range(50):
        with open(f'th{i}', 'a') as f: f.write(f'{j}\n')
ts = [threading.Thread(target=w, args=(i,)) for i in range(8)]; [t.start() for t in ts]; [t.join() for t in ts]; print(sum(len(open(f'th{i}').readlines()) for i in range(8)))
print(subprocess.run(['cat', 'a'], capture_output=True).stdout, subprocess.run('wc -l <a >n; cat n', shell=True, capture_output=True, text=True).stdout); p = subprocess.Popen(['sort', '-r'], stdin=open('a'), stdout=open('sorted', 'w')); print(p.wait(), open('sorted').read()); print(subprocess.call(['./nosuch-dir/x'], stderr=subprocess.DEVNULL) if os.path.exists('nosuch-dir') else 'none')
fd = os.open('v', os.O_RDWR | os.O_CREAT, 0o600); print(os.pwrite(fd, b'abc', 10), os.pread(fd, 5, 8), os.lseek(fd, 0, os.SEEK_END), os.writev(fd, [b'x', b'y']), os.fstat(fd).st_size, os.get_inheritable(fd)); d = os.dup(fd); os.dup2(fd, 50); os.close(fd); print(os.fstat(50).st_size); os.ftruncate(50, 3); os.posix_fallocate(d, 0, 100); print(os.fstat(d).st_size); os.sendfile(1, d, 0, 3) if False else None
pid = os.fork()
if pid == 0: os.write(50, b'child'); os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), os.lseek(50, 0, os.SEEK_CUR)); os.chmod('v', 0o4711); print(oct(os.stat('v').st_mode)); os.utime('v', (1, 2)); print(os.stat('v').st_mtime, os.access('v', os.X_OK), os.statvfs('.').f_namemax); os.chdir('d'); print(os.getcwd().endswith('/t/d')); os.chdir('..'); dfd = os.open('d', os.O_RDONLY); print(sorted(os.listdir(dfd)), os.stat('e', dir_fd=dfd).st_nlink); os.mkdir('n', dir_fd=dfd); os.fchdir(dfd); print(os.getcwd().endswith('/d')); os.chdir('..')
with zipfile.ZipFile('z.zip', 'w') as z: z.write('a')
print(zipfile.ZipFile('z.zip').read('a')); os.remove('z.zip'); pickle.dump({1: 2}, open('pk', 'wb')); print(pickle.load(open('pk', 'rb'))); json.dump([1], open('j', 'w')); import dbm.dumb; db = dbm.dumb.open('dbm'); db['k'] = 'v'; db.close(); print(dbm.dumb.open('dbm')['k']); open('mod.py', 'w').write('x = 42\n'); sys.path.insert(0, '.'); sys.dont_write_bytecode = True; import mod; print(mod.x)
with multiprocessing.Pool(4) as pool: print(sum(pool.map(len, [open('a').read()] * 20)))
os.mkfifo('ff'); print(stat.S_ISFIFO(os.stat('ff').st_mode)); r = os.open('ff', os.O_RDONLY | os.O_NONBLOCK); w2 = os.open('ff', os.O_WRONLY); os.write(w2, b'through'); print(select.select([r], [], [], 1)[0] == [r], os.read(r, 10)); shutil.rmtree('d'); os.remove('ff'); os.setxattr('v', 'user.x', b'y'); print(os.listxattr('v'), os.getxattr('v', 'user.x')); print(os.path.realpath('s').endswith('/t/a'), os.path.samefile('a', 'l')); os.truncate('a', 2); print(open('l').read())
X
python3 p.py; python3 -c 'open("o","w").write("x"*10); import os; os.execv("/bin/cat", ["cat", "o"])'; python3 -m compileall -q mod.py; ls -d __pycache__; rm -r __pycache__ j pk

#:: python_venv_and_modules needs python3 limit 120
mkdir -p pkg/sub; echo 'from .sub import m' >pkg/__init__.py; : >pkg/sub/__init__.py; echo 'print("imported", __name__)' >pkg/sub/m.py; python3 -c 'import pkg'; python3 -c 'import pkg'; ls pkg/__pycache__; find . -name '*.pyc' | sort; python3 -m zipfile -c p.zip pkg/; PYTHONPATH=p.zip python3 -c 'import pkg'; python3 -m venv --without-pip v; v/bin/python -c 'import sys; print(sys.prefix.endswith("/t/v"))'; python3 -m tarfile -c a.tar pkg; python3 -m tarfile -l a.tar | sort; python3 -m json.tool <<<'{"a":1}' >j; cat j; python3 -m unittest -q 2>&1 | tail -1; rm -r v a.tar p.zip; find . -name __pycache__ -exec rm -r {} +

#:: node needs node limit 120
cat >n.js <<'X'
const fs = require('fs'), path = require('path'), cp = require('child_process'), { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
if (!isMainThread) { for (let i = 0; i < 20; i++) fs.appendFileSync('w' + workerData, i + '\n'); parentPort.postMessage(fs.readFileSync('w' + workerData, 'utf8').length); return; }
(async () => {
  fs.writeFileSync('a', 'hello'); fs.appendFileSync('a', ' world'); console.log(fs.readFileSync('a', 'utf8'), fs.statSync('a').size, fs.existsSync('nosuch'));
  fs.mkdirSync('d/e', { recursive: true }); await fs.promises.writeFile('d/e/f', Buffer.alloc(100000, 'x')); await fs.promises.copyFile('d/e/f', 'd/g'); fs.renameSync('d/g', 'd/h'); fs.symlinkSync('../a', 'd/s'); fs.linkSync('a', 'b'); console.log(fs.readlinkSync('d/s'), fs.realpathSync('d/s').endsWith('/t/a'), fs.readdirSync('.').sort(), (await fs.promises.stat('b')).nlink);
  for (const f of [() => fs.readFileSync('nosuch'), () => fs.rmdirSync('d'), () => fs.mkdirSync('d'), () => fs.readdirSync('a'), () => fs.openSync('d', 'w')]) try { f(); } catch (e) { console.log(e.code, e.syscall); }
  const fd = fs.openSync('a', 'r+'); fs.writeSync(fd, 'J', 0); console.log(fs.readSync(fd, Buffer.alloc(5), 0, 5, 3)); fs.ftruncateSync(fd, 4); fs.fsyncSync(fd); fs.futimesSync(fd, 100, 200); fs.closeSync(fd); console.log(fs.statSync('a').mtimeMs);
  await new Promise((r) => fs.createReadStream('d/e/f').pipe(fs.createWriteStream('out')).on('finish', r)); console.log(fs.statSync('out').size); const h = await fs.promises.open('out'); const rd = await h.read(Buffer.alloc(10), 0, 10, 99995); console.log(rd.bytesRead); await h.close();
  console.log(await Promise.all([1, 2, 3, 4].map((n) => new Promise((r) => new Worker(__filename, { workerData: n }).on('message', r))))); await Promise.all([...Array(200).keys()].map((i) => fs.promises.writeFile('d/p' + i, '' + i))); console.log((await fs.promises.readdir('d')).length);
  console.log(cp.execSync('cat b | wc -c').toString(), cp.spawnSync('cat', ['b']).stdout.toString(), cp.spawnSync('sh', ['-c', 'exit 3']).status); fs.rmSync('d', { recursive: true }); fs.writeFileSync('m.js', 'module.exports = 42'); console.log(require('./m.js')); fs.cpSync('m.js', 'm2.js'); const dir = fs.mkdtempSync('tmp-'); fs.rmdirSync(dir); process.chdir('/'); process.chdir(process.env.T); console.log(process.cwd().endsWith('/t')); console.log((await import(process.env.T + '/m.js')).default); const od = fs.opendirSync('.'); let n = 0; while (od.readSync()) n++; console.log(n); fs.accessSync('a', fs.constants.R_OK); fs.chmodSync('a', 0o600); console.log((fs.statSync('a').mode & 0o777).toString(8), fs.lstatSync('a').isFile());
})();
X
node n.js; printf '#!/usr/bin/env node\nconsole.log("script", process.argv.length)\n' >s; chmod +x s; ./s a

#:: npm needs node,npm,tar limit 180
export npm_config_cache=$T/cache npm_config_update_notifier=false npm_config_fund=false npm_config_audit=false NO_COLOR=1; mkdir -p dep/lib app; printf '{"name":"dep","version":"1.2.3","main":"lib/i.js","bin":{"dep":"bin.js"}}' >dep/package.json; echo 'module.exports = (x) => x + 1' >dep/lib/i.js; printf '#!/usr/bin/env node\nconsole.log("bin", require("./lib/i.js")(1))\n' >dep/bin.js; chmod +x dep/bin.js; (cd dep; npm pack --offline --silent); ls dep; cd app; printf '{"name":"app","version":"1.0.0","scripts":{"start":"node i.js","hook":"dep"}}' >package.json; npm install --offline --silent ../dep/dep-1.2.3.tgz; ls -F node_modules node_modules/.bin; echo 'console.log(require("dep")(41))' >i.js; npm run --silent start; npm run --silent hook; npx --offline --no-install dep; npm ls --offline | tail -2; npm uninstall --offline --silent dep; ls; cd ..; rm -rf cache app dep/*.tgz

#:: java needs java,javac limit 180
cat >Main.java <<'X'
import java.io.*; import java.nio.*; import java.nio.channels.*; import java.nio.file.*; import java.nio.file.attribute.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Main {
  public static void main(String[] a) throws Exception {
    Path p = Paths.get("a"); Files.writeString(p, "hello\nworld\n"); System.out.println(Files.readAllLines(p) + " " + Files.size(p)); Files.createDirectories(Paths.get("d/e/f")); Files.copy(p, Paths.get("d/e/x")); Files.move(Paths.get("d/e/x"), Paths.get("d/y"), StandardCopyOption.ATOMIC_MOVE); Files.createSymbolicLink(Paths.get("s"), p); Files.createLink(Paths.get("l"), p); System.out.println(Files.readSymbolicLink(Paths.get("s")) + " " + Files.getAttribute(p, "unix:nlink") + " " + Files.isSameFile(p, Paths.get("l")));
    try (FileChannel c = FileChannel.open(p, StandardOpenOption.READ, StandardOpenOption.WRITE)) { MappedByteBuffer m = c.map(FileChannel.MapMode.READ_WRITE, 0, c.size()); m.put(0, (byte) 'J'); m.force(); ByteBuffer b = ByteBuffer.allocate(5); c.read(b, 0); System.out.println(new String(b.array())); FileLock k = c.tryLock(); System.out.println(k.isValid()); k.release(); c.transferTo(0, c.size(), FileChannel.open(Paths.get("t"), StandardOpenOption.CREATE, StandardOpenOption.WRITE)); c.truncate(3); }
    try (RandomAccessFile r = new RandomAccessFile("r", "rw")) { r.setLength(1000); r.seek(500); r.writeInt(42); r.seek(500); System.out.println(r.readInt() + " " + r.length()); }
    try { Files.delete(Paths.get("d")); } catch (DirectoryNotEmptyException e) { System.out.println("not empty"); } try { new FileInputStream("nosuch"); } catch (FileNotFoundException e) { System.out.println(e.getMessage()); } try { Files.createDirectory(Paths.get("d")); } catch (FileAlreadyExistsException e) { System.out.println("exists"); }
    ExecutorService x = Executors.newFixedThreadPool(8); for (int i = 0; i < 50; i++) { int n = i; x.submit(() -> { Files.writeString(Paths.get("d/f" + n), "x".repeat(n)); return 0; }); } x.shutdown(); x.awaitTermination(30, TimeUnit.SECONDS); long total = 0; try (Stream<Path> w = Files.walk(Paths.get("d"))) { for (Path q : w.collect(Collectors.toList())) if (Files.isRegularFile(q)) total += Files.size(q); } System.out.println(total); Files.setPosixFilePermissions(p, PosixFilePermissions.fromString("rw-------")); Files.setLastModifiedTime(p, FileTime.fromMillis(1000)); System.out.println(Files.getLastModifiedTime(p)); System.out.println(new String(new ProcessBuilder("cat", "l").start().getInputStream().readAllBytes())); File f = File.createTempFile("tmp", ".x", new File(".")); System.out.println(f.delete() + " " + new File("a").canRead() + " " + new File(".").list().length);
  }
}
X
export JAVA_TOOL_OPTIONS=-XX:-UsePerfData; javac Main.java 2>/dev/null && java Main 2>&1 | grep -v Picked; jar cfe m.jar Main Main.class 2>/dev/null; java -jar m.jar 2>&1 | tail -1 | grep -v Picked; java Main.java 2>&1 | grep -v Picked | head -1; rm -f m.jar Main.class; ls

# musl's posix_spawn(3) gives the child 5 KiB of stack.
#:: musl_spawns needs musl-gcc,gcc limit 60
cat >spawn.c <<'C'
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
extern char **environ;
int main(int argc, char **argv)
{
    pid_t child;
    int status = 0, error = posix_spawnp(&child, argv[1], NULL, NULL, argv + 1, environ);
    if (error)
        return printf("%s: %s\n", argv[1], strerror(error)), 0;
    waitpid(child, &status, 0);
    printf("%s: %x\n", argv[1], status);
    printf("system %x\n", system("exit 7"));
    FILE *pipe = popen("echo from popen", "r");
    char line[80] = "";
    fgets(line, sizeof line, pipe);
    printf("%s%x\n", line, pclose(pipe));
}
C
printf '%s\n' '#include <stdio.h>' 'int main(int c, char **v) { printf("%s %s\n", v[0], c > 1 ? v[1] : ""); return 3; }' >say.c
musl-gcc -o spawn spawn.c; musl-gcc -static -o spawn_static spawn.c; musl-gcc -o say say.c; gcc -o say_glibc say.c; gcc -static -o say_static say.c; printf '#!./say_glibc it\n' >script; printf '#!/bin/echo host\n' >hosts; chmod +x script hosts
for way in NONE= LD_LIBRARY_PATH=/nowhere LD_PRELOAD=; do export "$way"; for p in ./spawn ./spawn_static; do for q in ./say ./say_glibc ./say_static ./script ./hosts true ./none; do $p $q arg; done; done; unset "${way%%=*}"; done; rm spawn spawn_static say say_glibc say_static script hosts spawn.c say.c
