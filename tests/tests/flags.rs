//! `docs/flags.md`: for each flag of each call, which conformance groups pass it, and whether it is among the
//! known differences. A flag that is neither fails. `LIGHTPATH_BLESS=1` rewrites the page.

use std::fmt::Write;

use lp_tests::sources::{groups, makes, names, read, root};

/// Those of preadv2(2) and pwritev2(2).
const RWF: &[&str] = &[
    "RWF_DSYNC",
    "RWF_HIPRI",
    "RWF_SYNC",
    "RWF_NOWAIT",
    "RWF_APPEND",
    "RWF_NOAPPEND",
    "RWF_ATOMIC",
    "RWF_DONTCACHE",
    "RWF_NOSIGNAL",
];

/// The flags of each call, as its man page lists them.
const FLAGS: &[(&str, &[&str])] = &[
    (
        "clone",
        &[
            "CLONE_VM",
            "CLONE_FS",
            "CLONE_FILES",
            "CLONE_SIGHAND",
            "CLONE_VFORK",
            "CLONE_THREAD",
            "CLONE_NEWNS",
            "CLONE_NEWUSER",
            "CLONE_PIDFD",
            "CLONE_PARENT",
        ],
    ),
    ("close_range", &["CLOSE_RANGE_UNSHARE", "CLOSE_RANGE_CLOEXEC"]),
    ("dup3", &["O_CLOEXEC"]),
    ("execveat", &["AT_EMPTY_PATH", "AT_SYMLINK_NOFOLLOW", "AT_EXECVE_CHECK"]),
    ("faccessat2", &["F_OK", "R_OK", "W_OK", "X_OK", "AT_EACCESS", "AT_SYMLINK_NOFOLLOW", "AT_EMPTY_PATH"]),
    (
        "fadvise64",
        &[
            "POSIX_FADV_NORMAL",
            "POSIX_FADV_RANDOM",
            "POSIX_FADV_SEQUENTIAL",
            "POSIX_FADV_WILLNEED",
            "POSIX_FADV_DONTNEED",
            "POSIX_FADV_NOREUSE",
        ],
    ),
    (
        "fallocate",
        &[
            "FALLOC_FL_KEEP_SIZE",
            "FALLOC_FL_PUNCH_HOLE",
            "FALLOC_FL_COLLAPSE_RANGE",
            "FALLOC_FL_ZERO_RANGE",
            "FALLOC_FL_INSERT_RANGE",
            "FALLOC_FL_UNSHARE_RANGE",
        ],
    ),
    ("fchmodat2", &["AT_SYMLINK_NOFOLLOW", "AT_EMPTY_PATH"]),
    ("fchownat", &["AT_SYMLINK_NOFOLLOW", "AT_EMPTY_PATH"]),
    (
        "fcntl",
        &[
            "F_DUPFD",
            "F_DUPFD_CLOEXEC",
            "F_GETFD",
            "F_SETFD",
            "F_GETFL",
            "F_SETFL",
            "F_GETLK",
            "F_SETLK",
            "F_SETLKW",
            "F_OFD_GETLK",
            "F_OFD_SETLK",
            "F_OFD_SETLKW",
            "F_SETOWN",
            "F_GETOWN",
            "F_SETOWN_EX",
            "F_GETOWN_EX",
            "F_SETSIG",
            "F_GETSIG",
            "F_SETLEASE",
            "F_GETLEASE",
            "F_NOTIFY",
            "F_SETPIPE_SZ",
            "F_GETPIPE_SZ",
            "F_ADD_SEALS",
            "F_GET_SEALS",
            "F_GET_RW_HINT",
            "F_SET_RW_HINT",
            "F_GET_FILE_RW_HINT",
            "F_SET_FILE_RW_HINT",
            "F_DUPFD_QUERY",
            "F_CREATED_QUERY",
            "F_RDLCK",
            "F_WRLCK",
            "F_UNLCK",
        ],
    ),
    ("flock", &["LOCK_SH", "LOCK_EX", "LOCK_UN", "LOCK_NB"]),
    (
        "fsconfig",
        &[
            "FSCONFIG_SET_FLAG",
            "FSCONFIG_SET_STRING",
            "FSCONFIG_CMD_CREATE",
            "FSCONFIG_CMD_CREATE_EXCL",
            "FSCONFIG_CMD_RECONFIGURE",
        ],
    ),
    ("fsmount", &["FSMOUNT_CLOEXEC", "MOUNT_ATTR_NOEXEC"]),
    ("fsopen", &["FSOPEN_CLOEXEC"]),
    ("fspick", &["FSPICK_CLOEXEC", "FSPICK_SYMLINK_NOFOLLOW", "FSPICK_NO_AUTOMOUNT", "FSPICK_EMPTY_PATH"]),
    (
        "inotify_add_watch",
        &[
            "IN_ACCESS",
            "IN_MODIFY",
            "IN_ATTRIB",
            "IN_CLOSE_WRITE",
            "IN_CLOSE_NOWRITE",
            "IN_OPEN",
            "IN_MOVED_FROM",
            "IN_MOVED_TO",
            "IN_CREATE",
            "IN_DELETE",
            "IN_DELETE_SELF",
            "IN_MOVE_SELF",
            "IN_ONLYDIR",
            "IN_DONT_FOLLOW",
            "IN_EXCL_UNLINK",
            "IN_MASK_CREATE",
            "IN_MASK_ADD",
            "IN_ONESHOT",
        ],
    ),
    (
        "ioctl",
        &[
            "FS_IOC_GETFLAGS",
            "FS_IOC_SETFLAGS",
            "FS_IOC_GETVERSION",
            "FS_IOC_FSGETXATTR",
            "FS_IOC_FSSETXATTR",
            "FIONREAD",
            "FIONBIO",
            "FIOASYNC",
            "FIOCLEX",
            "FIONCLEX",
            "FIGETBSZ",
            "FICLONE",
            "FICLONERANGE",
            "FIDEDUPERANGE",
            "FS_IOC_GETFSUUID",
            "FS_IOC_FIEMAP",
            "FIOQSIZE",
            "FITRIM",
            "FIFREEZE",
            "FITHAW",
        ],
    ),
    ("linkat", &["AT_SYMLINK_FOLLOW", "AT_EMPTY_PATH"]),
    ("lseek", &["SEEK_SET", "SEEK_CUR", "SEEK_END", "SEEK_DATA", "SEEK_HOLE"]),
    (
        "madvise",
        &[
            "MADV_NORMAL",
            "MADV_RANDOM",
            "MADV_SEQUENTIAL",
            "MADV_WILLNEED",
            "MADV_DONTNEED",
            "MADV_REMOVE",
            "MADV_FREE",
            "MADV_COLD",
            "MADV_PAGEOUT",
            "MADV_POPULATE_READ",
            "MADV_POPULATE_WRITE",
            "MADV_DONTFORK",
            "MADV_DOFORK",
            "MADV_HUGEPAGE",
            "MADV_NOHUGEPAGE",
            "MADV_COLLAPSE",
            "MADV_DONTDUMP",
            "MADV_DODUMP",
            "MADV_WIPEONFORK",
            "MADV_KEEPONFORK",
            "MADV_MERGEABLE",
            "MADV_UNMERGEABLE",
        ],
    ),
    ("mknod", &["S_IFREG", "S_IFIFO", "S_IFSOCK", "S_IFCHR", "S_IFBLK"]),
    ("mlock2", &["MLOCK_ONFAULT"]),
    ("mlockall", &["MCL_CURRENT", "MCL_FUTURE", "MCL_ONFAULT"]),
    (
        "mmap",
        &[
            "PROT_NONE",
            "PROT_READ",
            "PROT_WRITE",
            "PROT_EXEC",
            "MAP_SHARED",
            "MAP_PRIVATE",
            "MAP_SHARED_VALIDATE",
            "MAP_ANONYMOUS",
            "MAP_FIXED",
            "MAP_FIXED_NOREPLACE",
            "MAP_GROWSDOWN",
            "MAP_LOCKED",
            "MAP_NORESERVE",
            "MAP_POPULATE",
            "MAP_NONBLOCK",
            "MAP_STACK",
            "MAP_HUGETLB",
            "MAP_32BIT",
            "MAP_SYNC",
            "MAP_DENYWRITE",
        ],
    ),
    (
        "mount",
        &[
            "MS_RDONLY",
            "MS_NOSUID",
            "MS_NODEV",
            "MS_NOEXEC",
            "MS_SYNCHRONOUS",
            "MS_REMOUNT",
            "MS_MANDLOCK",
            "MS_DIRSYNC",
            "MS_NOSYMFOLLOW",
            "MS_NOATIME",
            "MS_NODIRATIME",
            "MS_BIND",
            "MS_MOVE",
            "MS_REC",
            "MS_SILENT",
            "MS_UNBINDABLE",
            "MS_PRIVATE",
            "MS_SLAVE",
            "MS_SHARED",
            "MS_RELATIME",
            "MS_STRICTATIME",
            "MS_LAZYTIME",
        ],
    ),
    (
        "mount_setattr",
        &[
            "MOUNT_ATTR_RDONLY",
            "MOUNT_ATTR_NOSUID",
            "MOUNT_ATTR_NODEV",
            "MOUNT_ATTR_NOEXEC",
            "MOUNT_ATTR_NOATIME",
            "MOUNT_ATTR_STRICTATIME",
            "MOUNT_ATTR_NODIRATIME",
            "MOUNT_ATTR_NOSYMFOLLOW",
            "MOUNT_ATTR_IDMAP",
            "AT_RECURSIVE",
        ],
    ),
    (
        "move_mount",
        &[
            "MOVE_MOUNT_F_SYMLINKS",
            "MOVE_MOUNT_F_EMPTY_PATH",
            "MOVE_MOUNT_T_SYMLINKS",
            "MOVE_MOUNT_T_EMPTY_PATH",
            "MOVE_MOUNT_SET_GROUP",
            "MOVE_MOUNT_BENEATH",
        ],
    ),
    ("mremap", &["MREMAP_MAYMOVE", "MREMAP_FIXED", "MREMAP_DONTUNMAP"]),
    ("msync", &["MS_ASYNC", "MS_SYNC", "MS_INVALIDATE"]),
    (
        "name_to_handle_at",
        &["AT_SYMLINK_FOLLOW", "AT_EMPTY_PATH", "AT_HANDLE_FID", "AT_HANDLE_MNT_ID_UNIQUE"],
    ),
    ("newfstatat", &["AT_SYMLINK_NOFOLLOW", "AT_EMPTY_PATH", "AT_NO_AUTOMOUNT"]),
    (
        "open_tree",
        &[
            "OPEN_TREE_CLONE",
            "OPEN_TREE_CLOEXEC",
            "AT_RECURSIVE",
            "AT_SYMLINK_NOFOLLOW",
            "AT_EMPTY_PATH",
            "AT_NO_AUTOMOUNT",
        ],
    ),
    (
        "openat",
        &[
            "O_RDONLY",
            "O_WRONLY",
            "O_RDWR",
            "O_CREAT",
            "O_EXCL",
            "O_NOCTTY",
            "O_TRUNC",
            "O_APPEND",
            "O_NONBLOCK",
            "O_DSYNC",
            "O_SYNC",
            "O_ASYNC",
            "O_DIRECT",
            "O_LARGEFILE",
            "O_DIRECTORY",
            "O_NOFOLLOW",
            "O_NOATIME",
            "O_CLOEXEC",
            "O_PATH",
            "O_TMPFILE",
        ],
    ),
    (
        "openat2",
        &[
            "RESOLVE_NO_XDEV",
            "RESOLVE_NO_MAGICLINKS",
            "RESOLVE_NO_SYMLINKS",
            "RESOLVE_BENEATH",
            "RESOLVE_IN_ROOT",
            "RESOLVE_CACHED",
        ],
    ),
    ("preadv2", RWF),
    ("pwritev2", RWF),
    ("renameat2", &["RENAME_NOREPLACE", "RENAME_EXCHANGE", "RENAME_WHITEOUT"]),
    ("setxattr", &["XATTR_CREATE", "XATTR_REPLACE"]),
    ("splice", &["SPLICE_F_MOVE", "SPLICE_F_NONBLOCK", "SPLICE_F_MORE"]),
    (
        "statx",
        &[
            "AT_SYMLINK_NOFOLLOW",
            "AT_EMPTY_PATH",
            "AT_NO_AUTOMOUNT",
            "AT_STATX_SYNC_AS_STAT",
            "AT_STATX_FORCE_SYNC",
            "AT_STATX_DONT_SYNC",
            "STATX_BASIC_STATS",
            "STATX_BTIME",
            "STATX_MNT_ID",
            "STATX_MNT_ID_UNIQUE",
            "STATX_DIOALIGN",
            "STATX_SUBVOL",
            "STATX_WRITE_ATOMIC",
            "STATX_DIO_READ_ALIGN",
        ],
    ),
    (
        "sync_file_range",
        &["SYNC_FILE_RANGE_WAIT_BEFORE", "SYNC_FILE_RANGE_WRITE", "SYNC_FILE_RANGE_WAIT_AFTER"],
    ),
    ("tee", &["SPLICE_F_NONBLOCK"]),
    ("umount2", &["MNT_FORCE", "MNT_DETACH", "MNT_EXPIRE", "UMOUNT_NOFOLLOW"]),
    ("unlinkat", &["AT_REMOVEDIR"]),
    ("utimensat", &["UTIME_NOW", "UTIME_OMIT", "AT_SYMLINK_NOFOLLOW", "AT_EMPTY_PATH"]),
    ("vmsplice", &["SPLICE_F_GIFT"]),
];

