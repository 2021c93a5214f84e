//! The pulling half of the OCI distribution protocol.
//!
//! The one place of this crate with `async` code. A [`Registry`] owns a runtime of one thread: the
//! calling thread drives it, so nothing is left running when a method returns. (Resolving a name
//! takes a helper thread of the runtime, which ends when the registry is dropped: a process that
//! makes namespaces afterwards must drop it first.)
//!
//! It is written on the HTTP client and not on a registry crate because what decides here is what
//! those hide: `Retry-After`, the status and words of a refusal, where a redirect leads, ranges
//! while another thread reads the file, and the types that are accepted.

pub(crate) mod challenge;

use std::fs::File;
use std::io::Write;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{self, StreamExt};
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, RANGE, RETRY_AFTER,
    WWW_AUTHENTICATE,
};
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::credentials::{Credentials, Found, encode_base64};
use crate::digest::{Digest, Hasher};
use crate::error::{ErrorKind, ImageError};
use crate::growing::Growing;
use crate::manifest::{ACCEPTED, Descriptor, MAX_DOCUMENT_BYTES};
use crate::progress::{Event, Progress};
use crate::reference::RegistryRef;
use challenge::Challenge;

/// How often a request is made before its failure is final.
const ATTEMPTS: u32 = 5;
/// The longest pause that a registry may ask for before we ask the user instead.
const MAX_PAUSE: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(60);
/// Refusals carry a short explanation; no more of it than this is read.
const MAX_REFUSAL_BYTES: usize = 16 << 10;
const MAX_TOKEN_BYTES: usize = 1 << 20;

/// Whether plain HTTP may be spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// HTTPS; plain HTTP too where the registry is on this machine.
    #[default]
    Secure,
    /// Plain HTTP, as the user asked.
    Plain,
}

/// A visit to one repository of a registry.
pub(crate) struct Registry {
    runtime: Runtime,
    session: Visit,
}

struct Visit {
    client: Client,
    image: RegistryRef,
    base: String,
    found: Option<Found>,
    authorization: Mutex<Option<HeaderValue>>,
    reached: AtomicBool,
}

/// A layer on its way to a file.
pub(crate) struct Download<'d> {
    pub(crate) layer_index: usize,
    pub(crate) descriptor: &'d Descriptor,
    pub(crate) file: File,
    /// What `file` holds already, and its digest so far.
    pub(crate) here_bytes: u64,
    pub(crate) hasher: Hasher,
    pub(crate) growing: &'d Growing,
    /// Puts the complete file in its place.
    pub(crate) keep: Box<dyn FnOnce() -> Result<(), ImageError> + Send + 'd>,
    /// Throws away what has the wrong digest.
    pub(crate) discard: Box<dyn FnOnce() + Send + 'd>,
}

enum Failure {
    Final(ImageError),
    Again(ImageError, Option<Duration>),
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Failure {
        Failure::Final(error)
    }
}

