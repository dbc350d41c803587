//! Handles of UMEMs and sockets: numbers in the guise of pointers, which are looked up and never followed.

use crate::fault::{Fault, Result};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Objects of one kind, each in a slot that is locked while a call uses it.
pub(crate) struct Registry<T: 'static, const SLOTS: usize> {
    /// What the objects are, for messages.
    name: &'static str,
    /// Different for each kind, so that a handle is of one.
    kind: u64,
    slots: [Mutex<Slot<T>>; SLOTS],
}

struct Slot<T> {
    /// Of the present object, or of the next one. It does not return to a value within 2³² uses.
    serial: u32,
    /// On the heap, so that an unused slot is small.
    object: Option<Box<T>>,
}

/// The bits of a handle: the serial number, the kind and the slot.
const SERIAL_AT: u32 = 32;
const KIND_AT: u32 = 24;
const SLOT_BITS: u64 = (1 << KIND_AT) - 1;

impl<T, const SLOTS: usize> Registry<T, SLOTS> {
    pub(crate) const fn new(name: &'static str, kind: u8) -> Self {
        Self {
            name,
            kind: kind as u64,
            slots: [const {
                Mutex::new(Slot {
                    serial: 1,
                    object: None,
                })
            }; SLOTS],
        }
    }

    /// Gives an object a handle.
    pub(crate) fn add(&self, object: T) -> Result<*mut c_void> {
        let mut object = Some(Box::new(object));
        for (at, slot) in self.slots.iter().enumerate() {
            let Ok(mut slot) = slot.try_lock() else {
                continue; // In use, or broken.
            };
            if slot.object.is_none() {
                slot.object = object.take();
                return Ok(self.handle(slot.serial, at));
            }
        }
        let name = self.name;
        Err(Fault::new(
            libc::ENFILE,
            format!("{SLOTS} {name}s are open: close one"),
        ))
    }

    fn handle(&self, serial: u32, at: usize) -> *mut c_void {
        let bits = u64::from(serial) << SERIAL_AT | self.kind << KIND_AT | at as u64;
        std::ptr::without_provenance_mut(bits as usize)
    }

    /// The slot and serial number of a handle.
    #[inline]
    fn find(&self, handle: *mut c_void) -> Result<(&Mutex<Slot<T>>, u32)> {
        let bits = handle.addr() as u64;
        let is_kind = (bits as u32 >> KIND_AT) == self.kind as u32;
        let slot = self.slots.get((bits & SLOT_BITS) as usize);
        match slot.filter(|_| is_kind) {
            Some(slot) => Ok((slot, (bits >> SERIAL_AT) as u32)),
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
            format!("the {name} is closed already, or was never opened"),
        )
    }

    #[cold]
    fn busy(&self) -> Fault {
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
        let mut slot = match slot.try_lock() {
            Ok(slot) => slot,
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
            Err(TryLockError::Poisoned(slot)) => {
                return Err(self.broken(&slot.into_inner(), handle, serial));
            }
        };
        if slot.serial != serial {
            return Err(self.unknown(handle));
        }
        match &mut slot.object {
            Some(object) => part(object),
            None => Err(self.unknown(handle)),
        }
    }

    #[cold]
    fn broken(&self, slot: &Slot<T>, handle: *mut c_void, serial: u32) -> Fault {
        if slot.serial != serial || slot.object.is_none() {
            return self.unknown(handle);
        }
        let name = self.name;
        Fault::not_recoverable(format!(
            "an earlier call failed inside the library: close the {name}"
        ))
    }

    /// Takes an object away; its handle is of nothing from then on.
    pub(crate) fn remove(&self, handle: *mut c_void) -> Result<Box<T>> {
        let (slot, serial) = self.find(handle)?;
        let locked = match slot.try_lock() {
            Ok(locked) => locked,
            Err(TryLockError::WouldBlock) => return Err(self.busy()),
            Err(TryLockError::Poisoned(locked)) => locked.into_inner(),
        };
        let object = take(locked, serial).ok_or_else(|| self.unknown(handle))?;
        slot.clear_poison();
        Ok(object)
    }
}

