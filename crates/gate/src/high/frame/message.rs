//! Messages as sendmsg(2) and its like take them.

use lp_region::ucopy;

/// Bytes from one message of sendmmsg(2) to the next, and where its length goes.
pub(crate) const STRIDE: usize = 64;
/// Messages of one call (`UIO_MAXIOV`).
pub(crate) const MOST: u32 = 1024;

/// `struct msghdr` as the kernel has it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    /// Address, or null.
    pub name: usize,
    /// Its bytes.
    pub name_length: u32,
    /// Vector of buffers.
    pub vector: usize,
    /// How many.
    pub vector_length: usize,
    /// Control messages, or null.
    pub control: usize,
    /// Their bytes.
    pub control_length: usize,
    /// What recvmsg says.
    pub flags: u32,
}

/// The messages of a sendmmsg(2), up to the first that cannot be read.
pub(crate) fn messages(vector: usize, count: u32) -> impl Iterator<Item = Message> {
    let at = move |index| vector.wrapping_add(index as usize * STRIDE) as *const Message;
    // SAFETY: the copy routine answers bad pointers; every bit pattern is a message.
    (0..count.min(MOST)).map_while(move |index| unsafe { ucopy::get(at(index)) }.ok())
}
