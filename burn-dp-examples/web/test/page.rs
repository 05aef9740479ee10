//! The page in Chromium, controlled through the Chrome DevTools protocol.
//!
//! Length: one short method for each action and observation of a user.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use headless_chrome::protocol::cdp::types::Event;
use headless_chrome::protocol::cdp::{Browser as BrowserDomain, Emulation, Network, Page as Pages};
use headless_chrome::{Browser, LaunchOptions, Tab};
use serde_json::Value;

use super::outcome::{Outcome, ensure};

/// Flags of a browser without a window: WebGPU may run in software, and the browser sends no
/// traffic itself.
const FLAGS: [&str; 5] = [
    "--enable-unsafe-webgpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
];

/// The settings that are chosen before training.
pub(super) struct Settings {
    pub(super) backend: &'static str,
    pub(super) count: usize,
    pub(super) batch_size: u32,
    pub(super) epochs: u32,
    pub(super) epsilon: f64,
}

pub(super) struct Page {
    address: String,
    log: PathBuf,
    /// Requests that the server had when each page was loaded, and when it was left.
    quiet: Mutex<Vec<(usize, usize)>>,
    /// Addresses that the browser requested.
    asked: Arc<Mutex<Vec<String>>>,
    tab: Arc<Tab>,
    /// The browser ends when it is dropped.
    _browser: Browser,
}

impl Page {
    pub(super) fn open(address: &str, log: &Path) -> Outcome<Self> {
        let chrome = std::env::var_os("CHROME").map(PathBuf::from);
        let debian = PathBuf::from("/usr/bin/chromium");
        let options = LaunchOptions {
            path: chrome.or_else(|| debian.exists().then_some(debian)),
            sandbox: false,
            enable_gpu: true,
            window_size: Some((900, 1200)),
            idle_browser_timeout: Duration::from_secs(3600),
            args: FLAGS.iter().map(OsStr::new).collect(),
            ..LaunchOptions::default()
        };
        let browser = Browser::new(options)?;
        let tab = browser.new_tab()?;
        tab.set_default_timeout(Duration::from_secs(120));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let listed = Arc::clone(&asked);
        tab.call_method(Network::Enable {
            max_total_buffer_size: None,
            max_resource_buffer_size: None,
            max_post_data_size: None,
            report_direct_socket_traffic: None,
            enable_durable_messages: None,
        })?;
        tab.add_event_listener(Arc::new(move |event: &Event| {
            if let Event::NetworkRequestWillBeSent(event) = event
                && let Ok(mut listed) = listed.lock()
            {
                listed.push(event.params.request.url.clone());
            }
        }))?;
        let (address, log) = (address.to_string(), log.to_path_buf());
        let page = Self { address, log, quiet: Mutex::default(), asked, tab, _browser: browser };
        page.tab.navigate_to(&page.address)?;
        page.loaded()?;
        Ok(page)
    }

    /// Waits until the page is loaded. No request may follow.
    fn loaded(&self) -> Outcome {
        self.wait("document.documentElement.dataset.ready === 'true'", Duration::from_secs(120))?;
        let requests = self.requests()?;
        if let Ok(mut quiet) = self.quiet.lock() {
            quiet.push((requests, requests));
        }
        Ok(())
    }

    fn requests(&self) -> Outcome<usize> {
        Ok(fs::read_to_string(&self.log)?.lines().count())
    }

    /// Records the number of requests to the server, before the page is left.
    fn leave(&self) -> Outcome {
        let requests = self.requests()?;
        if let Some((_, last)) = self.quiet.lock().ok().as_mut().and_then(|quiet| quiet.last_mut())
        {
            *last = requests;
        }
        Ok(())
    }