fn take<T>(mut slot: MutexGuard<'_, Slot<T>>, serial: u32) -> Option<Box<T>> {
    if slot.serial != serial {
        return None;
    }
    let object = slot.object.take()?;
    slot.serial = slot.serial.wrapping_add(1).max(1);
    Some(object)
}

/// Objects that calls share, each for a moment: these wait for each other.
impl<T: Clone, const SLOTS: usize> Registry<T, SLOTS> {
    /// A copy of an object.
    pub(crate) fn get(&self, handle: *mut c_void) -> Result<T> {
        let (slot, serial) = self.find(handle)?;
        let slot = lock(slot);
        let object = slot.object.as_ref().filter(|_| slot.serial == serial);
        object
            .map(|object| T::clone(object))
            .ok_or_else(|| self.unknown(handle))
    }

    /// The same as [`remove`](Self::remove).
    pub(crate) fn remove_shared(&self, handle: *mut c_void) -> Result<Box<T>> {
        let (slot, serial) = self.find(handle)?;
        take(lock(slot), serial).ok_or_else(|| self.unknown(handle))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A clone has no second step.
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
        let registry: Registry<u32, 2> = Registry::new("thing", 7);
        let first = registry.add(1).expect("a slot");
        assert_eq!(registry.get(first).expect("open"), 1);
        registry.remove(first).expect("open");
        let second = registry.add(2).expect("the same slot");
        assert_ne!(first, second);
        assert_eq!(code(registry.get(first)), libc::EBADF);
        assert_eq!(code(registry.with(first, |_| Ok(()))), libc::EBADF);
        assert_eq!(code(registry.remove(first)), libc::EBADF);
        assert_eq!(code(registry.remove_shared(first)), libc::EBADF);
        assert_eq!(registry.get(second).expect("open"), 2);
        assert_eq!(*registry.remove_shared(second).expect("open"), 2);
        assert_eq!(code(registry.get(second)), libc::EBADF);
    }

    #[test]
    fn a_handle_is_of_one_kind() {
        let things: Registry<u32, 2> = Registry::new("thing", 7);
        let others: Registry<u32, 2> = Registry::new("other", 8);
        let (thing, _other) = (
            things.add(1).expect("a slot"),
            others.add(2).expect("a slot"),
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
        let registry: Registry<u32, 2> = Registry::new("thing", 7);
        let first = registry.add(1).expect("a slot");
        registry.add(2).expect("a slot");
        assert_eq!(code(registry.add(3)), libc::ENFILE);
        registry.remove(first).expect("open");
        registry.add(3).expect("the slot that was freed");
    }

    #[test]
    fn a_call_inside_a_call_is_refused() {
        let registry: Registry<u32, 2> = Registry::new("thing", 7);
        let thing = registry.add(1).expect("a slot");
        let inner = registry.with(thing, |_| {
            Ok((
                code(registry.with(thing, |_| Ok(()))),
                code(registry.remove(thing)),
            ))
        });
        assert_eq!(inner.expect("open"), (libc::EBUSY, libc::EBUSY));
    }

    #[test]
    fn after_a_panic_it_can_only_be_closed() {
        let registry: Registry<u32, 2> = Registry::new("thing", 7);
        let thing = registry.add(1).expect("a slot");
        let panic = || registry.with(thing, |_| -> Result<()> { panic!("inside") });
        assert!(catch_unwind(AssertUnwindSafe(panic)).is_err());
        assert_eq!(
            code(registry.with(thing, |_| Ok(()))),
            libc::ENOTRECOVERABLE
        );
        registry.remove(thing).expect("it can be closed");
        let next = registry.add(2).expect("a slot");
        registry
            .with(next, |_| Ok(()))
            .expect("the slot is well again");
    }
}
