//! What has to be in a region after a crash, by what was synced and what has changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use lp_abi::linux::S_IFMT;

use crate::caller::Caller;
use crate::pages::PAGE;
use crate::world::{Kind, Node, State, path};

/// How much was checked.
#[derive(Clone, Copy, Default, Debug)]
pub struct Checked {
    /// Objects that had not changed.
    pub unchanged: u64,
    /// Files that only had other names, or another way to them.
    pub renamed: u64,
    /// Blocks of files that were written to and not cut.
    pub blocks: u64,
}

/// One image: the region as a caller sees it, and the states of the workload from the sync to the crash.
pub struct Judge<'a> {
    pub caller: &'a Caller,
    pub states: &'a [State],
    pub checked: Checked,
}

impl Judge<'_> {
    /// Holds everything that was synced against the region.
    ///
    /// # Errors
    /// What is missing or different.
    pub fn all(&mut self) -> Result<(), String> {
        let (first, last) = (&self.states[0], &self.states[self.states.len() - 1]);
        let mut renamed = Vec::new();
        for (id, node) in first.iter().filter(|(id, _)| **id != 0) {
            let Some(now) = last.get(id) else { continue };
            let has_kept_content = Rc::ptr_eq(&node.content, &now.content);
            let has_kept_names = has_kept_way(first, last, *id);
            if has_kept_content && has_kept_names && Rc::ptr_eq(&node.about, &now.about) {
                self.unchanged(&path(first, *id), node)?;
                self.checked.unchanged += 1;
            } else if has_kept_content && node.kind == Kind::File && node.content.size != 0 {
                renamed.push((path(first, *id), node));
            } else if has_kept_names && node.kind == Kind::File && node.content.cuts == now.content.cuts {
                self.written(&path(first, *id), *id)?;
            }
        }
        self.renamed(&renamed)
    }

    fn unchanged(&self, path: &str, node: &Node) -> Result<(), String> {
        let found = self.caller.stat(path).map_err(|errno| format!("{path}: {errno:?}"))?;
        let differs = |what: &str, here: &dyn std::fmt::Debug, wanted: &dyn std::fmt::Debug| {
            Err(format!("{path}: {what} is {here:?}, not {wanted:?}"))
        };
        if found.st_mode & !S_IFMT != node.about.mode {
            return differs("the mode", &(found.st_mode & !S_IFMT), &node.about.mode);
        }
        if node.kind == Kind::Directory {
            return Ok(());
        }
        let mtime = (found.st_mtime, found.st_mtime_nsec as i64);
        if mtime != node.about.mtime {
            return differs("mtime", &mtime, &node.about.mtime);
        }
        if u64::from(found.st_nlink as u32) != node.names.len() as u64 {
            return differs("the number of links", &found.st_nlink, &node.names.len());
        }
        if node.kind == Kind::Link {
            let target = self.caller.readlink(path).map_err(|errno| format!("{path}: {errno:?}"))?;
            return if target == **node.content.blocks[&0] {
                Ok(())
            } else {
                Err(format!("{path}: its target"))
            };
        }
        if self.content(path)? != node.content.bytes() {
            return Err(format!("{path}: other content"));
        }
        if self.caller.attribute(path) != node.about.attribute {
            return Err(format!("{path}: another extended attribute"));
        }
        Ok(())
    }

    fn content(&self, path: &str) -> Result<Vec<u8>, String> {
        let found = self.caller.stat(path).map_err(|errno| format!("{path}: {errno:?}"))?;
        self.caller.read(path, found.st_size as usize).map_err(|errno| format!("{path}: {errno:?}"))
    }

    /// A file that was written to and not cut: each block that it had is as at some step since.
    fn written(&mut self, path: &str, id: usize) -> Result<(), String> {
        let content = self.content(path)?;
        let synced = &self.states[0][&id].content;
        for index in synced.blocks.keys() {
            let at = *index as usize * PAGE;
            let end = (at + PAGE).min(synced.size as usize);
            let has = content.get(at..end).ok_or_else(|| format!("{path}: block {index} is cut"))?;
            // A block may be torn between sectors.
            for (number, sector) in has.chunks(512).enumerate() {
                let at = number * 512;
                let is_known =
                    |state: &State| state[&id].content.block(*index)[at..at + sector.len()] == *sector;
                if !self.states.iter().any(is_known) {
                    return Err(format!("{path}: sector {number} of block {index} was never written so"));
                }
            }
            self.checked.blocks += 1;
        }
        Ok(())
    }

    /// Files whose content has not changed are somewhere.
    fn renamed(&mut self, files: &[(String, &Node)]) -> Result<(), String> {
        if files.is_empty() {
            return Ok(());
        }
        let mut sizes: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for path in self.caller.list() {
            let found = self.caller.stat(&path).map_err(|errno| format!("{path}: {errno:?}"))?;
            if found.st_mode & S_IFMT == lp_abi::linux::S_IFREG {
                sizes.entry(found.st_size as u64).or_default().push(path);
            }
        }
        let wanted: BTreeSet<u64> = files.iter().map(|(_, node)| node.content.size).collect();
        let mut contents: BTreeMap<u64, Vec<Vec<u8>>> = BTreeMap::new();
        for size in wanted {
            for path in sizes.get(&size).into_iter().flatten() {
                contents.entry(size).or_default().push(self.content(path)?);
            }
        }
        for (path, node) in files {
            let bytes = node.content.bytes();
            if !contents.get(&node.content.size).is_some_and(|found| found.contains(&bytes)) {
                return Err(format!("{path}: renamed since, and nowhere"));
            }
            self.checked.renamed += 1;
        }
        Ok(())
    }
}

/// Whether neither the names of an object nor those of a directory above it have changed.
fn has_kept_way(first: &State, last: &State, id: usize) -> bool {
    let (Some(then), Some(now)) = (first.get(&id), last.get(&id)) else { return false };
    Rc::ptr_eq(&then.names, &now.names)
        && then.names.iter().all(|(parent, _)| *parent == id || has_kept_way(first, last, *parent))
}
