//! The catalogue: the workloads, the names of their figures, and their targets.

use crate::apps::{APPS, App};
use std::fmt;

/// One workload: a program and the argument lists it is run with.
#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: &'static str,
    pub(crate) program: Program,
    /// One argument list per invocation; `@dir` and `@scratch` stand for directories.
    pub(crate) full: &'static [&'static [&'static str]],
    pub(crate) quick: &'static [&'static [&'static str]],
}

/// The program of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// This C program (named without its suffix), on each file system.
    C(&'static str),
    /// The scripts of [`crate::apps`], on each file system.
    Apps,
    /// [`crate::before`], in both designs.
    InProcess,
}

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "dd",
        title: "dd bs=1: reads and writes of one byte",
        detail: "dd if=/dev/zero of=foo bs=1 count=1M, the real dd; wall, system and CPU seconds. Mostly descriptor lookups, which lost their lock in 2003",
        program: Program::C("dd"),
        full: &[&["@dir", "1048576"]],
        quick: &[&["@dir", "262144"]],
    },
    Workload {
        name: "lseek",
        title: "Random lseeks on one file",
        detail: "N processes, each opening one 128 MB file and moving about in it at random; seconds from the \
                 first fork to the last exit (1,000,000 lseeks each; 100,000 with --quick). lseek lost the inode's mutex in 2009",
        program: Program::C("lseek"),
        full: &[&["@dir", "1000000", "1", "2", "4", "8", "16", "32", "64", "100"]],
        quick: &[&["@dir", "100000", "1", "2", "8", "32", "100"]],
    },
    Workload {
        name: "fstime",
        title: "UnixBench fstime 256/2000: small writes",
        detail: "256-byte writes, 2,000 of them, back to 0 and again until the alarm; KB/s. Each write counts as a writer of its mount, without a spinlock since 2009",
        program: Program::C("fstime"),
        full: &[&["@dir", "256", "2000", "1000", "write"]],
        quick: &[&["@dir", "256", "2000", "200", "write"]],
    },
    Workload {
        name: "acl",
        title: "stat and open + close, by owner and other",
        detail: "lmbench's loops on a file that the caller owns and on one it does not own; microseconds. Each directory of the path is asked for an ACL, without a lock since 2009",
        program: Program::C("acl"),
        full: &[&["@dir", "10"]],
        quick: &[&["@dir", "3"]],
    },
    Workload {
        name: "fstat",
        title: "fstat, and du of a tree",
        detail: "10,000,000 fstats of an open file, du of 100,000 files (--quick: a tenth of each); seconds. Attributes come straight from the cached inode since 2011",
        program: Program::C("fstat"),
        full: &[&["@dir", "10000000", "100000"]],
        quick: &[&["@dir", "1000000", "10000"]],
    },
    Workload {
        name: "lmbench",
        title: "lmbench's table",
        detail: "processor and process figures, microseconds",
        program: Program::C("lmbench"),
        full: &[&["@dir", "5", "40"]],
        quick: &[&["@dir", "2", "10"]],
    },
    Workload {
        name: "unixbench",
        title: "UnixBench's file copy geometries",
        detail: "write, read and copy with buffer/blocks of 256/500, 1024/2000 and 4096/8000; KB/s",
        program: Program::C("fstime"),
        full: &[
            &["@dir", "256", "500", "1000", "write", "read", "copy"],
            &["@dir", "1024", "2000", "1000", "write", "read", "copy"],
            &["@dir", "4096", "8000", "1000", "write", "read", "copy"],
        ],
        quick: &[
            &["@dir", "256", "500", "200", "write", "read", "copy"],
            &["@dir", "1024", "2000", "200", "write", "read", "copy"],
            &["@dir", "4096", "8000", "200", "write", "read", "copy"],
        ],
    },
    Workload {
        name: "calls",
        title: "The call table",
        detail: "nanoseconds per call; \"host\" calls are of descriptors and paths outside the mount",
        program: Program::C("calls"),
        full: &[&["@dir", "5"]],
        quick: &[&["@dir", "2"]],
    },
    Workload {
        name: "scale",
        title: "Scaling of work that commutes",
        detail: "N processes, then N threads, each bound to a processor; million calls per second together",
        program: Program::C("scale"),
        full: &[&["@dir", "500", "processes", "1", "2", "4"], &["@dir", "500", "threads", "1", "2", "4"]],
        quick: &[&["@dir", "100", "processes", "1", "2"], &["@dir", "100", "threads", "1", "2"]],
    },
    Workload {
        name: "growth",
        title: "Growth: many files, deep paths, many directories",
        detail: "files in one directory, directories above a file, directories of one file: nanoseconds for \
                 each; bytes of memory that the machine has less for each file",
        program: Program::C("growth"),
        full: &[
            &["@dir", "files", "1000", "10000", "100000", "1000000"],
            &["@dir", "depth", "1", "10", "100", "1000"],
            &["@dir", "directories", "1000", "10000", "100000"],
        ],
        quick: &[
            &["@dir", "files", "1000", "10000", "100000"],
            &["@dir", "depth", "1", "10", "100"],
            &["@dir", "directories", "1000", "10000"],
        ],
    },
    Workload {
        name: "sqlite",
        title: "SQLite autocommit inserts",
        detail: "20,000 transactions (2,000 with --quick) by the sqlite3 command; seconds",
        program: Program::C("sqlite"),
        full: &[&["@dir", "@scratch", "20000"]],
        quick: &[&["@dir", "@scratch", "2000"]],
    },
    Workload {
        name: "tree",
        title: "A source tree: tar, git, grep, du, find, cp -r, rm -r",
        detail: "10,000 small files (2,000 with --quick); seconds",
        program: Program::C("tree"),
        full: &[&["@dir", "@scratch", "10000"]],
        quick: &[&["@dir", "@scratch", "2000"]],
    },
    Workload {
        name: "build",
        title: "A small build",
        detail: "30 C files (8 with --quick) compiled one after another, linked and run; seconds",
        program: Program::C("build"),
        full: &[&["@dir", "30"]],
        quick: &[&["@dir", "8"]],
    },
    Workload {
        name: "bulk",
        title: "Bulk I/O: dd bs=1M, cp",
        detail: "1 GiB (256 MiB with --quick) written to a new file, rewritten in place, read, copied; MiB/s",
        program: Program::C("bulk"),
        full: &[&["@dir", "1024"]],
        quick: &[&["@dir", "256"]],
    },
    Workload {
        name: "spawn",
        title: "posix_spawn(/bin/true)",
        detail: "start a program and wait for it; microseconds",
        program: Program::C("spawn"),
        full: &[&["@dir", "60"]],
        quick: &[&["@dir", "15"]],
    },
    Workload {
        name: "apps",
        title: "Applications",
        detail: "what people run, with its input and output in the mount, results compared; seconds, wall and processor time. \
                 `apps/NAME` runs one of them",
        program: Program::Apps,
        full: &[&["10"]],
        quick: &[&["2"]],
    },
    Workload {
        name: "before",
        title: "Each change against the design that it replaced",
        detail: "the five hot calls through the library door, on the same records with the old lock or count put back, \
                 and without; million calls per second of N processes, then N threads, together",
        program: Program::InProcess,
        full: &[
            &["lookup,processes,200,1,2,4,16,100"],
            &["lookup,threads,200,1,2,4,16,100"],
            &["lseek,processes,200,1,2,4,16,100"],
            &["lseek,threads,200,1,2,4,16,100"],
            &["writers,processes,200,1,2,4,16,100"],
            &["writers,threads,200,1,2,4,16,100"],
            &["acl,processes,200,1,2,4,16,100"],
            &["acl,threads,200,1,2,4,16,100"],
            &["attributes,processes,200,1,2,4,16,100"],
            &["attributes,threads,200,1,2,4,16,100"],
        ],
        quick: &[
            &["lookup,processes,50,1,2,8"],
            &["lookup,threads,50,1,2,8"],
            &["lseek,processes,50,1,2,8"],
            &["lseek,threads,50,1,2,8"],
            &["writers,processes,50,1,2,8"],
            &["writers,threads,50,1,2,8"],
            &["acl,processes,50,1,2,8"],
            &["acl,threads,50,1,2,8"],
            &["attributes,processes,50,1,2,8"],
            &["attributes,threads,50,1,2,8"],
        ],
    },
];

