//! What is asked for: options of ours, and Valkey's directives from its configuration file and the command line,
//! the last one counting. Directives that a durable server refuses end here, with a message.

use crate::pattern;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// A request that cannot be honoured however often it is repeated: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn usage<T>(sentence: impl Into<String>) -> Result<T> {
    Err(Usage(sentence.into()).into())
}

/// Files that include each other in a circle end here.
const INCLUDES_MAX: usize = 64;

/// What a log may have. The server itself refuses others, in words that do not name the option.
const LOG_BYTES: std::ops::RangeInclusive<u64> = 16 << 10..=1 << 30;

/// A day.
const SLOW_BATCH_MS_MAX: u32 = 86_400_000;

/// Options of this program, which Valkey does not know.
const OWN: [&str; 7] =
    ["durability", "medium", "log-bytes", "builds", "slow-batch-ms", "metrics-port", "metrics-bind"];

/// When a reply leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyDurability {
    /// When its write is durable.
    Sync,
    /// At once; the write is durable about so many milliseconds later.
    Interval(u32),
}

#[derive(Debug)]
struct Directive {
    name: String,
    value: String,
    /// File and line; none: the command line.
    place: Option<String>,
}

/// One start of the server.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) durability: ReplyDurability,
    /// As the server's glue reads it; none: that of the state.
    pub(crate) medium: Option<String>,
    pub(crate) log_bytes: Option<u64>,
    pub(crate) builds: Option<PathBuf>,
    /// Batches that take longer are logged; none: as the glue has it.
    pub(crate) slow_batch_ms: Option<u32>,
    /// Where scrapes are answered.
    pub(crate) metrics_port: Option<u16>,
    pub(crate) metrics_bind: Option<String>,
    /// Valkey's own arguments.
    pub(crate) arguments: Vec<String>,
    directives: Vec<Directive>,
    /// So many of them, the first ones, come from the configuration file.
    from_file: usize,
}

impl Request {
    /// Takes the command line apart and reads the configuration files.
    pub(crate) fn parse(given: &[String]) -> Result<Self> {
        let mut request = Self {
            durability: ReplyDurability::Sync,
            medium: None,
            log_bytes: None,
            builds: None,
            slow_batch_ms: None,
            metrics_port: None,
            metrics_bind: None,
            arguments: Vec::new(),
            directives: Vec::new(),
            from_file: 0,
        };
        let (mut rest, mut included) = (given, 0);
        if let [file, others @ ..] = given
            && !file.starts_with('-')
        {
            request.read(Path::new(file), &mut included)?;
            request.arguments.push(file.clone());
            rest = others;
        }
        let file_arguments = request.arguments.len();
        request.from_file = request.directives.len();
        let mut is_first_dir = true;
        for mut words in lines(rest)? {
            let mut parts = parts_of(&words)?;
            if is_first_dir && is_dir(&parts) {
                is_first_dir = false;
                words = seen_from_here(&parts[1])?;
                parts[1].clone_from(&words[1]);
            }
            request.take(&words, &parts, &mut included)?;
        }
        if request.last("save").is_none() {
            let defaults = ["--save".to_owned(), String::new()];
            request.arguments.splice(file_arguments..file_arguments, defaults);
        }
        request.refuse_directives()?;
        Ok(request)
    }

