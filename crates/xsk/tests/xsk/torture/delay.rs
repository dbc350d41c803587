//! Delays at the points of the library.

use fastrand::Rng;
use std::hint::spin_loop;
use std::time::Duration;
use xsk::testing::delay::set_hook;

/// Delays this thread at points of the library from now on, in so many of a thousand cases.
pub fn begin(permille: u32, seed: u64) {
    if permille == 0 {
        return;
    }
    let mut random = Rng::with_seed(seed);
    set_hook(move |_| {
        if random.u32(..1000) < permille {
            delay(&mut random);
        }
    });
}

/// From less than a system call takes to more than a time slice.
fn delay(random: &mut Rng) {
    match random.u8(..4) {
        0 => std::thread::sleep(Duration::from_micros(random.u64(..500))),
        _ => (0..random.u32(..5000)).for_each(|_| spin_loop()),
    }
}