/// Readable names of figures whose key is not clear enough.
const LABELS: &[(&str, &str)] = &[
    ("dd_wall", "dd bs=1, wall"),
    ("dd_system", "dd bs=1, system time"),
    ("dd_cpu", "dd bs=1, user + system"),
    ("lseek_procs", "random lseeks, processes"),
    ("lseek_end", "lseek SEEK_END"),
    ("read_1", "read 1 B"),
    ("pread_1", "pread 1 B"),
    ("pread_4k", "pread 4 KiB"),
    ("pwrite_1", "pwrite 1 B"),
    ("pwrite_4k", "pwrite 4 KiB"),
    ("write_256", "write 256 B"),
    ("pread_1m", "pread 1 MiB"),
    ("pwrite_1m", "pwrite 1 MiB"),
    ("open_close", "open + close"),
    ("stat_missing", "stat, no such file"),
    ("stat_relative", "stat of a relative path"),
    ("create_unlink", "create + unlink"),
    ("create_4k_unlink", "create + write 4 KiB + unlink"),
    ("link_unlink", "link + unlink"),
    ("mkdir_rmdir", "mkdir + rmdir"),
    ("getdents_100", "getdents, 100 entries"),
    ("mmap_64k", "mmap + touch + munmap 64 KiB"),
    ("host_read_1", "host read 1 B"),
    ("host_lseek", "host lseek"),
    ("host_fstat", "host fstat"),
    ("host_pread_1", "host pread 1 B"),
    ("host_stat", "host stat"),
    ("stat_owner", "stat, own file"),
    ("stat_other", "stat, another's file"),
    ("open_close_owner", "open + close, own file"),
    ("open_close_other", "open + close, another's file"),
    ("fstat_many", "fstat, many times"),
    ("create_tree", "create the tree"),
    ("du_first", "du, first"),
    ("du_hot", "du, hot"),
    ("rm_tree", "rm -r of the tree"),
    ("write_256_2000", "write 256/2000"),
    ("files_make", "one directory: mknod of a file"),
    ("files_memory", "one directory: memory of a file"),
    ("files_stat", "one directory: stat, random order"),
    ("files_list", "one directory: readdir, each entry"),
    ("files_list_stat", "one directory: readdir + stat, each"),
    ("files_remove", "one directory: unlink"),
    ("depth_getcwd", "deep path: getcwd"),
    ("depth_stat", "deep path: stat"),
    ("directories_stat", "many directories: stat, random order"),
    ("sqlite_autocommit", "SQLite autocommit inserts"),
    ("tar_extract", "tar -x"),
    ("git_add", "git add"),
    ("git_status", "git status"),
    ("grep_r", "grep -r"),
    ("cp_r", "cp -r"),
    ("rm_r", "rm -r"),
    ("cc_build", "cc build"),
    ("dd_write_1m", "dd bs=1M, write"),
    ("dd_rewrite_1m", "dd bs=1M, rewrite"),
    ("dd_read_1m", "dd bs=1M, read"),
    ("cp", "cp"),
    ("cp_write", "cp and a byte written"),
    ("posix_spawn", "posix_spawn(/bin/true)"),
    ("processes_files", "processes, a file each: pread 4 KiB + pwrite 256 B"),
    ("processes_position", "processes, one file: lseek"),
    ("processes_stat", "processes, one path: stat"),
    ("processes_open", "processes, one path: open + close"),
    ("processes_create", "processes, a directory each: create + unlink"),
    ("threads_files", "threads, a file each: pread 4 KiB + pwrite 256 B"),
    ("threads_position", "threads, one file: lseek"),
    ("threads_stat", "threads, one path: stat"),
    ("threads_open", "threads, one path: open + close"),
    ("threads_create", "threads, a directory each: create + unlink"),
];