impl Registry {
    /// Prepares a visit; for a registry of this machine it also finds out whether TLS is spoken.
    pub(crate) fn open(
        image: &RegistryRef,
        transport: Transport,
        found: Option<Found>,
    ) -> Result<Registry, ImageError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                ImageError::new(ErrorKind::Io, "cannot prepare the network").because(error)
            })?;
        let plain = transport == Transport::Plain || image.is_loopback();
        let client = {
            let _inside = runtime.enter();
            client(image, plain, Redirects::Followed)?
        };
        let host = image.api_host();
        let scheme = if plain { "http" } else { "https" };
        let mut session = Visit {
            client,
            image: image.clone(),
            base: format!("{scheme}://{host}"),
            found,
            authorization: Mutex::new(None),
            reached: AtomicBool::new(false),
        };
        if plain && transport == Transport::Secure && runtime.block_on(session.speaks_tls_only()) {
            session.base = format!("https://{host}");
        }
        Ok(Registry { runtime, session })
    }

    /// Fetches the manifest or index at a tag or digest; its digest is checked where one is known.
    pub(crate) fn manifest(
        &self,
        version: &str,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, ImageError> {
        let what = format!("the manifest of {}", self.session.image);
        let url = self.session.url("manifests", version);
        self.runtime.block_on(async {
            let accept = ACCEPTED.join(", ");
            let (bytes, headers) = self
                .session
                .document(&url, Some(&accept), &what, MAX_DOCUMENT_BYTES, progress)
                .await?;
            let promised = Digest::parse(version).ok().or_else(|| {
                let header = headers.get("docker-content-digest")?;
                Digest::parse(header.to_str().ok()?).ok()
            });
            match promised {
                Some(promised) if promised != Digest::of(&bytes) => {
                    Err(wrong_digest(&what, &promised, &Digest::of(&bytes)))
                }
                _ => Ok(bytes),
            }
        })
    }

    /// Fetches a small blob (the image configuration) and checks it.
    pub(crate) fn small_blob(
        &self,
        descriptor: &Descriptor,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, ImageError> {
        let what = format!("the configuration of {}", self.session.image);
        let url = self.session.url("blobs", &descriptor.digest.to_string());
        self.runtime.block_on(async {
            let (bytes, _) = self
                .session
                .document(&url, None, &what, MAX_DOCUMENT_BYTES, progress)
                .await?;
            let digest = Digest::of(&bytes);
            if digest == descriptor.digest {
                Ok(bytes)
            } else {
                Err(wrong_digest(&what, &descriptor.digest, &digest))
            }
        })
    }

    /// Brings the layers, `parallel` at a time and in this order, until all are here, one has
    /// failed for good, or `cancel` is notified. Every layer is told its end.
    pub(crate) fn download<'d>(
        &'d self,
        downloads: Vec<Download<'d>>,
        parallel: usize,
        cancel: &Notify,
        progress: &'d dyn Progress,
    ) -> Result<(), ImageError> {
        let all: Vec<&Growing> = downloads.iter().map(|download| download.growing).collect();
        let result = self.runtime.block_on(async {
            let mut running = stream::iter(downloads)
                .map(|download| self.session.layer(download, progress))
                .buffer_unordered(parallel.max(1));
            let work = pin!(async {
                while let Some(result) = running.next().await {
                    result?;
                }
                Ok(())
            });
            match select(work, pin!(cancel.notified())).await {
                Either::Left((result, _)) => result,
                // Whoever cancelled has the reason.
                Either::Right(_) => Ok(()),
            }
        });
        for growing in all {
            growing.broke();
        }
        result
    }
}

/// What happens when a server names another place.
#[derive(Clone, Copy)]
enum Redirects {
    /// Blobs lie elsewhere, as a rule.
    Followed,
    /// A body with a secret goes nowhere but where it was meant to go.
    Refused,
}

fn client(image: &RegistryRef, plain: bool, redirects: Redirects) -> Result<Client, ImageError> {
    let builder = || {
        let builder = Client::builder()
            .user_agent(concat!("longshore/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .redirect(reqwest::redirect::Policy::custom(|attempt| {
                let left_tls = attempt.previous().last().is_some_and(|from| {
                    from.scheme() == "https" && attempt.url().scheme() == "http"
                });
                if left_tls {
                    attempt.error("it redirects from HTTPS to plain HTTP")
                } else if attempt.previous().len() > 10 {
                    attempt.error("it redirects more than ten times")
                } else {
                    // The client drops the Authorization header when the host or port changes.
                    attempt.follow()
                }
            }));
        let builder = match redirects {
            Redirects::Followed => builder,
            Redirects::Refused => builder.redirect(reqwest::redirect::Policy::none()),
        };
        if image.is_loopback() {
            builder.no_proxy()
        } else {
            builder
        }
    };
    match builder().build() {
        Ok(client) => Ok(client),
        // A machine without any trusted root can still speak plain HTTP.
        Err(_) if plain => builder().tls_certs_only([]).build(),
        Err(error) => Err(error),
    }
    .map_err(|error| {
        ImageError::new(
            ErrorKind::Unreachable,
            "cannot prepare HTTPS: the trusted certificates of this machine cannot be read",
        )
        .hint("install the package ca-certificates")
        .because(error)
    })
}

impl Visit {
    fn url(&self, kind: &str, version: &str) -> String {
        format!(
            "{}/v2/{}/{kind}/{version}",
            self.base, self.image.repository
        )
    }

    /// Whether an address is one of the registry itself: same scheme, host and port.
    fn is_own(&self, url: &str) -> bool {
        match (Url::parse(url), Url::parse(&self.base)) {
            (Ok(url), Ok(base)) => url.origin() == base.origin(),
            _ => false,
        }
    }

    /// Whether a registry of this machine answers plain HTTP with "this is TLS".
    async fn speaks_tls_only(&self) -> bool {
        match self.client.get(format!("{}/v2/", self.base)).send().await {
            Ok(answer) => {
                answer.status() == StatusCode::BAD_REQUEST
                    && !answer
                        .headers()
                        .contains_key("docker-distribution-api-version")
            }
            // No HTTP came back although something listens.
            Err(error) => !error.is_connect() && !error.is_timeout(),
        }
    }

