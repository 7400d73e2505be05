//! A workload and what it made: every file and directory after each step.

use std::collections::BTreeMap;
use std::rc::Rc;

use lp_abi::Errno;
use lp_abi::linux::{AT_REMOVEDIR, S_IFMT};

use crate::caller::Caller;
use crate::pages::PAGE;
use crate::random::Random;

/// What an object is made of; shared by the states in which it is the same.
#[derive(Clone)]
pub struct Node {
    pub kind: Kind,
    /// Directory and name of each of its links.
    pub names: Rc<Vec<(usize, String)>>,
    pub content: Rc<Content>,
    pub about: Rc<About>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    File,
    Directory,
    Link,
}

#[derive(Clone, Default)]
pub struct Content {
    pub size: u64,
    /// Blocks that are no holes; of a symbolic link its target.
    pub blocks: BTreeMap<u64, Rc<Vec<u8>>>,
    /// How often it was cut: pages of it went to others.
    pub cuts: usize,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct About {
    pub mode: u32,
    pub mtime: (u64, i64),
    pub attribute: Option<Vec<u8>>,
}

/// All that there is after a step, by number. Number 0 is the root.
pub type State = BTreeMap<usize, Node>;

pub struct World {
    pub caller: Caller,
    pub state: State,
    random: Random,
    next: usize,
    /// Pages of the region.
    room: u64,
}

/// Objects, and blocks of a small and of a sparse file.
const OBJECTS: usize = 90;
const BLOCKS: u64 = 12;
const FAR: u64 = 1024;

impl Content {
    /// The bytes of a block.
    pub fn block(&self, index: u64) -> Vec<u8> {
        self.blocks.get(&index).map_or_else(|| vec![0; PAGE], |block| block.to_vec())
    }

    /// All of it.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.size.next_multiple_of(PAGE as u64) as usize];
        for (index, block) in &self.blocks {
            let at = *index as usize * PAGE;
            bytes[at..at + PAGE].copy_from_slice(block);
        }
        bytes.truncate(self.size as usize);
        bytes
    }
}

/// A path of an object, by its first name.
pub fn path(state: &State, id: usize) -> String {
    match state[&id].names.first() {
        None => "/light".to_owned(),
        Some((parent, name)) => format!("{}/{name}", path(state, *parent)),
    }
}

impl World {
    pub fn new(caller: Caller, random: Random, room: u64) -> World {
        let root = Node {
            kind: Kind::Directory,
            names: Rc::default(),
            content: Rc::default(),
            about: Rc::new(About { mode: 0o1777, ..About::default() }),
        };
        World { caller, state: State::from([(0, root)]), random, next: 1, room }
    }

    /// Makes one change, or none if what was drawn is not possible.
    pub fn step(&mut self) {
        let used: usize = self.state.values().map(|node| node.content.blocks.len()).sum();
        let is_full = used as u64 > self.room / 4 || self.state.len() > OBJECTS;
        match self.random.below(if is_full { 12 } else { 27 }) {
            0..=2 => self.unlink(),
            3 => self.truncate(),
            4 => self.rmdir(),
            5 => self.caller.reclaim(),
            6 => self.rename_over(),
            7..=9 => self.overwrite(),
            10 => self.rename(Kind::File),
            11 => self.chmod(),
            12..=16 => self.create(),
            17..=18 => self.append(),
            19..=20 => self.mkdir(),
            21 => self.rename(Kind::File),
            22 => self.rename(Kind::Directory),
            23 => self.exchange(),
            24 => self.link(),
            25 => self.symlink(),
            _ => self.attribute(),
        }
    }

    fn ids(&self, kind: Kind) -> Vec<usize> {
        self.state.iter().filter(|(id, node)| **id != 0 && node.kind == kind).map(|(id, _)| *id).collect()
    }

    fn any(&mut self, kind: Kind) -> Option<usize> {
        let ids = self.ids(kind);
        self.random.pick(&ids)
    }

    /// A directory, the root among them.
    fn directory(&mut self) -> usize {
        let ids = self.ids(Kind::Directory);
        self.random.pick(&ids).filter(|_| self.random.below(3) != 0).unwrap_or(0)
    }

    /// A new place for a name.
    fn place(&mut self) -> (usize, String) {
        let directory = self.directory();
        let number = self.random.below(40);
        let name = match self.random.below(4) {
            0 => format!("{}{number}", "long".repeat(8 + number as usize)),
            _ => format!("n{number}"),
        };
        (directory, name)
    }