/// Whether a text has a name as a word.
fn mentions(text: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(word)
            && !text[at + name.len()..].chars().next().is_some_and(word)
    })
}

#[test]
fn every_flag_is_compared_or_known_to_differ() {
    let groups = groups();
    let differences = read("docs/differences.md");
    let rows: Vec<&str> = differences.lines().filter(|line| line.starts_with('|')).collect();
    let mut text = String::from(
        "# Flags by call\n\n\
         For each flag that the man page of a call lists: the conformance groups that make the call and name the\n\
         flag. Each group runs on tmpfs and on a mount, and all that it prints must be the same. *differs* means\n\
         that [differences.md](differences.md) has a row on the flag. This page is made from the tests:\n\
         `LIGHTPATH_BLESS=1 cargo test --release -p lp-tests --test flags`\n\n\
         | call | flag | same in | |\n|---|---|---|---|\n",
    );
    let mut untested = Vec::new();
    for (call, flags) in FLAGS {
        let names = names(call);
        for flag in *flags {
            let by = |(_, body): &&(String, String)| {
                names.iter().any(|name| makes(body, name)) && mentions(body, flag)
            };
            let found: Vec<&str> = groups.iter().filter(by).map(|(group, _)| group.as_str()).collect();
            let differs = rows.iter().any(|row| mentions(row, flag));
            if found.is_empty() && !differs {
                untested.push(format!("{call} {flag}"));
            }
            let more = if found.len() > 3 { format!(" and {} more", found.len() - 3) } else { String::new() };
            let shown = found.iter().take(3).copied().collect::<Vec<_>>().join(", ");
            let mark = if differs { "differs" } else { "" };
            // Writing to a String does not fail.
            let _ = writeln!(text, "| {call} | `{flag}` | {shown}{more} | {mark} |");
        }
    }
    assert!(untested.is_empty(), "flags that no group passes: {untested:?}");
    let path = root().join("docs/flags.md");
    if std::env::var_os("LIGHTPATH_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "docs/flags.md is old: LIGHTPATH_BLESS=1 cargo test -p lp-tests --test flags");
}
