//! The kernel's socket, which its receiving and its sending side share.

use super::kernel_side::KernelSide;
use super::mode::{ModeObtained, Refusal};
use crate::delay::{self, Point};
use crate::program::Program;
use crate::sys::{Kernel, KernelSocket};
use crate::umem::{AfterClose, RingsLease};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A bound socket. It ends when both sides have left the XSKMAPs and unmapped their rings.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) binding: Binding,
    /// Closed before the lease ends, which frees the chunks.
    socket: Option<Arc<dyn KernelSocket>>,
    counters: KernelSide,
    kernel: Arc<dyn Kernel>,
    /// Whether an XSKMAP may ever have had it or a sibling.
    receives: AtomicBool,
    /// Whether the kernel still sends packets.
    sends: AtomicBool,
    lease: RingsLease,
}

/// The mode of a bound socket, and the refusals of better ones.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) mode: ModeObtained,
    pub(crate) refusals: Vec<Refusal>,
    /// The program given to a socket that only sends, and that of each zero-copy socket: Intel's drivers
    /// send in this mode only while the device has one, also when the receiving half is gone.
    pub(crate) program: Option<Program>,
}

impl Bound {
    pub(crate) fn new(
        kernel: &Arc<dyn Kernel>,
        socket: &Arc<dyn KernelSocket>,
        lease: RingsLease,
        binding: Binding,
    ) -> Self {
        lease.umem().registry().lend(socket);
        Self {
            binding,
            socket: Some(Arc::clone(socket)),
            counters: KernelSide::new(socket),
            kernel: Arc::clone(kernel),
            receives: AtomicBool::new(false),
            sends: AtomicBool::new(false),
            lease,
        }
    }

    /// The kernel that it is a socket of.
    pub(crate) fn kernel(&self) -> &Arc<dyn Kernel> {
        &self.kernel
    }

    /// The kernel's counters.
    pub(super) fn counters(&self) -> &KernelSide {
        &self.counters
    }

    /// The registration of its rings.
    pub(crate) fn lease(&self) -> &RingsLease {
        &self.lease
    }

    /// Says that it, or a sibling, has an RX ring, and so can be in XSKMAPs.
    pub(super) fn note_receiving(&self) {
        self.receives.store(true, Ordering::Relaxed);
    }

    /// Says that the kernel was still sending packets when the sending side ended.
    pub(super) fn leave_sending(&self) {
        self.sends.store(true, Ordering::Relaxed);
    }

    /// The access that the kernel has to the chunks after the close.
    ///
    /// In copy mode it writes to chunks for a packet that an XDP program redirects, and the socket has
    /// left the maps. Of packets that are redirected at this moment, the last is written when the
    /// readers have ended. So it does not matter who else holds the socket: a child that another
    /// thread has forked has copies of all descriptors until it executes a program.
    ///
    /// Chunks that another process has never come back here: nothing is to wait for.
    fn access_after_close(&self) -> AfterClose {
        if self.binding.mode == ModeObtained::ZeroCopy || self.lease.umem().is_handed_over() {
            return AfterClose::MayTouchAll;
        }
        let receives = self.receives.load(Ordering::Relaxed);
        if receives && self.kernel.wait_for_readers().is_err() {
            AfterClose::MayTouchAll
        } else if self.sends.load(Ordering::Relaxed) {
            AfterClose::MaySend
        } else {
            AfterClose::LetGo
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(socket) = self.socket.take() {
            self.lease.umem().registry().stop_lending(&socket);
            self.counters.close(&*socket);
            // The last reference: closes it.
            drop(socket);
            delay::at(Point::Closed);
        }
        self.lease.set_after_close(self.access_after_close());
    }
}
