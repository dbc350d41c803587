//! The memory of the calling program: read and written by the pointers that it passes, and nowhere else.
#![allow(unsafe_code)] // The pointers are C's.

use crate::fault::{Fault, Result};
use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

/// Most bytes of a structure of any version: a larger size was not set.
const MOST: usize = 4096;

/// A structure of the header that begins with its size.
///
/// # Safety
///
/// It is `repr(C)`, begins with a `u32`, has no padding, and any bytes are a valid value.
pub(crate) unsafe trait Sized32: Copy {
    /// Its name, and its size in the first version of the ABI.
    const NAME: &'static str;
    const LEAST: usize;
}

fn null(name: &str) -> Fault {
    Fault::new(libc::EFAULT, format!("{name} is NULL"))
}

/// The size that a structure says it has, and a pointer to its bytes.
///
/// # Safety
///
/// The pointer is NULL or that of a structure, whose first field is its size.
unsafe fn sized<T: Sized32>(from: *const T) -> Result<(NonNull<u8>, usize)> {
    let start = NonNull::new(from.cast_mut().cast::<u8>()).ok_or_else(|| null(T::NAME))?;
    // SAFETY: needed to read C's structure. It begins with a `u32`; C may not have aligned it.
    let size = unsafe { start.cast::<u32>().read_unaligned() } as usize;
    if !(T::LEAST..=MOST).contains(&size) {
        return Err(Fault::invalid(format!(
            "the size of {} is {size}: set its field `size` to sizeof",
            T::NAME
        )));
    }
    Ok((start, size))
}

/// Reads settings, of any version: fields that the program does not know are 0. NULL is all 0.
///
/// # Safety
///
/// The pointer is NULL or that of a structure that is as large as its first field says.
pub(crate) unsafe fn read<T: Sized32>(from: *const T) -> Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    if !from.is_null() {
        // SAFETY: needed to read C's structure; as the caller promises.
        let (start, size) = unsafe { sized(from) }?;
        // SAFETY: as above; the program promises that many bytes.
        let bytes = unsafe { slice::from_raw_parts(start.as_ptr(), size) };
        let known = size.min(size_of::<T>());
        if bytes[known..].iter().any(|&byte| byte != 0) {
            return Err(Fault::new(
                libc::E2BIG,
                format!(
                    "{} has settings that this library does not know: install a newer one",
                    T::NAME
                ),
            ));
        }
        // SAFETY: needed to fill in the value by bytes. Both have that many, and do not overlap.
        unsafe {
            value
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from(start.as_ptr(), known);
        };
    }
    // SAFETY: needed because it was made of bytes, of which any are valid, by `Sized32`.
    Ok(unsafe { value.assume_init() })
}

/// Writes counters, of any version: those that the library does not know are 0.
///
/// # Safety
///
/// The pointer is NULL or that of a structure that is as large as its first field says, and that
/// nobody else uses.
pub(crate) unsafe fn write<T: Sized32>(to: *mut T, value: &T) -> Result<()> {
    // SAFETY: needed to read C's structure; as the caller promises.
    let (start, size) = unsafe { sized(to) }?;
    let known = size.min(size_of::<T>()) - size_of::<u32>();
    let behind = size_of::<u32>();
    let from = std::ptr::from_ref(value).cast::<u8>().wrapping_add(behind);
    let to = start.as_ptr().wrapping_add(behind);
    // SAFETY: needed to write C's structure. Both have that many bytes behind their size, and the
    // value is ours.
    unsafe { to.copy_from(from, known) };
    // SAFETY: as above, for the bytes that only C's has.
    unsafe { to.wrapping_add(known).write_bytes(0, size - behind - known) };
    Ok(())
}

/// Where a call writes its result.
#[derive(Debug)]
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// The pointer is NULL or that of a place for the value, which nobody else uses.
    pub(crate) unsafe fn new(to: *mut T, name: &str) -> Result<Self> {
        NonNull::new(to).map(Self).ok_or_else(|| null(name))
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: needed to write C's memory; as promised to `new`. C may not have aligned it.
        unsafe { self.0.write_unaligned(value) };
    }
}

/// A text of C.
///
/// # Safety
///
/// The pointer is NULL or that of bytes that end with 0, and stay as they are.
pub(crate) unsafe fn text<'t>(from: *const c_char, name: &str) -> Result<&'t str> {
    let start = NonNull::new(from.cast_mut()).ok_or_else(|| null(name))?;
    // SAFETY: needed to read C's text; as the caller promises.
    let text = unsafe { CStr::from_ptr(start.as_ptr()) };
    text.to_str()
        .map_err(|_| Fault::invalid(format!("{name} is not UTF-8")))
}

