//! The threads that serve the sockets of a device.

use super::books::Window;
use super::delay;
use super::failure::{Check, Failure, Result};
use super::held::Held;
use super::lab;
use super::packet::Header;
use super::plan::{Plan, Shape, flow};
use super::post::{Post, Route};
use super::side::{Crew, Round, Side};
use fastrand::Rng;
use hostnet::netns;
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use xsk::{Port, Program, RxHalf, Socket, TxHalf, Wait, WorkerError, WorkerErrors};

/// Most packets that are under way to a queue: those of a veth's ring, of a CPU's backlog, and of a NAPI poll.
pub const UNDER_WAY: u32 = 256 + 1000 + 64;

impl Crew {
    /// Serves by `work`, and reports its failure or panic with the place.
    pub fn serve(&self, round: &Round, place: &str, work: impl FnOnce() -> Result<()>) {
        self.join();
        let served = ended(catch_unwind(AssertUnwindSafe(work)));
        self.has_ended.store(true, SeqCst);
        if let Err(failure) = served {
            let text = format!("{place}: {}", failure.text);
            round.fail(Failure { text, ..failure });
        }
    }
}

/// The devices of one end that one crew serves, and where.
pub struct Work<'r> {
    pub plan: &'r Plan,
    pub side: &'r Side<'r>,
    pub crew: &'r Crew,
    /// 0 is the near end, 1 the far.
    pub end: usize,
    pub device: usize,
    pub namespace: BorrowedFd<'r>,
}

