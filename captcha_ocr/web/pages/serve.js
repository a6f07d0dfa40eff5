// The page of `captcha-ocr serve`: sends images to /v1/read, and shows what comes back.

const UNSURE = 0.9; // a character below this confidence is marked
const AT_ONCE = 4; // requests

const drop = document.querySelector("#drop");
const files = document.querySelector("#files");
const options = document.querySelector("#options");
const status = document.querySelector("#status");
const table = document.querySelector("#readings");
const token = new URLSearchParams(location.hash.slice(1)).get("token"); // never sent as part of an address
const headers = token ? { Authorization: `Bearer ${token}` } : {};
const waiting = [];
let running = 0;
let read = 0;

function element(name, text, className) {
  const made = document.createElement(name);
  made.textContent = text ?? "";
  if (className) made.className = className;
  return made;
}

function query() {
  const chosen = new URLSearchParams();
  for (const name of ["charset", "length"]) {
    const value = options.querySelector(`[name=${name}]`).value.trim(); // elements.length is a number
    if (value) chosen.set(name, value);
  }
  for (const name of ["fold_case", "solve_sums"]) {
    if (options.elements.namedItem(name).checked) chosen.set(name, "true");
  }
  return chosen.size ? `?${chosen}` : "";
}

function addRow(file) {
  const row = table.tBodies[0].insertRow(0);
  const image = element("img");
  image.alt = file.name || "pasted image";
  image.src = URL.createObjectURL(file);
  image.addEventListener("error", () => image.replaceWith(element("span", image.alt)), { once: true });
  image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
  row.insertCell().append(image);
  const cells = [row.insertCell(), row.insertCell(), row.insertCell()];
  cells[0].textContent = "…";
  table.hidden = false;
  return cells;
}

function showReading([text, confidence, copy], reading) {
  text.textContent = "";
  text.className = "text";
  for (const each of reading.characters) {
    text.append(element("span", each.character, each.confidence < UNSURE ? "unsure" : ""));
  }
  const result = reading.result ?? null;
  if (result !== null) text.append(element("div", `result ${result}`, "faint"));
  confidence.textContent = percent(reading.confidence);
  for (const { character, confidence: share, runner_up: other } of reading.characters) {
    const details = `${character} ${percent(share)}${other ? `, or ${other}` : ""}`;
    if (share < UNSURE) confidence.append(element("div", details, "faint"));
  }
  const button = element("button", "Copy");
  button.type = "button";
  const copied = String(result ?? reading.text);
  button.setAttribute("aria-label", `Copy ${copied}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(copied);
      status.textContent = `Copied ${copied}`;
    } catch {
      status.textContent = "The browser does not allow copying here: it needs https, or this machine's own address.";
    }
  });
  copy.append(button);
}

function showError([text, confidence, copy], message) {
  confidence.remove();
  copy.remove();
  text.colSpan = 3;
  text.textContent = message;
  text.className = "error";
}

function percent(share) {
  return `${(100 * share).toFixed(1)} %`;
}

async function send({ file, cells }) {
  try {
    const type = file.type || "application/octet-stream";
    const answer = await fetch(`v1/read${query()}`, { method: "POST", headers: { ...headers, "Content-Type": type }, body: file });
    if (answer.status === 503) {
      const seconds = Number(answer.headers.get("Retry-After")) || 1;
      setTimeout(() => enqueue({ file, cells }), 1000 * seconds);
      return;
    }
    const result = await answer.json();
    if (answer.ok) showReading(cells, result);
    else showError(cells, result.error);
  } catch {
    showError(cells, "The server does not answer.");
  }
  read += 1;
  status.textContent = `Read ${read} ${read === 1 ? "image" : "images"}`;
}

function enqueue(job) {
  waiting.push(job);
  work();
}

async function work() {
  if (running >= AT_ONCE || !waiting.length) return;
  running += 1;
  await send(waiting.shift());
  running -= 1;
  work();
}

function take(list) {
  for (const file of list) enqueue({ file, cells: addRow(file) });
}

files.addEventListener("change", () => {
  take(files.files);
  files.value = "";
});
options.addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) {
    event.preventDefault();
    take(event.clipboardData.files);
  }
});
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.classList.add("over");
});
document.addEventListener("dragleave", () => drop.classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  drop.classList.remove("over");
  take(event.dataTransfer.files);
});

const answer = await fetch("v1/model", { headers });
const model = await answer.json();
document.querySelector("#model").textContent = answer.ok
  ? `Model: ${model.model}; texts of ${model.length.shortest} to ${model.length.longest} characters`
  : model.error;
