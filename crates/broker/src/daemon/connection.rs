//! The control protocol: one request a message, one reply each.
//!
//! Before the reply the broker sends `prove NONCE`, and the process that connected, no other one, has to
//! answer `proof NONCE`: see [`prove`].
//!
//! | First line | Then | Reply |
//! |---|---|---|
//! | `weir 2 socket` | see [`xsk::broker::Request`] | `ok` and a socket |
//! | `weir 2 supervise` | `policy=NAME`; after the reply a message `weir 2 listener` with the listener | `ok`, `handlers=…` |
//!
//! The admin socket is for root of the host alone: its mode says so, and no container needs it.
//!
//! | First line | Then | Reply |
//! |---|---|---|
//! | `weir 2 status` | | `ok` and a memfd with JSON |
//! | `weir 2 revoke` | `lease=ID` | `ok` and the holders |

use super::log::{self, event};
use super::server::Server;
use super::status;
use crate::identity::Identity;
use crate::lease::{Asker, Holder, LeaseId, Record};
use crate::message::{self, MOST_BYTES};
use crate::policy::Tenant;
use crate::seccomp::Listener;
use crate::supervise::handlers;
use crate::supervise::metrics::Outcome;
use crate::supervise::oci::{self, ContainerState};
use crate::turns::Turn;
use anyhow::{Context as _, Result, ensure};
use hostnet::unix::ask_for_senders;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::Pid;
use rustix::rand::{GetRandomFlags, getrandom};
use serde_json::json;
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xsk::ErrorKind;
use xsk::broker::{Refusal, Request};

/// A peer that is silent for this long is disconnected.
const SILENCE: Duration = Duration::from_secs(10);

/// So is one that does not read its replies: one reply always has room.
const UNREAD: Duration = Duration::from_millis(100);

/// A reply, with descriptors.
type Reply = (Vec<u8>, Vec<OwnedFd>);

/// Answers a request with its descriptors.
type Answer = fn(&Arc<Server>, &OwnedFd, &[u8], Vec<OwnedFd>) -> Result<Reply, Refusal>;

/// Serves a connection of the control socket until it ends.
pub(super) fn serve_control(server: &Arc<Server>, connection: &OwnedFd) {
    serve(server, connection, answer);
}

/// Serves a connection of the admin socket until it ends.
pub(super) fn serve_admin(server: &Arc<Server>, connection: &OwnedFd) {
    serve(server, connection, answer_admin);
}

fn serve(server: &Arc<Server>, connection: &OwnedFd, answer: Answer) {
    for (way, patience) in [(Timeout::Recv, SILENCE), (Timeout::Send, UNREAD)] {
        if set_socket_timeout(connection, way, Some(patience)).is_err() {
            return;
        }
    }
    loop {
        let (request, fds) = match message::receive(connection.as_fd(), MOST_BYTES) {
            Ok((request, _)) if request.is_empty() => return,
            Ok(received) => received,
            Err(Errno::MSGSIZE | Errno::TOOBIG) => {
                let text = format!(
                    "a request has at most {MOST_BYTES} bytes and {} descriptors",
                    message::MOST_FDS
                );
                let refusal = Refusal::new(ErrorKind::InvalidConfig, text);
                let _ = message::send(connection.as_fd(), refusal.write().as_bytes(), &[]);
                return;
            }
            Err(_) => return,
        };
        let reply = answer(server, connection, &request, fds);
        let (bytes, fds) =
            reply.unwrap_or_else(|refusal| (refusal.write().into_bytes(), Vec::new()));
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        if message::send(connection.as_fd(), &bytes, &fds).is_err() {
            return;
        }
    }
}

fn answer(
    server: &Arc<Server>,
    connection: &OwnedFd,
    request: &[u8],
    fds: Vec<OwnedFd>,
) -> Result<Reply, Refusal> {
    let text =
        std::str::from_utf8(request).map_err(|_| invalid("the request is not UTF-8 text"))?;
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    drop(fds);
    match first {
        "weir 2 socket" => {
            let peer = prove(server, connection)?;
            let _turn = turn(server, &peer);
            lend(server, &peer, request)
        }
        message::SUPERVISE => {
            let peer = prove(server, connection)?;
            let turn = turn(server, &peer);
            supervise(server, connection, &peer, rest, turn)
        }
        _ => Err(unknown(first)),
    }
}

