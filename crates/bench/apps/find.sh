# What one asks of a source tree: names, sizes, words.
prepare() { tree; }
work() {
    for turn in 1 2 3 4 5; do
        find tree -name '*7.c' -size +1 > found
        grep -rl 'klmnop' tree | wc -l > words
        du -s --apparent-size tree > /dev/null
    done
}
result() { sort found; cat words; }
