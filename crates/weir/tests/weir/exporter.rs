//! `weir exporter`: its two processes, hostile clients, TLS and passwords with a real client (curl), and a loss
//! of real packets.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use hostnet::netns;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{Limit, Temporary, limit::longest};

use crate::until;
use crate::{SOON, Test, failure, ledger, skip, success, tests, weir};

pub fn trials() -> Vec<Test> {
    let of_anyone = tests![
        a_wide_address_needs_protection,
        a_port_in_use_is_named,
        a_faulty_web_config_is_refused,
    ];
    let mut all: Vec<_> = of_anyone.into_iter().map(Test::for_everyone).collect();
    all.extend(tests![
        scrapes_have_the_format_asked_for,
        the_http_process_has_no_privilege,
        the_processes_end_together,
        hostile_clients_keep_nobody_out,
        tls_and_passwords_are_asked_for,
        a_changed_web_config_is_taken_over,
        a_client_certificate_is_asked_for,
        a_unix_socket_is_for_its_group,
        a_lost_datagram_is_counted_once,
    ]);
    all
}

/// A running exporter, which ends with this.
struct Exporter {
    child: Child,
    lines: Receiver<Value>,
    /// The log so far.
    log: Vec<Value>,
}

impl Exporter {
    /// Starts one on a free port, and waits until it listens. A system call that its filter lacks ends it.
    fn start(arguments: &[&str]) -> Result<Self> {
        let mut command = weir();
        command.args(["exporter", "--strict", "--listen", "127.0.0.1:0"]);
        Self::spawn(command.args(arguments))
    }

    fn spawn(command: &mut Command) -> Result<Self> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("standard error")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or(Value::String(line));
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let mut exporter = Self {
            child,
            lines,
            log: Vec::new(),
        };
        exporter.wait_for("listening")?;
        Ok(exporter)
    }

    /// The next event of this name.
    fn wait_for(&mut self, name: &str) -> Result<Value> {
        let mut limit = Limit::new(SOON);
        loop {
            let Ok(line) = limit.receive(&self.lines) else {
                bail!("no event {name:?} in the log: {:?}", self.log);
            };
            self.log.push(line.clone());
            if line["event"] == name {
                return Ok(line);
            }
        }
    }

    fn event(&self, name: &str) -> Result<&Value> {
        let found = self.log.iter().find(|line| line["event"] == name);
        found.with_context(|| format!("no event {name:?} in the log: {:?}", self.log))
    }

    fn address(&self) -> Result<String> {
        let address = self.event("listening")?["address"].as_str();
        Ok(address.context("an address")?.to_owned())
    }

    fn http_process(&self) -> Result<u64> {
        self.event("listening")?["http_process"]
            .as_u64()
            .context("the HTTP process")
    }

    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.address()?)?;
        stream.set_read_timeout(Some(longest(SOON)))?;
        Ok(stream)
    }

    /// The response to bytes; empty where there is none.
    fn exchange(&self, bytes: &[u8]) -> Result<String> {
        let mut stream = self.connect()?;
        // It may be closed before all is written.
        let _ = stream.write_all(bytes);
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        Ok(String::from_utf8_lossy(&response).into_owned())
    }

    fn get(&self, path: &str, accept: &str) -> Result<(String, String)> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
        let response = self.exchange(request.as_bytes())?;
        let (head, body) = response.split_once("\r\n\r\n").context("no response")?;
        Ok((head.to_owned(), body.to_owned()))
    }

    /// The metrics, as plain text.
    fn metrics(&self) -> Result<String> {
        let (head, body) = self.get("/metrics", "text/plain")?;
        ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}\n{body}");
        Ok(body)
    }

    /// Ends it by SIGTERM, which must be a success.
    fn end(mut self) -> Result<()> {
        signal(self.child.id(), Signal::TERM)?;
        let status = wait(&mut self.child)?;
        ensure!(
            status.success(),
            "it ended with {status}: {:?}",
            self.rest()
        );
        Ok(())
    }

    fn rest(&self) -> Vec<Value> {
        self.lines.iter().collect()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        // The HTTP process dies with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child) -> Result<std::process::ExitStatus> {
    let mut status = None;
    until("it ends", || {
        status = child.try_wait()?;
        Ok(status.is_some())
    })?;
    status.context("it goes on")
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(pid.cast_signed()).context("a process id")?;
    kill_process(pid, signal).context("kill(2)")
}

