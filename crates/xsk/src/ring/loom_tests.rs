//! The ring protocol in every order that the memory model allows, with the kernel's side in a
//! second thread, and with each ordering of [`Protocol`] broken in turn, which loom must find.
//!
//! Slots are loom cells, which fail the test when two accesses are not ordered by a
//! happens-before edge, for any value read.
#![allow(unsafe_code)] // Slots are cells that two threads share.

use super::{Consumer, Kernel, NEED_WAKEUP, Producer, Protocol, Shared};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering, fence};
use loom::thread;

/// Enough to use every slot of a ring of two twice.
const MESSAGES: u32 = 4;

/// The first index of both sides, so that they wrap around.
const FIRST: u32 = u32::MAX;

struct Memory {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: Vec<UnsafeCell<u32>>,
}

// SAFETY: needed because cells are not `Sync`. Loom stops at the first access to a slot that is
// not ordered against another thread's.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(size: u32) -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(FIRST),
            consumer: AtomicU32::new(FIRST),
            flags: AtomicU32::new(0),
            slots: (0..size).map(|_| UnsafeCell::new(u32::MAX)).collect(),
        })
    }

    fn slot(&self, index: u32) -> &UnsafeCell<u32> {
        &self.slots[index as usize % self.slots.len()]
    }
}

impl Shared<u32> for Arc<Memory> {
    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    fn flags(&self) -> &AtomicU32 {
        &self.flags
    }

    fn size(&self) -> u32 {
        self.slots.len() as u32
    }

    fn read(&self, index: u32) -> u32 {
        // SAFETY: needed to read a cell; loom has checked that nobody writes it.
        self.slot(index).with(|slot| unsafe { *slot })
    }

    fn write(&self, index: u32, value: u32) {
        // SAFETY: needed to write a cell; loom has checked that nobody else uses it.
        self.slot(index).with_mut(|slot| unsafe { *slot = value });
    }
}

/// The kernel as the consumer of TX and FILL.
struct KernelConsumer {
    ring: Arc<Memory>,
    next: u32,
}

impl KernelConsumer {
    fn new(ring: Arc<Memory>) -> Self {
        Self { ring, next: FIRST }
    }

    fn is_empty(&self) -> bool {
        // `smp_load_acquire` in `__xskq_cons_peek`.
        self.ring.producer.load(Ordering::Acquire) == self.next
    }

    fn take(&mut self) -> u32 {
        while self.is_empty() {
            thread::yield_now();
        }
        let value = self.ring.read(self.next);
        self.next = self.next.wrapping_add(1);
        // `smp_store_release` in `__xskq_cons_release`.
        self.ring.consumer.store(self.next, Ordering::Release);
        value
    }
}

/// The kernel as the producer of RX and COMPLETION.
struct KernelProducer {
    ring: Arc<Memory>,
    next: u32,
}

impl KernelProducer {
    fn new(ring: Arc<Memory>) -> Self {
        Self { ring, next: FIRST }
    }

    fn is_full(&self) -> bool {
        // `READ_ONCE` in `xskq_prod_nb_free`, a relaxed load. The kernel writes slots only in the
        // branch where it found room, and no processor makes a store visible before the branch
        // that it depends on: the stores stay behind this load, as behind an acquire. Neither Rust
        // nor loom has control dependencies, so here it is an acquire.
        let consumer = self.ring.consumer.load(Ordering::Acquire);
        self.next.wrapping_sub(consumer) == self.ring.size()
    }

    fn put(&mut self, value: u32) {
        while self.is_full() {
            thread::yield_now();
        }
        self.ring.write(self.next, value);
        self.next = self.next.wrapping_add(1);
        // `smp_store_release` in `__xskq_prod_submit`.
        self.ring.producer.store(self.next, Ordering::Release);
    }
}

fn explore(case: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    // One finds every broken ordering below; each more takes about five times as long.
    builder.preemption_bound = Some(3);
    builder.check(case);
}

/// TX and FILL: user space produces over a ring of `size`, the kernel consumes.
fn user_to_kernel<P: Protocol + 'static>(size: u32) {
    explore(move || {
        let memory = Memory::new(size);
        let mut kernel = KernelConsumer::new(memory.clone());
        let kernel = thread::spawn(move || {
            for expected in 0..MESSAGES {
                assert_eq!(kernel.take(), expected);
            }
        });
        let mut ring = Producer::<u32, _, P>::new(memory);
        // One alone, and the rest as a batch would.
        while !ring.push(0) {
            thread::yield_now();
        }
        ring.publish();
        let mut message = 1;
        while message < MESSAGES {
            let mut slots = ring.reserve(MESSAGES - message);
            if slots.left() == 0 {
                thread::yield_now();
            }
            for slot in slots.by_ref() {
                ring.write_at(slot, message);
                message += 1;
            }
            ring.stage(&slots);
            ring.publish();
        }
        kernel.join().expect("the kernel's thread");
        assert_eq!(ring.invalid_indices().get(), 0);
    });
}

