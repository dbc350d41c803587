//! A page of metrics in the text formats of Prometheus (0.0.4) and OpenMetrics (1.0).

use std::fmt::{Display, Write as _};

use super::family::{Counter, Definition, Gauge, Kind, Labels, escape};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `text/plain; version=0.0.4`
    Prometheus,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl Format {
    /// All, in the order of their bytes in messages.
    pub const ALL: [Self; 2] = [Self::Prometheus, Self::OpenMetrics];

    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that a request's `Accept` prefers: OpenMetrics only where it is named, and not after plain
    /// text.
    pub fn accepted(accept: &str) -> Self {
        let quality = |kind: &str| {
            let of_kind = accept.split(',').filter_map(|entry| {
                let mut parts = entry.split(';').map(str::trim);
                let is_it = parts.next()?.eq_ignore_ascii_case(kind);
                let quality = parts.find_map(|part| part.strip_prefix("q="));
                is_it.then(|| quality.map_or(Some(1.0), |it| it.parse().ok()))?
            });
            of_kind.fold(0.0_f64, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }
}

/// A page that is being written.
#[derive(Debug)]
pub struct Page {
    format: Format,
    text: String,
    series: usize,
}

impl Page {
    /// An empty page.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            text: String::new(),
            series: 0,
        }
    }

    /// Adds the header of a family; its samples follow.
    pub fn family(&mut self, family: &Definition) {
        let name = match self.format {
            Format::Prometheus => sample_name(family),
            Format::OpenMetrics => family.name.to_owned(),
        };
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {}", family.help);
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if let (Format::OpenMetrics, Some(unit)) = (self.format, family.unit) {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
    }

    /// Adds a sample of a family.
    pub fn sample(&mut self, family: &Definition, values: &[String], value: impl Display) {
        self.text.push_str(&sample_name(family));
        let mut before = '{';
        for (name, value) in family.labels.iter().zip(values) {
            let _ = write!(self.text, "{before}{name}=\"{}\"", escape(value));
            before = ',';
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self.series += 1;
    }

    /// Adds a family of one series without labels.
    pub fn single(&mut self, family: &Definition, value: impl Display) {
        self.family(family);
        self.sample(family, &[], value);
    }

    /// Adds a family of counters; nothing where it has no series.
    pub fn counter(&mut self, counter: &Counter) {
        let samples = counter.samples();
        self.samples(counter.definition(), samples.into_iter());
    }

    /// Adds a family of gauges; nothing where it has no series.
    pub fn gauge(&mut self, gauge: &Gauge) {
        let samples = gauge
            .samples()
            .iter()
            .map(|(labels, value)| (labels, *value));
        self.samples(gauge.definition(), samples);
    }

    fn samples<'a, V: Display>(
        &mut self,
        family: &Definition,
        samples: impl Iterator<Item = (&'a Labels, V)>,
    ) {
        let mut samples = samples.peekable();
        if samples.peek().is_some() {
            self.family(family);
        }
        for (labels, value) in samples {
            self.sample(family, labels.values(), value);
        }
    }

    /// Its series so far.
    pub fn series(&self) -> usize {
        self.series
    }

    /// The text, to which another page of the same format can be added.
    pub fn into_text(self) -> String {
        self.text
    }

    /// The end of a page: OpenMetrics has a mark by which a reader knows that it has all.
    pub fn end(format: Format) -> &'static str {
        match format {
            Format::Prometheus => "",
            Format::OpenMetrics => "# EOF\n",
        }
    }
}

fn sample_name(family: &Definition) -> String {
    match family.kind {
        Kind::Counter => format!("{}_total", family.name),
        Kind::Gauge => family.name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TIME: Definition = Definition {
        name: "test_busy_seconds",
        kind: Kind::Counter,
        unit: Some("seconds"),
        help: "Time.",
        labels: &["device"],
        kept: 0,
        others: 1,
        most: 4,
    };

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.family(&TIME);
        page.sample(&TIME, &["a\"\\\nb".to_owned()], 1.5);
        assert_eq!(page.series(), 1);
        page.into_text() + Page::end(format)
    }

    #[test]
    fn both_formats_have_their_own_words() {
        assert_eq!(
            page(Format::Prometheus),
            "# HELP test_busy_seconds_total Time.\n# TYPE test_busy_seconds_total counter\n\
             test_busy_seconds_total{device=\"a\\\"\\\\\\nb\"} 1.5\n"
        );
        assert_eq!(
            page(Format::OpenMetrics),
            "# HELP test_busy_seconds Time.\n# TYPE test_busy_seconds counter\n# UNIT test_busy_seconds seconds\n\
             test_busy_seconds_total{device=\"a\\\"\\\\\\nb\"} 1.5\n# EOF\n"
        );
    }

    #[test]
    fn a_family_without_series_is_not_shown() {
        let mut page = Page::new(Format::Prometheus);
        page.counter(&Counter::new(&TIME, 2000));
        page.gauge(&Gauge::new(&TIME, 2000));
        assert_eq!(page.into_text(), "");
    }

    #[test]
    fn a_scraper_gets_the_format_that_it_prefers() {
        for (accept, expected) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("text/plain", Format::Prometheus),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4, application/openmetrics-text; q=0.5",
                Format::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Format::Prometheus),
            ("APPLICATION/OpenMetrics-Text ; q=0.1", Format::OpenMetrics),
            ("application/openmetrics-text;q=x,,;;=", Format::Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), expected, "{accept}");
        }
    }
}
