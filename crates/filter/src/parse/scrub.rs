//! FreeBSD's `scrub` statement, and `scrub (…)` of its filter rules.

use super::parser::{Parser, Step};
use super::scope::Section;
use super::syntax::Options;
use crate::diagnostic::Severity;
use crate::lex::{At, Keyword};
use crate::rule::RuleKind;

/// Options of `scrub` that were given.
#[derive(Default)]
struct Given {
    words: Vec<Keyword>,
}

impl Parser<'_> {
    pub(super) fn scrub_statement(&mut self, no: bool, start: &At) -> Step<()> {
        self.in_order(Section::Scrub, start)?;
        let direction = self.direction();
        let at = self.peek().at.clone();
        let (log, quick) = self.log_quick(true)?;
        if quick {
            let help = "the first scrub rule that matches is the last anyway";
            return self.fail_with("scrub", &at, "scrub rules do not take `quick`", help);
        }
        let mut head = self.translation_head()?;
        (head.direction, head.log) = (direction, log);
        let mut options = Options::default();
        let mut given = Given::default();
        while self.scrub_option(&mut options, &mut given, true)? {}
        let scrub = options.scrub.take().unwrap_or_default();
        if scrub.reassemble_tcp && direction.is_some() {
            let help = "remove `in` or `out`";
            return self.fail_with(
                "scrub",
                start,
                "`reassemble tcp` is about both directions",
                help,
            );
        }
        options.scrub = (!no).then_some(scrub);
        let rule = self.assemble_kind(RuleKind::Scrub, head, options, start);
        self.check_options(&rule)?;
        self.expand(rule);
        Ok(())
    }

    /// `scrub (…)` of a filter rule.
    pub(super) fn scrub_in_parentheses(&mut self, options: &mut Options) -> Step<()> {
        self.expect_byte(b'(')?;
        let mut given = Given::default();
        loop {
            if !self.scrub_option(options, &mut given, false)? {
                return self.unexpected(
                    "`no-df`, `min-ttl`, `max-mss`, `set-tos`, `reassemble` or `random-id`",
                );
            }
            self.accept_byte(b',');
            if self.accept_byte(b')') {
                options.scrub.get_or_insert_default();
                return Ok(());
            }
        }
    }

    /// One option of `scrub`; `false` if none comes. A statement has some that a rule has elsewhere.
    fn scrub_option(
        &mut self,
        options: &mut Options,
        given: &mut Given,
        statement: bool,
    ) -> Step<bool> {
        let at = self.peek().at.clone();
        if statement && self.accept_byte(b'!') {
            if self.peek_keyword() != Some(Keyword::Tagged) {
                return self.unexpected("`tagged` after `!`");
            }
            self.tagged(options, true)?;
            return Ok(true);
        }
        let Some(keyword) = self.peek_keyword() else {
            return Ok(false);
        };
        match keyword {
            Keyword::Tagged if statement => {
                self.tagged(options, false)?;
                return Ok(true);
            }
            Keyword::Rtable if statement => {
                self.take();
                options.rtable = Some(self.rtable()?);
                return Ok(true);
            }
            Keyword::NoDf
            | Keyword::RandomId
            | Keyword::MinTtl
            | Keyword::MaxMss
            | Keyword::SetTos
            | Keyword::Reassemble
            | Keyword::Fragment => {}
            _ => return Ok(false),
        }
        self.take();
        self.once_only(given.words.contains(&keyword), keyword.text(), &at)?;
        given.words.push(keyword);
        let mut scrub = options.scrub.unwrap_or_default();
        match keyword {
            Keyword::NoDf => scrub.no_df = true,
            Keyword::RandomId => scrub.random_id = true,
            Keyword::MinTtl => scrub.min_ttl = self.number_to(255, "min-ttl")? as u8,
            Keyword::MaxMss => scrub.max_mss = self.number_to(65535, "max-mss")? as u16,
            Keyword::SetTos => options.set_tos = Some(self.tos()?),
            Keyword::Reassemble => {
                let (what, at) = self.text("`tcp`")?;
                if !what.eq_ignore_ascii_case("tcp") {
                    return self.fail(
                        "syntax",
                        &at,
                        format!("only `reassemble tcp` is there, not `{what}`"),
                    );
                }
                scrub.reassemble_tcp = true;
            }
            _ => options.freebsd.no_reassemble = self.fragments()?,
        }
        options.scrub = Some(scrub);
        Ok(true)
    }

    /// The word behind `fragment`. FreeBSD takes `crop` and `drop-ovl` as `reassemble`.
    fn fragments(&mut self) -> Step<bool> {
        let at = self.peek().at.clone();
        if self.accept(Keyword::No) {
            self.expect_keyword(Keyword::Reassemble)?;
            return Ok(true);
        }
        if self.accept(Keyword::Reassemble) {
            return Ok(false);
        }
        let word = match self.peek_keyword() {
            Some(Keyword::Crop) => "crop",
            Some(Keyword::DropOvl) => "drop-ovl",
            _ => return self.unexpected("`reassemble`, `no reassemble`, `crop` or `drop-ovl`"),
        };
        self.take();
        let mut notice = Self::error(
            "no-effect",
            &at,
            format!("`fragment {word}` means `fragment reassemble`"),
        );
        notice.severity = Severity::Notice;
        self.report(notice);
        Ok(false)
    }
}
