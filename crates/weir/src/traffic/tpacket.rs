//! The memory that AF_PACKET shares with its user: rings of TPACKET version 2 and 3.
//!
//! Layouts and the order of accesses are from `include/uapi/linux/if_packet.h`,
//! `net/packet/af_packet.c` and `Documentation/networking/packet_mmap.rst`.
//!
//! This file lifts the crate's ban on unsafe code because the rings are raw memory that
//! the kernel writes too, and because no crate offers the socket options that make them.
//! Its interface is safe: every access is bounds-checked against the mapping, and a frame's bytes
//! are borrowed only while its status word gives them to the user.
#![allow(unsafe_code)]

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use hostnet::privilege::{self, Capability, Feature};
use libc::{c_int, c_uint, tpacket_block_desc, tpacket_hdr_v1, tpacket2_hdr, tpacket3_hdr};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// The layout of the rings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Frames of a fixed size, handed over one by one.
    V2,
    /// Frames packed into blocks on the receive side, handed over a block at a time.
    V3,
}

/// The shape of one ring.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes in a block; a multiple of the page size and of `frame`.
    pub block: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Bytes in a frame, its header included.
    pub frame: usize,
}

/// Small enough to be allocated from fragmented memory.
const BLOCK: usize = 1 << 17;

/// Room for a frame of an MTU of 1500, and for its header.
const MIN_FRAME: usize = 2048;

/// More than the header and its alignment take.
const HEADER_ROOM: usize = 256;

/// Bytes of sent frames in flight: more than any send ring here holds, so that the ring is the limit.
pub const SEND_BUFFER: u32 = 16 << 20;

/// Cause and cure of a refused [`Socket::new`].
pub fn refusal(error: &io::Error) -> String {
    let errno = error.raw_os_error();
    let refused =
        errno.and_then(|errno| privilege::refusal(errno, Feature::Packet, &[Capability::NetRaw]));
    refused.unwrap_or_else(|| match errno {
        Some(libc::EAFNOSUPPORT) => {
            "this kernel has no AF_PACKET: load af_packet or enable CONFIG_PACKET".to_owned()
        }
        _ => "this kernel refuses a packet socket with TPACKET rings".to_owned(),
    })
}

impl Shape {
    /// So many blocks of 128 KiB, for frames of at most `size` bytes.
    pub fn new(size: usize, blocks: usize) -> Self {
        let frame = (size + HEADER_ROOM).next_power_of_two();
        Self {
            block: BLOCK,
            blocks,
            frame: frame.max(MIN_FRAME),
        }
    }

    fn len(self) -> usize {
        self.block * self.blocks
    }

    fn frames(self) -> usize {
        self.len() / self.frame
    }
}

// The kernel's layouts of the structs that this file names.
const _: () = {
    assert!(size_of::<tpacket2_hdr>() == 32);
    assert!(size_of::<tpacket3_hdr>() == 48);
    assert!(offset_of!(tpacket3_hdr, tp_status) == 20);
    assert!(offset_of!(tpacket_block_desc, hdr) == 8);
    assert!(size_of::<tpacket_block_desc>() == 48);
};

/// Milliseconds after which the kernel hands over a V3 block that is not full. The
/// smallest the kernel takes: at saturation blocks fill long before, and below it this is
/// the longest that a packet waits.
const RETIRE_MS: c_uint = 1;

/// An AF_PACKET socket that is not bound yet, without rings.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    version: Version,
}

