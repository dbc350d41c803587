//! The web configuration: TLS and passwords in the format of Prometheus' exporter-toolkit (`--web.config.file`).
//!
//! The privileged process reads it with the files that it names, and hands their contents over: the process
//! that answers HTTP opens no file, and so can send no other.

mod tree;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bcrypt::HashParts;
use serde::{Deserialize, Serialize};

use tree::{Node, Place, Value};

/// Longest file that is read.
const MOST_BYTES: u64 = 256 << 10;

/// The highest cost of a bcrypt hash: a check of it takes one to three seconds, during which other logins
/// wait.
const MOST_COST: u32 = 15;

/// Headers that a response may have by the configuration.
const HEADERS: [&str; 5] = [
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
];

/// How the HTTP process answers, without any path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebConfig {
    /// TLS; plain HTTP without it.
    pub tls: Option<Tls>,
    /// bcrypt hashes by user; everybody is answered where there is none.
    pub users: BTreeMap<String, String>,
    /// The most requests: one in each interval, and so many at once.
    pub rate_limit: Option<(Duration, u32)>,
    /// Headers of responses.
    pub headers: BTreeMap<String, String>,
}

/// TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// The certificate and its chain, in PEM.
    pub certificate: String,
    /// Its key, in PEM.
    pub key: String,
    /// The authorities of clients' certificates, in PEM.
    pub client_authorities: Option<String>,
    /// Whether clients need a certificate.
    pub client_certificate: ClientCertificate,
    /// Whether TLS 1.2 is spoken.
    pub tls12: bool,
    /// Whether TLS 1.3 is spoken.
    pub tls13: bool,
}

/// `client_auth_type`, as far as it protects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientCertificate {
    /// `NoClientCert`
    NotAsked,
    /// `VerifyClientCertIfGiven`
    VerifiedIfGiven,
    /// `RequireAndVerifyClientCert`
    Required,
}

impl WebConfig {
    /// Whether it keeps strangers out, and listeners on the way.
    pub fn protects(&self) -> bool {
        let by_certificate = |tls: &Tls| tls.client_certificate == ClientCertificate::Required;
        self.tls
            .as_ref()
            .is_some_and(|tls| !self.users.is_empty() || by_certificate(tls))
    }
}

/// The file of the configuration, and those that it names.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    /// The files of the last reading, as far as it came, each as it was before.
    files: Vec<(PathBuf, State)>,
}

/// The state of a file, which changes with its content; none where it cannot be read.
type State = Option<(u64, u64, i64, i64, u64)>;

impl Source {
    /// A source that is not read yet.
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            files: Vec::new(),
        }
    }

    /// The file of the configuration.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or the configuration has a fault, with its place.
    pub fn read(&mut self) -> Result<WebConfig> {
        let mut files = Files::default();
        let config = self.read_with(&mut files);
        self.files = files.0;
        config
    }

    fn read_with(&self, files: &mut Files) -> Result<WebConfig> {
        let text = files.text(&self.path)?;
        let directory = self.path.parent().unwrap_or(Path::new("."));
        tree::parse(&text)
            .and_then(|node| document(&node, directory, files))
            .with_context(|| format!("the web configuration {}", self.path.display()))
    }

    /// Whether a file of the last reading has changed, also of one that failed.
    pub fn has_changed(&self) -> bool {
        self.files
            .iter()
            .any(|(path, before)| state(path) != *before)
    }
}

fn state(path: &Path) -> State {
    let file = std::fs::metadata(path).ok()?;
    Some((
        file.dev(),
        file.ino(),
        file.mtime(),
        file.mtime_nsec(),
        file.size(),
    ))
}

/// The files that were read.
#[derive(Default)]
struct Files(Vec<(PathBuf, State)>);

impl Files {
    fn text(&mut self, path: &Path) -> Result<String> {
        let shown = path.display();
        // Before it is read: a change meanwhile is noticed later.
        self.0.push((path.to_owned(), state(path)));
        let file = File::open(path).with_context(|| {
            format!("cannot read {shown}: give its path, and make it readable for root")
        })?;
        let is_file = file.metadata().is_ok_and(|it| it.is_file());
        ensure!(is_file, "{shown} is no regular file");
        let mut text = String::new();
        let count = file.take(MOST_BYTES + 1).read_to_string(&mut text);
        let count = count.with_context(|| format!("cannot read {shown} as text"))?;
        ensure!(
            count as u64 <= MOST_BYTES,
            "{shown} has more than {MOST_BYTES} bytes"
        );
        Ok(text)
    }
}

/// The entries of a map.
fn entries(node: &Node) -> Result<&[(String, Place, Node)]> {
    match &node.value {
        Value::Null => Ok(&[]),
        Value::Map(entries) => Ok(entries),
        _ => bail!("{}: a map is expected here", node.place),
    }
}

