//! The program that [`crate::gate`] runs: a thread that is stopped, the main thread, and another process,
//! each of which makes its call when told.

use std::ffi::CString;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use anyhow::{Context, Result, bail};

use crate::control::{OTHER, PEER, Page, Slot, VICTIM, order, state};
use crate::life;
use crate::mine::{Mine, SIZE, WRONG, ended_well, errno, open, right};

/// A call: 0 on success, `-EINTR` if a signal ended it.
pub(crate) type Call = fn(&Mine) -> i64;

/// Bytes of the file: those that the other process has locked, and those that nobody has.
const HELD: i64 = 100;
const FREE: i64 = 300;
/// The calls of victims and peers.
pub(crate) const CALLS: [(&str, Call); 18] = [
    ("read", |mine| right(mine.reads(mine.fd))),
    ("write", |mine| {
        let bytes = [mine.byte(); 64];
        // SAFETY: the buffer is as long as said.
        let written = unsafe { libc::pwrite(mine.fd, bytes.as_ptr().cast(), bytes.len(), 4070) };
        right(written == 64 && mine.reads(mine.fd))
    }),
    ("open", |mine| {
        // SAFETY: the path ends in NUL.
        let fd = unsafe { libc::open(mine.new.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) };
        // SAFETY: a descriptor of this program's, and a path.
        right(fd >= 0 && unsafe { libc::close(fd) == 0 && libc::unlink(mine.new.as_ptr()) == 0 })
    }),
    ("dup2", |mine| {
        let to = 200 + mine.index as i32;
        // SAFETY: descriptors of this program's.
        right(unsafe { libc::dup2(mine.fd, to) == to } && mine.reads(to) && unsafe { libc::close(to) == 0 })
    }),
    // SAFETY: a descriptor of this program's.
    ("truncate", |mine| right(unsafe { libc::ftruncate(mine.fd, SIZE as i64) == 0 })),
    ("rename", |mine| {
        let (old, new) = (mine.old.as_ptr(), mine.new.as_ptr());
        // SAFETY: the paths end in NUL.
        right(unsafe { libc::rename(old, new) == 0 && libc::rename(new, old) == 0 })
    }),
    ("mmap", |mine| {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, which nobody else uses.
        right(unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, access, kind, mine.fd, 0);
            let byte = at != libc::MAP_FAILED && *at.cast::<u8>() == mine.byte();
            byte && libc::munmap(at, 4096) == 0
        })
    }),
    ("fork", |mine| {
        // SAFETY: the child calls nothing that the child of a program with threads may not.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child.
            0 => unsafe { libc::_exit(i32::from(!mine.reads(mine.fd))) },
            pid => right(ended_well(pid)),
        }
    }),
    ("spawn", |_| {
        let (path, name) = (c"/bin/true", c"true".as_ptr().cast_mut());
        let (arguments, none, mut pid) = ([name, std::ptr::null_mut()], [std::ptr::null_mut()], 0);
        // SAFETY: all strings and arrays end where they should.
        let spawned = unsafe {
            let (actions, attributes) = (std::ptr::null(), std::ptr::null());
            libc::posix_spawn(
                &raw mut pid,
                path.as_ptr(),
                actions,
                attributes,
                arguments.as_ptr(),
                none.as_ptr(),
            )
        };
        right(spawned == 0 && ended_well(pid))
    }),
    ("sigaction", |mine| {
        let before = COUNTED.load(Ordering::Relaxed);
        handle(libc::SIGUSR2, count, 0);
        // SAFETY: a signal to this thread.
        right(
            unsafe { libc::raise(libc::SIGUSR2) == 0 }
                && COUNTED.load(Ordering::Relaxed) == before + 1
                && mine.reads(mine.fd),
        )
    }),
    ("setlkw", |mine| {
        lock(mine, FREE, libc::F_SETLKW, libc::F_WRLCK).min(lock(mine, FREE, libc::F_SETLK, libc::F_UNLCK))
    }),
    // The other process holds the lock until it is told to release it.
    ("setlkw-held", |mine| lock(mine, HELD, libc::F_SETLKW, libc::F_RDLCK)),
    ("vfork", life::vfork),
    ("exec", life::exec),
    ("exit", life::exit),
    ("exit_group", life::exit_group),
    ("waitpid", life::waitpid),
    ("mount", life::mount),
];

static COUNTED: AtomicU32 = AtomicU32::new(0);
static PAGE: AtomicPtr<Page> = AtomicPtr::new(std::ptr::null_mut());
/// The file that a handler writes.
static LOG: AtomicU32 = AtomicU32::new(0);