/// Those who ask all the time wait for one another, and others for the CPU alone.
fn turn<'s>(server: &'s Server, peer: &Identity) -> Turn<'s, u32> {
    server.turns.take(peer.uid, peer.pid)
}

fn answer_admin(
    server: &Arc<Server>,
    connection: &OwnedFd,
    request: &[u8],
    _: Vec<OwnedFd>,
) -> Result<Reply, Refusal> {
    let text =
        std::str::from_utf8(request).map_err(|_| invalid("the request is not UTF-8 text"))?;
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    match first {
        "weir 2 status" => {
            only_root(&prove(server, connection)?)?;
            give_file(&status::json(server).to_string())
        }
        "weir 2 revoke" => {
            only_root(&prove(server, connection)?)?;
            revoke(server, rest)
        }
        _ => Err(unknown(first)),
    }
}

fn unknown(first: &str) -> Refusal {
    if first.starts_with("weir 1 ") {
        return Refusal::new(
            ErrorKind::Unsupported,
            "the request is of version 1 of the protocol, which does not show which process asks: use the xsk library and the programs of the broker's version",
        );
    }
    invalid("the request is not known here: use programs of the broker's version")
}

/// The process that connected, if it is the one that asks.
///
/// A process can connect, pass the connection on to a child, and then become a program that the policy
/// knows: who looks at it then sees that program, and the child asks. So a number goes there that nobody could
/// know before the look, and must come back from the very process, which the kernel names, before it is looked at
/// again.
fn prove(server: &Server, connection: &OwnedFd) -> Result<Identity, Refusal> {
    server.connections.ask(connection);
    let proven = || -> Result<Identity> {
        let connection = connection.as_fd();
        let before = Identity::of_peer(connection)?;
        ask_for_senders(connection)?;
        let mut number = [0; 16];
        getrandom(&mut number, GetRandomFlags::empty())?;
        let nonce = format!("{:032x}", u128::from_ne_bytes(number));
        message::send(
            connection,
            format!("{}{nonce}", message::PROVE).as_bytes(),
            &[],
        )?;
        let answer = receive_from_peer(connection, &before)?;
        let expected = format!("{}{nonce}", message::PROOF);
        ensure!(
            answer.0 == expected.as_bytes(),
            "the answer to the broker's question is not the number that it has sent"
        );
        let after = Identity::of_peer(connection)?;
        ensure!(
            after.executable.is_same(&before.executable),
            "the process executed another program while it asked"
        );
        Ok(after)
    };
    proven().map_err(|error| {
        let user = hostnet::unix::peer(connection.as_fd()).map_or(u32::MAX, |peer| peer.uid);
        let reason = format!("{error:#}");
        log::refusal(
            &whose(user),
            "refused",
            json!({"uid": user, "reason": reason}),
        );
        Refusal::new(ErrorKind::PermissionDenied, reason)
    })
}

/// A message of the process that connected.
fn receive_from_peer(
    connection: BorrowedFd<'_>,
    peer: &Identity,
) -> Result<(Vec<u8>, Vec<OwnedFd>)> {
    let sent = message::receive_from(connection, MOST_BYTES)
        .context("the process that connected did not answer the broker's question")?;
    let sender = sent.sender.context("the kernel does not name the sender")?;
    ensure!(
        sender.pid == peer.pid,
        "process {} asks over the connection of process {}: each process has to connect itself",
        sender.pid,
        peer.pid
    );
    Ok((sent.bytes, sent.fds))
}

/// A user, for the log's limit.
fn whose(uid: u32) -> String {
    format!("uid {uid}")
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorKind::InvalidConfig, message)
}

