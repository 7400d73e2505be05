# The shell itself: redirections, here-documents, process substitution, pipelines, globbing, directories, traps.

#:: redirections
echo one >a; echo two >>a; cat <a; cat 0<a >b 2>&1; echo err >&2 2>c; ls nosuch 2>e; ls nosuch &>both; ls nosuch &>>both; cat both; exec 5>f; echo five >&5; exec 5>&-; echo six >&5; echo $?; exec 6<a; read -u 6 x; read y <&6; echo $x $y; exec 6<&-; : >|a; wc -c a; set -C; echo x >b; echo $?; echo x >|b; set +C; echo no >nodir/x; echo $?; cat <nosuch; echo $?; echo x >.; echo $?

#:: read_write_redirection
printf 'abcdef\n' >a; exec 3<>a; read -n 2 -u 3 x; echo "$x"; printf XY >&3; exec 3>&-; cat a; echo new 1<>a; cat a; exec 4<a 5<&4; read -n1 -u 4 p; read -n1 -u 5 q; echo $p$q; exec 4<&- 5<&-

#:: here_documents
cat <<X >a
text $((1+2)) $(echo sub)
X
cat <<'X' >>a
text $((1+2))
X
cat <<-X
	tabbed
	X
cat <<<"here $USER string" >b; cat a b; while read -r l; do echo "[$l]"; done <<X
1
2
X
yes 'a long line for a here document that does not fit a pipe' | head -3000 >big; x=$(<big); cat <<<"$x" | cmp - big

#:: shared_offset
seq 10 >a; { read x; read y; cat; } <a >b; echo $x $y; wc -l b; (echo 1; (echo 2; /bin/echo 3); echo 4) >c; cat c; { echo p; cat a; echo q; } >d; (head -c 4 >/dev/null; cat) <a | head -2; exec 3>e; echo parent >&3; (echo child >&3; sh -c 'echo grandchild >&3'); echo after >&3; exec 3>&-; cat e; for i in 1 2 3; do echo $i & wait; done >>f; cat f

