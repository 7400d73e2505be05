//! The handlers of read(2) and write(2) and their kin, which differ in their direction alone.

/// Writes the handlers of one direction: `$calls` is the file system's module, `$at` its name for
/// `$at64`; `$ret` makes its results `rax`.
macro_rules! transfers {
    ($calls:ident, $ret:ident: $plain:ident $at64:ident $at:ident $vector:ident $vector_at:ident $vector_flags:ident) => {
        $crate::high::frame::handler::handlers! {
            #[doc = concat!(stringify!($plain), "(2).")]
            fn $plain(task, fd: Fd, buf: UserSlice) {
                file_or_return!(task, fd, device::$plain(task, fd, buf));
                $ret(task, $calls::$plain(task, fd, buf))
            }

            #[doc = concat!(stringify!($at64), "(2).")]
            fn $at64(task, fd: Fd, buf: UserSlice, offset: i64) {
                file_or_return!(task, fd, device::$at(task, fd, buf, offset));
                $ret(task, $calls::$at(task, fd, buf, offset))
            }

            #[doc = concat!(stringify!($vector), "(2).")]
            fn $vector(task, fd: Fd, iov: UserSlice<iovec>) {
                file_or_return!(task, fd, device::$vector(task, fd, iov));
                $ret(task, $calls::$vector(task, fd, iov))
            }

            #[doc = concat!(stringify!($vector_at), "(2).")]
            fn $vector_at(task, fd: Fd, iov: UserSlice<iovec>, offset: i64) {
                file_or_return!(task, fd);
                if offset < 0 {
                    return Errno::EINVAL.to_ret();
                }
                $ret(task, $calls::$vector_flags(task, fd, iov, offset, 0))
            }

            #[doc = concat!(stringify!($vector_flags), "(2): at offset -1 it is `", stringify!($vector), "` with flags.")]
            fn $vector_flags(task, fd: Fd, iov: UserSlice<iovec>, offset: i64, high: usize, flags: u32) {
                file_or_return!(task, fd);
                if offset < -1 {
                    return Errno::EINVAL.to_ret();
                }
                $ret(task, $calls::$vector_flags(task, fd, iov, offset, flags))
            }
        }
    };
}
pub(crate) use transfers;