/// An array of C.
///
/// # Safety
///
/// The pointer is NULL or that of so many values, which stay as they are during `'a`.
pub(crate) unsafe fn array<'a, T>(from: *const T, count: u32, name: &str) -> Result<&'a [T]> {
    let start = NonNull::new(from.cast_mut()).ok_or_else(|| null(name))?;
    aligned(start, name)?;
    // SAFETY: needed to read C's array; as the caller promises, and aligned.
    Ok(unsafe { slice::from_raw_parts(start.as_ptr(), count as usize) })
}

/// The same to write.
///
/// # Safety
///
/// The pointer is NULL or that of places for so many values, which nobody else uses during `'a`.
pub(crate) unsafe fn places<'a, T>(
    to: *mut T,
    count: u32,
    name: &str,
) -> Result<&'a mut [MaybeUninit<T>]> {
    let start = NonNull::new(to).ok_or_else(|| null(name))?;
    aligned(start, name)?;
    // SAFETY: needed to write C's array; as the caller promises, and aligned.
    Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr().cast(), count as usize) })
}

/// Bytes of C, to read and write.
///
/// # Safety
///
/// The pointer is NULL or that of so many bytes, which nobody else uses during `'a`.
pub(crate) unsafe fn bytes<'a>(start: *mut u8, count: u32, name: &str) -> Result<&'a mut [u8]> {
    let start = NonNull::new(start).ok_or_else(|| null(name))?;
    // SAFETY: needed to read and write C's bytes; as the caller promises.
    Ok(unsafe { slice::from_raw_parts_mut(start.as_ptr(), count as usize) })
}

fn aligned<T>(start: NonNull<T>, name: &str) -> Result<()> {
    if start.is_aligned() {
        return Ok(());
    }
    Err(Fault::invalid(format!("{name} is not aligned")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    #[repr(C)]
    struct Now {
        size: u32,
        old: u32,
        new: u32,
    }

    // SAFETY: three `u32`.
    unsafe impl Sized32 for Now {
        const NAME: &'static str = "options";
        const LEAST: usize = 8;
    }

    fn read_words(words: &[u32]) -> Result<Now> {
        // SAFETY: the tests give as many words as the first says.
        unsafe { read(words.as_ptr().cast::<Now>()) }
    }

    #[test]
    fn settings_of_any_version_are_read() {
        let read = |words: &[u32]| read_words(words).map(|now| (now.old, now.new));
        let code = |words: &[u32]| read_words(words).expect_err("refused").code;
        assert_eq!(read(&[8, 1]).expect("an old program"), (1, 0));
        assert_eq!(read(&[12, 1, 2]).expect("one of now"), (1, 2));
        assert_eq!(read(&[16, 1, 2, 0]).expect("a new one"), (1, 2));
        assert_eq!(code(&[16, 1, 2, 3]), libc::E2BIG);
        assert_eq!(code(&[0, 1, 2]), libc::EINVAL);
        assert_eq!(code(&[7, 1, 2]), libc::EINVAL);
        assert_eq!(code(&[u32::MAX, 1, 2]), libc::EINVAL);
        // SAFETY: NULL is allowed.
        let none = unsafe { super::read::<Now>(std::ptr::null()) };
        assert_eq!(none.expect("defaults").old, 0);
    }

    #[test]
    fn counters_of_any_version_are_written() {
        let value = Now {
            size: 12,
            old: 1,
            new: 2,
        };
        for (size, expected) in [(8, [8, 1, 9, 9]), (12, [12, 1, 2, 9]), (16, [16, 1, 2, 0])] {
            let mut words = [size, 9, 9, 9];
            // SAFETY: there are four words, and the first says at most that.
            let written = unsafe { write(words.as_mut_ptr().cast::<Now>(), &value) };
            written.expect("written");
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn null_is_an_error() {
        // SAFETY: NULL is allowed.
        let fault = unsafe { text(std::ptr::null(), "device") }.expect_err("refused");
        assert_eq!(fault.code, libc::EFAULT);
        // SAFETY: as above.
        assert!(unsafe { array::<u64>(std::ptr::null(), 0, "frames") }.is_err());
        // SAFETY: as above; the pointer is not followed.
        assert!(unsafe { array::<u64>(std::ptr::without_provenance(1), 0, "frames") }.is_err());
    }
}