    /// The value of a directive that counts.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.last_given(name).map(|given| given.value.as_str())
    }

    /// Of several directives of that name the one that counts.
    fn last_given(&self, name: &str) -> Option<&Directive> {
        self.directives.iter().rev().find(|given| given.name == name)
    }

    /// Whether a directive is on.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.last(name).is_some_and(|value| value.eq_ignore_ascii_case("yes"))
    }

    /// Where the directive that counts was given, for a message.
    pub(crate) fn place_of(&self, name: &str) -> &'static str {
        match self.directives.iter().rposition(|given| given.name == name) {
            Some(at) if at < self.from_file => "configuration file",
            _ => "command line",
        }
    }

    /// The directory of the state. The server goes into each `dir` from the one before.
    pub(crate) fn dir(&self) -> Result<PathBuf> {
        let dir = self.named_dir();
        std::fs::create_dir_all(&dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        self.existing_dir()
    }

    /// As `dir`, which must be there.
    pub(crate) fn existing_dir(&self) -> Result<PathBuf> {
        let dir = self.named_dir();
        dir.canonicalize().with_context(|| format!("cannot find the directory {}", dir.display()))
    }

    fn named_dir(&self) -> PathBuf {
        let dirs = self.directives.iter().filter(|given| given.name == "dir");
        dirs.fold(PathBuf::from("."), |dir, next| dir.join(&next.value)).components().collect()
    }

    /// One line: a directive of Valkey's, whose words are passed on as they are, or an option of ours. `parts` are its
    /// name and values.
    fn take(&mut self, words: &[String], parts: &[String], included: &mut usize) -> Result<()> {
        let [name, values @ ..] = parts else { return Ok(()) };
        let (name, value) = (name.as_str(), values.join(" "));
        let value = value.as_str();
        match name {
            "durability" => self.durability = durability(value)?,
            "medium" => self.medium = Some(medium(value)?),
            "log-bytes" => match bytes(value).filter(|bytes| LOG_BYTES.contains(bytes)) {
                Some(bytes) => self.log_bytes = Some(bytes),
                None => return usage(format!("--log-bytes {value}: this is no size from 16kb to 1gb")),
            },
            "builds" => self.builds = Some(value.into()),
            "slow-batch-ms" => match value.parse() {
                Ok(ms) if ms <= SLOW_BATCH_MS_MAX => self.slow_batch_ms = Some(ms),
                _ => {
                    return usage(format!(
                        "--slow-batch-ms {value}: this is no number up to {SLOW_BATCH_MS_MAX}"
                    ));
                }
            },
            "metrics-port" => match value.parse() {
                Ok(port) if port > 0 => self.metrics_port = Some(port),
                _ => return usage(format!("--metrics-port {value}: this is no port")),
            },
            "metrics-bind" => self.metrics_bind = Some(value.to_owned()),
            _ if name.eq_ignore_ascii_case("include") => {
                self.include(value, included)?;
                self.arguments.extend_from_slice(words);
            }
            _ => {
                let (name, value) = (name.to_lowercase(), value.to_owned());
                self.directives.push(Directive { name, value, place: None });
                self.arguments.extend_from_slice(words);
            }
        }
        Ok(())
    }

    fn read(&mut self, file: &Path, included: &mut usize) -> Result<()> {
        *included += 1;
        if *included > INCLUDES_MAX {
            bail!(
                "more than {INCLUDES_MAX} configuration files include each other, {} among them",
                file.display()
            );
        }
        let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii)) {
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let Some(parts) = split(line) else {
                bail!("{}, line {number}: a quote is not closed, or text follows it at once", file.display());
            };
            let [name, values @ ..] = parts.as_slice() else { continue };
            let name = String::from_utf8_lossy(name).into_owned();
            let value = match String::from_utf8(values.join(&b' ')) {
                Ok(value) => value,
                Err(_) if ["dir", "include"].iter().any(|path| name.eq_ignore_ascii_case(path)) => {
                    let line = String::from_utf8_lossy(line);
                    bail!("{}, line {number}: {line} is no text", file.display())
                }
                Err(other) => String::from_utf8_lossy(other.as_bytes()).into_owned(),
            };
            if name.eq_ignore_ascii_case("include") {
                self.include(&value, included)?;
            } else if let Some(own) = OWN.iter().find(|own| name.eq_ignore_ascii_case(own)) {
                return usage(format!(
                    "{}, line {number}: {own} is an option of mangrove redis and no directive of Valkey's: remove the \
                     line, and give --{own} {value} on the command line",
                    file.display()
                ));
            } else {
                let place = Some(format!("{}, line {number}", file.display()));
                self.directives.push(Directive { name: name.to_lowercase(), value, place });
            }
        }
        Ok(())
    }

    /// Reads what an `include` names: a file, or all that match a pattern. The server has gone into the last `dir` by
    /// then, and looks from there.
    fn include(&mut self, value: &str, included: &mut usize) -> Result<()> {
        let base = self.named_dir();
        if !pattern::is_pattern(value) {
            return self.read(&base.join(value), included);
        }
        if pattern::is_unknown(value) {
            return usage(format!(
                "include {value}: patterns with backslashes or classes of characters are refused: name the files"
            ));
        }
        pattern::files(&base, value).iter().try_for_each(|file| self.read(file, included))
    }

    fn refuse_directives(&self) -> Result<()> {
        let (name, sentence) = if self.is_on("crash-memcheck-enabled") {
            (
                "crash-memcheck-enabled",
                "crash-memcheck-enabled yes is refused: the memory test would write to all of the address space that \
                 the state reserves",
            )
        } else if self.is_on("activedefrag") {
            ("activedefrag", "activedefrag yes is refused: it moves values outside of commands")
        } else if self.last("loadmodule").is_some() {
            (
                "loadmodule",
                "loadmodule is refused: modules change values from timers and threads of their own, and their values \
                 point into the module",
            )
        } else if self.last("sentinel").is_some() {
            ("sentinel", "a sentinel keeps no data: start the build's valkey-server with --sentinel for that")
        } else {
            return Ok(());
        };
        match self.last_given(name).and_then(|given| given.place.as_deref()) {
            Some(place) => usage(format!("{place}: {sentence}")),
            None => usage(sentence),
        }
    }
}

