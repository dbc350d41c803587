//! Properties of every configuration that was read, whatever its bytes are.

use pf_filter::diagnostic::{Diagnostic, Severity};
use pf_filter::host::Host;
use pf_filter::lex::{Kind, Lexer};
use pf_filter::parse::{Config, Dialect, Parsed, parse};
use pf_filter::print;
use pf_filter::rule::{Address, Anchor, Family, KeepState, On, Preamble, Rule, Ruleset, Table};
use pf_filter::source::{Memory, Sources, Span};

/// Each place is inside its file, and between characters.
pub fn places(parsed: &Parsed) {
    let sources = &parsed.ruleset.sources;
    for found in &parsed.diagnostics {
        diagnostic(sources, found);
    }
    for table in &parsed.ruleset.tables {
        span(sources, table.span, "table");
    }
    for queue in &parsed.ruleset.queues {
        span(sources, queue.span, "queue");
    }
    rules(sources, &parsed.ruleset.rules);
    for anchor in &parsed.ruleset.loaded {
        span(sources, anchor.span, "load anchor");
        rules(sources, &anchor.rules);
    }
}

fn diagnostic(sources: &Sources, found: &Diagnostic) {
    span(sources, found.primary.span, found.code);
    for label in &found.related {
        span(sources, label.span, found.code);
    }
    assert!(
        !found.message.is_empty() && !found.message.ends_with('.'),
        "{}",
        found.message
    );
    assert!(
        found
            .help
            .as_ref()
            .is_none_or(|help| !help.is_empty() && !help.ends_with('.')),
        "{found:?}"
    );
}

fn rules(sources: &Sources, all: &[Rule]) {
    for rule in all {
        span(sources, rule.origin.span, "rule");
        for element in &rule.origin.elements {
            span(sources, element.span, element.dimension);
            assert!(element.index < element.count.max(1));
        }
        if let Some(Anchor::Inline { rules: inner, .. }) = rule.anchor.as_deref() {
            rules(sources, inner);
        }
    }
}

fn span(sources: &Sources, span: Span, of: &str) {
    let file = sources
        .files()
        .nth(span.file.0 as usize)
        .unwrap_or_else(|| panic!("{of}: {span:?} is of no file"));
    let (start, end) = (span.start as usize, span.end as usize);
    assert!(
        start <= end && file.text.get(start..end).is_some(),
        "{of}: {span:?} of {:?}",
        file.text
    );
    let place = sources.place(span);
    assert!(place.line >= 1 && place.column >= 1);
}

/// Text that was printed is read again without errors, and printed the same.
pub fn idempotent(parsed: &Parsed, host: &Host, dialect: Dialect, files: &Memory) {
    if parsed.has_errors() || !parsed.ruleset.loaded.is_empty() || !is_plain(&parsed.ruleset) {
        return;
    }
    let text = print::canonical(&parsed.ruleset);
    let mut files = files.clone();
    files.add("canonical", text.as_bytes());
    let config = Config {
        dialect,
        host,
        loader: &files,
        macros: &[],
    };
    let again = parse("canonical", &config);
    let errors: Vec<_> = again
        .diagnostics
        .iter()
        .filter(|found| found.severity == Severity::Error)
        .map(|found| {
            format!(
                "{}: {} [{}]",
                again.ruleset.sources.place(found.primary.span),
                found.message,
                found.code
            )
        })
        .collect();
    assert!(
        errors.is_empty(),
        "canonical text has errors: {errors:#?}\n{text}"
    );
    let printed = print::canonical(&again.ruleset);
    assert!(
        printed == text,
        "canonical text changes:\n{text}\nto:\n{printed}"
    );
}

/// Whether a word is one token of text, so that pfctl can read its own output.
fn is_word(text: &str) -> bool {
    let mut lexer = Lexer::default();
    let mut sources = Sources::default();
    let file = sources.add("word", text);
    lexer.reader.open(file, text.into());
    let mut errors = 0;
    let token = lexer.token(&mut |_| errors += 1);
    errors == 0
        && matches!(token.kind, Kind::Text { text: cut, quoted: false, .. } if &*cut == text)
}

/// The same, of several words.
fn are_words(text: &str) -> bool {
    is_filled_in(text) && text.split(' ').all(is_word)
}

fn is_quotable(text: &str) -> bool {
    !text.contains(['"', '\\', '\n'])
}

/// Whether a label or a tag has nothing that is filled in: an address that was may have.
fn is_filled_in(text: &str) -> bool {
    ["$if", "$nr", "$src", "$dst", "$proto"]
        .iter()
        .all(|field| !text.contains(field))
}

