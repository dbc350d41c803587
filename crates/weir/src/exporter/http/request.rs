//! The head of a request, and a response.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest head.
const MOST_BYTES: usize = 16 << 10;
/// Most fields of a head.
const MOST_FIELDS: usize = 64;

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Whether only the head of the response is wanted.
    pub head_only: bool,
    /// The path, without a query.
    pub path: String,
    /// `Accept`.
    pub accept: String,
    /// `Authorization`: user and password.
    pub login: Option<(String, Vec<u8>)>,
}

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// The client is gone, or too slow.
    Gone(Gone),
    /// It is answered with a status.
    Status(u16),
}

/// How a client went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It sent too slowly.
    Slow,
    /// It closed the connection.
    Closed,
    /// It sent no TLS, or none of an accepted version.
    Tls,
}

/// Reads the head of a request.
pub fn read(from: &mut impl Read) -> Result<Request, Fault> {
    let mut head = Vec::new();
    let mut part = [0; 2048];
    loop {
        let count = match from.read(&mut part) {
            Ok(0) => return Err(Fault::Gone(Gone::Closed)),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Fault::Gone(gone(&error))),
        };
        head.extend_from_slice(part.get(..count).unwrap_or_default());
        if let Some(request) = parse(&head)? {
            return Ok(request);
        }
        if head.len() > MOST_BYTES {
            return Err(Fault::Status(431));
        }
    }
}

fn gone(error: &std::io::Error) -> Gone {
    match error.kind() {
        ErrorKind::TimedOut => Gone::Slow,
        // rustls' word for bytes that are not its protocol.
        ErrorKind::InvalidData => Gone::Tls,
        _ => Gone::Closed,
    }
}

/// The request, once its head is complete.
fn parse(head: &[u8]) -> Result<Option<Request>, Fault> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(Fault::Status(431)),
        Err(_) => return Err(Fault::Status(400)),
    }
    let mut request = Request {
        head_only: match parsed.method {
            Some("GET") => false,
            Some("HEAD") => true,
            _ => return Err(Fault::Status(405)),
        },
        path: parsed
            .path
            .unwrap_or_default()
            .split('?')
            .next()
            .unwrap_or_default()
            .to_owned(),
        ..Request::default()
    };
    for field in parsed.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        let value = || String::from_utf8_lossy(field.value);
        if is("accept") {
            // Several lines are one list.
            let _ = write!(request.accept, "{},", value());
        } else if is("authorization") {
            request.login = login(&value());
        } else if is("transfer-encoding") || (is("content-length") && value().trim() != "0") {
            // A body would have to be read, and nothing here takes one.
            return Err(Fault::Status(400));
        }
    }
    Ok(Some(request))
}

fn login(value: &str) -> Option<(String, Vec<u8>)> {
    let (scheme, code) = value.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = STANDARD.decode(code.trim()).ok()?;
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let (user, password) = bytes.split_at_checked(colon)?;
    Some((
        String::from_utf8(user.to_vec()).ok()?,
        password.get(1..)?.to_vec(),
    ))
}

/// A response.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: &'static str,
    /// The content.
    pub body: String,
}

impl Response {
    /// A status with a line of text.
    pub fn words(status: u16, words: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{words}\n"),
        }
    }

    /// Sends it, with headers of the configuration. A client that left does not matter.
    pub fn send(&self, to: &mut impl Write, head_only: bool, headers: &BTreeMap<String, String>) {
        let mut text = format!(
            "HTTP/1.1 {} {}\r\nConnection: close\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        );
        match self.status {
            401 => text.push_str("WWW-Authenticate: Basic realm=\"weir\", charset=\"UTF-8\"\r\n"),
            405 => text.push_str("Allow: GET, HEAD\r\n"),
            429 | 503 => text.push_str("Retry-After: 1\r\n"),
            _ => {}
        }
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        if !headers.contains_key("X-Content-Type-Options") {
            text.push_str("X-Content-Type-Options: nosniff\r\n");
        }
        text.push_str("\r\n");
        if !head_only {
            text.push_str(&self.body);
        }
        let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> Result<Request, Fault> {
        read(&mut &*bytes)
    }

    #[test]
    fn a_request_has_a_path_and_an_answer_format() {
        let request = read_all(
            b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\nAccept: */*\r\n\
              Authorization: Basic YWxpY2U6YTpi\r\n\r\n",
        )
        .expect("valid");
        assert_eq!(request.path, "/metrics");
        assert_eq!(request.accept, "text/plain,*/*,");
        assert_eq!(request.login, Some(("alice".into(), b"a:b".to_vec())));
        assert!(
            read_all(b"HEAD / HTTP/1.0\r\n\r\n")
                .expect("valid")
                .head_only
        );
    }

    #[test]
    fn hostile_heads_have_an_end() {
        let field = |count: usize| {
            let mut head = b"GET / HTTP/1.1\r\n".to_vec();
            for at in 0..count {
                head.extend(format!("x{at}: y\r\n").bytes());
            }
            head.extend(b"\r\n");
            head
        };
        let long = [b"GET /".as_slice(), &vec![b'a'; 100_000]].concat();
        for (bytes, expected) in [
            (b"".to_vec(), Fault::Gone(Gone::Closed)),
            (
                b"GET / HTTP/1.1\r\nHost".to_vec(),
                Fault::Gone(Gone::Closed),
            ),
            (b"\x16\x03\x01\x02\x00\x01\x00".to_vec(), Fault::Status(400)),
            (b"GET / SPDY/9\r\n\r\n".to_vec(), Fault::Status(400)),
            (b"POST / HTTP/1.1\r\n\r\n".to_vec(), Fault::Status(405)),
            (
                b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n".to_vec(),
                Fault::Status(400),
            ),
            (
                b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
                Fault::Status(400),
            ),
            (
                b"GET / HTTP/1.1\r\nbad header\r\n\r\n".to_vec(),
                Fault::Status(400),
            ),
            (field(65), Fault::Status(431)),
            (long, Fault::Status(431)),
        ] {
            assert_eq!(read_all(&bytes), Err(expected), "{}", bytes.escape_ascii());
        }
        read_all(&field(64)).expect("64 fields");
    }

    #[test]
    fn malformed_logins_are_none() {
        for value in [
            "",
            "Basic",
            "Basic !",
            "Bearer YWxpY2U6YQ==",
            "Basic YWxpY2U=",
            "Basic /w==",
        ] {
            assert_eq!(login(value), None, "{value}");
        }
    }
}
