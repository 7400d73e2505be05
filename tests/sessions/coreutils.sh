# Every command of coreutils that touches files, one session each.
# Times shown are times set with `touch -d`; anything else of today is left out of listings.

lines() { seq -f "line %g" "${1:-10}"; }
sample() {
    mkdir -p src/sub/deep src/empty
    lines 20 >src/a.txt
    lines 5 >src/sub/b.txt
    printf 'no newline' >src/sub/deep/c
    ln -s a.txt src/link
    ln -s nowhere src/dangling
    ln -s sub src/dirlink
    ln src/a.txt src/sub/hard
    chmod 750 src/sub; chmod 640 src/sub/b.txt; chmod 4755 src/sub/deep/c
    touch -d '2020-01-02 03:04:05.123456789' src/a.txt src/sub/b.txt src/sub/deep
    touch -h -d '2019-05-06 07:08:09' src/link src/dangling
}

#:: cat
lines >a; lines 3 | cat >b
cat a b >c; cat -A b; cat -n c; cat -s - <c; cat a nosuch b; echo $?
cat <a >>a2; cat a a2 - <b | wc
cat c >c; echo $?
ln -s a l; cat l; cat .; echo $?

#:: tac
lines 2000 >a; tac a | head -3; tac -s 9 a | tail -c 40; tac a b; echo $?

#:: cp_file
lines >a; cp a b; cp a c; echo longer-than-before >>a; cp a b; cp -n a c; cp -v b d; cp a nodir/x; echo $?
cp a .; echo $?; cp nosuch e; echo $?; cp --backup=numbered a b; cp --backup=simple a b; mkdir d2; cp -t d2 a b; cp -T a d2; echo $?
chmod 600 a; cp a mode; cp -p a keep; cp -l a hard; cp -s "$PWD/a" soft; cp -u a b; cp --remove-destination a c; cp -f a soft
cp --attributes-only a attr; cp /dev/null null; cp --sparse=always /dev/null s; cp --reflink=auto a ref; cp --reflink=always a ref2; echo $?
ls -1

#:: cp_recursive
sample; cp -r src dst; cp -r src dst; cp -R src/. flat; cp -rL src/sub deref; cp -rP src nofollow; cp -rH src/dirlink head; cp -r src src/sub/into; echo $?; rm -r src/sub/into

#:: cp_archive
sample; cp -a src dst; cp -a src/link copy; cp -al src hard; rm src/sub/hard; cp -as "$PWD/src" soft; cp -dR --preserve=links,timestamps src p; cp -ru src dst
cp --parents src/sub/deep/c .; mkdir par; cp --parents src/sub/deep/c par
stat -c '%n %y %h' dst/a.txt dst/sub/b.txt dst/sub/deep p/a.txt

#:: cp_sparse
truncate -s 10M a; printf x | dd of=a bs=1 seek=5000000 conv=notrunc status=none; printf end >>a
cp a b; cp --sparse=always a c; cp --sparse=never a d; cmp a b; cmp a c; cmp a d
[ "$(stat -c %b a)" -lt 200 ] && echo sparse; [ "$(stat -c %b c)" -lt 200 ] && echo sparse; [ "$(stat -c %b d)" -gt 20000 ] && echo full
du -k a | cut -f1; du -k c | cut -f1

#:: cp_from_and_to_host
lines 3000 >a; cp a "$OUT/a"; cp "$OUT/a" b; cmp a b; cp -r /etc/alternatives alt; ls alt | wc -l; ls /etc/alternatives | wc -l; cp -r alt "$OUT/alt"; diff -r alt "$OUT/alt" >/dev/null; echo $?
cp /bin/true t; ./t; echo $?; ln -s /bin/true s; ./s; echo $?; cp -L s t2; cmp t t2

#:: mv
lines >a; mv a b; mkdir d; mv b d; mv d/b d/c; mv -v d e; mkdir f; mv -T e f; lines 2 >x; lines 3 >y; mv -n x y; echo $?; mv -b x y; mv nosuch z; echo $?
mkdir p p/q; mv p p/q; echo $?; mv y nodir/y; echo $?; ln -s y l; mv l m; mv f/c .; mkdir full full/in g; mv -T g full; echo $?; mkdir g; mv -T full g; echo $?; echo s >g2; mv g2 g2; echo $?; ln y y2; mv y y2; echo $?; mv -t g y2 c; ls -R

