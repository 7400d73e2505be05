/* With -DTRAPPED: a system call that leaves no room for a jump, with jumps to it and behind it. Nobody calls
   it, but a program that has it is not patched: its calls are trapped. */
#ifdef TRAPPED
__asm__(".pushsection .text\n"
        ".type odd, @function\n"
        "odd:\n"
        "1: syscall\n"
        "2: nop\n"
        "test %eax, %eax\n"
        "jz 1b\n"
        "js 2b\n"
        "ret\n"
        ".size odd, . - odd\n"
        ".popsection");
#endif
