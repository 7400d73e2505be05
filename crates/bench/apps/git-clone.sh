prepare() { tree; git init -q -b main tree; git -C tree add .; git -C tree -c gc.auto=0 commit -q -m all; }
work() { git clone -q "file://$PWD/tree" clone; }
result() { rm -r clone/.git; content clone; }