#:: mv_across
sample; mv src "$OUT/moved"; ls -A; mv "$OUT/moved" back; mv back/a.txt "$OUT"; mv "$OUT/a.txt" .; ls -A "$OUT" | grep -v -e std -e tree; mkfifo p; mv p "$OUT"; mv "$OUT/p" q; stat -c '%n %F' q; cat a.txt

#:: rm
sample; rm src/a.txt; rm src/sub; echo $?; rm -f nosuch; echo $?; rm nosuch; echo $?; rm -d src/empty; rm -d src; echo $?; rm -r src/sub/deep; rm -v src/link src/dangling; touch -- -f; rm -- -f; rm -rfv src | sort; rm -rf /nosuch .; echo $?; mkdir -p x/y/z; rm -rf x; touch w; chmod 400 w; rm -f w; yes n | rm -i /dev/null 2>/dev/null; mkdir many; cd many; seq 3000 | xargs touch; cd ..; rm -r many; ls -A

#:: rmdir
mkdir -p a/b/c d e/f; touch d/x; rmdir a/b/c; rmdir -p a/b; rmdir d; echo $?; rmdir --ignore-fail-on-non-empty d; echo $?; rmdir nosuch; echo $?; rmdir d/x; echo $?; rmdir e/f/.; echo $?; rmdir -v e/f/; rmdir e/..; echo $?; ls -R

#:: mkdir
mkdir a; mkdir a; echo $?; mkdir -p a/b/c/d; mkdir -p a; mkdir -m 1777 tmp; mkdir -m u=rwx,go= priv; mkdir x/y; echo $?; mkdir -v v/; touch f; mkdir f; echo $?; mkdir f/g; echo $?; umask 077; mkdir u; mkdir -p w/x; mkdir "$(printf 'n%.0s' {1..255})"; mkdir "$(printf 'n%.0s' {1..256})" 2>/dev/null; echo $?; mkdir $'tab\tnl\n' 'sp ace' 'ünï'; ls -1b

#:: ln
lines >a; ln a b; ln -s a s; ln a b; echo $?; ln -f a b; ln -sf nowhere s; ln -s s t; ln -L t x; echo $?; ln -P t p; mkdir d; ln a d; ln -s ../a d/rel; ln -sr d/rel d/rr; ln d dd; echo $?; ln -sn d e; ln -sfn a e; ln -st d ../b; ln nosuch n; echo $?; ln -s '' empty; echo $?; ln -s "$(printf 'x%.0s' {1..4095})" long; readlink long | wc -c; ln -b -f b a2; ln -b -f b a2; ln /etc/passwd pw; echo $?; cat d/rel | head -1; ls -1F

#:: link_unlink
lines >a; link a b; link a b; echo $?; unlink a; unlink a; echo $?; mkdir d; unlink d; echo $?; link nosuch c; echo $?; link d e; echo $?; link b d/b; unlink b; stat -c %h d/b

#:: install
lines >a; install a b; install -m 600 a c; install -d x/y -m 700; install -D a p/q/r; install -t x a c; install -b -m 644 c b; install -C a b; install -p -m 755 a keep; install -v a x/z; install -d -m 2755 sgid; install nosuch b; echo $?; install -s a stripped 2>/dev/null; echo $?; ls -R

#:: ls_long
sample; cd src; ls; ls -l --time-style=+; ls -la --time-style=+%Y a.txt sub/b.txt; ls -R; ls -F; ls -1 -S; ls -t a.txt sub/b.txt link; ls -ld --time-style=+ . sub sub/deep; ls -L link; ls -l --time-style=+ dirlink/; ls nosuch; echo $?; ls -a; ls -A; ls -i | wc -l; ls -n --time-style=+ sub; ls -U | sort; ls --color=always -1; ls -m; ls -x; ls -Q; ls -p; ls -s; ls -G -o --time-style=+; ls -X; ls -v; ls -H dirlink; ls -lZ --time-style=+ a.txt

