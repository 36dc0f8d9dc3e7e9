//! Mirrors of a repository: a real nginx, a way to it that is cut, and servers that do what nginx can't be made to do.

#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests start programs and servers")]

use super::eventually;
use super::ports::Ports;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// An authority with a server's and a client's certificate for loopback.
pub struct Certificates {
    pub directory: TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let openssl = |arguments: &str| {
            let mut command = Command::new("openssl");
            command.args(arguments.split(' ')).current_dir(directory.path()).stderr(Stdio::piped());
            let output = command.output().expect("cannot start openssl: apt-get install openssl");
            assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        // From 3.13 on Python takes no authority without its key's usage, and no certificate that does not name its authority's key.
        let usage = "-addext keyUsage=critical,keyCertSign,cRLSign";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=test-authority -days 2 {usage}"));
        for (name, extension) in [("server", "subjectAltName=IP:127.0.0.1"), ("client", "extendedKeyUsage=clientAuth")]
        {
            let extensions = format!("{extension}\nauthorityKeyIdentifier=keyid\n");
            fs::write(directory.path().join("extensions"), extensions).unwrap();
            openssl(&format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}.example"));
            openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out {name}.pem"
            ));
        }
        Self { directory }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// A real web server over TLS on loopback.
pub struct Nginx {
    directory: TempDir,
    process: Child,
    ports: Ports,
}

