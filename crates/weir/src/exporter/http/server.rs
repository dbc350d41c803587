//! Connections: accepted, bounded and answered, one request each.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};
use rustls::{ServerConnection, StreamOwned};

use super::auth::Login;
use super::connection::{Connection, Deadline, close};
use super::pages::{Reader, Web};
use super::request::{self, Fault, Gone, Request, Response};
use super::statistics::Statistics;
use crate::exporter::page::{Format, Page};

/// Most connections at the same time. One more ends the oldest, so that silent clients keep nobody out.
const MOST: usize = 64;
/// The time for a handshake and the head of a request.
const HEAD: Duration = Duration::from_secs(5);
/// The time for the reader's answer: Prometheus waits 10 s by default.
const PAGE: Duration = Duration::from_secs(9);
/// The time in which a client takes the response.
const RESPONSE: Duration = Duration::from_secs(10);
/// A thread's stack: a handshake takes some ten kilobytes of it.
const STACK: usize = 256 << 10;

const FRONT: &str = "<!doctype html>\n<html lang=\"en\"><title>weir exporter</title>\n<h1>weir exporter</h1>\n\
    <p><a href=\"/metrics\">Metrics</a>\n</html>";

/// The server.
#[derive(Debug)]
pub struct Server {
    reader: Arc<Reader>,
    statistics: Statistics,
    connections: Mutex<Connections>,
}

/// The connections by their number, the oldest first.
#[derive(Debug, Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Arc<OwnedFd>>,
    /// Those that were shut down, and whose threads have not ended yet.
    ending: usize,
}

impl Server {
    /// A server of a reader's pages.
    pub fn new(reader: Arc<Reader>) -> Arc<Self> {
        Arc::new(Self {
            reader,
            statistics: Statistics::default(),
            connections: Mutex::default(),
        })
    }

    /// Accepts connections, for ever.
    ///
    /// # Errors
    ///
    /// When the listener fails.
    pub fn run(self: &Arc<Self>, listener: impl AsFd) -> Result<(), Errno> {
        loop {
            match accept_with(&listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.begin(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => {
                    let mut wait = [rustix::event::PollFd::new(
                        &listener,
                        rustix::event::PollFlags::IN,
                    )];
                    rustix::io::retry_on_intr(|| rustix::event::poll(&mut wait, None))?;
                }
                // The network's errors of a connection that is gone (accept(2)), or no memory for one more.
                Err(
                    Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::HOSTUNREACH
                    | Errno::HOSTDOWN
                    | Errno::MFILE
                    | Errno::NFILE
                    | Errno::NOBUFS
                    | Errno::NOMEM,
                ) => thread::sleep(Duration::from_millis(20)),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn begin(self: &Arc<Self>, socket: OwnedFd) {
        let socket = Arc::new(socket);
        let Some(number) = self.admit(&socket) else {
            self.statistics.crowded_out();
            return;
        };
        let server = Arc::clone(self);
        let name = thread::Builder::new().name("weir-http".into());
        let begun = name.stack_size(STACK).spawn(move || {
            let gone = server.serve(&socket);
            let crowded_out = !server.end(number);
            match gone {
                _ if crowded_out => server.statistics.crowded_out(),
                Some(gone) => server.statistics.abandoned(gone),
                None => {}
            }
        });
        if begun.is_err() {
            // No memory for a thread: the connection is closed.
            self.end(number);
        }
    }

    /// A number for a connection; none where threads of ended ones are too many.
    fn admit(&self, socket: &Arc<OwnedFd>) -> Option<u64> {
        let mut connections = self.connections();
        if connections.open.len() >= MOST {
            if connections.ending >= MOST {
                return None;
            }
            let (_, oldest) = connections.open.pop_first()?;
            connections.ending += 1;
            // Its thread ends at its next read or write.
            let _ = shutdown(&*oldest, Shutdown::Both);
        }
        let number = connections.next;
        connections.next += 1;
        connections.open.insert(number, Arc::clone(socket));
        Some(number)
    }

    /// Forgets a connection. False if it had to make room for a newer one.
    fn end(&self, number: u64) -> bool {
        let mut connections = self.connections();
        let was_open = connections.open.remove(&number).is_some();
        if !was_open {
            connections.ending -= 1;
        }
        was_open
    }

    fn connections(&self) -> MutexGuard<'_, Connections> {
        // Each change leaves it whole.
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one request; returns how the client went away before that.
    fn serve(&self, socket: &Arc<OwnedFd>) -> Option<Gone> {
        let web = self.reader.web();
        let deadline = Deadline::after(HEAD);
        let connection = Connection::new(Arc::clone(socket), deadline.clone());
        let gone = match &web.tls {
            None => self.answer(connection, &deadline, &web),
            Some(config) => {
                let Ok(tls) = ServerConnection::new(Arc::clone(config)) else {
                    return Some(Gone::Tls);
                };
                let mut stream = StreamOwned::new(tls, connection);
                let gone = self.answer(&mut stream, &deadline, &web);
                stream.conn.send_close_notify();
                // The client may be gone.
                let _ = stream.conn.write_tls(&mut stream.sock);
                gone
            }
        };
        close(socket);
        gone
    }

    fn answer(
        &self,
        mut stream: impl Read + Write,
        deadline: &Deadline,
        web: &Web,
    ) -> Option<Gone> {
        let (response, head_only) = match request::read(&mut stream) {
            Ok(request) => (self.respond(&request, web), request.head_only),
            Err(Fault::Status(status)) => (
                Response::words(status, "this request is not understood"),
                false,
            ),
            Err(Fault::Gone(gone)) => return Some(gone),
        };
        self.statistics.answered(response.status);
        deadline.set(RESPONSE);
        response.send(&mut stream, head_only, &web.headers);
        None
    }

    fn respond(&self, request: &Request, web: &Web) -> Response {
        if let Some(limit) = &web.limit
            && !limit.admit(Instant::now())
        {
            return Response::words(
                429,
                "too many requests: see rate_limit of the web configuration",
            );
        }
        if !web.users.is_empty() {
            let login = request.login.as_ref();
            let login = login.map(|(user, password)| web.users.check(user, password));
            match login {
                Some(Login::Admitted) => {}
                Some(Login::Busy) => {
                    return Response::words(503, "too many passwords wait for their check");
                }
                Some(Login::Refused) | None => {
                    return Response::words(401, "a user and password are needed");
                }
            }
        }
        match request.path.as_str() {
            "/metrics" => self.metrics(Format::accepted(&request.accept)),
            "/-/healthy" => Response::words(200, "weir exporter answers"),
            "/" => Response {
                status: 200,
                content_type: "text/html; charset=utf-8",
                body: FRONT.into(),
            },
            _ => Response::words(404, "the metrics are at /metrics"),
        }
    }

    fn metrics(&self, format: Format) -> Response {
        match self.reader.page(format, PAGE) {
            Ok(page) => Response {
                status: 200,
                content_type: format.content_type(),
                body: [
                    &page,
                    self.statistics.text(format).as_str(),
                    Page::end(format),
                ]
                .concat(),
            },
            Err(words) => Response::words(503, &words),
        }
    }
}
