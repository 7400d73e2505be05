prepare() { tree; }
work() { rm -r tree; }
result() { ls -A; }
