# SQLite in each journal mode, with several processes at once.

#:: rollback needs sqlite3
sqlite3 db 'create table t(a integer primary key, b text); insert into t(b) values("one"),("two"); select * from t;'; sqlite3 db 'update t set b=b||"!" where a=1; select * from t; pragma journal_mode; pragma integrity_check;'; ls; for m in truncate persist memory off delete; do sqlite3 db "pragma journal_mode=$m; insert into t(b) values('$m'); select count(*) from t;"; ls; done; sqlite3 db 'begin; insert into t(b) values("lost"); rollback; select count(*) from t; vacuum; pragma page_count;'; sqlite3 db .dump | md5sum; sqlite3 db '.backup copy'; sqlite3 copy .dump | md5sum; sqlite3 -readonly db 'insert into t(b) values(1)'; echo $?

#:: wal needs sqlite3
sqlite3 db 'pragma journal_mode=wal; create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all select i+1 from n where i<3000) insert into t select i, hex(i*i) from n; select count(*), sum(length(b)) from t;'; ls; sqlite3 db 'pragma journal_mode; pragma wal_checkpoint(truncate); select max(a) from t; pragma integrity_check'; { echo 'begin; insert into t(b) values("x"); select count(*) from t;'; echo '.shell touch begun'; until [ -e looked ]; do sleep 0.02; done; echo 'commit;'; } | sqlite3 db & until [ -e begun ]; do sleep 0.02; done; sqlite3 db 'select count(*) from t'; : >looked; wait; rm begun looked; sqlite3 db 'select count(*) from t; pragma journal_mode=delete'; ls

#:: writers needs sqlite3 limit 180
sqlite3 db 'create table t(who, n)'; for w in 1 2 3 4; do (for n in $(seq 25); do echo "insert into t values($w,$n);"; done | sqlite3 -cmd '.timeout 60000' db) & done; wait; sqlite3 db 'select who, count(*), sum(n) from t group by who; pragma integrity_check'; ls; rm db

#:: wal_writers needs sqlite3 limit 180
sqlite3 db 'pragma journal_mode=wal; create table t(who, n)' ; for w in 1 2 3 4; do (for n in $(seq 50); do echo "insert into t values($w,$n);"; done | sqlite3 -cmd '.timeout 60000' db) & done; for r in 1 2 3; do sqlite3 -cmd '.timeout 60000' db 'select count(*)>=0 from t'; done; wait; sqlite3 db 'select who, count(*), sum(n) from t group by who; pragma integrity_check'; ls; rm db

#:: busy needs sqlite3
sqlite3 db 'create table t(a)'; { echo 'begin exclusive;'; echo '.shell touch held'; until [ -e tried ]; do sleep 0.02; done; sleep 1; echo 'insert into t values(1); commit;'; } | sqlite3 db & until [ -e held ]; do sleep 0.02; done; sqlite3 db 'insert into t values(2)'; echo $?; : >tried; sqlite3 -cmd '.timeout 60000' db 'insert into t values(3)'; echo $?; wait; sqlite3 db 'select * from t order by a'

#:: killed_writer needs sqlite3
exec 2>/dev/null # the shell tells process numbers
sqlite3 db 'create table t(a); insert into t values(1)'; { echo 'pragma cache_size=1; begin; with recursive n(i) as (select 1 union all select i+1 from n where i<20000) insert into t select hex(zeroblob(100)) from n;'; echo 'select count(*) from t;'; until [ -e killed ]; do sleep 0.05; done; } | sqlite3 db >said & until [ -s said ]; do sleep 0.02; done; cat said; kill -9 $!; : >killed; wait; rm killed; sqlite3 db 'select count(*) from t; pragma integrity_check'; ls

#:: autocommit needs sqlite3 limit 120
{ echo 'create table t(a integer primary key, b);'; for i in $(seq 2000); do echo "insert into t(b) values('row $i');"; done; echo 'select count(*), sum(length(b)) from t;'; } | sqlite3 db; cksum <<<"$(sqlite3 db .dump)"; sqlite3 db 'create index i on t(b); select count(*) from t where b>"row 5"; delete from t where a%2; vacuum; select count(*) from t;'; sqlite3 db 'pragma mmap_size=10000000; select sum(a) from t'; rm db

#:: attach_and_temp needs sqlite3
sqlite3 a 'create table x(v); insert into x values(1)'; sqlite3 b 'create table y(v); insert into y values(2)'; sqlite3 a "attach 'b' as b; begin; insert into x select v from b.y; insert into b.y select v from x; commit; select * from x; select * from b.y;"; SQLITE_TMPDIR=$T sqlite3 a 'pragma temp_store=1; create temp table big as with recursive n(i) as (select 1 union all select i+1 from n where i<50000) select i, hex(i) h from n; select count(distinct h) from big;'; printf '1,x\n2,y\n' >c.csv; sqlite3 a '.mode csv' '.import c.csv imported' 'select * from imported'; sqlite3 a '.output o' 'select * from x' ; cat o; sqlite3 /nosuch/db 'select 1'; echo $?; sqlite3 . 'create table t(a)'; echo $?; echo garbage garbage >g; sqlite3 g 'select * from sqlite_master'; echo $?