#:: pipelines
seq 1000 >a; cat a | grep 7 | sort -rn | uniq | head -3; cat a | while read x; do [ $((x%100)) = 0 ] && echo $x; done >b; cat b; set -o pipefail; cat nosuch | cat; echo $?; cat a |& wc -l; coproc { cat a; }; read -u ${COPROC[0]} l; echo $l; wait; echo "${PIPESTATUS[@]}"; yes | head -2 >c; cat <(cat a) <(cat b) | wc -l; diff <(sort a) <(sort -n a) | wc -l; cat a > >(tail -1 >t); until [ -s t ]; do sleep 0.02; done; cat t; tee >(wc -l >n) <a >/dev/null; until [ -s n ]; do sleep 0.02; done; cat n; mapfile -t m <a; echo ${#m[@]}

#:: globbing
shopt -s extglob
mkdir -p d/e .h; touch a.c b.c 'sp ace' d/x.c d/e/y.c .h/z '[x]' '*'; echo *.c; echo */; echo d/*; echo .*; shopt -s globstar nullglob extglob dotglob; echo **/*.c; echo nosuch*; echo !(a*); echo ?.c; echo [ab].c; echo "*"; for f in *; do echo "<$f>"; done; echo */*/; shopt -s nocaseglob; echo A.*; compgen -f d; GLOBIGNORE=a.c; echo *.c

#:: cd_pushd
mkdir -p a/b c; ln -s a/b l; s() { sed "s:$T:T:g;s:$M:M:g"; }; cd a; pwd | s; cd -  | s; cd l; pwd | s; pwd -P | s; cd ..; pwd | s; cd -P l; pwd | s; cd "$T"; pushd a | s; pushd b | s; popd | s; dirs | s; popd | s; cd nosuch; echo $?; touch f; cd f; echo $?; cd a/b/../..; pwd | s; cd "$M"; pwd | s; ls; cd ..; ls -d t; cd "$M/t/a/b"; cd ../../../..; [ "$PWD" = "$(dirname "$M")" ] && echo up; cd /; cd "$OLDPWD"; cd "$T/c"; rmdir "$T/c"; touch x; echo $?; ls; pwd | s; /bin/pwd; echo $?; cd ..; pwd | s; (cd a; echo sub >f); cat a/f; cd /proc/self/cwd; pwd; ls

#:: cwd_renamed
mkdir -p a/b z; cd a/b; mv "$T/a" "$T/n"; /bin/pwd | sed "s:$T:T:"; echo x >f; ls "$T/n/b"; mv "$T/n/b" "$T/z"; /bin/pwd | sed "s:$T:T:"; ls ..; cat f

#:: traps
trap 'echo bye >trace; cat trace' EXIT; trap 'echo usr1 >>log' USR1; for i in 1 2 3 4 5; do kill -USR1 $$; done; trap 'echo err >>log' ERR; false; cat nosuch; trap 'echo ret' RETURN; (trap 'echo sub >>log' EXIT; exit 3); echo $?; trap 'echo chld >>chld' CHLD; sleep 0.01 & wait; trap - CHLD; cat log; sh -c 'trap "echo term >term; exit 7" TERM; kill $$; sleep 5'; echo $?; cat term

#:: background
for i in 1 2 3 4 5 6 7 8; do (seq $((i*100)) >f$i; echo $i >>done) & done; wait; cat f* | wc; sort done; rm done; sleep 5 & p=$!; kill $p; wait $p; echo $?; (sleep 0.1; echo late >late) & wait $!; cat late; jobs; { echo a; exit 4; } >x & wait $!; echo $?

#:: source_and_functions
cat >lib.sh <<'X'
greet() { echo "hello $1 from ${BASH_SOURCE##*/}"; }
X
. ./lib.sh; greet you; source lib.sh; echo 'echo sourced $0 $*' >s; . ./s a b | sed 's/^sourced [^ ]*/sourced/'; bash s x | sed 's:\S*/::'; echo 'exit 9' | bash; echo $?; echo 'echo $#' >n; bash ./n 1 2 3; bash nosuch; echo $?; eval "$(cat s)" >/dev/null; PATH=. type s; bash -c 'echo $BASH_EXECUTION_STRING >o'; cat o; history -w h; HISTFILE=hist bash -c 'history -s one; history -a'; ls

#:: scripts_in_the_mount
printf '#!/bin/sh\necho "sh script $# $1"; cat "$0" | wc -l\n' >s; chmod +x s; ./s a b; "$T/s" | tail -1; PATH="$T:$PATH" s q; printf '#!/bin/cat\nshown\n' >c; chmod +x c; ./c; printf '#!/usr/bin/env bash\necho env $BASH_VERSION | cut -c1-3\n' >e; chmod +x e; ./e; printf '#!/bin/sh -e\nfalse\necho no\n' >f; chmod +x f; ./f; echo $?; printf '#!%s/s extra\n' "$T" >i; chmod +x i; ./i arg; rm i; printf '#! /bin/nosuch\n' >n; chmod +x n; ./n 2>/dev/null; echo $?; echo 'echo plain' >p; chmod +x p; ./p; chmod -x p; ./p; echo $?; mkdir d; ./d; echo $?; ./nosuch; echo $?; printf '#!./s\n' >r; chmod +x r; ./r rel; ln -s s link; ./link via; find . -name s -exec {} found \;; printf '#!/usr/bin/awk -f\nBEGIN{print "awk"}\n' >a; chmod +x a; ./a; exec ./s last

#:: programs_in_the_mount
cp /bin/echo /bin/ls /bin/cat .; ./echo hi; ./ls; ./cat ./echo | cmp - /bin/echo; mkdir bin; mv ls bin; PATH="$T/bin:$PATH"; hash -r; ls bin; cp /bin/bash sh2; ./sh2 -c 'echo $0; ./echo nested; (./echo sub)'; ln -s bin/ls l; ./l bin; ln cat hardcat; echo x | ./hardcat; chmod 644 echo; ./echo; echo $?; (exec -a other ./cat /proc/self/cmdline | tr '\0' ' '); echo junk >bad; chmod +x bad; /usr/bin/env ./bad 2>/dev/null; echo $?; : >empty; chmod +x empty; ./empty; echo $?; env -i ./hardcat s 2>/dev/null; echo $?; env -i "$T/sh2" -c 'echo in >envi; /bin/cat envi'; nice ./hardcat envi; rm sh2; cp ./cat run; ./run <(until [ -e gone ]; do sleep 0.02; done) & until [ "$(cat /proc/$!/comm)" = run ]; do sleep 0.01; done; rm run; : >gone; wait

