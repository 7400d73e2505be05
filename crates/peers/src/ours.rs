//! Lightpath's library.

use crate::peer::Peer;
use anyhow::{Result, anyhow};
use lightpath::linux::{O_CREAT, O_DIRECTORY, O_EXCL, O_RDONLY, O_WRONLY, SEEK_SET};
use lightpath::{Errno, Fd, Task};

pub struct Ours<'fs>(pub Task<'fs>);

/// A descriptor, closed when dropped.
pub struct Open<'t, 'fs> {
    task: &'t Task<'fs>,
    fd: Fd,
}

impl Drop for Open<'_, '_> {
    fn drop(&mut self) {
        // It is open, so this cannot fail.
        let _ = self.task.close(self.fd);
    }
}

fn error(errno: Errno) -> anyhow::Error {
    anyhow!("{errno:?}")
}

impl<'t, 'fs> Peer for &'t Ours<'fs> {
    const NAME: &'static str = "lightpath";
    type Reader = Open<'t, 'fs>;
    type Writer = Open<'t, 'fs>;

    fn make_directory(&self, path: &str) -> Result<()> {
        self.0.mkdir(path, 0o755).map_err(error)
    }
    fn create(&self, path: &str) -> Result<Open<'t, 'fs>> {
        let fd = self.0.open(path, O_WRONLY | O_CREAT | O_EXCL, 0o644).map_err(error)?;
        Ok(Open { task: &self.0, fd })
    }
    fn remove(&self, path: &str) -> Result<()> {
        self.0.unlink(path).map_err(error)
    }
    fn open(&self, path: &str) -> Result<Open<'t, 'fs>> {
        let fd = self.0.open(path, O_RDONLY, 0).map_err(error)?;
        Ok(Open { task: &self.0, fd })
    }
    fn stat(&self, path: &str) -> Result<u64> {
        Ok(self.0.stat(path).map_err(error)?.st_size as u64)
    }
    fn list(&self, path: &str) -> Result<usize> {
        let fd = self.0.open(path, O_RDONLY | O_DIRECTORY, 0).map_err(error)?;
        let open = Open { task: &self.0, fd };
        let entries = self.0.entries(open.fd).map_err(error)?;
        Ok(entries.iter().filter(|entry| entry.name != "." && entry.name != "..").count())
    }
    fn seek(&self, reader: &mut Open, position: u64) -> Result<()> {
        self.0.lseek(reader.fd, position as i64, SEEK_SET).map_err(error)?;
        Ok(())
    }
    fn read(&self, reader: &mut Open, bytes: &mut [u8]) -> Result<usize> {
        self.0.read(reader.fd, bytes).map_err(error)
    }
    fn write(&self, writer: &mut Open, bytes: &[u8]) -> Result<usize> {
        self.0.write(writer.fd, bytes).map_err(error)
    }
    fn rewind(&self, writer: &mut Open) -> Result<()> {
        self.0.lseek(writer.fd, 0, SEEK_SET).map_err(error)?;
        Ok(())
    }
}