    /// Checks that nothing was requested while a page was used, and nothing from elsewhere at any
    /// time.
    pub(super) fn check_requests(&self) -> Outcome {
        let refused = self.value("fetch('index.html').then(() => false, () => true)")?;
        ensure(refused == Value::Bool(true), || "the page can make requests".into())?;
        self.leave()?;
        let quiet = self.quiet.lock().map(|quiet| quiet.clone()).unwrap_or_default();
        ensure(!quiet.is_empty() && quiet.iter().all(|(loaded, left)| loaded == left), || {
            format!("requests after loading: {quiet:?}; see {}", self.log.display())
        })?;
        let asked = self.asked.lock().map(|asked| asked.clone()).unwrap_or_default();
        let own = |url: &String| {
            url.starts_with(&self.address) || url.starts_with("blob:") || url.starts_with("data:")
        };
        ensure(asked.len() > 5 && asked.iter().all(own), || format!("asked for {asked:?}"))
    }

    /// Returns the value of an expression, which may be a promise.
    fn value(&self, expression: &str) -> Outcome<Value> {
        let text =
            format!("Promise.resolve({expression}).then((it) => JSON.stringify(it ?? null))");
        let found = self.tab.evaluate(&text, true)?;
        let text = found.value.as_ref().and_then(Value::as_str);
        let text = text.ok_or_else(|| format!("{expression} gave {found:?}"))?;
        Ok(serde_json::from_str(text)?)
    }

    /// Waits until an expression is true.
    fn wait(&self, expression: &str, limit: Duration) -> Outcome {
        let begin = Instant::now();
        loop {
            if self.value(expression).is_ok_and(|found| found == Value::Bool(true)) {
                return Ok(());
            }
            let error = self.text("error").unwrap_or_default();
            ensure(error.is_empty(), || format!("the page says: {error}"))?;
            ensure(begin.elapsed() < limit, || {
                let message = self.text("message").unwrap_or_default();
                format!("{expression} is not true after {limit:?}; the page says: {message}")
            })?;
            sleep(Duration::from_millis(100));
        }
    }

    /// Calls a method of the worker, with parameters as JSON.
    pub(super) fn call(&self, method: &str, parameters: &Value) -> Outcome<Value> {
        self.value(&format!("burnDpWorkers().call('{method}', {parameters})"))
    }

    pub(super) fn text(&self, id: &str) -> Outcome<String> {
        let text = self.value(&format!("document.getElementById('{id}').textContent"))?;
        Ok(text.as_str().unwrap_or_default().into())
    }

    /// Returns the first number in the text of an element.
    pub(super) fn number(&self, id: &str) -> Outcome<f64> {
        let text = self.text(id)?;
        let number = text.split(' ').next().unwrap_or_default();
        number.parse().map_err(|_| format!("{id} is \"{text}\"").into())
    }

    /// Returns the ε of the page, with all digits.
    pub(super) fn spent(&self) -> Outcome<f64> {
        let value = self.value("document.getElementById('epsilon-text').dataset.value")?;
        Ok(value.as_str().unwrap_or_default().parse()?)
    }

    pub(super) fn click(&self, id: &str) -> Outcome {
        self.wait(&format!("!document.getElementById('{id}').disabled"), Duration::from_secs(60))?;
        self.tab.find_element(&format!("#{id}"))?.click()?;
        Ok(())
    }

    pub(super) fn wait_for_text(&self, id: &str, text: &str, limit: Duration) -> Outcome {
        self.wait(&format!("document.getElementById('{id}').textContent.includes('{text}')"), limit)
    }

    /// Waits until this step is complete.
    pub(super) fn wait_for_step(&self, step: u64) -> Outcome {
        let made = format!("document.getElementById('steps-progress').value >= {step}");
        self.wait(&made, Duration::from_secs(300))
    }

    /// Waits until this step is complete, and further ones that are not in the stored state yet.
    /// Returns the last of them.
    pub(super) fn wait_for_unsaved_step(&self, step: u64) -> Outcome<u64> {
        let value = "document.getElementById('steps-progress').value";
        let made = format!("{value} >= {step} && {value} % 5 === 2");
        self.wait(&made, Duration::from_secs(300))?;
        let made = self.value(value)?;
        made.as_u64().ok_or_else(|| format!("the step is {made}").into())
    }