    /// Fetches a bounded document, trying again where that helps.
    async fn document(
        &self,
        url: &str,
        accept: Option<&str>,
        what: &str,
        max_bytes: u64,
        progress: &dyn Progress,
    ) -> Result<(Vec<u8>, HeaderMap), ImageError> {
        let mut attempt = 0;
        loop {
            let result = async {
                let response = self.get(url, accept, None, what).await?;
                let headers = response.headers().clone();
                let bytes = self.body(response, what, max_bytes).await?;
                Ok((bytes, headers))
            };
            match result.await {
                Ok(document) => return Ok(document),
                Err(failure) => self.pause(failure, &mut attempt, progress).await?,
            }
        }
    }

    async fn body(
        &self,
        mut response: Response,
        what: &str,
        max_bytes: u64,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        loop {
            let chunk = response
                .chunk()
                .await
                .map_err(|error| self.transport_failure(what, error))?;
            match chunk {
                None => return Ok(bytes),
                Some(chunk) if bytes.len() as u64 + chunk.len() as u64 > max_bytes => {
                    return Err(Failure::Final(ImageError::new(
                        ErrorKind::Corrupt,
                        format!("{what} is larger than {} MiB", max_bytes >> 20),
                    )));
                }
                Some(chunk) => bytes.extend_from_slice(&chunk),
            }
        }
    }

    /// Sleeps before the next attempt, or gives the failure that is final.
    async fn pause(
        &self,
        failure: Failure,
        attempt: &mut u32,
        progress: &dyn Progress,
    ) -> Result<(), ImageError> {
        let (error, asked) = match failure {
            Failure::Final(error) => return Err(error),
            Failure::Again(error, asked) => (error, asked),
        };
        *attempt += 1;
        if *attempt >= ATTEMPTS {
            return Err(error);
        }
        let after = asked.unwrap_or(Duration::from_millis(250 << *attempt));
        if after > MAX_PAUSE {
            return Err(error.hint(format!(
                "the registry asks to wait {} s; come back then, or log in for a higher limit",
                after.as_secs()
            )));
        }
        progress.event(Event::Retrying {
            why: error.to_string(),
            after,
        });
        tokio::time::sleep(after).await;
        Ok(())
    }

    /// Makes one request, logging in where the registry asks for it.
    async fn get(
        &self,
        url: &str,
        accept: Option<&str>,
        from: Option<u64>,
        what: &str,
    ) -> Result<Response, Failure> {
        let mut logged_in = false;
        loop {
            let mut request = self.client.get(url);
            if let Some(accept) = accept {
                request = request.header(ACCEPT, accept);
            }
            if let Some(from) = from {
                request = request.header(RANGE, format!("bytes={from}-"));
            }
            // The address of a foreign layer is the image maker's word, and none of the registry's.
            let is_own = self.is_own(url);
            let authorization = self
                .authorization
                .lock()
                .expect("no holder of this lock panics")
                .clone();
            if let Some(value) = authorization.filter(|_| is_own) {
                request = request.header(AUTHORIZATION, value);
            }
            let response = request
                .send()
                .await
                .map_err(|error| self.transport_failure(what, error))?;
            self.reached.store(true, Ordering::Relaxed);
            let asks_us = is_own && self.is_own(response.url().as_str());
            if response.status() == StatusCode::UNAUTHORIZED && !logged_in && asks_us {
                self.log_in(response.headers()).await?;
                logged_in = true;
                continue;
            }
            if response.status().is_success() {
                return Ok(response);
            }
            return Err(self.refusal(response, what).await);
        }
    }

