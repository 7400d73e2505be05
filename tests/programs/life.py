# Tries to get hold of the gate's own descriptors, or to lose them, by every way that a program has, and then looks whether
# it still counts as alive. Arguments: a directory in a mount, the region's FILE or "-". Asks for the numbers on its input.
import array, ctypes, fcntl, os, signal, socket, subprocess, sys

directory, region = sys.argv[1:]
held = os.open(directory + '/held', os.O_RDWR | os.O_CREAT)
os.write(held, b'mine')
fcntl.lockf(held, fcntl.LOCK_EX)
sibling = subprocess.Popen(['cat', '-', directory + '/held'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print(os.getpid(), flush=True)
numbers = [int(word) for word in sys.stdin.readline().split()]
libc = ctypes.CDLL(None, use_errno=True)


def got(what, call):
    try:
        print('got', what, call())
    except OSError:
        pass


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), 'failed')
    return result


def opened(path, flags=os.O_RDONLY):
    os.close(os.open(path, flags))
    return path


def sent(number):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    rights = array.array('i', [number])
    return here.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def taken(pid, number):
    pidfd = checked(libc.syscall(434, pid, 0))
    try:
        return checked(libc.syscall(438, pidfd, number, 0))
    finally:
        os.close(pidfd)


for number in numbers:
    for where in ['/proc/self/fd', '/proc/thread-self/fd', f'/proc/{os.getpid()}/fd', f'/proc/{sibling.pid}/fd', '/dev/fd',
                  f'/proc/self/task/{os.getpid()}/fd']:
        got('open', lambda: opened(f'{where}/{number}'))
        got('open for writing', lambda: opened(f'{where}/{number}', os.O_RDWR))
        got('open', lambda: opened(f'/proc/../{where}/{number}'))
    os.chdir('/proc/self/fd')
    got('open in the working directory', lambda: opened(str(number)))
    listing = os.open('/proc/self/fd', os.O_RDONLY)
    got('openat', lambda: os.close(os.open(str(number), os.O_RDONLY, dir_fd=listing)))
    os.close(listing)
    got('dup', lambda: os.dup(number))
    got('dup onto', lambda: os.dup2(number, 50))
    got('dup over', lambda: os.dup2(0, number))
    got('fcntl', lambda: fcntl.fcntl(number, fcntl.F_DUPFD, 10))
    got('close-on-exec', lambda: fcntl.fcntl(number, fcntl.F_SETFD, fcntl.FD_CLOEXEC))
    got('lock', lambda: fcntl.lockf(number, fcntl.LOCK_UN))
    got('sendmsg', lambda: sent(number))
    got('pidfd_getfd', lambda: taken(os.getpid(), number))
    got('pidfd_getfd', lambda: taken(sibling.pid, number))
    got('close', lambda: os.close(number))
low = min(numbers)
os.closerange(low - 5, low + 10)
checked(libc.close_range(low, 2**32 - 1, 0))
checked(libc.close_range(low, 2**32 - 1, 4))
if region != '-':
    opened(region)
    opened(region, os.O_RDWR)

# Who is apart has nothing to lose but the descriptors themselves.
apart = ('import os, sys\n'
         'for number in map(int, sys.argv[2:]):\n'
         '    try: os.close(number); print("closed", number)\n'
         '    except OSError: pass\n'
         'print(open(sys.argv[1]).read())\n')
subprocess.run([sys.executable, '-Sc', apart, directory + '/held'] + [str(number) for number in reversed(numbers)], close_fds=False)

subprocess.run(['df', directory], stdout=subprocess.DEVNULL)  # Has the dead buried.
locked = subprocess.run([sys.executable, '-Sc', 'import fcntl, sys; fcntl.lockf(open(sys.argv[1], "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)',
                         directory + '/held'], stderr=subprocess.DEVNULL)
print('lock', 'lost' if locked.returncode == 0 else 'kept')
sibling.stdin.close()
print('sibling', sibling.wait(), os.pread(held, 4, 0).decode())
