//! A relay between a minion and the publish port of its master: it passes bytes on, passes them late, or swallows them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What happens to the bytes of a connection. It keeps what it began with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// They go on at once.
    Pass,
    /// They go on so much later, each way.
    Late(Duration),
    /// They go nowhere: the connection stands, and nobody is behind it.
    Swallow,
}

/// The relay; its threads end with the connections.
pub struct Relay {
    /// Where it listens, on loopback.
    pub port: u16,
    state: Arc<Mutex<(u16, Way)>>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Listens; `lead_to` says where it leads.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new((0, Way::Pass)));
        let known = Arc::clone(&state);
        let clients = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&clients);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                all.lock().unwrap().extend(client.try_clone());
                let (target, way) = *known.lock().unwrap();
                thread::spawn(move || serve(client, target, way));
            }
        });
        Self { port, state, clients }
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for client in self.clients.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Leads new connections to this port of loopback.
    pub fn lead_to(&self, port: u16) {
        self.state.lock().unwrap().0 = port;
    }

    /// What happens to the bytes of new connections.
    pub fn treat(&self, way: Way) {
        self.state.lock().unwrap().1 = way;
    }
}

fn serve(client: TcpStream, target: u16, way: Way) {
    if way == Way::Swallow {
        let mut client = client;
        let _ = std::io::copy(&mut client, &mut std::io::sink());
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)) else { return };
    let wait = if let Way::Late(wait) = way { wait } else { Duration::ZERO };
    let (Ok(from), Ok(to)) = (client.try_clone(), server.try_clone()) else { return };
    let up = thread::spawn(move || carry(from, to, wait));
    carry(server, client, wait);
    let _ = up.join();
}

/// Carries bytes one way until that ends.
fn carry(mut from: TcpStream, to: TcpStream, wait: Duration) {
    let (sender, receiver) = channel();
    let late = thread::spawn(move || deliver(to, &receiver));
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + wait, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = late.join();
}

fn deliver(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    while let Ok((due, bytes)) = receiver.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
