//! The BPF programs that are compiled from `bpf/` into `weir`. Only this module uses libbpf.
//!
//! Descriptors and a `bpf_link` hold programs and maps, so that the kernel removes them when the
//! process ends, however it ends.
//!
//! Unsafe code is needed for the calls of libbpf that libbpf-rs has no wrapper for.
#![allow(unsafe_code)]

pub mod hook;
pub mod kernel_types;
pub mod layout;
pub mod perf_event;
pub mod symbols;

use std::ffi::{OsStr, c_void};
use std::io::Read as _;
use std::marker::PhantomData;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use std::{io, ptr, slice};

use anyhow::{Context as _, Result, anyhow, ensure};
use libbpf_rs::btf::Btf;
use libbpf_rs::query::{MapInfoIter, ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{
    AsRawLibbpf as _, ErrorKind, Iter, Link, MapCore as _, MapFlags, MapHandle, MapType,
    ObjectBuilder, OpenMapMut, OpenObject, ProgramInput, ProgramMut, RingBufferBuilder, libbpf_sys,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mm::{MapFlags as Mmap, ProtFlags, mmap, munmap};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use hostnet::cpulist::CpuList;
use hostnet::privilege::{self, Capability, Feature};
use layout::{Constants, Layout};

/// `BPF_F_TEST_RUN_ON_CPU` of linux/bpf.h.
const RUN_ON_CPU: u32 = 1 << 0;
/// `BPF_F_TEST_XDP_LIVE_FRAMES` of linux/bpf.h: redirected frames are really sent.
const LIVE_FRAMES: u32 = 1 << 1;
/// Runs of the program in one system call, for an endless load. Nothing is sent while a call is set
/// up and torn down (10 to 100 us measured on Linux 6.18, tens of milliseconds on others), so one
/// call should last for a whole load: at 10 million runs a second this one takes 200 s. A signal
/// ends it at once.
pub const ENDLESS: u32 = 1 << 31;
/// Entries of a map that are read in one system call.
const BATCH: u32 = 4096;

/// A file of `bpf/`, compiled.
pub struct Object {
    /// The file's name, without `.bpf.c`.
    pub name: &'static str,
    /// The ELF file that clang made.
    pub bytes: &'static [u8],
    /// The first kernel version for its programs, and the feature that needs it.
    pub needs: &'static str,
    /// The structures that its header shares.
    pub layouts: &'static [Layout],
    /// The constants that its header shares.
    pub constants: &'static [Constants],
    /// Arrays whose size in C is that for one CPU.
    pub arrays_by_cpu: &'static [&'static str],
}

/// The programs and maps of an [`Object`], loaded into the kernel.
#[must_use = "the kernel frees programs and maps when this is dropped"]
pub struct Programs {
    object: libbpf_rs::Object,
    about: &'static Object,
    /// The names of the programs that were loaded.
    names: Vec<String>,
}

/// An attached program.
#[must_use = "the program is detached when this is dropped"]
pub struct Attached {
    _link: Link,
}

/// The run time of a program: see [`count_run_time`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Measured runs.
    pub count: u64,
    /// Nanoseconds in them.
    pub ns: u64,
}

impl Object {
    /// Reads the object, and checks its structures and constants.
    fn open(&self) -> Result<OpenObject> {
        let name = self.name;
        let object = ObjectBuilder::default()
            .open_memory(self.bytes)
            .with_context(|| format!("cannot read {name}.bpf.o of this program"))?;
        self.check()
            .with_context(|| format!("{name}.bpf.o is of another build than this program"))?;
        Ok(object)
    }

    /// Compares the structures and constants that this program and the object share.
    ///
    /// # Errors
    ///
    /// Names the first difference.
    pub fn check(&self) -> Result<()> {
        let types = Btf::from_raw(self.name, self.bytes)
            .context("its types cannot be read")?
            .context("it has no types")?;
        for layout in self.layouts {
            layout.check(&types)?;
        }
        for constants in self.constants {
            constants.check(&types)?;
        }
        Ok(())
    }
}