    pub(super) fn wait_until_finished(&self, limit: Duration) -> Outcome {
        self.wait("document.documentElement.dataset.state === 'finished'", limit)
    }

    pub(super) fn check_labels(&self) -> Outcome {
        let unlabeled = self.value(
            "[...document.querySelectorAll('input, select, progress, meter, canvas, svg')]
                .filter((it) => !it.labels?.length && !it.getAttribute('aria-label'))
                .map((it) => it.outerHTML)",
        )?;
        ensure(unlabeled == Value::Array(Vec::new()), || format!("no label: {unlabeled}"))
    }

    /// Fills in one setting.
    pub(super) fn set(&self, id: &str, value: &str) -> Outcome {
        let script = format!(
            "(() => {{
                const it = document.getElementById('{id}');
                it.value = '{value}';
                it.dispatchEvent(new Event('input', {{ bubbles: true }}));
                return it.value;
            }})()"
        );
        let found = self.value(&script)?;
        ensure(found.as_str() == Some(value), || format!("{id} is {found}, not {value}"))
    }

    /// Fills in the settings and waits for the plan.
    pub(super) fn choose(&self, settings: &Settings) -> Outcome {
        for (id, value) in [
            ("backend", settings.backend.to_string()),
            ("count", settings.count.to_string()),
            ("batch-size", settings.batch_size.to_string()),
            ("epochs", settings.epochs.to_string()),
            ("epsilon", settings.epsilon.to_string()),
        ] {
            self.set(id, &value)?;
        }
        self.wait_for_text("plan-n", &settings.count.to_string(), Duration::from_secs(60))?;
        let ready = "document.getElementById('plan').ariaBusy === 'false'
            && !document.getElementById('start').disabled";
        self.wait(ready, Duration::from_secs(60))
    }

    /// Chooses files to train on, and waits until they are read.
    pub(super) fn choose_files(&self, files: &[PathBuf]) -> Outcome {
        self.pick("files")?;
        let paths: Vec<String> =
            files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        self.tab.find_element("#train-files")?.set_input_files(&paths)?;
        sleep(Duration::from_millis(500));
        self.wait("document.getElementById('plan').ariaBusy === 'false'", Duration::from_secs(60))
    }

    /// Trains on synthetic digits, or on files.
    pub(super) fn pick(&self, source: &str) -> Outcome {
        let picked = format!("document.querySelector('input[value={source}]').click()");
        self.value(&picked).map(drop)
    }

    pub(super) fn start(&self) -> Outcome {
        self.value("delete document.documentElement.dataset.state")?;
        self.click("start")
    }

    /// Reloads the page, in whatever state it is.
    pub(super) fn reload(&self) -> Outcome {
        self.leave()?;
        self.value("delete document.documentElement.dataset.ready")?;
        self.tab.reload(true, None)?;
        self.loaded()
    }

    /// Resumes the stored run. Returns ε of its ledger, before a further step.
    pub(super) fn resume(&self) -> Outcome<f64> {
        self.wait("!document.getElementById('stored').hidden", Duration::from_secs(10))?;
        self.click("resume")?;
        let shown = "document.getElementById('epsilon-text').dataset.value !== undefined";
        self.wait(shown, Duration::from_secs(60))?;
        self.spent()
    }

    /// Changes a weight of the stored model, so that the next step differs from the step that was
    /// released.
    pub(super) fn change_stored_model(&self) -> Outcome {
        let changed = self.value(
            "new Promise((resolve, reject) => {
                const request = indexedDB.open('burn-dp');
                request.onerror = reject;
                request.onsuccess = () => {
                    const made = request.result.transaction('run', 'readwrite');
                    const run = made.objectStore('run');
                    run.get('state').onsuccess = ({ target: { result } }) => {
                        result.model[result.model.length - 2] ^= 0x10;
                        run.put(result, 'state');
                    };
                    made.oncomplete = () => (request.result.close(), resolve(true));
                    made.onabort = reject;
                };
            })",
        )?;
        ensure(changed == Value::Bool(true), || format!("{changed}"))
    }

    /// Stores a description without a state, as of a page that was closed while it began a run, and
    /// checks that the next page removes it.
    pub(super) fn check_unfinished_run_is_removed(&self) -> Outcome {
        let descriptions = |work: &str| {
            self.value(&format!(
                "new Promise((resolve, reject) => {{
                    const request = indexedDB.open('burn-dp');
                    request.onerror = reject;
                    request.onsuccess = () => {{
                        const made = request.result.transaction('run', 'readwrite');
                        const run = made.objectStore('run');
                        {work}
                        const count = run.count();
                        made.oncomplete = () => (request.result.close(), resolve(count.result));
                        made.onabort = reject;
                    }};
                }})"
            ))
        };
        let stored = descriptions("run.put({ count: 1 }, 'description');")?;
        ensure(stored == Value::from(1), || format!("{stored} entries are stored"))?;
        self.reload()?;
        let left = descriptions("")?;
        ensure(left == Value::from(0), || format!("{left} entries are left"))
    }

    /// Draws a vertical line by the keyboard.
    pub(super) fn draw_a_one(&self) -> Outcome {
        self.click("clear")?;
        self.value("document.getElementById('paper').focus()")?;
        let press = |key: &str, times: usize| -> Outcome {
            for _ in 0..times {
                self.tab.press_key(key)?;
            }
            Ok(())
        };
        press("ArrowUp", 10)?;
        press(" ", 1)?;
        press("ArrowDown", 20)?;
        press(" ", 1)
    }

    pub(super) fn delete(&self) -> Outcome {
        self.click("delete-run")?;
        self.click("confirm-delete")?;
        self.wait("!document.getElementById('setup').hidden", Duration::from_secs(60))?;
        let stored = self.call("stored", &Value::Null)?;
        ensure(stored.is_null(), || format!("still stored: {stored}"))
    }

    /// Ends the process of the GPU.
    pub(super) fn crash_gpu(&self) -> Outcome {
        // The answer may be lost with the process.
        let _ = self.tab.call_method(BrowserDomain::CrashGpuProcess(None));
        Ok(())
    }

    /// Sets size and colors. Returns by how many pixels the page is wider than the window.
    pub(super) fn resize(&self, width: u32, height: u32, dark: bool) -> Outcome<f64> {
        self.tab.call_method(Emulation::SetDeviceMetricsOverride {
            width,
            height,
            device_scale_factor: 1.0,
            mobile: false,
            scale: None,
            screen_width: None,
            screen_height: None,
            position_x: None,
            position_y: None,
            dont_set_visible_size: None,
            screen_orientation: None,
            viewport: None,
            display_feature: None,
            device_posture: None,
        })?;
        self.tab.call_method(Emulation::SetEmulatedMedia {
            media: None,
            features: Some(vec![Emulation::MediaFeature {
                name: "prefers-color-scheme".into(),
                value: if dark { "dark" } else { "light" }.into(),
            }]),
        })?;
        sleep(Duration::from_millis(300));
        let overflow = self.value("document.documentElement.scrollWidth - innerWidth")?;
        Ok(overflow.as_f64().unwrap_or(f64::INFINITY))
    }

    /// Returns the whole page as PNG.
    pub(super) fn picture(&self, width: u32, dark: bool) -> Outcome<Vec<u8>> {
        let height = self.value("document.documentElement.scrollHeight")?;
        let height = height.as_u64().and_then(|height| u32::try_from(height).ok());
        self.resize(width, height.unwrap_or(1200), dark)?;
        self.value("scrollTo(0, 0)")?;
        sleep(Duration::from_millis(300));
        let format = Pages::CaptureScreenshotFormatOption::Png;
        Ok(self.tab.capture_screenshot(format, None, None, true)?)
    }
}
