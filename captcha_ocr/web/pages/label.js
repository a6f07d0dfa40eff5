// The page of `captcha-ocr label`: one image, one field, one key to save and go on.

const UNSURE = 0.9; // a character below this confidence is marked
const PROGRESS_MS = 5000;

const $ = (id) => document.getElementById(id);
const token = new URLSearchParams(location.hash.slice(1)).get("token"); // never sent as part of an address
const headers = { Authorization: `Bearer ${token}` };
const behind = []; // numbers of images that were shown before, the last one at the end
let image = null; // what is on the screen
let busy = false; // a label is on its way: a second Enter must not save the next image

async function ask(path, document) {
  const options = document === undefined ? { headers } : {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify(document),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Your text is still in the field; start captcha-ocr label again.");
  }
  const result = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (answer.status === 401) result.error = "This page is of an earlier start. Open the address that captcha-ocr label printed.";
  if (!answer.ok) throw Object.assign(new Error(result.error), { status: answer.status });
  return result;
}

// Shows an image, or the end where there is none; what is typed belongs to the image on the screen until then.
async function show(next) {
  const response = next && (await fetch(`v1/images/${next.number}`, { headers }));
  const picture = response?.ok ? await response.blob() : null;
  image = next;
  $("form").hidden = !image;
  $("done").hidden = Boolean(image);
  if (!image) return;
  const before = $("image").src;
  if (picture) $("image").src = URL.createObjectURL(picture);
  else {
    $("image").removeAttribute("src");
    image.problem ??= "This image cannot be shown.";
  }
  if (before) URL.revokeObjectURL(before);
  $("image").dataset.file = image.file;
  $("text").value = image.text ?? image.guess?.text ?? "";
  $("marked").replaceChildren(...(image.guess?.characters ?? []).map(([character, confidence]) => {
    const shown = document.createElement("span");
    shown.textContent = character;
    if (confidence < UNSURE) shown.className = "unsure";
    return shown;
  }));
  const unsure = (image.guess?.characters ?? []).filter(([, confidence]) => confidence < UNSURE);
  $("unsure").textContent = unsure.length ? `Unsure of ${unsure.map(([character]) => character).join(", ")}` : "";
  $("text").focus();
  $("text").select();
}

function tell(message, isError = false) {
  $("status").textContent = message;
  $("status").className = isError ? "error" : "";
}

function showProgress(progress) {
  const left = progress.images - progress.labelled - progress.skipped;
  $("count").textContent = `${progress.labelled} of ${progress.images} labelled, ${progress.skipped} skipped, ${left} left`;
  $("bar").value = (progress.labelled + progress.skipped) / progress.images;
  const accuracy = progress.accuracy;
  $("accuracy").textContent = accuracy
    ? `The model reads ${accuracy.right} of ${accuracy.images} labels that it did not learn ` +
      `(95 % interval ${accuracy.interval.map((share) => (100 * share).toFixed(0)).join(" to ")} %).`
    : progress.unscored
      ? `A score of the model needs ${progress.unscored} more label${progress.unscored === 1 ? "" : "s"}.`
      : "";
  const training = progress.training;
  $("rounds").hidden = !training;
  $("training").textContent = progress.problem
    ? `Training failed: ${progress.problem}`
    : training
      ? `A better model is being trained: round ${training.round} of at most ${training.rounds}, ${training.seconds} s.`
      : `Model: ${progress.model}.` +
        (progress.next_training && progress.next_training <= progress.images ? ` The next one is trained at ${progress.next_training} labels.` : "");
  $("next").hidden = progress.needed > 0 || !progress.commands.length;
  $("commands").textContent = progress.commands.join("\n");
}

// Does one thing after the other: a key that comes too early does nothing.
async function alone(action) {
  if (busy) return;
  busy = true;
  try {
    const message = await action();
    tell(image?.problem ? `${message}. ${image.problem}` : message, Boolean(image?.problem));
  } catch (error) {
    tell(error.message, true);
  }
  busy = false;
}

function save(text) {
  if (image) alone(async () => {
    const { number, version } = image;
    try {
      const { saved, image: next, progress } = await ask("v1/label", { number, text, version });
      behind.push(number);
      showProgress(progress);
      await show(next);
      return saved.text ? `Saved ${saved.text}` : `Skipped ${saved.file}`;
    } catch (error) {
      if (error.status === 409) {
        const there = await ask(`v1/images/${number}/view`);
        image.version = there.version;
        error.message += `: ${there.text ?? "without a label"}. Save again to replace that.`;
      }
      throw error;
    }
  });
}

function undo() {
  alone(async () => {
    const { image: next, progress } = await ask("v1/undo", {});
    if (behind.at(-1) === next.number) behind.pop();
    showProgress(progress);
    await show(next);
    return "Taken back";
  });
}

function submit() {
  const text = $("text").value.trim();
  if (text) save(text);
  else tell("Write what you see, or press Esc if nobody can read it.", true);
}

function goBack() {
  alone(async () => {
    if (!behind.length) return "No image was labelled here before this one";
    await show(await ask(`v1/images/${behind.at(-1)}/view`));
    behind.pop();
    return `Back at ${image.file}`;
  });
}

function goOn() {
  alone(async () => {
    await show((await ask("v1/next")).image);
    return "The next image";
  });
}

$("form").addEventListener("submit", (event) => event.preventDefault());
$("form").querySelector("[type=submit]").addEventListener("click", submit);
$("skip").addEventListener("click", () => save(""));
$("undo").addEventListener("click", undo);
$("back").addEventListener("click", goBack);
document.addEventListener("keydown", (event) => {
  if (event.isComposing) return; // Enter ends a composition
  const enters = event.key === "Enter" && event.target === $("text");
  if (enters) event.preventDefault(); // else the browser clicks the button
  if (event.repeat) return; // a held key must not save unseen images
  if (enters) {
    submit();
  } else if (event.key === "Escape") {
    event.preventDefault();
    save("");
  } else if (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey) && !event.shiftKey) {
    event.preventDefault();
    undo();
  } else if (event.altKey && event.key === "ArrowLeft") {
    event.preventDefault();
    goBack();
  } else if (event.altKey && event.key === "ArrowRight") {
    event.preventDefault();
    goOn();
  }
});

alone(async () => {
  const { image: first, progress } = await ask("v1/next");
  showProgress(progress);
  await show(first);
  return "";
});
setInterval(async () => {
  if (!busy && !document.hidden) ask("v1/progress").then(showProgress, () => {});
}, PROGRESS_MS);
