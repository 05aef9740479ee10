// The storage of the browser: one run, its log of releases, and the lock of both.

const NAME = "burn-dp";
// What is reported as stored is on the disk, not in a cache.
const DURABLE = { durability: "strict" };

let opened;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("run");
      request.result.createObjectStore("log", { autoIncrement: true });
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/** Makes one transaction, which is complete when the promise is kept. */
async function transaction(mode, work) {
  const db = await database();
  return new Promise((resolve, reject) => {
    const made = db.transaction(["run", "log"], mode, DURABLE);
    let result;
    made.oncomplete = () => resolve(result);
    made.onabort = () => reject(made.error ?? new Error("the storage was closed"));
    work(made.objectStore("run"), made.objectStore("log"), (value) => (result = value));
  });
}

/** Appends a text to the log of releases. */
export function append(text) {
  return transaction("readwrite", (_run, log) => log.add(text));
}

/** Begins a run with these settings, in place of any other. */
export function begin(description) {
  return transaction("readwrite", (run, log) => {
    run.clear();
    log.clear();
    run.put(description, "description");
  });
}

/** Stores the state between two steps. */
export function save(state) {
  return transaction("readwrite", (run) => run.put(state, "state"));
}

/** Removes the run with its key and its log. */
export function remove() {
  return transaction("readwrite", (run, log) => {
    run.clear();
    log.clear();
  });
}

/** Returns the stored run, or nothing if no state was stored. */
export function load() {
  return transaction("readonly", (run, log, give) => {
    const found = {};
    run.get("description").onsuccess = (event) => (found.description = event.target.result);
    run.get("state").onsuccess = (event) => (found.state = event.target.result);
    log.getAll().onsuccess = (event) => {
      found.log = event.target.result.join("");
      give(found.description && found.state ? found : undefined);
    };
  });
}

/**
 * Keeps other pages from the run for as long as this worker lives. A worker that was ended a moment
 * ago may still hold the lock.
 */
export function lock() {
  return new Promise((resolve) => {
    const held = () => {
      resolve(true);
      return new Promise(() => {});
    };
    whileLocked(held).catch(() => resolve(false));
  });
}

function whileLocked(work) {
  return navigator.locks.request(`${NAME}-run`, { signal: AbortSignal.timeout(5000) }, work);
}

/** Removes a run whose state was never stored, unless another page is about to store it. */
export async function removeUnfinished() {
  const count = await transaction("readonly", (run, _log, give) => {
    run.count().onsuccess = (event) => give(event.target.result);
  });
  if (!count) return;
  const work = async () => (await load()) ?? (await remove());
  await whileLocked(work).catch(() => {});
}