fn text<'a>(key: &str, node: &'a Node) -> Result<&'a str> {
    match &node.value {
        Value::Scalar(text) => Ok(text),
        _ => bail!("{}: {key} needs a text", node.place),
    }
}

fn boolean(key: &str, node: &Node) -> Result<bool> {
    match text(key, node)? {
        "true" => Ok(true),
        "false" => Ok(false),
        other => bail!("{}: {key} is true or false, not {other:?}", node.place),
    }
}

fn unknown(key: &str, place: Place, known: &[&str]) -> anyhow::Error {
    anyhow!(
        "{place}: unknown key {key:?}; known are {}",
        known.join(", ")
    )
}

fn document(node: &Node, directory: &Path, files: &mut Files) -> Result<WebConfig> {
    let mut config = WebConfig::default();
    for (key, place, value) in entries(node)? {
        match key.as_str() {
            "tls_server_config" => config.tls = tls(value, *place, directory, files)?,
            "http_server_config" => config.headers = http(value)?,
            "rate_limit" => config.rate_limit = rate_limit(value)?,
            "basic_auth_users" => config.users = users(value)?,
            key => {
                let known = [
                    "tls_server_config",
                    "http_server_config",
                    "rate_limit",
                    "basic_auth_users",
                ];
                return Err(unknown(key, *place, &known));
            }
        }
    }
    Ok(config)
}

fn tls(node: &Node, place: Place, directory: &Path, files: &mut Files) -> Result<Option<Tls>> {
    let entries = entries(node)?;
    if entries.is_empty() {
        return Ok(None);
    }
    let mut certificate = None;
    let mut key_text = None;
    let mut authorities = None;
    let mut client_certificate = ClientCertificate::NotAsked;
    let (mut least, mut most) = (12, 13);
    for (key, place, value) in entries {
        let mut file = || {
            let path = directory.join(text(key, value)?);
            files.text(&path).with_context(|| format!("{place}: {key}"))
        };
        let twice = || anyhow!("{place}: {key}: it is given twice, as text and as a file");
        match key.as_str() {
            "cert_file" | "cert" => {
                let pem = if key == "cert" {
                    text(key, value)?.to_owned()
                } else {
                    file()?
                };
                ensure!(certificate.replace(pem).is_none(), twice());
            }
            "key_file" | "key" => {
                let pem = if key == "key" {
                    text(key, value)?.to_owned()
                } else {
                    file()?
                };
                ensure!(key_text.replace(pem).is_none(), twice());
            }
            "client_ca_file" | "client_ca" => {
                let pem = if key == "client_ca" {
                    text(key, value)?.to_owned()
                } else {
                    file()?
                };
                ensure!(authorities.replace(pem).is_none(), twice());
            }
            "client_auth_type" => client_certificate = client_auth_type(value)?,
            "min_version" => least = version(key, value)?,
            "max_version" => most = version(key, value)?,
            "cipher_suites"
            | "curve_preferences"
            | "prefer_server_cipher_suites"
            | "client_allowed_sans" => {
                bail!(
                    "{place}: {key} is not supported; of TLS 1.2 and 1.3 all suites and curves of rustls are used"
                )
            }
            key => {
                let known = [
                    "cert_file",
                    "key_file",
                    "cert",
                    "key",
                    "client_ca_file",
                    "client_ca",
                    "client_auth_type",
                    "min_version",
                    "max_version",
                ];
                return Err(unknown(key, *place, &known));
            }
        }
    }
    ensure!(least <= most, "{place}: min_version is above max_version");
    match (client_certificate, &authorities) {
        (ClientCertificate::NotAsked, Some(_)) => {
            bail!("{place}: client_ca needs client_auth_type: RequireAndVerifyClientCert")
        }
        (ClientCertificate::NotAsked, None) | (_, Some(_)) => {}
        (_, None) => bail!("{place}: client_auth_type needs client_ca_file"),
    }
    Ok(Some(Tls {
        certificate: certificate.with_context(|| format!("{place}: cert_file is missing"))?,
        key: key_text.with_context(|| format!("{place}: key_file is missing"))?,
        client_authorities: authorities,
        client_certificate,
        tls12: least == 12,
        tls13: most == 13,
    }))
}

fn client_auth_type(node: &Node) -> Result<ClientCertificate> {
    Ok(match text("client_auth_type", node)? {
        "" | "NoClientCert" => ClientCertificate::NotAsked,
        "VerifyClientCertIfGiven" => ClientCertificate::VerifiedIfGiven,
        "RequireAndVerifyClientCert" => ClientCertificate::Required,
        other @ ("RequestClientCert" | "RequireAnyClientCert" | "RequireClientCert") => bail!(
            "{}: client_auth_type {other} takes a certificate from anybody; use RequireAndVerifyClientCert",
            node.place
        ),
        other => bail!("{}: unknown client_auth_type {other:?}", node.place),
    })
}