fn map_of<'o>(object: &'o mut OpenObject, name: &str) -> Result<OpenMapMut<'o>> {
    object
        .maps_mut()
        .find(|map| map.name() == name)
        .with_context(|| format!("there is no map {name}"))
}

fn size_by_cpu(object: &mut OpenObject, name: &str) -> Result<()> {
    let mut map = map_of(object, name)?;
    // Their numbers may have gaps.
    let last = CpuList::possible()?.as_slice().last().copied();
    let cpus = last.context("no CPU is possible")? + 1;
    map.set_max_entries(map.max_entries() * cpus as u32)
        .with_context(|| format!("cannot set the size of the map {name}"))
}

impl Programs {
    /// Loads the programs of an object for which `wanted` is true. `constants` are the bytes of its
    /// constants (`const volatile` in C), if it has any.
    pub fn load(
        about: &'static Object,
        constants: Option<&[u8]>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        Self::load_sized(about, constants, &[], wanted)
    }

    /// As [`Programs::load`], with maps of other sizes than in the object: the most entries of each.
    pub fn load_sized(
        about: &'static Object,
        constants: Option<&[u8]>,
        sizes: &[(&str, u32)],
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self> {
        // libbpf prints nothing, as our errors include its own; with `WEIR_BPF_LOG` set it prints
        // everything, with the verifier's log.
        if std::env::var_os("WEIR_BPF_LOG").is_none() {
            libbpf_rs::set_print(None);
        }
        let mut object = about.open()?;
        for name in about.arrays_by_cpu {
            size_by_cpu(&mut object, name)?;
        }
        for (name, entries) in sizes {
            map_of(&mut object, name)?
                .set_max_entries(*entries)
                .with_context(|| format!("cannot set the size of the map {name}"))?;
        }
        if let Some(constants) = constants {
            object
                .maps_mut()
                .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
                .with_context(|| format!("{}.bpf.o has no constants", about.name))?
                .set_initial_value(constants)
                .with_context(|| format!("{}.bpf.o has other constants", about.name))?;
        }
        let mut names = Vec::new();
        let mut capabilities = Vec::new();
        for mut program in object.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            if wanted(&name) {
                names.push(name);
                for capability in needed(program.section()) {
                    if !capabilities.contains(&capability) {
                        capabilities.push(capability);
                    }
                }
            } else {
                program.set_autoload(false);
            }
        }
        let object = object.load().map_err(|error| {
            // Without it the verifier refuses some of the network's programs: those that subtract pointers, for instance.
            if privilege::missing(&capabilities).is_none()
                && !capabilities.contains(&Capability::Perfmon)
            {
                capabilities.push(Capability::Perfmon);
            }
            let cure = refusal(&error, &capabilities).unwrap_or_else(|| match error.kind() {
                ErrorKind::Unsupported => "this kernel has no BPF (CONFIG_BPF_SYSCALL)".to_owned(),
                _ => format!(
                    "this kernel may lack a feature, it needs {}; WEIR_BPF_LOG=1 shows the details",
                    about.needs
                ),
            });
            anyhow!(error).context(format!(
                "cannot load the BPF programs of bpf/{}.bpf.c: {cure}",
                about.name
            ))
        })?;
        Ok(Self {
            object,
            about,
            names,
        })
    }

    /// Runs an XDP program on `count` frames, each a copy of `frame` at first, or until a signal.
    /// Frames that it redirects are really sent.
    pub fn run_on_live_frames(&self, name: &str, frame: &[u8], count: u32) -> Result<()> {
        let result = self.program(name)?.test_run(ProgramInput {
            data_in: Some(frame),
            flags: LIVE_FRAMES,
            repeat: count,
            ..ProgramInput::default()
        });
        match result {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(self.run_error(name, error)),
        }
    }