#:: dir_vdir
sample; dir src; vdir --time-style=+ src; dircolors -p >d; dircolors -b d | wc -l

#:: ls_many
mkdir m; (cd m; seq -w 5000 | xargs touch); ls m | md5sum; ls -f m | sort | md5sum; ls -1 m | wc -l; ls -l --time-style=+ m | md5sum; rm m/*3; ls m | wc -l; du -a m | wc -l

#:: stat
sample; cd src; stat -c '%n %F %a %A %u %g %U %G %s %b %B %h %o %t %T' a.txt sub/b.txt link dangling sub/deep/c; stat -c '%y %x %N' a.txt link; stat -L -c '%n %s' link; stat -L dangling; echo $?; stat -c '%n %F %a %h %s' . sub sub/deep empty; stat -f -c '%T %l %s %S' .; stat --printf='%n\t%i\n' a.txt sub/hard | cut -f2 | uniq | wc -l; stat -c %m a.txt | wc -l; stat nosuch; echo $?; mkfifo f; stat -c '%F %s' f; stat -c '%F' - <a.txt; stat - </dev/null | head -1

#:: touch
touch a; touch -c nosuch; ls nosuch; echo $?; touch -d '2001-02-03 04:05:06.789' b; touch -r b c; touch -a -d 2010-01-01 b; touch -m -d 2011-01-01 c; touch -t 199912312359.58 d; touch -d @-1 e; touch -d '1901-12-14' f; touch -d '2200-01-01' g; touch -h -d 2005-01-01 l; ln -s b l; touch -h -d 2005-01-01 l; touch l2/x; echo $?; mkdir dir; touch -d 2000-01-01 dir; touch -d 2007-01-01 - >>a; touch .; stat -c '%n %x %y' b c d e f g l dir; touch dir/; touch a/; echo $?; touch ''; echo $?

#:: chmod
sample; cd src; chmod 600 a.txt; chmod u+x,g=rw,o-r a.txt; chmod -R go-rwx sub; chmod -R a+X .; chmod +t empty; chmod g+s empty; chmod --reference=a.txt sub/b.txt; chmod -v 644 sub/b.txt; chmod -c 644 sub/b.txt; chmod 000 empty; chmod nosuch x; echo $?; chmod 644 nosuch; echo $?; chmod 644 dangling; echo $?; chmod 600 link; chmod =,u=r sub/deep/c; chmod 7777 sub/deep/c; find . -printf '%p %m\n' | sort

#:: chown
sample; cd src; me=$(id -u):$(id -g); chown "$me" a.txt; echo $?; chown 12:34 a.txt sub/deep/c; chown -h 5:6 link; chown 7 link; chown :8 sub; chown -R 9:9 sub; chown -RL 10 .; chown --from=10 11 a.txt; chown --reference=a.txt sub/b.txt; chown -v 1:1 empty; chown 1 nosuch; echo $?; chgrp 3 a.txt; chgrp -R 4 sub; chgrp -h 5 dangling; chown 1 dangling; echo $?; chmod 6755 a.txt; chown 2 a.txt; find . -printf '%p %U %G %m\n' | sort

#:: truncate
lines >a; truncate -s 10 a; cat a; truncate -s 100 a; od -c a; truncate -s +5 a; truncate -s -50 a; truncate -s '<20' a; truncate -s '>30' a; truncate -s %16 a; stat -c %s a; truncate -c -s 5 nosuch; ls nosuch; echo $?; truncate -r a b; truncate -s 5G big; stat -c '%s %b' big; truncate -s 0 big; truncate -s 1 .; echo $?; truncate -s 1 nodir/x; echo $?; truncate -s 9E huge; echo $?; ln -s a l; truncate -s 3 l; truncate -o -s 2 blocks; stat -c %s blocks

#:: dd
lines 100 >a; dd if=a of=b bs=7 status=none; cmp a b; dd if=a of=c bs=10 skip=3 count=2 status=none; cat c; dd if=a of=b bs=1 seek=5 count=3 conv=notrunc status=none; cmp a b; dd if=a of=d bs=100 seek=3 status=none; od -c d | head -5; dd if=/dev/zero of=z bs=1M count=20 status=none; cksum z; dd if=z of=y bs=64k conv=sparse,fsync status=none; cmp z y; dd if=a conv=ucase,swab status=none | head -2; dd if=nosuch; echo $?; dd of=. ; echo $?; dd if=a of=e oflag=append conv=notrunc bs=50 count=1 status=none; dd if=a of=e oflag=append conv=notrunc bs=50 count=1 status=none; wc -c e; dd if=a of=a conv=excl status=none; echo $?; dd if=a of=new conv=excl status=none; dd if=a of=x conv=nocreat status=none; echo $?; dd if=a of=dir/x 2>/dev/null; echo $?
dd if=a bs=100 iflag=skip_bytes,count_bytes skip=10 count=15 status=none; dd if=a of=f bs=1 count=1000 2>&1 | head -2; dd bs=512 if=a of=g conv=sync status=none; stat -c %s g; dd if=/dev/zero of=big bs=1 count=0 seek=6G status=none; stat -c %s big; dd if=a of=o oflag=sync,nofollow bs=16 status=none; dd if=a iflag=directory status=none; echo $?; dd if=a of=t oflag=direct bs=4096 status=none; echo $?; dd if=a iflag=fullblock,noatime status=none | wc; cat a | dd of=p bs=13 status=none; cmp a p

#:: dd_one_byte
dd if=/dev/zero of=foo bs=1 count=100000 2>&1 | head -2; stat -c %s foo; dd if=foo of=bar bs=1 2>&1 | head -2; cmp foo bar

#:: du
sample; rm src/sub/hard; mkdir big; head -c 300000 /dev/zero >big/z; du -b src/a.txt; du -ab src | sort; du -sb --apparent-size src/sub; du -k big/z; du -k src/a.txt; du -c -k big/z src/a.txt | tail -1; du -d1 -k . | sort -k2; du -l -k src | sort -k2; du -h big; du -0 big/z | tr '\0' '\n'; du nosuch; echo $?; du --exclude='*.txt' -ak src | sort -k2; du -L -k src/sub; du --inodes src | sort; du -S -k . | sort -k2; du -t 1000 -ab . | sort

#:: df
df --output=fstype,file . | tail -1 | wc -w; df . >/dev/null; echo $?; df nosuch; echo $?; df -i . >/dev/null; echo $?; touch a; df a >/dev/null; echo $?

#:: head_tail
lines 5000 >a; head a; head -n -4995 a; head -c 30 a; head -c -50000 a | md5sum; tail a; tail -n +4995 a; tail -c 20 a; tail -c +48880 a; head -2 a nosuch a; echo $?; tail -n 2 -q a a; tail -v -n1 a; tail -n1 - <a; tail nosuch; echo $?; { head -1; tail -1; } <a; tail .; echo $?; truncate -s 3G s; printf '\nend\n' >>s; tail -n1 s | tr -d '\0'; tail -c 4 s

#:: tail_follow
said() { until grep -qs $1 out; do sleep 0.02; done; }; echo one >a; tail -f --pid=$$ -s 0.05 ---disable-inotify a >out & p=$!; said one; echo two >>a; said two; echo three >>a; said three; kill $p; wait $p; cat out

#:: tee
lines | tee a b >c; cmp a b; cmp a c; echo more | tee -a a >/dev/null; wc a; echo x | tee nodir/y; echo $?; echo x | tee . ; echo $?; lines 3 | tee /dev/stderr a >/dev/null

#:: wc
lines 1000 >a; printf 'abc' >b; wc a b; wc -l a; wc -c <a; wc -m b; wc -w a; wc -L a; wc nosuch; echo $?; wc .; echo $?; printf 'a\0b\0' >f0; wc --files0-from=f0; head -c 200 a >/dev/null; (read x; wc -c) <a; (tail -c 10 >/dev/null; wc -c) <a

#:: sums
lines 1000 >a; printf '' >e; for s in cksum sum b2sum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum; do $s a e; done; md5sum a e >m; md5sum -c m; echo x >>a; md5sum -c m; echo $?; sum -s a; cksum -a crc a; sha256sum --tag a; md5sum .; echo $?; md5sum nosuch; echo $?; md5sum <a

#:: od
lines >a; od a; od -x a | head -2; od -c -N 10 -j 5 a; od -A x -t x1z a; od -t f8 -N 16 a; od -j 1000 a; echo $?; head -c 100000 /dev/zero >z; od z; od -v z | wc -l; od nosuch; echo $?

#:: sort
seq 20000 | awk '{print ($1*7919)%20011, $1}' >a; sort a | md5sum; sort -n a | head -3; sort -k2n -r a | head -2; sort -u a | wc -l; sort -n -o a a; head -2 a; sort -c -n a; echo $?; sort -c a; echo $?; sort -S 64k -T . a | md5sum; ls -A; split -l 5000 a p; for f in p*; do sort -o $f $f; done; sort -m p* | md5sum; sort nosuch; echo $?; sort -t' ' -k1,1 a | md5sum; sort -R --random-source=a a | md5sum; sort -z <a | wc; sort --batch-size=2 -m p* | md5sum; sort --compress-program=gzip -S 64k -T . a | md5sum

#:: uniq_comm_join
printf 'a\na\nb\nc\nc\nc\n' >x; uniq x; uniq -c x; uniq -d x; uniq -u x y; cat y; printf 'a\nc\nd\n' >z; comm <(uniq x) z; comm -12 <(uniq x) z; printf 'a 1\nb 2\n' >j; printf 'a x\nc y\n' >k; join j k; join -a1 -a2 j k; uniq nosuch; echo $?; comm x nosuch; echo $?; join j nosuch; echo $?

#:: cut_paste_text
printf 'a:b:c\nd:e:f\n' >a; cut -d: -f2 a; cut -c1-3 a; cut -b2- a; cut --complement -d: -f1 a; paste a a; paste -s -d, a; paste - a <a; expand <(printf 'a\tb\n'); printf '        x\n' >u; unexpand u; fold -w 3 a; fmt -w 20 <(seq -s' ' 50); nl a; nl -ba -w3 a; pr -t -2 <(seq 10); tr a-z A-Z <a; tsort <(printf 'a b\nb c\n'); ptx -G a | head -3; cut -f1 nosuch; echo $?; paste nosuch; echo $?; nl nosuch; echo $?; fold nosuch; echo $?; expand nosuch; echo $?; fmt nosuch; echo $?; pr nosuch; echo $?; tsort nosuch; echo $?

#:: base_encodings
lines 100 >a; base64 a >b; base64 -d b | cmp - a; base32 a | base32 -d | cmp - a; basenc --base16 a | basenc -d --base16 | cmp - a; base64 -w0 a | wc; base64 nosuch; echo $?; cat b | head -2

#:: split
lines 1000 >a; split a; split -l 100 -d a num; split -b 1000 a byte; split -n 3 a chunk; split -n l/3 a ln; split -C 500 -a 3 a cc; split --additional-suffix=.txt -l 400 a s; split --filter='wc -l >$FILE' -l 300 a f; cat x* | cmp - a; cat byte* | cmp - a; cat chunk* | cmp - a; split nosuch; echo $?; split -b 1 -a 1 a z 2>&1; echo $?; rm z*; ls | wc -l

#:: csplit
lines 50 >a; csplit a 10 20 30; csplit -f part -b %03d a /5/ '{*}'; csplit -s -k -f k a 100; echo $?; csplit a '/nomatch/'; echo $?; ls; csplit -z -f z a '%line 4%' /9/; cat z00 | head -2

#:: shuf
lines 100 >a; shuf --random-source=a a | md5sum; shuf -n 3 --random-source=a a; shuf a | sort | cmp - <(sort a); shuf -o b a; wc -l b; rm b; shuf nosuch; echo $?

#:: shred
lines >a; cp a b; shred a; cmp -s a b; echo $?; stat -c %s a; rm a; shred -u -z b; ls; lines >a; shred -n 1 -s 100 a; stat -c %s a; shred -n 0 -z a;  shred nosuch; echo $?; truncate -s 0 e; shred -u e; ls

#:: readlink_realpath
mkdir -p d/e; touch d/e/f; ln -s d l; ln -s l/e m; ln -s loop loop; ln -s ../.. d/e/up; ln -s /etc/passwd host; readlink l m host; readlink d; echo $?; r() { realpath "$@" | sed "s:$T:T:"; }; r m/f; r -e m/g; echo $?; r -m m/g/h; r loop; echo $?; r -s m/f; r --relative-to=d m/f; r d/e/up; r d/e/up/..//d/./e; readlink -f m/nosuch | sed "s:$T:T:"; readlink -e m/nosuch; echo $?; r host; r .; cd d/e/up; pwd | sed "s:$T:T:"; pwd -P | sed "s:$T:T:"; cd -P ..; pwd | sed "s:$T:T:;s:$M:M:"; r "$M/t"; r "$M/../$(basename "$M")/t/d"

#:: mkfifo_mknod
mkfifo p; mkfifo -m 600 q; mkfifo p; echo $?; mknod r p; lines >p & cat p; wait; (cat q; echo done) & echo through >q; wait; mkfifo nodir/p; echo $?; stat -c '%n %F %a' p q r; ls -F; rm p; mknod dev c 1 3 && stat -c '%F %t %T' dev; timeout 0.2 cat q; echo $?

#:: mktemp
f=$(mktemp -p .); test -f "$f" && stat -c '%a %s' "$f"; d=$(mktemp -d -p .); stat -c %a "$d"; mktemp -u -p . XXXX | wc -c; mktemp -p nodir; echo $?; TMPDIR=$T mktemp -t abc.XXXXXX | wc -l; mktemp --suffix=.c ./nXXXX | grep -c '^./n....\.c$'; mktemp ./xx; echo $?; rm -r ./*; ls -A

#:: test_and_bracket
sample; cd src; for f in a.txt sub link dangling dirlink nosuch sub/deep/c; do for t in -e -f -d -L -h -r -w -x -s -p -S -b -c -u -g -k -O -G; do /usr/bin/test $t $f && printf '%s ' "$t"; done; echo $f; done; /usr/bin/test a.txt -ef sub/hard; echo $?; /usr/bin/test a.txt -ot sub/b.txt; echo $?; touch -d 2000-01-01 old; /usr/bin/[ old -ot a.txt ]; echo $?; [ old -nt a.txt ]; echo $?; /usr/bin/test -t 1; echo $?; [ -r a.txt -a -d sub ]; echo $?

#:: sync
lines >a; sync; sync a; sync -d a; sync -f a; sync nosuch; echo $?; sync .; echo $?

#:: pathchk_names
pathchk a/b; echo $?; pathchk -p 'a b'; echo $?; pathchk "$(printf 'n%.0s' {1..300})" 2>/dev/null; echo $?; touch f; pathchk f/g; echo $?; basename "$PWD/x.c" .c; dirname a/b/c; pwd | sed "s:$T:T:"; mkdir -p a/b; cd a/b; /bin/pwd | sed "s:$T:T:"; env -C .. /bin/pwd | sed "s:$T:T:"

#:: run_wrappers
lines >a; env -i /bin/cat a | wc -l; env -u HOME cat a | head -1; nice cat a | tail -1; timeout 5 cat a | wc; timeout 0.2 sleep 5 >o; echo $?; nohup cat a 2>err >out; wc -l out; (exec </dev/null; nohup sh -c 'echo hi' </dev/null) ; stdbuf -oL cat a | head -1; stdbuf -o0 head -n1 <a; env X=1 sh -c 'echo $X >env.out'; cat env.out; setsid -w sh -c 'cat a | wc -l'; ls

#:: tee_and_append_many
for i in $(seq 200); do echo "n $i" >>a; done; wc a; for i in $(seq 50); do echo "n $i" | tee -a a >/dev/null; done; wc a; : >>b; >c; stat -c '%n %s' a b c

#:: chroot needs sh
mkdir -p r/bin; chroot nosuch true; echo $?; touch f; chroot f true; echo $?
