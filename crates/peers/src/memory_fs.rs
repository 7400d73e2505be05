//! `MemoryFS` of the `vfs` crate. A reader sees the file as it was when it was opened, a writer's bytes
//! arrive when it is dropped.

use crate::peer::Peer;
use anyhow::Result;
use std::io::{Seek, SeekFrom};
use vfs::{MemoryFS, SeekAndRead, SeekAndWrite, VfsPath};

pub struct Memory {
    root: VfsPath,
}

impl Memory {
    pub fn new() -> Self {
        Self { root: MemoryFS::new().into() }
    }

    fn path(&self, path: &str) -> Result<VfsPath> {
        Ok(self.root.join(&path[1..])?)
    }
}

impl Peer for Memory {
    const NAME: &'static str = "vfs MemoryFS";
    type Reader = Box<dyn SeekAndRead + Send>;
    type Writer = Box<dyn SeekAndWrite + Send>;

    fn make_directory(&self, path: &str) -> Result<()> {
        Ok(self.path(path)?.create_dir()?)
    }
    fn create(&self, path: &str) -> Result<Self::Writer> {
        Ok(self.path(path)?.create_file()?)
    }
    fn remove(&self, path: &str) -> Result<()> {
        Ok(self.path(path)?.remove_file()?)
    }
    fn open(&self, path: &str) -> Result<Self::Reader> {
        Ok(self.path(path)?.open_file()?)
    }
    fn stat(&self, path: &str) -> Result<u64> {
        Ok(self.path(path)?.metadata()?.len)
    }
    fn list(&self, path: &str) -> Result<usize> {
        Ok(self.path(path)?.read_dir()?.count())
    }
    fn seek(&self, reader: &mut Self::Reader, position: u64) -> Result<()> {
        reader.seek(SeekFrom::Start(position))?;
        Ok(())
    }
    fn read(&self, reader: &mut Self::Reader, bytes: &mut [u8]) -> Result<usize> {
        Ok(reader.read(bytes)?)
    }
    fn write(&self, writer: &mut Self::Writer, bytes: &[u8]) -> Result<usize> {
        Ok(writer.write(bytes)?)
    }
    fn rewind(&self, writer: &mut Self::Writer) -> Result<()> {
        writer.seek(SeekFrom::Start(0))?;
        Ok(())
    }
}