    /// Runs an XDP program so many times on a frame that is sent nowhere. Returns the mean time of a run, by the
    /// kernel's clock around all of them.
    pub fn time_runs(&self, name: &str, frame: &[u8], count: u32) -> Result<Duration> {
        let result = self.program(name)?.test_run(ProgramInput {
            data_in: Some(frame),
            repeat: count,
            ..ProgramInput::default()
        });
        let output = result.map_err(|error| self.run_error(name, error))?;
        Ok(output.duration)
    }

    /// Runs a raw tracepoint program once, on `cpu`, in the context of the current task there.
    pub fn run_on_cpu(&self, name: &str, cpu: usize) -> Result<()> {
        self.program(name)?
            .test_run(ProgramInput {
                flags: RUN_ON_CPU,
                cpu: cpu as u32,
                ..ProgramInput::default()
            })
            .map(drop)
            .map_err(|error| self.run_error(name, error))
    }

    /// Runs an XDP program once on a frame that came from the device with this index, to which no
    /// frame is sent. Returns the program's action, and the frame as the program left it.
    pub fn run_xdp(&self, name: &str, ifindex: u32, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        let mut context = [0, frame.len() as u32, 0, ifindex, 0, 0];
        self.run_once(name, context.as_mut_bytes(), frame)
    }

    /// As [`Programs::run_xdp`], for a program of tc.
    pub fn run_tc(&self, name: &str, ifindex: u32, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        /// Words of `struct __sk_buff` of linux/bpf.h up to `ifindex`, of which the kernel takes few.
        const IFINDEX: usize = 10;
        let mut context = [0_u32; IFINDEX + 1];
        context[IFINDEX] = ifindex;
        self.run_once(name, context.as_mut_bytes(), frame)
    }

    fn run_once(&self, name: &str, context: &mut [u8], frame: &[u8]) -> Result<(u32, Vec<u8>)> {
        /// More than a program adds to a frame.
        const ROOM: usize = 64;
        let mut out = vec![0; frame.len() + ROOM];
        let result = self.program(name)?.test_run(ProgramInput {
            data_in: Some(frame),
            data_out: Some(&mut out),
            context_in: Some(context),
            ..ProgramInput::default()
        });
        let output = result.map_err(|error| self.run_error(name, error))?;
        let data = output.data.map(|data| data.to_vec()).unwrap_or_default();
        Ok((output.return_value, data))
    }

    fn run_error(&self, name: &str, error: libbpf_rs::Error) -> anyhow::Error {
        let section = self.program(name).map(|program| needed(program.section()));
        let cure = refusal(&error, &section.unwrap_or(TRACE))
            .unwrap_or_else(|| format!("it needs {}", self.about.needs));
        anyhow!(error).context(format!("cannot run the BPF program {name}: {cure}"))
    }

    /// Attaches a program to the hook that its section names, such as a tracepoint.
    pub fn attach(&self, name: &str) -> Result<Attached> {
        let link = self.program(name)?.attach().map_err(|error| {
            let cure = refusal(&error, &TRACE).unwrap_or_else(|| match error.kind() {
                ErrorKind::NotFound => "this kernel does not have it".to_owned(),
                _ => "WEIR_BPF_LOG=1 shows the details".to_owned(),
            });
            anyhow!(error).context(format!("cannot attach {name} to its tracepoint: {cure}"))
        })?;
        Ok(Attached { _link: link })
    }

    /// Runs an iterator over the kernel's objects (Linux 5.8), and returns the bytes that it wrote.
    pub fn iterate(&self, name: &str) -> Result<Vec<u8>> {
        let run = || -> Result<Vec<u8>> {
            let link = self.program(name)?.attach()?;
            let mut written = Vec::new();
            Iter::new(&link)?.read_to_end(&mut written)?;
            Ok(written)
        };
        run().with_context(|| format!("cannot run the BPF iterator {name}"))
    }

