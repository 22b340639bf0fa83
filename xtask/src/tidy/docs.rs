//! Names in documents: a file, or `Type::member`, that a document names in backticks is there. Documents
//! outlive what they speak of, and nothing else notices.

use super::sources::Sources;
use super::types::Types;

const ENDINGS: [&str; 7] = [".rs", ".c", ".h", ".cc", ".tla", ".cfg", ".md"];
/// Where names of other projects begin.
const FOREIGN: [&str; 6] = ["std", "core", "alloc", "libc", "loom", "shuttle"];
/// Paths of other projects that documents spell without the project's name: redb's.
const FOREIGN_PATHS: [&str; 1] = ["Durability::None"];
/// Files of other projects that documents speak of.
const FOREIGN_FILES: [&str; 1] = ["c_test.c"];

/// Every name in a document that stands for nothing.
pub(super) fn check(sources: &Sources) -> Vec<String> {
    let types = Types::read(sources);
    let mut findings = Vec::new();
    for (document, text) in sources.ending(&[".md"]) {
        let mut file_before: Option<&str> = None;
        for span in spans(text) {
            let wrong = match file_before.take().filter(|_| span.follows && is_name(span.code)) {
                Some(file) if !holds(sources, file, span.code) => {
                    Some(format!("no {file} has a `{}`", span.code))
                }
                _ => wrong(sources, &types, span.code),
            };
            if let Some(wrong) = wrong {
                findings.push(format!("{document}:{}: {wrong}", span.line));
            }
            file_before = Some(span.code).filter(|code| is_file(code));
        }
    }
    findings
}

/// A stretch of code inside a document's text.
struct Span<'a> {
    line: usize,
    code: &'a str,
    /// Only a comma is between it and the one before: "`tree.rs`, `insert`" means the one in the other.
    follows: bool,
}

/// What stands in backticks; blocks of code are examples, and are left out.
fn spans(text: &str) -> Vec<Span<'_>> {
    let (mut spans, mut fenced, mut begin, mut between) = (Vec::new(), false, None, 0);
    let mut offset = 0;
    for (number, part) in text.split_inclusive('\n').enumerate() {
        let fence = part.trim_start().starts_with("```");
        fenced ^= fence;
        if fenced || fence || part.trim().is_empty() {
            // What was not closed by the end of its paragraph is no code.
            begin = None;
        } else {
            for (at, _) in part.match_indices('`').map(|(at, tick)| (offset + at, tick)) {
                // A span may go on in the next line.
                match begin.take() {
                    None => begin = Some(at + 1),
                    Some(from) => {
                        let follows = between > 0 && text[between..from - 1].trim() == ",";
                        spans.push(Span { line: number + 1, code: &text[from..at], follows });
                        between = at + 1;
                    }
                }
            }
        }
        offset += part.len();
    }
    spans
}

/// What is wrong with a name, if it is the name of a file or a path in Rust.
fn wrong(sources: &Sources, types: &Types, code: &str) -> Option<String> {
    if is_file(code) {
        return (files(sources, code).next().is_none()).then(|| format!("there is no file `{code}`"));
    }
    // `Type::function(arguments)` and `Type::function()` are about the function.
    let path: Vec<&str> = code.split(['(', '<']).next()?.split("::").collect();
    if path.len() < 2
        || !path.iter().all(|part| is_name(part))
        || FOREIGN.contains(&path[0])
        || FOREIGN_PATHS.contains(&code)
    {
        return None;
    }
    let (of, name) = (path[path.len() - 2], path[path.len() - 1]);
    let known = types.types.get(of);
    if known.is_none() && !types.modules.contains_key(of) {
        return Some(format!("there is no type or module `{of}` (`{code}`)"));
    }
    // What an alias has, another type has: no text says which.
    let is_alias = known.is_some_and(|found| found.iter().any(|found| found.keyword == "type"));
    let there = is_alias
        || types.members.contains(&(of.to_owned(), name.to_owned()))
        || types.modules.get(of).is_some_and(|held| held.contains(name));
    (!there).then(|| format!("`{of}` has no `{name}` (`{code}`)"))
}

fn is_name(code: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    code.chars().all(part) && code.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
}

fn is_file(code: &str) -> bool {
    let plain = code.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
    let end = ENDINGS.iter().find(|end| code.ends_with(**end));
    // A leading slash is a file of the system; an ending alone is a kind of file.
    plain
        && !code.starts_with('/')
        && end.is_some_and(|end| code.len() > end.len())
        && !FOREIGN_FILES.contains(&code)
}

/// The files that a document means by `code`: the end of a path, with or without the `src` in it.
fn files<'a>(sources: &'a Sources, code: &'a str) -> impl Iterator<Item = &'a str> {
    let ends =
        move |name: &str| name == code || name.strip_suffix(code).is_some_and(|rest| rest.ends_with('/'));
    sources.names().filter(move |name| ends(name) || ends(&name.replacen("/src/", "/", 1)))
}

/// Whether one of the files called `file` has the word `name` in it.
fn holds(sources: &Sources, file: &str, name: &str) -> bool {
    let mut found = files(sources, file).filter_map(|path| sources.text(path)).peekable();
    let part = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    // A file that is not there has been told of already.
    found.peek().is_none() || found.any(|text| text.split(part).any(|word| word == name))
}
