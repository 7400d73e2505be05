//! `rsfs::mem`: Unix semantics behind a trait that mirrors `std::fs`.

use crate::peer::Peer;
use anyhow::Result;
use rsfs::mem::{FS, File};
use rsfs::{GenFS, Metadata, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};

pub struct Rsfs(FS);

impl Rsfs {
    pub fn new() -> Self {
        Self(FS::new())
    }
}

impl Peer for Rsfs {
    const NAME: &'static str = "rsfs mem";
    type Reader = File;
    type Writer = File;

    fn make_directory(&self, path: &str) -> Result<()> {
        Ok(self.0.create_dir(path)?)
    }
    fn create(&self, path: &str) -> Result<File> {
        Ok(self.0.new_openopts().write(true).create_new(true).open(path)?)
    }
    fn remove(&self, path: &str) -> Result<()> {
        Ok(self.0.remove_file(path)?)
    }
    fn open(&self, path: &str) -> Result<File> {
        Ok(self.0.open_file(path)?)
    }
    fn stat(&self, path: &str) -> Result<u64> {
        Ok(self.0.metadata(path)?.len())
    }
    fn list(&self, path: &str) -> Result<usize> {
        Ok(self.0.read_dir(path)?.count())
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
        writer.seek(SeekFrom::Start(0))?;
        Ok(())
    }
}
