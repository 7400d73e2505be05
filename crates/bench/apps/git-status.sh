prepare() { tree; git init -q -b main tree; git -C tree add .; git -C tree -c gc.auto=0 commit -q -m all; git -C tree status > /dev/null; }
work() { for turn in 1 2 3 4 5 6 7 8 9 10; do git -C tree status > status; done; }
result() { cat status; }
