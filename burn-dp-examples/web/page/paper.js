// The paper on which a digit is drawn, by pointer or by keyboard.

const SIDE = 28;
const STEP = 8;

export class Paper {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { willReadFrequently: true });
    this.changed = changed;
    this.pen = [canvas.width / 2, canvas.height / 2];
    this.isDown = false;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.isDown = true;
      this.pen = this.place(event);
      this.line(this.pen);
    });
    canvas.addEventListener("pointermove", (event) => this.isDown && this.line(this.place(event)));
    for (const end of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(end, () => this.lift());
    }
    canvas.addEventListener("keydown", (event) => this.key(event));
    this.clear();
  }

  place({ clientX, clientY }) {
    const box = this.canvas.getBoundingClientRect();
    const scale = this.canvas.width / box.width;
    return [(clientX - box.left) * scale, (clientY - box.top) * scale];
  }

  key(event) {
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const move = moves[event.key];
    if (event.key === " ") {
      event.preventDefault();
      if (this.isDown) this.lift();
      else {
        this.isDown = true;
        this.line(this.pen);
      }
    } else if (move) {
      event.preventDefault();
      const limit = (value) => Math.min(Math.max(value, 0), this.canvas.width);
      const next = [limit(this.pen[0] + STEP * move[0]), limit(this.pen[1] + STEP * move[1])];
      if (this.isDown) this.line(next);
      else this.pen = next;
    }
  }

  lift() {
    if (!this.isDown) return;
    this.isDown = false;
    this.changed();
  }

  line(to) {
    const { context, pen } = this;
    context.strokeStyle = "#fff";
    context.lineWidth = 20;
    context.lineCap = "round";
    context.lineJoin = "round";
    context.beginPath();
    context.moveTo(...pen);
    context.lineTo(...to);
    context.stroke();
    this.pen = to;
  }

  clear() {
    this.context.fillStyle = "#000";
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
  }

  /** Shows an image of 28 × 28 pixels. */
  show(pixels) {
    const small = new OffscreenCanvas(SIDE, SIDE);
    const image = new ImageData(SIDE, SIDE);
    pixels.forEach((value, i) => image.data.set([value, value, value, 255], 4 * i));
    small.getContext("2d").putImageData(image, 0, 0);
    this.context.imageSmoothingEnabled = false;
    this.context.drawImage(small, 0, 0, this.canvas.width, this.canvas.height);
  }

  /** Returns the drawing as 28 × 28 pixels, moved to the middle; nothing if the paper is empty. */
  pixels() {
    const { width, height } = this.canvas;
    const { data } = this.context.getImageData(0, 0, width, height);
    let [left, top, right, bottom] = [width, height, -1, -1];
    for (let y = 0; y < height; y++) {
      for (let x = 0; x < width; x++) {
        if (data[4 * (y * width + x)] < 64) continue;
        [left, right] = [Math.min(left, x), Math.max(right, x)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
      }
    }
    if (right < 0) return undefined;
    const [wide, high] = [right - left + 1, bottom - top + 1];
    const scale = 20 / Math.max(wide, high);
    const small = new OffscreenCanvas(SIDE, SIDE).getContext("2d");
    small.fillRect(0, 0, SIDE, SIDE);
    const [w, h] = [wide * scale, high * scale];
    small.drawImage(this.canvas, left, top, wide, high, (SIDE - w) / 2, (SIDE - h) / 2, w, h);
    const found = small.getImageData(0, 0, SIDE, SIDE).data;
    return Uint8Array.from({ length: SIDE * SIDE }, (_, i) => found[4 * i]);
  }
}