    fn is_taken(&self, place: &(usize, String)) -> bool {
        self.state.values().any(|node| node.names.contains(place))
    }

    fn path_of(&self, place: &(usize, String)) -> String {
        format!("{}/{}", path(&self.state, place.0), place.1)
    }

    fn path(&self, id: usize) -> String {
        path(&self.state, id)
    }

    fn node(&mut self, id: usize) -> &mut Node {
        self.state.get_mut(&id).expect("an object")
    }

    /// Notes what the file system says of an object that was changed.
    fn touched(&mut self, id: usize) {
        let found = self.caller.stat(&self.path(id)).expect("stat");
        let about = &self.state[&id].about;
        let mtime = match self.state[&id].kind {
            Kind::Directory => (0, 0),
            _ => (found.st_mtime, found.st_mtime_nsec as i64),
        };
        let now = About { mode: found.st_mode & !S_IFMT, mtime, attribute: about.attribute.clone() };
        if now != **about {
            self.node(id).about = Rc::new(now);
        }
    }

    fn add(&mut self, kind: Kind, place: (usize, String)) -> usize {
        let id = self.next;
        self.next += 1;
        let (content, about) = Default::default();
        self.state.insert(id, Node { kind, names: Rc::new(vec![place]), content, about });
        self.touched(id);
        id
    }

    fn create(&mut self) {
        let place = self.place();
        if self.is_taken(&place) {
            return;
        }
        self.caller.create(&self.path_of(&place)).expect("create");
        let id = self.add(Kind::File, place);
        let blocks = self.random.below(BLOCKS);
        let first = if self.random.below(16) == 0 { FAR } else { 0 };
        for index in first..first + blocks {
            self.put(id, index);
        }
    }

    /// Writes a block of a file: bytes that no other write has, and that a page map could have.
    fn put(&mut self, id: usize, index: u64) {
        let stamp = self.random.next();
        let start = self.random.below(self.room) as u32;
        let words = (0..PAGE as u32 / 4 - 2).map(|step| 1 + (start + step) % self.room as u32);
        let bytes: Vec<u8> =
            stamp.to_le_bytes().into_iter().chain(words.flat_map(u32::to_le_bytes)).collect();
        match self.caller.write(&self.path(id), &bytes, index * PAGE as u64) {
            Ok(()) => {}
            Err(Errno::ENOSPC) => return,
            Err(errno) => panic!("write: {errno:?}"),
        }
        let content = Rc::make_mut(&mut self.node(id).content);
        content.blocks.insert(index, Rc::new(bytes));
        content.size = content.size.max((index + 1) * PAGE as u64);
        self.touched(id);
    }

    fn overwrite(&mut self) {
        let Some(id) = self.any(Kind::File) else { return };
        let blocks: Vec<u64> = self.state[&id].content.blocks.keys().copied().collect();
        for _ in 0..1 + self.random.below(3) {
            if let Some(index) = self.random.pick(&blocks) {
                self.put(id, index);
            }
        }
    }

    fn append(&mut self) {
        let Some(id) = self.any(Kind::File) else { return };
        let mut end = self.state[&id].content.size.div_ceil(PAGE as u64);
        if self.random.below(8) == 0 {
            end = end.max(FAR);
        }
        for index in end..end + 1 + self.random.below(BLOCKS) {
            self.put(id, index);
        }
    }

    fn truncate(&mut self) {
        let Some(id) = self.any(Kind::File) else { return };
        let size = self.random.below(self.state[&id].content.size + 1) & !511;
        self.caller.truncate(&self.path(id), size).expect("truncate");
        let content = Rc::make_mut(&mut self.node(id).content);
        content.size = size;
        content.cuts += 1;
        content.blocks.retain(|index, _| index * (PAGE as u64) < size);
        if let Some(last) = content.blocks.get_mut(&(size / PAGE as u64)) {
            Rc::make_mut(last)[size as usize % PAGE..].fill(0);
        }
        self.touched(id);
    }

    /// Takes a name off an object; without any it is gone.
    fn forget(&mut self, id: usize, place: &(usize, String)) {
        let names = Rc::make_mut(&mut self.node(id).names);
        names.retain(|name| name != place);
        if names.is_empty() {
            self.state.remove(&id);
        }
    }