    /// Attaches a program to a perf event, whose samples run it.
    pub fn attach_perf_event(&self, name: &str, event: BorrowedFd<'_>) -> Result<Attached> {
        // libbpf closes the descriptor together with the link.
        let event = event
            .try_clone_to_owned()
            .context("cannot duplicate a descriptor")?;
        let link = self
            .program(name)?
            .attach_perf_event(std::os::fd::IntoRawFd::into_raw_fd(event))
            .map_err(|error| {
                let cure = refusal(&error, &TRACE)
                    .unwrap_or_else(|| "WEIR_BPF_LOG=1 shows the details".to_owned());
                anyhow!(error).context(format!("cannot attach {name} to a perf event: {cure}"))
            })?;
        Ok(Attached { _link: link })
    }

    /// Attaches an XDP program, in native mode where the driver has one.
    pub fn attach_xdp(&self, name: &str, ifindex: u32) -> Result<Attached> {
        let link = self
            .program(name)?
            .attach_xdp(ifindex.cast_signed())
            .map_err(|error| {
                let cure = refusal(&error, &[Capability::NetAdmin]).unwrap_or_else(|| {
                    "is there another XDP program on the device? `bpftool net` shows it".to_owned()
                });
                anyhow!(error).context(format!("cannot attach {name} to the device: {cure}"))
            })?;
        Ok(Attached { _link: link })
    }

    /// Attaches a tc program at ingress (tcx, Linux 6.6).
    pub fn attach_tcx(&self, name: &str, ifindex: u32) -> Result<Attached> {
        let program = self.program(name)?;
        let raw = program.as_libbpf_object().as_ptr();
        // SAFETY: needed because libbpf-rs does not offer tcx. `raw` is a loaded program that
        // `program` keeps alive, and libbpf takes no options for a null pointer.
        let link =
            unsafe { libbpf_sys::bpf_program__attach_tcx(raw, ifindex.cast_signed(), ptr::null()) };
        let link = NonNull::new(link).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: needed to own the link, which was made two lines above and has no other owner.
        let link = unsafe { Link::from_ptr(link) };
        Ok(Attached { _link: link })
    }

    /// The only variable of a section, `.bss` or `.data`.
    pub fn variable<T: FromBytes>(&self, section: &str) -> Result<T> {
        let about = self.about.name;
        let bytes = self
            .object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(section))
            .with_context(|| format!("{about}.bpf.o has no {section}"))?
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .with_context(|| format!("cannot read {section} of {about}.bpf.o"))?
            .with_context(|| format!("{about}.bpf.o has no {section}"))?;
        T::read_from_bytes(&bytes).map_err(|_| {
            anyhow!(
                "{section} of {about}.bpf.o has {} bytes, and its variable {}",
                bytes.len(),
                size_of::<T>()
            )
        })
    }

    /// A map by its name, to be read also from other threads.
    ///
    /// # Errors
    ///
    /// Where there is no such map, or its keys or values have another size.
    pub fn map<K, V>(&self, name: &str) -> Result<Map<K, V>> {
        let about = self.about.name;
        let map = self
            .object
            .maps()
            .find(|map| map.name() == name)
            .with_context(|| format!("{about}.bpf.o has no map {name}"))?;
        let handle = MapHandle::try_from(&map)
            .with_context(|| format!("cannot use the map {name} of {about}.bpf.o"))?;
        for (part, in_c, in_rust) in [
            ("key", handle.key_size() as usize, size_of::<K>()),
            ("value", handle.value_size() as usize, size_of::<V>()),
        ] {
            ensure!(
                in_c == in_rust,
                "a {part} of the BPF map {name} has {in_c} bytes in C and {in_rust} in Rust"
            );
        }
        Ok(Map {
            handle,
            types: PhantomData,
        })
    }

    /// The names of the programs that were loaded.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The run time of each loaded program while [`count_run_time`] was on.
    pub fn run_times(&self) -> Result<Vec<(String, RunTime)>> {
        self.names
            .iter()
            .map(|name| Ok((name.clone(), self.run_time(name)?)))
            .collect()
    }

    fn run_time(&self, name: &str) -> Result<RunTime> {
        let info = self.info(name)?;
        Ok(RunTime {
            count: info.run_cnt,
            ns: info.run_time_ns,
        })
    }

    /// How often a program did not run because it already ran on the same CPU (Linux 5.12).
    pub fn misses(&self, name: &str) -> Result<u64> {
        Ok(self.info(name)?.recursion_misses)
    }

    /// The kernel's id of a program.
    pub fn id(&self, name: &str) -> Result<u32> {
        Ok(self.info(name)?.id)
    }

    fn info(&self, name: &str) -> Result<libbpf_sys::bpf_prog_info> {
        let program = self.program(name)?;
        let fd = program.as_fd().as_raw_fd();
        let mut info = libbpf_sys::bpf_prog_info::default();
        let mut length = size_of_val(&info) as u32;
        // SAFETY: needed because libbpf-rs reads all programs of the system or none. The
        // kernel writes at most `length` bytes to `info`, which has as many, and reads no
        // pointer from it, as all of them are zero.
        let result =
            unsafe { libbpf_sys::bpf_prog_get_info_by_fd(fd, &raw mut info, &raw mut length) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(-result))
                .with_context(|| format!("cannot ask the kernel about the BPF program {name}"));
        }
        Ok(info)
    }

    /// A raw tracepoint program that any thread can run.
    pub fn runner(&self, name: &str) -> Result<Runner> {
        let program = self.program(name)?;
        let fd = program.as_fd().try_clone_to_owned();
        Ok(Runner {
            fd: fd.context("cannot duplicate a descriptor")?,
        })
    }

    fn program<'obj>(&'obj self, name: &str) -> Result<ProgramMut<'obj>> {
        self.object
            .progs_mut()
            .find(|program| program.name() == name)
            .with_context(|| format!("{}.bpf.o has no program {name}", self.about.name))
    }
}

