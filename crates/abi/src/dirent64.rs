//! Records of getdents64(2): `struct linux_dirent64`.

use core::ffi::CStr;
use core::mem::offset_of;

use crate::linux::linux_dirent64;

/// Offset of the position behind the record (`d_off`), 8 bytes.
pub const POSITION: usize = offset_of!(linux_dirent64, d_off);
/// Offset of the record's length in bytes (`d_reclen`), 2 bytes.
pub const LENGTH: usize = offset_of!(linux_dirent64, d_reclen);
/// Offset of the file's type, `DT_*`.
pub const TYPE: usize = offset_of!(linux_dirent64, d_type);
/// Offset of the name, which is followed by a NUL.
pub const NAME: usize = offset_of!(linux_dirent64, d_name);

/// The types and names of records that the kernel returned, without `.` and `..`.
pub fn names(records: &[u8]) -> impl Iterator<Item = (u8, &CStr)> {
    let mut rest = records;
    let all = core::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*rest.get(LENGTH..)?.first_chunk()?));
        let (record, next) = rest.split_at_checked(length)?;
        rest = next;
        Some((*record.get(TYPE)?, CStr::from_bytes_until_nul(record.get(NAME..)?).ok()?))
    });
    all.filter(|(_, name)| !matches!(name.to_bytes(), b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, name: &[u8]) -> [u8; 32] {
        let mut record = [0; 32];
        record[LENGTH] = 32;
        record[TYPE] = kind;
        record[NAME..NAME + name.len()].copy_from_slice(name);
        record
    }

    #[test]
    fn names_of_a_listing() {
        let records = [record(4, b"."), record(8, b"file"), record(4, b".."), record(4, b"dir")].concat();
        assert!(names(&records).eq([(8, c"file"), (4, c"dir")]));
        // The last record is cut off.
        assert!(names(&records[..127]).eq([(8, c"file")]));
        assert_eq!(names(&[0; 64]).count(), 0);
    }
}
