# A C program of 4 x SIZE files, compiled by make -j2.
prepare() {
    { echo '#include <stdio.h>'; echo '#include <stdlib.h>'; echo '#include <string.h>'; } > all.h
    objects=main.o
    echo '#include "all.h"' > main.c
    for i in $(seq $((SIZE * 4))); do
        printf '#include "all.h"\nint unit%s(void) { return atoi("%s"); }\n' "$i" "$i" > "unit$i.c"
        echo "int unit$i(void);" >> all.h
        objects="$objects unit$i.o"
    done
    {
        echo 'int main(void) { int sum = 0;'
        for i in $(seq $((SIZE * 4))); do echo "sum += unit$i();"; done
        printf '%s\n' 'printf("%d\n", sum); return 0; }'
    } >> main.c
    printf 'program: %s\n\tcc -o $@ $^\n%%.o: %%.c all.h\n\tcc -O1 -c -o $@ $<\n' "$objects" > Makefile
}
work() { make -s -j2; }
result() { ./program; sha256sum program; }
