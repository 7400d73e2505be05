//! Messages of sendmsg(2) and related calls.

use lp_region::ucopy;

/// Size of `struct mmsghdr`, the stride of sendmmsg(2)'s vector.
pub(crate) const STRIDE: usize = 64;
/// Maximum number of messages that one sendmmsg(2) sends (`UIO_MAXIOV`).
pub(crate) const MOST: u32 = 1024;

/// The kernel's `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Message {
    /// Address, or null.
    pub name: usize,
    /// Its length in bytes.
    pub name_length: u32,
    /// Vector of buffers.
    pub vector: usize,
    /// Number of buffers.
    pub vector_length: usize,
    /// Control messages, or null.
    pub control: usize,
    /// Their length in bytes.
    pub control_length: usize,
    /// Flags returned by recvmsg.
    pub flags: u32,
}

/// The messages of a sendmmsg(2) or recvmmsg(2), up to the first unreadable one.
pub(crate) fn messages(vector: usize, count: u32) -> impl Iterator<Item = Message> {
    let at = move |index| vector.wrapping_add(index as usize * STRIDE) as *const Message;
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid message.
    (0..count).map_while(move |index| unsafe { ucopy::get(at(index)) }.ok())
}
