//! The few words of HTTP that a scrape needs: one request, one answer, the connection closed.

use super::info::{ListenPlace, ask};
use super::text;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A request is shorter.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// A scraper that sends or takes nothing for so long is cut off.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Scrapes at a time; more are refused.
const SCRAPES_MAX: usize = 16;
/// How long a connection that could not be accepted holds up the next ones.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// What the server is asked by.
pub(super) struct MetricsSource {
    pub(super) place: ListenPlace,
    pub(super) password: Option<String>,
}

/// Answers scrapes for ever.
pub(super) fn serve(listener: &TcpListener, source: MetricsSource) {
    serve_each(listener.incoming(), source);
}

/// Answers the scrapes that come on `streams`.
fn serve_each(streams: impl Iterator<Item = io::Result<TcpStream>>, source: MetricsSource) {
    let (source, scrapes) = (Arc::new(source), Arc::new(AtomicUsize::new(0)));
    for stream in streams {
        let Ok(stream) = stream else {
            // Usually the process has no descriptor left; the next one would be refused at once, too.
            std::thread::sleep(REFUSED_PAUSE);
            continue;
        };
        let _ = stream.set_read_timeout(Some(SILENCE_MAX));
        let _ = stream.set_write_timeout(Some(SILENCE_MAX));
        let source = source.clone();
        if scrapes.fetch_add(1, Ordering::Relaxed) >= SCRAPES_MAX {
            scrapes.fetch_sub(1, Ordering::Relaxed);
            respond(stream, "503 Service Unavailable", "too many scrapes at a time\n");
            continue;
        }
        let ended = scrapes.clone();
        let spawned = std::thread::Builder::new().spawn(move || {
            answer(stream, &source);
            ended.fetch_sub(1, Ordering::Relaxed);
        });
        // Without a thread the connection is closed; the scraper comes again.
        if spawned.is_err() {
            scrapes.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn answer(mut stream: TcpStream, source: &MetricsSource) {
    // One that sends nothing, or too much, gets nothing.
    let Some(request) = read_request(&mut stream) else { return };
    let mut words = request.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/metrics") => match ask(&source.place, source.password.as_deref()) {
            Ok(info) => respond(stream, "200 OK", &text::of_info(&info)),
            Err(error) => respond(stream, "503 Service Unavailable", &format!("{error:#}\n")),
        },
        ("GET", _) => respond(stream, "404 Not Found", "the metrics are at /metrics\n"),
        _ => respond(stream, "405 Method Not Allowed", "only GET is supported\n"),
    }
}

/// The request line, when the head is whole.
fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let len = stream.read(&mut piece).ok().filter(|&len| len > 0)?;
        head.extend_from_slice(&piece[..len]);
        if head.len() > REQUEST_BYTES_MAX {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head);
    head.lines().next().map(str::to_owned)
}

fn respond(mut stream: TcpStream, status: &str, body: &str) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    // A scraper that went away misses its answer.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::SocketAddr;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    /// A server that wants the password `sesame`, on a socket.
    fn server(socket: &std::path::Path) {
        let listener = UnixListener::bind(socket).unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut out, mut is_known, mut line) = (stream, false, String::new());
                while reader.read_line(&mut line).is_ok_and(|len| len > 0) {
                    let answer: &[u8] = match line.trim() {
                        "sesame" => {
                            is_known = true;
                            b"+OK\r\n"
                        }
                        "wrong" => b"-WRONGPASS no\r\n",
                        "INFO" if is_known => b"$20\r\nconnected_clients:1\n\r\n",
                        "INFO" => b"-NOAUTH Authentication required.\r\n",
                        _ => b"",
                    };
                    out.write_all(answer).unwrap();
                    line.clear();
                }
            }
        });
    }

    fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{request} HTTP/1.1\r\nHost: here\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn a_scrape_gets_the_servers_numbers_and_other_requests_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        server(&socket);
        let listening = |password: Option<&str>| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let source = MetricsSource {
                place: ListenPlace::Socket(socket.clone()),
                password: password.map(str::to_owned),
            };
            std::thread::spawn(move || serve(&listener, source));
            address
        };
        let known = listening(Some("sesame"));
        let answer = get(known, "GET /metrics");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.ends_with("# TYPE valkey_connected_clients gauge\nvalkey_connected_clients 1\n"),
            "{answer}"
        );
        assert!(get(known, "GET /").starts_with("HTTP/1.1 404"));
        assert!(get(known, "POST /metrics").starts_with("HTTP/1.1 405"));
        let refused = get(listening(None), "GET /metrics");
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("NOAUTH"), "{refused}");
        let wrong = get(listening(Some("wrong")), "GET /metrics");
        assert!(wrong.starts_with("HTTP/1.1 503") && wrong.contains("WRONGPASS"), "{wrong}");
    }

    #[test]
    fn a_server_without_descriptors_waits_and_then_serves_on() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let source = MetricsSource { place: ListenPlace::Socket("/nowhere".into()), password: None };
        let begun = Instant::now();
        let scraper = std::thread::spawn(move || get(address, "GET /"));
        let refused = (0..2).map(|_| Err(io::Error::other("no descriptor is left")));
        serve_each(refused.chain(listener.incoming().take(1)), source);
        assert!(scraper.join().unwrap().starts_with("HTTP/1.1 404"));
        assert!(begun.elapsed() >= 2 * REFUSED_PAUSE);
    }
}
