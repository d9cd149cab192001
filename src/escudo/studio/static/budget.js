// The budget: sliders and numbers that say the same, and what they mean, as they move.
"use strict";

const at = (id) => document.getElementById(id);
const form = at("terms");
const named = ["epsilon", "delta", "rows-per-person"].filter((name) => at(name)); // the last where persons are protected
const slide = Object.fromEntries(named.map((name) => [name, at(`${name}-slider`)]));

/** Write a power of ten as people would: three digits, and whole rows. */
function power(name, exponent) {
  const value = 10 ** exponent;
  return name === "rows-per-person" ? Math.round(value) : Number(value.toPrecision(exponent < -2 ? 2 : 3));
}

function follow(name) {
  const value = Number(at(name).value);
  if (value > 0) slide[name].value = Math.log10(value);
}

for (const name of named) {
  slide[name].addEventListener("input", () => {
    at(name).value = String(power(name, Number(slide[name].value)));
    changed();
  });
  at(name).addEventListener("input", () => follow(name));
  follow(name);
}
if (!at("delta").value) slide.delta.value = -6;
form.addEventListener("input", () => changed());
form.addEventListener("submit", (event) => event.preventDefault());

/** Ask a question about the newest terms, one at a time; what changed meanwhile is asked next. */
function asker(place, show) {
  let asking = false;
  let again = false;
  return async () => {
    again = true;
    if (asking) return;
    asking = true;
    while (again) {
      again = false;
      try {
        show(await ask(place, { terms: Object.fromEntries(new FormData(form)) }));
        at("refused").hidden = true;
      } catch (error) {
        at("refused").hidden = false;
        at("refused").textContent = error.message;
      }
    }
    asking = false;
    document.body.dataset[place.split("/").pop()] = JSON.stringify(Object.fromEntries(new FormData(form)));
  };
}

const foretell = asker("/api/forecast", showForecast);
const plan = asker("/api/budget", showPlan);
let resting = null;

/** What follows a slider comes at once; the plan, which takes longer, when it rests. */
function changed() {
  foretell();
  clearTimeout(resting);
  at("plan").classList.add("old");
  resting = setTimeout(plan, 300);
}

function cell(text, label) {
  const made = document.createElement("td");
  made.textContent = text;
  if (label) made.dataset.label = label;
  else made.className = "name";
  return made;
}

/** Write e^1.00 as a power. */
function powers(text) {
  return text.split(/e\^([0-9.]*[0-9])/).flatMap((part, place) => {
    if (place % 2 === 0) return [part];
    return ["e", Object.assign(document.createElement("sup"), { textContent: part })];
  });
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

function outcome(times) {
  const made = cell("", "outcomes");
  const words = document.createElement("span"); // one thing, where a phone puts the parts of a cell side by side
  words.append(...powers(`${times} times as likely`));
  made.append(words);
  return made;
}

function bars(body, entries) {
  const most = Math.max(...entries.map(([, error]) => error), 1e-9);
  body.replaceChildren(...entries.map(([name, error]) => {
    const bar = document.createElement("div");
    bar.className = "error-bar";
    bar.style.width = `${(100 * error) / most}%`;
    const last = document.createElement("td");
    last.className = "error-cell";
    last.append(bar);
    return row(cell(name), cell(`${(100 * error).toFixed(error < 0.01 ? 2 : 1)} %`, "error"), last);
  }));
}

function showPlan(found) {
  at("plan").textContent = found.plan;
  at("plan").classList.remove("old");
  at("who").replaceChildren(...found.who.map((one) =>
    row(cell(one.who), cell(one.epsilon, "ε"), outcome(one.times), cell(`${one.guess} %`, "guesses"))));
  const { ledger } = found;
  at("ledger-section").hidden = !ledger;
  if (ledger) {
    const asked = Number.isFinite(ledger.asked) ? ledger.asked : 1;
    at("ledger-used").style.width = `${100 * Math.min(ledger.used, 1)}%`;
    at("ledger-asked").style.width = `${100 * Math.min(asked, 1 - Math.min(ledger.used, 1))}%`;
    at("ledger-asked").classList.toggle("over", !ledger.fits);
    at("ledger-said").textContent = `${ledger.dataset}: ${(100 * ledger.used).toFixed(0)} % of ε = ${ledger.cap} is used; this asks for ${(100 * asked).toFixed(0)} % and ${ledger.fits ? "fits" : "would be refused"}.`;
  }
}

function showForecast(found) {
  const { delta, forecast } = found;
  at("sentence").replaceChildren(...powers(found.sentence));
  at("delta-said").textContent = delta.warning || (delta.records
    ? `δ = ${delta.delta} against 1/n = ${(1 / delta.records).toPrecision(2)}: ${Number((1 / delta.records / delta.delta).toPrecision(2)).toLocaleString("en")} times below it.`
    : `δ = ${delta.delta}. The number of records is not public, so it cannot be compared with 1/n.`);
  at("delta-said").classList.toggle("note", Boolean(delta.warning));
  at("forecast-section").hidden = false;
  at("forecast-tables").hidden = !forecast;
  at("forecast-said").textContent = found.no_forecast ?? "";
  if (forecast) {
    at("forecast-said").textContent = forecast.said;
    bars(at("forecast-columns"), forecast.columns);
    bars(at("forecast-pairs"), forecast.pairs);
  }
}

foretell();
plan();