/// The value of a series, by its beginning.
fn value(page: &str, series: &str) -> Result<f64> {
    let line = page.lines().find(|line| line.starts_with(series));
    let line = line.with_context(|| format!("no series {series} in:\n{page}"))?;
    let value = line.rsplit(' ').next().unwrap_or_default();
    value
        .parse()
        .with_context(|| format!("the value of {line}"))
}

/// The sum of a family's series with some text in their labels.
fn sum(page: &str, family: &str, labels: &str) -> f64 {
    page.lines()
        .filter(|line| line.starts_with(&format!("{family}{{")) && line.contains(labels))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

fn scrapes_have_the_format_asked_for() -> Result<()> {
    let exporter = Exporter::start(&[])?;
    let (head, body) = exporter.get(
        "/metrics",
        "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
    )?;
    ensure!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    ensure!(body.ends_with("# EOF\n"), "no end: {body}");
    ensure!(
        body.contains("# UNIT weir_device_packets packets\n"),
        "{body}"
    );
    let (head, body) = exporter.get("/metrics", "*/*")?;
    ensure!(
        head.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
    ensure!(
        !body.contains("# EOF") && !body.contains("# UNIT"),
        "{body}"
    );
    ensure!(value(&body, "weir_stage_losses_total{stage=\"udp\"}")? >= 0.0);
    ensure!(value(&body, "weir_exporter_snapshot_age_seconds ")? < 60.0);
    // Every series has a family, once.
    let mut seen = std::collections::BTreeSet::new();
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        ensure!(
            body.contains(&format!("# TYPE {name} ")),
            "{name} has no type"
        );
        let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
        ensure!(seen.insert(series), "{series} is there twice");
    }
    for (path, status) in [
        ("/", "200 OK"),
        ("/-/healthy", "200 OK"),
        ("/debug/pprof", "404 Not Found"),
        ("/../etc/passwd", "404"),
    ] {
        let (head, _) = exporter.get(path, "*/*")?;
        ensure!(
            head.starts_with(&format!("HTTP/1.1 {status}")),
            "{path}: {head}"
        );
    }
    exporter.end()
}

fn the_http_process_has_no_privilege() -> Result<()> {
    let exporter = Exporter::start(&[])?;
    exporter.metrics()?;
    let status = |pid: u64| fs::read_to_string(format!("/proc/{pid}/status"));
    let http = status(exporter.http_process()?)?;
    let field = |name: &str| {
        let line = http.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    ensure!(
        field("Uid:").split_whitespace().all(|id| id == "65534"),
        "{http}"
    );
    ensure!(
        field("Gid:").split_whitespace().all(|id| id == "65534"),
        "{http}"
    );
    ensure!(field("Groups:").is_empty(), "{http}");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        ensure!(field(set) == "0000000000000000", "{http}");
    }
    ensure!(
        field("NoNewPrivs:") == "1" && field("Seccomp:") == "2",
        "{http}"
    );
    // Its sockets, the reader's, and the log: none of the reader's descriptors, as of programs or namespaces.
    for fd in fs::read_dir(format!("/proc/{}/fd", exporter.http_process()?))? {
        let target = fs::read_link(fd?.path())?;
        let target = target.to_string_lossy();
        ensure!(
            target.starts_with("socket:") || target.starts_with("pipe:"),
            "the HTTP process has {target}"
        );
    }
    let reader = status(exporter.child.id().into())?;
    let effective = reader.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = u64::from_str_radix(effective.unwrap_or_default().trim(), 16)?;
    // Of those that it has no use for: CAP_SYS_MODULE, CAP_SYS_BOOT, CAP_SETUID, CAP_MKNOD, CAP_SYS_RAWIO.
    for capability in [16, 22, 7, 27, 17] {
        ensure!(effective & (1 << capability) == 0, "{reader}");
    }
    exporter.end()
}

fn the_processes_end_together() -> Result<()> {
    // The HTTP process is killed: the reader says so and ends.
    let mut exporter = Exporter::start(&[])?;
    signal(exporter.http_process()? as u32, Signal::KILL)?;
    let status = wait(&mut exporter.child)?;
    ensure!(status.code() == Some(1), "{status}");
    let words = format!("{:?}", exporter.rest());
    ensure!(words.contains("the HTTP process has ended"), "{words}");
    // The reader is killed: the HTTP process goes with it.
    let mut exporter = Exporter::start(&[])?;
    let http = exporter.http_process()?;
    exporter.child.kill()?;
    exporter.child.wait()?;
    // As a zombie it may wait for its new parent.
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{http}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    until("the HTTP process ends", || Ok(!runs()))
}

fn hostile_clients_keep_nobody_out() -> Result<()> {
    let exporter = Exporter::start(&[])?;
    // More silent connections than are served, and some that send a byte now and then.
    let mut silent = Vec::new();
    for at in 0..200 {
        let mut stream = exporter.connect()?;
        if at % 3 == 0 {
            // It may have been ended for a newer one.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n");
        }
        silent.push(stream);
    }
    // While the threads of those that made room still end, others may be refused.
    let mut page = String::new();
    until("the page is served", || {
        page = exporter.metrics().unwrap_or_default();
        Ok(!page.is_empty())
    })?;
    ensure!(
        value(
            &page,
            "weir_exporter_http_abandoned_connections_total{cause=\"crowded\"}"
        )? > 0.0
    );
    let slow = thread::spawn({
        let mut stream = exporter.connect()?;
        move || {
            let ended = || Ok(stream.write_all(b"a").is_err());
            until("the slow client is left", ended)
        }
    });
    // Garbage of many kinds has an answer or an end.
    let long = [b"GET /".as_slice(), &vec![b'a'; 1 << 15]].concat();
    // So much is not read to its end: the answer may be lost by that.
    exporter.exchange(&[b"GET /".as_slice(), &vec![b'a'; 1 << 20]].concat())?;
    let fields = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(10_000));
    for (bytes, status) in [
        (long.as_slice(), "431"),
        (fields.as_bytes(), "431"),
        (&[0; 4096], "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (
            b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
            "405",
        ),
        (
            b"GET /metrics HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n",
            "400",
        ),
        (
            b"GET /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400",
        ),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "40"),
    ] {
        let response = exporter.exchange(bytes)?;
        ensure!(
            response.starts_with(&format!("HTTP/1.1 {status}")),
            "{}: {response}",
            bytes[..20.min(bytes.len())].escape_ascii()
        );
    }
    // One that asks and does not read keeps nobody waiting.
    let mut deaf = exporter.connect()?;
    deaf.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
    exporter.metrics()?;
    slow.join()
        .map_err(|_| anyhow::anyhow!("the slow client"))??;
    let threads = fs::read_dir(format!("/proc/{}/task", exporter.http_process()?))?.count();
    ensure!(threads <= 64 + 3, "{threads} threads");
    exporter.metrics()?;
    exporter.end()
}