#:: dev_fd
echo text >a; cat /dev/stdin <a; cat /dev/fd/0 <a; exec 7<a; cat /dev/fd/7; cat /proc/self/fd/7 <&7; echo x >/dev/stdout | cat; echo out >b; echo more >/dev/fd/8 8>>b; cat b; sh -c 'cat /proc/self/fd/3' 3<a; ls -l /proc/self/fd/7 | sed "s:.* -> ::;s:$T:T:"; test -e /dev/fd/7; echo $?; test -e /dev/fd/77; echo $?; [ /dev/fd/7 -ef a ] && echo same; wc -c </dev/fd/7; (cd /dev/fd && cat 7); cat /proc/self/cwd/a; stat -L -c %s /dev/fd/7; exec 7<&-; : >/dev/null; echo e 2>/dev/null >/dev/stderr; exec 9>c; echo nine >/proc/self/fd/9; cat c

#:: host_links_to_descriptors
printf hello >f; mkdir -p "$OUT/h" sub; ln -s /dev/stdin "$OUT/h/in"; ln -s in "$OUT/h/in2"; ln -s /dev/stdout "$OUT/h/log"; ln -s /proc/self/fd/0 "$OUT/h/fd0"; ln -s /proc/self/cwd "$OUT/h/cwd"; ln -s /proc/self/cwd/f "$OUT/h/cf"; for l in in in2 fd0; do cat "$OUT/h/$l" <f; stat -L -c '%F %s' "$OUT/h/$l" <f; done; cat "$OUT/h/cf" "$OUT/h/cwd/f" "$OUT/h/cwd/sub/../f" /proc/self/cwd/sub/../f; (echo to-log >"$OUT/h/log") >g; cat g; (echo again >>"$OUT/h/log") >>g; cat g; stat -L -c %F "$OUT/h/in" <sub; ls "$OUT/h/in/" <sub; stat -c %F "$OUT/h/in" <f; test -f "$OUT/h/in" <f; echo $?; test -d "$OUT/h/in" <sub; echo $?; printf 'echo from a script\n' >s; sh "$OUT/h/in" <s; printf '#!/bin/sh\necho executed\n' >x; chmod 755 x; "$OUT/h/in" <x; echo $?; cd sub; cat "$OUT/h/cwd/../f"; cat "$OUT/h/in" </etc/hostname | cmp - /etc/hostname; wc -c <"$OUT/h/in" <../f; exec <&-; cat "$OUT/h/in" 2>/dev/null; echo $?

#:: symlinks_across
mkdir -p "$OUT/h"; echo host >"$OUT/h/f"; ln -s "$OUT/h" out; cat out/f; echo new >out/g; cat "$OUT/h/g"; ls out; ln -s "$T" "$OUT/h/in"; echo back >out/in/b; cat b; cat "$OUT/h/in/b"; cd out/in; pwd -P | sed "s:$T:T:"; ls; ln -s ../../../../../../../../etc/passwd up; head -c 5 up; ln -s "$OUT/h/f" file; cat file; echo over >file; cat "$OUT/h/f"; rm file; ls "$OUT/h"; ln -s "$OUT/nosuch" dangle; echo made >dangle; cat "$OUT/nosuch"; mv "$OUT/h/in" .; readlink in | sed "s:$T:T:"; rm -r out/g; ls out/; rm up in dangle out; ls

