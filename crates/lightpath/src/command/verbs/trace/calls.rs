//! Which calls are traced, and their names.

use std::borrow::Cow;

use lp_abi::gated::CALLS;
use syscalls::Sysno;

use crate::command::output::failure::{Failure, USAGE};

/// A bit for each call of a list such as `open,close`; `!` in front means all others.
pub(super) fn parse(list: &str) -> Result<[u64; CALLS / 64], Failure> {
    let list = list.strip_prefix("trace=").unwrap_or(list);
    let (list, others) = match list.strip_prefix('!') {
        Some(list) => (list, u64::MAX),
        None => (list, 0),
    };
    let mut bits = [0; CALLS / 64];
    for name in list.split(',') {
        let number = name.parse::<Sysno>().map(|call| call.id() as usize).ok().filter(|nr| *nr < CALLS);
        let Some(number) = number else {
            return Err(Failure::new(
                USAGE,
                format!("'{name}' is no system call; write -e open,close or -e '!read'"),
            ));
        };
        bits[number / 64] |= 1 << (number % 64);
    }
    Ok(bits.map(|word| word ^ others))
}

/// The name of a call.
pub(super) fn name(number: u32) -> Cow<'static, str> {
    match Sysno::new(number as usize) {
        Some(call) => Cow::Borrowed(call.name()),
        None => Cow::Owned(format!("syscall_{number:#x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_chosen_by_name() {
        assert_eq!(parse("read,write").unwrap()[0], 3);
        assert_eq!(parse("trace=!read").unwrap()[0], !1);
        assert_eq!(parse("read,read").unwrap()[0], 1);
        assert_eq!(parse("!read,read").unwrap()[0], !1);
        assert!(parse("reed").unwrap_err().to_string().contains("'reed' is no system call"));
    }
}