/// A directory with a certificate, for servers and curl.
struct Tls {
    directory: Temporary,
}

impl Tls {
    fn new(name: &str) -> Result<Self> {
        for tool in ["curl", "openssl"] {
            let found = Command::new(tool).arg("--version").output();
            if found.is_err() && tool == "curl" {
                return Err(skip("curl is not installed"));
            }
            if Command::new("openssl").arg("version").output().is_err() {
                return Err(skip("openssl is not installed"));
            }
        }
        let directory = Temporary::new(&format!("exporter-{name}"))?;
        let tls = Self { directory };
        tls.certificate(
            "server",
            "/CN=localhost",
            &["-addext", "subjectAltName=IP:127.0.0.1"],
        )?;
        Ok(tls)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// A key and a certificate that is signed by itself.
    fn certificate(&self, name: &str, subject: &str, more: &[&str]) -> Result<()> {
        let mut openssl = Command::new("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ]);
        openssl.args([
            "-subj",
            subject,
            "-keyout",
            &self.text(&format!("{name}.key")),
        ]);
        success(
            openssl
                .args(["-out", &self.text(&format!("{name}.pem"))])
                .args(more),
        )
        .map(drop)
    }

    fn config(&self, text: &str) -> Result<String> {
        // Renamed, as an editor does it: a half-written file is nobody's configuration.
        fs::write(self.path("new"), text)?;
        fs::rename(self.path("new"), self.path("web.yml"))?;
        Ok(self.text("web.yml"))
    }

    /// curl's status and body.
    fn curl(&self, exporter: &Exporter, arguments: &[&str]) -> Result<(String, String)> {
        let url = format!("https://{}/metrics", exporter.address()?);
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "60",
            "--cacert",
            &self.text("server.pem"),
        ]);
        let output = curl
            .args(["--write-out", "%{http_code}", &url])
            .args(arguments)
            .output()?;
        let mut body = String::from_utf8(output.stdout)?;
        let status = body.split_off(body.len().saturating_sub(3));
        if output.status.success() {
            return Ok((status, body));
        }
        Ok((
            "failed".into(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ))
    }
}

/// The hash of `secret`, by htpasswd's kind (`$2y$`), at the lowest cost.
const SECRET: &str = "$2y$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW";

const SERVER: &str = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n";

fn tls_and_passwords_are_asked_for() -> Result<()> {
    let tls = Tls::new("passwords")?;
    let config = tls.config(&format!("{SERVER}basic_auth_users:\n  alice: {SECRET}\n"))?;
    let exporter = Exporter::start(&["--web-config", &config])?;
    for (arguments, expected) in [
        (&["--user", "alice:secret"][..], "200"),
        // From the cache, and past it.
        (&["--user", "alice:secret"], "200"),
        (&["--user", "alice:wrong"], "401"),
        (&["--user", "alice:"], "401"),
        (&["--user", "bob:secret"], "401"),
        (&["--header", "Authorization: Bearer secret"], "401"),
        (&["--header", "Authorization: Basic ////"], "401"),
        (&[], "401"),
        (&["--user", "alice:secret", "--tls-max", "1.2"], "200"),
    ] {
        let (status, body) = tls.curl(&exporter, arguments)?;
        ensure!(status == expected, "{arguments:?}: {status} {body}");
        ensure!(
            body.contains("weir_stage_losses_total") == (expected == "200"),
            "{arguments:?}: {body}"
        );
    }
    // Every path asks.
    for path in ["/", "/-/healthy", "/nothing"] {
        let url = format!("https://{}{path}", exporter.address()?);
        let (status, _) = tls.curl(&exporter, &["--output", "/dev/null", &url])?;
        ensure!(status == "401", "{path}: {status}");
    }
    // Plain HTTP, and garbage in place of a handshake.
    for bytes in [
        &b"GET /metrics HTTP/1.1\r\n\r\n"[..],
        &[0; 600],
        b"\x16\x03\x01\xff\xff",
    ] {
        let mut stream = exporter.connect()?;
        stream.write_all(bytes)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        ensure!(
            !String::from_utf8_lossy(&response).contains("weir"),
            "{}",
            response.escape_ascii()
        );
    }
    let (_, body) = tls.curl(&exporter, &["--user", "alice:secret"])?;
    ensure!(
        value(
            &body,
            "weir_exporter_http_abandoned_connections_total{cause=\"tls\"}"
        )? > 0.0,
        "{body}"
    );
    exporter.end()
}

fn a_changed_web_config_is_taken_over() -> Result<()> {
    let tls = Tls::new("change")?;
    let config = tls.config(&format!("{SERVER}basic_auth_users:\n  alice: {SECRET}\n"))?;
    let mut exporter = Exporter::start(&["--web-config", &config])?;
    let status = |exporter: &Exporter, user: &str| {
        Ok::<_, anyhow::Error>(tls.curl(exporter, &["--user", user])?.0)
    };
    ensure!(status(&exporter, "alice:secret")? == "200");
    tls.config(&format!("{SERVER}basic_auth_users:\n  bob: {SECRET}\n"))?;
    exporter.wait_for("web_config")?;
    // The HTTP process has it a moment later.
    until("the new configuration is in force", || {
        Ok(status(&exporter, "bob:secret")? == "200")
    })?;
    ensure!(
        status(&exporter, "alice:secret")? == "401",
        "alice is still admitted"
    );
    // A fault leaves it in force, and is counted.
    tls.config("tls_server_config:\n  cert_fil: x\n")?;
    let refused = exporter.wait_for("web_config_refused")?;
    let words = refused["error"].as_str().unwrap_or_default();
    ensure!(
        words.contains("line 2, column 3: unknown key \"cert_fil\""),
        "{words}"
    );
    ensure!(status(&exporter, "bob:secret")? == "200");
    thread::sleep(Duration::from_millis(1100));
    let (_, body) = tls.curl(&exporter, &["--user", "bob:secret"])?;
    ensure!(
        value(&body, "weir_exporter_web_config_errors_total")? > 0.5,
        "{body}"
    );
    // A new certificate.
    tls.certificate(
        "other",
        "/CN=other",
        &["-addext", "subjectAltName=IP:127.0.0.1"],
    )?;
    tls.config(&format!(
        "{}basic_auth_users:\n  bob: {SECRET}\n",
        SERVER.replace("server.", "other.")
    ))?;
    exporter.wait_for("web_config")?;
    until("the new certificate is in force", || {
        Ok(status(&exporter, "bob:secret")? == "failed")
    })?;
    let other = tls.text("other.pem");
    let (status, _) = tls.curl(&exporter, &["--user", "bob:secret", "--cacert", &other])?;
    ensure!(status == "200", "{status}");
    exporter.end()
}

fn a_client_certificate_is_asked_for() -> Result<()> {
    let tls = Tls::new("client")?;
    for name in ["friend", "stranger"] {
        let (authority, key) = (format!("{name}s"), tls.text(&format!("{name}s.key")));
        tls.certificate(&authority, &format!("/CN={authority}"), &[])?;
        let certificate = tls.text(&format!("{authority}.pem"));
        let by_authority = [
            "-CA",
            &certificate,
            "-CAkey",
            &key,
            "-addext",
            "basicConstraints=CA:FALSE",
        ];
        tls.certificate(name, &format!("/CN={name}"), &by_authority)?;
    }
    let config = tls.config(&format!(
        "{SERVER}  client_ca_file: friends.pem\n  client_auth_type: RequireAndVerifyClientCert\n  min_version: TLS13\n"
    ))?;
    let exporter = Exporter::start(&["--web-config", &config])?;
    let with = |name: &str| {
        let (certificate, key) = (
            tls.text(&format!("{name}.pem")),
            tls.text(&format!("{name}.key")),
        );
        tls.curl(&exporter, &["--cert", &certificate, "--key", &key])
    };
    let (none, _) = tls.curl(&exporter, &[])?;
    let (stranger, _) = with("stranger")?;
    ensure!(
        none == "failed" && stranger == "failed",
        "{none} {stranger}"
    );
    let (friend, words) = with("friend")?;
    ensure!(friend == "200", "{friend} {words}");
    let (old, _) = tls.curl(&exporter, &["--tls-max", "1.2"])?;
    ensure!(old == "failed", "TLS 1.2 is spoken");
    exporter.end()
}

fn a_wide_address_needs_protection() -> Result<()> {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error = failure(weir().args(["exporter", "--listen", address]), 1)?;
        ensure!(error.contains("other hosts reach"), "{error}");
        ensure!(error.contains("--allow-insecure"), "{error}");
    }
    let error = failure(weir().args(["exporter", "--listen", "localhost"]), 2)?;
    ensure!(error.contains("ADDRESS:PORT"), "{error}");
    Ok(())
}