    fn unlink(&mut self) {
        let kind = if self.random.below(6) == 0 { Kind::Link } else { Kind::File };
        let Some(id) = self.any(kind) else { return };
        let names = self.state[&id].names.to_vec();
        let place = names[self.random.below(names.len() as u64) as usize].clone();
        self.caller.unlink(&self.path_of(&place), 0).expect("unlink");
        self.forget(id, &place);
    }

    fn mkdir(&mut self) {
        let place = self.place();
        if !self.is_taken(&place) {
            self.caller.mkdir(&self.path_of(&place)).expect("mkdir");
            self.add(Kind::Directory, place);
        }
    }

    fn is_empty(&self, id: usize) -> bool {
        !self.state.values().any(|node| node.names.iter().any(|(parent, _)| *parent == id))
    }

    fn rmdir(&mut self) {
        let empty: Vec<usize> =
            self.ids(Kind::Directory).into_iter().filter(|id| self.is_empty(*id)).collect();
        if let Some(id) = self.random.pick(&empty) {
            self.caller.unlink(&self.path(id), AT_REMOVEDIR).expect("rmdir");
            self.state.remove(&id);
        }
    }

    /// Whether `id` is `above` or lies below it.
    fn is_below(&self, id: usize, above: usize) -> bool {
        id == above || self.state[&id].names.first().is_some_and(|(parent, _)| self.is_below(*parent, above))
    }

    fn rename(&mut self, kind: Kind) {
        let (Some(id), place) = (self.any(kind), self.place()) else { return };
        if self.is_taken(&place) || kind == Kind::Directory && self.is_below(place.0, id) {
            return;
        }
        self.caller.rename(&self.path(id), &self.path_of(&place), 0).expect("rename");
        Rc::make_mut(&mut self.node(id).names)[0] = place;
    }

    /// A file takes the name of another, as programs do that replace a file by a new one.
    fn rename_over(&mut self) {
        let (Some(id), Some(victim)) = (self.any(Kind::File), self.any(Kind::File)) else { return };
        if id == victim {
            return;
        }
        let place = self.state[&victim].names[0].clone();
        self.caller.rename(&self.path(id), &self.path_of(&place), 0).expect("rename over");
        self.forget(victim, &place);
        Rc::make_mut(&mut self.node(id).names)[0] = place;
    }

    fn exchange(&mut self) {
        let kinds = [Kind::File, Kind::File, Kind::Directory];
        let kind = kinds[self.random.below(3) as usize];
        let (Some(one), Some(two)) = (self.any(kind), self.any(Kind::File)) else { return };
        let [first, second] = [one, two].map(|id| self.state[&id].names[0].clone());
        if one == two || self.is_below(two, one) {
            return;
        }
        let paths = [self.path(one), self.path(two)];
        self.caller.rename(&paths[0], &paths[1], lp_abi::linux::RENAME_EXCHANGE).expect("exchange");
        Rc::make_mut(&mut self.node(one).names)[0] = second;
        Rc::make_mut(&mut self.node(two).names)[0] = first;
    }

    fn link(&mut self) {
        let (Some(id), place) = (self.any(Kind::File), self.place()) else { return };
        if !self.is_taken(&place) {
            self.caller.link(&self.path(id), &self.path_of(&place)).expect("link");
            Rc::make_mut(&mut self.node(id).names).push(place);
        }
    }

    fn symlink(&mut self) {
        let place = self.place();
        if self.is_taken(&place) {
            return;
        }
        // Some stand in the inode, some in a page.
        let target = format!("{}/{}", "to".repeat(self.random.below(80) as usize), self.random.next());
        self.caller.symlink(&target, &self.path_of(&place)).expect("symlink");
        let id = self.add(Kind::Link, place);
        let blocks = BTreeMap::from([(0, Rc::new(target.clone().into_bytes()))]);
        self.node(id).content = Rc::new(Content { size: target.len() as u64, blocks, cuts: 0 });
    }

    fn chmod(&mut self) {
        let kinds = [Kind::File, Kind::Directory];
        let kind = kinds[self.random.below(2) as usize];
        if let Some(id) = self.any(kind) {
            self.caller.chmod(&self.path(id), 0o700 | self.random.below(0o100) as u32).expect("chmod");
            self.touched(id);
        }
    }

    fn attribute(&mut self) {
        let Some(id) = self.any(Kind::File) else { return };
        let value = vec![self.random.next() as u8; 1 + self.random.below(6000) as usize];
        if self.caller.set_attribute(&self.path(id), &value).is_ok() {
            let about = Rc::make_mut(&mut self.node(id).about);
            about.attribute = Some(value);
        }
    }
}
