//! execve(2) of host files: whether the gate can cover the file ([`check`], [`privileges`], [`known`]), how
//! it is loaded ([`load`]), the environment of the new image ([`environment`]) and how that image reads it
//! ([`inherited`], [`variables`]). Programs and the
//! interpreters of [`script`]s get [`outline`]s where that makes their start faster.
//!
//! Files in a mount also end in [`run`].

pub(crate) mod check;
pub(crate) mod environment;
pub(crate) mod inherited;
pub(crate) mod known;
pub(crate) mod load;
pub(crate) mod outline;
pub(crate) mod privileges;
pub(crate) mod run;
pub(crate) mod script;
pub(crate) mod variables;
