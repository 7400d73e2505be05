# Programs from registries, and others that many use.

# The directories of npm's and PyPI's packages.
modules() {
    readlink -f "$(dirname "$(command -v "$1")")/.."
}

# Waits until a command succeeds; what it says until then is not told.
await() {
    until "$@" 2>/dev/null; do
        sleep 0.1
    done
}

# Whether a process watches something.
watches() {
    cat /proc/$1/fdinfo/* 2>/dev/null | grep -q '^inotify wd'
}

site() {
    mkdir src
    echo 'export const add = (a: number, b: number): number => a + b;' >src/a.ts
    echo 'import { add } from "./a"; import "./s.css"; document.title = String(add(1, 2));' >src/main.ts
    echo 'h1 { color: red }' >src/s.css
    echo '<html><body><script type=module src=/src/main.ts></script></body></html>' >index.html
}

#:: esbuild needs esbuild limit 120
# A static Go program.
site; esbuild src/main.ts --bundle --minify --outfile=out/m.js --sourcemap --log-level=warning; echo $?; ls out; cat out/m.js out/m.css; esbuild src/nosuch.ts --log-level=silent; echo $?

#:: vite needs vite,node limit 120
site; ln -s "$(modules vite)" node_modules; vite build --logLevel warn; echo $?; find dist -type f | sort | sed 's/-[A-Za-z0-9_-]*\././'; cat dist/assets/*; rm node_modules; rm -r dist

#:: vite_watching needs vite,node,curl limit 120
# A build that follows changes, and the server.
site; echo 'export const a: string = "one";' >src/a.ts; echo 'import { a } from "./a"; document.title = a;' >src/main.ts; ln -s "$(modules vite)" node_modules
built() { cat dist/assets/*.js 2>/dev/null | grep -q "title=.$1"; }
vite build --watch --logLevel warn & p=$!; await built one; await watches $p; sleep 0.3; echo 'export const a: string = "two";' >src/a.ts; await built two
echo 'export const a: string = "three";' >src/new; mv src/new src/a.ts; await built three; kill $p; wait $p 2>/dev/null
vite --port 0 >log 2>&1 & p=$!; await grep -q Local: log; at=$(sed 's/\x1b\[[0-9;]*m//g' log | grep -o 'http://localhost:[0-9]*'); curl -s $at/src/main.ts >/dev/null; curl -s $at/src/a.ts | grep -o three; await watches $p; sleep 0.3
echo 'export const a: string = "four";' >src/a.ts; await grep -q 'page reload' log; curl -s $at/src/a.ts | grep -o four; kill $p; wait $p 2>/dev/null; rm node_modules log; rm -r dist

#:: webpack needs webpack,node limit 120
mkdir src; echo 'module.exports = () => "one";' >src/a.js; echo 'console.log(require("./a")());' >src/index.js; ln -s "$(modules webpack)" node_modules
echo 'module.exports = { mode: "development", devtool: false, cache: false, watch: true, watchOptions: { aggregateTimeout: 20 } };' >webpack.config.js
built() { [ "$(node dist/main.js 2>/dev/null)" = $1 ]; }
webpack >log 2>&1 & p=$!; await built one; await watches $p; sleep 0.3; echo 'module.exports = () => "two";' >src/a.js; await built two; echo 'module.exports = () => "three";' >src/new; mv src/new src/a.js; await built three
mkdir src/b; echo 'module.exports = () => "four";' >src/b/index.js; sleep 0.3; echo 'console.log(require("./b")());' >src/index.js; await built four; rm src/a.js; mv src/b src/a; echo 'console.log(require("./a")() + "teen");' >src/index.js; await built fourteen
kill $p; wait $p 2>/dev/null; grep -ci 'error in' log; rm node_modules log; rm -r dist

#:: chokidar needs nodemon,node limit 120
# The watcher that nodemon and others use.
mkdir w; ln -s "$(modules nodemon)" node_modules; cat >c.cjs <<'X'
const chokidar = require("chokidar"), fs = require("fs");
const w = chokidar.watch("w"), seen = [], pause = () => new Promise(r => setTimeout(r, 150));
const told = async what => { while (!seen.includes(what)) await pause(); await pause(); };
w.on("all", (e, p) => { seen.push(e + " " + p); if (p == "w/end") { console.log(seen.sort().join("\n")); process.exit(); } });
w.on("ready", async () => { fs.mkdirSync("w/d"); await told("addDir w/d"); fs.writeFileSync("w/d/f", "1"); await told("add w/d/f"); fs.appendFileSync("w/d/f", "2"); await told("change w/d/f"); fs.renameSync("w/d/f", "w/g"); await told("add w/g"); await told("unlink w/d/f"); fs.unlinkSync("w/g"); await told("unlink w/g"); fs.writeFileSync("w/end", ""); });
X
node c.cjs; rm node_modules

#:: nodemon needs nodemon,node limit 120
app() { echo "require('fs').appendFileSync('runs', '$1\n'); setInterval(() => 0, 1000)" >app.js; }
app one; nodemon -q --watch app.js app.js & await grep -q one runs; await watches $!; sleep 0.5; app two; await grep -q two runs; kill $!; wait $! 2>/dev/null; cat runs

#:: deno needs deno limit 120
# A large program without unwind tables: V8, and its own calls of the kernel.
export DENO_DIR=$T/cache NO_COLOR=1 DENO_NO_UPDATE_CHECK=1; echo 'export function add(a: number, b: number): number { return a + b; }' >b.ts
echo 'self.onmessage = () => self.postMessage(Deno.readTextFileSync("x").length);' >w.ts
cat >a.ts <<'X'
import { add } from "./b.ts";
await Deno.writeTextFile("x", "hello\n"); await Deno.writeTextFile("x", "more\n", { append: true });
await Deno.mkdir("d/e", { recursive: true }); for (let i = 0; i < 20; i++) Deno.writeTextFileSync(`d/f${i}`, "x".repeat(i));
console.log([...Deno.readDirSync("d")].map(e => e.name + (e.isDirectory ? "/" : "")).sort().join(), (await Deno.stat("d/f7")).size);
await Deno.rename("d/f7", "d/g"); await Deno.symlink("g", "d/l"); console.log(await Deno.readLink("d/l"), add(1, 2));
const f = await Deno.open("x", { read: true, write: true }); await f.lock(true); await f.seek(3, 0); await f.write(new TextEncoder().encode("ZZ")); await f.truncate(8); await f.unlock(); await f.sync(); f.close();
console.log(JSON.stringify(await Deno.readTextFile("x")));
const watcher = Deno.watchFs("d"); setTimeout(() => Deno.writeTextFileSync("d/new", "1"), 100);
for await (const e of watcher) { console.log(e.kind, e.paths.map(p => p.split("/").pop())); break; }
const p = await new Deno.Command("cat", { args: ["x"] }).output(); console.log(p.code, new TextDecoder().decode(p.stdout));
try { await Deno.remove("d"); } catch (e) { console.log(e.code); }
await Deno.remove("d", { recursive: true });
const worker = new Worker(new URL("./w.ts", import.meta.url).href, { type: "module" }); worker.postMessage(0); console.log(await new Promise(r => worker.onmessage = e => r(e.data))); worker.terminate();
X
cat >b_test.ts <<'X'
import { add } from "./b.ts";
Deno.test("add", () => { if (add(1, 2) !== 3) throw new Error("no"); });
Deno.test("file", async () => { await Deno.writeTextFile("t", "abc"); if ((await Deno.stat("t")).size !== 3) throw new Error("size"); });
X
deno run -A a.ts 2>&1; echo $?; deno test -A 2>&1 | grep -c '\.\.\. ok'; deno fmt -q --check b.ts; echo $?; rm -r cache

#:: ruff needs ruff limit 120
# Static Rust programs.
printf 'import os, sys\nx=1\ndef f( a ):\n  return a\n' >p.py; ruff check --quiet --select F --output-format concise p.py; echo $?; ruff format --quiet p.py; cat p.py; ls -A .ruff_cache | grep -v '^[0-9]'; ruff check --select F --fix --quiet p.py; cat p.py; rm -r .ruff_cache

#:: uv needs uv,python3 limit 120
export UV_CACHE_DIR=$T/cache UV_OFFLINE=1; uv venv -q --no-python-downloads v; v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)'; mkdir w; cat >mk.py <<'X'
import zipfile
with zipfile.ZipFile("w/k-1-py3-none-any.whl", "w") as z:
    z.writestr("k.py", "def f(): return 7\n"); z.writestr("k-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: k\nVersion: 1\n")
    z.writestr("k-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n"); z.writestr("k-1.dist-info/RECORD", "k.py,,\nk-1.dist-info/METADATA,,\nk-1.dist-info/WHEEL,,\nk-1.dist-info/RECORD,,\n")
X
python3 mk.py; uv pip install -q --python v/bin/python w/k-1-py3-none-any.whl; echo $?; v/bin/python -c 'import k; print(k.f())'; uv pip list -q --python v/bin/python 2>&1; uv pip uninstall -q --python v/bin/python k; v/bin/python -c 'import k' 2>&1 | tail -1; rm -r v cache w

#:: watchdog needs watchmedo,python3 limit 120
PYTHONPATH=$(modules watchmedo) python3 - <<'X'
import os, time
from watchdog.observers import Observer
from watchdog.events import FileSystemEventHandler
os.mkdir("wd"); seen = set()
class H(FileSystemEventHandler):
    def on_any_event(self, e): seen.add((e.event_type, os.path.relpath(e.src_path), e.is_directory))
o = Observer(); o.schedule(H(), "wd", recursive=True); o.start()
for step, told in ((lambda: os.mkdir("wd/d"), ("created", "wd/d", True)), (lambda: open("wd/d/f", "w").close(), ("closed", "wd/d/f", False)),
                   (lambda: os.rename("wd/d/f", "wd/g"), ("moved", "wd/d/f", False)), (lambda: os.unlink("wd/g"), ("deleted", "wd/g", False))):
    step()
    while told not in seen: time.sleep(0.05)
    time.sleep(0.3)
o.stop(); o.join(); print(*sorted(seen), sep="\n")
X

#:: restic needs restic limit 120
mkdir data; for i in {1..40}; do head -c $((i * 1000)) /dev/zero | tr '\0' "$((i % 10))" >data/f$i; done; ln -s f1 data/l; chmod 600 data/f2; export RESTIC_PASSWORD=x RESTIC_CACHE_DIR=$T/cache
restic init -q -r repo; restic backup -q -r repo data; echo more >>data/f1; restic backup -q -r repo data; restic check -q -r repo; echo $?; restic snapshots -r repo --compact | tail -1; restic restore -q -r repo latest --target back; diff -r data "back/data" 2>/dev/null || diff -r data "back$T/data"; echo $?; rm -r repo cache

#:: erlang needs erl,erlc limit 120
cat >t.erl <<'X'
-module(t).
-export([main/0]).
main() ->
    logger:set_primary_config(level, error),
    ok = file:write_file("f", <<"text">>), {ok, B} = file:read_file("f"), io:format("~s~n", [B]),
    {ok, D} = file:open("log", [append, raw, delayed_write]), [ok = file:write(D, io_lib:format("~p~n", [N])) || N <- lists:seq(1, 1000)], ok = file:close(D),
    Self = self(), [spawn(fun() -> P = "p" ++ integer_to_list(N), ok = file:write_file(P, P), ok = file:rename(P, P ++ "x"), Self ! done end) || N <- lists:seq(1, 50)],
    [receive done -> ok end || _ <- lists:seq(1, 50)], io:format("~p ~p~n", [filelib:file_size("log"), length(filelib:wildcard("p*x"))]),
    {ok, T} = dets:open_file(t, [{file, "t.dets"}]), ok = dets:insert(T, [{N, N * N} || N <- lists:seq(1, 500)]), ok = dets:sync(T), [{7, 49}] = dets:lookup(T, 7), ok = dets:close(T),
    {ok, _} = dets:open_file(t, [{file, "t.dets"}]), io:format("~p~n", [dets:info(t, size)]), ok = dets:close(t),
    {ok, L} = disk_log:open([{name, l}, {file, "l.log"}]), ok = disk_log:log(l, term), ok = disk_log:close(L),
    {ok, I} = file:read_file_info("f"), io:format("~p ~p ~p ~p~n", [element(2, I), element(3, I), file:read_file("nosuch"), file:del_dir(".")]),
    {ok, R} = file:open("f", [read, write, raw, binary]), {ok, 2} = file:position(R, 2), ok = file:write(R, <<"ZZ">>), ok = file:truncate(R), {ok, <<"eZ">>} = file:pread(R, 1, 2), ok = file:sync(R), ok = file:close(R),
    io:format("~s", [os:cmd("cat f; ls | wc -l")]), mnesia(code:which(mnesia)), init:stop().
mnesia(non_existing) -> ok;
mnesia(_) ->
    ok = application:set_env(mnesia, dir, "db"), ok = mnesia:create_schema([node()]), ok = mnesia:start(),
    {atomic, ok} = mnesia:create_table(k, [{disc_copies, [node()]}]), ok = mnesia:wait_for_tables([k], 60000),
    {atomic, ok} = mnesia:transaction(fun() -> [mnesia:write({k, N, N}) || N <- lists:seq(1, 100)], ok end),
    stopped = mnesia:stop(), ok = mnesia:start(), ok = mnesia:wait_for_tables([k], 60000), io:format("~p~n", [mnesia:table_info(k, size)]), mnesia:stop().
X
erlc t.erl; erl -noshell -s t main; echo $?; ls | grep -v '^p'; rm -rf t.beam t.dets l.log db