    /// Answers the registry's challenge; sets the header of the requests to come.
    async fn log_in(&self, headers: &HeaderMap) -> Result<(), Failure> {
        let challenges: Vec<Challenge> = headers
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(Challenge::parse_all)
            .collect();
        let of_scheme = |scheme: &str| {
            challenges
                .iter()
                .find(|challenge| challenge.scheme.eq_ignore_ascii_case(scheme))
        };
        let password = self
            .found
            .as_ref()
            .and_then(|found| match &found.credentials {
                Credentials::Password { user, password } => {
                    Some(encode_base64(format!("{user}:{password}").as_bytes()))
                }
                Credentials::IdentityToken(_) => None,
            });
        let value = if let Some(bearer) = of_scheme("bearer") {
            format!("Bearer {}", self.token(bearer, password.as_deref()).await?)
        } else if of_scheme("basic").is_some() {
            match password {
                Some(password) => format!("Basic {password}"),
                None => return Err(self.denied(None).into()),
            }
        } else {
            return Err(Failure::Final(ImageError::new(
                ErrorKind::Denied,
                format!(
                    "the registry {} wants a login of a kind that is not known",
                    self.image.registry
                ),
            )));
        };
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            ImageError::new(
                ErrorKind::Denied,
                format!("the token of {} cannot be sent", self.image.registry),
            )
        })?;
        value.set_sensitive(true);
        *self
            .authorization
            .lock()
            .expect("no holder of this lock panics") = Some(value);
        Ok(())
    }

    /// Gets a token for this repository (distribution specification, "token authentication").
    async fn token(&self, bearer: &Challenge, password: Option<&str>) -> Result<String, Failure> {
        #[derive(Deserialize)]
        struct Answer {
            token: Option<String>,
            access_token: Option<String>,
        }
        let registry = &self.image.registry;
        let refused = |why: String| {
            Failure::Final(ImageError::new(
                ErrorKind::Denied,
                format!("cannot log in to {registry}: {why}"),
            ))
        };
        let realm = bearer.get("realm").unwrap_or_default();
        let mut url = Url::parse(realm)
            .map_err(|_| refused(format!("`{realm}` is no address of a token server")))?;
        let may_be_plain = self.base.starts_with("http://");
        if url.scheme() != "https" && !(url.scheme() == "http" && may_be_plain) {
            return Err(refused(format!(
                "its token server {realm} is not reached by HTTPS"
            )));
        }
        let scope = format!("repository:{}:pull", self.image.repository);
        let service = bearer.get("service");
        let what = format!(
            "the token server {} of {registry}",
            url.host_str().unwrap_or("")
        );
        let request = match self.found.as_ref().map(|found| &found.credentials) {
            Some(Credentials::IdentityToken(token)) => {
                let mut form = Url::parse("http://form/").expect("a constant address");
                form.query_pairs_mut()
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("refresh_token", token)
                    .append_pair("client_id", "longshore")
                    .append_pair("scope", &scope)
                    .extend_pairs(service.map(|service| ("service", service)));
                // A redirect of a POST with its body (307, 308) would hand the token on.
                client(&self.image, may_be_plain, Redirects::Refused)
                    .map_err(Failure::Final)?
                    .post(url)
                    .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                    .body(form.query().unwrap_or_default().to_owned())
            }
            _ => {
                url.query_pairs_mut()
                    .extend_pairs(service.map(|service| ("service", service)))
                    .append_pair("scope", &scope);
                let request = self.client.get(url);
                match password {
                    Some(password) => request.header(AUTHORIZATION, format!("Basic {password}")),
                    None => request,
                }
            }
        };
        let response = request
            .send()
            .await
            .map_err(|error| self.transport_failure(&what, error))?;
        if matches!(
            response.status(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            return Err(self.denied(None).into());
        }
        if !response.status().is_success() {
            return Err(self.refusal(response, &what).await);
        }
        let bytes = self.body(response, &what, MAX_TOKEN_BYTES as u64).await?;
        let answer: Answer = serde_json::from_slice(&bytes)
            .map_err(|_| refused(format!("the answer of {what} is not a token")))?;
        answer
            .token
            .filter(|token| !token.is_empty())
            .or(answer.access_token)
            .ok_or_else(|| refused(format!("the answer of {what} holds no token")))
    }

    /// Brings one layer and tells its end.
    async fn layer(
        &self,
        mut download: Download<'_>,
        progress: &dyn Progress,
    ) -> Result<(), ImageError> {
        let descriptor = download.descriptor;
        let what = format!("layer {} of {}", descriptor.digest.short(), self.image);
        let mut url = self.url("blobs", &descriptor.digest.to_string());
        let plain = self.base.starts_with("http://");
        let mut foreign = descriptor
            .urls
            .iter()
            .filter(|url| url.starts_with("https://") || plain && url.starts_with("http://"));
        let mut attempt = 0;
        while download.here_bytes < descriptor.size {
            let before = download.here_bytes;
            match self.part(&url, &mut download, &what, progress).await {
                Ok(()) if download.here_bytes < descriptor.size => {
                    return Err(truncated(&what, download.here_bytes, descriptor.size));
                }
                Ok(()) => {}
                Err(Failure::Final(error)) if error.kind == ErrorKind::NotFound => {
                    match foreign.next() {
                        // Base layers of some vendors are only at the address in the manifest.
                        Some(next) => url = next.clone(),
                        None => return Err(error),
                    }
                }
                Err(failure) => {
                    if download.here_bytes > before {
                        attempt = 0;
                    }
                    self.pause(failure, &mut attempt, progress).await?;
                }
            }
        }
        let digest = download.hasher.finish();
        if digest != descriptor.digest {
            (download.discard)();
            return Err(wrong_digest(&what, &descriptor.digest, &digest));
        }
        (download.keep)()?;
        download.growing.completed();
        Ok(())
    }

    /// Reads one answer into the file, from where it ends.
    async fn part(
        &self,
        url: &str,
        download: &mut Download<'_>,
        what: &str,
        progress: &dyn Progress,
    ) -> Result<(), Failure> {
        let from = download.here_bytes;
        let response = self.get(url, None, (from > 0).then_some(from), what).await;
        let mut response = match response {
            Ok(response) => response,
            Err(Failure::Final(error)) if error.kind == ErrorKind::Corrupt => {
                // The range lies beyond the end of what the registry has.
                return Err(truncated(what, from, download.descriptor.size).into());
            }
            Err(failure) => return Err(failure),
        };
        // A server without ranges starts over: what is here already is passed over.
        let mut to_skip = match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let start = response
                    .headers()
                    .get(CONTENT_RANGE)
                    .and_then(|value| value.to_str().ok())
                    .and_then(|value| {
                        value
                            .strip_prefix("bytes ")?
                            .split('-')
                            .next()?
                            .parse()
                            .ok()
                    });
                if start != Some(from) {
                    return Err(Failure::Final(ImageError::new(
                        ErrorKind::Corrupt,
                        format!("the registry sends another part of {what} than was asked for"),
                    )));
                }
                0
            }
            _ => from,
        };
        loop {
            let chunk = response
                .chunk()
                .await
                .map_err(|error| self.transport_failure(what, error))?;
            let Some(chunk) = chunk else {
                return Ok(());
            };
            let skipped = to_skip.min(chunk.len() as u64);
            to_skip -= skipped;
            let chunk = &chunk[usize::try_from(skipped).expect("not more than the chunk")..];
            if download.here_bytes + chunk.len() as u64 > download.descriptor.size {
                return Err(Failure::Final(ImageError::new(
                    ErrorKind::Corrupt,
                    format!(
                        "{what} is longer than the {} bytes that the manifest states",
                        download.descriptor.size
                    ),
                )));
            }
            download.file.write_all(chunk).map_err(|error| {
                let full = crate::error::errno_of(&error);
                let message = format!("cannot write {what} into the store");
                if matches!(
                    full,
                    Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT)
                ) {
                    ImageError::new(ErrorKind::NoSpace, message)
                        .hint("free some space (`longshore cache clean`), or put the cache elsewhere with LONGSHORE_CACHEDIR; what has arrived is kept")
                        .because(error)
                } else {
                    ImageError::new(ErrorKind::Io, message).because(error)
                }
            })?;
            download.hasher.update(chunk);
            download.here_bytes += chunk.len() as u64;
            download.growing.grew_to(download.here_bytes);
            progress.event(Event::Fetched {
                layer_index: download.layer_index,
                fetched_bytes: chunk.len() as u64,
            });
        }
    }

    fn transport_failure(&self, what: &str, error: reqwest::Error) -> Failure {
        let registry = &self.image.registry;
        let reached = self.reached.load(Ordering::Relaxed);
        let error = error.without_url();
        let message = if error.is_connect() {
            format!("cannot reach the registry {registry}")
        } else if error.is_redirect() {
            format!("the registry {registry} does not give {what}")
        } else if error.is_timeout() {
            format!("the registry {registry} does not answer")
        } else {
            format!("the connection to {registry} broke while fetching {what}")
        };
        let fatal = error.is_redirect() || error.is_builder() || (error.is_connect() && !reached);
        let cause = root_cause(&error);
        if cause.contains("certificate") {
            return Failure::Final(
                ImageError::new(
                    ErrorKind::Unreachable,
                    format!("the registry {registry} shows a certificate that is not trusted here"),
                )
                .hint("add the certificate of its authority to those of this machine, or name its file in SSL_CERT_FILE")
                .because(cause),
            );
        }
        let told = ImageError::new(ErrorKind::Unreachable, message);
        let told = if error.is_connect() && self.base.starts_with("https:") {
            told.hint("check the name and the network; a registry that speaks plain HTTP needs --no-https")
        } else if error.is_connect() {
            told.hint("check the name and port, and that the registry is running")
        } else {
            told
        };
        let told = told.because(cause);
        if fatal {
            Failure::Final(told)
        } else {
            Failure::Again(told, None)
        }
    }

    fn denied(&self, said: Option<&str>) -> ImageError {
        let image = &self.image;
        let said = said.map(|said| format!(": {said}")).unwrap_or_default();
        match &self.found {
            Some(found) => {
                let who = match &found.credentials {
                    Credentials::Password { user, .. } => format!("user `{user}`"),
                    Credentials::IdentityToken(_) => "the identity token".to_owned(),
                };
                ImageError::new(
                    ErrorKind::Denied,
                    format!("the registry {} does not let {who} read {image}{said}", image.registry),
                )
                .hint(format!(
                    "the credentials come from {}; check them, and that the image exists",
                    found.origin
                ))
            }
            None => ImageError::new(
                ErrorKind::Denied,
                format!("the registry {} wants a login to read {image}{said}", image.registry),
            )
            .hint(
                "set APPTAINER_DOCKER_USERNAME and APPTAINER_DOCKER_PASSWORD, or log in with \
                 `podman login` or `docker login`; a private image and one that does not exist look alike",
            ),
        }
    }

    /// Turns an answer that is no success into words.
    async fn refusal(&self, mut response: Response, what: &str) -> Failure {
        #[derive(Deserialize)]
        struct Envelope {
            errors: Vec<Refusal>,
        }
        #[derive(Deserialize)]
        struct Refusal {
            #[serde(default)]
            code: String,
            #[serde(default)]
            message: String,
        }
        let status = response.status();
        let after = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.trim().parse().ok())
            .map(Duration::from_secs);
        let mut text = Vec::new();
        while text.len() < MAX_REFUSAL_BYTES {
            match response.chunk().await {
                Ok(Some(chunk)) => text.extend_from_slice(&chunk),
                _ => break,
            }
        }
        let said = serde_json::from_slice::<Envelope>(&text)
            .ok()
            .and_then(|envelope| {
                let first = envelope.errors.into_iter().next()?;
                let text = if first.message.is_empty() {
                    first.code
                } else {
                    first.message
                };
                Some(
                    text.chars()
                        .filter(|letter| !letter.is_control())
                        .take(200)
                        .collect::<String>(),
                )
            });
        let registry = &self.image.registry;
        let detail = said
            .as_deref()
            .map(|said| format!(": {said}"))
            .unwrap_or_default();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Failure::Final(self.denied(said.as_deref()))
            }
            StatusCode::NOT_FOUND => Failure::Final(
                ImageError::new(
                    ErrorKind::NotFound,
                    format!("the registry {registry} has no such thing: {what} (404{detail})"),
                )
                .hint("check the name and the tag"),
            ),
            StatusCode::RANGE_NOT_SATISFIABLE => Failure::Final(ImageError::new(
                ErrorKind::Corrupt,
                format!("the registry {registry} has less of {what} than it promised"),
            )),
            StatusCode::TOO_MANY_REQUESTS => Failure::Again(
                ImageError::new(
                    ErrorKind::Unreachable,
                    format!("the registry {registry} limits how often we may ask (429{detail})"),
                ),
                after,
            ),
            _ if status.is_server_error() => Failure::Again(
                ImageError::new(
                    ErrorKind::Unreachable,
                    format!("the registry {registry} failed to give {what} ({status}{detail})"),
                ),
                after,
            ),
            _ => Failure::Final(ImageError::new(
                ErrorKind::Unreachable,
                format!("the registry {registry} refused {what} ({status}{detail})"),
            )),
        }
    }
}

fn wrong_digest(what: &str, promised: &Digest, found: &Digest) -> ImageError {
    ImageError::new(
        ErrorKind::Corrupt,
        format!("{what} is not what was promised: its digest is {found}, not {promised}"),
    )
    .hint("the registry or something on the way changed it; nothing of it was kept")
}

fn truncated(what: &str, there_bytes: u64, promised_bytes: u64) -> ImageError {
    ImageError::new(
        ErrorKind::Corrupt,
        format!("{what} is truncated: the registry has {there_bytes} of {promised_bytes} bytes"),
    )
    .hint("push the image again")
}

/// The innermost cause: the layers of the HTTP client only say "error sending request".
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
