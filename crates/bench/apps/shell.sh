# A shell script that starts 50 x SIZE small programs.
prepare() { echo text > file; }
work() { i=0; while [ $i -lt $((SIZE * 50)) ]; do cat file > copy; i=$((i + 1)); done; }
result() { cat copy; }