/// A raw tracepoint program, run in the context of its caller.
pub struct Runner {
    fd: OwnedFd,
}

impl Runner {
    /// Runs it once, in the calling thread and on its CPU.
    pub fn run(&self) -> Result<()> {
        let mut options = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            ..libbpf_sys::bpf_test_run_opts::default()
        };
        // SAFETY: needed because libbpf-rs ties a program to its object, which cannot be shared
        // between threads. The descriptor is open, and the options, which have no pointers, live
        // as long as the call.
        let result =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(self.fd.as_raw_fd(), &raw mut options) };
        if result != 0 {
            return Err(io::Error::from_raw_os_error(-result)).context("cannot run a BPF program");
        }
        Ok(())
    }
}

/// The entries of an array with the flag `BPF_F_MMAPABLE` (Linux 5.5), as the programs change them.
#[must_use = "the memory is unmapped when this is dropped"]
pub struct MappedArray {
    address: NonNull<c_void>,
    length: usize,
    words_by_entry: usize,
}

// SAFETY: needed because of the pointer. The memory belongs to this value alone until it is
// dropped, and all references into it are to atomics.
unsafe impl Send for MappedArray {}
// SAFETY: as above.
unsafe impl Sync for MappedArray {}

impl MappedArray {
    /// The words of an entry, or `None` past the end.
    pub fn entry(&self, index: usize) -> Option<&[AtomicU64]> {
        // SAFETY: needed to read the kernel's memory. `length` bytes from `address` on stay mapped
        // as long as `self`, a page is aligned for words, and whatever changes them meanwhile is
        // in the kernel, which writes words; reading those atomically needs no right to write on
        // the 64-bit machines that these programs run on.
        let words = unsafe {
            slice::from_raw_parts(self.address.cast::<AtomicU64>().as_ptr(), self.length / 8)
        };
        let begin = index.checked_mul(self.words_by_entry)?;
        words.get(begin..begin.checked_add(self.words_by_entry)?)
    }
}

impl Drop for MappedArray {
    fn drop(&mut self) {
        // SAFETY: needed to give the memory back. It was mapped by `Map::mapped` with this length,
        // and nothing of it is borrowed any more. It cannot fail for such a mapping.
        let _ = unsafe { munmap(self.address.as_ptr(), self.length) };
    }
}

