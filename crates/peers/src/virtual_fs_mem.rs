//! `mem_fs` of Wasmer's `virtual-fs`. Its files are asynchronous; in memory every future is ready when it is
//! first asked.

use crate::peer::Peer;
use anyhow::{Context, Result};
use futures_util::FutureExt;
use std::io::SeekFrom;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use virtual_fs::{FileSystem, VirtualFile, mem_fs};

pub struct VirtualFs(mem_fs::FileSystem);

impl VirtualFs {
    pub fn new() -> Self {
        Self(mem_fs::FileSystem::default())
    }
}

/// The result of a future that never waits.
fn now<T>(future: impl Future<Output = std::io::Result<T>>) -> Result<T> {
    Ok(future.now_or_never().context("a file in memory made its caller wait")??)
}

impl Peer for VirtualFs {
    const NAME: &'static str = "virtual-fs mem_fs";
    type Reader = Box<dyn VirtualFile + Send + Sync>;
    type Writer = Box<dyn VirtualFile + Send + Sync>;

    fn make_directory(&self, path: &str) -> Result<()> {
        Ok(self.0.create_dir(Path::new(path))?)
    }
    fn create(&self, path: &str) -> Result<Self::Writer> {
        Ok(self.0.new_open_options().write(true).create_new(true).open(path)?)
    }
    fn remove(&self, path: &str) -> Result<()> {
        Ok(self.0.remove_file(Path::new(path))?)
    }
    fn open(&self, path: &str) -> Result<Self::Reader> {
        Ok(self.0.new_open_options().read(true).open(path)?)
    }
    fn stat(&self, path: &str) -> Result<u64> {
        Ok(self.0.metadata(Path::new(path))?.len())
    }
    fn list(&self, path: &str) -> Result<usize> {
        Ok(self.0.read_dir(Path::new(path))?.count())
    }
    fn seek(&self, reader: &mut Self::Reader, position: u64) -> Result<()> {
        now(reader.seek(SeekFrom::Start(position))).map(drop)
    }
    fn read(&self, reader: &mut Self::Reader, bytes: &mut [u8]) -> Result<usize> {
        now(reader.read(bytes))
    }
    fn write(&self, writer: &mut Self::Writer, bytes: &[u8]) -> Result<usize> {
        now(writer.write(bytes))
    }
    fn rewind(&self, writer: &mut Self::Writer) -> Result<()> {
        now(writer.seek(SeekFrom::Start(0))).map(drop)
    }
}
