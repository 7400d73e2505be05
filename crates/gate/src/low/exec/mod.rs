//! execve(2) of host files: whether the gate can cover the file ([`check`], [`known`]), how it is loaded
//! ([`load`]), the environment of the new image ([`environment`]) and how that image reads it ([`inherited`],
//! [`variables`]).
//!
//! Files in a mount also end in [`run`].

pub mod check;
pub mod environment;
pub mod inherited;
pub mod known;
pub mod load;
pub mod run;
pub mod variables;
