// What pages do beyond links and forms. Every page works without it.
"use strict";

// Times are shown in UTC: the title has the reader's own time.
for (const element of document.querySelectorAll("time")) {
  const moment = new Date(element.dateTime);
  if (!Number.isNaN(moment.getTime())) element.title = moment.toLocaleString();
}

for (const button of document.querySelectorAll("button.copy")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", () => {
    navigator.clipboard.writeText(button.dataset.text).then(() => {
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 1200);
    });
  });
}

// A select of these changes what is shown at once.
for (const select of document.querySelectorAll("select[data-submit]")) {
  select.addEventListener("change", () => select.form.requestSubmit());
}

// On a narrow screen the menu is wider than the page.
document.querySelector("nav.main [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

// What is wider than the page is scrolled by keys, too.
for (const area of document.querySelectorAll(".scroll")) {
  if (area.scrollWidth > area.clientWidth) area.tabIndex = 0;
}

// A double click sends a form that acts once.
for (const form of document.querySelectorAll("form[method=post]")) {
  let isSent = false;
  form.addEventListener("submit", (event) => {
    if (isSent) event.preventDefault();
    isSent = true;
  });
  window.addEventListener("pageshow", () => { isSent = false; });
}

// Ctrl+Enter runs a query.
for (const area of document.querySelectorAll("textarea[data-submit]")) {
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      area.form.requestSubmit();
    }
  });
}

// "/" goes to the first field of the page.
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const field = document.querySelector("main input:not([type=hidden]):not([type=checkbox]), main textarea");
  if (field) {
    event.preventDefault();
    field.focus();
  }
});