fn a_port_in_use_is_named() -> Result<()> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let error = failure(weir().args(["exporter", "--listen", &address]), 1)?;
    ensure!(
        error.contains(&format!("cannot listen on {address}")),
        "{error}"
    );
    ensure!(error.contains("another program listens there"), "{error}");
    Ok(())
}

fn a_faulty_web_config_is_refused() -> Result<()> {
    let directory = Temporary::new("exporter-faults")?;
    let path = directory.join("web.yml");
    fs::write(directory.join("empty.pem"), "")?;
    let shown = path.display().to_string();
    for (text, expected) in [
        (None, "cannot read"),
        (
            Some("tls_server_config: {cert_file: no.pem, key_file: no.pem}\n"),
            "cannot read",
        ),
        (
            Some("tls_server_config: {cert_file: empty.pem, key_file: empty.pem}\n"),
            "no certificate in PEM",
        ),
        (
            Some("basic_auth_users: {alice: secret}\n"),
            "no bcrypt hash",
        ),
        (Some("a: b: c\n"), "line 1"),
        (Some("\u{0}\n"), "web configuration"),
    ] {
        if let Some(text) = text {
            fs::write(&path, text)?;
        }
        let error = failure(
            weir().args([
                "exporter",
                "--listen",
                "127.0.0.1:0",
                "--web-config",
                &shown,
            ]),
            1,
        )?;
        ensure!(error.contains(expected), "{text:?}: {error}");
    }
    Ok(())
}

