# Programs that wait for files to change, by inotify: none may fall back to looking again and again.

export TZ=UTC
# Waits until a condition holds.
until_() { for try_ in $(seq 1500); do eval "$1" 2>/dev/null && return; sleep 0.01; done; echo "never: $1"; }

# Whether process p has so many watches.
watches() { [ "$(cat /proc/$p/fdinfo/* | grep -c '^inotify wd')" = "$1" ]; }

#:: tail needs tail
echo zero >log; tail -n +1 -s 3600 -f log >out 2>&1 & p=$!
until_ 'grep -q zero out'; echo one >>log; until_ 'grep -q one out'; exec 5>>log; echo two >&5; until_ 'grep -q two out'; echo three >&5; until_ 'grep -q three out'; (echo four; echo five) >>log; until_ 'grep -q five out'; kill $p; wait $p 2>/dev/null; cat out

#:: tail_follows_names needs tail
echo zero >log; tail -n +1 -s 3600 -F log >out 2>&1 & p=$!
until_ 'grep -q zero out'; until_ 'watches 2'; mv log log.1; echo one >log; until_ 'grep -q one out'; echo two >>log; until_ 'grep -q two out'; echo three >new; mv new log; until_ 'grep -q three out'; rm log; until_ 'grep -q inaccessible out'; echo four >log; until_ 'grep -q four out'; kill $p; wait $p 2>/dev/null; grep -v ^tail out; rm out

#:: inotifywait needs inotifywait
mkdir -p d/sub/deep; echo text >d/f; inotifywait -m -r --format '%w %e %f' d >out 2>err & p=$!
until_ 'grep -q established err'; echo more >>d/f; cat d/f >/dev/null; mkdir d/sub/new; until_ 'grep -q "CREATE,ISDIR new" out'
until_ 'watches 4'; echo x >d/sub/new/y; until_ 'grep -q "CLOSE_WRITE,CLOSE y" out'; mv d/f d/sub/deep/g; chmod 600 d/sub/deep/g; ln -s g d/sub/deep/l; rm d/sub/deep/l; mv d/sub/deep d/moved; touch d/moved/last; until_ 'grep -q "CLOSE_WRITE,CLOSE last" out'; rm -r d/moved; rmdir d/sub/new 2>/dev/null; rm d/sub/new/y; rmdir d/sub/new; touch d/end; until_ 'grep -q "CLOSE_WRITE,CLOSE end" out'; kill $p; wait $p 2>/dev/null; grep -v ACCESS out | uniq; rm out err

#:: inotifywait_once needs inotifywait
mkdir d; for i in 1 2 3; do inotifywait -q -e close_write --format '%e %f' d >out 2>err & p=$!; until_ 'watches 1'; echo $i >d/f$i; wait $p; echo $?; cat out err; done; inotifywait -q -t 1 -e delete d; echo $?; inotifywait -q d/none; echo $?

# What entr learns while its command runs does not count: changes are made until one does. It waits until
# changes cease for 50 ms, so there is a pause behind each.
#:: entr needs entr
echo 1 >a; echo 1 >b; ls a b | entr -n -s 'cat a b >out.new; mv out.new out' >/dev/null 2>err & p=$!
until_ '[ -e out ]'; until_ 'echo 2 >a; sleep 0.2; grep -q 2 out'; until_ 'echo 3 >new; mv new b; sleep 0.2; grep -q 3 out'; until_ 'echo 4 >b; sleep 0.2; grep -q 4 out'; kill $p; wait $p 2>/dev/null; cat out err

#:: entr_directories needs entr
mkdir d; echo 1 >d/a; echo d/a >list; entr -n -d true <list >out 2>&1 & p=$!
until_ 'watches 2'; until_ 'touch d/new$try_; sleep 0.2; ! kill -0 $p'; wait $p; echo $?; cat out; rm -r d

#:: node needs node
mkdir d; echo text >d/f; cat >w.js <<'X'
const fs = require('fs'), out = fs.openSync('out', 'a'), say = (...w) => fs.writeSync(out, w.join(' ') + '\n');
const watcher = fs.watch('d', (event, name) => { say(event, name); if (name === 'end') { watcher.close(); process.exit(0); } });
fs.watch('d/f', (event, name) => say('file', event, name));
say('ready');
X
node w.js 2>err & p=$!
until_ 'grep -q ready out'; echo more >>d/f; until_ 'grep -q "file change f" out'; mkdir d/sub; mv d/f d/g; rm d/g; until_ '[ $(grep -c "rename g" out) = 2 ]'; touch d/end; wait $p; echo $?; sort -u out; cat err; rm out

