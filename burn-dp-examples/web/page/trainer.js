// The workers that train: one at work, and one that takes over when the GPU is lost. Both load
// their program with the page, so that nothing is requested later.

export class Workers extends EventTarget {
  constructor(module) {
    super();
    this.module = module;
    this.spare = [0, 1].map(() => new Worker("worker.js", { type: "module" }));
    this.calls = new Map();
    this.next = 0;
  }

  /** Starts the next worker, and ends the one before. */
  async start() {
    this.worker?.terminate();
    for (const { reject } of this.calls.values()) reject(new Error("the training was interrupted"));
    this.calls.clear();
    this.worker = this.spare.shift();
    if (!this.worker) throw new Error("the training ended; reload the page to resume it");
    this.worker.onmessage = ({ data }) => this.receive(data);
    this.worker.onerror = (event) => this.report("failed", { message: event.message });
    await this.call("init", { module: this.module });
  }

  receive({ id, result, error, ...message }) {
    if (message.event) return this.report(message.event, message);
    const call = this.calls.get(id);
    this.calls.delete(id);
    if (error === undefined) call?.resolve(result);
    else call?.reject(new Error(error));
  }

  report(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  call(method, parameters) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject });
      this.worker.postMessage({ id, method, parameters });
    });
  }
}
