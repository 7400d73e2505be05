//! Names of flags and other numbers, as strace shows them.

use lp_abi::linux::*;
use lp_abi::signature::Parameter;

use super::reader::Call;

type Names = &'static [(u32, &'static str)];

macro_rules! names {
    ($($name:ident)*) => { &[$(($name as u32, stringify!($name))),*] };
}

const OPEN_FLAGS: Names = names! {
    O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC O_DSYNC FASYNC O_DIRECT O_LARGEFILE
    O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH O_TMPFILE O_DIRECTORY
};
const AT_FLAGS: Names = names! { AT_SYMLINK_NOFOLLOW AT_SYMLINK_FOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH };
const AT_FLAGS_OF_UNLINK: Names = names! { AT_REMOVEDIR };
const AT_FLAGS_OF_ACCESS: Names = names! { AT_SYMLINK_NOFOLLOW AT_EACCESS AT_EMPTY_PATH };
const WHENCES: Names = names! { SEEK_SET SEEK_CUR SEEK_END SEEK_DATA SEEK_HOLE };
const RENAME_FLAGS: Names = names! { RENAME_NOREPLACE RENAME_EXCHANGE RENAME_WHITEOUT };
const COMMANDS: Names = names! {
    F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_SETOWN F_GETOWN F_OFD_GETLK F_OFD_SETLK
    F_OFD_SETLKW F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS
};
const FLOCKS: Names = names! { LOCK_SH LOCK_EX LOCK_NB LOCK_UN };
const HOWS: Names = names! { SIG_BLOCK SIG_UNBLOCK SIG_SETMASK };
const PROTECTIONS: Names = names! { PROT_READ PROT_WRITE PROT_EXEC PROT_GROWSDOWN PROT_GROWSUP };
const MAP_TYPES: Names = names! { MAP_SHARED MAP_PRIVATE MAP_SHARED_VALIDATE };
const MAP_FLAGS: Names = names! {
    MAP_FIXED MAP_ANONYMOUS MAP_32BIT MAP_NORESERVE MAP_POPULATE MAP_NONBLOCK MAP_GROWSDOWN MAP_DENYWRITE
    MAP_EXECUTABLE MAP_LOCKED MAP_STACK MAP_HUGETLB MAP_SYNC MAP_FIXED_NOREPLACE
};
const SYNC_FLAGS: Names = names! { MS_ASYNC MS_INVALIDATE MS_SYNC };
const MEMORY_ADVICE: Names = names! {
    MADV_NORMAL MADV_RANDOM MADV_SEQUENTIAL MADV_WILLNEED MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_DONTFORK
    MADV_DOFORK MADV_MERGEABLE MADV_UNMERGEABLE MADV_HUGEPAGE MADV_NOHUGEPAGE MADV_DONTDUMP MADV_DODUMP
    MADV_WIPEONFORK MADV_KEEPONFORK MADV_COLD MADV_PAGEOUT MADV_POPULATE_READ MADV_POPULATE_WRITE
    MADV_DONTNEED_LOCKED MADV_COLLAPSE
};
const FILE_ADVICE: Names = &[
    (0, "POSIX_FADV_NORMAL"),
    (1, "POSIX_FADV_RANDOM"),
    (2, "POSIX_FADV_SEQUENTIAL"),
    (3, "POSIX_FADV_WILLNEED"),
    (4, "POSIX_FADV_DONTNEED"),
    (5, "POSIX_FADV_NOREUSE"),
];
const ALLOCATE_FLAGS: Names = names! {
    FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_NO_HIDE_STALE FALLOC_FL_COLLAPSE_RANGE
    FALLOC_FL_ZERO_RANGE FALLOC_FL_INSERT_RANGE FALLOC_FL_UNSHARE_RANGE
};
const ATTRIBUTE_FLAGS: Names = names! { XATTR_CREATE XATTR_REPLACE };
const MEMFD_FLAGS: Names = names! { MFD_CLOEXEC MFD_ALLOW_SEALING MFD_HUGETLB MFD_NOEXEC_SEAL MFD_EXEC };
const STATX_AT_FLAGS: Names = names! { AT_SYMLINK_NOFOLLOW AT_NO_AUTOMOUNT AT_EMPTY_PATH };
const STATX_SYNC_TYPES: Names =
    names! { AT_STATX_SYNC_AS_STAT AT_STATX_FORCE_SYNC AT_STATX_DONT_SYNC AT_STATX_SYNC_TYPE };