/// Also if somebody has changed the socket's mode.
fn only_root(peer: &Identity) -> Result<(), Refusal> {
    if peer.uid == 0 || peer.uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorKind::PermissionDenied,
        "only root may ask this: use sudo",
    ))
}

/// The tenant of a peer; the log gets the reason of a refusal, the peer its cure.
fn admit(server: &Server, peer: &Identity, name: Option<&str>) -> Result<Tenant, Refusal> {
    server
        .policy()
        .admit(peer, name)
        .cloned()
        .map_err(|refusal| {
            log::refusal(
                &whose(peer.uid),
                "refused",
                json!({"peer": peer.to_string(), "reason": refusal.reason()}),
            );
            Refusal::new(ErrorKind::PermissionDenied, refusal.to_string())
        })
}

fn lend(server: &Server, peer: &Identity, request: &[u8]) -> Result<Reply, Refusal> {
    let began = Instant::now();
    let request = Request::read(request).map_err(|error| Refusal::from(&error))?;
    let tenant = admit(server, peer, request.policy.as_deref())?;
    let asker = Asker {
        pid: peer.pid,
        uid: peer.uid,
    };
    let granted = server.leases.lend(&tenant, &request, asker);
    let took = began.elapsed();
    let metrics = server.supervision.metrics(&tenant.name);
    let outcome = if granted.is_ok() {
        Outcome::Answered
    } else {
        Outcome::Refused
    };
    metrics.of("socket").record(outcome, took);
    let microseconds = took.as_micros() as u64;
    match granted {
        Ok(granted) => {
            let lease = &granted.record;
            event(
                "lease",
                json!({
                    "lease": lease.id, "tenant": lease.tenant, "peer": peer.to_string(), "device": lease.device,
                    "queue": lease.queue, "rx": lease.rx, "tx": lease.tx, "mode": lease.mode,
                    "memory": lease.memory, "microseconds": microseconds,
                }),
            );
            let mut reply = b"ok\n".to_vec();
            reply.extend(granted.message);
            Ok((reply, granted.descriptors))
        }
        Err(refusal) => {
            log::refusal(
                &whose(peer.uid),
                "lease-refused",
                json!({
                    "tenant": tenant.name, "peer": peer.to_string(), "device": request.device,
                    "queue": request.queue, "reason": refusal.message(), "microseconds": microseconds,
                }),
            );
            Err(refusal)
        }
    }
}

/// Takes over the supervision of a process, which may name a tenant, then sends its listener.
fn supervise(
    server: &Arc<Server>,
    connection: &OwnedFd,
    peer: &Identity,
    rest: &str,
    turn: Turn<'_, u32>,
) -> Result<Reply, Refusal> {
    let name = rest.lines().find_map(|line| line.strip_prefix("policy="));
    let tenant = Arc::new(admit(server, peer, name)?);
    // The rest waits for the peer.
    drop(turn);
    let handlers = handlers::names(&tenant.calls).join(",");
    let reply = format!("ok\ntenant={}\nhandlers={handlers}\n", tenant.name);
    let os = |errno: Errno| Refusal::new(ErrorKind::Os, errno.to_string());
    message::send(connection.as_fd(), reply.as_bytes(), &[]).map_err(os)?;
    let (second, fds) = receive_from_peer(connection.as_fd(), peer)
        .map_err(|error| Refusal::new(ErrorKind::PermissionDenied, format!("{error:#}")))?;
    if second.split(|&byte| byte == b'\n').next() != Some(message::LISTENER.as_bytes()) {
        return Err(invalid(
            "the message behind `weir 2 supervise` is `weir 2 listener`, with the listener",
        ));
    }
    let listener = fds
        .into_iter()
        .next()
        .ok_or_else(|| invalid("no listener came with the message"))?;
    let started = start(server, listener, &tenant, peer);
    started.map_err(|error| Refusal::new(ErrorKind::Os, format!("{error:#}")))?;
    Ok((b"ok\n".to_vec(), Vec::new()))
}

