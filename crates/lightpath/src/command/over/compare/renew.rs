//! What a session takes over from its directory as a later run begins: what has changed there, and has not
//! been changed in the session.
//!
//! Everything is compared before anything is renewed. A name that has changed is forgotten and taken in anew,
//! so it is another inode. What has changed on both sides stays as it is in the session and is a conflict.
//! Below directories that the session has moved or removed nothing is renewed. The caller is the only user of
//! the session.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_region::{InodeId, InodeRef};
use lp_vfs::below::list::{self, NameRoom, Record, RecordAt};
use lp_vfs::below::renew;

use super::changes::{is_dressed_otherwise, is_same_special};
use super::glance::Glance;
use super::host;
use super::tree::{New, Old, Tree, error, is_dir, kind};
use crate::command::copies::origin::record_of;

/// Something that is renewed.
enum Step {
    /// A name is forgotten, and what it names with all that it holds. Names in there that have records come
    /// first.
    Forget { dir: InodeRef, name: OsString, old: Old, new: Option<New> },
    /// A name is taken in.
    TakeIn { dir: InodeRef, of: RecordAt, name: OsString, seen: Record },
    /// A directory gets the attributes that it has on the host.
    Redress { old: Old, seen: Record },
    /// Both sides have lost a name.
    Settle(Old),
}

/// What is to be renewed, and what cannot be.
#[derive(Default)]
struct Plan {
    steps: Vec<Step>,
    conflicts: Vec<PathBuf>,
    /// Whether the names of all directories are looked for.
    again: bool,
    /// Directories that are not compared with what is above them: a glance has looked at them.
    apart: HashSet<RecordAt>,
}

