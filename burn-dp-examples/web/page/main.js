// The page: what is chosen, shown and downloaded.

import { sourceOf } from "./files.js";
import { Paper } from "./paper.js";
import { Workers } from "./trainer.js";

const $ = (id) => document.getElementById(id);
const DEVICES = { flex: "the processor (Flex)", webgpu: "the GPU (WebGPU)" };

const history = { epsilon: [], accuracy: [] };
let workers;
let budget = 1;
let run;
let planned = 0;
let isRecovering = false;

const say = (text) => ($("message").textContent = text);
const fail = (error) => ($("error").textContent = error?.message ?? String(error ?? ""));
// Never below the bound.
const upwards = (epsilon) => (Math.ceil(epsilon * 1e4) / 1e4).toFixed(4);
const show = (id, visible = true) => ($(id).hidden = !visible);

/** Calls a function whose error is shown. */
const guarded = (work) => async (event) => {
  fail("");
  try {
    await work(event);
  } catch (error) {
    fail(error);
  }
};

// ------------------------------------------------------------------------------------ loading

async function downloaded(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the program cannot be loaded: ${response.status}`);
  const length = Number(response.headers.get("content-length"));
  const bytes = [];
  let received = 0;
  const reader = response.body.getReader();
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    bytes.push(part.value);
    received += part.value.length;
    if (length) $("load-progress").value = received / length;
  }
  $("load-label").textContent = "Compiling the program";
  $("load-progress").removeAttribute("value");
  return WebAssembly.compile(await new Blob(bytes).arrayBuffer());
}

/** From here on this document makes no request. */
function closeNetwork() {
  const policy = document.createElement("meta");
  policy.httpEquiv = "Content-Security-Policy";
  policy.content = "connect-src 'none'; worker-src 'none'; img-src 'none'; font-src 'none'";
  document.head.append(policy);
}

async function hasGpu() {
  try {
    return Boolean(await navigator.gpu?.requestAdapter());
  } catch {
    return false;
  }
}

async function load() {
  const module = await downloaded("pkg/burn_dp_web_bg.wasm");
  workers = new Workers(module);
  await workers.start();
  listen();
  const backends = await workers.call("backends");
  if (backends.includes("webgpu") && (await hasGpu())) {
    $("backend").prepend(new Option(DEVICES.webgpu, "webgpu", true, true));
  }
  const stored = await workers.call("stored");
  closeNetwork();
  show("loading", false);
  if (stored) offer(stored);
  else await setUp();
  document.documentElement.dataset.ready = "true";
}

// ------------------------------------------------------------------------------------- set-up

function offer({ settings, count, backend }) {
  // Only the device of the lost steps repeats them with the same rounding.
  const isThere = [...$("backend").options].some((it) => it.value === backend);
  if (isThere) $("backend").value = backend;
  const device = DEVICES[$("backend").value];
  const was = `It was on ${DEVICES[backend]}, which is missing: steps that were lost stay paid.`;
  const text = `It trains on ${count} images with a budget of ε = ${settings.epsilon}`;
  $("stored-text").textContent = `${text}, on ${device}. ${isThere ? "" : was}`;
  show("stored");
  $("resume").focus();
}

async function setUp() {
  show("setup");
  await planning();
}

function settings() {
  const number = (id) => Number($(id).value);
  return JSON.stringify({
    epsilon: number("epsilon"),
    delta: number("delta"),
    batchSize: number("batch-size"),
    epochs: number("epochs"),
    maxGradNorm: number("max-grad-norm"),
    learningRate: number("learning-rate"),
  });
}

const fromFiles = () => document.querySelector("input[name=source]:checked").value === "files";

/** What the worker has read, so that files are read once. */
let given = { key: "" };

/** Gives the worker the images, and returns their number. */
async function giveImages() {
  const [files, publicFiles] = [[...$("train-files").files], [...$("test-files").files]];
  const name = ({ name, size, lastModified }) => [name, size, lastModified];
  const key = JSON.stringify(
    fromFiles() ? [files.map(name), publicFiles.map(name)] : Number($("count").value),
  );
  if (given.key === key) return given.count;
  const progress = (part) => say(`Reading the images: ${Math.round(100 * part)} %`);
  const sources = fromFiles()
    ? {
        source: await sourceOf(files, progress),
        testSource: publicFiles.length ? await sourceOf(publicFiles, progress) : undefined,
      }
    : { source: { kind: "drawn", count: Number($("count").value) } };
  given = { key, count: await workers.call("data", sources) };
  return given.count;
}

/** Shows what the budget buys. The number of images of files is known when they are read. */
async function planning() {
  const asked = ++planned;
  $("plan").setAttribute("aria-busy", "true");
  $("start").disabled = true;
  try {
    let count = Number($("count").value);
    if (fromFiles()) {
      if (!$("train-files").files.length) return;
      say("Reading the images…");
      count = await giveImages();
      say(`${count} images were read; they stay in this browser, until the run is deleted.`);
    }
    const plan = await workers.call("plan", { settings: settings(), count });
    if (asked !== planned) return;
    fail("");
    $("plan-n").textContent = plan.datasetSize;
    $("plan-delta").textContent = $("delta").value;
    $("plan-sigma").textContent = plan.noiseMultiplier.toFixed(4);
    $("plan-steps").textContent = plan.steps;
    $("start").disabled = false;
  } catch (error) {
    if (asked === planned) fail(error);
  } finally {
    if (asked === planned) $("plan").setAttribute("aria-busy", "false");
  }
}

const start = guarded(async (event) => {
  event.preventDefault();
  $("start").disabled = true;
  const chosen = settings();
  say("Preparing the images…");
  await giveImages();
  say("Preparing the training…");
  const begun = await workers.call("begin", { backend: $("backend").value, settings: chosen });
  show("setup", false);
  await begin({ ...begun, settings: JSON.parse(chosen) });
  say("The training has begun.");
  $("training-title").setAttribute("tabindex", "-1");
  $("training-title").focus();
});

const resume = guarded(async () => {
  $("resume").disabled = $("delete").disabled = true;
  say("Resuming the run…");
  try {
    const resumed = await workers.call("resume", { backend: $("backend").value });
    show("stored", false);
    await begin(resumed);
  } finally {
    $("resume").disabled = $("delete").disabled = false;
  }
});

const remove = guarded(async () => {
  $("confirm").close();
  await workers.call("remove");
  for (const id of ["stored", "training", "try", "results"]) show(id, false);
  history.epsilon.length = history.accuracy.length = 0;
  say("The run and its key were deleted.");
  await setUp();
});

// ----------------------------------------------------------------------------------- training

async function begin(state) {
  run = state;
  budget = state.settings.epsilon;
  $("budget").max = budget;
  $("device").textContent = DEVICES[state.backend];
  show("training");
  await shown();
  await go();
}

async function go() {
  show("stop");
  show("go-on", false);
  show("delete-run", false);
  await workers.call("train");
}

/** Shows ε and accuracy of a run that is not training. */
async function shown() {
  step(run);
  step({ ...run, ...(await workers.call("evaluate")) });
  show("try");
  show("results");
}

function step(state) {
  run = { ...run, ...state };
  const { step, steps } = run;
  $("steps-progress").max = steps;
  $("steps-progress").value = step;
  $("steps-text").textContent = `${step} of ${steps}`;
  if (state.milliseconds) $("time").textContent = `${Math.round(state.milliseconds)} ms`;
  if (state.epsilon !== undefined) {
    $("budget").value = state.epsilon;
    $("epsilon-text").textContent = `${upwards(state.epsilon)} of ${budget}`;
    $("epsilon-text").dataset.value = state.epsilon;
    draw("epsilon", step / steps, state.epsilon / budget);
  }
  if (state.accuracy !== undefined) {
    $("accuracy").textContent = `${(100 * state.accuracy).toFixed(1)} %`;
    $("loss").textContent = state.loss.toFixed(3);
    draw("accuracy", step / steps, state.accuracy);
  }
}

function draw(name, along, share) {
  history[name].push(`${8 + 304 * along},${112 - 100 * share}`);
  $(`${name}-line`).setAttribute("points", history[name].join(" "));
}

const stopped = guarded(async ({ detail: { finished } }) => {
  show("stop", false);
  show("go-on", !finished);
  show("delete-run");
  $("statement").textContent = await workers.call("statement");
  const accuracy = $("accuracy").textContent;
  const how = finished ? "The training is complete" : "The training is stopped, and stored";
  say(`${how}: accuracy ${accuracy}, ε ${$("epsilon-text").textContent}.`);
  document.documentElement.dataset.state = finished ? "finished" : "stopped";
});

const gpuLost = guarded(async ({ detail: { message } }) => {
  say(`The GPU was lost (${message}). The training continues on the processor.`);
  isRecovering = true;
  try {
    await workers.start();
  } finally {
    isRecovering = false;
  }
  const resumed = await workers.call("resume", { backend: "flex" });
  await begin(resumed);
  const text = $("message").textContent;
  const paid = text.includes("stay paid") ? text : "";
  say(`The GPU was lost; the training continues on the processor. ${paid}`);
});

function listen() {
  workers.addEventListener("step", ({ detail }) => step(detail));
  workers.addEventListener("stopped", stopped);
  workers.addEventListener("gpu-lost", gpuLost);
  workers.addEventListener("repeats", ({ detail }) =>
    say(`${detail.steps} steps that were released before are repeated; they cost nothing more.`),
  );
  workers.addEventListener("skipped", ({ detail }) =>
    say(`The run continues with step ${detail.step}; the steps that were lost stay paid.`),
  );
  for (const name of ["failed", "panic"]) {
    // A program whose GPU is lost may fail before the loss is reported.
    workers.addEventListener(name, ({ detail }) => {
      const { worker } = workers;
      setTimeout(() => worker === workers.worker && !isRecovering && fail(detail.message), 2000);
    });
  }
}

// ------------------------------------------------------------------------------------- try it

const paper = new Paper($("paper"), guarded(classify));

async function classify() {
  const pixels = paper.pixels();
  if (pixels) await scored(pixels);
}

async function scored(pixels, label) {
  const scores = [...(await workers.call("classify", { pixels }))];
  const best = scores.indexOf(Math.max(...scores));
  const truth = label === undefined ? "" : `; it was drawn as a ${label}`;
  const percent = (100 * scores[best]).toFixed(0);
  $("guess").textContent = `This is a ${best}, with probability ${percent} %${truth}.`;
  const rows = scores.map((score) => {
    const row = document.createElement("li");
    const bar = document.createElement("progress");
    bar.value = score;
    row.append(bar, ` ${(100 * score).toFixed(1)} %`);
    return row;
  });
  $("scores").replaceChildren(...rows);
}

function cleared() {
  paper.clear();
  $("guess").textContent = "";
  $("scores").replaceChildren();
}

let example = 0;
const another = guarded(async () => {
  example += 7;
  const { pixels, label } = await workers.call("example", { index: example });
  paper.show(pixels);
  await scored(pixels, label);
});

// ---------------------------------------------------------------------------------- downloads

function download(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const downloadModel = guarded(async () => {
  download("digits.bpk", await workers.call("model"), "application/octet-stream");
});

const downloadStatement = guarded(async () => {
  const text = await workers.call("statement");
  $("statement").textContent = text;
  download("privacy.txt", text, "text/plain");
});

// -------------------------------------------------------------------------------------- wiring

let timer;
$("setup").addEventListener("input", () => {
  fail("");
  $("plan").setAttribute("aria-busy", "true");
  $("start").disabled = true;
  show("drawn-options", !fromFiles());
  show("file-options", fromFiles());
  clearTimeout(timer);
  timer = setTimeout(planning, 300);
});
$("setup").addEventListener("submit", start);
$("resume").addEventListener("click", resume);
for (const id of ["delete", "delete-run"]) {
  $(id).addEventListener("click", () => $("confirm").showModal());
}
$("keep").addEventListener("click", () => $("confirm").close());
$("confirm-delete").addEventListener("click", remove);
$("stop").addEventListener("click", guarded(() => workers.call("stop")));
$("go-on").addEventListener("click", guarded(go));
$("clear").addEventListener("click", cleared);
$("example").addEventListener("click", another);
$("download-model").addEventListener("click", downloadModel);
$("download-statement").addEventListener("click", downloadStatement);

// For the test of this page.
window.burnDpWorkers = () => workers;

load().catch(fail);
