//! AF_PACKET sockets: whole frames, sent and received on one device.
//!
//! Unsafe code is needed because rustix has neither `sockaddr_ll`, nor the options of these sockets, nor recvmmsg(2) and
//! the control data that has a VLAN tag.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;
use std::{io, ptr};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The longest frame of a [`Batch`].
const ROOM: usize = 4096;
/// Frames of one call.
const BATCH: usize = 32;
/// Control data: one `tpacket_auxdata` with its header.
const CONTROL: usize = 64;

/// A socket that sends and receives on one device.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

/// The settings of a [`PacketSocket`].
#[derive(Debug, Clone, Copy)]
#[must_use = "`open` makes the socket"]
pub struct Options {
    index: u32,
    protocol: u16,
    buffer: usize,
    ring: u32,
    sees_outgoing: bool,
    has_tags: bool,
    waits: bool,
}

impl PacketSocket {
    /// The settings of a socket on the device of this index: it gets every frame, those that other sockets send on the device
    /// included, in a queue of 64 MiB, so that a reader that has to wait for its CPU loses none.
    pub const fn on(index: u32) -> Options {
        Options {
            index,
            protocol: libc::ETH_P_ALL as u16,
            buffer: 64 << 20,
            ring: 0,
            sees_outgoing: true,
            has_tags: false,
            waits: true,
        }
    }

    /// Sends a frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // The first call after the device was down says so, though it is up again.
        let sent = match rustix::io::write(&self.0, frame) {
            Err(Errno::NETDOWN) => rustix::io::write(&self.0, frame),
            sent => sent,
        };
        sent?;
        Ok(())
    }

    /// The next frame; `None` if none comes in time. A socket that does not wait returns at once.
    pub fn receive<'b>(
        &self,
        buffer: &'b mut [u8],
        wait: Duration,
    ) -> io::Result<Option<&'b [u8]>> {
        set_socket_timeout(&self.0, Timeout::Recv, Some(wait))?;
        // signal(7): a receive with a timeout is interrupted by signals that restart others.
        let received = rustix::io::retry_on_intr(|| rustix::io::read(&self.0, &mut *buffer));
        match received {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<PacketSocket> for OwnedFd {
    fn from(socket: PacketSocket) -> Self {
        socket.0
    }
}

impl Options {
    /// Receives frames of this EtherType alone, as a protocol does: those that are left when a bridge has taken its own.
    pub const fn protocol(self, protocol: u16) -> Self {
        Self { protocol, ..self }
    }

    /// Receives nothing.
    pub const fn sending_only(self) -> Self {
        self.protocol(0)
    }

    /// The queue has room for `buffer` bytes.
    pub const fn buffer(self, buffer: usize) -> Self {
        Self { buffer, ..self }
    }

    /// Receives into a ring of `frames` frames of 2048 bytes, which fill whole pages (`TPACKET_V2`).
    pub const fn ring(self, frames: u32) -> Self {
        Self {
            ring: frames,
            ..self
        }
    }

    /// Does not see what is sent on the device.
    pub const fn ignoring_outgoing(self) -> Self {
        Self {
            sees_outgoing: false,
            ..self
        }
    }

    /// Has a [`Batch`] put the VLAN tag that the kernel took out of a frame back in its place.
    pub const fn with_tags(self) -> Self {
        Self {
            has_tags: true,
            ..self
        }
    }

    /// Neither a receive nor a send waits.
    pub const fn nonblocking(self) -> Self {
        Self {
            waits: false,
            ..self
        }
    }

    /// Opens the socket in the namespace of the calling thread.
    pub fn open(self) -> io::Result<PacketSocket> {
        let mut flags = SocketFlags::CLOEXEC;
        flags.set(SocketFlags::NONBLOCK, !self.waits);
        // Without a protocol until it is bound, so that it receives nothing of other devices.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        set_socket_recv_buffer_size_force(&socket, self.buffer)?;
        if self.has_tags {
            set_option(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1_i32)?;
        }
        if !self.sees_outgoing {
            set_option(
                &socket,
                libc::SOL_PACKET,
                libc::PACKET_IGNORE_OUTGOING,
                &1_i32,
            )?;
        }
        if self.ring > 0 {
            make_ring(&socket, self.ring)?;
        }
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: self.protocol.to_be(),
            sll_ifindex: self.index.cast_signed(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 0,
            sll_addr: [0; 8],
        };
        bind(&socket, &address)?;
        Ok(PacketSocket(socket))
    }
}

fn make_ring(socket: &OwnedFd, frames: u32) -> io::Result<()> {
    const FRAME: u32 = 2048;
    // The kernel takes blocks of whole pages.
    let block = u32::try_from(rustix::param::page_size()).map_err(io::Error::other)?;
    let version: libc::c_int = 1; // TPACKET_V2
    set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
    let request = libc::tpacket_req {
        tp_block_size: block,
        tp_block_nr: frames * FRAME / block,
        tp_frame_size: FRAME,
        tp_frame_nr: frames,
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

/// Sets an option of a socket that rustix lacks.
pub fn set_option<T: Copy>(
    socket: impl AsFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: needed as rustix lacks these options. Sound because the kernel reads `length` bytes of a value that lives
    // until the call returns.
    let result =
        unsafe { libc::setsockopt(fd, level, option, ptr::from_ref(value).cast(), length) };
    done(result)
}

/// Binds a socket to an address that rustix lacks.
pub fn bind<T: Copy>(socket: impl AsFd, address: &T) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: needed as rustix lacks these addresses. Sound because the kernel reads `length` bytes of a structure that
    // lives until the call returns.
    let result = unsafe { libc::bind(fd, ptr::from_ref(address).cast(), length) };
    done(result)
}

fn done(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Control data, aligned as its header is.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Buffers for the frames of one call.
#[derive(Debug)]
pub struct Batch {
    buffers: Vec<[u8; ROOM]>,
    controls: Vec<Control>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Room for 32 frames of 4096 bytes.
    pub fn new() -> Self {
        Self {
            buffers: vec![[0; ROOM]; BATCH],
            controls: vec![Control([0; CONTROL]); BATCH],
        }
    }

    /// Takes all frames that are there, each with its VLAN tag in its place if the socket is one
    /// [with tags](Options::with_tags).
    pub fn drain(
        &mut self,
        socket: &PacketSocket,
        mut each: impl FnMut(Vec<u8>),
    ) -> io::Result<()> {
        while self.receive(socket, &mut each)? == BATCH {}
        Ok(())
    }

    fn receive(
        &mut self,
        socket: &PacketSocket,
        each: &mut impl FnMut(Vec<u8>),
    ) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = self
            .buffers
            .iter_mut()
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: ROOM,
            })
            .collect();
        let mut messages: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .zip(&mut self.controls)
            .map(|(part, control)| message(part, control))
            .collect();
        // SAFETY: needed because rustix has no such call. The kernel reads as many structures as
        // are counted, and writes to the buffers that they name, with their true lengths. All of
        // them live until the call returns, and nothing else refers to the buffers meanwhile.
        let count = unsafe {
            libc::recvmmsg(
                socket.0.as_raw_fd(),
                messages.as_mut_ptr(),
                messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        if count < 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                // A device that went down says so once.
                error if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(BATCH),
                error => Err(error),
            };
        }
        let lengths = messages.iter().take(count as usize).map(|message| {
            #[allow(clippy::unnecessary_cast)] // musl has another type
            let control = message.msg_hdr.msg_controllen as usize;
            (message.msg_len as usize, control.min(CONTROL))
        });
        let lengths: Vec<(usize, usize)> = lengths.collect();
        for (at, (length, control)) in lengths.into_iter().enumerate() {
            let frame = &self.buffers[at][..length.min(ROOM)];
            each(with_tag(frame, tag(&self.controls[at].0[..control])));
        }
        Ok(count as usize)
    }
}

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::mmsghdr {
    // SAFETY: needed because musl's structure has private padding, so it has no literal. It is of
    // integers and pointers, for which zeros are valid: no name.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_iov = part;
    message.msg_hdr.msg_iovlen = 1;
    message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
    message.msg_hdr.msg_controllen = CONTROL as _;
    message
}