/// RX and COMPLETION: the kernel produces over a ring of `size`, user space consumes.
fn kernel_to_user<P: Protocol + 'static>(size: u32) {
    explore(move || {
        let memory = Memory::new(size);
        let mut kernel = KernelProducer::new(memory.clone());
        let kernel = thread::spawn(move || {
            for message in 0..MESSAGES {
                kernel.put(message);
            }
        });
        let mut ring = Consumer::<u32, _, P>::new(memory);
        // One alone, and the rest as a batch would.
        while ring.available(1) == 0 {
            thread::yield_now();
        }
        assert_eq!(ring.pop(), 0);
        ring.release();
        let mut expected = 1;
        while expected < MESSAGES {
            let mut slots = ring.peek(u32::MAX);
            if slots.left() == 0 {
                thread::yield_now();
            }
            for slot in slots.by_ref() {
                assert_eq!(ring.read_at(slot), expected);
                expected += 1;
            }
            ring.release();
        }
        kernel.join().expect("the kernel's thread");
        assert_eq!(ring.invalid_indices().get(), 0);
    });
}

/// `need_wakeup`: the kernel goes to sleep while user space publishes. One side must see the other.
fn sleep_decision<P: Protocol + 'static>() {
    explore(|| {
        let memory = Memory::new(1);
        let kernel = KernelConsumer::new(memory.clone());
        let kernel = thread::spawn(move || {
            kernel.ring.flags.store(NEED_WAKEUP, Ordering::Relaxed);
            // The change of a task's state before its last check (`set_current_state`) is a full
            // barrier in the kernel.
            fence(Ordering::SeqCst);
            kernel.is_empty()
        });
        let mut ring = Producer::<u32, _, P>::new(memory);
        assert!(ring.push(7));
        ring.publish();
        let woken = ring.needs_wakeup();
        let slept = kernel.join().expect("the kernel's thread");
        assert!(woken || !slept, "lost wake-up");
    });
}

#[test]
fn the_kernel_reads_published_slots() {
    user_to_kernel::<Kernel>(1);
    user_to_kernel::<Kernel>(2);
}

#[test]
fn user_space_reads_published_slots() {
    kernel_to_user::<Kernel>(1);
    kernel_to_user::<Kernel>(2);
}

#[test]
fn the_kernel_does_not_sleep_on_a_full_ring() {
    sleep_decision::<Kernel>();
}

/// Without the release of [`Protocol::PUBLISH`].
struct NoRelease;

impl Protocol for NoRelease {
    const PUBLISH: Ordering = Ordering::Relaxed;
    const OBSERVE: Ordering = Kernel::OBSERVE;
    const FENCE_BEFORE_FLAG: bool = Kernel::FENCE_BEFORE_FLAG;
}

/// Without the acquire of [`Protocol::OBSERVE`].
struct NoAcquire;

impl Protocol for NoAcquire {
    const PUBLISH: Ordering = Kernel::PUBLISH;
    const OBSERVE: Ordering = Ordering::Relaxed;
    const FENCE_BEFORE_FLAG: bool = Kernel::FENCE_BEFORE_FLAG;
}

/// Without [`Protocol::FENCE_BEFORE_FLAG`].
struct NoFence;

impl Protocol for NoFence {
    const PUBLISH: Ordering = Kernel::PUBLISH;
    const OBSERVE: Ordering = Kernel::OBSERVE;
    const FENCE_BEFORE_FLAG: bool = false;
}

/// The kernel sees the index before our write to the slot.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_producer_must_release_its_index() {
    user_to_kernel::<NoRelease>(1);
}

/// We write to the slot before the kernel has finished reading it.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_producer_must_acquire_the_kernels_index() {
    user_to_kernel::<NoAcquire>(1);
}

/// The kernel writes to the slot before we have finished reading it.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_consumer_must_release_its_index() {
    kernel_to_user::<NoRelease>(1);
}

/// We see the index before the kernel's write to the slot.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_consumer_must_acquire_the_kernels_index() {
    kernel_to_user::<NoAcquire>(1);
}

/// The flag is read before the index is out: each side misses the other.
#[test]
#[should_panic(expected = "lost wake-up")]
fn a_fence_must_stand_before_the_flag() {
    sleep_decision::<NoFence>();
}
