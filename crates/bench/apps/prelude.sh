# What every application's script shares. The bench puts this before the script and calls one phase of it:
#
#     sh SCRIPT prepare|work|result SCRATCH SIZE
#
# in a new directory of the file system under test. `work` is what is timed; `result` prints what must be
# the same on every file system. SCRATCH is a directory of the host, where inputs are made once; SIZE is 10,
# or 2 with --quick.
set -e
export LC_ALL=C TZ=UTC GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=bench GIT_AUTHOR_EMAIL=bench@localhost GIT_AUTHOR_DATE='2020-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=bench GIT_COMMITTER_EMAIL=bench@localhost GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
phase=$1 SCRATCH=$2 SIZE=$3

# once NAME COMMAND...: runs COMMAND with the name of a new file of SCRATCH, unless NAME is there.
once() {
    [ -e "$SCRATCH/$1" ] && return
    name=$1
    shift
    "$@" "$SCRATCH/$name.new"
    mv "$SCRATCH/$name.new" "$SCRATCH/$name"
}

# An archive of SIZE x 2,000 C files of 0.5 to 4.5 KiB, in directories of 100.
write_tree() {
    rm -rf "$SCRATCH/tree"
    mkdir "$SCRATCH/tree"
    perl -e '
        my ($top, $files) = @ARGV;
        for my $i (0 .. $files - 1) {
            my $dir = sprintf "%s/dir%03d", $top, $i / 100;
            mkdir $dir unless $i % 100;
            open my $out, ">", sprintf "%s/file%05d.c", $dir, $i or die;
            print $out "/* $i */\n", substr +(join("", "a" .. "z") . "\n") x 180, 0, 512 + $i * 37 % 4096;
        }' "$SCRATCH/tree" $((SIZE * 2000))
    tar --sort=name -cf "$1" -C "$SCRATCH" tree
    rm -r "$SCRATCH/tree"
}

# That tree, in the current directory.
tree() {
    once "tree-$SIZE.tar" write_tree
    tar -xf "$SCRATCH/tree-$SIZE.tar"
}

# Names, modes, sizes and content of the files below a directory.
content() {
    find "$1" -printf '%P %y %m\n' | sort
    find "$1" -type f -print0 | sort -z | xargs -0 -r sha256sum
}
