mod setup;
use lp_abi::linux::O_RDWR;
use lp_vfs::*;
use setup::Fixture;
use std::time::Instant;
#[test]
fn speed() {
    let f = Fixture::private(256 << 20);
    let fd = f.file(O_RDWR);
    let t = &f.task;
    let mut buf = vec![1u8; 1 << 20];
    for _ in 0..4 {
        write::pwrite(t, fd, buf.as_ptr(), buf.len(), 0).unwrap();
    }
    let n = 5_000_000u64;
    let time = |name: &str, n: u64, work: &mut dyn FnMut(u64)| {
        let mut best = f64::MAX;
        for _ in 0..3 {
            let s = Instant::now();
            for i in 0..n {
                work(i)
            }
            best = best.min(s.elapsed().as_nanos() as f64 / n as f64);
        }
        println!("{name:20} {best:.1} ns");
    };
    let p = buf.as_mut_ptr();
    let mut st: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
    time("clock", n, &mut |_| {
        std::hint::black_box(t.now());
    });
    time("fstat", n, &mut |_| stat::fstat(t, fd, &mut st).unwrap());
    time("fstatat empty", n, &mut |_| {
        stat::fstatat(t, fd, c"".as_ptr().cast(), &mut st, 0x1000).unwrap();
    });
    time("pread1", n, &mut |_| {
        read::pread(t, fd, p, 1, 100).unwrap();
    });
    time("pread4k", n, &mut |i| {
        read::pread(t, fd, p, 4096, (i as i64 & 127) * 4096).unwrap();
    });
    time("pwrite256", n, &mut |i| {
        write::pwrite(t, fd, p, 256, (i as i64 & 2047) * 256).unwrap();
    });
    time("read1", n, &mut |i| {
        if i & 0xfffff == 0 {
            lseek::lseek(t, fd, 0, 0).unwrap();
        }
        read::read(t, fd, p, 1).unwrap();
    });
    time("write1", n, &mut |i| {
        if i & 0xfffff == 0 {
            lseek::lseek(t, fd, 0, 0).unwrap();
        }
        write::write(t, fd, p, 1).unwrap();
    });
    time("lseek", n, &mut |i| {
        lseek::lseek(t, fd, i as i64 & 4095, 0).unwrap();
    });
    time("read 1M", 2000, &mut |_| {
        read::pread(t, fd, p, 1 << 20, 0).unwrap();
    });
    time("write 1M", 2000, &mut |_| {
        write::pwrite(t, fd, p, 1 << 20, 0).unwrap();
    });
    let mut off = 0i64;
    f.resize(fd, 0);
    time("append 1B", 100_000, &mut |_| {
        write::pwrite(t, fd, p, 1, off).unwrap();
        off += 1;
    });
    f.resize(fd, 0);
    time("append 4K+trunc", 100_000, &mut |_| {
        write::pwrite(t, fd, p, 4096, 0).unwrap();
        f.resize(fd, 0)
    });
    let mut off = 0i64;
    time("fresh 4K", 10_000, &mut |_| {
        write::pwrite(t, fd, p, 4096, off).unwrap();
        off += 4096;
    });
}
