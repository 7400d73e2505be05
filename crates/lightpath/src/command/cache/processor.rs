//! What the processor answers to the questions that dynamic linkers ask at the start of a program
//! (`lp_sites::linker`).

use std::arch::x86_64::__cpuid_count;
use std::hint::black_box;
use std::time::{Duration, Instant};

use lp_sites::linker::Answer;

/// Leaves that ignore the subleaf, up to the highest of their range: the vendor, the model and its features,
/// caches (Intel), and the same of the extended range.
const PLAIN: [u32; 9] =
    [0, 1, 2, 0x8000_0000, 0x8000_0001, 0x8000_0005, 0x8000_0006, 0x8000_0007, 0x8000_0008];
/// Leaves with so many subleaves: features, topology, the state that XSAVE saves, tracing, key locker.
const DIVIDED: [(u32, u32); 5] = [(7, 2), (0xb, 3), (0xd, 10), (0x14, 1), (0x19, 1)];
/// Leaves with a subleaf for each cache, up to one without a kind: of Intel and of AMD.
const CACHES: [u32; 2] = [4, 0x8000_001d];
/// More caches than any processor has.
const MOST_CACHES: u32 = 8;
const EXTENDED: u32 = 0x8000_0000;

fn ask(leaf: u32, subleaf: u32) -> [u32; 4] {
    let answer = __cpuid_count(leaf, subleaf);
    [answer.eax, answer.ebx, answer.ecx, answer.edx]
}

/// Whether CPUID takes so long that an outline saves time: on most virtual machines, which it leaves.
pub(super) fn is_slow() -> bool {
    /// A start asks 68 times; an outline costs 100 to 160 us (docs/adr/0028-*.md).
    const SLOW: Duration = Duration::from_nanos(2500);
    /// The least of some says what it takes without interruptions.
    const ROUNDS: u32 = 8;
    const QUESTIONS: u32 = 4;
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        for _ in 0..QUESTIONS {
            black_box(ask(0, 0));
        }
        start.elapsed() / QUESTIONS
    });
    times.min().is_some_and(|least| least > SLOW)
}

/// What tells whether [`answers`] are those of an earlier start: the boot, the processor's model and its
/// features. `None` if the kernel does not name the boot.
pub(super) fn mark() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let ([model, _, c, d], [_, features @ ..]) = (ask(1, 0), ask(7, 0));
    Some(format!("{} {model:x} {c:x} {d:x} {features:x?}", boot.trim_end()))
}

/// The answers, without those fields that name the processor of several that was asked.
pub(super) fn answers() -> Vec<Answer> {
    let highest = [ask(0, 0)[0], ask(EXTENDED, 0)[0]];
    let is_known = |leaf: u32| leaf <= highest[usize::from(leaf >= EXTENDED)];
    let mut all = Vec::new();
    for leaf in PLAIN.into_iter().filter(|leaf| is_known(*leaf)) {
        all.push(Answer { leaf, subleaf: None, registers: ask(leaf, 0) });
    }
    for (leaf, count) in DIVIDED.into_iter().filter(|(leaf, _)| is_known(*leaf)) {
        let answer = |subleaf| Answer { leaf, subleaf: Some(subleaf), registers: ask(leaf, subleaf) };
        all.extend((0..count).map(answer));
    }
    for leaf in CACHES.into_iter().filter(|leaf| is_known(*leaf)) {
        for subleaf in 0..MOST_CACHES {
            let registers = ask(leaf, subleaf);
            all.push(Answer { leaf, subleaf: Some(subleaf), registers });
            if registers[0] & 0x1f == 0 {
                break;
            }
        }
    }
    for answer in &mut all {
        match answer.leaf {
            1 => answer.registers[1] &= 0x00ff_ffff,
            0xb => answer.registers[3] = 0,
            _ => {}
        }
    }
    all
}
