# A program of some 100 MB in the directory, started five times.
prepare() { cp "$(node -p process.execPath)" program; }
work() { for turn in 1 2 3 4 5; do ./program --version; done > versions; }
result() { cat versions; }