/// A map of BPF programs, by the types of its keys and values.
pub struct Map<K, V> {
    handle: MapHandle,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Map<K, V> {
    /// An array of words, mapped into this process to be read.
    pub fn mapped(&self) -> Result<MappedArray> {
        self.map(ProtFlags::READ)
    }

    /// An array of words, mapped into this process to be written, too.
    pub fn mapped_for_writing(&self) -> Result<MappedArray> {
        self.map(ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(&self, protection: ProtFlags) -> Result<MappedArray> {
        let name = self.name();
        let (size, entries) = (self.handle.value_size(), self.handle.max_entries());
        ensure!(
            size > 0 && size % 8 == 0,
            "the BPF map {name} is not of words"
        );
        let length = size as usize * entries as usize;
        // SAFETY: needed to read without system calls. The address is the kernel's choice, so no
        // memory in use is replaced.
        let address = unsafe {
            mmap(
                ptr::null_mut(),
                length,
                protection,
                Mmap::SHARED,
                self.handle.as_fd(),
                0,
            )
        };
        let address = address.with_context(|| format!("cannot map the BPF map {name}"))?;
        Ok(MappedArray {
            address: NonNull::new(address).context("mapped at address 0")?,
            length,
            words_by_entry: size as usize / 8,
        })
    }

    /// Its id, by which another process finds it.
    pub fn id(&self) -> Result<u32> {
        let info = self.handle.info();
        Ok(info
            .with_context(|| format!("cannot look at the BPF map {}", self.name()))?
            .info
            .id)
    }

    /// The most entries that it can have.
    pub fn capacity(&self) -> usize {
        self.handle.max_entries() as usize
    }

    fn name(&self) -> String {
        self.handle.name().to_string_lossy().into_owned()
    }
}

impl<K, V> Map<K, V> {
    fn parse<T: FromBytes>(&self, bytes: &[u8]) -> Result<T> {
        T::read_from_bytes(bytes).map_err(|_| {
            anyhow!(
                "the BPF map {} gave {} bytes for a structure of {}",
                self.name(),
                bytes.len(),
                size_of::<T>()
            )
        })
    }
}

impl<K: FromBytes + IntoBytes + Immutable, V: FromBytes> Map<K, V> {
    /// The value of `key`, or `None` if there is none.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let value = self
            .handle
            .lookup(key.as_bytes(), MapFlags::ANY)
            .with_context(|| format!("cannot read the BPF map {}", self.name()))?;
        value.map(|value| self.parse(&value)).transpose()
    }

    /// The values of `key`, one for each possible CPU.
    pub fn get_per_cpu(&self, key: &K) -> Result<Option<Vec<V>>> {
        let values = self
            .handle
            .lookup_percpu(key.as_bytes(), MapFlags::ANY)
            .with_context(|| format!("cannot read the BPF map {}", self.name()))?;
        values
            .map(|values| values.iter().map(|value| self.parse(value)).collect())
            .transpose()
    }

    /// Takes the value of `key` out of a hash map, in one step (Linux 5.14), or `None` if there is
    /// none.
    pub fn take(&self, key: &K) -> Result<Option<V>> {
        let value = self
            .handle
            .lookup_and_delete(key.as_bytes())
            .with_context(|| format!("cannot take from the BPF map {}", self.name()))?;
        value.map(|value| self.parse(&value)).transpose()
    }

    /// All keys at this moment.
    pub fn keys(&self) -> Result<Vec<K>> {
        self.handle.keys().map(|key| self.parse(&key)).collect()
    }
}

impl<K: FromBytes, V: FromBytes> Map<K, V> {
    /// All entries, read many at a time (Linux 5.6). One that is added or removed meanwhile may be missing, or
    /// be there twice.
    pub fn entries(&self) -> Result<Vec<(K, V)>> {
        let any = MapFlags::ANY;
        let entries = self
            .handle
            .lookup_batch(BATCH, any, any)
            .with_context(|| format!("cannot read the BPF map {}", self.name()))?;
        entries
            .map(|(key, value)| Ok((self.parse(&key)?, self.parse(&value)?)))
            .collect()
    }
}

impl<K: IntoBytes + Immutable, V> Map<K, V> {
    /// Removes the entry of `key`, if there is one.
    pub fn remove(&self, key: &K) -> Result<()> {
        match self.handle.delete(key.as_bytes()) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error)
                .with_context(|| format!("cannot remove from the BPF map {}", self.name())),
            _ => Ok(()),
        }
    }
}

