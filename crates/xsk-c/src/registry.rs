//! Handles of UMEMs and sockets: numbers in the guise of pointers, which are looked up and never followed.

use crate::fault::{Fault, Result};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Objects of one kind, each in a slot that is locked while a call uses it, and with a part of each that other calls
/// may copy meanwhile.
pub(crate) struct Registry<T: 'static, Shared: 'static, const SLOTS: usize> {
    /// What the objects are, for messages.
    name: &'static str,
    /// Different for each kind, so that a handle is of one.
    kind: u64,
    slots: [Slot<T, Shared>; SLOTS],
    unused: Mutex<Unused>,
}

struct Slot<T, Shared> {
    /// Of the present object, or of the next one. It changes while both locks below are held, or in a child, which has
    /// one thread; it does not return to a value within 2³² uses.
    serial: AtomicU32,
    /// On the heap, so that an unused slot is small.
    object: Mutex<Option<Box<T>>>,
    /// Locked for a moment, so that calls wait for it.
    shared: Mutex<Option<Shared>>,
}

/// The slots without an object. They are listed, since to try them in turn would lock those that are in use.
struct Unused {
    given_back: VecDeque<usize>,
    /// The slots from here on were never used.
    fresh: usize,
}

/// The bits of a handle: the serial number, the kind and the slot.
const SERIAL_AT: u32 = 32;
const KIND_AT: u32 = 24;
const SLOT_BITS: u64 = (1 << KIND_AT) - 1;

impl<T, Shared, const SLOTS: usize> Registry<T, Shared, SLOTS> {
    pub(crate) const fn new(name: &'static str, kind: u8) -> Self {
        Self {
            name,
            kind: kind as u64,
            slots: [const {
                Slot {
                    serial: AtomicU32::new(1),
                    object: Mutex::new(None),
                    shared: Mutex::new(None),
                }
            }; SLOTS],
            unused: Mutex::new(Unused {
                given_back: VecDeque::new(),
                fresh: 0,
            }),
        }
    }

    /// Gives an object a handle.
    pub(crate) fn add(&self, object: T, shared: Shared) -> Result<*mut c_void> {
        let at = self.unused_slot()?;
        let slot = &self.slots[at];
        *lock(&slot.shared) = Some(shared);
        *lock(&slot.object) = Some(Box::new(object));
        Ok(self.handle(slot.serial(), at))
    }

    /// The handle of the object in a slot, if the lower `bits` of its serial number are these; else a handle of nothing.
    pub(crate) fn handle_in(&self, at: usize, serial: u32, bits: u32) -> *mut c_void {
        let slot = self.slots.get(at).map(Slot::serial);
        match slot.filter(|it| it & bits == serial) {
            Some(serial) => self.handle(serial, at),
            None => std::ptr::without_provenance_mut(1),
        }
    }

    fn unused_slot(&self) -> Result<usize> {
        let mut unused = lock(&self.unused);
        // One that was given back comes last, so that its old handles are refused for long.
        if unused.fresh == SLOTS {
            if let Some(at) = unused.given_back.pop_front() {
                return Ok(at);
            }
            let name = self.name;
            return Err(Fault::new(
                libc::ENFILE,
                format!("{SLOTS} {name}s are open: close one"),
            ));
        }
        unused.fresh += 1;
        Ok(unused.fresh - 1)
    }

    fn handle(&self, serial: u32, at: usize) -> *mut c_void {
        let bits = u64::from(serial) << SERIAL_AT | self.kind << KIND_AT | at as u64;
        std::ptr::without_provenance_mut(bits as usize)
    }

    /// The slot and serial number of a handle whose object is there.
    #[inline]
    fn find(&self, handle: *mut c_void) -> Result<(&Slot<T, Shared>, u32)> {
        let bits = handle.addr() as u64;
        let serial = (bits >> SERIAL_AT) as u32;
        let is_kind = (bits as u32 >> KIND_AT) == self.kind as u32;
        let slot = self.slots.get((bits & SLOT_BITS) as usize);
        // Asked before the slot is locked, so that an old handle is in nobody's way.
        match slot.filter(|slot| is_kind && slot.serial() == serial) {
            Some(slot) => Ok((slot, serial)),
            None => Err(self.unknown(handle)),
        }
    }

