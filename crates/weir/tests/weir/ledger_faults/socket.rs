//! Sockets that neither the standard library nor rustix offers.
//!
//! Unsafe code is needed for AF_XDP without a library that keeps its rings full.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;

use anyhow::{Context as _, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use testkit::packet::{bind, set_option};

/// `struct xdp_umem_reg` up to `flags`, of `linux/if_xdp.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct UmemRegistration {
    address: u64,
    length: u64,
    chunk_size: u32,
    headroom: u32,
    flags: u32,
    tx_metadata: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct XdpAddress {
    family: u16,
    flags: u16,
    device: u32,
    queue: u32,
    shared: u32,
}

const SOL_XDP: libc::c_int = 283;
const XDP_MMAP_OFFSETS: libc::c_int = 1;
const XDP_RX_RING: libc::c_int = 2;
const XDP_UMEM_REG: libc::c_int = 4;
const XDP_UMEM_FILL_RING: libc::c_int = 5;
const XDP_UMEM_COMPLETION_RING: libc::c_int = 6;
const XDP_COPY: u16 = 1 << 1;
const FILL_PAGE: libc::off_t = 0x1_0000_0000;
const CHUNK: u32 = 2048;
const CHUNKS: u32 = 128;

/// An AF_XDP socket that is left to itself: it reads nothing, and FILL has its first chunks.
pub struct XdpSocket {
    socket: OwnedFd,
    _memory: Mapping,
}

impl XdpSocket {
    /// Binds one to queue 0 of a device, in copy mode, with an RX ring of `rx` slots and `fill` chunks in FILL.
    pub fn open(index: u32, rx: u32, fill: u32) -> Result<Self> {
        let socket = socket_with(
            AddressFamily::XDP,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )
        .context("cannot open an AF_XDP socket")?;
        let length = (CHUNK * CHUNKS) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let memory = Mapping::new(length, flags, None, 0)?;
        let registration = UmemRegistration {
            address: memory.at as u64,
            length: length as u64,
            chunk_size: CHUNK,
            headroom: 0,
            flags: 0,
            tx_metadata: 0,
        };
        set_option(&socket, SOL_XDP, XDP_UMEM_REG, &registration)?;
        set_option(&socket, SOL_XDP, XDP_UMEM_FILL_RING, &CHUNKS)?;
        set_option(&socket, SOL_XDP, XDP_UMEM_COMPLETION_RING, &CHUNKS)?;
        set_option(&socket, SOL_XDP, XDP_RX_RING, &rx)?;
        if fill > 0 {
            fill_ring(&socket, fill)?;
        }
        let address = XdpAddress {
            family: libc::AF_XDP as u16,
            flags: XDP_COPY,
            device: index,
            queue: 0,
            shared: 0,
        };
        bind(&socket, &address)?;
        Ok(Self {
            socket,
            _memory: memory,
        })
    }

    /// Its descriptor, for a map of sockets.
    pub fn descriptor(&self) -> u32 {
        self.socket.as_raw_fd().cast_unsigned()
    }
}

/// Puts the first chunks into FILL. The ring is unmapped again: nobody else uses it.
fn fill_ring(socket: &OwnedFd, chunks: u32) -> Result<()> {
    /// Offsets of producer, consumer, descriptors and flags of each of the four rings: RX, TX, FILL, COMPLETION.
    type Offsets = [[u64; 4]; 4];
    const FILL: usize = 2;
    let mut offsets: Offsets = [[0; 4]; 4];
    let mut length = size_of::<Offsets>() as libc::socklen_t;
    // SAFETY: needed as rustix has no such option. The kernel writes at most `length` bytes to `offsets`, which has
    // as many.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_XDP,
            XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error()).context("cannot read the offsets of the rings");
    }
    let [producer, _, descriptors, _] = offsets[FILL];
    let length = descriptors as usize + CHUNKS as usize * size_of::<u64>();
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    let ring = Mapping::new(length, flags, Some(socket), FILL_PAGE)?;
    // SAFETY: needed to write into the ring. The mapping has so many bytes, and lives as long as the slice; the kernel
    // reads them only from bind(2) on, which comes later.
    let bytes = unsafe { std::slice::from_raw_parts_mut(ring.at, ring.length) };
    for (chunk, slot) in (0..chunks).zip(bytes[descriptors as usize..].chunks_exact_mut(8)) {
        slot.copy_from_slice(&u64::from(chunk * CHUNK).to_ne_bytes());
    }
    let producer = producer as usize;
    bytes[producer..producer + 4].copy_from_slice(&chunks.to_ne_bytes());
    Ok(())
}

struct Mapping {
    at: *mut u8,
    length: usize,
}

// SAFETY: needed to move a socket to another thread. Nothing in the mapping belongs to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(length: usize, flags: i32, of: Option<&OwnedFd>, offset: libc::off_t) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = of.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: needed for memory and rings of sockets. The kernel chooses a place that is not in use.
        let at = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map memory");
        }
        Ok(Self {
            at: at.cast(),
            length,
        })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: needed to give the memory back. It was mapped with this length, and nothing refers to it.
        unsafe { libc::munmap(self.at.cast(), self.length) };
    }
}

/// Has a filter of a socket refuse everything.
pub fn refuse_all(socket: impl AsFd) -> Result<()> {
    // BPF_RET | BPF_K with 0: keep no byte.
    let mut program = [libc::sock_filter {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0,
    }];
    let program = libc::sock_fprog {
        len: 1,
        filter: program.as_mut_ptr(),
    };
    Ok(set_option(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        &program,
    )?)
}

/// The most bytes of a socket's receive queue, beyond the limit of the host.
pub fn set_receive_buffer(socket: impl AsFd, bytes: i32) -> Result<()> {
    Ok(set_option(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        &bytes,
    )?)
}

/// Cuts sent data into datagrams of so many bytes.
pub fn set_segment(socket: impl AsFd, bytes: i32) -> Result<()> {
    const UDP_SEGMENT: libc::c_int = 103;
    Ok(set_option(&socket, libc::SOL_UDP, UDP_SEGMENT, &bytes)?)
}

/// The queue of connections of a listener.
pub fn set_backlog(socket: impl AsFd, connections: i32) -> Result<()> {
    rustix::net::listen(socket, connections).context("cannot set the backlog")
}