impl Work<'_> {
    /// Serves until the round is over.
    pub fn run(&self) {
        let place = format!("end {}, device {}", self.end, self.device);
        self.crew.serve(self.side.round, &place, || self.serve());
    }

    fn serve(&self) -> Result<()> {
        netns::enter(self.namespace)?;
        let mut random = Rng::with_seed(self.seed(0));
        delay::begin(self.plan.delays, self.seed(1));
        let mut posts: Vec<[Post<'_>; 2]> = (0..self.queues())
            .map(|queue| {
                let flow = flow(self.end, self.device, queue);
                let ways = self.plan.ways(&mut random, self.end, flow);
                // The second is of a sending half.
                let of_seed = |of| Post::new(self.side, ways, self.seed(of));
                [2, 3].map(|of| of_seed(of + 2 * u64::from(queue)))
            })
            .collect();
        while !self.side.round.is_over() {
            let until = self.end_of_incarnation(&mut random);
            match self.shape() {
                Shape::One => self.one(&mut posts, until, &mut random)?,
                Shape::Halves => self.halves(&mut posts, until, &mut random)?,
                Shape::Port => self.port(&mut posts, until, &mut random)?,
            }
        }
        posts.iter_mut().flatten().for_each(Post::end);
        Ok(())
    }

    fn shape(&self) -> Shape {
        self.plan.devices[self.device].shapes[self.end]
    }

    fn queues(&self) -> u32 {
        self.plan.devices[self.device].queues
    }

    fn seed(&self, of: u64) -> u64 {
        let place = (self.end * 16 + self.device) as u64;
        self.plan.seed.wrapping_mul(1000) + place * 32 + of
    }

    /// When all sockets are closed, to be opened again.
    fn end_of_incarnation(&self, random: &mut Rng) -> Option<Instant> {
        let time = Duration::from_millis(random.u64(100..600));
        (self.plan.reopens && random.u8(..3) > 0).then(|| Instant::now() + time)
    }

    /// Whether the sockets stay open. Near the end nobody closes them, so that the books can be balanced.
    fn goes_on(&self, until: Option<Instant>) -> bool {
        let round = self.side.round;
        !round.is_over()
            && (!round.originates() || until.is_none_or(|until| Instant::now() < until))
    }

    fn open(&self, queue: u32, program: Option<&Program>, random: &mut Rng) -> Result<Socket> {
        self.when_up(|| {
            let builder = Socket::builder(&self.side.umem, &lab::name(self.device), queue);
            let mut builder = self.plan.socket(builder, random);
            if self.plan.spins && (self.end, self.device) == (0, 0) && self.shape() == Shape::One {
                builder = builder.wait(Wait::Spin);
            }
            match program {
                Some(program) => builder.program(program).open(),
                None => builder.open(),
            }
        })
    }

    /// Opens a socket or a port, as soon as the device is up.
    fn when_up<T>(&self, mut open: impl FnMut() -> xsk::Result<T>) -> Result<T> {
        loop {
            match self.side.round.tolerate(open()) {
                Ok(Some(opened)) => {
                    self.side.round.opened.fetch_add(1, SeqCst);
                    return Ok(opened);
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Sockets on all queues, which share a program.
    fn open_all(&self, random: &mut Rng) -> Result<Vec<Socket>> {
        let mut sockets: Vec<Socket> = Vec::new();
        for queue in 0..self.queues() {
            let program = sockets.first().and_then(Socket::program).cloned();
            sockets.push(self.open(queue, program.as_ref(), random)?);
        }
        Ok(sockets)
    }

    /// Closes sockets by `close`: packets that arrive meanwhile may be lost uncounted.
    fn closing<T>(&self, close: impl FnOnce() -> T) -> T {
        let window = self.side.inward.begin_window();
        let closed = close();
        self.end_window(window);
        closed
    }

    fn end_window(&self, window: Window) {
        // Whatever waits in the RX rings is dropped with them, and attaching or detaching the program empties the
        // queues of the device.
        let lent = self.side.umem.chunks();
        self.side
            .inward
            .end_window(window, lent + UNDER_WAY * self.queues());
    }

    fn ready(&self) {
        self.crew.is_ready.store(true, SeqCst);
    }

    /// One thread for all sockets, which also reopens single ones.
    fn one(
        &self,
        posts: &mut [[Post<'_>; 2]],
        until: Option<Instant>,
        random: &mut Rng,
    ) -> Result<()> {
        let mut sockets = self.open_all(random)?;
        for (socket, [post, _]) in sockets.iter_mut().zip(posts.iter_mut()) {
            self.add_sibling(socket, post)?;
        }
        self.ready();
        while self.goes_on(until) {
            self.crew.turn();
            let at = random.usize(..sockets.len());
            // The next queue's packets go out through this one, always the same.
            let ([post, _], to) = (&mut posts[at], (at + 1) % sockets.len());
            match sockets.get_disjoint_mut([at, to]) {
                Ok([socket, other]) => post.turn(socket, Route::Over(other))?,
                Err(_) => post.turn(&mut sockets[at], Route::Back)?,
            }
            if self.plan.reopens && self.side.round.originates() && random.u32(..400) == 0 {
                self.reopen(at, &mut sockets, posts, random)?;
            }
        }
        self.closing(|| {
            while let Some(socket) = sockets.pop() {
                posts[sockets.len()][0].forget_socket(socket.outstanding());
            }
        });
        Ok(())
    }

    /// Closes one socket and opens another on its queue, with the program of the others.
    fn reopen(
        &self,
        at: usize,
        sockets: &mut Vec<Socket>,
        posts: &mut [[Post<'_>; 2]],
        random: &mut Rng,
    ) -> Result<()> {
        self.closing(|| {
            let socket = sockets.remove(at);
            posts[at][0].forget_socket(socket.outstanding());
            drop(socket);
            let program = sockets.first().and_then(Socket::program).cloned();
            let mut socket = self.open(at as u32, program.as_ref(), random)?;
            self.add_sibling(&mut socket, &mut posts[at][0])?;
            sockets.insert(at, socket);
            Ok(())
        })
    }

    fn add_sibling(&self, socket: &mut Socket, post: &mut Post<'_>) -> Result<()> {
        if self.plan.siblings {
            let tx_ring = 1 << post.random.u32(5..=9);
            post.sibling = Some(self.when_up(|| socket.add_sibling(0, tx_ring))?);
        }
        Ok(())
    }

    /// Two threads for each socket: one keeps the packets, the other sends them.
    fn halves(
        &self,
        posts: &mut [[Post<'_>; 2]],
        until: Option<Instant>,
        random: &mut Rng,
    ) -> Result<()> {
        let sockets = self.open_all(random)?;
        self.ready();
        let halves = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (socket, [receiving, sending]) in sockets.into_iter().zip(posts.iter_mut()) {
                let ((rx, tx), (give, take)) = (socket.split(), sync_channel(64));
                let seeds = [random.u64(..), random.u64(..)];
                let receive = scope.spawn(move || {
                    self.enter(seeds[0]);
                    self.receiving_half(rx, &give, receiving, until)
                });
                let send = scope.spawn(move || {
                    self.enter(seeds[1]);
                    self.sending_half(tx, &take, sending)
                });
                threads.push((receive, send));
            }
            let joined = threads
                .into_iter()
                .map(|(rx, tx)| (ended(rx.join()), ended(tx.join())));
            // All threads first: one that fails ends the others by way of the channel.
            let joined: Vec<_> = joined.collect();
            joined
                .into_iter()
                .map(|(rx, tx)| Ok((rx?, tx?)))
                .collect::<Result<Vec<_>>>()
        })?;
        let of_tx = halves.iter().map(|(_, tx)| tx.outstanding());
        for ([_, sending], outstanding) in posts.iter_mut().zip(of_tx) {
            sending.forget_socket(outstanding);
        }
        for [receiving, _] in posts {
            receiving.forget_socket(0);
        }
        let first = random.bool();
        self.closing(|| {
            for (rx, tx) in halves {
                if first {
                    drop((rx, tx));
                } else {
                    drop((tx, rx));
                }
            }
        });
        Ok(())
    }

    fn enter(&self, seed: u64) {
        self.crew.join();
        delay::begin(self.plan.delays, seed);
    }

    fn receiving_half(
        &self,
        mut rx: RxHalf,
        give: &SyncSender<(Held, Header)>,
        post: &mut Post<'_>,
        until: Option<Instant>,
    ) -> Result<RxHalf> {
        while self.goes_on(until) {
            self.crew.turn();
            if let Some(time) = post.pause() {
                rx.wait(time)?;
            }
            let burst = post.burst();
            post.receive(rx.recv(burst), Route::Later)?;
            for kept in post.take_later() {
                // When the other thread has failed, or is slow, the packet is dropped.
                let _ = give.try_send(kept);
            }
            post.look_at_hoard()?;
            post.show_received(&rx.statistics()?)?;
        }
        Ok(rx)
    }

    fn sending_half(
        &self,
        mut tx: TxHalf,
        take: &Receiver<(Held, Header)>,
        post: &mut Post<'_>,
    ) -> Result<TxHalf> {
        loop {
            self.crew.turn();
            match take.recv_timeout(Duration::from_micros(post.random.u64(..1000))) {
                Ok(kept) => post.put_later(std::iter::once(kept).chain(take.try_iter())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(tx),
            }
            post.take_inbox();
            post.send_later(|frame| tx.send(frame).map_err(|unsent| unsent.packet))?;
            post.make_in_half(&mut tx)?;
            self.side.round.tolerate(tx.flush())?;
            post.show_sent(&tx.statistics()?, tx.outstanding())?;
        }
    }

    /// The workers of a port.
    fn port(
        &self,
        posts: &mut [[Post<'_>; 2]],
        until: Option<Instant>,
        random: &mut Rng,
    ) -> Result<()> {
        let name = lab::name(self.device);
        let port = self.when_up(|| {
            let builder = Port::builder(&name).shared_umem(&self.side.umem);
            let builder = builder.sockets(|socket| self.plan.socket(socket, random));
            builder.open()
        })?;
        self.ready();
        let posts: Vec<_> = posts.iter_mut().map(|[post, _]| Mutex::new(post)).collect();
        let first_end = Mutex::new(None);
        let ran = port.run(|socket, stop| {
            let mut worker = posts[socket.queue() as usize]
                .lock()
                .expect("one worker each");
            self.enter(worker.random.u64(..));
            while self.goes_on(until) && !stop.is_raised() {
                self.crew.turn();
                worker.turn(socket, Route::Back)?;
            }
            // Of the workers' windows the first contains the others.
            let mut first = first_end.lock().expect("no panic");
            first.get_or_insert_with(|| self.side.inward.begin_window());
            worker.forget_socket(socket.outstanding());
            Ok(())
        });
        if let Some(window) = first_end.into_inner().expect("no panic") {
            self.end_window(window);
        }
        let failed = |errors: WorkerErrors<Failure>| match &errors.failures()[0].1 {
            WorkerError::Failed(failure) => failure.clone(),
            error => Failure {
                check: Check::Panic,
                text: error.to_string(),
            },
        };
        ran.map(drop).map_err(failed)
    }
}

fn ended<T>(joined: std::thread::Result<Result<T>>) -> Result<T> {
    joined.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    Failure {
        check: Check::Panic,
        text: text.unwrap_or_else(|| "no message".into()),
    }
}