const STATX_FIELDS: Names = names! {
    STATX_TYPE STATX_MODE STATX_NLINK STATX_UID STATX_GID STATX_ATIME STATX_MTIME STATX_CTIME STATX_INO STATX_SIZE
    STATX_BLOCKS STATX_BTIME STATX_MNT_ID STATX_DIOALIGN
};
const ACTION_FLAGS: Names = names! {
    SA_RESTORER SA_ONSTACK SA_RESTART SA_NODEFER SA_RESETHAND SA_SIGINFO SA_NOCLDSTOP SA_NOCLDWAIT
};
const REQUESTS: Names = &[
    (0x5401, "TCGETS"),
    (0x5413, "TIOCGWINSZ"),
    (0x541b, "FIONREAD"),
    (0x5421, "FIONBIO"),
    (0x5450, "FIONCLEX"),
    (0x5451, "FIOCLEX"),
    (0x5460, "FIOQSIZE"),
    (0x4004_9409, "FICLONE"),
    (0x4020_940d, "FICLONERANGE"),
    (0x4008_6602, "FS_IOC_SETFLAGS"),
    (0x8008_6601, "FS_IOC_GETFLAGS"),
    (0x8008_7601, "FS_IOC_GETVERSION"),
    (0x801c_581f, "FS_IOC_FSGETXATTR"),
    (0x401c_5820, "FS_IOC_FSSETXATTR"),
    (0xc020_660b, "FS_IOC_FIEMAP"),
];
/// By number, from 1.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
const TYPES: Names = names! { S_IFREG S_IFDIR S_IFLNK S_IFCHR S_IFBLK S_IFIFO S_IFSOCK };

#[allow(non_upper_case_globals)]
fn at_flags(number: u32) -> Names {
    match number {
        __NR_unlinkat => AT_FLAGS_OF_UNLINK,
        __NR_faccessat2 => AT_FLAGS_OF_ACCESS,
        _ => AT_FLAGS,
    }
}

/// Argument `number` of a call, which is one of a `kind` that has names.
#[allow(non_upper_case_globals)]
pub(super) fn of(kind: Parameter, call: &Call<'_>, number: usize) -> String {
    let word = call.words[number] as u32;
    match kind {
        Parameter::Mode | Parameter::OpenMode => mode(word),
        Parameter::OpenFlags => open_flags(word),
        Parameter::DescriptorFlags => flags(word, OPEN_FLAGS),
        Parameter::AtFlags => flags(word, at_flags(call.number)),
        Parameter::StatxFlags => statx_flags(word),
        Parameter::StatxMask => statx_mask(word),
        Parameter::Access => access(word),
        Parameter::Whence => one_of(word, WHENCES),
        Parameter::RenameFlags => flags(word, RENAME_FLAGS),
        Parameter::Fcntl => one_of(word, COMMANDS),
        Parameter::FcntlArgument if call.words[number - 1] as u32 == F_SETFD => fd_flags(word),
        Parameter::FcntlArgument => open_flags(word),
        Parameter::Flock => flags(word, FLOCKS),
        Parameter::Signal => signal(word),
        Parameter::SignalHow => one_of(word, HOWS),
        Parameter::Protection if word == 0 => "PROT_NONE".to_owned(),
        Parameter::Protection => flags(word, PROTECTIONS),
        Parameter::MapFlags => map_flags(word),
        Parameter::SyncFlags => flags(word, SYNC_FLAGS),
        Parameter::MemoryAdvice => one_of(word, MEMORY_ADVICE),
        Parameter::FileAdvice => one_of(word, FILE_ADVICE),
        Parameter::AllocateFlags => flags(word, ALLOCATE_FLAGS),
        Parameter::AttributeFlags => flags(word, ATTRIBUTE_FLAGS),
        Parameter::MemfdFlags => flags(word, MEMFD_FLAGS),
        Parameter::Request => one_of(word, REQUESTS),
        Parameter::Device => {
            format!("makedev({:#x}, {:#x})", libc::major(word.into()), libc::minor(word.into()))
        }
        _ => number_of(call.words[number]),
    }
}

fn number_of(word: u64) -> String {
    if word == 0 { "0".to_owned() } else { format!("{word:#x}") }
}

/// The names of the bits that are set, and what is left in hexadecimal.
fn flags(word: u32, names: Names) -> String {
    let mut left = word;
    let mut text = Vec::new();
    for (bits, name) in names {
        if left & bits == *bits {
            left &= !bits;
            text.push((*name).to_owned());
        }
    }
    if left != 0 || text.is_empty() {
        text.push(number(left));
    }
    text.join("|")
}

fn one_of(word: u32, names: Names) -> String {
    names
        .iter()
        .find(|(value, _)| *value == word)
        .map_or_else(|| number(word), |(_, name)| (*name).to_owned())
}

