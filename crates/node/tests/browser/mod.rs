//! A browser without a window, driven through its WebDriver: Debian's Chromium.

use fantoccini::actions::{InputSource, KeyAction, KeyActions};
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything on a page may take.
const SOON: Duration = Duration::from_secs(30);

/// A browser; it ends when this value does.
pub(crate) struct Browser {
    client: Client,
    driver: Driver,
    /// Where the driver listens.
    port: u16,
}

/// The process of the WebDriver, with the browser in its process group.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Driver {
    /// Starts it, and returns the port that it chose.
    fn start() -> Result<(Self, u16), String> {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("chromedriver: {error}"))?;
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let driver = Self(child);
        let port = said.lines().map_while(Result::ok).find_map(|line| {
            let port = line.split("successfully on port ").nth(1)?;
            port.trim_end_matches('.').parse().ok()
        });
        Ok((driver, port.ok_or("chromedriver names no port")?))
    }
}

impl Browser {
    /// Starts a browser. `None` where it is not installed: that is said, and the test is skipped.
    ///
    /// # Panics
    /// When it is installed and does not start, or `LEASEHOLD_BROWSER` is `required`.
    pub(crate) async fn start() -> Option<Self> {
        match Driver::start() {
            Ok((driver, port)) => Some(Self {
                client: connect(port).await,
                driver,
                port,
            }),
            Err(reason) => {
                let required =
                    std::env::var_os("LEASEHOLD_BROWSER").is_some_and(|v| v == "required");
                assert!(!required, "{reason}");
                eprintln!("skipped: {reason}; `scripts/setup browser` installs it");
                None
            }
        }
    }

    /// Ends the browser in order.
    pub(crate) async fn close(self) {
        let _ = self.client.close().await;
        drop(self.driver);
    }

    pub(crate) async fn open(&self, address: &str) {
        self.client.goto(address).await.expect("opens");
    }

    /// Runs the body of a function in the page, and returns what it returns.
    pub(crate) async fn run(&self, script: &str) -> Value {
        self.client.execute(script, vec![]).await.expect(script)
    }

    /// Waits until an expression of the page is true.
    ///
    /// # Panics
    /// When it does not become true soon; with the text that the page has then.
    pub(crate) async fn until(&self, expression: &str) {
        let deadline = Instant::now() + SOON;
        while !self
            .run(&format!("return Boolean({expression})"))
            .await
            .as_bool()
            .expect("a bool")
        {
            if Instant::now() > deadline {
                panic!("not so: {expression}\n{}", self.text("body").await);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the text of the first element that a selector finds, as it is shown.
    pub(crate) async fn text(&self, selector: &str) -> String {
        let script = format!(
            "return document.querySelector({})?.innerText ?? ''",
            json!(selector)
        );
        self.run(&script).await.as_str().expect("text").to_owned()
    }

    /// Types text where the focus is.
    ///
    /// The keys are pressed, whatever has the focus then, as an operator presses them: an element
    /// that was asked for first may be gone when its keys arrive, and then the driver refuses them.
    pub(crate) async fn type_text(&self, text: &str) {
        let mut keys = KeyActions::new("keyboard".to_owned());
        for value in text.chars() {
            keys = keys
                .then(KeyAction::Down { value })
                .then(KeyAction::Up { value });
        }
        self.client.perform_actions(keys).await.expect("typed");
    }

    pub(crate) async fn press(&self, key: Key) {
        self.type_text(&char::from(key).to_string()).await;
    }

    /// Presses the tabulator until the element that a selector finds has the focus.
    pub(crate) async fn tab_to(&self, selector: &str) {
        let reached = format!("return document.activeElement.matches({})", json!(selector));
        for _ in 0..60 {
            if self.run(&reached).await == json!(true) {
                return;
            }
            self.press(Key::Tab).await;
        }
        panic!("the keyboard does not reach {selector}");
    }

    /// Sets the size at which the page is shown, smaller than a window can be, too.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false }),
        )
        .await;
    }

    /// Sets whether the operator prefers `light` or `dark`.
    pub(crate) async fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": [feature] }),
        )
        .await;
    }

    /// Gives the browser a command that WebDriver has no word for.
    async fn devtools(&self, command: &str, parameters: Value) {
        let session = self
            .client
            .session_id()
            .await
            .expect("asked")
            .expect("a session");
        let body = json!({ "cmd": command, "params": parameters }).to_string();
        let request = format!(
            "POST /session/{session}/goog/cdp/execute HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the driver");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("answered");
        assert_eq!(&status, b"HTTP/1.1 200", "{command}");
    }

    /// Writes a picture of the page below the directory that `LEASEHOLD_SCREENSHOTS` names, if it names one.
    pub(crate) async fn picture(&self, name: &str) {
        if let Some(directory) = std::env::var_os("LEASEHOLD_SCREENSHOTS") {
            let picture = self.client.screenshot().await.expect("a picture");
            let path = std::path::Path::new(&directory).join(name);
            std::fs::write(path, picture).expect("written");
        }
    }
}

async fn connect(port: u16) -> Client {
    // Root may not use the browser's own sandbox; the tests show it nothing but our page.
    let options = json!({
        "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1300,900"],
    });
    let capabilities = json!({ "browserName": "chrome", "goog:chromeOptions": options });
    ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities.as_object().expect("an object").clone())
        .connect(&format!("http://127.0.0.1:{port}"))
        .await
        .expect("a browser")
}