fn version(key: &str, node: &Node) -> Result<u8> {
    match text(key, node)? {
        "TLS12" => Ok(12),
        "TLS13" => Ok(13),
        other => bail!("{}: {key} is TLS12 or TLS13, not {other:?}", node.place),
    }
}

fn http(node: &Node) -> Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::new();
    for (key, place, value) in entries(node)? {
        match key.as_str() {
            // HTTP/2 is offered to clients, which all speak HTTP/1.1, too.
            "http2" => drop(boolean(key, value)?),
            "headers" => {
                for (name, place, value) in entries(value)? {
                    if !HEADERS.contains(&name.as_str()) {
                        return Err(unknown(name, *place, &HEADERS));
                    }
                    let text = text(name, value)?;
                    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
                    ensure!(
                        is_plain,
                        "{}: {name} has other characters than ASCII",
                        value.place
                    );
                    if !text.is_empty() {
                        headers.insert(name.clone(), text.to_owned());
                    }
                }
            }
            key => return Err(unknown(key, *place, &["http2", "headers"])),
        }
    }
    Ok(headers)
}

fn rate_limit(node: &Node) -> Result<Option<(Duration, u32)>> {
    let (mut interval, mut burst) = (Duration::ZERO, 0);
    for (key, place, value) in entries(node)? {
        match key.as_str() {
            "interval" => {
                let text = text(key, value)?;
                interval = duration(text).with_context(|| {
                    format!(
                        "{}: interval {text:?} is no time such as 1s or 500ms",
                        value.place
                    )
                })?;
            }
            "burst" => {
                burst = text(key, value)?
                    .parse()
                    .with_context(|| format!("{}: burst is no whole number", value.place))?;
            }
            key => return Err(unknown(key, *place, &["interval", "burst"])),
        }
    }
    let limit = !interval.is_zero();
    ensure!(
        !limit || burst > 0,
        "{}: rate_limit with burst 0 lets no request through",
        node.place
    );
    Ok(limit.then_some((interval, burst)))
}

/// A time as Go writes it, of one unit.
fn duration(text: &str) -> Result<Duration> {
    let at = text
        .find(|char: char| char != '.' && !char.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse()?;
    let scale = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "" if number == 0.0 => 1.0,
        _ => bail!("unknown unit {unit:?}"),
    };
    Ok(Duration::try_from_secs_f64(number * scale)?)
}