/// The readable name of the figure `metric`.
pub(crate) fn label(metric: &str) -> String {
    match LABELS.iter().find(|(key, _)| *key == metric) {
        Some((_, label)) => (*label).to_owned(),
        None => metric.replace('_', " "),
    }
}

/// What one run measures, in the catalogue's order.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) workloads: Vec<&'static Workload>,
    /// The applications, if `workloads` has `apps`.
    pub(crate) apps: Vec<&'static App>,
}

/// A NAME that is not a workload's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct UnknownName(String);

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(app) = self.0.strip_prefix("apps/") {
            let names: Vec<_> = APPS.iter().map(|app| app.name).collect();
            return write!(f, "no application is called '{app}'; there are: {}", names.join(" "));
        }
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        write!(f, "no workload is called '{}'; there are: {} figures", self.0, names.join(" "))
    }
}

impl Selection {
    /// What is selected by `names`; everything if `names` is empty.
    pub(crate) fn of(names: &[String]) -> Result<Self, UnknownName> {
        let is_app = |name: &str, app: &App| name.strip_prefix("apps/") == Some(app.name);
        let is_known = |name: &&String| {
            *name == "figures"
                || WORKLOADS.iter().any(|workload| workload.name == **name)
                || APPS.iter().any(|app| is_app(name, app))
        };
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            return Err(UnknownName(unknown.clone()));
        }
        let wanted = |workload: &&Workload| {
            names.is_empty()
                || names.iter().any(|name| {
                    name == workload.name
                        || name == "figures" && crate::figures::concern(workload.name)
                        || workload.program == Program::Apps && name.starts_with("apps/")
                })
        };
        let all_apps = names.is_empty() || names.iter().any(|name| name == "apps");
        let wanted_app = |app: &&App| all_apps || names.iter().any(|name| is_app(name, app));
        Ok(Self {
            workloads: WORKLOADS.iter().filter(wanted).collect(),
            apps: APPS.iter().filter(wanted_app).collect(),
        })
    }
}

