# Has the kernel fail what writes a region out, and says which calls then fail. Argument: a directory in a mount.
import ctypes, mmap, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1] + '/f', os.O_RDWR | os.O_CREAT)
os.write(fd, bytes(8192))
shared = mmap.mmap(fd, 8192)
private = mmap.mmap(fd, 8192, mmap.MAP_PRIVATE)
shared[5000] = 1

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, LENGTH_HIGH = 0, 28
EIO = 0x50000 | 5
filters = [
    (LOAD, 0, 0, NUMBER),
    (EQUAL, 5, 0, 74),   # fsync
    (EQUAL, 4, 0, 75),   # fdatasync
    (EQUAL, 3, 0, 306),  # syncfs
    (EQUAL, 0, 3, 26),   # msync of more than 4 GiB
    (LOAD, 0, 0, LENGTH_HIGH),
    (EQUAL, 1, 0, 0),
    (RETURN, 0, 0, EIO),
    (RETURN, 0, 0, 0x7fff0000),
]
code = b''.join(struct.pack('HBBI', *line) for line in filters)
buffer = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxP', len(filters), ctypes.addressof(buffer)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0


def outcome(name, call):
    try:
        call()
        print(name, 'done')
    except OSError as e:
        print(name, e.strerror)


outcome('fsync', lambda: os.fsync(fd))
outcome('fdatasync', lambda: os.fdatasync(fd))


def syncfs():
    if libc.syncfs(fd):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


outcome('syncfs', syncfs)
outcome('msync', lambda: shared.flush(4096, 4096))
outcome('msync of a private mapping', lambda: private.flush())
