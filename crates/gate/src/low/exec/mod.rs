//! execve(2) of host files: whether the gate can cover the file ([`check`], [`known`]), how it gets in
//! ([`load`]), the environment of the new image ([`environment`]) and what that image makes of it
//! ([`inherited`], [`variables`]).
//!
//! Files in a mount end in [`run`], too.

pub mod check;
pub mod environment;
pub mod inherited;
pub mod known;
pub mod load;
pub mod run;
pub mod variables;