/// The tag of a frame: its ethertype and TCI.
fn tag(control: &[u8]) -> Option<(u16, u16)> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let word = |at: usize| {
        control
            .get(at..at + 2)?
            .try_into()
            .ok()
            .map(u16::from_ne_bytes)
    };
    let long = |at: usize| {
        control
            .get(at..at + 4)?
            .try_into()
            .ok()
            .map(u32::from_ne_bytes)
    };
    // `cmsg_level` and `cmsg_type` are after the length; then `struct tpacket_auxdata`.
    let is_auxdata = long(HEADER - 8)? == libc::SOL_PACKET.cast_unsigned()
        && long(HEADER - 4)? == libc::PACKET_AUXDATA.cast_unsigned();
    let status = long(HEADER)?;
    if !is_auxdata || status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let tci = word(HEADER + 16)?;
    let ethertype = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
        0x8100
    } else {
        word(HEADER + 18)?
    };
    Some((ethertype, tci))
}

fn with_tag(frame: &[u8], tag: Option<(u16, u16)>) -> Vec<u8> {
    let Some((ethertype, tci)) = tag.filter(|_| frame.len() >= 12) else {
        return frame.to_vec();
    };
    let (addresses, rest) = frame.split_at(12);
    [
        addresses,
        &ethertype.to_be_bytes(),
        &tci.to_be_bytes(),
        rest,
    ]
    .concat()
}
