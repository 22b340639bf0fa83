//! The form of single files: what a mod.rs holds, how wide lines are, how long files are.

use super::scan::{group, is_punct, word};
use super::sources::Sources;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

const COLUMNS_MAX: usize = 120;
const LINES_MAX: usize = 800;
/// What the header of a file begins a line with that has a reason to be longer.
const REASONS: [&str; 2] = ["Long because", "This file is long because"];

/// Each mod.rs is its directory's table of contents: `//!` lines, `mod` and `use`.
pub(super) fn module_files(sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, text) in sources.ending(&["/mod.rs"]) {
        if !text.lines().any(|line| line.starts_with("//!")) {
            findings.push(format!("{name}: does not say in a //! line what the directory holds"));
        }
        match text.parse::<TokenStream>() {
            Err(error) => findings.push(format!("{name}: not Rust ({error})")),
            Ok(tokens) => {
                if let Some(item) = other_item(&tokens.into_iter().collect::<Vec<_>>()) {
                    findings.push(format!("{name}: holds more than mod and use: {item}"));
                }
            }
        }
    }
    findings
}

/// The beginning of the first item that is neither `mod name;` nor a `use`.
fn other_item(tokens: &[TokenTree]) -> Option<String> {
    let mut at = 0;
    while at < tokens.len() {
        let begin = at;
        if is_punct(tokens, at, '#') {
            at += 2 + usize::from(is_punct(tokens, at + 1, '!'));
            continue;
        }
        if word(tokens, at).is_some_and(|first| first == "pub") {
            at += 1 + usize::from(group(tokens, at + 1, Delimiter::Parenthesis).is_some());
        }
        let plain = match word(tokens, at).as_deref() {
            Some("use") => true,
            Some("mod") => is_punct(tokens, at + 2, ';'),
            _ => false,
        };
        if !plain {
            let first: Vec<String> = tokens[begin..].iter().take(4).map(first_line).collect();
            return Some(first.join(" "));
        }
        at = (at..tokens.len()).find(|i| is_punct(tokens, *i, ';')).map_or(tokens.len(), |end| end + 1);
    }
    None
}

fn first_line(token: &TokenTree) -> String {
    match token {
        TokenTree::Group(_) => "..".into(),
        token => token.to_string(),
    }
}

/// Lines of sources that are wider than a screen. Documents are not held to it: their tables and links
/// cannot be broken, and their paragraphs break where they are shown. Nor is a line whose one string or
/// address passes the limit with the line's indent alone: a search would not find a string that is split.
pub(super) fn long_lines(sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    let c = sources.ending(&[".c", ".h", ".cc"]);
    let c = c.filter(|(name, _)| name.starts_with("crates/") || name.starts_with("examples/"));
    for (name, text) in sources.ending(&[".rs"]).chain(c) {
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && !is_unbreakable(line) {
                findings.push(format!("{name}:{}: {columns} columns, at most {COLUMNS_MAX}", number + 1));
            }
        }
    }
    findings
}

fn is_unbreakable(line: &str) -> bool {
    let indent = line.chars().take_while(|c| c.is_whitespace()).count();
    let addresses =
        line.split_whitespace().filter(|word| word.contains("://")).map(|word| word.chars().count());
    // With the comma or semicolon behind it.
    let longest = strings(line).into_iter().map(|width| width + 1).chain(addresses).max().unwrap_or(0);
    indent + longest > COLUMNS_MAX
}

/// The widths of the line's string literals, quotes included.
fn strings(line: &str) -> Vec<usize> {
    let (mut widths, mut begin, mut escaped) = (Vec::new(), None, false);
    for (at, c) in line.chars().enumerate() {
        match (c, begin) {
            _ if escaped => escaped = false,
            ('\\', _) => escaped = true,
            ('"', None) => begin = Some(at),
            ('"', Some(from)) => {
                widths.push(at + 1 - from);
                begin = None;
            }
            _ => {}
        }
    }
    widths
}

/// Files too long to be read at one go, unless their header says why.
pub(super) fn long_files(sources: &Sources) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, text) in sources.ending(&[".rs", ".c", ".h", ".cc"]) {
        let lines = text.lines().count();
        let mut header = text.lines().map(str::trim_start).take_while(|line| is_comment(line));
        let reason = |line: &str| {
            let said = line.trim_start_matches(['/', '*', '!', ' ']);
            REASONS.iter().any(|reason| said.starts_with(reason))
        };
        if lines > LINES_MAX && !header.any(reason) {
            findings.push(format!(
                "{name}: {lines} lines, at most {LINES_MAX}; divide it, or begin a line of its header with \"{}\"",
                REASONS[0]
            ));
        }
    }
    findings
}

fn is_comment(line: &str) -> bool {
    line.is_empty() || line.starts_with("//") || line.starts_with("/*") || line.starts_with('*')
}
