// Search from disk: browsers start no worker for file://, so that one is played by a hidden frame of the same page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = (this.inner = frame.contentWindow);
      const home = new URL(url, location.href).href;
      const load = (path) =>
        new Promise((done, failed) => {
          const script = inner.document.createElement("script");
          script.src = new URL(path, home).href;
          script.onload = done;
          script.onerror = failed;
          inner.document.head.appendChild(script);
        });
      inner.importScripts = (...paths) => paths.reduce((before, path) => before.then(() => load(path)), Promise.resolve());
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        if (this.onmessage) this.onmessage(event);
        this.dispatchEvent(event);
      };
      this.ready = load(home);
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })));
    }
    terminate() {}
  };
}