fn lock(mine: &Mine, start: i64, command: i32, kind: i32) -> i64 {
    let asked = libc::flock { l_type: kind as i16, l_whence: 0, l_start: start, l_len: 50, l_pid: 0 };
    // SAFETY: the structure lives across the call.
    match unsafe { libc::fcntl(mine.fd, command, &raw const asked) } {
        0 => 0,
        _ => -i64::from(errno()),
    }
}

fn call(name: &str) -> Result<Call> {
    let found = CALLS.iter().find(|(known, _)| *known == name);
    Ok(found.with_context(|| format!("no call is called {name}"))?.1)
}

/// The program: `case` is victim:peer:restart, or `again` for its second image.
///
/// # Errors
/// When the case does not exist or files cannot be made.
pub(crate) fn run(case: &str, control: i32) -> Result<()> {
    let page = Page::of(control);
    PAGE.store(std::ptr::from_ref(page).cast_mut(), Ordering::Relaxed);
    let fields: Vec<&str> = case.split(':').collect();
    if let ["again", index, fd] = fields[..] {
        let (index, fd, none) = (index.parse()?, fd.parse()?, CString::default());
        let mine = Mine { index, fd, new: none.clone(), old: none, control };
        page.slots[index].results[0].store(right(mine.reads(mine.fd)), Ordering::Relaxed);
        serve(&page.slots[index], &|| 0, &|| ());
    }
    let [victim, peer, restart] = fields[..] else { bail!("victim:peer:restart") };
    life::prepare(victim, page);
    let (victim, peer) = (call(victim)?, call(peer)?);
    let mine = |index| Mine::new(index, control);
    let (first, second, third) = (mine(VICTIM)?, mine(PEER)?, mine(OTHER)?);
    LOG.store(open(c"/light/log")? as u32, Ordering::Relaxed);
    handle(libc::SIGUSR1, note, if restart == "restart" { libc::SA_RESTART } else { 0 });
    // SAFETY: the process has one thread.
    if unsafe { libc::fork() } == 0 {
        lock(&first, HELD, libc::F_SETLK, libc::F_WRLCK);
        let let_go = || _ = lock(&first, HELD, libc::F_SETLK, libc::F_UNLCK);
        serve(&page.slots[OTHER], &|| peer(&third), &let_go);
    }
    std::thread::spawn(move || {
        serve(&page.slots[VICTIM], &|| victim(&first), &|| ());
    });
    serve(&page.slots[PEER], &|| peer(&second), &|| life::again(&second))
}

/// Makes the call when told, and leaves when told.
fn serve(slot: &'static Slot, call: &dyn Fn() -> i64, other: &dyn Fn()) -> ! {
    // SAFETY: gettid has no effect.
    slot.pid.store(unsafe { libc::gettid() } as u32, Ordering::Release);
    loop {
        match slot.report(state::DONE) {
            order::CALLS => {
                let before = mask();
                let result = call();
                let same = before == mask();
                slot.results[0].store(if same { result } else { WRONG - 1 }, Ordering::Relaxed);
                slot.made.fetch_add(1, Ordering::Release);
            }
            order::NEXT => other(),
            // SAFETY: ends the process as it is.
            order::LEAVE => unsafe { libc::exit(0) },
            _ => {}
        }
    }
}

fn mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: the kernel writes eight bytes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, std::ptr::null::<u64>(), &raw mut mask, 8)
    };
    mask
}

fn handle(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: the handlers call only what handlers may; zeros are an empty sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        libc::sigaddset(&raw mut action.sa_mask, libc::SIGWINCH);
        libc::sigaction(signal, &raw const action, std::ptr::null_mut());
    }
}

extern "C" fn count(_: i32) {
    COUNTED.fetch_add(1, Ordering::Relaxed);
}

/// The victim's handler makes a call on a mount, and records its signal mask.
extern "C" fn note(signal: i32) {
    // SAFETY: the buffer is as long as said.
    let written = unsafe { libc::write(LOG.load(Ordering::Relaxed) as i32, c"x".as_ptr().cast(), 1) };
    let wanted = 1u64 << (signal - 1) | 1 << (libc::SIGWINCH - 1);
    // SAFETY: set before the handler was.
    let slot = &unsafe { &*PAGE.load(Ordering::Relaxed) }.slots[VICTIM];
    slot.hits.store(u32::from(written == 1 && mask() & wanted == wanted), Ordering::Relaxed);
    slot.signalled.fetch_add(1, Ordering::Release);
}
