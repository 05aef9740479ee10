// The user's files as images. They are read here and go nowhere else.

const SIDE = 28;

/** Returns the source of images in the chosen files, for the worker. */
export async function sourceOf(files, progress) {
  const all = [...files].sort((a, b) => a.name.localeCompare(b.name));
  if (all.length === 0) throw new Error("choose files first");
  const isPng = (file) => file.type === "image/png" || file.name.toLowerCase().endsWith(".png");
  if (all.every(isPng)) return pngImages(all, progress);
  if (all.length !== 2) {
    throw new Error("choose two IDX files, one with images and one with labels, or PNG images");
  }
  const bytes = async (file) => new Uint8Array(await file.arrayBuffer());
  const contents = await Promise.all(all.map(bytes));
  const isLabels = (file) => /labels|idx1/i.test(file.name);
  const labelsFirst = isLabels(all[0]) && !isLabels(all[1]);
  const [images, labels] = labelsFirst ? [contents[1], contents[0]] : contents;
  return { kind: "idx", images, labels };
}

async function pngImages(files, progress) {
  const pixels = new Uint8Array(files.length * SIDE * SIDE);
  const labels = new Uint8Array(files.length);
  for (const [index, file] of files.entries()) {
    if (!/^[0-9]/.test(file.name)) {
      throw new Error(`${file.name} does not begin with its digit, such as 7-anna.png`);
    }
    labels[index] = Number(file.name[0]);
    pixels.set(await grays(file), index * SIDE * SIDE);
    if (index % 50 === 0) progress(index / files.length);
  }
  return { kind: "pixels", pixels, labels };
}

async function grays(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, {
      resizeWidth: SIDE,
      resizeHeight: SIDE,
      resizeQuality: "high",
    });
  } catch {
    throw new Error(`${file.name} is not a readable image`);
  }
  const context = new OffscreenCanvas(SIDE, SIDE).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, SIDE, SIDE);
  const gray = new Uint8Array(SIDE * SIDE);
  for (let i = 0; i < gray.length; i++) {
    gray[i] = Math.round(0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]);
  }
  return gray;
}