impl<K: IntoBytes + Immutable, V: IntoBytes + Immutable> Map<K, V> {
    /// Sets the value of `key`.
    pub fn set(&self, key: &K, value: &V) -> Result<()> {
        self.handle
            .update(key.as_bytes(), value.as_bytes(), MapFlags::ANY)
            .with_context(|| format!("cannot write to the BPF map {}", self.name()))
    }
}

/// The ring buffer with this id: calls `read` for each record that waits, or that comes within `patience`. Needs
/// `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// Where there is no such map any more.
pub fn read_ring(id: u32, patience: Duration, mut read: impl FnMut(&[u8])) -> Result<()> {
    let map = MapHandle::from_map_id(id).context("cannot open the map of records")?;
    let ring = mapped_ring(&map, &mut read)?;
    match ring.poll(patience) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        polled => polled.context("cannot read the map of records"),
    }
}

fn mapped_ring<'r>(
    map: &MapHandle,
    mut read: impl FnMut(&[u8]) + 'r,
) -> Result<libbpf_rs::RingBuffer<'r>> {
    let mut builder = RingBufferBuilder::new();
    builder.add(map, move |record| {
        read(record);
        0
    })?;
    builder.build().context("cannot map the map of records")
}

/// A ring buffer of this process's programs.
#[must_use = "the ring is unmapped when this is dropped"]
pub struct Ring<'r> {
    ring: libbpf_rs::RingBuffer<'r>,
    /// Only held: without it nothing would wake a reader that waits.
    _map: &'r Map<(), ()>,
}

impl<'r> Ring<'r> {
    /// Maps it; [`Ring::read`] calls `read` for each record.
    pub fn open(map: &'r Map<(), ()>, read: impl FnMut(&[u8]) + 'r) -> Result<Self> {
        Ok(Self {
            ring: mapped_ring(&map.handle, read)?,
            _map: map,
        })
    }

    /// Waits for a record, or `patience`. If the ring is empty now, only a program's wish to wake the reader ends
    /// it early.
    pub fn wait(&self, patience: Duration) -> Result<()> {
        // SAFETY: needed because libbpf-rs gives a number. The descriptor stays open as long as `self.ring`.
        let epoll = unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) };
        let patience = Timespec::try_from(patience).context("too long to wait")?;
        match poll(
            &mut [PollFd::from_borrowed_fd(epoll, PollFlags::IN)],
            Some(&patience),
        ) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for records"),
        }
    }

    /// Reads at most `most` of the records that wait, and returns how many there were.
    pub fn read(&self, most: usize) -> Result<usize> {
        let read = self.ring.consume_raw_n(most);
        usize::try_from(read).map_err(|_| {
            anyhow!(io::Error::from_raw_os_error(-read)).context("cannot read the map of records")
        })
    }
}

/// Makes the kernel measure every run of every BPF program while the descriptor is open
/// (`BPF_ENABLE_STATS`, Linux 5.8). It costs two readings of the clock for each run.
pub fn count_run_time() -> Result<OwnedFd> {
    // SAFETY: needed because libbpf-rs has no wrapper. The call takes a number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    if fd < 0 {
        let cure = privilege::refusal(-fd, Feature::Bpf, &[Capability::SysAdmin])
            .unwrap_or_else(|| "this kernel may lack BPF_ENABLE_STATS (Linux 5.8)".to_owned());
        return Err(io::Error::from_raw_os_error(-fd))
            .with_context(|| format!("cannot measure BPF programs: {cure}"));
    }
    // SAFETY: needed to own the descriptor, which is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// To load, attach and run a program that traces.
const TRACE: [Capability; 2] = [Capability::Bpf, Capability::Perfmon];

