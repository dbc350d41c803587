//! Headers of IPv4 (`pf_walk_header` of `sys/net/pf.c`).

use super::bytes::{Bytes, HEADER_LIMIT, Walk};
use super::{AH, IpOptions, Refusal};

/// Walks an IPv4 header at `at`, and authentication headers behind it.
pub(super) fn walk(bytes: &[u8], at: usize, data: Bytes<'_>) -> Result<Walk, Refusal> {
    let header = bytes
        .get(at..at.saturating_add(20))
        .ok_or(Refusal::ShortIpHeader)?;
    let length = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if length < 20 || length > total {
        return Err(Refusal::HeaderLength);
    }
    let options = match length {
        20 => IpOptions::default(),
        _ => walk_options(
            bytes
                .get(at + 20..at + length)
                .ok_or(Refusal::ShortIpHeader)?,
        )?,
    };
    let mut walk = Walk {
        protocol: header[9],
        offset: at + length,
        options,
        fragment_at: None,
    };
    let field = u16::from_be_bytes([header[6], header[7]]);
    if field & 0x1fff != 0 {
        return Ok(walk);
    }
    for _ in 0..HEADER_LIMIT {
        if walk.protocol != AH {
            return Ok(walk);
        }
        if field & 0x2000 != 0 && at + total < walk.offset + 2 {
            return Ok(walk);
        }
        let extension = data
            .pull(walk.offset, 2)
            .ok_or(Refusal::ShortExtensionHeader)?;
        walk.protocol = extension[0];
        walk.offset += (usize::from(extension[1]) + 2) * 4;
    }
    Err(Refusal::HeaderLimit)
}

fn walk_options(bytes: &[u8]) -> Result<IpOptions, Refusal> {
    let mut options = IpOptions::default();
    let mut at = 0;
    while let Some(&kind) = bytes.get(at) {
        match kind {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let length = usize::from(*bytes.get(at + 1).ok_or(Refusal::BadIpOption)?);
        if length < 2 || at + length > bytes.len() {
            return Err(Refusal::BadIpOption);
        }
        match kind {
            148 => options.router_alert = true,
            _ => options.other = true,
        }
        at += length;
    }
    // Options that are only padding count as options, too.
    options.other |= options == IpOptions::default();
    Ok(options)
}