    #[cold]
    fn unknown(&self, handle: *mut c_void) -> Fault {
        let name = self.name;
        if handle.is_null() {
            return Fault::new(libc::EFAULT, format!("the {name} is NULL"));
        }
        Fault::new(
            libc::EBADF,
            format!("the {name} is closed already, or was never opened by this process"),
        )
    }

    #[cold]
    pub(crate) fn busy(&self) -> Fault {
        let name = self.name;
        Fault::new(
            libc::EBUSY,
            format!(
                "the {name} is in use by another call: each thread needs its own, and a callback must not use it"
            ),
        )
    }

    /// Runs a part of a call on an object, which no other call uses meanwhile.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        handle: *mut c_void,
        part: impl FnOnce(&mut T) -> Result<R>,
    ) -> Result<R> {
        let (slot, serial) = self.find(handle)?;
        let mut object = match slot.object.try_lock() {
            Ok(object) => object,
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
            Err(TryLockError::Poisoned(_)) => return Err(self.broken()),
        };
        match &mut *object {
            // Asked again: it may have been closed, and another one opened, before the slot was locked.
            Some(object) if slot.serial() == serial => part(object),
            _ => Err(self.unknown(handle)),
        }
    }

    #[cold]
    fn broken(&self) -> Fault {
        let name = self.name;
        Fault::not_recoverable(format!(
            "an earlier call failed inside the library: close the {name}"
        ))
    }

    /// Takes an object away; its handle is of nothing from then on.
    pub(crate) fn remove(&self, handle: *mut c_void) -> Result<(Box<T>, Shared)> {
        let (slot, serial) = self.find(handle)?;
        let locked = match slot.object.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
            Err(TryLockError::Poisoned(locked)) => locked.into_inner(),
        };
        let both = slot.take(locked, serial);
        let both = both.ok_or_else(|| self.unknown(handle))?;
        slot.object.clear_poison();
        let at = handle.addr() as u64 & SLOT_BITS;
        lock(&self.unused).given_back.push_back(at as usize);
        Ok(both)
    }

    /// In a child of fork(2): makes all handles unknown. Its copies of the objects stay where they are, as to drop one
    /// would touch memory that only the parent has.
    pub(crate) fn forget(&self) {
        for slot in &self.slots {
            slot.serial.store(next(slot.serial()), Ordering::Relaxed);
        }
    }

    /// A copy of what an object shares. Another call may be using the object.
    pub(crate) fn get(&self, handle: *mut c_void) -> Result<Shared>
    where
        Shared: Clone,
    {
        let (slot, serial) = self.find(handle)?;
        let shared = lock(&slot.shared);
        let shared = shared.as_ref().filter(|_| slot.serial() == serial);
        shared.cloned().ok_or_else(|| self.unknown(handle))
    }
}

impl<T, Shared> Slot<T, Shared> {
    /// The locks order it, where an order matters.
    #[inline]
    fn serial(&self) -> u32 {
        self.serial.load(Ordering::Relaxed)
    }

    fn take(
        &self,
        mut object: MutexGuard<'_, Option<Box<T>>>,
        serial: u32,
    ) -> Option<(Box<T>, Shared)> {
        let mut shared = lock(&self.shared);
        if self.serial() != serial {
            return None;
        }
        let both = object.take().zip(shared.take());
        self.serial.store(next(serial), Ordering::Relaxed);
        both
    }
}

/// The slot and the serial number in a handle.
pub(crate) fn place(handle: *mut c_void) -> (usize, u32) {
    let bits = handle.addr() as u64;
    ((bits & SLOT_BITS) as usize, (bits >> SERIAL_AT) as u32)
}

