//! Byte counts as people write and read them.

/// Reads `4096`, `64K`, `1.5M`, `2G`, `1T` (powers of 1024).
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let sentence = || format!("'{text}' is not a number of bytes; write it like 4096, 64K, 1.5M, 2G or 1T");
    let trimmed = text.trim().trim_end_matches(['b', 'B']).trim_end_matches(['i', 'I']);
    let (digits, unit) = match trimmed.char_indices().last() {
        Some((at, c)) if c.is_ascii_alphabetic() => {
            let power = "KMGT".find(c.to_ascii_uppercase()).ok_or_else(sentence)? as i32 + 1;
            (&trimmed[..at], 1024f64.powi(power))
        }
        _ => (trimmed, 1.0),
    };
    let bytes = digits.parse::<f64>().map_err(|_| sentence())? * unit;
    // 2^53: beyond it a float no longer counts single bytes.
    if bytes.is_finite() && (0.0..=9.0e15).contains(&bytes) { Ok(bytes as u64) } else { Err(sentence()) }
}

/// Writes bytes with three figures: `712 B`, `12.3 KiB`, `1.07 GiB`.
pub(crate) fn human(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match (unit, value) {
        ("B", _) => format!("{bytes} B"),
        (_, v) if v < 10.0 => format!("{v:.2} {unit}"),
        (_, v) if v < 100.0 => format!("{v:.1} {unit}"),
        (_, v) => format!("{v:.0} {unit}"),
    }
}

/// Writes a count with separated thousands: `663,104`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{count, human, parse};

    #[test]
    fn sizes_are_read_with_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("64k"), Ok(65_536));
        assert_eq!(parse("1.5M"), Ok(1_572_864));
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        for bad in ["", "x", "-1", "1X", "K", "nan", "inf", "99999999T"] {
            assert!(parse(bad).is_err(), "{bad} was read as a size");
        }
    }

    #[test]
    fn sizes_are_written_with_three_figures() {
        assert_eq!(human(712), "712 B");
        assert_eq!(human(12_595), "12.3 KiB");
        assert_eq!(human(1 << 30), "1.00 GiB");
        assert_eq!(count(663_104), "663,104");
        assert_eq!(count(7), "7");
    }
}