/// To load and run a program, by its section: those of XDP and tc are the network's, the others trace.
fn needed(section: &OsStr) -> [Capability; 2] {
    let section = section.as_encoded_bytes();
    if section.starts_with(b"xdp") || section.starts_with(b"tc") {
        return [Capability::Bpf, Capability::NetAdmin];
    }
    TRACE
}

/// Cause and cure, if a capability is missing or a sandbox refuses bpf(2).
fn refusal(error: &libbpf_rs::Error, needed: &[Capability]) -> Option<String> {
    // libbpf-rs keeps the kinds of errors, and not their numbers.
    let errno = match error.kind() {
        ErrorKind::PermissionDenied => libc::EPERM,
        ErrorKind::Unsupported => libc::ENOSYS,
        _ => return None,
    };
    privilege::refusal(errno, Feature::Bpf, needed)
}

/// A program in the kernel, of whatever process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramInfo {
    /// Its id.
    pub id: u32,
    /// Its name, at most 15 bytes, of any characters.
    pub name: String,
    /// Its type, such as `xdp` or `sched_cls`.
    pub kind: String,
    /// The hash of its instructions, as `bpftool prog` prints it.
    pub tag: String,
    /// Its runs while [`count_run_time`] was on.
    pub run: RunTime,
}

/// All programs in the kernel; none without `CAP_SYS_ADMIN`.
pub fn all_programs() -> Vec<ProgramInfo> {
    let all = ProgInfoIter::default().map(|program| ProgramInfo {
        id: program.id,
        name: program.name.to_string_lossy().into_owned(),
        kind: snake_case(&format!("{:?}", program.ty)),
        tag: format!("{:016x}", u64::from_be_bytes(program.tag.0)),
        run: RunTime {
            count: program.run_cnt,
            ns: program.run_time_ns,
        },
    });
    all.collect()
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// The IDs of all programs in the kernel.
pub fn program_ids() -> Vec<u32> {
    ProgInfoIter::default().map(|program| program.id).collect()
}

/// The name of the program with this id; none where there is no such program, or no right to know.
pub fn program_name(id: u32) -> Option<String> {
    ProgInfoIter::default()
        .find(|program| program.id == id)
        .map(|program| program.name.to_string_lossy().into_owned())
}

fn map_ids(program: u32) -> Vec<u32> {
    let with_maps = ProgInfoQueryOptions::default().include_map_ids(true);
    ProgInfoIter::with_query_opts(with_maps)
        .find(|info| info.id == program)
        .map(|info| info.map_ids)
        .unwrap_or_default()
}

/// Fills the first value of an array of another process's program with zeros, whatever its layout. Needs
/// `CAP_SYS_ADMIN`.
///
/// # Errors
///
/// Where the program has no such map.
pub fn clear_array_of(program: u32, name: &str) -> Result<()> {
    let maps = map_ids(program).into_iter();
    let mut maps = maps.filter_map(|id| MapHandle::from_map_id(id).ok());
    let map = maps
        .find(|map| map.name() == name)
        .with_context(|| format!("the program with the id {program} has no map {name}"))?;
    let zeros = vec![0; map.value_size() as usize];
    map.update(&0_u32.to_ne_bytes(), &zeros, MapFlags::ANY)
        .with_context(|| format!("cannot write to the BPF map {name}"))
}

/// What a program has a map of to redirect to; nothing if the program cannot be queried.
#[derive(Debug, Clone, Copy, Default)]
pub struct RedirectMaps {
    /// Devices.
    pub devices: bool,
    /// AF_XDP sockets.
    pub sockets: bool,
}

/// The maps that a program redirects by.
pub fn redirect_maps(program: u32) -> RedirectMaps {
    let ids = map_ids(program);
    let mut found = RedirectMaps::default();
    for map in MapInfoIter::default().filter(|map| ids.contains(&map.id)) {
        match map.ty {
            MapType::Devmap | MapType::DevmapHash => found.devices = true,
            MapType::Xskmap => found.sockets = true,
            _ => {}
        }
    }
    found
}
