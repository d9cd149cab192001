// What every page does: watch work that is running, send a chosen file, keep widths that styles cannot know.
"use strict";

/** Ask the studio something; throw what it complains of. */
async function ask(place, body) {
  const told = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(place, told);
  const found = await response.json();
  if (!response.ok || found.problem) throw new Error(found.problem ?? "The studio did not answer.");
  return found;
}

const seconds = (left) => (left === null ? "" : left < 90 ? `about ${Math.max(1, Math.round(left))} s left` : `about ${Math.round(left / 60)} min left`);

async function watch(place) {
  const number = place.dataset.job;
  const label = place.querySelector(".job-label");
  const bar = place.querySelector("progress");
  bar.setAttribute("aria-label", "How far it is");
  for (;;) {
    let job;
    try {
      job = await ask(`/api/jobs/${number}`);
    } catch {
      label.textContent = "The studio does not answer.";
      return;
    }
    if (job.state !== "running") {
      location.reload();
      return;
    }
    const { progress } = job;
    label.textContent = [progress.label, seconds(progress.left), `${Math.round(job.seconds)} s so far`].filter(Boolean).join(", ");
    if (progress.total > 0) bar.value = progress.done / progress.total;
    else bar.removeAttribute("value");
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
}

for (const place of document.querySelectorAll("[data-job]")) watch(place);
for (const button of document.querySelectorAll("[data-stop]")) {
  button.addEventListener("click", async () => {
    button.disabled = true;
    await ask(`/api/jobs/${button.dataset.stop}/stop`, {});
  });
}
for (const meter of document.querySelectorAll("[data-width]")) meter.style.width = `${100 * Number(meter.dataset.width)}%`;
for (const radio of document.querySelectorAll("[data-clears]")) {
  radio.addEventListener("change", () => {
    document.getElementById(radio.dataset.clears).value = "";
  });
  document.getElementById(radio.dataset.clears).addEventListener("input", (event) => {
    radio.checked = event.target.value === "";
  });
}

/** Of a column's form, show what goes with its kind. */
for (const kind of document.querySelectorAll("select[name=kind]")) {
  const fit = () => {
    for (const part of kind.form.querySelectorAll("[data-kinds]")) part.hidden = !part.dataset.kinds.split(" ").includes(kind.value);
  };
  kind.addEventListener("change", fit);
  fit();
}

document.getElementById("upload")?.addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  const response = await fetch("/api/upload", { method: "POST", headers: { "X-File-Name": encodeURIComponent(file.name) }, body: file });
  const found = await response.json();
  if (found.next) location.assign(found.next);
});

if (location.hash.startsWith("#column-")) document.querySelector(location.hash)?.setAttribute("open", "");
