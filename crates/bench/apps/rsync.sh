prepare() { tree; }
work() { rsync -a tree/ copy; rsync -a tree/ copy; }
result() { content copy; }