impl Nginx {
    /// Serves `root`; `more` are further lines of the server's block.
    pub fn start(root: &Path, certificates: &Certificates, more: &str) -> Self {
        let (root, keys) = (root.display(), certificates.directory.path().display());
        let (directory, ports) = (tempfile::tempdir().unwrap(), Ports::take());
        let (here, port) = (directory.path(), ports.first());
        let configuration = format!(
            "daemon off; master_process off; pid {0}/pid; error_log {0}/error.log;\nevents {{}}\nhttp {{\n\
             log_format seen '$request_method $uri|$status|$http_range|$body_bytes_sent|$http_authorization|$ssl_client_s_dn';\n\
             access_log {0}/access.log seen; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
             uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\nserver {{\nlisten 127.0.0.1:{port} ssl; root {root};\n\
             ssl_certificate {keys}/server.pem; ssl_certificate_key {keys}/server.key;\n{more}\n}}\n}}\n",
            here.display()
        );
        fs::write(here.join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-e").arg(here.join("error.log")).arg("-p").arg(here).arg("-c").arg(here.join("nginx.conf"));
        let output = fs::File::create(here.join("output")).unwrap();
        let mut process = command
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("cannot start nginx: apt-get install nginx-light");
        eventually(20, "nginx listens", || {
            let said = || fs::read_to_string(here.join("output")).unwrap_or_default();
            assert!(process.try_wait().unwrap().is_none(), "nginx does not start: {}", said());
            TcpStream::connect(("127.0.0.1", port)).map(drop).map_err(|error| error.to_string())
        });
        Self { directory, process, ports }
    }

    /// Where it listens, on loopback.
    pub fn port(&self) -> u16 {
        self.ports.first()
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port())
    }

    /// The requests, at least so many, one line each: `GET /path|status|range|bytes|authorization|client`. It writes one down when its answer has
    /// gone out already.
    pub fn seen(&self, at_least: usize) -> Vec<String> {
        eventually(20, "requests in nginx's log", || {
            let text = fs::read_to_string(self.directory.path().join("access.log")).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            if lines.len() >= at_least { Ok(lines) } else { Err(text) }
        })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Accepts connections on a thread each until it is dropped.
struct Listener {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Listener {
    fn new(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let (serve, ends) = (Arc::new(serve), Arc::clone(&over));
        let thread = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                // Nothing in a test takes longer; so no thread outlives it for ever.
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        Self { address, over, thread: Some(thread) }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A way to a server that breaks: the n-th connection after so many bytes of the server's, later ones never.
pub struct Cutter {
    listener: Listener,
    cuts: Arc<AtomicU64>,
}

impl Cutter {
    pub fn new(port: u16, places: Vec<usize>) -> Self {
        let places = Mutex::new(places.into_iter());
        let cuts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&cuts);
        let listener = Listener::new(move |mut client| {
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let left = places.lock().unwrap().next();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            match left {
                Some(bytes) => {
                    let copied = std::io::copy(&mut server.try_clone().unwrap().take(bytes as u64), &mut client);
                    counted.fetch_add(u64::from(copied.is_ok_and(|copied| copied == bytes as u64)), Ordering::SeqCst);
                }
                None => drop(std::io::copy(&mut server, &mut client)),
            }
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        });
        Self { listener, cuts }
    }

    pub fn port(&self) -> u16 {
        self.listener.address.port()
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }
}

/// A proxy that leads through to any address by CONNECT.
pub struct Tunnel {
    listener: Listener,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Tunnel {
    pub fn new() -> Self {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let listener = Listener::new(move |mut client| {
            let Some(head) = head_of(&mut client) else { return };
            let words: Vec<&str> = head.split(' ').collect();
            seen.lock().unwrap().push(words[..2].join(" "));
            let Ok(mut server) = TcpStream::connect(words[1]) else { return };
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(Shutdown::Both);
        });
        Self { listener, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.listener.address)
    }

    /// What it was asked for: `CONNECT 127.0.0.1:443`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

/// The head of a request; None: there is none, or it is too long.
fn head_of(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() > 16 << 10 || stream.read(&mut byte).ok() != Some(1) {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

/// A request that a hand-written server got.
pub struct Asked {
    pub path: String,
    pub head: String,
}

impl Asked {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = |line: &&str| line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name));
        self.head.lines().find(found).map(|line| line.split_once(':').unwrap().1.trim())
    }

    /// The range asked for, its end exclusive.
    pub fn range(&self) -> Option<(usize, usize)> {
        let (first, last) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse().unwrap(), last.parse::<usize>().unwrap() + 1))
    }
}

/// A server whose answers a test writes by hand, one for each connection.
pub struct Handmade {
    listener: Listener,
    heads: Arc<Mutex<Vec<String>>>,
    sent: Arc<AtomicU64>,
}

/// Where an answer goes.
pub struct Line {
    stream: TcpStream,
    sent: Arc<AtomicU64>,
}

impl Line {
    /// Sends bytes; false: nobody takes them any more.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        bytes.chunks(16 << 10).all(|chunk| {
            let well = self.stream.write_all(chunk).is_ok();
            self.sent.fetch_add(if well { chunk.len() as u64 } else { 0 }, Ordering::SeqCst);
            well
        })
    }

    /// A status line and headers, as `HTTP/1.1 {head}`.
    pub fn head(&mut self, head: &str) -> bool {
        self.send(format!("HTTP/1.1 {}\r\nConnection: close\r\n\r\n", head.replace('\n', "\r\n")).as_bytes())
    }

    /// A whole answer with a body.
    pub fn answer(&mut self, head: &str, body: &[u8]) {
        let _ = self.head(&format!("{head}\nContent-Length: {}", body.len())) && self.send(body);
    }

    /// What a proper server does with a file.
    pub fn serve(&mut self, asked: &Asked, file: Option<&[u8]>) {
        match (file, asked.range()) {
            (None, _) => self.answer("404 Not Found", b""),
            (Some(file), None) => self.answer("200 OK", file),
            (Some(file), Some((start, end))) => {
                let head = format!("206 Partial Content\nContent-Range: bytes {start}-{}/{}", end - 1, file.len());
                self.answer(&head, &file[start..end]);
            }
        }
    }

    /// Waits until the other side goes away.
    pub fn hold(&mut self) {
        let _ = self.stream.read(&mut [0]);
    }
}

impl Handmade {
    pub fn new(answer: impl Fn(&Asked, &mut Line) + Send + Sync + 'static) -> Self {
        let (heads, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let (seen, counter) = (Arc::clone(&heads), Arc::clone(&sent));
        let listener = Listener::new(move |mut stream| {
            let Some(head) = head_of(&mut stream) else { return };
            let path = head.split(' ').nth(1).unwrap().to_owned();
            seen.lock().unwrap().push(head.clone());
            answer(
                &Asked { path, head },
                &mut Line { stream: stream.try_clone().unwrap(), sent: Arc::clone(&counter) },
            );
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read(&mut [0]); // what was sent is not lost to a reset
        });
        Self { listener, heads, sent }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.listener.address)
    }

    /// The heads of all requests.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    /// Bytes that went out.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }
}
