//! A FUSE filesystem with one file, whose server can stop answering (`include/uapi/linux/fuse.h`).

use crate::supervised::Result;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::JoinHandle;
use testkit::Skip;

/// `struct fuse_in_header`, and where its fields are.
const HEADER: usize = 40;
const OPCODE: usize = 4;
const UNIQUE: usize = 8;
const NODE: usize = 16;

/// Answers of which nothing else needs a constant.
const ENOSYS: i32 = -libc::ENOSYS;

/// A mounted file; dropped, all that waits for it fails.
pub struct Fuse {
    directory: PathBuf,
    state: Arc<State>,
    server: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// Whether the server answers nothing more.
    is_frozen: AtomicBool,
    /// Requests that wait since.
    waiting: AtomicUsize,
    is_over: AtomicBool,
}

impl Fuse {
    /// Mounts it for a user, as fusermount3(1) does with `allow_other`, at a directory that is made.
    pub fn mount(directory: &Path, user: u32, content: Vec<u8>) -> Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = open("/dev/fuse", flags, Mode::empty())
            .map_err(|errno| Skip::new(format!("needs /dev/fuse: {errno}")))?;
        std::fs::create_dir_all(directory)?;
        let options = format!(
            "fd={},rootmode=40000,user_id={user},group_id={user},max_read=4096,allow_other",
            device.as_raw_fd()
        );
        let options = CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        mount("test", directory, "fuse", flags, options.as_c_str())?;
        let state: Arc<State> = Arc::default();
        let of_server = Arc::clone(&state);
        let server = std::thread::spawn(move || serve(&device, &of_server, &content));
        Ok(Self {
            directory: directory.to_owned(),
            state,
            server: Some(server),
        })
    }

    /// Answers nothing from here on.
    pub fn freeze(&self) {
        self.state.is_frozen.store(true, SeqCst);
    }

    /// Requests without an answer.
    pub fn waiting(&self) -> usize {
        self.state.waiting.load(SeqCst)
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.state.is_over.store(true, SeqCst);
        if let Some(server) = self.server.take() {
            // The end of its device fails all requests.
            let _ = server.join();
        }
        let _ = unmount(&self.directory, UnmountFlags::DETACH);
    }
}

fn serve(device: &OwnedFd, state: &State, content: &[u8]) {
    let mut request = vec![0; 1 << 17];
    let tick = Timespec {
        tv_sec: 0,
        tv_nsec: 20_000_000,
    };
    while !state.is_over.load(SeqCst) {
        let mut fds = [PollFd::new(device, PollFlags::IN)];
        if poll(&mut fds, Some(&tick)) == Ok(0) {
            continue;
        }
        let Ok(len) = rustix::io::read(device, &mut request) else {
            return;
        };
        let request = request.get(..len).unwrap_or_default();
        if let Some(answer) = answer(state, request, content) {
            // Its caller may have left.
            let _ = rustix::io::write(device, &answer);
        }
    }
}

fn number<const N: usize>(request: &[u8], at: usize) -> [u8; N] {
    let field = request.get(at..at + N).unwrap_or_default();
    field.try_into().unwrap_or([0; N])
}

/// The answer to a request; none for those that have none.
fn answer(state: &State, request: &[u8], content: &[u8]) -> Option<Vec<u8>> {
    let opcode = u32::from_ne_bytes(number(request, OPCODE));
    // FORGET, INTERRUPT, BATCH_FORGET.
    if matches!(opcode, 2 | 36 | 42) {
        return None;
    }
    if state.is_frozen.load(SeqCst) {
        state.waiting.fetch_add(1, SeqCst);
        return None;
    }
    let node = u64::from_ne_bytes(number(request, NODE));
    let (error, body) = match opcode {
        // INIT: version 7.31, the rest zero but for the largest write.
        26 => {
            let words = [7_u32, 31, 4096, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            (
                0,
                words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            )
        }
        // LOOKUP: node 2, valid for a long time, with attributes that are asked for each time.
        1 => {
            let words = [2_u64, 0, 1000, 0, 0];
            let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            body.extend(attributes(2, content.len()));
            (0, body)
        }
        // GETATTR.
        3 => {
            let mut body = vec![0; 16];
            body.extend(attributes(node, content.len()));
            (0, body)
        }
        // OPEN, OPENDIR.
        14 | 27 => (0, vec![0; 16]),
        // READ: of the handle, at an offset, some bytes.
        15 => {
            let at = u64::from_ne_bytes(number(request, HEADER + 8)) as usize;
            let len = u32::from_ne_bytes(number(request, HEADER + 16)) as usize;
            let end = (at + len).min(content.len());
            (0, content.get(at..end).unwrap_or_default().to_vec())
        }
        // FLUSH, RELEASE, RELEASEDIR.
        18 | 25 | 29 => (0, Vec::new()),
        _ => (ENOSYS, Vec::new()),
    };
    let mut answer = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    answer.extend(error.to_ne_bytes());
    answer.extend(number::<8>(request, UNIQUE));
    answer.extend(body);
    Some(answer)
}

/// `struct fuse_attr` of the root, or of the file.
fn attributes(node: u64, len: usize) -> Vec<u8> {
    let (mode, size) = if node == 1 {
        (libc::S_IFDIR | 0o755, 0)
    } else {
        (libc::S_IFREG | 0o755, len as u64)
    };
    let wide = [node, size, size.div_ceil(512), 0, 0, 0];
    // Nanoseconds; mode, links, owner, group, device, block size, flags.
    let narrow = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    let mut bytes: Vec<u8> = wide.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(narrow.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}
