//! Maps: those that libxdp and libbpf make. A caller has their descriptors themselves: an XSKMAP
//! redirects to a socket only packets of the queue to which that is bound.

use super::super::objects::Objects;
use super::super::session::Session;
use super::super::sys::{self, ARRAY, MapAttributes};
use super::attr::Attr;
use crate::budget::Object;
use crate::seccomp::Answer;
use crate::supervise::Call;
use rustix::io::Errno;
use std::os::fd::AsFd as _;

const XSKMAP: u32 = 17;
/// `BPF_F_RDONLY_PROG` and `BPF_F_MMAPABLE`.
const READ_ONLY: u32 = 1 << 7;
const MMAPABLE: u32 = 1 << 10;
/// More queues than any device has.
const MOST_QUEUES: u32 = 4096;
/// Most bytes of a program's variables.
const MOST_VARIABLES: u32 = 4096;

pub(super) fn create(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    let map = MapAttributes {
        map_type: attr.word(0),
        key_size: attr.word(4),
        value_size: attr.word(8),
        max_entries: attr.word(12),
        flags: attr.word(16),
        name: attr.bytes(28),
    };
    // The caller's BTF, which describes the map, says nothing to the kernel.
    attr.check_zero(20..28)?;
    attr.check_zero(44..48)?;
    attr.check_end(60)?;
    if !is_granted(&map) {
        call.describe(format!("map of type {}", map.map_type));
        return Err(Errno::PERM);
    }
    let mut objects = session.objects();
    objects.check_maps()?;
    call.check_alive()?;
    let place = objects.reserve(Object::Map)?;
    let fd = sys::map_create(&map)?;
    place.fill(sys::object_id(fd.as_fd())?);
    objects.add_map(fd.as_fd())?;
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: true,
    })
}

fn is_granted(map: &MapAttributes) -> bool {
    match map.map_type {
        XSKMAP => {
            let element = map.key_size == 4 && map.value_size == 4;
            element && (1..=MOST_QUEUES).contains(&map.max_entries) && map.flags == 0
        }
        ARRAY => {
            let element = map.key_size == 4 && (1..=MOST_VARIABLES).contains(&map.value_size);
            element && map.max_entries == 1 && map.flags & !(READ_ONLY | MMAPABLE) == 0
        }
        _ => false,
    }
}

/// A map of the session; else `EPERM`, the kernel's answer to callers without privilege.
pub(super) fn by_id(session: &Session, call: &Call<'_>, attr: &Attr) -> Result<Answer, Errno> {
    attr.check_end(4)?;
    let find = |objects: &Objects| objects.map(attr.word(0)).ok_or(Errno::PERM);
    let fd = find(&session.objects())??;
    call.check_alive()?;
    Ok(Answer::Descriptor {
        fd,
        close_on_exec: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_socket_maps_and_variables_are_granted() {
        let socket_map = MapAttributes {
            map_type: XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: 64,
            flags: 0,
            name: [0; 16],
        };
        assert!(is_granted(&socket_map));
        let variables = MapAttributes {
            map_type: ARRAY,
            value_size: 124,
            max_entries: 1,
            flags: READ_ONLY,
            ..socket_map
        };
        assert!(is_granted(&variables));
        for bad in [
            MapAttributes {
                map_type: 1,
                ..socket_map
            },
            MapAttributes {
                max_entries: MOST_QUEUES + 1,
                ..socket_map
            },
            MapAttributes {
                max_entries: 0,
                ..socket_map
            },
            MapAttributes {
                value_size: 8,
                ..socket_map
            },
            MapAttributes {
                flags: 1,
                ..socket_map
            },
            MapAttributes {
                max_entries: 2,
                ..variables
            },
            MapAttributes {
                value_size: MOST_VARIABLES + 1,
                ..variables
            },
            MapAttributes {
                flags: 1 << 6,
                ..variables
            },
        ] {
            assert!(!is_granted(&bad), "{bad:?}");
        }
    }
}