impl Socket {
    /// A raw packet socket. Protocol 0: it hears nothing until it is bound.
    pub fn new(version: Version) -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::PACKET,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let socket = Self { fd, version };
        let number = match version {
            Version::V2 => libc::tpacket_versions::TPACKET_V2,
            Version::V3 => libc::tpacket_versions::TPACKET_V3,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &(number as c_int))?;
        Ok(socket)
    }

    /// Leaves out frames that this host sends on the device.
    pub fn ignore_outgoing(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)
    }

    /// Sends past the queueing discipline.
    pub fn bypass_qdisc(&self) -> io::Result<()> {
        self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)
    }

    /// Allows `bytes` of frames in flight, beyond the system's limit.
    pub fn send_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
    }

    /// Makes the rings and maps them.
    pub fn rings(self, receive: Option<Shape>, send: Option<Shape>) -> io::Result<Rings> {
        if let Some(shape) = receive {
            self.make_ring(libc::PACKET_RX_RING, shape, RETIRE_MS)?;
        }
        if let Some(shape) = send {
            self.make_ring(libc::PACKET_TX_RING, shape, 0)?;
        }
        // The kernel maps both rings at once, the receive ring first.
        let receive_len = receive.map_or(0, Shape::len);
        let map = Map::new(self.fd.as_fd(), receive_len + send.map_or(0, Shape::len))?;
        Ok(Rings {
            receive: receive.map(|shape| ReceiveRing::new(self.version, shape)),
            send: send.map(|shape| SendRing::new(self.version, shape, receive_len)),
            map,
            fd: self.fd,
        })
    }

    fn make_ring(&self, option: c_int, shape: Shape, retire_ms: c_uint) -> io::Result<()> {
        let request = libc::tpacket_req3 {
            tp_block_size: shape.block as c_uint,
            tp_block_nr: shape.blocks as c_uint,
            tp_frame_size: shape.frame as c_uint,
            tp_frame_nr: shape.frames() as c_uint,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        match self.version {
            Version::V3 => self.set(libc::SOL_PACKET, option, &request),
            // The same fields without the last three.
            Version::V2 => self.set(
                libc::SOL_PACKET,
                option,
                &libc::tpacket_req {
                    tp_block_size: request.tp_block_size,
                    tp_block_nr: request.tp_block_nr,
                    tp_frame_size: request.tp_frame_size,
                    tp_frame_nr: request.tp_frame_nr,
                },
            ),
        }
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        // SAFETY: needed because no crate knows these options. The kernel reads at most
        // the given size from `value`, which is a reference to that many bytes.
        let result = unsafe {
            libc::setsockopt(
                self.fd.as_raw_fd(),
                level,
                option,
                std::ptr::from_ref(value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        check(result)
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A socket with its rings.
///
/// The methods that need a ring which was not asked for do nothing.
#[derive(Debug)]
pub struct Rings {
    receive: Option<ReceiveRing>,
    send: Option<SendRing>,
    map: Map,
    fd: OwnedFd,
}

impl Rings {
    /// Lends at most `max` received frames to `each`, gives them back, and returns how
    /// many there were.
    #[inline]
    pub fn take(&mut self, max: usize, each: impl FnMut(&[u8])) -> usize {
        match &mut self.receive {
            Some(ring) => ring.take(&self.map, max, each),
            None => 0,
        }
    }

    /// Copies at most `max` received frames, as many as there is room for, to the send
    /// ring. `each` sees the received frame and its copy, before the copy is pushed.
    #[inline]
    pub fn forward(&mut self, max: usize, mut each: impl FnMut(&[u8], &mut [u8])) -> usize {
        let (Some(receive), Some(send)) = (&mut self.receive, &mut self.send) else {
            return 0;
        };
        let max = max.min(send.room());
        receive.take(&self.map, max, |frame| {
            send.push(&self.map, frame.len(), |copy| {
                copy.copy_from_slice(frame);
                each(frame, copy);
            });
        })
    }

    /// Pushes at most `max` frames of `len` bytes, as many as there is room for, each
    /// written by `each`. The bytes it sees are those of the last frame in that place.
    #[inline]
    pub fn push(&mut self, max: usize, len: usize, mut each: impl FnMut(&mut [u8])) -> usize {
        let Some(ring) = &mut self.send else {
            return 0;
        };
        let count = max.min(ring.room());
        for _ in 0..count {
            ring.push(&self.map, len, &mut each);
        }
        count
    }

    /// Writes `template` to every frame of the send ring, before any is sent.
    pub fn prepare(&mut self, template: &[u8]) {
        if let Some(ring) = &mut self.send {
            for frame in 0..ring.shape.frames() {
                ring.write(&self.map, frame, template.len(), |bytes| {
                    bytes.copy_from_slice(template);
                });
            }
        }
    }

    /// Counts the pushed frames that the kernel is newly done with.
    ///
    /// The error is EMSGSIZE if the kernel refused one as malformed.
    #[inline]
    pub fn reap(&mut self) -> io::Result<usize> {
        match &mut self.send {
            Some(ring) => ring.reap(&self.map),
            None => Ok(0),
        }
    }

    /// Frames pushed and not reaped.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.send.as_ref().map_or(0, |ring| ring.in_flight)
    }

    /// Whether a received frame can be taken without waiting.
    #[inline]
    pub fn has_frames(&self) -> bool {
        let receive = self.receive.as_ref();
        receive.is_some_and(|ring| ring.has_frames(&self.map))
    }

    /// Sends the pushed frames that the kernel has not taken already.
    #[inline]
    pub fn flush(&self) -> io::Result<()> {
        match &self.send {
            Some(ring) if ring.needs_kick(&self.map) => self.kick(),
            _ => Ok(()),
        }
    }

    /// Binds to a device; `protocol` 0 hears nothing, `ETH_P_ALL` everything.
    pub fn bind(&self, ifindex: u32, protocol: u16) -> io::Result<()> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: protocol.to_be(),
            sll_ifindex: ifindex.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        // SAFETY: needed because rustix has no link-layer address. The kernel reads the
        // given number of bytes of `address`, which lives until the call returns.
        let result = unsafe {
            libc::bind(
                self.fd.as_raw_fd(),
                std::ptr::from_ref(&address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        check(result)?;
        // A device that is down is not refused by bind but noted on the socket.
        rustix::net::sockopt::socket_error(&self.fd)??;
        Ok(())
    }

    /// Frames that the kernel has no room for now stay pushed.
    #[inline]
    fn kick(&self) -> io::Result<()> {
        use rustix::io::Errno;
        match rustix::net::send(&self.fd, &[], SendFlags::DONTWAIT) {
            Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::BUSY | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Packets dropped at this socket since the last call.
    pub fn drops(&self) -> io::Result<u64> {
        let mut stats = libc::tpacket_stats_v3 {
            tp_packets: 0,
            tp_drops: 0,
            tp_freeze_q_cnt: 0,
        };
        let mut len = size_of_val(&stats) as libc::socklen_t;
        // SAFETY: needed because no crate knows this option. The kernel writes at most
        // `len` bytes to `stats`, the larger of the two forms that the versions have,
        // and any bytes make a valid value of it.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut stats).cast(),
                &raw mut len,
            )
        };
        check(result)?;
        Ok(u64::from(stats.tp_drops))
    }
}

impl AsFd for Rings {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The mapping of a socket's rings.
#[derive(Debug)]
struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: needed because a pointer is not `Send`. The mapping is of the process, and this is its only owner: it
// goes along to the other thread.
unsafe impl Send for Map {}

impl Map {
    fn new(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: needed to reach the rings. The kernel chooses the address, so nothing
        // that exists is replaced, and a failure is returned as an error.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                fd,
                0,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    /// The address of `len` bytes at `offset`. The kernel's words are aligned; a wrong
    /// offset is a defect in this file, found by the assertion before it is used.
    #[inline]
    fn at<T>(&self, offset: usize, len: usize) -> NonNull<T> {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset <= self.len);
        assert!(len <= self.len - offset);
        // SAFETY: needed to address the ring. The assertion keeps the result inside the
        // mapping, which starts at a page and is one allocation.
        unsafe { self.base.add(offset) }.cast()
    }

    #[inline]
    fn word(&self, offset: usize) -> &AtomicU32 {
        let word = self.at(offset, size_of::<AtomicU32>());
        // SAFETY: needed because the kernel writes this word too. It is in bounds and
        // aligned (`at`), lives as long as `self`, and is reached as an atomic only.
        unsafe { word.as_ref() }
    }

    #[inline]
    fn half(&self, offset: usize) -> &AtomicU16 {
        let half = self.at(offset, size_of::<AtomicU16>());
        // SAFETY: as for `word`.
        unsafe { half.as_ref() }
    }

    /// # Safety
    ///
    /// The status word of the frame that these bytes belong to must say that they are
    /// the user's, must have been read with acquire ordering, and must not be given back
    /// while the result is in use.
    #[inline]
    unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let start: NonNull<u8> = self.at(offset, len);
        // SAFETY: needed to lend a frame. In bounds (`at`); the caller guarantees that
        // nobody writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: needed to give the memory back. The range is the one that was mapped,
        // and every reference into it borrows `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

/// The ring that the kernel fills. It starts at the beginning of the mapping.
#[derive(Debug)]
enum ReceiveRing {
    V2(FrameRing),
    V3(BlockRing),
}

impl ReceiveRing {
    fn new(version: Version, shape: Shape) -> Self {
        match version {
            Version::V2 => Self::V2(FrameRing { shape, next: 0 }),
            Version::V3 => Self::V3(BlockRing {
                shape,
                block: 0,
                frame: 0,
                left: 0,
            }),
        }
    }

    #[inline]
    fn take(&mut self, map: &Map, max: usize, each: impl FnMut(&[u8])) -> usize {
        match self {
            Self::V2(ring) => ring.take(map, max, each),
            Self::V3(ring) => ring.take(map, max, each),
        }
    }

    #[inline]
    fn has_frames(&self, map: &Map) -> bool {
        match self {
            Self::V2(ring) => is_ours(map.word(ring.next * ring.shape.frame)),
            Self::V3(ring) => ring.left > 0 || is_ours(ring.status(map)),
        }
    }
}

/// The acquire pairs with the kernel's barrier before it sets the status: `smp_wmb` in
/// `__packet_set_status` (V2), `prb_flush_block` and `smp_wmb` in `prb_close_block` (V3).
/// The other bits (LOSING, CSUMNOTREADY, ...) only describe the frame.
#[inline]
fn is_ours(status: &AtomicU32) -> bool {
    status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
}

/// The release pairs with the kernel's read of the status before it reuses the memory
/// (`__packet_get_status`, `prb_queue_frozen`): our reads of the frame come first.
#[inline]
fn give_back(status: &AtomicU32) {
    status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
}

/// A V2 receive ring.
#[derive(Debug)]
struct FrameRing {
    shape: Shape,
    next: usize,
}

impl FrameRing {
    #[inline]
    fn take(&mut self, map: &Map, max: usize, mut each: impl FnMut(&[u8])) -> usize {
        for taken in 0..max {
            let frame = self.next * self.shape.frame;
            let status = map.word(frame + offset_of!(tpacket2_hdr, tp_status));
            if !is_ours(status) {
                return taken;
            }
            let len = map.word(frame + offset_of!(tpacket2_hdr, tp_snaplen));
            let mac = map.half(frame + offset_of!(tpacket2_hdr, tp_mac));
            let start = frame + usize::from(mac.load(Ordering::Relaxed));
            // SAFETY: needed to lend the frame. `is_ours` said so with acquire ordering,
            // and the frame is given back after `each` has returned the borrow.
            each(unsafe { map.bytes(start, len.load(Ordering::Relaxed) as usize) });
            give_back(status);
            self.next += 1;
            if self.next == self.shape.frames() {
                self.next = 0;
            }
        }
        max
    }
}

/// A V3 receive ring: the block being read, and how far it was read.
#[derive(Debug)]
struct BlockRing {
    shape: Shape,
    block: usize,
    /// Offset in the mapping of the next frame in this block.
    frame: usize,
    /// Frames of this block that were not taken yet; 0 if the block is the kernel's.
    left: u32,
}

const BLOCK_HEADER: usize = offset_of!(tpacket_block_desc, hdr);

impl BlockRing {
    #[inline]
    fn take(&mut self, map: &Map, max: usize, mut each: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < max && (self.left > 0 || self.enter(map)) {
            let word = |offset| map.word(self.frame + offset).load(Ordering::Relaxed) as usize;
            let len = word(offset_of!(tpacket3_hdr, tp_snaplen));
            let next = word(offset_of!(tpacket3_hdr, tp_next_offset));
            let mac = map.half(self.frame + offset_of!(tpacket3_hdr, tp_mac));
            let start = self.frame + usize::from(mac.load(Ordering::Relaxed));
            // SAFETY: needed to lend the frame. `enter` saw with acquire ordering that
            // its block is ours, and `leave` gives it back after the borrow has ended.
            each(unsafe { map.bytes(start, len) });
            taken += 1;
            self.frame += next;
            self.left -= 1;
            if self.left == 0 {
                self.leave(map);
            }
        }
        taken
    }

    /// Starts on the next block that has frames.
    fn enter(&mut self, map: &Map) -> bool {
        while is_ours(self.status(map)) {
            let header = self.block * self.shape.block + BLOCK_HEADER;
            let word = |offset| map.word(header + offset).load(Ordering::Relaxed);
            self.left = word(offset_of!(tpacket_hdr_v1, num_pkts));
            if self.left > 0 {
                let first = word(offset_of!(tpacket_hdr_v1, offset_to_first_pkt)) as usize;
                self.frame = self.block * self.shape.block + first;
                return true;
            }
            self.leave(map); // retired without a frame
        }
        false
    }

    fn leave(&mut self, map: &Map) {
        give_back(self.status(map));
        self.block += 1;
        if self.block == self.shape.blocks {
            self.block = 0;
        }
    }

    #[inline]
    fn status<'a>(&self, map: &'a Map) -> &'a AtomicU32 {
        let header = self.block * self.shape.block + BLOCK_HEADER;
        map.word(header + offset_of!(tpacket_hdr_v1, block_status))
    }
}

/// The ring that the kernel empties: frames of a fixed size in both versions.
#[derive(Debug)]
struct SendRing {
    shape: Shape,
    /// Where the ring starts in the mapping.
    base: usize,
    /// Where a frame's status, length and bytes are, from its start.
    status: usize,
    length: usize,
    data: usize,
    /// The next frame to push.
    head: usize,
    /// The oldest frame that was pushed and not reaped.
    tail: usize,
    in_flight: usize,
}

impl SendRing {
    fn new(version: Version, shape: Shape, base: usize) -> Self {
        // The kernel takes the bytes from where the header ends (`tpacket_parse_header`).
        let (status, length, data) = match version {
            Version::V2 => (
                offset_of!(tpacket2_hdr, tp_status),
                offset_of!(tpacket2_hdr, tp_len),
                size_of::<tpacket2_hdr>(),
            ),
            Version::V3 => (
                offset_of!(tpacket3_hdr, tp_status),
                offset_of!(tpacket3_hdr, tp_len),
                size_of::<tpacket3_hdr>(),
            ),
        };
        Self {
            shape,
            base,
            status,
            length,
            data,
            head: 0,
            tail: 0,
            in_flight: 0,
        }
    }

    #[inline]
    fn room(&self) -> usize {
        self.shape.frames() - self.in_flight
    }

    /// Whether frames wait for a kick.
    #[inline]
    fn needs_kick(&self, map: &Map) -> bool {
        if self.in_flight == 0 {
            return false;
        }
        let newest = self.head.checked_sub(1).unwrap_or(self.shape.frames() - 1);
        self.status(map, newest).load(Ordering::Relaxed) == libc::TP_STATUS_SEND_REQUEST
    }

    /// Gives a frame of `len` bytes, written by `write`, to the kernel. The caller made
    /// sure that there is room.
    #[inline]
    fn push(&mut self, map: &Map, len: usize, write: impl FnOnce(&mut [u8])) {
        self.write(map, self.head, len, write);
        let frame = self.base + self.head * self.shape.frame;
        let length = map.word(frame + self.length);
        length.store(len as u32, Ordering::Relaxed);
        // Pairs with `__packet_get_status` in `tpacket_snd`: the bytes and the length
        // are there before the request is.
        self.status(map, self.head)
            .store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.head = self.after(self.head);
        self.in_flight += 1;
    }

    /// Lends the bytes of a frame that is not in flight.
    #[inline]
    fn write(&mut self, map: &Map, frame: usize, len: usize, write: impl FnOnce(&mut [u8])) {
        assert!(self.room() > 0 && len <= self.shape.frame - self.data);
        let start: NonNull<u8> = map.at(self.base + frame * self.shape.frame + self.data, len);
        // SAFETY: needed to write a frame in place. In bounds (`at`). The kernel does not
        // use the frame: `push` names the head, which `room` says is not in flight (`reap`
        // saw it available with acquire ordering, or it was never pushed), and `prepare`
        // runs before any is. No other slice of this ring exists, since each is lent by
        // this function, which borrows the ring mutably until `write` is done; received
        // frames lie in the other ring.
        write(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) });
    }

    /// Counts the frames that the kernel is done with, in the order they were pushed.
    #[inline]
    fn reap(&mut self, map: &Map) -> io::Result<usize> {
        let before = self.in_flight;
        while self.in_flight > 0 {
            // Pairs with `__packet_set_status` in `tpacket_destruct_skb`: the kernel no
            // longer reads the bytes that the next push overwrites.
            match self.status(map, self.tail).load(Ordering::Acquire) {
                libc::TP_STATUS_AVAILABLE => {}
                status if status & libc::TP_STATUS_WRONG_FORMAT != 0 => {
                    return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
                }
                _ => break, // SEND_REQUEST or SENDING
            }
            self.tail = self.after(self.tail);
            self.in_flight -= 1;
        }
        Ok(before - self.in_flight)
    }

    #[inline]
    fn status<'a>(&self, map: &'a Map, frame: usize) -> &'a AtomicU32 {
        map.word(self.base + frame * self.shape.frame + self.status)
    }

    #[inline]
    fn after(&self, frame: usize) -> usize {
        if frame + 1 == self.shape.frames() {
            0
        } else {
            frame + 1
        }
    }
}

/// The kernel's side is played by the tests, on a memfd in place of a socket's rings.
#[cfg(test)]
mod tests {
    use super::*;
    use libc::{TP_STATUS_LOSING, TP_STATUS_SENDING, TP_STATUS_USER, TP_STATUS_WRONG_FORMAT};

    const SHAPE: Shape = Shape {
        block: 4096,
        blocks: 2,
        frame: 2048,
    };

    fn map(rings: usize) -> Map {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let fd = rustix::fs::memfd_create("tpacket-test", flags).expect("a memfd");
        let len = rings * SHAPE.len();
        rustix::fs::ftruncate(&fd, len as u64).expect("room");
        Map::new(fd.as_fd(), len).expect("a mapping")
    }

    fn store(map: &Map, offset: usize, value: u32) {
        map.word(offset).store(value, Ordering::Release);
    }

    fn load(map: &Map, offset: usize) -> u32 {
        map.word(offset).load(Ordering::Acquire)
    }

    fn takes(ring: &mut ReceiveRing, map: &Map, max: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let count = ring.take(map, max, |frame| frames.push(frame.to_vec()));
        assert_eq!(count, frames.len());
        frames
    }

    fn receive_v2(map: &Map, slot: usize, byte: u32, status: u32) {
        let frame = slot * SHAPE.frame;
        store(map, frame + offset_of!(tpacket2_hdr, tp_snaplen), 4);
        map.half(frame + offset_of!(tpacket2_hdr, tp_mac))
            .store(80, Ordering::Relaxed);
        store(map, frame + 80, byte * 0x0101_0101);
        store(map, frame, status);
    }

    #[test]
    fn v2_frames_are_taken_in_order_and_given_back() {
        let map = map(1);
        let mut ring = ReceiveRing::new(Version::V2, SHAPE);
        assert!(!ring.has_frames(&map));
        for lap in 0..3 {
            for slot in 0..4 {
                receive_v2(
                    &map,
                    slot,
                    lap + slot as u32,
                    TP_STATUS_USER | TP_STATUS_LOSING,
                );
            }
            assert!(ring.has_frames(&map));
            assert_eq!(takes(&mut ring, &map, 3).len(), 3);
            let last = vec![(lap + 3) as u8; 4];
            assert_eq!(takes(&mut ring, &map, 64), [last]);
            assert!((0..4).all(|slot| load(&map, slot * SHAPE.frame) == 0));
        }
    }

    fn receive_v3(map: &Map, block: usize, bytes: &[u32]) {
        let start = block * SHAPE.block;
        let mut frame = start + 64;
        for byte in bytes {
            store(map, frame + offset_of!(tpacket3_hdr, tp_next_offset), 128);
            store(map, frame + offset_of!(tpacket3_hdr, tp_snaplen), 4);
            map.half(frame + offset_of!(tpacket3_hdr, tp_mac))
                .store(82, Ordering::Relaxed);
            map.half(frame + 82)
                .store((byte * 0x0101) as u16, Ordering::Relaxed);
            map.half(frame + 84)
                .store((byte * 0x0101) as u16, Ordering::Relaxed);
            frame += 128;
        }
        let header = start + BLOCK_HEADER;
        store(
            map,
            header + offset_of!(tpacket_hdr_v1, num_pkts),
            bytes.len() as u32,
        );
        store(
            map,
            header + offset_of!(tpacket_hdr_v1, offset_to_first_pkt),
            64,
        );
        store(map, header, TP_STATUS_USER);
    }

    #[test]
    fn v3_blocks_are_read_across_batches_and_given_back_once_read() {
        let map = map(1);
        let mut ring = ReceiveRing::new(Version::V3, SHAPE);
        for lap in 0..3 {
            receive_v3(&map, 0, &[lap, 7, 8]);
            receive_v3(&map, 1, &[9]);
            assert_eq!(takes(&mut ring, &map, 2), [[lap as u8; 4], [7; 4]]);
            assert!(ring.has_frames(&map));
            assert_eq!(load(&map, BLOCK_HEADER), TP_STATUS_USER, "still being read");
            assert_eq!(takes(&mut ring, &map, 64), [[8; 4], [9; 4]]);
            assert_eq!(load(&map, BLOCK_HEADER), 0);
            assert_eq!(load(&map, SHAPE.block + BLOCK_HEADER), 0);
            assert!(!ring.has_frames(&map));
        }
    }

    #[test]
    fn an_empty_v3_block_is_passed_over() {
        let map = map(1);
        let mut ring = ReceiveRing::new(Version::V3, SHAPE);
        receive_v3(&map, 0, &[]);
        assert!(takes(&mut ring, &map, 64).is_empty());
        assert_eq!(load(&map, BLOCK_HEADER), 0);
        receive_v3(&map, 1, &[5]);
        assert_eq!(takes(&mut ring, &map, 64), [[5; 4]]);
    }

    #[test]
    fn sent_frames_are_reaped_in_order_when_the_kernel_is_done() {
        for version in [Version::V2, Version::V3] {
            let map = map(2);
            let mut ring = SendRing::new(version, SHAPE, SHAPE.len());
            let status = |slot: usize| ring.base + slot * SHAPE.frame + ring.status;
            let [first, second] = [status(0), status(1)];
            for byte in 1..=4 {
                ring.push(&map, 60, |frame| frame.fill(byte));
            }
            assert_eq!(ring.room(), 0);
            assert!(ring.needs_kick(&map));
            let data = ring.base + ring.data;
            assert_eq!(load(&map, data), 0x0101_0101);
            assert_eq!(load(&map, ring.base + ring.length), 60);
            assert_eq!(load(&map, first), libc::TP_STATUS_SEND_REQUEST);

            store(&map, second, libc::TP_STATUS_AVAILABLE);
            store(&map, first, TP_STATUS_SENDING);
            assert_eq!(
                ring.reap(&map).expect("no error"),
                0,
                "the first is on its way"
            );
            store(&map, first, libc::TP_STATUS_AVAILABLE);
            assert_eq!(ring.reap(&map).expect("no error"), 2);
            ring.push(&map, 61, |frame| frame.fill(5));
            assert_eq!(load(&map, data), 0x0505_0505, "the first place again");
            assert_eq!(ring.in_flight, 3);
        }
    }

    #[test]
    fn a_refused_frame_is_an_error() {
        let map = map(1);
        let mut ring = SendRing::new(Version::V2, SHAPE, 0);
        ring.push(&map, 60, |_| {});
        store(&map, 0, TP_STATUS_WRONG_FORMAT);
        let error = ring.reap(&map).expect_err("refused");
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn nothing_outside_the_mapping_is_lent() {
        let map = map(1);
        let mut ring = ReceiveRing::new(Version::V2, SHAPE);
        receive_v2(&map, 0, 1, TP_STATUS_USER);
        store(&map, offset_of!(tpacket2_hdr, tp_snaplen), u32::MAX);
        takes(&mut ring, &map, 1);
    }
}
