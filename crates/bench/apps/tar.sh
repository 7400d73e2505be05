prepare() { tree; rm -r tree; }
work() { tar -xf "$SCRATCH/tree-$SIZE.tar"; }
result() { content tree; }
