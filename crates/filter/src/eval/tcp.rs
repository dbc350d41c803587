//! TCP: sanity, sequence numbers, and the states of a connection.

use super::decision::{Answer, Cause};
use super::state::peer_state::{
    CLOSING, ESTABLISHED, FIN_WAIT_2, PROXY_DST, PROXY_SRC, SYN_SENT, TIME_WAIT,
};
use super::state::{Peer, SCALE, SCALE_KNOWN, State};
use crate::packet::flags::{ACK, FIN, PSH, RST, SYN, URG};
use crate::packet::{Refusal, Tcp};
use crate::rule::Timeout;

/// How far an acknowledgement may lag behind or lead: 64 kB and a fudge factor of 1500
/// (`MAXACKWINDOW`).
const ACK_WINDOW: u32 = 0xffff + 1500;

/// Cleans a segment, or refuses it (`pf_normalize_tcp`).
pub(super) fn normalize(tcp: &mut Tcp) -> Result<(), Refusal> {
    if tcp.flags & SYN != 0 {
        if tcp.flags & RST != 0 {
            return Err(Refusal::TcpSynRst);
        }
        tcp.flags &= !FIN;
    } else if tcp.flags & (ACK | RST) == 0 {
        return Err(Refusal::TcpNoFlags);
    }
    if tcp.flags & ACK == 0 && tcp.flags & (FIN | PSH | URG) != 0 {
        return Err(Refusal::TcpFlagsWithoutAck);
    }
    if tcp.flags & URG == 0 {
        tcp.urgent = 0;
    }
    Ok(())
}

/// `a >= b` in sequence space.
fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() >= 0
}

/// The end that sends the first segment of a state (`pf_create_state`).
pub(super) fn first_peer(tcp: &Tcp) -> Peer {
    let mut peer = Peer {
        state: SYN_SENT,
        seqlo: tcp.seq,
        ..Peer::default()
    };
    peer.seqhi = tcp.seq.wrapping_add(u32::from(tcp.length) + 1);
    if tcp.flags & SYN != 0 {
        peer.seqhi = peer.seqhi.wrapping_add(1);
        peer.wscale = scale_of(tcp);
    }
    peer.max_win = u32::from(tcp.window).max(1);
    if peer.wscale & SCALE != 0 {
        peer.max_win = unscaled(peer.max_win, peer.wscale & SCALE);
    }
    if tcp.flags & FIN != 0 {
        peer.seqhi = peer.seqhi.wrapping_add(1);
    }
    peer
}

/// The window of a SYN is not scaled: brought to the unit of later ones, rounded up.
fn unscaled(window: u32, scale: u8) -> u32 {
    (window + (1 << scale) - 1) >> scale
}

fn scale_of(tcp: &Tcp) -> u8 {
    tcp.window_scale
        .map_or(0, |scale| scale.min(14) | SCALE_KNOWN)
}

/// Sequence numbers of a segment, as the window check sees them.
struct Segment {
    seq: u32,
    /// Without modulation.
    original: u32,
    ack: u32,
    /// End of the data, without a FIN.
    data_end: u32,
    end: u32,
    window: u32,
    /// Scale of the sender's window, and of the receiver's.
    own_scale: u8,
    peer_scale: u8,
}

