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

/// Whether a component of a path is empty, `.` or `..`; with `more`, whether one starts with `..`. A slash at
/// the end does not count.
fn is_crooked(path: &str, more: bool) -> bool {
    let components: Vec<_> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    components.iter().enumerate().any(|(at, name)| {
        let is_first_of_relative = at == 0 && !path.starts_with('/');
        let is_last = at + 1 == components.len();
        !is_first_of_relative
            && ((name.is_empty() && !is_last) || [".", ".."].contains(name) || more && name.starts_with(".."))
    })
}

#[test]
fn a_straight_path_is_told_from_a_crooked_one_wherever_the_crook_is() {
    const LETTERS: [char; 3] = ['/', '.', 'x'];
    let page = page_with_a_guard();
    for before in [0, 1, 9, 10, 11, 12, 13, 14, 15, 16, 29, 31] {
        for code in 0..3usize.pow(6) {
            let tail: String = (0..6).map(|at| LETTERS[code / 3usize.pow(at) % 3]).collect();
            let path = format!(
                "{}{tail}",
                if before == 0 { String::new() } else { "/".to_owned() + &"x".repeat(before - 1) }
            );
            for behind in ["", "//", "/./"] {
                let text = format!("{path}\0{behind}");
                let got = {
                    // SAFETY: within the first page.
                    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), page, text.len()) };
                    // SAFETY: the string and its NUL are there.
                    unsafe { ucopy::is_straight(page) }
                };
                assert!(!(got && is_crooked(&path, false)), "{path:?} is crooked");
                assert!(got || is_crooked(&path, true), "{path:?} is straight");
            }
        }
    }
}

#[test]
fn a_look_at_a_path_stops_at_the_end_of_the_page() {
    let page = page_with_a_guard();
    for length in 0..40 {
        let mut text = vec![b'x'; length];
        text.push(0);
        // SAFETY: within the first page, where the string ends.
        unsafe {
            let start = page.add(PAGE - text.len());
            std::ptr::copy_nonoverlapping(text.as_ptr(), start, text.len());
            ucopy::is_straight(start);
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
