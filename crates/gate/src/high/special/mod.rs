//! FIFOs and Unix sockets in a mount, whose data the kernel carries: their objects on the host ([`node`]) and
//! their addresses ([`address`]).

pub mod address;
pub mod node;