/// The serial number behind one.
fn next(serial: u32) -> u32 {
    serial.wrapping_add(1).max(1)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is done under it has no second step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn code<T>(result: Result<T>) -> i32 {
        result.err().map_or(0, |fault| fault.code)
    }

    #[test]
    fn a_closed_handle_is_refused_for_ever() {
        let registry: Registry<u32, u8, 2> = Registry::new("thing", 7);
        let first = registry.add(1, 1).expect("a slot");
        assert_eq!(registry.get(first).expect("open"), 1);
        assert_eq!(registry.remove(first).expect("open"), (Box::new(1), 1));
        let second = registry.add(2, 2).expect("the same slot");
        assert_ne!(first, second);
        assert_eq!(code(registry.get(first)), libc::EBADF);
        assert_eq!(code(registry.with(first, |_| Ok(()))), libc::EBADF);
        assert_eq!(code(registry.remove(first)), libc::EBADF);
        assert_eq!(registry.get(second).expect("open"), 2);
    }

    #[test]
    fn a_handle_is_of_one_kind() {
        let things: Registry<u32, u8, 2> = Registry::new("thing", 7);
        let others: Registry<u32, u8, 2> = Registry::new("other", 8);
        let (thing, _other) = (
            things.add(1, 1).expect("a slot"),
            others.add(2, 2).expect("a slot"),
        );
        assert_eq!(code(others.get(thing)), libc::EBADF);
        assert_eq!(code(things.get(std::ptr::null_mut())), libc::EFAULT);
        for bits in [1, 0x700_0000, usize::MAX, 0x1_0700_0001, 0x1_0700_0002] {
            let made_up = std::ptr::without_provenance_mut(bits);
            assert_eq!(
                code(things.with(made_up, |_| Ok(()))),
                libc::EBADF,
                "{bits:x}"
            );
        }
    }

    #[test]
    fn slots_are_limited() {
        let registry: Registry<u32, u8, 2> = Registry::new("thing", 7);
        let first = registry.add(1, 1).expect("a slot");
        registry.add(2, 2).expect("a slot");
        assert_eq!(code(registry.add(3, 3)), libc::ENFILE);
        registry.remove(first).expect("open");
        registry.add(3, 3).expect("the slot that was freed");
    }

    #[test]
    fn a_call_inside_a_call_is_refused() {
        let registry: Registry<u32, u8, 2> = Registry::new("thing", 7);
        let thing = registry.add(1, 1).expect("a slot");
        let inner = registry.with(thing, |_| {
            Ok((
                code(registry.with(thing, |_| Ok(()))),
                code(registry.remove(thing)),
            ))
        });
        assert_eq!(inner.expect("open"), (libc::EBUSY, libc::EBUSY));
    }

    #[test]
    fn a_call_is_in_nobody_elses_way() {
        let registry: Registry<u32, u8, 3> = Registry::new("thing", 7);
        let old = registry.add(1, 1).expect("a slot");
        registry.remove(old).expect("open");
        let (first, second) = (registry.add(2, 2), registry.add(3, 3));
        let (first, second) = (first.expect("a slot"), second.expect("a slot"));
        let inside = registry.with(first, |_| {
            assert_eq!(registry.get(first).expect("open"), 2);
            assert_eq!(code(registry.with(old, |_| Ok(()))), libc::EBADF);
            registry.with(second, |_| registry.add(4, 4))
        });
        inside.expect("a slot");
        // Neither opening nor an old handle locks the slot of another.
        let old = old.addr();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let old = std::ptr::without_provenance_mut(old);
                for _ in 0..10_000 {
                    let third = registry.add(5, 5).err().map(|fault| fault.code);
                    assert_eq!(third, Some(libc::ENFILE));
                    assert_eq!(code(registry.with(old, |_| Ok(()))), libc::EBADF);
                }
            });
            for _ in 0..10_000 {
                registry.with(first, |_| Ok(())).expect("in nobody's way");
            }
        });
    }

    #[test]
    fn after_a_panic_it_can_only_be_closed() {
        let registry: Registry<u32, u8, 2> = Registry::new("thing", 7);
        let thing = registry.add(1, 1).expect("a slot");
        let panic = || registry.with(thing, |_| -> Result<()> { panic!("inside") });
        assert!(catch_unwind(AssertUnwindSafe(panic)).is_err());
        assert_eq!(
            code(registry.with(thing, |_| Ok(()))),
            libc::ENOTRECOVERABLE
        );
        registry.remove(thing).expect("it can be closed");
        let next = registry.add(2, 2).expect("a slot");
        registry
            .with(next, |_| Ok(()))
            .expect("the slot is well again");
    }
}