/// Checks a segment against its state, and moves the state on (`pf_tcp_track_full`).
///
/// `Ok(true)` means that the connection has just become established.
///
/// # Errors
/// The cause of its drop, and the answer.
pub(super) fn track_full(
    state: &mut State,
    tcp: &mut Tcp,
    forward: bool,
    now: u64,
    draw: impl FnMut() -> u32,
) -> Result<bool, (Cause, Answer)> {
    let flags = tcp.flags;
    let reply_ttl = 0;
    let (src, dst) = state.peers(forward);
    let mut segment = enter(src, dst, tcp, draw);
    if flags & ACK == 0 || (segment.ack == 0 && flags & RST != 0) || dst.state < SYN_SENT {
        segment.ack = dst.seqlo;
    }
    if segment.seq == segment.end {
        // Without data, the position does not matter.
        segment.seq = src.seqlo;
        segment.data_end = segment.seq;
        segment.end = segment.seq;
    }
    if fits(&segment, src, dst, flags) {
        advance(&segment, src, dst);
        return Ok(follow(state, flags, forward, now));
    }
    if fits_loosely(&segment, src, dst) {
        advance(&segment, src, dst);
        if flags & FIN != 0 {
            src.state = src.state.max(CLOSING);
        }
        if flags & RST != 0 {
            state.set_both(TIME_WAIT);
        }
        return Ok(false);
    }
    let mut answer = Answer::None;
    if src.state == SYN_SENT && dst.state == SYN_SENT {
        if flags & RST == 0 {
            answer = Answer::Tcp {
                flags: RST,
                seq: tcp.ack,
                ack: 0,
                ttl: reply_ttl,
            };
        }
        (src.seqlo, src.seqhi, src.max_win) = (0, 1, 1);
    }
    Err((Cause::Window, answer))
}

/// Reads the sequence numbers; sets up an end that had sent nothing, and modulates.
fn enter(src: &mut Peer, dst: &mut Peer, tcp: &mut Tcp, mut draw: impl FnMut() -> u32) -> Segment {
    let scaled = src.wscale != 0 && dst.wscale != 0 && tcp.flags & SYN == 0;
    let (own_scale, peer_scale) = if scaled {
        (src.wscale & SCALE, dst.wscale & SCALE)
    } else {
        (0, 0)
    };
    let mut segment = Segment {
        seq: tcp.seq,
        original: tcp.seq,
        ack: tcp.ack,
        data_end: 0,
        end: tcp.seq.wrapping_add(u32::from(tcp.length)),
        window: u32::from(tcp.window),
        own_scale,
        peer_scale,
    };
    let first = src.seqlo == 0;
    if first && dst.seqdiff != 0 && src.seqdiff == 0 {
        src.seqdiff = draw().wrapping_sub(segment.seq).max(1);
        segment.ack = segment.ack.wrapping_sub(dst.seqdiff);
        (tcp.seq, tcp.ack) = (segment.seq.wrapping_add(src.seqdiff), segment.ack);
    } else if !first {
        segment.ack = segment.ack.wrapping_sub(dst.seqdiff);
        if src.seqdiff != 0 {
            (tcp.seq, tcp.ack) = (segment.seq.wrapping_add(src.seqdiff), segment.ack);
        }
    }
    if tcp.flags & SYN != 0 {
        segment.end = segment.end.wrapping_add(1);
        if first {
            learn_scale(src, dst, tcp, &mut segment);
        }
    }
    segment.data_end = segment.end;
    if tcp.flags & FIN != 0 {
        segment.end = segment.end.wrapping_add(1);
    }
    if first {
        src.seqlo = segment.seq;
        src.state = src.state.max(SYN_SENT);
        let allowed = segment
            .end
            .wrapping_add((dst.max_win << segment.peer_scale).max(1));
        if src.seqhi == 1 || at_or_after(allowed, src.seqhi) {
            src.seqhi = allowed;
        }
        src.max_win = src.max_win.max(segment.window);
    }
    segment
}

/// The window scale of the end that answers a SYN.
fn learn_scale(src: &mut Peer, dst: &mut Peer, tcp: &Tcp, segment: &mut Segment) {
    if dst.wscale & SCALE_KNOWN == 0 {
        return;
    }
    src.wscale = scale_of(tcp);
    if src.wscale & SCALE_KNOWN != 0 {
        segment.own_scale = src.wscale & SCALE;
        segment.window = unscaled(segment.window, segment.own_scale);
        segment.peer_scale = dst.wscale & SCALE;
    } else {
        dst.max_win = (dst.max_win << (dst.wscale & SCALE)).min(0xffff);
        dst.wscale = 0;
    }
}

