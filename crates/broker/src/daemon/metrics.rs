//! Metrics in Prometheus' text format, over HTTP on a Unix socket:
//! `curl --unix-socket /run/weir/broker-metrics.sock http://localhost/metrics`.

use super::server::Server;
use crate::supervise::handlers::connect::Backend;
use crate::supervise::metrics::Figures;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Longest request that is read.
const MOST: usize = 8192;

/// Serves one scrape.
pub(super) fn serve(server: &Arc<Server>, connection: &OwnedFd) {
    for way in [Timeout::Recv, Timeout::Send] {
        if set_socket_timeout(connection, way, Some(Duration::from_secs(5))).is_err() {
            return;
        }
    }
    let Ok(mut stream) = connection.try_clone().map(UnixStream::from) else {
        return;
    };
    let Some(line) = request_line(&mut stream) else {
        return;
    };
    let (status, body) = if line.starts_with("GET /metrics ") {
        ("200 OK", text(server))
    } else {
        ("404 Not Found", "the metrics are at /metrics\n".to_owned())
    };
    let head = format!(
        "HTTP/1.0 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A scraper that left does not matter.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(body.as_bytes()));
}

/// The first line of a request, once its head is complete.
fn request_line(stream: &mut UnixStream) -> Option<String> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut part).ok().filter(|&count| count > 0)?;
        head.extend_from_slice(part.get(..count)?);
        if head.len() > MOST {
            return None;
        }
    }
    let line = head.split(|&byte| byte == b'\r').next()?;
    String::from_utf8(line.to_vec()).ok()
}

/// All metrics.
fn text(server: &Server) -> String {
    let mut page = Page::default();
    let leases = server.leases.list();
    let mut by_device: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for lease in &leases {
        let (count, bytes) = by_device.entry((&lease.tenant, &lease.device)).or_default();
        *count += 1;
        *bytes += lease.memory;
    }
    page.family("weir_broker_leases", "gauge", "Queues that are lent.");
    for ((tenant, device), (count, _)) in &by_device {
        page.sample(
            "weir_broker_leases",
            &[("tenant", tenant), ("device", device)],
            *count as f64,
        );
    }
    page.family(
        "weir_broker_umem_bytes",
        "gauge",
        "Memory of the UMEMs of lent queues.",
    );
    for ((tenant, device), (_, bytes)) in &by_device {
        page.sample(
            "weir_broker_umem_bytes",
            &[("tenant", tenant), ("device", device)],
            *bytes as f64,
        );
    }
    page.family("weir_broker_sessions", "gauge", "Supervised process trees.");
    page.sample(
        "weir_broker_sessions",
        &[],
        server.supervision.list().len() as f64,
    );
    page.family(
        "weir_broker_lost_log_lines_total",
        "counter",
        "Decisions that were not logged.",
    );
    page.sample(
        "weir_broker_lost_log_lines_total",
        &[],
        server.supervision.lost_lines() as f64,
    );
    let all: Vec<_> = server
        .supervision
        .all_metrics()
        .into_iter()
        .flat_map(|(tenant, metrics)| {
            metrics
                .figures()
                .into_iter()
                .map(move |(handler, figures)| (tenant.clone(), handler, figures))
        })
        .collect();
    page.family(
        "weir_broker_calls_total",
        "counter",
        "Requests for sockets, and supervised calls, by outcome.",
    );
    for (tenant, handler, figures) in &all {
        for (outcome, count) in [
            ("answered", figures.answered),
            ("refused", figures.refused),
            ("continued", figures.continued),
            ("gone", figures.gone),
        ] {
            page.sample(
                "weir_broker_calls_total",
                &[
                    ("tenant", tenant),
                    ("handler", handler),
                    ("outcome", outcome),
                ],
                count as f64,
            );
        }
    }
    redirections(&mut page, server);
    page.family(
        "weir_broker_call_seconds",
        "histogram",
        "Time from the arrival of a call to its answer.",
    );
    for (tenant, handler, figures) in &all {
        page.histogram(
            "weir_broker_call_seconds",
            &[("tenant", tenant), ("handler", handler)],
            figures,
        );
    }
    page.0
}

/// The connections that each backend took and refused.
fn redirections(page: &mut Page, server: &Server) {
    let all = server.supervision.all_redirections();
    for (name, help, count) in [
        (
            "weir_broker_redirected_connections_total",
            "Connections that a backend took instead of the address asked for.",
            Backend::connections as fn(&Backend) -> u64,
        ),
        (
            "weir_broker_redirect_failures_total",
            "Connections that a backend refused or did not answer.",
            Backend::failures,
        ),
    ] {
        page.family(name, "counter", help);
        for (tenant, redirections) in &all {
            for (from, backend) in redirections.backends() {
                let (from, to) = (from.to_string(), backend.address().to_string());
                let labels = [("tenant", tenant.as_str()), ("from", &from), ("to", &to)];
                page.sample(name, &labels, count(backend) as f64);
            }
        }
    }
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        let labels = if labels.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", labels.join(","))
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], figures: &Figures) {
        let mut count = 0;
        for (power, bucket) in figures.buckets.iter().enumerate() {
            count += bucket;
            let is_last = power + 1 == figures.buckets.len();
            let most = if is_last {
                "+Inf".to_owned()
            } else {
                format!("{}", (1_u64 << power) as f64 / 1e9)
            };
            let labels = [labels, &[("le", most.as_str())]].concat();
            self.sample(&format!("{name}_bucket"), &labels, count as f64);
        }
        self.sample(
            &format!("{name}_sum"),
            labels,
            figures.nanoseconds as f64 / 1e9,
        );
        self.sample(&format!("{name}_count"), labels, count as f64);
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_buckets_add_up() {
        let mut page = Page::default();
        page.sample("a", &[("l", "x\"\\\ny")], 1.0);
        assert_eq!(page.0, "a{l=\"x\\\"\\\\\\ny\"} 1\n");
        let mut figures = Figures::default();
        figures.buckets[1] = 2;
        figures.buckets[31] = 3;
        let mut page = Page::default();
        page.histogram("h", &[], &figures);
        assert!(
            page.0.contains("h_bucket{le=\"0.000000001\"} 0\n"),
            "{}",
            page.0
        );
        assert!(
            page.0.contains("h_bucket{le=\"0.000000002\"} 2\n"),
            "{}",
            page.0
        );
        assert!(page.0.contains("h_bucket{le=\"+Inf\"} 5\n"), "{}", page.0);
        assert!(page.0.ends_with("h_count 5\n"));
    }
}
