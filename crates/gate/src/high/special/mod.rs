//! FIFOs and Unix sockets in a mount, whose data goes through the kernel: their objects on the host
//! ([`node`]), where those lie ([`place`]) and their addresses ([`address`]).

pub(crate) mod address;
pub(crate) mod node;
pub(crate) mod place;