/// The window check.
fn fits(segment: &Segment, src: &Peer, dst: &Peer, flags: u8) -> bool {
    let skew = dst.seqlo.wrapping_sub(segment.ack).cast_signed();
    let exact = [
        src.seqlo,
        src.seqlo.wrapping_add(1),
        src.seqlo.wrapping_sub(1),
    ]
    .contains(&segment.original);
    at_or_after(src.seqhi, segment.data_end)
        && at_or_after(
            segment.seq,
            src.seqlo.wrapping_sub(dst.max_win << segment.peer_scale),
        )
        && skew >= -ACK_WINDOW.cast_signed()
        && skew <= (ACK_WINDOW << segment.own_scale).cast_signed()
        && (flags & RST == 0 || exact)
}

/// The looser check, while one end is unseen or after both closed.
fn fits_loosely(segment: &Segment, src: &Peer, dst: &Peer) -> bool {
    (dst.state < SYN_SENT || dst.state >= FIN_WAIT_2 || src.state >= FIN_WAIT_2)
        && at_or_after(src.seqhi.wrapping_add(ACK_WINDOW), segment.data_end)
        && at_or_after(segment.seq, src.seqlo.wrapping_sub(ACK_WINDOW))
}

/// Moves the windows.
fn advance(segment: &Segment, src: &mut Peer, dst: &mut Peer) {
    src.max_win = src.max_win.max(segment.window);
    if !at_or_after(src.seqlo, segment.end) {
        src.seqlo = segment.end;
    }
    let window = segment.window << segment.own_scale;
    if at_or_after(segment.ack.wrapping_add(window), dst.seqhi) {
        dst.seqhi = segment.ack.wrapping_add(window.max(1));
    }
}

/// Moves the states of both ends, and the timeout.
fn follow(state: &mut State, flags: u8, forward: bool, now: u64) -> bool {
    let mut established = false;
    let (src, dst) = state.peers(forward);
    if flags & SYN != 0 {
        src.state = src.state.max(SYN_SENT);
    }
    if flags & FIN != 0 {
        src.state = src.state.max(CLOSING);
    }
    if flags & ACK != 0 {
        if dst.state == SYN_SENT {
            dst.state = ESTABLISHED;
            established = src.state == ESTABLISHED;
        } else if dst.state == CLOSING {
            dst.state = FIN_WAIT_2;
        }
    }
    if flags & RST != 0 {
        state.set_both(TIME_WAIT);
    }
    set_timeout(state, now);
    established
}

fn set_timeout(state: &mut State, now: u64) {
    let (src, dst) = (state.src.state, state.dst.state);
    state.expire = now;
    state.timeout = if src >= FIN_WAIT_2 && dst >= FIN_WAIT_2 {
        Timeout::TcpClosed
    } else if src >= CLOSING && dst >= CLOSING {
        Timeout::TcpFinWait
    } else if src < ESTABLISHED || dst < ESTABLISHED {
        Timeout::TcpOpening
    } else if src >= CLOSING || dst >= CLOSING {
        Timeout::TcpClosing
    } else {
        Timeout::TcpEstablished
    };
}

/// Moves a state on without looking at sequence numbers (`pf_tcp_track_sloppy`). Whether the
/// connection has just become established.
pub(super) fn track_sloppy(state: &mut State, tcp: &Tcp, forward: bool, now: u64) -> bool {
    let flags = tcp.flags;
    let mut established = false;
    let (src, dst) = state.peers(forward);
    if flags & SYN != 0 {
        src.state = src.state.max(SYN_SENT);
    }
    if flags & FIN != 0 {
        src.state = src.state.max(CLOSING);
    }
    if flags & ACK != 0 {
        if dst.state == SYN_SENT {
            dst.state = ESTABLISHED;
            established = src.state == ESTABLISHED;
        } else if dst.state == CLOSING {
            dst.state = FIN_WAIT_2;
        } else if src.state == SYN_SENT && dst.state < SYN_SENT {
            // Only one half of the connection is seen.
            (src.state, dst.state) = (ESTABLISHED, ESTABLISHED);
            established = true;
        } else if src.state == CLOSING && dst.state == ESTABLISHED && dst.seqlo == 0 {
            dst.state = CLOSING;
        }
    }
    if flags & RST != 0 {
        state.set_both(TIME_WAIT);
    }
    set_timeout(state, now);
    established
}