/// A line divided into its words as the server does (`sdssplitargs`). A word may be in quotes, or have them behind its
/// beginning; between double quotes a backslash escapes. None: a quote is not closed, or text follows it at once.
/// CONFIG REWRITE puts values into double quotes and escapes what is not ASCII.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), line);
    loop {
        while let [b' ' | b'\t'..=b'\r', behind @ ..] = rest {
            rest = behind;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = loop {
            match rest {
                [] => break rest,
                [b' ' | b'\n' | b'\r' | b'\t', behind @ ..] => break behind,
                [quote @ (b'"' | b'\''), behind @ ..] => break quoted(*quote, behind, &mut word)?,
                [byte, behind @ ..] => {
                    word.push(*byte);
                    rest = behind;
                }
            }
        };
        words.push(word);
    }
}

/// Adds what comes before the closing quote to the word; what comes behind it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [] => return None,
            [b'\\', b'x', high, low, behind @ ..] if quote == b'"' && hex_byte(*high, *low).is_some() => {
                word.extend(hex_byte(*high, *low));
                behind
            }
            [b'\\', escaped, behind @ ..] if quote == b'"' => {
                word.push(match *escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => other,
                });
                behind
            }
            [b'\\', b'\'', behind @ ..] if quote == b'\'' => {
                word.push(b'\'');
                behind
            }
            [byte, behind @ ..] if *byte == quote => {
                let is_end = matches!(behind, [] | [b' ' | b'\t'..=b'\r', ..]);
                return is_end.then_some(behind);
            }
            [byte, behind @ ..] => {
                word.push(*byte);
                behind
            }
        };
    }
}

fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |of: u8| char::from(of).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// Name and values of a line of the command line. The server reads the first word as a line of a configuration file,
/// and takes each further one as it is.
fn parts_of(words: &[String]) -> Result<Vec<String>> {
    let [first, further @ ..] = words else { return Ok(Vec::new()) };
    let Some(parts) = split(first.strip_prefix("--").unwrap_or(first).as_bytes()) else {
        return usage(format!("{first}: a quote is not closed, or text follows it at once"));
    };
    let texts = parts.into_iter().map(|part| String::from_utf8_lossy(&part).into_owned());
    Ok(texts.chain(further.iter().cloned()).collect())
}

/// Whether the parts of a line are `dir` and one value.
fn is_dir(parts: &[String]) -> bool {
    parts.len() == 2 && parts[0].eq_ignore_ascii_case("dir")
}

/// The first directory of the command line as words that make it absolute. The server goes into it from the one of its
/// configuration file, which CONFIG REWRITE writes there: the same command line must lead to the same place then.
fn seen_from_here(dir: &str) -> Result<Vec<String>> {
    let absolute = std::path::absolute(dir).with_context(|| format!("--dir {dir}"))?;
    match absolute.into_os_string().into_string() {
        Ok(text) => Ok(vec!["--dir".to_owned(), text]),
        Err(other) => bail!("the directory {} is no text", other.display()),
    }
}

