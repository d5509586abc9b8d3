// What a page does besides its charts: theme, contents, copying, saving. Runs at the end of the body, before the charts' module.
(() => {
  "use strict";
  const root = document.documentElement;
  const all = (pattern) => document.querySelectorAll(pattern);
  const say = (text) => { document.getElementById("said").textContent = text; };

  // A file opened from disk may be refused storage: the choice then lasts as long as the page.
  const remembered = () => { try { return localStorage.getItem("stoker-theme"); } catch { return null; } };
  const remember = (theme) => { try { localStorage.setItem("stoker-theme", theme); } catch { /* not kept */ } };

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => toggle.setAttribute("aria-pressed", String(isDark()));
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    show();
  });
  dark.addEventListener("change", show);
  toggle.hidden = false;
  show();

  for (const each of all(".unscripted")) each.hidden = true;

  // Tables are open for those without scripts, and on paper; here the pictures come first.
  for (const each of all("details.data")) each.open = false;
  const contents = document.querySelector("nav details");
  const wide = matchMedia("(min-width: 64rem)");
  const fold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", fold);
  fold();
  contents.addEventListener("click", (event) => { if (event.target.closest("a") && !wide.matches) contents.open = false; });

  const closed = new Set();
  addEventListener("beforeprint", () => {
    for (const each of all("details:not([open])")) {
      closed.add(each);
      each.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const each of closed) each.open = false;
    closed.clear();
  });

  // Where one is, in the contents.
  const links = new Map([...all("nav a")].map((each) => [each.hash.slice(1), each]));
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const each of links.values()) each.removeAttribute("aria-current");
      links.get(target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -75% 0px" });
  for (const each of all("main > section")) seen.observe(each);

  // A box that scrolls is reached by keyboard and has a name; one that does not is left alone.
  const measured = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const scrolls = target.scrollWidth > target.clientWidth + 1 || target.scrollHeight > target.clientHeight + 1;
      for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", target.querySelector("caption").textContent]]) {
        if (scrolls) target.setAttribute(name, value); else target.removeAttribute(name);
      }
    }
  });
  for (const each of all(".scroll")) measured.observe(each);

  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  for (const each of all("button.copy")) {
    each.hidden = false;
    each.addEventListener("click", async () => {
      const done = await copied(each.parentElement.querySelector("code").textContent);
      each.focus();
      each.textContent = done ? "Copied" : "Not copied";
      say(done ? "Copied." : "The browser did not let this be copied.");
      setTimeout(() => { each.textContent = "Copy"; }, 2000);
    });
  }

  for (const each of all("button.save")) {
    each.hidden = false;
    each.addEventListener("click", async () => {
      const packed = Uint8Array.from(atob(document.getElementById(each.dataset.from).textContent), (at) => at.charCodeAt(0));
      const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([await new Response(stream).blob()], { type: "application/json" }));
      link.download = each.dataset.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
      say("Saved.");
    });
  }
})();
