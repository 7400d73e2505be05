//! Calls that create host descriptors. Parked placeholders are closed first, so that the kernel gives out the
//! number that the program expects.

use crate::high::fd::placeholder;
use crate::high::frame::handler::handlers;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// pipe(2), socket(2), epoll_create1(2) and similar calls.
    fn makes_descriptor(task) {
        placeholder::flush(task);
        NOT_OURS
    }
}
