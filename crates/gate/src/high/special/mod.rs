//! FIFOs and Unix sockets in a mount, whose data goes through the kernel: their objects on the host
//! ([`node`]) and their addresses ([`address`]).

pub mod address;
pub mod node;
