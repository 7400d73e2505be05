//! The string copy, at every distance from the end of its page, which nothing follows.

use lp_abi::Errno;
use lp_region::ucopy;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

const PAGE: usize = 4096;

/// Two pages, the second of which cannot be touched.
fn page_with_a_guard() -> *mut u8 {
    // SAFETY: a new mapping, whose second page is then closed.
    unsafe {
        let both = mmap_anonymous(
            std::ptr::null_mut(),
            2 * PAGE,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        );
        let page = both.unwrap().cast::<u8>();
        mprotect(page.add(PAGE).cast(), PAGE, MprotectFlags::empty()).unwrap();
        page
    }
}

#[test]
fn a_string_is_copied_whole_wherever_it_ends() {
    let page = page_with_a_guard();
    for length in 0..80 {
        for behind in 0..40 {
            let text: Vec<u8> = (0..length).map(|i| b'a' + (i % 26) as u8).collect();
            let start = PAGE - behind - length - 1;
            let mut to = [0xee; 128];
            let got = {
                // SAFETY: within the first page.
                unsafe {
                    std::ptr::copy_nonoverlapping(text.as_ptr(), page.add(start), length);
                    page.add(start + length).write(0);
                    page.add(start + length + 1).write_bytes(b'z', behind);
                }
                // SAFETY: the string and its NUL are there.
                unsafe { ucopy::string(&mut to, page.add(start)) }
            };
            assert_eq!(got, Ok(length), "{behind} bytes before the end");
            assert_eq!((&to[..length], to[length]), (&text[..], 0));
        }
    }
}

#[test]
fn the_last_slash_is_found_wherever_it_is_but_not_behind_the_end() {
    let page = page_with_a_guard();
    for length in 0..72 {
        for behind in [0, 1, 15, 40] {
            // One slash at each place, also where the NUL is, which means none, and behind it.
            for slash in 0..=length + behind {
                let mut text = vec![b'x'; length + 1 + behind];
                text[slash] = b'/';
                text[length] = 0;
                let start = PAGE - text.len();
                let mut to = [0xee; 128];
                let got = {
                    // SAFETY: within the first page.
                    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), page.add(start), text.len()) };
                    // SAFETY: the string and its NUL are there.
                    unsafe { ucopy::path(&mut to, page.add(start)) }
                };
                let prefix = if slash < length { slash + 1 } else { 0 };
                assert_eq!(got, Ok((length, prefix)), "slash at {slash}, {behind} bytes before the end");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_too_long_and_leaves_the_rest_alone() {
    let text = [b'x'; 100];
    for room in 1..64 {
        let mut to = [0xee; 96];
        // SAFETY: 100 bytes are there, and no more than `room` are asked for.
        let got = unsafe { ucopy::string(&mut to[..room], text.as_ptr()) };
        assert_eq!(got, Err(Errno::ENAMETOOLONG), "{room}");
        assert!(to[..room].iter().all(|byte| *byte == b'x') && to[room..].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn copies_of_every_length_are_exact() {
    copies_are_exact::<false>();
    copies_are_exact::<true>();
    ucopy::set_wide(lp_region::cpu::has_avx2());
    copies_are_exact::<true>();
}

fn copies_are_exact<const WIDE: bool>() {
    let from: Vec<u8> = (0..5000u32).map(|at| (at * 7 % 251) as u8).collect();
    for len in (0..1300).chain([4095, 4096, 4097]) {
        for shift in [0, 1, 9, 31] {
            let mut to = vec![0xeeu8; len + shift + 40];
            // SAFETY: both sides are long enough.
            unsafe { ucopy::copy_as::<WIDE>(to.as_mut_ptr().add(shift), from.as_ptr().add(3), len) }
                .expect("copy");
            assert_eq!(to[shift..shift + len], from[3..3 + len], "{len} bytes to {shift}");
            assert!(
                to[..shift].iter().chain(&to[shift + len..]).all(|byte| *byte == 0xee),
                "{len} bytes to {shift}"
            );
        }
    }
}