fn start(
    server: &Arc<Server>,
    listener: OwnedFd,
    tenant: &Arc<Tenant>,
    peer: &Identity,
) -> Result<()> {
    let listener = Listener::new(listener)?;
    let process = peer.to_kept(tenant.who.sha256);
    let who = peer.to_string();
    server.supervision.start(listener, tenant, &process, &who)
}

/// Serves a container runtime, which sends the state of a container and its listener.
pub(super) fn serve_runtime(server: &Arc<Server>, connection: &OwnedFd) {
    if let Err(error) = supervise_container(server, connection) {
        let user = hostnet::unix::peer(connection.as_fd()).map_or(u32::MAX, |peer| peer.uid);
        let error = format!("{error:#}");
        log::refusal(&whose(user), "runtime-refused", json!({"error": error}));
    }
}

fn supervise_container(server: &Arc<Server>, connection: &OwnedFd) -> Result<()> {
    let runtime = Identity::of_peer(connection.as_fd())?;
    oci::check_runtime(&runtime)?;
    // A runtime that connects and sends nothing is a normal one.
    let Some(container) = oci::receive(connection)? else {
        return Ok(());
    };
    let who = format!("container {}", container.id);
    supervise_process(server, runtime, container, &who).context(who)
}

fn supervise_process(
    server: &Server,
    runtime: Identity,
    container: ContainerState,
    who: &str,
) -> Result<()> {
    let name = container.tenant();
    let identity = container.identity(runtime)?;
    let policy = server.policy();
    let tenant = policy
        .admit(&identity, name.as_deref())
        .map_err(|refusal| anyhow::anyhow!("{}", refusal.reason()))?;
    let tenant = Arc::new(tenant.clone());
    let process = identity.to_kept(tenant.who.sha256);
    server
        .supervision
        .start(container.listener, &tenant, &process, who)
}

/// Names the holders of a lease, and kills their control groups where the policy says so.
fn revoke(server: &Server, rest: &str) -> Result<Reply, Refusal> {
    let id = rest
        .lines()
        .find_map(|line| line.strip_prefix("lease=")?.parse().ok());
    let id = LeaseId(id.ok_or_else(|| invalid("give the lease: `lease=ID`"))?);
    let lease = server.leases.get(id);
    let lease = lease.ok_or_else(|| {
        invalid(format!(
            "there is no lease {id}: `weir broker status` lists them"
        ))
    })?;
    let holders = server.leases.holders(&lease);
    let killed = lease.kill && kill(server, &lease, &holders);
    event(
        "revoke",
        json!({"lease": id, "tenant": lease.tenant, "holders": &holders, "killed": killed}),
    );
    give_file(&json!({"lease": lease, "holders": holders, "killed": killed}).to_string())
}

/// Kills the control groups of those holders that are the tenant's; returns whether there is no other. A
/// tenant can pass its socket to any process that takes descriptors.
fn kill(server: &Server, lease: &Record, holders: &[Holder]) -> bool {
    let policy = server.policy();
    let kill = |holder: &Holder| -> Result<()> {
        let pid = Pid::from_raw(holder.pid.cast_signed()).context("a process has an id")?;
        let process = Identity::of_process(pid)?;
        policy.admit(&process, Some(&lease.tenant))?;
        let file = holder.kill_file()?;
        ensure!(process.is_alive(), "the process has ended");
        Ok(fs::write(file, "1")?)
    };
    let mut all = true;
    for holder in holders {
        if let Err(error) = kill(holder) {
            all = false;
            let error = format!("{error:#}");
            event(
                "not-killed",
                json!({"lease": lease.id, "holder": holder, "reason": error}),
            );
        }
    }
    all
}

/// A reply that may be longer than a message.
fn give_file(text: &str) -> Result<Reply, Refusal> {
    let write = || -> Result<OwnedFd> {
        let mut file = File::from(memfd_create("weir-broker-reply", MemfdFlags::CLOEXEC)?);
        file.write_all(text.as_bytes())?;
        file.rewind()?;
        Ok(file.into())
    };
    let file = write().map_err(|error| Refusal::new(ErrorKind::Os, format!("{error:#}")))?;
    Ok((b"ok\n".to_vec(), vec![file]))
}