#:: node_recursive needs node
mkdir -p d/a/b; cat >w.js <<'X'
const fs = require('fs'), path = require('path'), seen = new Map(), out = fs.openSync('out', 'a');
const say = (...w) => fs.writeSync(out, w.join(' ') + '\n');
function add(dir) {
  if (seen.has(dir)) return;
  seen.set(dir, fs.watch(dir, (event, name) => {
    const at = path.join(dir, name);
    let kind = 'gone';
    try { kind = fs.statSync(at).isDirectory() ? 'dir' : 'file'; } catch {}
    if (kind === 'gone' && seen.has(at)) { seen.get(at).close(); seen.delete(at); say('unwatch', at); }
    if (kind === 'dir' && !seen.has(at)) { add(at); say('watch', at); }
    if (kind === 'file' && event === 'change') say('content', at);
    if (name === 'end') process.exit(0);
  }));
  for (const entry of fs.readdirSync(dir, { withFileTypes: true })) if (entry.isDirectory()) add(path.join(dir, entry.name));
}
add('d'); say('ready');
X
node w.js 2>err & p=$!
until_ 'grep -q ready out'; mkdir d/a/c; until_ 'grep -q "watch d/a/c" out'; mkdir d/a/c/e; until_ 'grep -q "watch d/a/c/e" out'; echo 1 >d/a/c/e/f; until_ 'grep -q "content d/a/c/e/f" out'; echo 1 >d/a/b/g; until_ 'grep -q "content d/a/b/g" out'; rm -r d/a/c; until_ 'grep -q "unwatch d/a/c$" out'; touch d/end; wait $p; echo $?; sort -u out; cat err; rm out

#:: python needs python3
cat >w.py <<'X'
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_CLOEXEC)
names = {}
for top, dirs, files in os.walk('d'):
    dirs.sort()
    names[libc.inotify_add_watch(fd, top.encode(), 0xfc6)] = top
print(sorted(names.values()), flush=True)
if os.fork() == 0:
    os.makedirs('d/x'); open('d/a/f', 'w').write('1'); os.rename('d/a/f', 'd/a/b/g'); os.chmod('d/a/b/g', 0o600); os.remove('d/a/b/g'); os.rmdir('d/x'); open('d/end', 'w').close(); os._exit(0)
done = False
while not done:
    data = os.read(fd, 65536)
    at = 0
    while at < len(data):
        wd, mask, cookie, length = struct.unpack_from('iIII', data, at)
        name = data[at + 16:at + 16 + length].rstrip(b'\0').decode()
        at += 16 + length
        print(names[wd], hex(mask), bool(cookie), name)
        done |= name == 'end' and bool(mask & 0x100)
os.wait()
X
mkdir -p d/a/b; python3 w.py

# As the path units of systemd: every directory on the way is watched for the next one, and what is waited for itself.
#:: path_unit needs python3
cat >w.py <<'P'
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def watch(path):
    fd, names, at = libc.inotify_init1(os.O_CLOEXEC), {}, '/'
    for name in [''] + path.strip('/').split('/'):
        at = os.path.join(at, name)
        wd = libc.inotify_add_watch(fd, at.encode(), 0xfce if at == path else 0xd84)
        if wd < 0: break
        names[wd] = at
    return fd, names
def events(fd, names, end):
    while True:
        data, at = os.read(fd, 65536), 0
        while at < len(data):
            wd, mask, _, length = struct.unpack_from('iIII', data, at)
            name = data[at + 16:at + 16 + length].rstrip(b'\0').decode()
            at += 16 + length
            if names[wd].startswith(os.environ['T']): print(os.path.relpath(names[wd]), hex(mask), name)
            if mask & end: return os.close(fd)
job = os.environ['T'] + '/spool/job'
for command, end in [('mkdir spool', 0x100), ('echo x >spool/job', 0x100), ('echo y >>spool/job', 0x8), ('chmod 600 spool/job', 0x4), ('mv spool/job spool/done', 0x800), ('mv spool/done spool/job', 0x80), ('rm spool/job', 0x400), ('mv spool gone', 0x800)]:
    print(command)
    fd, names = watch(job)
    os.system(command)
    events(fd, names, end)
P
python3 w.py; rm -r w.py gone
