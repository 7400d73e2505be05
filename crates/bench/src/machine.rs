//! The machine on which the figures were measured.

use serde::{Deserialize, Serialize};
use std::process::Command;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) processors: usize,
    pub(crate) memory_mib: u64,
    /// Whether the processor reports a hypervisor.
    pub(crate) virtual_machine: bool,
    pub(crate) kernel: String,
    pub(crate) libc: String,
    pub(crate) compiler: String,
    pub(crate) lightpath: String,
    /// Load average over the last minute, before the first measurement.
    pub(crate) load: f64,
    /// UTC, in the format of `date -u +%FT%TZ`.
    pub(crate) date: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let uname = rustix::system::uname();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_mib(),
            virtual_machine: field(&cpuinfo, "flags")
                .is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            libc: first_line("getconf", &["GNU_LIBC_VERSION"]),
            compiler: first_line("cc", &["--version"]),
            lightpath: env!("CARGO_PKG_VERSION").to_owned(),
            load: load(),
            date: first_line("date", &["-u", "+%FT%TZ"]),
        }
    }
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
    Some(line.split_once(':')?.1.trim())
}

fn memory_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&text, "MemTotal").and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0)
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}
