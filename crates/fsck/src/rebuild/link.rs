//! Links every entry into its directory and the table, and what has no name into `lost+found`.

use lp_abi::linux::S_IFDIR;
use lp_abi::{Errno, NAME_MAX, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId, InodeRef, PageId};
use lp_vfs::name::{Key, Name};
use lp_vfs::run::{PageHome, PageRun};
use lp_vfs::{Task, dir, dirent, hash, inode, linking, reflink};

use super::{Rebuild, Rebuilt, counts_pages};

/// The directory, in the root of each tree, for what lost its name; and the permissions it is created with.
const LOST: &str = "lost+found";
const LOST_MODE: u32 = 0o700;

impl Rebuild {
    /// Creates the gathered tree.
    ///
    /// # Errors
    /// `ENOSPC` when directories have no space.
    pub(crate) fn link(&self, task: &Task) -> Result<Rebuilt> {
        for directory in &self.directories {
            let inode = self.region.inode(directory.id);
            inode.parent.store(directory.parent.0, Relaxed);
            inode.self_dirent.store(directory.entry.0, Relaxed);
            inode.root.store(directory.root, Relaxed);
            inode.nlink.store(2, Relaxed);
            for entry in &directory.entries {
                self.link_one(task, directory.id, *entry)?;
            }
        }
        for (home, page) in &self.stray {
            self.link_page(task, *home, *page)?;
        }
        // Where there is room: a file that shares nothing survives a failure of the machine.
        for file in self.shared.values().flatten() {
            let _ = reflink::unshare_alone(task, InodeId(*file));
        }
        let highest = self.directories.iter().skip(self.roots).filter(|directory| directory.parent.is_none());
        let lost: Vec<InodeId> =
            highest.map(|directory| directory.id).chain(self.unnamed.iter().copied()).collect();
        for id in &lost {
            self.name_lost(task, *id)?;
        }
        Ok(Rebuilt { dropped: self.dropped, unnamed: lost.len() as u64 })
    }

    fn link_one(&self, task: &Task, id: InodeId, entry: DirentId) -> Result<()> {
        let (inode, record) = (self.region.inode(id), self.region.dirent(entry));
        dir::reserve(task, id)?;
        let mut bytes = [0; NAME_MAX];
        let length = dirent::copy_name(self.region, record, &mut bytes);
        let name = Name::new(&bytes[..length])?;
        let target = self.region.inode(dirent::target(record).id);
        let tail = inode.tail.load(Relaxed);
        record.position.store(tail, Relaxed);
        record.hash.store(name.hash(id), Relaxed);
        record.shape.store(dirent::shape(length, target.mode.load(Relaxed)), Relaxed);
        if target.flags.load(Relaxed) & inode_flags::HOSTS != 0 {
            dirent::cover(record);
        }
        record.link.store(0, Relaxed);
        dir::put(task, entry);
        inode.tail.store(tail + 1, Relaxed);
        inode.entries.store(inode.entries.load(Relaxed) + 1, Relaxed);
        if target.is_dir() {
            inode.nlink.store(inode.nlink.load(Relaxed) + 1, Relaxed);
        }
        let load = hash::insert(self.region, task.lane, name.hash(id), entry);
        dirent::give_birth(record);
        if load == hash::Load::Crowded {
            hash::split(task);
        }
        Ok(())
    }

    /// Links a stray page into the map of its file.
    fn link_page(&self, task: &Task, home: PageHome, page: PageId) -> Result<()> {
        let inode = self.region.inode(home.inode);
        linking::prepare(task, home.inode, inode, home.index, 1)?;
        linking::link(task, inode, home.index, PageRun::one(page));
        if counts_pages(inode) {
            inode.pages.store(inode.pages.load(Relaxed) + 1, Relaxed);
        }
        Ok(())
    }

    /// Gives an inode that lost its name one in `lost+found`: its inode number.
    fn name_lost(&self, task: &Task, id: InodeId) -> Result<()> {
        let inode = self.region.inode(id);
        let home = self.lost_directory(task, inode.root.load(Relaxed))?;
        let target = InodeRef { id, generation: inode.generation.load(Relaxed) };
        let entry = self.add(task, home, &format!("#{}", id.0), target)?;
        if inode.is_dir() {
            inode.parent.store(home.0, Relaxed);
            inode.self_dirent.store(entry.0, Relaxed);
        }
        Ok(())
    }

    /// The `lost+found` of a root; creates it if necessary.
    fn lost_directory(&self, task: &Task, root: u32) -> Result<InodeId> {
        let top = self.directories.iter().take(self.roots).find(|directory| directory.root == root);
        let top = top.ok_or(Errno::ENOENT)?.id;
        let found = Name::new(LOST.as_bytes()).map(|name| hash::lookup(self.region, top, &name))?;
        if let Some(hit) = found
            && self.region.inode(hit.target().id).is_dir()
        {
            return Ok(hit.target().id);
        }
        let owner = self.region.inode(top);
        let owner = (owner.uid.load(Relaxed), owner.gid.load(Relaxed));
        let made = inode::create_root(task, root, S_IFDIR | LOST_MODE, owner)?;
        let entry = self.add(task, top, LOST, made)?;
        let record = self.region.inode(made.id);
        record.parent.store(top.0, Relaxed);
        record.self_dirent.store(entry.0, Relaxed);
        self.region.settle::<Inode>(task.lane);
        Ok(made.id)
    }

    /// Adds an entry; if the name exists, appends a number.
    fn add(&self, task: &Task, home: InodeId, name: &str, target: InodeRef) -> Result<DirentId> {
        let mut text = name.to_owned();
        for number in 1.. {
            if hash::lookup(self.region, home, &Name::new(text.as_bytes())?).is_none() {
                break;
            }
            text = format!("{name}.{number}");
        }
        let name = Name::new(text.as_bytes())?;
        let entry = dirent::take(self.region, task.lane, &Key::new(home, &name), target)?;
        self.link_one(task, home, entry)?;
        dirent::settle(self.region, task.lane);
        Ok(entry)
    }
}