/// The command line as lines of a configuration, divided as Valkey does: a name alone takes the next word, whatever it
/// is, but for `--save`, which may stand for no value.
fn lines(words: &[String]) -> Result<Vec<Vec<String>>> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut wants_value = false;
    for word in words {
        if word == "-" {
            return usage("a configuration on standard input is not possible here: name a file");
        }
        let begins = word.starts_with("--") && !wants_value;
        match lines.last_mut() {
            Some(line) if !begins && (wants_value || !line.is_empty()) => {
                let is_empty_save =
                    wants_value && word.starts_with("--") && line[0].eq_ignore_ascii_case("--save");
                if is_empty_save {
                    lines.push(vec![word.clone()]);
                    wants_value = is_name_alone(word);
                    continue;
                }
                line.push(word.clone());
                wants_value = false;
            }
            _ => {
                wants_value = begins && is_name_alone(word);
                lines.push(vec![word.clone()]);
            }
        }
    }
    Ok(lines)
}

fn is_name_alone(word: &str) -> bool {
    split(word.as_bytes()).is_some_and(|parts| parts.len() == 1)
}

/// A size in Valkey's notation: a number, and a unit or none.
fn bytes(text: &str) -> Option<u64> {
    let text = text.to_ascii_lowercase();
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit: u64 = match unit {
        "" | "b" => 1,
        "k" => 1_000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

fn durability(text: &str) -> Result<ReplyDurability> {
    if text == "sync" {
        return Ok(ReplyDurability::Sync);
    }
    match text.strip_prefix("interval=").and_then(|ms| ms.parse().ok()) {
        Some(ms @ 1..=60_000) => Ok(ReplyDurability::Interval(ms)),
        _ => usage(format!("--durability {text}: this is neither sync nor interval=MS, MS being 1 to 60000")),
    }
}

fn medium(text: &str) -> Result<String> {
    let emulated = |latency: &str| {
        latency.split_once('/').is_some_and(|(w, r)| w.parse::<u32>().is_ok() && r.parse::<u32>().is_ok())
    };
    if matches!(text, "auto" | "file" | "dax") || text.strip_prefix("emulated=").is_some_and(emulated) {
        return Ok(text.to_owned());
    }
    usage(format!("--medium {text}: this is none of auto, file, dax, emulated=WRITE-NS/READ-NS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Request> {
        Request::parse(&words.iter().map(|&w| w.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_of_ours_are_taken_out_and_the_rest_is_valkeys() {
        let request = parse(&["--port", "7000", "--durability", "interval=20", "--dir", "d"]).unwrap();
        assert_eq!(request.durability, ReplyDurability::Interval(20));
        assert_eq!(request.last("port"), Some("7000"));
        let dir = std::env::current_dir().unwrap().join("d");
        assert_eq!(request.arguments, ["--save", "", "--port", "7000", "--dir", dir.to_str().unwrap()]);
    }

    #[test]
    fn the_last_directive_counts_and_includes_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let (outer, inner) = (dir.path().join("outer.conf"), dir.path().join("inner.conf"));
        std::fs::write(&inner, "DIR \"/in\"\nsave 60 1\n").unwrap();
        std::fs::write(&outer, format!("# a comment\ndir /out\ninclude {}\n", inner.display())).unwrap();
        let request = parse(&[outer.to_str().unwrap()]).unwrap();
        assert_eq!(request.last("dir"), Some("/in"));
        assert_eq!(request.arguments, [outer.to_str().unwrap()], "save is set in the file");
    }

    /// The state would lie in another directory than the server works in.
    #[test]
    fn a_dir_counts_in_a_file_that_a_pattern_or_the_command_line_includes() {
        let place = tempfile::tempdir().unwrap();
        let parts = place.path().join("conf.d");
        std::fs::create_dir(&parts).unwrap();
        for (name, dir) in [("10-a.conf", "/first"), ("20-b.conf", "/second"), ("30.txt", "/text")] {
            std::fs::write(parts.join(name), format!("dir {dir}\n")).unwrap();
        }
        let outer = place.path().join("v.conf");
        // Seen from the directory that is named before.
        let text = format!("dir {}\ninclude conf.d/*.conf\n", place.path().display());
        std::fs::write(&outer, &text).unwrap();
        let request = parse(&[outer.to_str().unwrap()]).unwrap();
        assert_eq!(request.named_dir(), Path::new("/second"));
        std::fs::write(&outer, text + "include none/*.conf\n").unwrap();
        let error = parse(&[outer.to_str().unwrap(), "--include", "/a/[[:alpha:]]"]).unwrap_err();
        assert!(error.is::<Usage>(), "{error:#}");
        let first = format!("{}/[0-1]?-a.conf", parts.display());
        let request = parse(&["--include", &first]).unwrap();
        assert_eq!(request.last("dir"), Some("/first"));
        assert_eq!(request.arguments, ["--save", "", "--include", &first]);
    }

    /// CONFIG REWRITE writes the directory so.
    #[test]
    fn a_value_in_quotes_is_read_as_the_server_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("v.conf");
        let text = r#"dir "/caf\xc3\xa9 \"x\"\t\\\xz"
masterauth 'it\'s'
save ""
requirepass "\xff"
"#;
        std::fs::write(&file, text).unwrap();
        let request = parse(&[file.to_str().unwrap()]).unwrap();
        assert_eq!(request.last("dir"), Some("/caf\u{e9} \"x\"\t\\xz"));
        assert_eq!((request.last("masterauth"), request.last("save")), (Some("it's"), Some("")));
        std::fs::write(&file, r#"dir "/\xff""#).unwrap();
        let error = parse(&[file.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("v.conf, line 1: "), "{error}");
    }

    /// The server takes any bytes.
    #[test]
    fn bytes_that_are_no_text_are_passed_over_outside_of_paths() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("v.conf");
        std::fs::write(&file, b"# caf\xe9\r\nport 7000\r\nrequirepass caf\xe9\n\nmaxclients 7").unwrap();
        let request = parse(&[file.to_str().unwrap()]).unwrap();
        assert_eq!((request.last("port"), request.last("maxclients")), (Some("7000"), Some("7")));
        std::fs::write(&file, b"port 1\ndir /caf\xe9\n").unwrap();
        let error = parse(&[file.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("v.conf, line 2: dir /caf"), "{error}");
    }

    /// The server takes a word behind the name as it is, and the name's own word as a line of the file.
    #[test]
    fn a_value_of_the_command_line_is_read_as_the_server_reads_it() {
        let cases: [(&[&str], &str); 12] = [
            (&["--requirepass", "a b"], "a b"),
            (&["--requirepass", " a  b "], " a  b "),
            (&["--requirepass", "\"a\""], "\"a\""),
            (&["--requirepass", "'"], "'"),
            (&["--requirepass", "\\x41"], "\\x41"),
            (&["--requirepass", ""], ""),
            (&["--requirepass ", "--a"], "--a"),
            (&["--requirepass 'a  b'"], "a  b"),
            (&["--requirepass \"\\x41\\\" \""], "A\" "),
            (&["--requirepass \"\""], ""),
            (&["--requirepass x\"y z\""], "xy z"),
            (&["--REQUIREPASS", "a"], "a"),
        ];
        for (words, value) in cases {
            let request = parse(words).unwrap();
            assert_eq!(request.last("requirepass"), Some(value), "{words:?}");
            assert_eq!(request.arguments[2..], *words);
        }
        for words in [["--requirepass 'a"], ["--requirepass \"a\"b"], ["--requirepass \"a\\\""]] {
            assert!(parse(&words).unwrap_err().is::<Usage>(), "{words:?}");
        }
    }

    /// The server would work in another directory than the one that has the state.
    #[test]
    fn a_dir_with_spaces_and_quotes_is_the_servers() {
        let here = std::env::current_dir().unwrap();
        let cases: [(&[&str], &str); 3] = [
            (&["--dir", "my data "], "my data "),
            (&["--dir", "'data'"], "'data'"),
            (&["--dir 'my data'"], "my data"),
        ];
        for (words, name) in cases {
            let request = parse(words).unwrap();
            assert_eq!(request.named_dir(), here.join(name));
            assert_eq!(request.arguments[2..], ["--dir", here.join(name).to_str().unwrap()]);
        }
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("v.conf");
        std::fs::write(&file, "\"dir\" /my\" data\"\nbind \"127.0.0.1\" '::1'\n").unwrap();
        let request = parse(&[file.to_str().unwrap()]).unwrap();
        assert_eq!((request.last("dir"), request.last("bind")), (Some("/my data"), Some("127.0.0.1 ::1")));
        std::fs::write(&file, "port 1\ndir \"/data\n").unwrap();
        let error = parse(&[file.to_str().unwrap()]).unwrap_err().to_string();
        assert!(error.contains("v.conf, line 2: "), "{error}");
    }

    #[test]
    fn an_option_of_ours_in_the_file_is_refused_with_its_line() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("v.conf");
        for own in OWN {
            std::fs::write(&file, format!("port 1\n\n{own} 7\n")).unwrap();
            let error = parse(&[file.to_str().unwrap()]).unwrap_err();
            assert!(error.is::<Usage>(), "{error:#}");
            let said = error.to_string();
            assert!(said.contains("v.conf, line 3: ") && said.contains(&format!("--{own} 7")), "{said}");
            // On the command line it is taken out.
            let value = match own {
                "durability" => "sync",
                "medium" => "file",
                "log-bytes" => "7mb",
                _ => "7",
            };
            assert_eq!(parse(&["--save", "", &format!("--{own}"), value]).unwrap().arguments, ["--save", ""]);
        }
    }

    #[test]
    fn each_dir_is_seen_from_the_one_before() {
        let place = tempfile::tempdir().unwrap();
        let outer = place.path().canonicalize().unwrap();
        let request = parse(&["--dir", outer.to_str().unwrap(), "--dir", "./in", "--dir", "."]).unwrap();
        assert_eq!(request.dir().unwrap(), outer.join("in"));
    }

    /// CONFIG REWRITE writes the directory into the configuration file, and the same command must find it again.
    #[test]
    fn a_relative_dir_leads_to_the_same_place_beside_one_in_the_file() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("v.conf");
        std::fs::write(&file, format!("dir {}/data\n", place.path().display())).unwrap();
        let request = parse(&[file.to_str().unwrap(), "--dir", "some/where"]).unwrap();
        assert_eq!(request.named_dir(), std::env::current_dir().unwrap().join("some/where"));
        // What is missing is not made.
        assert!(request.existing_dir().is_err());
    }

    #[test]
    fn words_are_divided_as_valkey_does() {
        let request =
            parse(&["--proc-title-template", "--a--b", "--maxmemory 7mb", "--save", "--builds", "b"])
                .unwrap();
        assert_eq!(request.last("proc-title-template"), Some("--a--b"));
        assert_eq!(request.last("maxmemory"), Some("7mb"));
        assert_eq!(request.last("save"), Some(""));
        assert_eq!(request.arguments, ["--proc-title-template", "--a--b", "--maxmemory 7mb", "--save"]);
    }

    #[test]
    fn the_size_of_the_log_is_taken_in_valkeys_notation() {
        for (text, bytes) in [("16384", 16_384), ("16kb", 16_384), ("1GB", 1 << 30), ("10m", 10_000_000)] {
            assert_eq!(parse(&["--log-bytes", text]).unwrap().log_bytes, Some(bytes));
        }
    }

    #[test]
    fn what_a_durable_server_cannot_do_is_refused_by_name() {
        for words in [
            ["--crash-memcheck-enabled", "yes"],
            ["--activedefrag", "yes"],
            ["--loadmodule", "m.so"],
            ["--durability", "maybe"],
            ["--medium", "emulated"],
            ["--log-bytes", "1"],
            ["--log-bytes", "1025mb"],
            ["--log-bytes", "16tb"],
            ["--log-bytes", "mb"],
        ] {
            let error = parse(&words).unwrap_err();
            assert!(
                error.is::<Usage>() && error.to_string().contains(words[0].trim_start_matches('-')),
                "{error}"
            );
        }
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("v.conf");
        for refused in ["activedefrag yes", "loadmodule m.so", "crash-memcheck-enabled yes", "sentinel x"] {
            std::fs::write(&file, format!("port 1\n{refused}\n")).unwrap();
            let error = parse(&[file.to_str().unwrap()]).unwrap_err().to_string();
            assert!(error.contains("v.conf, line 2: "), "{error}");
        }
        // The last one counts.
        std::fs::write(&file, "activedefrag yes\nactivedefrag no\n").unwrap();
        assert!(parse(&[file.to_str().unwrap()]).is_ok());
    }
}
