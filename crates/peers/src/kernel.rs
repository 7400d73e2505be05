//! The reference: the kernel's tmpfs through `std::fs`.

use crate::peer::Peer;
use anyhow::Result;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

pub struct Kernel {
    root: PathBuf,
}

impl Kernel {
    /// In a new directory of /dev/shm.
    pub fn new() -> Result<Self> {
        let root = PathBuf::from(format!("/dev/shm/lightpath-peers-{}", std::process::id()));
        std::fs::create_dir(&root)?;
        Ok(Self { root })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(&path[1..])
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // What is left behind is a directory of /dev/shm that bears this program's name.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

impl Peer for Kernel {
    const NAME: &'static str = "tmpfs (std::fs)";
    type Reader = File;
    type Writer = File;

    fn make_directory(&self, path: &str) -> Result<()> {
        Ok(std::fs::create_dir(self.path(path))?)
    }
    fn create(&self, path: &str) -> Result<File> {
        Ok(File::create_new(self.path(path))?)
    }
    fn remove(&self, path: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.path(path))?)
    }
    fn open(&self, path: &str) -> Result<File> {
        Ok(File::open(self.path(path))?)
    }
    fn stat(&self, path: &str) -> Result<u64> {
        Ok(std::fs::metadata(self.path(path))?.len())
    }
    fn list(&self, path: &str) -> Result<usize> {
        Ok(std::fs::read_dir(self.path(path))?.count())
    }
    fn seek(&self, reader: &mut File, position: u64) -> Result<()> {
        reader.seek(SeekFrom::Start(position))?;
        Ok(())
    }
    fn read(&self, reader: &mut File, bytes: &mut [u8]) -> Result<usize> {
        Ok(reader.read(bytes)?)
    }
    fn write(&self, writer: &mut File, bytes: &[u8]) -> Result<usize> {
        Ok(writer.write(bytes)?)
    }
    fn rewind(&self, writer: &mut File) -> Result<()> {
        Ok(writer.rewind()?)
    }
}
