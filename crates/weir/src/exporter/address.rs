//! Where the exporter listens.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail, ensure};
use broker::daemon::listen::{Access, Listening};
use hostnet::privilege::{self, Capability, Feature};
use rustix::net::SocketType;

/// The address by default: W E I R on a telephone's keys.
pub const DEFAULT: &str = "127.0.0.1:9347";

/// An address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// An IP address and port.
    Ip(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                Err("the path of a Unix socket begins with /".into())
            };
        }
        let address = text.parse();
        address.map(Self::Ip).map_err(|_| {
            "choose ADDRESS:PORT such as 127.0.0.1:9347 or [::1]:9347, or unix:/PATH".into()
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Whether only this host reaches it.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Ip(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Refuses to answer other hosts without protection.
    pub fn check(&self, protects: bool) -> Result<()> {
        ensure!(
            self.is_local() || protects,
            "other hosts reach {self}: give a --web-config with tls_server_config, and with basic_auth_users or \
             client_auth_type: RequireAndVerifyClientCert; or listen on {DEFAULT}; or give --allow-insecure to show \
             the host's devices, containers and losses to everybody"
        );
        Ok(())
    }

    /// Listens.
    pub fn listen(&self, group: Option<&str>) -> Result<Listener> {
        match self {
            Self::Ip(_) if group.is_some() => bail!("--group is for a Unix socket"),
            Self::Ip(address) => {
                let listener =
                    TcpListener::bind(address).map_err(|error| refusal(*address, error))?;
                Ok(Listener::Tcp(listener.into()))
            }
            Self::Unix(path) => {
                let access = group.map_or(Access::Root, |group| Access::Group(group.into()));
                let listening = Listening::new(path, SocketType::STREAM, &access)?;
                Ok(Listener::Unix(listening))
            }
        }
    }
}

fn refusal(address: SocketAddr, error: std::io::Error) -> anyhow::Error {
    let cure = match error.kind() {
        std::io::ErrorKind::AddrInUse => format!(
            "another program listens there (`ss -ltnp sport = :{}` names it): end it, or give another --listen",
            address.port()
        ),
        std::io::ErrorKind::AddrNotAvailable => {
            "no device of this host has the address: see `ip address`".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => {
            let needed: &[_] = match address.port() {
                ..1024 => &[Capability::NetBindService],
                _ => &[],
            };
            let errno = error.raw_os_error().unwrap_or_default();
            let why = privilege::refusal(errno, Feature::Base, needed).unwrap_or_default();
            format!("{why}; another --listen may do")
        }
        _ => "see bind(2)".to_owned(),
    };
    anyhow::Error::new(error).context(format!("cannot listen on {address}: {cure}"))
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On an IP address.
    Tcp(OwnedFd),
    /// On a path, which is removed with it.
    Unix(Listening),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(fd) => fd.as_fd(),
            Self::Unix(listening) => listening.as_fd(),
        }
    }
}

impl Listener {
    /// The address, with the port that the kernel chose for 0.
    pub fn address(&self) -> Result<String> {
        match self {
            Self::Tcp(fd) => {
                let listener = TcpListener::from(fd.try_clone()?);
                let address = listener.local_addr().context("the listener's address")?;
                Ok(address.to_string())
            }
            Self::Unix(_) => Ok("a Unix socket".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_host_is_local() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("unix:/run/x", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.is_local(), local, "{text}");
            assert_eq!(address.check(false).is_ok(), local, "{text}");
            address.check(true).expect("protected");
        }
        for text in [
            "",
            "9347",
            ":9347",
            "localhost:9347",
            "unix:",
            "unix:x",
            "1.2.3.4",
            "[::1]",
        ] {
            text.parse::<Address>().expect_err(text);
        }
    }

    #[test]
    fn a_port_in_use_names_cause_and_cure() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = Address::Ip(taken.local_addr().expect("its address"));
        let error = format!("{:#}", address.listen(None).expect_err("in use"));
        assert!(error.contains("another program listens there"), "{error}");
        assert!(error.contains("ss -ltnp"), "{error}");
    }
}
