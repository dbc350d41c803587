//! Functions of the running kernel that XDP programs may call, by its BTF
//! (`Documentation/bpf/btf.rst`, `Documentation/bpf/kfuncs.rst`).

/// The types of the kernel itself, without modules.
const FILE: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;

/// Bytes of a `struct btf_type`.
const TYPE_LEN: usize = 12;

/// `BTF_KIND_FUNC`.
const FUNCTION: u32 = 12;

/// The ids of functions, in the order of their names; none for one that the kernel has not. An error says why
/// they are not known.
pub(crate) fn kernel_functions<const COUNT: usize>(
    names: [&str; COUNT],
) -> Result<[Option<u32>; COUNT], String> {
    let bytes = std::fs::read(FILE)
        .map_err(|error| format!("{FILE}: {error}; CONFIG_DEBUG_INFO_BTF is needed"))?;
    find_in(&bytes, names).ok_or_else(|| format!("{FILE} has a form that is not known here"))
}

/// The same in the bytes of a file.
fn find_in<const COUNT: usize>(bytes: &[u8], names: [&str; COUNT]) -> Option<[Option<u32>; COUNT]> {
    let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    if magic != MAGIC {
        return None;
    }
    // `struct btf_header`: places are counted from its end.
    let header = word(bytes, 4)? as usize;
    let part = |at: usize| {
        let start = header.checked_add(word(bytes, at)? as usize)?;
        bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
    };
    let (mut types, strings) = (part(8)?, part(16)?);
    let mut found = [None; COUNT];
    // The first type is `void`, which has no entry.
    let mut id = 1;
    while !types.is_empty() {
        let (name, info) = (word(types, 0)? as usize, word(types, 4)?);
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        if kind == FUNCTION {
            let is = |wanted: &&str| {
                let text = strings.get(name..).unwrap_or_default();
                text.strip_prefix(wanted.as_bytes()).and_then(<[u8]>::first) == Some(&0)
            };
            if let Some(at) = names.iter().position(is) {
                found[at] = Some(id);
            }
        }
        types = types.get(TYPE_LEN + behind(kind, count)?..)?;
        id += 1;
    }
    Some(found)
}

/// Bytes behind the `struct btf_type` of a kind.
fn behind(kind: u32, count: usize) -> Option<usize> {
    match kind {
        // Pointers, forward declarations, typedefs, qualifiers, functions, floats, tags of types.
        2 | 7..=12 | 16 | 18 => Some(0),
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => Some(4),
        // Arrays.
        3 => Some(12),
        // Enumerations, parameters of functions.
        6 | 13 => Some(8 * count),
        // Members of structs and unions, sections, enumerations of 64 bits.
        4 | 5 | 15 | 19 => Some(12 * count),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{find_in, kernel_functions};

    /// BTF with an enumeration, a function of one parameter, and another function.
    fn btf() -> Vec<u8> {
        let strings = b"\0first\0second\0";
        let mut types = Vec::new();
        let mut entry =
            |words: &[u32]| types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        entry(&[0, 6 << 24 | 1, 4, 1, 7]);
        entry(&[0, 13 << 24 | 1, 0, 1, 1]);
        entry(&[1, 12 << 24, 2]);
        entry(&[7, 12 << 24, 2]);
        let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
        let mut bytes = 0xeb9f_u16.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types_len, types_len, strings_len] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        [bytes, types, strings.to_vec()].concat()
    }

    #[test]
    fn functions_have_the_number_of_their_entry() {
        let ids = find_in(&btf(), ["second", "first", "firs", "third"]);
        assert_eq!(ids, Some([Some(4), Some(3), None, None]));
    }

    #[test]
    fn cut_and_changed_bytes_are_refused() {
        let whole = btf();
        for len in 0..whole.len() {
            assert_eq!(find_in(&whole[..len], ["first"]), None, "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            // It may find nothing, or something else; it ends.
            let _ = find_in(&changed, ["first"]);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no kernel")]
    fn the_running_kernel_has_functions() {
        match kernel_functions(["bpf_get_task_pid", "bpf_xdp_no_such_function"]) {
            Ok([_, none]) => assert_eq!(none, None),
            Err(why) => assert!(why.contains("btf"), "{why}"),
        }
    }
}
