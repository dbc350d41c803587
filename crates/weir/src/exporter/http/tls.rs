//! TLS of a configuration.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

use crate::exporter::web_config::{ClientCertificate, Tls};

/// The settings of a server.
///
/// # Errors
///
/// When a certificate or key is none, or they do not belong together.
pub fn server_config(tls: &Tls) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(default_provider());
    let versions: &[_] = match (tls.tls12, tls.tls13) {
        (true, false) => &[&TLS12],
        (false, true) => &[&TLS13],
        _ => &[&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)
        .context("no common TLS version")?;
    let builder = match (tls.client_certificate, &tls.client_authorities) {
        (ClientCertificate::NotAsked, _) => builder.with_no_client_auth(),
        (_, None) => bail!("client certificates need client_ca_file"),
        (kind, Some(authorities)) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(authorities).context("client_ca_file")? {
                roots.add(certificate).context("client_ca_file")?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if kind == ClientCertificate::Required {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            builder.with_client_cert_verifier(verifier.build().context("client_ca_file")?)
        }
    };
    let chain = certificates(&tls.certificate).context("cert_file")?;
    let key = PrivateKeyDer::from_pem_slice(tls.key.as_bytes())
        .context("key_file has no private key in PEM (PKCS #8, PKCS #1 or SEC 1)")?;
    let mut config = builder.with_single_cert(chain, key).context(
        "cert_file and key_file do not belong together, or the key is of an unknown type",
    )?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .context("it is no PEM")?;
    ensure!(!found.is_empty(), "it has no certificate in PEM");
    Ok(found)
}