#:: links_from_the_host_to_the_host
mkdir "$OUT/h"; cd "$OUT"; echo host >h/f; ln -s "$OUT/h/f" "$T/f"; ln -s "$OUT/h" "$T/d"; ln -s /bin/true "$T/t"; ln -s "$T/f" f; ln -s "$T/d" d; ln -s "$T/t" t
cat f d/f; stat -L -c '%F %s' f d/f; (cd d; pwd -P | sed "s:$OUT:OUT:"); test -r f; echo $?; ./t; echo $?; cp f "$T/c"; cat "$T/c"; echo more >>d/f; cat h/f; echo new >d/g; cat h/g; echo "d/../h/g" | xargs cat
mv d/g d/k; ln d/k d/l; mkdir d/sub; rm d/k; ls d/ h; mv d/l "$T/l"; mv "$T/l" d/; ls h; chmod 600 d/l; touch -d 2001-01-01 d/l; stat -c '%a %Y' h/l; truncate -s 2 d/l; cat h/l; echo; ln -s nosuch d/s; readlink h/s
ln -s "$T/d/made" made; echo made >made; cat h/made; ln -s "$OUT/ring" "$T/ring"; ln -s "$T/ring" ring; cat ring; echo $?; echo x >ring; echo $?; stat -L ring; echo $?; rm ring; cd "$T"; rm f d t ring c

#:: umask_and_modes
for u in 000 022 027 077 777; do umask $u; : >f$u; mkdir d$u; mkfifo p$u; done; umask 022; stat -c '%n %a' *; umask 777; echo x >g; cat g | wc -c; stat -c %a g

#:: read_loops
seq 2000 >a; n=0; while read -r l; do n=$((n+l)); done <a; echo $n; while read -r x && read -r y <&3; do echo "$x $y"; done <a 3<a | tail -1; read -N 7 s <a; printf '%q\n' "$s"; IFS=, read a1 b1 <<<"p,q"; echo $a1 $b1; while read -r l; do sh -c 'read z; echo $z'; done <a | tail -2; printf 'x\0y\0' | while read -d '' v; do echo $v; done >z; cat z; x=$(<z); echo $x; [ -z "$(</dev/null)" ] && echo empty; cat a | (read x; read y; echo $x $y); select v in p q; do echo $v; break; done <<<2 2>/dev/null

#:: many_open_files
for i in $(seq 10 200); do eval "exec $i>f$i"; done; for i in $(seq 10 200); do echo $i >&$i; done; for i in $(seq 10 200); do eval "exec $i>&-"; done; cat f* | wc -l; ulimit -n 20; for i in $(seq 3 30); do eval "exec {v}<f10" 2>/dev/null || { echo "failed"; break; }; done; echo ok

#:: dash_and_subshells
dash -c 'echo a >x; cat <x; (cd / && pwd); exec 3<x; read l <&3; echo $l; f=$(cat x); echo $f; cat <<E
here $f
E
for i in 1 2 3; do echo $i; done | while read n; do echo got $n >>y; done; cat y; trap "echo exit" 0; set -- *; echo $*; [ -f x ] && . ./x; umask; wait'; echo $?; dash -c 'cd nosuch'; echo $?; dash -c 'echo >nodir/x'; echo $?

#:: job_output_order
( for i in 1 2 3; do echo "bg $i"; done >>log ) & wait; ( for i in 1 2 3; do echo "fg $i"; done >>log ); cat log; (echo stdout; echo stderr >&2) >o 2>&1; cat o; (echo stdout; echo stderr >&2) 2>&1 >p | cat; exec 3>&1 >q; echo into q; exec >&3 3>&-; cat q; { ls nosuch; ls o; } >r 2>&1; cat r

