//! UMEMs made before they are asked for: clearing memory takes longer than all else.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use xsk::{Umem, UmemBuilder};

/// Most bytes of a UMEM that is kept in stock.
const MOST: u64 = 16 << 20;

/// Time until a lease is answered: making and unmapping memory would hold it up.
const ANSWER: Duration = Duration::from_millis(5);

/// Chunks and bytes of each.
type Size = (u32, u32);

/// Work of the thread.
enum Work {
    Make(Size),
    Unmap(Umem),
}

/// One spare UMEM, of the size that was asked for last.
#[derive(Debug, Default)]
pub(super) struct Stock {
    spare: Arc<Mutex<Option<Umem>>>,
    maker: OnceLock<Sender<Work>>,
}

impl Stock {
    /// A UMEM of this size.
    ///
    /// # Errors
    ///
    /// As those of [`xsk::UmemBuilder::build`].
    pub(super) fn take(&self, chunks: u32, chunk_size: u32) -> xsk::Result<Umem> {
        let spare = lock(&self.spare).take();
        let umem = match spare {
            Some(umem) if (umem.chunks(), umem.chunk_size()) == (chunks, chunk_size) => umem,
            _ => builder(chunks, chunk_size).build()?,
        };
        if u64::from(chunks) * u64::from(chunk_size) <= MOST {
            self.leave(Work::Make((chunks, chunk_size)));
        }
        Ok(umem)
    }

    /// Unmaps a UMEM that a tenant has, behind the answer.
    pub(super) fn discard(&self, umem: Umem) {
        self.leave(Work::Unmap(umem));
    }

    fn leave(&self, work: Work) {
        // Without the thread, memory is made when it is asked for, and unmapped at once.
        let _ = self.maker.get_or_init(|| start(&self.spare)).send(work);
    }
}

fn builder(chunks: u32, chunk_size: u32) -> UmemBuilder {
    Umem::builder().chunks(chunks).chunk_size(chunk_size)
}

/// Starts the thread that makes spare ones.
fn start(spare: &Arc<Mutex<Option<Umem>>>) -> Sender<Work> {
    let (sender, asked) = channel::<Work>();
    let spare = Arc::clone(spare);
    let serve = move || {
        while let Ok(first) = asked.recv() {
            std::thread::sleep(ANSWER);
            let mut wanted = None;
            for work in std::iter::once(first).chain(asked.try_iter()) {
                match work {
                    // The last one counts.
                    Work::Make(size) => wanted = Some(size),
                    Work::Unmap(umem) => drop(umem),
                }
            }
            if let Some((chunks, chunk_size)) = wanted {
                // Nobody waits for it.
                let umem = builder(chunks, chunk_size).collapse(true).build().ok();
                *lock(&spare) = umem;
            }
        }
    };
    let _ = std::thread::Builder::new()
        .name("stock".into())
        .stack_size(256 << 10)
        .spawn(serve);
    sender
}

fn lock(spare: &Mutex<Option<Umem>>) -> std::sync::MutexGuard<'_, Option<Umem>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}
