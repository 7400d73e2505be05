//! What the process was told in its environment, kept for the images that it will exec.

use core::cell::UnsafeCell;

use crate::report;

/// Longest path in [`Settings`], in bytes, its NUL included.
pub(crate) const PATH: usize = 1024;

/// Set by attach, constant afterwards.
pub(crate) struct Settings {
    /// The preload library's own path, as LD_PRELOAD named it.
    pub(crate) preload: Text,
    /// What LIGHTPATH_GATE said.
    pub(crate) gate: Text,
    /// The bundle of site images.
    pub(crate) bundle: Text,
    /// The program that adds to it: the launcher.
    pub(crate) builder: Text,
}

/// A string with room for a path and its NUL.
pub(crate) struct Text {
    length: usize,
    bytes: [u8; PATH],
}

struct Global(UnsafeCell<Settings>);

// SAFETY: written by attach, when the process has one thread; only read afterwards.
unsafe impl Sync for Global {}

static SETTINGS: Global = Global(UnsafeCell::new(Settings {
    preload: Text::EMPTY,
    gate: Text::EMPTY,
    bundle: Text::EMPTY,
    builder: Text::EMPTY,
}));

impl Text {
    const EMPTY: Text = Text { length: 0, bytes: [0; PATH] };

    /// Stores `text`; a longer one than fits ends the process.
    pub(crate) fn set(&mut self, text: &[u8]) {
        let Some(room) = self.bytes.get_mut(..text.len() + 1).filter(|room| room.len() <= PATH) else {
            report::refuse(&[b"path too long: ", text]);
        };
        room[..text.len()].copy_from_slice(text);
        room[text.len()] = 0;
        self.length = text.len();
    }

    /// The string without its NUL.
    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[..self.length.min(PATH)]
    }

    /// Its first byte; a NUL ends it.
    pub(crate) fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

/// The settings.
pub(crate) fn get() -> &'static Settings {
    // SAFETY: see `Global`.
    unsafe { &*SETTINGS.0.get() }
}

/// The settings, for attach to fill in.
///
/// # Safety
/// The process has one thread, and no other reference is alive.
pub(crate) unsafe fn fill() -> &'static mut Settings {
    // SAFETY: the caller's promise.
    unsafe { &mut *SETTINGS.0.get() }
}