pub(super) fn open_flags(word: u32) -> String {
    let access = ["O_RDONLY", "O_WRONLY", "O_RDWR", "O_ACCMODE"][(word & O_ACCMODE) as usize];
    // Bits of several names: the wider one first.
    let mut left = word & !O_ACCMODE;
    let mut text = vec![access.to_owned()];
    let wide: Names = names! { O_TMPFILE O_SYNC };
    for (bits, name) in wide.iter().chain(OPEN_FLAGS) {
        if *bits != 0 && left & bits == *bits {
            left &= !bits;
            text.push((*name).to_owned());
        }
    }
    if left != 0 {
        text.push(number(left));
    }
    text.join("|")
}

fn access(word: u32) -> String {
    const NAMES: Names = &[(4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
    if word == 0 { "F_OK".to_owned() } else { flags(word, NAMES) }
}

/// Type and permissions: the type by name, the rest in octal with a zero in front.
pub(super) fn mode(word: u32) -> String {
    let permissions = word & !S_IFMT;
    let octal = format!("{:0>3}", format!("0{permissions:o}"));
    match word & S_IFMT {
        0 => octal,
        kind => format!("{}|{octal}", one_of(kind, TYPES)),
    }
}

fn number(word: u32) -> String {
    if word == 0 { "0".to_owned() } else { format!("{word:#x}") }
}

/// Flags of a descriptor itself.
pub(super) fn fd_flags(word: u32) -> String {
    flags(word, names! { FD_CLOEXEC })
}

pub(super) fn action_flags(word: u32) -> String {
    flags(word, ACTION_FLAGS)
}

fn map_flags(word: u32) -> String {
    let kind = one_of(word & MAP_TYPE, MAP_TYPES);
    match word & !MAP_TYPE {
        0 => kind,
        more => format!("{kind}|{}", flags(more, MAP_FLAGS)),
    }
}

fn statx_flags(word: u32) -> String {
    let kind = one_of(word & AT_STATX_SYNC_TYPE, STATX_SYNC_TYPES);
    match word & !AT_STATX_SYNC_TYPE {
        0 => kind,
        more => format!("{kind}|{}", flags(more, STATX_AT_FLAGS)),
    }
}

/// The widest names first.
fn statx_mask(word: u32) -> String {
    let wide = [(STATX_ALL, "STATX_ALL"), (STATX_BASIC_STATS, "STATX_BASIC_STATS")];
    match wide.into_iter().find(|(bits, _)| word & bits == *bits) {
        Some((bits, name)) if word == bits => name.to_owned(),
        Some((bits, name)) => format!("{name}|{}", flags(word & !bits, STATX_FIELDS)),
        None => flags(word, STATX_FIELDS),
    }
}

/// The name of a signal without its prefix; real-time signals count from 32.
fn short_signal(number: u32) -> String {
    match SIGNALS.get(number.wrapping_sub(1) as usize) {
        Some(name) => (*name).to_owned(),
        None if (32..=64).contains(&number) => format!("RT_{}", number - 32),
        None => number.to_string(),
    }
}

fn signal(number: u32) -> String {
    match number {
        1..=31 | 33..=64 => format!("SIG{}", short_signal(number)),
        32 => "SIGRTMIN".to_owned(),
        other => other.to_string(),
    }
}

/// A set of signals. Of one that is nearly full, what is not in it.
pub(super) fn signals(set: u64) -> String {
    let (sign, shown) = if set.count_ones() >= 43 { ("~", !set) } else { ("", set) };
    let names: Vec<_> = (1..=64).filter(|number| shown >> (number - 1) & 1 != 0).map(short_signal).collect();
    format!("{sign}[{}]", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(open_flags(O_TMPFILE | O_RDWR), "O_RDWR|O_TMPFILE");
        assert_eq!(open_flags(O_SYNC), "O_RDONLY|O_SYNC");
        assert_eq!(
            (mode(0o100_644), mode(0), mode(0o7)),
            ("S_IFREG|0644".into(), "000".into(), "007".into())
        );
        assert_eq!((access(0), access(6)), ("F_OK".into(), "R_OK|W_OK".into()));
        assert_eq!(map_flags(MAP_PRIVATE | MAP_ANONYMOUS), "MAP_PRIVATE|MAP_ANONYMOUS");
        assert_eq!(statx_flags(AT_EMPTY_PATH), "AT_STATX_SYNC_AS_STAT|AT_EMPTY_PATH");
        assert_eq!(statx_mask(STATX_BASIC_STATS), "STATX_BASIC_STATS");
        assert_eq!(statx_mask(STATX_SIZE | STATX_MODE), "STATX_MODE|STATX_SIZE");
        assert_eq!(
            (signals(0), signals(1 << 11), signals(!1)),
            ("[]".into(), "[USR2]".into(), "~[HUP]".into())
        );
        assert_eq!((signal(10), signal(33)), ("SIGUSR1".into(), "SIGRT_1".into()));
    }
}
