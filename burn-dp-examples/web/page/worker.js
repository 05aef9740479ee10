// The training: a Web Worker, so that the page stays responsive. Its own policy allows no request.

import init, {
  LostSteps,
  Trainer,
  backends,
  cost,
  drawnImages,
  drawnTestImages,
  idxImages,
  labeledImages,
  plan,
  seededStep,
} from "./pkg/burn_dp_web.js";
import * as store from "./store.js";

/** Steps between two stored states. */
const SAVE_EVERY = 5;
/** Synthetic digits to test on. */
const TEST_DIGITS = 2000;
/** Milliseconds between two evaluations, and between two computations of ε. */
const EVALUATE_EVERY = 3000;
const EPSILON_EVERY = 300;

let trainer, described, train, test;
let running = false;
let locked = false;

self.burnDp = {
  appendRelease: (text) => store.append(text),
  reportPanic: (message) => postMessage({ event: "panic", message }),
};

// The GPU can be lost at any time. The page continues on the processor then.
if (self.GPUAdapter) {
  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...options) {
    const device = await request.apply(this, options);
    device.lost.then((info) => {
      running = false;
      postMessage({ event: "gpu-lost", message: info.message || info.reason });
    });
    return device;
  };
}

async function images({ kind, count, images, labels, pixels }, isTest) {
  if (kind === "drawn") return isTest ? drawnTestImages(count) : drawnImages(count);
  if (kind === "idx") return idxImages(images, labels);
  return labeledImages(pixels, labels);
}

/** Returns what is stored of images, so that a reload needs no file. */
function kept(source, found) {
  if (source.kind === "drawn") return source;
  return { kind: "pixels", pixels: found.pixels(), labels: found.labels() };
}

async function exclusive() {
  locked ||= await store.lock();
  if (!locked) throw new Error("another tab uses the stored run; close it, and try again");
}

async function save() {
  const { model, record } = await trainer.save();
  await store.save({ model, record, backend: described.backend });
}

const methods = {
  async init({ module }) {
    await init({ module_or_path: module });
  },

  backends: () => backends(),

  async stored() {
    const found = await store.load();
    if (!found) {
      await store.removeUnfinished();
      return undefined;
    }
    const { settings, count, source } = found.description;
    const { backend } = found.state;
    return { settings: JSON.parse(settings), count, source: source.kind, backend };
  },

  async remove() {
    await exclusive();
    running = false;
    trainer = undefined;
    await store.remove();
  },

  plan({ settings, count }) {
    return JSON.parse(plan(settings, count));
  },

  async data({ source, testSource }) {
    train = await images(source, false);
    test = await images(testSource ?? { kind: "drawn", count: TEST_DIGITS }, true);
    const keptTest = testSource && kept(testSource, test);
    described = { source: kept(source, train), testSource: keptTest, count: train.count };
    return train.count;
  },

  async begin({ backend, settings }) {
    await exclusive();
    if (await store.load()) {
      throw new Error("another tab stored a run: reload this page to resume it or to delete it");
    }
    described = { ...described, backend, settings };
    try {
      await store.begin(described);
      trainer = await Trainer.begin(backend, settings, train, test);
      await save();
    } catch (error) {
      // Nothing was released. The images of the user must not stay without a run.
      trainer = undefined;
      await store.remove();
      throw error;
    }
    return progress();
  },

  async resume({ backend }) {
    await exclusive();
    const found = await store.load();
    if (!found) throw new Error("no run is stored");
    const { source, testSource, settings } = found.description;
    await methods.data({ source, testSource });
    described = { ...found.description, backend };
    // Another device rounds differently, so that its repetition of a step would be refused.
    const isOther = found.state.backend !== backend;
    await load(found, isOther ? LostSteps.Skip : LostSteps.Repeat);
    return { ...(await progress()), settings: JSON.parse(settings), count: train.count };
  },

  async train() {
    if (running) return;
    running = true;
    loop().catch((error) => {
      running = false;
      postMessage({ event: "failed", message: error.message ?? String(error) });
    });
  },

  stop() {
    running = false;
  },

  async evaluate() {
    return { ...JSON.parse(await trainer.evaluate()), epsilon: trainer.epsilon() };
  },

  classify: ({ pixels }) => trainer.classify(pixels),

  example({ index }) {
    const size = 28 * 28;
    const at = index % test.count;
    return { pixels: test.pixels().slice(at * size, (at + 1) * size), label: test.labels()[at] };
  },

  statement: () => trainer.statement(),

  async model() {
    return (await trainer.save()).model;
  },

  seededStep: () => seededStep(),

  async cost({ backend, steps }) {
    return JSON.parse(await cost(backend, steps));
  },
};

async function progress() {
  return { ...JSON.parse(trainer.progress()), backend: described.backend };
}

async function load({ state, log, description }, lostSteps) {
  const { backend } = described;
  trainer = await Trainer.resume(
    backend, description.settings, train, test, state.model, state.record, log, lostSteps,
  );
  const found = JSON.parse(trainer.progress());
  if (lostSteps === LostSteps.Skip) {
    postMessage({ event: "skipped", step: found.step });
    await save();
  } else if (found.released > found.step) {
    postMessage({ event: "repeats", steps: found.released - found.step });
  }
}

async function loop() {
  let evaluated = -Infinity;
  let spent = -Infinity;
  let state = JSON.parse(trainer.progress());
  while (running && !state.finished) {
    const start = performance.now();
    state = await exclusively(async () => JSON.parse(await trainer.step()));
    if (state.repetitionDiffers) {
      // What was released stays paid; the run continues after it.
      await load(await store.load(), LostSteps.Skip);
      continue;
    }
    const end = performance.now();
    const shown = { event: "step", ...state, milliseconds: end - start };
    if (state.step % SAVE_EVERY === 0 || state.finished) await exclusively(save);
    if (end - spent > EPSILON_EVERY || state.finished) {
      shown.epsilon = trainer.epsilon();
      spent = end;
    }
    if (end - evaluated > EVALUATE_EVERY || state.finished) {
      Object.assign(shown, await exclusively(methods.evaluate));
      evaluated = end;
    }
    postMessage(shown);
    // Messages of the page come between two steps.
    await new Promise((resolve) => setTimeout(resolve));
  }
  if (!state.finished) await exclusively(save);
  running = false;
  postMessage({ event: "stopped", finished: state.finished });
}

// A step borrows the trainer, so calls come one after another.
let queue = Promise.resolve();
function exclusively(work) {
  const made = queue.then(work);
  queue = made.catch(() => {});
  return made;
}

onmessage = async ({ data: { id, method, parameters } }) => {
  const direct = method === "stop" || method === "train";
  const call = async () => methods[method](parameters ?? {});
  try {
    postMessage({ id, result: await (direct ? call() : exclusively(call)) });
  } catch (error) {
    postMessage({ id, error: error?.message ?? String(error) });
  }
};
