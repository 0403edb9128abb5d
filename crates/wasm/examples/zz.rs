use std::io::Read;
use std::time::Instant;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    for _ in 0..3 {
        let t = Instant::now();
        let mut f = std::fs::File::open(&path).unwrap();
        let mut b = vec![0u8; 256 << 10];
        let mut n = 0;
        loop {
            let r = f.read(&mut b).unwrap();
            if r == 0 {
                break;
            }
            n += r;
        }
        println!("read {n} {:?}", t.elapsed());
        let t = Instant::now();
        let mut f = std::fs::File::open(&path).unwrap();
        let mut h = blake3::Hasher::new();
        loop {
            let r = f.read(&mut b).unwrap();
            if r == 0 {
                break;
            }
            h.update(&b[..r]);
        }
        h.finalize();
        println!("read+hash {:?}", t.elapsed());
        let t = Instant::now();
        let v = std::fs::read(&path).unwrap();
        println!("read all {:?}", t.elapsed());
        let t = Instant::now();
        blake3::hash(&v);
        println!("hash all {:?}", t.elapsed());
        let f = std::fs::File::open(&path).unwrap();
        let t = Instant::now();
        let m = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                v.len(),
                rustix::mm::ProtFlags::READ,
                rustix::mm::MapFlags::PRIVATE,
                &f,
                0,
            )
            .unwrap()
        };
        unsafe { rustix::mm::mlock(m, v.len()).unwrap() };
        println!("mmap+mlock {:?}", t.elapsed());
        let t = Instant::now();
        blake3::hash(unsafe { std::slice::from_raw_parts(m.cast(), v.len()) });
        println!("hash mapped {:?}", t.elapsed());
        let t = Instant::now();
        unsafe { rustix::mm::munmap(m, v.len()).unwrap() };
        println!("munmap {:?}", t.elapsed());
    }
}