impl Tree<'_> {
    /// Renews what has changed on the host, after `begin` if that is anything. Returns the paths that have
    /// changed on both sides. `again`: a renewal has begun and not ended, so names may be missing anywhere.
    ///
    /// # Errors
    /// Those of the host and of the session; one line if another directory stands in the place of one that
    /// the session is over.
    pub(crate) fn renew(
        &self,
        again: bool,
        begin: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Vec<PathBuf>> {
        let mut plan = Plan { again, ..Plan::default() };
        for root in self.roots() {
            let (path, old, new) = root?;
            let found = record_of(&host::look(self.over, path)?);
            if (found.dev, found.ino) != (old.seen.dev, old.seen.ino) {
                let path = host::whole(self.over, path);
                let line = format!(
                    "{} is another directory than it was; see lightpath export, and lightpath discard to \
                     begin anew",
                    path.display()
                );
                return Err(io::Error::other(line));
            }
            match again {
                true => self.directory(path, &old, &found, &new, &mut plan)?,
                false => self.differing(path, &old, &found, &mut plan)?,
            }
        }
        plan.conflicts.sort();
        let rank = |step: &Step| match step {
            Step::Forget { .. } | Step::Settle(_) => 0,
            Step::TakeIn { .. } => 1,
            Step::Redress { .. } => 2,
        };
        plan.steps.sort_by_key(rank);
        if !plan.steps.is_empty() {
            begin()?;
        }
        for step in &plan.steps {
            self.step(step)?;
        }
        Ok(plan.conflicts)
    }

    fn step(&self, step: &Step) -> io::Result<()> {
        match step {
            Step::Forget { dir, name, old, new } => {
                // A revert that was killed has left names that are the session's own.
                new.iter().try_for_each(|new| self.empty(new))?;
                renew::forget(self.task, *dir, old.at, name.as_bytes())
            }
            Step::TakeIn { dir, of, name, seen } => {
                renew::take_in(self.task, *dir, *of, name.as_bytes(), seen)
            }
            Step::Redress { old, seen } => renew::redress(self.task, old.at, seen, old.seen.target()),
            Step::Settle(old) => renew::remove(self.task.region, old.at),
        }
        .map_err(error)
    }

    /// Compares the directories below a root that may have changed.
    fn differing(&self, path: &Path, old: &Old, found: &Record, plan: &mut Plan) -> io::Result<()> {
        let mut glance = Glance::default();
        glance.look(self.task.region, self.over, (path, old), has_times(found, &old.seen))?;
        plan.apart = glance.looked;
        for (path, old) in glance.differing {
            // What has gone since is found by the next run.
            if let Some(found) = self.look(&path)?.filter(|found| is_same(found, &old.seen)) {
                self.directory(&path, &old, &found, &self.seen(old.seen.target()), plan)?;
            }
        }
        Ok(())
    }

    /// Compares a directory that is in its place.
    fn directory(
        &self,
        path: &Path,
        old: &Old,
        found: &Record,
        new: &New,
        plan: &mut Plan,
    ) -> io::Result<()> {
        let changed = !has_times(found, &old.seen);
        if changed && has_time_of(new, &old.seen) {
            plan.steps.push(Step::Redress { old: *old, seen: *found });
        } else if changed && is_dressed_otherwise(&old.seen, &new.attributes, found) {
            plan.conflicts.push(path.to_owned());
        }
        if old.seen.list == 0 {
            return Ok(());
        }
        // Names that were only listed are taken in first.
        let now = self.names_now(new)?;
        let before = self.listed(old)?;
        let (dir, at) = (new.inode, old.at);
        for (name, old) in &before {
            self.name(&path.join(name), (dir, at), old, now.get(name), plan)?;
        }
        if !changed && !plan.again {
            return Ok(());
        }
        let Some(listed) = permitted(fs::read_dir(host::reach(self.over, path)?))? else { return Ok(()) };
        for entry in listed {
            let name = entry?.file_name();
            let inside = path.join(&name);
            if before.contains_key(&name) {
                continue;
            }
            let Some(found) = permitted(self.look(&inside))? else { return Ok(()) };
            match (now.contains_key(&name), found) {
                (_, None) => {}
                (true, Some(_)) => plan.conflicts.push(inside),
                (false, Some(seen)) => plan.steps.push(Step::TakeIn { dir, of: old.at, name, seen }),
            }
        }
        Ok(())
    }

    /// Compares a name of a directory.
    fn name(
        &self,
        path: &Path,
        (dir, of): (InodeRef, RecordAt),
        old: &Old,
        now: Option<&New>,
        plan: &mut Plan,
    ) -> io::Result<()> {
        let Some(found) = permitted(self.look(path))? else { return Ok(()) };
        let is_in_place = now.filter(|new| new.inode == old.seen.target());
        if let (Some(found), true) = (&found, old.seen.target != 0)
            && is_same(found, &old.seen)
        {
            return match is_in_place.filter(|_| is_dir(found.mode) && !plan.apart.contains(&old.at)) {
                Some(new) => self.directory(path, old, found, new, plan),
                None => Ok(()),
            };
        }
        let name = path.file_name().unwrap_or_default().to_owned();
        if old.seen.target == 0 || is_in_place.is_some_and(|new| self.is_untouched(old, new)) {
            self.forget(dir, &name, old, now, plan)?;
            plan.steps.extend(found.map(|seen| Step::TakeIn { dir, of, name, seen }));
        } else if now.is_none() && found.is_none() {
            plan.steps.push(Step::Settle(*old));
        } else if !found.is_some_and(|found| is_same_special(&found, &old.seen)) {
            plan.conflicts.push(path.to_owned());
        }
        Ok(())
    }

    /// Forgets a name with all it holds.
    fn forget(
        &self,
        dir: InodeRef,
        name: &OsStr,
        old: &Old,
        now: Option<&New>,
        plan: &mut Plan,
    ) -> io::Result<()> {
        if let Some(new) = now.filter(|new| is_dir(new.attributes.mode) && old.seen.list != 0) {
            let names = self.names_now(new)?;
            for (name, old) in &self.listed(old)? {
                self.forget(new.inode, name, old, names.get(name), plan)?;
            }
        }
        plan.steps.push(Step::Forget { dir, name: name.to_owned(), old: *old, new: now.cloned() });
        Ok(())
    }

    /// Whether the session has changed nothing of what a name stands for. Nothing stands for a name that a
    /// renewal began to forget before it was killed: all around it was untouched then, and its directory may
    /// have the time of that removal.
    fn is_untouched(&self, old: &Old, new: &New) -> bool {
        if new.inode != old.seen.target() {
            return old.seen.target == 0;
        }
        if !is_dir(new.attributes.mode) || old.seen.list == 0 {
            return has_time_of(new, &old.seen);
        }
        // What cannot be read any more counts as changed: it is left alone.
        let (Ok(now), Ok(before)) = (self.names_now(new), self.listed(old)) else { return false };
        let is_half_forgotten = before.values().any(|old| old.seen.target == 0);
        (is_half_forgotten || has_time_of(new, &old.seen))
            && now.keys().all(|name| before.contains_key(name))
            && before.iter().all(|(name, old)| match now.get(name) {
                Some(new) => self.is_untouched(old, new),
                None => old.seen.target == 0,
            })
    }

    /// The names in a directory's list, those that stand for nothing as well.
    pub(super) fn listed(&self, old: &Old) -> io::Result<BTreeMap<OsString, Old>> {
        let mut names = BTreeMap::new();
        let mut room: NameRoom = [0; size_of::<NameRoom>()];
        list::each(self.task.region, InodeId(old.seen.list), list::FIRST, |at, seen| {
            let name = OsStr::from_bytes(list::name(self.task.region, at, seen, &mut room)?).to_owned();
            names.insert(name, Old { at, seen: *seen });
            Ok(true)
        })
        .map_err(error)?;
        Ok(names)
    }

    /// What the host has at a path.
    pub(super) fn look(&self, path: &Path) -> io::Result<Option<Record>> {
        match host::look(self.over, path) {
            Ok(found) => Ok(Some(record_of(&found))),
            Err(e) if host::is_absence(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Whether a directory of the host has the times of modification and change that were seen.
fn has_times(found: &Record, seen: &Record) -> bool {
    let of = |record: &Record, index: usize| (record.seconds[index], record.nanoseconds[index]);
    [1, 2].into_iter().all(|index| of(found, index) == of(seen, index))
}

/// Whether an inode of the session has the change time that was seen on the host.
fn has_time_of(new: &New, seen: &Record) -> bool {
    let ctime = new.attributes.ctime;
    (ctime.sec, ctime.nsec) == (seen.seconds[2], seen.nanoseconds[2])
}

/// Whether the host has what was seen there. Of a directory, what it holds is compared name by name.
fn is_same(found: &Record, seen: &Record) -> bool {
    let of = |record: &Record| (record.dev, record.ino, kind(record.mode));
    let times = |record: &Record| (record.size, record.seconds[2], record.nanoseconds[2]);
    of(found) == of(seen) && (is_dir(found.mode) || times(found) == times(seen))
}

/// What was asked of the host. `None` if the user may not look there: that stays as it was seen.
fn permitted<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Ok(None),
        asked => asked.map(Some),
    }
}
