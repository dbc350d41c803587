//! AF_PACKET sockets that see whole frames, with the VLAN tag that the kernel took out of them.
//!
//! Unsafe code is needed because rustix has neither `sockaddr_ll`, nor the options of these sockets,
//! nor recvmmsg(2) and the control data that has the tag.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::{io, ptr};

use anyhow::{Context as _, Result};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};

/// The longest frame.
const ROOM: usize = 4096;
/// Frames of one call.
const MOST: usize = 32;
/// Control data: one `tpacket_auxdata` with its header.
const CONTROL: usize = 64;
/// Room for all outputs of a burst, however late this process gets its CPU.
const RECEIVE_BUFFER: usize = 32 << 20;

/// A socket that sends and receives on one device, and does not see what the device sends.
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Opens a socket of the calling thread's namespace. It receives the frames of one ethertype
    /// only, as a protocol does: those that are left when the bridge has taken its own.
    pub fn open(index: u32, ethertype: Option<u16>) -> Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol until it is bound, so that it receives nothing of other devices.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)
            .context("cannot open an AF_PACKET socket")?;
        set(&socket, libc::PACKET_AUXDATA)?;
        set(&socket, libc::PACKET_IGNORE_OUTGOING)?;
        set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)?;
        let all = eth::ALL.as_raw().get() as u16;
        bind(&socket, index, ethertype.map_or(all, u16::to_be))?;
        Ok(Self(socket))
    }

    /// Sends one frame.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // The first call after the device was down says so, though it is up again.
        if let Err(error) = rustix::io::write(&self.0, frame) {
            if error != Errno::NETDOWN {
                return Err(error.into());
            }
            rustix::io::write(&self.0, frame)?;
        }
        Ok(())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn set(socket: &OwnedFd, option: libc::c_int) -> Result<()> {
    let on: libc::c_int = 1;
    let length = size_of_val(&on) as libc::socklen_t;
    // SAFETY: needed because rustix lacks these options. Sound because the kernel reads `length`
    // bytes of an integer that lives until the call returns.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            option,
            (&raw const on).cast(),
            length,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("cannot set an option of an AF_PACKET socket"),
    }
}

/// `protocol` is in network byte order.
fn bind(socket: &OwnedFd, index: u32, protocol: u16) -> Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: needed because rustix has no such address. Sound because the kernel reads
    // `length` bytes of a structure that is as long and lives until the call returns.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()).context("cannot bind an AF_PACKET socket"),
    }
}

/// Control data, aligned as its header is.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Buffers for the frames of one call.
pub struct Batch {
    buffers: Vec<[u8; ROOM]>,
    controls: Vec<Control>,
}

impl Batch {
    pub fn new() -> Self {
        Self {
            buffers: vec![[0; ROOM]; MOST],
            controls: vec![Control([0; CONTROL]); MOST],
        }
    }

    /// Takes all frames that are there, each with its VLAN tag in its place.
    pub fn drain(
        &mut self,
        socket: &PacketSocket,
        mut each: impl FnMut(Vec<u8>),
    ) -> io::Result<()> {
        while self.receive(socket, &mut each)? == MOST {}
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
                error if error.raw_os_error() == Some(libc::ENETDOWN) => Ok(MOST),
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
    // `cmsg_level` and `cmsg_type` are behind the length; then `struct tpacket_auxdata`.
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