#:: outlines
named() { until [ "$(cat /proc/$1/comm)" = "$2" ]; do sleep 0.01; done; }; exec 2>/dev/null # the shell tells process numbers
sleep 60 & p=$!; named $p sleep; [ "$(readlink /proc/$p/exe)" = "$(realpath "$(command -v sleep)")" ] && echo link; cmp /proc/$p/exe "$(command -v sleep)" && echo same; stat -Lc %i /proc/$p/exe "$(command -v sleep)" | uniq | wc -l; tr '\0' ' ' </proc/$p/cmdline; ps -o comm= -p $p; kill $p; wait $p; echo $?
cp "$(command -v sleep)" nap; ln -s nap doze; ./doze 60 & p=$!; named $p doze; readlink /proc/$p/exe | sed "s:$T:T:"; cmp /proc/$p/exe nap && echo same; echo x >>nap; echo $?; kill $p; wait $p
cp nap "$OUT/nap"; "$OUT/nap" 60 & p=$!; named $p nap; readlink /proc/$p/exe | sed "s:$OUT:OUT:"; cmp /proc/$p/exe "$OUT/nap" && echo same; kill $p; wait $p; (exec -a other cat /proc/self/comm); (exec -a other sh -c 'echo $0')
(ulimit -f 1; cat /proc/self/comm); (ulimit -n 4; cat /proc/self/comm); chmod 644 "$OUT/nap"; "$OUT/nap" 0; echo $?; chmod 755 "$OUT/nap"; for n in 0 1000 4096; do head -c $n nap >"$OUT/nap"; "$OUT/nap" 0; echo $?; done; ls -l /proc/self/fd | grep -c nap; (cd "$OUT"; ./nap; env ./nap; echo $?); env -i "$(command -v env)"; LD_DEBUG=statistics true; echo $?; cat /proc/self/maps | grep -c "$(realpath "$(command -v cat)")"

#:: host_scripts
exec 2>/dev/null; printf '%s\n' '#! /bin/sh  -u ' 'echo "${0##*/}" "$#" "$@"; cat /proc/$$/comm; tr "\0" "|" </proc/$$/cmdline | sed "s:|[^|]*/s|:|SCRIPT|:"; readlink /proc/$$/exe; echo $unset; echo not reached' >"$OUT/s"; chmod 755 "$OUT/s"; "$OUT/s" a "b c" ''; echo $?
(cd "$OUT"; ./s; PATH=. s x; exec -a other ./s y); env "$OUT/s" 1; ln -s s "$OUT/l"; "$OUT/l" | head -2; (ulimit -n 4; "$OUT/s"); python3 -c 'import os, subprocess, sys; print(subprocess.run([sys.argv[1], "p"], capture_output=True).stdout); f = os.open(sys.argv[1], os.O_RDONLY); os.set_inheritable(f, True); print(subprocess.run([f"/dev/fd/{f}"], close_fds=False, capture_output=True).returncode)' "$OUT/s" | sed "s:$OUT:OUT:"; chmod 644 "$OUT/s"; "$OUT/s"; echo $?; chmod 755 "$OUT/s"
printf '#!%s/s\necho inner\n' "$OUT" >"$OUT/t"; chmod 755 "$OUT/t"; "$OUT/t" z | sed "s:$OUT:OUT:g"; printf '#!/nowhere/sh\n' >"$OUT/t"; "$OUT/t"; echo $?; printf '#!/bin/cat' >"$OUT/t"; "$OUT/t"; echo " $?"; printf '#!  \n' >"$OUT/t"; "$OUT/t"; echo $?; printf '#!/bin/sh\n%s\n' "# $(printf '%0300d' 0)" >"$OUT/t"; "$OUT/t"; echo $?; printf '#!/%0300d\n' 0 >"$OUT/t"; "$OUT/t"; echo $?
printf '#!/usr/bin/env -S  bash -u\necho "$@"; cat /proc/$$/comm\n' >"$OUT/t"; "$OUT/t" q; printf '%s\n' '#!/usr/bin/env -S  python3 -S' 'import ctypes, sys' 'get = ctypes.CDLL(None).getauxval' 'get.restype = ctypes.c_void_p' 'print(sys.argv, ctypes.string_at(get(31)).decode())' >"$OUT/t"; sed "1s:.*:#!$(command -v python3) -S:" "$OUT/t" >"$OUT/u"; chmod 755 "$OUT/u"; "$OUT/t" 1 2 | sed "s:$OUT:OUT:g; s:[^ ]*python3:PYTHON:"; "$OUT/u" 1 | sed "s:$OUT:OUT:g"; (cd "$OUT"; ./u; env ./u)