/// The TCP proxy's treatment of a segment.
pub(super) enum Proxy {
    /// It is not proxied, or no longer.
    Through,
    /// It is dropped, and answered.
    Drop(Answer),
    /// The client proved that it exists: if its connections are within limits, it goes on.
    Proven,
}

/// The TCP proxy (`pf_synproxy`). `forward` is a segment of the client.
pub(super) fn synproxy(
    state: &mut State,
    tcp: &Tcp,
    forward: bool,
    draw: impl FnOnce() -> u32,
) -> Proxy {
    match state.src.state {
        PROXY_SRC => proxy_client(state, tcp, forward),
        PROXY_DST => proxy_server(state, tcp, forward, draw),
        _ => Proxy::Through,
    }
}

fn proxy_client(state: &State, tcp: &Tcp, forward: bool) -> Proxy {
    if !forward {
        return Proxy::Drop(Answer::None);
    }
    let src = &state.src;
    if tcp.flags & SYN != 0 {
        if tcp.seq != src.seqlo {
            return Proxy::Drop(Answer::None);
        }
        return Proxy::Drop(Answer::Tcp {
            flags: SYN | ACK,
            seq: src.seqhi,
            ack: tcp.seq.wrapping_add(1),
            ttl: 0,
        });
    }
    let acknowledges = tcp.flags & (ACK | RST | FIN) == ACK
        && tcp.ack == src.seqhi.wrapping_add(1)
        && tcp.seq == src.seqlo.wrapping_add(1);
    if acknowledges {
        Proxy::Proven
    } else {
        Proxy::Drop(Answer::None)
    }
}

fn proxy_server(state: &mut State, tcp: &Tcp, forward: bool, draw: impl FnOnce() -> u32) -> Proxy {
    let (src, dst) = (&mut state.src, &mut state.dst);
    if forward {
        let again = tcp.flags & (SYN | ACK) == ACK
            && tcp.ack == src.seqhi.wrapping_add(1)
            && tcp.seq == src.seqlo.wrapping_add(1);
        if again {
            src.max_win = u32::from(tcp.window).max(1);
            if dst.seqhi == 1 {
                dst.seqhi = draw();
            }
        }
        return Proxy::Drop(Answer::None);
    }
    if tcp.flags & (SYN | ACK) != (SYN | ACK) || tcp.ack != dst.seqhi.wrapping_add(1) {
        return Proxy::Drop(Answer::None);
    }
    dst.max_win = u32::from(tcp.window).max(1);
    dst.seqlo = tcp.seq;
    let answer = Answer::Tcp {
        flags: ACK,
        seq: tcp.ack,
        ack: tcp.seq.wrapping_add(1),
        ttl: 0,
    };
    src.seqdiff = dst.seqhi.wrapping_sub(src.seqlo);
    dst.seqdiff = src.seqhi.wrapping_sub(dst.seqlo);
    src.seqhi = src.seqlo.wrapping_add(dst.max_win);
    dst.seqhi = dst.seqlo.wrapping_add(src.max_win);
    (src.wscale, dst.wscale) = (0, 0);
    state.set_both(ESTABLISHED);
    Proxy::Drop(answer)
}

/// Whether a segment that an ICMP error is about is in the window of its end.
pub(super) fn is_in_window(src: &Peer, dst: &Peer, seq: u32) -> bool {
    let scale = if src.wscale != 0 && dst.wscale != 0 {
        dst.wscale & SCALE
    } else {
        0
    };
    let seq = seq.wrapping_sub(src.seqdiff);
    at_or_after(src.seqhi, seq) && at_or_after(seq, src.seqlo.wrapping_sub(dst.max_win << scale))
}
