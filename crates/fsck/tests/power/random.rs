//! A small generator of numbers that look random (splitmix64).

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, stream: u64) -> Random {
        // Seeds a step apart would give the same numbers, one later.
        let mixed = Random(seed).next();
        Random(mixed ^ Random(stream ^ 0xd134_2543_de82_ef95).next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len() as u64) as usize])
    }
}