/// Whether pfctl prints this rule set so that it can read it again: names are printed without
/// quotes, and some parts in no form that `parse.y` knows.
fn is_plain(ruleset: &Ruleset) -> bool {
    // Options are printed before all rules, those that held for some rules only as well.
    let is_set = |option: &str| {
        (ruleset.preamble.iter())
            .any(|part| matches!(part, Preamble::Option(text) if text.starts_with(option)))
    };
    let positional = is_set("set state-policy if-bound") && any_rule(&ruleset.rules, &is_floating)
        || is_set("set reassemble no") && any_rule(&ruleset.rules, &|rule| rule.divert.is_some());
    !positional
        && ruleset.preamble.iter().all(is_plain_preamble)
        && ruleset.tables.iter().all(is_plain_table)
        && ruleset.rules.iter().all(is_plain_rule)
        && ruleset.queues.iter().all(|queue| {
            let curves = [queue.bandwidth, queue.min, queue.max];
            let names = [queue.parent.as_ref(), queue.interface.as_ref()];
            is_word(&queue.name)
                && names.into_iter().flatten().all(|name| is_word(name))
                && curves
                    .iter()
                    .all(|curve| (curve.burst == 0 && curve.milliseconds == 0) || curve.rate > 0)
        })
}

fn any_rule(rules: &[Rule], wanted: &impl Fn(&Rule) -> bool) -> bool {
    rules.iter().any(|rule| {
        let inner = match rule.anchor.as_deref() {
            Some(Anchor::Inline { rules, .. }) => any_rule(rules, wanted),
            _ => false,
        };
        inner || wanted(rule)
    })
}

fn is_floating(rule: &Rule) -> bool {
    rule.state != KeepState::No
        && !rule
            .state_options
            .as_deref()
            .is_some_and(|options| options.if_bound)
}

fn is_plain_preamble(part: &Preamble) -> bool {
    match part {
        Preamble::Macro { name, value } => is_word(name) && is_quotable(value),
        // A number above 2^31 is printed as a negative one.
        Preamble::Option(text) => {
            !text.contains(" -") && !text.contains('\\') && text.matches('"').count() % 2 == 0
        }
        Preamble::Table(_) => true,
    }
}

fn is_plain_table(table: &Table) -> bool {
    // Hidden tables have names that nobody may write; `any` is no entry.
    is_word(&table.name)
        && table
            .entries
            .iter()
            .all(|entry| entry.network.bits > 0 || !entry.network.address.is_unspecified())
}

fn is_plain_rule(rule: &Rule) -> bool {
    let on = match &rule.on {
        Some(On::Interface(on)) => is_word(&on.name) || &*on.name == "any",
        _ => true,
    };
    let received = rule
        .received_on
        .as_ref()
        .is_none_or(|on| is_word(&on.name) || &*on.name == "any");
    let peers = [&rule.source, &rule.destination].into_iter().all(|peer| {
        is_plain_address(&peer.address) && !(peer.negated && is_everything(&peer.address))
    });
    let pools = [
        rule.nat.as_deref(),
        rule.rdr.as_deref(),
        rule.route.as_deref().map(|route| &route.pool),
    ];
    let pools = pools.into_iter().flatten().all(|pool| {
        // `port 8000:*` beside a comparison of one port wraps around.
        let wrapped = pool.ports.0 > pool.ports.1 && pool.ports.1 != 0;
        is_plain_address(&pool.address) && !is_everything(&pool.address) && !wrapped
    });
    // `rdr-to` beside `af-to` without a destination is printed as its destination, of whatever family.
    let destination = rule.rdr.as_deref().map(|pool| &pool.address);
    let fits = rule.af_to.is_none_or(|family| match destination {
        Some(Address::Network(network)) => Family::of(network.address) == family,
        _ => true,
    });
    let label = rule
        .label
        .as_deref()
        .is_none_or(|label| is_quotable(label) && is_filled_in(label))
        && rule.os.as_deref().is_none_or(is_quotable);
    let tags = rule.tag.as_deref().is_none_or(are_words)
        && rule
            .tagged
            .as_ref()
            .is_none_or(|tagged| are_words(&tagged.name));
    let overload = rule
        .state_options
        .as_deref()
        .and_then(|options| options.overload.as_ref());
    let queues = rule.set.as_deref().and_then(|set| set.queue.as_ref());
    let anchor = match rule.anchor.as_deref() {
        Some(Anchor::Inline { name, rules }) => {
            is_quotable(name) && !rules.is_empty() && rules.iter().all(is_plain_rule)
        }
        Some(Anchor::Call(name)) => is_quotable(name) && !name.starts_with('_'),
        None => true,
    };
    // The probability is printed between `keep state` and its options.
    let split = rule.probability.is_some() && rule.state_options.is_some();
    on && received
        && !split
        && fits
        && peers
        && pools
        && label
        && tags
        && anchor
        && overload.is_none_or(|overload| is_word(&overload.table))
        && queues.is_none_or(|(name, low_delay)| {
            is_word(name) && low_delay.as_deref().is_none_or(is_word)
        })
}

fn is_everything(address: &Address) -> bool {
    matches!(address, Address::Network(network) if network.bits == 0)
}

fn is_plain_address(address: &Address) -> bool {
    match address {
        Address::Interface(interface) => is_word(&interface.name),
        Address::Table(name) | Address::Unresolved(name) => name
            .split('/')
            .all(|part| is_word(part) || part.parse::<u8>().is_ok()),
        Address::RouteLabel(label) => is_quotable(label),
        _ => true,
    }
}
