//! A line for standard error that is made without allocating, from inside a malloc if need be.

/// One line of at most 400 bytes; what is longer is cut.
pub(crate) struct StderrLine {
    bytes: [u8; 400],
    len: usize,
}

impl StderrLine {
    pub(crate) fn new() -> Self {
        let mut line = Self { bytes: [0; 400], len: 0 };
        line.push("mangrove: ");
        line
    }

    pub(crate) fn push(&mut self, text: &str) {
        let room = self.bytes.len() - 1 - self.len;
        let count = text.len().min(room);
        self.bytes[self.len..self.len + count].copy_from_slice(&text.as_bytes()[..count]);
        self.len += count;
    }

    pub(crate) fn push_hex(&mut self, number: usize) {
        let mut digits = [0; 16];
        for (at, digit) in digits.iter_mut().rev().enumerate() {
            *digit = b"0123456789abcdef"[number >> (at * 4) & 15];
        }
        let first = digits.iter().position(|&d| d != b'0').unwrap_or(15);
        self.push("0x");
        self.push(std::str::from_utf8(&digits[first..]).unwrap_or("?"));
    }

    /// What was pushed so far.
    #[cfg(test)]
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or("?")
    }

    pub(crate) fn print(mut self) {
        use std::io::Write;
        self.bytes[self.len] = b'\n';
        // Unbuffered. If it fails, there is no other way to report it.
        let _ = std::io::stderr().write_all(&self.bytes[..=self.len]);
    }
}

#[cfg(test)]
mod tests {
    use super::StderrLine;

    #[test]
    fn numbers_and_long_texts() {
        let mut line = StderrLine::new();
        line.push_hex(0);
        line.push(" ");
        line.push_hex(0x1f0a);
        assert_eq!(&line.bytes[..line.len], b"mangrove: 0x0 0x1f0a");
        line.push(&"x".repeat(1000));
        assert_eq!(line.len, 399);
        line.push("y");
        assert_eq!(line.len, 399);
    }
}