fn a_unix_socket_is_for_its_group() -> Result<()> {
    let directory = Temporary::new("exporter-unix")?;
    let path = directory.join("exporter.sock");
    let listen = format!("unix:{}", path.display());
    let mut command = weir();
    command.args([
        "exporter", "--strict", "--listen", &listen, "--group", "65534",
    ]);
    let exporter = Exporter::spawn(&mut command)?;
    ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o660);
    let mut stream = std::os::unix::net::UnixStream::connect(&path)?;
    stream.write_all(b"GET /-/healthy HTTP/1.0\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    ensure!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    let error = failure(weir().args(["exporter", "--listen", &listen]), 1)?;
    ensure!(error.contains("another process listens"), "{error}");
    exporter.end()?;
    ensure!(!path.exists(), "the socket's file is left behind");
    Ok(())
}

/// In a namespace of its own: others in the host's lose datagrams, too.
fn a_lost_datagram_is_counted_once() -> Result<()> {
    let namespace = ledger::namespace()?;
    netns::run_in(namespace.as_fd(), lose_datagrams)
}

fn lose_datagrams() -> Result<()> {
    const SENT: u32 = 1000;
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    // The least that the kernel gives.
    rustix::net::sockopt::set_socket_recv_buffer_size(&receiver, 1)?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    let namespace = fs::read_link("/proc/thread-self/ns/net")?;
    let namespace = namespace.to_string_lossy();
    let exporter = Exporter::start(&["--netns", &namespace])?;
    let before = exporter.metrics()?;
    if !before.contains("weir_gaps{stage=\"socket\"} 0\n")
        && !before.contains("weir_gaps{stage=\"udp\"} 0\n")
    {
        return Err(skip(
            "this kernel's losses are not seen by reason and place",
        ));
    }
    for _ in 0..SENT {
        sender.send_to(&[0; 512], receiver.local_addr()?)?;
    }
    receiver.set_nonblocking(true)?;
    let mut read = 0;
    while receiver.recv(&mut [0; 512]).is_ok() {
        read += 1;
    }
    let lost = f64::from(SENT - read);
    ensure!(lost > 0.0, "nothing was lost");
    // A snapshot is shared for a second.
    thread::sleep(Duration::from_millis(1100));
    let after = exporter.metrics()?;
    let labels = "reason=\"SOCKET_RCVBUFF\"";
    let counted =
        sum(&after, "weir_losses_total", labels) - sum(&before, "weir_losses_total", labels);
    ensure!(
        (counted - lost).abs() < 0.5,
        "{lost} were lost, {counted} are counted:\n{after}"
    );
    ensure!(
        !after.contains(&receiver.local_addr()?.to_string()),
        "an address is a label"
    );
    exporter.end()
}
