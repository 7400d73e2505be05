//! Unpacking a tree, whole or not at all.

use std::fs;
use std::io;
use std::path::Path;

use super::form::Form;
use super::unpacking::Unpacking;
use super::why::Why;
use super::{region, tar, zip};
use crate::command::session::remove;

/// Unpacks what is at `from` to `to`, which is not there, and is not there afterwards if this fails.
pub(super) fn unpack(from: &Path, form: Form, to: &Path) -> Result<(), Why> {
    let part = to.with_extension("part");
    let clean = |why: io::Error| Why::at(&part, &why);
    // One that was killed may have left it.
    remove::tree(&part).map_err(clean)?;
    let done = match form {
        Form::Frozen => region::unpack(from, &part),
        Form::Zip => {
            Unpacking::begin(&part).and_then(|mut to| zip::unpack(from, &mut to).map(|()| to)?.end())
        }
        form => {
            Unpacking::begin(&part).and_then(|mut to| tar::unpack(from, form, &mut to).map(|()| to)?.end())
        }
    };
    let done = done.and_then(|()| fs::rename(&part, to).map_err(clean));
    if done.is_err() {
        // If it is left, the next one removes it.
        let _ = remove::tree(&part);
    }
    done
}