fn users(node: &Node) -> Result<BTreeMap<String, String>> {
    let mut users = BTreeMap::new();
    for (name, place, value) in entries(node)? {
        ensure!(
            !name.is_empty() && !name.contains(':'),
            "{place}: {name:?} cannot be a user: a name is not empty and has no colon"
        );
        let hash = text("a user", value)?;
        let parts = HashParts::from_str(hash).map_err(|_| {
            anyhow!(
                "{}: the password of {name:?} is no bcrypt hash: make one by `htpasswd -nBC 10 {name}`",
                value.place
            )
        })?;
        ensure!(
            parts.get_cost() <= MOST_COST,
            "{}: the hash of {name:?} has cost {}, more than {MOST_COST}: each login would take seconds",
            value.place,
            parts.get_cost()
        );
        users.insert(name.clone(), hash.to_owned());
    }
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HASH: &str = "$2y$04$TR9sKh4dw9X0.XAdGlFG1Oh1vNNxf8Chke0ktBlwlbkLKMhqX4p5S";

    fn read(text: &str) -> Result<WebConfig> {
        let directory = std::env::temp_dir().join(format!(
            "weir-web-config-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("cert"), "CERT")?;
        fs::write(directory.join("key"), "KEY")?;
        let path = directory.join("web.yml");
        fs::write(&path, text)?;
        let config = Source::new(path).read();
        fs::remove_dir_all(&directory)?;
        config
    }

    #[test]
    fn a_whole_file_is_understood() {
        let config = read(&format!(
            "# comment\ntls_server_config:\n  cert_file: cert\n  key_file: key\n  client_ca: |\n    CA\n  \
             client_auth_type: RequireAndVerifyClientCert\n  min_version: TLS13\nbasic_auth_users:\n  alice: {HASH}\n\
             rate_limit:\n  interval: \"500ms\"\n  burst: 20\nhttp_server_config:\n  http2: false\n  headers:\n    \
             X-Frame-Options: deny\n"
        ))
        .expect("valid");
        let tls = config.tls.as_ref().expect("TLS");
        assert_eq!(
            (tls.certificate.as_str(), tls.key.as_str()),
            ("CERT", "KEY")
        );
        assert_eq!(tls.client_authorities.as_deref(), Some("CA\n"));
        assert_eq!((tls.tls12, tls.tls13), (false, true));
        assert_eq!(config.users["alice"], HASH);
        assert_eq!(config.rate_limit, Some((Duration::from_millis(500), 20)));
        assert_eq!(config.headers["X-Frame-Options"], "deny");
        assert!(config.protects());
    }

    #[test]
    fn protection_needs_tls_and_a_password_or_certificate() {
        let tls = "tls_server_config: {cert_file: cert, key_file: key}\n";
        let users = format!("basic_auth_users: {{alice: \"{HASH}\"}}\n");
        for (text, protects) in [
            (String::new(), false),
            (tls.to_owned(), false),
            (users.clone(), false),
            (format!("{tls}{users}"), true),
            (
                "tls_server_config: {cert_file: cert, key_file: key, client_ca_file: cert, \
                 client_auth_type: VerifyClientCertIfGiven}\n"
                    .to_owned(),
                false,
            ),
        ] {
            assert_eq!(read(&text).expect(&text).protects(), protects, "{text}");
        }
    }

    #[test]
    fn faults_have_their_place() {
        let tls = "tls_server_config:\n  cert_file: cert\n  key_file: key\n";
        for (text, expected) in [
            (
                "tls_config:\n",
                "line 1, column 1: unknown key \"tls_config\"",
            ),
            (
                "tls_server_config:\n  cert_fil: x\n",
                "line 2, column 3: unknown key \"cert_fil\"",
            ),
            (
                "tls_server_config:\n  cert_file: cert\n",
                "line 1, column 1: key_file is missing",
            ),
            ("tls_server_config:\n  cert_file: no\n", "cert_file"),
            (
                "tls_server_config:\n  cert_file: /dev/zero\n",
                "is no regular file",
            ),
            (&format!("{tls}  cert: x\n"), "given twice"),
            (
                &format!("{tls}  min_version: TLS10\n"),
                "line 4, column 16: min_version is TLS12 or TLS13",
            ),
            (
                &format!("{tls}  min_version: TLS13\n  max_version: TLS12\n"),
                "above max_version",
            ),
            (
                &format!("{tls}  client_auth_type: RequireAnyClientCert\n"),
                "from anybody",
            ),
            (
                &format!("{tls}  client_auth_type: RequireAndVerifyClientCert\n"),
                "needs client_ca_file",
            ),
            (
                &format!("{tls}  client_ca_file: cert\n"),
                "needs client_auth_type",
            ),
            (&format!("{tls}  cipher_suites: [X]\n"), "not supported"),
            (
                "basic_auth_users:\n  alice: secret\n",
                "line 2, column 10: the password of \"alice\" is no bcrypt hash",
            ),
            ("basic_auth_users:\n  alice:\n", "needs a text"),
            (
                "basic_auth_users:\n  a: $2y$31$TR9sKh4dw9X0.XAdGlFG1Oh1vNNxf8Chke0ktBlwlbkLKMhqX4p5S\n",
                "cost 31",
            ),
            ("basic_auth_users:\n  'a:b': x\n", "no colon"),
            ("rate_limit: {interval: soon}\n", "no time"),
            ("rate_limit: {interval: 1s}\n", "lets no request through"),
            ("rate_limit: {burst: -1}\n", "no whole number"),
            ("http_server_config: {http2: yes}\n", "true or false"),
            (
                "http_server_config: {headers: {X-Evil: a}}\n",
                "unknown key \"X-Evil\"",
            ),
            (
                "http_server_config: {headers: {X-Frame-Options: \"a\\nb\"}}\n",
                "other characters",
            ),
            ("- a\n", "a map is expected"),
            ("a: [\n", "line "),
        ] {
            let error = format!("{:#}", read(text).expect_err(text));
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_change_is_seen() {
        let directory =
            std::env::temp_dir().join(format!("weir-web-change-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let path = directory.join("web.yml");
        fs::write(&path, "rate_limit: {interval: 0}\n").expect("written");
        let mut source = Source::new(path.clone());
        source.read().expect("valid");
        assert!(!source.has_changed());
        fs::write(&path, "rate_limit: {interval: 0}\n\n").expect("written");
        assert!(source.has_changed());
        // A refused configuration is read again when the file that it lacked is there.
        fs::write(&path, "tls_server_config: {cert_file: new.pem}\n").expect("written");
        source.read().expect_err("no certificate");
        assert!(!source.has_changed());
        fs::write(directory.join("new.pem"), "").expect("written");
        assert!(source.has_changed());
        source.read().expect_err("no key");
        assert!(!source.has_changed());
        fs::remove_dir_all(&directory).expect("removed");
        assert!(source.has_changed());
    }
}
