//! The flags of mount(2), an unsigned long that no memory holds.

use rustix::mount::MountAttrFlags;

/// The flags of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(u64);

/// Flags of calls that change a mount.
const CHANGES: u64 = libc::MS_REMOUNT
    | libc::MS_BIND
    | libc::MS_MOVE
    | libc::MS_SHARED
    | libc::MS_PRIVATE
    | libc::MS_SLAVE
    | libc::MS_UNBINDABLE;

/// The kernel ignores the upper half where old programs have a number.
const MAGIC: u64 = 0xc0ed_0000;
const MAGIC_MASK: u64 = 0xffff_0000;

impl Flags {
    pub(super) fn of(argument: u64) -> Self {
        if argument & MAGIC_MASK == MAGIC {
            Self(argument & !MAGIC_MASK)
        } else {
            Self(argument)
        }
    }

    pub(super) fn is_new_mount(self) -> bool {
        self.0 & CHANGES == 0
    }

    pub(super) fn is_read_only(self) -> bool {
        self.0 & libc::MS_RDONLY != 0
    }

    /// Those of the mount itself; of one that `is_limited`, whose filesystem the caller fills, device nodes
    /// and set-user-id bits never count.
    pub(super) fn attributes(self, is_limited: bool) -> MountAttrFlags {
        let mut attributes = MountAttrFlags::empty();
        if is_limited {
            attributes |= MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        }
        for (flag, attribute) in [
            (libc::MS_NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (libc::MS_NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
            (libc::MS_RDONLY, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (libc::MS_NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (libc::MS_NODIRATIME, MountAttrFlags::MOUNT_ATTR_NODIRATIME),
            (NOSYMFOLLOW, MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW),
        ] {
            if self.0 & flag != 0 {
                attributes |= attribute;
            }
        }
        // Strict is stronger than none, as in the kernel.
        if self.0 & libc::MS_STRICTATIME != 0 {
            attributes |= MountAttrFlags::MOUNT_ATTR_STRICTATIME;
        } else if self.0 & libc::MS_NOATIME != 0 {
            attributes |= MountAttrFlags::MOUNT_ATTR_NOATIME;
        }
        attributes
    }
}

/// `MS_NOSYMFOLLOW`.
const NOSYMFOLLOW: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_a_mount_are_no_new_mounts() {
        assert!(Flags::of(0).is_new_mount());
        assert!(Flags::of(libc::MS_NOSUID | libc::MS_REC).is_new_mount());
        assert!(!Flags::of(libc::MS_BIND).is_new_mount());
        assert!(!Flags::of(libc::MS_REMOUNT | libc::MS_RDONLY).is_new_mount());
        assert!(!Flags::of(libc::MS_MOVE | MAGIC).is_new_mount());
        // These two are in the upper half, which the magic number takes away.
        assert!(!Flags::of(libc::MS_SHARED).is_new_mount());
        assert!(Flags::of(MAGIC | libc::MS_RDONLY).is_new_mount());
        assert!(Flags::of(MAGIC | libc::MS_RDONLY).is_read_only());
    }

    #[test]
    fn devices_and_set_user_ids_never_count_on_a_limited_mount() {
        let least = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        assert_eq!(Flags::of(0).attributes(true), least);
        assert_eq!(Flags::of(0).attributes(false), MountAttrFlags::empty());
        let asked = Flags::of(libc::MS_NOSUID | libc::MS_NODEV);
        assert_eq!(asked.attributes(false), least);
        let flags = libc::MS_RDONLY | libc::MS_NOEXEC | libc::MS_NOATIME;
        let expected = least
            | MountAttrFlags::MOUNT_ATTR_RDONLY
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_NOATIME;
        assert_eq!(Flags::of(flags).attributes(true), expected);
    }
}
