//! Counts whole replies of the server's protocol, RESP2, in the bytes that have arrived.

use anyhow::bail;

/// How many replies `bytes` begins with, and how long they are together. Lists are none of ours.
///
/// # Errors
/// One of them is an error, none that a command of ours has, or a nil: every record is there.
pub(super) fn count(bytes: &[u8]) -> anyhow::Result<(usize, usize)> {
    let (mut replies, mut at) = (0, 0);
    while let Some(len) = one(&bytes[at..])? {
        replies += 1;
        at += len;
    }
    Ok((replies, at))
}

/// The length of the first reply; nothing while it is not whole.
fn one(bytes: &[u8]) -> anyhow::Result<Option<usize>> {
    let Some(end) = bytes.iter().position(|&b| b == b'\n') else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let text = || String::from_utf8_lossy(line).into_owned();
    match line.first() {
        Some(b'+' | b':') => Ok(Some(end + 1)),
        Some(b'$') => {
            let Ok(len) = text()[1..].parse::<i64>() else { bail!("the server answers {}", text()) };
            let Ok(len) = usize::try_from(len) else {
                bail!("the server does not have a record that was made")
            };
            let whole = end + 1 + len + 2;
            Ok((bytes.len() >= whole).then_some(whole))
        }
        _ => bail!("the server answers {}", text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_replies_count() -> anyhow::Result<()> {
        let all = b"+OK\r\n:12\r\n$3\r\nabc\r\n$0\r\n\r\n";
        assert_eq!(count(all)?, (4, all.len()));
        let ends: Vec<usize> = (0..=all.len()).map(|len| count(&all[..len]).map_or(0, |(n, _)| n)).collect();
        assert!(ends.windows(2).all(|w| w[0] <= w[1]) && ends[all.len() - 1] == 3, "{ends:?}");
        assert_eq!(count(b"$5\r\nab\n\r")?, (0, 0));
        assert!(count(b"-ERR no\r\n").is_err());
        assert!(count(b"$-1\r\n").is_err());
        Ok(())
    }
}
