//! A registry on the loopback for the time of a study, and the little HTTP that fills it.
//!
//! The server is Debian's `docker-registry` (the distribution project); the protocol is the push of
//! the OCI distribution specification 1.1, blobs in one piece.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longshore_sys::children::die_with_parent;
use thiserror::Error;

use crate::host_image::{Layout, MANIFEST_TYPE};

/// How long the server may take to answer, from its start or to one request.
const PATIENCE: Duration = Duration::from_secs(20);

/// A loopback registry did not do its work.
#[derive(Debug, Error)]
pub(crate) enum RegistryError {
    /// Its files could not be made, or it could not be started.
    #[error("cannot start a registry in {}", path.display())]
    Start {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// It ended or did not answer.
    #[error("the registry did not come up; see {}", log.display())]
    NotUp { log: PathBuf },
    /// A request failed.
    #[error("the registry at {address} failed to {what}: {reason}")]
    Request {
        address: SocketAddr,
        what: String,
        reason: String,
    },
}

/// A running server, which ends when this is dropped, and when this process dies.
pub(crate) struct LoopbackRegistry {
    server: Child,
    pub(crate) address: SocketAddr,
}

impl LoopbackRegistry {
    /// Starts `program` with its files in `folder`, and waits until it answers.
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<LoopbackRegistry, RegistryError> {
        let fail = |source| RegistryError::Start {
            path: folder.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(fail)?;
        let log = folder.join("log");
        // The kernel chooses a free port; the server has to bind it again, so another program could
        // take it in between. That ends the server, which is tried again.
        for _ in 0..5 {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(fail)?;
            let address = free.local_addr().map_err(fail)?;
            drop(free);
            let storage = folder.join("storage");
            let config = folder.join("config.yml");
            let text = serde_json::json!({
                "version": "0.1",
                "log": {"level": "error", "accesslog": {"disabled": true}},
                "storage": {"filesystem": {"rootdirectory": storage}},
                "http": {"addr": address.to_string()},
            });
            // JSON is YAML, and quotes every path rightly.
            fs::write(&config, text.to_string()).map_err(fail)?;
            let output = File::create(&log).map_err(fail)?;
            let mut command = Command::new(program);
            command
                .arg("serve")
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(output.try_clone().map_err(fail)?)
                .stderr(output);
            die_with_parent(&mut command);
            let server = command.spawn().map_err(fail)?;
            let mut registry = LoopbackRegistry { server, address };
            if registry.comes_up().map_err(fail)? {
                return Ok(registry);
            }
        }
        Err(RegistryError::NotUp { log })
    }

    fn comes_up(&mut self) -> io::Result<bool> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if self.server.try_wait()?.is_some() {
                return Ok(false);
            }
            if request(self.address, "GET", "/v2/", &[], Body::Empty)
                .is_ok_and(|answer| answer.status == 200)
            {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }

    /// Pushes an image as `name:tag` and gives the reference to pull it by: its digest, since anybody
    /// on this machine can reach the registry and push another image under the tag meanwhile.
    pub(crate) fn push(&self, layout: &Layout, name: &str) -> Result<String, RegistryError> {
        for digest in &layout.blobs {
            self.push_blob(name, digest, &layout.blob(digest))?;
        }
        let what = format!("take the manifest of {name}");
        let body = Body::File(layout.blob(&layout.digest));
        let path = format!("/v2/{name}/manifests/{}", layout.tag);
        let headers = [("Content-Type", MANIFEST_TYPE)];
        self.expect(
            &what,
            201,
            request(self.address, "PUT", &path, &headers, body),
        )?;
        Ok(format!(
            "docker://{}/{name}@{}",
            self.address, layout.digest
        ))
    }

    fn push_blob(&self, name: &str, digest: &str, file: &Path) -> Result<(), RegistryError> {
        let what = format!("take the blob {digest}");
        let path = format!("/v2/{name}/blobs/uploads/");
        let begun = request(self.address, "POST", &path, &[], Body::Empty);
        let begun = self.expect(&what, 202, begun)?;
        let location = begun.location.unwrap_or_default();
        // The server names itself, by an absolute or a relative address.
        let own = format!("http://{}", self.address);
        let path = location.strip_prefix(&own).unwrap_or(&location);
        if !path.starts_with('/') {
            return Err(self.failure(&what, format!("it sent us to `{location}`")));
        }
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{joint}digest={digest}");
        let headers = [("Content-Type", "application/octet-stream")];
        let body = Body::File(file.to_owned());
        self.expect(
            &what,
            201,
            request(self.address, "PUT", &path, &headers, body),
        )?;
        Ok(())
    }

    fn expect(
        &self,
        what: &str,
        status: u16,
        answer: io::Result<Answer>,
    ) -> Result<Answer, RegistryError> {
        match answer {
            Ok(answer) if answer.status == status => Ok(answer),
            Ok(answer) => {
                let body = String::from_utf8_lossy(&answer.body);
                Err(self.failure(what, format!("status {}: {}", answer.status, body.trim())))
            }
            Err(error) => Err(self.failure(what, error.to_string())),
        }
    }

    fn failure(&self, what: &str, reason: String) -> RegistryError {
        RegistryError::Request {
            address: self.address,
            what: what.to_owned(),
            reason,
        }
    }
}

impl Drop for LoopbackRegistry {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to be done about a failure.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

enum Body {
    Empty,
    File(PathBuf),
}

#[derive(Debug, PartialEq)]
struct Answer {
    status: u16,
    location: Option<String>,
    body: Vec<u8>,
}

/// One HTTP/1.1 request on a connection of its own (RFC 9112).
fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (bytes, file) = match body {
        Body::Empty => (0, None),
        Body::File(path) => {
            let file = File::open(path)?;
            (file.metadata()?.len(), Some(file))
        }
    };
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {bytes}\r\n\r\n"));
    stream.write_all(head.as_bytes())?;
    if let Some(file) = file {
        io::copy(&mut file.take(bytes), &mut stream)?;
    }
    read_answer(BufReader::new(stream))
}

/// Reads status, `Location` and at most 64 KiB of the rest.
fn read_answer(mut reader: impl BufRead) -> io::Result<Answer> {
    let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    let mut bounded = reader.by_ref().take(1 << 16);
    bounded.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|word| word.trim().parse().ok())
        .filter(|_| line.starts_with("HTTP/1."))
        .ok_or_else(|| bad("the answer is not HTTP"))?;
    let mut location = None;
    loop {
        line.clear();
        if bounded.read_line(&mut line)? == 0 {
            return Err(bad("the answer ends in its headers"));
        }
        let header = line.trim_end();
        if header.is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("location")
        {
            location = Some(value.trim().to_owned());
        }
    }
    let mut body = Vec::new();
    reader.take(1 << 16).read_to_end(&mut body)?;
    Ok(Answer {
        status,
        location,
        body,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_its_location() {
        let text = b"HTTP/1.1 202 Accepted\r\nlocation: /v2/x?_state=y\r\nA: b\r\n\r\nbody";
        let answer = read_answer(&text[..]).expect("is HTTP");
        assert_eq!(answer.status, 202);
        assert_eq!(answer.location.as_deref(), Some("/v2/x?_state=y"));
        assert_eq!(answer.body, b"body");
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        for text in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1 200 OK\r\nA: b\r\n"] {
            assert!(read_answer(text).is_err());
        }
    }
}