/// What `--list` prints.
pub(crate) fn listing() -> String {
    let mut text = String::new();
    for workload in WORKLOADS {
        text += &format!("{:10} {}\n{:10} {}\n", workload.name, workload.title, "", workload.detail);
    }
    text + "figures    all of these that have a figure to reach\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_in_catalogue_order() {
        let names = ["spawn".to_owned(), "dd".to_owned()];
        let selected: Vec<_> = Selection::of(&names).unwrap().workloads.iter().map(|w| w.name).collect();
        assert_eq!(selected, ["dd", "spawn"]);
        let all = Selection::of(&[]).unwrap();
        assert_eq!((all.workloads.len(), all.apps.len()), (WORKLOADS.len(), APPS.len()));
        let one = Selection::of(&["apps/tar".to_owned()]).unwrap();
        assert_eq!((one.workloads[0].name, one.apps[0].name, one.apps.len()), ("apps", "tar", 1));
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        for (name, known) in [("nosuch", "fstime"), ("apps/nosuch", "git-clone")] {
            let error = Selection::of(&[name.to_owned()]).unwrap_err().to_string();
            assert!(error.contains("nosuch'") && error.contains(known) && !error.contains('\n'));
        }
    }

    #[test]
    fn every_workload_has_its_program() {
        for workload in WORKLOADS {
            if let Program::C(program) = workload.program {
                assert!(crate::compile::source_of(program).is_some(), "{program}");
            }
        }
    }
}
