prepare() { tree; }
work() { cp -r tree copy; }
result() { content copy; }
